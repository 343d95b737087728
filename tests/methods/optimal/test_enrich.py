"""The pairs that are added are outside the graph, violated, and the worst of each record."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import KINDS, random_domain

from panda_mdp import Domain
from panda_mdp.compute.closure import Closure
from panda_mdp.methods.optimal.enrich import LEAST_GAIN, missing_pairs
from panda_mdp.methods.optimal.graph import MAX_EXPONENT, Graph, all_pairs

NONE = Graph(np.empty((0, 2), dtype=np.int64), np.empty(0))


def table(size: int) -> np.ndarray:
    return np.random.default_rng(0).dirichlet(np.full(4, 0.3), size)


def gains(domain: Domain, matrix: np.ndarray, epsilon: float) -> np.ndarray:
    """sum_y max(0, z_jy exp(-epsilon d) - z_iy) for every record i and partner j."""
    factor = np.exp(-epsilon * domain.distances())
    found = np.maximum(0, matrix[None] * factor[:, :, None] - matrix[:, None]).sum(axis=2)
    np.fill_diagonal(found, 0)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", [1, 3])
def test_the_worst_partners_of_each_record(kind, most):
    domain = random_domain(kind, 90)
    epsilon = 1.0 / float(np.median(domain.neighbours(1)[1]))
    closure = Closure(domain)
    matrix = table(90)
    found = missing_pairs(closure, NONE, matrix, epsilon, most)
    true = gains(domain, matrix, epsilon)
    worst = np.argsort(-true, axis=1)[:, :most]
    expected = {
        (min(i, j), max(i, j))
        for i in range(90)
        for j in worst[i].tolist()
        if true[i, j] > LEAST_GAIN * 1.001
    }
    pairs = {tuple(pair) for pair in found.ends.tolist()}
    assert expected <= pairs
    assert len(pairs) == found.count
    assert all(max(true[i, j], true[j, i]) > LEAST_GAIN * 0.999 for i, j in pairs)
    np.testing.assert_allclose(
        found.length, domain.metric.pairs(found.ends[:, 0], found.ends[:, 1]), rtol=1e-14
    )


def test_pairs_of_the_graph_are_not_added_again():
    domain = random_domain("haversine", 60)
    closure = Closure(domain)
    known = all_pairs(domain, 1e-3)
    assert missing_pairs(closure, known, table(60), 0.5).count == 0
    # In either order of the ends.
    turned = Graph(known.ends[:, ::-1].copy(), known.length)
    assert missing_pairs(closure, turned, table(60), 0.5).count == 0


def test_a_private_table_needs_no_pair():
    domain = random_domain("matrix", 50)
    weights = np.exp(-0.5 * domain.distances(None, [0, 10, 20]))
    private = weights / weights.sum(axis=1, keepdims=True)
    assert missing_pairs(Closure(domain), NONE, private, 1.0).count == 0


def test_pairs_too_long_to_bind_are_not_added():
    domain = Domain.from_vectors([[0.0], [1.0], [2.0]])
    found = missing_pairs(Closure(domain), NONE, np.eye(3), 0.9 * MAX_EXPONENT)
    assert np.all(found.length * 0.9 * MAX_EXPONENT <= MAX_EXPONENT)
