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
from pathlib import Path

from sqlalchemy import Update, func, select, update
from sqlalchemy.exc import SQLAlchemyError

from panda_mdp.protocol.server.settings import Settings
from panda_mdp.protocol.server.store.database import Store, now_ms
from panda_mdp.protocol.server.store.jobs import LANES, Lane, close_round, end_job, fail_round
from panda_mdp.protocol.server.store.retention import remove_old
from panda_mdp.protocol.server.store.schema import jobs, rounds

_log = logging.getLogger("panda_mdp.server")
PATIENCE_S = 3.0
"""After this a worker that was asked to end is made to."""
LEASE_MS = 6_000
REMOVE_EVERY_S = 600.0
AGAIN = 75
"""The exit code of a worker that asks for another run: its database was gone (`EX_TEMPFAIL`)."""


@dataclass
class _Running:
    job: str
    attempt: int
    process: subprocess.Popen[bytes]
    asked_to_end: float | None = None
    renewed: float = field(default_factory=time.monotonic)


class Supervisor:
    """A thread that starts jobs, ends those that were cancelled, and closes rounds in time."""

    def __init__(
        self, store: Store, key: Path, changed: Callable[[], None], settings: Settings
    ) -> None:
        self._store = store
        self._key = key
        self._changed = changed
        self._poll = settings.poll_seconds
        self._retention_days = settings.retention_days
        self._removed = -math.inf
        self._wake = threading.Event()
        self._ending = False
        self._running: dict[Lane, _Running] = {}
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def start(self) -> None:
        """Begin; what was running when the only server of a database ended is queued again."""
        if self._store.sqlite:
            with self._store.write() as connection:
                connection.execute(update(jobs).where(jobs.c.state == "running").values(lease=0))
        self._thread.start()

    def stop(self) -> None:
        """End the workers; their jobs are run again, by another server or after the next start."""
        self._ending = True
        self._wake.set()
        self._thread.join()
        for running in self._running.values():
            _end(running.process)
            try:
                with self._store.write() as connection:
                    connection.execute(_mine(running).values(lease=0))
            except SQLAlchemyError:
                # It runs out by itself.
                continue

    def wake(self) -> None:
        """Look now, and not only at the next turn."""
        self._wake.set()

    def _run(self) -> None:
        while not self._ending:
            try:
                self._turn()
            except SQLAlchemyError as error:
                _log.error("jobs could not be looked at: %s", type(error).__name__)
            self._wake.wait(self._poll)
            self._wake.clear()

    def _turn(self) -> None:
        self._close_rounds()
        self._take_back()
        if time.monotonic() - self._removed > REMOVE_EVERY_S:
            self._removed = time.monotonic()
            self._remove_old()
        for lane in LANES:
            running = self._running.get(lane)
            if running is not None:
                self._look_after(lane, running)
            if lane not in self._running:
                self._start_next(lane)

    def _remove_old(self) -> None:
        try:
            removed = remove_old(self._store, self._retention_days)
        except RuntimeError as error:
            _log.error("old reports were not deleted: %s", error)
            return
        if removed:
            _log.info("%d reports were deleted for their age", removed)

    def _close_rounds(self) -> None:
        due = (rounds.c.state == "open") & (rounds.c.closes_at <= now_ms())
        with self._store.read() as connection:
            rows = connection.execute(select(rounds.c.deployment, rounds.c.number).where(due)).all()
        for row in rows:
            with self._store.write() as connection:
                close_round(connection, row.deployment, row.number)

    def _take_back(self) -> None:
        """Queue again what a server ran that is gone."""
        gone = (jobs.c.state == "running") & (func.coalesce(jobs.c.lease, 0) < now_ms())
        with self._store.read() as connection:
            rows = connection.execute(select(jobs.c.id).where(gone)).all()
        if not rows:
            return
        with self._store.write() as connection:
            connection.execute(
                update(jobs)
                .where(gone, jobs.c.cancel.is_(False))
                .values(state="queued", progress=None)
            )
            connection.execute(update(jobs).where(gone).values(state="cancelled"))

    def _start_next(self, lane: Lane) -> None:
        with self._store.read() as connection:
            row = connection.execute(
                select(jobs.c.id, jobs.c.attempt)
                .where(jobs.c.state == "queued", jobs.c.kind == lane)
                .order_by(jobs.c.seq)
                .limit(1)
            ).first()
        if row is None:
            return
        attempt = int(row.attempt) + 1
        with self._store.write() as connection:
            changed = connection.execute(
                update(jobs)
                .where(jobs.c.id == row.id, jobs.c.state == "queued")
                .values(state="running", attempt=attempt, progress=None, lease=now_ms() + LEASE_MS)
            ).rowcount
        if changed:
            self._running[lane] = _Running(row.id, attempt, self._launch(row.id, attempt))

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
        ended = running.process.poll() is not None
        if not ended and running.asked_to_end is None:
            with self._store.read() as connection:
                cancelled = connection.execute(
                    select(jobs.c.cancel).where(jobs.c.id == running.job)
                ).scalar()
            if cancelled or not self._renew(running):
                running.asked_to_end = time.monotonic()
                running.process.terminate()
        elif not ended and time.monotonic() - (running.asked_to_end or 0) > PATIENCE_S:
            running.process.kill()
        if not ended:
            return
        _close_pipe(running.process)
        del self._running[lane]
        self._conclude(running)
        self._changed()

    def _renew(self, running: _Running) -> bool:
        """Keep the lease of a job; False where the job is not this server's any more."""
        if time.monotonic() - running.renewed < LEASE_MS / 3_000:
            return True
        with self._store.write() as connection:
            mine = connection.execute(_mine(running).values(lease=now_ms() + LEASE_MS)).rowcount
        running.renewed = time.monotonic()
        return bool(mine)

    def _conclude(self, running: _Running) -> None:
        """Say how a run ended that did not say so itself."""
        with self._store.write() as connection:
            row = connection.execute(select(jobs).where(jobs.c.id == running.job)).one()
            if row.state != "running" or row.attempt != running.attempt:
                return
            if row.cancel:
                end_job(connection, row.id, row.attempt, "cancelled")
                return
            code = running.process.returncode
            if code == AGAIN:
                connection.execute(_mine(running).values(lease=0))
                return
            error = f"the worker process ended with code {code}, perhaps for lack of memory"
            end_job(connection, row.id, row.attempt, "failed", error=error)
            if row.kind == "round":
                fail_round(connection, row.request, error)
            _log.error("a %s job failed: the worker ended with code %s", row.kind, code)


def _mine(running: _Running) -> Update:
    return update(jobs).where(
        jobs.c.id == running.job,
        jobs.c.attempt == running.attempt,
        jobs.c.state == "running",
    )


def _close_pipe(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    _close_pipe(process)
