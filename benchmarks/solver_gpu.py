"""General LP solvers that run on an accelerator: cuPDLPx by its C library, MPAX by JAX.

Both get the LP that all others get and are judged alike. cuPDLPx is loaded from the library that
the environment's CUPDLPX_LIBRARY names (docs/benchmarks.md says how to build it), MPAX is a Python
package. Neither is part of this project, and no code of theirs is.
"""

from __future__ import annotations

import ctypes as c
import os
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from solver_judge import Clock, GraphLp, Row, certified, described

import panda_mdp as pm

TOLERANCES = (1e-2, 1e-4)
"""Each is a cell of its own: what a solver costs at the tolerance that its users would choose."""
PROBE = 500
"""Iterations of MPAX from which its speed is taken: it knows no limit in seconds."""


ASIDE = ("compile", "start", "probe")
"""Stages that are no part of a solver's time."""


def ours_gpu(problem: pm.Problem, gap: float, limit: float) -> Row:
    """`optimal` on the first accelerator that JAX sees."""
    return described(pm.optimal(problem, gap=gap, backend="jax", time_limit=limit))


def ours_closer(problem: pm.Problem, gap: float, limit: float) -> Row:
    """The same to a fifth of the gap: about what the others reach at their tighter tolerance."""
    return ours_gpu(problem, gap / 5, limit)


def cupdlpx(problem: pm.Problem, limit: float, tolerance: float) -> Row:
    """cuPDLPx with its presolver, on the LP of the same constraint graph."""
    clock = Clock()
    lp = GraphLp.of(problem)
    clock("build")
    solution, prices, ended, steps = solve_cupdlpx(lp, limit, tolerance)
    clock("solve")
    bound = lp.bound(prices)
    clock("bound")
    table = lp.table(solution)
    return certified(problem, table, bound, clock, stopped=ended, iterations=steps)


def solve_cupdlpx(
    lp: GraphLp, limit: float, tolerance: float
) -> tuple[np.ndarray, np.ndarray, str, int]:
    """Solution, prices of the private rows, how it ended, and its iterations."""
    library = cupdlpx_library()
    rows = sparse.csr_array(sparse.vstack([lp.sums, lp.private]))
    start, column = rows.indptr.astype(np.int32), rows.indices.astype(np.int32)
    entries = Entries(rows.nnz, start.ctypes.data, column.ctypes.data, rows.data.ctypes.data)
    matrix = Matrix(rows.shape[0], rows.shape[1], CSR, entries)
    sums, ends = lp.sums.shape[0], lp.private.shape[0]
    lower = np.concatenate([np.ones(sums), np.full(ends, -np.inf)])
    upper = np.concatenate([np.ones(sums), np.zeros(ends)])
    none, one = np.zeros(len(lp.cost)), np.ones(len(lp.cost))
    arrays = [a.ctypes.data_as(c.c_void_p) for a in (lower, upper, none, one)]
    options = default_parameters(library)
    options.verbose = False
    options.ends.optimal = options.ends.feasible = tolerance
    options.ends.seconds = limit
    made = library.create_lp_problem(
        lp.cost.ctypes.data_as(c.c_void_p), c.byref(matrix), *arrays, None, None
    )
    result = library.solve_lp_problem(made, c.byref(options)) if made else None
    if not result:
        msg = "cuPDLPx gave no result"
        raise RuntimeError(msg)
    answer = result.contents
    solution = np.ctypeslib.as_array(answer.primal, (rows.shape[1],)).copy()
    prices = np.ctypeslib.as_array(answer.dual, (rows.shape[0],))[sums:].copy()
    ended, steps = ENDED[answer.ended], int(answer.iterations)
    library.cupdlpx_result_free(result)
    library.lp_problem_free(made)
    return solution, prices, ended, steps


