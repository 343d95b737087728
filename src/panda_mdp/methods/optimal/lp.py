"""The privacy LP through HiGHS: as the paper has it, and small ones whatever their losses are.

Solvers of LPs work to absolute tolerances, and losses may span twenty orders of magnitude. Three
facts put all numbers of a small LP in range. Rows sum to 1, so only the excess e_xy = p_x (c_xy -
min_y c_xy) over the cheapest output counts. A table of excess U is at hand, so an optimal one has

    z_xy <= b_xy = min over x' of  exp(epsilon d(x, x')) min(1, U / e_x'y).

In w = z / b the costs e b / U lie in [0, 1], and "z_i <= g z_j" reads w_i <= r w_j with r >= 1;
where r is beyond `LARGEST_RATIO` it binds nothing that costs more than U / r and is left out. Each
pass lowers U to the excess of the private table that it ends with, until bound and table meet.
The bound is the multipliers' own (program.py) over tables within the box b, which optimal ones are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.text import Facts
from panda_mdp.compute.highs import (
    ALGORITHMS,
    Algorithm,
    Answer,
    Lp,
    cost_scale,
    multipliers,
    privacy_rows,
    sum_rows,
)
from panda_mdp.errors import MethodError, PrivacyError, Stopped
from panda_mdp.methods.adjust import remap
from panda_mdp.methods.certify import Budget, Standing, TableSolver, Tuning, certify
from panda_mdp.methods.closed_forms import loss_exponential
from panda_mdp.methods.optimal.program import (
    Graph,
    all_pairs,
    boxed_bound,
    centre_bound,
    centre_proof,
    constraint_graph,
    edge_multipliers,
    free_bound,
    free_proof,
)
from panda_mdp.privacy.quantise import TOTAL
from panda_mdp.problem import Problem, check_number
from panda_mdp.table.bound import Proved
from panda_mdp.table.mechanism import Mechanism, floor_row, normalise

SIMPLEX_ROWS = 2_000
"""Up to here the simplex method is the faster one."""
PASSES = 8
LARGEST_RATIO = 1e9
TOLERANCE = 1e-9
LARGEST_EXPONENT = 200.0
"""Pairs with epsilon d beyond it are left out, not shortened."""
INFLATED = 1 + 1e-9
"""By which U is overstated: above what rounding does to a loss."""


def entry_bounds(
    problem: Problem, loss: float, free: float
) -> tuple[float, FloatArray, FloatArray]:
    """U, e and b of the module's head, for tables that lose at most `loss`, `free` of it anyway."""
    excess = problem.prior[:, None] * (problem.loss - problem.loss.min(axis=1)[:, None])
    # Less than the faintest weight on the dearest output is nothing that integers could spend.
    room = max(loss * INFLATED - free, float(excess.max()) / TOTAL) or 1.0
    own = np.divide(room, excess, out=np.ones_like(excess), where=excess > room)
    exponent = problem.epsilon * problem.domain.distances()
    grown = np.exp(np.minimum(exponent * (1 + 1e-12), 700.0))
    most = own.copy()
    for j in range(len(own)):
        np.minimum(most, grown[:, j, None] * own[j], out=most)
    return room, excess, most


def boxed_rows(
    ends: IntArray, exponent: FloatArray, most: FloatArray
) -> tuple[scipy.sparse.csr_array, FloatArray, FloatArray, FloatArray]:
    """`table_rows` in w = z / `most`, those of edges divided by the mean of their two coefficients,
    0 where they bind nothing; and by what theirs were multiplied."""
    rows, lower, upper = table_rows(ends, exponent, *most.shape)
    rows.data *= most.ravel()[rows.indices]
    pairs = rows.data[most.size :].reshape(-1, 2)
    own = pairs.max(axis=1)
    other = -pairs.min(axis=1)
    factors = (other <= LARGEST_RATIO * own) / np.sqrt(own * other)
    pairs *= factors[:, None]
    return rows, lower, upper, factors


def table_rows(
    ends: IntArray, exponent: FloatArray, records: int, outputs: int
) -> tuple[scipy.sparse.csr_array, FloatArray, FloatArray]:
    """The rows of the privacy LP over some edges with their lower and upper limits: first the sums
    of all records, which are 1, then `privacy_rows`."""
    edges = privacy_rows(ends, exponent, records, outputs)
    rows = scipy.sparse.csr_array(scipy.sparse.vstack([sum_rows(records, outputs), edges]))
    # Blocks of few outputs are stored whole.
    rows.eliminate_zeros()
    ones = np.ones(records)
    count = edges.shape[0]
    lower = np.append(ones, np.full(count, -np.inf))
    return rows, lower, np.append(ones, np.zeros(count))


