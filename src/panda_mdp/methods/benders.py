"""The privacy LP by Benders decomposition (LP+BD): a master over borders, LPs inside clusters.

Boundary records have an edge to another cluster; the others are internal. Given the rows of the
boundary records the clusters' internal records do not see each other, so

    min over boundary rows of  cost + sum_c V_c(boundary rows),

where V_c, the least cost of cluster c's internal rows, is convex and piecewise linear. For any
multipliers l >= 0 of the constraints that touch internal records,

    V_c(z)  >=  sum over internal x of min_y h_xy  +  sum over boundary x, y of a_xy z_xy

with h and a the reduced costs that l leaves (h with the internal costs): an optimality cut. Without
the costs the right side is at most 0 wherever the internal LP is feasible: a feasibility cut. Cuts
are kept as prices of the whole LP's rows, so that the master's prices of them add up to multipliers
of the whole LP, from which `table/bound.py` computes a rigorous bound, and so that they
can be derived anew when the graph grows and internal records become boundary records.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import scipy

from panda_mdp.base.arrays import AnyArray, FloatArray, IntArray, owners
from panda_mdp.base.text import Facts
from panda_mdp.compute.highs import Lp, cost_scale, multipliers
from panda_mdp.errors import Stopped
from panda_mdp.methods.certify import Budget, Standing, TableSolver, Tuning, certify
from panda_mdp.methods.closed_forms import loss_exponential
from panda_mdp.methods.optimal.lp import table_rows
from panda_mdp.methods.optimal.program import (
    Graph,
    broken_pairs,
    constraint_graph,
    edge_multipliers,
    free_bound,
)
from panda_mdp.problem import Problem, check_number
from panda_mdp.space.domain import Domain
from panda_mdp.space.tiles import order_in_space
from panda_mdp.table.bound import Proved
from panda_mdp.table.mechanism import Mechanism

NEIGHBOURS = 8
"""Fewer than elsewhere: every edge across a border makes boundary records, and what is missing is
added later."""


def thin_graph(domain: Domain, epsilon: float) -> Graph:
    """The constraint graph of near records, also for small domains: all pairs have no inside."""
    return constraint_graph(domain, epsilon, NEIGHBOURS, small=0)


def compact_clusters(domain: Domain, count: int) -> IntArray:
    """The cluster of each record: at most `count` of them, compact and of about equal size."""
    order, starts = order_in_space(domain.metric.embedding, -(-domain.size // count))
    label = np.empty(domain.size, np.int64)
    label[order] = owners(starts)
    return label


class Split:
    """The rows of the whole LP, which of its columns are a border's and which a cluster's, and the
    master: the LP over the border's, with cuts in place of the clusters' insides. Costs are divided
    by `scale` for the solver."""

    def __init__(self, problem: Problem, graph: Graph, label: IntArray) -> None:
        self.problem = problem
        self.graph = graph
        self.label = label
        self.exponent = problem.epsilon * graph.length
        outputs = problem.outputs_count
        self.rows, self.lower, self.upper = table_rows(
            graph.ends, self.exponent, *problem.loss.shape
        )
        self.scale = cost_scale(problem.weighted_loss)
        self.cost = problem.weighted_loss.ravel() / self.scale
        across = np.diff(label[graph.ends], axis=1)[:, 0] != 0
        self.boundary = np.isin(np.arange(problem.size), graph.ends[across])
        owner = np.repeat(np.where(self.boundary, -1, label), outputs)
        self.border = np.flatnonzero(owner < 0)
        inside = np.unique(owner[owner >= 0]).tolist()
        self.clusters = [Cluster(self, c, np.flatnonzero(owner == c)) for c in inside]
        self.cuts: list[Cut] = []
        self._sizes: list[float] = []
        """What the cuts' rows were divided by."""
        own = np.ones(len(self.upper), bool)
        for cluster in self.clusters:
            own[cluster.rows] = False
        self._own = np.flatnonzero(own)
        least = [c.cost.reshape(-1, outputs).min(axis=1).sum() for c in self.clusters]
        private = self.rows[self._own].tocsc()[:, self.border]
        unused = scipy.sparse.csr_array((len(self._own), len(least)))
        self.master = Lp(
            np.append(self.cost[self.border], np.ones(len(least))),
            scipy.sparse.csr_array(scipy.sparse.hstack([private, unused])),
            self.lower[self._own],
            self.upper[self._own],
            lower=np.append(np.zeros(len(self.border)), least),
        )

    def add(self, cuts: list[Cut]) -> None:
        """Further cuts of the master."""
        for cut in cuts:
            row, least = cut.row(self)
            size = float(np.abs(row).max())
            if size > 0:
                rows = scipy.sparse.csr_array(row[None] / size)
                self.master.add_rows(rows, np.array([least / size]), np.array([np.inf]))
                self.cuts.append(cut)
                self._sizes.append(size)

    def multipliers(self, prices: FloatArray) -> FloatArray:
        """Those of the whole graph, (2, E, m), in the problem's own costs, from the master's.

        The price of a cut is its share in its cluster's multipliers; the shares of a cluster's
        optimality cuts sum to 1, the bound on the cluster's cost taking what is left.
        """
        total = np.zeros(len(self.upper))
        total[self._own], shares = np.split(prices, [len(self._own)])
        for cut, share in zip(self.cuts, shares / self._sizes, strict=True):
            total[cut.rows] += max(share, 0.0) * cut.prices
        problem = self.problem
        return self.scale * multipliers(total[problem.size :], self.exponent, problem.outputs_count)

    def grown(self, more: Graph) -> Split:
        """The same clusters with further pairs, which may make internal records a border's; cuts
        are kept."""
        larger = Split(self.problem, self.graph.join(more.ends, more.length), self.label)
        # Further edges come last: rows keep their numbers.
        larger.add(self.cuts)
        return larger


