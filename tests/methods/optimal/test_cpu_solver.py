"""The solver converges to the graph's LP: primal, dual and complementarity against HiGHS."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers import KINDS, displacement_problem, random_domain

from panda_mdp.methods.optimal import cpu_solver as pdhg_cpu
from panda_mdp.methods.optimal import reference
from panda_mdp.methods.optimal.cpu_solver import (
    BLOCK_ENTRIES,
    LEAST_BLOCK,
    LEAST_BLOCKS,
    CpuSolver,
    block_size,
    squared_distance,
)
from panda_mdp.methods.optimal.graph import Graph, all_pairs, constraint_graph
from panda_mdp.methods.optimal.halpern import SMALLEST, incidence
from panda_mdp.methods.optimal.reference import solve_highs
from panda_mdp.methods.optimal.starts import warm_start


def uniform(problem) -> np.ndarray:
    return np.full((problem.size, problem.outputs_count), 1 / problem.outputs_count)


def dense_town(kind: str, size: int = 45):
    """Records close enough, measured by epsilon, for neighbours to constrain each other."""
    domain = random_domain(kind, size, seed=8)
    near = float(np.median(domain.neighbours(1)[1]))
    return displacement_problem(domain, np.arange(0, size, 9), 1.0 / near)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("start", ["uniform", "warm"])
def test_kkt_on_the_graph(kind, start):
    problem = dense_town(kind)
    graph = constraint_graph(problem.domain, problem.epsilon)
    optimum = solve_highs(problem, "graph", "simplex").details["highs_objective"]
    table = uniform(problem) if start == "uniform" else warm_start(problem, graph)
    solver = CpuSolver(problem, graph, table)
    solver.advance(6000)
    z = solver.matrix()
    # Primal: rows on the simplex, every edge and output near its cone.
    assert z.min() >= 0
    np.testing.assert_allclose(z.sum(axis=1), 1, atol=2e-3)
    first, second = z[graph.ends[:, 0]], z[graph.ends[:, 1]]
    growth = np.exp(problem.epsilon * graph.length)[:, None]
    beyond = np.maximum(first - growth * second, second - growth * first)
    assert (beyond / np.hypot(1, growth)).max() < 1e-3
    # Dual and duality gap: the bound is rigorous, and nothing is left between the two.
    assert optimum * (1 - 2e-3) <= solver.bound() <= optimum * (1 + 1e-7)
    assert problem.expected_loss(z) == pytest.approx(optimum, rel=2e-3)


def test_blocks_change_no_more_than_the_order_of_sums(monkeypatch):
    problem = dense_town("euclidean", 300)
    graph = constraint_graph(problem.domain, problem.epsilon)
    start = warm_start(problem, graph)
    found = []
    for size in (1, 7, 64, 1000):
        monkeypatch.setattr(pdhg_cpu, "block_size", lambda *_, size=size: size)
        solver = CpuSolver(problem, graph, start)
        solver.advance(80)
        found.append((solver.matrix(), solver.bound(), solver.residual))
    for matrix, bound, residual in found[1:]:
        np.testing.assert_allclose(matrix, found[0][0], atol=2e-6)
        assert bound == pytest.approx(found[0][1], rel=1e-6)
        assert residual == pytest.approx(found[0][2], rel=1e-5)


def test_a_block_fits_the_cache_and_leaves_work_for_all():
    assert block_size(500, 100) == LEAST_BLOCK
    assert block_size(10**6, 100) == BLOCK_ENTRIES // 100
    assert block_size(10**6, 10**6) == LEAST_BLOCK
    assert block_size(8000, 20) == 8000 // LEAST_BLOCKS


def test_the_bound_rises_to_the_optimum_and_the_residual_falls():
    problem = dense_town("haversine")
    solver = CpuSolver(problem, constraint_graph(problem.domain, problem.epsilon), uniform(problem))
    residuals, bounds = [], []
    for _ in range(3):
        solver.advance(800)
        residuals.append(solver.residual)
        bounds.append(solver.bound())
    assert residuals[0] > residuals[1] > residuals[2]
    assert bounds[0] < bounds[2]
    assert solver.iterations == 2400


def test_what_was_reached_is_not_lost_to_rounding():
    # Here the table comes to rest early and the weight, unless held, runs away from it.
    problem = dense_town("haversine")
    graph = constraint_graph(problem.domain, problem.epsilon)
    solver = CpuSolver(problem, graph, uniform(problem))
    bounds = []
    for _ in range(6):
        solver.advance(2000)
        bounds.append(solver.bound())
    assert min(bounds) >= bounds[0] * (1 - 1e-4)
    assert bounds[-1] == pytest.approx(problem.expected_loss(solver.matrix()), rel=2e-4)


def test_extending_keeps_what_was_reached():
    problem = dense_town("euclidean")
    full = all_pairs(problem.domain, problem.epsilon)
    kept = np.arange(full.count) % 3 > 0
    solver = CpuSolver(problem, Graph(full.ends[kept], full.length[kept]), uniform(problem))
    solver.advance(1000)
    table, before = solver.matrix(), solver.bound()
    solver.extend(Graph(full.ends[~kept], full.length[~kept]))
    assert solver.graph.count == full.count
    np.testing.assert_array_equal(solver.matrix(), table)
    assert solver.bound() == pytest.approx(before, rel=1e-12)
    solver.advance(4000)
    optimum = solve_highs(problem, "all", "simplex").details["highs_objective"]
    assert optimum * (1 - 5e-3) <= solver.bound() <= optimum * (1 + 1e-7)


def test_a_new_scale_is_the_root_of_the_table_and_keeps_what_was_reached():
    problem = dense_town("haversine")
    solver = CpuSolver(problem, constraint_graph(problem.domain, problem.epsilon), uniform(problem))
    solver._scale_anew = 10_000
    solver.advance(400)
    table, before, scale = solver.matrix(), solver.bound(), solver._scale
    solver._rescale()
    solver._restart()
    np.testing.assert_allclose(solver.matrix(), table, rtol=1e-6)
    assert solver.bound() == pytest.approx(before, rel=1e-6)
    ratio = solver._scale[solver.place] / np.sqrt(np.maximum(table, SMALLEST))
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-5)
    assert np.abs(solver._scale - scale).max() > 0.1
    np.testing.assert_allclose(solver._scale * solver._inverse, 1, rtol=1e-6)
    np.testing.assert_allclose(solver._row_sums, solver._scale.sum(axis=1), rtol=1e-6)
    # The iteration goes on from there, to the optimum.
    solver.advance(4000)
    optimum = solve_highs(problem, "graph", "simplex").details["highs_objective"]
    assert optimum * (1 - 2e-3) <= solver.bound() <= optimum * (1 + 1e-7)


def test_a_scale_that_follows_the_table_reaches_a_bound_sooner():
    problem = dense_town("euclidean", 120)
    graph = constraint_graph(problem.domain, problem.epsilon)
    bounds = []
    for anew in (40, 10_000):
        solver = CpuSolver(problem, graph, uniform(problem))
        solver._scale_anew = anew
        solver.advance(280)
        bounds.append(solver.bound())
    assert bounds[0] > bounds[1]


def test_units_of_the_loss_do_not_matter():
    problem = dense_town("haversine")
    scaled = replace(problem, loss=problem.loss * 1e9)
    graph = constraint_graph(problem.domain, problem.epsilon)
    solvers = [CpuSolver(p, graph, uniform(problem)) for p in (problem, scaled)]
    for solver in solvers:
        solver.advance(80)
    np.testing.assert_allclose(solvers[0].matrix(), solvers[1].matrix(), atol=1e-3)
    assert solvers[1].bound() == pytest.approx(1e9 * solvers[0].bound(), rel=1e-2)


def test_a_loss_of_zero_is_solved():
    problem = dense_town("matrix")
    free = replace(problem, loss=np.zeros_like(problem.loss))
    solver = CpuSolver(free, constraint_graph(free.domain, free.epsilon), uniform(free))
    solver.advance(40)
    assert solver.bound() == 0.0
    assert np.isfinite(solver.matrix()).all()


def test_incidence_lists_every_end_once():
    ends = np.array([[0, 2], [1, 2], [0, 3]])
    start, slot = incidence(ends, 5)
    lists = [slot[start[i] : start[i + 1]].tolist() for i in range(5)]
    assert lists == [[0, 4], [2], [1, 3], [5], []]


def test_squared_distance_of_large_arrays():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 50, 2, 7)).astype(np.float32)
    expected = float(((first.astype(float) - second.astype(float)) ** 2).sum())
    assert squared_distance(first, second) == pytest.approx(expected, rel=1e-6)


def test_the_reference_is_what_it_says():
    # The comparisons above rest on HiGHS's objective over the same graph.
    assert reference.constraint_graph is constraint_graph
