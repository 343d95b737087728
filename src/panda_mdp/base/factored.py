"""Rows of whole numbers that are computed as they are asked for: peaks and plateaus over a lattice.

Records are points of a lattice, whole numbers times a unit, so squared distances D are whole
numbers that float64 holds exactly, in whatever order they are summed. With

    t(x, c)  =  min(reach, ceil(sqrt(D(x, c))))          whole, and again a metric
    t_j(x)   =  min over the centres c of shape j of t(x, c)           (0 where it has none)
    n_j(x)   =  floor(v_j M_j(x) / 2^e_j(x)),     M / 2^(31 + e) = 2^(-rate t_j(x) / 2^40) nearly,

row x gives output y the sum of n_j(x) over its shapes j, and the largest of its entries takes what
is missing to 2^62. M comes from three tables of whole numbers by two products, so all machines have
the same integers. t is a metric because rounding up and cutting off keep the triangle inequality;
a minimum over centres keeps |t_j(x) - t_j(x')| <= t(x, x'). docs/words.md has the proof of privacy.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray, IntArray, RebuiltOnCopy, frozen
from panda_mdp.errors import MethodError, PrivacyError

ROW_BITS = 62
WEIGHT_BITS = 31
"""Of a shape's weight v and of M: their product is below 2^62."""
RATE_BITS = 40
TABLE_BITS = (14, 13, 13)
REACH_SHIFT, MOST_SHIFT = 34, 40
"""Halvings of a shape from its centres to its reach: ours, and the most that there may be."""
EXACT_BITS = 52
"""Squared distances stay below 2^52, where the root of float64 never crosses a whole number."""
RELATIVE_ERROR = 2.0**-27
"""Of M: five roundings down of 2^-30 each, and less than as much again."""
MOST_BITS = 400
"""Of the unit of a lattice, either way."""
BLOCK_ENTRIES = 1 << 22
MOST_DENSE = 1 << 27
"""Entries, 1 GiB of them, that are ever written out as one array."""


def refuse_large(records: int, outputs: int) -> None:
    """Refuse to write out so many rows as one array."""
    if records * outputs > MOST_DENSE:
        raise MethodError(
            f"{records:,} x {outputs:,} entries would take {8e-9 * records * outputs:.0f} GB as "
            "one array; take rows: mechanism.row(record), mechanism.weights[records], "
            "mechanism.sample(records)"
        )


@cache
def power_tables() -> tuple[IntArray, ...]:
    """floor(2^31 2^(-k / 2^s)) for s = 14, 27, 40, by products of 120 bits."""
    tables, root, halvings = [], 1 << 119, 0
    for bits, digits in zip(TABLE_BITS, np.cumsum(TABLE_BITS).tolist(), strict=True):
        while halvings < digits:
            root, halvings = math.isqrt(root << 120), halvings + 1
        values, power = [], 1 << 120
        for _ in range(1 << bits):
            values.append(power >> (120 - WEIGHT_BITS))
            power = power * root >> 120
        tables.append(frozen(np.array(values, dtype=np.int64)))
    return tuple(tables)


def lattice(vectors: FloatArray) -> tuple[IntArray, int]:
    """Vectors as whole numbers of 2^-bits, as fine as exact squares allow, and the bits."""
    most = 2 ** (EXACT_BITS / 2 - 1) / math.sqrt(vectors.shape[1])
    largest = float(np.abs(vectors).max()) or 1.0
    bits = math.frexp(most / largest)[1] - 2
    return lattice_points(vectors, bits), bits


def lattice_points(vectors: FloatArray, bits: int) -> IntArray:
    """The nearest whole numbers of 2^-bits, of two equally near the even one."""
    scaled = np.rint(np.ldexp(vectors, bits))
    if not np.abs(scaled).max() < 2**EXACT_BITS:
        raise PrivacyError(f"the vectors are too long for a lattice of 2^-{bits}")
    return scaled.astype(np.int64)


class RowFacts(NamedTuple):
    """What the audit needs of all rows; whole numbers."""

    least_square: int
    """The least squared distance of two records."""
    nearest: tuple[int, int]
    """Two records that have it."""
    most_rest: float
    """The largest ratio of what a row is short of 2^62 to its largest entry; inf where a row is
    beyond it."""