@dataclass(frozen=True)
class Cut:
    """Prices of some rows of the LP, which touch one cluster."""

    cluster: int
    costed: bool
    """Whether the internal costs count: an optimality cut; else a feasibility cut."""
    rows: AnyArray
    prices: FloatArray

    def row(self, split: Split) -> tuple[FloatArray, float]:
        """Coefficients of the border's entries and of the clusters' costs, and what they sum to at
        least."""
        terms = (self.prices @ split.rows[self.rows])[split.border]
        own = [self.costed and cluster.label == self.cluster for cluster in split.clusters]
        return np.append(terms, own), float(self.prices @ split.upper[self.rows])


class Cluster:
    """The LP over one cluster's internal records, solved again for every border."""

    def __init__(self, split: Split, label: int, columns: IntArray) -> None:
        self.split = split
        self.label = label
        self.columns = columns
        self.cost = split.cost[columns]
        self.rows = np.unique(split.rows.tocsc()[:, columns].indices)
        part = split.rows[self.rows].tocsc()
        self._given = scipy.sparse.csr_array(part[:, split.border])
        self._lower = split.lower[self.rows]
        self._upper = split.upper[self.rows]
        inner = scipy.sparse.csr_array(part[:, columns])
        # Presolve would throw the basis away.
        self._lp = Lp(self.cost, inner, self._lower, self._upper, presolve=False)

    def reply(
        self, point: FloatArray, time_limit: float | None = None
    ) -> tuple[FloatArray | None, Cut | None]:
        """The internal entries that are best beside the border's of a `point` (K m,), None where
        none fit, and a cut."""
        given = self._given @ point[self.split.border]
        upper = self._upper - given
        self._lp.set_row_bounds(np.arange(len(given)), self._lower - given, upper)
        answer = self._lp.solve(time_limit)
        prices = answer.prices if answer.optimal else answer.ray
        if prices is None:
            return None, None
        if not answer.optimal:
            # Whichever way round the ray was given, one of the two cuts the point off.
            prices = prices * np.sign(prices @ upper)
        priced = np.flatnonzero(prices)
        best = answer.primal if answer.optimal else None
        return best, Cut(self.label, answer.optimal, self.rows[priced], prices[priced])


