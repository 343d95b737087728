"""Where the server keeps what it knows: SQLite by default, PostgreSQL by URL.

Every change is one transaction that is on the disk before anybody is told about it (SQLite: WAL
with `synchronous=FULL`; PostgreSQL: its own default). Changes are made one at a time, across all
servers and workers of a database, so that "the next version" is never given out twice. A SQLite
database has one server; a PostgreSQL database has as many as are started.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, cast

from alembic.util import CommandError
from filelock import FileLock, Timeout
from sqlalchemy import Connection, Engine, create_engine, event, func, insert, select, text, update
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from panda_mdp.errors import FileFormatError, InvalidInputError
from panda_mdp.protocol.server.store import schema
from panda_mdp.protocol.server.store.migrations import upgrade

_WRITE = 0x70616E6461  # "panda"
_WRITE_REPORTS = _WRITE + 2
_LETTING_GO_S = 2.0
_POSTGRES_OPTIONS = (
    "-c idle_in_transaction_session_timeout=30000 -c lock_timeout=30000 "
    "-c plan_cache_mode=force_custom_plan"
)
"""A server that freezes in the middle of a change must not hold the others up for long, and a plan
that was made for an empty table must not read all of a full one."""


Counter = Literal["token_changes", "deployment_changes"]


def now_ms() -> int:
    """The time as it is stored."""
    return time.time_ns() // 1_000_000


class Store:
    """A database with the protocol's tables.

    `Store.create` makes one, `Store.open` takes one that is there. `read` and `write` give a
    connection in a transaction of its own, which ends with the block.
    """

    def __init__(self, engine: Engine, url: URL) -> None:
        self.engine = engine
        self.url = url
        self._lock = threading.Lock()
        self._reports = threading.Lock()
        self._raw: Any = None

    @classmethod
    def create(cls, database: str) -> Store:
        """A new database, or the one that is there already, brought to this version's layout."""
        store = cls._connect(database)
        if store.path is not None and not store.path.exists():
            store.path.parent.mkdir(parents=True, exist_ok=True)
            # What users sent is nobody else's business: SQLite gives its other files this mode too.
            os.close(os.open(store.path, os.O_CREAT | os.O_WRONLY, 0o600))
        try:
            with store.write() as connection:
                upgrade(connection)
        except CommandError:
            # Of a later version; said below.
            pass
        except DBAPIError as error:
            raise store._unusable(error) from None
        store._check_schema()
        return store

    @classmethod
    def open(cls, database: str) -> Store:
        """The database at a path or URL, which must exist and have this version's tables."""
        store = cls._connect(database)
        if store.path is not None and not store.path.exists():
            msg = f"{store.path}: there is no database here; `panda-mdp serve --init` makes one"
            raise FileFormatError(msg)
        store._check_schema()
        return store

    @classmethod
    def _connect(cls, database: str) -> Store:
        url = _url(database)
        if url.get_backend_name() == "sqlite":
            engine = create_engine(
                url,
                pool_size=8,
                max_overflow=32,
                connect_args={"check_same_thread": False, "cached_statements": 300},
            )
            _prepare_sqlite(engine)
        else:
            engine = create_engine(
                url,
                pool_size=8,
                max_overflow=16,
                pool_pre_ping=True,
                connect_args={"options": _POSTGRES_OPTIONS, "connect_timeout": 5},
            )
        return cls(engine, url)

    def __repr__(self) -> str:
        return f"Store({self.url.render_as_string(hide_password=True)})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def sqlite(self) -> bool:
        """Whether this is SQLite; otherwise PostgreSQL."""
        return self.url.get_backend_name() == "sqlite"

    @property
    def path(self) -> Path | None:
        """The database file, where there is one."""
        return Path(self.url.database or "") if self.sqlite else None

    @property
    def address(self) -> str:
        """What another process opens the same database with, password included."""
        return self.url.render_as_string(hide_password=False)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection that sees one state of the database."""
        with self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that is durable once the block ends without an error.

        No other process makes such a change meanwhile. SQLite has one writer in any case; the lock
        keeps this process's threads from polling for it.
        """
        with self._lock, self._begin() as connection:
            if not self.sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _WRITE})
            yield connection

    @contextmanager
    def reports(self) -> Iterator[Any]:
        """The driver's connection in a transaction that stores reports, as durable as `write`.

        No other process stores reports meanwhile, so their numbers rise in the order in which they
        become visible. PostgreSQL keeps one connection for it: taking one from the pool and looking
        whether it lives would cost as much as a few reports do.
        """
        if self.sqlite:
            with self.write() as connection:
                yield connection.connection.driver_connection
            return
        with self._reports:
            raw = self._raw
            try:
                if raw is None:
                    fairy = self.engine.raw_connection()
                    raw = self._raw = cast(Any, fairy.driver_connection)
                    fairy.detach()
                    raw.autocommit = True
                raw.execute(f"BEGIN; SELECT pg_advisory_xact_lock({_WRITE_REPORTS})")
                yield raw
                raw.execute("COMMIT")
            except BaseException:
                # Whatever has become of it: the server ends a transaction whose client is gone.
                self._raw = None
                if raw is not None:
                    raw.close()
                raise

    @contextmanager
    def _begin(self) -> Iterator[Connection]:
        connection = self.engine.connect().execution_options(immediate=True)
        with connection, connection.begin():
            yield connection

    def value(self, key: str) -> str | None:
        """An entry of the table of settings."""
        return self.values(key)[0]

    def values(self, *keys: str) -> tuple[str | None, ...]:
        """Some entries of the table of settings, of one moment."""
        with self.read() as connection:
            rows = connection.execute(select(schema.meta).where(schema.meta.c.key.in_(keys)))
            known = {str(row.key): str(row.value) for row in rows}
        return tuple(known.get(key) for key in keys)

    def set_value(self, key: str, value: str) -> None:
        """Write an entry of the table of settings."""
        with self.write() as connection:
            changed = connection.execute(
                update(schema.meta).where(schema.meta.c.key == key).values(value=value)
            ).rowcount
            if not changed:
                connection.execute(insert(schema.meta).values(key=key, value=value))

    def value_count(self, table: str) -> int:
        """How many rows one of this layout's tables has."""
        wanted = select(func.count()).select_from(schema.metadata.tables[table])
        with self.read() as connection:
            return int(connection.execute(wanted).scalar() or 0)

    @staticmethod
    def count_change(connection: Connection, key: Counter) -> None:
        """Add one to a counter, so that other processes notice a change."""
        where = schema.meta.c.key == key
        before = connection.execute(select(schema.meta.c.value).where(where)).scalar_one()
        connection.execute(update(schema.meta).where(where).values(value=str(int(before) + 1)))

    @contextmanager
    def claim(self) -> Iterator[None]:
        """Be the only server of a SQLite database for the length of the block.

        PostgreSQL needs none: jobs are leased, rounds closed and numbers given in transactions.
        """
        if not self.sqlite:
            yield
            return
        with _file_claim(Path(f"{self.path}.lock")):
            yield

    def close(self) -> None:
        """Give all connections back."""
        raw, self._raw = self._raw, None
        if raw is not None:
            raw.close()
        self.engine.dispose()

    def _check_schema(self) -> None:
        try:
            layout = self.value("schema")
        except DBAPIError as error:
            raise self._unusable(error) from None
        if layout != schema.VERSION:
            self.close()
            shown = self.url.render_as_string(hide_password=True)
            newer = layout is not None and layout.isdigit() and int(layout) > int(schema.VERSION)
            msg = f"{shown} has layout {layout!r} and this version needs {schema.VERSION!r}; " + (
                "use the version of panda-mdp that made it"
                if newer
                else "back it up, then `panda-mdp serve --init` brings it up to date"
            )
            raise FileFormatError(msg)

    def _unusable(self, error: DBAPIError) -> FileFormatError:
        self.close()
        shown = self.url.render_as_string(hide_password=True)
        reason = str(error.orig).splitlines()[0] if error.orig else "no answer"
        msg = f"{shown} cannot be used: {reason}; `panda-mdp serve --init` makes a new database"
        return FileFormatError(msg)


