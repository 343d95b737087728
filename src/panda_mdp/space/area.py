"""The convex area that some places span, and what stands in it for a place outside.

It lies in the plane of `mesh.project`, where great circles are straight lines. The nearest point of
a convex area moves by no more than the place does, in the plane: up to 640 km from the middle that
is within 1 % of the distance on the sphere. So a report from the nearest point tells two places
apart by no more than their distance allows, and staying silent outside would tell who is outside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, frozen
from panda_mdp.errors import DomainError, SnapError, sealed
from panda_mdp.space.mesh import SLANT, Mesh, convex_hull, plane_frame, project, unproject
from panda_mdp.space.metrics import EARTH_RADIUS_KM, are_places, sphere_points

CELLS = 128
"""Along the longer side of an area, when its holes are looked for."""
HORIZON = 1e-3
"""Least height above the horizon; what lies below is seen in its direction, far away."""


@dataclass(frozen=True, eq=False)
class Area:
    """A convex polygon around a middle.

    >>> area = Area.around(np.array([45.0, 45.0, 45.1, 45.1]), np.array([9.0, 9.1, 9.1, 9.0]))
    >>> area.clamp(45.05, 9.05)
    (45.05, 9.05)
    >>> lat, lon = area.clamp(45.05, 12.0)
    >>> round(lat, 3), round(lon, 3)
    (45.087, 9.1)
    """

    middle: tuple[float, float]
    corners: FloatArray
    """(n, 2) in the plane, km, counterclockwise."""

    @classmethod
    def around(cls, lat: FloatArray, lon: FloatArray) -> Area:
        """The convex hull of places. Raises `DomainError` where they reach half round the earth."""
        x, y, z = sphere_points(lat, lon).mean(axis=0).tolist()
        middle = (math.degrees(math.atan2(z, math.hypot(x, y))), math.degrees(math.atan2(y, x)))
        plane, seen = project(lat, lon, middle)
        if not seen.all():
            raise DomainError("the places reach half round the earth, and span no area; split them")
        return cls(middle, frozen(convex_hull(plane)))

    @classmethod
    def of_mesh(cls, mesh: Mesh) -> Area:
        """The area that a mesh covers."""
        return cls(mesh.middle, frozen(mesh.spacing * (mesh.area @ SLANT)))

    @property
    def sides(self) -> FloatArray:
        """From every corner to the next."""
        return np.roll(self.corners, -1, axis=0) - self.corners

    def _beyond(self, points: FloatArray) -> FloatArray:
        """How far points lie outside of every side, times its length."""
        east, north = np.moveaxis(points[..., None, :] - self.corners, -1, 0)
        return self.sides[:, 1] * east - self.sides[:, 0] * north

    @property
    def size_km2(self) -> float:
        """Its size."""
        x, y = self.corners.T
        return float(abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2)

    @sealed
    def clamp(self, lat: Any, lon: Any) -> tuple[float, float]:
        """The point of the area nearest to a place; the place itself where it lies inside."""
        if not are_places(lat, lon):
            raise SnapError(
                "the place is not a latitude in [-90, 90] and a longitude in [-180, 360] degrees"
            )
        (at,) = sphere_points(np.array([lat], dtype=float), np.array([lon], dtype=float))
        height, east, north = plane_frame(self.middle) @ at
        place = EARTH_RADIUS_KM * np.array([east, north]) / max(height, HORIZON)
        if len(self.corners) > 2 and (self._beyond(place) <= 0).all():
            return float(lat), float(lon)
        lengths = np.maximum((self.sides**2).sum(axis=1), np.finfo(float).tiny)
        along = np.clip(((place - self.corners) * self.sides).sum(axis=1) / lengths, 0.0, 1.0)
        nearest = self.corners + along[:, None] * self.sides
        found = nearest[((place - nearest) ** 2).sum(axis=1).argmin()]
        north_degrees, east_degrees = unproject(found[None], self.middle)
        return float(north_degrees[0]), float(east_degrees[0])

    def hole_km(self, lat: FloatArray, lon: FloatArray) -> float:
        """How far a point of the area is from the nearest of some places at most, from above.

        Places and points are taken for the cells of a square grid: two points are nearer than the
        middles of their cells and a cell's diagonal are.
        """
        low, high = self.corners.min(axis=0), self.corners.max(axis=0)
        side = max(float((high - low).max()) / CELLS, 1e-9)
        taken = np.unique(np.floor((project(lat, lon, self.middle)[0] - low) / side), axis=0)
        columns, rows = (np.arange(np.floor(span / side) + 1) for span in high - low)
        cells = np.stack(np.meshgrid(columns, rows, indexing="ij"), axis=-1).reshape(-1, 2)
        points = low + side * (cells + 0.5)
        inside = (self._beyond(points) <= side * np.hypot(*self.sides.T)).all(axis=1)
        apart, _ = scipy.spatial.cKDTree(taken).query(cells[inside])
        return float(side * (np.max(apart) + np.sqrt(2)))
