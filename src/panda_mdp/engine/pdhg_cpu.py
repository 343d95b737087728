"""The structured first-order solver on the CPU: restarted, reflected Halpern PDHG.

Solves, over the edges of a constraint graph,

    min sum_x p_x c_xy z_xy   s.t.  sum_y z_xy = 1,  z >= 0,
                                    (z_iy, z_jy) in C_ij for every edge (i, j) and output y,

with C_ij = {a <= e^t b, b <= e^t a}, t = epsilon d(i, j). Each edge holds a copy of its two rows
and one dual vector in the polar cone, so both inequalities are projected on at once. The table is
scaled by the root of a first guess (kernels/pdhg.py); steps are diagonal (Pock and Chambolle
2011). The iteration is r2HPDHG (Lu and Yang 2024), restarted on the fixed-point
residual, with the primal weight balanced at restarts. No matrix is formed; float32 throughout:
what is certified is computed in float64 from whatever the iterates are.
"""

from __future__ import annotations

import math

import numpy as np

from panda_mdp._arrays import Float32Array, FloatArray, IntArray
from panda_mdp.engine.graph import Graph
from panda_mdp.kernels.bound import least_reduced_costs
from panda_mdp.kernels.pdhg import run
from panda_mdp.problem import Problem

CHECK = 40
ROW_PULL = 5.0
START_WEIGHT = 1.0
SMALLEST = 3e-3
"""Entries below this share of a row are scaled alike: they carry little of the loss."""
SUFFICIENT, NECESSARY, ARTIFICIAL = 0.2, 0.8, 0.36


class CpuSolver:
    """Iterates on one problem; the graph can be extended while it runs."""

    def __init__(self, problem: Problem, graph: Graph, start: FloatArray) -> None:
        self.problem = problem
        self.order = problem.domain.tiles.order
        self.place = np.argsort(self.order)
        self._cost64 = np.ascontiguousarray(problem.weighted_loss[self.order])
        # Costs of order 1 make one starting weight fit all problems.
        self._unit = float(self._cost64.mean()) or 1.0
        self._cost = np.ascontiguousarray(self._cost64 / self._unit, dtype=np.float32)
        z = start[self.order]
        scale = np.sqrt(np.maximum(z, SMALLEST))
        scale = np.ascontiguousarray(scale / scale.mean(), dtype=np.float32)
        self._scale, self._inverse = scale, 1 / scale
        self._scale_sums = scale.sum(axis=1)
        self._x = np.ascontiguousarray(z / scale, dtype=np.float32)
        self._mu = np.zeros(problem.size, dtype=np.float32)
        self._u = np.zeros((0, 2, problem.outputs_count), dtype=np.float32)
        self._mid = np.empty_like(self._x)
        self.weight = START_WEIGHT
        self.iterations = 0
        self.residual = math.inf
        self.graph = Graph(np.empty((0, 2), dtype=np.int64), np.empty(0))
        self.extend(graph)

    def extend(self, graph: Graph) -> None:
        """Constrain the edges of `graph` as well; what was reached so far is kept."""
        joined = self.graph.join(graph.ends, graph.length)
        ends = np.sort(self.place[joined.ends], axis=1)
        along = np.lexsort((ends[:, 1], ends[:, 0]))
        u = np.zeros((joined.count, 2, self._x.shape[1]), dtype=np.float32)
        old = along < len(self._u)
        swap = self.place[joined.ends[:, 0]] > self.place[joined.ends[:, 1]]
        u[old] = self._u[along[old]]
        self._u = u
        # Sides follow the order in space, so that an old edge keeps its two rows.
        ordered = np.where(swap[:, None], joined.ends[:, ::-1], joined.ends)
        self.graph = Graph(ordered[along], joined.length[along])
        self._ends = np.ascontiguousarray(ends[along])
        exponent = self.problem.epsilon * self.graph.length
        self._growth32 = np.exp(exponent).astype(np.float32)
        # Upper bounds on exp(epsilon d): a looser constraint keeps the lower bound rigorous.
        error = self.problem.domain.metric.relative_error + 4e-16
        self._growth = np.exp(exponent * (1 + error)) * (1 + 1e-15)
        self._start, self._slot = incidence(self._ends, self.problem.size)
        self._degree = np.diff(self._start)
        self._restart()

    def _restart(self) -> None:
        self._x0, self._mu0, self._u0 = self._x.copy(), self._mu.copy(), self._u.copy()
        self._since = 0
        self._first: float | None = None
        self._last: float | None = None

    def advance(self, iterations: int) -> None:
        """At least `iterations` more iterations, in blocks of a few dozen."""
        target = self.iterations + iterations
        while self.iterations < target:
            self._block()

    def _block(self) -> None:
        moved = np.zeros(3)
        run(
            CHECK,
            self._since,
            self._x,
            self._x0,
            self._mid,
            self._mu,
            self._mu0,
            self._u,
            self._u0,
            self._cost,
            self._scale,
            self._inverse,
            self._start,
            self._slot,
            self._ends,
            self._growth32,
            (self.weight * self._degree).astype(np.float32),
            np.float32(self.weight),
            np.float32(self.weight * ROW_PULL),
            (self.weight * ROW_PULL / self._scale_sums).astype(np.float32),
            moved,
        )
        self.iterations += CHECK
        self._since += CHECK
        residual = self.residual = math.sqrt(moved.sum())
        if self._first is None:
            self._first = residual
        stalled = self._last is not None and residual > self._last
        if (
            residual <= SUFFICIENT * self._first
            or (residual <= NECESSARY * self._first and stalled)
            or self._since >= ARTIFICIAL * self.iterations
        ):
            self._balance()
            self._restart()
        else:
            self._last = residual

    def _balance(self) -> None:
        """Move the primal weight towards equal travel of primal and dual since the restart."""
        step = self._x - self._x0
        stiff = self._degree[:, None] + ROW_PULL * self._scale
        primal = math.sqrt(float(np.einsum("ij,ij,ij->", step, step, stiff)))
        rise = (self._mu - self._mu0).astype(np.float64)
        row = float(rise**2 @ self._scale_sums) / ROW_PULL
        dual = math.sqrt(squared_distance(self._u, self._u0) + row)
        if primal > 1e-12 and dual > 1e-12:
            self.weight = math.sqrt(self.weight * dual / primal)

    def matrix(self) -> FloatArray:
        """The current table in the domain's order: non-negative, rows near 1, nearly feasible."""
        z = np.maximum(self._x, 0) * self._scale
        return z[self.place].astype(np.float64)

    def bound(self) -> float:
        """A rigorous lower bound on the true problem's optimum from the current multipliers."""
        least = least_reduced_costs(
            self._cost64,
            self._u,
            self._inverse,
            self._ends,
            self._start,
            self._slot,
            self._growth,
            self._unit,
        )
        total = math.fsum(least)
        return total - 1e-15 * abs(total)


def squared_distance(first: Float32Array, second: Float32Array) -> float:
    """Squared distance of two large float32 arrays, summed in float64 without a full copy."""
    total = 0.0
    for a, b in zip(first, second, strict=True):
        step = (a - b).ravel()
        total += float(step @ step)
    return total


def incidence(ends: IntArray, records: int) -> tuple[IntArray, IntArray]:
    """CSR lists of edge slots (2 edge + side) by record: offsets and slots."""
    flat = ends.ravel()
    slot = np.argsort(flat, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(flat, minlength=records))])
    return start.astype(np.int64), slot.astype(np.int64)
