"""The one loop around every solver: iterate, bound, repair, audit, keep the best, report, stop.

A `Solver` knows one way to make tables and bounds of a problem; `certify` knows time, gap, the best
table, its proof, interrupts and why it ended, and asks no solver what it is. What is kept is always
a mechanism whose audit holds, and the bound is always a valid one: neither rests on how a solver
ended.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.base.factored import MOST_DENSE
from panda_mdp.base.floored import FlooredRows
from panda_mdp.base.text import Facts
from panda_mdp.base.threads import Clock, check_time, current_clock, within
from panda_mdp.compute.closure import FLOOR, Closure, closure_of
from panda_mdp.compute.pairs import Backend
from panda_mdp.errors import PrivacyError, SolverError, Stopped, TimeLimitError
from panda_mdp.privacy.quantise import TIGHTENING, TOTAL, repair
from panda_mdp.problem import Problem, check_number
from panda_mdp.table.bound import Bound, Proved, Stated
from panda_mdp.table.mechanism import Mechanism, release


@dataclass(frozen=True)
class Progress:
    """Where a solve stands."""

    seconds: float
    iterations: int
    loss: float
    """Of the best table so far whose audit holds; under a second objective, what is made least."""
    lower_bound: float
    edges: int
    note: str = ""
    """What takes its time apart from iterations, such as compiling for the first time."""

    @property
    def gap(self) -> float:
        """Relative gap between the best certified loss and the lower bound."""
        return self.loss / self.lower_bound - 1 if self.lower_bound > 0 else math.inf


Report = Callable[[Progress], None]


def print_progress(step: Progress) -> None:
    """One line on standard error: `optimal(problem, progress=print_progress)`."""
    where = (
        f"{step.iterations:6,} iterations  loss {step.loss:.6g}  "
        f"at least {step.lower_bound:.6g}  gap {100 * step.gap:.2f} %"
    )
    sys.stderr.write(f"{step.seconds:6.1f} s  {step.note or where}\n")
    sys.stderr.flush()


GRACE = 0.05
GRACE_SECONDS = 2.5
"""Of a time limit, and in seconds: by how much certifying may go beyond it."""


@dataclass(frozen=True)
class Budget:
    """When a solve ends: at a gap, after some seconds, after so many iterations."""

    gap: float | None = 0.01
    """Of the loss to its bound; None where none is asked for."""
    time_limit: float | None = None
    iterations: int = 100_000
    clock: Clock = field(default_factory=current_clock)

    @property
    def latest(self) -> float | None:
        """Seconds after which nothing goes on: what was reached at the limit is still certified,
        for a little more."""
        limit = self.time_limit
        return None if limit is None else limit + max(GRACE_SECONDS, GRACE * limit)

    def __post_init__(self) -> None:
        check_number(self.gap, "gap", "a positive number such as 0.01 for one per cent")
        check_number(self.time_limit, "time_limit", "positive, in seconds, or None", most=math.inf)
        check_number(self.iterations, "iterations", "a whole number from 1", least=1, whole=True)


@dataclass(frozen=True)
class Tuning:
    """When the loop looks and certifies. Work is counted, not time: the same problem ends with the
    same table."""

    step: int = 40
    """Iterations between two looks at the clock."""
    first_check: int = 120
    growth: float = 1.4
    """Most by which the iterations grow from one check to the next."""
    later: float = 1.03
    """A check is placed a little behind the expected end: one in vain costs more than a few
    steps."""
    patience: int = 8
    """Checks without progress after which the solver is taken to have reached its precision."""
    estimates_worth: float = 24.0
    """Estimates that certifying takes about as long as, before it was timed."""
    markup: float = 0.06
    most_markup: float = 2.0
    """The same in loss: by which share of the gap at the estimate the whole repair costs more, at
    first and at most. Of a table far from its end it may cost anything, which says nothing of later
    ones."""
    certify_iterations: float = 960
    """Iterations after which a table is certified on the way, and then whenever they have
    doubled."""
    negligible: float = 1e-7
    """Of the loss that ignores the record: a difference below it."""


class Solver(ABC):
    """One way to make tables and bounds of a problem; what the loop asks of it."""

    problem: Problem
    method = "optimal"
    backend = "cpu"
    tuning = Tuning()
    iterations = 0
    edges = 0
    """Pairs that are constrained."""
    settled = False
    """Whether iterating alone moves nothing any more, until the program is extended."""
    ended: Stopped | None = None
    """Why it can go no further; None while it can."""
    status = ""
    """How that was put by a solver of others, such as HiGHS."""

    @abstractmethod
    def begin(self, standing: Standing) -> None:
        """Build what is iterated on; raise the bound and offer tables that are at hand."""

    @abstractmethod
    def advance(self, target: int, standing: Standing) -> None:
        """Iterate until `iterations` is `target`, or `standing.late()`."""

    def bound(self) -> float | Proved:
        """A rigorous bound below what is made least, from the present multipliers; with its proof
        where that costs no more."""
        return -math.inf

    def proof(self) -> Proved | None:
        """What the best bound rests on where it came without a proof; None where that cannot be
        had. It is asked for at the end, since gathering multipliers takes longer than bounding."""
        return None

    @abstractmethod
    def candidate(self) -> Any:
        """The present table, nearly private, in whatever form `certified` takes; None if none."""

    def estimate(self, candidate: Any) -> float:
        """About what `certified` would make of it, for far less work; -inf where only that
        tells."""
        return -math.inf

    @abstractmethod
    def certified(self, candidate: Any, standing: Standing) -> Mechanism:
        """The candidate repaired over all pairs, quantised and audited on its integers."""

    def value(self, mechanism: Mechanism) -> float:
        """What is made least."""
        return mechanism.loss

    def allowed(self, gap: float, bound: float) -> float:
        """How far above the bound a value may lie at a gap."""
        return gap * bound

    def extend(self, candidate: Any, standing: Standing) -> None:  # noqa: B027 - it need not
        """Constrain what the candidate breaks, or change what is asked for, before it goes on."""

    def fallbacks(self, standing: Standing) -> Iterator[Mechanism]:
        """Other tables, where the solve has ended and the gap was not reached."""
        yield from ()

    def last_resort(self, standing: Standing) -> Mechanism:
        """A table that takes no time, where time is over and there is none: one row for all, of
        which nothing has to be stored."""
        problem = self.problem
        floor = np.zeros(problem.outputs_count, np.int64)
        floor[problem.best_single_output] = TOTAL
        none = np.zeros(problem.size + 1, np.int64)
        rows = FlooredRows(floor, none, none[:0].astype(np.int32), none[:0])
        return Mechanism(problem, rows, self.method)

    def made(self, rows: FlooredRows) -> Mechanism:
        """A mechanism of whole numbers over a floor, as an array where that is not too large."""
        few = rows.shape[0] * rows.shape[1] <= MOST_DENSE
        return Mechanism(self.problem, np.asarray(rows) if few else rows, self.method)

    def note(self) -> str:
        """What a report says in place of its numbers."""
        return ""

    def facts(self) -> Facts:
        """Details of the result."""
        return {}


class TableSolver(Solver):
    """A solver whose candidates are arrays, K x m, nearly private and with rows near 1."""

    tightening = TIGHTENING
    """The closure runs at epsilon (1 - tightening); accurate tables need less of it."""
    audit: Backend | None = None
    """What computes the audits; the default one where None."""

    @cached_property
    def closure(self) -> Closure:
        """What closes tables over all pairs."""
        return closure_of(self.problem.domain)

    def floor(self, candidate: FloatArray) -> FloatArray | float:
        """What every entry is at least."""
        return FLOOR

    def certified(self, candidate: FloatArray, standing: Standing) -> Mechanism:
        with standing.stage("repair"):
            repaired = repair(
                self.closure,
                candidate,
                self.problem.epsilon,
                self.tightening,
                self.floor(candidate),
            )
        with standing.stage("audit"):
            return release(
                self.problem,
                repaired.matrix,
                method=self.method,
                details=repaired.facts,
                backend=self.audit,
            )


WORTH = 0.01
"""Of the gap: what a bound may give away for a proof."""


def proved(bound: Stated, loss: float, gap: float, proof: Proved | None) -> Bound:
    """The bound of a table of this loss: its proof, shortened where that gives next to nothing
    away.

    What is proved may fall short of `bound` by a hundredth of the gap that was asked for, and must
    not make a gap that is reached one that is not; otherwise `bound` stays, without a proof.
    """
    least = bound.value - WORTH * gap * abs(bound.value)
    if loss - bound.value <= gap * bound.value:
        least = max(least, loss / (1 + gap))
    return shortest(proof, least) or bound


def shortest(proof: Proved | None, least: float) -> Proved | None:
    """The proof, shortened where that still proves so much; None where it does not itself."""
    found = () if proof is None else (proof.shortened(), proof)
    return next((p for p in found if p.value >= least), None)


@dataclass
class Standing:
    """Where a solve stands, for its solver and, when it has ended, for its caller."""

    solver: Solver
    budget: Budget
    progress: Report | None = None
    best: Mechanism | None = None
    value: float = math.inf
    """Of the best table."""
    bound: float = -math.inf
    proof: Proved | None = None
    stopped: Stopped = Stopped.INTERRUPTED
    risen: float = 0.0
    """By how much the bound rose at the last check."""
    guess: float = math.inf
    """What the last candidate was taken to be worth."""
    seconds: dict[str, float] = field(default_factory=dict)
    trace: list[tuple[float, int, float, float]] = field(default_factory=list)
    certify_seconds: float = 0.0
    """That certifying takes; 0 where it is not known."""

    def __post_init__(self) -> None:
        self._began = self.budget.clock()
        self._markup = 0.0
        self._certified_iterations = math.inf
        self._pending: Any = None
        self._refused: PrivacyError | None = None

    def run(self) -> Standing:
        """Solve to the gap, or to a limit, or until interrupted."""
        try:
            with self._limited():
                try:
                    self.stopped = self._loop()
                except KeyboardInterrupt:
                    self.stopped = Stopped.INTERRUPTED
                # A second interrupt while the last table is being certified ends it at once.
                if self._pending is not None and not self._reached():
                    self._certify(self._pending)
                if not self._reached():
                    with self.stage("other tables"), suppress(PrivacyError):
                        for other in self.solver.fallbacks(self):
                            self.offer(other)
        except TimeLimitError:
            self.stopped = Stopped.TIME_LIMIT
            if self.best is None:
                self.offer(self.solver.last_resort(self))
        if self._reached() and not self.stopped.by_request:
            self.stopped = Stopped.GAP_REACHED
        return self

    def _limited(self) -> AbstractContextManager[None]:
        """In which what runs ends soon after the time limit."""
        latest = self.budget.latest
        return within(None if latest is None else latest - self._spent(), self.budget.clock)

    def _loop(self) -> Stopped:
        solver = self.solver
        gap = self.budget.gap or 0.0
        solver.begin(self)
        tuning = solver.tuning
        self._markup = tuning.markup
        self._certified_iterations = tuning.certify_iterations / 2
        target = tuning.first_check
        idle = 0
        seen: list[tuple[int, float]] = []
        while self.missing(self.value) > 0:
            value_before = self.value
            bound_before = self.bound
            with self.stage("solve"):
                solver.advance(target, self)
            with self.stage("bound"):
                self.raise_bound(solver.bound())
            with self.stage("repair"):
                candidate = self._pending = solver.candidate()
                first = self._estimate(candidate)
            guess = self.guess = first + self._markup * max(0.0, first - self.bound)
            ended = solver.ended
            if ended is None and solver.iterations >= self.budget.iterations:
                ended = Stopped.ITERATIONS
            if ended is None and self.late():
                ended = Stopped.TIME_LIMIT
            seen.append((solver.iterations, first / self.bound - 1 if self.bound > 0 else np.inf))
            target, in_sight = next_check(seen, gap / (1 + self._markup), tuning)
            # On the way where it costs little, and much is to be had.
            cheap = solver.iterations >= 2 * self._certified_iterations
            due = cheap and guess < 0.98 * self.value and not in_sight
            if due or self.missing(guess) <= 0 or ended is not None or solver.settled:
                self._certify(candidate, first)
                # Earlier looks were as wrong about what the whole repair costs.
                target, _ = next_check(seen, gap / (1 + self._markup), tuning)
            self.report()
            if self.missing(self.value) <= 0:
                break
            if ended is not None:
                return ended
            self.risen = self.bound - bound_before
            with self.stage("graph"):
                solver.extend(candidate, self)
            if solver.ended is not None:
                return solver.ended
            moved = self.value < value_before * (1 - 1e-6) or self.risen > 1e-6 * self.bound
            idle = 0 if moved else idle + 1
            if idle >= tuning.patience:
                return Stopped.PRECISION_REACHED
        return Stopped.GAP_REACHED if self._reached() else Stopped.NEGLIGIBLE

    def _estimate(self, candidate: Any) -> float:
        """The value after a little of the repair, and from its time what a whole one takes."""
        timed = self.best is None and self.budget.time_limit is not None
        if timed and not self.trace:
            # What is compiled, loaded or made for the first time is made here.
            self.solver.estimate(candidate)
        start = self.budget.clock()
        value = self.solver.estimate(candidate)
        if timed:
            spent = self.budget.clock() - start
            self.certify_seconds = self.solver.tuning.estimates_worth * spent
        return value

    def _certify(self, candidate: Any, first: float = -math.inf) -> None:
        """Certify a candidate, and keep it if it is the best so far.

        `first` is its estimate, where that is known.
        """
        if candidate is None:
            return
        start = self.budget.clock()
        try:
            value = self.offer(self.solver.certified(candidate, self))
        except PrivacyError as error:
            # Records too near for the integers, perhaps: what is at hand stays.
            self._refused = error
            value = math.inf
        self._pending = None
        if math.isinf(value):
            return
        if first > self.bound:
            beyond = (value - first) / (first - self.bound)
            self._markup = min(max(0.0, beyond), self.solver.tuning.most_markup)
        self._certified_iterations = self.solver.iterations
        self.certify_seconds = self.budget.clock() - start

    def offer(self, mechanism: Mechanism) -> float:
        """Keep a mechanism if it is the best so far; its value."""
        value = self.solver.value(mechanism)
        if self.best is None or value < self.value:
            self.best = mechanism
            self.value = value
        return value

    def offer_start(
        self, make: Callable[[], Mechanism], prove: Callable[[], float | Proved] | None = None
    ) -> None:
        """Keep a table that must be at hand when time is over, and what is proved beside it; both
        take about as long as certifying."""
        start = self.budget.clock()
        with self.stage("start"):
            if prove is not None:
                self.raise_bound(prove())
            self.offer(make())
        self.certify_seconds = self.budget.clock() - start

    def raise_bound(self, bound: float | Proved) -> None:
        """Keep a bound if it is the best so far."""
        value, proof = (bound.value, bound) if isinstance(bound, Proved) else (bound, None)
        if value > self.bound:
            self.bound = value
            self.proof = proof

    def missing(self, value: float) -> float:
        """How far a value lies beyond what the gap allows, or beyond what is negligible."""
        least = self.solver.tuning.negligible * self.solver.problem.mean_loss.min()
        return self._beyond(value, least)

    def _beyond(self, value: float, least: float = 0.0) -> float:
        if self.budget.gap is None or not math.isfinite(self.bound):
            return math.inf
        return value - self.bound - max(self.solver.allowed(self.budget.gap, self.bound), least)

    def _reached(self) -> bool:
        """Whether the certified gap is at most the one asked for."""
        return self._beyond(self.value) <= 0

    def left(self) -> float | None:
        """Seconds until there is just time enough to certify what was reached; None: unlimited."""
        if self.budget.time_limit is None:
            return None
        needed = 1.5 * self.certify_seconds + 0.02 if self.certify_seconds else 0.0
        return self.budget.time_limit - self._spent() - needed

    def late(self, ahead: float = 0.0) -> bool:
        """Whether it is time to end, before something that takes so many seconds."""
        left = self.left()
        return left is not None and left < ahead

    def report(self, note: str = "") -> None:
        """Tell those who watch."""
        solver = self.solver
        now = (self._spent(), solver.iterations, self.value, self.bound)
        if not note:
            self.trace.append(now)
        if self.progress is not None:
            self.progress(Progress(*now, solver.edges, note or solver.note()))

    def _spent(self) -> float:
        return self.budget.clock() - self._began

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Adds the time spent inside to a stage of the run, and to that alone."""
        start = self.budget.clock()
        inner = sum(self.seconds.values())
        try:
            yield
        finally:
            inner = sum(self.seconds.values()) - inner
            spent = self.budget.clock() - start - inner
            self.seconds[name] = self.seconds.get(name, 0.0) + spent

    @property
    def certified(self) -> Mechanism:
        """The best table; an error where there is none."""
        if self.best is not None:
            return self.best
        if self.stopped is Stopped.INTERRUPTED:
            raise KeyboardInterrupt
        if self._refused is not None:
            raise self._refused
        raise SolverError(
            f"{self.solver.method} ended without a table that could be certified "
            f"({self.solver.status or self.stopped}); give it more time, or try another method"
        )

    def mechanism(self) -> Mechanism:
        """The best table with what is known about it."""
        best = self.certified
        solver = self.solver
        bound: Bound | None = None
        if math.isfinite(self.bound):
            stated = Stated(self.bound, f"{solver.method} on {solver.backend}")
            gap = self.budget.gap or PROOF_GAP
            with self.stage("proof"):
                try:
                    with self._limited():
                        check_time()
                        bound = proved(stated, best.loss, gap, self.proof)
                except TimeLimitError:
                    # What it is worth is known: shorter ones take time.
                    bound = self.proof
                if self.proof is None:
                    bound = proved(stated, best.loss, gap, solver.proof())
        return best.with_facts(
            method=solver.method,
            bound=bound,
            stages=tuple(self.seconds.items()),
            details={
                **best.details,
                "stopped": self.stopped,
                "iterations": solver.iterations,
                "edges": solver.edges,
                "backend": solver.backend,
                "trace": tuple(self.trace),
                **solver.facts(),
            },
        )


