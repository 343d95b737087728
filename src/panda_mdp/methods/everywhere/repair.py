"""From a table whose gradients nearly fit to one that fits in every triangle.

The solver's own iterations, without a cost and from that table on, bring it within the slope of
every triangle: they move mass both ways, and end near where they began, after a few hundred. In
turn with them vertices beyond the area, whose shortest ways may leave the mesh, are raised over
pairs. Where that does not end, columns are raised until every triangle keeps its bound
(compute/numba/raising.py) and rows normalised, in turn, with bounds tightened a little where a
triangle stays open. What is then still open is closed by mixing in a table that is private along
the sides of triangles at so small an epsilon that it keeps every bound with room: tables that keep
them form a convex set.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.compute.closure import Closure
from panda_mdp.compute.numba.raising import raise_columns, raise_pairs
from panda_mdp.methods.everywhere.cone_solver import ConeSolver
from panda_mdp.privacy.audit import audit_weights
from panda_mdp.privacy.continuous import triangle_rates
from panda_mdp.privacy.quantise import quantise
from panda_mdp.privacy.repair import repair
from panda_mdp.problem import Problem
from panda_mdp.space.mesh import Mesh
from panda_mdp.table.release import floor_row

SLACK = 5e-4
"""By which the slope of the iterations is below the one that is allowed: they are not exact."""
POLISHING, BLOCK = 600, 40
"""Iterations at the most that bring a table within the slope, and how many between two looks."""
TURNS = 12
"""Of bringing triangles within the slope and raising pairs beyond the area."""
FAINT = 3e-3
"""Of any row: what outputs that are given up hold together, at the most. An iterate leaves crumbs
of outputs that the best table does not use, and crumbs take long to fit."""
PAIR_SLACK = 5e-3
"""As `SLACK`, for pairs of vertices beyond the area, where nobody is: it costs next to nothing."""
DEAR = 0.03
"""Rise of the loss from which on raising is tried as well: the table was far from fitting."""
TIGHTENING = 1e-3
ROUNDS, FREE_ROUNDS = 80, 20
"""Rounds in all, and those before bounds are tightened."""
GAIN = 0.5
"""Of what a triangle exceeds its bound by: how much the bound is tightened for the next round."""
SWEEPS, SETTLED = 1_000, 1e-6
MARGIN = 1e-6
"""What is left of epsilon for quantising to integers."""
ROOM = (0.92, 0.8, 0.6)
"""Shares of the largest epsilon along sides at which the table that is mixed in is private."""
SHARES = 14
NEAR_SIDES = 12


class MeshRepair:
    """Repairs tables of one problem."""

    def __init__(self, problem: Problem, mesh: Mesh, closure: Closure) -> None:
        self.problem, self.mesh, self.closure = problem, mesh, closure
        self.limits = problem.epsilon / mesh.stretch
        """Of the rate in the plane, by triangle."""
        self.pairs = self._outer_pairs()

    def _outer_pairs(self) -> tuple[IntArray, FloatArray]:
        """Pairs of vertices of which one is beyond the area, and by how much they may differ.

        Far ones are seldom open, and left to the mixing.
        """
        mesh, domain = self.mesh, self.problem.domain
        outer = np.flatnonzero(~mesh.covered)
        if not len(outer):
            return np.empty((0, 2), dtype=np.int64), np.empty(0)
        tree = scipy.spatial.cKDTree(mesh.plane)
        near: Any = tree.query_ball_point(mesh.plane[outer], NEAR_SIDES * mesh.spacing)
        ends = np.array(
            [(x, y) for x, some in zip(outer, near, strict=True) for y in some if x != y]
        )
        ends = np.unique(np.sort(ends, axis=1), axis=0)
        distance = domain.metric.pairs(ends[:, 0], ends[:, 1])
        return ends, np.exp(-self.problem.epsilon * (1 - PAIR_SLACK) * distance)

    def excess(self, matrix: FloatArray) -> FloatArray:
        """Rates over their limits, (T, m)."""
        rates = triangle_rates(matrix[self.mesh.triangles], self.mesh.spacing)
        return np.asarray(rates / self.limits[:, None])

    def fits(self, matrix: FloatArray) -> bool:
        """Whether all rates are within their limits, with room for quantising, and all pairs."""
        if self.excess(matrix).max() > 1 - MARGIN:
            return False
        problem = self.problem
        weights = quantise(matrix)
        return audit_weights(problem.domain, problem.outputs, weights, problem.epsilon).holds

    @property
    def slope(self) -> float:
        """Of the cones in which the iterations hold a triangle's corners (numba/cones.py)."""
        return float(self.limits.min()) * self.mesh.spacing / math.sqrt(2) * (1 - SLACK)

    def run(self, matrix: FloatArray) -> FloatArray:
        """A table near `matrix` that fits."""
        rows = scaled(matrix)
        near = self._moved(rows)
        if self.problem.expected_loss(near) <= (1 + DEAR) * self.problem.expected_loss(rows):
            return near
        return min(near, self._closed(self._raised(rows)), key=self.problem.expected_loss)

    def _moved(self, rows: FloatArray) -> FloatArray:
        """Triangles brought within the slope and pairs beyond the area raised, in turn."""
        used = ~faint(rows)
        moved = np.zeros_like(rows)
        part = self._polished(scaled(rows[:, used]))
        for _ in range(TURNS):
            moved[:, used] = part
            if self.fits(moved):
                return moved
            columns = part.T.copy()
            raise_pairs(columns, *self.pairs)
            part = self._polished(scaled(columns.T))
        return self._closed(self._raised(moved))

    def _polished(self, rows: FloatArray) -> FloatArray:
        """Iterations without a cost, from `rows`, until triangles fit."""
        solver = ConeSolver(np.zeros_like(rows), self.mesh.triangles, self.slope, rows)
        while self.excess(rows).max() > 1 - MARGIN and solver.iterations < POLISHING:
            solver.advance(BLOCK)
            rows = scaled(solver.matrix())
        return rows

    def _closed(self, rows: FloatArray) -> FloatArray:
        return rows if self.fits(rows) else self._mixed(rows)

    def _raised(self, rows: FloatArray) -> FloatArray:
        mesh = self.mesh
        columns = rows.T.copy()
        tight = np.full((columns.shape[0], len(mesh.triangles)), TIGHTENING)
        sides = self.limits * mesh.spacing
        for count in range(ROUNDS):
            raise_columns(
                columns, mesh.triangles, 1.5 * (sides * (1 - tight)) ** 2, SETTLED, SWEEPS
            )
            raise_pairs(columns, *self.pairs)
            columns /= columns.sum(axis=0)
            over = self.excess(columns.T).T - (1 - MARGIN)
            if over.max() <= 0:
                break
            if count >= FREE_ROUNDS:
                tight = np.minimum(tight + GAIN * np.maximum(over, 0.0), 0.5)
        return np.ascontiguousarray(columns.T)

    def _mixed(self, rows: FloatArray) -> FloatArray:
        nats = float(self.limits.min()) * self.mesh.spacing
        # Values 1, e^t and e^t are the worst that sides allow: a gradient of 2 (e^t - 1) / sqrt(3).
        along = math.log1p(math.sqrt(0.75) * nats) / self.mesh.spacing
        for share in ROOM:
            floor = floor_row(self.problem, rows)
            safe = repair(self.closure, rows, along * share, floor=floor).matrix
            if self.fits(safe):
                return self._least_mix(rows, safe)
        mean = np.broadcast_to(self.problem.prior @ rows, rows.shape)
        return self._least_mix(rows, mean)

    def _least_mix(self, rows: FloatArray, safe: FloatArray) -> FloatArray:
        low, high = 0.0, 1.0
        for _ in range(SHARES):
            middle = (low + high) / 2
            if self.fits((1 - middle) * rows + middle * safe):
                high = middle
            else:
                low = middle
        return np.asarray((1 - high) * rows + high * safe)


def scaled(rows: FloatArray) -> FloatArray:
    """Rows of sum 1."""
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))


def faint(matrix: FloatArray) -> BoolArray:
    """Outputs, from the one whose largest entry is least on, that hold less than `FAINT` of any
    row together."""
    order = np.argsort(matrix.max(axis=0), kind="stable")
    few = np.zeros(len(order), dtype=np.bool_)
    few[order] = np.cumsum(matrix[:, order], axis=1).max(axis=0) < FAINT
    return few
