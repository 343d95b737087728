"""A mesh of equilateral triangles over an area: the records of tables that cover every point.

The sphere is seen from its centre (the gnomonic projection at the area's middle): great circles are
straight lines, so whatever is convex in the plane holds the shortest way between any two of its
points. A point at distance t from the middle in the plane is R atan(t / R) away on the sphere, and
a step of length 1 on the sphere is one of length at most 1 + t^2 / R^2 in the plane, at least 1.

Vertices are the points s (i + j / 2, j sqrt(3) / 2) of the plane, i and j whole numbers, s the
spacing. A point of the plane has coordinates (u, v) in that lattice; they are rounded to multiples
of 2^-30, and the rest is exact: with a = u - floor(u), b = v - floor(v) the point lies in the lower
triangle of its cell where a + b <= 1, with weights (1 - a - b, a, b), else in the upper one with
(a + b - 1, 1 - a, 1 - b). On a common side both say the same. Weights are whole numbers of 2^-30.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray, Rebuilt, frozen
from panda_mdp.errors import DomainError, SnapError
from panda_mdp.space.area import around, convex_hull, read_area, within
from panda_mdp.space.metrics import EARTH_RADIUS_KM, sphere_points

WEIGHT_BITS = 30
UNITS = 1 << WEIGHT_BITS
"""What the three weights of a point sum to."""
NATS_PER_SIDE = 0.2
"""Epsilon times the spacing where no spacing is given."""
MOST_VERTICES = 250_000
FARTHEST = 0.1
"""Of the earth's radius: how far from its middle an area may reach; lengths stretch by 1 %."""
COVERED = 1e-6
"""Spacings by which the mesh reaches beyond the area; a point on the rim may be half of it out."""
PROJECTION_KM = 1e-10
"""Above the rounding error of the projection: 1e-15 of the earth's radius, and ten times that."""
AGREEMENT_KM = 1e-9
SLANT = np.array([[1.0, 0.0], [0.5, np.sqrt(0.75)]])
"""The two steps of the lattice."""
CORNERS = np.array([[[0, 0], [1, 0], [0, 1]], [[1, 1], [0, 1], [1, 0]]])
"""Of the lower and the upper triangle of a cell."""
_KEY = 1 << 31
AROUND = np.array([[1, 0], [0, 1], [-1, 1], [-1, 0], [0, -1], [1, -1]])
"""The six neighbours of a vertex."""


@dataclass(frozen=True, eq=False)
class Located:
    """Where points lie: three vertices each, and whole weights of sum 2^30. Shows none of it."""

    vertices: IntArray
    """Shape (n, 3); -1 where a point is not in the area."""
    weights: IntArray

    @property
    def inside(self) -> BoolArray:
        """Which points lie in the area."""
        return self.vertices[:, 0] >= 0

    def __repr__(self) -> str:
        return f"Located({len(self.vertices)} points, <hidden>)"


