"""The bench: methods run one by one in a process of their own, with time and memory limited.

A process of its own gives an honest peak of memory (its largest resident set while the method ran,
interpreter and libraries included) and limits that hold for any method: what exceeds its time is
stopped by ending the process, whatever the solver does, and a new one goes on. Compiled kernels are
loaded on a small problem first, so neither seconds nor limits contain compilation.

What is run is a laboratory's matter: `Comparison` runs the methods of `registry.py` on one problem,
the paper its cells.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Generic, Literal, Protocol, Self, TypeVar

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray, Stages
from panda_mdp.base.processes import (
    NoAnswer,
    Worker,
    bound_memory,
    copies,
    forget_fork,
    forget_peak,
    peak_mb,
    uninterrupted,
)
from panda_mdp.base.text import Facts
from panda_mdp.compute.closure import NEAR_NATS, Closure
from panda_mdp.errors import MethodError, PandaError
from panda_mdp.meaning.attack import attack
from panda_mdp.methods.second.objectives import quantity
from panda_mdp.methods.words import as_words
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.privacy.quantise import TOTAL
from panda_mdp.problem import Problem
from panda_mdp.survey.registry import Method
from panda_mdp.table.bound import Bound, Multipliers, Proved, Stated

Status = Literal["done", "infeasible", "time limit", "out of memory", "failed"]
Job = TypeVar("Job")
Job_contra = TypeVar("Job_contra", contravariant=True)
REHEARSED = 600
"""Records of the problem that kernels are loaded on: fewer do not reach the compiled loops."""
REHEARSAL_SECONDS = 2.0
COMPILERS = 2
MOST_GUESSED = 1 << 22
"""Chances of records and what is told, up to which the best guess of the place is looked for."""
NO_MEMORY = "needs more memory than there is"


@dataclass(frozen=True)
class Outcome:
    """What a job gave: numbers by name, the seconds of its stages, how it ended."""

    values: Mapping[str, Any] = field(default_factory=dict)
    stages: Stages = ()
    status: Status = "done"
    note: str = ""

    @property
    def seconds(self) -> float:
        """Time that all stages took."""
        return sum(seconds for _, seconds in self.stages)


class Laboratory(Protocol[Job_contra]):
    """What runs jobs; it is copied once into the process that runs them."""

    def rehearse(self, job: Job_contra) -> None:
        """Load the compiled kernels that the job needs."""

    def run(self, job: Job_contra, limit: float | None) -> Outcome:
        """Run the job, which may watch the clock itself (seconds)."""


@dataclass(frozen=True)
class Tuning:
    """What a bench allows beyond the limit of a job."""

    start_seconds: float = 180.0
    """Longest wait for a process to start, which on a first run includes compilation."""
    grace_seconds: float = 10.0
    """Beyond its limit a method that watches the clock itself may still audit what it has."""
    memory_share: float = 0.7
    """Of the machine's memory, for the process that runs jobs."""


