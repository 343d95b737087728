"""From places to the records nearest to them, one place or many at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.errors import SnapError
from panda_mdp.space.metrics import EARTH_RADIUS_KM, Haversine, haversine_km, sphere_points

if TYPE_CHECKING:
    from panda_mdp.space.nearest import Grid

GRID_DEGREES = 10.0
"""Places within so many degrees, away from the poles, are searched by a grid of cells."""


@dataclass(frozen=True)
class Snap:
    """The record nearest to a place, and how far it is. Its repr shows neither."""

    record: int
    distance: float

    def __repr__(self) -> str:
        return "Snap(record=<hidden>, distance=<hidden>)"


@dataclass(frozen=True, eq=False)
class Snaps:
    """The records nearest to many places. Its repr shows none of them.

    `record` is -1 and `distance` infinite where a place is beyond the limit or is none.
    """

    record: IntArray
    distance: FloatArray

    @property
    def inside(self) -> BoolArray:
        """Which places have a record within the limit."""
        return self.record >= 0

    def __len__(self) -> int:
        return len(self.record)

    def __repr__(self) -> str:
        return f"Snaps({len(self)} places, <hidden>)"


def snap_place(metric: Haversine, lat: float, lon: float, limit: float) -> Snap:
    """The record nearest to one place; an error, which does not name it, beyond the limit."""
    check_limit(limit)
    place = _place(lat, lon)
    if place is None:
        raise SnapError(
            "the place is not a latitude in [-90, 90] and a longitude in [-180, 360] degrees"
        )
    distance = haversine_km(*place, metric.lat, metric.lon)
    nearest = int(distance.argmin())
    if distance[nearest] > limit:
        swapped = _place(lon, lat)
        if swapped and (haversine_km(*swapped, metric.lat, metric.lon) <= limit).any():
            raise SnapError(
                "the place is covered only with latitude and longitude exchanged: lat first"
            )
        raise SnapError(
            f"the place lies more than the limit of {limit:g} km from every record; "
            "it is not covered by this domain: use a domain that covers it or raise the limit"
        )
    return Snap(nearest, float(distance[nearest]))


def grid_of(metric: Haversine) -> Grid | None:
    """Cells for fast searches; None where places spread too far, or without numba."""
    spread = max(np.ptp(metric.lat), np.ptp(metric.lon))
    if spread > GRID_DEGREES or np.abs(metric.lat).max() > 80:
        return None
    try:
        from panda_mdp.space.nearest import make_grid
    except ImportError:
        return None
    return make_grid(metric.lat, metric.lon, metric.embedding)


def snap_places(
    metric: Haversine, grid: Grid | None, lat: npt.ArrayLike, lon: npt.ArrayLike, limit: float
) -> Snaps:
    """The records nearest to many places; equal to one by one, up to nanometres."""
    check_limit(limit)
    north, east = degrees(lat, "lat"), degrees(lon, "lon")
    if north.shape != east.shape:
        raise SnapError(
            f"lat has shape {north.shape} and lon {east.shape}; give one of each per place"
        )
    if grid is not None:
        from panda_mdp.space.nearest import nearest_records

        return Snaps(*nearest_records(north, east, float(limit), grid))
    return _by_tree(metric, north, east, limit)


def _by_tree(metric: Haversine, lat: FloatArray, lon: FloatArray, limit: float) -> Snaps:
    valid = (np.abs(lat) <= 90) & (lon >= -180) & (lon <= 360)
    xyz = EARTH_RADIUS_KM * sphere_points(np.where(valid, lat, 0.0), np.where(valid, lon, 0.0))
    tree: Any = metric.tree
    chord, nearest = tree.query(xyz)
    arc = 2 * EARTH_RADIUS_KM * np.arcsin(np.minimum(chord / (2 * EARTH_RADIUS_KM), 1))
    return _limited(nearest, np.where(valid, arc, np.inf), limit)


def _limited(nearest: IntArray, distance: FloatArray, limit: float) -> Snaps:
    inside = distance <= limit
    return Snaps(np.where(inside, nearest, -1), np.where(inside, distance, np.inf))


def snap_values(values: FloatArray, given: npt.ArrayLike, limit: float) -> Snaps:
    """The records nearest to many numbers, of ascending values; the lower one of two as near."""
    check_limit(limit)
    numbers = np.asarray(given, dtype=np.float64)
    if numbers.ndim != 1:
        raise SnapError(f"the numbers have shape {numbers.shape}; give a flat list")
    middles = values[:-1] + np.diff(values) / 2
    nearest = np.searchsorted(middles, numbers, side="left")
    distance = np.abs(numbers - values[np.minimum(nearest, len(values) - 1)])
    return _limited(nearest, distance, limit)


def check_limit(limit: float) -> None:
    """Refuse a limit that is not a positive number."""
    if not limit > 0:
        raise SnapError(
            f"the snap limit is {limit!r}; it must be positive, in the unit of distances"
        )


def degrees(values: npt.ArrayLike, name: str) -> FloatArray:
    """A flat column of degrees, contiguous; the error names none of them."""
    try:
        column = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        column = np.empty((0, 0))
    if column.ndim != 1:
        raise SnapError(f"{name} is no flat list of degrees")
    return np.ascontiguousarray(column)


def _place(lat: float, lon: float) -> tuple[float, float] | None:
    """Latitude and longitude in the domain's ranges, or None where they are no place."""
    try:
        lat, lon = float(lat), float(lon)
    except (TypeError, ValueError):
        return None
    if not (abs(lat) <= 90 and -180 <= lon <= 360):
        return None
    return lat, lon - 360 if lon >= 180 else lon
