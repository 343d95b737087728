"""The rigorous lower bound of any multipliers, in float64 with NumPy and SciPy.

For multipliers l >= 0 of the constraints z_i <= g z_j, g an upper bound on exp(epsilon d), every
table z that is epsilon-mDP has

    sum p_x c_xy z_xy  >=  sum_x min_y h_xy,    h_xy = p_x c_xy + sum (l_xj - g l_jx) over edges,

because the products l (z_i - g z_j) are not positive and rows sum to 1. It holds for every l, so
it does not matter which solver they come from or how far that solver got.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import sparse

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.methods.optimal.graph import Graph
from panda_mdp.problem import Problem

UNIT_ROUNDOFF = 2.0**-53
LIBRARY_ERROR = 1e-15
"""Of the exponential function: 4 ulp, and the roundings around it."""


def growth(problem: Problem, graph: Graph) -> FloatArray:
    """Upper bounds on exp(epsilon d) of the edges: a looser constraint keeps bounds rigorous."""
    error = problem.domain.metric.relative_error + 3 * LIBRARY_ERROR
    return np.asarray(np.exp(problem.epsilon * graph.length * (1 + error)) * (1 + LIBRARY_ERROR))


def dual_bound(problem: Problem, graph: Graph, multipliers: FloatArray) -> float:
    """A lower bound on the optimum of `problem` from multipliers, shape (2, E, m), all >= 0.

    `multipliers[0, e]` belongs to z_i <= g z_j of edge e = (i, j), `multipliers[1, e]` to
    z_j <= g z_i. Edges need not be all pairs: those left out have multipliers 0.
    """
    return total_from_below(reduced_from_below(problem, graph, multipliers).min(axis=1))


def boxed_bound(problem: Problem, graph: Graph, multipliers: FloatArray, most: FloatArray) -> float:
    """`dual_bound`, for tables whose entries are at most `most` (K x m), as those of an optimal one
    are known to be.

    A row that sums to 1 within its box costs, for every price u, at least
    u - sum_y max(0, u - h_y) most_y; the best u is the reduced cost at which the cheapest outputs
    fill the row. Entries that are tiny because they are expensive then weigh little, however far
    their own reduced costs are from exact.
    """
    reduced = reduced_from_below(problem, graph, multipliers)
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
    apart = problem.domain.distances([centre])[0]
    error = problem.domain.metric.relative_error + 3 * LIBRARY_ERROR
    lent = np.exp(-problem.epsilon * apart * (1 + error)) * (1 - LIBRARY_ERROR)
    total = float((lent @ problem.weighted_loss).min())
    # Terms are not negative: a sum of n products, in whatever order, errs by n + 2 roundings.
    return total * (1 - 2 * (problem.size + 2) * UNIT_ROUNDOFF)


def reduced_from_below(problem: Problem, graph: Graph, multipliers: FloatArray) -> FloatArray:
    """h of the module's head less what rounding may have added, (records, m)."""
    growths = growth(problem, graph)
    reduced, size = reduced_costs(problem.weighted_loss, graph.ends, growths, multipliers)
    terms = 2.0 * np.bincount(graph.ends.ravel(), minlength=problem.size) + 8.0
    return np.asarray(reduced - UNIT_ROUNDOFF * terms[:, None] * size)


def reduced_costs(
    cost: FloatArray, ends: IntArray, growths: FloatArray, multipliers: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """h of the module's head, and the sum of the sizes of its terms; both (records, m)."""
    edges = np.arange(len(ends))
    own = np.concatenate([ends[:, 0], ends[:, 1]])
    other = np.concatenate([ends[:, 1], ends[:, 0]])
    column = np.concatenate([edges, edges + len(ends)])
    shape = (len(cost), 2 * len(ends))
    both = np.concatenate([growths, growths])
    flat = multipliers.reshape(shape[1], cost.shape[1])
    up = sparse.csr_array((np.ones(shape[1]), (own, column)), shape=shape)
    down = sparse.csr_array((both, (other, column)), shape=shape)
    reduced = cost + (up - down) @ flat
    size = np.abs(cost) + (up + down) @ flat
    return np.asarray(reduced), np.asarray(size)


def total_from_below(values: FloatArray) -> float:
    """The sum of some numbers, rounded down; no bound where they are no numbers.

    `math.fsum` is the exact sum rounded once.
    """
    if not np.isfinite(values).all():
        return -math.inf
    total = math.fsum(values)
    return total - 2 * UNIT_ROUNDOFF * abs(total)
