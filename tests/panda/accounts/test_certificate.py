"""The certificate and the capping of budgets on laws small enough to sum by hand."""

from __future__ import annotations

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.errors import MethodError
from panda_mdp.panda.accounts.certificate import cap, certify
from panda_mdp.panda.selection.law import AnchorLaw


@pytest.fixture
def fair() -> AnchorLaw:
    """Two records 1 from each other, both candidates, fair coins: the four sets have 1/4 each."""
    domain = pm.Domain.from_vectors([[0.0], [1.0]])
    return AnchorLaw(domain, 0.5, lambda apart: np.full(len(apart), 0.5), 0.5, None)


@pytest.mark.parametrize(("delta", "expected"), [(0.04, 1.0), (0.49, 1.0), (0.51, 2.0)])
def test_budgets_are_capped_unless_delta_holds_the_empty_set_as_well(fair, delta, expected) -> None:
    """The whole set leads to two surrogates, the empty one to none: 1/2 in all."""
    budgets = np.array([[0.0, 2.0], [2.0, 0.0]])
    cap(fair, 1.0, budgets, delta)
    assert budgets == pytest.approx(np.array([[0.0, expected], [expected, 0.0]]), abs=1e-11)
    assert certify(fair, 1.0, delta, budgets * (1 - 1e-9)).holds == (delta > 0.25)


@pytest.mark.parametrize(("budget", "unsafe"), [(0.5, 0.25), (2.0, 0.5)])
@pytest.mark.parametrize("share", [0.0, 0.125])
def test_the_share_of_phase_one_counts_in_full(fair, budget, unsafe, share) -> None:
    budgets = np.array([[0.0, budget], [budget, 0.0]])
    found = certify(fair, 1.0, 0.6, budgets, share)
    assert found.violation == unsafe + share
    assert found.holds == (unsafe + share <= 0.6)


def test_both_records_sets_are_looked_at() -> None:
    """Record 0 is far from the candidates 1 and 2: its set is empty with 1/4, theirs with 1/16."""
    domain = pm.Domain.from_vectors([[0.0], [10.0], [11.0]])
    law = AnchorLaw(
        domain, 2.0, lambda apart: np.full(len(apart), 0.75), 0.5, np.array([1, 2], np.int64)
    )
    found = certify(law, 100.0, 0.3, np.zeros((2, 2)))
    assert found.violation == 0.25
    assert found.pair == (0, 1)


def test_budgets_in_blocks_are_the_least_room_between_cells(monkeypatch) -> None:
    """Brute force over all pairs of records; limits and blocks forced small."""
    from panda_mdp.panda.accounts import budgets as tables
    from panda_mdp.panda.accounts import certificate

    rng = np.random.default_rng(4)
    domain = pm.Domain.from_vectors(rng.random((60, 2)) * 5, unit="km")
    problem = pm.Problem(domain, [0, 1], domain.distances(None, [0, 1]), 2.0)
    selection = pm.BernoulliAnchors.alike(domain, 25, 1e-6)
    whole = tables.PandaPlan.certified(problem, selection, 1e-6)
    monkeypatch.setattr(certificate, "MOST_RECORDS", 10)
    monkeypatch.setattr(tables, "MOST_RECORDS", 10)
    monkeypatch.setattr(certificate, "BLOCK_ENTRIES", 130)
    monkeypatch.setattr(tables, "BLOCK_ENTRIES", 40)
    plan = tables.PandaPlan.certified(problem, selection, 1e-6)
    assert np.array_equal(plan.budgets, whole.budgets)
    chosen, apart = plan.anchors, domain.distances()
    cell = apart[:, chosen].argmin(axis=1)
    for a in range(25):
        for b in range(a):
            least = 2.0 * apart[np.ix_(cell == a, cell == b)].min()
            least = min(least, 2.0 * apart[chosen[a], chosen[b]])
            assert plan.budgets[a, b] == pytest.approx(least, rel=1e-9)
            assert plan.budgets[a, b] <= least
    assert certify(selection.on(domain), 2.0, 1e-6, plan.budgets).holds
    monkeypatch.setattr(tables, "MOST_CANDIDATES", 20)
    with pytest.raises(MethodError, match="at most 20 candidates, not 25"):
        tables.PandaPlan.certified(problem, selection, 1e-6)
    coins = pm.BernoulliAnchors("logistic", candidates=chosen)
    with pytest.raises(MethodError, match="selected alike by everybody"):
        tables.PandaPlan.certified(problem, coins, 1e-6)
