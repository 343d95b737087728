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

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.methods.optimal.halpern import CpuSolver
from panda_mdp.methods.optimal.optimal import CpuEngine
from panda_mdp.methods.optimal.program import Graph, warm_start
from panda_mdp.methods.second.objectives import FAINTEST, Forms
from panda_mdp.problem import Problem

TOGETHER = 4
"""Iterations between two steps of the weights: a step costs about half as much as one."""


class TradeOff(CpuSolver):
    """`CpuSolver` whose cost follows an objective's heaviest forms; without one, the same."""

    _goal: Forms | None = None
    price = 0.0

    def aim(self, goal: Forms, price: float) -> None:
        """Minimise loss + `price` v from here on."""
        if self._goal is not goal:
            if self._goal is None:
                self._plain = self._cost.copy()
                self._plain64 = self._cost64
                self._own_degree = self.degree
            self._goal = goal
            self._take(goal)
            self._w = goal.heaviest(goal.forward(self.matrix()))
        self.price = price
        self._rate = price / self.unit
        self.degree = self._own_degree + goal.stiffness * self._share[self.program.record]
        self._restart()

    def follow(self) -> None:
        """Take in the forms that matter for where the table is now."""
        forms = self.forms.moved(self.matrix(), self._w)
        if forms is not self.forms:
            self._take(forms)
            self._restart()

    def _take(self, forms: Forms) -> None:
        self.forms = forms
        self._share = forms.shares()
        steep = forms.steepness(self.program.whole(self._scale) ** 2 / self._share[:, None])
        # An output that no record may report has no forms to move.
        self._steep = np.maximum(steep, FAINTEST * (steep.max() or 1.0))

    def _connect(self, source: IntArray) -> None:
        super()._connect(source)
        if self._goal is not None:
            self._own_degree = self.degree
            self.aim(self._goal, self.price)

    def _rescale(self) -> None:
        """Nothing: a table that an objective moves far from is no guess of where it goes."""

    def _anchor(self) -> None:
        super()._anchor()
        if self._goal is not None:
            self._w0 = self._w.copy()

    def _iterate(self, steps: int, since: int) -> float:
        if self._goal is None:
            return super()._iterate(steps, since)
        moved, forms, rate, record = 0.0, self.forms, self._rate, self.program.record
        for done in range(0, steps, TOGETHER):
            added = rate * forms.adjoint(self._w)[record]
            np.add(self._plain, added, out=self._cost, casting="same_kind")
            count = min(TOGETHER, steps - done)
            moved = super()._iterate(count, since + done)
            # With step 1 / (weight stiffness) of the table these are the largest that converge.
            step = self.weight * forms.stiffness / (rate * self._steep)
            ahead = forms.forward(self.program.whole(self._mid * self._scale))
            new = forms.onto(self._w + step * ahead)
            if done + count == steps:
                moved += float(((new - self._w) ** 2 * (rate / step)).sum())
            keep = (since + done + count) / (since + done + count + 1.0)
            self._w = keep * (2 * new - self._w) + (1 - keep) * self._w0
        return moved

    @property
    def weights(self) -> FloatArray:
        """Of the forms, on their simplexes."""
        return self.forms.onto(self._w)

    def least_trade(self) -> float:
        """L with loss + price v >= L for every private table, rigorously."""
        below = self.forms.below(self.weights)
        # What rounds the product is within what `below` leaves, and the sum's within the kernel's.
        added = self.price * below[self.program.record]
        self._cost64 = np.ascontiguousarray(self._plain64 + added)
        try:
            return self.bound()
        finally:
            self._cost64 = self._plain64


class TradeOffEngine(CpuEngine):
    """The cores of this machine, with a solver that a second objective can go on with."""

    def solver(self, problem: Problem, graph: Graph, start: FloatArray | None) -> TradeOff:
        return TradeOff(problem, graph, warm_start(problem, graph) if start is None else start)
