"""How often the composed mechanism exceeds epsilon for one pair of records.

Standard definition: one user, one release R of a set and a report; its loss is the logarithm of
P_x(R) / P_x'(R), and the violation probability the larger, over the two hypotheses, of
Pr[|loss| > eps d]. Where reports are not told apart, the largest loss over outputs counts for the
set. Paper's definition (Proposition 4): two users with independent sets, the leakage
at its supremum, surrogates each from its own set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray

SLACK = 1e-12
"""Bounds the rounding of a loss, relative to eps d and in nats; on the safe side of each bound."""


@dataclass(frozen=True)
class Account:
    """An upper bound on the violation probability of every pair, and where it is largest."""

    violation: float
    pair: tuple[int, int]


@dataclass(frozen=True)
class Violation:
    """Bounds on the probability that a pair's privacy loss exceeds epsilon times its distance.

    `lower == upper` where it is exact. `epsilon` is the smallest epsilon that holds with
    probability 1 - delta, infinite where that cannot be seen.
    """

    lower: float
    upper: float
    epsilon: float
    method: str

    def __repr__(self) -> str:
        if self.lower == self.upper:
            value = f"{self.upper:.6g} exactly"
        else:
            value = f"between {self.lower:.6g} and {self.upper:.6g}"
        return f"Violation({value}, by {self.method}; effective epsilon {self.epsilon:.6g})"


Definition = Literal["standard", "paper"]


@dataclass(frozen=True, eq=False)
class Spreads:
    """max_y log z / z' and max_y log z' / z between a record and others, exact or bounds."""

    up: FloatArray
    down: FloatArray
    exact: BoolArray

    def losses(self, leaks: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds on max_y |l + log ratio|, given the leakage l of the set."""
        high = np.maximum(leaks + self.up, self.down - leaks)
        return np.where(self.exact, high, np.abs(leaks)), high


@dataclass(frozen=True, eq=False)
class Enumeration:
    """All releases of two records: bounds on the loss of each and both probabilities, (2, n)."""

    low: FloatArray
    high: FloatArray
    masses: FloatArray
    method: str

    def violation(self, limit: float, distance: float, delta: float) -> Violation:
        """Sum what lies beyond eps d = limit, and the quantile at 1 - delta."""
        room = SLACK * (1 + limit)
        lower = float(self.masses[:, self.low > limit + room].sum(axis=1).max())
        upper = float(self.masses[:, self.high > limit - room].sum(axis=1).max())
        order = np.argsort(-self.high)
        over = (np.cumsum(self.masses[:, order], axis=1) > delta).any(axis=0)
        # The largest loss whose probability, with all larger ones, no longer fits into delta.
        effective = float(self.high[order[over.argmax()]]) / distance if over.any() else 0.0
        return Violation(lower, upper, effective, self.method)


def interval(count: int, draws: int, confidence: float) -> tuple[float, float]:
    """Clopper and Pearson's confidence limits, each one-sided at `confidence`.

    >>> [round(limit, 4) for limit in interval(0, 1000, 0.99)]
    [0.0, 0.0046]
    """
    from scipy.stats import beta  # slow to import, and needed only here

    low = 0.0 if count == 0 else float(beta.ppf(1 - confidence, count, draws - count + 1))
    high = 1.0 if count == draws else float(beta.ppf(confidence, count + 1, draws - count))
    return low, high
