"""A small table of places."""

from __future__ import annotations

import numpy as np
import pytest

import panda_mdp as pm

EPSILON = 2.0


@pytest.fixture(scope="session")
def domain() -> pm.Domain:
    """Ten places 1.1 km apart, northwards."""
    return pm.Domain.from_points(41.9 + 0.01 * np.arange(10), [12.5] * 10)


@pytest.fixture(scope="session")
def mechanism(domain: pm.Domain) -> pm.Mechanism:
    outputs = [0, 3, 6, 9]
    problem = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), EPSILON)
    return pm.exponential(problem)


@pytest.fixture(scope="session")
def ages() -> pm.Mechanism:
    domain = pm.Domain.from_vectors(np.arange(5.0), unit="years")
    problem = pm.Problem(domain, [1, 3], pm.distance_loss(domain, [1, 3]), 1.0)
    return pm.exponential(problem)
