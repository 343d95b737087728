"""Distances between records: haversine, euclidean, angular, or a given matrix.

A metric answers for blocks of records and never forms a K x K array of its own. Every distance is
computed so that its relative error is at most `Metric.relative_error`; the audit relies on it
(docs/audit.md). The bound holds for points centimetres apart, across the date line, around the
poles and near the antipode, because nothing small is ever left over from a rounded difference.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import scipy

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray, RebuiltOnCopy, digest, frozen
from panda_mdp.base.factored import lattice
from panda_mdp.base.text import picked, present
from panda_mdp.base.threads import by_slices, check_time
from panda_mdp.errors import DomainError

EARTH_RADIUS_KM = 6371.0088
TREE_DIMENSIONS = 15
"""Beyond this many dimensions a k-d tree visits nearly everything; blocks are faster."""
PRODUCT_DIMENSIONS = 16
"""From so many on a matrix product is faster than sums of squares."""
BLOCK_ENTRIES = 1 << 22
CACHED_ENTRIES = 1 << 17
"""Temporaries of this size stay in the processor's cache."""
LANDMARKS = 8
SUM_TERMS = 32
"""Squares that are added plainly before compensated summation takes over."""
SAME_DIRECTION = 1e-7
"""Vectors at a smaller angle count as the same direction: rounding of their lengths to 1 would
show in the angle."""
AHEAD = 48
FAR = 1e-4
LENGTH_ERROR = 2e-15
SHADOW_ERROR = 1e-12
TURN = 2.0**-52
"""Radians by which rounding turns a vector that is brought to length 1: half an ulp of each
coordinate is 2^-53 of the length, and extended precision before it adds less than as much."""
TRIANGLE_TOLERANCE = 1e-9
"""Share by which a given matrix may break the triangle inequality: what rounding leaves of a
matrix that was computed. Whoever relies on the inequality allows for it (`triangle_slack`)."""
DETOUR_ROWS = 32
"""Rows of a matrix whose shortest detours are found together: they stay in the cache."""
SMALLEST_DEGREES = 1e-100
FINITE = "be finite: repair or leave out the record"
SMALLEST_COORDINATE = 1e-120
LARGEST_COORDINATE = 1e140
SMALLEST_DISTANCE = 1e-250
LARGEST_DISTANCE = 1e250
"""Between these no square, product or quotient of distances leaves the range of float64."""


