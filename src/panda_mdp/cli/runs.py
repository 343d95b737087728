"""Methods run one by one, each in a fresh process, with its time and memory measured.

A process of its own gives an honest peak of memory (the process's largest resident set while the
method ran, interpreter and libraries included) and a limit that holds for any method. Compiled
kernels are loaded on a tiny problem first, so seconds do not contain compilation.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import resource
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from panda_mdp._arrays import IntArray
from panda_mdp.cli.frame import progress_console
from panda_mdp.domain import Domain
from panda_mdp.errors import PandaError
from panda_mdp.methods.registry import Method
from panda_mdp.problem import Problem

START_SECONDS = 180.0
"""Longest wait for a process to start, which on a first run includes compilation."""
GRACE_SECONDS = 5.0
"""Beyond its limit a method that watches the clock itself may still audit what it has."""


@dataclass(frozen=True)
class Outcome:
    """What one method gave."""

    method: Method
    problem: Problem
    loss: float | None = None
    lower_bound: float | None = None
    audited_epsilon: float | None = None
    holds: bool | None = None
    seconds: float | None = None
    peak_mb: float | None = None
    note: str = ""
    failed: bool = False
    """Whether the method ended with an error that is not an answer about the input."""
    weights: IntArray | None = None

    def row(self) -> dict[str, Any]:
        """The object that goes into JSON."""
        return {
            "method": self.method.name,
            "loss": self.loss,
            "lower_bound": self.lower_bound,
            "unit": self.problem.loss_unit,
            "epsilon": self.problem.epsilon,
            "audited_epsilon": self.audited_epsilon,
            "holds": self.holds,
            "seconds": self.seconds,
            "peak_mb": self.peak_mb,
            "note": self.note,
        }


def run_all(
    methods: tuple[Method, ...], problem: Problem, limits: tuple[float | None, ...]
) -> Iterator[Outcome]:
    """Run methods one after the other, with progress on standard error."""
    console = progress_console()
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed} of {task.total}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("methods", total=len(methods))
        for method, limit in zip(methods, limits, strict=True):
            until = "" if limit is None else f" (at most {limit:g} s)"
            bar.update(task, description=f"{method.label}{until}")
            yield run(method, problem, limit)
            bar.advance(task)


def run(method: Method, problem: Problem, limit: float | None) -> Outcome:
    """Run one method in a fresh process and stop it where it exceeds its limit (seconds)."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(theirs, method, problem, limit), daemon=True)
    try:
        with uninterrupted():
            process.start()
        theirs.close()
        return _await(ours, method, problem, limit)
    finally:
        # Also on Ctrl-C: nothing is left running.
        if process.pid is not None:
            process.kill()
            process.join()
        ours.close()


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Start processes inside: Ctrl-C never reaches them, and this one only when they are known.

    Ctrl-C goes to the whole group. A mask is inherited by what is started; it does not keep other
    threads of this process from taking the signal, so the answer waits as well.
    """
    # The first process would start it, and it lifts the mask.
    resource_tracker.ensure_running()
    caught: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: caught.append(number))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, before)
    if caught:
        raise KeyboardInterrupt


def _await(pipe: Connection, method: Method, problem: Problem, limit: float | None) -> Outcome:
    try:
        if not pipe.poll(START_SECONDS):
            note = f"did not start within {START_SECONDS:g} s"
            return Outcome(method, problem, note=note, failed=True)
        pipe.recv()
        if limit is not None and not pipe.poll(limit + (GRACE_SECONDS if method.timed else 0)):
            return Outcome(method, problem, note=f"stopped at the time limit of {limit:g} s")
        fields = pipe.recv()
    except EOFError:
        note = "its process ended without an answer (out of memory?)"
        return Outcome(method, problem, note=note, failed=True)
    return Outcome(method, problem, **fields)


def _work(pipe: Connection, method: Method, problem: Problem, limit: float | None) -> None:
    """The body of the fresh process."""
    # What goes wrong here goes wrong again below, where it is reported.
    with contextlib.suppress(Exception):
        method.run(_tiny(problem))
    _forget_peak()
    pipe.send("ready")
    start = time.perf_counter()
    try:
        table = method.run(problem, limit)
    except PandaError as error:
        pipe.send({"note": " ".join(str(error).split())})
    except Exception as error:  # a bug in one method must not hide the others' results
        pipe.send({"note": f"failed: {type(error).__name__}: {error}", "failed": True})
    else:
        seconds = time.perf_counter() - start
        notes = []
        stopped = str(table.details.get("stopped", ""))
        if limit is not None and (stopped == "time limit" or (method.timed and seconds >= limit)):
            notes.append(f"the best within its time limit of {limit:g} s")
        if not table.audit.holds:
            notes.append("no guarantee")
        pipe.send(
            {
                "loss": table.loss,
                "lower_bound": table.lower_bound,
                "audited_epsilon": table.audit.epsilon,
                "holds": table.audit.holds,
                "seconds": seconds,
                "peak_mb": peak_mb(),
                "note": "; ".join(notes),
                "weights": table.weights,
            }
        )
    pipe.close()


def _tiny(problem: Problem) -> Problem:
    """A problem of a few records of the same kind, to load the compiled kernels on."""
    generator = np.random.default_rng(0)
    spots = generator.uniform(0, 0.02, size=(24, 2))
    if problem.domain.geographic:
        domain = Domain.from_points(spots[:, 0], spots[:, 1])
    elif problem.domain.metric.kind == "matrix":
        domain = Domain.from_matrix(Domain.from_vectors(spots).distances())
    else:
        domain = Domain.from_vectors(spots)
    outputs = np.arange(4)
    return Problem(domain, outputs, domain.distances(None, outputs), 1 / domain.diameter)


def _forget_peak() -> None:
    """Reset the kernel's record of the peak, where it allows that."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_mb() -> float:
    """The largest resident set of this process in MB."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not getrusage: its figure survives exec and would include the parent's.
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return float(line.split()[1]) / 1024
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 2**20
