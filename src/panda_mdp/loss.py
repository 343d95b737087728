"""What a wrong record costs: displacement. (Travel is in city/travel.py.)"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray, RebuiltOnCopy, frozen
from panda_mdp.base.floored import FlooredRows
from panda_mdp.compute.backend import accelerator, host_backend
from panda_mdp.errors import ProblemError
from panda_mdp.space.domain import Domain, check_indices

BLOCK_ENTRIES = 1 << 22
"""Losses that are looked at together."""
FEW_PAIRS = 1 << 10
"""Losses that NumPy computes sooner than a compiled loop begins."""
LARGEST = np.log(np.finfo(np.float64).max) - 1
MOST_STORED = 1 << 26
"""Losses, half a GiB of them, that are stored; more are computed as they are used."""


def distance_loss(
    domain: Domain, outputs: npt.ArrayLike, power: float = 1
) -> FloatArray | DistanceLoss:
    """Displacement d(x, y)^power, shape (K, m), in the domain's unit to that power.

    An array of up to `MOST_STORED` losses. More than that, as where any place of a whole city may
    be reported, are computed as they are used: `DistanceLoss`, which a problem takes as well.

    >>> distance_loss(Domain.from_vectors([[0.0], [1.0], [3.0]]), [0], power=2).ravel().tolist()
    [0.0, 1.0, 9.0]
    """
    if not (np.isfinite(power) and power > 0):
        raise ProblemError(f"power is {power!r}; it must be positive and finite")
    columns = check_indices(outputs, domain.size, "outputs", ProblemError)
    if domain.size * len(columns) > MOST_STORED:
        return DistanceLoss(domain, columns, power)
    distance = domain.distances(None, columns)
    return distance if power == 1 else distance**power


@dataclass(frozen=True, eq=False, repr=False)
class DistanceLoss(RebuiltOnCopy):
    """Displacements d(x, y)^power of all records and some outputs that are records, not stored.

    Indexes as an array does, by rows (`loss[[3, 5]]`, whole rows) and by pairs
    (`loss[records, columns]`, broadcast); `weights @ loss`, `min` and `max` go through it in
    blocks. Whatever needs the whole array gets it up to `MOST_STORED` losses, and a `ProblemError`
    beyond. Each loss has a relative error of at most `relative_error`.

    >>> loss = DistanceLoss(Domain.from_vectors([[0.0], [1.0], [3.0]]), [0, 2])
    >>> loss.shape, loss[1].tolist(), (np.array([1.0, 0, 1]) @ loss).tolist()
    ((3, 2), [1.0, 2.0], [3.0, 3.0])
    """

    domain: Domain
    outputs: IntArray
    power: float = 1
    ndim: ClassVar[int] = 2
    dtype: ClassVar[np.dtype[np.float64]] = np.dtype(np.float64)

    def __post_init__(self) -> None:
        columns = check_indices(self.outputs, self.domain.size, "outputs", ProblemError)
        object.__setattr__(self, "outputs", frozen(columns))
        object.__setattr__(self, "power", float(self.power))
        diameter = self.domain.diameter
        if self.power != 1 and self.power * np.log(diameter) > LARGEST:
            raise ProblemError(
                f"losses of up to {diameter:g} to the power {self.power:g} are not finite"
            )

    def __repr__(self) -> str:
        return f"DistanceLoss({self.shape[0]} x {self.shape[1]}, power {self.power:g})"

    @property
    def shape(self) -> tuple[int, int]:
        """(K, m)."""
        return self.domain.size, len(self.outputs)

    @property
    def size(self) -> int:
        """K m."""
        return self.shape[0] * self.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def relative_error(self) -> float:
        """Of every loss, beyond that of the true distance."""
        return 2 * max(self.power, 1.0) * (self.domain.metric.relative_error + 1e-15)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError(
                "losses that are computed as they are used are no array; asking for one makes one"
            )
        return self[:].astype(np.float64 if dtype is None else dtype, copy=False)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if ufunc is np.matmul and method == "__call__" and inputs[0] is not self:
            return self.__rmatmul__(inputs[0])
        whole = (np.asarray(part) if part is self else part for part in inputs)
        return getattr(ufunc, method)(*whole, **options)

    def __getitem__(self, key: Any) -> FloatArray:
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        if isinstance(columns, slice):
            some, chosen = np.arange(self.shape[0])[rows], self.outputs[columns]
            count = some.size * len(chosen)
            if count > MOST_STORED:
                raise ProblemError(
                    f"{count:,} losses would take {8e-9 * count:.0f} GB as one array; take rows, "
                    "loss[records], or pairs, loss[records, columns]; pm.optimal solves such a "
                    "problem without the array"
                )
            block = self._powers(self.domain.metric.block(some.reshape(-1), chosen))
            return block[0] if some.ndim == 0 else block
        if isinstance(rows, slice):
            rows = np.arange(self.shape[0])[rows, None]
        return self._pairs(np.asarray(rows), np.asarray(columns))

    def _pairs(self, first: IntArray, second: IntArray) -> FloatArray:
        shape = np.broadcast_shapes(first.shape, second.shape)
        records, columns = np.broadcast_arrays(first, second)
        if host_backend() != "numba" or records.size < FEW_PAIRS:
            distance = self.domain.metric.pairs(records.ravel(), self.outputs[columns.ravel()])
            return self._powers(distance).reshape(shape)
        from panda_mdp.compute.numba.distance import loss_pairs

        if first.shape != (shape[0], 1):
            records, columns = records.reshape(-1, 1), columns.reshape(-1, 1)
        own, other = (np.array(part, dtype=np.int64) for part in (records[:, 0], columns))
        out = np.empty(other.shape)
        loss_pairs(self._along(self.outputs), self.shape[0], own, other, self.power, out)
        return out.reshape(shape)

    def _powers(self, distance: FloatArray) -> FloatArray:
        return distance if self.power == 1 else np.asarray(distance**self.power)

    @cached_property
    def on_device(self) -> bool:
        """Whether an accelerator goes through all of these losses, with errors no larger than
        `relative_error`."""
        if not accelerator():
            return False
        from panda_mdp.compute.jax.device import distance_error, measures

        metric = self.domain.metric
        return measures(metric) and 2 * distance_error(metric) <= self.relative_error

    def __rmatmul__(self, weights: FloatArray) -> FloatArray:
        rows = np.atleast_2d(np.asarray(weights, dtype=np.float64))
        out = np.zeros((len(rows), self.shape[1]))
        if self.on_device:
            from panda_mdp.compute.jax.device import weighted_sums

            out = weighted_sums(self.domain, self.outputs, self.power, rows)
        else:
            for part, block in self._blocks():
                out += rows[:, part] @ block
        return out if np.ndim(weights) == 2 else out[0]

    def min(self, axis: int | None = None) -> Any:
        """The least loss, of every record for `axis=1`, of every output for `axis=0`."""
        if axis == 1 and self.on_device:
            from panda_mdp.compute.jax.device import least_losses

            return least_losses(self.domain, self.outputs, self.power)
        if axis == 1:
            every = np.arange(self.shape[1])
            groups = self.least_of_groups(every, np.array([0, len(every)]))
            return np.concatenate([least[:, 0] for _, least in groups])
        return self._extreme(np.minimum, axis)

    def max(self, axis: int | None = None) -> Any:
        """The largest loss, of every record for `axis=1`, of every output for `axis=0`."""
        return self._extreme(np.maximum, axis)

    def _extreme(self, pick: np.ufunc, axis: int | None) -> Any:
        found = [pick.reduce(block, axis=axis) for _, block in self._blocks()]
        return np.concatenate(found) if axis == 1 else pick.reduce(found)

    def _blocks(self) -> Iterator[tuple[slice, FloatArray]]:
        """All losses, some records at a time."""
        each = np.arange(self.shape[1] + 1)
        return self.least_of_groups(each[:-1], each)

    def least_of_groups(
        self, order: IntArray, starts: IntArray
    ) -> Iterator[tuple[slice, FloatArray]]:
        """`least_of_groups` of these losses."""
        if host_backend() != "numba":
            for rows, block in self.domain.blocks(self.outputs[order]):
                yield rows, self._powers(np.minimum.reduceat(block, starts[:-1], axis=1))
            return
        from panda_mdp.compute.numba.distance import least_losses

        size, groups = self.shape[0], len(starts) - 1
        places = self._along(self.outputs[order])
        step = max(1, BLOCK_ENTRIES // groups)
        for begin in range(0, size, step):
            last = min(begin + step, size)
            out = np.empty((last - begin, groups))
            least_losses(places, begin, last, size, starts, self.power, out)
            yield slice(begin, last), out

    def _along(self, columns: IntArray) -> Any:
        """Records and, behind them, the outputs in some order, as the compiled loops take them."""
        from panda_mdp.compute.numba.distance import coordinates

        return coordinates(self.domain.metric, np.append(np.arange(self.shape[0]), columns))


class UnknownLoss:
    """The losses of a table whose file left them out: a shape, and an error for whoever needs them.

    >>> UnknownLoss((3, 2))
    UnknownLoss(3 x 2)
    """

    ndim = 2
    dtype = np.dtype(np.float64)

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape

    def __repr__(self) -> str:
        return f"UnknownLoss({self.shape[0]} x {self.shape[1]})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        raise ProblemError(
            "the table's file holds no losses; pm.Mechanism(problem, table.weights, table.method) "
            "puts it back into the problem that it was made for"
        )

    def __getitem__(self, key: Any) -> FloatArray:
        return np.asarray(self)


Losses = FloatArray | DistanceLoss
"""What a problem has: an array, or what answers as one."""


def least_of_groups(
    loss: Losses, order: IntArray, starts: IntArray
) -> Iterator[tuple[slice, FloatArray]]:
    """For some records at a time their least loss over the outputs order[starts[g]:starts[g + 1]]
    of every group, (records, groups)."""
    if isinstance(loss, DistanceLoss):
        yield from loss.least_of_groups(order, starts)
        return
    step = max(1, BLOCK_ENTRIES // loss.shape[1])
    for begin in range(0, len(loss), step):
        rows = slice(begin, min(begin + step, len(loss)))
        yield rows, np.minimum.reduceat(loss[rows][:, order], starts[:-1], axis=1)


def seen_by_groups(
    loss: Losses, order: IntArray, starts: IntArray, margin: float
) -> tuple[BoolArray, FloatArray]:
    """Whether some output of a group costs a record at most `margin` more than its cheapest one,
    (groups, K), and the least loss of every record over the groups where none does."""
    if isinstance(loss, DistanceLoss) and loss.on_device:
        from panda_mdp.compute.jax import device

        width = int(np.diff(starts).max())
        tiles = [np.resize(order[a:b], width) for a, b in itertools.pairwise(starts)]
        listed = loss.outputs[np.stack(tiles)]
        return device.seen_by_groups(loss.domain, listed, loss.power, margin)
    sees = np.empty((len(starts) - 1, len(loss)), dtype=np.bool_)
    outside = np.empty(len(loss))
    for rows, least in least_of_groups(loss, order, starts):
        inside = least <= least.min(axis=1, keepdims=True) + margin
        sees[:, rows] = inside.T
        outside[rows] = np.where(inside, np.inf, least).min(axis=1)
    return sees, outside


def losses_above(loss: Losses, rows: FlooredRows) -> FloatArray:
    """sum_y (w_xy - floor_y) c_xy of every record, some of what is stored at a time."""
    if isinstance(loss, DistanceLoss) and loss.on_device:
        from panda_mdp.compute.jax import device

        return device.losses_above(loss.domain, loss.outputs, loss.power, rows)
    sums = np.zeros(len(loss))
    for begin in range(0, len(rows.columns), BLOCK_ENTRIES):
        part = slice(begin, min(begin + BLOCK_ENTRIES, len(rows.columns)))
        columns = rows.columns[part]
        record = np.searchsorted(rows.starts, np.arange(part.start, part.stop), "right") - 1
        lost = (rows.values[part] - rows.floor[columns]) * loss[record, columns]
        sums += np.bincount(record, lost, len(loss))
    return sums
