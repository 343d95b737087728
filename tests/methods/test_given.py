"""Tables from elsewhere: refused with the reason, or repaired."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import displacement_problem, random_domain
from scipy.optimize import linprog

from panda_mdp import Mechanism, Problem, exponential, repair
from panda_mdp.errors import MethodError, PrivacyError


def lp_optimum(problem: Problem) -> np.ndarray:
    """The optimum as a general LP solver leaves it: feasible up to its tolerance."""
    size, m = problem.size, problem.outputs_count
    growth = np.exp(problem.epsilon * problem.domain.distances())
    rows, columns = np.nonzero(~np.eye(size, dtype=bool))
    above = np.zeros((len(rows) * m, size * m))
    line = np.arange(len(rows) * m)
    y = np.tile(np.arange(m), len(rows))
    above[line, np.repeat(rows, m) * m + y] = 1
    above[line, np.repeat(columns, m) * m + y] = -np.repeat(growth[rows, columns], m)
    sums = np.kron(np.eye(size), np.ones(m))
    answer = linprog(
        problem.weighted_loss.ravel(), above, np.zeros(len(above)), sums, np.ones(size)
    )
    return np.maximum(answer.x.reshape(size, m), 0)


@pytest.mark.parametrize("seed", range(4))
def test_a_solvers_optimum_is_refused_in_visible_digits_and_repaired(seed):
    problem = displacement_problem(random_domain("haversine", 8, seed=seed), [0, 3, 6], 0.3)
    given = lp_optimum(problem)
    given /= given.sum(axis=1, keepdims=True)
    try:
        Mechanism.from_matrix(problem, given)
    except PrivacyError as error:
        words = str(error)
        claimed, audited = words.split("not ")[1].split("-mDP: the audit finds epsilon ")
        assert float(audited.split(" ")[0]) > float(claimed) or "inf" in audited
        assert "pm.repair" in words
    mended = repair(problem, given)
    assert mended.audit.holds
    assert mended.loss <= problem.expected_loss(given) * 1.01 + 1e-9


def test_what_holds_comes_back_as_it_is():
    mechanism = exponential(displacement_problem(random_domain("euclidean", 9), [0, 4], 1.0))
    again = repair(mechanism.problem, mechanism.matrix)
    assert again.details["moved"] == 0.0
    np.testing.assert_allclose(again.matrix, mechanism.matrix, rtol=1e-15)


def test_what_leaks_by_far_is_moved_and_says_so():
    problem = displacement_problem(random_domain("euclidean", 9), [0, 4, 8], 0.1)
    sharp = np.full((9, 3), 0.0)
    sharp[np.arange(9), np.arange(9) % 3] = 1.0
    mended = repair(problem, sharp)
    assert mended.audit.holds
    assert mended.details["moved"] > 0.3


@pytest.mark.parametrize(
    "matrix", [[[1.0, 0.0]], [[np.nan, 1.0]] * 9, [[-0.1, 1.1]] * 9, [[0.0, 0.0]] * 9]
)
def test_what_is_no_table_is_refused(matrix):
    problem = displacement_problem(random_domain("euclidean", 9), [0, 4], 1.0)
    with pytest.raises(MethodError):
        repair(problem, matrix)
