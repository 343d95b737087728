"""The compiled closure against the maximum over all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import KINDS, random_domain

from panda_mdp.compute.closure import Closure, pair_reach


@pytest.fixture(autouse=True, params=["compiled", "numpy"])
def path(request, monkeypatch):
    """Small domains go through NumPy: every test asks both."""
    if request.param == "compiled":
        monkeypatch.setattr("panda_mdp.compute.closure.SMALL_RECORDS", 0)


def tables(size: int, outputs: int = 5, seed: int = 0) -> np.ndarray:
    """Positive tables over twenty orders of magnitude."""
    rng = np.random.default_rng(seed)
    return np.exp(rng.uniform(-45, 0, (size, outputs)))


def closed(z: np.ndarray, apart: np.ndarray, epsilon: float) -> np.ndarray:
    return (z[None] * np.exp(-epsilon * apart)[:, :, None]).max(axis=1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 20.0])
def test_is_the_maximum_over_all_records(kind, epsilon):
    # More than one tile, so that passing over tiles is tested as well.
    domain = random_domain(kind, 150)
    closure = Closure(domain)
    apart = domain.distances(closure.order, closure.order)
    z = tables(150)
    np.testing.assert_allclose(closure.close(z, epsilon), closed(z, apart, epsilon), rtol=1e-12)


def test_only_active_records_are_closed():
    domain = random_domain("euclidean", 150)
    closure = Closure(domain)
    apart = domain.distances(closure.order, closure.order)
    z = tables(150)
    active = np.zeros(150, dtype=bool)
    active[[3, 70, 149]] = True
    expected = np.where(active[:, None], closed(z, apart, 1.0), z)
    np.testing.assert_allclose(closure.close(z, 1.0, active), expected, rtol=1e-12)


def test_closing_twice_changes_nothing():
    closure = Closure(random_domain("haversine", 130))
    once = closure.close(tables(130), 2.0)
    np.testing.assert_allclose(closure.close(once, 2.0), once, rtol=1e-12)


def test_reach_bounds_every_log_ratio_between_tiles():
    domain = random_domain("haversine", 150)
    z, starts = tables(150), domain.tiles.starts
    pairs = domain.tiles.pairs(np.inf)
    logs = np.log(z)
    reach = pair_reach(z, starts, pairs)
    assert len(reach) == domain.tiles.count**2
    for a, b, value in zip(pairs.first, pairs.second, reach, strict=True):
        own, source = logs[starts[a] : starts[a + 1]], logs[starts[b] : starts[b + 1]]
        true = (source[None] - own[:, None]).max()
        assert true - 1e-12 <= value <= (source.max(0) - own.min(0)).max() + 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_violated_pairs_are_the_same_on_both_paths(kind, monkeypatch):
    domain = random_domain(kind, 90)
    closure = Closure(domain)
    z = closure.start(np.random.default_rng(0).dirichlet(np.full(4, 0.3), 90))
    epsilon = 1.0 / float(np.median(domain.neighbours(1)[1]))
    monkeypatch.setattr("panda_mdp.compute.closure.SMALL_RECORDS", 512)
    partner, gain = closure.violated(z, epsilon, 3, 1e-3)
    monkeypatch.setattr("panda_mdp.compute.closure.SMALL_RECORDS", 0)
    other, same = closure.violated(z, epsilon, 3, 1e-3)
    np.testing.assert_allclose(gain, same, rtol=1e-4, atol=2e-6)
    assert (partner == other).mean() > 0.99, "near ties may change places in float32"


@pytest.mark.parametrize("kind", ["haversine", "euclidean", "matrix"])
def test_rounds_by_lists_are_those_over_all_pairs(kind, monkeypatch):
    """Also where lists are too short for a row, and where rows fall out of their lists."""
    domain = random_domain(kind, 180)
    closure = Closure(domain)
    apart = domain.distances(closure.order, closure.order)
    epsilon = 3.0 / float(np.median(apart))
    monkeypatch.setattr("panda_mdp.compute.closure.LEAST_MARGIN", 1e-5)
    monkeypatch.setattr(Closure, "rest", 0.0)
    for most in (320, 20):
        monkeypatch.setattr("panda_mdp.compute.closure.SOURCES", most)
        z = expected = closure.start(np.random.default_rng(4).dirichlet(np.full(6, 0.3), 180))
        rounds = closure.rounds(z, epsilon)
        for _ in range(25):
            whole = closed(expected, apart, epsilon)
            expected = whole / whole.sum(axis=1, keepdims=True)
            z, sums = next(rounds)
            np.testing.assert_allclose(z, expected, rtol=2e-5)
            np.testing.assert_allclose(sums, whole.sum(axis=1), rtol=2e-5)


def test_rows_at_rest_are_short_of_no_claim_by_more_than_that(monkeypatch):
    monkeypatch.setattr(Closure, "rest", 0.01)
    domain = random_domain("euclidean", 180)
    closure = Closure(domain)
    apart = domain.distances(closure.order, closure.order)
    np.fill_diagonal(apart, np.inf)
    epsilon = 3.0 / float(np.median(apart))
    rounds = closure.rounds(
        closure.start(np.random.default_rng(4).dirichlet(np.full(6, 0.3), 180)), epsilon
    )
    for _ in range(12):
        z, sums = next(rounds)
        logs, scaled = np.log(z), np.log(sums)
        short = (logs[None] - logs[:, None]).max(axis=2) / apart - epsilon
        allowed = np.maximum(scaled[:, None] - scaled, 0) / apart + 0.01 * epsilon
        assert (short <= allowed + 1e-9).all()