PROOF_GAP = 1e-6
"""Where no gap is asked for: a hundredth of it is what a bound may give away for a proof."""


def certify(solver: Solver, budget: Budget, progress: Report | None = None) -> Standing:
    """Run a solver until the budget's gap is certified, or its time or iterations are over, or it
    is interrupted; whatever ends it, the best certified table is at hand."""
    return Standing(solver, budget, progress).run()


def next_check(
    seen: Sequence[tuple[int, float]], wanted: float, tuning: Tuning
) -> tuple[int, bool]:
    """At how many iterations to look again, and whether that should be the end.

    The gap is taken to go on falling as a power of the iterations, as it did between the last two
    checks; no check is put off beyond `growth` times the iterations so far, nor, where little is
    missing, beyond (gap / wanted)^2 times them: a look costs less than going too far.
    """
    iterations, gap = seen[-1]
    next_step = iterations + tuning.step
    furthest = max(int(tuning.growth * iterations), next_step)
    if len(seen) < 2 or not 0 < wanted < gap:
        return furthest, False
    later = tuning.later * iterations
    missed = min(gap / wanted, tuning.growth) ** 2
    furthest = min(furthest, max(int(later * min(missed, tuning.growth)), next_step))
    earlier, before = seen[-2]
    if not (gap < before < math.inf and earlier < iterations):
        return furthest, False
    power = math.log(before / gap) / math.log(iterations / earlier)
    expected = later * math.exp(min(math.log(gap / wanted) / power, 50.0))
    return int(min(furthest, max(expected, next_step))), expected <= furthest
