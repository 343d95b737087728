"""Balls with one row for everybody outside: the account against all releases, by brute force."""

from __future__ import annotations

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.panda.audit import violation
from panda_mdp.panda.options import Options
from panda_mdp.panda.schemes import ball_scheme
from panda_mdp.privacy.quantise import TOTAL


def scheme_on(kind: str, delta: float, epsilon: float = 4.0, share: float = 0.4):
    rng = np.random.default_rng(7)
    if kind == "plane":
        domain = pm.Domain.from_vectors(rng.normal(size=(18, 2)) * 3, unit="km")
    elif kind == "line":
        domain = pm.Domain.from_vectors(np.arange(14.0)[:, None])
    else:
        table = 1 + rng.random((9, 9))
        domain = pm.Domain.from_matrix(np.triu(table, 1) + np.triu(table, 1).T)
    outputs = rng.choice(domain.size, 5, replace=False)
    problem = pm.Problem(domain, outputs, domain.distances(None, outputs), epsilon)
    return pm.BallAnchors(share * epsilon).scheme(problem, delta, Options(gap=0.05))


def brute_violation(scheme, law, x: int, x2: int) -> float:
    """Sum over all balls and reports, both hypotheses, from the integers."""
    problem = scheme.problem
    limit = problem.epsilon * problem.domain.distance(x, x2)
    common = scheme.common(law)
    total = [0.0, 0.0]
    for group, centres in enumerate(law.groups):
        ball = set(law.ball(int(centres[0])).tolist())
        chance = [int(law.mechanism.weights[r, centres].sum()) for r in (x, x2)]
        rows = [scheme.mechanism.weights[r] if r in ball else common[group] for r in (x, x2)]
        for y in range(problem.outputs_count):
            first, second = (chance[k] * int(rows[k][y]) for k in (0, 1))
            if abs(np.log(float(first)) - np.log(float(second))) > limit + 1e-9:
                total[0] += first / TOTAL**2
                total[1] += second / TOTAL**2
    return max(total)


@pytest.mark.parametrize("kind", ["plane", "line", "matrix"])
@pytest.mark.parametrize("delta", [0.1, 1e-3])
def test_no_pair_exceeds_delta_and_the_account_says_so(kind, delta) -> None:
    scheme = scheme_on(kind, delta)
    account = scheme.account()
    assert account.violation <= delta
    size = scheme.problem.size
    worst = max(brute_violation(scheme, scheme.law, x, y) for x in range(size) for y in range(x))
    assert worst <= account.violation
    assert scheme.guarantee == pm.Guarantee(4.0, delta, scheme.problem.domain.unit)


@pytest.mark.parametrize("kind", ["plane", "line"])
def test_the_account_is_near_the_truth_whatever_the_radius(kind) -> None:
    """An account that is merely large would pass the test above."""
    scheme = scheme_on(kind, 1e-2)
    near = 0
    for radius in np.linspace(0.4, 1.0, 5) * scheme.law.radius:
        law = scheme.law.with_radius(float(radius))
        found = scheme._boundary(law).violation
        size = scheme.problem.size
        worst = max(brute_violation(scheme, law, x, y) for x in range(size) for y in range(x))
        assert worst <= found
        near += worst > 0.1 * found
    assert near >= 3


def test_records_beyond_reach_of_each_other_need_no_pairs(monkeypatch) -> None:
    """Per record, by the triangle inequality: never below the account per pair."""
    for kind in ("line",):
        scheme = scheme_on(kind, 1e-2)
        for radius in np.linspace(0.4, 1.2, 5) * scheme.law.radius:
            law = scheme.law.with_radius(float(radius))
            pairs = scheme._boundary(law).violation
            with monkeypatch.context() as patch:
                patch.setattr(ball_scheme, "MOST_PAIRWISE", 1)
                rings = scheme._boundary(law).violation
            assert pairs <= rings * (1 + 1e-9) + 1e-15


@pytest.mark.parametrize("delta", [0.1, 1e-3])
def test_the_radius_is_the_least(delta) -> None:
    """A smaller one misses some record too often, or some pair exceeds delta."""
    scheme = scheme_on("plane", delta)
    smaller = scheme.law.with_radius(scheme.law.radius * (1 - 2 * ball_scheme.RADIUS_STEP))
    account = scheme._boundary(smaller)
    assert scheme.law.missed.max() <= delta
    assert smaller.missed.max() > delta or account.violation > delta


def test_a_table_that_spends_more_than_is_left_has_no_account() -> None:
    scheme = scheme_on("plane", 1e-2)
    greedy = pm.optimal(scheme.problem, 0.1)
    other = scheme_on("plane", 1e-2)
    other.__dict__["law"], other.__dict__["mechanism"] = scheme.law, greedy
    assert other.account().violation == 1.0


@pytest.mark.parametrize("outside", ["common", "nearest", "extend"])
def test_losses_are_summed_over_centres_and_reports(outside) -> None:
    base = scheme_on("plane", 0.2, share=0.6).problem
    scheme = pm.BallAnchors(2.4, 0.2, outside=outside).scheme(base, 0.2, Options(gap=0.05))
    assert scheme.law.missed.max() > 0.01
    table = scheme.whole_table()
    total = 0.0
    for x in range(base.size):
        for k in range(len(scheme.law.centres)):
            rows, row = scheme.rows(scheme.law.ball(k), table, np.array([x]))
            part = scheme.law.mechanism.matrix[x, k] * (rows[row[0]] / TOTAL) @ base.loss[x]
            total += base.prior[x] * part
    assert scheme.expected_loss() == pytest.approx(total, rel=1e-9)


def test_a_run_is_confirmed_pair_by_pair() -> None:
    scheme = scheme_on("plane", 1e-2)
    run = pm.panda(scheme.problem, range(6), scheme.selection, 1e-2, relaxed=False)
    audit = pm.audit_panda(run, draws=50, seed=1)
    assert audit.holds
    for x, x2 in [(0, 1), (3, 17), (11, 12)]:
        assert violation(run, x, x2).upper == pytest.approx(
            brute_violation(run.scheme, run.scheme.law, x, x2), abs=1e-9
        )
    assert audit.claimed == pm.Guarantee(4.0, 1e-2, "km")
    nearest = pm.BallAnchors(1.6, 1e-2, outside="nearest").scheme(scheme.problem, 1e-2, Options())
    assert scheme.mechanism.loss < nearest.mechanism.loss


@pytest.mark.parametrize("given", [False, True])
def test_the_bound_without_compiled_code_is_never_below_the_account(monkeypatch, given) -> None:
    scheme = scheme_on("plane", 1e-2)
    common = scheme._common if given else None
    bounds = []
    for radius in np.linspace(0.5, 4, 8) * scheme.law.radius:
        law = scheme.law.with_radius(float(radius))
        exact = scheme._boundary(law).violation
        room = scheme.problem.epsilon - law.mechanism.audit.epsilon
        bounds.append(scheme._plain(law, room, common).violation)
        assert exact <= bounds[-1] * (1 + 1e-9) + 1e-15
    assert bounds[0] > 0.5 > bounds[-1]


def test_a_common_row_from_outside_the_rows_widens_the_bound() -> None:
    scheme = scheme_on("plane", 1e-2)
    foreign = scheme._common.copy()
    foreign[:, 0] = 1
    assert scheme._plain(scheme.law, 2.0, foreign).violation == 1.0
