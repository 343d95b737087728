"""The first-order method over triangles, and from a table whose gradients nearly fit to one that
fits in every triangle.

The solver's own iterations, without a cost and from that table on, bring it within the slope of
every triangle: they move mass both ways, and end near where they began, after a few hundred. In
turn with them vertices beyond the area, whose shortest ways may leave the mesh, are raised over
pairs. What is then still open is closed by mixing in a row that is common to all: tables that keep
every bound form a convex set.
"""

from __future__ import annotations

import math

import numpy as np
import scipy

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray, incidence
from panda_mdp.base.threads import check_time
from panda_mdp.compute.numba.mesh import cone, raise_pairs, run
from panda_mdp.compute.numba.pdhg import Edges, Point
from panda_mdp.methods.optimal.halpern import ROW_PULL, Float32Halpern, root_scale
from panda_mdp.privacy.audit import audit_weights
from panda_mdp.privacy.continuous import triangle_rates
from panda_mdp.privacy.quantise import quantise
from panda_mdp.problem import Problem
from panda_mdp.space.mesh import Mesh
from panda_mdp.table.mechanism import mix, normalise


class ConeSolver(Float32Halpern):
    """min sum `cost` z over tables whose triangles lie in the cone of a slope (numba/mesh.py).

    `cost` is p c, (K, m), or 0: then the iterates go from `start` to a table near it that keeps the
    slope, which takes far fewer of them.
    """

    def __init__(
        self, cost: FloatArray, corners: IntArray, slope: float, start: FloatArray
    ) -> None:
        super().__init__()
        self.corners = corners
        scale = root_scale(start)
        self._row_sums = scale.sum(axis=1)
        self.shape = cone(slope)  # type: ignore[no-untyped-call]
        self.start, self.slot = incidence(corners, len(start))
        self.degree = np.diff(self.start)
        self._place(cost, scale, start)
        rows = np.arange(len(start) + 1)
        none = np.empty(0, np.int64)
        self._parts = rows[:-1], rows, rows[:-1]
        self._edges = Edges(
            none[:, None], self._mu[:0], none, none, none, np.zeros_like(rows), none
        )
        self._u = np.zeros((len(corners), 3, start.shape[1]), dtype=np.float32)
        self._restart()

    def _rescale(self) -> None:
        scale = root_scale(self._table())
        before, after = (s[self.corners].max(axis=1) for s in (self._scale, scale))
        self._u *= (after / before)[:, None]
        self._x *= self._scale / scale
        self._scale = scale
        self._row_sums = scale.sum(axis=1, dtype=float)

    def _iterate(self, steps: int, since: int) -> float:
        moved = np.zeros(3)
        run(
            steps,
            since,
            Point(self._x, self._mu, self._u),
            Point(self._x0, self._mu0, self._u0),
            self._mid,
            self._adjoint,
            self._nodes(),
            self._edges,
            self.corners,
            self.start,
            self.slot,
            self.shape,
            np.float32(self.weight),
            np.float32(self.weight * ROW_PULL),
            moved,
        )
        return float(moved.sum())

    def matrix(self) -> FloatArray:
        """The current table: non-negative, rows near 1, gradients nearly within the bound."""
        return self._table().astype(float)

    def bound(self) -> float:
        """About the least loss of tables that keep the slope, from the current multipliers."""
        shares = self._u / self._scale[self.corners].max(axis=1)[:, None, :]
        reduced = self._cost.astype(float)
        for corner in range(3):
            np.add.at(reduced, self.corners[:, corner], shares[:, corner])
        return float(self.unit * reduced.min(axis=1).sum())


SLACK = 5e-4
"""By which the slope of the iterations is below the one that is allowed: they are not exact."""
POLISHING = 600
BLOCK = 40
"""Iterations at the most that bring a table within the slope, and how many between two looks."""
TURNS = 12
"""Of bringing triangles within the slope and raising pairs beyond the area."""
FAINT = 3e-3
"""Of any row: what outputs that are given up hold together, at the most. An iterate leaves crumbs
of outputs that the best table does not use, and crumbs take long to fit."""
PAIR_SLACK = 5e-3
"""As `SLACK`, for pairs of vertices beyond the area, where nobody is: it costs next to nothing."""
MARGIN = 1e-6
"""What is left of epsilon for quantising to integers."""
SHARES = 14
"""Halvings of the share of a common row that is mixed in where nothing else fits."""
NEAR_SIDES = 12


