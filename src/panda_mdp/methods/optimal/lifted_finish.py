"""From an iterate on the lifted graph to a sparse table that is private over all pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.base.floored import FlooredRows
from panda_mdp.compute.backend import Backend
from panda_mdp.compute.closure import NEAR_NATS
from panda_mdp.compute.lifted import LiftedClosure
from panda_mdp.errors import PrivacyError
from panda_mdp.methods.optimal.graph import MAX_EXPONENT, Graph, distinct
from panda_mdp.methods.optimal.lifted import Lifted
from panda_mdp.privacy.quantise import quantise_floored
from panda_mdp.privacy.repair import ATTEMPTS, MARGIN, ROUNDS, TIGHTENING, settle
from panda_mdp.problem import Problem
from panda_mdp.table.mechanism import Mechanism, NoGuarantee, judged

FLOOR_COST = 1e-3
"""Of the loss: what the floor may cost. The higher it is, the less is stored."""
SLACK = 1e-3
"""Share of epsilon that is left free, so that a compact file can round the table."""
LEAST_GAIN = 3e-5
SMALL_GAIN = 3e-6
"""Of a row's mass, by which one group may miss a constraint before it is counted."""


@dataclass(frozen=True)
class Candidate:
    """A table on the nodes, or in the blocks, of its closure."""

    cut: Any
    z: Any


class LiftedFinish:
    """Estimates, repairs and extends for one lifted solver."""

    audits_before = True
    """Whether a table is audited before it is quantised too, and not only then."""
    iterations = 960
    """After which a table is certified on the way, and then whenever they have doubled."""
    markup = 0.1
    """`Solve.markup` at first."""

    def __init__(self, problem: Problem, backend: Backend) -> None:
        self.problem, self.backend = problem, backend
        self.closure = self._closure()

    def _closure(self) -> Any:
        return LiftedClosure(self.problem.domain, self.problem.epsilon)

    def candidate(self, solver: Lifted) -> Candidate:
        """The solver's table over a floor, rows summing to 1."""
        columns, sees, z, loss = solver.grouped(self.closure.order)
        cut = self.closure.cut(columns, sees, z, self._floor(loss))
        return Candidate(cut, self.closure.begin(cut, sees, z))

    def _floor(self, loss: float) -> FloatArray:
        each = FLOOR_COST * loss / self.problem.outputs_count
        return np.asarray(each / np.maximum(self.problem.mean_loss, each))

    def loss(self, cut: Any, z: Any) -> float:
        """The expected loss of a table on nodes."""
        columns = cut.columns[cut.group]
        exists = columns >= 0
        cost = self.problem.loss[cut.record[:, None], np.maximum(columns, 0)]
        above = np.where(exists, (z - cut.floors[cut.group]) * cost, 0.0).sum(axis=1)
        return float(self.problem.prior[cut.record] @ above + self.problem.mean_loss @ cut.floor)

    def estimate(self, table: Candidate) -> float:
        """The loss after one round of near pairs."""
        return self.loss(table.cut, self._nearly(table))

    def _nearly(self, table: Candidate) -> Any:
        """The table closed once over near pairs."""
        within = self.problem.epsilon * (1 - SLACK)
        return next(self.closure.settling(table.cut, table.z, within, NEAR_NATS))[0]

    def certify(self, table: Candidate) -> Mechanism:
        """Close and scale until the audited rate is below epsilon, quantise and audit.

        Where the rounds run out the closure is made tighter, and in the last resort the floor is
        mixed in, as a row common to all records, which always ends.
        """
        answer = self._certified(table, self.audits_before)
        if not isinstance(answer, Mechanism) and not self.audits_before:
            answer = self._certified(table, True)
        if not isinstance(answer, Mechanism):
            msg = f"optimal gave a table that is not private: {answer.audit.shortfall}"
            raise PrivacyError(msg)
        return answer

    def _certified(self, table: Candidate, audits_before: bool) -> Mechanism | NoGuarantee:
        cut, z = table.cut, table.z
        epsilon = self.problem.epsilon * (1 - SLACK)
        tightening, rounds, share = TIGHTENING, 0, 0.0
        for _ in range(ATTEMPTS):
            within = epsilon * (1 - tightening)
            for nats in (NEAR_NATS, np.inf):
                steps = self.closure.settling(cut, z, within, nats)
                z, _, count, done = settle(self.closure, steps, ROUNDS, tightening * epsilon)
                rounds += count
            if not done:
                z, count, done = self._centred(cut, z, within, tightening * epsilon)
                rounds += count
            rate = 0.0 if done and not audits_before else self.closure.audited(cut, z)
            if rate <= epsilon * (1 - MARGIN):
                break
            tightening = min(0.5, 2 * tightening + max(0.0, rate / within - 1))
        while rate > epsilon * (1 - MARGIN) and share < 1:
            share = max(1e-4, 2 * share)
            cut, z = self.closure.mixed(cut, z, min(share, 0.999))
            rate = self.closure.audited(cut, z)
        rows = self._quantised(cut, z)
        return judged(
            self.problem,
            rows,
            "optimal",
            details={
                "closure_rounds": rounds,
                "common_share": share,
                "stored": rows.stored,
                "stored_share": rows.stored / (rows.shape[0] * rows.shape[1]),
            },
            backend=self.backend,
        )

    def _quantised(self, cut: Any, z: Any) -> FlooredRows:
        return quantise_floored(cut.floor, *self.closure.rows(cut, z))

    def _centred(self, cut: Any, z: Any, within: float, allowed: float) -> tuple[Any, int, bool]:
        """The table after rounds from both sides, where the closure has them."""
        return z, 0, False

    def missing(self, graph: Graph, table: Candidate, most: int) -> Graph:
        """For every record the pairs outside the graph whose constraints the table breaks most."""
        size = self.problem.size
        pairs, _ = self.closure.broken(table.cut, table.z, NEAR_NATS, SMALL_GAIN, LEAST_GAIN, most)
        chosen = distinct(self.closure.order[pairs], size)
        old = np.sort(graph.ends.min(axis=1) * size + graph.ends.max(axis=1))
        keys = chosen[:, 0] * size + chosen[:, 1]
        place = np.minimum(np.searchsorted(old, keys), len(old) - 1)
        new = chosen[old[place] != keys]
        length = self.problem.domain.metric.pairs(new[:, 0], new[:, 1])
        short = self.problem.epsilon * length <= MAX_EXPONENT
        return Graph(np.ascontiguousarray(new[short]), length[short])
