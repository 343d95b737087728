"""What all routes share, and its life: started with the server, ended with it."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from cachetools import LRUCache
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from panda_mdp.protocol.messages.catalogue import TableRef
from panda_mdp.protocol.messages.deployments import ReportRequest
from panda_mdp.protocol.messages.signing import KeySheet, SigningKey
from panda_mdp.protocol.server.auth import TokenBook
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.solving import Pool
from panda_mdp.protocol.server.store.catalogue import table_row
from panda_mdp.protocol.server.store.database import Store
from panda_mdp.protocol.server.store.deployments import (
    current_table,
    find,
    sign_all,
    solved_round,
)
from panda_mdp.protocol.server.store.reports import Quota
from panda_mdp.protocol.server.store.rounds import served_users
from panda_mdp.protocol.server.store.schema import now
from panda_mdp.protocol.server.supervisor import Supervisor
from panda_mdp.protocol.server.writer import ReportWriter

T = TypeVar("T")
_log = logging.getLogger("panda_mdp.server")
LOOK_SECONDS = 1.0
"""After which a change by another server or command is noticed, a token that was revoked too."""


@dataclass(frozen=True)
class Settings:
    """What an operator can set: limits and places of one server. Rates are requests per second."""

    token_rate: float = 50.0
    token_burst: float = 200.0
    address_rate: float = 50.0
    """Of requests without a valid token, per address."""
    address_burst: float = 500.0
    table_bytes: int = 512 << 20
    """Largest file that may be published."""
    document_bytes: int = 64 << 20
    """Largest JSON body of an operator: domains, jobs, deployments."""
    anchors_bytes: int = 8 << 20
    small_bytes: int = 64 << 10
    """Every other body."""
    body_seconds: float = 60.0
    """A body must have arrived by then."""
    header_bytes: int = 32 << 10
    header_seconds: float = 15.0
    """A request's header must have arrived by then."""
    connections: int = 4_000
    """At once; further ones are refused."""
    reporters_bytes: int = 64 << 20
    """All bodies of reporters that are in memory at once."""
    queued_reports: int = 20_000
    """Reports that may wait for the disk before the server says that it is busy."""
    batch_reports: int = 1_000
    """Reports that share one commit."""
    cached_bytes: int = 256 << 20
    """Tables and balls kept in memory."""
    retention_days: int | None = None
    """What users sent is deleted after so many days, sooner where a deployment says so."""
    cors_origins: tuple[str, ...] = ()
    """Other origins whose pages may use the API; none by default."""
    log_addresses: bool = False
    static: Path = Path(__file__).parents[1] / "static"
    poll_seconds: float = 0.25
    """How often rounds, jobs and changes by other processes are looked at."""


class Cache:
    """Byte strings in memory, the least recently used leave first."""

    def __init__(self, most_bytes: int) -> None:
        self._entries: LRUCache[str, bytes] = LRUCache(most_bytes, getsizeof=len)
        self._lock = threading.Lock()

    def peek(self, key: str) -> bytes | None:
        """The entry of a key, if there is one."""
        with self._lock:
            return self._entries.get(key)

    def get(self, key: str, make: Callable[[], bytes]) -> bytes:
        """The entry of a key, or what is made now."""
        entry = self.peek(key)
        return entry if entry is not None else self.put(key, make())

    def put(self, key: str, data: bytes) -> bytes:
        """Remember something, unless it is larger than all there is room for."""
        if len(data) <= self._entries.maxsize:
            with self._lock:
                self._entries[key] = data
        return data


class Room:
    """Memory for the bodies of all reporters together: one cannot fill it for the others for long.

    What a request took is given back when its answer was sent (`Gate`).
    """

    def __init__(self, size: int) -> None:
        self._free = size

    def take(self, state: dict[str, Any], count: int) -> None:
        """Take some for a request, or refuse it."""
        if count > self._free:
            raise Failure(
                "unavailable",
                "the server has its hands full of long requests",
                "try again",
                {"retry-after": "2", "connection": "close"},
            )
        self._free -= count
        state["room"], state["taken"] = self, count + state.get("taken", 0)

    def give_back(self, count: int) -> None:
        """Free what a request took."""
        self._free += count


@dataclass(frozen=True, slots=True)
class Live:
    """A deployment as reports see it."""

    id: int
    name: str
    kind: str
    open: bool
    version: int
    """The version or round that reports are of; 0 where no round is solved yet."""
    outputs: frozenset[int]
    users: frozenset[str] | None
    """Tokens that have rows in the round in force; None where everybody may report."""
    quota: Quota
    table: str | None
    """The SHA-256 of the table in force, which reports name: limits may have changed since one was
    drawn, and it is as good as ever."""
    ends: datetime | None
    """When the last day of collecting is over."""

    def problem(self, report: ReportRequest, token: str) -> Failure | None:
        """Why a report is not accepted, or None."""
        if not self.open:
            return Failure("round_closed", "this deployment is closed", "ask the operator")
        if self.ends is not None and now() >= self.ends:
            msg = "the last day of this deployment is over"
            return Failure("round_closed", msg, "ask the operator")
        if not self.version or (report.table is not None and report.table != self.table):
            return Failure(
                "wrong_version",
                f"reports are accepted for version {self.version} of this deployment"
                if self.version
                else "no round of this deployment is solved yet",
                "fetch the deployment, draw from what is in force now, and report that",
            )
        if self.users is not None and token not in self.users:
            return Failure(
                "wrong_version",
                "this token has no rows in the round in force: it uploaded no anchors, or they "
                "were left out",
                "take part in the next round",
            )
        if report.output not in self.outputs:
            return Failure(
                "invalid",
                "output: not one of the outputs of the version in force",
                "report an output of the table",
            )
        return None


