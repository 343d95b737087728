"""The solvers, each given the same problem and asked for a table; all are certified alike."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy import sparse
from solver_cases import Case, build

import panda_mdp as pm
from panda_mdp.base.processes import forget_peak, peak_mb
from panda_mdp.compute.closure import Closure
from panda_mdp.compute.highs import cost_scale, multipliers, privacy_rows, sum_rows
from panda_mdp.methods.optimal.dual import dual_bound
from panda_mdp.methods.optimal.graph import MAX_EXPONENT, constraint_graph
from panda_mdp.methods.optimal.reference import solve_highs
from panda_mdp.privacy.audit import audit_weights
from panda_mdp.privacy.quantise import quantise
from panda_mdp.privacy.repair import repair
from panda_mdp.table.release import release

TOLERANCES = (1e-3, 1e-4, 1e-6)
"""Of feasibility and of the relative gap, for the iterative methods: the first that leads to the
gap counts, as if its user had known it."""
Row = dict[str, Any]


def ours(problem: pm.Problem, gap: float, limit: float) -> Row:
    """`optimal` on the CPU."""
    return described(pm.optimal(problem, gap=gap, backend="cpu", time_limit=limit))


def highs(algorithm: str) -> Callable[[pm.Problem, float, float], Row]:
    """HiGHS on the LP of the same constraint graph."""

    def run(problem: pm.Problem, limit: float, tolerance: float | None) -> Row:
        return described(solve_highs(problem, "graph", algorithm, limit, tolerance))

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

    clock = Clock()
    size, outputs = problem.size, problem.outputs_count
    graph = constraint_graph(problem.domain, problem.epsilon)
    exponent = problem.epsilon * graph.length
    private = privacy_rows(graph.ends, exponent, size, outputs)
    scale = cost_scale(problem.weighted_loss)
    lp = pdlp.QuadraticProgram()
    lp.objective_vector = problem.weighted_loss.ravel() / scale
    lp.variable_lower_bounds = np.zeros(size * outputs)
    lp.variable_upper_bounds = np.ones(size * outputs)
    lp.constraint_matrix = sparse.csc_matrix(sparse.vstack([sum_rows(size, outputs), private]))
    lp.constraint_lower_bounds = np.concatenate([np.ones(size), np.full(private.shape[0], -np.inf)])
    lp.constraint_upper_bounds = np.concatenate([np.ones(size), np.zeros(private.shape[0])])
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
    table = np.asarray(result.primal_solution).reshape(size, outputs)
    prices = np.asarray(result.dual_solution)[size:] * scale
    bound = dual_bound(problem, graph, multipliers(prices, exponent, outputs))
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


class Clock:
    """Seconds of named stages, one after the other."""

    def __init__(self) -> None:
        self.last = time.perf_counter()
        self.stages: list[tuple[str, float]] = []

    def __call__(self, stage: str) -> None:
        now = time.perf_counter()
        self.stages.append((stage, now - self.last))
        self.last = now


def certified(
    problem: pm.Problem,
    table: np.ndarray,
    bound: float | None,
    clock: Clock,
    *,
    stopped: str,
    iterations: int | None,
) -> Row:
    """A foreign solver's table as it came and as it is after the exact repair."""
    raw = np.maximum(table, 0.0)
    raw_epsilon = None
    if np.isfinite(raw).all() and (raw.sum(axis=1) > 0).all():
        weights = quantise(raw / raw.sum(axis=1, keepdims=True))
        raw_epsilon = audit_weights(
            problem.domain, problem.outputs, weights, problem.epsilon
        ).epsilon
    clock.last = time.perf_counter()
    repaired = repair(Closure(problem.domain), np.nan_to_num(raw), problem.epsilon)
    clock("repair")
    mechanism = release(problem, repaired.matrix, method="foreign", lower_bound=bound)
    clock("audit")
    mechanism = mechanism.with_details(stopped=stopped, iterations=iterations)
    return {**described(mechanism), "stages": dict(clock.stages), "raw_epsilon": raw_epsilon}


def described(mechanism: pm.Mechanism) -> Row:
    """What the table says of a mechanism."""
    return {
        "loss": mechanism.loss,
        "lower_bound": mechanism.lower_bound,
        "audited_epsilon": mechanism.audit.epsilon,
        "holds": mechanism.audit.holds,
        "stages": dict(mechanism.stages),
        "stopped": mechanism.details.get("highs_status", mechanism.details["stopped"]),
        "iterations": mechanism.details["iterations"],
        "trace": [list(entry) for entry in mechanism.details.get("trace", ())],
    }


SOLVERS: dict[str, Callable[[pm.Problem, float, float], Row]] = {
    "panda-mdp": ours,
    "HiGHS ipm": highs("ipm"),
    "HiGHS simplex": highs("simplex"),
    "HiGHS pdlp": highs("pdlp"),
    "OR-tools PDLP": loosest(ortools_pdlp),
    "qif": qif,
}
NEEDS = {"OR-tools PDLP": "ortools", "qif": "qif"}


def missing(solver: str) -> str | None:
    """Why a solver cannot run here, if it cannot."""
    package = NEEDS.get(solver, "highspy" if solver.startswith("HiGHS") else "numba")
    return None if find_spec(package) else f"{package} is not installed (pip install {package})"


SHORT, TIMES = 15.0, 3
"""Seconds below which a cell is run so many times; its median counts."""


def prepared(request: tuple[str, Case, float, float]) -> Callable[[], Row]:
    """One solver on one case, compiled code warmed up, for a process of its own."""
    solver, case, gap, limit = request
    start = time.perf_counter()
    warm = build(Case("grid", "K", 64, 64))
    ours(warm, 0.05, 60.0)
    repair(Closure(warm.domain), np.full((64, 64), 1 / 64), warm.epsilon)
    city = pm.Domain.from_points([41.9, 41.91, 41.92, 41.93], [12.4, 12.5, 12.6, 12.7])
    small = pm.Problem(city, [0, 1], city.distances(None, [0, 1]), 0.1)
    ours(small, 0.05, 60.0)
    compiled = time.perf_counter() - start
    problem = build(case)
    return lambda: {"compile_seconds": compiled, **measured(solver, problem, gap, limit)}


def measured(solver: str, problem: pm.Problem, gap: float, limit: float) -> Row:
    """The median of its runs, with the memory that they took, or what went wrong."""
    forget_peak()
    before = peak_mb()
    try:
        rows = [timed(solver, problem, gap, limit)]
        while rows[0]["seconds"] < SHORT and len(rows) < TIMES:
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
    # What `solve_highs` prepares for the case that the time runs out is not HiGHS's.
    return {**row, "seconds": seconds - row["stages"].get("loss exponential", 0.0)}
