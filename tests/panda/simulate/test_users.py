"""Users over time: joining, leaving, manipulating; trajectories; composition."""

from __future__ import annotations

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.errors import MethodError
from panda_mdp.panda.audit import report_epsilon
from panda_mdp.panda.selection.candidates import covering_radius, spread_out
from panda_mdp.panda.simulate.users import distance_screen, median_screen
from panda_mdp.privacy.sampler import SeededBits

SIZE = 36


@pytest.fixture(scope="module")
def problem() -> pm.Problem:
    rng = np.random.default_rng(2)
    domain = pm.Domain.from_vectors(rng.normal(size=(SIZE, 2)) * 2, unit="km")
    outputs = rng.choice(SIZE, 5, replace=False)
    return pm.Problem(domain, outputs, domain.distances(None, outputs), 2.0)


@pytest.fixture(scope="module")
def run(problem) -> pm.PandaResult:
    """Every second record is a public candidate, each drawn by a coin of its own: sets differ."""
    selection = pm.BernoulliAnchors(
        "exponential",
        alpha=0.999,
        rate=0.0,
        radius=12.0,
        candidates=np.arange(0, SIZE, 2),
        neighbours=SIZE,
    )
    return pm.panda(problem, range(8), selection, 0.01, relaxed=False)


def test_users_join_and_leave(run, problem) -> None:
    after = pm.reoptimise(run, join=[30, 31, 32], leave=[0, 5])
    assert after.users == 9
    kept = [n for n in range(8) if n not in (0, 5)]
    for old, new in zip(kept, range(6), strict=True):
        assert np.array_equal(run.anchor_sets[old], after.anchor_sets[new])
    assert after.guarantee == run.guarantee
    assert pm.audit_panda(after).holds
    assert after.anchor_loss == pytest.approx(run.anchor_loss, rel=0.05)
    with pytest.raises(MethodError, match="nobody is left"):
        pm.reoptimise(run, leave=range(8))
    with pytest.raises(MethodError, match="no user 99"):
        pm.reoptimise(run, leave=[99])


def test_with_balls_the_table_stays(problem) -> None:
    first = pm.panda(problem, [1, 2], pm.BallAnchors(0.5, 1e-3), 1e-3, relaxed=False)
    after = pm.reoptimise(first, join=[9], leave=[0])
    assert after.tables[0].mechanism is first.tables[0].mechanism
    assert after.users == 2
    with pytest.raises(MethodError, match="public list"):
        pm.reoptimise(first, upload={0: [1, 2]})


def test_a_manipulating_user_changes_nobody_elses_guarantee(run, problem) -> None:
    """Whatever one user uploads, the others' budgets, certificate and audits stay."""
    honest = pm.audit_panda(run)
    for forged in ([0], [34], list(range(0, SIZE, 4))):
        attacked = pm.reoptimise(run, upload={3: forged})
        audit = pm.audit_panda(attacked)
        assert audit.holds
        assert audit.violation == honest.violation
        others = [n for n in range(8) if n != 3]
        for n in others:
            assert np.array_equal(attacked.anchor_sets[n], run.anchor_sets[n])
        # The table keeps the budgets that were fixed before anybody uploaded anything.
        plan = run.scheme.plan
        table = attacked.tables[0]
        at = np.searchsorted(plan.anchors, table.anchors)
        logs = np.log(table.matrix[:, table.matrix.any(axis=0)])
        spread = np.abs(logs[:, None] - logs).max(axis=2)
        assert np.all(spread <= plan.budgets[np.ix_(at, at)] + 1e-12)
    with pytest.raises(MethodError, match="not among the candidates"):
        pm.reoptimise(run, upload={3: [1]})


def test_screens_drop_forged_sets() -> None:
    rng = np.random.default_rng(0)
    domain = pm.Domain.from_vectors(rng.random((300, 2)) * 20, unit="km")
    outputs = np.arange(5)
    problem = pm.Problem(domain, outputs, domain.distances(None, outputs), 5.0)
    selection = pm.BernoulliAnchors("exponential", alpha=0.9, rate=0.1, radius=4.0, tail=1e-6)
    run = pm.study_panda(problem, range(12), selection, 0.1, relaxed=False, seed=1)
    everywhere = rng.choice(300, 60, replace=False)
    for screen in (median_screen(), distance_screen(8.0)):
        attacked = pm.reoptimise(run, upload={4: everywhere}, screen=screen)
        assert attacked.users == 11
        clean = pm.reoptimise(run, screen=screen)
        assert clean.users == 12


def test_a_trajectory_that_redraws_has_a_guarantee(run) -> None:
    redrawn = pm.trajectory(run, [1, 2, 3, 4])
    assert redrawn.against_largest == pm.Guarantee(8.0, 0.04, "km")
    assert redrawn.against_sum == pm.Guarantee(2.0, 0.04, "km")
    with pytest.raises(MethodError, match="observed_trajectory"):
        pm.trajectory(run, [1, 2], "reuse")


def test_what_is_reused_is_observed_and_not_promised(run) -> None:
    records = [1, 2, 3, 4]
    reused = pm.observed_trajectory(run, records, "reuse")
    assert "NO GUARANTEE" in repr(reused)
    assert not isinstance(reused.against_largest, pm.Guarantee)
    assert reused.steps[0].policy == "redraw"
    extended = pm.observed_trajectory(run, records, ["redraw", "extend", "reuse", "extend"])
    assert extended.steps[1].anchors >= extended.steps[0].anchors
    assert reused.against_sum == max(step.epsilon for step in reused.steps)
    for words in (["reuse", "reuse", "reuse", "reuse"], ["redraw"]):
        with pytest.raises(MethodError, match="as many policies"):
            pm.observed_trajectory(run, records, words)
    with pytest.raises(MethodError, match="choose 'redraw'"):
        pm.observed_trajectory(run, records, "guess")


def test_an_extended_set_is_charged_what_its_draw_tells(problem) -> None:
    """Not a quantile of it: what was drawn may lie beyond any quantile."""
    selection = pm.BernoulliAnchors("exponential", alpha=0.9, rate=0.4, radius=3.0, neighbours=SIZE)
    run = pm.study_panda(
        problem.with_epsilon(60.0), [1], selection, 0.4, delta_selection=0.2, relaxed=False
    )
    steps = pm.observed_trajectory(run, [1, 2], "extend", seed=5).steps
    bits = SeededBits(5)
    first, second = (run.scheme.draw(record, bits) for record in (1, 2))
    table = run.scheme.whole_table()
    both = np.union1d(first, second)
    expected = 0.0
    for x in range(SIZE):
        for x2 in range(x):
            leak = selection.leakage_of(problem.domain, second, x, x2)
            expected = max(expected, abs(leak) / problem.domain.distance(x, x2))
    expected += report_epsilon(run.scheme, both, table)
    assert steps[1].epsilon == pytest.approx(expected, rel=1e-9)


def test_reusing_a_ball_is_charged_by_its_audit(problem) -> None:
    balls = pm.BallAnchors(1.0, 0.05, outside="nearest")
    run = pm.panda(problem, [1], balls, 0.05, relaxed=False)
    steps = pm.observed_trajectory(run, [1, 2], "reuse").steps
    # Records outside a reused ball may be distinguished better than inside it, never for free.
    assert steps[1].epsilon >= 0.5 * (1 - 1e-3)


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
