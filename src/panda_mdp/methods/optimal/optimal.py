"""The best epsilon-mDP table of the whole domain, with proof of how good and how private it is.

`solver_for` chooses the solver: the first-order ones, on the CPU's cores (numba) or on accelerators
(JAX), as the loop of `methods/certify.py` asks them, or an exact LP where the problem is small.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray
from panda_mdp.base.floored import FlooredRows
from panda_mdp.base.threads import threads_lost
from panda_mdp.compute.closure import Closure, closure_of
from panda_mdp.compute.pairs import MEMORY_FULL, Backend, accelerator, has_numba
from panda_mdp.errors import (
    GapWarning,
    MethodError,
    MissingDependencyError,
    Stopped,
    TimeLimitError,
)
from panda_mdp.loss import MOST_STORED, DistanceLoss
from panda_mdp.methods.adjust import remap, rows_of
from panda_mdp.methods.certify import Budget, Report, Solver, Standing, TableSolver, certify
from panda_mdp.methods.optimal.graph_solver import CpuSolver, GraphSolver
from panda_mdp.methods.optimal.lp import SmallLp
from panda_mdp.methods.optimal.program import (
    TILING,
    Graph,
    Tiling,
    TilingTuning,
    broken_pairs,
    centre_bound,
    centre_proof,
    constraint_graph,
    free_bound,
    free_proof,
    middle,
    missing,
    tiling_for,
    warm_start,
)
from panda_mdp.methods.optimal.stars import MOST_DENSE, open_with_stars
from panda_mdp.privacy.quantise import TOTAL, estimated_loss
from panda_mdp.problem import Problem, loss_blocks
from panda_mdp.space.metrics import Euclidean
from panda_mdp.table.bound import Multipliers, Proved
from panda_mdp.table.mechanism import FLOOR_SHARE, FLOOR_WORTH, Mechanism, floor_under

MOST_ROWS = 16_000
"""Inequalities of an LP that is taken as small: half a second on one core."""
MOST_RECORDS = 64
OPEN_MARGIN = 1e-6
"""Of epsilon: what distances and logarithms may be off by, and far more."""
FLOORS = ((1e-4, FLOOR_SHARE), (1e-3, FLOOR_WORTH))
"""Of the gap: what the floor may take of a row and what it may cost of the loss, if that is more
than it takes anyway. The higher it is the fewer records can be at odds."""
UNUSED_SHARE = 1e-9
"""Outputs to which all records together give less than this much of a row are left out."""
MOST_KNOWN = 3
"""Pairs of an earlier proof that the graph takes in, as multiples of its own."""


class Engine:
    """Makes the solver and the closure of one machine."""

    name: str
    note: str
    """What takes its time before the first check."""
    audit: Backend | None = None
    """What computes the audits of this machine's tables; the default one where None."""
    extends_always: bool = False
    """Whether looking for pairs costs little beside iterating: then the graph is extended at every
    check, and not only where the bound has slowed down."""

    def __init__(self, tiling: TilingTuning = TILING) -> None:
        self.tiling = tiling

    def closure(self, problem: Problem) -> Closure:
        """What closes tables of the problem over all pairs."""
        return closure_of(problem.domain)

    def solver(self, problem: Problem, graph: Graph, start: FloatArray | None) -> GraphSolver:
        """What iterates on the problem, from a table or a start of its own."""
        host = self.name == "cpu"
        if host or problem.domain.metric.generating_pairs is None:
            tiling = tiling_for(problem, graph, self.tiling, host=host)
        else:
            # Tables under path metrics are closed as a whole.
            tiling = Tiling.whole(problem)
        if tiling.one and isinstance(problem.loss, DistanceLoss):
            problem = replace(problem, loss=problem.loss.stored())
        if start is None and tiling.one:
            start = warm_start(problem, graph)
        return self._iterates(problem, graph, start, tiling=tiling, tuning=self.tiling)

    @property
    def _iterates(self) -> Callable[..., GraphSolver]:
        """What iterates on tiles of a problem on this machine."""
        return CpuSolver


class CpuEngine(Engine):
    """All cores of this machine, compiled by numba."""

    name = "cpu"
    note = "first iterations; where nothing was compiled yet, 10 s"
    extends_always = True

    def __init__(self, tiling: TilingTuning = TILING) -> None:
        super().__init__(tiling)
        if not has_numba():
            raise MissingDependencyError(
                "optimal needs numba on the CPU: pip install numba, or use backend='jax'"
            )
        if threads_lost():
            raise MethodError(
                "this process was forked from one whose compiled threads were running, and cannot "
                "use them; start it with multiprocessing's 'spawn' or 'forkserver'"
            )


