"""Methods run one by one, each in a fresh process, with its time and memory measured.

A process of its own gives an honest peak of memory (the process's largest resident set while the
method ran, interpreter and libraries included) and a limit that holds for any method. Compiled
kernels are loaded on a small problem first, so neither seconds nor limits contain compilation;
`compile_kernels` does that once for all methods, where somebody waits and wants to see why.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.processes import (
    NoAnswer,
    Worker,
    copies,
    forget_peak,
    peak_mb,
    settle,
    uninterrupted,
)
from panda_mdp.compute.closure import Closure
from panda_mdp.errors import PandaError
from panda_mdp.meaning.attack import attack
from panda_mdp.methods.optimal.graph import constraint_graph
from panda_mdp.privacy.quantise import TOTAL
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain
from panda_mdp.survey.phases import Phases
from panda_mdp.survey.registry import AnyMethod

START_SECONDS = 180.0
"""Longest wait for a process to start, which on a first run includes compilation."""
REHEARSED = 600
"""Records of the problem that kernels are loaded on: fewer do not reach the compiled loops."""
REHEARSAL_SECONDS = 2.0
COMPILERS = 2
GRACE_SECONDS = 5.0
"""Beyond its limit a method that watches the clock itself may still audit what it has."""


@dataclass(frozen=True)
class Outcome:
    """What one method gave."""

    method: AnyMethod
    problem: Problem
    loss: float | None = None
    lower_bound: float | None = None
    audited_epsilon: float | None = None
    holds: bool | None = None
    attacker_error: float | None = None
    """Expected error of the best attacker who knows table and prior, in the domain's unit."""
    vulnerability: float | None = None
    """How often that attacker's best guess of the record is right."""
    seconds: float | None = None
    peak_mb: float | None = None
    note: str = ""
    failed: bool = False
    """Whether the method ended with an error that is not an answer about the input."""
    weights: IntArray | None = None
    marginal: FloatArray | None = None
    """Pr[report | record] where two phases have no single table."""

    @property
    def reports(self) -> FloatArray | None:
        """Pr[report | record], K x m, however it comes about."""
        if self.weights is None:
            return self.marginal
        return np.asarray(np.asarray(self.weights) / float(TOTAL))

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
            "attacker_error": self.attacker_error,
            "vulnerability": self.vulnerability,
            "seconds": self.seconds,
            "peak_mb": self.peak_mb,
            "note": self.note,
        }


def compile_kernels(methods: Sequence[AnyMethod], problem: Problem) -> Iterator[AnyMethod]:
    """Compile what the methods call, for the first run on a machine; each one when that is done.

    Two processes share the work: the compiler uses one core. Compiled loops stay on the disk, where
    a later run loads them in seconds.
    """
    small = _small(problem)
    # What takes longest comes first, and beside it what has no loops in common with it.
    tasks: list[tuple[AnyMethod | None, Callable[[], object]]] = []
    if any(method.timed for method in methods):
        tasks.append((None, partial(_solver_loops, small)))
    plain, timed = (tuple(m for m in methods if m.timed == how) for how in (False, True))
    tasks += [(method, partial(_rehearse, method, small)) for method in (*plain, *reversed(timed))]
    with uninterrupted():
        pool = copies().Pool(min(COMPILERS, len(tasks)), settle)
    with pool:
        ready = pool.imap_unordered(_done, tasks)
        # A process that was ended from outside never answers: its loops are compiled later.
        with contextlib.suppress(multiprocessing.TimeoutError, StopIteration):
            while True:
                method = ready.next(START_SECONDS)
                if method is not None:
                    yield method


def _done(task: tuple[AnyMethod | None, Callable[[], object]]) -> AnyMethod | None:
    task[1]()
    return task[0]


def _solver_loops(small: Problem) -> None:
    """One step of the first-order method, whose loops take as long to compile as all others."""
    from panda_mdp.methods.optimal.cpu_solver import CpuSolver

    even = np.full((small.size, small.outputs_count), 1 / small.outputs_count)
    CpuSolver(small, constraint_graph(small.domain, small.epsilon), even).advance(1)


