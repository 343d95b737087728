"""Tiles cover every record once and their bounds never lie."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import KINDS, random_domain

from panda_mdp.space.metrics import Euclidean
from panda_mdp.space.tiles import TILE, order_in_space, tile


@pytest.mark.parametrize("size", [2, 63, 64, 65, 128, 129, 700])
def test_order_is_a_permutation_in_leaves(size):
    points = np.random.default_rng(size).normal(size=(size, 2))
    order, starts = order_in_space(points)
    assert sorted(order.tolist()) == list(range(size))
    assert starts[0] == 0
    assert starts[-1] == size
    assert np.diff(starts).min() >= 1
    assert np.diff(starts).max() <= TILE
    assert len(starts) - 1 <= 2 * -(-size // TILE)


def test_equal_coordinates_do_not_stall():
    order, starts = order_in_space(np.zeros((500, 3)))
    assert sorted(order.tolist()) == list(range(500))
    assert np.diff(starts).max() <= TILE


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_hold_for_every_pair_of_tiles(kind):
    metric = random_domain(kind, 90, seed=5).metric
    tiles = tile(metric, leaf=8)
    apart = metric.block(tiles.order, tiles.order)
    for a in range(tiles.count):
        for b in range(tiles.count):
            part = apart[
                tiles.starts[a] : tiles.starts[a + 1], tiles.starts[b] : tiles.starts[b + 1]
            ]
            assert tiles.between[a, b] <= part.min()
            assert tiles.across[a, b] >= part.max()


def test_far_clusters_are_told_apart():
    rng = np.random.default_rng(0)
    vectors = np.concatenate([rng.random((64, 2)), 100 + rng.random((64, 2))])
    tiles = tile(Euclidean(vectors))
    assert tiles.count == 2
    assert tiles.between[0, 1] > 100
