"""The privacy LP by Benders decomposition (LP+BD): a master over borders, LPs inside clusters.

Boundary records have an edge to another cluster; the others are internal. Given the rows of the
boundary records the clusters' internal records do not see each other, so

    min over boundary rows of  cost + sum_c V_c(boundary rows),

where V_c, the least cost of cluster c's internal rows, is convex and piecewise linear. For any
multipliers l >= 0 of the constraints that touch internal records,

    V_c(z)  >=  sum over internal x of min_y h_xy  +  sum over boundary x, y of a_xy z_xy

with h and a the reduced costs that l leaves (h with the internal costs): an optimality cut. Without
the costs the right side is at most 0 wherever the internal LP is feasible: a feasibility cut. Cuts
are kept as multipliers, so the master's prices on them add up to multipliers of the whole LP, from
which `methods/optimal/dual.py` computes a rigorous bound, and so that they can be derived anew when
the graph grows and internal records become boundary records.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.compute.highs import Answer, Lp, cost_scale, multipliers, require_numba
from panda_mdp.compute.status import Stopped
from panda_mdp.errors import MethodError
from panda_mdp.methods.certify import Budget, Standing, TableSolver, Tuning, certify
from panda_mdp.methods.closed_forms import loss_exponential
from panda_mdp.methods.optimal.dual import both_ways, dual_bound, free_bound
from panda_mdp.methods.optimal.graph import Graph, constraint_graph, missing_pairs
from panda_mdp.methods.optimal.lp import table_rows
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain
from panda_mdp.space.tiles import order_in_space
from panda_mdp.table.bound import reduced_costs
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
    label = np.empty(domain.size, dtype=np.int64)
    label[order] = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return label


@dataclass(frozen=True)
class Cut:
    """Multipliers of some edges of one cluster; `edges` are places in the graph."""

    cluster: int
    costed: bool
    """Whether the internal costs count: an optimality cut; else a feasibility cut."""
    edges: IntArray
    weights: scipy.sparse.csr_array
    """Shape (2 edges, m): z_i <= g z_j first, then z_j <= g z_i."""


class Split:
    """A problem, its graph and its clusters; costs are divided by `scale` for the solver."""

    def __init__(self, problem: Problem, graph: Graph, label: IntArray) -> None:
        self.problem, self.graph, self.label = problem, graph, label
        self.scale = cost_scale(problem.weighted_loss)
        self.cost = problem.weighted_loss / self.scale
        self.exponent = problem.epsilon * graph.length
        across = np.diff(label[graph.ends], axis=1)[:, 0] != 0
        self.boundary = np.isin(np.arange(problem.size), graph.ends[across])
        self.border = np.flatnonzero(self.boundary)
        self.clusters = [Cluster(self, int(c)) for c in np.unique(label[~self.boundary])]

    def inside(self, cluster: int) -> BoolArray:
        """The internal records of a cluster."""
        return np.asarray(~self.boundary & (self.label == cluster))

    def multipliers(self, prices: FloatArray, edges: IntArray) -> FloatArray:
        """Those of some edges, (2, edges, m), from the prices of their rows."""
        return multipliers(prices, self.exponent[edges], self.cost.shape[1])

    def cut_terms(self, cut: Cut) -> tuple[float, FloatArray]:
        """A cut's constant, and the coefficients beside it of the border's rows, (border, m)."""
        inside = self.inside(cut.cluster)
        start = np.where(inside[:, None] & cut.costed, self.cost, 0.0)
        pairs = both_ways(self.graph.ends[cut.edges])
        growths = np.tile(np.exp(self.exponent[cut.edges]), 2)
        reduced, _ = reduced_costs(start, pairs, growths, cut.weights.toarray())
        return float(reduced[inside].min(axis=1).sum()), reduced[self.border]


class Cluster:
    """The LP over one cluster's internal records, solved again for every border."""

    def __init__(self, split: Split, label: int) -> None:
        self.split, self.label = split, label
        inside = split.inside(label)
        self.records = np.flatnonzero(inside)
        self.edges = np.flatnonzero(inside[split.graph.ends].any(axis=1))
        ends = split.graph.ends[self.edges]
        self.border = np.unique(ends[~inside[ends]])
        self.cost = split.cost[self.records]
        records = np.concatenate([self.records, self.border])
        order = np.argsort(records)
        place = order[np.searchsorted(records, ends, sorter=order)]
        count, outputs = self.cost.shape
        rows, lower, upper = table_rows(place, split.exponent[self.edges], len(records), outputs)
        # The border's rows are given: their sums are no constraints, their entries no columns.
        kept = np.delete(np.arange(len(lower)), np.arange(count, len(records)))
        columns = rows[kept].tocsc()
        self._given = scipy.sparse.csr_array(columns[:, self.cost.size :][count:])
        self._lower = lower[len(records) :]
        self._lp = Lp(
            self.cost.ravel(),
            scipy.sparse.csr_array(columns[:, : self.cost.size]),
            lower[kept],
            upper[kept],
            # Presolve would throw the basis away.
            presolve=False,
        )

    def reply(
        self, table: FloatArray, time_limit: float | None = None
    ) -> tuple[FloatArray | None, Cut | None]:
        """The internal rows that are best beside the boundary rows of `table`, None where none
        fit, and a cut."""
        count = len(self.records)
        places = count + np.arange(len(self._lower))
        self._lp.set_row_bounds(places, self._lower, -(self._given @ table[self.border].ravel()))
        answer = self._lp.solve(time_limit)
        if answer.optimal and answer.primal is not None and answer.prices is not None:
            rows = np.maximum(answer.primal, 0.0).reshape(self.cost.shape)
            return rows, self._cut(answer.prices[count:], costed=True)
        if answer.infeasible and answer.ray is not None:
            # Whichever way round the ray was given, one of the two proves what it can.
            rays = (answer.ray[count:], -answer.ray[count:])
            cuts = [self._cut(ray, costed=False) for ray in rays]
            return None, max(cuts, key=lambda cut: self.violation(cut, table))
        return None, None

    def violation(self, cut: Cut, table: FloatArray) -> float:
        """By how much the boundary rows of `table` break a feasibility cut."""
        constant, slope = self.split.cut_terms(cut)
        return constant + float((slope * table[self.split.border]).sum())

    def _cut(self, prices: FloatArray, *, costed: bool) -> Cut:
        duals = self.split.multipliers(prices, self.edges).reshape(-1, self.cost.shape[1])
        return Cut(self.label, costed, self.edges, scipy.sparse.csr_array(duals))


