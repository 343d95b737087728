"""Distances between records: haversine, euclidean, angular, or a given matrix.

A metric answers for blocks of records and never forms a K x K array of its own. Every distance is
computed so that its relative error is at most `Metric.relative_error`; the audit relies on it
(docs/audit.md). The bound holds for points centimetres apart, across the date line, around the
poles and near the antipode, because nothing small is ever left over from a rounded difference.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray, digest, frozen
from panda_mdp.errors import DomainError
from panda_mdp.space.checks import (
    TRIANGLE_TOLERANCE,
    check_coordinates,
    check_entries,
    check_places,
    check_triangles,
    distinct,
    place_keys,
    refuse_bad,
    refuse_zero_distances,
)

EARTH_RADIUS_KM = 6371.0088
TREE_DIMENSIONS = 15
"""Beyond this many dimensions a k-d tree visits nearly everything; blocks are faster."""
BLOCK_ENTRIES = 1 << 22
CACHED_ENTRIES = 1 << 17
"""Temporaries of this size stay in the processor's cache."""
LANDMARKS = 8
SUM_TERMS = 32
"""Squares that are added plainly before compensated summation takes over."""
SAME_DIRECTION = 1e-7
"""Vectors at a smaller angle count as the same direction: rounding of their lengths to 1 would
show in the angle."""
LENGTH_ERROR = 2e-15
TURN = 2.0**-52
"""Radians by which rounding turns a vector that is brought to length 1: half an ulp of each
coordinate is 2^-53 of the length, and extended precision before it adds less than as much."""


