"""The loop around the solver: iterate, bound, close, audit, keep the best, extend the graph."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.base.floored import MOST_DENSE
from panda_mdp.compute.closure import Closure
from panda_mdp.compute.status import Stopped
from panda_mdp.methods.optimal.backends import Engine
from panda_mdp.methods.optimal.dual import (
    centre_bound,
    centre_proof,
    free_bound,
    free_proof,
    middle,
    proved,
)
from panda_mdp.methods.optimal.graph import all_pairs, constraint_graph, missing_pairs
from panda_mdp.methods.optimal.halpern import CHECK, Halpern
from panda_mdp.methods.optimal.lifted import Lifted
from panda_mdp.methods.optimal.progress import Progress
from panda_mdp.methods.optimal.starts import one_floor, one_row
from panda_mdp.methods.remap import remap
from panda_mdp.privacy.repair import estimated_loss, repair
from panda_mdp.problem import Problem
from panda_mdp.table.bound import MOST_MULTIPLIERS, BoundProof
from panda_mdp.table.mechanism import Mechanism
from panda_mdp.table.release import FLOOR_SHARE, FLOOR_WORTH, floor_under, release

if TYPE_CHECKING:
    from panda_mdp.methods.optimal.lifted_finish import Candidate, LiftedFinish

FIRST_CHECK = 120
GROWTH = 1.4
"""Most by which the iterations grow from one check to the next."""
LATER = 1.03
"""A check is placed a little behind the expected end: one in vain costs more than a few steps."""
PATIENCE = 8
"""Checks without progress after which the solver is taken to have reached its precision."""
ESTIMATES_WORTH = 24
"""Estimates that certifying takes about as long as, before it was timed."""
MARKUP, MOST_MARKUP = 0.06, 2.0
"""The same in loss: by which share of the gap at the estimate the whole repair costs more, at first
and at most. Of a table far from its end it may cost anything, which says nothing of later ones."""
ABSOLUTE_TOLERANCE = 1e-7
"""Of the loss that ignores the record: a difference below it is negligible."""
MOST_ITERATIONS = 100_000
CERTIFY_ITERATIONS = 960
"""Iterations after which a table is certified on the way, and then whenever they have doubled. Work
is counted, not time: the same problem ends with the same table."""
FLOORS = ((1e-4, FLOOR_SHARE), (1e-3, FLOOR_WORTH))
"""Of the gap: what the floor may take of a row and what it may cost of the loss, if that is more
than it takes anyway. The higher it is the fewer records can be at odds."""
UNUSED_SHARE = 1e-9
"""Outputs to which all records together give less than this much of a row are left out."""


@dataclass
class Solve:
    """One run. `best` is always a mechanism whose audit holds, `bound` always a valid bound."""

    problem: Problem
    gap: float
    engine: Engine
    time_limit: float | None = None
    progress: Callable[[Progress], None] | None = None
    all_pairs: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    trace: list[tuple[float, int, float, float]] = field(default_factory=list)
    best: Mechanism | None = None
    bound: float = 0.0
    iterations: int = 0
    edges: int = 0
    certified_iterations: int = CERTIFY_ITERATIONS // 2
    certify_seconds: float = 0.0
    timed: bool = False
    """Whether that is known: what runs for the first time may have been compiled meanwhile."""
    markup: float = MARKUP
    """What the whole repair costs beyond the estimate, as a share of its gap, when last seen."""
    proof: BoundProof | None = None
    """Of `bound`, where the solver has one."""
    closure: Closure | None = None
    candidate: FloatArray | Candidate | None = None
    finish: LiftedFinish | None = None

    def run(self, initial: FloatArray | None = None) -> Mechanism:
        """Solve to the gap, or to the time limit, or until interrupted."""
        self.began = time.perf_counter()
        problem = self.problem
        # Without any constraint each record takes its cheapest output.
        self._raise_bound(max(free_bound(problem), centre_bound(problem, middle(problem))))
        try:
            stopped = self._loop(initial)
            if stopped is not Stopped.GAP_REACHED and self.best and self.finish is None:
                with _Stage(self, "audit"):
                    self._keep(remap(self.best))
        except KeyboardInterrupt:
            stopped = Stopped.INTERRUPTED
            # A second interrupt while the last table is being certified ends it at once.
            if self.closure is not None and self.candidate is not None:
                self._certify(self.candidate)
        if self._loss() > self.ignorant:
            self._offer_one_row()
        reached = self._reached() and not stopped.by_request
        return self._result(Stopped.GAP_REACHED if reached else stopped)

    def _loop(self, initial: FloatArray | None) -> Stopped:
        problem = self.problem
        if self._open(self.ignorant) <= 0:
            self._offer_one_row()
            return self._ended()
        with _Stage(self, "graph"):
            build = all_pairs if self.all_pairs else constraint_graph
            # The host's part first: an accelerator may still be waking up.
            graph = build(problem.domain, problem.epsilon)
            closure = self.closure = self.engine.closure(problem)
            solver = self.engine.solver(problem, graph, initial)
            finish = self.finish = self.engine.finish(problem, solver)
            if finish is not None:
                self.certified_iterations = finish.iterations // 2
                self.markup = finish.markup
        note = self.engine.note()
        if note and self.progress is not None:
            self.progress(Progress(0.0, 0, self._loss(), self.bound, graph.count, note))
        target, idle = FIRST_CHECK, 0
        seen: list[tuple[int, float]] = []
        while True:
            best_before, bound_before = self._loss(), self.bound
            with _Stage(self, "solve"):
                while solver.iterations < target and not self._hurry():
                    solver.advance(CHECK)
            self.iterations, self.edges = solver.iterations, solver.graph.count
            with _Stage(self, "bound"):
                self._raise_bound(solver.bound(), solver)
            with _Stage(self, "repair"):
                matrix: FloatArray | Candidate
                if isinstance(solver, Halpern):
                    matrix = solver.table()
                else:
                    matrix = solver.matrix() if finish is None else finish.candidate(solver)
                self.candidate = matrix
                first = self._estimate(matrix)
            guess = first + self.markup * max(0.0, first - self.bound)
            last = self._hurry()
            seen.append((solver.iterations, guess / self.bound - 1 if self.bound > 0 else np.inf))
            target, in_sight = next_check(seen, self.gap)
            if self._open(guess) <= 0 or last or (self._due(guess) and not in_sight):
                loss = self._certify(matrix, first)
                if guess > self.bound:
                    # Earlier looks were as wrong about what the whole repair costs.
                    off = (loss - self.bound) / (guess - self.bound)
                    seen = [(count, off * gap) for count, gap in seen]
                    target, _ = next_check(seen, self.gap)
            self._report()
            if self._open(self._loss()) <= 0:
                return self._ended()
            if last:
                return Stopped.TIME_LIMIT
            if solver.iterations >= MOST_ITERATIONS:
                self._certify(matrix)
                return Stopped.ITERATIONS
            risen = self.bound - bound_before
            wanted = self._open(min(guess, self._loss()))
            if not self.all_pairs and (self.engine.extends_always or risen < wanted):
                # Where the bound has come to rest the graph is what limits it.
                limited = self.bound > 0 and risen < 0.25 * wanted
                most = pairs_to_add(wanted / self.bound) if limited else 2
                with _Stage(self, "graph"):
                    if finish is None:
                        table = cast("FloatArray", matrix)
                        more = missing_pairs(closure, solver.graph, table, problem.epsilon, most)
                    else:
                        more = finish.missing(solver.graph, cast("Candidate", matrix), most)
                    if more.count:
                        solver.extend(more)
            if isinstance(solver, Lifted):
                with _Stage(self, "graph"):
                    solver.grow(None if finish is None else matrix)
            moved = self._loss() < best_before * (1 - 1e-6) or risen > 1e-6 * self.bound
            idle = 0 if moved else idle + 1
            if idle >= PATIENCE:
                self._certify(matrix)
                return Stopped.PRECISION_REACHED

    def _raise_bound(self, bound: float, solver: Halpern | Lifted | None = None) -> None:
        # Losses that are off by a share move the optimum by no more than that.
        bound *= 1 - self.problem.loss_error
        if bound > self.bound:
            self.bound, self.proof = bound, None if solver is None else solver.proof()

    def _estimate(self, matrix: FloatArray | Candidate) -> float:
        """The loss after one round of the repair, and from its time what a whole one takes."""
        if self.closure is None:
            return np.inf
        start = time.perf_counter()
        if self.finish is None:
            table, problem = cast("FloatArray", matrix), self.problem
            loss = estimated_loss(
                self.closure,
                table,
                problem.epsilon,
                self._floor(table),
                problem.weighted_loss,
                problem.prior,
            )
        else:
            loss = self.finish.estimate(cast("Candidate", matrix))
        if self.best is None:
            compiles = self.engine.compiles or self.finish is not None
            self.timed = self.certify_seconds > 0 or not compiles
            self.certify_seconds = ESTIMATES_WORTH * (time.perf_counter() - start)
        return loss

    def _floor(self, matrix: FloatArray) -> FloatArray:
        """The floor under a table's outputs; 0 under those that it hardly uses, and leaves out."""
        if self.closure is None:
            return np.zeros(self.problem.outputs_count)
        peaks, loss = self.closure.survey(matrix, self.problem.weighted_loss)
        used = peaks > UNUSED_SHARE / len(peaks)
        share, worth = (max(s * self.gap, least) for s, least in FLOORS)
        return floor_under(self.problem, used, loss, share, worth)

    def _due(self, guess: float) -> bool:
        """Whether it is time to certify on the way: it costs little, and much is to be had."""
        cheap = self.iterations >= 2 * self.certified_iterations
        return cheap and guess < 0.98 * self._loss()

    def _certify(self, matrix: FloatArray | Candidate, first: float = 0.0) -> float:
        """Repair a table, audit it on its integers, and keep it if it is the best so far; its loss.

        `first` is the loss after the repair's first round, where it is known.
        """
        if self.closure is None:
            return np.inf
        start = time.perf_counter()
        if self.finish is None:
            with _Stage(self, "repair"):
                table = cast("FloatArray", matrix)
                floor = self._floor(table)
                repaired = repair(self.closure, table, self.problem.epsilon, floor=floor)
            with _Stage(self, "audit"):
                loss = self._offer(
                    repaired.matrix,
                    {"closure_rounds": repaired.rounds, "common_share": repaired.common_share},
                )
        else:
            with _Stage(self, "repair"):
                mechanism = self.finish.certify(cast("Candidate", matrix))
            self._keep(mechanism)
            loss = mechanism.loss
        if first > self.bound:
            beyond = (loss - first) / (first - self.bound)
            self.markup = min(max(0.0, beyond), MOST_MARKUP)
        self.certified_iterations = self.iterations
        self.certify_seconds = time.perf_counter() - start
        self.timed = True
        return loss

    def _offer(self, matrix: FloatArray, details: dict[str, float]) -> float:
        mechanism = release(
            self.problem, matrix, method="optimal", details=details, backend=self.engine.audit
        )
        self._keep(mechanism)
        return mechanism.loss

    def _offer_one_row(self) -> None:
        """The best table that ignores the record, over a floor where it would be too large."""
        problem = self.problem
        with _Stage(self, "audit"):
            if problem.size * problem.outputs_count <= MOST_DENSE:
                self._offer(one_row(problem), {})
            else:
                self._keep(Mechanism(problem, one_floor(problem), "optimal"))

    def _keep(self, mechanism: Mechanism) -> None:
        if self.best is None or mechanism.loss < self.best.loss:
            self.best = mechanism

    def _loss(self) -> float:
        return np.inf if self.best is None else self.best.loss

    def _open(self, loss: float) -> float:
        """How far a loss lies beyond what the gap allows, or beyond what is negligible."""
        least = ABSOLUTE_TOLERANCE * self.ignorant
        return loss - self.bound - max(self.gap * self.bound, least)

    @cached_property
    def ignorant(self) -> float:
        """The least loss of a table that ignores the record."""
        return float(self.problem.mean_loss.min())

    def _reached(self) -> bool:
        """Whether the certified gap is at most the one asked for."""
        return self._loss() - self.bound <= self.gap * self.bound

    def _ended(self) -> Stopped:
        return Stopped.GAP_REACHED if self._reached() else Stopped.NEGLIGIBLE

    def _hurry(self) -> bool:
        """Whether there is just time enough left to certify what was reached."""
        if self.time_limit is None:
            return False
        spent = time.perf_counter() - self.began
        needed = 1.5 * self.certify_seconds + 0.02 if self.timed else 0.0
        return self.engine.agree(spent + needed > self.time_limit)

    def _report(self) -> None:
        spent = time.perf_counter() - self.began
        self.trace.append((spent, self.iterations, self._loss(), self.bound))
        if self.progress is not None:
            self.progress(Progress(spent, self.iterations, self._loss(), self.bound, self.edges))

    def _result(self, stopped: Stopped) -> Mechanism:
        best, problem = self.best, self.problem
        if best is None:
            raise KeyboardInterrupt
        proofs = [self.proof]
        if problem.loss.size <= MOST_MULTIPLIERS and self.proof is None:
            proofs = [free_proof(problem), centre_proof(problem, middle(problem))]
        bound, proof = proved(self.bound, best.loss, self.gap, proofs)
        return best.with_facts(
            method="optimal",
            lower_bound=bound,
            proof=proof,
            stages=tuple(self.seconds.items()),
            details={
                **best.details,
                "stopped": stopped,
                "iterations": self.iterations,
                "edges": self.edges,
                "backend": self.engine.name,
                "trace": tuple(self.trace),
            },
        )


