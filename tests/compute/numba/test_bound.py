"""The compiled lower bound holds whatever the multipliers are."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from helpers import DIGITS, KINDS, displacement_problem, exact_distance, random_domain
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from panda_mdp.methods.optimal.graph_solver import CpuSolver
from panda_mdp.methods.optimal.lp import solve_lp
from panda_mdp.methods.optimal.program import all_pairs

SIZE, OUTPUTS = 6, 3


@pytest.fixture(scope="module", params=KINDS)
def case(request):
    """A problem, a solver over all its pairs, and the loss of a private, nearly optimal table."""
    problem = displacement_problem(random_domain(request.param, SIZE, seed=5), [0, 2, 4], 1.5)
    graph = all_pairs(problem.domain, problem.epsilon)
    solver = CpuSolver(problem, graph, np.full((SIZE, OUTPUTS), 1 / OUTPUTS))
    return problem, solver, solve_lp(problem, "all", "simplex").loss


@settings(deadline=None)
@given(data=st.data())
def test_holds_for_garbage(case, data):
    _, solver, optimum = case
    shape = (solver.graph.count, 2, OUTPUTS)
    sizes = st.sampled_from([1e-3, 1.0, 1e3, 1e30])
    numbers = st.floats(-1, 1, width=32)
    garbage = data.draw(hnp.arrays(np.float32, shape, elements=numbers))
    solver._u = (garbage * np.float32(data.draw(sizes))).astype(np.float32)
    assert solver.bound() <= optimum


def test_nan_counts_as_no_multiplier(case):
    _, solver, optimum = case
    solver._u = np.full((solver.graph.count, 2, OUTPUTS), np.nan, np.float32)
    nothing = solver.bound()
    solver._u = np.zeros_like(solver._u)
    assert nothing == solver.bound() <= optimum


def exact_bound(solver: CpuSolver) -> mp.mpf:
    """sum_x min_y h_xy with true distances and the kernel's own reading of the multipliers."""
    problem = solver.problem
    with mp.workdps(DIGITS):
        h = [[mp.mpf(float(v)) for v in row] for row in problem.weighted_loss]
        scale = mp.mpf(solver.unit)
        for e, (i, j) in enumerate(solver.program.record[solver.ends]):
            g = mp.mpf(float(solver.growth_above[e]))
            true = mp.exp(mp.mpf(problem.epsilon) * exact_distance(problem.domain, i, j))
            for y in range(problem.outputs_count):
                # Back from the scaled problem to the unscaled one.
                first, second = (
                    mp.mpf(float(solver._u[e, side, y]))
                    * mp.mpf(float(solver._inverse[solver.ends[e, side], y]))
                    for side in (0, 1)
                )
                up = scale * max(0, min(first, -second / g))
                down = scale * max(0, min(second, -first / g))
                h[i][y] += up - true * down
                h[j][y] += down - true * up
        return mp.fsum(min(row) for row in h)


@pytest.mark.parametrize("iterations", [40, 400, 4000])
def test_is_below_the_exact_value_and_near_it(case, iterations):
    problem, solver, optimum = case
    fresh = CpuSolver(problem, solver.graph, np.full((SIZE, OUTPUTS), 1 / OUTPUTS))
    fresh.advance(iterations)
    exact = exact_bound(fresh)
    assert fresh.bound() <= exact
    assert fresh.bound() >= exact - 1e-10 * optimum
