"""The privacy LP split by clusters of records: a master over their borders, one LP inside each.

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

from dataclasses import dataclass

import numpy as np
import scipy

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.compute.highs import Answer, Lp, cost_scale, multipliers, privacy_rows, sum_rows
from panda_mdp.methods.optimal.dual import reduced_costs
from panda_mdp.methods.optimal.graph import NEIGHBOURS, Graph, _measured, delaunay, yao
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain
from panda_mdp.space.tiles import order_in_space

CONES = 6
"""Fewer than elsewhere: every edge across a border makes boundary records, and what is missing is
added later."""


def thin_graph(domain: Domain, epsilon: float) -> Graph:
    """The constraint graph of near records, also for small domains: all pairs have no inside."""
    if domain.plane is not None:
        pairs = np.concatenate([delaunay(domain.plane), yao(domain.plane, CONES)])
    else:
        near, _ = domain.neighbours(min(NEIGHBOURS, domain.size - 1))
        pairs = np.stack([np.repeat(np.arange(domain.size), near.shape[1]), near.ravel()], axis=1)
    return _measured(domain, np.unique(np.sort(pairs, axis=1), axis=0), epsilon)


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


@dataclass(frozen=True)
class Reply:
    """What a cluster makes of the boundary's rows."""

    value: float | None
    """Cost of its internal rows; None where there are none that fit."""
    rows: FloatArray | None
    cut: Cut | None


class Split:
    """A problem, its graph and its clusters; costs are divided by `scale` for the solver."""

    def __init__(self, problem: Problem, graph: Graph, label: IntArray) -> None:
        self.problem, self.graph, self.label = problem, graph, label
        self.outputs = problem.outputs_count
        self.scale = cost_scale(problem.weighted_loss)
        self.cost = problem.weighted_loss / self.scale
        self.exponent = problem.epsilon * graph.length
        self.growth = np.exp(self.exponent)
        ends = label[graph.ends]
        self.boundary: BoolArray = np.zeros(problem.size, dtype=np.bool_)
        self.boundary[graph.ends[ends[:, 0] != ends[:, 1]].ravel()] = True
        self.border = np.flatnonzero(self.boundary)
        self.clusters = [
            Cluster(self, c)
            for c in range(int(label.max()) + 1)
            if not self.boundary[label == c].all()
        ]

    def cut_terms(self, cut: Cut) -> tuple[float, IntArray, FloatArray]:
        """A cut's constant, and the boundary records and coefficients (records, m) beside it."""
        ends = self.graph.ends[cut.edges]
        touched = np.unique(ends)
        local = np.searchsorted(touched, ends)
        inside = ~self.boundary[touched]
        start = np.where(inside[:, None] & cut.costed, self.cost[touched], 0.0)
        weights = cut.weights.toarray().reshape(2, len(cut.edges), self.outputs)
        reduced, _ = reduced_costs(start, local, self.growth[cut.edges], weights)
        constant = float(reduced[inside].min(axis=1).sum())
        if cut.costed:
            # Internal records that no multiplier touches take their cheapest output.
            alone = ~self.boundary & (self.label == cut.cluster)
            alone[touched] = False
            constant += float(self.cost[alone].min(axis=1).sum())
        return constant, touched[~inside], reduced[~inside]


class Cluster:
    """The LP over one cluster's internal records, solved again for every border."""

    def __init__(self, split: Split, label: int) -> None:
        self.split, self.label = split, label
        inside = ~split.boundary & (split.label == label)
        self.records = np.flatnonzero(inside)
        self.edges = np.flatnonzero(inside[split.graph.ends].any(axis=1))
        ends = split.graph.ends[self.edges]
        self.border = np.unique(ends[~inside[ends]])
        place = np.empty(split.problem.size, dtype=np.int64)
        place[self.records] = np.arange(len(self.records))
        place[self.border] = len(self.records) + np.arange(len(self.border))
        count, outputs = len(self.records), split.outputs
        size = count + len(self.border)
        rows = privacy_rows(place[ends], split.exponent[self.edges], size, outputs).tocsc()
        self._given = scipy.sparse.csr_array(rows[:, count * outputs :])
        own = scipy.sparse.csr_array(rows[:, : count * outputs])
        self._places = count + np.arange(own.shape[0])
        self._free = np.full(own.shape[0], -np.inf)
        self._lp = Lp(
            split.cost[self.records].ravel(),
            scipy.sparse.csr_array(scipy.sparse.vstack([sum_rows(count, outputs), own])),
            np.concatenate([np.ones(count), self._free]),
            np.concatenate([np.ones(count), np.zeros(own.shape[0])]),
            # Presolve would throw the basis away.
            presolve=False,
        )

    def reply(self, table: FloatArray, time_limit: float | None = None) -> Reply:
        """The internal rows that are best beside the boundary rows of `table`, and a cut."""
        limits = -(self._given @ table[self.border].ravel())
        self._lp.set_row_bounds(self._places, self._free, limits)
        answer = self._lp.solve(time_limit)
        if answer.optimal and answer.primal is not None and answer.prices is not None:
            rows = np.maximum(answer.primal, 0.0).reshape(len(self.records), -1)
            value = float((self.split.cost[self.records] * rows).sum())
            return Reply(value, rows, self._cut(answer.prices, costed=True))
        if answer.infeasible and answer.ray is not None:
            # Whichever way round the ray was given, one of the two proves what it can.
            cuts = [self._cut(sign * answer.ray, costed=False) for sign in (1.0, -1.0)]
            return Reply(None, None, max(cuts, key=lambda cut: self.violation(cut, table)))
        return Reply(None, None, None)

    def violation(self, cut: Cut, table: FloatArray) -> float:
        """By how much the boundary rows of `table` break a feasibility cut."""
        constant, records, slope = self.split.cut_terms(cut)
        return constant + float((slope * table[records]).sum())

    def _cut(self, prices: FloatArray, *, costed: bool) -> Cut:
        split = self.split
        duals = multipliers(
            prices[len(self.records) :], split.exponent[self.edges], split.outputs
        ).reshape(2 * len(self.edges), split.outputs)
        return Cut(self.label, costed, self.edges, scipy.sparse.csr_array(duals))