class _Stage:
    """Adds the time spent inside to a stage of the run."""

    def __init__(self, run: Solve, name: str) -> None:
        self.run, self.name = run, name

    def __enter__(self) -> None:
        self.start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        spent = time.perf_counter() - self.start
        self.run.seconds[self.name] = self.run.seconds.get(self.name, 0.0) + spent


def next_check(seen: Sequence[tuple[int, float]], wanted: float) -> tuple[int, bool]:
    """At how many iterations to look again, and whether that should be the end.

    The gap is taken to go on falling as a power of the iterations, as it did between the last two
    checks; no check is put off beyond `GROWTH` times the iterations so far, nor, where little is
    missing, beyond (gap / wanted)^2 times them: a look costs less than going too far.
    """
    iterations, gap = seen[-1]
    furthest = max(int(GROWTH * iterations), iterations + CHECK)
    if len(seen) < 2:
        return furthest, False
    if 0 < wanted < gap:
        near = LATER * iterations * min((gap / wanted) ** 2, GROWTH)
        furthest = min(furthest, max(int(near), iterations + CHECK))
    earlier, before = seen[-2]
    if not (0 < wanted < gap < before < np.inf and earlier < iterations):
        return furthest, False
    power = np.log(before / gap) / np.log(iterations / earlier)
    expected = LATER * iterations * np.exp(min(np.log(gap / wanted) / power, 50.0))
    return int(min(furthest, max(expected, iterations + CHECK))), bool(expected <= furthest)


def pairs_to_add(wanted: float) -> int:
    """How many pairs a record may add at a time: the farther from the gap, the more."""
    return 16 if wanted > 0.1 else 6 if wanted > 0.03 else 2