@dataclass(frozen=True, eq=False)
class Mesh(Rebuilt):
    """Equilateral triangles that cover a convex area; checked to cover it, as audits rest on it."""

    middle: tuple[float, float]
    """Latitude and longitude of the projection's middle."""
    spacing: float
    """Length of a side in the plane, km."""
    vertices: IntArray
    """Lattice coordinates (i, j), shape (K, 2)."""
    area: FloatArray
    """The area that is covered: corners (u, v) of a convex polygon, counterclockwise."""
    inside: IntArray
    """1 for vertices that lie in the area as it was given, with all six neighbours; else 0."""

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        for name, kind in (("vertices", np.int64), ("area", np.float64), ("inside", np.int64)):
            set_(self, name, frozen(np.asarray(getattr(self, name), dtype=kind)))
        set_(self, "middle", (float(self.middle[0]), float(self.middle[1])))
        set_(self, "spacing", float(self.spacing))
        self._check()

    def _check(self) -> None:
        lat, lon = self.middle
        if not (abs(lat) <= 90 and -180 <= lon <= 360 and 0 < self.spacing < np.inf):
            msg = f"a mesh of spacing {self.spacing!r} km in the middle {self.middle} is none"
            raise DomainError(msg)
        count = len(self.vertices)
        shapes = self.vertices.shape == (count, 2) and self.inside.shape == (count,)
        if not shapes or count < 3 or len(np.unique(_keys(self.vertices))) < count:
            msg = "a mesh needs three or more different vertices (i, j) and a flag for each"
            raise DomainError(msg)
        if self.area.ndim != 2 or self.area.shape[1] != 2 or not np.isfinite(self.area).all():
            msg = f"the mesh's area has shape {self.area.shape}; it is a list of corners (u, v)"
            raise DomainError(msg)
        hull = convex_hull(self.area)
        if len(hull) < 3 or not np.array_equal(
            np.roll(hull, -_first(hull, self.area), 0), self.area
        ):
            msg = "the mesh's area is no convex polygon, counterclockwise"
            raise DomainError(msg)
        if self.reach > FARTHEST * EARTH_RADIUS_KM:
            msg = _too_far(self.reach)
            raise DomainError(msg)
        if (self._corners_of(covering(self.area, COVERED)) < 0).any():
            msg = "the mesh does not cover its area; a triangle is missing"
            raise DomainError(msg)
        flags = np.isin(self.inside, (0, 1)).all()
        if not flags or (self.neighbours[self.inside == 1] < 0).any():
            msg = "a vertex of the mesh counts as inside and lacks a neighbour"
            raise DomainError(msg)

    def __repr__(self) -> str:
        return f"Mesh({len(self.vertices)} vertices, spacing {self.spacing:g} km)"

    @cached_property
    def plane(self) -> FloatArray:
        """The vertices in the plane, km, shape (K, 2)."""
        return frozen(self.spacing * (self.vertices @ SLANT))

    @cached_property
    def places(self) -> tuple[FloatArray, FloatArray]:
        """Latitudes and longitudes of the vertices in degrees."""
        return unproject(self.plane, self.middle)

    @property
    def reach(self) -> float:
        """The farthest that a vertex is from the middle in the plane, km."""
        return float(np.hypot(*self.plane.T).max())

    @cached_property
    def triangles(self) -> IntArray:
        """Vertices of all triangles of which all three are here, shape (T, 3)."""
        i, j = self.vertices.T
        cells = np.stack([i, j, np.zeros_like(i)], axis=1)
        corners = self._corners_of(np.concatenate([cells, cells - [1, 0, -1]]))
        return frozen(corners[(corners >= 0).all(axis=1)])

    @cached_property
    def stretch(self) -> FloatArray:
        """By how much a triangle may be longer than its place on the sphere, at most, (T,)."""
        tangent = np.hypot(*self.plane.T) / EARTH_RADIUS_KM
        # Eight roundings at the most, of terms that are not negative.
        return frozen((1 + (tangent[self.triangles] ** 2).max(axis=1)) * (1 + 8 * 2.0**-53))

    @cached_property
    def neighbours(self) -> IntArray:
        """The six vertices around each vertex, counterclockwise, -1 where there is none."""
        around = self.vertices[:, None, :] + AROUND
        return frozen(self._numbers(around.reshape(-1, 2)).reshape(-1, 6))

    @cached_property
    def interior(self) -> BoolArray:
        """Which vertices have six neighbours that all lie in the area."""
        complete = np.all(self.neighbours >= 0, axis=1)
        return frozen(np.asarray(complete & np.all(self.covered[self.neighbours], axis=1)))

    @cached_property
    def covered(self) -> BoolArray:
        """Which vertices lie in the area: the others are there to cover its rim."""
        beyond = self._beyond(self.vertices.astype(np.float64))
        return frozen(np.asarray(np.all(beyond <= COVERED / 2, axis=1)))

    @property
    def resolution_km(self) -> float:
        """How far a point may be from the one that stands for it: rounding of (u, v) to 2^-30,
        and the rounding error of the projection."""
        return self.spacing / UNITS + PROJECTION_KM

    def locate(self, lat: FloatArray, lon: FloatArray) -> Located:
        """The triangle of each place, and the weights of its vertices; -1 outside the area."""
        valid = (np.abs(lat) <= 90) & (lon >= -180) & (lon <= 360)
        point, seen = project(np.where(valid, lat, 0.0), np.where(valid, lon, 0.0), self.middle)
        lattice = np.where((valid & seen)[:, None], to_lattice(point, self.spacing), np.nan)
        with np.errstate(invalid="ignore"):
            covered = np.all(self._beyond(lattice) <= COVERED / 2, axis=1)
        rounded = np.rint(np.where(covered[:, None], lattice, 0.0) * UNITS).astype(np.int64)
        cell, (a, b) = rounded >> WEIGHT_BITS, (rounded & (UNITS - 1)).T
        upper = np.asarray(a + b > UNITS)
        weights = np.where(
            upper[:, None],
            np.stack([a + b - UNITS, UNITS - a, UNITS - b], axis=1),
            np.stack([UNITS - a - b, a, b], axis=1),
        )
        corners = self._corners_of(np.column_stack([cell, upper]))
        return Located(np.where(covered[:, None], corners, -1), weights)

    def _beyond(self, lattice: FloatArray) -> FloatArray:
        """How far points lie beyond each side of the area, in spacings; shape (n, sides)."""
        corners = self.area @ SLANT
        along = np.roll(corners, -1, axis=0) - corners
        outward = np.stack([along[:, 1], -along[:, 0]]) / np.hypot(*along.T)
        return np.asarray(lattice @ SLANT @ outward - (corners.T * outward).sum(axis=0))

    def _corners_of(self, cells: IntArray) -> IntArray:
        """Vertices of triangles (i, j, upper), shape (n, 3); -1 where one is missing."""
        return self._numbers(_corners(cells)).reshape(-1, 3)

    def _numbers(self, lattice: IntArray) -> IntArray:
        first, table = self._table
        at = lattice - first
        known = np.all((at >= 0) & (at < table.shape), axis=1)
        safe = np.where(known[:, None], at, 0)
        return np.where(known, table[safe[:, 0], safe[:, 1]], -1)

    @cached_property
    def _table(self) -> tuple[IntArray, IntArray]:
        """The number of each vertex by its lattice coordinates."""
        first = self.vertices.min(axis=0)
        span = self.vertices.max(axis=0) - first + 1
        if span.prod() > 64 * MOST_VERTICES:
            msg = "the mesh's vertices are spread too far for one mesh"
            raise DomainError(msg)
        table = np.full(span, -1, dtype=np.int64)
        table[tuple((self.vertices - first).T)] = np.arange(len(self.vertices))
        return first, table


