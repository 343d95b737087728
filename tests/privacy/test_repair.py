"""The repair ends in a private table, whatever it starts from."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import KINDS, domains, is_private, random_domain
from hypothesis import given, settings
from hypothesis import strategies as st

from panda_mdp import Domain, synthetic_city
from panda_mdp.compute.closure import FLOOR, Closure, closure_of
from panda_mdp.privacy.quantise import (
    MARGIN,
    TIGHTENING,
    RepairTuning,
    estimate,
    estimated_loss,
    repair,
)


def tables(size: int, outputs: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(outputs, 0.2), size)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 10.0])
def test_repaired_tables_are_private(kind, epsilon):
    domain = random_domain(kind, 30)
    repaired = repair(Closure(domain), tables(30), epsilon)
    np.testing.assert_allclose(repaired.matrix.sum(axis=1), 1, rtol=1e-12)
    assert repaired.matrix.min() > 0
    assert is_private(domain, repaired.matrix, epsilon)
    assert repaired.rounds > 0


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_repair_always_ends_in_a_private_table(data):
    domain = data.draw(domains(smallest=2, largest=7))
    epsilon = data.draw(st.sampled_from([1e-6, 0.3, 5.0, 1e3]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    matrix = rng.random((domain.size, 3)) ** data.draw(st.sampled_from([1, 20]))
    repaired = repair(Closure(domain), matrix, epsilon)
    assert is_private(domain, repaired.matrix, epsilon)


def test_a_private_table_hardly_moves():
    domain = random_domain("haversine", 80)
    scores = domain.distances(None, [0, 20, 40])
    weights = np.exp(-0.49 * scores)
    z = weights / weights.sum(axis=1, keepdims=True)
    repaired = repair(Closure(domain), z, 1.0)
    np.testing.assert_allclose(repaired.matrix, z, rtol=1e-5, atol=2 * FLOOR)
    # One round of near pairs and one of all.
    assert repaired.rounds == 2
    assert repaired.common_share == 0.0
    assert repaired.tightening == TIGHTENING


def test_the_audited_rate_leaves_room_for_quantising():
    domain = random_domain("euclidean", 100)
    closure = Closure(domain)
    repaired = repair(closure, tables(100), 2.0)
    assert closure.rate(repaired.matrix[closure.order]) <= 2.0 * (1 - MARGIN)


def test_rounds_drive_the_sums_to_one():
    closure = Closure(random_domain("haversine", 100))
    rounds = closure.rounds(closure.start(tables(100)), 1.0)
    sums = [next(rounds)[1] for _ in range(12)]
    assert np.abs(sums[-1] - 1).max() < 0.1 * np.abs(sums[0] - 1).max()
    assert all(s.min() >= 1 - 1e-9 for s in sums)


def test_excess_is_the_largest_rate_of_the_sums_between_neighbours():
    domain = random_domain("matrix", 9)
    closure = Closure(domain)
    sums = np.random.default_rng(0).uniform(1, 2, 9)
    apart = domain.distances(closure.order, closure.order)
    np.fill_diagonal(apart, np.inf)
    rates = np.abs(np.log(sums)[:, None] - np.log(sums)) / apart
    assert closure.excess(sums) == pytest.approx(rates.max(), rel=1e-9)


def test_start_lifts_zeros_and_survives_empty_rows():
    closure = Closure(random_domain("euclidean", 5))
    matrix = np.zeros((5, 4))
    matrix[:4, 0] = -1e-9
    matrix[:4, 1] = 1.0
    z = closure.start(matrix)[closure.place]
    np.testing.assert_allclose(z.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(z[:4, 2], FLOOR / 4, rtol=1e-6)
    np.testing.assert_allclose(z[4], 0.25, rtol=1e-12)


def test_a_common_row_is_the_last_resort():
    once = RepairTuning(rounds=1, centred_rounds=1, attempts=1)
    points = np.concatenate([np.arange(20.0), np.arange(20.0) + 1e-6])
    domain = Domain.from_vectors(points[:, None])
    repaired = repair(Closure(domain), tables(40, 6), 1.0, tuning=once)
    assert 0 < repaired.common_share < 1
    assert is_private(domain, repaired.matrix, 1.0)


def test_rough_tables_along_streets_are_closed_at_the_first_attempt():
    """Closing only a few streets around a bad one left it as bad, until epsilon was cut for all."""
    city = synthetic_city(1200, seed=5)
    domain = city.road_domain()
    z = np.exp(-4.0 * domain.distances(None, np.arange(0, 1200, 30)))
    z *= np.exp(np.random.default_rng(2).normal(size=z.shape))
    z /= z.sum(axis=1, keepdims=True)
    closure = closure_of(domain)
    repaired = repair(closure, z, 5.0)
    assert (repaired.common_share, repaired.tightening) == (0.0, TIGHTENING)
    assert closure.rate(repaired.matrix[closure.order]) <= 5.0
    assert np.abs(repaired.matrix - z).sum(axis=1).mean() < 0.45


def test_estimate_is_near_what_the_repair_ends_with():
    domain = random_domain("haversine", 120)
    closure = Closure(domain)
    loss = domain.distances(None, [0, 40, 80])
    z = np.exp(-1.2 * loss)
    z /= z.sum(axis=1, keepdims=True)
    guess, final = estimate(closure, z, 1.0), repair(closure, z, 1.0).matrix
    assert (loss * guess).sum() == pytest.approx((loss * final).sum(), rel=0.05)


def test_the_loss_of_a_sample_is_near_that_of_all():
    domain = random_domain("haversine", 600)
    closure = Closure(domain)
    outputs = np.arange(0, 600, 60)
    loss = domain.distances(None, outputs)
    z = np.exp(-1.2 * loss / np.median(loss))
    z /= z.sum(axis=1, keepdims=True)
    prior = np.random.default_rng(3).dirichlet(np.full(600, 5.0))
    cost, epsilon = prior[:, None] * loss, 0.5 / float(np.median(loss))
    after = (cost * estimate(closure, z, epsilon)).sum()
    arguments = (closure, z, epsilon, FLOOR, cost, prior)
    assert estimated_loss(*arguments) == pytest.approx(after, rel=1e-12)
    sampled = estimated_loss(*arguments, RepairTuning(sampled_records=0))
    rise = after - (cost * z).sum()
    assert sampled == pytest.approx(after, abs=0.1 * rise)
    assert sampled != after
