"""The first-order solver as the loop asks it, and the tables that it starts from."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest
from helpers import displacement_problem, random_domain

from panda_mdp.methods.certify import Budget, certify
from panda_mdp.methods.optimal.optimal import CpuEngine, FirstOrder
from panda_mdp.methods.optimal.program import Graph, constraint_graph, one_row, warm_start


def town(size: int = 60):
    domain = random_domain("haversine", size, seed=6)
    near = float(np.median(domain.neighbours(1)[1]))
    return displacement_problem(domain, np.arange(0, size, 10), 1.0 / near)


def test_one_row_is_the_best_single_output():
    problem = town()
    matrix = one_row(problem)
    assert (matrix == matrix[0]).all()
    assert problem.expected_loss(matrix) == pytest.approx(
        float((problem.prior @ problem.loss).min())
    )


def test_warm_start_is_a_table_that_favours_cheap_outputs():
    problem = town()
    table = warm_start(problem, constraint_graph(problem.domain, problem.epsilon))
    np.testing.assert_allclose(table.sum(axis=1), 1)
    np.testing.assert_array_equal(table.argmax(axis=1), problem.loss.argmin(axis=1))


def test_warm_start_without_edges_or_slope_ignores_the_record():
    problem = town()
    none = Graph(np.empty((0, 2), dtype=np.int64), np.empty(0))
    np.testing.assert_array_equal(warm_start(problem, none), one_row(problem))
    flat = replace(problem, loss=np.ones_like(problem.loss))
    graph = constraint_graph(problem.domain, problem.epsilon)
    np.testing.assert_array_equal(warm_start(flat, graph), one_row(flat))


def test_a_problem_that_needs_no_record_needs_no_solver():
    problem = replace(town(), loss=np.tile(np.arange(1.0, 7.0), (60, 1)))
    solver = FirstOrder(problem, CpuEngine())
    mechanism = certify(solver, Budget(0.01)).mechanism()
    assert solver.iterates is None
    assert mechanism.loss == pytest.approx(1.0, rel=1e-6)
    assert mechanism.details["stopped"] == "gap reached"
    assert mechanism.details["iterations"] == 0


def test_pairs_are_added_while_it_runs():
    problem = town()
    sparse = constraint_graph(problem.domain, problem.epsilon, neighbours=4)
    few = Graph(sparse.ends[::3], sparse.length[::3])
    solved = certify(FirstOrder(problem, CpuEngine(), graph=few), Budget(0.01))
    assert solved.mechanism().details["stopped"] == "gap reached"
    assert solved.mechanism().details["edges"] > few.count


def test_stages_add_up_to_the_whole():
    mechanism = certify(FirstOrder(town(), CpuEngine()), Budget(0.01)).mechanism()
    assert sum(dict(mechanism.stages).values()) == pytest.approx(mechanism.seconds)


def test_a_solve_leaves_nothing_behind():
    """No cycle of references: what a solver holds is freed with it, not by the collector."""
    problem = town()
    certify(FirstOrder(problem, CpuEngine()), Budget(gap=0.05))
    gc.collect()
    gc.disable()
    try:
        solver = FirstOrder(problem, CpuEngine())
        standing = certify(solver, Budget(gap=0.05))
        assert standing.mechanism().audit.holds
        left = [weakref.ref(solver), weakref.ref(solver.iterates)]
        del solver, standing
        assert [reference() for reference in left] == [None, None]
    finally:
        gc.enable()
