"""A quarter of the users uploads what hurts most: every upload is tried, the bounds hold."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.panda.schemes.scheme import mean_loss
from panda_mdp.panda.simulate.manipulation import manipulation_bound

SIZE = 6
SETS = [np.array([0, 1]), np.array([1, 2]), np.array([2]), np.array([3])]
"""Three honest users, then the one of four who is not."""


@pytest.fixture(scope="module")
def problem() -> pm.Problem:
    points = np.array([[0.0, 0], [0.4, 0.1], [1.1, 0], [2.0, 0.5], [2.2, 1.4], [3.5, 0.2]])
    domain = pm.Domain.from_vectors(points, unit="km")
    outputs = np.array([0, 3, 5])
    prior = np.array([0.05, 0.1, 0.15, 0.3, 0.2, 0.2])
    return pm.Problem(domain, outputs, domain.distances(None, outputs), 4.0, prior)


def attacked_runs(problem: pm.Problem, pairs: str):
    """A run for every set that the fourth user could upload."""
    selection = pm.BernoulliAnchors("exponential", 0.9, 0.05, 4.0)
    base = pm.study_panda(
        problem, [0, 1, 2, 3], selection, 0.3, pairs=pairs, gap=1e-3, relaxed=False, seed=0
    )
    honest = dict(enumerate(SETS[:3]))
    for count in range(1, SIZE + 1):
        for forged in combinations(range(SIZE), count):
            yield pm.reoptimise(base, upload={**honest, 3: list(forged)}, seed=0)


def honest_loss(run) -> float:
    own = np.unique(np.concatenate(run.anchor_sets[:3]))
    return mean_loss(run.problem, run.tables[0], own)


def test_no_upload_of_a_quarter_of_the_users_exceeds_the_bound(problem) -> None:
    losses, bounds, least = [], set(), np.inf
    for run in attacked_runs(problem, "union"):
        losses.append(honest_loss(run))
        bounds.add(round(manipulation_bound(run, [0, 1, 2]), 9))
        budgets = run.scheme.plan.budgets
        table = run.tables[0]
        logs = np.log(table.matrix[:, table.matrix.any(axis=0)])
        spread = np.abs(logs[:, None] - logs).max(axis=2)
        assert np.all(spread <= budgets[np.ix_(table.anchors, table.anchors)] + 1e-12)
        least = min(least, run.scheme.certificate.violation)
        assert run.scheme.certificate.violation == least
    assert len(losses) == 2**SIZE - 1
    # One number, known before anybody uploads; some upload does raise the loss.
    assert len(bounds) == 1
    assert max(losses) <= bounds.pop()
    assert max(losses) > min(losses) * 1.01


def test_a_public_table_ignores_every_upload(problem) -> None:
    seen = {
        (round(honest_loss(run), 12), run.tables[0].matrix.tobytes())
        for run in attacked_runs(problem, "public")
    }
    assert len(seen) == 1


def test_with_balls_and_own_tables_nobody_else_matters(problem) -> None:
    own = {round(manipulation_bound(run, [0, 1, 2]), 9) for run in attacked_runs(problem, "own")}
    assert len(own) == 1
    run = pm.panda(problem, [0, 1, 2, 3], pm.BallAnchors(1.0), 0.1, relaxed=False)
    with pytest.raises(pm.errors.MethodError, match="public list"):
        pm.reoptimise(run, upload={3: [0, 5]})
    chosen = np.unique(np.concatenate(run.anchor_sets[:3]))
    expected = mean_loss(problem, run.tables[0], chosen)
    assert manipulation_bound(run, [0, 1, 2]) == pytest.approx(expected)
    with pytest.raises(pm.errors.MethodError, match="honest is empty"):
        manipulation_bound(run, [])