class Master:
    """The LP over the boundary records, with cuts in place of the clusters' insides."""

    def __init__(self, split: Split) -> None:
        self.split = split
        self.cuts: list[Cut] = []
        self._sizes: list[float] = []
        outputs = split.outputs
        self._place = np.full(split.problem.size, -1)
        self._place[split.border] = np.arange(len(split.border))
        self._edges = np.flatnonzero(split.boundary[split.graph.ends].all(axis=1))
        ends = self._place[split.graph.ends[self._edges]]
        count = len(split.border)
        self._entries = count * outputs
        self._theta = {c.label: self._entries + k for k, c in enumerate(split.clusters)}
        rows = scipy.sparse.vstack(
            [
                sum_rows(count, outputs),
                privacy_rows(ends, split.exponent[self._edges], count, outputs),
            ]
        )
        private = rows.shape[0] - count
        unused = scipy.sparse.csr_array((rows.shape[0], len(split.clusters)))
        wide = scipy.sparse.csr_array(scipy.sparse.hstack([rows, unused]))
        least = [float(split.cost[c.records].min(axis=1).sum()) for c in split.clusters]
        self._rows = rows.shape[0]
        self._lp = Lp(
            np.concatenate([split.cost[split.border].ravel(), np.ones(len(least))]),
            wide,
            np.concatenate([np.ones(count), np.full(private, -np.inf)]),
            np.concatenate([np.ones(count), np.zeros(private)]),
            lower=np.concatenate([np.zeros(self._entries), least]),
        )

    def add(self, cuts: list[Cut]) -> None:
        """Further cuts."""
        values, columns, starts, limits = [], [], [0], []
        for cut in cuts:
            constant, records, slope = self.split.cut_terms(cut)
            places = self._place[records][:, None] * self.split.outputs
            place = (places + np.arange(self.split.outputs)).ravel()
            row = -slope.ravel()
            if cut.costed:
                place, row = np.append(place, self._theta[cut.cluster]), np.append(row, 1.0)
            nonzero = row != 0
            if not nonzero.any():
                continue
            size = float(np.abs(row).max())
            values.append(row[nonzero] / size)
            columns.append(place[nonzero])
            starts.append(starts[-1] + int(nonzero.sum()))
            limits.append(constant / size)
            self.cuts.append(cut)
            self._sizes.append(size)
        if limits:
            shape = (len(limits), self._entries + len(self._theta))
            rows = (np.concatenate(values), np.concatenate(columns), np.array(starts))
            self._lp.add_rows(
                scipy.sparse.csr_array(rows, shape=shape),
                np.array(limits),
                np.full(len(limits), np.inf),
            )

    def solve(self, time_limit: float | None = None) -> Answer:
        """The best boundary rows as far as the cuts know."""
        return self._lp.solve(time_limit)

    def rows(self, answer: Answer) -> FloatArray:
        """The boundary records' rows of an answer."""
        if answer.primal is None:
            return np.empty((0, self.split.outputs))
        return np.maximum(answer.primal[: self._entries], 0.0).reshape(-1, self.split.outputs)

    def multipliers(self, answer: Answer) -> FloatArray:
        """Multipliers of the whole graph, (2, E, m), in the problem's own costs.

        The price of a cut is its share in its cluster's multipliers; the shares of a cluster's
        optimality cuts sum to 1, the bound on the cluster's cost taking what is left.
        """
        split = self.split
        total = np.zeros((2, split.graph.count, split.outputs))
        if answer.prices is None:
            return total
        border = answer.prices[len(split.border) : self._rows]
        total[:, self._edges] = multipliers(border, split.exponent[self._edges], split.outputs)
        for cut, size, price in zip(
            self.cuts, self._sizes, answer.prices[self._rows :], strict=True
        ):
            if price > 0:
                shape = (2, len(cut.edges), split.outputs)
                total[:, cut.edges] += (price / size) * cut.weights.toarray().reshape(shape)
        return total * split.scale