class Metric(ABC):
    """A finite metric space: distances between `size` records, in `unit`. It never changes."""

    kind: ClassVar[str]
    relative_error: float
    unit: str

    def __setattr__(self, name: str, value: object) -> None:
        msg = f"a metric does not change, and audits rest on it: make a new one with other {name}"
        raise AttributeError(msg)

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of records."""

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

    @abstractmethod
    def take(self, indices: IntArray) -> Metric:
        """The metric restricted to some records, in the given order."""

    @property
    @abstractmethod
    def embedding(self) -> FloatArray:
        """Coordinates, shape (K, p), whose euclidean distance orders pairs as the metric does,
        or at least never exceeds it (`Matrix`); used for trees and for orders in space."""

    @abstractmethod
    def arrays(self) -> dict[str, FloatArray]:
        """What defines the metric, for files and fingerprints."""

    @property
    def generating_pairs(self) -> IntArray | None:
        """Pairs, shape (E, 2), whose constraints imply those of all pairs; None where unknown."""
        return None

    def embedded_radius(self, radius: float) -> float:
        """An upper bound on the embedding distance of records within `radius`."""
        return radius * (1 + 1e-12)

    @cached_property
    def tree(self) -> scipy.spatial.cKDTree | None:
        """A k-d tree over the embedding where one pays off and is exact."""
        if self.kind == "matrix" or self.embedding.shape[1] > TREE_DIMENSIONS:
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


def longitude_gap(lon: FloatArray | float, lon2: FloatArray | float) -> FloatArray:
    """|lon - lon2| the short way round, in degrees, for longitudes in [-180, 180].

    Across the date line it is added up from the two distances to the line, which are exact.
    """
    gap = np.abs(np.subtract(lon, lon2))
    if np.all(gap <= 180):
        return np.asarray(gap)
    around = (180 - np.maximum(lon, lon2)) + (180 + np.minimum(lon, lon2))
    return np.where(gap > 180, around, gap)


def haversine_km(
    lat: FloatArray | float, lon: FloatArray | float, lat2: FloatArray, lon2: FloatArray
) -> FloatArray:
    """Great-circle distance in km between places given in degrees (broadcasting).

    >>> float(haversine_km(0.0, 179.5, np.array([0.0]), np.array([-179.5]))[0].round(3))
    111.195
    """
    half_lat = np.deg2rad(np.subtract(lat, lat2)) / 2
    half_lon = np.deg2rad(longitude_gap(lon, lon2)) / 2
    cosines = latitude_cosine(lat) * latitude_cosine(lat2)
    a = np.sin(half_lat) ** 2 + cosines * np.sin(half_lon) ** 2
    far = a > 0.5
    if not np.any(far):
        return np.asarray(2 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(a)))
    # arcsin loses half its digits near the antipode; measure from the antipode instead.
    half_sum = np.deg2rad(np.add(lat, lat2)) / 2
    rest = np.sin(half_sum) ** 2 + cosines * np.cos(half_lon) ** 2
    near_angle = 2 * np.arcsin(np.sqrt(np.minimum(a, 1.0)))
    far_angle = np.pi - 2 * np.arcsin(np.sqrt(np.minimum(rest, 1.0)))
    return np.asarray(EARTH_RADIUS_KM * np.where(far, far_angle, near_angle))


def sphere_points(lat: FloatArray, lon: FloatArray) -> FloatArray:
    """Places in degrees as points of the unit sphere, shape (n, 3)."""
    phi, lam = np.deg2rad(lat), np.deg2rad(lon)
    return np.stack([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)], axis=-1)


class Haversine(Metric):
    """Great-circle distance in km between latitudes and longitudes in degrees."""

    kind = "haversine"
    # 12.5 roundings and 3.6 library calls of up to 4 ulp each: below 41 * 2^-53 (docs/audit.md).
    relative_error = 5e-15
    unit = "km"

    lat: FloatArray
    lon: FloatArray

    def __init__(self, lat: FloatArray, lon: FloatArray) -> None:
        vars(self).update(lat=frozen(lat), lon=frozen(lon))

    def __reduce__(self) -> tuple[Any, ...]:
        return Haversine, (self.lat, self.lon)

    def check(self) -> None:
        check_places(self.lat, self.lon)
        refuse_bad(self.lon >= 180, self.lon, "longitude", "lie in [-180, 180) degrees")
        distinct(place_keys(self.lat, self.lon), merge=False)

    @property
    def size(self) -> int:
        return len(self.lat)

    def block(self, rows: IntArray, cols: IntArray) -> FloatArray:
        lat, lon = self.lat[cols], self.lon[cols]
        out = np.empty((len(rows), len(cols)))
        step = max(1, CACHED_ENTRIES // max(1, len(cols)))
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            out[start : start + step] = haversine_km(
                self.lat[part][:, None], self.lon[part][:, None], lat, lon
            )
        return out

    def pairs(self, first: IntArray, second: IntArray) -> FloatArray:
        return haversine_km(self.lat[first], self.lon[first], self.lat[second], self.lon[second])

    def take(self, indices: IntArray) -> Haversine:
        return Haversine(self.lat[indices], self.lon[indices])

    @cached_property
    def embedding(self) -> FloatArray:
        """Points on the sphere of the earth's radius, km."""
        return np.ascontiguousarray(EARTH_RADIUS_KM * sphere_points(self.lat, self.lon))

    def embedded_radius(self, radius: float) -> float:
        angle = min(radius / EARTH_RADIUS_KM, np.pi)
        return float(2 * EARTH_RADIUS_KM * np.sin(angle / 2) * (1 + 1e-9) + 1e-9)

    @cached_property
    def plane(self) -> FloatArray:
        """Local equirectangular coordinates in km, shape (K, 2), centred on the mean place."""
        return self.project(self.lat, self.lon)

    def project(self, lat: FloatArray, lon: FloatArray) -> FloatArray:
        """Any places in the coordinates of `plane`."""
        lat0, lon0 = float(self.lat.mean()), float(self.lon.mean())
        x = np.deg2rad(lon - lon0) * np.cos(np.deg2rad(lat0))
        y = np.deg2rad(lat - lat0)
        return np.ascontiguousarray(EARTH_RADIUS_KM * np.stack([x, y], axis=1))

    def arrays(self) -> dict[str, FloatArray]:
        return {"lat": self.lat, "lon": self.lon}


