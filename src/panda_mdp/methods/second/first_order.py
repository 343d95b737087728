"""The second objective at the scale of a city: the first-order method of `optimal`, continued.

Minimises loss(z) + price * v(z) by the same iteration, from where the first solve ended. With
v(z) = max over w (on a simplex in every group) of <w, A z> this is a saddle point with one more
dual variable: the cost becomes p c + price A^T w, and w takes a projected ascent step after each
primal one. The price is moved until the loss meets the budget B; theta = 1 / price is then the
multiplier of the budget, and any price > 0 and any w give the bound

    v  >=  (min over private tables of  <p c + price A^T w, z>  -  B) / price

whose first term the solver bounds from below in float64 with all rounding accounted for.
"""

from __future__ import annotations

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.methods.optimal.backends import CpuEngine
from panda_mdp.methods.optimal.cpu_solver import CpuSolver
from panda_mdp.methods.optimal.graph import Graph
from panda_mdp.methods.optimal.starts import warm_start
from panda_mdp.methods.second.bound import admissible
from panda_mdp.methods.second.objectives import Objective
from panda_mdp.problem import Problem

STIFFNESS = 2.0
"""What the objective's forms add to a record's degree at most: little beside a dozen edges."""
TOGETHER = 8
"""Iterations between two steps of the forms' weights: a step costs about as much as one of them."""
PROJECTIONS = 40


class TradeOff(CpuSolver):
    """`CpuSolver` whose cost follows an objective's heaviest forms; without one, the same."""

    _goal: Objective | None = None
    price = 0.0

    def aim(self, goal: Objective, price: float) -> None:
        """Minimise loss + price * v from here on."""
        if self._goal is None:
            self._goal = goal
            self._forms = goal.forms.permuted(self.order)
            self._plain = self._cost.copy()
            self._plain64 = self._cost64
            values = self._forms.forward(self._table())
            self._w = np.zeros_like(values, dtype=np.float64)
            self._w[values.argmax(axis=0), np.arange(values.shape[1])] = 1.0
            self._w0 = self._w.copy()
            self._own_degree = self.degree
        self.price = price
        self._rate = price / self.unit
        per_record, per_form = self._forms.sums()
        reach = self._rate * float(self._scale.max())
        most = float(per_record.max()) * reach
        # Steps by the sums of coefficients (Pock and Chambolle 2011), scaled to STIFFNESS edges.
        self._form_step = STIFFNESS / (most * per_form * reach) if most > 0 else 0.0
        self.degree = self._own_degree + STIFFNESS * per_record / max(
            float(per_record.max()), 1e-300
        )
        self._restart()

    def _connect(self, source: IntArray) -> None:
        super()._connect(source)
        if self._goal is not None:
            self._own_degree = self.degree
            self.aim(self._goal, self.price)

    def _anchor(self) -> None:
        super()._anchor()
        if self._goal is not None:
            self._w0 = self._w.copy()

    def _iterate(self, steps: int, since: int) -> float:
        if self._goal is None:
            return super()._iterate(steps, since)
        moved = 0.0
        for done in range(0, steps, TOGETHER):
            cost = self._plain + self._rate * self._forms.adjoint(self._w)
            self._cost = np.ascontiguousarray(cost, dtype=np.float32)
            count = min(TOGETHER, steps - done)
            moved = super()._iterate(count, since + done)
            size = self.weight * self._form_step
            ahead = self._forms.forward(np.asarray(self._mid * self._scale, dtype=np.float64))
            new = onto_simplex(self._w + size * self._rate * ahead)
            if done + count == steps and size > 0:
                moved += float(((new - self._w) ** 2).sum()) / size
            keep = (since + done + count) / (since + done + count + 1.0)
            self._w = keep * (2 * new - self._w) + (1 - keep) * self._w0
        return moved

    def objective_bound(self, budget: float) -> float:
        """A rigorous bound below v of every private table whose loss is at most `budget`."""
        weights = admissible(onto_simplex(self._w))
        adjoint = np.maximum(self._forms.adjoint(weights) * (1 - 1e-11), 0.0)
        # Rounded down, so what is added is at most price A^T w for a smaller, admissible w.
        self._cost64 = np.ascontiguousarray(self._plain64 + self.price * adjoint)
        try:
            least = self.bound()
        finally:
            self._cost64 = self._plain64
        return (least * (1 - 1e-15) - budget * (1 + 1e-15)) / self.price

    def _table(self) -> FloatArray:
        return np.asarray(np.maximum(self._x, 0) * self._scale, dtype=np.float64)


class Recorder(CpuEngine):
    """The cores of this machine; keeps the solver, so that a second objective can go on with it."""

    made: TradeOff | None = None

    def solver(self, problem: Problem, graph: Graph, start: FloatArray | None) -> TradeOff:
        first = warm_start(problem, graph) if start is None else start
        self.made = TradeOff(problem, graph, first)
        return self.made


def onto_simplex(weights: FloatArray) -> FloatArray:
    """The nearest point of the simplex of every column (Michelot 1986)."""
    inside = np.ones(weights.shape, dtype=np.bool_)
    for _ in range(PROJECTIONS):
        count = inside.sum(axis=0)
        shift = (np.where(inside, weights, 0.0).sum(axis=0) - 1.0) / count
        still = inside & (weights > shift)
        if (still == inside).all():
            break
        inside = still
    return np.asarray(np.maximum(weights - shift, 0.0) * inside)
