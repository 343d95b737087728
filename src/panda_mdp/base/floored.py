"""Rows of whole numbers over a common floor: what is not stored in a row is the floor's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import BoolArray, IntArray, RebuiltOnCopy, frozen
from panda_mdp.base.factored import FactoredRows, refuse_large
from panda_mdp.base.threads import by_slices
from panda_mdp.errors import PrivacyError

Int32Array = npt.NDArray[np.int32]

BLOCK_ENTRIES = 1 << 22


@dataclass(frozen=True, eq=False)
class FlooredRows(RebuiltOnCopy):
    """K rows of m whole numbers: entry (x, y) is stored, or it is `floor[y]`.

    Indexes like an array by rows: `rows[x]` is one row of m numbers, `rows[[x, x2]]` a block of
    them. As one K x m array (`numpy.asarray`) only where that takes up to 1 GiB.

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
        set_ = object.__setattr__
        for name, kind in (("floor", np.int64), ("starts", np.int64), ("columns", np.int32)):
            set_(self, name, frozen(np.asarray(getattr(self, name)).astype(kind, copy=False)))
        set_(self, "values", frozen(self.values))
        starts, columns = self.starts, self.columns
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
        starts = np.concatenate([[0], np.cumsum(above.sum(axis=1))])
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
    def dtype(self) -> np.dtype[np.int64]:
        """int64, of the numbers."""
        return np.dtype(np.int64)

    @property
    def stored(self) -> int:
        """Entries that are stored."""
        return len(self.values)

    @cached_property
    def records(self) -> Int32Array:
        """The row of every stored entry."""
        count = np.diff(self.starts)
        return frozen(np.repeat(np.arange(len(count), dtype=np.int32), count))

    def __repr__(self) -> str:
        records, outputs = self.shape
        return f"FlooredRows({records} x {outputs}, {self.stored:,} entries over a floor)"

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __iter__(self) -> Iterator[IntArray]:
        return (self[k] for k in range(len(self)))

    def __getitem__(self, key: Any) -> IntArray:
        if isinstance(key, int | np.integer):
            row = self.floor.copy()
            part = slice(self.starts[:-1][key], self.starts[1:][key])
            row[self.columns[part]] = self.values[part]
            return row
        if isinstance(key, tuple):
            return np.asarray(self)[key]
        chosen = np.arange(len(self))[key]
        refuse_large(len(chosen), len(self.floor))
        out = np.tile(self.floor, (len(chosen), 1))
        for place, record in enumerate(chosen.tolist()):
            part = slice(self.starts[record], self.starts[record + 1])
            out[place, self.columns[part]] = self.values[part]
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("rows over a floor are no array; asking for one makes one")
        return self[:].astype(np.int64 if dtype is None else dtype, copy=False)

    def any(self, axis: int = 0) -> BoolArray:
        """For every column, whether some row has a number other than 0 in it."""
        every = np.bincount(self.columns, minlength=len(self.floor)) == len(self)
        some = np.zeros(len(self.floor), dtype=np.bool_)
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

    def sums(self) -> tuple[IntArray, npt.NDArray[np.float64]]:
        """Of every row: exactly modulo 2^64, and nearly in float64."""
        count, _ = self.shape
        exact, nearly = np.empty(count, dtype=np.int64), np.empty(count)

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
    falls = 1 + np.flatnonzero(columns[1:] <= columns[:-1])
    return bool(np.isin(falls, starts).all())


Weights: TypeAlias = IntArray | FlooredRows | FactoredRows
"""K rows of m whole numbers, however they are held."""


def owned(weights: Weights) -> Weights:
    """The same numbers, in arrays that nobody can write to."""
    return weights if isinstance(weights, FlooredRows | FactoredRows) else frozen(weights)
