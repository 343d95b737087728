"""What is written in a ledger, inside one transaction: entries, balances, memos, periods."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from panda_mdp.errors import BudgetError, LedgerError
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.protocol.ledger.allowance import Allowance, excess, total
from panda_mdp.protocol.ledger.drawn import Drawn, from_bytes, to_bytes
from panda_mdp.protocol.ledger.vault import OVERHEAD_BYTES, Vault
from panda_mdp.protocol.messages.signing import canonical_json
from panda_mdp.protocol.messages.types import new_id

State = Literal["charged", "accepted", "given_up"]
D = TypeVar("D", bound=Drawn)


@dataclass(frozen=True)
class Entry:
    """One charge. `content` is what was drawn and must be sent; its repr shows the cost only."""

    id: str
    period: int
    at: int
    account: str
    server: str
    deployment: str
    cost: Guarantee
    state: State
    content: Drawn | None

    def drawn(self, kind: type[D]) -> D:
        """What was drawn, of the kind that a deployment draws."""
        if self.content is None:
            msg = "what this entry released was erased from the ledger; it cannot be sent again"
            raise LedgerError(msg)
        if not isinstance(self.content, kind):
            msg = "an entry of the ledger was drawn for another kind of deployment"
            raise LedgerError(msg)
        return self.content

    def __repr__(self) -> str:
        return f"Entry({self.deployment}, period {self.period}, {self.state}, {self.cost})"


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
    left_delta: float
    pending: int
    """Charged and not yet accepted by the server."""
    ever: Guarantee
    """As `spent`, over all periods since the ledger was made: no limit bounds it."""


class Books:
    """The ledger inside a transaction."""

    def __init__(
        self, connection: sqlite3.Connection, vault: Vault, allowance: Allowance, now: float
    ) -> None:
        self._connection = connection
        self._vault = vault
        word = self._setting("key")
        if word not in (vault.check, vault.unsealed):
            msg = "the ledger was replaced while it was open; open it again"
            raise LedgerError(msg)
        self.sealed = word == vault.check
        self.count = self._check_tally()
        if not self.sealed:
            self.keep("key", vault.check)
        # Another process may have changed the limits since the ledger was opened.
        self.allowance = Allowance.from_json(self._setting("allowance") or allowance.to_json())
        self._now = int(now)
        self.period = self._roll_over()

    def _numbers(self) -> tuple[int, int]:
        row = self._connection.execute("SELECT count(*), max(seq) FROM entries").fetchone()
        return int(row[0]), int(row[1] or 0)

    def _check_tally(self) -> int:
        """How many entries there are, which must be as many as were charged."""
        numbers = self._numbers()
        stated = self._setting("tally")
        if stated is None and not self.sealed:
            # Of an earlier version of this library: sealed from now on.
            self.keep("tally", self._vault.tally(*numbers))
        elif stated != self._vault.tally(*numbers):
            msg = "entries of the ledger were deleted or added by other means; it is damaged"
            raise LedgerError(msg)
        return numbers[0]

    def _roll_over(self) -> int:
        """The running period, never before one that was seen; ended periods lose their memos."""
        seen = self._setting("period")
        running = int(self._now // self.allowance.period_s)
        period = running if seen is None else max(running, int(seen))
        self.behind = period > running
        if seen is None or period != int(seen):
            self.keep("period", str(period))
            self._connection.execute(
                "UPDATE entries SET memo = NULL, box = CASE WHEN state = 'charged' THEN box END "
                "WHERE period < ?",
                (period,),
            )
        return period

    def memo(self, index: int, context: dict[str, Any]) -> bytes:
        """The keyed hash of a record in the running period. Called behind the seal."""
        return self._vault.memo(index, {**context, "period": self.period})

    def find(self, memo: bytes) -> Entry | None:
        """The entry of a record in this period."""
        row = self._connection.execute("SELECT * FROM entries WHERE memo = ?", (memo,)).fetchone()
        return None if row is None else self._entry(row)

    def get(self, entry_id: str) -> Entry:
        """An entry as it is now; another process may have gone on with it."""
        row = self._connection.execute("SELECT * FROM entries WHERE id = ?", (entry_id,)).fetchone()
        if row is None:
            msg = "an entry of the ledger is gone; the ledger is damaged"
            raise LedgerError(msg)
        return self._entry(row)

    def check(self, account: str, cost: Guarantee, accept_no_guarantee: bool = False) -> None:
        """Raise `BudgetError` where a release is more than what is allowed. Before any draw."""
        blocked = self._setting("blocked")
        until = int(self._setting("blocked_until") or 0)
        if (blocked is not None and self.period <= int(blocked)) or self._now < until:
            wait = max(self._remaining(), until - self._now)
            msg = (
                "the ledger was started over in this period and what was spent before is unknown; "
                f"the next period begins in {wait:.0f} s"
            )
            raise BudgetError(msg)
        if accept_no_guarantee:
            return
        why = excess(self.allowance, self._spent(account), cost)
        if why is not None:
            late = "; the clock is behind the ledger, set it right" if self.behind else ""
            msg = (
                f"{why}: wait for the next period ({self._remaining():.0f} s), choose a deployment "
                f"that costs less, or allow more{late}"
            )
            raise BudgetError(msg)

    def charge(
        self,
        account: str,
        server: str,
        deployment: str,
        cost: Guarantee,
        content: Drawn,
        *,
        memo: bytes | None,
        size: int,
        accept_no_guarantee: bool = False,
    ) -> Entry:
        """Enter a release with all that was drawn. It may be sent after the transaction ended."""
        self.check(account, cost, accept_no_guarantee)
        entry = Entry(
            id=new_id(),
            period=self.period,
            at=self._now,
            account=account,
            server=server,
            deployment=deployment,
            cost=cost,
            state="charged",
            content=content,
        )
        self._connection.execute(
            "INSERT INTO entries (id, period, at, account, unit, server, deployment, epsilon, "
            "delta, state, memo, box) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                entry.id,
                entry.period,
                entry.at,
                account,
                cost.unit,
                server,
                deployment,
                cost.epsilon,
                cost.delta,
                entry.state,
                memo,
                self._vault.lock(to_bytes(content), _about(entry), size),
            ),
        )
        numbers = self._numbers()
        self.keep("tally", self._vault.tally(*numbers))
        self.count = numbers[0]
        return entry

    def settle(self, entry: Entry, state: State, content: Drawn | None = None) -> Entry:
        """Note a new state, and what was drawn since; the box keeps its length."""
        after = replace(entry, state=state, content=content or entry.content)
        row = self._connection.execute(
            "SELECT box FROM entries WHERE id = ?", (entry.id,)
        ).fetchone()
        self._connection.execute("UPDATE entries SET state = ? WHERE id = ?", (state, entry.id))
        if content is not None and row is not None and row["box"] is not None:
            size = len(row["box"]) - OVERHEAD_BYTES
            box = self._vault.lock(to_bytes(content), _about(entry), size)
            self._connection.execute("UPDATE entries SET box = ? WHERE id = ?", (box, entry.id))
        fresh = state == "accepted" and self.allowance.repeats == "fresh"
        if state == "given_up" or fresh:
            self._connection.execute("UPDATE entries SET memo = NULL WHERE id = ?", (entry.id,))
        return after

    def pending(self, server: str | None = None) -> list[Entry]:
        """Charged and not accepted, oldest first."""
        rows = self._connection.execute(
            "SELECT * FROM entries WHERE state = 'charged' AND box IS NOT NULL "
            "AND (? IS NULL OR server = ?) ORDER BY seq",
            (server, server),
        )
        return [self._entry(row) for row in rows.fetchall()]

    def all(self) -> list[Entry]:
        """Every entry, oldest first."""
        rows = self._connection.execute("SELECT * FROM entries ORDER BY seq")
        return [self._entry(row) for row in rows.fetchall()]

    def balances(self) -> list[Balance]:
        """Every account that was ever charged, in the running period."""
        rows = self._connection.execute("SELECT DISTINCT account FROM entries ORDER BY account")
        return [self._balance(row["account"]) for row in rows.fetchall()]

    def forget(self) -> int:
        """Erase memos and boxes."""
        cursor = self._connection.execute(
            "UPDATE entries SET memo = NULL, box = NULL, "
            "state = CASE WHEN state = 'charged' THEN 'given_up' ELSE state END "
            "WHERE memo IS NOT NULL OR box IS NOT NULL"
        )
        return int(cursor.rowcount)

    def keep(self, name: str, value: str) -> None:
        """Set a setting."""
        self._connection.execute(
            "INSERT INTO settings VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = ?",
            (name, value, value),
        )

    def _setting(self, name: str) -> str | None:
        row = self._connection.execute(
            "SELECT value FROM settings WHERE name = ?", (name,)
        ).fetchone()
        return None if row is None else str(row["value"])

    def _remaining(self) -> float:
        return (self.period + 1) * self.allowance.period_s - self._now

    def _spent(self, account: str) -> list[Guarantee]:
        rows = self._connection.execute(
            "SELECT * FROM entries WHERE period = ? AND account = ?", (self.period, account)
        )
        # Opening the box checks that the cost is the one that was charged.
        return [self._entry(row).cost for row in rows.fetchall()]

    def _balance(self, account: str) -> Balance:
        rows = self._connection.execute("SELECT * FROM entries WHERE account = ?", (account,))
        entries = [self._entry(row) for row in rows.fetchall()]
        unit = entries[0].cost.unit
        running = [entry for entry in entries if entry.period == self.period]
        spent = _sum([entry.cost for entry in running], unit)
        largest = max((entry.cost.epsilon for entry in running), default=0.0)
        return Balance(
            account=account,
            period=self.period,
            ends=float((self.period + 1) * self.allowance.period_s),
            reports=len(running),
            spent=spent,
            against_sum=Guarantee(largest, spent.delta, unit),
            left_epsilon=max(0.0, self.allowance.period_epsilon - spent.epsilon),
            left_delta=max(0.0, self.allowance.period_delta - spent.delta),
            pending=sum(1 for entry in entries if entry.state == "charged"),
            ever=_sum([entry.cost for entry in entries], unit),
        )

    def _entry(self, row: sqlite3.Row) -> Entry:
        entry = Entry(
            id=row["id"],
            period=row["period"],
            at=row["at"],
            account=row["account"],
            server=row["server"],
            deployment=row["deployment"],
            cost=Guarantee(row["epsilon"], row["delta"], row["unit"]),
            state=row["state"],
            content=None,
        )
        if row["box"] is None:
            return entry
        opened = self._vault.unlock(row["box"], _about(entry))
        return replace(entry, content=from_bytes(opened))


def _about(entry: Entry) -> str:
    """What a box is bound to: nobody can move it to an entry that cost less."""
    facts = [entry.id, entry.period, entry.at, entry.account, entry.server, entry.deployment]
    cost = [repr(entry.cost.epsilon), repr(entry.cost.delta), entry.cost.unit]
    return canonical_json([*facts, *cost]).decode()


def _sum(costs: list[Guarantee], unit: str) -> Guarantee:
    delta = min(1.0, float(total([cost.delta for cost in costs])))
    return Guarantee(float(total([cost.epsilon for cost in costs])), delta, unit)
