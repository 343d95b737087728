"""The compiled scan over tiles against a plain loop over all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import KINDS, random_domain

from panda_mdp.compute.numba.audit import worst_pair
from panda_mdp.compute.numba.distance import coordinates
from panda_mdp.compute.rate import _bounds
from panda_mdp.space.tiles import tile

CONSTANT, SHRINK = 2e-13, 1 - 7e-15


def scan(domain, logs, leaf, constant=CONSTANT):
    """The kernel's answer, its pair as domain indices, and the number of tile pairs visited."""
    tiles = tile(domain.metric, leaf)
    ordered = np.ascontiguousarray(logs[tiles.order])
    weights = (ordered * 1e6).astype(np.int64)
    rows = (ordered, weights, *coordinates(domain.metric, tiles.order), tiles.starts)
    table = (*rows, *_bounds(ordered, tiles.starts))
    own = np.arange(tiles.count)
    value, i, j, visited = worst_pair(*table, own, own, np.zeros(len(own)), constant, SHRINK)
    for pairs in tiles.later(np.inf):
        more, first, second, count = worst_pair(*table, *pairs, constant, SHRINK, value)
        visited += count
        if more > value:
            value, i, j = more, first, second
    return value, {int(tiles.order[i]), int(tiles.order[j])}, visited, tiles.count


def brute_force(domain, logs, constant=CONSTANT):
    best, pair = 0.0, {0, 1}
    apart = domain.distances()
    for i in range(domain.size):
        for j in range(i):
            if (logs[i] != logs[j]).any():
                rate = (np.abs(logs[i] - logs[j]).max() + constant) / (apart[i, j] * SHRINK)
                if rate > best:
                    best, pair = rate, {i, j}
    return best, pair


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("leaf", [1, 7, 64])
def test_matches_brute_force(kind, leaf):
    domain = random_domain(kind, 100, seed=8)
    logs = np.round(np.random.default_rng(3).normal(size=(100, 5)), 3)
    value, pair, _, _ = scan(domain, logs, leaf)
    best, expected = brute_force(domain, logs)
    assert value == pytest.approx(best, rel=1e-13)
    assert pair == expected


def test_passes_over_far_tiles_and_still_finds_the_worst():
    domain = random_domain("haversine", 600, seed=1)
    logs = np.round(-0.5 * domain.distances(None, [0, 200, 500]), 6)
    value, pair, visited, count = scan(domain, logs, leaf=16)
    best, expected = brute_force(domain, logs)
    assert value == pytest.approx(best, rel=1e-13)
    assert pair == expected
    assert visited < count * (count + 1) / 2


def test_equal_rows_are_no_loss():
    domain = random_domain("euclidean", 50)
    value, _, visited, count = scan(domain, np.ones((50, 3)), leaf=8)
    assert value == 0.0
    assert visited == count * (count + 1) // 2


def test_worst_pair_may_lie_in_two_far_tiles():
    """A pair that only a visit to two distant tiles can find."""
    domain = random_domain("euclidean", 200, seed=2)
    logs = np.zeros((200, 2))
    apart = domain.distances()
    i, j = np.unravel_index(apart.argmax(), apart.shape)
    logs[i, 0], logs[j, 0] = 1.0, -1000.0
    value, pair, _, _ = scan(domain, logs, leaf=8)
    best, expected = brute_force(domain, logs)
    assert value == pytest.approx(best, rel=1e-13)
    assert pair == expected
