"""A client believes what the operator signed, within limits of its own, and returns nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import save_compact
from protocol_standin import TOKEN, URL, Standin, anchors_deployment, give, without_fsync

import panda_mdp as pm
from panda_mdp.errors import PrivacyError, ProtocolError, SignatureError
from panda_mdp.privacy.quantise import TOTAL
from panda_mdp.protocol import Allowance, Client
from panda_mdp.protocol.client.rounds import parse_rows
from panda_mdp.protocol.client.trust import Trust, read_statement
from panda_mdp.protocol.messages.catalogue import TableRef
from panda_mdp.protocol.messages.signing import Keyring
from panda_mdp.table.decode import Expected

KM = 1 / 111.2


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    without_fsync(monkeypatch)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    rng = np.random.default_rng(4)
    domain = pm.Domain.from_points(41.87 + 0.02 * rng.random(12), 12.43 + 0.02 * rng.random(12))
    outputs = np.array([1, 5, 9])
    problem = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), 2.0)
    path = tmp_path_factory.mktemp("city") / "city.pmdp"
    return path, save_compact(pm.exponential(problem), path)


@pytest.fixture
def server(published) -> Standin:
    made = Standin(*published)
    made.anchors = anchors_deployment(published[1].problem.domain, private=True)
    return made


def user(server: Standin, folder: Path, **limits: Any) -> Client:
    allowed = Allowance(**{"epsilon": 9.0, "period_epsilon": 90.0, "delta": 0.5, **limits})
    return Client(URL, TOKEN, folder, allowed, network=server.network, clock=lambda: 1e9)


def says(server: Standin, kind: str = "table", **changes: Any) -> None:
    """The server describes a deployment otherwise than its operator signed it."""
    described = server.signed(server.deployment(kind)).model_copy(update=changes)
    server.faults = [lambda _: None, lambda _: give(described)]


@pytest.mark.parametrize(
    "changes",
    [
        {"period_s": 1},
        {"reports_per_period": 1_000_000},
        {"version": 77},
        {"signature": "A" * 88},
        {"statement": "{}"},
    ],
)
@pytest.mark.parametrize("kind", ["table", "ball", "anchors"])
def test_what_is_not_signed_is_not_believed(server, tmp_path, kind, changes):
    says(server, kind, **changes)
    with user(server, tmp_path) as client:
        if kind == "anchors" and "version" in changes:
            # The round in force, which a client takes from no description.
            client.plan(kind)
            return
        with pytest.raises(SignatureError):
            client.plan(kind)
        assert client.plan(kind).name == kind


@pytest.mark.parametrize(
    "changes", [{"domain": "0" * 64}, {"unit": "m"}, {"metric": "matrix"}, {"epsilon": 1.0}]
)
def test_a_statement_about_another_table_is_refused(server, tmp_path, changes):
    described = server.signed(server.deployment("table"), **changes)
    server.faults = [lambda _: None, lambda _: give(described)]
    with user(server, tmp_path) as client, pytest.raises(SignatureError):
        client.plan("table")


def test_a_past_state_is_called_one(server, tmp_path):
    with user(server, tmp_path) as client:
        client.plan("table")
        server.version = 2
        client.plan("table", accept_update=True)
        server.version = 1
        for accept in (False, True):
            with pytest.raises(SignatureError, match="older than version 2"):
                client.plan("table", accept_update=accept)


def test_an_older_statement_is_refused_wherever_it_is_in_the_log(server, tmp_path):
    trust = Trust(tmp_path, URL)
    key = Keyring(server.key.public, [server.key.public])
    older = read_statement(server.signed(server.deployment("table")), key)
    server.version = 2
    newer = read_statement(server.signed(server.deployment("table")), key)
    trust.accept(newer, 1)
    trust.check_statement(newer, 1)
    with pytest.raises(SignatureError, match="older than version 2"):
        trust.check_statement(older, 1)


def test_two_statements_about_one_version_are_noticed(server, tmp_path):
    with user(server, tmp_path) as client:
        client.plan("table")
        other = server.deployment("table").model_copy(update={"reports_per_period": 5})
        described = server.signed(other)
        # The key is known by now: the first request is for the deployment.
        server.faults = [lambda _: give(described)]
        with pytest.raises(SignatureError, match="two different statements"):
            client.plan("table")


@pytest.mark.parametrize("kind", ["table", "anchors"])
def test_nothing_that_a_server_can_vary_comes_back_with_a_report(published, tmp_path, kind):
    """Two users are shown different versions, and send reports with the same fields."""
    bodies = []
    for version in (1, 77):
        server = Standin(*published)
        server.anchors = anchors_deployment(published[1].problem.domain, private=True)
        server.version = version
        with user(server, tmp_path / str(version)) as client:
            plan = client.plan(kind)
            client.report(plan, plan.record(3))
        (report,) = (sent for sent in server.sent if sent.url.endswith("/reports"))
        bodies.append(report)
        assert str(version) not in report.url.removeprefix(URL).removeprefix("/v1")
    assert bodies[0].url == bodies[1].url
    shown = [dict(sent.headers).keys() for sent in bodies]
    assert shown[0] == shown[1]
    assert b"version" not in bodies[0].body + bodies[1].body


@pytest.mark.parametrize(
    ("expected", "reason"),
    [
        (Expected(epsilon=1.99), "at most 1.99 was expected"),
        (Expected(unit="m"), "a table per m was expected"),
        (Expected(identity="0" * 64), r"0000\.\.\. was expected"),
    ],
)
def test_what_is_not_expected_is_refused(server, tmp_path, expected, reason):
    with user(server, tmp_path) as client:
        with pytest.raises(PrivacyError, match=reason):
            client.plan("table", expected=expected)
        domain = client.plan("table").domain
        client.plan("table", expected=Expected(2.0, "km", domain.fingerprint))


@pytest.mark.parametrize("change", [{"epsilon": 1.0}, {"identity": "0" * 64}])
def test_a_claim_of_the_file_that_was_not_signed_is_refused(server, tmp_path, change):
    """The description and its signatures agree with each other, and not with the file."""
    info = server.info().model_copy(update=change)

    def other() -> Any:
        server.publish(info.signed)
        return info.model_copy(update={"signature": server.key.sign(info.signed)})

    server.info = other
    with (
        user(server, tmp_path) as client,
        pytest.raises(ProtocolError, match="not what its description says"),
    ):
        client.plan("table")


def test_one_version_has_one_file_whatever_is_signed(server, tmp_path):
    """The last of several checks, by itself: a pinned file is never replaced under its version."""
    trust = Trust(tmp_path, URL)
    key = Keyring(server.key.public, [server.key.public])
    stated = read_statement(server.signed(server.deployment("table")), key)
    trust.accept(stated, 1)
    changed = stated.model_copy(update={"table_identity": "b" * 64})
    with pytest.raises(SignatureError, match="is another table than before"):
        trust.check_version(changed, True)
    named = TableRef(name="city", version=2)
    trust.check_version(changed.model_copy(update={"table": named}), True)


def test_another_table_than_the_signed_one_is_no_description_of_it(server, tmp_path):
    """Its file may be the same: names and versions are what a user accepts."""
    key = Keyring(server.key.public, [server.key.public])
    said = server.signed(server.deployment("table"))
    other = said.table.model_copy(update={"version": 7})
    with pytest.raises(SignatureError, match="table"):
        read_statement(said.model_copy(update={"table": other}), key)


@pytest.mark.parametrize("off", [-1, 1])
def test_rows_of_a_message_sum_to_the_whole(off):
    whole = [[str(TOTAL - 5), "5"], [str(TOTAL - 9), "9"]]
    assert parse_rows(whole, 2, 2).sum(axis=1).tolist() == [TOTAL, TOTAL]
    whole[1][1] = str(9 + off)
    with pytest.raises(ProtocolError, match="sum to 2\\^62"):
        parse_rows(whole, 2, 2)