RECORDS_PER_CLUSTER = 150
LARGEST_STEP = 0.5
TRIES = 6
"""Times that a step into infeasible ground is halved."""
NEGLIGIBLE = 1e-6
"""In mean costs of an entry: a difference between the master and the best point that is none."""
INWARD = 0.05
"""Share of a point well inside that is mixed in with every halving: at the edge of what is
feasible, cuts say little."""


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
    private loss, lower bound) for every iteration.

    `time_limit` (seconds), `iterations` or an interrupt end with the best private table so far.

    >>> from panda_mdp import Domain
    >>> domain = Domain.from_vectors([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0]])
    >>> problem = Problem(domain, [0, 2, 4], domain.distances(None, [0, 2, 4]), epsilon=1.0)
    >>> mechanism = benders(problem, clusters=2)
    >>> mechanism.audit.holds, mechanism.gap <= 0.01
    (True, True)
    """
    rule = f"a whole number from 1 to {problem.size}"
    check_number(clusters, "clusters", rule, least=1, most=problem.size, whole=True)
    budget = Budget(gap, time_limit, iterations)
    count = max(-(-problem.size // RECORDS_PER_CLUSTER), 2) if clusters is None else int(clusters)
    return certify(Decomposed(problem, count), budget).mechanism()


class Decomposed(TableSolver):
    """Masters and clusters in turn; `point_value` is the graph's LP at `centre`, the best point."""

    method = "benders"
    backend = "highs"
    # One iteration a check, and what does not move may still be about to.
    tuning = Tuning(certify_iterations=0, markup=0.0, patience=1 << 30)

    def __init__(self, problem: Problem, clusters: int) -> None:
        self.problem = problem
        self.count = clusters

    def begin(self, standing: Standing) -> None:
        problem = self.problem
        standing.offer_start(lambda: loss_exponential(problem))
        standing.raise_bound(free_bound(problem))
        self._accuracy = (standing.budget.gap or 0.0) / 3
        self._interior = standing.certified.matrix.ravel()
        with standing.stage("graph"):
            graph = thin_graph(problem.domain, problem.epsilon)
            split = Split(problem, graph, compact_clusters(problem.domain, self.count))
        self._restart(split, standing)

    def _restart(self, split: Split, standing: Standing) -> None:
        """From the best private table, which is feasible for every graph."""
        self.split = split
        self.edges = split.graph.count
        self.centre = standing.certified.matrix.ravel()
        self.point_value = np.inf
        # Where nothing is inside the master's point is the answer.
        self.step = LARGEST_STEP if split.clusters else 1.0
        self._ask(self.centre, standing)

    def advance(self, target: int, standing: Standing) -> None:
        """One master, and the clusters on the way to its point."""
        self.iterations += 1
        with standing.stage("master"):
            answer = self.split.master.solve(standing.left())
        lowest = answer.objective
        self.status = answer.status
        if not answer.optimal or lowest is None or answer.primal is None or answer.prices is None:
            self.ended = Stopped.TIME_LIMIT if standing.late() else Stopped.FAILED
            return
        # Of the cuts so far: the step adds others.
        self._weights = self.split.multipliers(answer.prices)
        target_point = self.centre.copy()
        target_point[self.split.border] = answer.primal[: len(self.split.border)]
        self._step_towards(np.maximum(target_point, 0.0), standing)
        self.settled = self.point_value - lowest <= self._accuracy * lowest + NEGLIGIBLE

    def bound(self) -> float | Proved:
        if self.ended is not None:
            return -np.inf
        return Proved(self.problem, edge_multipliers(self.split.graph, self._weights))

    def candidate(self) -> FloatArray:
        return self.centre.reshape(self.problem.loss.shape)

    def estimate(self, candidate: FloatArray) -> float:
        return self.point_value * self.split.scale

    def extend(self, candidate: FloatArray, standing: Standing) -> None:
        """Where the graph's LP is solved: pairs outside the graph that its table breaks, or else a
        higher accuracy."""
        if not self.settled:
            return
        table = self.closure.start(candidate)
        more = broken_pairs(self.closure, self.split.graph, table, self.problem.epsilon)
        if more.count:
            self._restart(self.split.grown(more), standing)
        elif self._accuracy < 1e-6:
            self.ended = Stopped.PRECISION_REACHED
        else:
            self._accuracy /= 3

    def _step_towards(self, target: FloatArray, standing: Standing) -> None:
        """Ask the clusters on the way from the best point to the master's; keep what is better."""
        for attempt in range(TRIES):
            inward = INWARD * attempt
            base = (1 - inward) * self.centre + inward * self._interior
            if self._ask(self.step * target + (1 - self.step) * base, standing):
                if attempt == 0:
                    self.step = min(LARGEST_STEP, 1.5 * self.step)
                return
            if standing.late():
                return
            self.step /= 2

    def _ask(self, point: FloatArray, standing: Standing) -> bool:
        """Hand a point to all clusters, their cuts to the master; whether all have rows for it."""
        clusters = self.split.clusters
        workers = max(1, min(len(clusters), os.cpu_count() or 1))
        with standing.stage("clusters"), ThreadPoolExecutor(workers) as pool:
            # What is left when it is a cluster's turn.
            replies = list(pool.map(lambda c: c.reply(point, standing.left()), clusters))
        self.split.add([cut for _, cut in replies if cut is not None])
        point = point.copy()
        for cluster, (entries, _) in zip(clusters, replies, strict=True):
            if entries is None:
                return False
            point[cluster.columns] = np.maximum(entries, 0.0)
        value = float(self.split.cost @ point)
        if value < self.point_value:
            self.point_value = value
            self.centre = point
        return True

    def facts(self) -> Facts:
        if not self.edges:
            # Time was over before there was anything to cut.
            return {}
        return {
            "clusters": int(self.split.label.max()) + 1,
            "boundary_records": int(self.split.boundary.sum()),
            "cuts": len(self.split.cuts),
        }
