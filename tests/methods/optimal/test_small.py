"""Small problems end at once, whatever their losses are, and what they claim is true."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from helpers import (
    KINDS,
    displacement_problem,
    lp_optimum,
    plain_problem,
    random_domain,
    wide_problem,
)

from panda_mdp import Domain, Problem, optimal
from panda_mdp.errors import GapWarning, Stopped
from panda_mdp.methods.certify import Budget, certify
from panda_mdp.methods.optimal.lp import PASSES, SmallLp, entry_bounds
from panda_mdp.methods.optimal.optimal import is_small
from panda_mdp.methods.optimal.program import centre_bound

TWO = Domain.from_vectors([[0.0], [1.0]])


@pytest.mark.parametrize("part", range(8))
def test_wide_ranged_losses_by_the_hundred(part):
    """Losses over up to seventeen orders of magnitude: the gap is certified, without a warning."""
    for seed in range(25 * part, 25 * part + 25):
        problem = wide_problem(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            mechanism = optimal(problem, gap=1e-3)
        assert mechanism.details["backend"] == "lp"
        assert mechanism.details["stopped"] is Stopped.GAP_REACHED, seed
        assert mechanism.loss <= mechanism.lower_bound * (1 + 1e-3), seed
        assert len(mechanism.details["trace"]) <= PASSES


@pytest.mark.parametrize("part", range(6))
def test_plain_problems_by_the_hundred_against_highs(part):
    """benchmarks/small_problems.py runs thousands; the bound is HiGHS' own or below."""
    for seed in range(40 * part, 40 * part + 40):
        problem = plain_problem(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("error", GapWarning)
            mechanism = optimal(problem)
        # HiGHS' tables break the constraints by up to 1e-10, and lose less for it.
        optimum = lp_optimum(problem) * (1 + 1e-7) + 1e-9 * problem.loss.max()
        assert mechanism.gap <= 0.01, seed
        assert mechanism.loss <= optimum * 1.01, seed
        assert mechanism.lower_bound <= optimum, seed


@pytest.mark.parametrize("seed", range(12))
def test_bound_and_loss_enclose_the_optimum(seed):
    rng = np.random.default_rng(seed)
    domain = random_domain(KINDS[seed % 4], 6, seed)
    epsilon = float(rng.uniform(0.3, 3) / np.median(domain.neighbours(1)[1]))
    problem = Problem(domain, [0, 2, 5], rng.uniform(0.1, 5, (6, 3)), epsilon)
    mechanism = optimal(problem, gap=1e-4)
    optimum = lp_optimum(problem)
    assert mechanism.lower_bound <= optimum * (1 + 1e-7)
    assert optimum * (1 - 1e-7) <= mechanism.loss <= optimum * (1 + 2e-4)


@pytest.mark.parametrize(
    ("loss", "epsilon"), [([[1, 1e9], [1, 2]], 1.0), ([[1, 1e9], [1e9, 1]], 60.0)]
)
def test_a_gap_that_is_called_reached_is_reached(loss, epsilon):
    """A floor of 1e-8 under every output once cost 2.5 and 5.2 here, and was called optimal."""
    mechanism = optimal(Problem(TWO, [0, 1], loss, epsilon))
    assert mechanism.loss <= 1.01
    assert mechanism.gap <= 0.01
    assert mechanism.details["stopped"] is Stopped.GAP_REACHED


def test_a_tight_gap_on_a_grid():
    grid = np.stack(np.meshgrid(np.arange(5.0), np.arange(5.0)), axis=-1).reshape(-1, 2)
    mechanism = optimal(
        displacement_problem(Domain.from_vectors(grid), np.arange(25), 1.0), gap=1e-4
    )
    assert mechanism.gap <= 1e-4
    assert mechanism.details["backend"] == "lp"


def test_where_the_lp_has_no_answer_the_closed_form_is_better_than_one_row():
    class Unsolved(SmallLp):
        def advance(self, target, standing):
            self.ended = Stopped.PRECISION_REACHED

    problem = displacement_problem(random_domain("euclidean", 9), [0, 3, 6], 1.0)
    mechanism = certify(Unsolved(problem), Budget(1e-5)).mechanism()
    assert mechanism.details["stopped"] is Stopped.PRECISION_REACHED
    assert mechanism.audit.holds
    best = problem.expected_loss(mechanism.matrix)
    assert best < float((problem.prior @ problem.loss).min()), "a closed form is better"


def test_a_time_limit_and_an_interrupt_are_no_warnings():
    problem = displacement_problem(random_domain("euclidean", 9), [0, 3, 6], 1.0)
    limited = optimal(problem, gap=1e-5, time_limit=1e-9)
    assert limited.details["stopped"] is Stopped.TIME_LIMIT

    def interrupt(*_):
        raise KeyboardInterrupt

    ended = optimal(problem, gap=1e-9, progress=interrupt)
    assert ended.details["stopped"] is Stopped.INTERRUPTED
    assert limited.audit.holds
    assert ended.audit.holds


@pytest.mark.parametrize("seconds", [1e-6, 1e-3])
def test_what_highs_has_when_time_is_over_may_be_nothing(seconds):
    """By a clock that stands still only HiGHS knows that its time is over."""
    problem = displacement_problem(random_domain("haversine", 40), np.arange(20), 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = certify(SmallLp(problem), Budget(1e-6, seconds, clock=lambda: 0.0)).mechanism()
    assert made.audit.holds and made.lower_bound <= made.loss


def test_what_is_small():
    assert is_small(displacement_problem(random_domain("euclidean", 25), np.arange(25), 1.0))
    assert not is_small(displacement_problem(random_domain("euclidean", 65), [0], 1.0))
    assert not is_small(displacement_problem(random_domain("euclidean", 60), np.arange(60), 1.0))


@pytest.mark.parametrize("seed", range(8))
def test_no_optimal_table_leaves_the_box(seed):
    problem = wide_problem(4 * seed)
    mechanism = certify(SmallLp(problem), Budget(1e-4)).mechanism()
    free = float((problem.prior * problem.loss.min(axis=1)).sum()) * (1 - 1e-12)
    room, excess, most = entry_bounds(problem, mechanism.loss, free)
    assert room >= mechanism.loss - free
    assert (
        excess == problem.prior[:, None] * (problem.loss - problem.loss.min(axis=1)[:, None])
    ).all()
    assert (mechanism.matrix <= most * (1 + 1e-6)).all()


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 1.0])
def test_the_bound_of_one_centre_holds(epsilon):
    problem = displacement_problem(random_domain("haversine", 12), [0, 4, 8], epsilon)
    ignorant = float((problem.prior @ problem.loss).min())
    bounds = [centre_bound(problem, x) for x in range(12)]
    assert max(bounds) <= optimal(problem, gap=1e-4).loss
    assert max(bounds) >= ignorant * np.exp(-epsilon * problem.domain.diameter) * (1 - 1e-12)
