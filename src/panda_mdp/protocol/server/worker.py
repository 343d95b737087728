"""One job in a process of its own, started by the server: `-m panda_mdp.protocol.server.worker`.

The order comes on standard input, one line of JSON, because a database's address may hold a
password and arguments can be seen by others. The pipe stays open; when it closes, the server is
gone, and so is the worker.
"""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from sqlalchemy.exc import InterfaceError, OperationalError

from panda_mdp.errors import FileFormatError, PandaError
from panda_mdp.methods.certify import Progress as SolverProgress
from panda_mdp.methods.optimal.optimal import optimal
from panda_mdp.problem import Problem
from panda_mdp.protocol.messages.catalogue import JobRequest, Progress, TableRef
from panda_mdp.protocol.messages.signing import SigningKey
from panda_mdp.protocol.server.failures import Failure, stack_of
from panda_mdp.protocol.server.solving import NICENESS, loss_table, solve_round
from panda_mdp.protocol.server.store.catalogue import (
    compacted,
    domain_of,
    domain_parts,
    domain_row,
    end_job,
    running_job,
    store_table,
)
from panda_mdp.protocol.server.store.database import Store
from panda_mdp.protocol.server.store.rounds import fail_round, store_solution, task_of_round
from panda_mdp.protocol.server.store.schema import JobRow
from panda_mdp.protocol.server.supervisor import AGAIN

_log = logging.getLogger("panda_mdp.server")
EVERY_S = 0.5
"""Progress is written no more often than this."""
SOLVER_LIMIT_S = 86_400.0


GONE = (OperationalError, InterfaceError)
"""The database ended or cannot be reached; another run will do."""


class GivenUpError(Exception):
    """The job is no longer this worker's."""


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
        except GivenUpError:
            return
        except GONE:
            raise
        except (PandaError, Failure) as error:
            # Both are written for people, about public inputs.
            self._fail(error.message if isinstance(error, Failure) else str(error))
        except Exception as error:
            _log.error("a job failed with %s\n%s", type(error).__name__, stack_of(error))
            self._fail(f"the solve ended with {type(error).__name__}; see the server's log")

    def _table(self, request: JobRequest) -> None:
        with self.store.read() as session:
            stored = domain_row(session, request.domain)
            domain = domain_of(domain_parts(stored))
        losses = loss_table(domain, request.outputs, request.loss)
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
        candidate = compacted(mechanism)
        key = SigningKey.load(self.key)
        with self.store.write() as session:
            info = store_table(session, key, request.table, candidate, stored.id)
            result = TableRef(name=info.name, version=info.version)
            if not end_job(session, self.job, self.attempt, "done", result=result):
                # Raised inside the transaction, so that the table goes with it.
                raise GivenUpError

    def _round(self, deployment: int, number: int) -> None:
        with self.store.read() as session:
            work = task_of_round(session, deployment, number)
        solved = solve_round(work.task, work.sets, work.previous)
        with self.store.write() as session:
            store_solution(session, deployment, number, solved)
            self.store.count_change(session, "deployment_changes")
            if not end_job(session, self.job, self.attempt, "done"):
                raise GivenUpError

    def _progress(self, now: SolverProgress) -> None:
        self._latest = Progress(
            iterations=now.iterations,
            loss=_finite(now.loss),
            lower_bound=_finite(now.lower_bound),
            gap=_finite(now.gap),
            seconds=now.seconds,
        )
        if time.monotonic() - self._written >= EVERY_S:
            self._show(self._latest)

    def _show(self, shown: Progress) -> None:
        self._written = time.monotonic()
        with self.store.write() as session:
            row = running_job(session, self.job, self.attempt)
            if row is None or row.cancel:
                raise GivenUpError
            row.progress = shown

    def _fail(self, error: str) -> None:
        with self.store.write() as session:
            row = end_job(session, self.job, self.attempt, "failed", error=error)
            if row is not None:
                fail_round(session, row, error)
                _log.warning("a %s job failed", row.kind)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _end_with_server() -> None:
    """Wait for the pipe to close, then end whatever goes on: nobody would take the result."""
    sys.stdin.buffer.read()
    os._exit(1)


def main() -> None:
    """Take an order from standard input and carry it out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s"
    )
    order = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_server, daemon=True).start()
    try:
        with Store.open(order["database"]) as store:
            Work(store, Path(order["key"]), order["job"], order["attempt"]).run()
    except (*GONE, FileFormatError):
        os._exit(AGAIN)
    # The watching thread sits in a read that nothing ends; leave without waiting for it.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
