"""Cuts are valid for every private table, and the master's prices add up to a bound."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import displacement_problem, random_domain

from panda_mdp import Domain, loss_exponential
from panda_mdp.methods.benders import (
    Cluster,
    Cut,
    Split,
    compact_clusters,
    thin_graph,
)
from panda_mdp.methods.optimal.lp import solve_lp
from panda_mdp.methods.optimal.program import Graph, edge_multipliers
from panda_mdp.table.bound import dual_bound


def town(size: int = 40):
    domain = random_domain("haversine", size, seed=7)
    near = float(np.median(domain.neighbours(1)[1]))
    return displacement_problem(domain, np.arange(0, size, 10), 0.7 / near)


@pytest.fixture(scope="module")
def split() -> Split:
    problem = town()
    graph = thin_graph(problem.domain, problem.epsilon)
    return Split(problem, graph, compact_clusters(problem.domain, 2))


def private_tables(problem):
    yield loss_exponential(problem).matrix
    yield solve_lp(problem, "all", "simplex").matrix
    yield np.full((problem.size, problem.outputs_count), 1 / problem.outputs_count)
    scores = problem.domain.distances(None, problem.outputs)
    weights = np.exp(-0.5 * problem.epsilon * scores[:, ::-1])
    yield weights / weights.sum(axis=1, keepdims=True)


def internal_cost(cluster: Cluster, table: np.ndarray) -> float:
    return float(cluster.cost @ table.ravel()[cluster.columns])


def bounded_from_below(cut: Cut, split: Split, table: np.ndarray) -> float:
    """What a cut says at least of the internal costs of its cluster beside a table's border."""
    row, least = cut.row(split)
    return least - float(row[: len(split.border)] @ table.ravel()[split.border])


def test_clusters_are_compact_and_balanced():
    domain = random_domain("euclidean", 61)
    label = compact_clusters(domain, 4)
    sizes = np.bincount(label)
    assert len(sizes) == 4
    assert sizes.max() - sizes.min() <= 16
    assert len(np.bincount(compact_clusters(domain, 1))) == 1


def test_boundary_records_are_those_with_an_edge_to_another_cluster(split):
    graph, label = split.graph, split.label
    expected = np.zeros(split.problem.size, dtype=bool)
    for i, j in graph.ends:
        if label[i] != label[j]:
            expected[[i, j]] = True
    np.testing.assert_array_equal(split.boundary, expected)
    assert 0 < expected.sum() < split.problem.size
    inside = np.concatenate([cluster.columns for cluster in split.clusters])
    assert sorted([*inside, *split.border]) == list(range(split.problem.loss.size))


def test_optimality_cuts_are_below_every_table_and_tight_where_they_were_made(split):
    tables = list(private_tables(split.problem))
    for cluster in split.clusters:
        for at in tables:
            entries, cut = cluster.reply(at.ravel())
            assert bounded_from_below(cut, split, at) == pytest.approx(
                float(cluster.cost @ entries), rel=1e-6
            )
            for other in tables:
                below = bounded_from_below(cut, split, other)
                assert below <= internal_cost(cluster, other) + 1e-9


def test_replies_are_the_best_internal_rows(split):
    for table in private_tables(split.problem):
        for cluster in split.clusters:
            entries, _ = cluster.reply(table.ravel())
            assert cluster.cost @ entries <= internal_cost(cluster, table) * (1 + 1e-9)
            rows = entries.reshape(-1, split.problem.outputs_count)
            np.testing.assert_allclose(rows.sum(axis=1), 1, atol=1e-6)


def test_feasibility_cuts_cut_off_the_point_and_no_private_table():
    # An internal record between two boundary records that report different outputs for certain.
    domain = Domain.from_vectors(np.stack([np.arange(6.0), np.zeros(6)], axis=1))
    problem = displacement_problem(domain, [0, 5], 0.5)
    steps = np.arange(5)
    graph = Graph(np.stack([steps, steps + 1], axis=1), np.ones(5))
    split = Split(problem, graph, np.array([0, 1, 1, 1, 2, 2]))
    cluster = next(c for c in split.clusters if 2 * problem.outputs_count in c.columns)
    table = np.tile([0.5, 0.5], (6, 1))
    table[[1, 3]] = [[1.0, 0.0], [0.0, 1.0]]
    entries, cut = cluster.reply(table.ravel())
    assert entries is None
    assert not cut.costed
    assert bounded_from_below(cut, split, table) > 0.1
    for private in private_tables(problem):
        assert bounded_from_below(cut, split, private) <= 1e-9


def test_the_master_bounds_the_optimum_from_below_by_its_prices(split):
    problem = split.problem
    optimum = solve_lp(problem, "graph", "simplex")
    fresh = Split(problem, split.graph, split.label)
    bounds = []
    for table in private_tables(problem):
        fresh.add([cluster.reply(table.ravel())[1] for cluster in fresh.clusters])
        answer = fresh.master.solve()
        assert answer.optimal
        bound = dual_bound(problem, edge_multipliers(split.graph, fresh.multipliers(answer.prices)))
        assert bound == pytest.approx(answer.objective * split.scale, rel=1e-6)
        assert bound <= optimum.loss
        bounds.append(bound)
    assert bounds == sorted(bounds)


def test_cuts_survive_a_larger_graph(split):
    problem = split.problem
    apart = problem.domain.distances()
    known = {tuple(pair) for pair in split.graph.ends.tolist()}
    new = np.array([(i, i + 20) for i in range(0, 20, 4) if (i, i + 20) not in known])
    larger = split.grown(Graph(new, apart[new[:, 0], new[:, 1]]))
    assert larger.boundary.sum() > split.boundary.sum()
    tables = list(private_tables(problem))
    for cluster in split.clusters:
        _, cut = cluster.reply(tables[0].ravel())
        after = next(c for c in larger.clusters if c.label == cluster.label)
        for table in tables:
            below = bounded_from_below(cut, larger, table)
            assert below <= internal_cost(after, table) + 1e-9
            # It says no less than it did of the records that were internal.
            moved = np.setdiff1d(cluster.columns, after.columns)
            rest = float(split.cost[moved] @ table.ravel()[moved])
            assert below + rest >= bounded_from_below(cut, split, table) - 1e-9


def test_thin_graph_leaves_insides_in_small_domains():
    problem = town(30)
    assert thin_graph(problem.domain, problem.epsilon).count < 30 * 29 / 4
    vectors = random_domain("matrix", 30)
    assert thin_graph(vectors, 1.0).count < 30 * 29 / 2
