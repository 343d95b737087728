"""A second objective on an accelerator (first_order.py)."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from panda_mdp.compute.jax.device import Array, precise
from panda_mdp.compute.jax.forms import DeviceForms
from panda_mdp.methods.optimal.jax_solver import JaxSolver, Nodes
from panda_mdp.methods.optimal.program import Graph
from panda_mdp.methods.second.first_order import TradeOff
from panda_mdp.methods.second.objectives import Forms, Tiled


class JaxTradeOff(TradeOff, JaxSolver):
    """`JaxSolver` whose cost follows an objective."""

    on_host = False
    _building = False

    def _build(self, nodes: Nodes, z: Array) -> None:
        self.program = nodes
        self._building = True
        super()._build(nodes, z)
        self._building = False
        self._plain = self._costs
        self._built()

    def _extend(self, graph: Graph) -> None:
        super()._extend(graph)
        if not self._building:
            self._built()

    def aim(self, goal: Forms, price: float) -> None:
        with precise():
            super().aim(goal, price)

    def follow(self) -> None:
        with precise():
            super().follow()

    def _iterate(self, steps: int, since: int) -> float:
        with precise():
            return super()._iterate(steps, since)

    def least_trade(self) -> float:
        with precise():
            return super().least_trade()

    def _stored(self, forms: Tiled) -> DeviceForms:
        return DeviceForms.stored(forms, self._on, self.nodes.size)

    @property
    def degree(self) -> Array:
        return self._edges.degree

    @degree.setter
    def degree(self, degree: Array) -> None:
        self._edges = self._edges._replace(degree=degree)

    def _whole(self, stiffness: Array) -> Array:
        return jnp.ceil(stiffness).astype(self._own_degree.dtype)

    @property
    def scale(self) -> Array:
        return self._scale.of_entries

    def entries(self) -> Array:
        return self.table()

    def ahead(self, keep: float) -> Array:
        x, anchor = self._point[0], self._anchored[0]
        return (x - np.float32(1 - keep) * anchor) * (self._scale.of_entries / np.float32(keep))

    def charge(self, added: Array) -> None:
        exact, plain = self._plain
        self._costs = (exact, plain + added)

    def exactly(self, added: Any) -> None:
        exact, plain = self._plain
        with precise():
            self._costs = (exact if added is None else exact + added, plain)
