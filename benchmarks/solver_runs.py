"""The solvers, each given the same problem and asked for a table; all are certified alike."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec

import numpy as np
from scipy import sparse
from solver_cases import Case, build
from solver_gpu import PEERS, gpu_missing, ours_closer, ours_gpu
from solver_judge import Clock, GraphLp, Row, certified, closed, described

import panda_mdp as pm
from panda_mdp.base.processes import forget_peak, peak_mb
from panda_mdp.compute.closure import Closure
from panda_mdp.methods.optimal.lp import solve_lp
from panda_mdp.methods.optimal.program import MAX_EXPONENT
from panda_mdp.privacy.quantise import repair

TOLERANCES = (1e-3, 1e-4, 1e-6)
"""Of feasibility and of the relative gap, for the iterative methods: the first that leads to the
gap counts, as if its user had known it."""


def ours(problem: pm.Problem, gap: float, limit: float) -> Row:
    """`optimal` on the CPU."""
    return described(pm.optimal(problem, gap=gap, backend="cpu", time_limit=limit))


def highs(algorithm: str) -> Callable[[pm.Problem, float, float], Row]:
    """HiGHS on the LP of the same constraint graph."""

    def run(problem: pm.Problem, limit: float, tolerance: float | None) -> Row:
        return described(
            solve_lp(problem, "graph", algorithm, time_limit=limit, tolerance=tolerance)
        )

    if algorithm == "simplex":
        return lambda problem, gap, limit: run(problem, limit, None)
    return loosest(run)


def loosest(
    run: Callable[[pm.Problem, float, float], Row],
) -> Callable[[pm.Problem, float, float], Row]:
    """A solver at the loosest tolerance that leads to the gap; its time is that of this run."""

    def ladder(problem: pm.Problem, gap: float, limit: float) -> Row:
        best: Row | None = None
        for tolerance in TOLERANCES:
            start = time.perf_counter()
            row = run(problem, limit, tolerance)
            row["seconds"] = time.perf_counter() - start
            row["tolerance"] = tolerance
            if best is not None and excess(row) > 0.95 * excess(best):
                # What is left lies in the graph, not in the solver.
                break
            best = row
            if excess(row) <= gap or ran_out(row["stopped"]):
                break
        return best or {}

    return ladder


def excess(row: Row) -> float:
    """The gap of a row to its own bound."""
    bound = row["lower_bound"]
    return row["loss"] / bound - 1 if bound else np.inf


def ran_out(stopped: str) -> bool:
    """Whether a solver was ended by the clock, or gave up."""
    said = stopped.lower()
    return ("time" in said and "limit" in said) or "error" in said


def ortools_pdlp(problem: pm.Problem, limit: float, tolerance: float) -> Row:
    """OR-tools PDLP on the LP of the same constraint graph."""
    from ortools.pdlp import solve_log_pb2, solvers_pb2
    from ortools.pdlp.python import pdlp

    clock, size = Clock(), problem.size
    graph_lp = GraphLp.of(problem)
    lp = pdlp.QuadraticProgram()
    lp.objective_vector = graph_lp.cost
    lp.variable_lower_bounds = np.zeros(len(graph_lp.cost))
    lp.variable_upper_bounds = np.ones(len(graph_lp.cost))
    lp.constraint_matrix = sparse.csc_matrix(sparse.vstack([graph_lp.sums, graph_lp.private]))
    count = graph_lp.private.shape[0]
    lp.constraint_lower_bounds = np.concatenate([np.ones(size), np.full(count, -np.inf)])
    lp.constraint_upper_bounds = np.concatenate([np.ones(size), np.zeros(count)])
    clock("build")
    options = solvers_pb2.PrimalDualHybridGradientParams()
    criteria = options.termination_criteria
    criteria.simple_optimality_criteria.eps_optimal_relative = tolerance
    criteria.simple_optimality_criteria.eps_optimal_absolute = tolerance
    criteria.time_sec_limit = limit
    options.num_threads = os.cpu_count() or 1
    result = pdlp.primal_dual_hybrid_gradient(lp, options)
    clock("solve")
    steps = int(result.solve_log.iteration_count)
    reason = solve_log_pb2.TerminationReason.Name(result.solve_log.termination_reason)
    table = graph_lp.table(result.primal_solution)
    bound = graph_lp.bound(np.asarray(result.dual_solution)[size:])
    clock("bound")
    return certified(problem, table, bound, clock, stopped=reason, iterations=steps)


def qif(problem: pm.Problem, gap: float, limit: float) -> Row:
    """qif's LP over all pairs. It gives no multipliers, so it has no bound of its own."""
    import qif as library

    clock = Clock()
    exponent = problem.epsilon * problem.domain.distances()
    loss = problem.loss
    table = np.asarray(
        library.mechanism.d_privacy.min_loss_given_d(
            problem.prior,
            problem.outputs_count,
            lambda i, j: float(exponent[i, j]),
            lambda i, y: float(loss[i, y]),
            # As for the others: longer pairs bind nothing, and no LP solver can take them.
            inf=MAX_EXPONENT,
        )
    )
    clock("solve")
    if table.shape != loss.shape:
        msg = f"qif returned a table of shape {table.shape}"
        raise RuntimeError(msg)
    return certified(problem, table, None, clock, stopped="solved", iterations=None)


