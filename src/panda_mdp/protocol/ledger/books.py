"""A user's books: what is allowed, what was released, what it cost, and what is left of a period.

Rules (docs/ledger.md says why):

- Charged first: an entry with its cost and everything that was drawn is on disk, by a full fsync,
  before a single byte is sent. A crash after that resends the same; nothing is drawn twice.
- Never refunded: a request that was refused or got lost may have been read.
- Same record, same answer: entries are found by a keyed hash, never by the record.
- Time goes forward: a clock that is set back stays in the latest period that was seen.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, ClassVar, Literal, Self, TypeVar, get_args

from pydantic import ConfigDict, TypeAdapter

from panda_mdp.base.text import Facts
from panda_mdp.errors import BudgetError, InvalidInputError, LedgerError
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.protocol.messages.blind import OneUse
from panda_mdp.protocol.messages.types import (
    ClientId,
    Index,
    Indices,
    Message,
    MetricKind,
    Sha256,
    Version,
)
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
        if self.reports is not None and len(spent) + 1 > self.reports:
            return f"{len(spent)} of {self.reports} reports of this period are made"
        for name in ("epsilon", "delta"):
            costs = getattr(cost, name)
            most = getattr(self, name)
            if costs > most:
                return f"one release costs {name} {costs:g} and {most:g} is allowed"
            most = getattr(self, f"period_{name}")
            before = exact_sum(getattr(part, name) for part in spent)
            if before + Decimal(repr(costs)) > Decimal(repr(most)):
                return (
                    f"{name} {float(before):g} of {most:g} is spent in this period and the release "
                    f"costs {costs:g}"
                )
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


def new_id() -> str:
    """A client-made id: 122 random bits of the operating system, and nothing else.

    >>> len(new_id()), new_id() != new_id()
    (36, True)
    """
    return str(uuid.uuid4())


# What is kept of a release


class Drawn(Message):
    """A report from a whole table; the others begin with less and end as one."""

    report: ClientId
    """The id of the report, made with the draw, so that sending it again is safe."""
    version: Version
    table: Sha256 | None = None
    """The table's SHA-256; None for rounds of anchors."""
    output: Index | None = None
    """None until it is drawn."""
    proof: OneUse | None = None
    """Sent in place of the token, where tokens are used once."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<hidden>)"

    __str__ = __repr__

    def but(self, **changes: Any) -> Self:
        """The same with other fields."""
        return self.model_copy(update=changes)


class BallDrawn(Drawn):
    """A centre, whose ball is asked for."""

    centre: tuple[int, int]
    epsilon_1: float
    """What the centre tells."""


class AnchorsDrawn(Drawn):
    """An anchor set, and the round that it was aimed at."""

    anchors: Indices
    round: Version | None = None


_ANY_DRAWN: TypeAdapter[AnchorsDrawn | BallDrawn | Drawn] = TypeAdapter(
    AnchorsDrawn | BallDrawn | Drawn
)


State = Literal["charged", "accepted", "given_up"]
D = TypeVar("D", bound=Drawn)


@dataclass(frozen=True)
class Charge:
    """What a release costs, and whose account pays for what."""

    account: str
    server: str
    deployment: str
    cost: Guarantee
    accept_no_guarantee: bool = False
    """Charge also what nothing bounds, which spends all that is left of the period."""
    quota: int | None = None
    """Reports that the deployment takes in `quota_s` seconds; no more are drawn."""
    quota_s: int = 86_400

    @property
    def purse(self) -> str:
        """What quotas are kept by."""
        return f"{self.server} {self.deployment}"


@dataclass(frozen=True)
class Entry:
    """One charge; its repr shows the cost only."""

    id: str
    period: int
    at: int
    charge: Charge
    state: State
    memo: str | None = None
    """A keyed hash of the record, while the period lasts."""
    box: str | None = None
    """What was drawn and must be sent, with blanks: all of a deployment are as long."""

    @property
    def cost(self) -> Guarantee:
        """What was charged."""
        return self.charge.cost

    @property
    def content(self) -> Drawn | None:
        """What was drawn and must be sent."""
        return None if self.box is None else _ANY_DRAWN.validate_json(self.box)

    def drawn(self, kind: type[D]) -> D:
        """What was drawn, of the kind that a deployment draws."""
        if not isinstance(self.content, kind):
            raise LedgerError(
                "what this entry released was erased from the ledger, or is of another kind of "
                "deployment; it cannot be sent again"
            )
        return self.content

    @property
    def output(self) -> int:
        """What is reported, once it is drawn."""
        output = self.drawn(Drawn).output
        if output is None:
            raise LedgerError("an entry of the ledger has no output yet; report again")
        return output

    def __repr__(self) -> str:
        return f"Entry({self.charge.deployment}, period {self.period}, {self.state}, {self.cost})"


# The books


@dataclass(frozen=True)
class Balance:
    """An account in a period. Both totals are for the sequence of all records of the period."""

    account: str
    period: int
    ends: float
    """When the period ends, seconds since 1970."""
    reports: int
    spent: Guarantee
    """Per unit of the largest distance between two sequences of records: costs add."""
    against_sum: Guarantee
    """Per unit of the sum of distances along two sequences: the largest cost counts."""
    left_epsilon: float
    pending: int
    """Charged and not yet accepted by the server."""
    ever: Guarantee
    """As `spent`, over all periods since the ledger was made: no limit bounds it."""


@dataclass
class Books:
    """All that is kept, and sealed; changed inside a transaction."""

    # What has no guarantee costs infinitely much.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(ser_json_inf_nan="constants")
    allowance: Allowance
    blocked_until: int = 0
    """Nothing is charged before, seconds since 1970: what was spent until then is unknown."""
    period: int = 0
    """The latest that was seen."""
    entries: dict[str, Entry] = field(default_factory=dict)
    """Of the running period, and what waits from before; by their ids, oldest first."""
    ended: dict[str, Guarantee] = field(default_factory=dict)
    """What all other releases of an account cost together."""
    taken: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The latest period of a deployment's quota, and the reports that were drawn in it."""
    one_use: dict[str, tuple[int, dict[str, OneUse]]] = field(default_factory=dict)
    """The period of a deployment's one-use tokens, and those at hand by the id of their report."""
    count: int = 0
    """Releases that were ever charged."""

    def begin(self, secret: Callable[[Facts], bytes], now: float) -> None:
        """Go on to the running period, never to one before what was seen."""
        self._secret = secret
        self._now = int(now)
        running = self._now // self.allowance.period_s
        seen = self.period
        period = max(running, seen)
        self._behind = period > running
        if period != seen:
            self.period = period
            for entry in self.all():
                if entry.state == "charged":
                    # It must still be sent.
                    self._put(entry, memo=None)
                    continue
                account = entry.charge.account
                self.ended[account] = total([*self._ended(account), entry.cost], entry.cost.unit)
                del self.entries[entry.id]

    def memo(self, index: int | tuple[int, int], context: Facts) -> str:
        """The keyed hash of a record in its context and the running period, so that those of two
        periods cannot be told to be of one record. Called behind the seal."""
        return self._secret({**context, "period": self.period, "record": index}).hex()

    def find(self, memo: str) -> Entry | None:
        """The entry of a record in this period."""
        return next((entry for entry in self.all() if entry.memo == memo), None)

    def check(self, charge: Charge) -> None:
        """Raise `BudgetError` where a release is more than what is allowed. Before any draw."""
        blocked_s = self.blocked_until - self._now
        if blocked_s > 0:
            raise BudgetError(
                "the ledger was started over in this period and what was spent before is unknown; "
                f"the next period begins in {blocked_s} s"
            )
        if charge.quota is not None and self._taken(charge)[1] >= charge.quota:
            raise BudgetError(
                f"deployment {charge.deployment} takes {charge.quota} reports in {charge.quota_s} "
                "s, and as many are drawn: nothing is drawn or charged that it would refuse; the "
                f"next period begins in {charge.quota_s - self._now % charge.quota_s} s"
            )
        if charge.accept_no_guarantee:
            return
        entries = self._running(charge.account)
        why = self.allowance.excess([entry.cost for entry in entries], charge.cost)
        if why is not None:
            late = "; the clock is behind the ledger, set it right" if self._behind else ""
            raise BudgetError(
                f"{why}: wait for the next period ({self._ends - self._now} s), choose a "
                f"deployment that costs less, or allow more{late}"
            )

    def secret(self, **context: Any) -> bytes:
        """What one-use tokens are made of."""
        return self._secret({"one-use": context})

    def tokens(self, charge: Charge) -> dict[str, OneUse] | None:
        """The one-use tokens at hand of the quota's running period; None where none were made."""
        period, tokens = self.one_use.get(charge.purse, (0, {}))
        return tokens if period == self.quota_period(charge) else None

    def keep_tokens(self, charge: Charge, period: int, tokens: dict[str, OneUse]) -> int:
        """Have one-use tokens at hand, unless another process has them; how many there are."""
        if self.one_use.get(charge.purse, (0, {}))[0] < period:
            self.one_use[charge.purse] = (period, tokens)
        return len(self.tokens(charge) or {})

    def quota_period(self, charge: Charge) -> int:
        """The running period of a quota."""
        return self._now // charge.quota_s

    def stamp(self, charge: Charge, drawn: D) -> D:
        """What was drawn, with a one-use token, which is no more at hand."""
        tokens = self.tokens(charge) or {}
        if not tokens:
            raise BudgetError(
                f"no one-use token of deployment {charge.deployment} is at hand for this period: "
                "collect them (`panda-mdp client collect`) some time before, not with the report"
            )
        report, proof = tokens.popitem()
        return drawn.but(report=report, proof=proof)

    def charge(
        self, charge: Charge, content: Drawn, box_bytes: int, memo: str | None = None
    ) -> Entry:
        """Enter a release with all that was drawn, in a box of a length that tells nothing. It may
        be sent after the transaction ended."""
        self.check(charge)
        period, count = self._taken(charge)
        self.taken[charge.purse] = (period, count + 1)
        self.count += 1
        entry = Entry(new_id(), self.period, self._now, charge, "charged", memo, " " * box_bytes)
        return self.settle(entry, "charged", content)

    def settle(self, entry: Entry, state: State, content: Drawn | None = None) -> Entry:
        """Note a new state, and what was drawn since; the box keeps its length."""
        entry = self.entries.get(entry.id, entry)
        box = entry.box
        memo = entry.memo
        if content is not None and box is not None:
            text = content.model_dump_json()
            room = len(box)
            if len(text) > room:
                raise LedgerError(f"an entry of {len(text)} bytes does not fit into {room}")
            box = text.ljust(room)
        if state == "given_up" or (state == "accepted" and self.allowance.repeats == "fresh"):
            memo = None
        if state == "given_up" != entry.state:
            # The server has not taken it: another may take its place in the quota.
            key = entry.charge.purse
            period, count = self.taken.get(key, (0, 0))
            if period == entry.at // entry.charge.quota_s:
                self.taken[key] = (period, max(0, count - 1))
        return self._put(entry, state=state, box=box, memo=memo)

    def amend(self, entry: Entry, kind: type[D], change: Callable[[D], D]) -> Entry:
        """Note what was drawn since, unless another process has drawn the output: then its draw
        stands."""
        current = self.entries[entry.id]
        content = current.drawn(kind)
        if content.output is not None:
            return current
        return self.settle(current, current.state, change(content))

    def _put(self, entry: Entry, **changes: Any) -> Entry:
        self.entries[entry.id] = changed = replace(entry, **changes)
        return changed

    def pending(self, server: str | None = None) -> list[Entry]:
        """Charged and not accepted, oldest first."""
        return [
            entry
            for entry in self.all()
            if entry.state == "charged" and entry.box and server in (None, entry.charge.server)
        ]

    def all(self) -> list[Entry]:
        """Every entry, oldest first."""
        return list(self.entries.values())

    def balances(self) -> list[Balance]:
        """Every account that was ever charged, in the running period."""
        accounts = {entry.charge.account for entry in self.all()} | {*self.ended}
        return [self._balance(account) for account in sorted(accounts)]

    def forget(self) -> int:
        """Erase memos and boxes."""
        kept = [entry for entry in self.all() if entry.memo or entry.box]
        for entry in kept:
            state = "given_up" if entry.state == "charged" else entry.state
            self._put(entry, memo=None, box=None, state=state)
        return len(kept)

    def _taken(self, charge: Charge) -> tuple[int, int]:
        """The running period of a quota, and the reports that were drawn in it. A clock that is
        set back stays in the latest period."""
        period, count = self.taken.get(charge.purse, (0, 0))
        running = self.quota_period(charge)
        return (running, 0) if running > period else (period, count)

    @property
    def _ends(self) -> int:
        return (self.period + 1) * self.allowance.period_s

    def _running(self, account: str) -> list[Entry]:
        return [e for e in self.all() if (e.charge.account, e.period) == (account, self.period)]

    def _ended(self, account: str) -> list[Guarantee]:
        return [self.ended[account]] if account in self.ended else []

    def _balance(self, account: str) -> Balance:
        entries = [entry for entry in self.all() if entry.charge.account == account]
        costs = [*self._ended(account), *(entry.cost for entry in entries)]
        unit = costs[0].unit
        running = [entry.cost for entry in self._running(account)]
        spent = total(running, unit)
        largest = max((cost.epsilon for cost in running), default=0.0)
        return Balance(
            account=account,
            period=self.period,
            ends=float(self._ends),
            reports=len(running),
            spent=spent,
            against_sum=Guarantee(largest, spent.delta, unit),
            left_epsilon=max(0.0, self.allowance.period_epsilon - spent.epsilon),
            pending=sum(entry.state == "charged" for entry in entries),
            ever=total(costs, unit),
        )
