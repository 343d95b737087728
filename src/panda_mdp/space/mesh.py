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

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from panda_mdp.base.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    RebuiltOnCopy,
    frozen,
    real_numbers,
)
from panda_mdp.errors import DomainError, SnapError
from panda_mdp.space.metrics import EARTH_RADIUS_KM, are_places, check_places, sphere_points

WEIGHT_BITS = 30
UNITS = 1 << WEIGHT_BITS
"""What the three weights of a point sum to."""
NATS_PER_SIDE = 0.2
"""Epsilon times the spacing where no spacing is given."""
MOST_VERTICES = 250_000
FARTHEST = 0.1
"""Of the earth's radius: how far from its middle an area may reach; lengths stretch by 1 %."""
FAR_RULE = (
    f"from its middle; a mesh covers up to {FARTHEST * EARTH_RADIUS_KM:,.0f} km, "
    "beyond which the plane is stretched by more than 1 %: split the area"
)
TOO_FAR = f"the area reaches half round the earth {FAR_RULE}"
COVERED = 1e-6
"""Spacings by which the mesh reaches beyond the area; a point on the rim may be half of it out."""
PROJECTION_KM = 1e-10
"""Above the rounding error of the projection: 1e-15 of the earth's radius, and ten times that."""
AGREEMENT_KM = 1e-9
TINIEST = np.finfo(np.float64).tiny
SLANT = np.array([[1.0, 0.0], [0.5, np.sqrt(0.75)]])
"""The two steps of the lattice."""
CORNERS = np.array([[[0, 0], [1, 0], [0, 1]], [[1, 1], [0, 1], [1, 0]]])
"""Of the lower and the upper triangle of a cell."""
AROUND = np.array([[1, 0], [0, 1], [-1, 1], [-1, 0], [0, -1], [1, -1]])
"""The six neighbours of a vertex."""

SIDE_POINTS = 32
"""Points along each side of a box: sides along a parallel are no great circles."""
FORMS = (
    "give (south, west, north, east), a list of (lat, lon) corners, or a list of such rings (the "
    "first outside, the others holes)"
)


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
class Mesh(RebuiltOnCopy):
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
        kinds = {"vertices": np.int64, "area": np.float64, "inside": np.int64}
        own = {name: frozen(np.asarray(getattr(self, name), kind)) for name, kind in kinds.items()}
        lat, lon = self.middle
        vars(self).update(own, middle=(float(lat), float(lon)), spacing=float(self.spacing))
        for refused, message in self._refusals():
            if refused:
                raise DomainError(message)

    def _refusals(self) -> Iterator[tuple[Any, str]]:
        """What may be wrong with a mesh, each given that what comes before is not."""
        (lat, lon), count = self.middle, len(self.vertices)
        sound = abs(lat) <= 90 and -180 <= lon <= 360 and 0 < self.spacing < np.inf
        yield (
            not sound,
            f"a mesh of spacing {self.spacing!r} km in the middle {self.middle} is none",
        )
        few = "a mesh needs three or more different vertices (i, j) and a flag for each"
        yield self.vertices.shape != (count, 2) or self.inside.shape != (count,) or count < 3, few
        yield (self._table[1] >= 0).sum() < count, few
        yield (
            self.area.ndim != 2 or self.area.shape[1] != 2 or not np.isfinite(self.area).all(),
            f"the mesh's area has shape {self.area.shape}; it is a list of corners (u, v)",
        )
        # A hull begins with its leftmost corner.
        turned = np.roll(self.area, -np.lexsort(self.area.T[::-1])[0], axis=0)
        hull = convex_hull(self.area)
        yield (
            len(hull) < 3 or not np.array_equal(hull, turned),
            "the mesh's area is no convex polygon, counterclockwise",
        )
        yield _too_far(self.plane)
        yield (
            (self._corners_of(covering(self.area, COVERED)) < 0).any(),
            "the mesh does not cover its area; a triangle is missing",
        )
        flags = np.isin(self.inside, (0, 1)).all()
        yield (
            not flags or (self.neighbours[self.inside == 1] < 0).any(),
            "a vertex of the mesh counts as inside and lacks a neighbour",
        )

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
        return frozen(_numbers(self._table, self.vertices[:, None, :] + AROUND))

    @cached_property
    def interior(self) -> BoolArray:
        """Which vertices have six neighbours that all lie in the area."""
        complete = np.all(self.neighbours >= 0, axis=1)
        return frozen(complete & np.all(self.covered[self.neighbours], axis=1))

    @cached_property
    def covered(self) -> BoolArray:
        """Which vertices lie in the area: the others are there to cover its rim."""
        return frozen(np.all(self._beyond(self.vertices.astype(float)) <= COVERED / 2, axis=1))

    @property
    def resolution_km(self) -> float:
        """How far a point may be from the one that stands for it: rounding of (u, v) to 2^-30,
        and the rounding error of the projection."""
        return self.spacing / UNITS + PROJECTION_KM

    def locate(self, lat: FloatArray, lon: FloatArray) -> Located:
        """The triangle of each place, and the weights of its vertices; -1 outside the area."""
        valid = are_places(lat, lon)
        point, seen = project(np.where(valid, lat, 0.0), np.where(valid, lon, 0.0), self.middle)
        lattice = np.where((valid & seen)[:, None], to_lattice(point, self.spacing), np.nan)
        with np.errstate(invalid="ignore"):
            covered = np.all(self._beyond(lattice) <= COVERED / 2, axis=1)
        rounded = np.rint(np.where(covered[:, None], lattice, 0.0) * UNITS).astype(np.int64)
        cell = rounded >> WEIGHT_BITS
        part = rounded & (UNITS - 1)
        upper = part.sum(axis=1) > UNITS
        # The upper triangle is the lower one, turned by half a circle.
        part = np.where(upper[:, None], UNITS - part, part)
        corners = self._corners_of(np.column_stack([cell, upper]))
        weights = np.column_stack([UNITS - part.sum(axis=1), part])
        return Located(np.where(covered[:, None], corners, -1), weights)

    def _beyond(self, lattice: FloatArray) -> FloatArray:
        """How far points lie beyond each side of the area, in spacings; shape (n, sides)."""
        return beyond(lattice @ SLANT, self.area @ SLANT)

    def _corners_of(self, cells: IntArray) -> IntArray:
        """Vertices of triangles (i, j, upper), shape (n, 3); -1 where one is missing."""
        return _numbers(self._table, _corners(cells))

    @cached_property
    def _table(self) -> tuple[IntArray, IntArray]:
        """The number of each vertex by its lattice coordinates."""
        return _lookup(self.vertices)


