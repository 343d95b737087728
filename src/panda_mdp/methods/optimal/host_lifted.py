"""Tiles of outputs on the CPU: nodes are added where the closed table needs them.

What tiles see at first follows from the losses alone (lifted.py), and a few records are always left
out that closing gives mass: there the table has to pay at the end, and nothing pushes against it in
the bound. A hundred such nodes among twelve thousand are worth a third of the iterations. They join
with their edges, and the iteration goes on with the multipliers that it has.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.methods.optimal.cpu_solver import CpuSolver
from panda_mdp.methods.optimal.graph import Graph
from panda_mdp.methods.optimal.lifted import WIDER, Lifted, Nodes, Reach, reach
from panda_mdp.methods.optimal.lifted_finish import Candidate, LiftedFinish
from panda_mdp.problem import Problem

LEAST_MASS = 1e-4
"""Of a row: what closing may put on a tile that does not see the record."""
RECORDS_AT_ONCE = 1 << 8


class HostFinish(LiftedFinish):
    """Remembers what the last estimate gave every node."""

    def _nearly(self, table: Candidate) -> FloatArray:
        z = super()._nearly(table)
        self._mass = (z - table.cut.floors[table.cut.group]).sum(axis=1)
        return np.asarray(z)

    def raised(self, table: Candidate, sees: BoolArray) -> tuple[IntArray, IntArray]:
        """Tiles and records outside `sees` that the last estimate, of this table, gave mass."""
        cut = table.cut
        outside = ~sees[cut.group, cut.record] & (self._mass > LEAST_MASS)
        return cut.group[outside], cut.record[outside]


class HostLifted(Lifted):
    """Iterates on nodes by compiled loops."""

    def __init__(
        self, problem: Problem, graph: Graph, start: FloatArray | None, reached: Reach
    ) -> None:
        super().__init__(problem, graph, start, reached, CpuSolver)
        self.finish = HostFinish(problem, "numba")

    def grow(self, table: Candidate | None) -> None:
        """See the nodes outside that closing the current table, `table` if it was made, gives
        mass."""
        if table is None:
            table = self.finish.candidate(self)
            self.finish.estimate(table)
        tile, record = self.finish.raised(table, self.reached.sees)
        if len(tile):
            sees = self.reached.sees.copy()
            sees[tile, record] = True
            self._see(sees, self.reached.nats)

    def _widen(self) -> None:
        nats = WIDER * self.reached.nats
        self._see(reach(self.problem, self.graph, nats).sees | self.reached.sees, nats)

    def _see(self, sees: BoolArray, nats: float) -> None:
        """Go on with a reach that has all nodes of the present one, and more."""
        old, before = self._nodes, self._inner
        table = before.matrix()
        outside = self.reached.outside.copy()
        changed = np.flatnonzero((sees != self.reached.sees).any(axis=0))
        outside[changed] = least_outside(self.problem, self.reached.tiles, sees, changed)
        reached = replace(self.reached, sees=sees, outside=outside, nats=nats)
        nodes = Nodes(self.problem, reached)
        before.forget_anchor()
        self._build(reached, nodes, self._moved(old, nodes, table))
        self._inner.carry_on(before, nodes.id[old.tile, old.record].astype(np.int64))


def least_outside(
    problem: Problem, tiles: IntArray, sees: BoolArray, records: IntArray
) -> FloatArray:
    """Least p_x c_xy over the outputs of tiles that do not see record x; inf where all do."""
    tile_of = np.empty(problem.outputs_count, dtype=np.int64)
    tile_of[tiles] = np.arange(len(tiles))[:, None]
    least = np.empty(len(records))
    for begin in range(0, len(records), RECORDS_AT_ONCE):
        some = records[begin : begin + RECORDS_AT_ONCE]
        seen = sees[tile_of][:, some].T
        loss = np.where(seen, np.inf, problem.loss[some])
        least[begin : begin + RECORDS_AT_ONCE] = loss.min(axis=1)
    return problem.prior[records] * least
