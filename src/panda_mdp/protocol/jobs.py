"""Solves: queued in the store, run one at a time in a process of their own.

    queued -> running -> done | failed | cancelled
       ^---------'  the server ended meanwhile: run again after its restart

Tables and rounds have a lane each, so that a long solve holds up no round. Every run of a job has a
number (`attempt`); a worker that was given up cannot publish, because its number is no longer the
job's.
"""

from __future__ import annotations

import hashlib
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Connection, Row, func, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from panda_mdp.protocol.failures import Failure
from panda_mdp.protocol.messages import JobInfo, JobRequest, Progress, TableRef
from panda_mdp.protocol.schema import jobs, rounds, when
from panda_mdp.protocol.store import Store, now_ms

_log = logging.getLogger("panda_mdp.server")
Lane = Literal["table", "round"]
LANES: tuple[Lane, ...] = ("table", "round")
PATIENCE_S = 3.0
"""After this a worker that was asked to end is made to."""
LONGEST = 1_900


def queue_job(connection: Connection, job_id: str, kind: Lane, request: bytes) -> bool:
    """Queue a job; False where the same one is there already."""
    digest = hashlib.sha256(request).hexdigest()
    before = connection.execute(select(jobs.c.digest).where(jobs.c.id == job_id)).scalar()
    if before is not None:
        if before == digest:
            return False
        raise Failure("conflict", "another job has this id", "make a new id for each job")
    latest = connection.execute(select(func.max(jobs.c.seq))).scalar()
    connection.execute(
        insert(jobs).values(
            id=job_id,
            seq=1 if latest is None else int(latest) + 1,
            kind=kind,
            request=request,
            digest=digest,
            state="queued",
            attempt=0,
            cancel=False,
            created=now_ms(),
        )
    )
    return True


def find_job(connection: Connection, job_id: str) -> Row[Any]:
    """A job of an operator."""
    row = connection.execute(
        select(jobs).where(jobs.c.id == job_id, jobs.c.kind == "table")
    ).first()
    if row is None:
        raise Failure("not_found", "there is no job of this id", "GET /v1/jobs lists them")
    return row


def job_info(row: Row[Any]) -> JobInfo:
    """What is said about a job."""
    request = JobRequest.model_validate_json(row.request)
    return JobInfo(
        id=row.id,
        state=row.state,
        table=None if row.result is None else TableRef.model_validate_json(row.result),
        name=request.table,
        domain=request.domain,
        epsilon=request.epsilon,
        progress=Progress() if row.progress is None else Progress.model_validate_json(row.progress),
        error=row.error,
        created=when(row.created),
    )


def all_jobs(connection: Connection) -> list[JobInfo]:
    """The operator's jobs, the oldest first."""
    rows = connection.execute(select(jobs).where(jobs.c.kind == "table").order_by(jobs.c.seq))
    return [job_info(row) for row in rows]


def cancel_job(connection: Connection, job_id: str) -> None:
    """Cancel a job; one that runs is ended by the supervisor. One that has ended stays as it is."""
    row = find_job(connection, job_id)
    values: dict[str, Any] = {"cancel": True}
    if row.state == "queued":
        values["state"] = "cancelled"
    if row.state in ("queued", "running"):
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(**values))


def end_job(
    connection: Connection,
    job_id: str,
    attempt: int,
    state: str,
    *,
    result: str | None = None,
    error: str | None = None,
) -> bool:
    """Say how a run of a job ended; False where it is no longer this run's to say."""
    changed = connection.execute(
        update(jobs)
        .where(jobs.c.id == job_id, jobs.c.attempt == attempt, jobs.c.state == "running")
        .values(state=state, result=result, error=None if error is None else error[:LONGEST])
    ).rowcount
    return bool(changed)


def close_round(connection: Connection, deployment: int, number: int) -> bool:
    """Take no more uploads and solve; False where the round is not open."""
    changed = connection.execute(
        update(rounds)
        .where(
            rounds.c.deployment == deployment,
            rounds.c.number == number,
            rounds.c.state == "open",
        )
        .values(state="solving")
    ).rowcount
    if changed:
        request = json.dumps({"deployment": deployment, "round": number}).encode()
        queue_job(connection, f"round-{deployment}-{number}", "round", request)
    return bool(changed)


def fail_round(connection: Connection, request: bytes, error: str) -> None:
    """A round that has no table; its users may take part in the next one."""
    wanted = json.loads(request)
    connection.execute(
        update(rounds)
        .where(
            rounds.c.deployment == wanted["deployment"],
            rounds.c.number == wanted["round"],
            rounds.c.state == "solving",
        )
        .values(state="failed", error=error[:LONGEST])
    )


@dataclass
class _Running:
    job: str
    attempt: int
    process: subprocess.Popen[bytes]
    asked_to_end: float | None = None


class Supervisor:
    """A thread that starts jobs, ends those that were cancelled, and closes rounds in time."""

    def __init__(
        self, store: Store, key: Path, changed: Callable[[], None], poll_seconds: float
    ) -> None:
        self._store = store
        self._key = key
        self._changed = changed
        self._poll = poll_seconds
        self._wake = threading.Event()
        self._ending = False
        self._running: dict[Lane, _Running] = {}
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def start(self) -> None:
        """Queue again what was running when the last server ended, and begin."""
        with self._store.write() as connection:
            connection.execute(
                update(jobs)
                .where(jobs.c.state == "running", jobs.c.cancel.is_(False))
                .values(state="queued", progress=None)
            )
            connection.execute(
                update(jobs).where(jobs.c.state == "running").values(state="cancelled")
            )
        self._thread.start()

    def stop(self) -> None:
        """End the workers; their jobs are run again after the next start."""
        self._ending = True
        self._wake.set()
        self._thread.join()
        for running in self._running.values():
            _end(running.process)

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
        for lane in LANES:
            running = self._running.get(lane)
            if running is not None:
                self._look_after(lane, running)
            if lane not in self._running:
                self._start_next(lane)

    def _close_rounds(self) -> None:
        due = (rounds.c.state == "open") & (rounds.c.closes_at <= now_ms())
        with self._store.read() as connection:
            rows = connection.execute(select(rounds.c.deployment, rounds.c.number).where(due)).all()
        for row in rows:
            with self._store.write() as connection:
                close_round(connection, row.deployment, row.number)

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
                .values(state="running", attempt=attempt, progress=None)
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
            [sys.executable, "-m", "panda_mdp.protocol.worker"],
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
            if cancelled:
                running.asked_to_end = time.monotonic()
                running.process.terminate()
        elif not ended and time.monotonic() - (running.asked_to_end or 0) > PATIENCE_S:
            running.process.kill()
        if not ended:
            return
        _close_pipe(running.process)
        del self._running[lane]
        self._bury(running)
        self._changed()

    def _bury(self, running: _Running) -> None:
        """Say how a run ended that did not say so itself."""
        with self._store.write() as connection:
            row = connection.execute(select(jobs).where(jobs.c.id == running.job)).one()
            if row.state != "running" or row.attempt != running.attempt:
                return
            if row.cancel:
                end_job(connection, row.id, row.attempt, "cancelled")
                return
            code = running.process.returncode
            error = f"the worker process ended with code {code}, perhaps for lack of memory"
            end_job(connection, row.id, row.attempt, "failed", error=error)
            if row.kind == "round":
                fail_round(connection, row.request, error)
            _log.error("a %s job failed: the worker ended with code %s", row.kind, code)


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