def mesh_over(area: Any, spacing: float | None, epsilon: float | None) -> Mesh:
    """The mesh over an area; its spacing, or epsilon (per km) from which 0.2 / epsilon follows."""
    step = _spacing(spacing, epsilon)
    given = read_area(area)
    middle = _middle(np.concatenate(given))
    rings = [projected(ring, middle) for ring in given]
    hull = convex_hull(np.concatenate(rings))
    far, message = _too_far(hull)
    if far:
        raise DomainError(message)
    size = polygon_size(hull)
    count = size / step**2 / np.sqrt(0.75)
    if count > MOST_VERTICES:
        raise DomainError(
            f"a spacing of {step:g} km gives {count:,.0f} vertices over {size:,.0f} square km; at "
            f"most {MOST_VERTICES:,} fit: spacing={step * np.sqrt(count / MOST_VERTICES):.2g} or "
            "more"
        )
    corners = convex_hull(to_lattice(hull, step))
    vertices = np.unique(_corners(covering(corners, 2 * COVERED)).reshape(-1, 2), axis=0)
    within_rings = within(vertices @ SLANT, [to_lattice(ring, step) @ SLANT for ring in rings])
    around_each = _numbers(_lookup(vertices), vertices[:, None, :] + AROUND)
    inside = within_rings & ((around_each >= 0) & within_rings[around_each]).all(axis=1)
    if not inside.any():
        raise DomainError(
            f"the area is too thin or too small for a spacing of {step:g} km: no vertex lies in it "
            "with its six neighbours; give a smaller spacing"
        )
    return Mesh(middle, step, vertices, corners, inside.astype(np.int64))