_IN_USE = (
    "another server uses this database, and a SQLite database has one: stop the other one first, "
    "or take PostgreSQL, which has as many as you start"
)


def _url(database: str) -> URL:
    if "://" not in database:
        return URL.create("sqlite", database=str(Path(database).absolute()))
    try:
        url = make_url(database)
    except (ArgumentError, ValueError):
        msg = "the database is neither a path nor a URL such as postgresql://user@host/name"
        raise InvalidInputError(msg) from None
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    if url.drivername == "sqlite" and url.database:
        return url
    if url.drivername != "postgresql+psycopg":
        msg = f"{url.drivername} is not supported; give a path (SQLite) or a postgresql:// URL"
        raise InvalidInputError(msg)
    return url


_PRAGMAS = (
    "PRAGMA busy_timeout = 20000",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",
    "PRAGMA foreign_keys = ON",
)


def _prepare_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def _connected(raw: Any, record: Any) -> None:
        # Transactions are begun here and not by the driver, which waits for the first change.
        raw.isolation_level = None
        try:
            for pragma in _PRAGMAS:
                raw.execute(pragma).close()
        except BaseException:
            raw.close()
            raise

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        immediate = connection.get_execution_options().get("immediate", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")


@contextmanager
def _file_claim(path: Path) -> Iterator[None]:
    # A server that was just killed may still be letting go.
    lock = FileLock(path, timeout=_LETTING_GO_S, mode=0o600)
    try:
        lock.acquire(poll_interval=0.05)
    except Timeout:
        raise InvalidInputError(_IN_USE) from None
    try:
        yield
    finally:
        lock.release()
