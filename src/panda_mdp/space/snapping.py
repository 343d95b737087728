"""From places to the records nearest to them, one place or many at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from panda_mdp.base.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    is_number,
    place_columns,
    real_numbers,
)
from panda_mdp.errors import SnapError
from panda_mdp.space.metrics import (
    EARTH_RADIUS_KM,
    Haversine,
    are_places,
    haversine_km,
    sphere_points,
)

OUTSIDE = -1
"""The record of a place that has none."""
REACH = 1 + 1e-6
"""Limits are searched this much farther: a record at the limit is found, however it is rounded."""
FEW_PLACES = 16
"""So many are compared with every record; more are searched for."""


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

    @classmethod
    def within(cls, limit: float, nearest: IntArray, distance: FloatArray) -> Snaps:
        """The nearest records at most `limit` away."""
        inside = distance <= limit
        return cls(np.where(inside, nearest, OUTSIDE), np.where(inside, distance, np.inf))

    @property
    def inside(self) -> BoolArray:
        """Which places have a record within the limit."""
        return self.record >= 0

    def first(self, refusal: str) -> Snap:
        """The record of the first place; an error where there is none within the limit."""
        if self.record[0] < 0:
            raise SnapError(refusal)
        return Snap(int(self.record[0]), float(self.distance[0]))

    def __len__(self) -> int:
        return len(self.record)

    def __repr__(self) -> str:
        return f"Snaps({len(self)} places, <hidden>)"


def snap_place(metric: Haversine, lat: Any, lon: Any, limit: float) -> Snap:
    """The record nearest to one place; an error, which does not name it, beyond the limit."""
    place = real_numbers([lat, lon], "the place", SnapError)
    snaps = snap_places(metric, place, place[::-1], limit)
    refusal = (
        f"the place lies more than the limit of {limit:g} km from every record; "
        "it is not covered by this domain: use a domain that covers it or raise the limit"
    )
    if snaps.inside[1]:
        refusal = "the place is covered only with latitude and longitude exchanged: lat first"
    check_place(*place)
    return snaps.first(refusal)


def check_place(lat: Any, lon: Any) -> None:
    """Refuse what is no place, which the error does not name."""
    if not are_places(lat, lon):
        raise SnapError(
            "the place is not a latitude in [-90, 90] and a longitude in [-180, 360] degrees"
        )


def snap_places(metric: Haversine, lat: ArrayLike, lon: ArrayLike, limit: float) -> Snaps:
    """The records nearest to many places; equal to one by one, up to nanometres."""
    check_limit(limit)
    north, east = place_columns(lat, lon, SnapError)
    valid = are_places(north, east)
    north = np.where(valid, north, 0.0)
    east = np.where(valid, east, 0.0)
    if len(north) <= FEW_PLACES:
        east = np.where(east >= 180, east - 360, east)
        apart = haversine_km(north[:, None], east[:, None], metric.lat, metric.lon)
        nearest = apart.argmin(axis=1)
        distance = apart.min(axis=1)
    else:
        # A chord is no longer than its arc: what it leaves out is beyond the limit.
        tree: Any = metric.tree
        xyz_km = EARTH_RADIUS_KM * sphere_points(north, east)
        chord, nearest = tree.query(xyz_km, distance_upper_bound=REACH * limit)
        distance = 2 * EARTH_RADIUS_KM * np.arcsin(np.minimum(chord / (2 * EARTH_RADIUS_KM), 1))
    return Snaps.within(limit, nearest, np.where(valid, distance, np.inf))


def snap_values(values: FloatArray, given: ArrayLike, limit: float) -> Snaps:
    """The records nearest to many numbers, of ascending values; the lower one of two as near."""
    check_limit(limit)
    numbers = real_numbers(given, "the numbers", SnapError)
    if numbers.ndim != 1:
        raise SnapError(f"the numbers have shape {numbers.shape}; give a flat list")
    nearest = np.searchsorted(values[:-1] + np.diff(values) / 2, numbers, side="left")
    distance = np.abs(numbers - values[np.minimum(nearest, len(values) - 1)])
    return Snaps.within(limit, nearest, distance)


def check_limit(limit: float) -> None:
    """Refuse a limit that is not a positive number."""
    if not (is_number(limit) and limit > 0):
        raise SnapError(
            f"the snap limit is {limit!r}; it must be positive, in the unit of distances"
        )
