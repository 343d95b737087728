"""Solves, one at a time in each lane, each in a process of its own; and rounds closed in time.

Tables and rounds have a lane each, so that a long solve holds up no round. Where several servers
share a database, each leases the job that it runs and renews the lease; a lease that has run out is
of a server that is gone, and its job is queued again. A worker that lives on regardless publishes
nothing: its run is not the job's any more.
"""

from __future__ import annotations

import logging
import math
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Literal

import numpy as np
from sqlalchemy import select, update
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from panda_mdp.errors import FileFormatError, PandaError
from panda_mdp.loss import distance_loss
from panda_mdp.methods.certify import Progress as SolverProgress
from panda_mdp.methods.optimal.optimal import optimal
from panda_mdp.problem import Problem
from panda_mdp.protocol.messages.catalogue import JobRequest, Progress, TableRef
from panda_mdp.protocol.messages.deployments import PlanInfo
from panda_mdp.protocol.messages.signing import SigningKey
from panda_mdp.protocol.server.failures import Failure, stack_of
from panda_mdp.protocol.server.solving import follow_parent, solve_round
from panda_mdp.protocol.server.store.catalogue import (
    GivenUpError,
    compacted,
    domain_of,
    domain_parts,
    domain_row,
    end_job,
    pack,
    running_job,
    store_table,
)
from panda_mdp.protocol.server.store.database import Store, latest
from panda_mdp.protocol.server.store.deployments import anchors_request
from panda_mdp.protocol.server.store.reports import remove_old
from panda_mdp.protocol.server.store.rounds import (
    anchors_of,
    close_round,
    find_round,
    solution_of,
    uploads_of,
)
from panda_mdp.protocol.server.store.schema import DeploymentRow, JobRow, RoundRow, now

_log = logging.getLogger("panda_mdp.server")
Lane = Literal["table", "round"]
LANES: tuple[Lane, ...] = ("table", "round")
LEASE = timedelta(seconds=6)
REMOVE_EVERY_S = 600.0
AGAIN = 75
"""The exit code of a worker that asks for another run: its database was gone (`EX_TEMPFAIL`)."""
PROGRESS_EVERY_S = 0.5
SOLVER_LIMIT_S = 86_400.0


@dataclass
class _Running:
    job: str
    attempt: int
    process: BaseProcess


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
            running.process.join()
            # Where the database is gone, the lease runs out by itself.
            with suppress(SQLAlchemyError):
                self._conclude(running, AGAIN)

    def wake(self) -> None:
        """Look now, and not only at the next turn."""
        self._wake.set()

    def _run(self) -> None:
        # Ctrl-C is the server's: workers inherit that they do not see it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
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
            if lane in self._running:
                self._look_after(lane)
            if lane not in self._running:
                self._start_next(lane)

    def _catch_up(self) -> None:
        """Close rounds whose time is over, and queue again what a server ran that is gone."""
        with self._store.read() as session:
            if not any(_due(session)):
                return
        with self._store.write() as session:
            rounds, lost = _due(session)
            for due in rounds:
                close_round(session, due)
            for row in lost:
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
        queued = select(JobRow).filter_by(state="queued", kind=lane).order_by(JobRow.seq).limit(1)
        with self._store.read() as session:
            if session.scalar(queued) is None:
                return
        with self._store.write() as session:
            row = session.scalar(queued)
            if row is None:
                return
            row.state, row.progress = "running", Progress()
            row.attempt, row.lease = row.attempt + 1, now() + LEASE
        order = (self._store.address, self._key, row.id, row.attempt)
        # Not forked: a fork of a process with threads may hang.
        process = get_context("spawn").Process(target=work, args=order, daemon=True)
        process.start()
        self._running[lane] = _Running(row.id, row.attempt, process)

    def _look_after(self, lane: Lane) -> None:
        running = self._running[lane]
        if running.process.is_alive():
            if not self._still_ours(running):
                # What a worker has not committed is as if it never was.
                running.process.kill()
            return
        del self._running[lane]
        self._conclude(running, running.process.exitcode)
        self._changed()

    def _still_ours(self, running: _Running) -> bool:
        """Keep the lease of a job; False where it is cancelled or not this server's any more."""
        with self._store.read() as session:
            row = running_job(session, running.job, running.attempt)
        if row is None or row.cancel:
            return False
        if row.lease is None or row.lease - now() < 2 * LEASE / 3:
            with self._store.write() as session:
                row = running_job(session, running.job, running.attempt)
                if row is not None:
                    row.lease = now() + LEASE
        return row is not None

    def _conclude(self, running: _Running, code: int | None) -> None:
        """Say how a run ended that did not say so itself."""
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
                _log.error("a %s job failed: the worker ended with code %s", row.kind, code)


