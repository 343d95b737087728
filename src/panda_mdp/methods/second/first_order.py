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

from typing import Any

import numpy as np

from panda_mdp.base.arrays import AnyArray, FloatArray
from panda_mdp.methods.optimal.halpern import CpuSolver, GraphSolver
from panda_mdp.methods.optimal.program import Graph, Program
from panda_mdp.methods.second.objectives import FAINTEST, Forms, Tiled

TOGETHER = 4
"""Iterations between two steps of the weights: a step costs about half as much as one."""


class TradeOff(GraphSolver):
    """What solvers of every machine that stand behind it share: a cost that follows an objective's
    heaviest forms; without one, the same."""

    _goal: Forms | None = None
    price = 0.0
    program: Program
    degree: Any
    weight: float

    def aim(self, goal: Forms, price: float) -> None:
        """Minimise loss + `price` v from here on."""
        if self._goal is not goal:
            self._goal = self.forms = goal
            self._own_degree = self.degree
            self._take(goal)
            self._w = self.on.heaviest(self.on.forward(self.entries()))
        self.price = float(price)
        self._rate = self.price / self.unit
        self._restart()

    def follow(self) -> None:
        """Take in the forms that matter for where the table is now."""
        if self.program.tiling.one and self.on_host:
            forms = self.forms.moved(self.matrix(), self._w)
        else:
            forms = self.forms.paced(self.on.values(self.entries()))
        if forms is not self.forms:
            self._take(forms)
            self._restart()

    def _take(self, forms: Forms) -> None:
        self.forms = forms
        self.on = self._placed(forms)
        share = self.on.shares()
        steep = self.on.steepness(self.scale**2 / share[:, None])
        # An output that no record may report has no forms to move.
        self._steep = np.maximum(steep, FAINTEST * (steep.max() or 1.0))
        self.degree = self._own_degree + self._whole(forms.stiffness * share)

    def _whole(self, stiffness: Any) -> Any:
        """What is added to degrees, as their kind of number."""
        return stiffness

    def _built(self) -> None:
        """Go on with the same forms on other nodes and edges."""
        if self._goal is not None:
            self._own_degree = self.degree
            before = self.on
            self._take(self.forms)
            self._w = self.on.taken_over(before, self._w)
            self._restart()

    def _placed(self, forms: Forms) -> Any:
        """Forms over the nodes, where these are."""
        program = self.program
        if self.on_host and program.tiling.one:
            return forms.on(program)
        if self._program_before is program:
            return self.on.at(forms)
        self._program_before = program
        return self._stored(Tiled.over(program, forms))

    _program_before: Program | None = None
    on_host = True
    """Whether arrays are NumPy's."""

    def _stored(self, forms: Tiled) -> Any:
        """Forms where the nodes are."""
        return forms

    @property
    def scale(self) -> Any:
        """Of the table, on the nodes."""
        raise NotImplementedError

    def entries(self) -> Any:
        """The current table on the nodes."""
        raise NotImplementedError

    def ahead(self, keep: float) -> Any:
        """Where the last iteration went, before it was drawn back to the anchor."""
        raise NotImplementedError

    def charge(self, added: Any) -> None:
        """Iterate at the problem's cost, in its unit, and so much more."""
        raise NotImplementedError

    def exactly(self, added: Any) -> Any:
        """Bound from below at the problem's cost and so much more; `None` for that alone."""
        raise NotImplementedError

    def _rescale(self) -> None:
        """Nothing: a table that an objective moves far from is no guess of where it goes."""

    def _anchor(self) -> None:
        super()._anchor()  # type: ignore[safe-super]
        if self._goal is not None:
            self._w0 = self._w

    def _iterate(self, steps: int, since: int) -> float:
        if self._goal is None:
            return super()._iterate(steps, since)  # type: ignore[safe-super]
        moved, on, rate = 0.0, self.on, self._rate
        for done in range(0, steps, TOGETHER):
            self.charge(rate * on.adjoint(self._w))
            count = min(TOGETHER, steps - done)
            moved = super()._iterate(count, since + done)  # type: ignore[safe-super]
            # With step 1 / (weight stiffness) of the table these are the largest that converge.
            step = self.weight * on.stiffness / (rate * self._steep)
            keep = (since + done + count) / (since + done + count + 1.0)
            new = on.onto(self._w + step * on.forward(self.ahead(keep)))
            if done + count == steps:
                moved += float(((new - self._w) ** 2 * (rate / step)).sum())
            self._w = keep * (2 * new - self._w) + (1 - keep) * self._w0
        return moved

    @property
    def weights(self) -> Any:
        """Of the forms, on their simplexes."""
        return self.on.onto(self._w)

    def least_trade(self) -> float:
        """L with loss + price v >= L for every private table, rigorously."""
        # What rounds the product is within what `below` leaves, and the sum's within the kernel's.
        self.exactly(self.price * self.on.below(self.weights))
        try:
            return self.bound()
        finally:
            self.exactly(None)


class CpuTradeOff(TradeOff, CpuSolver):
    """`CpuSolver` whose cost follows an objective."""

    _building = False

    def _build(self, program: Program, z: FloatArray) -> None:
        self._building = True
        super()._build(program, z)
        self._building = False
        self._plain, self._plain64 = self._cost.copy(), self._cost64
        self._built()

    def _join(self, graph: Graph) -> None:
        super()._join(graph)
        if not self._building:
            self._built()

    @property
    def scale(self) -> AnyArray:
        return self._scale

    def entries(self) -> AnyArray:
        return self._table()

    def ahead(self, keep: float) -> AnyArray:
        return self._mid * self._scale

    def charge(self, added: AnyArray) -> None:
        np.add(self._plain, added, out=self._cost, casting="same_kind")

    def exactly(self, added: AnyArray | None) -> None:
        plain = self._plain64
        self._cost64 = plain if added is None else np.ascontiguousarray(plain + added)
