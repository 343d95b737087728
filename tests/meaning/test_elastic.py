"""Elastic metrics are metrics, between their bounds, and protect where they are shrunk."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from helpers import KINDS, random_domain

import panda_mdp as pm
from panda_mdp.errors import DomainError
from panda_mdp.meaning.elastic import elastic


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_a_metric_between_its_bounds(kind):
    domain = random_domain(kind, 9, seed=2)
    scale = np.random.default_rng(0).uniform(0.2, 3.0, 9)
    made, plain = elastic(domain, scale).distances(), domain.distances()
    for a, b, c in itertools.permutations(range(9), 3):
        assert made[a, b] <= made[a, c] + made[c, b] + 1e-12
    assert (made >= scale.min() * plain * (1 - 1e-12)).all()
    assert (made <= 0.5 * (scale[:, None] + scale) * plain * (1 + 1e-12)).all()
    same = elastic(domain, np.ones(9)).distances()
    assert same == pytest.approx(plain, rel=1e-9)


def test_a_sensitive_place_is_harder_to_locate_at_the_same_epsilon():
    domain = random_domain("haversine", 25, seed=3)
    scale = 0.2 + 0.8 * np.minimum(domain.distances([7])[0] / 10.0, 1.0)
    loss = domain.distances()
    plain, shrunk = (
        pm.optimal(pm.Problem(d, range(25), loss, 0.6), gap=1e-3)
        for d in (domain, elastic(domain, scale))
    )
    assert shrunk.audit.holds
    prior = np.full(25, 1 / 25)
    assert pm.attack(shrunk, prior).hit_by_record[7] <= pm.attack(plain, prior).hit_by_record[7]
    assert loss[7] @ shrunk.matrix[7] > loss[7] @ plain.matrix[7]


def test_bad_scales_are_named():
    domain = random_domain("euclidean", 4)
    with pytest.raises(DomainError, match=r"scale\[1\] is 0"):
        elastic(domain, [1, 0, 1, 1])
    with pytest.raises(DomainError, match="one number per record"):
        elastic(domain, [1, 1])
