"""The rows of the privacy LP, and the LP layer on cases with known primal, dual and ray."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest
from scipy import sparse

from panda_mdp.compute.highs import Lp, cost_scale, multipliers, privacy_rows, sum_rows
from panda_mdp.errors import MissingDependencyError, SolverError


def factory(algorithm: str = "simplex", **options: object) -> Lp:
    """max 3 a + 5 b with a <= 4, 2 b <= 12, 3 a + 2 b <= 18: a = 2, b = 6, prices 0, 3/2, 1."""
    rows = sparse.csr_array(np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 2.0]]))
    limits = np.array([4.0, 12.0, 18.0])
    cost = np.array([-3.0, -5.0])
    return Lp(cost, rows, np.full(3, -np.inf), limits, algorithm=algorithm, **options)


@pytest.mark.parametrize("algorithm", ["simplex", "ipm", "pdlp"])
def test_known_primal_dual_and_objective(algorithm):
    answer = factory(algorithm).solve()
    assert answer.optimal
    assert answer.status == "Optimal"
    assert answer.objective == pytest.approx(-36, rel=1e-5)
    np.testing.assert_allclose(answer.primal, [2, 6], rtol=1e-5)
    np.testing.assert_allclose(answer.prices, [0, -1.5, -1], atol=1e-5)
    assert answer.ray is None


def test_rows_are_added_and_changed_between_solves():
    lp = factory()
    lp.solve()
    lp.add_rows(sparse.csr_array(np.array([[1.0, 1.0]])), np.array([-np.inf]), np.array([5.0]))
    assert lp.solve().objective == pytest.approx(-25)
    lp.set_row_bounds(np.array([3]), np.array([-np.inf]), np.array([7.0]))
    assert lp.solve().objective == pytest.approx(-33)


def test_an_infeasible_lp_comes_with_a_ray_that_proves_it():
    # a + b <= 1 and a >= 2, b >= 0.
    rows = sparse.csr_array(np.array([[1.0, 1.0], [1.0, 0.0]]))
    lower, upper = np.array([-np.inf, 2.0]), np.array([1.0, np.inf])
    answer = Lp(np.zeros(2), rows, lower, upper, presolve=False).solve()
    assert answer.status == "Infeasible"
    assert not answer.optimal
    # ray . (A v) is at least this much by the rows' bounds, and at most that by v >= 0.
    ray = answer.ray
    assert ray is not None
    least = sum(r * (lower[i] if r > 0 else upper[i]) for i, r in enumerate(ray) if r != 0)
    assert np.all(rows.T @ ray <= 1e-9)
    assert least > 0


def test_time_limit_is_for_each_solve_alone():
    lp = factory()
    assert lp.solve(10.0).optimal
    assert lp.solve(10.0).optimal


def test_solves_off_the_main_thread():
    found = []
    lp = factory()
    worker = threading.Thread(target=lambda: found.append(lp.solve()))
    worker.start()
    worker.join()
    assert found[0].optimal


def test_an_interrupt_cancels_and_is_raised(monkeypatch):
    class Worker(threading.Thread):
        joined = 0

        def is_alive(self):
            return True

        def join(self, timeout=None):
            type(self).joined += 1
            if self.joined == 1:
                raise KeyboardInterrupt
            super().join(timeout)

    monkeypatch.setattr(threading, "Thread", Worker)
    with pytest.raises(KeyboardInterrupt):
        factory().solve()
    assert Worker.joined == 2


def test_privacy_rows_are_the_scaled_constraints_of_each_edge_direction_and_output():
    ends = np.array([[0, 2], [1, 3]])
    exponent = np.array([0.3, 25.0])
    z = np.random.default_rng(0).random((4, 3))
    values = (privacy_rows(ends, exponent, 4, 3) @ z.ravel()).reshape(2, 2, 3)
    # By edge, direction and output.
    for side in range(2):
        for e, (i, j) in enumerate(ends):
            own, other = (z[i], z[j]) if side == 0 else (z[j], z[i])
            growth = np.exp(exponent[e])
            np.testing.assert_allclose(
                values[e, side], (own - growth * other) / np.sqrt(growth), rtol=1e-12
            )


def test_privacy_rows_of_no_edge():
    assert privacy_rows(np.empty((0, 2), np.int64), np.empty(0), 3, 2).shape == (0, 6)


def test_sum_rows_add_up_each_record():
    z = np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(sum_rows(3, 2) @ z.ravel(), z.sum(axis=1))


def test_multipliers_undo_the_scaling_and_drop_the_wrong_sign():
    exponent = np.array([2.0])
    prices = np.array([-1.0, 0.5, -3.0, 0.0])
    found = multipliers(prices, exponent, 2)
    np.testing.assert_allclose(found, np.exp(-1) * np.array([[[1, 0]], [[3, 0]]]))


def test_cost_scale_of_a_free_problem_is_one():
    assert cost_scale(np.zeros((2, 2))) == 1.0
    assert cost_scale(np.full((2, 2), 3.0)) == 3.0


def test_an_lp_beyond_highs_indices_is_refused():
    with pytest.raises(SolverError, match="4,294,967,296 entries"):
        privacy_rows(np.array([[0, 1]]), np.array([1.0]), 2, 1 << 30)


def test_an_lp_that_highs_refuses_is_an_error():
    rows = sparse.csr_array(np.array([[np.inf]]))
    with pytest.raises(SolverError, match="refused"):
        Lp(np.ones(1), rows, np.zeros(1), np.ones(1))


def test_an_unknown_option_is_an_error():
    with pytest.raises(SolverError, match="does not take"):
        factory("barrier")


def test_highspy_missing_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(MissingDependencyError, match="pip install highspy"):
        factory()
