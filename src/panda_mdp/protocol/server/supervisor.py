"""Runs solves one at a time, each in a process of its own, and closes rounds in time.

Tables and rounds have a lane each, so that a long solve holds up no round. Where several servers
share a database, each leases the job that it runs and renews the lease; a lease that has run out is
of a server that is gone, and its job is queued again. A worker that lives on regardless publishes
nothing: its run is not the job's any more.
"""

from __future__ import annotations

import json
import logging
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from sqlalchemy import select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from panda_mdp.protocol.messages.catalogue import Progress
from panda_mdp.protocol.server.store.catalogue import LANES, Lane, end_job, running_job
from panda_mdp.protocol.server.store.database import Store
from panda_mdp.protocol.server.store.reports import remove_old
from panda_mdp.protocol.server.store.rounds import close_round, due_rounds, fail_round
from panda_mdp.protocol.server.store.schema import JobRow, now

_log = logging.getLogger("panda_mdp.server")
LEASE = timedelta(seconds=6)
REMOVE_EVERY_S = 600.0
AGAIN = 75
"""The exit code of a worker that asks for another run: its database was gone (`EX_TEMPFAIL`)."""


@dataclass
class _Running:
    job: str
    attempt: int
    process: subprocess.Popen[bytes]
    renewed: float = field(default_factory=time.monotonic)


class Supervisor:
    """A thread that starts jobs, ends those that were cancelled, and closes rounds in time."""

    def __init__(
        self,
        store: Store,
        key: Path,
        changed: Callable[[], None],
        poll_seconds: float = 0.25,
        retention_days: int | None = None,
    ) -> None:
        self._store = store
        self._key = key
        self._changed = changed
        self._poll = poll_seconds
        self._retention_days = retention_days
        self._removed = -math.inf
        self._wake = threading.Event()
        self._ending = False
        self._running: dict[Lane, _Running] = {}
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def start(self) -> None:
        """Begin; what was running when the only server of a database ended is queued again."""
        if self._store.sqlite:
            with self._store.write() as session:
                session.execute(update(JobRow).filter_by(state="running").values(lease=None))
        self._thread.start()

    def stop(self) -> None:
        """End the workers; their jobs are run again, by another server or after the next start."""
        self._ending = True
        self._wake.set()
        self._thread.join()
        for running in self._running.values():
            running.process.kill()
            running.process.wait()
            _close_pipe(running.process)
            try:
                self._lease(running, timedelta(0))
            except SQLAlchemyError:
                # It runs out by itself.
                continue

    def wake(self) -> None:
        """Look now, and not only at the next turn."""
        self._wake.set()

    @property
    def workers(self) -> dict[Lane, int]:
        """The processes that work now, by what they solve."""
        return {lane: running.process.pid for lane, running in self._running.items()}

    def _run(self) -> None:
        while not self._ending:
            try:
                self.turn()
            except SQLAlchemyError as error:
                _log.error("jobs could not be looked at: %s", type(error).__name__)
            self._wake.wait(self._poll)
            self._wake.clear()

    def turn(self) -> None:
        """Look once at everything: what is due, what has ended, what can be started."""
        self._catch_up()
        if time.monotonic() - self._removed > REMOVE_EVERY_S:
            self._removed = time.monotonic()
            self._remove_old()
        for lane in LANES:
            running = self._running.get(lane)
            if running is not None:
                self._look_after(lane, running)
            if lane not in self._running:
                self._start_next(lane)

    def _catch_up(self) -> None:
        """Close rounds whose time is over, and queue again what a server ran that is gone."""
        with self._store.read() as session:
            if not (due_rounds(session) or _lost_jobs(session)):
                return
        with self._store.write() as session:
            for due in due_rounds(session):
                close_round(session, due)
            for row in _lost_jobs(session):
                row.state, row.progress = ("cancelled" if row.cancel else "queued"), Progress()

    def _remove_old(self) -> None:
        try:
            removed = remove_old(self._store, self._retention_days)
        except RuntimeError as error:
            _log.error("old reports were not deleted: %s", error)
            return
        if removed:
            _log.info("%d reports were deleted for their age", removed)

    def _start_next(self, lane: Lane) -> None:
        queued = select(JobRow.id).filter_by(state="queued", kind=lane)
        following = queued.order_by(JobRow.seq).limit(1)
        with self._store.read() as session:
            if session.scalar(following) is None:
                return
        with self._store.write() as session:
            job = session.scalar(following)
            if job is None:
                return
            row = session.get_one(JobRow, job)
            row.state, row.progress = "running", Progress()
            row.attempt, row.lease = row.attempt + 1, now() + LEASE
        self._running[lane] = _Running(job, row.attempt, self._launch(job, row.attempt))

    def _launch(self, job: str, attempt: int) -> subprocess.Popen[bytes]:
        order = {
            "database": self._store.address,
            "key": str(self._key),
            "job": job,
            "attempt": attempt,
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "panda_mdp.protocol.server.worker"],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        if process.stdin is not None:
            # The pipe stays open: when it closes, however that comes, the worker ends.
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()
        return process

    def _look_after(self, lane: Lane, running: _Running) -> None:
        if running.process.poll() is None:
            if not self._still_ours(running):
                # What a worker has not committed is as if it never was.
                running.process.kill()
            return
        _close_pipe(running.process)
        del self._running[lane]
        self._conclude(running)
        self._changed()

    def _still_ours(self, running: _Running) -> bool:
        """Keep the lease of a job; False where it is cancelled or not this server's any more."""
        with self._store.read() as session:
            row = running_job(session, running.job, running.attempt)
            if row is None or row.cancel:
                return False
        if time.monotonic() - running.renewed < LEASE.total_seconds() / 3:
            return True
        running.renewed = time.monotonic()
        return self._lease(running, LEASE)

    def _lease(self, running: _Running, length: timedelta) -> bool:
        with self._store.write() as session:
            row = running_job(session, running.job, running.attempt)
            if row is not None:
                row.lease = now() + length
        return row is not None

    def _conclude(self, running: _Running) -> None:
        """Say how a run ended that did not say so itself."""
        code = running.process.returncode
        with self._store.write() as session:
            row = running_job(session, running.job, running.attempt)
            if row is None:
                return
            if row.cancel:
                row.state = "cancelled"
            elif code == AGAIN:
                row.lease = None
            else:
                error = f"the worker process ended with code {code}, perhaps for lack of memory"
                end_job(session, row.id, row.attempt, "failed", error=error)
                fail_round(session, row, error)
                _log.error("a %s job failed: the worker ended with code %s", row.kind, code)


def _lost_jobs(session: Session) -> list[JobRow]:
    lost = (JobRow.lease < now()) | JobRow.lease.is_(None)
    return list(session.scalars(select(JobRow).filter_by(state="running").where(lost)))


def _close_pipe(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
