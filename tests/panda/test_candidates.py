"""Public candidates: what they stand for, and the loss that their rows are chosen for."""

from __future__ import annotations

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.errors import MethodError
from panda_mdp.methods.coarse import spread_out
from panda_mdp.panda.candidates import central, serving


@pytest.fixture(scope="module")
def problem() -> pm.Problem:
    """Records in the plane whose loss looks along one direction only."""
    rng = np.random.default_rng(3)
    places = rng.random((80, 2)) * 6
    domain = pm.Domain.from_vectors(places, unit="km")
    outputs = rng.choice(80, 8, replace=False)
    loss = np.abs(places[:, :1] - places[outputs, 0])
    return pm.Problem(domain, outputs, loss, 3.0)


def scheme_for(problem, chosen, weights="surrogate"):
    reach = problem.domain.diameter
    selection = pm.BernoulliAnchors("exponential", 1 - 1e-9, 0.0, reach, candidates=chosen)
    return selection.scheme(problem, 1e-6, pm.PandaOptions(gap=1e-3, weights=weights))


def test_candidates_that_serve_lose_less_than_central_ones(problem) -> None:
    served, plain = (
        scheme_for(problem, chosen)
        for chosen in (serving(problem, 30), central(problem.domain, 30))
    )
    assert served.account.violation <= 1e-6
    assert served.expected_loss < 0.97 * plain.expected_loss


def test_as_many_candidates_as_asked_for_even_where_all_records_are_alike() -> None:
    domain = pm.Domain.from_matrix(1.0 - np.eye(7))
    alike = pm.Problem(domain, [0, 1], np.zeros((7, 2)), 1.0)
    for count in (1, 3, 7):
        chosen = serving(alike, count)
        assert len(np.unique(chosen)) == count
        assert (np.diff(chosen) > 0).all()
    with pytest.raises(MethodError, match="count is 8"):
        serving(alike, 8)


def test_rows_are_chosen_for_the_records_behind_the_anchors(problem) -> None:
    """AnPO's objective is the expected loss over true records, and the paper's is not."""
    chosen = central(problem.domain, 20)
    scheme = scheme_for(problem, chosen)
    weights, losses = scheme.objective(chosen)
    nearest = problem.domain.distances(None, chosen).argmin(axis=1)
    for k in range(20):
        behind = nearest == k
        assert weights[k] == pytest.approx(problem.prior[behind].sum(), abs=1e-8)
        mean = problem.loss[behind].mean(axis=0)
        assert losses[k] == pytest.approx(mean, rel=1e-6)
    table = scheme.whole_table
    assert float(weights @ (losses * table.matrix).sum(axis=1)) == pytest.approx(
        scheme.expected_loss, rel=1e-7
    )
    paper = scheme_for(problem, chosen, "prior")
    assert np.array_equal(paper.objective(chosen)[1], problem.loss[chosen])
    assert scheme.expected_loss <= paper.expected_loss * 1.001


def test_an_anchor_that_stands_for_nobody_has_its_own_loss() -> None:
    domain = pm.Domain.from_vectors([[0.0], [1.0], [2.0]])
    prior = np.array([1.0, 0.0, 0.0])
    problem = pm.Problem(domain, [0, 2], domain.distances(None, [0, 2]), 1.0, prior=prior)
    scheme = scheme_for(problem, np.array([0, 2]))
    weights, losses = scheme.objective(np.array([0, 2]))
    assert weights[1] == 0.0
    assert np.array_equal(losses[1], problem.loss[2])


def test_central_records_stand_for_their_cells() -> None:
    points = np.random.default_rng(5).normal(size=(120, 2)) * 4
    domain = pm.Domain.from_vectors(points)
    for count in (1, 7, 40, 120):
        chosen = central(domain, count)
        assert len(np.unique(chosen)) == count
        spread = domain.distances(None, spread_out(domain, count)).min(axis=1).sum()
        assert domain.distances(None, chosen).min(axis=1).sum() <= spread * (1 + 1e-12)