Pairs = Literal["graph", "all"]
Parts = tuple[FloatArray, scipy.sparse.csr_array, FloatArray, FloatArray]
"""Of an LP: costs, rows, and their lower and upper limits."""


def solve_lp(
    problem: Problem,
    pairs: Pairs = "graph",
    algorithm: Algorithm = "ipm",
    *,
    time_limit: float | None = None,
    tolerance: float | None = None,
) -> Mechanism:
    """The table of least expected loss by HiGHS: the paper's LP, made exactly private.

        min sum_x p_x c_xy z_xy   s.t.   sum_y z_xy = 1,  z_xy <= exp(epsilon d(x, x')) z_x'y

    over all `pairs`, or over the sparse graph that `optimal` starts from. `algorithm` is "ipm"
    (interior point without crossover), "simplex" or "pdlp"; `tolerance` is that of
    feasibility and of the relative gap (HiGHS's own by default). The LP has K m columns and 2 m
    rows a pair, so all pairs are for small domains.

    Guarantee: epsilon-mDP over all pairs, by audit. HiGHS satisfies its rows up to a tolerance
    only, so its table is closed over all pairs and audited like any other. `lower_bound` is
    computed from HiGHS's prices in float64 with all rounding accounted for and holds whatever
    HiGHS did; its own objective is in `details["highs_objective"]`, its verdict in
    `details["highs_status"]`.

    Where `time_limit` (seconds) is over, HiGHS is interrupted or it fails, the result is the best
    of its last table, repaired, and of `loss_exponential`; `details["stopped"]` says so.

    >>> from panda_mdp import Domain
    >>> domain = Domain.from_vectors([[0.0], [1.0], [2.0]])
    >>> problem = Problem(domain, [0, 1, 2], domain.distances(), epsilon=1.0)
    >>> mechanism = solve_lp(problem, pairs="all", algorithm="simplex")
    >>> mechanism.audit.holds, mechanism.gap < 1e-3
    (True, True)
    """
    if pairs not in ("graph", "all"):
        raise MethodError(f"pairs is {pairs!r}; it must be 'graph' or 'all'")
    if algorithm not in ALGORITHMS:
        raise MethodError(f"algorithm is {algorithm!r}; it must be one of {', '.join(ALGORITHMS)}")
    check_number(tolerance, "tolerance", "positive, or None for HiGHS's own")
    budget = Budget(gap=None, time_limit=time_limit)
    return certify(HighsLp(problem, pairs, algorithm, tolerance), budget).mechanism()


class OneLp(TableSolver):
    """An LP handed to HiGHS once, or again in another way where it fails."""

    backend = "highs"
    pairs: Pairs = "graph"
    attempts: tuple[tuple[Any, ...], ...] = (("ipm", None),)
    """Algorithms, tolerances and whether HiGHS presolves, each where the ones before failed."""
    solver: type[Lp] = Lp
    lower: FloatArray | None = None
    """Of the variables, where it is not 0."""
    answer = Answer()

    def begin(self, standing: Standing) -> None:
        problem = self.problem
        with standing.stage("graph"):
            build = all_pairs if self.pairs == "all" else constraint_graph
            self.over(build(problem.domain, problem.epsilon))
        self.scale = cost_scale(problem.weighted_loss)

    def over(self, graph: Graph) -> None:
        """Constrain the pairs of a graph."""
        self.graph = graph
        self.edges = graph.count
        self.exponent = self.problem.epsilon * graph.length

    def parts(self) -> Parts:
        """Costs, divided by `scale`, rows, and their lower and upper limits."""
        rows = table_rows(self.graph.ends, self.exponent, *self.problem.loss.shape)
        return self.problem.weighted_loss.ravel() / self.scale, *rows

    def table(self, values: FloatArray) -> FloatArray:
        """The table of some values of the variables."""
        return values.reshape(self.problem.loss.shape)

    def advance(self, target: int, standing: Standing) -> None:
        """All that HiGHS does; the target is its own."""
        with standing.stage("build"):
            parts = self.parts()
        for attempt in self.attempts:
            left = standing.left()
            self.ended = Stopped.TIME_LIMIT
            if left is not None and left <= 0:
                return
            self.answer, self.ended = self.solver(*parts, *attempt, lower=self.lower).attempt(left)
            self.iterations += self.answer.iterations
            self.status = self.answer.status
            if self.ended is not Stopped.FAILED:
                return

    def candidate(self) -> FloatArray | None:
        values = self.answer.primal
        return None if values is None else self.table(values)

    def facts(self) -> Facts:
        objective = self.answer.objective
        return {
            "algorithm": self.attempts[0][0],
            "highs_status": self.answer.status,
            "highs_objective": None if objective is None else objective * self.scale,
        }


