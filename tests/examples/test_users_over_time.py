"""Users over time: joining, leaving, manipulating; trajectories; composition."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from examples_loaded import load

import panda_mdp as pm
from panda_mdp.errors import MethodError
from panda_mdp.methods.coarse import spread_out
from panda_mdp.panda.candidates import covering_radius
from panda_mdp.panda.run import PandaResult
from panda_mdp.panda.selection import mean_loss

EXAMPLE = load("users_over_time")
distance_screen = EXAMPLE.distance_screen
manipulation_bound = EXAMPLE.manipulation_bound
median_screen = EXAMPLE.median_screen
reoptimise = EXAMPLE.reoptimise
trajectory = EXAMPLE.trajectory
SIZE = 36


@pytest.fixture(scope="module")
def problem() -> pm.Problem:
    rng = np.random.default_rng(2)
    domain = pm.Domain.from_vectors(rng.normal(size=(SIZE, 2)) * 2, unit="km")
    outputs = rng.choice(SIZE, 5, replace=False)
    return pm.Problem(domain, outputs, domain.distances(None, outputs), 2.0)


@pytest.fixture(scope="module")
def run(problem) -> PandaResult:
    """Every second record is a public candidate, each drawn by a coin of its own: sets differ."""
    selection = pm.BernoulliAnchors(
        "exponential",
        alpha=0.999,
        rate=0.0,
        radius=12.0,
        candidates=np.arange(0, SIZE, 2),
        neighbours=SIZE,
    )
    return pm.panda(problem, range(8), selection, 0.01)


def test_users_join_and_leave(run, problem) -> None:
    after = reoptimise(run, join=[30, 31, 32], leave=[0, 5])
    assert after.users == 9
    kept = [n for n in range(8) if n not in (0, 5)]
    for old, new in zip(kept, range(6), strict=True):
        assert np.array_equal(run.anchor_sets[old], after.anchor_sets[new])
    assert after.guarantee == run.guarantee
    assert pm.audit_panda(after).holds
    assert after.anchor_loss == pytest.approx(run.anchor_loss, rel=0.05)
    with pytest.raises(MethodError, match="nobody is left"):
        reoptimise(run, leave=range(8))
    with pytest.raises(MethodError, match=r"users\[0\] is 99"):
        reoptimise(run, leave=[99])


def test_with_balls_the_table_stays(problem) -> None:
    first = pm.panda(problem, [1, 2], pm.BallAnchors(0.5))
    after = reoptimise(first, join=[9], leave=[0])
    assert after.table.mechanism is first.table.mechanism
    assert after.users == 2
    with pytest.raises(MethodError, match="public list"):
        reoptimise(first, upload={0: [1, 2]})


def test_a_manipulating_user_changes_nobody_elses_guarantee(run, problem) -> None:
    """Whatever one user uploads, the others' budgets, certificate and audits stay."""
    honest = pm.audit_panda(run)
    for forged in ([0], [34], list(range(0, SIZE, 4))):
        attacked = reoptimise(run, upload={3: forged})
        audit = pm.audit_panda(attacked)
        assert audit.holds
        assert audit.violation == honest.violation
        others = [n for n in range(8) if n != 3]
        for n in others:
            assert np.array_equal(attacked.anchor_sets[n], run.anchor_sets[n])
        # The table keeps the budgets that were fixed before anybody uploaded anything.
        table = attacked.table
        at = run.scheme.law.place[table.anchors]
        logs = np.log(table.matrix[:, table.matrix.any(axis=0)])
        spread = np.abs(logs[:, None] - logs).max(axis=2)
        assert np.all(spread <= run.scheme.budgets[np.ix_(at, at)] + 1e-12)
    with pytest.raises(MethodError, match="not among the candidates"):
        reoptimise(run, upload={3: [1]})


def test_screens_drop_forged_sets() -> None:
    rng = np.random.default_rng(0)
    domain = pm.Domain.from_vectors(rng.random((150, 2)) * 20, unit="km")
    outputs = np.arange(5)
    problem = pm.Problem(domain, outputs, domain.distances(None, outputs), 5.0)
    selection = pm.BernoulliAnchors("exponential", alpha=0.9, rate=0.1, radius=4.0, tail=1e-6)
    run = pm.study_panda(problem, range(12), selection, 0.1, seed=1)
    everywhere = rng.choice(150, 30, replace=False)
    for screen in (median_screen(), distance_screen(8.0)):
        attacked = reoptimise(run, upload={4: everywhere}, screen=screen)
        assert attacked.users == 11
        clean = reoptimise(run, screen=screen)
        assert clean.users == 12


def test_a_trajectory_that_redraws_has_a_guarantee(run) -> None:
    redrawn = trajectory(run, [1, 2, 3, 4])
    assert redrawn.against_largest == pm.Guarantee(8.0, 0.04, "km")
    assert redrawn.against_sum == pm.Guarantee(2.0, 0.04, "km")


