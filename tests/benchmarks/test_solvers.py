"""What every solver of the benchmark gets, and how it is judged."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import solver_gpu
from hypothesis import given, settings
from hypothesis import strategies as st
from solver_cases import Case, build
from solver_judge import Clock, GraphLp, certified
from solver_report import as_it_came, gpu_markdown
from solver_runs import CPU, GPU, missing, ran_out

import panda_mdp as pm
from panda_mdp.compute.highs import Lp

GRID = build(Case("grid", "K", 16, 16))
BEST = pm.optimal(GRID, gap=1e-5)


def solved_by_highs() -> tuple[GraphLp, np.ndarray, np.ndarray]:
    lp = GraphLp.of(GRID)
    from scipy import sparse

    rows = sparse.csr_array(sparse.vstack([lp.sums, lp.private]))
    ends = lp.private.shape[0]
    lower = np.concatenate([np.ones(GRID.size), np.full(ends, -np.inf)])
    upper = np.concatenate([np.ones(GRID.size), np.zeros(ends)])
    answer = Lp(lp.cost, rows, lower, upper).solve()
    return lp, answer.primal, answer.prices[GRID.size :]


def test_prices_of_an_exact_solver_prove_the_optimum_of_the_graphs_lp():
    lp, solution, prices = solved_by_highs()
    graphs = float(lp.cost @ solution) * lp.scale
    assert lp.bound(prices) == pytest.approx(graphs, rel=1e-9)
    assert lp.bound(prices) <= BEST.loss


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.floats(-6, 2))
def test_no_prices_whatever_prove_more_than_the_optimum(seed, power):
    lp = GraphLp.of(GRID)
    rng = np.random.default_rng(seed)
    prices = -(10.0**power) * rng.exponential(size=lp.private.shape[0])
    prices[rng.random(len(prices)) < 0.5] = 0
    assert lp.bound(prices) <= BEST.loss


def test_prices_that_are_no_numbers_prove_what_none_prove():
    lp = GraphLp.of(GRID)
    broken = np.full(lp.private.shape[0], np.nan)
    broken[::3] = -np.inf
    assert lp.bound(broken) == lp.bound(np.zeros(len(broken)))


def test_a_table_that_leaks_is_shown_as_it_came_and_certified_after_the_repair():
    leaking = np.eye(GRID.size)
    row = certified(GRID, leaking, 0.5, Clock(), stopped="OPTIMAL", iterations=7)
    assert row["holds"]
    assert row["audited_epsilon"] <= GRID.epsilon
    assert row["raw_epsilon"] == np.inf
    assert as_it_came({**row, "epsilon": 1.0}) == "inf"


def test_a_table_with_a_row_of_zeros_is_no_table_as_it_came():
    table = np.full((GRID.size, GRID.size), 1 / GRID.size)
    table[3] = 0
    row = certified(GRID, table, None, Clock(), stopped="OPTIMAL", iterations=7)
    assert row["raw_epsilon"] is None
    assert as_it_came({**row, "epsilon": 1.0}) == "no table"
    assert row["holds"]


def test_structures_lie_in_memory_as_those_of_cupdlpx_do():
    """Offsets that a C compiler gives for the header of 0.3.0."""
    matrix, ends = solver_gpu.Matrix, solver_gpu.Ends
    options, result = solver_gpu.Parameters, solver_gpu.Result
    assert (matrix.entries.offset, ctypes.sizeof(matrix)) == (16, 48)
    assert (solver_gpu.Entries.starts.offset, solver_gpu.Entries.values.offset) == (8, 24)
    assert (ends.seconds.offset, ctypes.sizeof(ends)) == (24, 40)
    places = (options.verbose, options.ends, options.restarts, options.presolve, options.zero)
    assert [place.offset for place in places] == [17, 40, 80, 152, 160]
    assert ctypes.sizeof(options) == 168
    read = (result.primal, result.dual, result.iterations, result.ended)
    assert [place.offset for place in read] == [24, 32, 48, 184]
    assert ctypes.sizeof(result) == 208


def test_a_library_of_another_version_is_refused():
    class Other:
        @staticmethod
        def set_default_parameters(options):
            options._obj.ruiz = 9

    with pytest.raises(RuntimeError, match=r"not laid out as cuPDLPx 0\.3\.0"):
        solver_gpu.default_parameters(Other())


def test_a_missing_library_is_named_with_what_to_do(monkeypatch):
    monkeypatch.setenv("CUPDLPX_LIBRARY", "")
    assert "docs/benchmarks.md" in missing("cuPDLPx, 1e-2")
    assert not set(CPU) & set(GPU)


def test_the_report_states_how_many_times_ours():
    row = {
        "case": "a", "records": 500, "outputs": 100, "iterations": 10, "loss": 1.0, "gap": 0.1,
        "audited_epsilon": 1.0, "epsilon": 1.0, "stopped": "TIME_LIMIT", "stages": {"solve": 1.0},
    }  # fmt: skip
    rows = [
        {**row, "solver": "panda-mdp, GPU", "seconds": 2.0},
        {**row, "solver": "cuPDLPx, 1e-2", "seconds": 10.0, "raw_epsilon": np.inf},
    ]
    machine = {
        "packages": {}, "accelerator": "H200", "python": "3", "city": "x", "gap": 0.01, "limit": 5,
    }  # fmt: skip
    lines = gpu_markdown(rows, machine).splitlines()
    assert "| cuPDLPx, 1e-2 | 10.00 | 1.00 | 5 | 10 |" in lines[-1]
    assert lines[-1].endswith("| inf | time limit |")
    assert ran_out("TIME_LIMIT")
