"""The first-order method with a bound on the gradient in every triangle."""

from __future__ import annotations

import math

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.compute.numba.cones import cone, run
from panda_mdp.methods.optimal.cpu_solver import Float32Halpern
from panda_mdp.methods.optimal.halpern import (
    ROW_PULL,
    SCALE_ANEW,
    START_WEIGHT,
    incidence,
    root_scale,
)


class ConeSolver(Float32Halpern):
    """min sum `cost` z over tables whose triangles lie in the cone of a slope (numba/cones.py).

    `cost` is p c, (K, m), or 0: then the iterates go from `start` to a table near it that keeps the
    slope, which takes far fewer of them.
    """

    def __init__(
        self, cost: FloatArray, corners: IntArray, slope: float, start: FloatArray
    ) -> None:
        self.corners = corners
        self.weight = START_WEIGHT
        self.iterations = 0
        self.residual = math.inf
        self._scale_anew = SCALE_ANEW
        self.unit = float(cost.mean()) or 1.0
        scale = root_scale(start)
        self._row_sums = scale.sum(axis=1)
        self.shape = cone(slope)  # type: ignore[no-untyped-call]
        self.start, self.slot = incidence(corners, len(start))
        self.degree = np.diff(self.start)
        self._begin(cost, scale, start)
        self._connect(corners)
        self._restart()

    def _connect(self, source: IntArray) -> None:
        self._u = np.zeros((len(source), 3, self._x.shape[1]), dtype=np.float32)

    def _rescale(self) -> None:
        scale = root_scale(np.maximum(self._x, 0) * self._scale)
        before, after = (s[self.corners].max(axis=1) for s in (self._scale, scale))
        self._u *= (after / before)[:, None]
        self._x *= self._scale / scale
        self._scale, self._row_sums = scale, scale.sum(axis=1, dtype=np.float64)

    def _iterate(self, steps: int, since: int) -> float:
        moved = np.zeros(3)
        run(
            steps,
            since,
            self._x,
            self._x0,
            self._mid,
            self._mu,
            self._mu0,
            self._u,
            self._u0,
            self._cost,
            self._scale,
            self.corners,
            self.start,
            self.slot,
            self.shape,
            np.float32(self.weight),
            np.float32(self.weight * ROW_PULL),
            (self.weight * ROW_PULL / self._row_sums).astype(np.float32),
            moved,
        )
        return float(moved.sum())

    def matrix(self) -> FloatArray:
        """The current table: non-negative, rows near 1, gradients nearly within the bound."""
        return np.asarray(np.maximum(self._x, 0) * self._scale, dtype=np.float64)

    def bound(self) -> float:
        """About the least loss of tables that keep the slope, from the current multipliers."""
        largest = self._scale[self.corners].max(axis=1)
        shares = self._u / largest[:, None, :]
        reduced = self._cost.astype(np.float64)
        for corner in range(3):
            np.add.at(reduced, self.corners[:, corner], shares[:, corner])
        return float(self.unit * reduced.min(axis=1).sum())
