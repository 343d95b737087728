"""What a user allows: how much may be given away at once and in a period, and by which metric."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, Literal

from panda_mdp.errors import InvalidInputError, LedgerError
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.space.domain import Domain

DAY_S = 86_400
AS_DELTA = -1.0
"""Stands for a period's delta that is not given: that of one release."""
LEAST_SNAP_KM = 0.05
KINDS = ("haversine", "euclidean", "angular", "matrix")


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

    `snap_km` is how far a place may be from the nearest record; no server changes it. A place
    beyond it is not reported, and that silence tells a server as much. `math.inf` reports the
    nearest record from anywhere, and then silence tells nothing.

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
    snap_km: float = 1.0

    def __post_init__(self) -> None:
        if self.period_delta == AS_DELTA:
            object.__setattr__(self, "period_delta", self.delta)
        for name in ("epsilon", "period_epsilon"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                msg = f"{name} is {value!r}; it must be positive and finite"
                raise InvalidInputError(msg)
        if not self.snap_km >= LEAST_SNAP_KM:
            msg = (
                f"snap_km is {self.snap_km!r}; below {LEAST_SNAP_KM} km, silence would tell who is "
                "near a record: give more, or math.inf, which reports from anywhere"
            )
            raise InvalidInputError(msg)
        for name in ("delta", "period_delta"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                msg = f"{name} is {value!r}; it must be a probability below 1"
                raise InvalidInputError(msg)
        if self.reports is not None and self.reports < 1:
            msg = f"reports is {self.reports!r}; it must be at least 1, or None for no limit"
            raise InvalidInputError(msg)
        if self.period_s < 1:
            msg = f"period_s is {self.period_s!r}; a period is at least one second"
            raise InvalidInputError(msg)
        if self.repeats not in ("same", "fresh"):
            msg = f"repeats is {self.repeats!r}; choose 'same' or 'fresh'"
            raise InvalidInputError(msg)
        unknown = set(self.metrics) - set(KINDS)
        if unknown or not self.metrics:
            msg = f"metrics is {self.metrics!r}; choose from {', '.join(KINDS)}"
            raise InvalidInputError(msg)

    def to_json(self) -> str:
        """The allowance as text."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Allowance:
        """The allowance of its text."""
        try:
            fields: dict[str, Any] = json.loads(text)
            return cls(**{**fields, "metrics": tuple(fields["metrics"])})
        except (ValueError, TypeError, KeyError):
            msg = "the ledger's limits cannot be read; the ledger is damaged"
            raise LedgerError(msg) from None


def account_of(domain: Domain) -> str:
    """The account that a domain's releases are charged to.

    Epsilons add where distances are the same: all domains of places share the great-circle
    distance in km. Any other metric is its own: an epsilon per km of road does not add to one per
    km as the crow flies, nor do two word embeddings.

    >>> account_of(Domain.from_points([41.90, 41.91], [12.49, 12.50]))
    'haversine km'
    """
    if domain.geographic:
        return "haversine km"
    return f"{domain.metric.kind} {domain.unit} {domain.fingerprint[:16]}"


def total(values: list[float]) -> Decimal:
    """The sum of numbers as they are written: ten times 0.1 is 1.

    >>> total([0.1] * 10) == 1
    True
    """
    return sum((Decimal(repr(value)) for value in values), Decimal(0))


def excess(allowed: Allowance, spent: list[Guarantee], cost: Guarantee) -> str | None:
    """Why a release would be too much after those of this period, or None where it is not."""
    unit = cost.unit
    if unit != allowed.unit:
        return f"it costs epsilon per {unit}, and the limits are per {allowed.unit}"
    if cost.epsilon > allowed.epsilon:
        return f"one release costs epsilon {cost.epsilon:g} and {allowed.epsilon:g} is allowed"
    if cost.delta > allowed.delta:
        return f"one release costs delta {cost.delta:g} and {allowed.delta:g} is allowed"
    if allowed.reports is not None and len(spent) + 1 > allowed.reports:
        return f"{len(spent)} of {allowed.reports} reports of this period are made"
    epsilon = total([part.epsilon for part in [*spent, cost]])
    if epsilon > Decimal(repr(allowed.period_epsilon)):
        return (
            f"epsilon {float(total([part.epsilon for part in spent])):g} of "
            f"{allowed.period_epsilon:g} is spent in this period and the release costs "
            f"{cost.epsilon:g}"
        )
    if total([part.delta for part in [*spent, cost]]) > Decimal(repr(allowed.period_delta)):
        return f"the release would take delta beyond {allowed.period_delta:g} in this period"
    return None
