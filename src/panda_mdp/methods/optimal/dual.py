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
    cost = problem.weighted_loss
    reduced, size = reduced_costs(cost, graph.ends, growth(problem, graph), multipliers)
    terms = 2.0 * np.bincount(graph.ends.ravel(), minlength=problem.size) + 8.0
    least = (reduced - UNIT_ROUNDOFF * terms[:, None] * size).min(axis=1)
    return total_from_below(least)


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
    """The sum of some numbers, rounded down."""
    total = math.fsum(values)
    return total - 2 * UNIT_ROUNDOFF * abs(total)
