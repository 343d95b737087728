"""From an iterate on tiles to a sparse table that is private over all pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray, owners
from panda_mdp.base.floored import FlooredRows
from panda_mdp.compute.closure import NEAR_NATS
from panda_mdp.compute.pairs import Backend
from panda_mdp.errors import PrivacyError
from panda_mdp.methods.certify import Standing
from panda_mdp.privacy.quantise import close_until_private, quantise_floored
from panda_mdp.problem import Problem
from panda_mdp.table.mechanism import Mechanism, audited_table

FLOOR_COST = 1e-3
"""Of the loss: what the floor may cost. The higher it is, the less is stored."""
LEAST_FLOOR = 2.0**-50
"""Whatever it costs: 4,096 units of the integers, of which rounding takes next to nothing. A floor
that is rounded to 0 would leave outputs that some records alone can report."""
SLACK = 1e-3
"""Share of epsilon that is left free, so that a compact file can round the table."""
LEAST_MASS = 1e-4
"""Of a row: what closing may put on a tile that does not see the record."""


@dataclass(frozen=True)
class Candidate:
    """A table, and the closure over its nodes or blocks."""

    closure: Any
    z: Any


class SparseFinish:
    """Estimates, repairs and extends for one solver on tiles."""

    audits_before: tuple[bool, ...] = (True,)
    """Whether a table is audited before it is quantised too, and not only then: until one holds."""
    iterations = 960
    """After which a table is certified on the way, and then whenever they have doubled."""
    markup = 0.1
    """By which share of the gap at an estimate the whole repair costs more, at first."""

    backend: Backend = "numba"
    """What audits."""

    def __init__(self, problem: Problem, closure: Any) -> None:
        self.problem = problem
        self.closure = closure

    def candidate(self, solver: Any) -> Candidate:
        """The solver's table over a floor, rows summing to 1."""
        sees, z, loss = solver.grouped()
        columns = solver.tiling.columns
        epsilon = self.problem.epsilon
        return Candidate(*self.closure.cut_for(columns, sees, z, self._floor(loss), epsilon))

    def _floor(self, loss: float) -> FloatArray:
        each = FLOOR_COST * loss / self.problem.outputs_count
        return np.maximum(each / np.maximum(self.problem.mean_loss, each), LEAST_FLOOR)

    def loss(self, table: Candidate) -> float:
        """The expected loss of a table."""
        raise NotImplementedError

    def estimate(self, table: Candidate) -> float:
        """The loss after one round of near pairs."""
        return self.loss(Candidate(table.closure, self._nearly(table)))

    def _nearly(self, table: Candidate) -> Any:
        """The table closed once over near pairs."""
        return next(table.closure.rounds(table.z, self.problem.epsilon * (1 - SLACK), NEAR_NATS))[0]

    def closed(self, table: Candidate) -> FloatArray:
        """A table made private over all pairs, K x m, and its floor as one more row."""
        epsilon = self.problem.epsilon * (1 - SLACK)
        done = close_until_private(table.closure, table.z, epsilon)
        closure: Any = done.closure
        starts, columns, values = closure.rows(done.matrix)
        whole = np.tile(closure.cut.floor, (self.problem.size + 1, 1))
        whole[owners(starts), columns] = values
        return whole

    def certify(self, table: Candidate, standing: Standing) -> Mechanism:
        """Close and scale until the audited rate is below epsilon, quantise and audit."""
        problem = self.problem
        epsilon = self.problem.epsilon * (1 - SLACK)
        for audits in self.audits_before:
            done = close_until_private(table.closure, table.z, epsilon, audits=audits)
            rows = self._quantised(done.closure, done.matrix)
            stored = rows.stored
            facts = {**done.facts, "stored": stored, "stored_share": stored / problem.loss.size}
            with standing.stage("audit"):
                answer = audited_table(
                    problem, rows, "optimal", details=facts, backend=self.backend
                )
            if isinstance(answer, Mechanism):
                return answer
        raise PrivacyError(f"optimal gave a table that is not private: {answer.audit.shortfall}")

    def _quantised(self, closure: Any, z: Any) -> FlooredRows:
        return quantise_floored(closure.cut.floor, *closure.rows(z))


class HostFinish(SparseFinish):
    """Compiled; remembers what the last estimate gave every node."""

    def loss(self, table: Candidate) -> float:
        cut = table.closure.cut
        columns = cut.columns[cut.group]
        cost = self.problem.loss[cut.record[:, None], np.maximum(columns, 0)]
        above = np.where(columns >= 0, (table.z - cut.floors[cut.group]) * cost, 0.0).sum(axis=1)
        return float(self.problem.prior[cut.record] @ above + self.problem.mean_loss @ cut.floor)

    def _nearly(self, table: Candidate) -> FloatArray:
        z = super()._nearly(table)
        cut = table.closure.cut
        self._mass = (z - cut.floors[cut.group]).sum(axis=1)
        return z

    def raised(self, table: Candidate, sees: BoolArray) -> tuple[IntArray, IntArray]:
        """Tiles and records outside `sees` that the last estimate, of this table, gave mass."""
        cut = table.closure.cut
        outside = ~sees[cut.group, cut.record] & (self._mass > LEAST_MASS)
        return cut.group[outside], cut.record[outside]
