"""Rows of whole numbers that are computed as they are asked for: peaks over a lattice.

Records are points of a lattice, whole numbers times a unit, so squared distances D are whole
numbers that float64 holds exactly, in whatever order they are summed. Output y has a peak of weight
v_y at the record c_y. With

    t(x, c)  =  min(reach, ceil(sqrt(D(x, c)))),     reach = floor(34 2^40 / rate),
    n_y(x)   =  floor(v_y M / 2^e),     M / 2^(31 + e) = 2^(-rate t(x, c_y) / 2^40) nearly,

row x gives output y the number n_y(x), and the largest of its entries takes what is missing to
2^62. M comes from three tables of whole numbers by two products, so all machines have the same
integers. t is a metric because rounding up and cutting off keep the triangle inequality.
docs/words.md has the proof of privacy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from panda_mdp.base.arrays import (
    BLOCK_ENTRIES,
    CACHED_ENTRIES,
    AnyArray,
    BoolArray,
    FloatArray,
    IntArray,
    RebuiltOnCopy,
    frozen,
)
from panda_mdp.base.threads import by_slices
from panda_mdp.errors import MethodError, PrivacyError

ROW_BITS = 62
WEIGHT_BITS = 31
"""Of a peak's weight v and of M: their product is below 2^62."""
RATE_BITS = 40
TABLE_BITS = (14, 13, 13)
REACH_SHIFT = 34
"""Halvings of a peak from its record to its reach, beyond which it falls no further."""
EXACT_BITS = 52
"""Squared distances stay below 2^52, where the root of float64 never crosses a whole number."""
RELATIVE_ERROR = 2.0**-27
"""Of M: five roundings down of 2^-30 each, and less than as much again."""
MOST_BITS = 400
"""Of the unit of a lattice, either way."""
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


class Rows(RebuiltOnCopy):
    """K rows of m whole numbers that are not one array. Indexes like one by rows: `rows[x]` is one
    row, `rows[[x, x2]]` a block; as one K x m array (`numpy.asarray`) only up to 1 GiB."""

    dtype: ClassVar[np.dtype[np.int64]] = np.dtype(np.int64)
    """Of the numbers."""

    @property
    def shape(self) -> tuple[int, int]:
        """(K, m)."""
        raise NotImplementedError

    def block(self, records: IntArray) -> IntArray:
        """Some rows, (n, m)."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[IntArray]:
        return (self[k] for k in range(len(self)))

    def __getitem__(self, key: Any) -> IntArray:
        if isinstance(key, int | np.integer):
            return self.block(np.array([range(len(self))[int(key)]]))[0]
        if isinstance(key, tuple):
            return np.asarray(self)[key]
        some = np.arange(len(self))[key]
        refuse_large(len(some), self.shape[1])
        return self.block(some)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        if copy is False:
            raise ValueError("these rows are no array; asking for one makes one")
        return self[:].astype(np.int64 if dtype is None else dtype, copy=False)


@cache
def power_tables() -> tuple[IntArray, ...]:
    """floor(2^31 2^(-k / 2^s)) for s = 14, 27, 40, by products of 120 bits."""
    tables = []
    root = 1 << 119
    halvings = 0
    for bits, digits in zip(TABLE_BITS, np.cumsum(TABLE_BITS).tolist(), strict=True):
        while halvings < digits:
            root = math.isqrt(root << 120)
            halvings = halvings + 1
        values = []
        power = 1 << 120
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


class Law(NamedTuple):
    """By which peaks fall."""

    reach: int
    """Units of the lattice beyond which a peak falls no further."""
    rate: int
    """Per unit of the lattice, in 2^-40 halvings."""
    slope: float
    """The same in nats, negative."""
    unit: float
    """Of the lattice, in the metric's."""


