"""Guarantees (epsilon, delta) of parts, and of the parts together (Theorem 1 of the paper)."""

from __future__ import annotations

from dataclasses import dataclass

from panda_mdp.base.arrays import is_number
from panda_mdp.base.text import per
from panda_mdp.errors import MethodError


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta): for all records x, x' and a release R that x's user makes,

        Pr[ |log P_x(R) / P_x'(R)| > epsilon d(x, x') ] <= delta,

    the probability being over the release. This is the paper's PmDP for one user. It implies
    Pr_x[R in E] <= exp(epsilon d) Pr_x'[R in E] + delta for every event E.

    >>> Guarantee(1.0, 1e-8, "km") + Guarantee(2.0, 0.0, "km")
    Guarantee(epsilon 3 per km, delta 1e-08)
    """

    epsilon: float
    delta: float
    unit: str

    def __post_init__(self) -> None:
        if not (is_number(self.epsilon) and self.epsilon >= 0):
            raise MethodError(f"epsilon is {self.epsilon!r}; it must not be negative")
        if not (is_number(self.delta) and 0 <= self.delta <= 1):
            raise MethodError(f"delta is {self.delta!r}; it must be a probability")

    def __repr__(self) -> str:
        return f"Guarantee(epsilon {self.epsilon:g} {per(self.unit)}, delta {self.delta:g})"

    def __add__(self, other: Guarantee) -> Guarantee:
        return compose(self, other)


def compose(*parts: Guarantee) -> Guarantee:
    """All parts released together about one record: epsilons add, deltas add (Theorem 1).

    A later part may depend on what the earlier ones released, as Phase II does on the anchors,
    provided that its own guarantee holds whatever they were, or that the probability of those for
    which it does not is counted in its delta. Proof: outside an event of probability at most the
    sum of the deltas every log-ratio is within its epsilon d, and the log-ratio of the joint
    release is their sum.

    >>> compose(Guarantee(0.5, 0.0, "km"), Guarantee(4.5, 1e-7, "km"))
    Guarantee(epsilon 5 per km, delta 1e-07)
    """
    if not parts:
        raise MethodError("nothing to compose; give at least one guarantee")
    units = {part.unit for part in parts}
    if len(units) > 1:
        raise MethodError(
            f"guarantees per {' and per '.join(sorted(units))} do not add; use one unit"
        )
    delta = min(1.0, sum(part.delta for part in parts))
    return Guarantee(sum(part.epsilon for part in parts), delta, parts[0].unit)