def mesh_over(area: Any, spacing: float | None, epsilon: float | None) -> Mesh:
    """The mesh over an area; its spacing, or epsilon (per km) from which 0.2 / epsilon follows."""
    step = _spacing(spacing, epsilon)
    shape = read_area(area)
    middle = _middle(shape.corners)
    rings = tuple(_projected(ring, middle) for ring in shape.rings)
    if shape.places:
        rings = (convex_hull(around(rings[0], 2 * step)),)
    hull = convex_hull(np.concatenate(rings))
    reach = float(np.hypot(*hull.T).max())
    if reach > FARTHEST * EARTH_RADIUS_KM:
        raise DomainError(_too_far(reach))
    size = _area(hull)
    if size > MOST_VERTICES * step**2 * np.sqrt(0.75):
        least = np.sqrt(size / (MOST_VERTICES * np.sqrt(0.75)))
        msg = (
            f"a spacing of {step:g} km gives {size / step**2 / np.sqrt(0.75):,.0f} vertices over "
            f"{size:,.0f} square km; at most {MOST_VERTICES:,} fit: spacing={least:.2g} or more"
        )
        raise DomainError(msg)
    corners = convex_hull(to_lattice(hull, step))
    vertices = _vertices(covering(corners, 2 * COVERED))
    inside = _inside(vertices, tuple(to_lattice(ring, step) @ SLANT for ring in rings))
    if not inside.any():
        msg = (
            f"the area is too thin or too small for a spacing of {step:g} km: no vertex lies in it "
            "with its six neighbours; give a smaller spacing"
        )
        raise DomainError(msg)
    return Mesh(middle, step, vertices, corners, inside.astype(np.int64))


