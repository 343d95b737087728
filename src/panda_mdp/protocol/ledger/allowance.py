"""What a user allows: how much may be given away at once and in a period, and by which metric."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, get_args

from panda_mdp.errors import InvalidInputError
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.protocol.messages.types import MetricKind
from panda_mdp.space.domain import Domain

DAY_S = 86_400
AS_DELTA = -1.0
"""Stands for a period's delta that is not given: that of one release."""
LEAST_PLACES = 10
LEAST_AREA_KM2 = 0.1
"""What places to report from there are at least, whatever a server signs: with fewer, or nearer
together, taking part would tell where somebody is."""
KINDS = get_args(MetricKind)


def _positive(value: float) -> bool:
    return math.isfinite(value) and value > 0


RULES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("epsilon period_epsilon", _positive, "it must be positive and finite"),
    ("delta period_delta", lambda share: 0 <= share < 1, "it must be a probability below 1"),
    ("snap_km", lambda km: km > 0, "it must be positive; math.inf is no limit"),
    ("reports", lambda n: n is None or n >= 1, "it must be at least 1, or None for no limit"),
    ("period_s", lambda seconds: seconds >= 1, "a period is at least one second"),
    ("repeats", lambda rule: rule in ("same", "fresh"), "choose 'same' or 'fresh'"),
    ("metrics", lambda kinds: kinds and {*kinds} <= {*KINDS}, f"choose from {', '.join(KINDS)}"),
)
"""What limits must be, and how the refusal says it."""


@dataclass(frozen=True)
class Allowance:
    """Limits that the client keeps by itself, whatever a server says.

    `epsilon` and `delta` bound one release; `period_epsilon`, `period_delta` and `reports` all
    releases of a period of `period_s` seconds together, for each metric. Epsilons are per `unit`.

    `metrics` names the kinds of metric that are accepted. Only for haversine does the client
    compute distances in km from coordinates; for others it takes what the domain says, and an
    operator who says that near records are far apart gets a table that protects nothing.

    `repeats`: "same" gives the same record the same answer within a period, at no cost; whoever
    sees the answers then sees when the record changed. "fresh" draws and pays every time, which
    hides it. The choice is kept by the ledger: to decide by the record would tell about it.

    `snap_km` is how far a point of a deployment's area may be from the nearest record: two places
    lose up to twice as much. It refuses deployments, before any place is known, and never a place:
    one outside the area reports from the nearest point of it, since silence would tell.

    >>> Allowance(epsilon=5.0, period_epsilon=10.0).period_delta
    0.0
    """

    epsilon: float
    period_epsilon: float
    delta: float = 0.0
    period_delta: float = AS_DELTA
    reports: int | None = None
    period_s: int = DAY_S
    unit: str = "km"
    metrics: tuple[str, ...] = ("haversine",)
    repeats: Literal["same", "fresh"] = "same"
    snap_km: float = 10.0

    def __post_init__(self) -> None:
        if self.period_delta == AS_DELTA:
            object.__setattr__(self, "period_delta", self.delta)
        for names, holds, rule in RULES:
            for name in names.split():
                value = getattr(self, name)
                if not holds(value):
                    raise InvalidInputError(f"{name} is {value!r}; {rule}")

    def excess(self, spent: list[Guarantee], cost: Guarantee) -> str | None:
        """Why a release would be too much after those of this period, or None where it is not."""
        if cost.unit != self.unit:
            return f"it costs epsilon per {cost.unit}, and the limits are per {self.unit}"
        if cost.epsilon > self.epsilon:
            return f"one release costs epsilon {cost.epsilon:g} and {self.epsilon:g} is allowed"
        if cost.delta > self.delta:
            return f"one release costs delta {cost.delta:g} and {self.delta:g} is allowed"
        if self.reports is not None and len(spent) + 1 > self.reports:
            return f"{len(spent)} of {self.reports} reports of this period are made"
        before = total(spent, cost.unit)
        both = [*spent, cost]
        if exact_sum(part.epsilon for part in both) > Decimal(repr(self.period_epsilon)):
            return (
                f"epsilon {before.epsilon:g} of {self.period_epsilon:g} is spent in this period "
                f"and the release costs {cost.epsilon:g}"
            )
        if exact_sum(part.delta for part in both) > Decimal(repr(self.period_delta)):
            return f"the release would take delta beyond {self.period_delta:g} in this period"
        return None


def account_of(domain: Domain) -> str:
    """The account that a domain's releases are charged to.

    Epsilons add where distances are the same: all domains of places share the great-circle
    distance in km. Any other metric is its own: an epsilon per km of road does not add to one per
    km as the crow flies, nor do two word embeddings.

    >>> account_of(Domain.from_points([41.90, 41.91], [12.49, 12.50]))
    'haversine km'
    """
    if domain.metric.kind == "haversine":
        return "haversine km"
    return f"{domain.metric.kind} {domain.unit} {domain.fingerprint[:16]}"


def exact_sum(values: Iterable[float]) -> Decimal:
    """The sum of numbers as they are written: ten times 0.1 is 1.

    >>> exact_sum([0.1] * 10) == 1
    True
    """
    return sum((Decimal(repr(value)) for value in values), Decimal(0))


def total(costs: Iterable[Guarantee], unit: str) -> Guarantee:
    """What several releases cost together."""
    parts = list(costs)
    delta = min(1.0, float(exact_sum(part.delta for part in parts)))
    return Guarantee(float(exact_sum(part.epsilon for part in parts)), delta, unit)
