"""The structured first-order method: restarted, reflected Halpern PDHG.

Solves, over the edges of a constraint graph,

    min sum_x p_x c_xy z_xy   s.t.  sum_y z_xy = 1,  z >= 0,
                                    (z_iy, z_jy) in C_ij for every edge (i, j) and output y,

with C_ij = {a <= e^t b, b <= e^t a}, t = epsilon d(i, j). Each edge holds a copy of its two rows
and one dual vector in the polar cone, so both inequalities are projected on at once. The table is
scaled by the root of a guess, at first a closed form's and then the table's own
(compute/numba/pdhg.py); steps are diagonal (Pock and Chambolle 2011). The iteration is r2HPDHG (Lu
and Yang 2024), restarted on the fixed-point residual, with the primal weight balanced at restarts.
No matrix is formed; float32 throughout: what is certified is computed in float64 from whatever the
iterates are.

`Halpern` holds the method, `graph_solver.py` what all machines share for a program and the arrays
of compiled loops over nodes and edges on all cores, `jax_solver.py` those on accelerators.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from panda_mdp.base.arrays import AnyArray, Float32Array, FloatArray, IntArray

CHECK = 40
ROW_PULL = 5.0
SMALLEST = 3e-3
"""Entries below this share of a row are scaled alike: they carry little of the loss."""
SCALE_ANEW = 40
"""Iterations after which the scale follows the table, and then whenever they have doubled: it is
far nearer to the end by then than any first guess."""
SUFFICIENT = 0.2
NECESSARY = 0.8
ARTIFICIAL = 0.36


class Pace(NamedTuple):
    """How far multipliers go at a time."""

    start_weight: float = 1.0
    """Of the first iterations."""
    most_weight: float = 30.0
    """Where the primal has come to rest its travel is rounding alone; a weight that follows it
    without limit (thousands were seen) drowns the multipliers in rounding."""


PACE = Pace()
ALONG_EDGES = Pace(10.0, 60.0)
"""Where few edges alone are constrained: multipliers have to travel through all of them and
become larger than where many pairs share them."""
FEW_EDGES = 3
"""For each record: no graph in a plane has more, and those of some nodes of a map have many."""


class Halpern(ABC):
    """The iteration, its restarts and its weight; a machine makes the steps."""

    def __init__(self, pace: Pace = PACE) -> None:
        self.pace = pace
        self.weight = pace.start_weight
        self.iterations = 0
        self.residual = math.inf
        self._scale_anew = SCALE_ANEW

    rescales = True
    """Whether the scale follows the table."""

    @abstractmethod
    def _anchor(self) -> None:
        """Make the current point the anchor of the Halpern iteration."""

    @abstractmethod
    def _iterate(self, steps: int, since: int) -> float:
        """Make `steps` iterations, `since` after the anchor; the squared residual of the last."""

    @abstractmethod
    def _rescale(self) -> None:
        """Scale by the root of the current table; a restart follows."""

    @abstractmethod
    def _travel(self) -> tuple[float, float]:
        """Step-weighted squared distances of primal and dual from the anchor."""

    def _restart(self) -> None:
        self._anchor()
        self._since = 0
        self._first: float | None = None
        self._last: float | None = None

    def advance(self, iterations: int) -> None:
        """At least `iterations` more iterations, in blocks of a few dozen."""
        target = self.iterations + iterations
        while self.iterations < target:
            self._block()

    def _block(self) -> None:
        residual = self.residual = math.sqrt(self._iterate(CHECK, self._since))
        self.iterations += CHECK
        self._since += CHECK
        if self._first is None:
            self._first = residual
        stalled = self._last is not None and residual > self._last
        if (
            residual <= SUFFICIENT * self._first
            or (residual <= NECESSARY * self._first and stalled)
            or self._since >= ARTIFICIAL * self.iterations
        ):
            self._balance()
            if self.rescales and self.iterations >= self._scale_anew:
                self._rescale()
                self._scale_anew = 2 * self.iterations
            self._restart()
        else:
            self._last = residual

    def _balance(self) -> None:
        """Move the primal weight towards equal travel of primal and dual since the restart."""
        primal, dual = self._travel()
        if primal > 1e-24 and dual > 1e-24:
            weight = math.sqrt(self.weight * math.sqrt(dual / primal))
            most = self.pace.most_weight
            self.weight = min(max(weight, 1 / most), most)


def root_scale(z: AnyArray) -> AnyArray:
    """The scale D of a table: its root over a floor, of mean 1."""
    scale = np.sqrt(np.maximum(z, np.asarray(SMALLEST, dtype=z.dtype)))
    return scale / scale.mean()


FAINTEST = 1e-24
ROWS_AT_ONCE = 64


class Float32Halpern(Halpern):
    """What solvers with compiled loops share: arrays in float32, outputs contiguous."""

    degree: AnyArray
    unit: float
    _row_sums: FloatArray
    """The scale's sums by record."""
    _parts: tuple[IntArray, IntArray, IntArray]
    """The row of every node, and the nodes of every row: offsets and nodes."""

    def _place(self, cost: FloatArray, scale: FloatArray, z: FloatArray) -> None:
        """Take over p c, the scale D and the table to start from."""
        # Costs of order 1 make one starting weight fit all problems.
        self.unit = float(cost.mean()) or 1.0
        self._cost = np.ascontiguousarray(cost / self.unit, dtype=np.float32)
        self._scale = np.ascontiguousarray(scale, dtype=np.float32)
        self._x = np.ascontiguousarray(z / scale, dtype=np.float32)
        self._mu = np.zeros(len(self._row_sums), np.float32)
        self._u = np.zeros((0, 2, z.shape[1]), np.float32)
        self._x0, self._mu0, self._u0 = self._x.copy(), self._mu.copy(), self._u.copy()
        self._mid, self._adjoint = np.empty_like(self._x), np.zeros_like(self._x)

    def _nodes(self) -> Any:
        """What the compiled loops read of nodes and rows, at the present weight."""
        from panda_mdp.compute.numba.pdhg import Nodes

        return Nodes(
            self._cost,
            self._scale,
            *self._parts,
            (self.weight * self.degree).astype(np.float32),
            (self.weight * ROW_PULL / self._row_sums).astype(np.float32),
        )

    def _anchor(self) -> None:
        # Entries that come to rest at 0 shrink a millionfold with every restart, and numbers too
        # small for float32's exponent make the loops several times slower.
        self._x[np.abs(self._x) < FAINTEST] = 0
        # In place where it can be: fresh pages for the largest arrays cost as much as copying.
        self._x0[...], self._mu0[...] = self._x, self._mu
        if self._u0.shape != self._u.shape:
            self._u0 = np.empty_like(self._u)
        self._u0[...] = self._u

    def _travel(self) -> tuple[float, float]:
        step = self._x - self._x0
        stiff = self.degree[:, None] + ROW_PULL * self._scale
        rise = (self._mu - self._mu0).astype(float)
        row = float(rise**2 @ self._row_sums) / ROW_PULL
        primal = float(np.einsum("ij,ij,ij->", step, step, stiff))
        return primal, squared_distance(self._u, self._u0) + row

    def _table(self) -> AnyArray:
        """The current table on the nodes."""
        return np.maximum(self._x, 0) * self._scale


def squared_distance(first: Float32Array, second: Float32Array) -> float:
    """Squared distance of two large float32 arrays, summed in float64 without a full copy."""
    parts = (slice(k, k + ROWS_AT_ONCE) for k in range(0, len(first), ROWS_AT_ONCE))
    # Not as a product of vectors: BLAS sums in an order that depends on its threads.
    squares = (np.square(first[rows] - second[rows]) for rows in parts)
    return sum(float(square.sum(dtype=float)) for square in squares)