def test_guarantees_add() -> None:
    total = pm.compose(pm.Guarantee(1.0, 1e-8, "km"), pm.Guarantee(2.0, 0.0, "km"))
    assert total == pm.Guarantee(3.0, 1e-8, "km")
    assert pm.Guarantee(1.0, 0.7, "km") + pm.Guarantee(1.0, 0.7, "km") == pm.Guarantee(
        2.0, 1.0, "km"
    )
    with pytest.raises(MethodError, match="one unit"):
        pm.compose(pm.Guarantee(1.0, 0.0, "km"), pm.Guarantee(1.0, 0.0, "m"))
    with pytest.raises(MethodError, match="at least one"):
        pm.compose()
    with pytest.raises(MethodError, match="epsilon"):
        pm.Guarantee(-1.0, 0.0, "km")
    with pytest.raises(MethodError, match="delta"):
        pm.Guarantee(1.0, 1.5, "km")


def test_candidates_are_spread_out() -> None:
    domain = pm.Domain.from_vectors(np.arange(10.0)[:, None])
    chosen = spread_out(domain, 3)
    assert len(chosen) == 3
    assert covering_radius(domain, chosen) <= 2 * 2.0
    assert spread_out(domain, 10).tolist() == list(range(10))
    with pytest.raises(MethodError, match="count"):
        spread_out(domain, 11)


FEW = 6
UPLOADS = [np.array([0, 1]), np.array([1, 2]), np.array([2]), np.array([3])]
"""Three honest users, then the one of four who is not."""


@pytest.fixture(scope="module")
def few() -> pm.Problem:
    points = np.array([[0.0, 0], [0.4, 0.1], [1.1, 0], [2.0, 0.5], [2.2, 1.4], [3.5, 0.2]])
    domain = pm.Domain.from_vectors(points, unit="km")
    outputs = np.array([0, 3, 5])
    prior = np.array([0.05, 0.1, 0.15, 0.3, 0.2, 0.2])
    return pm.Problem(domain, outputs, domain.distances(None, outputs), 4.0, prior)


def attacked_runs(problem: pm.Problem, pairs: str):
    """A run for every set that the fourth user could upload."""
    selection = pm.BernoulliAnchors("exponential", 0.9, 0.05, 4.0)
    base = pm.study_panda(
        problem, [0, 1, 2, 3], selection, 0.3, pm.PandaOptions(pairs=pairs, gap=1e-3), seed=0
    )
    honest = dict(enumerate(UPLOADS[:3]))
    for count in range(1, FEW + 1):
        for forged in combinations(range(FEW), count):
            yield reoptimise(base, upload={**honest, 3: list(forged)}, seed=0)


def honest_loss(run) -> float:
    own = np.unique(np.concatenate(run.anchor_sets[:3]))
    return mean_loss(run.problem, run.table, own)


def test_no_upload_of_a_quarter_of_the_users_exceeds_the_bound(few) -> None:
    losses, bounds, least = [], set(), np.inf
    for run in attacked_runs(few, "union"):
        losses.append(honest_loss(run))
        bounds.add(round(manipulation_bound(run, [0, 1, 2]), 9))
        budgets = run.scheme.budgets
        table = run.table
        logs = np.log(table.matrix[:, table.matrix.any(axis=0)])
        spread = np.abs(logs[:, None] - logs).max(axis=2)
        assert np.all(spread <= budgets[np.ix_(table.anchors, table.anchors)] + 1e-12)
        least = min(least, run.scheme.account.violation)
        assert run.scheme.account.violation == least
    assert len(losses) == 2**FEW - 1
    # One number, known before anybody uploads; some upload does raise the loss.
    assert len(bounds) == 1
    assert max(losses) <= bounds.pop()
    assert max(losses) > min(losses) * 1.01


def test_a_public_table_ignores_every_upload(few) -> None:
    seen = {
        (round(honest_loss(run), 12), run.table.matrix.tobytes())
        for run in attacked_runs(few, "public")
    }
    assert len(seen) == 1


def test_with_balls_nobody_else_matters(few) -> None:
    run = pm.panda(few, [0, 1, 2, 3], pm.BallAnchors(1.0))
    with pytest.raises(pm.errors.MethodError, match="public list"):
        reoptimise(run, upload={3: [0, 5]})
    chosen = np.unique(np.concatenate(run.anchor_sets[:3]))
    expected = mean_loss(few, run.table, chosen)
    assert manipulation_bound(run, [0, 1, 2]) == pytest.approx(expected)
    with pytest.raises(pm.errors.MethodError, match="honest is empty"):
        manipulation_bound(run, [])
