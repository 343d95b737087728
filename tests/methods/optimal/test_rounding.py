"""Bounds lie below what exact arithmetic gives, where plain sums in float64 lie above it."""

from __future__ import annotations

from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest

from panda_mdp import Domain, Problem
from panda_mdp.base.arrays import incidence
from panda_mdp.compute.numba.pdhg import least_reduced_costs
from panda_mdp.methods.optimal.graph_solver import CpuSolver, growths
from panda_mdp.methods.optimal.program import Graph, boxed_bound, edge_multipliers, free_bound
from panda_mdp.table.bound import dual_bound

SIDE = 8
LARGE, TINY = 1.0625, (0.5 + 2.0**-10) * 2.0**-52
"""Added to what lies between 1 and 2, the tiny one is rounded up to twice itself."""


def two_sides() -> tuple[Problem, Graph]:
    """Eight records that each borrow from eight others, all for one output at a loss of 4."""
    domain = Domain.from_vectors(np.arange(2.0 * SIDE)[:, None])
    problem = Problem(domain, [0], np.full((2 * SIDE, 1), 4.0), 1e-30)
    ends = np.array([(a, b) for a in range(SIDE) for b in range(SIDE, 2 * SIDE)])
    return problem, Graph(ends, domain.metric.pairs(ends[:, 0], ends[:, 1]))


def lent(ends: np.ndarray) -> np.ndarray:
    """The multiplier of "first <= g second" of every edge: for each record one large, then tiny."""
    return np.where(ends[:, 1] == SIDE, LARGE, TINY)


def exact(problem: Problem, ends: np.ndarray, growths: np.ndarray) -> Fraction:
    """sum_x min_y h_xy of those multipliers without rounding; one output, so no minimum."""
    total = sum(Fraction(float(c)) for c in problem.weighted_loss.ravel())
    for price, g in zip(lent(ends), growths, strict=True):
        total += Fraction(float(price)) * (1 - Fraction(float(g)))
    return total


def test_plain_sums_round_up_here():
    problem, graph = two_sides()
    first = np.cumsum(np.concatenate([[LARGE], np.full(SIDE - 1, TINY)]))[-1]
    true = Fraction(LARGE) + (SIDE - 1) * Fraction(TINY)
    assert Fraction(float(first)) - true > 3 * Fraction(2.0**-52)
    assert float(problem.weighted_loss[0, 0]) == 0.25
    assert graph.count == SIDE**2


def test_numpy_bound_subtracts_its_rounding():
    problem, graph = two_sides()
    multipliers = np.stack([lent(graph.ends), np.zeros(graph.count)])[:, :, None]
    true = exact(problem, graph.ends, growths(problem, graph.length)[1])
    found = dual_bound(problem, edge_multipliers(graph, multipliers))
    assert true - Fraction(1e-12) <= Fraction(found) <= true
    boxed = boxed_bound(
        problem, edge_multipliers(graph, multipliers), np.ones((2 * SIDE, 1)), problem.weighted_loss
    )
    assert true - Fraction(1e-12) <= Fraction(boxed) <= true


@pytest.mark.parametrize("machine", ["cpu", "jax"])
def test_solver_bound_subtracts_its_rounding(machine):
    problem, graph = two_sides()
    start = np.ones((2 * SIDE, 1))
    if machine == "cpu":
        solver = CpuSolver(problem, graph, start)
        solver._u = _pairs(solver).astype(np.float32)[:, :, None]
    else:
        from panda_mdp.compute.jax.device import precise
        from panda_mdp.methods.optimal.jax_solver import JaxSolver

        here = CpuSolver(problem, graph, start)
        solver = JaxSolver(problem, graph, start)
        # Edges lie alike on both machines.
        solver.ends, solver.growth_above = here.ends, here.growth_above
        sides = np.zeros((2, solver.room, 1), dtype=np.float32)
        sides[:, : graph.count, 0] = _pairs(solver).T
        with precise():
            u = tuple(map(jnp.asarray, sides))
            solver._point = (*solver._point[:2], u)
    true = exact(problem, solver.ends, solver.growth_above)
    assert true - Fraction(1e-12) <= Fraction(solver.bound()) <= true


def _pairs(solver) -> np.ndarray:
    """Dual pairs that read as those multipliers: own, and a partner that does not limit it."""
    price = lent(solver.ends) / solver.unit
    return np.stack([price, -2 * price], axis=1)


def heavy_and_light(size: int = 4000) -> Problem:
    """A prior of eight heavy records and many of half an ulp, whose plain sum loses or gains."""
    prior = np.full(size, 2.0**-54)
    prior[:8] = (1 - (size - 8) * 2.0**-54) / 8
    domain = Domain.from_vectors(np.arange(float(size))[:, None])
    rng = np.random.default_rng(0)
    return Problem(domain, [0, 1], 1 + rng.random((size, 2)), 1.0, prior=prior)


def test_the_bound_without_constraints_is_below_the_exact_sum():
    problem = heavy_and_light()
    least = problem.loss.min(axis=1)
    pairs = zip(problem.prior.tolist(), least.tolist(), strict=True)
    true = sum((Fraction(p) * Fraction(c) for p, c in pairs), Fraction(0))
    found = Fraction(free_bound(problem))
    assert true * (1 - Fraction(1e-15)) <= found <= true
    # The sums that it replaces: in the other order they are above by more than 1e-14 of slack.
    backward = float(np.cumsum((problem.prior * least)[::-1])[-1])
    forward = float(np.cumsum(problem.prior * least)[-1])
    assert abs(Fraction(forward) - Fraction(backward)) > Fraction(1e-14)


@pytest.mark.parametrize("place", [(0, 0), (3, 1), (5, 2)])
def test_a_reduced_cost_that_is_no_number_bounds_nothing(place):
    """It compares as larger than all others, and would otherwise be passed over."""
    domain = Domain.from_vectors(np.arange(6.0)[:, None])
    problem = Problem(domain, range(3), domain.distances(None, range(3)) + 1.0, 1.0)
    cost = problem.weighted_loss.copy()
    none = np.empty((0, 2), dtype=np.int64)
    start, slot = incidence(none, 6)
    tables = (np.zeros((0, 2, 3), np.float32), np.ones((6, 3), np.float32), none, start, slot)
    least = np.empty(6)
    least_reduced_costs(0, 6, cost, *tables, np.empty(0), 1.0, least)
    assert least == pytest.approx(cost.min(axis=1))
    cost[place] = np.nan
    least_reduced_costs(0, 6, cost, *tables, np.empty(0), 1.0, least)
    assert least[place[0]] == -np.inf
    assert np.isfinite(np.delete(least, place[0])).all()
