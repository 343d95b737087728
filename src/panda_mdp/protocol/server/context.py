"""What all routes share, and its life: started with the server, ended with it."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import signal
import threading
from collections.abc import Callable, Mapping, Sized
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from cachetools import LRUCache, TTLCache, cached
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from panda_mdp.protocol.messages.blind import from_block, is_signed, one_use_message
from panda_mdp.protocol.messages.catalogue import TableRef
from panda_mdp.protocol.messages.deployments import ReportRequest
from panda_mdp.protocol.messages.signing import KeySheet, SigningKey
from panda_mdp.protocol.server.auth import Token, TokenBook
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.solving import Pool
from panda_mdp.protocol.server.store.catalogue import table_row
from panda_mdp.protocol.server.store.database import Remembered, Store
from panda_mdp.protocol.server.store.deployments import (
    current_table,
    find,
    sign_all,
    solved_round,
)
from panda_mdp.protocol.server.store.reports import Quota
from panda_mdp.protocol.server.store.schema import (
    DeploymentRow,
    IssuerRow,
    UploadRow,
    now,
)
from panda_mdp.protocol.server.supervisor import Supervisor
from panda_mdp.protocol.server.writer import ReportWriter

_log = logging.getLogger("panda_mdp.server")
T = TypeVar("T", bound=Sized)
CLOSED = "this deployment is closed"
MOST_DEPLOYMENTS = 10_000
CACHED_BYTES = 256 << 20
"""Tables and balls kept in memory."""
POLL_SECONDS = 0.25
"""How often rounds and changes by other processes are looked at."""
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
    enrol_rate: float = 1 / 6
    """Of enrolments per address; of an IPv6 network of 64 bits, which one house has."""
    enrol_burst: float = 10.0
    body_seconds: float = 60.0
    """A body must have arrived by then."""
    header_bytes: int = 32 << 10
    header_seconds: float = 15.0
    """A request's header must have arrived by then."""
    connections: int = 4_000
    """At once; further ones are refused."""
    address_connections: int = 500
    """Of one address, unless it is a proxy's: nobody alone shuts everybody out."""
    cors_origins: tuple[str, ...] = ()
    """Other origins whose pages may use the API; none by default."""
    log_addresses: bool = False
    static: Path = Path(__file__).parents[1] / "static"


class Kept(Protocol):
    """A function of a key and of what makes its entry, which has a length."""

    def __call__(self, key: str, make: Callable[[], T], /) -> T: ...


def byte_cache(most_bytes: int) -> Kept:
    """Entries in memory, the least recently used leave first. Whoever asks for one that is being
    made waits for it: it is made once."""
    entries: LRUCache[str, Any] = LRUCache(most_bytes, getsizeof=len)
    keep = cached(entries, key=lambda key, make: key, condition=threading.Condition())
    return keep(lambda key, make: make())


@dataclass(frozen=True, slots=True)
class Live:
    """A deployment as reports see it."""

    row: DeploymentRow
    """As it is stored."""
    version: int
    """The version or round that reports are of; 0 where no round is solved yet."""
    outputs: frozenset[int]
    users: frozenset[str] | None
    """Tokens that have rows in the round in force; None where everybody may report."""
    quota: Quota
    table: str | None
    """The identity of the table in force, which reports name: limits may have changed since one was
    drawn, and it is as good as ever."""
    issuers: Mapping[int, str] | None
    """Where tokens are used once, the keys that sign them: moduli by the number of the period."""

    def quota_of(self, token: Token) -> Quota:
        """What a token may do, which begins when it is made."""
        return replace(self.quota, since_ms=round(1000 * token.created.timestamp()))

    def nameless(self, name: str, report: ReportRequest) -> tuple[str, Quota]:
        """Whom a report with a one-use token is counted for, who may make this one alone."""
        proof = report.proof
        running = self.quota.period()
        issuers = self.issuers or {}
        msg = "proof: not a one-use token of this period or the one before"
        if proof is not None and proof.period in issuers and running - proof.period in (0, 1):
            message = one_use_message(name, proof.period, report.id)
            signature, modulus = map(from_block, (proof.signature, issuers[proof.period]))
            if is_signed(message, signature, modulus):
                # A name that does not show the receipt.
                user = hashlib.sha256(report.id.encode()).hexdigest()[:24]
                return user, replace(self.quota, most=1, once=True)
            msg = "proof: not a signature of this server over the id of the report"
        raise Failure("invalid", msg, "collect tokens of the running period")

    def over(self) -> Failure | None:
        """Why no reports are taken any more, or None."""
        until = self.row.request.until
        if self.row.open and (until is None or f"{now():%Y-%m-%d}" <= until):
            return None
        msg = "the last day of this deployment is over" if self.row.open else CLOSED
        return Failure("round_closed", msg, "ask the operator")

    def problem(self, report: ReportRequest, sender: Token | None) -> Failure | None:
        """Why a report is not accepted, or None."""
        over = self.over()
        if over is not None:
            return over
        if not self.version or report.table not in (None, self.table):
            msg = "no round of this deployment is solved yet"
            if self.version:
                msg = f"reports are accepted for version {self.version} of this deployment"
            remedy = "fetch the deployment, draw from what is in force now, and report that"
            return Failure("wrong_version", msg, remedy)
        if self.users is not None and (sender is None or sender.id not in self.users):
            return Failure(
                "wrong_version",
                "this token has no rows in the round in force: it uploaded no anchors",
                "take part in the next round",
            )
        if report.output not in self.outputs:
            return Failure(
                "invalid",
                "output: not one of the outputs of the version in force",
                "report an output of the table",
            )
        return None


