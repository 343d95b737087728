"""The privacy LP of a small problem, solved to precision whatever its losses are.

Solvers of LPs work to absolute tolerances, and losses may span twenty orders of magnitude. Three
facts put all numbers of the LP in range. Rows sum to 1, so only the excess e_xy = p_x (c_xy - min_y
c_xy) over the cheapest output counts. A table of excess U is at hand, so an optimal one has

    z_xy <= b_xy = min over x' of  exp(epsilon d(x, x')) min(1, U / e_x'y).

In w = z / b the costs e b / U lie in [0, 1], and "z_i <= g z_j" reads w_i <= r w_j with r >= 1;
where r is beyond `LARGEST_RATIO` it binds nothing that costs more than U / r and is left out. Each
pass lowers U to the excess of the private table that it ends with, until bound and table meet.

The bound is the multipliers' own (dual.py) over tables within the box b, which optimal ones are.
HiGHS solves the LPs as it comes with SciPy; nothing is compiled.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray
from panda_mdp.compute.closure import Closure
from panda_mdp.compute.status import Stopped
from panda_mdp.errors import PrivacyError
from panda_mdp.methods.loss_exponential import loss_exponential
from panda_mdp.methods.optimal.dual import (
    boxed_bound,
    centre_bound,
    centre_proof,
    free_bound,
    free_proof,
    growth,
    proof_of,
    proved,
)
from panda_mdp.methods.optimal.graph import Graph
from panda_mdp.methods.optimal.progress import Progress
from panda_mdp.methods.optimal.starts import one_row
from panda_mdp.methods.remap import remap
from panda_mdp.privacy.repair import repair
from panda_mdp.problem import Problem
from panda_mdp.table.mechanism import Mechanism
from panda_mdp.table.release import floor_row, release

MOST_ROWS = 16_000
"""Inequalities of an LP that is taken as small: half a second on one core."""
MOST_RECORDS = 64
SIMPLEX_ROWS = 2_000
"""Up to here the simplex method is the faster one."""
PASSES = 8
LARGEST_RATIO = 1e9
TOLERANCE = 1e-9
TIGHTENING = 2e-6
"""The closure runs at epsilon (1 - TIGHTENING): the LP's tables are accurate."""
LARGEST_EXPONENT = 200.0
"""Pairs with epsilon d beyond it are left out, not shortened."""
INFLATED = 1 + 1e-9
"""By which U is overstated: above what rounding does to a loss."""


def is_small(problem: Problem) -> bool:
    """Whether the LP over all pairs is small enough to be solved as it is."""
    size = problem.size
    return size <= MOST_RECORDS and size * (size - 1) * problem.outputs_count <= MOST_ROWS