class JaxEngine(Engine):
    """The first device that JAX sees."""

    name = "jax"
    note = "first iterations; where nothing was compiled yet, 20 s"
    audit = "jax"

    def __init__(self, tiling: TilingTuning = TILING) -> None:
        super().__init__(tiling)
        try:
            from panda_mdp.compute.jax.device import waking
        except ImportError as error:
            raise MissingDependencyError(
                "backend='jax' needs JAX: pip install 'panda-mdp[gpu]', or pip install jax"
            ) from error
        self._awake = waking()

    def closure(self, problem: Problem) -> Closure:
        from panda_mdp.compute.jax.closure import closure_for

        # It wakes up while the host builds the graph.
        self._awake()
        return closure_for(problem.domain, problem.outputs_count)

    @property
    def _iterates(self) -> Callable[..., GraphSolver]:
        from panda_mdp.methods.optimal.jax_solver import JaxSolver

        self._awake()
        return JaxSolver


Machine: TypeAlias = Literal["auto", "cpu", "jax"] | Engine
"""What solves: the name of an engine, or one."""


def choose(machine: Machine) -> Engine:
    """The engine of a name; "auto" takes an accelerator where JAX sees one, else the CPU."""
    if isinstance(machine, Engine):
        return machine
    if machine not in ("auto", "cpu", "jax"):
        raise MethodError(
            f"backend is {machine!r}; it must be 'auto', 'cpu', 'jax' or an engine; "
            "solve_lp hands the LP to HiGHS"
        )
    if machine == "jax" or (machine == "auto" and accelerator()):
        return JaxEngine()
    return CpuEngine()