class LiveDeployments:
    """Deployments by name, read once and again after every change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, Live] = {}
        self._changes = 0
        self._counted = store.value("deployment_changes")
        self._lock = threading.Lock()

    def cached(self, name: str) -> Live | None:
        """A deployment, if it is known without asking the store."""
        return self._known.get(name)

    def get(self, name: str) -> Live:
        """A deployment; after a change one caller reads it, and the others share what it found."""
        with self._lock:
            live = self._known.get(name)
            return live if live is not None else self.fetch(name)

    def fetch(self, name: str) -> Live:
        """A deployment from the store."""
        changes = self._changes
        with self._store.read() as session:
            live = _live(session, name)
        if changes == self._changes:
            self._known[name] = live
        return live

    def forget(self) -> None:
        """Read everything again when it is next asked for."""
        self._changes += 1
        self._known = {}

    def refresh(self) -> None:
        """Forget everything where another process has changed a deployment."""
        counted = self._store.value("deployment_changes")
        if counted != self._counted:
            self._counted = counted
            self.forget()


def _live(session: Session, name: str) -> Live:
    row = find(session, name)
    request, ends = row.request, None
    if request.until is not None:
        ends = datetime.fromisoformat(request.until).replace(tzinfo=UTC) + timedelta(days=1)
    if request.kind == "anchors":
        version = solved_round(session, row.id)
        users = frozenset(served_users(session, row.id, version))
        outputs, table = request.outputs, None
    else:
        version, users, ref = row.version, None, current_table(session, row)
        stored = table_row(session, ref)
        outputs, table = stored.outputs, stored.info.sha256
    return Live(
        id=row.id,
        name=name,
        kind=row.kind,
        open=row.open,
        version=version,
        outputs=frozenset(outputs),
        users=users,
        quota=Quota(1000 * request.period_s, request.reports_per_period),
        table=table,
        ends=ends,
    )


class Context:
    """A server's parts. `start` and `stop` are called by the application."""

    def __init__(
        self, store: Store, key_path: Path, settings: Settings, sheet: KeySheet | None = None
    ) -> None:
        self.store = store
        self.settings = settings
        self.key = SigningKey.load(key_path)
        self.sheet = sheet
        self.book = TokenBook(store)
        self.files = Cache(settings.cached_bytes)
        self.live = LiveDeployments(store)
        self.writer = ReportWriter(store, settings.batch_reports, settings.queued_reports)
        self.pool = Pool()
        self.room = Room(settings.reporters_bytes)
        self.supervisor = Supervisor(
            store, key_path, self.live.forget, settings.poll_seconds, settings.retention_days
        )
        self._watch: asyncio.Task[None] | None = None
        self._checking = threading.Lock()
        self._written = -math.inf

    async def start(self) -> None:
        """Begin to write reports, run jobs and watch for changes."""
        await run_in_threadpool(self.book.load)
        await self.write(lambda session: sign_all(session, self.key))
        self.writer.start()
        self.supervisor.start()
        self._watch = asyncio.create_task(self._watch_others())

    async def stop(self) -> None:
        """Store what waits, end the workers."""
        if self._watch is not None:
            self._watch.cancel()
        for end in (self.writer.stop, self.supervisor.stop, self.pool.close):
            await run_in_threadpool(end)
        self.store.close()

    async def read(self, look: Callable[[Session], T]) -> T:
        """What is found in one state of the database."""

        def run() -> T:
            with self.store.read() as session:
                return look(session)

        return await run_in_threadpool(run)

    async def write(self, change: Callable[[Session], T]) -> T:
        """What a change returns, once it is durable."""

        def run() -> T:
            with self.store.write() as session:
                return change(session)

        return await run_in_threadpool(run)

    def ready(self) -> bool:
        """Whether reports can be stored now: the writer runs, and the database reads and writes."""
        try:
            self.store.value("layout")
            with self._checking:
                if time.monotonic() - self._written >= LOOK_SECONDS:
                    # Anybody may ask, so a row that was written is good for a while.
                    self.store.check_writable()
                    self._written = time.monotonic()
        except SQLAlchemyError:
            return False
        return self.writer.running

    async def deployment(self, name: str) -> Live:
        """A deployment as reports see it."""
        live = self.live.cached(name)
        return live if live is not None else await run_in_threadpool(self.live.get, name)

    async def file(self, ref: TableRef) -> bytes:
        """A table's file."""
        key = f"table/{ref.name}/{ref.version}"
        cached = self.files.peek(key)
        if cached is not None:
            return cached
        return self.files.put(key, await self.read(lambda session: table_row(session, ref).file))

    async def _watch_others(self) -> None:
        """Notice within a second what other servers and commands have changed."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await run_in_threadpool(self.book.refresh)
                await run_in_threadpool(self.live.refresh)
            except Exception as error:
                _log.error("changes could not be looked at: %s", type(error).__name__)
