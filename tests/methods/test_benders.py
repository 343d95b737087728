"""LP+BD: equals the optimum to its gap, with bounds on both sides in every iteration."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import KINDS, displacement_problem, random_domain

from panda_mdp import Domain, Mechanism, Problem, benders, optimal
from panda_mdp.errors import MethodError
from panda_mdp.methods.benders import Decomposed
from panda_mdp.methods.certify import Budget, certify
from panda_mdp.methods.optimal.lp import solve_lp
from panda_mdp.table.bound import Proved


def town(kind: str = "haversine", size: int = 40, seed: int = 7) -> Problem:
    domain = random_domain(kind, size, seed=seed)
    near = float(np.median(domain.neighbours(1)[1]))
    rng = np.random.default_rng(seed)
    prior = rng.random(size) * (rng.random(size) < 0.8)
    return displacement_problem(domain, np.arange(0, size, 8), 1.0 / near, prior / prior.sum())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("clusters", [1, 2, 4])
def test_equals_the_optimum_to_its_gap(kind, clusters):
    problem = town(kind)
    exact = solve_lp(problem, "all", "ipm")
    mechanism = benders(problem, clusters=clusters, gap=0.01)
    assert isinstance(mechanism, Mechanism)
    assert mechanism.audit.holds
    assert mechanism.details["stopped"] == "gap reached"
    assert mechanism.gap <= 0.01
    # Both bounds are rigorous, both tables private.
    assert mechanism.lower_bound <= exact.loss
    assert exact.lower_bound <= mechanism.loss <= 1.01 * exact.loss
    assert mechanism.details["clusters"] == clusters


def test_agrees_with_the_flagship():
    problem = town(size=70)
    first, second = benders(problem), optimal(problem)
    assert first.lower_bound <= second.loss
    assert second.lower_bound <= first.loss
    assert first.loss == pytest.approx(second.loss, rel=0.01)


def test_exact_optimum_of_a_grid():
    axis = np.arange(5.0)
    domain = Domain.from_vectors(np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2))
    mechanism = benders(displacement_problem(domain, np.arange(25), 1.0), clusters=3)
    assert mechanism.lower_bound <= 1.228677 + 5e-7
    assert 1.228677 - 5e-7 <= mechanism.loss <= 1.01 * 1.228677


def test_every_iteration_has_a_lower_and_an_upper_bound():
    mechanism = benders(town(size=60), gap=2e-3)
    seconds, iterations, losses, bounds = zip(*mechanism.details["trace"], strict=True)
    assert list(seconds) == sorted(seconds)
    assert list(iterations) == list(range(1, len(iterations) + 1))
    assert list(losses) == sorted(losses, reverse=True)
    assert list(bounds) == sorted(bounds)
    assert losses[-1] == mechanism.loss
    # The proof that is kept is shortened by up to a hundredth of the gap.
    assert isinstance(mechanism.bound, Proved)
    assert bounds[-1] * (1 - 2e-5) <= mechanism.lower_bound <= bounds[-1]
    assert {name for name, _ in mechanism.stages} >= {
        "start", "graph", "master", "clusters", "bound", "repair", "audit",
    }  # fmt: skip
    assert mechanism.details["boundary_records"] < 60
    assert mechanism.details["cuts"] > 0


def test_pairs_outside_the_graph_are_added_where_they_matter():
    problem = town("euclidean", 60, seed=3)
    from panda_mdp.methods.benders import thin_graph

    mechanism = benders(problem.with_epsilon(problem.epsilon / 6), gap=1e-3)
    assert mechanism.details["edges"] > thin_graph(problem.domain, problem.epsilon / 6).count
    assert mechanism.gap <= 1e-3


@pytest.mark.parametrize("seconds", [1e-9, 0.1])
def test_time_limit(seconds):
    mechanism = benders(town(size=80), gap=1e-9, time_limit=seconds)
    assert mechanism.audit.holds
    assert mechanism.details["stopped"] == "time limit"
    assert mechanism.lower_bound <= mechanism.loss


def test_iterations_are_a_limit():
    mechanism = benders(town(size=60), gap=1e-7, iterations=3)
    assert mechanism.details["stopped"] == "iterations"
    assert mechanism.details["iterations"] == 3
    assert mechanism.audit.holds


def test_an_interrupt_returns_the_best_certified_table():
    class Interrupted(Decomposed):
        def advance(self, target, standing):
            if self.iterations == 4:
                raise KeyboardInterrupt
            super().advance(target, standing)

    mechanism = certify(Interrupted(town(size=60), 2), Budget(1e-9)).mechanism()
    assert mechanism.details["stopped"] == "interrupted"
    assert mechanism.audit.holds
    assert mechanism.lower_bound <= mechanism.loss


def test_degenerate_cases():
    domain = random_domain("haversine", 30)
    single = benders(displacement_problem(domain, [3], 1.0))
    assert (single.matrix == 1.0).all()
    constant = benders(Problem(domain, [0, 1], np.full((30, 2), 2.0), 1.0))
    assert constant.loss == pytest.approx(2.0)
    free = benders(Problem(domain, [0, 1], np.zeros((30, 2)), 1.0))
    assert free.loss == 0.0
    near = float(domain.neighbours(1)[1].min())
    loose = benders(displacement_problem(domain, [0, 9, 20], 100 / near))
    assert loose.gap <= 0.01
    tiny = benders(displacement_problem(domain, [0, 9, 20], 1e-9 / domain.diameter))
    assert tiny.gap <= 0.01
    pair = Domain.from_vectors([[0.0], [1.0]])
    two = benders(displacement_problem(pair, [0, 1], 2.0), gap=1e-3)
    assert two.loss == pytest.approx(1 / (1 + np.exp(2)), rel=1e-3)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"clusters": 0}, "clusters is 0"),
        ({"clusters": 41}, "clusters is 41"),
        ({"clusters": 2.5}, "clusters is 2.5"),
        ({"gap": 0.0}, "gap is"),
        ({"time_limit": -1.0}, "time_limit is"),
        ({"iterations": 0}, "iterations is"),
    ],
)
def test_options_are_checked(options, says):
    with pytest.raises(MethodError, match=says):
        benders(town(), **options)
