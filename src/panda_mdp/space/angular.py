"""The angle between vectors: the usual distance between word embeddings."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray, frozen, owning
from panda_mdp.errors import DomainError
from panda_mdp.space.checks import check_coordinates
from panda_mdp.space.metrics import (
    BLOCK_ENTRIES,
    SUM_TERMS,
    CompensatedSum,
    Metric,
    sum_slices,
)

SAME_DIRECTION = 1e-7
"""Vectors at a smaller angle count as the same direction: rounding of their lengths to 1 would
show in the angle."""
LENGTH_ERROR = 2e-15
TURN = 2.0**-52
"""Radians by which rounding turns a vector that is brought to length 1: half an ulp of each
coordinate is 2^-53 of the length, and extended precision before it adds less than as much."""


@owning("vectors")
class Angular(Metric):
    """The angle between vectors in radians, theta = 2 atan2(|u - v|, |u + v|) for unit vectors.

    Accurate for small angles and for opposite vectors alike, where arccos of the inner product
    loses half its digits. A metric on directions: lengths do not matter.
    """

    kind = "angular"
    unit = "rad"

    vectors: FloatArray
    """Unit vectors, shape (K, p)."""

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

    @property
    def size(self) -> int:
        return len(self.vectors)

    def block(self, rows: IntArray, cols: IntArray) -> FloatArray:
        first, second = self.vectors[rows], self.vectors[cols]
        across = CompensatedSum((len(rows), len(cols)))
        along = CompensatedSum((len(rows), len(cols)))
        for part in sum_slices(self.vectors.shape[1]):
            across.add(
                np.asarray(
                    scipy.spatial.distance.cdist(first[:, part], second[:, part], "sqeuclidean")
                )
            )
            along.add(
                np.asarray(
                    scipy.spatial.distance.cdist(first[:, part], -second[:, part], "sqeuclidean")
                )
            )
        return np.asarray(2 * np.arctan2(np.sqrt(across.value), np.sqrt(along.value)))

    def pairs(self, first: IntArray, second: IntArray) -> FloatArray:
        out = np.empty(len(first))
        step = max(1, BLOCK_ENTRIES // self.vectors.shape[1])
        for start in range(0, len(first), step):
            part = slice(start, start + step)
            u, v = self.vectors[first[part]], self.vectors[second[part]]
            across, along = CompensatedSum((len(u),)), CompensatedSum((len(u),))
            for terms in sum_slices(self.vectors.shape[1]):
                minus, plus = u[:, terms] - v[:, terms], u[:, terms] + v[:, terms]
                across.add(np.einsum("ij,ij->i", minus, minus))
                along.add(np.einsum("ij,ij->i", plus, plus))
            out[part] = 2 * np.arctan2(np.sqrt(across.value), np.sqrt(along.value))
        return out

    def take(self, indices: IntArray) -> Angular:
        return Angular(self.vectors[indices])

    @property
    def embedding(self) -> FloatArray:
        """The unit vectors: chords order pairs as angles do and never exceed them."""
        return self.vectors

    def embedded_radius(self, radius: float) -> float:
        return float(2 * np.sin(min(radius, np.pi) / 2) * (1 + 1e-12) + 1e-14)

    def arrays(self) -> dict[str, FloatArray]:
        return {"vectors": self.vectors}

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
