"""LP+EM: between the exponential mechanism and the full LP, private by audit."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from helpers import KINDS, displacement_problem, random_domain

from panda_mdp import Mechanism, Problem, constopt, exponential, optimal
from panda_mdp.compute.highs import Lp
from panda_mdp.errors import MethodError, Stopped
from panda_mdp.methods.certify import Budget, certify
from panda_mdp.methods.constopt import RestrictedLp, restricted_form
from panda_mdp.methods.optimal.lp import solve_lp


def town(kind: str = "haversine", size: int = 40, seed: int = 9) -> Problem:
    """Ten outputs, so that four near ones leave six to the exponential form."""
    domain = random_domain(kind, size, seed=seed)
    near = float(np.median(domain.neighbours(1)[1]))
    rng = np.random.default_rng(seed)
    outputs = np.arange(0, size, size // 10)
    loss = domain.distances(None, outputs) * rng.uniform(0.5, 1.5, len(outputs))
    return Problem(domain, outputs, loss, 1.0 / near, prior=rng.dirichlet(np.ones(size)))


@pytest.mark.parametrize("kind", KINDS)
def test_lies_between_the_exponential_mechanism_and_the_optimum(kind):
    problem = town(kind)
    mechanism = constopt(problem)
    assert isinstance(mechanism, Mechanism)
    assert mechanism.audit.holds
    assert mechanism.details["stopped"] == "solved"
    assert mechanism.lower_bound is None
    # The repair runs a little below epsilon.
    assert mechanism.loss <= exponential(problem).loss * 1.001
    assert mechanism.loss >= optimal(problem).lower_bound


def test_more_freedom_is_never_worse():
    problem = town()
    radii = np.quantile(problem.domain.distances(None, problem.outputs), [0.05, 0.2, 0.5, 1.0])
    losses = [constopt(problem, radius=float(radius)).loss for radius in radii]
    for before, after in itertools.pairwise(losses):
        assert after <= before * 1.001


def test_a_radius_of_the_diameter_is_the_full_lp():
    problem = town()
    mechanism = constopt(problem, radius=problem.domain.diameter)
    assert mechanism.details["near_share"] == 1.0
    full = solve_lp(problem, "graph", "ipm")
    assert mechanism.details["highs_objective"] == pytest.approx(
        full.details["highs_objective"], rel=1e-6
    )


def test_the_lp_is_the_restriction_that_it_claims_to_be():
    """Against the same LP written with all K m variables and equations for the far entries."""
    from scipy.optimize import linprog

    problem = town(size=20)
    apart = problem.domain.distances(None, problem.outputs)
    radius = float(np.quantile(apart, 0.3))
    size, outputs = apart.shape
    em = np.exp(-0.5 * problem.epsilon * apart)
    em /= em.sum(axis=1, keepdims=True)
    count = size * outputs
    equal, right, below = [], [], []
    for x in range(size):
        row = np.zeros(count + outputs)
        row[x * outputs : (x + 1) * outputs] = 1
        equal.append(row)
        right.append(1.0)
        for y in range(outputs):
            if apart[x, y] > radius:
                row = np.zeros(count + outputs)
                row[x * outputs + y], row[count + y] = 1, -em[x, y]
                equal.append(row)
                right.append(0.0)
            for other in range(size):
                exponent = problem.epsilon * problem.domain.distance(x, other)
                if other != x and exponent <= 30:
                    row = np.zeros(count + outputs)
                    row[x * outputs + y] = np.exp(-exponent)
                    row[other * outputs + y] = -1
                    below.append(row)
    cost = np.concatenate([problem.weighted_loss.ravel(), np.zeros(outputs)])
    direct = linprog(cost, np.array(below), np.zeros(len(below)), np.array(equal), np.array(right))
    mechanism = constopt(problem, radius=radius)
    assert mechanism.details["highs_objective"] == pytest.approx(direct.fun, rel=1e-6)


def test_the_exponential_mechanism_is_a_point_of_the_form():
    rng = np.random.default_rng(0)
    em = rng.dirichlet(np.ones(4), 6)
    near = rng.random((6, 4)) < 0.4
    form = restricted_form(near, em)
    values = np.concatenate([em[near], np.ones(4)])
    np.testing.assert_allclose((form @ values).reshape(6, 4), em)
    values[-4:] = [2, 3, 4, 5]
    expected = np.where(near, em, em * [2, 3, 4, 5])
    np.testing.assert_allclose((form @ values).reshape(6, 4), expected)
    assert form.shape == (24, len(values))


def test_radius_zero_frees_the_outputs_own_records():
    problem = town()
    mechanism = constopt(problem, radius=0.0)
    assert mechanism.details["near_pairs"] == problem.outputs_count
    assert mechanism.audit.holds


def test_four_outputs_of_a_record_are_near_by_default():
    mechanism = constopt(town())
    assert mechanism.details["near_share"] == pytest.approx(0.4, abs=0.01)
    names = [name for name, _ in mechanism.stages]
    assert {"graph", "build", "solve", "repair", "audit"} <= set(names)


def test_no_time_gives_the_exponential_mechanism():
    problem = town()
    mechanism = constopt(problem, time_limit=1e-9)
    assert mechanism.details["stopped"] == "time limit"
    assert mechanism.details["table"] == "exponential"
    assert mechanism.loss == pytest.approx(exponential(problem).loss, rel=1e-3)


@pytest.mark.parametrize("ended", [Stopped.INTERRUPTED, Stopped.FAILED])
def test_an_interrupt_or_a_failure_gives_something_private(ended):
    class Unsolved(RestrictedLp):
        def advance(self, target, standing):
            super().advance(target, standing)
            self.ended = ended

    mechanism = certify(Unsolved(town(), None), Budget(None)).mechanism()
    assert mechanism.details["stopped"] == ended
    assert mechanism.details["table"] == "LP"
    assert mechanism.audit.holds


def test_what_highs_calls_infeasible_is_tried_again():
    problem, tolerances = town(), []

    class Doubting(Lp):
        def __init__(self, *arguments, **bounds):
            tolerances.append(arguments[5])
            super().__init__(*arguments, **bounds)

        def solve(self, time_limit=None):
            answer = super().solve(time_limit)
            if tolerances[-1] is None:
                return replace(answer, status="Infeasible", optimal=False, primal=None)
            return answer

    solver = RestrictedLp(problem, None)
    solver.solver = Doubting
    mechanism = certify(solver, Budget(None)).mechanism()
    assert tolerances == [None, 1e-5]
    assert mechanism.details["stopped"] == "solved"
    assert mechanism.loss == pytest.approx(constopt(problem).loss, rel=1e-2)
    assert mechanism.audit.holds


def test_degenerate_cases():
    domain = random_domain("matrix", 20)
    assert (constopt(displacement_problem(domain, [3], 1.0)).matrix == 1.0).all()
    everything = constopt(displacement_problem(domain, np.arange(20), 1.0))
    assert everything.audit.holds
    tiny = constopt(displacement_problem(domain, [0, 5], 1e-9 / domain.diameter))
    assert np.ptp(tiny.matrix, axis=0).max() <= 2e-9


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"radius": -1.0}, "radius is -1.0"),
        ({"radius": np.nan}, "radius is nan"),
        ({"time_limit": 0.0}, "time_limit is"),
    ],
)
def test_options_are_checked(options, says):
    with pytest.raises(MethodError, match=says):
        constopt(town(), **options)
