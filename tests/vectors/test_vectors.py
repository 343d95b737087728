"""The vectors shared with TypeScript say what this library does."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.base.text import canonical
from panda_mdp.errors import SignatureError, SnapError
from panda_mdp.panda.lattice import GRID, BallLaw, to_grid
from panda_mdp.privacy.quantise import TOTAL, choose
from panda_mdp.protocol.messages.deployments import BallRows, Statement
from panda_mdp.protocol.messages.signing import (
    VerifyKey,
    rows_digest,
    signed_bytes,
    statement_bytes,
)
from panda_mdp.space.metrics import haversine_km
from panda_mdp.table.everywhere import EverywhereMechanism, draw_vertices

HERE = Path(__file__).parent


class Words:
    """Words that are given, in order, in place of the operating system's."""

    def __init__(self, words: list[int]) -> None:
        self._left = iter(words)
        self.used = 0

    def integers(self, count: int) -> np.ndarray:
        self.used += count
        return np.array([next(self._left) % TOTAL for _ in range(count)], dtype=np.int64)


def read(name: str) -> Any:
    return json.loads((HERE / name).read_text())


@pytest.fixture(scope="module")
def table():
    return pm.load(HERE / "city.pmdp")


def test_the_file_decodes_to_the_rows(table):
    stated = read("table.json")
    data = (HERE / stated["file"]).read_bytes()
    assert hashlib.sha256(data).hexdigest() == stated["sha256"]
    assert len(data) == stated["size_bytes"]
    assert table.problem.domain.fingerprint == stated["fingerprint"]
    assert table.identity == stated["identity"]
    assert table.problem.outputs.tolist() == stated["outputs"]
    assert table.problem.domain.lat.tolist() == stated["lat"]
    assert table.problem.domain.lon.tolist() == stated["lon"]
    assert [[str(w) for w in row] for row in np.asarray(table.weights).tolist()] == stated["rows"]
    assert all(sum(map(int, row)) == TOTAL == int(stated["total"]) for row in stated["rows"])


def test_words_draw_the_outputs(table):
    weights = np.asarray(table.weights)
    cases = read("draws.json")["draws"]
    assert {case["column"] for case in cases} == set(range(12))
    for case in cases:
        u = int(case["word"]) % TOTAL
        assert str(u) == case["u"]
        column = choose(weights[case["record"]], np.array([u]))[0]
        assert (int(column), int(table.problem.outputs[column])) == (case["column"], case["output"])


def test_places_snap_to_the_records():
    stated = read("snapping.json")
    answers = set()
    for group in stated["sets"]:
        domain = pm.Domain.from_points(group["lat"], group["lon"])
        for case in group["cases"]:
            answers.add((group["name"], case["record"] is None))
            if case["record"] is None:
                with pytest.raises(SnapError):
                    domain.snap(case["lat"], case["lon"], case["limit_km"])
                continue
            snap = domain.snap(case["lat"], case["lon"], case["limit_km"])
            assert snap.record == case["record"]
            assert snap.distance == pytest.approx(
                case["km"], rel=stated["relative_error"], abs=1e-12
            )
    assert {("city", True), ("city", False), ("ties", False), ("no places", True)} <= answers


def test_ties_go_to_the_lowest_record():
    group = next(group for group in read("snapping.json")["sets"] if group["name"] == "ties")
    ties = 0
    for case in group["cases"]:
        apart = haversine_km(
            case["lat"], case["lon"], np.array(group["lat"]), np.array(group["lon"])
        )
        same = np.flatnonzero(apart == apart.min())
        assert case["record"] == same[0]
        ties += len(same) > 1
    assert ties >= 3


def test_distances():
    stated = read("distances.json")
    for pair in stated["pairs"]:
        (lat, lon), (lat2, lon2) = pair["from"], pair["to"]
        km = haversine_km(lat, lon, np.array([lat2]), np.array([lon2]))[0]
        assert km == pytest.approx(pair["km"], rel=stated["relative_error"], abs=0)


def test_signatures():
    stated = read("signing.json")
    key = VerifyKey.from_base64(stated["key"]["public"])
    assert key.id == stated["key"]["id"]
    fields = stated["table"]["fields"]
    signed = signed_bytes("table", *fields.values())
    assert signed.decode() == stated["table"]["bytes"]
    key.verify(signed, stated["table"]["signature"])
    for forged in stated["table"]["refused"]:
        with pytest.raises(SignatureError):
            key.verify(signed, forged)
    one = stated["rows"]
    signed = signed_bytes("rows", one["deployment"], one["version"], rows_digest(**one["content"]))
    assert signed.decode() == one["bytes"]
    key.verify(signed, one["signature"])
    assert canonical(stated["rows"]["content"]).decode() == stated["rows"]["canonical"]
    for epsilon in stated["epsilons"]:
        assert repr(epsilon["value"]) == epsilon["repr"]


