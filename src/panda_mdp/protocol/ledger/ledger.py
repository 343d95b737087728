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
from dataclasses import replace
from pathlib import Path

from panda_mdp.base.atomic import atomic_file, sync_folder
from panda_mdp.errors import LedgerError
from panda_mdp.protocol.ledger.allowance import DAY_S, Allowance
from panda_mdp.protocol.ledger.books import Balance, Books, Entry, State
from panda_mdp.protocol.ledger.drawn import Drawn
from panda_mdp.protocol.ledger.locking import file_lock
from panda_mdp.protocol.ledger.vault import KEY_BYTES, Vault
from panda_mdp.protocol.messages.signing import write_private

LEDGER = "ledger.sqlite"
KEY = "ledger.key"
LOCK = "ledger.lock"
COUNT = "ledger.count"
APPLICATION = 0x706D6C31
VERSION = 1
BUSY_S = 30.0
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
    unit TEXT NOT NULL,
    server TEXT NOT NULL,
    deployment TEXT NOT NULL,
    epsilon REAL NOT NULL,
    delta REAL NOT NULL,
    state TEXT NOT NULL,
    memo BLOB,
    box BLOB
);
CREATE UNIQUE INDEX by_memo ON entries (memo) WHERE memo IS NOT NULL;
CREATE INDEX by_period ON entries (period, account);
"""


class Ledger:
    """The books of one user in one folder. Any number of processes may use them at once."""

    def __init__(
        self,
        folder: Path,
        vault: Vault,
        allowance: Allowance,
        clock: Callable[[], float],
    ) -> None:
        self.folder = folder
        self.allowance = allowance
        self._vault = vault
        self._clock = clock

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        allowance: Allowance | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> Ledger:
        """Open the ledger of a folder; with an allowance, make it where there is none.

        Raises `LedgerError` where ledger or key are missing or damaged, or where the allowance is
        not the one that the ledger keeps (`change_allowance` changes it).
        """
        place = Path(folder)
        book, key = place / LEDGER, place / KEY
        if allowance is not None and not key.exists():
            _prepare_folder(place)
            with file_lock(place / LOCK):
                if not key.exists():
                    _create(book, key, allowance, blocked=None)
        if not book.exists() and not key.exists():
            msg = f"{place}: there is no ledger; give an Allowance, or `panda-mdp client init`"
            raise LedgerError(msg)
        for path, what in ((book, "ledger"), (key, "ledger's key")):
            if not path.exists():
                msg = f"{path}: the {what} is missing, so what was spent is unknown; {REMEDY}"
                raise LedgerError(msg)
        vault = Vault.load(key)
        agreed = _check(book, vault)
        if allowance is not None and allowance != agreed:
            msg = (
                f"{place}: the ledger keeps other limits than the ones given; open it without, or "
                "change them with change_allowance"
            )
            raise LedgerError(msg)
        return cls(place, vault, agreed, clock)

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
        _prepare_folder(place)
        try:
            before = cls.open(place, clock=clock).allowance.period_s
        except LedgerError:
            before = DAY_S
        with file_lock(place / LOCK):
            for name in (KEY, COUNT, LEDGER, f"{LEDGER}-journal"):
                (place / name).unlink(missing_ok=True)
            running = int(clock() // allowance.period_s)
            # A shorter period would begin anew while the old one still runs.
            longer = max(before, allowance.period_s)
            until = (int(clock() // longer) + 1) * longer
            _create(place / LEDGER, place / KEY, allowance, blocked=(running, until))
        return cls.open(place, clock=clock)

    def __repr__(self) -> str:
        return f"Ledger({self.folder})"

    @contextmanager
    def books(self) -> Iterator[Books]:
        """One exclusive transaction: committed with a full fsync, or nothing of it happened."""
        try:
            with closing(_connect(self.folder / LEDGER)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    books = Books(connection, self._vault, self.allowance, self._clock())
                    before = self._floor(books)
                    yield books
                    connection.execute("COMMIT")
                    if books.count != before:
                        self._raise_floor(books.count)
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
        except sqlite3.OperationalError as error:
            raise LedgerError(_reason(self.folder, error)) from None
        except sqlite3.DatabaseError:
            msg = f"{self.folder / LEDGER}: the ledger is damaged; {REMEDY}"
            raise LedgerError(msg) from None

    def _floor(self, books: Books) -> int:
        """Refuse a ledger with fewer entries than were once seen: an older copy was put back."""
        path, count = self.folder / COUNT, books.count
        try:
            stated = path.read_text()
        except FileNotFoundError:
            if books.sealed:
                msg = f"{path}: it is missing, so it is unknown what was spent; {REMEDY}"
                raise LedgerError(msg) from None
            self._raise_floor(count)
            return count
        seen = int(stated.split()[0]) if stated.split() and stated.split()[0].isdigit() else -1
        if seen < 0 or stated != self._vault.tally(seen, seen):
            msg = f"{path}: it is damaged, so it is unknown what was spent; {REMEDY}"
            raise LedgerError(msg)
        if count < seen:
            msg = (
                f"{self.folder / LEDGER}: it has {count} entries and {seen} were charged: an older "
                f"copy was put back; {REMEDY}"
            )
            raise LedgerError(msg)
        return seen

    def _raise_floor(self, count: int) -> None:
        # After the commit: a crash in between leaves it too low, which refuses nothing.
        _write_count(self.folder, self._vault, count)

    def settle(self, entry: Entry, state: State, content: Drawn | None = None) -> Entry:
        """Note what became of an entry: accepted, or given up. The charge stays."""
        with self.books() as books:
            return books.settle(entry, state, content)

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
        return Ledger(self.folder, self._vault, allowance, self._clock)


def _connect(path: Path) -> sqlite3.Connection:
    # URI mode "rw": a file that is gone is not made again, silently and empty.
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?mode=rw", uri=True, timeout=BUSY_S, isolation_level=None
    )
    connection.row_factory = sqlite3.Row
    try:
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


def _reason(folder: Path, error: sqlite3.OperationalError) -> str:
    path = folder / LEDGER
    if "locked" in str(error):
        return (
            f"{path}: another process has held the ledger for {BUSY_S:g} s; try again when it is "
            "done. Nothing was charged and nothing was sent"
        )
    if "unable to open" in str(error):
        return f"{path}: the ledger is missing or cannot be opened; {REMEDY}"
    return (
        f"{path}: the ledger could not be written ({error}); nothing was sent. Make room on the "
        "disk or repair its permissions, and try again"
    )


def _prepare_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)


def _create(book: Path, key: Path, allowance: Allowance, blocked: tuple[int, int] | None) -> None:
    """A new ledger and its count, then its key: a crash in between leaves an empty ledger and no
    key."""
    if book.exists() and _count(book):
        msg = f"{key}: the ledger's key is missing, so its entries cannot be read; {REMEDY}"
        raise LedgerError(msg)
    for leftover in (book, book.with_name(f"{book.name}-journal")):
        leftover.unlink(missing_ok=True)
    secret = secrets.token_bytes(KEY_BYTES)
    os.close(os.open(book, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    with closing(_connect(book)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        for statement in SCHEMA.split(";"):
            connection.execute(statement)
        vault = Vault(secret)
        settings = {"key": vault.check, "tally": vault.tally(0, 0)}
        settings["allowance"] = allowance.to_json()
        if blocked is not None:
            settings |= {"blocked": str(blocked[0]), "blocked_until": str(blocked[1])}
        connection.executemany("INSERT INTO settings VALUES (?, ?)", settings.items())
        connection.execute("COMMIT")
    _write_count(book.parent, vault, 0)
    sync_folder(book.parent)
    write_private(key, secret)


def _write_count(folder: Path, vault: Vault, count: int) -> None:
    with atomic_file(folder / COUNT) as stream:
        stream.write(vault.tally(count, count).encode())


def _count(book: Path) -> int:
    with closing(_connect(book)) as connection:
        try:
            return int(connection.execute("SELECT count(*) FROM entries").fetchone()[0])
        except sqlite3.DatabaseError:
            return 1


def _check(book: Path, vault: Vault) -> Allowance:
    """The limits of a ledger that is whole and belongs to the key."""
    damaged = f"{book}: the ledger is damaged; {REMEDY}"
    try:
        with closing(_connect(book)) as connection:
            kind = connection.execute("PRAGMA application_id").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if kind != APPLICATION:
                raise LedgerError(damaged)
            if version != VERSION:
                msg = f"{book}: a ledger of version {version}; this library knows {VERSION}"
                raise LedgerError(msg)
            if connection.execute("PRAGMA quick_check").fetchone()[0] != "ok":
                raise LedgerError(damaged)
            rows = connection.execute("SELECT name, value FROM settings").fetchall()
            settings = {row["name"]: row["value"] for row in rows}
    except sqlite3.OperationalError as error:
        raise LedgerError(_reason(book.parent, error)) from None
    except sqlite3.DatabaseError:
        raise LedgerError(damaged) from None
    if settings.get("key") not in (vault.check, vault.unsealed):
        msg = f"{book}: the key beside it is not this ledger's; {REMEDY}"
        raise LedgerError(msg)
    return Allowance.from_json(settings.get("allowance", ""))