class Bench(Generic[Job]):
    """Runs the jobs of a laboratory one after the other.

    With `process="fresh"` each has a process of its own, so that its peak of memory is its own;
    with "shared" they follow each other in one, which may keep what they have in common at hand;
    with "none" they run in this process, where a limit is only kept by jobs that watch the clock.
    """

    def __init__(
        self,
        laboratory: Laboratory[Job],
        process: Literal["fresh", "shared", "none"] = "fresh",
        tuning: Tuning | None = None,
    ) -> None:
        self.laboratory = laboratory
        self.process = process
        self.tuning = tuning or Tuning()
        self._worker: Worker[tuple[Job, float | None], Outcome] = Worker(
            partial(_prepared, laboratory, self.tuning.memory_share)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Also on Ctrl-C: nothing is left running.
        self._worker.close()

    def run(self, job: Job, limit: float | None = None, *, graceful: bool = True) -> Outcome:
        """Run a job under a limit (seconds), a little more where it is left time to audit."""
        if self.process == "none":
            return execute(self.laboratory, job, limit)
        grace = self.tuning.grace_seconds if graceful else 0.0
        answer = self._worker.answer(
            (job, limit),
            None if limit is None else limit + grace,
            start_limit=self.tuning.start_seconds,
        )
        if self.process == "fresh":
            self._worker.close()
        return self._unanswered(answer, limit) if isinstance(answer, NoAnswer) else answer

    def _unanswered(self, answer: NoAnswer, limit: float | None) -> Outcome:
        if answer.reason == "time limit" and limit is not None:
            note = f"stopped at the time limit of {limit:g} s"
            return Outcome({}, (("stopped", limit),), "time limit", note)
        if answer.reason == "out of memory":
            return Outcome(status="out of memory", note=NO_MEMORY)
        note = f"its process ended without an answer (exit code {answer.code})"
        if answer.reason == "slow start":
            note = f"did not start within {self.tuning.start_seconds:g} s"
        return Outcome(status="failed", note=note)


def execute(laboratory: Laboratory[Job], job: Job, limit: float | None) -> Outcome:
    """Run a job here; what goes wrong on purpose is an answer, anything else a failure."""
    start = time.perf_counter()
    try:
        return laboratory.run(job, limit)
    except PandaError as error:
        stages = (("until it was refused", time.perf_counter() - start),)
        return Outcome({}, stages, "infeasible", " ".join(str(error).split()))
    except MemoryError:
        return Outcome({}, (), "out of memory", NO_MEMORY)
    except Exception as error:  # a bug in one job must not hide the others' results
        return Outcome(status="failed", note=f"{type(error).__name__}: {error}")


def _prepared(
    laboratory: Laboratory[Job], memory_share: float, request: tuple[Job, float | None]
) -> Callable[[], Outcome]:
    """In a worker's process: the run of a job, its compiled kernels loaded."""
    job, limit = request
    bound_memory(memory_share)
    laboratory.rehearse(job)
    forget_peak()
    return partial(execute, laboratory, job, limit)


@dataclass(frozen=True)
class MethodRun:
    """What one method gave on a problem; numbers are None where it gave no table."""

    method: Method
    problem: Problem
    loss: float | None = None
    lower_bound: float | None = None
    multipliers: Multipliers | None = None
    """That prove the bound, where the method keeps them."""
    audited_epsilon: float | None = None
    holds: bool | None = None
    attacker_error: float | None = None
    """Expected error of the best attacker who knows table and prior, in the domain's unit."""
    vulnerability: float | None = None
    """How often that attacker's best guess of the record is right."""
    seconds: float | None = None
    peak_mb: float | None = None
    note: str = ""
    status: Status = "done"
    weights: IntArray | None = None
    marginal: FloatArray | None = None
    """Pr[report | record] where two phases have no single table."""
    kept: float | None = None
    """Of words: how often one is drawn as it is."""
    topics: float | None = None
    """How often the topic of ten words, of ten, is told from what was drawn."""
    delta: float | None = None
    """Of PAnDA's: how often more than epsilon may be told."""

    @property
    def failed(self) -> bool:
        """Whether the method ended with an error that is not an answer about the input."""
        return self.status in ("failed", "out of memory")

    @property
    def bound(self) -> Bound | None:
        """The lower bound with its proof, or as the method states it."""
        if self.multipliers is not None:
            return Proved(self.problem, self.multipliers)
        return None if self.lower_bound is None else Stated(self.lower_bound, self.method.label)

    @property
    def reports(self) -> FloatArray | None:
        """Pr[report | record], K x m, however it comes about."""
        if self.weights is None:
            return self.marginal
        return np.asarray(self.weights) / float(TOTAL)

    def row(self) -> Facts:
        """The object that goes into JSON."""
        names = ("method", "problem", "weights", "marginal", "multipliers")
        values = {
            one.name: getattr(self, one.name) for one in fields(self) if one.name not in names
        }
        unit = self.problem.loss_unit
        epsilon = self.problem.epsilon
        words = None if self.bound is None else self.bound.words
        named = {"method": self.method.name, "unit": unit, "epsilon": epsilon, "bound": words}
        return {**named, **values}


@dataclass(frozen=True, eq=False)
class Comparison:
    """Methods on one problem, as the jobs of a bench."""

    problem: Problem

    def outcome(self, method: Method, limit: float | None) -> MethodRun:
        """Run one method in a fresh process, stopped where it exceeds its limit (seconds)."""
        with Bench(self) as bench:
            outcome = bench.run(method, limit, graceful=method.timed)
        note = f"failed: {outcome.note}" if outcome.status == "failed" else outcome.note
        return MethodRun(method, self.problem, **outcome.values, note=note, status=outcome.status)

    def rehearse(self, method: Method) -> None:
        """Run a method on a small problem: its kernels are compiled, or loaded, afterwards."""
        small = self.small
        # What goes wrong here goes wrong again in the run itself, where it is reported.
        with contextlib.suppress(Exception):
            method.run(small, REHEARSAL_SECONDS)
            if method.timed:
                # Small problems are solved before a solver looks for the pairs that it left out.
                Closure(small.domain).broken(_even(small), small.epsilon, NEAR_NATS, (0.0, 0.0), 1)

    def run(self, method: Method, limit: float | None) -> Outcome:
        """The method's table, measured and attacked."""
        start = time.perf_counter()
        made = method.run(self.problem, limit)
        seconds = time.perf_counter() - start
        values: Facts = {"seconds": seconds, "peak_mb": peak_mb(), "loss": made.loss}
        if isinstance(made, PandaTable):
            note = f"a user downloads {made.download:,} bytes"
            values |= {
                "audited_epsilon": made.scheme.audited_epsilon,
                "holds": True,
                "delta": made.delta,
                "marginal": made.matrix,
            }
            # Where releases are too many to be visited, nothing is said of who sees them.
            with contextlib.suppress(MethodError):
                both = made.seen.matrix
                values["vulnerability"] = quantity(self.problem, "vulnerability", None, both)
                if both.size <= MOST_GUESSED:
                    values["attacker_error"] = quantity(self.problem, "error", None, both)
            return Outcome(values, note=note)
        seen = attack(made, radii=())
        values |= {
            "lower_bound": made.lower_bound,
            "multipliers": made.bound.multipliers if isinstance(made.bound, Proved) else None,
            "audited_epsilon": made.audit.epsilon,
            "holds": made.audit.holds,
            "attacker_error": seen.error,
            "vulnerability": seen.vulnerability,
            **as_words(made),
            "weights": made.weights,
        }
        notes = []
        late = made.details.get("stopped") == "time limit"
        if limit is not None and (late or (method.timed and seconds >= limit)):
            notes.append(f"the best within its time limit of {limit:g} s")
        if not made.audit.holds:
            notes.append("no guarantee")
        return Outcome(values, note="; ".join(notes))

    @property
    def small(self) -> Problem:
        """A problem of the same kind with fewer records and outputs, to load the kernels on."""
        whole = self.problem.domain
        domain = whole if whole.size <= REHEARSED else whole.take(np.arange(REHEARSED))
        outputs = np.arange(min(4, domain.size))
        return Problem(domain, outputs, domain.distances(None, outputs), 1 / domain.diameter)

    def compile_kernels(self, methods: Sequence[Method]) -> None:
        """Compile what the methods call, for the first run on a machine.

        Two processes share the work: the compiler uses one core. Compiled loops stay on the disk,
        where a later run loads them in seconds.
        """
        # What takes longest comes first, and beside it what has no loops in common with it.
        plain, timed = ([m for m in methods if m.timed == how] for how in (False, True))
        timed = sorted(timed, key=lambda method: method.name != "optimal")
        tasks = [*timed[:1], *plain, *timed[1:]]
        with uninterrupted():
            pool = copies().Pool(min(COMPILERS, len(tasks)), forget_fork)
        with pool:
            # A process that was ended from outside never answers: its loops are compiled later.
            pool.map_async(self.rehearse, tasks, 1).wait(Tuning().start_seconds)


def _even(problem: Problem) -> FloatArray:
    return np.full((problem.size, problem.outputs_count), 1 / problem.outputs_count)
