"""Contraction keeps every shortest path between the junctions that remain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from panda_mdp import City, synthetic_city
from panda_mdp.city.city import travel
from panda_mdp.city.network import contract, join_directions


def pieces(size: int, segments: list[tuple[int, int]], oneway: list[bool] | None = None) -> City:
    a, b = np.array(segments).T
    lat = np.linspace(0, 1, size)
    return City(
        lat, lat, a, b, np.arange(1.0, len(a) + 1), oneway=oneway, speed_kmh=np.full(len(a), 30.0)
    )


def rows(city: City) -> list[tuple[int, int, float, bool]]:
    oneway = np.zeros(len(city.u), bool) if city.oneway is None else city.oneway
    values = zip(city.u, city.v, city.length_m, oneway, strict=True)
    return sorted((int(a), int(b), float(m), bool(o)) for a, b, m, o in values)


def test_a_chain_becomes_one_street() -> None:
    result = contract(pieces(4, [(1, 0), (1, 2), (3, 2)]))
    assert len(result.u) == 1 and result.length_m.tolist() == [6.0]
    assert {int(result.u[0]), int(result.v[0])} == {0, 3}


def test_one_way_chains_keep_their_direction() -> None:
    result = contract(pieces(4, [(2, 3), (1, 2), (0, 1)], [True] * 3))
    assert rows(result) == [(0, 3, 6.0, True)]


def test_nodes_where_the_direction_changes_stay() -> None:
    mixed = contract(pieces(3, [(0, 1), (1, 2)], [True, False]))
    assert rows(mixed) == [(0, 1, 1.0, True), (1, 2, 2.0, False)]
    head_on = contract(pieces(3, [(0, 1), (2, 1)], [True, True]))
    assert rows(head_on) == [(0, 1, 1.0, True), (2, 1, 2.0, True)]


def test_rings_and_loops() -> None:
    alone = contract(pieces(3, [(0, 1), (1, 2), (2, 0)]))
    assert rows(alone) == [(0, 0, 6.0, False)]
    handle = contract(pieces(4, [(0, 1), (1, 2), (2, 0), (0, 3)]))
    assert rows(handle) == [(0, 0, 6.0, False), (0, 3, 4.0, False)]
    twice = contract(pieces(2, [(0, 1), (1, 0)]))
    assert rows(twice) == [(0, 0, 3.0, False)]


def test_times_add_up() -> None:
    plain = pieces(3, [(0, 1), (1, 2)])
    result = contract(replace(plain, speed_kmh=np.array([10.0, 40.0])))
    assert result.speed_kmh is not None
    assert result.length_m[0] / result.speed_kmh[0] == pytest.approx(1 / 10 + 2 / 40)


@pytest.mark.parametrize("seed", range(3))
def test_shortest_paths_survive(seed: int) -> None:
    """Split every street of a city at random, contract, and compare all road distances."""
    city = synthetic_city(150, seed=seed)
    rng = np.random.default_rng(seed)
    oneway = rng.uniform(size=len(city.u)) < 0.3
    split = rng.uniform(size=len(city.u)) < 0.7
    middle = city.nodes + np.cumsum(split) - 1
    a = np.concatenate([city.u, middle[split]])
    b = np.concatenate([np.where(split, middle, city.v), city.v[split]])
    length = np.where(split, 0.25 * city.length_m, city.length_m)
    length = np.concatenate([length, 0.75 * city.length_m[split]])
    lat = np.concatenate([city.lat, city.lat[city.u[split]] + 1e-7])
    lon = np.concatenate([city.lon, city.lon[city.u[split]]])
    flags = np.concatenate([oneway, oneway[split]])
    before = City(lat, lon, a, b, length, oneway=flags)
    small = contract(before)
    remaining = np.unique([small.u, small.v])
    assert len(remaining) < len(lat) - split.sum() / 2
    for directed in (False, True):
        np.testing.assert_allclose(
            travel(small, remaining, remaining, directed=directed),
            travel(before, remaining, remaining, directed=directed),
            rtol=1e-12,
        )


def test_arcs_join_into_streets() -> None:
    # 0-1 both ways, a second one-way 0->1 of equal length, 1->2 one-way, 3-2 both ways, loops.
    a = np.array([0, 1, 0, 1, 3, 2, 4, 4, 5])
    b = np.array([1, 0, 1, 2, 2, 3, 4, 4, 5])
    kept, oneway = join_directions(a, b, np.array([7.0, 7.0, 7.0, 1.0, 2.0, 2.0, 3.0, 3.0, 1.0]))
    assert kept.tolist() == [0, 2, 3, 4, 6, 8]
    assert oneway.tolist() == [False, True, True, False, False, True]