class FirstOrder(TableSolver):
    """The first-order method of one machine, on the dense table or on tiles of it."""

    def __init__(
        self,
        problem: Problem,
        engine: Engine,
        initial: FloatArray | None = None,
        graph: Graph | None = None,
        proof: Proved | None = None,
    ) -> None:
        self.problem = problem
        self.engine = engine
        self.initial = initial
        known = None if proof is None else proof.multipliers
        self.known = known if isinstance(known, Multipliers) else None
        """Of a solve before, to begin with, and the epsilon that they are for."""
        self.known_epsilon = problem.epsilon if proof is None else proof.problem.epsilon
        self.graph = graph
        """To begin with; None for the one of near pairs."""
        if self.known is not None:
            self.tuning = replace(self.tuning, first_check=self.tuning.step)
        self.backend = engine.name
        self.audit = engine.audit
        self.finish: Any = None
        """What makes sparse tables, where there are many tiles."""
        self.iterates: Any = None
        """What iterates, from the first iteration on."""
        self._opening = -math.inf
        self._risen = False
        """The bound that needs no iteration, and whether one is above it."""

    def begin(self, standing: Standing) -> None:
        problem = self.problem
        # Without any constraint each record takes its cheapest output.
        opening = max(free_bound(problem), centre_bound(problem, middle(problem.domain)))
        self._opening = self._sound(opening)
        standing.raise_bound(self._opening)
        if standing.missing(problem.mean_loss.min()) <= 0:
            with standing.stage("audit"):
                standing.offer(self.last_resort(standing))
            return
        if has_peaks(problem):
            closing = self.engine.closure if self.engine.name == "jax" else None
            try:
                start = open_with_stars(problem, standing, closing)
                if standing.missing(standing.value) <= 0:
                    return
                if standing.late():
                    # The graph alone would take as long again where records are many.
                    raise TimeLimitError("the time limit is over before the first iteration")
            except TimeLimitError:
                standing.offer(self.last_resort(standing))
                raise
            self.initial = start if self.initial is None else self.initial
        with standing.stage("graph"):
            graph = self.graph
            # The host's part first: an accelerator may still be waking up.
            if graph is None:
                graph = constraint_graph(problem.domain, problem.epsilon)
                if graph.count == 0:
                    # Epsilon hides nothing, or next to it.
                    standing.offer(self.made(cheapest_rows(problem)))
                    if standing.missing(standing.value) <= 0:
                        return
            if self.known is not None:
                more = missing(problem.domain, graph, self.known.pairs, problem.epsilon)
                if more.count <= MOST_KNOWN * graph.count:
                    graph = graph.join(more.ends, more.length)
                else:
                    # A proof by columns names all pairs: a part of it is no start.
                    self.known = None
            self.closure = self.engine.closure(problem)
            self.iterates = self.engine.solver(problem, graph, self.initial)
            if self.known is not None:
                self.iterates.take_over(self.known, self.known_epsilon)
            self.edges = graph.count
        many = problem.outputs_count >= self.engine.tiling.least_outputs
        if many and not self.iterates.tiling.one:
            self.finish = self.iterates.finish
            self.tuning = replace(
                self.tuning, markup=self.finish.markup, certify_iterations=self.finish.iterations
            )
        self._gap = standing.budget.gap or 0.0
        standing.report(self.engine.note)

    def _sound(self, bound: float) -> float:
        """Losses that are off by a share move the optimum by no more than that."""
        return bound * (1 - self.problem.loss_error)

    def advance(self, target: int, standing: Standing) -> None:
        while self.iterates.iterations < target and not standing.late():
            self.iterates.advance(self.tuning.step)
        self.iterations = self.iterates.iterations
        self.edges = self.iterates.graph.count

    def bound(self) -> float:
        bound = self._sound(self.iterates.bound())
        self._risen = self._risen or bound > self._opening
        return bound

    def proof(self) -> Proved | None:
        problem = self.problem
        # Of computed losses on tiles a proof names few, and whoever reads it looks at those.
        sparse = self._risen and self.finish and self.iterates.on_host
        if problem.loss.size > MOST_STORED and not sparse:
            return None
        if self._risen:
            # Of what was asked for: losses of a single tile are stored for the iterations.
            return Proved(problem, self.iterates.proof().multipliers)
        opening = free_proof(problem), centre_proof(problem, middle(problem.domain))
        return max(opening, key=lambda proof: proof.value)

    def candidate(self) -> Any:
        if self.finish:
            return self.finish.candidate(self.iterates)
        return self.iterates.table()

    def estimate(self, candidate: Any) -> float:
        """The loss after one round of the repair."""
        if self.finish:
            return self.finish.estimate(candidate)
        problem = self.problem
        floor = self.floor(candidate)
        cost = problem.weighted_loss
        return estimated_loss(self.closure, candidate, problem.epsilon, floor, cost, problem.prior)

    def floor(self, candidate: Any) -> FloatArray:
        """The floor under a table's outputs; 0 under those that it hardly uses, and leaves out."""
        peaks, loss = self.closure.survey(candidate, self.problem.weighted_loss)
        used = peaks > UNUSED_SHARE / len(peaks)
        share, worth = (max(s * self._gap, least) for s, least in FLOORS)
        return floor_under(self.problem, used, loss, share, worth)

    def certified(self, candidate: Any, standing: Standing) -> Mechanism:
        if not self.finish:
            return super().certified(candidate, standing)
        with standing.stage("repair"):
            return self.finish.certify(candidate, standing)

    def extend(self, candidate: Any, standing: Standing) -> None:
        wanted = standing.missing(min(standing.guess, standing.value))
        if self.engine.extends_always or standing.risen < wanted:
            # Where the bound has come to rest the graph is what limits it.
            limited = standing.bound > 0 and standing.risen < 0.25 * wanted
            most = pairs_to_add(wanted / standing.bound) if limited else 2
            z = candidate.z if self.finish else self.closure.start(candidate)
            closure = candidate.closure if self.finish else self.closure
            more = broken_pairs(closure, self.iterates.graph, z, self.problem.epsilon, most)
            if more.count:
                self.iterates.extend(more)
        self.iterates.grow(candidate if self.finish else None)

    def fallbacks(self, standing: Standing) -> Iterator[Mechanism]:
        dense = not self.finish
        if standing.best is not None and dense and standing.stopped is not Stopped.INTERRUPTED:
            yield remap(standing.best)
        if standing.value > self.problem.mean_loss.min():
            yield self.last_resort(standing)
        if standing.stopped is Stopped.NEGLIGIBLE and self.iterates is not None and dense:
            # Next to an optimum of 0 a record's cheapest output is nearer than single precision.
            loss = self.problem.loss
            cheapest = np.arange(loss.shape[1]) == loss.argmin(axis=1)[:, None]
            yield self.certified(cheapest.astype(float), standing)


def cheapest_rows(problem: Problem) -> FlooredRows:
    """Every record reports its cheapest output but for what epsilon allows nobody to leave out:
    of every output that is some record's, so many units that no two records differ by more.

    Where the nearest records may differ by more than 2^62, that is one unit. An output that is
    possible for one record is possible for all.
    """
    least = problem.domain.neighbours(1)[1].min() * (1 - OPEN_MARGIN)
    unit = max(1, math.ceil(TOTAL * math.exp(-problem.epsilon * least)))
    cheapest = [block.argmin(axis=1) for _, block in loss_blocks(problem.loss)]
    best = np.concatenate(cheapest).astype(np.int32)
    used = np.unique(best)
    floor = np.zeros(problem.outputs_count, np.int64)
    floor[used] = unit
    rest = np.full(problem.size, TOTAL - unit * (len(used) - 1))
    return FlooredRows(floor, np.arange(problem.size + 1), best, rest)


