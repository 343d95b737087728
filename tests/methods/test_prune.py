"""Pruning: the optimum rises by no more than stated, and the bounds are bounds."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import displacement_problem, domains, random_domain
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import panda_mdp as pm
from panda_mdp.errors import MethodError
from panda_mdp.methods.optimal.lp import solve_lp
from panda_mdp.methods.prune import Smoothing, Tents


def line(records: int = 41, epsilon: float = 2.0, prior: np.ndarray | None = None) -> pm.Problem:
    domain = pm.Domain.from_vectors(np.linspace(0, 1, records))
    return displacement_problem(domain, np.arange(records), epsilon, prior=prior)


def largest_mean(problem: pm.Problem, losses: np.ndarray) -> float:
    """max sum_x p_x f_x d_x over f log-Lipschitz with sum_x p_x f_x = 1, by linear programming."""
    size, between = problem.size, problem.domain.distances()
    first, second = np.nonzero(~np.eye(size, dtype=bool))
    rows = np.zeros((len(first), size))
    grow = problem.epsilon * between[first, second]
    # f_i <= e^t f_j, scaled so that no coefficient is large.
    rows[np.arange(len(first)), first] = np.exp(-grow)
    rows[np.arange(len(first)), second] = -1.0
    answer = linprog(
        -problem.prior * losses,
        A_ub=rows,
        b_ub=np.zeros(len(first)),
        A_eq=problem.prior[None, :],
        b_eq=[1.0],
        bounds=(0, None),
    )
    assert answer.status == 0
    return float(-answer.fun)


def optimum(problem: pm.Problem) -> float:
    """By HiGHS, all pairs."""
    exact = solve_lp(problem, pairs="all", algorithm="simplex")
    assert exact.details["stopped"] == "solved"
    return float(exact.details["highs_objective"])


def some_prior(rng: np.random.Generator, size: int) -> np.ndarray | None:
    weights = rng.dirichlet(np.ones(size)) * (rng.random(size) < 0.8)
    return weights / weights.sum() if weights.sum() > 0 and rng.random() < 0.7 else None


@settings(max_examples=60, deadline=None)
@given(domains(largest=7), st.integers(0, 10**6), st.sampled_from([0.1, 1.0, 5.0]))
def test_spread_losses_count_for_no_less(domain, seed, strength):
    rng = np.random.default_rng(seed)
    near = float(domain.neighbours(1)[1].min())
    assume(domain.diameter / near < 20)
    prior = some_prior(rng, domain.size)
    problem = displacement_problem(domain, [0], strength / near, prior=prior)
    losses = rng.normal(size=(domain.size, 3)) + rng.normal(size=3)
    spread = Smoothing(problem).spread(losses)
    assert (spread >= 0).all()
    for column in range(3):
        assert largest_mean(problem, losses[:, column] - spread[:, column]) <= 1e-7


def test_a_peak_is_spread_over_its_neighbours():
    problem = line(101, epsilon=2.0)
    peak = np.zeros((101, 1))
    peak[50] = 1.0
    found, exact = Smoothing(problem).spread(peak), largest_mean(problem, peak[:, 0])
    assert exact <= found.max() <= 3 * exact
    assert found.max() < 0.05


def test_losses_that_are_nowhere_positive_cost_nothing():
    problem = line(9)
    assert Smoothing(problem).spread(-np.ones((9, 2))).max() < 1e-10


@pytest.mark.parametrize("pairs", [1 << 21, 600, 40])
@pytest.mark.parametrize("shift", [0.0, 0.99])
def test_sparse_kernels_bound_as_well(pairs, shift):
    problem = line(60, epsilon=3.0, prior=np.arange(60) / np.arange(60).sum())
    losses = np.sin(np.arange(60)[:, None] * np.array([0.3, 1.1, 3.0])) - shift
    dense = Smoothing(problem).spread(losses)
    found = Smoothing(problem, Tents(dense_records=10, most_pairs=pairs)).spread(losses)
    if pairs > 60 * 60:
        assert found == pytest.approx(dense, rel=1e-12)
    for column in range(3):
        assert largest_mean(problem, losses[:, column] - found[:, column]) <= 1e-9


@pytest.mark.parametrize("seed", range(25))
def test_the_optimum_rises_by_no_more_than_stated(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(4, 11))
    domain = (
        random_domain(("haversine", "matrix")[seed % 2], size, seed)
        if seed % 4 < 2
        else pm.Domain.from_vectors(rng.random((size, 1 + seed % 2)))
    )
    outputs = rng.choice(size, int(rng.integers(2, size + 1)), replace=False)
    loss = domain.distances(None, outputs) if seed % 3 else rng.random((size, len(outputs)))
    near = float(np.median(domain.neighbours(1)[1]))
    epsilon = float(rng.choice([0.2, 1.0])) / near
    problem = pm.Problem(domain, outputs, loss, epsilon, prior=some_prior(rng, size))
    scale = float(loss.max())
    pruned = pm.prune(problem, float(rng.choice([0.01, 0.1, 0.5])) * scale)
    before, after = optimum(problem), optimum(pruned.problem)
    assert before - 1e-7 * scale <= after <= before + pruned.cost_bound + 1e-7 * scale


def test_dense_outputs_go():
    problem = line(31)
    before = optimum(problem)
    sizes = []
    for cost in (0.001, 0.005, 0.02):
        pruned = pm.prune(problem, cost)
        sizes.append(len(pruned.kept))
        assert pruned.cost_bound <= cost
        assert before - 1e-7 <= optimum(pruned.problem) <= before + pruned.cost_bound + 1e-7
    assert sizes[0] > sizes[1] > sizes[2]
    assert sizes[1] < 20


def test_what_smoothness_gains_over_the_largest_difference():
    problem = line()
    smooth = pm.prune(problem, 0.005)
    plain = pm.prune(problem, 0.005, tents=Tents(count=0))
    assert len(plain.kept) > 30
    assert len(smooth.kept) < 20


def test_outputs_that_serve_their_own_place_stay():
    domain = random_domain("euclidean", 30)
    pruned = pm.prune(displacement_problem(domain, np.arange(30), 20.0), 1e-3)
    assert len(pruned.kept) == 30
    assert pruned.cost_bound == 0.0


def test_equal_columns_go_for_next_to_nothing():
    domain = random_domain("euclidean", 10)
    loss = domain.distances(None, [0, 3, 7])
    problem = pm.Problem(domain, np.arange(9), np.tile(loss, (1, 3)), 20.0)
    pruned = pm.prune(problem, 1e-6)
    assert len(pruned.kept) == 3
    assert pruned.cost_bound < 1e-8
    assert np.array_equal(np.sort(pruned.kept % 3), [0, 1, 2])


def test_one_output_stays():
    domain = random_domain("euclidean", 5)
    assert pm.prune(displacement_problem(domain, [2], 1.0), 1.0).kept.tolist() == [0]
    everything = pm.prune(displacement_problem(domain, np.arange(5), 1.0), 1e9)
    assert everything.cost_bound < 1e9


def test_expanding_gives_the_same_reports_and_a_bound_on_the_original():
    problem = line(25)
    pruned = pm.prune(problem, 0.005)
    small = pm.optimal(pruned.problem)
    table = pruned.expand(small)
    assert isinstance(table, pm.Mechanism)
    assert table.problem is problem
    assert np.array_equal(table.weights[:, pruned.kept], small.weights)
    assert not np.delete(table.weights, pruned.kept, axis=1).any()
    assert table.audit.holds
    assert table.loss == pytest.approx(small.loss, rel=1e-12)
    assert table.lower_bound <= small.lower_bound - pruned.cost_bound
    exact = optimum(problem)
    assert table.lower_bound <= exact + 1e-7
    assert exact <= table.loss + 1e-7
    assert dict(table.stages)["prune"] == pruned.seconds
    assert table.details["outputs_kept"] == len(pruned.kept)
    assert set(table.sample(5, 50)) <= set(problem.outputs[pruned.kept])


def test_expanding_without_a_bound_and_below_nothing():
    problem = line(11)
    pruned = pm.prune(problem, 0.3)
    assert pruned.expand(pm.exponential(pruned.problem)).lower_bound is None
    # A bound below that of the unconstrained problem is of no use.
    assert pruned.expand(pm.optimal(pruned.problem)).lower_bound >= 0.0


def test_another_mechanism_is_refused():
    problem = line(11)
    pruned = pm.prune(problem, 0.05)
    with pytest.raises(MethodError, match="another problem"):
        pruned.expand(pm.exponential(problem))


@pytest.mark.parametrize("cost", [0, -1.0, np.nan, np.inf])
def test_costs_out_of_range_are_refused(cost):
    with pytest.raises(MethodError, match="must be positive"):
        pm.prune(line(5), cost)


def test_repr_says_what_was_gained():
    assert "of 41 outputs" in repr(pm.prune(line(), 0.005))
