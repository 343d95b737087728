"""The LP by HiGHS: known optima, a bound of its own, and what happens where HiGHS does not end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers import displacement_problem, random_domain

from panda_mdp import Domain, Mechanism, optimal
from panda_mdp.errors import MethodError, Stopped
from panda_mdp.methods.certify import Budget, certify
from panda_mdp.methods.optimal.lp import HighsLp, solve_lp

EXACT = {5: 1.228677, 7: 1.394617}
"""Least expected displacement on an n x n grid of spacing 1 at epsilon 1, inputs = outputs."""


def grid(n: int, epsilon: float = 1.0):
    axis = np.arange(n, dtype=float)
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    return displacement_problem(Domain.from_vectors(points), np.arange(n * n), epsilon)


@pytest.mark.parametrize("algorithm", ["ipm", "simplex", "pdlp"])
def test_every_algorithm_finds_the_grid_optimum(algorithm):
    mechanism = solve_lp(grid(5), pairs="all", algorithm=algorithm)
    assert mechanism.lower_bound == pytest.approx(EXACT[5], abs=1e-6)
    assert mechanism.lower_bound <= EXACT[5] + 5e-7
    assert EXACT[5] <= mechanism.loss <= EXACT[5] * 1.0005
    assert mechanism.audit.holds
    assert mechanism.details["stopped"] == "solved"
    assert mechanism.details["highs_status"] == "Optimal"
    assert mechanism.details["highs_objective"] == pytest.approx(EXACT[5], abs=1e-5)


def test_it_agrees_with_optimal():
    problem = grid(4)
    mechanism = solve_lp(problem, "all", "simplex")
    assert isinstance(mechanism, Mechanism)
    assert mechanism.details["backend"] == "highs"
    assert mechanism.details["algorithm"] == "simplex"
    assert mechanism.loss == pytest.approx(optimal(problem, gap=1e-3).loss, rel=2e-3)


def test_the_graph_relaxes_all_pairs():
    problem = grid(7)
    over_graph = solve_lp(problem, pairs="graph", algorithm="ipm")
    assert over_graph.lower_bound <= EXACT[7] + 1e-6
    assert over_graph.loss >= EXACT[7]
    assert over_graph.details["edges"] < 49 * 48 / 2


def test_stages_cover_the_whole_run():
    mechanism = solve_lp(grid(4))
    names = [name for name, _ in mechanism.stages]
    assert names[:7] == ["start", "graph", "build", "solve", "bound", "repair", "audit"]
    assert all(seconds >= 0 for _, seconds in mechanism.stages)


def test_no_time_at_all_gives_the_loss_exponential():
    mechanism = solve_lp(grid(5), time_limit=1e-9)
    assert mechanism.details["stopped"] == "time limit"
    assert mechanism.details["highs_status"] == "not run"
    assert mechanism.details["table"] == "loss exponential"
    assert mechanism.audit.holds
    assert mechanism.lower_bound <= EXACT[5] <= mechanism.loss


@pytest.mark.parametrize("algorithm", ["ipm", "simplex", "pdlp"])
def test_a_time_limit_within_highs_returns_what_can_be_certified(algorithm):
    # On a clock that stands still HiGHS has a millisecond, beside what is kept for certifying.
    budget = Budget(None, 0.021, clock=lambda: 0.0)
    mechanism = certify(HighsLp(grid(6), "graph", algorithm), budget).mechanism()
    assert mechanism.details["stopped"] == "time limit"
    assert mechanism.details["highs_status"] == "Time limit reached"
    assert mechanism.audit.holds
    assert mechanism.lower_bound <= mechanism.loss


@pytest.mark.parametrize("ended", [Stopped.INTERRUPTED, Stopped.FAILED])
def test_what_highs_leaves_unsolved_gives_the_better_of_two_tables(ended):
    class Unsolved(HighsLp):
        def advance(self, target, standing):
            super().advance(target, standing)
            self.ended = ended

    solved = certify(Unsolved(grid(4), "graph", "ipm"), Budget(None))
    mechanism = solved.mechanism()
    assert mechanism.details["stopped"] == ended
    assert "table" not in mechanism.details
    assert mechanism.audit.holds


def test_options_are_checked():
    with pytest.raises(MethodError, match="pairs is 'some'"):
        solve_lp(grid(3), pairs="some")
    with pytest.raises(MethodError, match="algorithm is 'barrier'"):
        solve_lp(grid(3), algorithm="barrier")
    with pytest.raises(MethodError, match="tolerance is 0"):
        solve_lp(grid(3), tolerance=0)


@pytest.mark.parametrize("algorithm", ["ipm", "pdlp"])
def test_a_loose_tolerance_ends_sooner_and_stays_rigorous(algorithm):
    problem = grid(5)
    loose, tight = (solve_lp(problem, "all", algorithm, tolerance=t) for t in (1e-2, 1e-5))
    assert loose.details["iterations"] < tight.details["iterations"]
    assert loose.lower_bound <= EXACT[5] + 5e-7
    assert loose.loss >= EXACT[5] - 5e-7
    assert loose.audit.holds


def test_zero_loss_and_a_single_output():
    domain = random_domain("haversine", 12)
    free = replace(displacement_problem(domain, [0, 1], 1.0), loss=np.zeros((12, 2)))
    mechanism = solve_lp(free)
    assert mechanism.loss == mechanism.lower_bound == 0.0
    single = displacement_problem(domain, [3], 1.0)
    mechanism = solve_lp(single, algorithm="simplex")
    assert mechanism.loss == pytest.approx(mechanism.lower_bound, rel=1e-12)