def covering(area: FloatArray, margin: float) -> IntArray:
    """Triangles (i, j, upper) of the lattice that come within `margin` spacings of a convex area.

    Two convex polygons that do not touch are separated along a side of one of them.
    """
    low = np.floor(area.min(axis=0) - 2)
    high = np.ceil(area.max(axis=0) + 2)
    if np.prod(high - low) > 64 * MOST_VERTICES:
        raise DomainError(
            "the area spans far more triangles than one mesh may have; give a larger spacing"
        )
    i, j = (np.arange(a, b, dtype=np.int64) for a, b in zip(low, high, strict=True))
    cells = np.stack(np.meshgrid(i, j, [0, 1], indexing="ij"), axis=-1).reshape(-1, 3)
    corners = area @ SLANT
    axes = _across(np.concatenate([polygon_sides(corners), SLANT, SLANT[1:] - SLANT[:1]]))
    shadow = corners @ axes
    at = cells[:, :2] @ SLANT @ axes
    shapes = CORNERS @ SLANT @ axes
    low = shapes.min(axis=1)[cells[:, 2]]
    high = shapes.max(axis=1)[cells[:, 2]]
    gap = np.maximum(at + low - shadow.max(axis=0), shadow.min(axis=0) - at - high)
    return cells[~(gap > margin).any(axis=1)]


def _across(sides: FloatArray) -> FloatArray:
    """Unit vectors to the right of some sides, (2, n); 0 of one without a length."""
    return np.stack([sides[:, 1], -sides[:, 0]]) / np.maximum(np.hypot(*sides.T), TINIEST)


def polygon_sides(corners: FloatArray) -> FloatArray:
    """From every corner of a polygon to the next."""
    return np.roll(corners, -1, axis=0) - corners


def beyond(points: FloatArray, corners: FloatArray) -> FloatArray:
    """How far points lie beyond each side of a convex polygon, counterclockwise; (n, sides)."""
    outward = _across(polygon_sides(corners))
    return points @ outward - (corners.T * outward).sum(axis=0)


def polygon_size(corners: FloatArray) -> float:
    """The size of a polygon."""
    x, y = corners.T
    return float(abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2)


def project(
    lat: FloatArray, lon: FloatArray, middle: tuple[float, float]
) -> tuple[FloatArray, BoolArray]:
    """Places in the plane (n, 2), km, and which of them lie on the middle's side of the earth."""
    up, east, north = plane_frame(middle)
    xyz = sphere_points(lat, lon)
    height = xyz @ up
    seen = height > 0.5
    flat = np.stack([xyz @ east, xyz @ north], axis=1) / np.where(seen, height, 1.0)[:, None]
    return EARTH_RADIUS_KM * flat, seen


def unproject(plane: FloatArray, middle: tuple[float, float]) -> tuple[FloatArray, FloatArray]:
    """Latitudes and longitudes of points of the plane."""
    up, east, north = plane_frame(middle)
    xyz = up + plane[:, :1] / EARTH_RADIUS_KM * east + plane[:, 1:] / EARTH_RADIUS_KM * north
    lat, lon = _degrees(xyz)
    return frozen(lat), frozen(np.where(lon >= 180, lon - 360, lon))


def _degrees(xyz: FloatArray) -> tuple[FloatArray, FloatArray]:
    x, y, z = xyz.T
    return np.rad2deg(np.arctan2(z, np.hypot(x, y))), np.rad2deg(np.arctan2(y, x))


def to_lattice(plane: FloatArray, spacing: float) -> FloatArray:
    """Coordinates (u, v) of points of the plane."""
    v = plane[:, 1] / (spacing * SLANT[1, 1])
    return np.stack([plane[:, 0] / spacing - v / 2, v], axis=1)


def check_covered(located: Located) -> None:
    """An error, which does not name it, where a point lies outside the area."""
    if not located.inside.all():
        raise SnapError("the place is not in the area of this table; use a table whose area has it")


def plane_frame(middle: tuple[float, float]) -> FloatArray:
    """Unit vectors (3, 3) at the middle: up, east and north."""
    up = sphere_points(*np.array(middle))
    lam = np.deg2rad(middle[1])
    east = np.array([-np.sin(lam), np.cos(lam), 0.0])
    return np.stack([up, east, np.cross(up, east)])


def mean_place(places: FloatArray) -> tuple[float, float]:
    """The mean of places (n, 2) on the sphere, (lat, lon)."""
    lat, lon = _degrees(sphere_points(*places.T).mean(axis=0))
    return float(lat), float(lon)


