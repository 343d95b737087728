"""What holds with probability 1 - delta: quantiles of the leakage, and the paper's safety margins.

The paper names this as future work (section 6): with delta_1 > 0 the cost of Phase I between x and
x' is the smallest t such that, whichever of the two records is the true one,

    Pr[ |l(x, x'; A)| > t ] <= delta_1,

the probability being over the set A that the true record draws. l is a sum of independent terms
with two values each. For few candidates all sets are enumerated; for many the terms are rounded
outward to a grid and convolved, which moves the quantile up by at most `candidates` x step, never
down. Over all pairs Chernoff's bound is used, min over s of (log E exp(s l) + log(2 / delta_1))/s,
and never more than the supremum. All three are upper bounds on the quantile.

The safety margin (Proposition 4, Property 1) is a quantile too. For true records x, x' with
surrogates a, a' the candidate margin is

    Delta(a, a') = [eps d(a, a') - L(a, a')] - [eps d(x, x') - L(x, x')],

L the leakage in nats. h(xi) is the probability, over two users' independent draws, of surrogates
within the radius with Delta <= xi; the margin is the smallest xi with h(xi) >= 1 - delta. It is
summed from the failure side, 1 - h(infinity) = q + q' - q q' first, then the largest Delta down,
so that delta = 1e-7 is compared with sums of that size and not with 1 minus something.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.panda.accounts.compiled import kernels
from panda_mdp.panda.accounts.leakage import (
    SPLIT_SLACK,
    aligned,
    favour,
    leakage_table,
    leakages,
    log_ratio,
)
from panda_mdp.panda.options import check_epsilon
from panda_mdp.panda.selection.law import AnchorLaw, Rows, near_laws

ENUMERATED = 14
"""Up to this many candidates all sets are visited."""
GRID = 1 << 14
POWERS = np.geomspace(0.25, 2.0**13, 24)
ROUNDING = 1e-12
"""Covers the relative rounding error of sums of at most a million positive terms."""


def leakage_quantile(law: AnchorLaw, x: int, x2: int, delta: float) -> float:
    """An upper bound on the two-sided (1 - delta)-quantile of the leakage, for both hypotheses.

    Exact up to rounding for at most 14 candidates near either record, else at most
    (candidates x range / 16384) above. Never above the supremum; equal to it for delta = 0.
    """
    rows = law.rows(np.array([x, x2]))
    _, w, w2 = aligned(law, rows, 0, 1)
    differ = w != w2
    w, w2 = w[differ], w2[differ]
    highest = max(float(favour(w, w2).sum()), float(favour(w2, w).sum()))
    if delta <= 0 or len(w) == 0:
        return highest
    measure = _enumerated if len(w) <= ENUMERATED else _convolved
    quantile = max(measure(w, w2, delta), measure(w2, w, delta))
    return min(highest, quantile)


def _enumerated(w: FloatArray, w2: FloatArray, delta: float) -> float:
    """The quantile of |l| under w over all sets."""
    size, mass = np.zeros(1), np.ones(1)
    chosen, passed = log_ratio(w, w2), log_ratio(1.0 - w, 1.0 - w2)
    for k in range(len(w)):
        size = np.concatenate([size + passed[k], size + chosen[k]])
        mass = np.concatenate([mass * (1.0 - w[k]), mass * w[k]])
    order = np.argsort(-np.abs(size))
    beyond = np.cumsum(mass[order]) * (1 + ROUNDING)
    # The largest value that must not be exceeded: its own mass no longer fits into delta.
    k = int(np.searchsorted(beyond, delta, side="right"))
    return float(np.abs(size[order[min(k, len(order) - 1)]]))


def _convolved(w: FloatArray, w2: FloatArray, delta: float) -> float:
    """The quantile of |l| under w from two pmfs on a grid, rounded up for l and for -l."""
    chosen, passed = log_ratio(w, w2), log_ratio(1.0 - w, 1.0 - w2)
    base, jumps = float(passed.sum()), chosen - passed
    step = float(np.abs(jumps).sum()) / GRID
    above = _tail(w, np.ceil(jumps / step).astype(np.int64))
    below = _tail(w, np.ceil(-jumps / step).astype(np.int64))
    low = min(base + step * above[0], -base + step * below[0])
    # The failure probability falls in t: bisection on a bracket that certainly holds the answer.
    left, right = min(0.0, low), float(np.abs(base) + np.abs(jumps).sum() + step * len(w))
    for _ in range(60):
        middle = (left + right) / 2
        failing = _beyond(above, (middle - base) / step) + _beyond(below, (middle + base) / step)
        if failing * (1 + ROUNDING) <= delta:
            right = middle
        else:
            left = middle
    return right


def _tail(w: FloatArray, jumps: np.ndarray) -> tuple[int, FloatArray]:
    """The law of sum of jumps: its least value and Pr[sum >= least + k] for k = 0, 1, ..."""
    least = int(np.minimum(jumps, 0).sum())
    width = int(np.abs(jumps).sum()) + 1
    pmf = np.zeros(width)
    pmf[-least] = 1.0
    for p, jump in zip(w, jumps, strict=True):
        moved = np.zeros(width)
        if jump >= 0:
            moved[jump:] = pmf[: width - jump]
        else:
            moved[:jump] = pmf[-jump:]
        pmf = (1.0 - p) * pmf + p * moved
    return least, np.cumsum(pmf[::-1])[::-1]


def _beyond(law: tuple[int, FloatArray], level: float) -> float:
    """Pr[sum > level], level in steps."""
    least, tails = law
    k = int(np.floor(level)) + 1 - least
    if k <= 0:
        return 1.0
    return float(tails[k]) if k < len(tails) else 0.0


def cost_table(law: AnchorLaw, rows: Rows, distance: FloatArray, delta: float) -> FloatArray:
    """The cost of Phase I between all rows in nats: suprema, or bounds on quantiles."""
    suprema = leakage_table(law, rows, distance)
    if delta <= 0:
        return suprema
    compiled = kernels("tails")
    lone = compiled.lone_moments(rows.start, rows.probability, law.tail, POWERS)
    bounds = compiled.quantile_matrix(
        rows.start,
        rows.anchor,
        rows.probability,
        law.tail,
        lone,
        distance,
        2 * law.radius * SPLIT_SLACK,
        POWERS,
        np.log(2 / delta),
    )
    return np.asarray(np.minimum(suprema, bounds))


@dataclass(frozen=True, eq=False)
class CandidateValues:
    """Candidate margins of one pair of records, largest first, with their probabilities."""

    delta: FloatArray
    """Delta of each surrogate pair, descending, in nats."""
    mass: FloatArray
    """v v' of each surrogate pair."""
    shortfall: float
    """The probability that one of the two has no anchor within the radius."""

    def success(self, xi: float) -> float:
        """h(xi), summed from the smallest terms."""
        return float(np.sort(self.mass[self.delta <= xi]).sum())

    def failure(self, xi: float) -> float:
        """1 - h(xi), from the failure side: accurate where it is tiny."""
        return self.shortfall + float(np.sort(self.mass[self.delta > xi]).sum())

    def margin(self, delta: float) -> float:
        """The smallest xi with failure at most delta; infinite where the shortfall exceeds it."""
        if self.shortfall > delta:
            return float("inf")
        failing = self.shortfall + np.cumsum(self.mass)
        needed = int(np.searchsorted(failing, delta, side="right"))
        return float(self.delta[min(needed, len(self.delta) - 1)])


def candidate_values(law: AnchorLaw, x: int, x2: int, epsilon: float) -> CandidateValues:
    """All candidate margins of a pair of records: n_gamma(x) n_gamma(x') of them."""
    check_epsilon(epsilon)
    pair = law.rows(np.array([x, x2]))
    anchors, v = near_laws(pair)
    middle = int(pair.start[1])
    involved, where = np.unique(np.concatenate([[x, x2], anchors]), return_inverse=True)
    rows = law.rows(involved)
    left, right = where[2 : 2 + middle], where[2 + middle :]
    first = np.concatenate([where[:1], np.repeat(left, len(right))])
    second = np.concatenate([where[1:2], np.tile(right, len(left))])
    distance = law.domain.metric.pairs(involved[first], involved[second])
    budgets = epsilon * distance - leakages(law, rows, first, second)
    mass = np.outer(v[:middle], v[middle:]).ravel()
    values = budgets[1:] - budgets[0]
    # Equal values: the order within them does not change the margin.
    order = np.argsort(-values, kind="stable")
    q, q2 = pair.missed
    return CandidateValues(values[order], mass[order], float(q + q2 - q * q2))
