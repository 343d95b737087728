"""The made-up city is a planar, connected network with the figures of a real one."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from panda_mdp import City, synthetic_city
from panda_mdp.city.statistics import city_statistics
from panda_mdp.errors import CityError
from panda_mdp.space.metrics import Haversine


def crossings(city: City) -> int:
    """Pairs of streets without a common end whose segments properly cross."""
    x, y = Haversine(city.lat, city.lon).plane.T
    p = np.stack([x, y], axis=1)
    a, b = p[city.u], p[city.v]

    def side(p0: np.ndarray, p1: np.ndarray, q: np.ndarray) -> np.ndarray:
        d, e = p1 - p0, q - p0
        value = d[..., 0] * e[..., 1] - d[..., 1] * e[..., 0]
        return np.sign(np.where(np.abs(value) < 1e-12, 0, value))

    first = side(a[:, None], b[:, None], a[None]) * side(a[:, None], b[:, None], b[None])
    second = side(a[None], b[None], a[:, None]) * side(a[None], b[None], b[:, None])
    return int(((first < 0) & (second < 0)).sum()) // 2


@pytest.mark.parametrize("seed", range(4))
def test_planar_connected_and_exactly_as_large(seed: int) -> None:
    city = synthetic_city(400 + seed, seed=seed)
    assert city.nodes == 400 + seed
    assert city.components().max() == 0
    assert crossings(city) == 0
    assert len(np.unique(np.stack([city.lat, city.lon], 1), axis=0)) == city.nodes


@pytest.mark.parametrize("seed", range(3))
def test_figures_are_those_of_a_city(seed: int) -> None:
    measured = city_statistics(synthetic_city(5000, seed=seed), sources=10)
    one, two, three, four = measured["degree_shares"]
    assert 0.15 < one < 0.19 and two < 0.06 and 0.6 < three < 0.7 and 0.1 < four < 0.2
    assert 1.2 < measured["detour"] < 1.5
    assert 60 < measured["median_length_m"] < 120
    assert 150 < measured["long_length_m"] < 350
    assert 0.4 < measured["gini"] < 0.7


def test_same_seed_same_city() -> None:
    one, other = (synthetic_city(300, seed=5) for _ in range(2))
    for name in ("lat", "lon", "u", "v", "length_m"):
        assert np.array_equal(getattr(one, name), getattr(other, name))
    assert not np.array_equal(one.lat, synthetic_city(300, seed=6).lat)


def test_memory_grows_with_nodes_not_with_their_pairs() -> None:
    def peak(nodes: int) -> int:
        tracemalloc.start()
        assert synthetic_city(nodes).nodes == nodes
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(500)
    assert peak(20_000) < 15 * peak(2_000)


def test_small_cities_work_and_tiny_ones_are_refused() -> None:
    for nodes in range(20, 60):
        city = synthetic_city(nodes, seed=nodes)
        assert city.nodes == nodes and city.components().max() == 0
    with pytest.raises(CityError, match="nodes is 19"):
        synthetic_city(19)
