"""The lower bound that multipliers prove, whoever computed them.

For multipliers l >= 0 of the constraints z_xy <= g z_x'y, g an upper bound on exp(epsilon d), every
table z that is epsilon-mDP has

    sum p_x c_xy z_xy  >=  sum_x min_y h_xy,
    h_xy = p_x c_xy + sum over pairs (x, .) of l_y - sum over pairs (., x) of g l_y,

because the products l (z_xy - g z_x'y) are not positive and rows sum to 1. It holds for every l, so
it does not matter which solver they come from or how far that solver got.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray, RebuiltOnCopy, frozen
from panda_mdp.errors import ProblemError
from panda_mdp.problem import Problem

UNIT_ROUNDOFF = 2.0**-53
LIBRARY_ERROR = 1e-15
"""Of the exponential function: 4 ulp, and the roundings around it."""
SMALLEST = float(np.finfo(np.float64).smallest_subnormal)
FAINTEST, WORTH = 1e-6, 1e-5
"""Multipliers below this share of the largest may be left out where that costs less than a share
`WORTH` of the bound: interior points give every pair a little."""
MOST_MULTIPLIERS = 1 << 20
"""Numbers of a proof that is kept with a table: checking more of them exactly takes minutes."""


@dataclass(frozen=True, eq=False)
class BoundProof(RebuiltOnCopy):
    """Multipliers and the lower bound that they prove; computed here, never taken from outside."""

    problem: Problem
    pairs: IntArray
    """(E, 2) records (x, x')."""
    multipliers: FloatArray
    """(E, m) of z_xy <= exp(epsilon d(x, x')) z_x'y, not negative."""
    value: float = field(init=False)
    """No epsilon-mDP table of the problem loses less: what a reader must come to at least."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "pairs", frozen(self.pairs))
        object.__setattr__(self, "multipliers", frozen(self.multipliers))
        # Twice the allowance: exponentials of other machines differ in their last digit.
        least = dual_bound(self.problem, self.pairs, self.multipliers, allowance=2.0)
        object.__setattr__(self, "value", least)

    def __repr__(self) -> str:
        return f"BoundProof({self.value:.6g} {self.problem.loss_unit}, {len(self.pairs)} pairs)"

    @classmethod
    def made(cls, problem: Problem, pairs: IntArray, multipliers: FloatArray) -> BoundProof | None:
        """The proof without the pairs that it does not use; None where it is too long to keep."""
        used = (multipliers > 0).any(axis=1)
        if int(used.sum()) * multipliers.shape[1] > MOST_MULTIPLIERS:
            return None
        return cls(problem, pairs[used], multipliers[used])

    def shortened(self) -> BoundProof | None:
        """The proof without its faintest multipliers, where it proves next to as much."""
        strong = np.where(
            self.multipliers > FAINTEST * self.multipliers.max(initial=0.0), self.multipliers, 0.0
        )
        short = self.made(self.problem, self.pairs, strong)
        return short if short and short.value >= self.value - WORTH * abs(self.value) else None


def dual_bound(
    problem: Problem,
    pairs: IntArray,
    multipliers: FloatArray,
    cost: FloatArray | None = None,
    *,
    allowance: float = 1.0,
) -> float:
    """A lower bound on the loss of every mechanism of `problem`: that of the module's head; on what
    it costs at another `cost` (K x m) than p c where one is given.

    -inf where numbers leave the range of float64.
    """
    return total_from_below(
        reduced_from_below(problem, pairs, multipliers, cost, allowance).min(axis=1)
    )


def growth(epsilon: float, length: FloatArray, relative_error: float) -> FloatArray:
    """Upper bounds on exp(epsilon d): a looser constraint keeps bounds rigorous."""
    error = relative_error + 3 * LIBRARY_ERROR
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(epsilon * length * (1 + error)) * (1 + LIBRARY_ERROR))


def reduced_from_below(
    problem: Problem,
    pairs: IntArray,
    multipliers: FloatArray,
    cost: FloatArray | None = None,
    allowance: float = 1.0,
) -> FloatArray:
    """h of the module's head less what rounding may have added, (records, m).

    `pairs`, shape (E, 2), are records (x, x'), `multipliers`, shape (E, m), not negative.
    `allowance`, from 1, is how many times the error of rounding is subtracted: a sum of n terms of
    sizes s_k errs by (n + 8) 2^-53 sum s_k, products and `cost` included, and where they nearly
    vanish by a smallest float for each.
    """
    if pairs.size and not (pairs.min() >= 0 and pairs.max() < problem.size):
        raise ProblemError(f"the bound's pairs name records outside 0..{problem.size - 1}")
    if not (np.isfinite(multipliers).all() and (multipliers >= 0).all()):
        raise ProblemError("the bound's multipliers are finite and not negative; these are not")
    metric, cost = problem.domain.metric, problem.weighted_loss if cost is None else cost
    length = metric.pairs(pairs[:, 0], pairs[:, 1])
    growths = growth(problem.epsilon, length, metric.relative_error)
    shape, column = (len(cost), len(pairs)), np.arange(len(pairs))
    up = scipy.sparse.csr_array((np.ones(len(pairs)), (pairs[:, 0], column)), shape=shape)
    down = scipy.sparse.csr_array((growths, (pairs[:, 1], column)), shape=shape)
    terms = allowance * (np.bincount(pairs.ravel(), minlength=len(cost)) + 8.0)[:, None]
    with np.errstate(invalid="ignore", over="ignore"):
        reduced = cost + (up - down) @ multipliers
        size = np.abs(cost) + (up + down) @ multipliers
        return np.asarray(reduced - terms * (UNIT_ROUNDOFF * size + SMALLEST))


def total_from_below(values: FloatArray) -> float:
    """The sum of some numbers, rounded down; no bound where they are no numbers.

    `math.fsum` is the exact sum rounded once.
    """
    if not np.isfinite(values).all():
        return -math.inf
    try:
        total = math.fsum(values)
    except OverflowError:
        return -math.inf
    return total - 2 * UNIT_ROUNDOFF * abs(total)