def test_a_statement_is_signed_as_its_text():
    stated = read("statement.json")
    key = VerifyKey.from_base64(stated["key"]["public"])
    data = statement_bytes(stated["name"], stated["text"])
    assert data.decode() == stated["bytes"]
    key.verify(data, stated["signature"])
    assert Statement.model_validate_json(stated["text"]).until == "2027-03-31"
    for wrong in stated["refused"]:
        with pytest.raises(SignatureError):
            key.verify(data, wrong)


@pytest.mark.parametrize("name", ["balls", "coins"])
def test_files_of_panda_are_what_is_said_of_them(name):
    said = read("panda.json")[name]
    table = pm.load(HERE / said["file"])
    assert (table.epsilon, table.delta) == (said["epsilon"], said["delta"])
    assert table.account.violation == pytest.approx(said["violation"], rel=1e-6)
    assert table.selection_epsilon == pytest.approx(said["selection_epsilon"], rel=1e-9)
    np.testing.assert_allclose(table.matrix, said["shares"], rtol=1e-12)
    for case in said["draws"]:
        bits = Words([int(word) for word in case["words"]])
        mine = np.array([case["record"]])
        selected = table.scheme.draw_selections(mine, bits)
        column = int(table.scheme.draw_reports(mine, selected, bits)[0])
        assert (int(table.problem.outputs[column]), bits.used) == (
            case["output"],
            len(case["words"]),
        )


def test_laws_of_first_phases_are_what_is_said_of_them():
    said = read("phases.json")["ball"]
    domain = pm.Domain.from_points(said["lat"], said["lon"])
    law = BallLaw(domain, *(said[name] for name in ("epsilon_1", "radius", "second", "edge")))
    assert law.exponent == pytest.approx(said["exponent"], rel=1e-12)
    assert [side.tolist() for side in law.box] == said["box"]
    for case in said["draws"]:
        bits = Words([int(word) for word in case["words"]])
        assert list(law.draw(case["record"], bits)) == case["centre"]
    for case in said["places"]:
        cell, bits = to_grid(case["lat"], case["lon"]), Words([int(word) for word in case["words"]])
        assert list(cell) == case["grid"]
        at = law.among(*np.divide(cell, GRID))
        assert list(law.draws(at, bits, 1)[0]) == case["centre"]
        assert law.depths(tuple(case["centre"]), at) == pytest.approx(case["depth"], abs=1e-9)
    sent = BallRows.model_validate_json(json.dumps(said["tiles"]["sent"]))
    assert len(sent.unpack(said["tiles"]["rows"], said["tiles"]["tiles"])) == len(sent.lat) > 64
    for case in said["balls"]:
        depth, ball = law.depths(tuple(case["centre"])), law.ball(tuple(case["centre"]))
        assert ball.tolist() == case["records"]
        weights = np.array([[int(w) for w in row] for row in case["weights"]], dtype=np.int64)
        shares, common = law.fade(depth, weights.reshape(len(ball), len(case["common"])))
        assert [str(weight) for weight in common.tolist()] == case["common"]
        np.testing.assert_allclose(shares, [int(share) for share in case["shares"]], rtol=1e-9)
    said = read("phases.json")["anchors"]
    domain = pm.Domain.from_points(said["lat"], said["lon"])
    fields = dict(said["selection"])
    probability = pm.BernoulliAnchors(**fields).on(domain).dense(np.arange(domain.size))
    np.testing.assert_allclose(probability, said["probability"], rtol=1e-12)
    for case in said["sets"]:
        numerators = (probability[case["record"]] * float(TOTAL)).astype(np.int64).tolist()
        words = [int(word) % TOTAL for word in case["words"]]
        chosen = [a for a, word in enumerate(words) if word < numerators[a]]
        assert chosen == case["anchors"]


def test_places_draw_in_their_triangles():
    said = read("area.json")
    table = pm.load(HERE / said["file"])
    assert isinstance(table, EverywhereMechanism)
    assert table.everywhere.epsilon == pytest.approx(said["everywhere"], rel=1e-12)
    for case in said["cases"]:
        located = table.mesh.locate(np.array([case["lat"]]), np.array([case["lon"]]))
        assert bool(located.inside[0]) == (case["vertices"] is not None)
        if not located.inside[0]:
            continue
        assert located.vertices[0].tolist() == case["vertices"]
        assert located.weights[0].tolist() == case["weights"]
        bits = Words([int(word) for word in case["words"]])
        vertex = int(draw_vertices(located, bits)[0])
        column = int(choose(table.weights[vertex], bits.integers(1))[0])
        assert int(table.problem.outputs[column]) == case["output"]
