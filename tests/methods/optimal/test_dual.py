"""The lower bound of arbitrary multipliers: never above the exact one, nor above the optimum."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from helpers import DIGITS, KINDS, displacement_problem, exact_distance, random_domain
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from panda_mdp import Domain, Problem
from panda_mdp.methods.optimal.lp import solve_lp
from panda_mdp.methods.optimal.program import (
    Graph,
    all_pairs,
    boxed_bound,
    centre_bound,
    edge_multipliers,
    free_bound,
    growths,
)
from panda_mdp.table.bound import dual_bound, total_from_below


def exact_bound(problem, graph, multipliers) -> mp.mpf:
    """sum_x min_y h_xy with true distances, in 50 digits."""
    with mp.workdps(DIGITS):
        h = [
            [mp.mpf(float(p)) * mp.mpf(float(c)) for c in row]
            for p, row in zip(problem.prior, problem.loss, strict=True)
        ]
        for e, (i, j) in enumerate(graph.ends):
            g = mp.exp(mp.mpf(problem.epsilon) * exact_distance(problem.domain, i, j))
            for y in range(problem.outputs_count):
                first, second = (mp.mpf(float(multipliers[side, e, y])) for side in (0, 1))
                h[i][y] += first - g * second
                h[j][y] += second - g * first
        return mp.fsum(min(row) for row in h)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 1e6])
def test_is_below_the_exact_bound_and_near_it(kind, size):
    rng = np.random.default_rng(3)
    problem = displacement_problem(random_domain(kind, 6), [0, 3, 5], 1.3)
    graph = all_pairs(problem.domain, problem.epsilon)
    multipliers = size * rng.random((2, graph.count, 3)) ** 4
    exact = exact_bound(problem, graph, multipliers)
    found = dual_bound(problem, edge_multipliers(graph, multipliers))
    assert found <= exact
    top = float(growths(problem, graph.length)[1].max()) * size * 20 + float(problem.loss.max())
    assert found >= exact - 1e-12 * top


@pytest.fixture(scope="module")
def solved():
    problem = displacement_problem(random_domain("euclidean", 5, seed=1), [0, 2], 1.0)
    return problem, solve_lp(problem, "all", "simplex").loss


@settings(deadline=None)
@given(data=st.data())
def test_holds_for_any_multipliers(solved, data):
    problem, optimum = solved
    graph = all_pairs(problem.domain, problem.epsilon)
    numbers = st.floats(0, 1e12, allow_subnormal=True)
    multipliers = data.draw(hnp.arrays(np.float64, (2, graph.count, 2), elements=numbers))
    assert dual_bound(problem, edge_multipliers(graph, multipliers)) <= optimum


@pytest.mark.parametrize("kind", KINDS)
def test_growth_is_above_the_true_exponential(kind):
    problem = displacement_problem(random_domain(kind, 9), [0], 2.7)
    graph = all_pairs(problem.domain, problem.epsilon)
    with mp.workdps(DIGITS):
        for value, (i, j) in zip(growths(problem, graph.length)[1], graph.ends, strict=True):
            true = mp.exp(mp.mpf(problem.epsilon) * exact_distance(problem.domain, i, j))
            assert true < value < true * (1 + mp.mpf("2e-12"))


def test_without_edges_each_record_takes_its_cheapest_output():
    problem = displacement_problem(random_domain("matrix", 5), [1, 2], 1.0)
    none = Graph(np.empty((0, 2), dtype=np.int64), np.empty(0))
    found = dual_bound(problem, edge_multipliers(none, np.empty((2, 0, 2))))
    cheapest = float(problem.prior @ problem.loss.min(axis=1))
    assert cheapest * (1 - 1e-13) <= found <= cheapest


def test_total_from_below_survives_cancellation():
    assert total_from_below(np.array([1e16, 1.0, -1e16])) <= 1.0
    assert total_from_below(np.array([1e16, 1.0, -1e16])) >= 1.0 - 1e-15


def test_total_from_below_is_below_where_the_exact_sum_is_rounded_up():
    values = np.array([1.0, 2.0**-53 + 2.0**-60])
    exact = sum(map(Fraction, values.tolist()), Fraction(0))
    assert Fraction(math.fsum(values)) > exact
    assert Fraction(total_from_below(values)) <= exact


def test_a_product_that_nearly_vanishes_is_rounded_down():
    domain = Domain.from_vectors([[0.0], [1.0]])
    problem = Problem(domain, [0], [[5e-324], [0.0]], 1.0, prior=[0.75, 0.25])
    exact = Fraction(0.75) * Fraction(5e-324)
    assert Fraction(float(problem.weighted_loss[0, 0])) > exact
    assert Fraction(free_bound(problem)) <= exact


def test_the_bound_of_one_centre_subtracts_its_rounding():
    """One large cost and thousands that are rounded up when they are added to it."""
    size, tiny = 4096, (0.5 + 2.0**-10) * 2.0**-52
    costs = np.full((size, 1), tiny)
    costs[0] = 1.0625
    domain = Domain.from_vectors(np.arange(float(size))[:, None])
    problem = Problem(domain, [0], costs * size, 1e-30)
    exact = Fraction(1.0625) + (size - 1) * Fraction(tiny)
    assert Fraction(float(np.cumsum(problem.weighted_loss)[-1])) > exact * (1 + Fraction(1e-13))
    assert exact * (1 - Fraction(1e-11)) <= Fraction(centre_bound(problem, 3)) <= exact


def test_within_a_box_a_row_costs_what_filling_it_costs():
    """Without multipliers: the cheapest outputs up to their boxes, and no more than that."""
    domain = Domain.from_vectors([[0.0], [1.0]])
    problem = Problem(domain, [0, 1], [[1.0, 3.0], [5.0, 2.0]], 1.0)
    none = Graph(np.empty((0, 2), dtype=np.int64), np.empty(0))
    most = np.array([[0.25, 1.0], [1.0, 0.5]])
    found = boxed_bound(
        problem, edge_multipliers(none, np.empty((2, 0, 2))), most, problem.weighted_loss
    )
    exact = 0.5 * (0.25 * 1 + 0.75 * 3) + 0.5 * (0.5 * 2 + 0.5 * 5)
    assert exact * (1 - 1e-14) <= found <= exact