def covering(area: FloatArray, margin: float) -> IntArray:
    """Triangles (i, j, upper) of the lattice that come within `margin` spacings of a convex area.

    Two convex polygons that do not touch are separated along a side of one of them.
    """
    low, high = np.floor(area.min(axis=0) - 2), np.ceil(area.max(axis=0) + 2)
    if np.prod(high - low) > 64 * MOST_VERTICES:
        msg = "the area spans far more triangles than one mesh may have; give a larger spacing"
        raise DomainError(msg)
    i, j = (np.arange(a, b, dtype=np.int64) for a, b in zip(low, high, strict=True))
    cells = np.stack(np.meshgrid(i, j, [0, 1], indexing="ij"), axis=-1).reshape(-1, 3)
    corners = area @ SLANT
    along = np.roll(corners, -1, axis=0) - corners
    sides = np.concatenate([along, SLANT, SLANT[1:] - SLANT[:1]])
    axes = np.stack([sides[:, 1], -sides[:, 0]]) / np.hypot(*sides.T)
    at = (cells[:, :2] @ SLANT) @ axes
    disjoint = np.zeros(len(cells), dtype=np.bool_)
    for flag, steps in enumerate(CORNERS):
        mine = cells[:, 2] == flag
        offset = (steps @ SLANT) @ axes
        shadow = corners @ axes
        gap = np.maximum(
            at[mine] + offset.min(axis=0) - shadow.max(axis=0),
            shadow.min(axis=0) - at[mine] - offset.max(axis=0),
        )
        disjoint[mine] = (gap > margin).any(axis=1)
    return np.asarray(cells[~disjoint])


def project(
    lat: FloatArray, lon: FloatArray, middle: tuple[float, float]
) -> tuple[FloatArray, BoolArray]:
    """Places in the plane (n, 2), km, and which of them lie on the middle's side of the earth."""
    up, east, north = _frame(middle)
    xyz = sphere_points(lat, lon)
    height = xyz @ up
    seen = height > 0.5
    flat = np.stack([xyz @ east, xyz @ north], axis=1) / np.where(seen, height, 1.0)[:, None]
    return EARTH_RADIUS_KM * flat, seen


def unproject(plane: FloatArray, middle: tuple[float, float]) -> tuple[FloatArray, FloatArray]:
    """Latitudes and longitudes of points of the plane."""
    up, east, north = _frame(middle)
    xyz = up + plane[:, :1] / EARTH_RADIUS_KM * east + plane[:, 1:] / EARTH_RADIUS_KM * north
    lat = np.rad2deg(np.arctan2(xyz[:, 2], np.hypot(xyz[:, 0], xyz[:, 1])))
    lon = np.rad2deg(np.arctan2(xyz[:, 1], xyz[:, 0]))
    return frozen(lat), frozen(np.where(lon >= 180, lon - 360, lon))


def to_lattice(plane: FloatArray, spacing: float) -> FloatArray:
    """Coordinates (u, v) of points of the plane."""
    v = plane[:, 1] / (spacing * SLANT[1, 1])
    return np.stack([plane[:, 0] / spacing - v / 2, v], axis=1)


