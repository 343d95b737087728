"""Which pairs are constrained: nearest in each cone, triangulation, neighbours, all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import KINDS, random_domain
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from panda_mdp import Domain
from panda_mdp.methods.optimal.graph import (
    ALL_PAIRS_RECORDS,
    MAX_EXPONENT,
    NEIGHBOURS,
    Graph,
    all_pairs,
    constraint_graph,
    delaunay,
    distinct,
    yao,
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


def test_yao_takes_the_nearest_in_each_cone():
    points = np.random.default_rng(0).normal(size=(40, 2))
    found = edge_set(yao(points, 8, candidates=39))
    expected = set()
    for i in range(40):
        towards = points - points[i]
        apart = np.hypot(*towards.T)
        cone = np.floor((np.arctan2(towards[:, 1], towards[:, 0]) + np.pi) / (np.pi / 4)).clip(0, 7)
        for c in range(8):
            inside = np.flatnonzero((cone == c) & (apart > 0))
            if len(inside):
                j = int(inside[apart[inside].argmin()])
                expected.add((min(i, j), max(i, j)))
    assert found == expected


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
    assert edges == {(i, i + 1) for i in range(59)}


def test_join_appends():
    first = all_pairs(Domain.from_vectors([[0.0], [1.0]]), 1.0)
    joined = first.join(np.array([[0, 5]]), np.array([2.0]))
    assert isinstance(joined, Graph)
    assert joined.ends.tolist() == [[0, 1], [0, 5]]
    assert joined.length.tolist() == [1.0, 2.0]