def mpax(problem: pm.Problem, limit: float, tolerance: float) -> Row:
    """MPAX's r2HPDHG in double precision, on the LP of the same constraint graph.

    Where it would not end within the limit it is stopped after as many iterations as fit. What it
    takes to find that out, and to compile, is no part of its time.
    """
    import jax
    from mpax import create_lp

    clock = Clock()
    with jax.enable_x64(True):
        # The first time each shape's operations are compiled.
        given, lp, size = mpax_problem(problem, create_lp)
        run = compiled()
        jax.block_until_ready(run(given, tolerance, 1))
        clock("compile")
        given, lp, size = mpax_problem(problem, create_lp)
        clock("build")
        jax.block_until_ready(run(given, tolerance, 1))
        clock("start")
        jax.block_until_ready(run(given, tolerance, PROBE))
        clock("probe")
        took = dict(clock.stages)
        each = max(took["probe"] - took["start"], 1e-6) / PROBE
        most = max(int((limit - took["start"]) / each), PROBE)
        answer = jax.block_until_ready(run(given, tolerance, min(most, 2**31 - 1)))
        clock("solve")
        steps = int(answer.iteration_count)
        # 2: optimal, 6: iterations, in its enumeration.
        status = {2: "OPTIMAL", 6: "TIME_LIMIT"}.get(int(answer.termination_status), "ERROR")
        solution, dual = np.asarray(answer.primal_solution), np.asarray(answer.dual_solution)
    bound = lp.bound(-dual[problem.size :] / size)
    clock("bound")
    table = lp.table(solution)
    return certified(problem, table, bound, clock, stopped=status, iterations=steps)


def mpax_problem(
    problem: pm.Problem, create: Callable[..., Any]
) -> tuple[Any, GraphLp, np.ndarray]:
    """The LP as MPAX takes it, and by what its private rows were divided.

    It measures residuals against the largest entry of A x: rows of a common size, or factors of
    e^15 let it end far from any table.
    """
    import jax
    import jax.numpy as jnp

    lp = GraphLp.of(problem)
    size = np.asarray(abs(lp.private).max(axis=1).toarray()).ravel()
    floor = sparse.csr_matrix(sparse.diags_array(-1 / size) @ lp.private)
    none, one = jnp.zeros(len(lp.cost)), jnp.ones(len(lp.cost))
    sums, ones = sparse.csr_matrix(lp.sums), jnp.ones(problem.size)
    given = create(jnp.asarray(lp.cost), sums, ones, floor, jnp.zeros(len(size)), none, one)
    jax.block_until_ready(given.constraint_matrix.data)
    return given, lp, size


@cache
def compiled() -> Callable[[Any, float, int], Any]:
    """MPAX compiled for any tolerance and any number of iterations."""
    import jax
    from mpax import r2HPDHG

    def run(given: Any, tolerance: float, most: int) -> Any:
        solver = r2HPDHG(eps_abs=tolerance, eps_rel=tolerance, iteration_limit=most)
        return solver.optimize(given)

    return jax.jit(run)


def at(
    run: Callable[[pm.Problem, float, float], Row], tolerance: float
) -> Callable[[pm.Problem, float, float], Row]:
    """A solver at one tolerance, its time from the problem to the audited table."""

    def timed(problem: pm.Problem, gap: float, limit: float) -> Row:
        row = run(problem, limit, tolerance)
        seconds = sum(took for name, took in row["stages"].items() if name not in ASIDE)
        return {**row, "seconds": seconds, "tolerance": tolerance}

    return timed


PEERS = {
    f"{name}, {tolerance:.0e}".replace("e-0", "e-"): at(run, tolerance)
    for name, run in (("cuPDLPx", cupdlpx), ("MPAX", mpax))
    for tolerance in TOLERANCES
}


