"""The convex area that some places span, and what stands in it for a place outside.

It lies in the plane of `mesh.project`, where great circles are straight lines. The nearest point of
a convex area moves by no more than the place does, in the plane: up to 640 km from the middle that
is within 1 % of the distance on the sphere. So a report from the nearest point tells two places
apart by no more than their distance allows, and staying silent outside would tell who is outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, frozen
from panda_mdp.errors import sealed
from panda_mdp.space.mesh import (
    SLANT,
    TINIEST,
    Mesh,
    beyond,
    convex_hull,
    mean_place,
    plane_frame,
    polygon_sides,
    polygon_size,
    project,
    projected,
    unproject,
)
from panda_mdp.space.metrics import EARTH_RADIUS_KM, sphere_points
from panda_mdp.space.snapping import check_place

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
        places = np.stack([lat, lon], axis=1)
        middle = mean_place(places)
        return cls(middle, frozen(convex_hull(projected(places, middle))))

    @classmethod
    def of_mesh(cls, mesh: Mesh) -> Area:
        """The area that a mesh covers."""
        return cls(mesh.middle, frozen(mesh.spacing * (mesh.area @ SLANT)))

    @property
    def size_km2(self) -> float:
        """Its size."""
        return polygon_size(self.corners)

    @sealed
    def clamp(self, lat: Any, lon: Any) -> tuple[float, float]:
        """The point of the area nearest to a place; the place itself where it lies inside."""
        check_place(lat, lon)
        at = sphere_points(np.array(lat, dtype=float), np.array(lon, dtype=float))
        height, *flat = (plane_frame(self.middle) @ at).tolist()
        place = EARTH_RADIUS_KM * np.array(flat) / max(height, HORIZON)
        if len(self.corners) > 2 and (beyond(place, self.corners) <= 0).all():
            return float(lat), float(lon)
        sides = polygon_sides(self.corners)
        lengths = np.maximum((sides**2).sum(axis=1), TINIEST)
        along = np.clip(((place - self.corners) * sides).sum(axis=1) / lengths, 0.0, 1.0)
        nearest = self.corners + along[:, None] * sides
        found = nearest[((place - nearest) ** 2).sum(axis=1).argmin()]
        (north,), (east,) = unproject(found[None], self.middle)
        return float(north), float(east)

    def hole_km(self, lat: FloatArray, lon: FloatArray) -> float:
        """How far a point of the area is from the nearest of some places at most, from above.

        Places and points are taken for the cells of a square grid: two points are nearer than the
        middles of their cells and a cell's diagonal are.
        """
        low = self.corners.min(axis=0)
        high = self.corners.max(axis=0)
        side = max(float((high - low).max()) / CELLS, 1e-9)
        taken = np.unique(np.floor((project(lat, lon, self.middle)[0] - low) / side), axis=0)
        cells = np.indices(((high - low) // side + 1).astype(int)).reshape(2, -1).T
        inside = (beyond(low + side * (cells + 0.5), self.corners) <= side).all(axis=1)
        apart, _ = scipy.spatial.cKDTree(taken).query(cells[inside])
        return float(side * (np.max(apart) + np.sqrt(2)))
