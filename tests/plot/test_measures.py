"""What the pictures show, against brute force."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from panda_mdp import Domain, Mechanism, NoGuarantee, Problem, distance_loss, exponential
from panda_mdp.base.floored import FlooredRows
from panda_mdp.errors import MethodError
from panda_mdp.plot.measures import (
    expected_losses,
    local_epsilons,
    radius_of_share,
)


@pytest.fixture(scope="module")
def mechanism() -> Mechanism:
    rng = np.random.default_rng(0)
    domain = Domain.from_points(rng.uniform(41.8, 41.9, 90), rng.uniform(12.4, 12.5, 90))
    outputs = np.arange(0, 90, 9)
    return exponential(Problem(domain, outputs, distance_loss(domain, outputs), 2.0))


def brute_rates(mechanism: Mechanism) -> np.ndarray:
    logs = np.log(mechanism.matrix)
    gaps = np.abs(logs[:, None] - logs).max(axis=2)
    apart = mechanism.problem.domain.distances()
    np.fill_diagonal(apart, np.inf)
    return gaps / apart


def test_expected_losses_average_to_the_loss(mechanism: Mechanism) -> None:
    losses = expected_losses(mechanism)
    assert losses @ mechanism.problem.prior == pytest.approx(mechanism.loss, rel=1e-12)
    row = (mechanism.problem.loss[4] * mechanism.matrix[4]).sum()
    assert losses[4] == pytest.approx(row, rel=1e-12)


def test_local_epsilons_are_the_audit_seen_from_each_record(mechanism: Mechanism) -> None:
    local = local_epsilons(mechanism)
    np.testing.assert_allclose(local, brute_rates(mechanism).max(axis=1), rtol=1e-9)
    assert local.max() == pytest.approx(mechanism.audit.epsilon, rel=1e-9)


def test_zeros_make_epsilons_infinite_unless_they_are_everywhere() -> None:
    domain = Domain.from_vectors([[0.0], [1.0], [3.0]])
    problem = Problem(domain, [0, 1, 2], np.ones((3, 3)), 1.0)
    mixed = NoGuarantee.from_matrix(problem, [[0.5, 0.5, 0], [0.5, 0.5, 0], [0.5, 0.4, 0.1]])
    assert np.isinf(local_epsilons(mixed)).all()
    unused = NoGuarantee.from_matrix(problem, [[0.5, 0.5, 0], [0.5, 0.5, 0], [0.4, 0.6, 0]])
    expected = np.log(0.5 / 0.4) / np.array([3, 2, 2])
    np.testing.assert_allclose(local_epsilons(unused), expected, rtol=1e-9)


def test_radius_of_share() -> None:
    domain = Domain.from_vectors([[0.0], [1.0], [3.0]])
    problem = Problem(domain, [0, 1, 2], np.ones((3, 3)), 5.0)
    row = [0.5, 0.3, 0.2]
    table = Mechanism.from_matrix(problem, [row] * 3)
    assert [radius_of_share(table, 0, share) for share in (0.5, 0.51, 0.8, 1.0)] == [0, 1, 1, 3]
    with pytest.raises(MethodError, match="share is 0"):
        radius_of_share(table, 0, 0)


def test_losses_of_a_sparse_table_are_those_of_its_matrix(mechanism: Mechanism) -> None:
    weights = np.asarray(mechanism.weights)
    sparse = replace(mechanism, weights=FlooredRows.of(weights, weights.min(axis=0)))
    assert isinstance(sparse.weights, FlooredRows)
    np.testing.assert_allclose(expected_losses(sparse), expected_losses(mechanism), rtol=1e-12)