class RowFacts(NamedTuple):
    """What the audit needs of all rows; whole numbers."""

    least_square: int
    """The least squared distance of two records."""
    nearest: tuple[int, int]
    """Two records that have it."""
    most_rest: float
    """The largest ratio of what a row is short of 2^62 to its largest entry; inf where a row is
    beyond it."""

    @classmethod
    def of(cls, each: tuple[AnyArray, ...]) -> RowFacts:
        """From what `row_parts` says of every row."""
        sums, nearly, largest, least, nearest = each
        rest = (1 << ROW_BITS) - sums
        # Sums of whole numbers went round nowhere where the nearly exact sum is in range.
        good = (nearly < 1.5 * (1 << ROW_BITS)) & (rest >= 0) & (largest > 0)
        ratio = np.where(good, rest / np.maximum(largest, 1), np.inf)
        first = int(least.argmin())
        return cls(int(least[first]), (first, int(nearest[first])), float(ratio.max()))


def falls(squares: Any, law: Law, power: float = 0.0, xp: Any = np) -> Any:
    """What is left of a peak at squared distances, in units of the lattice; times distances, in the
    metric's unit, to a power. In NumPy or, by `xp`, in JAX, as what follows."""
    lengths = xp.sqrt(squares)
    left = xp.exp(xp.minimum(xp.ceil(lengths), law.reach) * law.slope)
    return left * (lengths * law.unit) ** power if power else left


def numbers_at(squares: Any, peaks: Any, law: Law, tables: Any, xp: Any = np) -> Any:
    """The numbers of peaks at squared distances, as the module's head has them."""
    first, second, third = tables
    _, b, c = TABLE_BITS
    steps = xp.minimum(xp.ceil(xp.sqrt(squares)), law.reach).astype(np.int64) * law.rate
    part = steps & ((1 << RATE_BITS) - 1)
    whole = first[part >> (b + c)] * second[(part >> c) & ((1 << b) - 1)] >> WEIGHT_BITS
    whole = whole * third[part & ((1 << c) - 1)] >> WEIGHT_BITS
    return peaks * whole >> (steps >> RATE_BITS)


def row_parts(squares: Any, records: Any, rows: Any, xp: Any = np) -> tuple[Any, ...]:
    """Of some rows before the rest is added: what they sum to, modulo 2^64 and nearly, the largest
    entry, and the least squared distance of another record, with that record."""
    own = xp.arange(squares.shape[1]) == records[:, None]
    others = xp.where(own, np.inf, squares)
    nearest = others.argmin(axis=1)
    sums = rows.sum(axis=1), rows.sum(axis=1, dtype=float)
    return *sums, rows.max(axis=1), others[xp.arange(len(others)), nearest], nearest


