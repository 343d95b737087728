"""A user's books: what was released, what it cost, and what is left of a period's allowance.

Rules (docs/ledger.md says why):

- Charged first: an entry with its cost and everything that was drawn is on disk, by a full fsync,
  before a single byte is sent. A crash after that resends the same; nothing is drawn twice.
- Never refunded: a request that was refused or got lost may have been read.
- One writer: looking up, drawing and charging are one exclusive transaction, across processes.
- Same record, same answer: entries are found by a keyed hash, never by the record.
- Time goes forward: a clock that is set back stays in the latest period that was seen.
- A missing or damaged ledger is not an empty one: it is refused, and starting over counts the
  running period as spent.

The books are one file, sealed as a whole with the key beside it and replaced as a whole.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter

from panda_mdp.base.atomic import FilePath, sync_folder, write_private
from panda_mdp.base.text import Facts
from panda_mdp.errors import BudgetError, LedgerError
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.protocol.ledger.allowance import DAY_S, Allowance, total
from panda_mdp.protocol.ledger.vault import (
    KEY_BYTES,
    REMEDY,
    Charge,
    D,
    Drawn,
    Entry,
    State,
    Vault,
    file_lock,
)
from panda_mdp.protocol.messages.blind import OneUse
from panda_mdp.protocol.messages.types import new_id

LEDGER = "ledger.sealed"
KEY = "ledger.key"
LOCK = "ledger.lock"
COUNT = "ledger.count"
NEW_KEY = "ledger.key.new"
"""The key while a ledger is made: where it is found, that was never finished."""


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

    def begin(self, vault: Vault, now: float) -> None:
        """Go on to the running period, never to one before what was seen."""
        self._vault, self._now = vault, int(now)
        running, seen = self._now // self.allowance.period_s, self.period
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

    def memo(self, index: int, context: Facts) -> str:
        """The keyed hash of a record in the running period. Called behind the seal."""
        return self._vault.memo(index, {**context, "period": self.period})

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
        return self._vault.secret({"one-use": context})

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
        box, memo = entry.box, entry.memo
        if content is not None and box is not None:
            text, room = content.model_dump_json(), len(box)
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
        unit, limits = costs[0].unit, self.allowance
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
            left_epsilon=max(0.0, limits.period_epsilon - spent.epsilon),
            left_delta=max(0.0, limits.period_delta - spent.delta),
            pending=sum(entry.state == "charged" for entry in entries),
            ever=total(costs, unit),
        )


_BOOKS = TypeAdapter(Books)


class Ledger:
    """The books of one user in one folder. Any number of processes may use them at once."""

    def __init__(self, folder: Path, clock: Callable[[], float], busy_s: float = 30.0) -> None:
        self.folder = folder
        self._clock = clock
        self._busy_s = busy_s

    @classmethod
    def open(
        cls,
        folder: FilePath,
        allowance: Allowance | None = None,
        *,
        clock: Callable[[], float] = time.time,
        busy_s: float = 30.0,
    ) -> Ledger:
        """Open the ledger of a folder; with an allowance, make it where there is none.

        `busy_s` is how long another process may hold it. Raises `LedgerError` where ledger or key
        are missing or damaged, or where the allowance is not the one that the ledger keeps
        (`change_allowance` changes it).
        """
        ledger = cls(Path(folder), clock, busy_s)
        place = ledger.folder
        if allowance is not None and not (place / KEY).exists():
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
            with file_lock(place / LOCK, busy_s):
                if not (place / LEDGER).exists() or (place / NEW_KEY).exists():
                    ledger._create(Books(allowance))
        if not (place / LEDGER).exists() and not (place / KEY).exists():
            raise LedgerError(
                f"{place}: there is no ledger; give an Allowance, or `panda-mdp client init`"
            )
        if allowance not in (None, ledger.allowance):
            raise LedgerError(
                f"{place}: the ledger keeps other limits than the ones given; open it without, or "
                "change them with change_allowance"
            )
        return ledger

    @classmethod
    def start_over(
        cls,
        folder: FilePath,
        allowance: Allowance,
        *,
        clock: Callable[[], float] = time.time,
    ) -> Ledger:
        """Throw the ledger and its key away and begin another, in the next period.

        What was spent in the running period is unknown from now on, so nothing more is allowed in
        it. Reports that were not accepted yet are given up.
        """
        ledger = cls(Path(folder), clock)
        ledger.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            before = ledger.allowance.period_s
        except LedgerError:
            before = DAY_S
        # A shorter period would begin anew while the old one still runs.
        ends = (int(clock() // length + 1) * length for length in (before, allowance.period_s))
        with file_lock(ledger.folder / LOCK):
            ledger._create(Books(allowance, blocked_until=max(ends)))
        return ledger

    def __repr__(self) -> str:
        return f"Ledger({self.folder})"

    @property
    def allowance(self) -> Allowance:
        """The limits, as they are now."""
        with self.books() as books:
            return books.allowance

    @contextmanager
    def books(self) -> Iterator[Books]:
        """One exclusive transaction: committed with a full fsync, or nothing of it happened."""
        with file_lock(self.folder / LOCK, self._busy_s):
            books, vault, before = self._read()
            books.begin(vault, self._clock())
            yield books
            if hash(_BOOKS.dump_json(books)) != before:
                self._write(books, vault)

    def _read(self) -> tuple[Books, Vault, int]:
        """What is kept, and a hash of it: no frame of an error holds what was decrypted."""
        path, key, counted = (self.folder / name for name in (LEDGER, KEY, COUNT))
        for needed, what in ((path, "ledger"), (key, "ledger's key"), (counted, "ledger's count")):
            if not needed.exists():
                raise LedgerError(
                    f"{needed}: the {what} is missing, so what was spent is unknown; {REMEDY}"
                )
        vault = Vault.load(key)
        seen = int(vault.unlock(counted, COUNT))
        books = _BOOKS.validate_json(vault.unlock(path, LEDGER))
        if books.count < seen:
            raise LedgerError(
                f"{path}: it has {books.count} entries and {seen} were charged: an older copy was "
                f"put back; {REMEDY}"
            )
        return books, vault, hash(_BOOKS.dump_json(books))

    def _write(self, books: Books, vault: Vault) -> None:
        try:
            _replace(self.folder / LEDGER, vault.lock(_BOOKS.dump_json(books), LEDGER))
            # Afterwards: a crash in between leaves it too low, which refuses nothing.
            _replace(self.folder / COUNT, vault.lock(str(books.count).encode(), COUNT))
        except OSError as error:
            raise LedgerError(
                f"{self.folder}: the ledger could not be written ({error.strerror}); nothing was "
                "sent. Make room on the disk or repair its permissions, and try again"
            ) from None

    def _create(self, books: Books) -> None:
        """A new ledger in place of whatever is there; its key gets its name at the end, so that
        one that was not finished is not taken for the old one either."""
        secret = secrets.token_bytes(KEY_BYTES)
        _replace(self.folder / NEW_KEY, secret)
        self._write(books, Vault(secret))
        (self.folder / NEW_KEY).replace(self.folder / KEY)
        sync_folder(self.folder)

    def settle(self, entry: Entry, state: State) -> Entry:
        """Note what became of an entry: accepted, or given up. The charge stays."""
        with self.books() as books:
            return books.settle(entry, state)

    def amend(self, entry: Entry, kind: type[D], change: Callable[[D], D]) -> Entry:
        """Note what was drawn since, in one transaction with the draw."""
        with self.books() as books:
            return books.amend(entry, kind, change)

    def pending(self, server: str | None = None) -> list[Entry]:
        """Entries that are charged and not yet accepted, oldest first."""
        with self.books() as books:
            return books.pending(server)

    def balances(self) -> list[Balance]:
        """Every account: the running period, and all of them together."""
        with self.books() as books:
            return books.balances()

    def forget(self) -> int:
        """Erase all memos and all that was drawn; the charges stay. Returns how many entries.

        A record that was answered before is drawn for and charged again. Reports that were not
        accepted are given up.
        """
        with self.books() as books:
            return books.forget()

    def change_allowance(self, allowance: Allowance) -> None:
        """Other limits from now on. The period's length and the rule for repeats stay."""
        with self.books() as books:
            changed = [
                name
                for name in ("period_s", "unit", "repeats")
                if getattr(allowance, name) != getattr(books.allowance, name)
            ]
            if changed:
                raise LedgerError(
                    f"{', '.join(changed)} cannot be changed in a ledger that is in use; start "
                    "over (Ledger.start_over) in the next period"
                )
            books.allowance = allowance


def _replace(path: Path, data: bytes) -> None:
    """Put a file of mode 0600 in the place of one that is overwritten before it is let go."""
    fresh = path.with_name(f"{path.name}.part")
    fresh.unlink(missing_ok=True)
    write_private(fresh, data)
    if path.exists() and os.name == "posix":
        with path.open("r+b") as old:
            fresh.replace(path)
            old.write(bytes(os.fstat(old.fileno()).st_size))
            os.fsync(old.fileno())
    else:
        fresh.replace(path)
    sync_folder(path.parent)
