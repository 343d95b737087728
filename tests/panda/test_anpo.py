"""Budgets closed under shortest paths, and AnPO as an ordinary problem."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

import panda_mdp as pm
from panda_mdp.panda.anpo import closure, merge, relaxed_bound, solve_anchors, solver_of


def some_problem(size: int = 14, outputs: int = 5, epsilon: float = 1.5) -> pm.Problem:
    rng = np.random.default_rng(4)
    domain = pm.Domain.from_vectors(rng.normal(size=(size, 2)), unit="km")
    chosen = rng.choice(size, outputs, replace=False)
    return pm.Problem(domain, chosen, domain.distances(None, chosen), epsilon)


def random_budgets(size: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    table = np.triu(rng.random((size, size)) ** 3 * 4, k=1)
    table[0, 3] = table[5, 6] = 0.0
    return table + table.T


def exact_optimum(problem, anchors, budgets, weights) -> float:
    """AnPO as written, all pairs and outputs, by SciPy's LP solver."""
    n, m = len(anchors), problem.outputs_count
    cost = (weights[:, None] * problem.loss[anchors] / weights.sum()).ravel()
    rows, limits = [], []
    for a in range(n):
        for b in range(n):
            if a == b:
                continue
            for y in range(m):
                row = np.zeros(n * m)
                row[a * m + y], row[b * m + y] = 1.0, -np.exp(budgets[a, b])
                rows.append(row)
                limits.append(0.0)
    sums = np.kron(np.eye(n), np.ones(m))
    found = linprog(cost, rows, limits, sums, np.ones(n), bounds=(0, 1), method="highs")
    assert found.status == 0
    return float(found.fun)


@pytest.mark.parametrize("size", [3, 64, 65, 150])
def test_closure_is_the_shortest_path_metric(size) -> None:
    budgets = random_budgets(max(size, 7), 1)[:size, :size]
    expected = budgets.copy()
    for k in range(size):
        expected = np.minimum(expected, expected[:, k, None] + expected[k])
    closed = closure(budgets)
    assert closed == pytest.approx(expected, rel=1e-12, abs=1e-15)
    assert np.array_equal(closed, closed.T)


def test_merging_joins_anchors_whose_rows_must_be_equal() -> None:
    budgets = random_budgets(10, 2)
    group, closed = merge(budgets)
    assert group[0] == group[3]
    assert group[5] == group[6]
    assert len(closed) == 8
    assert np.all(closed + 1e-12 >= 0)
    detours = (closed[:, :, None] + closed[None]).min(axis=1)
    assert np.all(closed <= detours + 1e-12)
    full = closure(budgets)
    assert closed[np.ix_(group, group)] == pytest.approx(full, rel=1e-12, abs=1e-15)


def test_the_table_is_optimal_for_the_lp_as_written_and_keeps_all_budgets() -> None:
    problem = some_problem()
    anchors = np.array([0, 2, 3, 5, 7, 8, 11])
    budgets = random_budgets(7, 3)
    weights = np.array([0.2, 0.1, 0.0, 0.3, 0.2, 0.1, 0.1])
    table = solve_anchors(problem, anchors, budgets, weights, solver=solver_of(gap=1e-3))
    expected = exact_optimum(problem, anchors, budgets, weights)
    loss = float(weights @ (problem.loss[anchors] * table.matrix).sum(axis=1) / weights.sum())
    assert table.mechanism.lower_bound <= expected * (1 + 1e-9)
    assert expected * (1 - 1e-9) <= loss <= expected * (1 + 1.2e-3)
    logs = np.log(table.matrix[:, table.matrix.any(axis=0)])
    spread = np.abs(logs[:, None] - logs).max(axis=2)
    assert np.all(spread <= budgets + 1e-12)


def test_more_outputs_than_anchors_changes_no_optimum() -> None:
    problem = some_problem(outputs=9)
    anchors, weights = np.array([1, 4, 6]), np.array([0.5, 0.2, 0.3])
    budgets = np.array([[0, 0.7, 0.9], [0.7, 0, 0.4], [0.9, 0.4, 0]])
    table = solve_anchors(problem, anchors, budgets, weights, solver=solver_of(gap=1e-3))
    expected = exact_optimum(problem, anchors, budgets, weights)
    loss = float(weights @ (problem.loss[anchors] * table.matrix).sum(axis=1))
    assert table.mechanism.lower_bound <= expected * (1 + 1e-9)
    assert loss == pytest.approx(expected, rel=1.2e-3)


def test_nothing_to_spend_gives_equal_rows() -> None:
    problem = some_problem()
    anchors = np.arange(5)
    table = solve_anchors(problem, anchors, np.zeros((5, 5)), np.ones(5), solver=solver_of())
    assert np.all(table.row == table.row[0])
    best = problem.loss[:5].mean(axis=0).min()
    loss = (problem.loss[:5] * table.matrix).sum(axis=1).mean()
    assert loss == pytest.approx(best, rel=1e-6)


def test_one_anchor_has_a_table_too() -> None:
    problem = some_problem()
    table = solve_anchors(problem, np.array([3]), np.zeros((1, 1)), np.ones(1), solver=solver_of())
    assert table.matrix[0] @ problem.loss[3] == pytest.approx(problem.loss[3].min(), abs=1e-6)


def test_relaxed_bound_is_below_every_table_of_the_anchors() -> None:
    problem = some_problem(size=30)
    anchors = np.arange(0, 30, 2)
    weights = problem.prior[anchors]
    bound = relaxed_bound(problem, anchors, weights)
    distances = problem.domain.distances(anchors, anchors)
    budgets = np.maximum(0, problem.epsilon * distances - 0.3) * (1 - np.eye(len(anchors)))
    table = solve_anchors(problem, anchors, budgets, weights, solver=solver_of())
    full = pm.optimal(problem)
    for matrix in (table.matrix, full.matrix[anchors]):
        loss = float(weights @ (problem.loss[anchors] * matrix).sum(axis=1) / weights.sum())
        assert bound <= loss
    few = np.array([0, 7])
    small = relaxed_bound(problem, few, problem.prior[few])
    apart = problem.epsilon * problem.domain.distances(few, few)
    assert small <= exact_optimum(problem, few, apart, problem.prior[few]) * (1 + 1e-9)