class Master:
    """The LP over the boundary records, with cuts in place of the clusters' insides."""

    def __init__(self, split: Split) -> None:
        self.split = split
        self.cuts: list[tuple[Cut, float]] = []
        """With the sizes that their rows were divided by."""
        self._edges = np.flatnonzero(split.boundary[split.graph.ends].all(axis=1))
        self._cost = split.cost[split.border]
        place = np.searchsorted(split.border, split.graph.ends[self._edges])
        rows, lower, upper = table_rows(place, split.exponent[self._edges], *self._cost.shape)
        self._rows = len(lower)
        least = [float(c.cost.min(axis=1).sum()) for c in split.clusters]
        unused = scipy.sparse.csr_array((self._rows, len(least)))
        self._lp = Lp(
            np.append(self._cost, np.ones(len(least))),
            scipy.sparse.csr_array(scipy.sparse.hstack([rows, unused])),
            lower,
            upper,
            lower=np.append(np.zeros(self._cost.size), least),
        )

    def add(self, cuts: list[Cut]) -> None:
        """Further cuts."""
        for cut in cuts:
            constant, slope = self.split.cut_terms(cut)
            own = [cut.costed and c.label == cut.cluster for c in self.split.clusters]
            row = np.append(-slope, own)
            size = float(np.abs(row).max())
            if size > 0:
                rows = scipy.sparse.csr_array(row[None] / size)
                self._lp.add_rows(rows, np.array([constant / size]), np.array([np.inf]))
                self.cuts.append((cut, size))

    def solve(self, time_limit: float | None = None) -> Answer:
        """The best boundary rows as far as the cuts know."""
        return self._lp.solve(time_limit)

    def rows(self, answer: Answer) -> FloatArray:
        """The boundary records' rows of an answer."""
        values = np.zeros(0) if answer.primal is None else answer.primal[: self._cost.size]
        return np.maximum(values, 0.0).reshape(-1, self._cost.shape[1])

    def multipliers(self, answer: Answer) -> FloatArray:
        """Multipliers of the whole graph, (2, E, m), in the problem's own costs.

        The price of a cut is its share in its cluster's multipliers; the shares of a cluster's
        optimality cuts sum to 1, the bound on the cluster's cost taking what is left.
        """
        split, outputs = self.split, self._cost.shape[1]
        total = np.zeros((2, split.graph.count, outputs))
        if answer.prices is None:
            return total
        _, border, prices = np.split(answer.prices, [len(self._cost), self._rows])
        total[:, self._edges] = split.multipliers(border, self._edges)
        for (cut, size), price in zip(self.cuts, prices, strict=True):
            if price > 0:
                weights = cut.weights.toarray().reshape(2, -1, outputs)
                total[:, cut.edges] += (price / size) * weights
        return total * split.scale


