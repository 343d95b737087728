"""Areas as people give them: a box, a polygon with holes, GeoJSON, or places to be covered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray
from panda_mdp.errors import DomainError
from panda_mdp.space.checks import check_places

SIDE_POINTS = 32
"""Points along each side of a box: sides along a parallel are no great circles."""
CIRCLE_POINTS = 12
FORMS = (
    "give (south, west, north, east), a list of (lat, lon) corners, a list of such rings (the "
    "first outside, the others holes), a GeoJSON polygon, or what has lat and lon to be covered"
)


@dataclass(frozen=True, eq=False)
class Area:
    """Rings of (lat, lon) in degrees under the even-odd rule; or bare places to lie around."""

    rings: tuple[FloatArray, ...]
    places: bool = False

    @property
    def corners(self) -> FloatArray:
        """All points of all rings, (n, 2)."""
        return np.concatenate(self.rings)


def read_area(area: Any) -> Area:
    """An `Area` of any of the forms that are understood, or `DomainError`."""
    if hasattr(area, "__geo_interface__"):
        area = area.__geo_interface__
    if isinstance(area, Mapping):
        return Area(_geojson(area))
    if hasattr(area, "chunks") or hasattr(area, "lat"):
        fixes = area.chunks() if hasattr(area, "chunks") else [area]
        return Area((_covered([(part.lat, part.lon) for part in fixes]),), places=True)
    try:
        numbers = [np.asarray(part, dtype=np.float64) for part in area]
    except (TypeError, ValueError) as error:
        raise DomainError(
            f"the area is a {type(area).__name__} that holds no numbers; {FORMS}"
        ) from error
    shapes = [part.shape for part in numbers]
    if shapes == [()] * 4:
        return Area((_box(*(float(part) for part in numbers)),))
    if shapes and set(shapes) == {(2,)}:
        return Area((_ring(np.stack(numbers), 0),))
    if shapes and all(len(shape) == 2 and shape[1] == 2 for shape in shapes):
        return Area(tuple(_ring(part, k) for k, part in enumerate(numbers)))
    raise DomainError(f"the area has {len(numbers)} parts of shapes {shapes[:4]}; {FORMS}")


def _covered(parts: list[tuple[Any, Any]]) -> FloatArray:
    lat, lon = (
        np.concatenate([[], *(np.atleast_1d(np.asarray(part[k], np.float64)) for part in parts)])
        for k in (0, 1)
    )
    if len(lat) != len(lon) or not len(lat):
        raise DomainError(
            f"{len(lat)} latitudes and {len(lon)} longitudes to cover; give one of each per place"
        )
    check_places(lat, lon)
    return np.stack([lat, lon], axis=1)


def _box(south: float, west: float, north: float, east: float) -> FloatArray:
    check_places(np.array([south, north]), np.array([west, east]))
    width = east - west + 360 * (east < west)
    if not (north > south and width > 0):
        raise DomainError(
            f"the box {(south, west, north, east)} is empty; it is (south, west, north, east) in "
            "degrees"
        )
    along = np.linspace(0, 1, SIDE_POINTS)
    lon = west + width * np.concatenate([along, along[::-1]])
    lat = np.repeat([south, north], SIDE_POINTS)
    return np.stack([lat, np.where(lon > 180, lon - 360, lon)], axis=1)


def _ring(ring: FloatArray, number: int) -> FloatArray:
    check_places(ring[:, 0], ring[:, 1])
    if len(np.unique(ring, axis=0)) < 3:
        raise DomainError(
            f"ring {number} of the area has fewer than three different corners; it is no polygon"
        )
    # A ring that ends where it began says it once.
    return ring[:-1] if np.array_equal(ring[0], ring[-1]) else ring


def _geojson(geometry: Mapping[str, Any]) -> tuple[FloatArray, ...]:
    kind = geometry.get("type")
    if kind == "Feature":
        return _geojson(geometry["geometry"])
    if kind == "FeatureCollection":
        return tuple(ring for part in geometry["features"] for ring in _geojson(part))
    if kind not in ("Polygon", "MultiPolygon"):
        raise DomainError(f"a GeoJSON {kind!r} is no area; give a Polygon or a MultiPolygon")
    polygons = [geometry["coordinates"]] if kind == "Polygon" else geometry["coordinates"]
    rings = [ring for polygon in polygons for ring in polygon]
    # GeoJSON has longitudes first.
    return tuple(
        _ring(np.asarray(ring, dtype=np.float64)[:, 1::-1], k) for k, ring in enumerate(rings)
    )


def around(points: FloatArray, margin: float) -> FloatArray:
    """Points on circles of at least `margin` around each corner of the hull of `points`."""
    angles = 2 * np.pi * np.arange(CIRCLE_POINTS) / CIRCLE_POINTS
    circle = margin / np.cos(np.pi / CIRCLE_POINTS) * np.stack([np.cos(angles), np.sin(angles)], 1)
    return np.asarray((convex_hull(points)[:, None, :] + circle).reshape(-1, 2))


def convex_hull(points: FloatArray) -> FloatArray:
    """Corners of the convex hull, counterclockwise (Andrew's chain); fewer than three if flat."""
    ordered = np.unique(points, axis=0) @ np.array([1, 1j])
    if len(ordered) < 3:
        return np.unique(points, axis=0)
    hull: list[complex] = []
    for chain in (ordered.tolist(), ordered[::-1].tolist()):
        half: list[complex] = []
        for point in chain:
            while len(half) > 1 and _turn(half[-1] - half[-2], point - half[-2]) <= 0:
                half.pop()
            half.append(point)
        hull += half[:-1]
    return np.array(hull).view(np.float64).reshape(-1, 2)


def _turn(first: complex, second: complex) -> float:
    return (first.conjugate() * second).imag


def within(points: FloatArray, rings: tuple[FloatArray, ...]) -> BoolArray:
    """Which points lie in the rings by the even-odd rule, all in one plane."""
    odd = np.zeros(len(points), dtype=np.bool_)
    x, y = points[:, 0], points[:, 1]
    for ring in rings:
        for (x1, y1), (x2, y2) in zip(ring, np.roll(ring, -1, axis=0), strict=True):
            if y1 == y2:
                continue
            crosses = (y1 > y) != (y2 > y)
            odd ^= crosses & (x < x1 + (y - y1) * ((x2 - x1) / (y2 - y1)))
    return odd