class HighsLp(OneLp):
    """The whole table; `loss_exponential` where HiGHS gives none in time."""

    method = "optimal, HiGHS"
    tightening = 5e-6

    def __init__(
        self,
        problem: Problem,
        pairs: Pairs,
        algorithm: Algorithm,
        tolerance: float | None = None,
    ) -> None:
        self.problem = problem
        self.pairs = pairs
        self.attempts = ((algorithm, tolerance),)

    def begin(self, standing: Standing) -> None:
        standing.raise_bound(free_bound(self.problem))
        # Something to return must be at hand when the time is over, or where HiGHS fails.
        with contextlib.suppress(PrivacyError):
            standing.offer_start(
                lambda: loss_exponential(self.problem).with_details(table="loss exponential")
            )
        super().begin(standing)

    def bound(self) -> float | Proved:
        if self.answer.prices is None:
            return -np.inf
        problem = self.problem
        prices = self.answer.prices[problem.size :] * self.scale
        found = multipliers(prices, self.exponent, problem.outputs_count)
        return Proved(problem, edge_multipliers(self.graph, found))

    def proof(self) -> Proved:
        return free_proof(self.problem)

    def facts(self) -> Facts:
        return {**super().facts(), "pairs": self.pairs}


class SmallLp(OneLp):
    """Passes of the LP in range, each with U lowered to what the best table attains."""

    backend = "lp"
    tuning = Tuning(negligible=0.0)
    tightening = 2e-6
    _passes = 0

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.proofs: list[Proved] = []

    def begin(self, standing: Standing) -> None:
        problem = self.problem
        self._free = free_bound(problem)
        self.over(all_pairs(problem.domain, problem.epsilon, LARGEST_EXPONENT))
        centres = [centre_bound(problem, x) for x in range(problem.size)]
        standing.raise_bound(max(self._free, *centres))
        self.proofs = [free_proof(problem), centre_proof(problem, int(np.argmax(centres)))]
        with standing.stage("audit"):
            standing.offer(self.last_resort(standing))

    def advance(self, target: int, standing: Standing) -> None:
        """One pass at the present U; the target is its own."""
        self._before = standing.value - standing.bound
        self.answer = Answer()
        self._passes += 1
        self.scale, self._excess, self._most = entry_bounds(
            self.problem, standing.value, self._free
        )
        super().advance(target, standing)
        if self.ended is not Stopped.INTERRUPTED:
            without = Stopped.TIME_LIMIT if standing.late() else Stopped.PRECISION_REACHED
            self.ended = without if self.candidate() is None else None

    def parts(self) -> Parts:
        """The LP in w = z / b, rows divided by the mean of their two coefficients."""
        rows, lower, upper, self._factors = boxed_rows(self.graph.ends, self.exponent, self._most)
        few = len(self._factors) <= SIMPLEX_ROWS
        order: tuple[Algorithm, ...] = ("simplex", "ipm") if few else ("ipm", "simplex")
        tried = ((algorithm, TOLERANCE) for algorithm in order)
        self.attempts = (*tried, ("simplex", TOLERANCE, False))
        return (self._excess / self.scale * self._most).ravel(), rows, lower, upper

    def table(self, values: FloatArray) -> FloatArray:
        return np.maximum(super().table(values), 0.0) * self._most

    def bound(self) -> float:
        if self.answer.prices is None:
            return -np.inf
        problem = self.problem
        prices = self.scale * self.answer.prices[problem.size :] * self._factors
        found = multipliers(prices, self.exponent, problem.outputs_count)
        edges = edge_multipliers(self.graph, found)
        self.proofs.append(Proved(problem, edges))
        return boxed_bound(problem, edges, self._most * INFLATED, problem.weighted_loss)

    def proof(self) -> Proved:
        return max(self.proofs, key=lambda proof: proof.value)

    def candidate(self) -> FloatArray | None:
        table = super().candidate()
        # What HiGHS has when time is over may be nothing at all.
        return table if table is not None and table.any(axis=1).all() else None

    def floor(self, candidate: FloatArray) -> FloatArray:
        return floor_row(self.problem, normalise(candidate))

    def extend(self, candidate: FloatArray, standing: Standing) -> None:
        stalled = self._passes > 1 and standing.value - standing.bound > 0.9 * self._before
        if stalled or self._passes >= PASSES:
            self.ended = Stopped.PRECISION_REACHED

    def fallbacks(self, standing: Standing) -> Iterator[Mechanism]:
        with contextlib.suppress(PrivacyError):
            yield loss_exponential(self.problem)
        yield remap(standing.certified)

    def facts(self) -> Facts:
        return {}
