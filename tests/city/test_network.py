"""Contraction keeps every shortest path between the junctions that remain."""

from __future__ import annotations

import numpy as np
import pytest

from panda_mdp import City, synthetic_city
from panda_mdp.city.city import travel
from panda_mdp.city.network import contract


def pieces(size: int, segments: list[tuple[int, int]]) -> City:
    a, b = np.array(segments).T
    lat = np.linspace(0, 1, size)
    return City(lat, lat, a, b, np.arange(1.0, len(a) + 1))


def rows(city: City) -> list[tuple[int, int, float]]:
    values = zip(city.u, city.v, city.length_m, strict=True)
    return sorted((int(min(a, b)), int(max(a, b)), float(m)) for a, b, m in values)


def test_a_chain_becomes_one_street() -> None:
    assert rows(contract(pieces(4, [(1, 0), (1, 2), (3, 2)]))) == [(0, 3, 6.0)]


def test_rings_and_loops() -> None:
    alone = contract(pieces(3, [(0, 1), (1, 2), (2, 0)]))
    assert rows(alone) == [(0, 0, 6.0)]
    handle = contract(pieces(4, [(0, 1), (1, 2), (2, 0), (0, 3)]))
    assert rows(handle) == [(0, 0, 6.0), (0, 3, 4.0)]
    twice = contract(pieces(2, [(0, 1), (1, 0)]))
    assert rows(twice) == [(0, 0, 3.0)]


@pytest.mark.parametrize("seed", range(3))
def test_shortest_paths_survive(seed: int) -> None:
    """Split every street of a city at random, contract, and compare all road distances."""
    city = synthetic_city(150, seed=seed)
    rng = np.random.default_rng(seed)
    split = rng.uniform(size=len(city.u)) < 0.7
    middle = city.nodes + np.cumsum(split) - 1
    a = np.concatenate([city.u, middle[split]])
    b = np.concatenate([np.where(split, middle, city.v), city.v[split]])
    length = np.where(split, 0.25 * city.length_m, city.length_m)
    length = np.concatenate([length, 0.75 * city.length_m[split]])
    lat = np.concatenate([city.lat, city.lat[city.u[split]] + 1e-7])
    lon = np.concatenate([city.lon, city.lon[city.u[split]]])
    before = City(lat, lon, a, b, length)
    small = contract(before)
    remaining = np.unique([small.u, small.v])
    assert len(remaining) < len(lat) - split.sum() / 2
    np.testing.assert_allclose(
        travel(small, remaining, remaining), travel(before, remaining, remaining), rtol=1e-12
    )