def check_covered(located: Located) -> None:
    """An error, which does not name it, where a point lies outside the area."""
    if not located.inside.all():
        msg = "the place is not in the area of this table; use a table whose area has it"
        raise SnapError(msg)


def _frame(middle: tuple[float, float]) -> tuple[FloatArray, FloatArray, FloatArray]:
    up = sphere_points(*np.array(middle))
    lam = np.deg2rad(middle[1])
    east = np.array([-np.sin(lam), np.cos(lam), 0.0])
    return up, east, np.cross(up, east)


def _middle(corners: FloatArray) -> tuple[float, float]:
    """The middle of the corners' box in the plane at their mean on the sphere."""
    mean = sphere_points(*corners.T).mean(axis=0)
    if np.hypot(*mean[:2]) < 1e-12 and abs(mean[2]) < 1e-12:
        raise DomainError(_too_far(float(EARTH_RADIUS_KM)))
    lat, lon = np.rad2deg(np.arctan2(mean[2], np.hypot(*mean[:2]))), np.arctan2(mean[1], mean[0])
    start = (float(lat), float(np.rad2deg(lon)))
    plane = _projected(corners, start)
    box = (plane.min(axis=0) + plane.max(axis=0)) / 2
    lats, lons = unproject(box[None], start)
    # A middle that can be written down: nothing depends on where exactly it is.
    return round(float(lats[0]), 9), round(float(lons[0]), 9)


def _projected(ring: FloatArray, middle: tuple[float, float]) -> FloatArray:
    plane, seen = project(ring[:, 0], ring[:, 1], middle)
    if not seen.all():
        raise DomainError(_too_far(float(EARTH_RADIUS_KM)))
    return plane


def _corners(cells: IntArray) -> IntArray:
    """Lattice coordinates of the three corners of triangles (i, j, upper), shape (3 n, 2)."""
    return np.asarray((cells[:, None, :2] + CORNERS[cells[:, 2]]).reshape(-1, 2))


def _vertices(cells: IntArray) -> IntArray:
    i, j = np.divmod(np.unique(_keys(_corners(cells))), 2 * _KEY)
    return np.stack([i, j - _KEY], axis=1)


def _keys(lattice: IntArray) -> IntArray:
    """One number for each vertex, ascending as (i, j) are."""
    return np.asarray(lattice[:, 0] * (2 * _KEY) + lattice[:, 1] + _KEY)


def _inside(vertices: IntArray, rings: tuple[FloatArray, ...]) -> BoolArray:
    flags = within(vertices @ SLANT, rings)
    within_keys = _keys(vertices[flags])
    for step in AROUND:
        flags &= np.isin(_keys(vertices + step), within_keys)
    return flags


def _spacing(spacing: float | None, epsilon: float | None) -> float:
    if spacing is None and epsilon is None:
        msg = "give the mesh's spacing in km, or epsilon per km: the spacing is then 0.2 / epsilon"
        raise DomainError(msg)
    name, value = ("epsilon", epsilon) if spacing is None else ("spacing", spacing)
    if not (isinstance(value, int | float | np.number) and np.isfinite(value) and value > 0):
        msg = f"{name} is {value!r}; it must be a positive, finite number"
        raise DomainError(msg)
    return float(value) if spacing is not None else NATS_PER_SIDE / float(value)


def _area(corners: FloatArray) -> float:
    x, y = corners.T if len(corners) else (np.zeros(1), np.zeros(1))
    return float(abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2)


def _first(hull: FloatArray, area: FloatArray) -> int:
    same = np.flatnonzero((hull == area[0]).all(axis=1))
    return int(same[0]) if len(same) else 0


def _too_far(reach: float) -> str:
    most = FARTHEST * EARTH_RADIUS_KM
    return (
        f"the area reaches {reach:,.0f} km from its middle; a mesh covers up to {most:,.0f} km, "
        "beyond which the plane is stretched by more than 1 %: split the area"
    )