RECORDS_PER_CLUSTER = 150
LARGEST_STEP = 0.5
TRIES = 6
"""Times that a step into infeasible ground is halved."""
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
    if clusters is not None and not (
        isinstance(clusters, int | np.integer) and 1 <= clusters <= problem.size
    ):
        raise MethodError(
            f"clusters is {clusters!r}; it must be a whole number from 1 to {problem.size}"
        )
    budget = Budget(gap, time_limit, iterations)
    count = max(-(-problem.size // RECORDS_PER_CLUSTER), 2) if clusters is None else int(clusters)
    return certify(Decomposed(problem, count), budget).mechanism()


class Decomposed(TableSolver):
    """Masters and clusters in turn; `value` is the graph's LP at `centre`, the best point."""

    method = "benders"
    backend = "highs"
    # One iteration a check, and what does not move may still be about to.
    tuning = Tuning(certify_iterations=0, markup=0.0, patience=1 << 30)

    def __init__(self, problem: Problem, clusters: int) -> None:
        self.problem, self.count = problem, clusters
        self.trail: list[tuple[int, float, float]] = []
        self.master_status = "Optimal"
        """In HiGHS's words, of the last master."""

    def begin(self, standing: Standing) -> None:
        require_numba("the exact repair of benders")
        problem = self.problem
        standing.offer_start(lambda: loss_exponential(problem))
        standing.raise_bound(free_bound(problem))
        with standing.stage("graph"):
            graph = thin_graph(problem.domain, problem.epsilon)
            self._accuracy = (standing.budget.gap or 0.0) / 3
            self._split_up(graph, compact_clusters(problem.domain, self.count), [])
        self._interior = standing.certified.matrix
        self._restart(standing)

    def _split_up(self, graph: Graph, label: IntArray, cuts: list[Cut]) -> None:
        self.split = Split(self.problem, graph, label)
        self.master = Master(self.split)
        inside = {cluster.label for cluster in self.split.clusters}
        self.master.add([cut for cut in cuts if cut.cluster in inside])
        self.edges = graph.count

    def _restart(self, standing: Standing) -> None:
        """From the best private table, which is feasible for every graph."""
        self.centre, self.point_value, self.step = standing.certified.matrix, np.inf, LARGEST_STEP
        self._ask(self.centre, standing)

    def advance(self, target: int, standing: Standing) -> None:
        """One master, and the clusters on the way to its point."""
        self.iterations += 1
        with standing.stage("master"):
            answer = self.master.solve(_seconds(standing))
        lowest = answer.objective
        if not answer.optimal or lowest is None:
            self.master_status = answer.status
            self.ended = Stopped.TIME_LIMIT if standing.late() else Stopped.FAILED
            return
        # Of the cuts so far: the step adds others.
        self._weights = self.master.multipliers(answer)
        self._step_towards(self.master.rows(answer), standing)
        scale = self.split.scale
        self.trail.append((self.iterations, lowest * scale, self.point_value * scale))
        negligible = self.tuning.negligible * float(self.problem.mean_loss.min()) / scale
        self.settled = self.point_value - lowest <= max(self._accuracy * lowest, negligible)

    def bound(self) -> float:
        if self.ended is not None:
            return -np.inf
        return dual_bound(self.problem, self.split.graph, self._weights)

    def candidate(self) -> FloatArray:
        return self.centre

    def estimate(self, candidate: FloatArray) -> float:
        return self.point_value * self.split.scale

    def extend(self, candidate: FloatArray, standing: Standing) -> None:
        """Where the graph's LP is solved: pairs outside the graph that its table breaks, or else a
        higher accuracy."""
        if not self.settled:
            return
        graph = self.split.graph
        more = missing_pairs(self.closure, graph, self.centre, self.problem.epsilon)
        if more.count:
            joined = graph.join(more.ends, more.length)
            self._split_up(joined, self.split.label, [cut for cut, _ in self.master.cuts])
            self._restart(standing)
        elif self._accuracy < 1e-6:
            self.ended = Stopped.PRECISION_REACHED
        else:
            self._accuracy /= 3

    def _step_towards(self, rows: FloatArray, standing: Standing) -> None:
        """Ask the clusters on the way from the best point to the master's; keep what is better."""
        target = self.centre.copy()
        target[self.split.border] = rows / np.maximum(rows.sum(axis=1, keepdims=True), 1e-300)
        if not self.split.clusters:
            # Nothing is inside: the master's point is the answer.
            self._ask(target, standing)
            return
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
        clusters, seconds = self.split.clusters, _seconds(standing)
        workers = max(1, min(len(clusters), os.cpu_count() or 1))
        with standing.stage("clusters"), ThreadPoolExecutor(workers) as pool:
            replies = list(pool.map(lambda c: c.reply(point, seconds), clusters))
        self.master.add([cut for _, cut in replies if cut is not None])
        table = point.copy()
        for cluster, (rows, _) in zip(clusters, replies, strict=True):
            if rows is None:
                return False
            table[cluster.records] = rows
        value = float((self.split.cost * table).sum())
        if value < self.point_value:
            self.point_value, self.centre = value, table
        return True

    def facts(self) -> dict[str, Any]:
        return {
            "master_status": self.master_status,
            "clusters": int(self.split.label.max()) + 1,
            "boundary_records": len(self.split.border),
            "cuts": len(self.master.cuts),
            "decomposition": tuple(self.trail),
        }


def _seconds(standing: Standing) -> float | None:
    left = standing.left()
    return None if left is None else max(left, 1e-3)