CPU: dict[str, Callable[[pm.Problem, float, float], Row]] = {
    "panda-mdp": ours,
    "HiGHS ipm": highs("ipm"),
    "HiGHS simplex": highs("simplex"),
    "HiGHS pdlp": highs("pdlp"),
    "OR-tools PDLP": loosest(ortools_pdlp),
    "qif": qif,
}
GPU = {"panda-mdp, GPU": ours_gpu, "panda-mdp, GPU, gap / 5": ours_closer, **PEERS}
SOLVERS = CPU | GPU
NEEDS = {"OR-tools PDLP": "ortools", "qif": "qif"}


def missing(solver: str) -> str | None:
    """Why a solver cannot run here, if it cannot."""
    if solver in GPU:
        return gpu_missing(solver)
    package = NEEDS.get(solver, "highspy" if solver.startswith("HiGHS") else "numba")
    return None if find_spec(package) else f"{package} is not installed (pip install {package})"


TINY = Case("grid", "K", 16, 16)
SHORT, SHORT_GPU, TIMES = 15.0, 2.0, 3
"""Seconds below which a cell is run so many times; its median counts."""


def prepared(request: tuple[str, Case, float, float]) -> Callable[[], Row]:
    """One solver on one case, compiled code warmed up, for a process of its own."""
    solver, case, gap, limit = request
    compiled = warm_up()
    problem = build(case)
    if solver in GPU:
        # The device's own start; and of ours what is compiled for the problem's shape, which MPAX
        # puts aside itself.
        start = time.perf_counter()
        SOLVERS[solver](build(TINY) if solver in PEERS else problem, gap, limit)
        if solver in PEERS:
            # What closes large tables is compiled when the first of them leaks.
            closed(problem, pm.loss_exponential(problem.with_epsilon(2 * problem.epsilon)).matrix)
        compiled += time.perf_counter() - start
    return lambda: {"compile_seconds": compiled, **measured(solver, problem, gap, limit)}


@cache
def warm_up() -> float:
    """Seconds that it took to compile or load what every cell uses."""
    start = time.perf_counter()
    warm = build(Case("grid", "K", 64, 64))
    ours(warm, 0.05, 60.0)
    repair(Closure(warm.domain), np.full((64, 64), 1 / 64), warm.epsilon)
    city = pm.Domain.from_points([41.9, 41.91, 41.92, 41.93], [12.4, 12.5, 12.6, 12.7])
    small = pm.Problem(city, [0, 1], city.distances(None, [0, 1]), 0.1)
    ours(small, 0.05, 60.0)
    return time.perf_counter() - start


def measured(solver: str, problem: pm.Problem, gap: float, limit: float) -> Row:
    """The median of its runs, with the memory that they took, or what went wrong."""
    forget_peak()
    before = peak_mb()
    try:
        rows = [timed(solver, problem, gap, limit)]
        short = SHORT_GPU if solver in GPU else SHORT
        while rows[0]["seconds"] < short and len(rows) < TIMES:
            rows.append(timed(solver, problem, gap, limit))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    row = sorted(rows, key=lambda one: one["seconds"])[len(rows) // 2]
    peak = peak_mb()
    memory = {"peak_mb": peak, "solver_mb": peak - before}
    return {"runs": len(rows), **memory, "epsilon": problem.epsilon, **row}


def timed(solver: str, problem: pm.Problem, gap: float, limit: float) -> Row:
    """One run with its seconds."""
    start = time.perf_counter()
    row = SOLVERS[solver](problem, gap, limit)
    seconds = row.pop("seconds", time.perf_counter() - start)
    # What `solve_lp` prepares for the case that the time runs out is not HiGHS's.
    return {**row, "seconds": seconds - row["stages"].get("loss exponential", 0.0)}