class SmallLp:
    """One run. `best` is always a mechanism whose audit holds, `bound` always a valid bound."""

    def __init__(
        self,
        problem: Problem,
        gap: float,
        time_limit: float | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.problem, self.gap = problem, gap
        self.time_limit, self.progress = time_limit, progress
        self.seconds: dict[str, float] = {}
        self.trace: list[tuple[float, int, float, float]] = []
        self.iterations = self.edges = 0

    def run(self) -> Mechanism:
        """Passes until the gap is certified or nothing moves any more."""
        self.began = self.mark = time.perf_counter()
        problem = self.problem
        self.free = free_bound(problem)
        centres = [centre_bound(problem, x) for x in range(problem.size)]
        self.bound = max(self.free, *centres)
        best = int(np.argmax(centres))
        self.proofs = [free_proof(problem), centre_proof(problem, best)]
        self.best = release(problem, one_row(problem), method="optimal")
        self._spent("audit")
        try:
            stopped = self._loop()
        except KeyboardInterrupt:
            stopped = Stopped.INTERRUPTED
        bound, proof = proved(self.bound, self.best.loss, self.gap, self.proofs)
        return self.best.with_facts(
            method="optimal",
            lower_bound=bound,
            proof=proof,
            stages=tuple(self.seconds.items()),
            details={
                **self.best.details,
                "stopped": stopped,
                "iterations": self.iterations,
                "edges": self.edges,
                "backend": "lp",
                "trace": tuple(self.trace),
            },
        )

    def _loop(self) -> Stopped:
        self.closure = Closure(self.problem.domain)
        # Pairs that others imply up to the gap come in where the first pass is not enough.
        stretch = 1 + self.gap
        for _ in range(PASSES):
            if self._reached():
                return Stopped.GAP_REACHED
            before = self.best.loss - self.bound
            left = self._left()
            if left is not None and left <= 0:
                return Stopped.TIME_LIMIT
            solved = self._pass(pairs_beyond(self.problem, stretch), left)
            self._report()
            if not solved or (stretch == 1.0 and self.best.loss - self.bound > 0.9 * before):
                break
            stretch = 1.0
        if not self._reached():
            self._offer_others()
        if self._reached():
            return Stopped.GAP_REACHED
        left = self._left()
        over = left is not None and left <= 0
        return Stopped.TIME_LIMIT if over else Stopped.PRECISION_REACHED

    def _pass(self, graph: Graph, left: float | None) -> bool:
        """Solve the LP over a graph at the present U; whether HiGHS had an answer."""
        problem = self.problem
        self.edges = graph.count
        excess = problem.prior[:, None] * (problem.loss - problem.loss.min(axis=1)[:, None])
        room = self.best.loss * INFLATED - self.free
        most = entry_bounds(problem, excess, room)
        lp = BoxedLp(problem, graph, excess, room, most)
        self._spent("build")
        answer = lp.solve(left)
        self._spent("solve")
        if answer is None:
            return False
        table, multipliers, iterations = answer
        self.iterations += iterations
        self.bound = max(self.bound, boxed_bound(problem, graph, multipliers, most * INFLATED))
        if np.isfinite(multipliers).all():
            self.proofs.append(proof_of(problem, graph, multipliers))
        self._spent("bound")
        self._certify(table)
        return True

    def _certify(self, table: FloatArray) -> None:
        problem = self.problem
        floor = floor_row(problem, table / table.sum(axis=1, keepdims=True))
        repaired = repair(self.closure, table, problem.epsilon, TIGHTENING, floor)
        self._spent("repair")
        details = {"closure_rounds": repaired.rounds, "common_share": repaired.common_share}
        try:
            self._offer(release(problem, repaired.matrix, method="optimal", details=details))
        except PrivacyError:
            # Records too near for the integers: what is at hand stays.
            return
        finally:
            self._spent("audit")

    def _offer_others(self) -> None:
        """The closed form, and the best table with its outputs remapped."""
        with contextlib.suppress(PrivacyError):
            self._offer(loss_exponential(self.problem))
        self._offer(remap(self.best))
        self._spent("other tables")

    def _offer(self, mechanism: Mechanism) -> None:
        if mechanism.loss < self.best.loss:
            self.best = mechanism

    def _reached(self) -> bool:
        return self.best.loss - self.bound <= self.gap * self.bound

    def _left(self) -> float | None:
        if self.time_limit is None:
            return None
        return self.time_limit - (time.perf_counter() - self.began)

    def _report(self) -> None:
        spent = time.perf_counter() - self.began
        self.trace.append((spent, self.iterations, self.best.loss, self.bound))
        if self.progress is not None:
            step = Progress(spent, self.iterations, self.best.loss, self.bound, self.edges)
            self.progress(step)

    def _spent(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self.mark
        self.mark = now


def pairs_beyond(problem: Problem, stretch: float) -> Graph:
    """All pairs but those that a third record implies: d(i, k) + d(k, j) <= stretch d(i, j)."""
    distance = problem.domain.distances()
    size = len(distance)
    implied = np.zeros((size, size), dtype=bool)
    if stretch > 1:
        for k in range(size):
            detour = distance[:, k, None] + distance[k]
            detour[k] = detour[:, k] = np.inf
            implied |= detour <= stretch * distance
    ends = np.argwhere(np.triu(~implied, 1))
    length = problem.domain.metric.pairs(ends[:, 0], ends[:, 1])
    short = problem.epsilon * length <= LARGEST_EXPONENT
    return Graph(ends[short], length[short])


def entry_bounds(problem: Problem, excess: FloatArray, room: float) -> FloatArray:
    """b of the module's head: what the entries of a table of at most `room` excess can be."""
    own = np.divide(room, excess, out=np.ones_like(excess), where=excess > room)
    exponent = problem.epsilon * problem.domain.distances()
    grown = np.exp(np.minimum(exponent * (1 + 1e-12), 700.0))
    most = own.copy()
    for j in range(len(own)):
        np.minimum(most, grown[:, j, None] * own[j], out=most)
    return most


class BoxedLp:
    """The LP in w = z / b, rows scaled by 1 / sqrt(r)."""

    def __init__(
        self, problem: Problem, graph: Graph, excess: FloatArray, room: float, most: FloatArray
    ) -> None:
        self.most, self.room = most, room
        self.shape = size, outputs = most.shape
        own = np.concatenate([graph.ends[:, 0], graph.ends[:, 1]])
        other = np.concatenate([graph.ends[:, 1], graph.ends[:, 0]])
        growths = np.tile(growth(problem, graph), 2)[:, None]
        ratio = growths * most[other] / most[own]
        self.binding = ratio <= LARGEST_RATIO
        self.own = own
        pair, column = np.nonzero(self.binding)
        self.scale = 1 / np.sqrt(ratio[self.binding])
        count = len(pair)
        rows = np.arange(count)
        self.inequalities = scipy.sparse.csr_array(
            (
                np.concatenate([self.scale, -1 / self.scale]),
                (
                    np.concatenate([rows, rows]),
                    np.concatenate([own[pair] * outputs + column, other[pair] * outputs + column]),
                ),
            ),
            shape=(count, size * outputs),
        )
        entries = np.arange(size * outputs)
        self.sums = scipy.sparse.csr_array(
            (most.ravel(), (entries // outputs, entries)), shape=(size, size * outputs)
        )
        self.cost = (excess / room * most).ravel()

    def solve(self, time_limit: float | None) -> tuple[FloatArray, FloatArray, int] | None:
        """A table (rows near 1), multipliers (2, E, m) and iterations; None where HiGHS fails."""
        count = self.inequalities.shape[0]
        attempts = [("highs-ds", True), ("highs-ipm", True), ("highs-ds", False)]
        # SciPy's stubs know neither sparse rows nor a method that is a variable.
        highs: Any = scipy.optimize.linprog
        if count > SIMPLEX_ROWS:
            attempts[:2] = attempts[1::-1]
        for method, presolve in attempts:
            answer: Any = highs(
                self.cost,
                A_ub=self.inequalities if count else None,
                b_ub=np.zeros(count) if count else None,
                A_eq=self.sums,
                b_eq=np.ones(self.shape[0]),
                method=method,
                options={
                    "presolve": presolve,
                    "primal_feasibility_tolerance": TOLERANCE,
                    "dual_feasibility_tolerance": TOLERANCE,
                    **({} if time_limit is None else {"time_limit": time_limit}),
                },
            )
            if answer.x is not None and np.isfinite(answer.x).all():
                break
        else:
            return None
        table = np.maximum(answer.x.reshape(self.shape), 0.0) * self.most
        prices = np.zeros((len(self.own), self.shape[1]))
        if count:
            prices[self.binding] = np.maximum(-answer.ineqlin.marginals, 0.0) * self.scale
        multipliers = self.room * prices / self.most[self.own]
        return table, multipliers.reshape(2, -1, self.shape[1]), int(answer.nit)
