"""Rows of whole numbers over a common floor: what is not stored in a row is the floor's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import (
    BLOCK_ENTRIES,
    BoolArray,
    FloatArray,
    IntArray,
    frozen,
    offsets,
    owners,
)
from panda_mdp.base.factored import FactoredRows, Rows
from panda_mdp.base.threads import by_slices
from panda_mdp.errors import PrivacyError

Int32Array = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class FlooredRows(Rows):
    """K rows of m whole numbers: entry (x, y) is stored, or it is `floor[y]`.

    >>> rows = FlooredRows.of(np.array([[1, 7, 1], [1, 1, 7]]), np.array([1, 1, 1]))
    >>> rows.stored, rows[1].tolist()
    (2, [1, 1, 7])
    """

    floor: IntArray
    """(m,)."""
    starts: IntArray
    """(K + 1,): the stored entries of row x are those from starts[x] to starts[x + 1]."""
    columns: Int32Array
    """Ascending within a row."""
    values: IntArray

    def __post_init__(self) -> None:
        kinds = {"floor": np.int64, "starts": np.int64, "columns": np.int32, "values": None}
        given = vars(self)
        given.update({name: frozen(np.asarray(given[name], kind)) for name, kind in kinds.items()})
        starts = self.starts
        columns = self.columns
        whole = (
            self.values.dtype == np.int64
            and all(a.ndim == 1 for a in (self.floor, starts, columns, self.values))
            and len(starts) > 1
            and starts[0] == 0
            and starts[-1] == len(columns) == len(self.values)
            and bool((np.diff(starts) >= 0).all())
        )
        if not whole:
            raise PrivacyError(
                "the rows over a floor do not fit together: starts, columns and values differ"
            )
        if len(columns) and not (
            _ascending(columns, starts) and columns.min() >= 0 and columns.max() < len(self.floor)
        ):
            raise PrivacyError(
                f"the columns of a row are not ascending numbers in 0..{len(self.floor) - 1}"
            )

    @classmethod
    def of(cls, table: IntArray, floor: IntArray) -> FlooredRows:
        """The rows of a K x m table."""
        above = table != floor
        starts = offsets(above.sum(axis=1))
        return cls(floor, starts, np.nonzero(above)[1].astype(np.int32), table[above])

    @classmethod
    def over(cls, weights: IntArray | FlooredRows | FactoredRows) -> FlooredRows:
        """The same rows over a floor: their own, or the least number of every column."""
        if isinstance(weights, FlooredRows):
            return weights
        table = np.asarray(weights)
        return cls.of(table, table.min(axis=0))

    @property
    def shape(self) -> tuple[int, int]:
        """(K, m)."""
        return len(self.starts) - 1, len(self.floor)

    @property
    def stored(self) -> int:
        """Entries that are stored."""
        return len(self.values)

    @cached_property
    def records(self) -> Int32Array:
        """The row of every stored entry."""
        return frozen(owners(self.starts).astype(np.int32))

    def __repr__(self) -> str:
        records, outputs = self.shape
        return f"FlooredRows({records} x {outputs}, {self.stored:,} entries over a floor)"

    def block(self, records: IntArray) -> IntArray:
        out = np.tile(self.floor, (len(records), 1))
        for place, record in enumerate(records.tolist()):
            part = slice(self.starts[record], self.starts[record + 1])
            out[place, self.columns[part]] = self.values[part]
        return out

    def any(self, axis: int = 0) -> BoolArray:
        """For every column, whether some row has a number other than 0 in it."""
        every = np.bincount(self.columns, minlength=len(self.floor)) == len(self)
        some = np.zeros(len(self.floor), bool)
        some[self.columns[self.values != 0]] = True
        return some | ((self.floor != 0) & ~every)

    def largest(self) -> IntArray:
        """Which stored entry is the largest of every row, the first of equals."""
        count = np.diff(self.starts)
        highest = np.maximum.reduceat(self.values, self.starts[:-1])
        top = np.flatnonzero(self.values == np.repeat(highest, count))
        row = self.records[top]
        return top[np.concatenate([[True], row[1:] != row[:-1]])]

    def keys(self) -> IntArray:
        """A number for every row, equal for equal rows that store the same columns."""
        odd = np.random.default_rng(0).integers(1, 1 << 62, len(self.floor)) | 1
        with np.errstate(over="ignore"):
            mixed = (self.values + self.columns) * odd[self.columns]
            return np.add.reduceat(mixed, self.starts[:-1])

    def sums(self) -> tuple[IntArray, FloatArray]:
        """Of every row: exactly modulo 2^64, and nearly in float64."""
        count, _ = self.shape
        exact = np.empty(count, np.int64)
        nearly = np.empty(count)

        def work(part: slice) -> None:
            starts = self.starts[part.start : part.stop + 1]
            own = slice(starts[0], starts[-1])
            change = self.values[own] - self.floor[self.columns[own]]
            for out in (exact, nearly):
                run = np.zeros(len(change) + 1, dtype=out.dtype)
                np.cumsum(change, dtype=out.dtype, out=run[1:])
                ends = run[starts - starts[0]]
                out[part] = ends[1:] - ends[:-1] + self.floor.sum(dtype=out.dtype)

        by_slices(work, count, max(1, BLOCK_ENTRIES * count // max(1, self.stored)))
        return exact, nearly


def _ascending(columns: Int32Array, starts: IntArray) -> bool:
    """Whether the columns of every row are."""
    # They may fall where a row begins, and nowhere else.
    return bool(np.isin(1 + np.flatnonzero(columns[1:] <= columns[:-1]), starts).all())


Weights: TypeAlias = IntArray | FlooredRows | FactoredRows
"""K rows of m whole numbers, however they are held."""
