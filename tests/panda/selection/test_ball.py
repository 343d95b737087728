"""Ball anchors: exact centres, exact radius, and the guarantee inside and outside the ball."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.errors import MethodError, PhaseOneCostError, ShortfallError
from panda_mdp.panda.audit import violation
from panda_mdp.panda.options import Options
from panda_mdp.panda.schemes.ball_scheme import extend_rows
from panda_mdp.panda.selection.centres import radius_for
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
    return pm.BallAnchors(epsilon=2.0, delta=0.01, outside="nearest")


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


def test_radius_for_small_cases() -> None:
    apart = np.array([[0.0, 1.0, 3.0], [1.0, 0.0, 2.0]])
    weights = np.array([[2, 1, 1], [1, 3, 0]]) * (TOTAL // 4)
    assert radius_for(apart, weights, 0.3)[0] == 1.0
    assert radius_for(apart, weights, 0.1)[0] == 3.0
    radius, missed = radius_for(apart, weights, 0.6)
    assert radius == 0.0
    assert missed.tolist() == [0.5, 0.25]


def test_draws_are_balls_and_follow_the_law(problem, balls) -> None:
    domain = problem.domain
    law = balls.on(domain)
    bits = SeededBits(1)
    found = [law.centres_of(balls.draw(domain, 7, bits)) for _ in range(4_000)]
    expected = np.zeros(len(law.centres))
    counts = np.zeros(len(law.centres))
    for centres in found:
        counts[centres[0]] += 1
    groups = {tuple(law.ball(k)): [] for k in range(len(law.centres))}
    for k in range(len(law.centres)):
        groups[tuple(law.ball(k))].append(k)
    statistic = 0.0
    for members in groups.values():
        expected = law.mechanism.matrix[7, members].sum() * 4_000
        if expected > 5:
            statistic += (counts[members].sum() - expected) ** 2 / expected
    assert statistic < 120  # chi-square with at most 44 degrees of freedom at 1e-6: 98


def test_leakage_is_the_supremum_over_centres(problem, balls) -> None:
    domain = problem.domain
    law = balls.on(domain)
    logs = np.log(law.mechanism.matrix)
    for x, x2 in [(0, 1), (3, 30), (10, 44)]:
        assert balls.leakage(domain, x, x2) == pytest.approx(np.abs(logs[x] - logs[x2]).max())
        assert balls.leakage(domain, x, x2) <= 2.0 * domain.distance(x, x2)
        ball = law.ball(5)
        same = law.centres_of(ball)
        ratio = law.mechanism.matrix[[x, x2]][:, same].sum(axis=1)
        expected = np.log(ratio[0] / ratio[1])
        assert balls.leakage_of(domain, ball, x, x2) == pytest.approx(expected, abs=1e-12)


def test_surrogates_sum_to_one_and_are_mostly_the_record_itself(problem, balls) -> None:
    v = balls.surrogate_probability(problem.domain, 12)
    assert v.sum() == pytest.approx(1.0)
    assert v[12] >= 0.99


def test_claimed_and_audited_guarantee_agree(problem, balls) -> None:
    run = pm.panda(problem, range(10), balls, 0.01)
    assert isinstance(run, pm.PandaResult)
    assert run.guarantee == pm.Guarantee(4.0, 0.01, "km")
    assert run.tables[0].mechanism.epsilon == pytest.approx(1.0)
    audit = pm.audit_panda(run, draws=200, seed=3)
    assert audit.holds
    assert audit.violation <= 0.01
    # Inside pairs never exceed eps_1 + eps_2.
    for found, chosen in zip(audit.sets, run.anchor_sets, strict=True):
        assert found.selection_epsilon <= 2.0
        assert found.covered_epsilon <= 4.0
        assert found.covered_violations == 0
        assert len(chosen) >= 1
    worst = 0.0
    for x in range(SIZE):
        for x2 in range(0, x, 7):
            found = violation(run, x, x2)
            assert found.lower == found.upper <= 0.01
            worst = max(worst, found.epsilon)
    assert worst <= 4.0
    assert audit.drawn.certain <= 200 * 0.05


def test_a_table_with_the_whole_rest_does_not_pass_the_nearest_record(balls) -> None:
    """x' uses a row at most 2 d from x: a table of eps - eps_1 would lose up to eps_1 + 2 eps_2."""
    domain = pm.Domain.from_vectors([[0.0], [1.0], [2.0], [3.0]])
    problem = pm.Problem(domain, [0, 3], domain.distances(None, [0, 3]), 4.0)
    scheme = balls.scheme(problem, 0.01, Options())
    assert scheme.account().violation == scheme.law.missed.max() <= 0.01
    greedy = balls.scheme(problem, 0.01, Options())
    vars(greedy)["mechanism"] = table = pm.optimal(problem.with_epsilon(greedy.left))
    assert greedy.left / 2 < table.audit.epsilon <= greedy.left
    assert greedy.account().violation == 1.0


