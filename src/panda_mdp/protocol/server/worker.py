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
from typing import Any

import numpy as np
from sqlalchemy import Row, select, update
from sqlalchemy.exc import InterfaceError, OperationalError

from panda_mdp.errors import FileFormatError, PandaError
from panda_mdp.methods.optimal.optimal import optimal
from panda_mdp.methods.optimal.progress import Progress as SolverProgress
from panda_mdp.problem import Problem
from panda_mdp.protocol.messages.catalogue import JobRequest, Progress
from panda_mdp.protocol.messages.signing import SigningKey
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.gate import stack_of
from panda_mdp.protocol.server.pool import NICENESS
from panda_mdp.protocol.server.solving import loss_table, solve_round
from panda_mdp.protocol.server.store.catalogue import (
    Candidate,
    domain_of,
    domain_row,
    plain,
    store_table,
    table_facts,
)
from panda_mdp.protocol.server.store.database import Store
from panda_mdp.protocol.server.store.jobs import end_job, fail_round
from panda_mdp.protocol.server.store.rounds import store_solution, task_of_round
from panda_mdp.protocol.server.store.schema import jobs
from panda_mdp.protocol.server.supervisor import AGAIN
from panda_mdp.table.pmdc.archive import decode as decode_compact
from panda_mdp.table.pmdc.archive import encode as encode_compact

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
        with self.store.read() as connection:
            row = connection.execute(select(jobs).where(jobs.c.id == self.job)).one()
        try:
            if row.kind == "round":
                self._round(row)
            else:
                self._table(row)
        except GivenUpError:
            return
        except GONE:
            raise
        except (PandaError, Failure) as error:
            # Both are written for people, about public inputs.
            self._fail(row, error.message if isinstance(error, Failure) else str(error))
        except Exception as error:
            _log.error("a job failed with %s\n%s", type(error).__name__, stack_of(error))
            self._fail(row, f"the solve ended with {type(error).__name__}; see the server's log")

    def _table(self, row: Row[Any]) -> None:
        request = JobRequest.model_validate_json(row.request)
        with self.store.read() as connection:
            stored = domain_row(connection, request.domain)
        domain = domain_of(stored)
        losses = loss_table(domain, request.outputs, request.loss)
        problem = Problem(
            domain, np.array(request.outputs), losses, request.epsilon, prior=_prior(request)
        )
        mechanism = optimal(
            problem,
            request.gap,
            time_limit=request.time_limit or SOLVER_LIMIT_S,
            progress=self._progress,
        )
        bound = mechanism.lower_bound
        self._show(
            self._latest.model_copy(
                update={
                    "loss": mechanism.loss,
                    "lower_bound": bound,
                    "gap": None if mechanism.gap is None else _finite(mechanism.gap),
                    "seconds": mechanism.seconds,
                }
            )
        )
        data = encode_compact(mechanism)
        candidate = Candidate(table_facts(decode_compact(data)), data)
        key = SigningKey.load(self.key)
        with self.store.write() as connection:
            info = store_table(connection, key, request.table, candidate, str(stored.id))
            result = plain({"name": info.name, "version": info.version})
            if not end_job(connection, self.job, self.attempt, "done", result=result):
                # Raised inside the transaction, so that the table goes with it.
                raise GivenUpError

    def _round(self, row: Row[Any]) -> None:
        wanted = json.loads(row.request)
        with self.store.read() as connection:
            work = task_of_round(connection, wanted["deployment"], wanted["round"])
        solved = solve_round(work.task, work.sets, work.previous)
        with self.store.write() as connection:
            store_solution(connection, wanted["deployment"], wanted["round"], work, solved)
            self.store.count_change(connection, "deployment_changes")
            if not end_job(connection, self.job, self.attempt, "done"):
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
        with self.store.write() as connection:
            changed = connection.execute(
                update(jobs)
                .where(jobs.c.id == self.job, jobs.c.attempt == self.attempt)
                .where(jobs.c.state == "running", jobs.c.cancel.is_(False))
                .values(progress=shown.model_dump_json())
            ).rowcount
        if not changed:
            raise GivenUpError

    def _fail(self, row: Row[Any], error: str) -> None:
        with self.store.write() as connection:
            if end_job(connection, self.job, self.attempt, "failed", error=error):
                if row.kind == "round":
                    fail_round(connection, row.request, error)
                _log.warning("a %s job failed", row.kind)


def _prior(request: JobRequest) -> Any:
    return None if request.prior is None else np.asarray(request.prior, dtype=np.float64)


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
