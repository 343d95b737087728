"""A second objective on the CPU's cores (first_order.py)."""

from __future__ import annotations

import numpy as np

from panda_mdp.base.arrays import AnyArray, FloatArray
from panda_mdp.methods.optimal.halpern import CpuSolver
from panda_mdp.methods.optimal.program import Graph, Program
from panda_mdp.methods.second.first_order import TradeOff


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