def test_the_extension_needs_no_delta(problem) -> None:
    balls = pm.BallAnchors(epsilon=2.0, delta=0.05, outside="extend")
    run = pm.panda(problem, range(5), balls, 0.05)
    assert run.guarantee == pm.Guarantee(4.0, 0.0, "km")
    assert run.tables[0].mechanism.epsilon > 1.0
    audit = pm.audit_panda(run)
    assert audit.holds
    assert audit.violation == 0.0
    assert all(found.violations == 0 for found in audit.sets)
    for x, x2 in [(0, 1), (4, 40)]:
        assert violation(run, x, x2).upper == 0.0
    nearest = pm.panda(
        problem, range(5), pm.BallAnchors(2.0, 0.05, outside="nearest"), 0.05, relaxed=False
    )
    assert run.tables[0].mechanism.loss < nearest.tables[0].mechanism.loss


def test_extended_rows_keep_the_ball_and_are_lipschitz(problem) -> None:
    domain = problem.domain
    table = pm.optimal(problem.with_epsilon(1.5))
    ball = np.flatnonzero(domain.distances(None, [0])[:, 0] < 4)
    rows = table.matrix.copy()
    beyond = np.setdiff1d(np.arange(SIZE), ball)
    rows[beyond] = extend_rows(domain, table.matrix, ball, 1.5, beyond)
    assert rows.sum(axis=1) == pytest.approx(1.0)
    logs = np.log(rows)
    for x in range(SIZE):
        spread = np.abs(logs - logs[x]).max(axis=1)
        assert np.all(spread <= 3.0 * domain.distances(None, [x])[:, 0] + 1e-9)


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
    with pytest.raises(ShortfallError, match="smaller delta"):
        pm.panda(problem, [1], pm.BallAnchors(1.0, 1e-3, outside="nearest"), 1e-7)
    with pytest.raises(MethodError, match="outside"):
        pm.BallAnchors(1.0, outside="ignore")
    with pytest.raises(MethodError, match="not the ball of any centre"):
        pm.BallAnchors(1.0, 0.01).leakage_of(problem.domain, [0, 44], 0, 1)
    with pytest.raises(MethodError) as caught:
        pm.BallAnchors(1.0, 0.01).draw(problem.domain, 4711)
    assert "4711" not in str(caught.value)


def test_public_centres(problem) -> None:
    few = pm.BallAnchors(2.0, 0.01, candidates=[0, 10, 20])
    law = few.on(problem.domain)
    assert law.centres.tolist() == [0, 10, 20]
    assert law.mechanism.audit.holds
    assert few.probability(problem.domain).shape == (SIZE, 3)
    with pytest.raises(MethodError, match="candidates"):
        pm.BallAnchors(2.0, 0.01, candidates=[])


@pytest.mark.data
def test_balls_on_rome_are_what_they_claim(road_maps) -> None:
    city = road_maps("rome")
    domain = city.domain(600, seed=0)
    outputs = np.arange(20)
    problem = pm.Problem(domain, outputs, domain.distances(None, outputs), 5.0)
    run = pm.panda(
        problem,
        range(3),
        pm.BallAnchors(2.0, outside="nearest"),
        1e-7,
        relaxed=False,
        gap=0.05,
        time_limit=20,
    )
    law = run.scheme.law
    assert 2.0 * (1 - 1e-3) <= law.mechanism.audit.epsilon <= 2.0
    assert 0.5e-7 < law.missed.max() <= 1e-7
    audit = pm.audit_panda(run)
    assert audit.holds
    assert all(found.covered_violations == 0 for found in audit.sets)
