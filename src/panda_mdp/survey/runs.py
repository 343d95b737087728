"""Methods run one by one, each in a fresh process, with its time and memory measured.

A process of its own gives an honest peak of memory (the process's largest resident set while the
method ran, interpreter and libraries included) and a limit that holds for any method. Compiled
kernels are loaded on a tiny problem first, so seconds do not contain compilation.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from panda_mdp.base.arrays import IntArray
from panda_mdp.base.processes import forget_peak, peak_mb, uninterrupted
from panda_mdp.errors import PandaError
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain
from panda_mdp.survey.registry import Method

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
    forget_peak()
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