def gpu_missing(solver: str) -> str | None:
    """Why a solver of this module cannot run here, if it cannot."""
    if find_spec("jax") is None:
        return "jax is not installed (pip install jax)"
    if solver.startswith("MPAX") and find_spec("mpax") is None:
        return "mpax is not installed (pip install mpax)"
    if solver.startswith("cuPDLPx") and not Path(os.environ.get("CUPDLPX_LIBRARY", "")).is_file():
        return "CUPDLPX_LIBRARY names no libcupdlpx.so; docs/benchmarks.md says how to build it"
    return None


# The interface of cuPDLPx 0.3.0, field by field.
CSR = 1
ENDED = (
    "UNSPECIFIED",
    "OPTIMAL",
    "PRIMAL_INFEASIBLE",
    "DUAL_INFEASIBLE",
    "INFEASIBLE_OR_UNBOUNDED",
    "TIME_LIMIT",
    "ITERATION_LIMIT",
    "FEAS_POLISH_SUCCESS",
)


class Entries(c.Structure):
    """The entries of a matrix, row by row."""

    _fields_ = (
        ("count", c.c_int),
        ("starts", c.c_void_p),
        ("columns", c.c_void_p),
        ("values", c.c_void_p),
    )


class Matrix(c.Structure):
    """A matrix by compressed rows."""

    _fields_ = (("rows", c.c_int), ("width", c.c_int), ("form", c.c_int), ("entries", Entries))


class Ends(c.Structure):
    """When to end."""

    _fields_ = (
        ("optimal", c.c_double),
        ("feasible", c.c_double),
        ("polish", c.c_double),
        ("seconds", c.c_double),
        ("iterations", c.c_int),
    )


class Parameters(c.Structure):
    """All parameters."""

    _fields_ = (
        ("ruiz", c.c_int),
        ("has_pock", c.c_bool),
        ("pock", c.c_double),
        ("rescaled", c.c_bool),
        ("verbose", c.c_bool),
        ("frequency", c.c_int),
        ("power_steps", c.c_int),
        ("power_tolerance", c.c_double),
        ("ends", Ends),
        ("restarts", c.c_double * 7),
        ("reflection", c.c_double),
        ("polish", c.c_bool),
        ("norm", c.c_int),
        ("presolve", c.c_bool),
        ("zero", c.c_double),
    )


class Result(c.Structure):
    """What a solve ended with."""

    _fields_ = (
        ("sizes", c.c_int * 6),
        ("primal", c.POINTER(c.c_double)),
        ("dual", c.POINTER(c.c_double)),
        ("reduced", c.POINTER(c.c_double)),
        ("iterations", c.c_int),
        ("rescaling", c.c_double),
        ("seconds", c.c_double),
        ("presolve", c.c_double),
        ("presolved", c.c_int),
        ("figures", c.c_double * 12),
        ("ended", c.c_int),
        ("polish", c.c_double),
        ("polish_steps", c.c_int),
    )


@cache
def cupdlpx_library() -> c.CDLL:
    """The library, its functions typed."""
    library = c.CDLL(os.environ["CUPDLPX_LIBRARY"])
    library.create_lp_problem.restype = c.c_void_p
    library.create_lp_problem.argtypes = [c.c_void_p] * 8
    library.solve_lp_problem.restype = c.POINTER(Result)
    library.solve_lp_problem.argtypes = [c.c_void_p, c.c_void_p]
    library.cupdlpx_result_free.argtypes = [c.POINTER(Result)]
    library.lp_problem_free.argtypes = [c.c_void_p]
    library.set_default_parameters.argtypes = [c.c_void_p]
    return library


def default_parameters(library: c.CDLL) -> Parameters:
    """Its defaults, which also show whether it lays its parameters out as this module does."""
    options = Parameters()
    library.set_default_parameters(c.byref(options))
    seen = (options.ruiz, options.ends.seconds, options.reflection, options.presolve, options.zero)
    if seen != (10, 3600.0, 1.0, True, 1e-9):
        msg = f"this library is not laid out as cuPDLPx 0.3.0 is: its defaults read {seen}"
        raise RuntimeError(msg)
    return options
