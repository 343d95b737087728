"""Safety margins: Proposition 4 and Property 1 of the paper, accurate at small delta.

For true records x, x' with surrogates a, a' the candidate margin is

    Delta(a, a') = [eps d(a, a') - L(a, a')] - [eps d(x, x') - L(x, x')],

L the leakage in nats. h(xi) is the probability, over two users' independent draws, of surrogates
within the radius with Delta <= xi; the margin is the smallest xi with h(xi) >= 1 - delta. It is
found from the failure side: 1 - h(infinity) = q + q' - q q' first, then the largest Delta downward,
so that delta = 1e-7 is compared with sums of that size and not with 1 minus something.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.errors import MethodError
from panda_mdp.panda.law import AnchorLaw
from panda_mdp.panda.leakage import leakages
from panda_mdp.panda.surrogate import near_laws


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
    apart = law.domain.metric.pairs(involved[first], involved[second])
    budgets = epsilon * apart - leakages(law, rows, first, second)
    mass = np.outer(v[:middle], v[middle:]).ravel()
    values = budgets[1:] - budgets[0]
    # Equal values: the order within them does not change the margin.
    order = np.argsort(-values, kind="stable")
    q, q2 = pair.missed
    return CandidateValues(values[order], mass[order], float(q + q2 - q * q2))


def check_delta(delta: float) -> None:
    """delta is a probability below 1."""
    if not 0 <= delta < 1:
        msg = f"delta is {delta!r}; it must be a probability, at least 0 and below 1"
        raise MethodError(msg)


def check_epsilon(epsilon: float) -> None:
    """epsilon is positive and finite."""
    if not (np.isfinite(epsilon) and epsilon > 0):
        msg = f"epsilon is {epsilon!r}; it must be positive and finite"
        raise MethodError(msg)
