"""Messages are strict, closed, bounded and finite, and their errors never show a value."""

from __future__ import annotations

import inspect
import json
import re

import pytest
from pydantic import BaseModel, ValidationError

from panda_mdp.protocol.ledger.books import new_id
from panda_mdp.protocol.messages import catalogue, deployments, log, service, signing, types
from panda_mdp.protocol.messages.blind import IssueRequest, OneUse
from panda_mdp.protocol.messages.catalogue import DomainRequest
from panda_mdp.protocol.messages.deployments import (
    AnchorsRequest,
    BallRequest,
    ReportRequest,
    deployment_info,
    deployment_request,
)
from panda_mdp.protocol.messages.service import TokenMade

ID = "3f2b8c1e-9d4a-4c6b-8e2f-0a1b2c3d4e5f"


def models() -> list[type[BaseModel]]:
    return [
        value
        for module in (catalogue, deployments, log, service, signing, types)
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, BaseModel)
        and value.__module__ == module.__name__
    ]


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
def test_every_model_is_strict_closed_frozen_and_silent(model):
    config = model.model_config
    assert config["strict"] is True
    assert config["extra"] == "forbid"
    assert config["frozen"] is True
    assert config["allow_inf_nan"] is False
    assert config["hide_input_in_errors"] is True
    assert inspect.getdoc(model)


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
def test_every_string_and_list_is_bounded(model):
    """Every string has a largest length or a closed pattern, every list of a request a size."""
    request = model.__name__.endswith(("Request", "Upload", "Patch"))

    def walk(node):
        if isinstance(node, dict):
            if node.get("type") == "string" and "const" not in node and "enum" not in node:
                assert {"maxLength", "pattern", "format"} & node.keys(), node
            if node.get("type") == "array" and request:
                assert "maxItems" in node, node
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(model.model_json_schema())


def test_a_report_holds_an_id_its_table_an_output_and_a_proof_and_nothing_else():
    assert set(ReportRequest.model_fields) == {"id", "table", "output", "proof"}
    assert set(OneUse.model_fields) == {"period", "signature"}
    assert set(IssueRequest.model_fields) == {"period", "blinded"}
    assert set(BallRequest.model_fields) == {"centre"}
    assert set(AnchorsRequest.model_fields) == {"anchors"}


@pytest.mark.parametrize(
    "change",
    [
        {"record": 7},
        {"output": "7"},
        {"output": 7.0},
        {"output": True},
        {"output": -1},
        {"output": 10**9},
        {"table": "0"},
        {"id": "7"},
        {"id": ID.upper()},
        {"id": ID.replace("-4c6b", "-1c6b")},
        {"id": ID + "\n"},
    ],
)
def test_reports_that_break_a_rule_are_refused_without_their_value(change):
    body = {"id": ID, "output": 3} | change
    with pytest.raises(ValidationError) as caught:
        ReportRequest.model_validate_json(json.dumps(body))
    assert "input_value" not in str(caught.value)


def test_numbers_must_be_finite():
    body = {"name": "a", "lat": [float("nan"), 1.0], "lon": [1.0, 2.0]}
    with pytest.raises(ValidationError):
        DomainRequest.model_validate(body)
    with pytest.raises(ValidationError):
        DomainRequest.model_validate_json('{"name":"a","lat":[1e999],"lon":[1.0]}')


def test_a_domain_is_places():
    good = {"name": "a", "kind": "haversine", "lat": [1.0, 2], "lon": [1.0, 2.0]}
    assert DomainRequest.model_validate(good).unit == "km"
    for change in (
        {"kind": "matrix"},
        {"lat": None},
        {"vectors": [[1.0]]},
        {"unit": "m"},
        {"lat": [91.0, 2.0]},
    ):
        with pytest.raises(ValidationError):
            DomainRequest.model_validate(good | change)


def test_streets_fit_their_nodes():
    streets = {"lat": [1_000_000, 2], "lon": [1, 2], "u": [0], "v": [1]}
    catalogue.Streets.model_validate(streets)
    for change in ({"v": [2]}, {"v": []}, {"lat": [1]}, {"lat": [1.0, 2.0]}, {"lon": [10**9, 1]}):
        with pytest.raises(ValidationError):
            catalogue.Streets.model_validate(streets | change)


def test_anchors_ascend():
    AnchorsRequest(anchors=[1, 2, 9])
    for anchors in ([2, 1], [1, 1]):
        with pytest.raises(ValidationError):
            AnchorsRequest(anchors=anchors)


def test_deployments_are_told_apart_by_kind():
    table = {"name": "t", "kind": "table", "table": {"name": "rome", "version": 1}}
    made = deployment_request.validate_python(table)
    assert isinstance(made, deployments.TableDeploymentRequest)
    assert made.period_s == 86_400
    with pytest.raises(ValidationError):
        deployment_request.validate_python(table | {"kind": "other"})
    with pytest.raises(ValidationError):
        deployment_info.validate_python(table)


def test_ids_are_random_uuids_of_version_4():
    made = {new_id() for _ in range(100)}
    assert len(made) == 100
    for one in made:
        ReportRequest(id=one, output=0)
        assert re.fullmatch(
            r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", one
        )


def test_a_token_hides_its_secret():
    secret = "s" * 43
    token = TokenMade(id="0" * 12, token=f"pmt_{'0' * 12}_{secret}", role="reporter", label="")
    assert secret not in repr(token) + str(token) + f"{token}"
    assert secret in token.model_dump_json()
