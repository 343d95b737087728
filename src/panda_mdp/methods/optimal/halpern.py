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

`Halpern` holds what all machines share; `cpu_solver` and `jax_solver` hold the arrays.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.methods.optimal.graph import Graph
from panda_mdp.problem import Problem
from panda_mdp.table.bound import BoundProof

CHECK = 40
ROW_PULL = 5.0
START_WEIGHT = 1.0
MOST_WEIGHT = 30.0
"""Where the primal has come to rest its travel is rounding alone; a weight that follows it without
limit (thousands were seen) drowns the multipliers in rounding."""
SMALLEST = 3e-3
"""Entries below this share of a row are scaled alike: they carry little of the loss."""
SCALE_ANEW = 40
"""Iterations after which the scale follows the table, and then whenever they have doubled: it is
far nearer to the end by then than any first guess."""
SUFFICIENT, NECESSARY, ARTIFICIAL = 0.2, 0.8, 0.36


class Halpern(ABC):
    """Iterates on one problem; the graph can be extended while it runs."""

    def __init__(self, problem: Problem, graph: Graph, start: FloatArray) -> None:
        self.problem = problem
        self.order = problem.domain.tiles.order
        self.place = np.argsort(self.order)
        self.weight = START_WEIGHT
        self.iterations = 0
        self.residual = math.inf
        self._scale_anew = SCALE_ANEW
        self._start(start)
        self.graph = Graph(np.empty((0, 2), dtype=np.int64), np.empty(0))
        self.extend(graph)

    def _start(self, start: FloatArray) -> None:
        """Take over the problem's costs and a table to start from."""
        cost = np.ascontiguousarray(self.problem.weighted_loss[self.order])
        # Costs of order 1 make one starting weight fit all problems.
        self.unit = float(cost.mean()) or 1.0
        z = start[self.order]
        scale = np.ascontiguousarray(root_scale(z))
        self.scale_sums = scale.sum(axis=1)
        self._begin(cost, scale, z)

    @abstractmethod
    def _begin(self, cost: FloatArray, scale: FloatArray, z: FloatArray) -> None:
        """Take over p c, the scale D and the starting table, along the order in space."""

    @abstractmethod
    def _connect(self, source: IntArray) -> None:
        """Take over `graph`, `ends` and the rest; edge e continues old edge source[e], or none
        where that is -1."""

    @abstractmethod
    def _anchor(self) -> None:
        """Make the current point the anchor of the Halpern iteration."""

    @abstractmethod
    def _iterate(self, steps: int, since: int) -> float:
        """Make `steps` iterations, `since` after the anchor; the squared residual of the last."""

    def _rescale(self) -> None:  # noqa: B027 - a machine need not
        """Scale by the root of the current table where the machine can; a restart follows."""

    @abstractmethod
    def _travel(self) -> tuple[float, float]:
        """Step-weighted squared distances of primal and dual from the anchor."""

    @abstractmethod
    def matrix(self) -> FloatArray:
        """The current table in the domain's order: non-negative, rows near 1, nearly feasible."""

    def table(self) -> FloatArray:
        """`matrix` as the closure of the same machine takes it."""
        return self.matrix()

    @abstractmethod
    def bound(self) -> float:
        """A rigorous lower bound on the true problem's optimum from the current multipliers."""

    def proof(self) -> BoundProof | None:
        """What `bound` rests on, in the form that a file holds; None where it cannot be had."""
        return None

    def extend(self, graph: Graph) -> None:
        """Constrain the edges of `graph` as well; what was reached so far is kept."""
        known = self.graph.count
        joined = self.graph.join(graph.ends, graph.length)
        # Sides follow the order in space, so that an old edge keeps its two rows.
        swap = self.place[joined.ends[:, 0]] > self.place[joined.ends[:, 1]]
        ordered = np.where(swap[:, None], joined.ends[:, ::-1], joined.ends)
        ends = self.place[ordered]
        # Two sorted lists behind each other, as a rule: merged, not sorted.
        along = np.argsort(ends[:, 0] * self.problem.size + ends[:, 1], kind="stable")
        self.graph = Graph(ordered[along], joined.length[along])
        self.ends = np.ascontiguousarray(ends[along])
        exponent = self.problem.epsilon * self.graph.length
        self.growth = np.exp(exponent)
        # Upper bounds on exp(epsilon d): a looser constraint keeps the lower bound rigorous.
        error = self.problem.domain.metric.relative_error + 4e-16
        self.growth_above = np.exp(exponent * (1 + error)) * (1 + 1e-15)
        vars(self).pop("incident", None)
        count = np.bincount(self.ends.ravel(), minlength=self.problem.size)
        self.degree: npt.NDArray[Any] = count
        self._connect(np.where(along < known, along, -1))
        self._restart()

    @cached_property
    def incident(self) -> tuple[IntArray, IntArray]:
        """The edges of every record: `incidence`."""
        return incidence(self.ends, self.problem.size)

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
            if self.iterations >= self._scale_anew:
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
            self.weight = min(max(weight, 1 / MOST_WEIGHT), MOST_WEIGHT)


def root_scale(z: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The scale D of a table: its root over a floor, of mean 1."""
    scale = np.sqrt(np.maximum(z, np.asarray(SMALLEST, dtype=z.dtype)))
    return np.asarray(scale / scale.mean())


def incidence(ends: IntArray, records: int) -> tuple[IntArray, IntArray]:
    """CSR lists of edge slots (2 edge + side) by record: offsets and slots."""
    flat = ends.ravel()
    slot = np.argsort(flat, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(flat, minlength=records))])
    return start.astype(np.int64), slot.astype(np.int64)