class Vectors(Metric):
    """A metric between vectors, by sums of squares whose error does not grow with dimensions."""

    vectors: FloatArray
    """Shape (K, p)."""

    @property
    def size(self) -> int:
        return len(self.vectors)

    @property
    def embedding(self) -> FloatArray:
        """The vectors: their distances, or chords, order pairs as the metric does."""
        return self.vectors

    def arrays(self) -> dict[str, FloatArray]:
        return {"vectors": self.vectors}

    @abstractmethod
    def distance_of(self, first: FloatArray, second: FloatArray, squares: Squares) -> FloatArray:
        """Distances of vectors by one way to sum the squares of their differences."""

    def block(self, rows: IntArray, cols: IntArray) -> FloatArray:
        return self.distance_of(self.vectors[rows], self.vectors[cols], block_squares)

    def pairs(self, first: IntArray, second: IntArray) -> FloatArray:
        out = np.empty(len(first))
        step = max(1, BLOCK_ENTRIES // self.vectors.shape[1])
        for start in range(0, len(first), step):
            part = slice(start, start + step)
            u, v = self.vectors[first[part]], self.vectors[second[part]]
            out[part] = self.distance_of(u, v, pair_squares)
        return out


Squares = Callable[[FloatArray, FloatArray], FloatArray]


def block_squares(first: FloatArray, second: FloatArray) -> FloatArray:
    """Squared distances of each of the first vectors to each of the second."""
    return compensated_sum(
        np.asarray(scipy.spatial.distance.cdist(first[:, part], second[:, part], "sqeuclidean"))
        for part in sum_slices(first.shape[1])
    )


def pair_squares(first: FloatArray, second: FloatArray) -> FloatArray:
    """Squared distances of first[i] to second[i]."""
    difference = first - second
    parts = (difference[:, part] for part in sum_slices(first.shape[1]))
    return compensated_sum(np.einsum("ij,ij->i", part, part) for part in parts)


def compensated_sum(terms: Iterable[FloatArray]) -> FloatArray:
    """The sum of arrays, with an error that does not grow with their number (Kahan)."""
    rest = iter(terms)
    value = next(rest)
    excess = np.zeros_like(value)
    for term in rest:
        corrected = term - excess
        total = value + corrected
        excess = (total - value) - corrected
        value = total
    return value


def sum_slices(dimensions: int) -> list[slice]:
    """Slices of coordinates whose squares are added plainly."""
    return [slice(start, start + SUM_TERMS) for start in range(0, dimensions, SUM_TERMS)]


class Euclidean(Vectors):
    """Euclidean distance between vectors, in the vectors' own unit."""

    kind = "euclidean"

    def __init__(self, vectors: FloatArray, unit: str = "unit") -> None:
        # Squares of rounded differences, up to 32 plain additions, then compensated ones; the
        # root halves the error and rounds once (docs/audit.md).
        error = (min(vectors.shape[1], SUM_TERMS) / 2 + 6) * 2.0**-53
        vars(self).update(vectors=frozen(vectors), unit=unit, relative_error=error)

    def __reduce__(self) -> tuple[Any, ...]:
        return Euclidean, (self.vectors, self.unit)

    def check(self) -> None:
        check_coordinates(self.vectors, any_size=False)
        distinct(self.vectors + 0.0, merge=False)

    def distance_of(self, first: FloatArray, second: FloatArray, squares: Squares) -> FloatArray:
        return np.asarray(np.sqrt(squares(first, second)))

    def take(self, indices: IntArray) -> Euclidean:
        return Euclidean(self.vectors[indices], self.unit)


class Angular(Vectors):
    """The angle between vectors in radians, theta = 2 atan2(|u - v|, |u + v|) for unit vectors.

    Accurate for small angles and for opposite vectors alike, where arccos of the inner product
    loses half its digits. A metric on directions: lengths do not matter.
    """

    kind = "angular"
    unit = "rad"

    def __init__(self, vectors: FloatArray) -> None:
        vars(self).update(vectors=frozen(vectors))

    def __reduce__(self) -> tuple[Any, ...]:
        return Angular, (self.vectors,)

    @property
    def relative_error(self) -> float:  # type: ignore[override]
        """Of angles between the vectors that were given, before they were brought to length 1.

        As for euclidean sums, twice, with an arctangent of up to 4 ulp. Squared lengths are 1 to
        2e-15, so lengths differ by D <= 2e-15 and an angle t by D^2 / (2 t^2): 2e-16 at 1e-7.
        Rounding a unit vector's coordinates turns it by at most `TURN`, two of them by twice that,
        which counts most between the nearest two.
        """
        terms = min(self.vectors.shape[1], SUM_TERMS)
        return float((terms / 2 + 20) * 2.0**-53 + 4e-16 + 2 * TURN / self.smallest[0])

    def check(self) -> None:
        check_coordinates(self.vectors, any_size=True)
        if not np.all(np.abs(squared_lengths(self.vectors) - 1) < LENGTH_ERROR):
            msg = "vectors are not of length 1; Domain.from_vectors(..., metric='angular') does it"
            raise DomainError(msg)
        angle, first, second = self.smallest
        if angle < SAME_DIRECTION:
            msg = (
                f"records {first} and {second} point in the same direction (angle {angle:.3g} rad, "
                f"the least is {SAME_DIRECTION:g}); leave one out"
            )
            raise DomainError(msg)

    def distance_of(self, first: FloatArray, second: FloatArray, squares: Squares) -> FloatArray:
        across, along = squares(first, second), squares(first, -second)
        return np.asarray(2 * np.arctan2(np.sqrt(across), np.sqrt(along)))

    def take(self, indices: IntArray) -> Angular:
        return Angular(self.vectors[indices])

    def embedded_radius(self, radius: float) -> float:
        return float(2 * np.sin(min(radius, np.pi) / 2) * (1 + 1e-12) + 1e-14)

    @cached_property
    def smallest(self) -> tuple[float, int, int]:
        """The smallest angle between two records, and the two."""
        best = (np.inf, 0, 0)
        step = max(1, BLOCK_ENTRIES // self.size)
        for start in range(0, self.size, step):
            rows = np.arange(start, min(start + step, self.size))
            block = self.block(rows, np.arange(self.size))
            block[np.arange(len(rows)), rows] = np.inf
            at = int(block.argmin())
            i, j = divmod(at, self.size)
            if block[i, j] < best[0]:
                best = (float(block[i, j]), min(start + i, j), max(start + i, j))
        return best


def squared_lengths(vectors: FloatArray) -> npt.NDArray[np.longdouble]:
    """Squared lengths in extended precision."""
    return np.asarray((vectors.astype(np.longdouble) ** 2).sum(axis=1))


def unit_vectors(vectors: FloatArray) -> FloatArray:
    """Vectors divided by their lengths, each length within 2e-15 of 1 afterwards.

    Vectors that are unit already stay as they are, so that a saved domain is read back to the bit.
    """
    if np.all(np.abs(squared_lengths(vectors) - 1) < LENGTH_ERROR):
        return vectors
    scale = np.abs(vectors).max(axis=1, keepdims=True)
    zero = np.flatnonzero(scale[:, 0] == 0)
    if len(zero):
        msg = (
            f"vector {zero[0]} is zero and has no direction ({len(zero)} such); "
            "leave it out or use the euclidean metric"
        )
        raise DomainError(msg)
    # Scaled first, so that squares neither overflow nor vanish; summed in extended precision.
    scaled = vectors / scale
    wide = scaled.astype(np.longdouble)
    length = np.sqrt((wide * wide).sum(axis=1, keepdims=True))
    return np.asarray(wide / length, dtype=np.float64)


class Matrix(Metric):
    """Distances as they were given, checked to be a metric by the domain."""

    kind = "matrix"
    relative_error = 0.0

    distances: FloatArray

    def __init__(self, distances: FloatArray, unit: str = "unit") -> None:
        vars(self).update(distances=frozen(distances), unit=unit)

    def __reduce__(self) -> tuple[Any, ...]:
        return Matrix, (self.distances, self.unit)

    def check(self) -> None:
        check_entries(self.distances)
        refuse_zero_distances(self.distances)
        check_triangles(self.distances)

    @property
    def triangle_slack(self) -> float:
        return 4 * TRIANGLE_TOLERANCE

    @property
    def size(self) -> int:
        return len(self.distances)

    def block(self, rows: IntArray, cols: IntArray) -> FloatArray:
        return np.asarray(self.distances[np.ix_(rows, cols)])

    def pairs(self, first: IntArray, second: IntArray) -> FloatArray:
        return np.asarray(self.distances[first, second])

    def take(self, indices: IntArray) -> Matrix:
        return Matrix(self.distances[np.ix_(indices, indices)], self.unit)

    @cached_property
    def embedding(self) -> FloatArray:
        """Distances to a few far-apart records over sqrt(p): never above the metric itself."""
        count = min(LANDMARKS, self.size)
        columns = [self.block(np.array([0]), np.arange(self.size))[0]]
        while len(columns) < count:
            far = np.array([int(np.min(columns, axis=0).argmax())])
            columns.append(self.block(far, np.arange(self.size))[0])
        return np.ascontiguousarray(np.stack(columns, axis=1) / np.sqrt(count))

    def arrays(self) -> dict[str, FloatArray]:
        return {"distances": self.distances}
