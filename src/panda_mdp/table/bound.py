"""The lower bound that multipliers prove, whoever found them."""

from __future__ import annotations

import math

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.errors import ProblemError
from panda_mdp.problem import Problem

UNIT_ROUNDOFF = 2.0**-53
LIBRARY_ERROR = 1e-15
"""Of the exponential function: 4 ulp, and the roundings around it."""


def dual_bound(problem: Problem, pairs: IntArray, multipliers: FloatArray) -> float:
    """A lower bound on the loss of every mechanism of `problem`.

    `pairs`, shape (E, 2), are records (x, x'), `multipliers`, shape (E, m), numbers l >= 0 that
    belong to z_xy <= g z_x'y with g = exp(epsilon d(x, x')). Weak duality: every such table has

        sum p_x c_xy z_xy  >=  sum_x min_y h_xy,
        h_xy = p_x c_xy + sum over pairs (x, .) of l_y - sum over pairs (., x) of g l_y,

    because l (z_xy - g z_x'y) is not positive and rows sum to 1. Evaluated in float64: g is rounded
    up, and a sum of n terms of sizes s_k loses (n + 8) 2^-53 sum s_k before the minimum.
    """
    ends = np.asarray(pairs)
    if ends.size and not (ends.min() >= 0 and ends.max() < problem.size):
        msg = f"the bound's pairs name records outside 0..{problem.size - 1}"
        raise ProblemError(msg)
    if not (np.isfinite(multipliers).all() and (multipliers >= 0).all()):
        msg = "the bound's multipliers are finite and not negative; these are not"
        raise ProblemError(msg)
    metric = problem.domain.metric
    reach = problem.epsilon * metric.pairs(ends[:, 0], ends[:, 1])
    with np.errstate(over="ignore"):
        growth = np.exp(reach * (1 + metric.relative_error + 3 * LIBRARY_ERROR))
        growth *= 1 + LIBRARY_ERROR
        reduced, size = problem.weighted_loss.copy(), problem.weighted_loss.copy()
        down = growth[:, None] * multipliers
    for sums, sign in ((reduced, -1.0), (size, 1.0)):
        np.add.at(sums, ends[:, 0], multipliers)
        np.add.at(sums, ends[:, 1], sign * down)
    terms = np.bincount(ends.ravel(), minlength=problem.size) + 8.0
    with np.errstate(invalid="ignore"):
        least = (reduced - UNIT_ROUNDOFF * terms[:, None] * size).min(axis=1)
    total = math.fsum(least) if np.isfinite(least).all() else -math.inf
    return total - 2 * UNIT_ROUNDOFF * abs(total) if math.isfinite(total) else -math.inf
