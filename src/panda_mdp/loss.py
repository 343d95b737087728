"""What a wrong record costs: displacement. (Travel is in city/city.py.)"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import (
    BLOCK_ENTRIES,
    AnyArray,
    FloatArray,
    IntArray,
    RebuiltOnCopy,
    frozen,
)
from panda_mdp.base.threads import in_parts
from panda_mdp.compute.pairs import accelerator, has_numba
from panda_mdp.errors import ProblemError
from panda_mdp.space.domain import Domain, check_indices
from panda_mdp.space.metrics import PRODUCT_DIMENSIONS
from panda_mdp.space.tiles import Coordinates, coordinates

FEW_PAIRS = 1 << 10
"""Losses that NumPy computes sooner than a compiled loop begins."""
LARGEST = np.log(np.finfo(np.float64).max) - 1
STEEPEST = 16
LARGEST_POWER = 250
"""Losses of a file that follow from distances: their highest power, and 10 to what a coordinate or
distance may be to it, rounded up."""
MOST_STORED = 1 << 26
"""Losses, half a GiB of them, that are stored; more are computed as they are used."""
FEW_OUTPUTS = 256
"""Of so many outputs a table is made as a whole, and its losses take no more than it does."""


def distance_loss(
    domain: Domain, outputs: npt.ArrayLike, power: float = 1
) -> FloatArray | DistanceLoss:
    """Displacement d(x, y)^power, shape (K, m), in the domain's unit to that power.

    An array of up to `MOST_STORED` losses, and of few outputs, where a table is no smaller. Where
    any place of a whole city may be reported they are computed as they are used: `DistanceLoss`,
    which a problem takes as well.

    >>> distance_loss(Domain.from_vectors([[0.0], [1.0], [3.0]]), [0], power=2).ravel().tolist()
    [0.0, 1.0, 9.0]
    """
    if not (np.isfinite(power) and power > 0):
        raise ProblemError(f"power is {power!r}; it must be positive and finite")
    columns = check_indices(outputs, domain.size, "outputs", ProblemError)
    if domain.size * len(columns) > MOST_STORED and len(columns) > FEW_OUTPUTS:
        return DistanceLoss(domain, columns, power)
    distance = domain.distances(None, columns)
    return distance if power == 1 else distance**power


def is_steep(domain: Domain, power: float) -> bool:
    """Whether a power of distances may leave float64, or is so high that no file tells it."""
    largest = max(float(np.abs(part).max()) for part in domain.metric.arrays().values())
    return power > STEEPEST or (power > 1 and np.ceil(power) * np.log10(largest) > LARGEST_POWER)


@dataclass(frozen=True, eq=False, repr=False)
class DistanceLoss(RebuiltOnCopy):
    """Displacements d(x, y)^power of all records and some outputs that are records, not stored.

    Indexes as an array does, by rows (`loss[[3, 5]]`, whole rows) and by pairs
    (`loss[records, columns]`, broadcast); `weights @ loss` and `min(axis=1)` go through it in
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
    # An array on the left leaves the product to `__rmatmul__`.
    __array_priority__: ClassVar[float] = 1000.0

    def __post_init__(self) -> None:
        columns = check_indices(self.outputs, self.domain.size, "outputs", ProblemError)
        vars(self).update(outputs=frozen(columns), power=float(self.power))
        if self.power != 1 and self.power * np.log(self.domain.diameter) > LARGEST:
            raise ProblemError(
                f"losses of up to {self.domain.diameter:g} to the power {self.power:g} are not "
                "finite"
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

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        return self[:].astype(np.float64 if dtype is None else dtype, copy=False)

    def __getitem__(self, key: Any) -> FloatArray:
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        if isinstance(columns, slice):
            some = np.arange(self.shape[0])[rows]
            output_records = self.outputs[columns]
            count = some.size * len(output_records)
            if count > MOST_STORED:
                raise ProblemError(
                    f"{count:,} losses would take {8e-9 * count:.0f} GB as one array; take rows, "
                    "loss[records], or pairs, loss[records, columns]; pm.optimal solves such a "
                    "problem without the array"
                )
            block = self._powers(self.domain.metric.block(some.reshape(-1), output_records))
            return block[0] if some.ndim == 0 else block
        if isinstance(rows, slice):
            rows = np.arange(self.shape[0])[rows, None]
        return self._pairs(np.asarray(rows), np.asarray(columns))

    def _pairs(self, first: IntArray, second: IntArray) -> FloatArray:
        records, columns = np.broadcast_arrays(first, second)
        if records.size < FEW_PAIRS or not has_numba():
            distance = self.domain.metric.pairs(records.ravel(), self.outputs[columns.ravel()])
            return self._powers(distance).reshape(records.shape)
        from panda_mdp.compute.numba.distance import loss_pairs

        out = np.empty(records.size)
        pairs = (records.ravel(), columns.ravel())
        in_parts(loss_pairs, len(out), self._places, len(self), *pairs, self.power, out)
        return out.reshape(records.shape)

    def _powers(self, distance: FloatArray) -> FloatArray:
        return distance if self.power == 1 else distance**self.power

    @cached_property
    def on_device(self) -> bool:
        """Whether an accelerator goes through all of these losses, with errors no larger than
        `relative_error`."""
        if not accelerator():
            return False
        from panda_mdp.compute.jax.device import distance_error, measures

        metric = self.domain.metric
        return measures(metric) and 2 * distance_error(metric) <= self.relative_error

    @cached_property
    def placed(self) -> Any:
        """These losses for passes over the points of a lattice on an accelerator, where they are
        such points and there is one; None elsewhere (compute/jax/peaks.py)."""
        whole = getattr(self.domain.metric, "whole", None) if self.on_device else None
        if whole is None:
            return None
        from panda_mdp.compute.jax import peaks

        return peaks.Costs(peaks.placed(whole[0]), 2.0 ** -whole[2], self.outputs, self.power)

    def __rmatmul__(self, weights: FloatArray) -> FloatArray:
        rows = np.atleast_2d(np.asarray(weights, dtype=float))
        if self.placed:
            from panda_mdp.compute.jax import peaks

            out = peaks.weighted_sums(self.placed, rows)
        elif self.on_device:
            from panda_mdp.compute.jax.device import weighted_sums

            out = weighted_sums(self.domain, self.outputs, self.power, rows)
        else:
            out = sum((rows[:, part] @ block for part, block in self.blocks()), np.zeros(1))
        return out if np.ndim(weights) == 2 else out[0]

    def min(self, axis: Literal[1]) -> FloatArray:
        """The least loss of every record."""
        if len(np.unique(self.outputs)) == len(self):
            return np.zeros(len(self))
        return np.concatenate([block.min(axis=axis) for _, block in self.blocks()])

    def blocks(self) -> Iterator[tuple[slice, FloatArray]]:
        """All losses, some records at a time."""
        # Of many dimensions blocks of distances are matrix products.
        many = self.domain.metric.embedding.shape[1] >= PRODUCT_DIMENSIONS
        if many or not has_numba():
            for rows, block in self.domain.blocks(self.outputs):
                yield rows, self._powers(block)
            return
        from panda_mdp.compute.numba.distance import loss_rows

        size, outputs = self.shape
        step = max(1, BLOCK_ENTRIES // outputs)
        for begin in range(0, size, step):
            out = np.empty((min(step, size - begin), outputs))
            in_parts(loss_rows, len(out), self._places, begin, size, self.power, out)
            yield slice(begin, begin + len(out)), out

    def stored(self) -> FloatArray:
        """All losses as one array, however many: where a table of their shape is made anyway."""
        out = np.empty(self.shape)
        for rows, block in self.blocks():
            out[rows] = block
        return out

    @cached_property
    def _places(self) -> Coordinates:
        """Records and, behind them, the outputs, as the compiled loops take them."""
        return coordinates(self.domain.metric, np.append(np.arange(len(self)), self.outputs))


class UnknownLoss:
    """The losses of a table whose file left them out: a shape, what names them, and an error for
    whoever needs them.

    >>> UnknownLoss((3, 2), "")
    UnknownLoss(3 x 2)
    """

    ndim = 2
    dtype = np.dtype(np.float64)

    def __init__(self, shape: tuple[int, int], digest: str) -> None:
        self.shape = shape
        self.digest = digest

    def __repr__(self) -> str:
        return f"UnknownLoss({self.shape[0]} x {self.shape[1]})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        raise ProblemError(
            "the table's file holds no losses; pm.Mechanism(problem, table.weights, table.method) "
            "puts it back into the problem that it was made for"
        )

    def __getitem__(self, key: Any) -> FloatArray:
        return np.asarray(self)