def run(method: AnyMethod, problem: Problem, limit: float | None) -> Outcome:
    """Run one method in a fresh process and stop it where it exceeds its limit (seconds)."""
    allowed = None if limit is None else limit + (GRACE_SECONDS if method.timed else 0)
    with Worker(_prepared, copied=True) as worker:
        answer = worker.answer((method, problem, limit), allowed, start_limit=START_SECONDS)
    if not isinstance(answer, NoAnswer):
        return Outcome(method, problem, **answer)
    if answer.reason == "time limit":
        return Outcome(method, problem, note=f"stopped at the time limit of {limit:g} s")
    notes = {
        "slow start": f"did not start within {START_SECONDS:g} s",
        "out of memory": "its process ended without an answer (out of memory?)",
        "ended": f"its process ended without an answer (exit code {answer.code})",
    }
    return Outcome(method, problem, note=notes[answer.reason], failed=True)


def _prepared(request: tuple[AnyMethod, Problem, float | None]) -> Callable[[], dict[str, Any]]:
    """The method's run, its compiled kernels loaded."""
    method, problem, limit = request
    _rehearse(method, _small(problem))
    forget_peak()
    return lambda: _measured(method, problem, limit)


def _rehearse(method: AnyMethod, small: Problem) -> None:
    """Run a method on a small problem: its kernels are compiled, or loaded, afterwards."""
    # What goes wrong here goes wrong again in the run itself, where it is reported.
    with contextlib.suppress(Exception):
        method.run(small, REHEARSAL_SECONDS)
        if method.timed:
            # Small problems are solved before a solver looks for the pairs that it left out.
            even = np.full((small.size, small.outputs_count), 1 / small.outputs_count)
            Closure(small.domain).violated(even, small.epsilon, 1, 0.0)


def _measured(method: AnyMethod, problem: Problem, limit: float | None) -> dict[str, Any]:
    """Fields of the outcome."""
    start = time.perf_counter()
    try:
        table = method.run(problem, limit)
    except PandaError as error:
        return {"note": " ".join(str(error).split())}
    except Exception as error:  # a bug in one method must not hide the others' results
        return {"note": f"failed: {type(error).__name__}: {error}", "failed": True}
    seconds = time.perf_counter() - start
    peak = peak_mb()
    if isinstance(table, Phases):
        return {**vars(table), "seconds": seconds, "peak_mb": peak}
    seen = attack(table, radii=())
    notes = []
    stopped = str(table.details.get("stopped", ""))
    if limit is not None and (stopped == "time limit" or (method.timed and seconds >= limit)):
        notes.append(f"the best within its time limit of {limit:g} s")
    if not table.audit.holds:
        notes.append("no guarantee")
    return {
        "loss": table.loss,
        "lower_bound": table.lower_bound,
        "audited_epsilon": table.audit.epsilon,
        "holds": table.audit.holds,
        "attacker_error": seen.error,
        "vulnerability": seen.vulnerability,
        "seconds": seconds,
        "peak_mb": peak,
        "note": "; ".join(notes),
        "weights": table.weights,
    }


def _small(problem: Problem) -> Problem:
    """A problem of the same kind with fewer records and outputs, to load the kernels on."""
    generator = np.random.default_rng(0)
    spots = generator.uniform(0, 0.02, size=(min(REHEARSED, max(24, problem.size)), 2))
    if problem.domain.geographic:
        domain = Domain.from_points(spots[:, 0], spots[:, 1])
    elif problem.domain.metric.kind == "matrix":
        domain = Domain.from_matrix(Domain.from_vectors(spots).distances())
    else:
        domain = Domain.from_vectors(spots)
    outputs = np.arange(4)
    return Problem(domain, outputs, domain.distances(None, outputs), 1 / domain.diameter)