@dataclass(frozen=True, eq=False)
class FactoredRows(RebuiltOnCopy):
    """K rows of m whole numbers summing to 2^62, from K points and some shapes.

    Indexes like an array by rows: `rows[x]` is one row, `rows[[x, x2]]` a block.

    >>> rows = FactoredRows.stars(np.array([[0], [10]]), 0, 1 << 38, np.array([1 << 30, 1 << 30]))
    >>> (rows[0] / 2**62).round(4).tolist()
    [0.9116, 0.0884]
    """

    points: IntArray
    """(K, p)."""
    unit_bits: int
    """The lattice's unit is 2^-unit_bits of the metric's."""
    rate: int
    """Per unit of the lattice, in 2^-40 halvings."""
    reach: int
    """Units of the lattice beyond which a shape falls no further."""
    outputs: int
    """m."""
    shape_outputs: IntArray
    """(J,) ascending: the output of each shape."""
    shape_weights: IntArray
    """(J,) v, from 1 to 2^31."""
    shape_starts: IntArray
    """(J + 1,): the centres of shape j are those from starts[j] to starts[j + 1]."""
    shape_centres: IntArray
    """Records."""

    def __post_init__(self) -> None:
        names = ("points", "shape_outputs", "shape_weights", "shape_starts", "shape_centres")
        for name in names:
            given = np.asarray(getattr(self, name))
            if given.dtype.kind not in "iu":
                raise PrivacyError(f"{name} are {given.dtype}; factored rows are whole numbers")
            object.__setattr__(self, name, frozen(given.astype(np.int64, copy=False)))
        reason = self._fault()
        if reason:
            raise PrivacyError(f"factored rows do not fit together: {reason}")

    def _fault(self) -> str:
        points, starts, centres = self.points, self.shape_starts, self.shape_centres
        shapes = (len(self.shape_outputs), len(self.shape_weights), len(starts) - 1)
        if points.ndim != 2 or len(points) < 2 or len(set(shapes)) != 1 or shapes[0] < 1:
            return "points, outputs, weights and starts are of different lengths"
        if points.shape[1] * int(np.abs(points).max()) ** 2 >= 1 << (EXACT_BITS - 2):
            return "points are too far apart for exact squares"
        outputs, weights = self.shape_outputs, self.shape_weights
        if outputs[0] < 0 or outputs[-1] >= self.outputs or (np.diff(outputs) < 0).any():
            return "outputs of shapes are not ascending columns"
        if weights.min() < 1 or weights.max() > 1 << WEIGHT_BITS:
            return "weights of shapes lie from 1 to 2^31"
        if starts[0] != 0 or starts[-1] != len(centres) or (np.diff(starts) < 0).any():
            return "starts do not divide the centres"
        if len(centres) and (centres.min() < 0 or centres.max() >= len(points)):
            return "a centre is no record"
        if not (self.rate >= 1 and self.reach >= 1 and self.most_shift <= MOST_SHIFT):
            return f"a shape falls by more than {MOST_SHIFT} halvings"
        return ""

    @classmethod
    def stars(cls, points: IntArray, unit_bits: int, rate: int, weights: IntArray) -> FactoredRows:
        """A peak at every record, of which each is an output; peaks of weight 0 are left out."""
        used = np.flatnonzero(weights)
        reach, starts = (REACH_SHIFT << RATE_BITS) // rate, np.arange(len(used) + 1)
        return cls(points, unit_bits, rate, reach, len(weights), used, weights[used], starts, used)

    @property
    def most_shift(self) -> int:
        """Halvings from a shape's centres to its reach, rounded down."""
        return self.rate * self.reach >> RATE_BITS

    @property
    def shape(self) -> tuple[int, int]:
        """(K, m)."""
        return len(self.points), self.outputs

    @property
    def dtype(self) -> np.dtype[np.int64]:
        """Of what indexing gives."""
        return np.dtype(np.int64)

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        records, outputs = self.shape
        return f"FactoredRows({records} x {outputs}, {len(self.shape_weights):,} shapes)"

    @cached_property
    def _reals(self) -> tuple[FloatArray, FloatArray]:
        points = self.points.astype(np.float64)
        return points, np.einsum("ij,ij->i", points, points)

    def squares(self, records: IntArray) -> FloatArray:
        """Squared distances of some records to all, in units of the lattice, exactly."""
        points, norms = self._reals
        return norms[records][:, None] + norms - 2 * (points[records] @ points.T)

    def ticks(self, squares: FloatArray) -> IntArray:
        """The whole, cut off distances t."""
        return np.minimum(np.ceil(np.sqrt(squares)), float(self.reach)).astype(np.int64)

    def numbers(self, squares: FloatArray) -> IntArray:
        """n_j of some rows and all shapes."""
        steps = self._nearest(self.ticks(squares)) * self.rate
        first, second, third = power_tables()
        _, b, c = TABLE_BITS
        part = steps & ((1 << RATE_BITS) - 1)
        whole = first[part >> (b + c)] * second[(part >> c) & ((1 << b) - 1)] >> WEIGHT_BITS
        whole = whole * third[part & ((1 << c) - 1)] >> WEIGHT_BITS
        return self.shape_weights * whole >> (steps >> RATE_BITS)

    def entries(self, numbers: IntArray) -> IntArray:
        """Rows before the rest is added, (rows, m)."""
        used, starts = self._columns
        if len(used) == self.outputs == numbers.shape[1]:
            return numbers
        rows = np.zeros((len(numbers), self.outputs), dtype=np.int64)
        rows[:, used] = np.add.reduceat(numbers, starts, axis=1)
        return rows

    @cached_property
    def _columns(self) -> tuple[IntArray, IntArray]:
        """The outputs that are used, and the first shape of each."""
        return np.unique(self.shape_outputs, return_index=True)

    def _nearest(self, ticks: IntArray) -> IntArray:
        """t_j of every row and shape."""
        count = np.diff(self.shape_starts)
        if (count == 1).all():
            return ticks[:, self.shape_centres]
        some = count > 0
        steps = np.zeros((len(ticks), len(count)), dtype=np.int64)
        if some.any():
            begin = self.shape_starts[:-1][some]
            steps[:, some] = np.minimum.reduceat(ticks[:, self.shape_centres], begin, axis=1)
        return steps

    def __getitem__(self, key: Any) -> IntArray:
        if isinstance(key, tuple):
            return np.asarray(self)[key]
        some = np.arange(len(self))[key]
        refuse_large(some.size, self.outputs)
        rows = self.entries(self.numbers(self.squares(np.atleast_1d(some))))
        top = rows.argmax(axis=1)
        rows[np.arange(len(rows)), top] += (1 << ROW_BITS) - rows.sum(axis=1)
        return rows if some.ndim else rows[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("factored rows are no array; asking for one makes one")
        return self[:].astype(np.int64 if dtype is None else dtype, copy=False)

    def blocks(self) -> Iterator[tuple[IntArray, FloatArray]]:
        """Some records at a time, and their squared distances to all."""
        step = max(1, BLOCK_ENTRIES // max(len(self), self.outputs, len(self.shape_weights)))
        for begin in range(0, len(self), step):
            records = np.arange(begin, min(begin + step, len(self)))
            yield records, self.squares(records)

    @cached_property
    def facts(self) -> RowFacts:
        """Of all rows, each computed once."""
        nearest, most = (math.inf, 0, 1), 0.0
        for records, squares in self.blocks():
            numbers = self.numbers(squares)
            rows = self.entries(numbers)
            rest, largest = (1 << ROW_BITS) - rows.sum(axis=1), rows.max(axis=1)
            # Sums of whole numbers went round nowhere where the nearly exact sum is in range.
            fits = numbers.sum(axis=1, dtype=np.float64) < 1.5 * (1 << ROW_BITS)
            good = fits & (rest >= 0) & (largest > 0)
            ratio = np.where(good, rest / np.maximum(largest, 1), np.inf)
            most = max(most, float(ratio.max()))
            squares[np.arange(len(records)), records] = np.inf
            i, j = divmod(int(squares.argmin()), len(self))
            nearest = min(nearest, (float(squares[i, j]), int(records[i]), j))
        return RowFacts(int(nearest[0]), nearest[1:], most)

    def any(self, axis: int = 0) -> npt.NDArray[np.bool_]:
        """For every column, whether some row has a number other than 0 in it."""
        used = np.zeros(self.outputs, dtype=np.bool_)
        used[self.shape_outputs] = True
        return used

    def feed(self, state: hashlib._Hash) -> None:
        """Everything that the rows follow from."""
        numbers = (self.unit_bits, self.rate, self.reach, *self.shape)
        state.update(f"factored {numbers}".encode())
        parts = (self.shape_outputs, self.shape_weights, self.shape_starts, self.shape_centres)
        for part in (self.points, *parts):
            state.update(f"{part.shape}".encode())
            state.update(part.astype("<i8").tobytes())