class Metric(RebuiltOnCopy, ABC):
    """A finite metric space: distances between `size` records, in `unit`. It never changes; kinds
    are frozen dataclasses of the arrays that define them."""

    kind: ClassVar[str]
    unit: str

    def __post_init__(self) -> None:
        vars(self).update({name: frozen(array) for name, array in self.arrays().items()})

    def arrays(self) -> dict[str, FloatArray]:
        """What defines the metric, for files and fingerprints."""
        given: Any = self
        return present(picked(self, *(part.name for part in fields(given) if part.name != "unit")))

    @property
    def size(self) -> int:
        """Number of records."""
        return len(next(iter(self.arrays().values())))

    @property
    @abstractmethod
    def relative_error(self) -> float:
        """Bounds the relative error of every distance."""

    @abstractmethod
    def check(self) -> None:
        """Raise `DomainError` unless this is a metric on distinct records."""

    @property
    def triangle_slack(self) -> float:
        """Share of two distances by which bounds from the triangle inequality are widened.

        The one constant of every proof that uses the inequality (closures, balls on client and
        server): hundreds of times any `relative_error`, so that bounds hold for the distances as
        they are computed; for a matrix, four times what its check lets through.
        """
        return 1e-12

    @abstractmethod
    def block(self, rows: IntArray, cols: IntArray) -> FloatArray:
        """Distances of each row record to each column record, shape (rows, cols)."""

    @abstractmethod
    def pairs(self, first: IntArray, second: IntArray) -> FloatArray:
        """Distances of `first[i]` to `second[i]`."""

    def take(self, indices: IntArray) -> Self:
        """The metric restricted to some records, in the given order."""
        given: Any = self
        some = {name: array[indices] for name, array in self.arrays().items()}
        restricted: Self = replace(given, **some)
        return restricted

    @cached_property
    def embedding(self) -> FloatArray:
        """Coordinates, shape (K, p), whose euclidean distance orders pairs as the metric does, or
        at least never exceeds it, as distances to a few far-apart records over sqrt(p) do; used for
        trees and for orders in space."""
        columns = []
        far = 0
        everything = np.arange(self.size)
        for _ in range(min(LANDMARKS, self.size)):
            columns.append(self.block(everything[far : far + 1], everything)[0])
            far = int(np.min(columns, axis=0).argmax())
        return np.ascontiguousarray(np.stack(columns, axis=1) / np.sqrt(len(columns)))

    @property
    def plane(self) -> FloatArray | None:
        """Coordinates, shape (K, 2), of records that lie in a plane; None where they do not."""
        return None

    @property
    def places(self) -> Haversine | None:
        """Where records lie on the earth; None where they are no places."""
        return None

    @property
    def generating_pairs(self) -> IntArray | None:
        """Pairs, shape (E, 2), whose constraints imply those of all pairs; None where unknown."""
        return None

    @cached_property
    def tree(self) -> scipy.spatial.cKDTree | None:
        """A k-d tree over the embedding where one pays off and is exact."""
        if self.kind in ("matrix", "graph") or self.embedding.shape[1] > TREE_DIMENSIONS:
            return None
        return scipy.spatial.cKDTree(self.embedding)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of kind, unit and defining arrays: what a certificate names."""
        tag = np.frombuffer(f"{self.kind}|{self.unit}".encode(), dtype=np.uint8)
        return digest(tag, *self.arrays().values())


def latitude_cosine(lat: FloatArray | float) -> FloatArray:
    """cos(lat) of degrees to full relative accuracy: near a pole, the sine of the exact
    complement, since cos would multiply the rounding of lat in radians by tan(lat)."""
    size = np.abs(lat)
    return np.where(size > 45, np.sin(np.deg2rad(90 - size)), np.cos(np.deg2rad(lat)))


def longitude_gap(lon: Any, lon2: Any, xp: Any = np) -> Any:
    """|lon - lon2| the short way round, in degrees, for longitudes in [-180, 180].

    Across the date line it is added up from the two distances to the line, which are exact.
    """
    gap = abs(lon - lon2)
    if xp is np and np.all(gap <= 180):
        return gap
    return xp.where(gap > 180, (180 - xp.maximum(lon, lon2)) + (180 + xp.minimum(lon, lon2)), gap)


def haversine_km(
    lat: Any, lon: Any, lat2: Any, lon2: Any, cosines: Any = None, xp: Any = np
) -> Any:
    """Great-circle distance in km between places given in degrees (broadcasting); in NumPy or, by
    `xp`, in JAX.

    `cosines` are the products of those of both latitudes, where they are known.

    >>> float(haversine_km(0.0, 179.5, np.array([0.0]), np.array([-179.5]))[0].round(3))
    111.195
    """
    half_lat = xp.deg2rad(lat - lat2) / 2
    half_lon = xp.deg2rad(longitude_gap(lon, lon2, xp)) / 2
    if cosines is None:
        cosines = latitude_cosine(lat) * latitude_cosine(lat2)
    a = xp.sin(half_lat) ** 2 + cosines * xp.sin(half_lon) ** 2
    far = a > 0.5
    if xp is np and not np.any(far):
        return 2 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(a))
    # arcsin loses half its digits near the antipode; measure from the antipode instead.
    rest = xp.sin(xp.deg2rad(lat + lat2) / 2) ** 2 + cosines * xp.cos(half_lon) ** 2
    angle = 2 * xp.arcsin(xp.sqrt(xp.minimum(xp.where(far, rest, a), 1.0)))
    return EARTH_RADIUS_KM * xp.where(far, np.pi - angle, angle)


def are_places(lat: Any, lon: Any) -> BoolArray:
    """Which degrees are places: latitudes in [-90, 90], longitudes in [-180, 360]."""
    return np.asarray((abs(lat) <= 90) & (lon >= -180) & (lon <= 360))


def sphere_points(lat: FloatArray, lon: FloatArray) -> FloatArray:
    """Places in degrees as points of the unit sphere, shape (n, 3)."""
    phi = np.deg2rad(lat)
    lam = np.deg2rad(lon)
    return np.stack([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)], axis=-1)


@dataclass(frozen=True, eq=False)
class Haversine(Metric):
    """Great-circle distance in km between latitudes and longitudes in degrees."""

    lat: FloatArray
    lon: FloatArray

    kind = "haversine"
    # 12.5 roundings and 3.6 library calls of up to 4 ulp each: below 41 * 2^-53 (docs/audit.md).
    relative_error = 5e-15
    unit = "km"

    @property
    def places(self) -> Haversine:
        return self

    def check(self) -> None:
        check_places(self.lat, self.lon, turned=True)
        # A pole has one place and every longitude; of zeros the sign is dropped.
        lon = np.where(np.abs(self.lat) == 90, 0.0, self.lon)
        refuse_repeats(np.stack([self.lat, lon], axis=1) + 0.0)

    def block(self, rows: IntArray, cols: IntArray) -> FloatArray:
        step = max(1, CACHED_ENTRIES // max(1, len(cols)))
        parts = [rows[start : start + step, None] for start in range(0, max(1, len(rows)), step)]
        return np.concatenate([self.pairs(part, cols) for part in parts])

    def pairs(self, first: IntArray, second: IntArray) -> FloatArray:
        (lat, lon, cosine), (lat2, lon2, cosine2) = self._lines[:, first], self._lines[:, second]
        return haversine_km(lat, lon, lat2, lon2, cosine * cosine2)

    @cached_property
    def _lines(self) -> FloatArray:
        return np.stack([self.lat, self.lon, latitude_cosine(self.lat)])

    @cached_property
    def embedding(self) -> FloatArray:
        """Points on the sphere of the earth's radius, km."""
        return np.ascontiguousarray(EARTH_RADIUS_KM * sphere_points(self.lat, self.lon))

    @cached_property
    def plane(self) -> FloatArray | None:
        """A local projection in km, for places within a few degrees."""
        small = np.ptp(self.lat) < 10 and np.ptp(self.lon) < 10 and np.abs(self.lat).max() < 80
        return self.project(self.lat, self.lon) if small else None

    def project(self, lat: FloatArray, lon: FloatArray) -> FloatArray:
        """Local equirectangular coordinates in km, shape (n, 2), centred on the mean record."""
        middle = float(self.lat.mean())
        x = np.deg2rad(lon - float(self.lon.mean())) * np.cos(np.deg2rad(middle))
        y = np.deg2rad(lat - middle)
        return np.ascontiguousarray(EARTH_RADIUS_KM * np.stack([x, y], axis=-1))


