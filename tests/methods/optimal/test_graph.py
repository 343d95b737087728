"""Which pairs are constrained: nearest in each cone, triangulation, neighbours, all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import KINDS, random_domain
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from panda_mdp import Domain
from panda_mdp.base.arrays import delaunay
from panda_mdp.compute.closure import Closure
from panda_mdp.methods.optimal.program import (
    ALL_PAIRS_RECORDS,
    LEAST_GAIN,
    MAX_EXPONENT,
    NEIGHBOURS,
    Graph,
    all_pairs,
    broken_pairs,
    constraint_graph,
    distinct,
)


def edge_set(ends: np.ndarray) -> set[tuple[int, int]]:
    return {(min(i, j), max(i, j)) for i, j in ends.tolist()}


def test_distinct_pairs_have_no_order_and_no_repetition():
    pairs = np.random.default_rng(0).integers(50, size=(400, 2))
    expected = np.unique(np.sort(pairs, axis=1), axis=0)
    np.testing.assert_array_equal(distinct(pairs, 50), expected)
    np.testing.assert_array_equal(distinct(pairs[:1], 50), np.sort(pairs[:1], axis=1))
    assert distinct(pairs[:0], 50).shape == (0, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_edges_are_distinct_ordered_and_truly_measured(kind):
    domain = random_domain(kind, 120)
    graph = constraint_graph(domain, 1e-3)
    assert len(edge_set(graph.ends)) == graph.count == len(graph.length)
    assert np.all(graph.ends[:, 0] < graph.ends[:, 1])
    expected = domain.metric.pairs(graph.ends[:, 0], graph.ends[:, 1])
    np.testing.assert_array_equal(graph.length, expected)
    pairs = coo_array((np.ones(graph.count), graph.ends.T), shape=(120, 120))
    assert connected_components(pairs, directed=False)[0] == 1
    assert graph.count < 120 * 119 / 4


def test_small_domains_get_all_pairs():
    domain = random_domain("haversine", ALL_PAIRS_RECORDS)
    assert constraint_graph(domain, 1e-3).count == ALL_PAIRS_RECORDS * (ALL_PAIRS_RECORDS - 1) / 2


def test_long_pairs_are_dropped_and_never_shortened():
    domain = Domain.from_vectors([[0.0], [1.0], [2.0], [100.0]])
    graph = all_pairs(domain, MAX_EXPONENT)
    assert edge_set(graph.ends) == {(0, 1), (1, 2)}
    np.testing.assert_array_equal(graph.length, [1.0, 1.0])


def test_isolated_records_leave_no_edge():
    graph = all_pairs(Domain.from_vectors([[0.0], [100.0]]), 1.0)
    assert graph.count == 0
    assert graph.ends.shape == (0, 2)


def test_neighbours_in_many_dimensions():
    domain = random_domain("euclidean", 100)
    near, _ = domain.neighbours(NEIGHBOURS)
    expected = {(min(i, j), max(i, j)) for i in range(100) for j in near[i].tolist()}
    assert edge_set(constraint_graph(domain, 1e-3).ends) == expected


def test_neighbours_and_triangles_in_a_plane():
    domain = random_domain("haversine", 100)
    near, _ = domain.neighbours(NEIGHBOURS // 2)
    expected = {(min(i, j), max(i, j)) for i in range(100) for j in near[i].tolist()}
    found = edge_set(constraint_graph(domain, 1e-3).ends)
    assert found == expected | edge_set(delaunay(domain.plane))


def test_delaunay_of_a_square_and_of_a_line():
    square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.1]])
    edges = edge_set(delaunay(square))
    assert {(0, 1), (1, 2), (2, 3), (0, 3)} < edges
    assert len(edges) == 5
    line = np.stack([np.arange(5.0), np.arange(5.0)], axis=1)
    assert delaunay(line).shape == (0, 2)


def test_records_on_a_line_are_still_connected():
    line = np.stack([np.arange(60.0), np.zeros(60)], axis=1)
    edges = edge_set(constraint_graph(Domain.from_vectors(line), 1.0).ends)
    assert edges >= {(i, i + 1) for i in range(59)}


def test_join_appends():
    first = all_pairs(Domain.from_vectors([[0.0], [1.0]]), 1.0)
    joined = first.join(np.array([[0, 5]]), np.array([2.0]))
    assert isinstance(joined, Graph)
    assert joined.ends.tolist() == [[0, 1], [0, 5]]
    assert joined.length.tolist() == [1.0, 2.0]


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
    found = broken_pairs(closure, NONE, closure.start(matrix), epsilon, most)
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
    assert broken_pairs(closure, known, closure.start(table(60)), 0.5).count == 0
    # In either order of the ends.
    turned = Graph(known.ends[:, ::-1].copy(), known.length)
    assert broken_pairs(closure, turned, closure.start(table(60)), 0.5).count == 0


def test_a_private_table_needs_no_pair():
    domain = random_domain("matrix", 50)
    weights = np.exp(-0.5 * domain.distances(None, [0, 10, 20]))
    private = weights / weights.sum(axis=1, keepdims=True)
    closure = Closure(domain)
    assert broken_pairs(closure, NONE, closure.start(private), 1.0).count == 0


def test_pairs_too_long_to_bind_are_not_added():
    domain = Domain.from_vectors([[0.0], [1.0], [2.0]])
    closure = Closure(domain)
    found = broken_pairs(closure, NONE, closure.start(np.eye(3)), 0.9 * MAX_EXPONENT)
    assert np.all(found.length * 0.9 * MAX_EXPONENT <= MAX_EXPONENT)