def _middle(corners: FloatArray) -> tuple[float, float]:
    """The middle of the corners' box in the plane at their mean on the sphere."""
    start = mean_place(corners)
    plane = projected(corners, start)
    lats, lons = unproject((plane.min(axis=0) + plane.max(axis=0))[None] / 2, start)
    # A middle that can be written down: nothing depends on where exactly it is.
    return round(float(lats[0]), 9), round(float(lons[0]), 9)


def projected(places: FloatArray, middle: tuple[float, float]) -> FloatArray:
    """Places (n, 2) in the plane at a middle; an error where they are not all on its side."""
    lat, lon = places.T
    plane, seen = project(lat, lon, middle)
    if not seen.all():
        raise DomainError(TOO_FAR)
    return plane


def _corners(cells: IntArray) -> IntArray:
    """Lattice coordinates of the three corners of triangles (i, j, upper), shape (n, 3, 2)."""
    return cells[:, None, :2] + CORNERS[cells[:, 2]]


def _lookup(vertices: IntArray) -> tuple[IntArray, IntArray]:
    """The least lattice coordinates, and the number of each vertex by how far it is from them."""
    first = vertices.min(axis=0)
    span = vertices.max(axis=0) - first + 1
    if span.prod() > 64 * MOST_VERTICES:
        raise DomainError("the mesh's vertices are spread too far for one mesh")
    table = np.full(span, -1, dtype=np.int64)
    table[tuple((vertices - first).T)] = np.arange(len(vertices))
    return first, table


def _numbers(lookup: tuple[IntArray, IntArray], lattice: IntArray) -> IntArray:
    """The vertices at lattice coordinates (..., 2); -1 where there is none."""
    first, table = lookup
    at = lattice - first
    known = np.all((at >= 0) & (at < table.shape), axis=-1)
    safe = np.where(known[..., None], at, 0)
    return np.where(known, table[safe[..., 0], safe[..., 1]], -1)


def _spacing(spacing: float | None, epsilon: float | None) -> float:
    if spacing is None and epsilon is None:
        raise DomainError(
            "give the mesh's spacing in km, or epsilon per km: the spacing is then 0.2 / epsilon"
        )
    name, value = ("epsilon", epsilon) if spacing is None else ("spacing", spacing)
    if not (isinstance(value, int | float | np.number) and np.isfinite(value) and value > 0):
        raise DomainError(f"{name} is {value!r}; it must be a positive, finite number")
    return float(value) if spacing is not None else NATS_PER_SIDE / float(value)


def _too_far(plane: FloatArray) -> tuple[bool, str]:
    """Whether points of the plane are too far from the middle, and what to say then."""
    reach_km = float(np.hypot(*plane.T).max())
    return reach_km > FARTHEST * EARTH_RADIUS_KM, f"the area reaches {reach_km:,.0f} km {FAR_RULE}"


def read_area(area: Any) -> list[FloatArray]:
    """Rings of (lat, lon) in degrees, by the even-odd rule, from any form that is understood.
    `DomainError` for what is no area."""
    try:
        parts = [real_numbers(part, "the area", DomainError) for part in area]
    except (TypeError, ValueError) as error:
        raise DomainError(
            f"the area is a {type(area).__name__} that holds no numbers; {FORMS}"
        ) from error
    shapes = [part.shape for part in parts]
    if shapes == [()] * 4:
        return [_box(*map(float, parts))]
    if shapes and set(shapes) == {(2,)}:
        parts = [np.stack(parts)]
    elif not shapes or any(len(shape) != 2 or shape[1] != 2 for shape in shapes):
        raise DomainError(f"the area has {len(parts)} parts of shapes {shapes[:4]}; {FORMS}")
    return [_ring(part, k) for k, part in enumerate(parts)]


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


def within(points: FloatArray, rings: list[FloatArray]) -> BoolArray:
    """Which points lie in the rings by the even-odd rule, all in one plane."""
    odd = np.zeros(len(points), bool)
    x = points[:, 0]
    y = points[:, 1]
    for ring in rings:
        for (x1, y1), (x2, y2) in zip(ring, np.roll(ring, -1, axis=0), strict=True):
            if y1 == y2:
                continue
            crosses = (y1 > y) != (y2 > y)
            odd ^= crosses & (x < x1 + (y - y1) * ((x2 - x1) / (y2 - y1)))
    return odd
