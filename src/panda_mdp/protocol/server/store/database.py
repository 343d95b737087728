"""Where the server keeps what it knows: SQLite by default, PostgreSQL by URL.

Every change is one transaction that is on the disk before anybody is told about it (SQLite: WAL
with `synchronous=FULL`; PostgreSQL: its own default). Changes are made one at a time, across all
servers and workers of a database, so that "the next version" is never given out twice. A SQLite
database has one server; a PostgreSQL database has as many as are started.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Generic, Literal, Self, TypeVar
from urllib.parse import quote

from cachetools import LRUCache
from filelock import FileLock, Timeout
from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    create_engine,
    event,
    func,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.orm import Session
from sqlalchemy.pool import QueuePool

from panda_mdp.errors import FileFormatError, InvalidInputError
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.store.schema import (
    LAYOUT,
    Base,
    ReportRow,
    Secret,
    SettingRow,
    now,
    now_ms,
)

T = TypeVar("T")
_CHANGES = 0x70616E6461  # "panda"
_REPORTS = _CHANGES + 2
_LETTING_GO_S = 2.0
_POSTGRES_OPTIONS = (
    "-c idle_in_transaction_session_timeout=30000 -c lock_timeout=30000 "
    "-c plan_cache_mode=force_custom_plan"
)
"""A server that freezes in the middle of a change must not hold the others up for long, and a plan
that was made for an empty table must not read all of a full one."""
WholeCheck = Literal["quick_check", "integrity_check"]
Changes = Literal["token_changes", "deployment_changes", "removals"]


def found(row: T | None, what: str, remedy: str) -> T:
    """A row that was looked for, or the refusal that there is none."""
    if row is None:
        raise Failure("not_found", f"there is no {what}", remedy)
    return row


def first_line(error: Exception) -> str:
    """What the database says, or whatever else went wrong, in a line."""
    return str(getattr(error, "orig", None) or error).splitlines()[0]


def revoke(session: Session, kind: type[Secret], mine: ColumnElement[bool]) -> int:
    """Make tokens or invitations worthless that are not so yet: how many."""
    valid = update(kind).where(mine, kind.revoked.is_(None)).values(revoked=now())
    revoked: int = session.connection().execute(valid).rowcount
    return revoked


def latest(session: Session, kind: type[T], by: Any, **same: Any) -> T | None:
    """The row that has the most in a column, among those with the same values in others."""
    return session.scalar(select(kind).filter_by(**same).order_by(by.desc()).limit(1))


class Store:
    """A database with the protocol's tables.

    `Store.create` makes one, `Store.open` takes one that is there. `read` and `write` give a
    session in a transaction of its own, which ends with the block.
    """

    def __init__(self, database: str, read_only: bool = False) -> None:
        self.url = _url(database)
        self.engine = _engine(self.url, read_only)
        self._changing = self.engine.execution_options(immediate=True)
        lock = threading.RLock()
        self._locks = {_CHANGES: lock, _REPORTS: lock if self.sqlite else threading.RLock()}

    @classmethod
    def create(cls, database: str) -> Self:
        """A new database, or the one that is there already."""
        store = cls(database)
        if store.path is not None:
            store.path.parent.mkdir(parents=True, exist_ok=True)
            # What users sent is nobody else's business: SQLite gives its other files this mode too.
            os.close(os.open(store.path, os.O_CREAT | os.O_WRONLY, 0o600))
        return store._checked(make=True)

    @classmethod
    def open(cls, database: str, read_only: bool = False) -> Self:
        """The database at a path or URL, which must exist and have this version's tables."""
        store = cls(database, read_only)
        if store.path is not None and not store.path.exists():
            raise FileFormatError(
                f"{store.path}: there is no database here; `panda-mdp serve --init` makes one"
            )
        return store._checked()

    def _checked(self, make: bool = False) -> Self:
        """This, where it can be used; with its tables, where they are to be made."""
        try:
            if make:
                with self.write() as session:
                    connection = session.connection()
                    if not inspect(connection).has_table(SettingRow.__tablename__):
                        Base.metadata.create_all(connection)
                        session.add(SettingRow(key="layout", value=LAYOUT))
            layout = self.value("layout")
        except DBAPIError as error:
            reason = first_line(error)
            said = f"cannot be used: {reason}; `panda-mdp serve --init` makes a new database"
        else:
            if layout == LAYOUT:
                return self
            said = (
                f"has layout {layout!r} and this version needs {LAYOUT!r}; use the version of "
                "panda-mdp that made it, or another database"
            )
        self.close()
        raise FileFormatError(f"{self.url!r} {said}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def sqlite(self) -> bool:
        """Whether this is SQLite; otherwise PostgreSQL."""
        return self.url.get_backend_name() == "sqlite"

    @property
    def path(self) -> Path | None:
        """The database file, where there is one."""
        return Path(self.url.database or "") if self.sqlite else None

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session that sees one state of the database."""
        with Session(self.engine, expire_on_commit=False) as session, session.begin():
            yield session

    def write(self) -> AbstractContextManager[Session]:
        """A transaction that is durable once the block ends without an error.

        No other process makes such a change meanwhile. SQLite has one writer in any case; the lock
        keeps this process's threads from polling for it.
        """
        return self._exclusive(_CHANGES)

    def reports(self) -> AbstractContextManager[Session]:
        """A transaction that stores reports, as durable as `write`.

        No other process stores reports meanwhile, so their numbers rise in the order in which they
        become visible. On PostgreSQL other changes go on beside it.
        """
        return self._exclusive(_REPORTS)

    def everything(self) -> AbstractContextManager[Session]:
        """A transaction beside which nothing at all is written, reports neither."""
        return self._exclusive(_REPORTS, _CHANGES)

    @contextmanager
    def _exclusive(self, *keys: int) -> Iterator[Session]:
        with ExitStack() as held:
            for key in keys:
                held.enter_context(self._locks[key])
            session = held.enter_context(Session(self._changing, expire_on_commit=False))
            held.enter_context(session.begin())
            for key in () if self.sqlite else keys:
                session.execute(select(func.pg_advisory_xact_lock(key)))
            yield session

    def value(self, key: str) -> str | None:
        """An entry of the table of settings."""
        with self.read() as session:
            row = session.get(SettingRow, key)
            return None if row is None else row.value

    def set_value(self, key: str, value: str) -> None:
        """Write an entry of the table of settings."""
        with self.write() as session:
            session.merge(SettingRow(key=key, value=value))

    @staticmethod
    def count_change(session: Session, key: Changes) -> int:
        """Add one to a counter, so that other processes notice a change; what it is then."""
        row = session.get(SettingRow, key) or SettingRow(key=key, value="0")
        row.value = str(int(row.value) + 1)
        session.add(row)
        return int(row.value)

    def check_whole(self, pragma: WholeCheck = "quick_check") -> None:
        """Read every page of a SQLite database; raises `FileFormatError` where it is damaged."""
        if not self.sqlite:
            return
        try:
            with self.read() as session:
                state = str(session.scalar(text(f"PRAGMA {pragma}(1)"))).splitlines()[0]
        except DBAPIError as error:
            state = first_line(error)
        if state != "ok":
            self.close()
            raise FileFormatError(
                f"{self.path} is damaged ({state}); move it aside together with "
                "its -wal and -shm, and restore a backup"
            )

    def check_start(self) -> None:
        """Raise `FileFormatError` unless the database is whole, reads and writes."""
        self.check_whole()
        try:
            self.check_writable()
        except SQLAlchemyError as error:
            self.close()
            raise FileFormatError(
                f"{self.url!r} cannot be written ({first_line(error)}); `panda-mdp doctor` looks "
                "at it"
            ) from None

    def check_writable(self) -> None:
        """Read the latest report, write a row and read it again; raises what the database says."""
        with self.write() as session:
            session.scalar(select(func.max(ReportRow.seq)))
            row = session.merge(SettingRow(key="checked", value=str(now_ms())))
            written = row.value
            session.flush()
            session.refresh(row)
            if row.value != written:
                raise SQLAlchemyError("what was written cannot be read")

    @contextmanager
    def claim(self) -> Iterator[None]:
        """Be the only server of a SQLite database for the length of the block.

        PostgreSQL needs none: rounds are closed and solved, and numbers given in transactions.
        """
        if not self.sqlite:
            yield
            return
        # A server that was just killed may still be letting go.
        lock = FileLock(f"{self.path}.lock", timeout=_LETTING_GO_S, mode=0o600)
        try:
            held = lock.acquire(poll_interval=0.05)
        except Timeout:
            raise InvalidInputError(
                "another server uses this database, and a SQLite database has one: stop the other "
                "one first, or take PostgreSQL, which has as many as you start"
            ) from None
        with held:
            yield

    def close(self) -> None:
        """Give all connections back."""
        self.engine.dispose()


class Remembered(Generic[T]):
    """What was read from a store, by its key, until a counter there says that something changed.

    Changes by other processes are noticed by whoever calls `refresh` every second. `lookup` reads
    one from the store; None is not kept.
    """

    def __init__(
        self, store: Store, changes: Changes, lookup: Callable[[Session, str], T], most: int
    ) -> None:
        self._store = store
        self._lookup = lookup
        self._known: LRUCache[str, T] = LRUCache(most)
        self._counter: Changes = changes
        self._counted = store.value(changes)
        self._lock = threading.Lock()

    def cached(self, key: str) -> T | None:
        """What is known without asking the store."""
        with self._lock:
            return self._known.get(key)

    def fetch(self, key: str) -> T:
        """What the store says."""
        counted = self._counted
        with self._store.read() as session:
            entry = self._lookup(session, key)
        if entry is not None:
            self._keep([(key, entry)], counted)
        return entry

    def refresh(self) -> None:
        """Forget everything where something has changed."""
        counted = self._store.value(self._counter)
        with self._lock:
            if counted != self._counted:
                self._counted = counted
                self._known.clear()

    def _keep(self, entries: Iterable[tuple[str, T]], counted: str | None) -> None:
        """Keep some in memory, if nothing has changed since the store was asked."""
        with self._lock:
            if counted == self._counted:
                self._known.update(entries)


def _url(database: str) -> URL:
    if "://" not in database:
        return URL.create("sqlite", database=str(Path(database).absolute()))
    try:
        url = make_url(database)
    except (ArgumentError, ValueError):
        raise InvalidInputError(
            "the database is neither a path nor a URL such as postgresql://user@host/name"
        ) from None
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    if url.drivername == "postgresql+psycopg" or (url.drivername == "sqlite" and url.database):
        return url
    raise InvalidInputError(
        f"{url.drivername} is not supported; give a path (SQLite) or a postgresql:// URL"
    )


_PRAGMAS = (
    "PRAGMA busy_timeout = 20000",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",
    "PRAGMA foreign_keys = ON",
)


def _engine(url: URL, read_only: bool) -> Engine:
    """Connections to a database. Those that only read see one state for a whole transaction."""
    if url.get_backend_name() != "sqlite":
        options, level = _POSTGRES_OPTIONS, "READ COMMITTED"
        if read_only:
            # A dump of a large database takes long, and holds nobody up.
            options, level = "-c default_transaction_read_only=on", "REPEATABLE READ"
        # A database that says nothing of an encoding would hand over bytes.
        arguments = {"options": options, "connect_timeout": 5, "client_encoding": "utf8"}
        return create_engine(
            url,
            pool_size=8,
            max_overflow=16,
            pool_pre_ping=True,
            connect_args=arguments,
            isolation_level=level,
        )
    pragmas = _PRAGMAS[:1] if read_only else _PRAGMAS
    if read_only:
        file = f"file:{quote(url.database or '')}"
        url = url.set(database=file, query={"mode": "ro", "uri": "true"})
    engine = create_engine(
        url,
        poolclass=QueuePool,
        pool_size=8,
        max_overflow=32,
        connect_args={"check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def _connected(raw: Any, record: Any) -> None:
        # Transactions are begun here and not by the driver, which waits for the first change.
        raw.isolation_level = None
        try:
            for pragma in pragmas:
                raw.execute(pragma).close()
        except BaseException:
            raw.close()
            raise

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        immediate = connection.get_execution_options().get("immediate", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")

    return engine
