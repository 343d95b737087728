"""Road distance as the metric of privacy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy
from scipy.sparse.csgraph import shortest_path

from panda_mdp import (
    City,
    Domain,
    Problem,
    exponential,
    load,
    optimal,
    synthetic_city,
    travel_loss,
)
from panda_mdp.base.arrays import adjacency
from panda_mdp.city.city import travel
from panda_mdp.errors import CityError, DomainError
from panda_mdp.methods.optimal.graph import constraint_graph
from panda_mdp.space.road import Road


def road(domain: Domain) -> Road:
    assert isinstance(domain.metric, Road)
    return domain.metric


@pytest.fixture(scope="module")
def city() -> City:
    return synthetic_city(400, seed=3)


def test_rows_are_computed_in_parts() -> None:
    """More nodes times records than are held at a time."""
    streets = scipy.sparse.diags_array([np.ones(3_000)] * 2, offsets=[-1, 1], format="csr")
    table = Road.over(streets, np.arange(0, 3_001, 3), "km").distances
    assert np.array_equal(table, 3.0 * np.abs(np.subtract.outer(np.arange(1001), np.arange(1001))))


@pytest.mark.parametrize("by", ["length", "time"])
def test_blocks_pairs_and_table_are_road_distances(city: City, by: str) -> None:
    domain = city.road_domain(60, seed=1, by=by)
    assert domain.unit == {"length": "km", "time": "min"}[by]
    expected = travel(city, domain.nodes, domain.nodes, by=by)
    rows, cols = np.array([5, 3, 5, 59]), np.array([7, 3, 0])
    block = domain.distances(rows, cols)
    # Costs are rounded to 1e-9 units each.
    np.testing.assert_allclose(block, expected[np.ix_(rows, cols)], atol=1e-7)
    pairs = road(domain).pairs(rows[:3], cols)
    assert np.array_equal(pairs, block[[0, 1, 2], [0, 1, 2]])
    table = road(domain).distances
    assert np.array_equal(table[np.ix_(rows, cols)], block)
    assert np.array_equal(table, table.T) and (np.diag(table) == 0).all()
    assert np.array_equal(domain.distances(rows, cols), block)


def test_table_is_a_metric_to_the_last_bit(city: City) -> None:
    table = road(city.road_domain(80)).distances
    steps = np.rint(table * 1e9)
    detour = (steps[:, :, None] + steps[None]).min(axis=1)
    assert np.array_equal(np.minimum(detour, steps), steps)
    # So the general check of matrices accepts it too.
    assert Domain.from_matrix(table).size == 80


def test_embedding_never_exceeds_the_metric(city: City) -> None:
    domain = city.road_domain(80)
    points = domain.metric.embedding
    chords = np.linalg.norm(points[:, None] - points, axis=2)
    assert (chords <= domain.distances() * (1 + 1e-12) + 1e-15).all()
    assert domain.metric.tree is None
    assert domain.diameter == domain.distances().max()


@pytest.mark.parametrize("records", [None, 40, 150])
def test_generating_pairs_imply_all_pairs(city: City, records: int | None) -> None:
    domain = city.road_domain(records, seed=2)
    pairs = road(domain).generating_pairs
    weights = domain.metric.pairs(pairs[:, 0], pairs[:, 1])
    size = domain.size
    graph = adjacency(pairs[:, 0], pairs[:, 1], size, weights)
    implied = shortest_path(graph, directed=False)
    np.testing.assert_allclose(implied, domain.distances(), rtol=1e-13, atol=1e-13)
    assert len(pairs) < size * (size - 1) / 4
    if records is None:
        # Where every node is a record the pairs are streets.
        a, b, _ = city.pairs
        streets = set(zip(a.tolist(), b.tolist(), strict=True))
        assert {(i, j) for i, j in pairs.tolist()} <= streets
        assert constraint_graph(domain, 1.0).count <= len(streets)


def test_subdomains_keep_nodes_and_distances(city: City) -> None:
    domain = city.road_domain(40)
    part = domain.take([7, 3, 9])
    assert part.nodes is not None and domain.nodes is not None
    assert part.nodes.tolist() == domain.nodes[[7, 3, 9]].tolist()
    assert np.array_equal(part.distances(), domain.distances([7, 3, 9], [7, 3, 9]))


def test_methods_audit_and_files_work_with_road_distance(
    city: City, tmp_path_factory: pytest.TempPathFactory
) -> None:
    domain = city.road_domain(80)
    outputs = np.arange(0, 80, 8)
    problem = Problem(domain, outputs, travel_loss(city, domain, outputs, [5]), 2.0)
    best = optimal(problem, gap=0.05)
    assert best.audit.holds and best.gap is not None and best.gap <= 0.05
    assert best.loss < exponential(problem).loss
    path = best.save(tmp_path_factory.mktemp("road") / "road.pmdp")
    again = load(path)
    assert again.loss == best.loss and again.problem.domain.nodes is not None


def test_bad_roads_are_refused() -> None:
    apart = City([0, 0, 1, 1], [0, 1, 0, 1], [0, 2], [1, 3], [1.0, 1.0])
    with pytest.raises(DomainError, match=r"records 0 and 2 .*largest_component"):
        apart.road_domain()
    together = City([0, 0, 0], [0, 0.1, 1], [0, 1], [1, 2], [0.0, 400.0])
    with pytest.raises(DomainError, match="records 0 and 1 are joined by a street of no length"):
        together.road_domain()
    assert together.road_domain(np.array([0, 2])).distance(0, 1) == 0.4
    with pytest.raises(CityError, match="twice"):
        together.road_domain(np.array([0, 0]))
    with pytest.raises(CityError, match=r"records\[0\] is 3"):
        together.road_domain(np.array([3, 0]))


def test_too_many_records_are_refused_where_a_table_is_needed() -> None:
    nodes = np.arange(8_001)
    streets = scipy.sparse.diags_array([np.ones(8_000)] * 2, offsets=[-1, 1], format="csr")
    chain = Road.over(streets, nodes, "km")
    with pytest.raises(DomainError, match="use at most 8,000 records"):
        chain.distances  # noqa: B018


@pytest.mark.data
def test_optimum_on_a_part_of_rome(road_maps: Callable[[str], City]) -> None:
    """Every node of a square kilometre or so is a record: the road graph itself constrains."""
    rome = road_maps("rome")
    centre = (np.abs(rome.lat - 41.90) < 0.004) & (np.abs(rome.lon - 12.485) < 0.005)
    part = rome.take(np.flatnonzero(centre)).largest_component()
    domain = part.road_domain()
    assert 80 < domain.size < 300
    outputs = np.arange(0, domain.size, 8)
    problem = Problem(domain, outputs, travel_loss(part, domain, outputs, [3]), 20.0)
    best = optimal(problem, gap=0.05)
    assert best.audit.holds and best.gap is not None and best.gap <= 0.05
