"""A user's books: what was released, what it cost, and what is left of a period's allowance.

Rules (docs/protocol.md says why):

- Charged first: an entry with its cost and everything that was drawn is on disk, by a full fsync,
  before a single byte is sent. A crash after that resends the same; nothing is drawn twice.
- Never refunded: a request that was refused or got lost may have been read.
- One writer: looking up, drawing and charging are one exclusive transaction, across processes.
- Same record, same answer: entries are found by a keyed hash, never by the record.
- Time goes forward: a clock that is set back stays in the latest period that was seen.
- A missing or damaged ledger is not an empty one: it is refused, and starting over counts the
  running period as spent.

Only the standard library's SQLite is used: rollback journal, synchronous=EXTRA.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from panda_mdp.base.atomic import atomic_file, sync_folder, write_private
from panda_mdp.errors import BudgetError, LedgerError
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.protocol.ledger.allowance import DAY_S, Allowance, total
from panda_mdp.protocol.ledger.vault import (
    KEY_BYTES,
    OVERHEAD_BYTES,
    Charge,
    D,
    Drawn,
    Entry,
    State,
    Vault,
    file_lock,
)
from panda_mdp.protocol.messages.types import new_id

LEDGER = "ledger.sqlite"
KEY = "ledger.key"
LOCK = "ledger.lock"
COUNT = "ledger.count"
APPLICATION = 0x706D6C31
VERSION = 1
REMEDY = (
    "restore the ledger and its key from a backup, or start over with Ledger.start_over or "
    "`panda-mdp client forget --start-over`, which counts the running period as spent"
)
SCHEMA = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    period INTEGER NOT NULL,
    at INTEGER NOT NULL,
    account TEXT NOT NULL,
    server TEXT NOT NULL,
    deployment TEXT NOT NULL,
    epsilon REAL NOT NULL,
    delta REAL NOT NULL,
    unit TEXT NOT NULL,
    state TEXT NOT NULL,
    memo BLOB,
    box BLOB
);
CREATE UNIQUE INDEX by_memo ON entries (memo) WHERE memo IS NOT NULL;
CREATE INDEX by_period ON entries (period, account);
"""


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

    def __init__(self, connection: sqlite3.Connection, vault: Vault, now: float) -> None:
        self._connection = connection
        self._vault = vault
        if self._setting("key") != vault.check:
            msg = "the ledger was replaced while it was open; open it again"
            raise LedgerError(msg)
        count, tally = self._tally()
        if self._setting("tally") != tally:
            msg = "entries of the ledger were deleted or added by other means; it is damaged"
            raise LedgerError(msg)
        self.count = count
        """How many entries there are."""
        # Another process may have changed the limits since the ledger was opened.
        self.allowance = Allowance.from_json(self._setting("allowance") or "")
        self._now = int(now)
        self.period = self._roll_over()

    def _tally(self) -> tuple[int, str]:
        """How many entries there are, and the seal over that and the last one."""
        row = self._connection.execute("SELECT count(*), max(seq) FROM entries").fetchone()
        return row[0], self._vault.tally(row[0], row[1] or 0)

    def _roll_over(self) -> int:
        """The running period, never before one that was seen; ended periods lose their memos."""
        seen = int(self._setting("period") or 0)
        running = self._now // self.allowance.period_s
        period = max(running, seen)
        self._behind = period > running
        if period != seen:
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
        return next(iter(self._entries("memo = ?", memo)), None)

    def get(self, entry_id: str) -> Entry:
        """An entry as it is now; another process may have gone on with it."""
        for entry in self._entries("id = ?", entry_id):
            return entry
        msg = "an entry of the ledger is gone; the ledger is damaged"
        raise LedgerError(msg)

    def check(self, charge: Charge) -> None:
        """Raise `BudgetError` where a release is more than what is allowed. Before any draw."""
        blocked_s = int(self._setting("blocked_until") or 0) - self._now
        if blocked_s > 0:
            msg = (
                "the ledger was started over in this period and what was spent before is unknown; "
                f"the next period begins in {blocked_s} s"
            )
            raise BudgetError(msg)
        if charge.accept_no_guarantee:
            return
        # Opening the boxes checks that the costs are those that were charged.
        entries = self._entries("period = ? AND account = ?", self.period, charge.account)
        why = self.allowance.excess([entry.cost for entry in entries], charge.cost)
        if why is not None:
            remaining_s = (self.period + 1) * self.allowance.period_s - self._now
            late = "; the clock is behind the ledger, set it right" if self._behind else ""
            msg = (
                f"{why}: wait for the next period ({remaining_s} s), choose a deployment that "
                f"costs less, or allow more{late}"
            )
            raise BudgetError(msg)

    def charge(
        self, charge: Charge, content: Drawn, box_bytes: int, memo: bytes | None = None
    ) -> Entry:
        """Enter a release with all that was drawn, in a box of a length that tells nothing. It may
        be sent after the transaction ended."""
        self.check(charge)
        entry = Entry(new_id(), self.period, self._now, charge, "charged", content)
        self._connection.execute(
            "INSERT INTO entries VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*entry.facts, "charged", memo, self._vault.lock(content, entry.label, box_bytes)),
        )
        self.count, tally = self._tally()
        self.keep("tally", tally)
        return entry

    def settle(self, entry: Entry, state: State, content: Drawn | None = None) -> Entry:
        """Note a new state, and what was drawn since; the box keeps its length."""
        self._update(entry, "state", state)
        (size,) = self._connection.execute(
            "SELECT length(box) FROM entries WHERE id = ?", (entry.id,)
        ).fetchone()
        if content is not None and size is not None:
            box = self._vault.lock(content, entry.label, size - OVERHEAD_BYTES)
            self._update(entry, "box", box)
        if state == "given_up" or (state == "accepted" and self.allowance.repeats == "fresh"):
            self._update(entry, "memo", None)
        return replace(entry, state=state, content=content or entry.content)

    def _update(self, entry: Entry, column: str, value: object) -> None:
        change = f"UPDATE entries SET {column} = ? WHERE id = ?"  # noqa: S608
        self._connection.execute(change, (value, entry.id))

    def pending(self, server: str | None = None) -> list[Entry]:
        """Charged and not accepted, oldest first."""
        charged = "state = 'charged' AND box IS NOT NULL AND (? IS NULL OR server = ?)"
        return self._entries(charged, server, server)

    def all(self) -> list[Entry]:
        """Every entry, oldest first."""
        return self._entries("TRUE")

    def balances(self) -> list[Balance]:
        """Every account that was ever charged, in the running period."""
        return [
            self._balance(account)
            for account in sorted({entry.charge.account for entry in self.all()})
        ]

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
        self._connection.execute("REPLACE INTO settings VALUES (?, ?)", (name, value))

    def _setting(self, name: str) -> str | None:
        query = "SELECT value FROM settings WHERE name = ?"
        row = self._connection.execute(query, (name,)).fetchone()
        return None if row is None else str(row[0])

    def _balance(self, account: str) -> Balance:
        entries = self._entries("account = ?", account)
        unit = entries[0].cost.unit
        running = [entry.cost for entry in entries if entry.period == self.period]
        spent = total(running, unit)
        largest = max((cost.epsilon for cost in running), default=0.0)
        return Balance(
            account=account,
            period=self.period,
            ends=float((self.period + 1) * self.allowance.period_s),
            reports=len(running),
            spent=spent,
            against_sum=Guarantee(largest, spent.delta, unit),
            left_epsilon=max(0.0, self.allowance.period_epsilon - spent.epsilon),
            left_delta=max(0.0, self.allowance.period_delta - spent.delta),
            pending=sum(entry.state == "charged" for entry in entries),
            ever=total((entry.cost for entry in entries), unit),
        )

    def _entries(self, condition: str, *values: object) -> list[Entry]:
        """The entries of a condition, oldest first, opened."""
        query = f"SELECT * FROM entries WHERE {condition} ORDER BY seq"  # noqa: S608
        return [self._opened(row) for row in self._connection.execute(query, values).fetchall()]

    def _opened(self, row: tuple[Any, ...]) -> Entry:
        _, name, period, at, account, server, deployment, *cost, state, _, box = row
        charge = Charge(account, server, deployment, Guarantee(*cost))
        entry = Entry(name, period, at, charge, state, None)
        if box is None:
            return entry
        return replace(entry, content=self._vault.unlock(box, entry.label))


