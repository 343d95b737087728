"""Reports to the disk, and how many balls were asked for: many requests share one commit, and each
is told only after it.

One thread takes whatever waits, writes it in one transaction and then wakes all that waited for it.
While a commit is under way the next batch gathers, so batches grow with the load by themselves.
A report that is there already counts once: the same content is accepted again, other content under
the same id is refused.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from asyncio import wrap_future
from concurrent.futures import Future

from panda_mdp.protocol.server.failures import unavailable
from panda_mdp.protocol.server.store.database import Store
from panda_mdp.protocol.server.store.reports import (
    Ball,
    Outcome,
    Quota,
    Report,
    store_reports,
    take_ball,
)
from panda_mdp.protocol.server.store.schema import now_ms

_log = logging.getLogger("panda_mdp.server")
LINGER_S = 0.008
"""While several wait at a time."""
IDLE_S = 0.001
FEW = 32


_Waiting = tuple[Report | Ball, Quota, Future[Outcome]]


class ReportWriter:
    """The thread that writes reports. `start` before use, `stop` writes what is left and ends.

    Up to `batch` reports share a commit; where `waiting` wait for the disk the server is busy.
    """

    def __init__(self, store: Store, batch: int = 1_000, waiting: int = 20_000) -> None:
        self._store = store
        self._batch = batch
        self._most = waiting
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="report writer", daemon=True)
        self._last = 0
        self.commits = 0
        self.stored = 0
        self.failed = 0

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Write what waits, then end."""
        self._queue.put(None)
        self._thread.join()

    @property
    def waiting(self) -> int:
        """Reports that wait for the disk."""
        return self._queue.qsize()

    @property
    def running(self) -> bool:
        """Whether what is given to `write` will be looked at."""
        return self._thread.is_alive()

    async def write(self, report: Report | Ball, quota: Quota) -> Outcome:
        """Store a report, or count a ball; returns once it is durable, or says that it is not."""
        if self._queue.qsize() >= self._most:
            raise unavailable("too many reports wait for the disk")
        told: Future[Outcome] = Future()
        self._queue.put((report, quota, told))
        outcome = await wrap_future(told)
        if outcome == "failed":
            remedy = "try again, a report with the same id: it counts once"
            raise unavailable("what was sent could not be stored", remedy)
        return outcome

    def _run(self) -> None:
        while True:
            batch, last = self._gather()
            if batch:
                self._serve(batch)
                self._last = len(batch)
            if last:
                return

    def _gather(self) -> tuple[list[_Waiting], bool]:
        """Everything that waits now, at least one, up to a batch."""
        batch: list[_Waiting] = []
        entry = self._queue.get()
        if self._queue.qsize() < FEW:
            # A commit costs the same for one and for many: let a few more arrive.
            time.sleep(LINGER_S if self._last > 1 else IDLE_S)
        while entry is not None:
            batch.append(entry)
            if len(batch) >= self._batch:
                return batch, False
            try:
                entry = self._queue.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _serve(self, batch: list[_Waiting]) -> None:
        # Whoever hung up is not told, and can be told no more from here on.
        batch = [entry for entry in batch if entry[2].set_running_or_notify_cancel()]
        reports = [(each, quota) for each, quota, _ in batch if isinstance(each, Report)]
        outcomes: list[Outcome]
        try:
            with self._store.reports() as session:
                stored = store_reports(session, reports, now_ms()) if reports else []
                rest = iter(stored)
                outcomes = [
                    take_ball(session, each, quota) if isinstance(each, Ball) else next(rest)
                    for each, quota, _ in batch
                ]
            self.commits += 1
            self.stored += stored.count("new")
        except Exception as error:
            # Nothing of the batch is stored, and nobody is told otherwise.
            name = type(getattr(error, "orig", None) or error).__name__
            _log.error("a batch of %d reports was not stored: %s", len(batch), name)
            outcomes = ["failed"] * len(batch)
            self.failed += 1
            time.sleep(0.05)
        for (_, _, told), outcome in zip(batch, outcomes, strict=True):
            told.set_result(outcome)