class LiveDeployments(Remembered[Live]):
    """Deployments by name, read once and again after every change."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, "deployment_changes", _live, MOST_DEPLOYMENTS)
        self._reading = threading.Lock()

    def get(self, name: str) -> Live:
        """A deployment as it is now; a crowd that waits for one after a change reads it once."""
        self.refresh()
        with self._reading:
            return self.cached(name) or self.fetch(name)


def _live(session: Session, name: str) -> Live:
    row = find(session, name)
    request = row.request
    if request.kind == "anchors":
        version = solved_round(session, row.id)
        outputs = request.outputs
        table = None
        mine = select(UploadRow.token).filter_by(deployment=row.id, round=version)
        users = frozenset(session.scalars(mine))
    else:
        stored = current_table(session, row)
        version, outputs, table, users = row.version, stored.outputs, stored.info.identity, None
    issuers = None
    if request.one_use:
        keys = session.scalars(select(IssuerRow).filter_by(deployment=row.id))
        issuers = {each.period: each.modulus for each in keys}
    return Live(
        row=row,
        version=version,
        outputs=frozenset(outputs),
        users=users,
        quota=Quota(1000 * request.period_s, request.reports_per_period),
        table=table,
        issuers=issuers,
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
        self.files = byte_cache(CACHED_BYTES)
        self.live = LiveDeployments(store)
        self.writer = ReportWriter(store)
        self.pool = Pool()
        self.supervisor = Supervisor(store)
        self._watches: list[asyncio.Task[None]] = []
        # Anybody may ask, so a row that was written is good for a while.
        once: TTLCache[object, None] = TTLCache(1, LOOK_SECONDS)
        self._check_writable = cached(once, lock=threading.Lock())(store.check_writable)

    async def start(self) -> None:
        """Begin to write reports, solve rounds and watch for changes."""
        await run_in_threadpool(self._prepare)
        self.writer.start()
        # Apart from each other: what takes long must not keep a revoked token alive.
        looks = (self._turn,), (self.book.refresh, self.live.refresh)
        self._watches = [asyncio.create_task(self._repeat(*each)) for each in looks]

    def _prepare(self) -> None:
        self.book.load()
        with self.store.write() as session:
            sign_all(session, self.key)

    async def stop(self) -> None:
        """Store what waits, end the workers."""
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        for end in (self.writer.stop, self.supervisor.close, self.pool.close):
            await run_in_threadpool(end)
        self.store.close()

    def notice_changes(self) -> None:
        """See to what a request has changed, at once and not only at the next turn."""
        with suppress(SQLAlchemyError):
            self.live.refresh()

    def ready(self) -> bool:
        """Whether reports can be stored now: the writer runs, and the database reads and writes."""
        try:
            self.store.value("layout")
            self._check_writable()
        except SQLAlchemyError:
            return False
        return self.writer.running

    def file(self, ref: TableRef) -> bytes:
        """A table's file."""

        def read() -> bytes:
            with self.store.read() as session:
                return table_row(session, ref).file

        return self.files(f"table/{ref.name}/{ref.version}", read)

    def _turn(self) -> None:
        # Ctrl-C is the server's: workers inherit that they do not see it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        self.supervisor.turn()

    async def _repeat(self, *looks: Callable[[], None]) -> None:
        """See to what is due, or notice what other servers and commands have changed."""
        while True:
            for look in looks:
                try:
                    await run_in_threadpool(look)
                except Exception as error:
                    _log.error("changes could not be looked at: %s", type(error).__name__)
            await asyncio.sleep(POLL_SECONDS)
