"""Runs cells one after the other under a time limit, saves each at once, and resumes.

All cells of a run go through one worker process that keeps the draw at hand, so methods of one draw
share it. A cell that exceeds its limit is stopped by ending the worker, whatever the solver does,
and a new worker goes on. Ctrl-C ends the worker too; what was done is saved already.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from panda_mdp.errors import PandaError
from panda_paper.draws import Study, Workspace
from panda_paper.specs import SLOW, Cell, Setting, function
from panda_paper.store import Outcome, Row, Store

TIME_LIMIT = 1800.0
"""Seconds after which the paper calls a cell unsolved."""
GRACE = 10.0
"""What a cell that watches the clock itself may take beyond its limit to certify what it has."""
WARM = Setting(records=300, outputs=20, users=5)
"""A draw on which compiled kernels are loaded before anything is timed: large enough that they are
used at all."""
TINY = Setting(records=24, outputs=4, users=2)
"""The same for methods that would take long."""
WARM_LIMIT = 10.0
MEMORY_SHARE = 0.7
"""Of the machine's memory, for the process that runs cells."""


@dataclass(frozen=True)
class Progressed:
    """How far a run is."""

    done: int
    total: int
    cell: Cell


def run_cells(
    cells: Sequence[Cell],
    study: Study,
    store: Store,
    *,
    limit: float | None = TIME_LIMIT,
    isolate: bool = True,
    fresh: bool = False,
    progress: Callable[[Progressed], None] | None = None,
) -> list[Row]:
    """The rows of all cells, from the store where they are known, run otherwise.

    A result is known where its cell is done or infeasible, or ran into a limit at least as long;
    `fresh` runs everything again. `isolate=False` runs in this process, where a limit is only
    kept by cells that watch the clock.
    """
    unique = list(dict.fromkeys(cells))
    rows: dict[Cell, Row] = {}
    worker: Worker | Inline = Worker(study) if isolate else Inline(study)
    with contextlib.closing(worker):
        for done, cell in enumerate(unique):
            if progress is not None:
                progress(Progressed(done, len(unique), cell))
            known = None if fresh else store.get(cell)
            if known is not None and settled(known, limit):
                rows[cell] = known
            else:
                rows[cell] = store.add(cell, worker.run(cell, limit), limit)
    return [rows[cell] for cell in unique]


def settled(row: Row, limit: float | None) -> bool:
    """Whether running the cell again could not tell more."""
    if row.status == "time limit":
        return row.limit is not None and limit is not None and row.limit >= limit
    return row.status in ("done", "infeasible", "out of memory")


def execute(cell: Cell, work: Workspace) -> Outcome:
    """Run a cell here; what goes wrong on purpose is an answer, anything else a failure."""
    start = time.perf_counter()
    try:
        outcome: Outcome = function(cell.kind)(cell, work)
    except PandaError as error:
        stages = (("until it was refused", time.perf_counter() - start),)
        return Outcome({}, stages, "infeasible", " ".join(str(error).split()))
    except MemoryError:
        stages = (("until memory ran out", time.perf_counter() - start),)
        return Outcome({}, stages, "out of memory", "needs more memory than there is")
    except Exception as error:  # a bug in one cell must not hide the others' results
        return Outcome({}, (), "failed", f"{type(error).__name__}: {error}")
    return outcome


class Inline:
    """Runs cells in this process."""

    def __init__(self, study: Study) -> None:
        self._work = Workspace(study)

    def run(self, cell: Cell, limit: float | None) -> Outcome:
        self._work.limit = limit
        return execute(cell, self._work)

    def close(self) -> None:
        """Nothing to end."""


class Worker:
    """Runs cells in a process of its own, which is ended where a cell exceeds its limit."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def run(self, cell: Cell, limit: float | None) -> Outcome:
        """The outcome of a cell, or that it was stopped."""
        pipe = self._started()
        try:
            pipe.send((cell, limit))
            # Loading compiled code, which the first run ever compiles, is not the cell's time.
            pipe.recv()
            if limit is not None and not pipe.poll(limit + GRACE):
                self.close()
                stages = (("stopped", limit),)
                return Outcome({}, stages, "time limit", f"stopped after {limit:g} s")
            answer: Outcome = pipe.recv()
        except (EOFError, OSError):
            return self._ended()
        return answer

    def _ended(self) -> Outcome:
        """The process ended by itself: solvers abort, and systems kill, where memory runs out."""
        code = None
        if self._process is not None:
            self._process.join()
            code = self._process.exitcode
        self.close()
        if code in (-signal.SIGKILL, -signal.SIGABRT):
            return Outcome({}, (), "out of memory", "needs more memory than there is")
        return Outcome({}, (), "failed", f"its process ended without an answer (exit code {code})")

    def close(self) -> None:
        """End the process."""
        if self._process is not None and self._process.pid is not None:
            self._process.kill()
            self._process.join()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None

    def _started(self) -> Connection:
        if self._pipe is not None:
            return self._pipe
        from panda_mdp.base.processes import uninterrupted

        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, self._study), daemon=True)
        with uninterrupted():
            process.start()
        theirs.close()
        self._process, self._pipe = process, ours
        return ours


def _serve(pipe: Connection, study: Study) -> None:
    """The body of the worker."""
    _bound_memory()
    work = Workspace(study)
    warmed: set[tuple[str, str]] = set()
    for cell, limit in _requests(pipe):
        name = (cell.kind, cell.method)
        if name not in warmed:
            warmed.add(name)
            work.limit = WARM_LIMIT
            warm = TINY if cell.method in SLOW else WARM
            size = min(warm.records, study.city.nodes // 2)
            execute(replace(cell, setting=replace(warm, records=size), repeat=0), work)
        work.limit = limit
        pipe.send("ready")
        pipe.send(execute(cell, work))


def _bound_memory() -> None:
    """Let a cell that wants more memory than the machine has fail, and not the machine."""
    if not hasattr(os, "sysconf"):
        return
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = int(MEMORY_SHARE * total)
    if hard == resource.RLIM_INFINITY or limit < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _requests(pipe: Connection) -> Iterator[tuple[Any, Any]]:
    while True:
        try:
            yield pipe.recv()
        except EOFError:
            return
