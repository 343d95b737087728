"""The best attacker, against brute force over all strategies."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from helpers import KINDS, displacement_problem, random_domain

import panda_mdp as pm
from panda_mdp.errors import MethodError, ProblemError


def brute_force(table, prior, score):
    """The best expected score over every function from outputs to records, with its strategy."""
    size, outputs = table.matrix.shape
    both = prior[:, None] * table.matrix
    best = max(
        itertools.product(range(size), repeat=outputs),
        key=lambda named: sum(
            both[x, y] * score(x, named[y]) for x in range(size) for y in range(outputs)
        ),
    )
    value = sum(both[x, y] * score(x, best[y]) for x in range(size) for y in range(outputs))
    return value, best


@pytest.mark.parametrize("kind", KINDS)
def test_no_strategy_does_better(kind):
    domain = random_domain(kind, 6, seed=3)
    prior = np.random.default_rng(1).dirichlet(np.ones(6))
    table = pm.exponential(displacement_problem(domain, [0, 2, 5], 1.0, prior))
    apart = domain.distances()
    # A distance itself: who is exactly that far is within it.
    radius = float(np.sort(apart, axis=None)[apart.size // 2])
    result = pm.attack(table, radii=[radius])
    assert result.vulnerability == pytest.approx(
        brute_force(table, prior, lambda x, w: float(x == w))[0], rel=1e-12
    )
    value, named = brute_force(table, prior, lambda x, w: -apart[x, w])
    near, _ = brute_force(table, prior, lambda x, w: float(apart[x, w] <= radius))
    assert result.error == pytest.approx(float(prior @ result.error_by_record), rel=1e-12)
    if kind == "haversine":
        # Somebody who may point anywhere does no worse than at records, and sometimes better.
        assert result.error <= -value + 1e-12
        assert result.located[radius] >= near - 1e-12
        assert result.restricted == ()
        return
    assert result.restricted == (radius,)
    assert result.error == pytest.approx(-value, rel=1e-12)
    assert result.least_error == pytest.approx(
        min(sum(table.matrix[x, y] * apart[x, named[y]] for y in range(3)) for x in range(6))
    )
    assert result.located[radius] == pytest.approx(near, rel=1e-12)
    without = max(sum(prior[x] * (apart[x, w] <= radius) for x in range(6)) for w in range(6))
    assert result.prior_located[radius] == pytest.approx(without, rel=1e-12)
    beliefs = [
        prior[x] * table.matrix[x, y] / float(prior @ table.matrix[:, y])
        for x in range(6)
        for y in range(3)
    ]
    assert result.worst_posterior == pytest.approx(max(beliefs), rel=1e-12)
    assert float(prior @ result.hit_by_record) == pytest.approx(result.vulnerability, rel=1e-12)


def test_guesses_are_taken_from_all_blocks_of_records():
    domain = random_domain("euclidean", 2_100, seed=1)
    assert len(list(domain.blocks())) == 2
    table = pm.exponential(displacement_problem(domain, range(0, 2_100, 50), 8.0))
    found = pm.attack(table, radii=[1.0])
    apart, both = domain.distances(), table.problem.prior[:, None] * table.matrix
    cost = apart @ both
    named = cost.argmin(axis=0)
    assert (named >= 1_997).any()
    assert found.error == pytest.approx(cost.min(axis=0).sum(), rel=1e-12)
    assert found.prior_error == pytest.approx((apart @ table.problem.prior).min(), rel=1e-12)
    near = (apart <= 1.0).astype(float)
    assert found.located[1.0] == pytest.approx((near @ both).max(axis=0).sum(), rel=1e-12)
    assert found.prior_located[1.0] == pytest.approx((near @ table.problem.prior).max(), rel=1e-12)
    each = (table.matrix * apart[:, named]).sum(axis=1)
    assert found.error_by_record == pytest.approx(each, rel=1e-12)


def test_another_prior_and_the_epsilon_it_cannot_exceed():
    domain = random_domain("euclidean", 12, seed=2)
    problem = displacement_problem(domain, range(12), 1.0)
    table = pm.exponential(problem)
    sharp = np.full(12, 0.01 / 11)
    sharp[4] = 0.99
    result = pm.attack(table, pm.Prior.public(sharp, source="test"))
    assert result.prior_source == "public: test"
    assert result.vulnerability >= 0.99
    assert result.vulnerability / 0.99 <= result.capacity + 1e-12
    uniform = pm.attack(table)
    # At the uniform prior the capacity is attained.
    assert uniform.vulnerability * 12 == pytest.approx(uniform.capacity)
    assert uniform.capacity <= np.exp(problem.epsilon * domain.diameter)


def test_the_optimum_for_distance_is_its_own_best_guess():
    domain = random_domain("haversine", 12, seed=4)
    table = pm.optimal(displacement_problem(domain, range(12), 0.3), gap=1e-3)
    assert pm.attack(table).error == pytest.approx(table.loss, rel=2e-3)


def test_a_report_that_ignores_the_record_tells_nothing():
    domain = random_domain("haversine", 9, seed=5)
    problem = displacement_problem(domain, [0, 1], 1.0)
    table = pm.Mechanism.from_matrix(problem, np.full((9, 2), 0.5))
    result = pm.attack(table)
    assert result.vulnerability == pytest.approx(result.prior_vulnerability)
    assert result.error == pytest.approx(result.prior_error)
    assert result.shannon_leakage == pytest.approx(0, abs=1e-15)
    assert result.capacity == pytest.approx(1)
    assert result.located == pytest.approx(result.prior_located)


def test_bad_input_is_named():
    domain = random_domain("haversine", 4)
    table = pm.exponential(displacement_problem(domain, [0, 1], 1.0))
    for radii in (0.2, ["near"], [None]):
        with pytest.raises(MethodError, match="give a list of distances"):
            pm.attack(table, radii=radii)
    for prior in ([np.nan, 0.5, 0.5, 0], [0.5, 0.5], [-1, 1, 1, 0], [0] * 4, np.full((1, 4), 0.25)):
        with pytest.raises(ProblemError, match="prior"):
            pm.attack(table, prior)
    with pytest.raises(MethodError, match=r"radii are \[-1.0\]"):
        pm.attack(table, radii=[-1.0])
    with pytest.raises(ProblemError, match="sums to 2"):
        pm.attack(table, [0.5] * 4)


def test_a_guess_between_records_finds_what_no_record_finds():
    """Two places 2 km apart, reported alike: who points between them is within 1 km of both."""
    domain = pm.Domain.from_vectors([[0.0, 0.0], [2.0, 0.0]], unit="km")
    table = pm.Mechanism.from_matrix(displacement_problem(domain, [0], 1.0), [[1.0], [1.0]])
    assert pm.attack(table, radii=[1.0]).located[1.0] == pytest.approx(1.0)
    assert pm.attack(table, radii=[0.9]).located[0.9] == pytest.approx(0.5)


def test_given_guesses_are_all_that_is_tried():
    """By brute force over the guesses of each output; who may point anywhere does no worse."""
    domain = random_domain("haversine", 7, seed=6)
    table = pm.exponential(displacement_problem(domain, [0, 3, 6], 1.0))
    rng = np.random.default_rng(0)
    named_records = pm.Outputs.of([1, 4], domain)
    for guesses in (
        named_records,
        pm.Outputs.at(rng.choice(domain.lat, 5) + 0.001, rng.choice(domain.lon, 5)),
    ):
        apart = guesses.distances(domain)
        # On its circle a record is within the radius.
        radius = float(np.median(apart))
        seen = pm.attack(table, radii=(radius,), guesses=guesses)
        both = table.problem.prior[:, None] * table.matrix
        named = [[(both[:, y] * apart[:, g]).sum() for g in range(len(guesses))] for y in range(3)]
        held = [
            [both[apart[:, g] <= radius, y].sum() for g in range(len(guesses))] for y in range(3)
        ]
        assert seen.error == pytest.approx(sum(map(min, named)))
        assert seen.located[radius] == pytest.approx(sum(map(max, held)))
        assert float(table.problem.prior @ seen.error_by_record) == pytest.approx(seen.error)
        free = pm.attack(table, radii=(radius,))
        assert free.error <= seen.error and free.located[radius] >= seen.located[radius]
    assert pm.attack(table, guesses=[1, 4]).error == pm.attack(table, guesses=named_records).error
    with pytest.raises(ProblemError, match="no distance"):
        pm.attack(table, guesses=pm.Outputs.labels(["here"]))
    with pytest.raises(ProblemError, match="outputs"):
        pm.attack(table, guesses=[99])
