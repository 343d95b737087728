"""What the server computes from anchor sets alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import save_compact
from protocol_servers import small_domain, small_table
from protocol_standin import cut_table

import panda_mdp as pm
from panda_mdp.errors import EmptyAnchorsError
from panda_mdp.panda.lattice import BallLaw
from panda_mdp.panda.run import study_panda
from panda_mdp.privacy.quantise import SeededBits
from panda_mdp.protocol.messages.catalogue import Places
from panda_mdp.protocol.messages.deployments import AnchorsDeploymentRequest, BallTerms
from panda_mdp.protocol.server.solving import (
    anchors_facts,
    solve_round,
)
from panda_mdp.protocol.server.store.catalogue import pack, unpack

PLACES = Places(lat=[i / 111.195 for i in range(12)], lon=[12.0] * 12)
"""A kilometre from each other."""
DOMAIN = PLACES.domain()


def request(**changes: Any) -> AnchorsDeploymentRequest:
    body: dict[str, Any] = {
        "kind": "anchors",
        "name": "a",
        "domain": "line",
        "outputs": [0, 4, 8, 11],
        "epsilon": 2.0,
        "delta": 0.05,
        "selection": {
            "decay": "logistic",
            "alpha": 0.98,
            "rate": 0.01,
            "radius": 12.0,
            "neighbours": 12,
        },
    }
    return AnchorsDeploymentRequest.model_validate_json(
        AnchorsDeploymentRequest(**(body | changes)).model_dump_json()
    )


def test_the_table_is_the_one_that_a_simulation_gets() -> None:
    """pm.panda, which knows the records, and the server, which does not, solve the same problem."""
    work = request().scheme(DOMAIN)
    options = pm.PandaOptions()
    run = study_panda(work.problem, [1, 5, 9], work.selection, work.delta, options, seed=1)
    solved = solve_round(request(), PLACES, run.anchor_sets)
    table = run.table
    np.testing.assert_array_equal(solved.anchors, table.anchors)
    for chosen in run.anchor_sets:
        rows = table.row[table.positions(chosen)]
        np.testing.assert_array_equal(solved.rows(chosen), table.mechanism.weights[rows])
    assert (anchors_facts(request(), PLACES)["guarantee"] is None) == bool(run.reasons)


def test_a_guarantee_is_stated_where_it_is_certified() -> None:
    """Everybody selects everything with the same probability, so the set tells nothing."""
    fits = {
        "decay": "exponential",
        "alpha": 1 - 1e-4,
        "rate": 0.0,
        "radius": 12.0,
        "neighbours": 12,
    }
    work = request(selection=fits, delta=1e-3)
    facts = anchors_facts(work, PLACES)
    assert facts["guarantee"] == {"epsilon": 2.0, "delta": 1e-3, "unit": "km"}
    assert facts["reasons"] == []
    solved = solve_round(work, PLACES, (np.arange(12), np.arange(11)))
    rows = solved.rows(np.arange(12)).astype(float)
    logs = np.log(rows[:, rows.any(axis=0)])
    apart = DOMAIN.distances()
    assert (np.abs(logs[:, None] - logs).max(axis=2) <= 2.0 * apart * (1 + 1e-9)).all()


def test_no_guarantee_says_why() -> None:
    work = request(selection={"decay": "power", "alpha": 0.9, "rate": 0.5, "radius": 1.5})
    facts = anchors_facts(work, PLACES)
    assert facts["guarantee"] is None
    assert facts["reasons"] and "Phase I costs" in facts["reasons"][0]


def test_a_forged_set_changes_nobody_elses_budgets() -> None:
    """Rows keep the same budgets with and without the forger, whatever is in the union."""
    work = request()
    honest = (np.array([0, 1, 2, 3]), np.array([2, 3, 4, 5]))
    for forged in (np.arange(12), np.array([11]), np.array([0, 11])):
        solved = solve_round(work, PLACES, (*honest, forged))
        budgets = work.scheme(DOMAIN).budgets_of(solved.anchors)
        rows = solved.rows(solved.anchors).astype(float)
        logs = np.log(rows[:, rows.any(axis=0)])
        spent = np.abs(logs[:, None] - logs).max(axis=2)
        assert (spent <= budgets + 1e-9).all()


def test_a_round_of_nobody_is_refused() -> None:
    with pytest.raises(EmptyAnchorsError, match="no anchors entered"):
        solve_round(request(), PLACES, (np.array([], np.int64),))


def test_balls_promise_twice_the_tables_epsilon_and_the_centres(tmp_path: Path) -> None:
    domain = small_domain()
    mechanism = small_table(domain, epsilon=1.5)
    save_compact(mechanism, tmp_path / "t.pmdp")
    terms = BallTerms(epsilon_1=2.0, edge=0.5, radius=2.0, snap=1.0)
    facts, tiles = cut_table((tmp_path / "t.pmdp").read_bytes(), terms)
    assert facts["guarantee"] == {"epsilon": 4.0, "delta": 0.0, "unit": "km"}
    assert facts["outputs"] == mechanism.problem.outputs.tolist()
    law, places = BallLaw(domain, 2.0, 2.0, 2.0, 0.5), np.array([domain.lat, domain.lon]).T
    # What clients are shown has the same law of centres.
    shown = BallLaw(pm.Domain.from_points(*facts["places"].values()), 2.0, 2.0, 2.0, 0.5)
    assert shown.domain.size < domain.size
    np.testing.assert_array_equal(shown.box, law.box)
    np.testing.assert_array_equal(shown.flat(*places.T), law.places)
    assert [side.tolist() for side in law.box] == facts["box"]
    for record in range(0, domain.size, 7):
        centre = law.draw(record, SeededBits(record))
        made = tiles.ball(1, centre)
        at = np.array(centre) / law.exponent
        near = np.hypot(*(law.places - at).T) < 2.0
        sent = list(zip(made.lat, made.lon, strict=True))
        assert set(sent) >= set(map(tuple, places[near].tolist()))
        # Tiles are whole, and each has a record inside.
        inside = [place in set(map(tuple, places[near].tolist())) for place in sent]
        assert all(map(any, np.split(inside, np.cumsum(made.sizes)[:-1]))) or not sent


def test_arrays_are_packed_alike_every_time() -> None:
    arrays = {"a": np.arange(5), "b": np.ones((2, 2))}
    assert pack(arrays) == pack(arrays)
    assert unpack(pack(arrays))["b"].shape == (2, 2)
