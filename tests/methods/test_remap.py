"""Bayes-optimal remapping."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from panda_mdp import Domain, Mechanism, NoGuarantee, Problem, exponential, remap
from panda_mdp.methods.adjust import best_response
from panda_mdp.privacy.quantise import TOTAL


def random_problem(seed: int, records: int = 40, outputs: int = 9) -> Problem:
    generator = np.random.default_rng(seed)
    domain = Domain.from_vectors(generator.normal(size=(records, 2)))
    prior = generator.dirichlet(np.ones(records))
    chosen = generator.choice(records, outputs, replace=False)
    return Problem(domain, chosen, generator.gamma(1.0, size=(records, outputs)), 1.5, prior)


def test_each_output_goes_to_its_best_response_by_brute_force() -> None:
    problem = random_problem(0)
    mechanism = exponential(problem)
    expected = np.zeros_like(mechanism.matrix)
    for y in range(problem.outputs_count):
        posterior = problem.prior * mechanism.matrix[:, y]
        costs = [float(posterior @ problem.loss[:, other]) for other in range(9)]
        expected[:, int(np.argmin(costs))] += mechanism.matrix[:, y]
    np.testing.assert_allclose(remap(mechanism).matrix, expected, rtol=1e-14)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_loss_never_rises_and_sums_stay_exact(seed: int) -> None:
    mechanism = exponential(random_problem(seed, records=12, outputs=5))
    better = remap(mechanism)
    assert better.loss <= mechanism.loss
    assert [sum(map(int, row)) for row in better.weights] == [TOTAL] * 12
    assert better.audit.holds
    assert better.audit.epsilon <= mechanism.audit.epsilon * (1 + 1e-9)
    assert np.array_equal(remap(better).weights, better.weights)


def test_nothing_moves_where_every_output_is_best() -> None:
    domain = Domain.from_vectors([[0.0], [1.0]])
    mechanism = exponential(Problem(domain, [0, 1], [[1, 1], [1, 1]], 1.0))
    assert best_response(mechanism.problem, mechanism.matrix).tolist() == [0, 1]
    assert remap(mechanism).loss == mechanism.loss


def test_lower_bound_and_history_stay() -> None:
    mechanism = replace(exponential(random_problem(1)), bound=0.125)
    better = remap(mechanism)
    assert better.lower_bound == 0.125
    assert better.method == "exponential, remapped"
    assert [name for name, _ in better.stages][-1] == "remap"
    assert better.details["outputs_used"] <= 9


def test_a_table_without_guarantee_stays_without() -> None:
    problem = random_problem(2)
    matrix = np.eye(9)[problem.loss.argmin(axis=1)]
    assert isinstance(remap(NoGuarantee.from_matrix(problem, matrix)), NoGuarantee)


def test_a_table_at_its_limit_is_remapped_too() -> None:
    # Both columns sit at the limit up to rounding; so does their sum.
    domain = Domain.from_vectors([[0.0], [1.0], [2.0]])
    ratio = np.exp(-1.0)
    rows = np.array([[0.3, 0.1, 0.6], [0.3 * ratio, 0.1 * ratio, 0.0], [0.1, 0.1, 0.8]])
    rows[1, 2] = 1 - rows[1, :2].sum()
    loss = [[0.0, 5.0, 5.0], [0.0, 5.0, 1.0], [0.0, 5.0, 1.0]]
    epsilon = float(
        NoGuarantee.from_matrix(Problem(domain, [0, 1, 2], loss, 1.0), rows).audit.epsilon
    )
    mechanism = Mechanism.from_matrix(Problem(domain, [0, 1, 2], loss, epsilon), rows)
    better = remap(mechanism)
    assert better.audit.holds
    assert better.loss < mechanism.loss