def _due(session: Session) -> tuple[list[RoundRow], list[JobRow]]:
    """Rounds whose time is over, and jobs of servers that are gone."""
    rounds = select(RoundRow).filter_by(state="open").where(RoundRow.closes_at <= now())
    expired = (JobRow.lease < now()) | JobRow.lease.is_(None)
    jobs = select(JobRow).filter_by(state="running").where(expired)
    return list(session.scalars(rounds)), list(session.scalars(jobs))


# In the worker's process


def work(database: str, key: Path, job: str, attempt: int) -> None:
    """One run of a job."""
    follow_parent()
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s"
    )
    try:
        with Store.open(database) as store, suppress(GivenUpError):
            Work(store, key, job, attempt).run()
    except (OperationalError, InterfaceError, FileFormatError):
        # The database ended or cannot be reached; another run will do.
        sys.exit(AGAIN)


@dataclass
class Work:
    """A run of a job."""

    store: Store
    key: Path
    job: str
    attempt: int
    _written: float = field(default=-math.inf, init=False)
    _latest: Progress = field(default_factory=Progress, init=False)

    def run(self) -> None:
        """Do the job, and say how it ended."""
        with self.store.read() as session:
            row = session.get_one(JobRow, self.job)
        try:
            if row.request is not None:
                self._table(row.request)
            elif row.deployment is not None and row.round is not None:
                self._round(row.deployment, row.round)
            return
        except (GivenUpError, OperationalError, InterfaceError):
            raise
        except (PandaError, Failure) as error:
            # Both are written for people, about public inputs.
            reason = error.message if isinstance(error, Failure) else str(error)
        except Exception as error:
            _log.error("a job failed with %s\n%s", type(error).__name__, stack_of(error))
            reason = f"the solve ended with {type(error).__name__}; see the server's log"
        with self.store.write() as session:
            end_job(session, self.job, self.attempt, "failed", error=reason)
        _log.warning("a %s job failed", row.kind)

    def _table(self, request: JobRequest) -> None:
        with self.store.read() as session:
            streets = domain_row(session, request.domain).id
            domain = domain_of(domain_parts(session, request.domain))
        losses = distance_loss(domain, request.outputs)
        prior = None if request.prior is None else np.asarray(request.prior, dtype=np.float64)
        mechanism = optimal(
            Problem(domain, np.array(request.outputs), losses, request.epsilon, prior=prior),
            request.gap,
            time_limit=request.time_limit or SOLVER_LIMIT_S,
            progress=self._progress,
        )
        ended = {
            "loss": mechanism.loss,
            "lower_bound": mechanism.lower_bound,
            "gap": None if mechanism.gap is None else _finite(mechanism.gap),
            "seconds": mechanism.seconds,
        }
        self._show(self._latest.model_copy(update=ended))
        candidate, key = compacted(mechanism), SigningKey.load(self.key)
        with self.store.write() as session:
            info = store_table(session, key, request.table, candidate, streets)
            result = TableRef(name=info.name, version=info.version)
            # Raises inside the transaction where another run has the job: the table goes with it.
            end_job(session, self.job, self.attempt, "done", result=result)

    def _round(self, deployment: int, number: int) -> None:
        with self.store.read() as session:
            request = anchors_request(session.get_one(DeploymentRow, deployment))
            domain = domain_of(domain_parts(session, request.domain))
            sets = [anchors_of(row) for row in uploads_of(session, deployment, number)]
            in_force = {"deployment": deployment, "state": "solved"}
            before = latest(session, RoundRow, RoundRow.number, **in_force)
            previous = None if before is None else solution_of(before)
        solved = solve_round(request, domain, sets, previous)
        with self.store.write() as session:
            row = find_round(session, deployment, number)
            row.state, row.plan = "solved", PlanInfo(**solved.plan)
            row.solution = pack(asdict(solved.solution))
            uploads = uploads_of(session, deployment, number)
            for upload, admitted in zip(uploads, solved.admitted, strict=True):
                upload.state = "served" if admitted else "filtered"
            self.store.count_change(session, "deployment_changes")
            end_job(session, self.job, self.attempt, "done")

    def _progress(self, now: SolverProgress) -> None:
        self._latest = Progress(
            iterations=now.iterations,
            loss=_finite(now.loss),
            lower_bound=_finite(now.lower_bound),
            gap=_finite(now.gap),
            seconds=now.seconds,
        )
        if time.monotonic() - self._written >= PROGRESS_EVERY_S:
            self._show(self._latest)

    def _show(self, shown: Progress) -> None:
        self._written = time.monotonic()
        with self.store.write() as session:
            row = running_job(session, self.job, self.attempt)
            if row is None or row.cancel:
                raise GivenUpError
            row.progress = shown


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
