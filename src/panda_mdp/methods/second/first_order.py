"""The second objective at the scale of a city: the first-order method of `optimal`, continued.

Minimises loss(z) + price * v(z) by the same iteration, from where the first solve ended. With
v(z) = max over w (on a simplex in every group) of <w, A z> this is a saddle point with one more
dual variable: the cost becomes p c + price A^T w, and w takes a projected ascent step after each
few primal ones. `descent` moves the price until a loss or an objective meets its limit; any price
>= 0 and any w give

    loss(z) + price v(z)  >=  min over private tables of  <p c + price b, z>,   <b, z> <= v(z),

whose right side the solver bounds from below in float64 with all rounding accounted for.
"""

from __future__ import annotations

import math

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.compute.numba.pdhg import onto_simplex
from panda_mdp.methods.optimal.backends import CpuEngine
from panda_mdp.methods.optimal.cpu_solver import CpuSolver
from panda_mdp.methods.optimal.graph import Graph
from panda_mdp.methods.optimal.starts import warm_start
from panda_mdp.methods.second.objectives import Forms, Objective
from panda_mdp.problem import Problem


class TradeOff(CpuSolver):
    """`CpuSolver` whose cost follows an objective's heaviest forms; without one, the same."""

    _goal: Objective | None = None
    at = 0.0

    def aim(self, goal: Objective, at: float) -> None:
        """Minimise loss + `at` v from here on; where the forms are levelled, the loss with every
        form at most -`at`."""
        if self._goal is not goal:
            if self._goal is None:
                self._plain, self._plain64 = self._cost.copy(), self._cost64
                self._own_degree = self.degree
            self._goal = goal
            self._take(goal.forms.permuted(self.program.record))
            values = self._forms.forward(self._table())
            self._w = np.zeros_like(values)
            if not goal.forms.levelled:
                self._w[values.argmax(axis=0), np.arange(values.shape[1])] = 1.0
            self._w0 = self._w.copy()
        self.at = at
        self._rate = (1.0 if goal.forms.levelled else at) / self.unit
        self.degree = self._own_degree + self._forms.stiffness * self._share
        self._restart()

    def follow(self) -> None:
        """Take in the forms that matter for where the table is now."""
        if self._goal is None:
            return
        forms = self._forms.moved(self._table(), self._w)
        if forms is not self._forms:
            self._take(forms)
            self._restart()

    def _take(self, forms: Forms) -> None:
        self._forms = forms
        self._share = forms.shares()
        steep = forms.steepness(self._scale.astype(np.float64) ** 2 / self._share[:, None])
        self._steep = np.maximum(steep, 1e-300)

    def _connect(self, source: IntArray) -> None:
        super()._connect(source)
        if self._goal is not None:
            self._own_degree = self.degree
            self.aim(self._goal, self.at)

    def _rescale(self) -> None:
        """Nothing: a table that an objective moves far from is no guess of where it goes."""

    def _anchor(self) -> None:
        super()._anchor()
        if self._goal is not None:
            self._w0 = self._w.copy()

    def _iterate(self, steps: int, since: int) -> float:
        if self._goal is None:
            return super()._iterate(steps, since)
        moved = 0.0
        together = self._forms.together
        for done in range(0, steps, together):
            pull = self._forms.adjoint(self._w)
            pull *= self._rate
            np.add(self._plain, pull, out=self._cost, casting="same_kind")
            count = min(together, steps - done)
            moved = super()._iterate(count, since + done)
            # With step 1 / (weight stiffness) of the table these are the largest that converge.
            size = self.weight * self._forms.stiffness / (self._rate**2 * self._steep)
            ahead = self._forms.forward(np.asarray(self._mid * self._scale, dtype=np.float64))
            if self._forms.levelled:
                new = np.maximum(self._w + size * self._rate * (ahead + self.at), 0.0)
            else:
                new = onto_simplex(self._w + size * self._rate * ahead)
            if done + count == steps:
                moved += float(((new - self._w) ** 2 / size).sum())
            keep = (since + done + count) / (since + done + count + 1.0)
            self._w = keep * (2 * new - self._w) + (1 - keep) * self._w0
        return moved

    def least_trade(self) -> tuple[float, float, float]:
        """L and a price with loss + price v >= L for every private table, rigorously; and what
        the weights make of v, which comes from below where v comes from above."""
        if self._goal is None:
            return self.bound(), 0.0, 0.0
        levelled = self._forms.levelled
        weights = np.maximum(self._w, 0.0) if levelled else onto_simplex(self._w)
        price = math.fsum(weights.ravel()) if levelled else self.at
        share = 1.0 if levelled else price
        below = self._forms.below(weights)
        weighed = float(np.einsum("xy,xy->", below, self._table()))
        # What rounds the product is within what `below` leaves, and the sum's within the kernel's.
        self._cost64 = np.ascontiguousarray(self._plain64 + share * below)
        try:
            return self.bound(), price, weighed
        finally:
            self._cost64 = self._plain64

    def _table(self) -> FloatArray:
        return np.asarray(np.maximum(self._x, 0) * self._scale, dtype=np.float64)


class TradeOffEngine(CpuEngine):
    """The cores of this machine, with a solver that a second objective can go on with."""

    def solver(self, problem: Problem, graph: Graph, start: FloatArray | None) -> TradeOff:
        return TradeOff(problem, graph, warm_start(problem, graph) if start is None else start)
