"""The area of places: a clamp that moves no two places apart, and holes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panda_mdp.errors import DomainError, SnapError
from panda_mdp.space.area import Area
from panda_mdp.space.mesh import project
from panda_mdp.space.metrics import haversine_km

RNG = np.random.default_rng(4)
LAT, LON = 41.8 + 0.2 * RNG.random(60), 12.4 + 0.3 * RNG.random(60)
AREA = Area.around(LAT, LON)
Place = tuple[float, float]
PLACES = st.tuples(st.floats(39.0, 45.0), st.floats(9.0, 16.0))


def inside(lat: float, lon: float, slack_km: float = 1e-6) -> bool:
    """Left of every side."""
    (at,), _ = project(np.array([lat]), np.array([lon]), AREA.middle)
    sides = np.roll(AREA.corners, -1, axis=0) - AREA.corners
    to = at - AREA.corners
    turn = (sides[:, 0] * to[:, 1] - sides[:, 1] * to[:, 0]) / np.hypot(*sides.T)
    return bool((turn >= -slack_km).all())


@settings(deadline=None, max_examples=200)
@given(PLACES, PLACES)
def test_no_two_places_are_moved_apart(first: Place, second: Place) -> None:
    """Within some 400 km of the middle the plane stretches by less than 1 %."""
    moved, other = AREA.clamp(*first), AREA.clamp(*second)
    assert inside(*moved) and inside(*other)
    apart = float(haversine_km(*map(np.float64, (*first, *second))))
    after = float(haversine_km(*map(np.float64, (*moved, *other))))
    assert after <= 1.01 * apart + 1e-6


@settings(deadline=None, max_examples=100)
@given(PLACES)
def test_the_point_is_the_nearest_of_the_area(place: Place) -> None:
    if inside(*place, slack_km=0.0):
        assert AREA.clamp(*place) == place
        return
    (at,), _ = project(*(np.array([degree]) for degree in place), AREA.middle)
    (found,), _ = project(*(np.array([degree]) for degree in AREA.clamp(*place)), AREA.middle)
    ways = np.linspace(0, 1, 200)[:, None, None]
    rim = (AREA.corners + ways * (np.roll(AREA.corners, -1, axis=0) - AREA.corners)).reshape(-1, 2)
    assert np.hypot(*(at - found)) <= np.hypot(*(at - rim).T).min() + 1e-6


@pytest.mark.parametrize("place", [(-41.9, -167.4), (90.0, 0.0), (-90.0, 0.0), (0.0, 179.9)])
def test_there_is_an_answer_from_everywhere(place: Place) -> None:
    assert inside(*AREA.clamp(*place))


@pytest.mark.parametrize("place", [(91.0, 0.0), (0.0, 361.0), (float("nan"), 0.0)])
def test_what_is_no_place_has_none(place: Place) -> None:
    with pytest.raises(SnapError):
        AREA.clamp(*place)


def test_holes_are_found_from_above() -> None:
    plane, _ = project(LAT, LON, AREA.middle)
    points = plane.mean(axis=0) + 40 * (RNG.random((40_000, 2)) - 0.5)
    sides = np.roll(AREA.corners, -1, axis=0) - AREA.corners
    to = points[:, None] - AREA.corners
    points = points[(sides[:, 0] * to[..., 1] >= sides[:, 1] * to[..., 0]).all(axis=1)]
    apart = np.sqrt(((points[:, None] - plane) ** 2).sum(axis=2)).min(axis=1).max()
    assert apart <= AREA.hole_km(LAT, LON) <= apart + 1.0


def test_two_towns_with_nothing_between_are_a_hole() -> None:
    """Between them the side would tell which town is nearer: all that a report can tell."""
    lat = np.concatenate([LAT, LAT + 1.0])
    lon = np.concatenate([LON, LON])
    assert AREA.hole_km(LAT, LON) < 10
    assert Area.around(lat, lon).hole_km(lat, lon) > 40


def test_size() -> None:
    box = Area.around(np.array([45.0, 45.0, 45.1, 45.1]), np.array([9.0, 9.1, 9.1, 9.0]))
    assert box.size_km2 == pytest.approx(11.119 * 7.86, rel=2e-3)
    line = Area.around(np.array([45.0, 45.1]), np.array([9.0, 9.0]))
    assert line.size_km2 == pytest.approx(0.0, abs=1e-9)
    assert line.clamp(45.05, 9.5)[1] == pytest.approx(9.0)


def test_half_the_earth_is_no_area() -> None:
    with pytest.raises(DomainError, match="half round the earth"):
        Area.around(np.array([0.0, 0.0, 80.0]), np.array([0.0, 120.0, -60.0]))
