"""Ball anchors: exact centres, exact radius, and the guarantee inside and outside the ball."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.errors import MethodError, PhaseOneCostError
from panda_mdp.panda.audit import violation
from panda_mdp.panda.balls import RADIUS_STEP, boundary, common_rows
from panda_mdp.panda.centres import BallLaw, centre_problem, radius_for
from panda_mdp.panda.run import PandaResult
from panda_mdp.privacy.quantise import TOTAL
from panda_mdp.privacy.sampler import SeededBits

SIZE = 45


@pytest.fixture(scope="module")
def problem() -> pm.Problem:
    rng = np.random.default_rng(5)
    domain = pm.Domain.from_vectors(rng.normal(size=(SIZE, 2)) * 3, unit="km")
    outputs = rng.choice(SIZE, 6, replace=False)
    return pm.Problem(domain, outputs, domain.distances(None, outputs), 4.0)


@pytest.fixture(scope="module")
def balls() -> pm.BallAnchors:
    return pm.BallAnchors(epsilon=2.0, delta=0.01)


def test_centres_are_private_and_tight(problem, balls) -> None:
    law = balls.on(problem.domain)
    assert law.mechanism.audit.holds
    assert 2.0 * (1 - 1e-3) <= law.mechanism.audit.epsilon <= 2.0
    assert law.mechanism.details["exponent"] > 1.0
    assert balls.on(problem.domain) is law


def test_the_radius_is_the_least_that_keeps_delta(problem, balls) -> None:
    domain = problem.domain
    law = balls.on(domain)
    inside = np.stack([np.isin(np.arange(SIZE), law.ball(k)) for k in range(len(law.centres))])
    for x in range(SIZE):
        missed = sum(
            Fraction(int(law.mechanism.weights[x, k]), TOTAL)
            for k in range(len(law.centres))
            if not inside[k, x]
        )
        assert missed <= Fraction(0.01)
        assert law.missed[x] == pytest.approx(float(missed), rel=1e-12)
    apart = domain.distances(None, law.centres)
    smaller = np.nextafter(law.radius, 0)
    weights = law.mechanism.weights
    missed = np.where(apart > smaller - 1e-9, weights, 0).sum(axis=1) / TOTAL
    assert missed.max() > 0.01


def test_missed_counts_what_is_beyond_the_radius() -> None:
    domain = pm.Domain.from_vectors([[0.0], [1.0], [3.0]])
    problem = centre_problem(domain, np.arange(3), 9.0)
    weights = np.array([[2, 1, 1], [1, 2, 1], [1, 1, 2]]) * (TOTAL // 4)
    law = BallLaw(pm.Mechanism(problem, weights, "given"), 1.0)
    assert law.missed.tolist() == [0.25, 0.25, 0.5]
    assert law.with_radius(2.0).missed.tolist() == [0.25, 0.0, 0.25]
    assert law.missing(0.3).radius == 2.0


def test_radius_for_small_cases() -> None:
    apart = np.array([[0.0, 1.0, 3.0], [1.0, 0.0, 2.0]])
    weights = np.array([[2, 1, 1], [1, 3, 0]]) * (TOTAL // 4)
    assert radius_for(apart, weights, 0.3) == 1.0
    assert radius_for(apart, weights, 0.1) == 3.0
    assert radius_for(apart, weights, 0.6) == 0.0


def test_draws_are_balls_and_follow_the_law(problem, balls) -> None:
    domain = problem.domain
    law = balls.on(domain)
    bits = SeededBits(1)
    found = [law.firsts[law.group_of(balls.draw(domain, 7, bits))] for _ in range(4_000)]
    expected = np.zeros(len(law.centres))
    counts = np.zeros(len(law.centres))
    for centre in found:
        counts[centre] += 1
    groups = {tuple(law.ball(k)): [] for k in range(len(law.centres))}
    for k in range(len(law.centres)):
        groups[tuple(law.ball(k))].append(k)
    statistic = 0.0
    for members in groups.values():
        expected = law.mechanism.matrix[7, members].sum() * 4_000
        if expected > 5:
            statistic += (counts[members].sum() - expected) ** 2 / expected
    assert statistic < 120  # chi-square with at most 44 degrees of freedom at 1e-6: 98


def test_the_likelihood_of_a_ball_is_that_of_all_its_centres(problem, balls) -> None:
    domain = problem.domain
    law = balls.on(domain)
    for x, x2 in [(0, 1), (3, 30), (10, 44)]:
        for centre in (0, 5, 31):
            ball = law.ball(centre)
            same = np.flatnonzero(law.group == law.group_of(ball))
            assert centre in same
            ratio = law.mechanism.matrix[[x, x2]][:, same].sum(axis=1)
            logs = law.log_likelihoods(ball)
            assert logs[x] - logs[x2] == pytest.approx(np.log(ratio[0] / ratio[1]), abs=1e-12)
            assert abs(logs[x] - logs[x2]) <= 2.0 * domain.distance(x, x2)


def test_claimed_and_audited_guarantee_agree(problem, balls) -> None:
    run = pm.panda(problem, range(10), balls, 0.01)
    assert isinstance(run, PandaResult)
    assert run.guarantee == pm.Guarantee(4.0, 0.01, "km")
    assert run.table.mechanism.epsilon == pytest.approx(2.0)
    audit = pm.audit_panda(run)
    assert audit.holds
    assert audit.violation <= 0.01
    assert all(found.selection_epsilon <= 2.0 for found in audit.sets)
    assert all(len(chosen) >= 1 for chosen in run.anchor_sets)
    worst = 0.0
    for x in range(SIZE):
        for x2 in range(0, x, 7):
            found = violation(run, x, x2)
            assert found.lower == found.upper <= 0.01
            worst = max(worst, found.epsilon)
    assert worst <= 4.0


def test_a_smaller_centre_epsilon_never_shrinks_the_ball(problem) -> None:
    radii = [pm.BallAnchors(e, 1e-3).on(problem.domain).radius for e in (4.0, 2.0, 1.0, 0.5)]
    assert np.all(np.diff(radii) >= 0)
    sizes = [
        pm.BallAnchors(e, 1e-3).on(problem.domain).expected_size(problem.prior) for e in (4.0, 1.0)
    ]
    assert sizes[0] < sizes[1]


def test_what_does_not_fit_raises(problem) -> None:
    with pytest.raises(PhaseOneCostError, match="nothing is left"):
        pm.panda(problem, [1], pm.BallAnchors(4.0, 1e-7))
    with pytest.raises(MethodError, match="not the ball of any centre"):
        pm.BallAnchors(1.0, 0.01).on(problem.domain).log_likelihoods(np.array([0, 44]))


def test_public_centres(problem) -> None:
    few = pm.BallAnchors(2.0, 0.01, candidates=[0, 10, 20])
    law = few.on(problem.domain)
    assert law.centres.tolist() == [0, 10, 20]
    assert law.mechanism.audit.holds
    assert law.mechanism.matrix.shape == (SIZE, 3)
    with pytest.raises(MethodError, match="candidates"):
        pm.BallAnchors(2.0, 0.01, candidates=[])


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
    return pm.BallAnchors(share * epsilon).scheme(problem, delta, pm.PandaOptions(gap=0.05))


def edge(scheme, law, **options):
    """The account of balls of another radius."""
    common = common_rows(scheme.problem, law, scheme.mechanism)
    return boundary(scheme.problem, law, scheme.mechanism, common, scheme.delta, **options)


def brute_violation(scheme, law, x: int, x2: int) -> float:
    """Sum over all balls and reports, both hypotheses, from the integers."""
    problem = scheme.problem
    limit = problem.epsilon * problem.domain.distance(x, x2)
    common = common_rows(problem, law, scheme.mechanism)
    total = [0.0, 0.0]
    for group in range(len(law.firsts)):
        centres = np.flatnonzero(law.group == group)
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
    account = scheme.account
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
        found = edge(scheme, law).violation
        size = scheme.problem.size
        worst = max(brute_violation(scheme, law, x, y) for x in range(size) for y in range(x))
        assert worst <= found
        near += worst > 0.1 * found
    assert near >= 3


def test_records_beyond_reach_of_each_other_need_no_pairs() -> None:
    """Per record, by the triangle inequality: never below the account per pair."""
    scheme = scheme_on("line", 1e-2)
    for radius in np.linspace(0.4, 1.2, 5) * scheme.law.radius:
        law = scheme.law.with_radius(float(radius))
        pairs, rings = edge(scheme, law), edge(scheme, law, most_pairwise=1)
        assert pairs.violation <= rings.violation * (1 + 1e-9) + 1e-15


@pytest.mark.parametrize("delta", [0.1, 1e-3])
def test_the_radius_is_the_least(delta) -> None:
    """A smaller one misses some record too often, or some pair exceeds delta."""
    scheme = scheme_on("plane", delta)
    smaller = scheme.law.with_radius(scheme.law.radius * (1 - 2 * RADIUS_STEP))
    account = edge(scheme, smaller)
    assert scheme.law.missed.max() <= delta
    assert smaller.missed.max() > delta or account.violation > delta


def test_a_table_that_spends_more_than_is_left_has_no_account() -> None:
    scheme = scheme_on("plane", 1e-2)
    greedy = pm.optimal(scheme.problem, 0.1)
    other = scheme_on("plane", 1e-2).holding(law=scheme.law, mechanism=greedy)
    assert other.account.violation == 1.0


def test_losses_are_summed_over_centres_and_reports() -> None:
    base = scheme_on("plane", 0.2, share=0.6).problem
    scheme = pm.BallAnchors(2.4, 0.2).scheme(base, 0.2, pm.PandaOptions(gap=0.05))
    assert scheme.law.missed.max() > 0.01
    table = scheme.whole_table
    total = 0.0
    for x in range(base.size):
        for k in range(len(scheme.law.centres)):
            rows, row = scheme.rows(scheme.law.ball(k), table, np.array([x]))
            part = scheme.law.mechanism.matrix[x, k] * (rows[row[0]] / TOTAL) @ base.loss[x]
            total += base.prior[x] * part
    assert scheme.expected_loss == pytest.approx(total, rel=1e-9)


def test_a_run_is_confirmed_pair_by_pair() -> None:
    scheme = scheme_on("plane", 1e-2)
    run = pm.panda(scheme.problem, range(6), scheme.selection, 1e-2)
    audit = pm.audit_panda(run)
    assert audit.holds
    for x, x2 in [(0, 1), (3, 17), (11, 12)]:
        assert violation(run, x, x2).upper == pytest.approx(
            brute_violation(run.scheme, run.scheme.law, x, x2), abs=1e-9
        )
    assert audit.claimed == pm.Guarantee(4.0, 1e-2, "km")


@pytest.mark.data
def test_balls_on_rome_are_what_they_claim(road_maps) -> None:
    city = road_maps("rome")
    domain = city.domain(600, seed=0)
    outputs = np.arange(20)
    problem = pm.Problem(domain, outputs, domain.distances(None, outputs), 5.0)
    run = pm.panda(
        problem,
        range(3),
        pm.BallAnchors(2.0),
        1e-7,
        pm.PandaOptions(gap=0.05),
    )
    law = run.scheme.law
    assert 2.0 * (1 - 1e-3) <= law.mechanism.audit.epsilon <= 2.0
    assert law.missed.max() <= run.scheme.centres.missed.max()
    assert 0.5e-7 < run.scheme.centres.missed.max() <= 1e-7
    audit = pm.audit_panda(run)
    assert audit.holds
    assert all(found.selection_epsilon <= 2.0 for found in audit.sets)


def test_a_ball_whose_records_all_lie_deep_has_a_common_row() -> None:
    """A far village makes balls wide: exp of the depths of a whole ball is 0."""
    domain = pm.Domain.from_vectors([[-4000.0], *([float(x)] for x in range(6))], unit="km")
    problem = pm.Problem(domain, range(7), domain.distances(), 2.0)
    law = pm.BallAnchors(epsilon=0.5, delta=1e-3, candidates=[1, 6]).on(domain).with_radius(4000.0)
    table = pm.optimal(problem.with_epsilon(1.5))
    rows = common_rows(problem, law, table)
    assert (rows.sum(axis=1) == TOTAL).all()
    # Round the last record the village is outside, and the first of the others lies least deep.
    share = np.exp(-1.5 * np.arange(6.0))
    expected = share / share.sum() @ table.matrix[1:]
    group = int(law.group[1])
    assert rows[group] / TOTAL == pytest.approx(expected, rel=1e-9)