def has_peaks(problem: Problem) -> bool:
    """Whether every record may be reported, and not in a plane: there peaks alone are rarely best,
    and tiles of near outputs are."""
    records = problem.reports.records
    metric = problem.domain.metric
    held = problem.size <= MOST_DENSE or isinstance(metric, Euclidean)
    return held and records is not None and len(records) == problem.size and metric.plane is None


def pairs_to_add(wanted: float) -> int:
    """How many pairs a record may add at a time: the farther from the gap, the more."""
    return 16 if wanted > 0.1 else 6 if wanted > 0.03 else 2


def is_small(problem: Problem) -> bool:
    """Whether the LP over all pairs is small enough to be solved as it is."""
    size = problem.size
    return size <= MOST_RECORDS and size * (size - 1) * problem.outputs_count <= MOST_ROWS


def solver_for(
    problem: Problem,
    machine: Machine = "auto",
    initial: FloatArray | None = None,
    proof: Proved | None = None,
) -> Solver:
    """What solves a problem on a machine: small ones as one LP where the choice is free."""
    if isinstance(machine, str) and machine == "auto" and is_small(problem):
        return SmallLp(problem)
    return FirstOrder(problem, choose(machine), initial, proof=proof)


def optimal(
    problem: Problem,
    gap: float = 0.01,
    *,
    backend: Machine = "auto",
    time_limit: float | None = None,
    initial: Mechanism | npt.ArrayLike | None = None,
    progress: Report | None = None,
) -> Mechanism:
    """The table of least expected loss among all epsilon-mDP tables, to a certified gap.

        min sum_x p_x c_xy z_xy   s.t.   sum_y z_xy = 1,  z_xy <= exp(epsilon d(x, x')) z_x'y

    over all records x, x' and outputs y: the paper's LP. Solved over a sparse constraint graph by a
    structured first-order method, bounded from below in float64 with all rounding accounted for,
    then closed over all pairs and audited on the final integers. Ends when the loss of the private
    table is within `gap` of the lower bound; `time_limit` (seconds) or an interrupt returns the
    best certified table so far. Pairs that the graph lacks are added while it runs, if they matter.

    Guarantee: epsilon-mDP over all pairs, by audit; loss <= (1 + gap) optimum where
    `details["stopped"]` is "gap reached", and loss <= (1 + mechanism.gap) optimum always.
    A gap that is not reached although nobody ended the solve is a `GapWarning`.

    `backend`: "cpu" is the compiled solver on all cores; "jax" runs on the first accelerator that
    JAX sees; "auto" solves small problems as one LP over all pairs (lp.py) and takes an accelerator
    for others where there is one.
    `initial` is what to start from: a K x m table, or a solved mechanism of the same records and
    outputs, whose multipliers are taken over too (on the CPU): another epsilon, prior or loss
    that is not far from the first then takes a part of its time. `progress` is called with a
    `Progress` at every check: `progress=print` shows them. Memory grows as (edges + records) x
    outputs.

    `solve_lp` hands the same LP to HiGHS; `second_objective`, `limit_attacker` and
    `optimal_everywhere` ask for more than the least loss.

    >>> from panda_mdp import Domain
    >>> domain = Domain.from_vectors([[0.0], [1.0], [2.0]])
    >>> problem = Problem(domain, [0, 1, 2], abs(domain.distances()), epsilon=1.0)
    >>> mechanism = optimal(problem)
    >>> mechanism.audit.holds, mechanism.gap <= 0.01
    (True, True)
    """
    budget = Budget(gap, time_limit)
    rows: Any = getattr(initial, "matrix", initial)
    table = None if rows is None else rows_of(problem, rows, "initial")
    known = getattr(initial, "bound", None)
    proof = known if isinstance(known, Proved) else None
    if proof is not None and proof.problem.domain.fingerprint != problem.domain.fingerprint:
        # What records elsewhere lend each other says nothing here; their rows are a table.
        proof = None
    solver = solver_for(problem, backend, table, proof)
    try:
        mechanism = certify(solver, budget, progress).mechanism()
    except RuntimeError as error:
        if MEMORY_FULL not in str(error):
            raise
        raise MethodError(
            f"{problem.size} records x {problem.outputs_count} outputs do not fit the memory "
            "of the device; use fewer outputs or records, or backend='cpu'"
        ) from error
    stopped: Stopped = mechanism.details["stopped"]
    if stopped is not Stopped.GAP_REACHED and not stopped.by_request:
        msg = (
            f"the certified gap is {mechanism.gap:.3g}, {gap:g} was asked for ({stopped}): "
            f"{stopped.explanation}"
        )
        warnings.warn(msg, GapWarning, stacklevel=2)
    return mechanism
