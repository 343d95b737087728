"""Rigorous lower bounds on the optimum of a problem, in float64 with NumPy and SciPy.

`table.bound` has the bound of any multipliers; here it is asked over the edges of a constraint
graph, both ways, and beside it stand the bounds that need no multipliers.
"""

from __future__ import annotations

import math

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.methods.optimal.graph import Graph
from panda_mdp.problem import Problem
from panda_mdp.table import bound
from panda_mdp.table.bound import (
    LIBRARY_ERROR,
    UNIT_ROUNDOFF,
    Bound,
    Multipliers,
    Proved,
    Stated,
    total_from_below,
)

WORTH = 0.01
"""Of the gap: what a bound may give away for a proof."""


def both_ways(ends: IntArray) -> IntArray:
    """Edges (E, 2) as pairs (i, j), then as (j, i), (2 E, 2)."""
    return np.concatenate([ends, ends[:, ::-1]])


def edge_multipliers(graph: Graph, multipliers: FloatArray) -> Multipliers:
    """Multipliers (2, E, m) of a graph in the form that a file holds."""
    return Multipliers.of(both_ways(graph.ends), multipliers.reshape(-1, multipliers.shape[-1]))


def centre_proof(problem: Problem, centre: int) -> Proved:
    """`centre_bound` by multipliers: record x lends the centre all that it costs itself."""
    others = np.delete(np.arange(problem.size), centre)
    pairs = np.stack([np.full(len(others), centre), others], axis=1)
    metric = problem.domain.metric
    length = metric.pairs(pairs[:, 0], pairs[:, 1])
    growths = bound.growth(problem.epsilon, length, metric.relative_error)
    return Proved(problem, Multipliers.of(pairs, problem.weighted_loss[others] / growths[:, None]))


def free_proof(problem: Problem) -> Proved:
    """`free_bound`, which needs no multipliers."""
    none = np.empty((0, 2), np.int64)
    return Proved(problem, Multipliers.of(none, np.empty((0, problem.outputs_count))))


def proved(bound: Stated, loss: float, gap: float, proof: Proved | None) -> Bound:
    """The bound of a table of this loss: its proof, shortened where that gives next to nothing
    away.

    What is proved may fall short of `bound` by a hundredth of the gap that was asked for, and must
    not make a gap that is reached one that is not; otherwise `bound` stays, without a proof.
    """
    least = bound.value - WORTH * gap * abs(bound.value)
    if loss - bound.value <= gap * bound.value:
        least = max(least, loss / (1 + gap))
    found = () if proof is None else (proof.shortened(), proof)
    return next((p for p in found if p.value >= least), bound)


def dual_bound(problem: Problem, graph: Graph, multipliers: FloatArray) -> float:
    """A lower bound on the optimum of `problem` from multipliers, shape (2, E, m), all >= 0.

    `multipliers[0, e]` belongs to z_i <= g z_j of edge e = (i, j), `multipliers[1, e]` to
    z_j <= g z_i. Edges need not be all pairs: those left out have multipliers 0.
    """
    return bound.dual_bound(problem, edge_multipliers(graph, multipliers))


def boxed_bound(
    problem: Problem,
    graph: Graph,
    multipliers: FloatArray,
    most: FloatArray,
    cost: FloatArray | None = None,
) -> float:
    """`dual_bound`, for tables whose entries are at most `most` (K x m), as those of an optimal one
    are known to be.

    A row that sums to 1 within its box costs, for every price u, at least
    u - sum_y max(0, u - h_y) most_y; the best u is the reduced cost at which the cheapest outputs
    fill the row. Entries that are tiny because they are expensive then weigh little, however far
    their own reduced costs are from exact.
    """
    reduced = bound.reduced_from_below(problem, edge_multipliers(graph, multipliers), cost)
    along = np.argsort(reduced, axis=1)
    filled = np.cumsum(np.take_along_axis(most, along, 1), axis=1)
    last = np.minimum((filled < 1).sum(axis=1), most.shape[1] - 1)
    price = np.take_along_axis(reduced, np.take_along_axis(along, last[:, None], 1), 1)
    short = np.maximum(price - reduced, 0.0) * most
    least = price[:, 0] - np.array([math.fsum(row) for row in short]) * (1 + 4 * UNIT_ROUNDOFF)
    return total_from_below(least - 2 * UNIT_ROUNDOFF * np.abs(price[:, 0]))


def free_bound(problem: Problem) -> float:
    """A lower bound without any multipliers: every record takes its cheapest output."""
    least = problem.prior * problem.loss.min(axis=1)
    # A product is rounded by half an ulp, or to a whole unit where it nearly vanishes.
    rounded = 2 * UNIT_ROUNDOFF * least + np.finfo(np.float64).smallest_subnormal
    return max(0.0, total_from_below(least - rounded))


def middle(problem: Problem) -> int:
    """The record nearest to the mean of all coordinates."""
    points = problem.domain.metric.embedding
    return int(((points - points.mean(axis=0)) ** 2).sum(axis=1).argmin())


def centre_bound(problem: Problem, centre: int) -> float:
    """A lower bound from the constraints of one record alone.

    z_xy >= exp(-epsilon d(x, centre)) z_centre,y, and the centre's row sums to 1: the loss is at
    least min_y sum_x p_x c_xy exp(-epsilon d(x, centre)). Tight where epsilon is so small that all
    rows are nearly equal, which is where multipliers are hardest to come by.
    """
    distance = problem.domain.distances([centre])[0]
    error = problem.domain.metric.relative_error + 3 * LIBRARY_ERROR
    lent = np.exp(-problem.epsilon * distance * (1 + error)) * (1 - LIBRARY_ERROR)
    total = float(((lent * problem.prior) @ problem.loss).min())
    # Terms are not negative: a sum of n products, in whatever order, errs by n + 2 roundings.
    return total * (1 - 2 * (problem.size + 2) * UNIT_ROUNDOFF)
