"""Distances between records: haversine, euclidean, or a given matrix.

A metric answers for blocks of records and never forms a K x K array of its own. Every distance is
computed so that its relative error is at most `Metric.relative_error`; the audit relies on it
(docs/audit.md). The bound holds for points centimetres apart, across the date line, around the
poles and near the antipode, because nothing small is ever left over from a rounded difference.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray, digest, frozen, owning
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
SUM_TERMS = 32
"""Squares that are added plainly before compensated summation takes over."""


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
        """Share of two distances by which bounds from the triangle inequality are widened: far
        above any `relative_error`, so that they hold for the distances as they are computed."""
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


@owning("lat", "lon")
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
        phi, lam = np.deg2rad(self.lat), np.deg2rad(self.lon)
        xyz = np.stack([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)], axis=1)
        return np.ascontiguousarray(EARTH_RADIUS_KM * xyz)

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


@owning("vectors")
class Euclidean(Metric):
    """Euclidean distance between vectors, in the vectors' own unit."""

    kind = "euclidean"

    vectors: FloatArray

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

    @property
    def size(self) -> int:
        return len(self.vectors)

    def block(self, rows: IntArray, cols: IntArray) -> FloatArray:
        first, second = self.vectors[rows], self.vectors[cols]
        total = CompensatedSum((len(rows), len(cols)))
        for part in sum_slices(self.vectors.shape[1]):
            total.add(
                np.asarray(
                    scipy.spatial.distance.cdist(first[:, part], second[:, part], "sqeuclidean")
                )
            )
        return np.asarray(np.sqrt(total.value))

    def pairs(self, first: IntArray, second: IntArray) -> FloatArray:
        out = np.empty(len(first))
        step = max(1, BLOCK_ENTRIES // self.vectors.shape[1])
        for start in range(0, len(first), step):
            part = slice(start, start + step)
            difference = self.vectors[first[part]] - self.vectors[second[part]]
            total = CompensatedSum((len(difference),))
            for terms in sum_slices(self.vectors.shape[1]):
                total.add(np.einsum("ij,ij->i", difference[:, terms], difference[:, terms]))
            out[part] = np.sqrt(total.value)
        return out

    def take(self, indices: IntArray) -> Euclidean:
        return Euclidean(self.vectors[indices], self.unit)

    @property
    def embedding(self) -> FloatArray:
        return self.vectors

    def arrays(self) -> dict[str, FloatArray]:
        return {"vectors": self.vectors}


class CompensatedSum:
    """A running sum of arrays whose error does not grow with their number (Kahan)."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.value: FloatArray = np.zeros(shape)
        self._excess: FloatArray | None = None

    def add(self, term: FloatArray) -> None:
        if self._excess is None:
            self.value, self._excess = term, np.zeros_like(term)
            return
        corrected = term - self._excess
        total = self.value + corrected
        self._excess = (total - self.value) - corrected
        self.value = total


def sum_slices(dimensions: int) -> list[slice]:
    """Slices of coordinates whose squares are added plainly."""
    return [slice(start, start + SUM_TERMS) for start in range(0, dimensions, SUM_TERMS)]


@owning("distances")
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
        count = min(8, self.size)
        landmarks = [0]
        nearest = self.distances[0].copy()
        while len(landmarks) < count:
            landmarks.append(int(nearest.argmax()))
            nearest = np.minimum(nearest, self.distances[landmarks[-1]])
        return np.ascontiguousarray(self.distances[:, landmarks] / np.sqrt(count))

    def arrays(self) -> dict[str, FloatArray]:
        return {"distances": self.distances}