@dataclass(frozen=True, eq=False)
class Vectors(Metric):
    """A metric between vectors, by sums of squares whose error does not grow with dimensions."""

    vectors: FloatArray
    """Shape (K, p)."""

    @cached_property
    def embedding(self) -> FloatArray:
        """The vectors: their distances, or chords, order pairs as the metric does."""
        return self.vectors

    @property
    def relative_error(self) -> float:
        """Of euclidean sums: squares of rounded differences, up to 32 plain additions, then
        compensated ones; the root halves the error and rounds once (docs/audit.md)."""
        return float((min(self.vectors.shape[1], SUM_TERMS) / 2 + 6) * 2.0**-53)

    def distance_of(self, first: FloatArray, second: FloatArray, squares: Squares) -> FloatArray:
        """Distances of vectors by one way to sum the squares of their differences."""
        return lengths(first, second, squares)

    def block(self, rows: IntArray, cols: IntArray) -> FloatArray:
        return self.distance_of(self.vectors[rows], self.vectors[cols], _block_squares)

    def pairs(self, first: IntArray, second: IntArray) -> FloatArray:
        out = np.empty(len(first))
        step = max(1, BLOCK_ENTRIES // self.vectors.shape[1])
        for start in range(0, len(first), step):
            part = slice(start, start + step)
            u = self.vectors[first[part]]
            out[part] = self.distance_of(u, self.vectors[second[part]], _pair_squares)
        return out


Squares = Callable[[FloatArray, FloatArray], FloatArray]


def _block_squares(first: FloatArray, second: FloatArray) -> FloatArray:
    """Squared distances of each of the first vectors to each of the second."""
    return scipy.spatial.distance.cdist(first, second, "sqeuclidean")


def _pair_squares(first: FloatArray, second: FloatArray) -> FloatArray:
    """Squared distances of first[i] to second[i]."""
    return np.einsum("ij,ij->i", difference := first - second, difference)


def lengths(first: FloatArray, second: FloatArray, squares: Squares) -> FloatArray:
    """Lengths of differences of vectors, of which `SUM_TERMS` coordinates at a time are summed
    plainly; those sums are added with an error that does not grow with their number (Kahan)."""
    value: Any = 0.0
    excess: Any = 0.0
    for start in range(0, first.shape[1], SUM_TERMS):
        part = slice(start, start + SUM_TERMS)
        corrected = squares(first[:, part], second[:, part]) - excess
        total = value + corrected
        excess = (total - value) - corrected
        value = total
    return np.sqrt(value)


@dataclass(frozen=True, eq=False)
class Euclidean(Vectors):
    """Euclidean distance between vectors, in the vectors' own unit."""

    unit: str = "unit"

    kind = "euclidean"

    @property
    def plane(self) -> FloatArray | None:
        return self.vectors if self.vectors.shape[1] == 2 else None

    def check(self) -> None:
        check_coordinates(self.vectors, any_size=False)
        refuse_repeats(self.vectors + 0.0)

    @cached_property
    def whole(self) -> tuple[FloatArray, FloatArray, int] | None:
        """The vectors as whole numbers of 2^-bits whose squares float64 sums exactly, their squared
        lengths and the bits; None where they are no such numbers."""
        points, bits = lattice(self.vectors)
        whole = points.astype(float)
        same = np.array_equal(np.ldexp(whole, -bits), self.vectors)
        return (whole, np.einsum("ij,ij->i", whole, whole), bits) if same else None

    def block(self, rows: IntArray, cols: IntArray) -> FloatArray:
        if self.vectors.shape[1] < PRODUCT_DIMENSIONS or self.whole is None:
            return super().block(rows, cols)
        # Whole numbers below 2^53, so the matrix product is exact, and far faster.
        points, norms, bits = self.whole
        every = np.array_equal(cols, np.arange(self.size))
        squares = points[rows] @ (points if every else points[cols]).T
        squares *= -2
        squares += norms[rows][:, None]
        squares += norms[cols]
        return np.ldexp(np.sqrt(squares, out=squares), -bits, out=squares)


@dataclass(frozen=True, eq=False)
class Angular(Vectors):
    """The angle between vectors in radians, theta = 2 atan2(|u - v|, |u + v|) for unit vectors.

    Accurate for small angles and for opposite vectors alike, where arccos of the inner product
    loses half its digits. A metric on directions: lengths do not matter.
    """

    kind = "angular"
    unit = "rad"

    @property
    def relative_error(self) -> float:
        """Of angles between the vectors that were given, before they were brought to length 1.

        As for euclidean sums, twice, with an arctangent of up to 4 ulp. Squared lengths are 1 to
        2e-15, so lengths differ by D <= 2e-15 and an angle t by D^2 / (2 t^2): 2e-16 at 1e-7.
        Rounding turns a unit vector by at most `TURN`, two by twice that: most between the nearest.
        """
        return super().relative_error + 14 * 2.0**-53 + 4e-16 + 2 * TURN / self.smallest[0]

    def check(self) -> None:
        check_coordinates(self.vectors, any_size=True)
        if not _of_unit_length(self.vectors):
            raise DomainError(
                "vectors are not of length 1; Domain.from_vectors(..., metric='angular') does it"
            )
        angle, first, second = self.smallest
        if angle < SAME_DIRECTION:
            raise DomainError(
                f"records {first} and {second} point in the same direction (angle {angle:.3g} rad, "
                f"the least is {SAME_DIRECTION:g}); leave one out"
            )

    def distance_of(self, first: FloatArray, second: FloatArray, squares: Squares) -> FloatArray:
        return 2 * np.arctan2(lengths(first, second, squares), lengths(first, -second, squares))

    @cached_property
    def smallest(self) -> tuple[float, int, int]:
        """The smallest angle and its two records; where it is far from 0, less than it: vectors are
        no nearer than their shadows on a line, and each is compared with the next ones there."""
        line = np.random.default_rng(0).normal(size=self.vectors.shape[1])
        shadows = self.vectors @ (line / np.linalg.norm(line))
        nearest = (np.inf, 0, 0)
        order = np.argsort(shadows)
        for ahead in range(1, self.size):
            check_time()
            here, there = np.sort([order[:-ahead], order[ahead:]], axis=0)
            least = float(np.abs(shadows[there] - shadows[here]).min()) - SHADOW_ERROR
            if nearest[0] <= least or (ahead > AHEAD and least > FAR):
                return min(nearest, (least, 0, 0))
            k = int((angles := self.pairs(here, there)).argmin())
            nearest = min(nearest, (float(angles[k]), int(here[k]), int(there[k])))
        return nearest


def _of_unit_length(vectors: FloatArray) -> bool:
    squares = (vectors.astype(np.longdouble) ** 2).sum(axis=1)
    return bool(np.all(np.abs(squares - 1) < LENGTH_ERROR))


def unit_vectors(vectors: FloatArray) -> FloatArray:
    """Vectors divided by their lengths, each length within 2e-15 of 1 afterwards.

    Vectors that are unit already stay as they are, so that a saved domain is read back to the bit.
    """
    check_coordinates(vectors, any_size=True)
    if _of_unit_length(vectors):
        return vectors
    scale = np.abs(vectors).max(axis=1, keepdims=True)
    zero = np.flatnonzero(scale == 0)
    if len(zero):
        raise DomainError(
            f"vector {zero[0]} is zero and has no direction ({len(zero)} such); "
            "leave it out or use the euclidean metric"
        )
    # Scaled first, so that squares neither overflow nor vanish; summed in extended precision.
    wide = (vectors / scale).astype(np.longdouble)
    return np.asarray(wide / np.sqrt((wide**2).sum(axis=1, keepdims=True)), dtype=float)


@dataclass(frozen=True, eq=False)
class Matrix(Metric):
    """Distances as they were given, checked to be a metric by the domain."""

    distances: FloatArray
    unit: str = "unit"

    kind = "matrix"
    relative_error = 0.0
    triangle_slack = 4 * TRIANGLE_TOLERANCE

    def check(self) -> None:
        check_entries(self.distances)
        _refuse(
            np.triu(self.distances == 0, k=1),
            lambda i, j: (
                f"records {i} and {j} are at distance 0; records are distinct: leave one out"
            ),
        )
        check_triangles(self.distances)

    def block(self, rows: IntArray, cols: IntArray) -> FloatArray:
        return self.distances[np.ix_(rows, cols)]

    def pairs(self, first: IntArray, second: IntArray) -> FloatArray:
        return self.distances[first, second]

    def take(self, indices: IntArray) -> Self:
        return replace(self, distances=self.block(indices, indices))


def _refuse(bad: BoolArray, message: Callable[..., str]) -> None:
    """`DomainError` with the message for the place of the first bad entry, and their number."""
    places = np.argwhere(bad)
    if len(places):
        more = f" ({len(places)} such)" if len(places) > 1 else ""
        raise DomainError(message(*places[0].tolist()) + more)


def check_coordinates(table: FloatArray, any_size: bool) -> None:
    """Refuse coordinates that are not finite, or of a size whose squares leave float64."""

    def refuse(bad: BoolArray, rule: str) -> None:
        _refuse(bad, lambda i, j: f"coordinate {j} of record {i} is {table[i, j]}; it must {rule}")

    refuse(~np.isfinite(table), FINITE)
    size = np.abs(table)
    if not any_size:
        refuse(
            (size > LARGEST_COORDINATE) | ((size < SMALLEST_COORDINATE) & (size > 0)),
            f"be 0 or of a size from {SMALLEST_COORDINATE:g} to {LARGEST_COORDINATE:g}: "
            "use another unit of length",
        )


def refuse_few(count: int) -> None:
    """Refuse a domain of fewer than two records."""
    if count < 2:
        raise DomainError(
            f"the domain has {count} distinct record(s); privacy between records needs at least 2: "
            "add records"
        )


def refuse_bad(bad: BoolArray, values: FloatArray, what: str, rule: str) -> None:
    """Name the first bad value and its rule."""
    _refuse(bad, lambda k: f"{what} of record {k} is {values[k]}; it must {rule}")


def check_places(lat: FloatArray, lon: FloatArray, turned: bool = False) -> None:
    """Refuse degrees that are no places; `turned` are those with longitudes in [-180, 180)."""
    refuse_bad(~np.isfinite(lat), lat, "lat", FINITE)
    refuse_bad(~np.isfinite(lon), lon, "lon", FINITE)
    refuse_bad(np.abs(lat) > 90, lat, "latitude", "lie in [-90, 90] degrees (swapped?)")
    refuse_bad((lon < -180) | (lon > 360), lon, "longitude", "lie in [-180, 360] degrees")
    refuse_bad(turned & (lon >= 180), lon, "longitude", "lie in [-180, 180) degrees")


def refuse_repeats(keys: FloatArray) -> None:
    """Refuse records whose rows of keys are equal."""
    _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    same = first[inverse.reshape(-1)]
    repeats = np.flatnonzero(same != np.arange(len(keys)))
    if len(repeats):
        raise DomainError(
            f"record {repeats[0]} repeats record {same[repeats[0]]} ({len(repeats)} repeats); "
            "records are distinct: leave repeats out (np.unique)"
        )


def check_entries(table: FloatArray) -> None:
    """Refuse distances that are not finite, non-negative, 0 on the diagonal and symmetric."""
    rules = (
        (~np.isfinite(table), "be finite: give records without a path a large finite distance"),
        (table < 0, "not be negative: take absolute values or repair the matrix"),
        (np.diag(np.diag(table) != 0), "be 0 on the diagonal: np.fill_diagonal(D, 0) sets it"),
        (
            (table > LARGEST_DISTANCE) | ((table > 0) & (table < SMALLEST_DISTANCE)),
            f"be 0 or from {SMALLEST_DISTANCE:g} to {LARGEST_DISTANCE:g}: use another unit",
        ),
        (
            table != table.T,
            "be symmetric: take (D + D.T) / 2 if the difference is rounding",
        ),
    )
    for broken, rule in rules:
        _refuse(
            broken,
            lambda i, j, rule=rule: (
                f"distance ({i}, {j}) is {table[i, j]} and ({j}, {i}) is {table[j, i]}; "
                f"distances must {rule}"
            ),
        )


def check_triangles(table: FloatArray) -> None:
    """Refuse a matrix that breaks the triangle inequality for any triple of records."""
    i, j, k = broken_triangle(table, 1 + TRIANGLE_TOLERANCE)
    if i >= 0:
        raise DomainError(
            f"the triangle inequality fails for records ({i}, {j}, {k}): "
            f"d({i}, {j}) = {table[i, j]:.12g} exceeds d({i}, {k}) + d({k}, {j}) = "
            f"{table[i, k] + table[k, j]:.12g} by more than 1e-9; "
            "replace the matrix by its shortest-path closure (scipy.sparse.csgraph)"
        )


def broken_triangle(table: FloatArray, factor: float) -> tuple[int, int, int]:
    """A triple (i, j, k) with d(i, j) > factor (d(i, k) + d(k, j)), or (-1, -1, -1)."""
    found: list[list[int]] = []

    def work(part: slice) -> None:
        # Columns before these rows belong to other parts: the table is symmetric.
        rows = table[part, part.start :]
        detour = np.empty_like(rows)
        shortest = np.full_like(rows, np.inf)
        for k in range(len(table)):
            np.add(table[k, part, None], table[k, part.start :], out=detour)
            np.minimum(shortest, detour, out=shortest)
        found.extend((np.argwhere(rows > factor * shortest) + part.start).tolist())

    by_slices(work, len(table), DETOUR_ROWS)
    if not found:
        return -1, -1, -1
    i, j = min(found)
    return i, j, int((table[i] + table[j]).argmin())