class MeshRepair:
    """Repairs tables of one problem."""

    def __init__(self, problem: Problem, mesh: Mesh) -> None:
        self.problem = problem
        self.mesh = mesh
        self.limits = problem.epsilon / mesh.stretch
        """Of the rate in the plane, by triangle."""
        self.pairs = self._outer_pairs()

    def _outer_pairs(self) -> tuple[IntArray, FloatArray]:
        """Pairs of vertices of which one is beyond the area, and by how much they may differ.

        Far ones are seldom open, and left to the mixing.
        """
        tree = scipy.spatial.cKDTree(self.mesh.plane)
        ends = tree.query_pairs(NEAR_SIDES * self.mesh.spacing, output_type="ndarray")
        ends = ends[~self.mesh.covered[ends].all(axis=1)].astype(np.int64)
        distance = self.problem.domain.metric.pairs(ends[:, 0], ends[:, 1])
        return ends, np.exp(-self.problem.epsilon * (1 - PAIR_SLACK) * distance)

    def excess(self, matrix: FloatArray) -> FloatArray:
        """Rates over their limits, (T, m)."""
        return triangle_rates(matrix[self.mesh.triangles], self.mesh.spacing) / self.limits[:, None]

    def fits(self, matrix: FloatArray) -> bool:
        """Whether all rates are within their limits, with room for quantising, and all pairs."""
        check_time()
        if self.excess(matrix).max() > 1 - MARGIN:
            return False
        problem = self.problem
        weights = quantise(matrix)
        return audit_weights(problem.domain, problem.outputs, weights, problem.epsilon).holds

    @property
    def slope(self) -> float:
        """Of the cones in which the iterations hold a triangle's corners (numba/mesh.py)."""
        return self.limits.min() * self.mesh.spacing / math.sqrt(2) * (1 - SLACK)

    def run(self, matrix: FloatArray) -> FloatArray:
        """A table near `matrix` that fits: triangles brought within the slope and pairs beyond the
        area raised, in turn; where that does not end, mixed with one that fits."""
        rows = normalise(matrix)
        used = ~faint(rows)
        moved = np.zeros_like(rows)
        part = self._polished(normalise(rows[:, used]))
        for _ in range(TURNS):
            moved[:, used] = part
            if self.fits(moved):
                return moved
            columns = part.T.copy()
            raise_pairs(columns, *self.pairs)
            part = self._polished(normalise(columns.T))
        return self._mixed(moved)

    def _polished(self, rows: FloatArray) -> FloatArray:
        """Iterations without a cost, from `rows`, until triangles fit."""
        solver = ConeSolver(np.zeros_like(rows), self.mesh.triangles, self.slope, rows)
        while self.excess(rows).max() > 1 - MARGIN and solver.iterations < POLISHING:
            check_time()
            solver.advance(BLOCK)
            rows = normalise(solver.matrix())
        return rows

    def _mixed(self, rows: FloatArray) -> FloatArray:
        """The table and as little as will do of the row that is the mean of all."""
        mean = self.problem.prior @ rows
        low = 0.0
        high = 1.0
        for _ in range(SHARES):
            middle = (low + high) / 2
            low, high = (low, middle) if self.fits(mix(rows, middle, mean)) else (middle, high)
        return mix(rows, high, mean)


def faint(matrix: FloatArray) -> BoolArray:
    """Outputs, from the one whose largest entry is least on, that hold less than `FAINT` of any
    row together."""
    order = np.argsort(matrix.max(axis=0), kind="stable")
    few = np.zeros(len(order), bool)
    few[order] = np.cumsum(matrix[:, order], axis=1).max(axis=0) < FAINT
    return few
