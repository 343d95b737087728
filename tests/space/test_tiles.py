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


def between(tiles):
    """Lower bounds on the distance between records of two tiles, all of them."""
    return tiles.pairs(np.inf).between.reshape(tiles.count, tiles.count)


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
            assert between(tiles)[a, b] <= part.min()
            assert tiles.across[a, b] >= part.max()


def test_records_that_follow_each_other_in_a_tile_are_near():
    points = np.random.default_rng(1).random((4096, 2))
    tiles = tile(Euclidean(points))
    order, starts = order_in_space(points)
    np.testing.assert_array_equal(tiles.starts, starts)
    for t in range(tiles.count):
        part = slice(starts[t], starts[t + 1])
        assert set(tiles.order[part]) == set(order[part])
    sides = [np.ptp(points[o].reshape(-1, 8, 2), axis=1) for o in (tiles.order, order)]
    wide = [side.max(axis=1).mean() for side in sides]
    assert wide[0] < 0.75 * wide[1]


def test_far_clusters_are_told_apart():
    rng = np.random.default_rng(0)
    vectors = np.concatenate([rng.random((64, 2)), 100 + rng.random((64, 2))])
    tiles = tile(Euclidean(vectors))
    assert tiles.count == 2
    assert between(tiles)[0, 1] > 100


SHAPES = {
    "scattered": lambda rng: rng.random((900, 2)),
    "thin": lambda rng: np.stack([1000 * rng.random(900), 1e-3 * rng.random(900)], axis=1),
    "a line": lambda rng: rng.random((900, 1)),
    "near duplicates": lambda rng: np.concatenate([p := rng.random((450, 2)), p + 1e-9]),
    "towns": lambda rng: 50 * rng.random((9, 1, 3)) + 0.1 * rng.random((9, 100, 3)),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("leaf", [3, 16])
def test_near_tiles_through_regions_are_those_of_all_tiles(shape, leaf):
    points = SHAPES[shape](np.random.default_rng(3))
    tiles = tile(Euclidean(points.reshape(900, -1)), leaf)
    assert tiles.regions.count > 1
    everywhere = between(tiles)
    for radius in (0.0, *np.quantile(everywhere, [0.01, 0.3, 0.9]), np.inf):
        first, second = np.nonzero(everywhere < radius)
        pairs = tiles.pairs(radius)
        np.testing.assert_array_equal(pairs.first, first)
        np.testing.assert_array_equal(pairs.second, second)
        np.testing.assert_array_equal(pairs.between, everywhere[first, second])
        later = first < second
        parts = list(tiles.later(radius, most=1000))
        for k, expected in enumerate((first, second, pairs.between)):
            got = np.concatenate([[], *(part[k] for part in parts)])
            np.testing.assert_array_equal(got, expected[later])
        assert len(parts) > 1 or later.sum() < 60_000


def test_regions_hold_their_tiles():
    tiles = tile(random_domain("haversine", 700).metric, leaf=4)
    regions = tiles.regions
    for r in range(regions.count):
        inside = tiles.order[tiles.starts[regions.starts[r]] : tiles.starts[regions.starts[r + 1]]]
        away = tiles.metric.block(regions.centres[r : r + 1], inside)
        assert away.max() <= regions.radii[r]


def test_near_tiles_of_many_records_are_few():
    """Two hundred thousand records: all pairs of tiles would be ten million."""
    rng = np.random.default_rng(0)
    tiles = tile(Euclidean(rng.random((200_000, 2)) * [200.0, 1.0]))
    pairs = tiles.pairs(0.5)
    assert len(pairs.second) < 40 * tiles.count
    assert "across" not in vars(tiles)