class Ledger:
    """The books of one user in one folder. Any number of processes may use them at once."""

    def __init__(
        self,
        folder: Path,
        vault: Vault,
        allowance: Allowance,
        clock: Callable[[], float],
        busy_s: float = 30.0,
    ) -> None:
        self.folder = folder
        self.allowance = allowance
        self._vault = vault
        self._clock = clock
        self._busy_s = busy_s

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
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
        place = Path(folder)
        book, key = place / LEDGER, place / KEY
        if allowance is not None and not key.exists():
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
            with file_lock(place / LOCK):
                if not key.exists():
                    _create(place, allowance)
        if not book.exists() and not key.exists():
            msg = f"{place}: there is no ledger; give an Allowance, or `panda-mdp client init`"
            raise LedgerError(msg)
        for path, what in ((book, "ledger"), (key, "ledger's key")):
            if not path.exists():
                msg = f"{path}: the {what} is missing, so what was spent is unknown; {REMEDY}"
                raise LedgerError(msg)
        vault = Vault.load(key)
        with _reading(place, busy_s) as connection:
            agreed = _inspected(connection, book, vault)
        if allowance is not None and allowance != agreed:
            msg = (
                f"{place}: the ledger keeps other limits than the ones given; open it without, or "
                "change them with change_allowance"
            )
            raise LedgerError(msg)
        return cls(place, vault, agreed, clock, busy_s)

    @classmethod
    def start_over(
        cls,
        folder: str | os.PathLike[str],
        allowance: Allowance,
        *,
        clock: Callable[[], float] = time.time,
    ) -> Ledger:
        """Throw the ledger and its key away and begin another, in the next period.

        What was spent in the running period is unknown from now on, so nothing more is allowed in
        it. Reports that were not accepted yet are given up.
        """
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            before = cls.open(place, clock=clock).allowance.period_s
        except LedgerError:
            before = DAY_S
        # A shorter period would begin anew while the old one still runs.
        ends = (int(clock() // length + 1) * length for length in (before, allowance.period_s))
        with file_lock(place / LOCK):
            for name in (KEY, COUNT, LEDGER, f"{LEDGER}-journal"):
                (place / name).unlink(missing_ok=True)
            _create(place, allowance, blocked_until=max(ends))
        return cls.open(place, clock=clock)

    def __repr__(self) -> str:
        return f"Ledger({self.folder})"

    @contextmanager
    def books(self) -> Iterator[Books]:
        """One exclusive transaction: committed with a full fsync, or nothing of it happened."""
        with _reading(self.folder, self._busy_s) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                books = Books(connection, self._vault, self._clock())
                seen = self._count_seen(books.count)
                yield books
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            # After the commit: a crash in between leaves it too low, which refuses nothing.
            if books.count != seen:
                _write_count(self.folder, self._vault, books.count)

    def _count_seen(self, count: int) -> int:
        """Refuse a ledger with fewer entries than were once seen: an older copy was put back."""
        path = self.folder / COUNT
        stated = path.read_text(errors="replace") if path.exists() else ""
        try:
            seen = int(stated.partition(" ")[0])
        except ValueError:
            seen = 0
        if stated != self._vault.tally(seen, seen):
            msg = f"{path}: it is missing or damaged, so it is unknown what was spent; {REMEDY}"
            raise LedgerError(msg)
        if count < seen:
            msg = (
                f"{self.folder / LEDGER}: it has {count} entries and {seen} were charged: an older "
                f"copy was put back; {REMEDY}"
            )
            raise LedgerError(msg)
        return seen

    def settle(self, entry: Entry, state: State) -> Entry:
        """Note what became of an entry: accepted, or given up. The charge stays."""
        with self.books() as books:
            return books.settle(entry, state)

    def amend(self, entry: Entry, kind: type[D], change: Callable[[D], D]) -> Entry:
        """Note what was drawn since, unless another process has drawn the output: then its draw
        stands."""
        with self.books() as books:
            current = books.get(entry.id)
            content = current.drawn(kind)
            if content.output is not None:
                return current
            return books.settle(current, current.state, change(content))

    def pending(self, server: str | None = None) -> list[Entry]:
        """Entries that are charged and not yet accepted, oldest first."""
        with self.books() as books:
            return books.pending(server)

    def balances(self) -> list[Balance]:
        """Every account: the running period, and all of them together."""
        with self.books() as books:
            return books.balances()

    def entries(self) -> list[Entry]:
        """All charges that are still listed, oldest first, without what was drawn."""
        with self.books() as books:
            return [replace(entry, content=None) for entry in books.all()]

    def forget(self) -> int:
        """Erase all memos and all that was drawn; the charges stay. Returns how many entries.

        A record that was answered before is drawn for and charged again. Reports that were not
        accepted are given up.
        """
        with self.books() as books:
            return books.forget()

    def change_allowance(self, allowance: Allowance) -> Ledger:
        """Other limits from now on. The period's length and the rule for repeats stay."""
        fixed = ("period_s", "unit", "repeats")
        changed = [
            name for name in fixed if getattr(allowance, name) != getattr(self.allowance, name)
        ]
        if changed:
            msg = (
                f"{', '.join(changed)} cannot be changed in a ledger that is in use; start over "
                "(Ledger.start_over) in the next period"
            )
            raise LedgerError(msg)
        with self.books() as books:
            books.keep("allowance", allowance.to_json())
        return Ledger(self.folder, self._vault, allowance, self._clock, self._busy_s)


@contextmanager
def _reading(folder: Path, busy_s: float) -> Iterator[sqlite3.Connection]:
    """A connection to a ledger that is there; errors of SQLite are said in words of ours."""
    path = folder / LEDGER
    try:
        # URI mode "rw": a file that is gone is not made again, silently and empty.
        address = f"{path.resolve().as_uri()}?mode=rw"
        with closing(
            sqlite3.connect(address, uri=True, timeout=busy_s, isolation_level=None)
        ) as connection:
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            yield connection
    except sqlite3.DatabaseError as error:
        text = str(error)
        msg = f"{path}: the ledger is damaged; {REMEDY}"
        if "unable to open" in text:
            msg = f"{path}: the ledger is missing or cannot be opened; {REMEDY}"
        elif "locked" in text:
            msg = (
                f"{path}: another process has held the ledger for {busy_s:g} s; try again when it "
                "is done. Nothing was charged and nothing was sent"
            )
        elif isinstance(error, sqlite3.OperationalError):
            msg = (
                f"{path}: the ledger could not be written ({text}); nothing was sent. Make room on "
                "the disk or repair its permissions, and try again"
            )
        raise LedgerError(msg) from None


def _inspected(connection: sqlite3.Connection, book: Path, vault: Vault) -> Allowance:
    """The limits of a ledger that is whole and belongs to the key."""
    kind, version, whole = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("application_id", "user_version", "quick_check")
    )
    if kind != APPLICATION or whole != "ok":
        msg = f"{book}: the ledger is damaged; {REMEDY}"
        raise LedgerError(msg)
    if version != VERSION:
        msg = f"{book}: a ledger of version {version}; this library knows {VERSION}"
        raise LedgerError(msg)
    settings = dict(connection.execute("SELECT name, value FROM settings").fetchall())
    if settings.get("key") != vault.check:
        msg = f"{book}: the key beside it is not this ledger's; {REMEDY}"
        raise LedgerError(msg)
    return Allowance.from_json(settings.get("allowance", ""))


def _create(folder: Path, allowance: Allowance, blocked_until: int = 0) -> None:
    """A new ledger and its count, then its key: a crash in between leaves an empty ledger and no
    key."""
    book = folder / LEDGER
    if book.exists() and _has_entries(folder):
        msg = (
            f"{folder / KEY}: the ledger's key is missing, so its entries cannot be read; {REMEDY}"
        )
        raise LedgerError(msg)
    for leftover in (book, folder / f"{LEDGER}-journal"):
        leftover.unlink(missing_ok=True)
    secret = secrets.token_bytes(KEY_BYTES)
    vault = Vault(secret)
    os.close(os.open(book, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    with _reading(folder, busy_s=0.0) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        for statement in SCHEMA.split(";"):
            connection.execute(statement)
        settings = {
            "key": vault.check,
            "tally": vault.tally(0, 0),
            "allowance": allowance.to_json(),
            "blocked_until": str(blocked_until),
        }
        connection.executemany("INSERT INTO settings VALUES (?, ?)", settings.items())
        connection.execute("COMMIT")
    _write_count(folder, vault, 0)
    sync_folder(folder)
    write_private(folder / KEY, secret)


def _write_count(folder: Path, vault: Vault, count: int) -> None:
    with atomic_file(folder / COUNT) as stream:
        stream.write(vault.tally(count, count).encode())


def _has_entries(folder: Path) -> bool:
    """Whether something was charged, or may have been."""
    try:
        with _reading(folder, busy_s=0.0) as connection:
            return bool(connection.execute("SELECT count(*) FROM entries").fetchone()[0])
    except LedgerError:
        return True