@dataclass(frozen=True, eq=False)
class FactoredRows(Rows):
    """K rows of m whole numbers summing to 2^62, from K points and a peak for each output.

    >>> heights = np.array([1 << 30, 1 << 30])
    >>> rows = FactoredRows(np.array([[0], [10]]), 0, 1 << 38, np.arange(2), heights)
    >>> (rows[0] / 2**62).round(4).tolist()
    [0.9116, 0.0884]
    """

    points: IntArray
    """(K, p)."""
    unit_bits: int
    """The lattice's unit is 2^-unit_bits of the metric's."""
    rate: int
    """Per unit of the lattice, in 2^-40 halvings."""
    centres: IntArray
    """(m,): the record at which each output has its peak."""
    peaks: IntArray
    """(m,) v, from 1 to 2^31."""

    def __post_init__(self) -> None:
        for name in ("points", "centres", "peaks"):
            given = np.asarray(getattr(self, name))
            if given.dtype.kind not in "iu":
                raise PrivacyError(f"{name} are {given.dtype}; factored rows are whole numbers")
            object.__setattr__(self, name, frozen(given.astype(np.int64, copy=False)))
        points = self.points
        centres = self.centres
        peaks = self.peaks
        rules = {
            "a peak for each output, and two points or more": points.ndim == 2
            and len(points) > 1
            and peaks.shape == (centres.size,) == centres.shape != (0,),
            "points near enough for exact squares": points.shape[-1]
            * int(np.abs(points).max(initial=0)) ** 2
            < 1 << (EXACT_BITS - 2),
            "peaks from 1 to 2^31": peaks.min(initial=1) >= 1
            and peaks.max(initial=1) <= 1 << WEIGHT_BITS,
            "centres that are records": centres.min(initial=0) >= 0
            and centres.max(initial=0) < len(points),
            "a rate from 1 to 34 2^40": 1 <= self.rate <= REACH_SHIFT << RATE_BITS,
        }
        broken = [rule for rule, kept in rules.items() if not kept]
        if broken:
            raise PrivacyError(f"factored rows need {broken[0]}")

    @property
    def law(self) -> Law:
        """By which peaks fall."""
        slope = -math.log(2) * 2.0**-RATE_BITS * self.rate
        reach = (REACH_SHIFT << RATE_BITS) // self.rate
        return Law(reach, self.rate, slope, 2.0**-self.unit_bits)

    @property
    def shape(self) -> tuple[int, int]:
        """(K, m)."""
        return len(self.points), len(self.peaks)

    def __repr__(self) -> str:
        return f"FactoredRows({self.shape[0]} x {self.shape[1]})"

    @cached_property
    def _reals(self) -> tuple[FloatArray, FloatArray]:
        points = self.points.astype(float)
        return points, np.einsum("ij,ij->i", points, points)

    def squares(self, records: IntArray) -> FloatArray:
        """Squared distances of some records to all, in units of the lattice, exactly."""
        points, norms = self._reals
        squares = points[records] @ points.T
        squares *= -2
        squares += norms[records][:, None]
        squares += norms
        return squares

    def halves(self, dtype: Any) -> Iterator[tuple[slice, FloatArray]]:
        """Squared distances, in any precision, of some records at a time to these and all later
        ones: the rest follows, as they are symmetric."""
        points = (self.points - self.points.mean(axis=0).astype(np.int64)).astype(dtype)
        norms = np.einsum("ij,ij->i", points, points)
        step = max(1, BLOCK_ENTRIES // len(points))
        for begin in range(0, len(points), step):
            some = slice(begin, begin + step)
            squares = points[some] @ points[begin:].T
            squares *= -2
            squares += norms[some, None]
            squares += norms[begin:]
            np.fill_diagonal(squares, 0)
            yield some, np.maximum(squares, 0, out=squares)

    def numbers(self, squares: FloatArray) -> IntArray:
        """Rows before the rest is added, (rows, m)."""
        out = np.empty((len(squares), len(self.peaks)), dtype=np.int64)

        def fill(some: slice) -> None:
            here = squares[some][:, self.centres]
            out[some] = numbers_at(here, self.peaks, self.law, power_tables())

        by_slices(fill, len(out), max(1, CACHED_ENTRIES // len(self.peaks)))
        return out

    def block(self, records: IntArray) -> IntArray:
        rows = self.numbers(self.squares(records))
        rows[np.arange(len(rows)), rows.argmax(axis=1)] += (1 << ROW_BITS) - rows.sum(axis=1)
        return rows

    @cached_property
    def facts(self) -> RowFacts:
        """Of all rows, each computed once, here or on a device (compute/jax/peaks.py)."""
        found = []
        step = max(1, BLOCK_ENTRIES // max(self.shape))
        for begin in range(0, len(self), step):
            records = np.arange(begin, min(begin + step, len(self)))
            squares = self.squares(records)
            found.append(row_parts(squares, records, self.numbers(squares)))
        return RowFacts.of(tuple(map(np.concatenate, zip(*found, strict=True))))

    def any(self, axis: int = 0) -> BoolArray:
        """For every column, whether some row has a number other than 0 in it: each has a peak."""
        return np.ones(len(self.peaks), bool)
