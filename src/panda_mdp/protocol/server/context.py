"""What all routes share, and its life: started with the server, ended with it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from panda_mdp.protocol.messages.catalogue import TableRef
from panda_mdp.protocol.messages.keys import KeySheet
from panda_mdp.protocol.messages.signing import SigningKey
from panda_mdp.protocol.server.auth import TokenBook
from panda_mdp.protocol.server.bodies import Room
from panda_mdp.protocol.server.counters import Metrics
from panda_mdp.protocol.server.live import Cache, Live, LiveDeployments
from panda_mdp.protocol.server.pool import Pool
from panda_mdp.protocol.server.settings import Settings
from panda_mdp.protocol.server.store.catalogue import table_file
from panda_mdp.protocol.server.store.database import Store
from panda_mdp.protocol.server.store.statements import sign_all
from panda_mdp.protocol.server.supervisor import Supervisor
from panda_mdp.protocol.server.writer import ReportWriter

_log = logging.getLogger("panda_mdp.server")
LOOK_SECONDS = 1.0
"""After which a change by another server or command is noticed, a token that was revoked too."""


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
        self.live = LiveDeployments(store, self.files)
        self.writer = ReportWriter(store, settings.batch_reports, settings.queued_reports)
        self.pool = Pool()
        self.room = Room(settings.reporters_bytes)
        self.supervisor = Supervisor(store, key_path, self.live.forget, settings)
        self.metrics = Metrics(self.writer, self.ready)
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to write reports, run jobs and watch for changes."""
        await run_in_threadpool(self.book.load)
        await run_in_threadpool(self._sign)
        self.writer.start()
        self.supervisor.start()
        self._watch = asyncio.create_task(self._watch_others())

    async def stop(self) -> None:
        """Store what waits, end the workers."""
        if self._watch is not None:
            self._watch.cancel()
        await run_in_threadpool(self.writer.stop)
        await run_in_threadpool(self.supervisor.stop)
        await run_in_threadpool(self.pool.close)
        self.store.close()

    def _sign(self) -> None:
        with self.store.write() as connection:
            sign_all(connection, self.key)

    def ready(self) -> bool:
        """Whether reports can be stored now."""
        try:
            return self.writer.running and self.store.value("schema") is not None
        except SQLAlchemyError:
            return False

    async def deployment(self, name: str) -> Live:
        """A deployment as reports see it."""
        known = self.live.cached(name)
        return known if known is not None else await run_in_threadpool(self.live.get, name)

    def file(self, ref: TableRef) -> bytes:
        """A table's file."""
        return self.files.get(f"{ref.name}/{ref.version}", lambda: self._read(ref))

    def _read(self, ref: TableRef) -> bytes:
        with self.store.read() as connection:
            return table_file(connection, ref)

    async def _watch_others(self) -> None:
        """Notice within a second what other servers and commands have changed."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await run_in_threadpool(self._look)
            except Exception as error:
                _log.error("changes could not be looked at: %s", type(error).__name__)

    def _look(self) -> None:
        tokens, deployments = self.store.values("token_changes", "deployment_changes")
        self.book.refresh(tokens)
        self.live.refresh(deployments)
