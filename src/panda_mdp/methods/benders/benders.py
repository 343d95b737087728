"""The privacy LP by Benders decomposition (LP+BD)."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.compute.closure import Closure
from panda_mdp.compute.highs import require_numba
from panda_mdp.compute.status import Stopped
from panda_mdp.errors import MethodError
from panda_mdp.methods.benders.decomposition import (
    Cut,
    Master,
    Reply,
    Split,
    compact_clusters,
    thin_graph,
)
from panda_mdp.methods.loss_exponential import loss_exponential
from panda_mdp.methods.optimal.dual import dual_bound, free_bound
from panda_mdp.methods.optimal.graph import missing_pairs
from panda_mdp.privacy.repair import repair
from panda_mdp.problem import Problem
from panda_mdp.table.mechanism import Mechanism
from panda_mdp.table.release import release

RECORDS_PER_CLUSTER = 150
LARGEST_STEP = 0.5
TRIES = 6
"""Times that a step into infeasible ground is halved."""
INWARD = 0.05
"""Share of a point well inside that is mixed in with every halving: at the edge of what is
feasible, cuts say little."""
ABSOLUTE_TOLERANCE = 1e-7
"""Of the loss that ignores the record: a difference below it counts as none."""


def benders(
    problem: Problem,
    clusters: int | None = None,
    gap: float = 0.01,
    time_limit: float | None = None,
    iterations: int = 1000,
) -> Mechanism:
    """The least expected loss by clusters: a master over border records, an LP inside each
    (the paper's LP+BD, section 3.4, after Qiu, IJCAI 2024).

    Records are cut into `clusters` compact groups (one per 150 records by default). Those with an
    edge of the constraint graph to another group are boundary records. In every iteration the
    master proposes the boundary records' rows, each group answers with the best rows of its
    internal records and an optimality cut, or with a feasibility cut where there are none, and
    the master is solved again with the cuts, all LPs by HiGHS's simplex from their last bases, the
    groups' in parallel. The groups are asked not at the master's point but on the way to it from
    the best point so far, halving the step where it is infeasible (in-out separation); at the
    master's own points alone the method hardly moves.

    Where the graph's LP is solved and pairs outside the graph keep the private table from the
    gap, the worst such pairs are added and all cuts are derived anew.

    Guarantee: epsilon-mDP over all pairs, by audit. `lower_bound` is rigorous: the master's prices
    weigh the cuts' multipliers into multipliers of the whole LP, whose bound is evaluated in
    float64 with all rounding accounted for. `loss` is within `gap` of it where
    `details["stopped"]` is "gap reached". `details["trace"]` holds (seconds, iterations, best
    private loss, lower bound) and `details["decomposition"]` (iteration, master's objective, best
    value of the graph's LP) for every iteration.

    `time_limit` (seconds), `iterations` or an interrupt end with the best private table so far.

    >>> from panda_mdp import Domain
    >>> domain = Domain.from_vectors([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0]])
    >>> problem = Problem(domain, [0, 2, 4], domain.distances(None, [0, 2, 4]), epsilon=1.0)
    >>> mechanism = benders(problem, clusters=2)
    >>> mechanism.audit.holds, mechanism.gap <= 0.01
    (True, True)
    """
    _check(problem, clusters, gap, time_limit, iterations)
    count = -(-problem.size // RECORDS_PER_CLUSTER) if clusters is None else int(clusters)
    return _Run(problem, max(count, 2) if clusters is None else count, gap, time_limit).mechanism(
        int(iterations)
    )


def _check(
    problem: Problem,
    clusters: int | None,
    gap: float,
    time_limit: float | None,
    iterations: int,
) -> None:
    if clusters is not None and not (
        isinstance(clusters, int | np.integer) and 1 <= clusters <= problem.size
    ):
        msg = f"clusters is {clusters!r}; it must be a whole number from 1 to {problem.size}"
        raise MethodError(msg)
    if not (np.isfinite(gap) and gap > 0):
        msg = f"gap is {gap!r}; it must be a positive number such as 0.01 for one per cent"
        raise MethodError(msg)
    if time_limit is not None and not time_limit > 0:
        msg = f"time_limit is {time_limit!r}; it must be positive, in seconds, or None"
        raise MethodError(msg)
    if not (isinstance(iterations, int | np.integer) and iterations >= 1):
        msg = f"iterations is {iterations!r}; it must be a whole number from 1"
        raise MethodError(msg)


@dataclass
class _Run:
    """One run. `best` is always a mechanism whose audit holds, `bound` always a valid bound."""

    problem: Problem
    clusters: int
    gap: float
    time_limit: float | None
    seconds: dict[str, float] = field(default_factory=dict)
    trace: list[tuple[float, int, float, float]] = field(default_factory=list)
    decomposition: list[tuple[int, float, float]] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)
    mark: float = field(default_factory=time.perf_counter)
    certify_seconds: float = 0.0
    iteration: int = 0
    master_status: str = "Optimal"
    """In HiGHS's words, of the last master."""

    def mechanism(self, iterations: int) -> Mechanism:
        require_numba("the exact repair of benders")
        problem = self.problem
        self.best = loss_exponential(problem)
        self._spent("start")
        self.certify_seconds = self.seconds["start"]
        self.ignorant = float((problem.prior @ problem.loss).min())
        self.bound = free_bound(problem)
        self.centre = self.interior = self.best.matrix
        self.closure = Closure(problem.domain)
        self.split = Split(
            problem,
            thin_graph(problem.domain, problem.epsilon),
            compact_clusters(problem.domain, self.clusters),
        )
        self.master = Master(self.split)
        self._spent("graph")
        workers = max(1, min(len(self.split.clusters), os.cpu_count() or 1))
        with ThreadPoolExecutor(workers) as self.pool:
            try:
                stopped = self._loop(iterations)
            except KeyboardInterrupt:
                stopped = Stopped.INTERRUPTED
        return self._result(stopped)

    def _loop(self, iterations: int) -> Stopped:
        self.step, self.value = LARGEST_STEP, np.inf
        self._ask(self.centre)
        accuracy, certified = self.gap / 3, np.inf
        while not self._reached():
            self.iteration += 1
            answer = self.master.solve(self._left())
            self._spent("master")
            if not answer.optimal or answer.objective is None:
                self.master_status = answer.status
                return Stopped.TIME_LIMIT if self._over() else Stopped.FAILED
            weights = self.master.multipliers(answer)
            self.bound = max(self.bound, dual_bound(self.problem, self.split.graph, weights))
            self._spent("bound")
            self._step_towards(self.master.rows(answer))
            lowest = answer.objective * self.split.scale
            self.decomposition.append((self.iteration, lowest, self.value * self.split.scale))
            over = self._over() or self.iteration >= iterations
            excess = self.value - answer.objective
            closed = excess <= max(
                accuracy * answer.objective,
                ABSOLUTE_TOLERANCE * self.ignorant / self.split.scale,
            )
            hopeful = self.value < 0.9999 * certified and self._near(self.value * self.split.scale)
            if closed or over or hopeful or self.value < 0.98 * certified:
                self._certify(self.centre)
                certified = self.value
            self._report()
            if over and not self._reached():
                return Stopped.TIME_LIMIT if self._over() else Stopped.ITERATIONS
            if closed and not self._reached():
                grown = self._grow()
                if grown:
                    certified = np.inf
                elif accuracy < 1e-6:
                    return Stopped.PRECISION_REACHED
                else:
                    accuracy /= 3
        certified = self.best.loss - self.bound <= self.gap * self.bound
        return Stopped.GAP_REACHED if certified else Stopped.NEGLIGIBLE

    def _step_towards(self, rows: FloatArray) -> None:
        """Ask the clusters on the way from the best point to the master's; keep what is better."""
        target = self.centre.copy()
        target[self.split.border] = rows / np.maximum(rows.sum(axis=1, keepdims=True), 1e-300)
        if not self.split.clusters:
            # Nothing is inside: the master's point is the answer.
            self._ask(target)
            return
        for attempt in range(TRIES):
            inward = INWARD * attempt
            base = (1 - inward) * self.centre + inward * self.interior
            point = self.step * target + (1 - self.step) * base
            if self._ask(point):
                if attempt == 0:
                    self.step = min(LARGEST_STEP, 1.5 * self.step)
                return
            if self._over():
                return
            self.step /= 2

    def _ask(self, point: FloatArray) -> bool:
        """Hand a point to all clusters, their cuts to the master; whether all have rows for it."""
        split = self.split
        left = self._left()
        replies: list[Reply] = list(
            self.pool.map(lambda cluster: cluster.reply(point, left), split.clusters)
        )
        cuts: list[Cut] = [reply.cut for reply in replies if reply.cut is not None]
        self.master.add(cuts)
        border = split.border
        value = float((split.cost[border] * point[border]).sum())
        table = point.copy()
        for cluster, reply in zip(split.clusters, replies, strict=True):
            if reply.value is None or reply.rows is None:
                self._spent("clusters")
                return False
            value += reply.value
            table[cluster.records] = reply.rows
        if value < self.value:
            self.value, self.centre = value, table
        self._spent("clusters")
        return True

    def _grow(self) -> bool:
        """Add the pairs outside the graph that the current table breaks; all cuts stay."""
        problem, graph = self.problem, self.split.graph
        more = missing_pairs(self.closure, graph, self.centre, problem.epsilon)
        if more.count == 0:
            return False
        cuts = self.master.cuts
        joined = graph.join(more.ends, more.length)
        self.split = Split(problem, joined, self.split.label)
        self.master = Master(self.split)
        inside = {cluster.label for cluster in self.split.clusters}
        self.master.add([cut for cut in cuts if cut.cluster in inside])
        # The best private table is feasible for every graph.
        self.centre, self.value, self.step = self.best.matrix, np.inf, LARGEST_STEP
        self._spent("graph")
        self._ask(self.centre)
        return True

    def _certify(self, table: FloatArray) -> None:
        """Repair a table, audit it on its integers, and keep it if it is the best so far."""
        start = time.perf_counter()
        repaired = repair(self.closure, table, self.problem.epsilon)
        self._spent("repair")
        mechanism = release(
            self.problem,
            repaired.matrix,
            method="benders",
            details={"closure_rounds": repaired.rounds, "common_share": repaired.common_share},
        )
        self._spent("audit")
        self.certify_seconds = time.perf_counter() - start
        if mechanism.loss < self.best.loss:
            self.best = mechanism

    def _reached(self) -> bool:
        return self._near(self.best.loss)

    def _near(self, loss: float) -> bool:
        """Whether a loss lies within the gap of the bound."""
        return loss - self.bound <= max(self.gap * self.bound, ABSOLUTE_TOLERANCE * self.ignorant)

    def _left(self) -> float | None:
        if self.time_limit is None:
            return None
        spent = time.perf_counter() - self.began
        return max(self.time_limit - spent - 1.5 * self.certify_seconds, 1e-3)

    def _over(self) -> bool:
        left = self._left()
        return left is not None and left <= 1e-3

    def _report(self) -> None:
        spent = time.perf_counter() - self.began
        self.trace.append((spent, self.iteration, self.best.loss, self.bound))

    def _spent(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self.mark
        self.mark = now

    def _result(self, stopped: Stopped) -> Mechanism:
        return self.best.with_facts(
            method="benders",
            lower_bound=self.bound,
            stages=tuple(self.seconds.items()),
            details={
                **self.best.details,
                "stopped": stopped,
                "master_status": self.master_status,
                "iterations": self.iteration,
                "clusters": int(self.split.label.max()) + 1,
                "boundary_records": len(self.split.border),
                "cuts": len(self.master.cuts),
                "edges": self.split.graph.count,
                "trace": tuple(self.trace),
                "decomposition": tuple(self.decomposition),
            },
        )
