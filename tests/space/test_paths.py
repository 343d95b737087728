"""Path metrics: streets, trees and graphs of any kind as the metric of privacy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse.csgraph import shortest_path

from panda_mdp import (
    City,
    Domain,
    Mechanism,
    Problem,
    compact,
    distance_loss,
    exponential,
    load,
    optimal,
    solve_lp,
    synthetic_city,
    travel_loss,
)
from panda_mdp.base.arrays import adjacency
from panda_mdp.base.floored import FlooredRows
from panda_mdp.city.city import travel
from panda_mdp.errors import CityError, DomainError
from panda_mdp.methods.optimal.optimal import CpuEngine
from panda_mdp.methods.optimal.program import TilingTuning, constraint_graph
from panda_mdp.privacy.audit import audit_weights
from panda_mdp.privacy.quantise import quantise
from panda_mdp.space.paths import LONGEST, PathMetric, graph_of_records, measured_by, slow
from panda_mdp.space.searches import balls

CHECKER = Path(__file__).parents[2] / "verify" / "panda_verify.py"


def random_graph(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Edges and lengths of a connected graph, with parallel edges, loops and equal lengths."""
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(5, 40))
    tree = np.stack([np.arange(1, nodes), rng.integers(0, np.arange(1, nodes))], axis=1)
    edges = np.concatenate([tree, rng.integers(0, nodes, (2 * nodes, 2))])
    return edges, rng.integers(1, 6, len(edges)) / 4


def all_distances(edges: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Floyd and Warshall."""
    size = edges.max() + 1
    table = np.full((size, size), np.inf)
    np.fill_diagonal(table, 0)
    for (i, j), length in zip(edges, lengths, strict=True):
        table[i, j] = table[j, i] = min(table[i, j], length if i != j else 0)
    for k in range(size):
        table = np.minimum(table, table[:, k, None] + table[k])
    return table


@pytest.mark.parametrize("seed", range(12))
def test_graphs_have_the_distances_of_floyd_and_warshall(seed: int) -> None:
    edges, lengths = random_graph(seed)
    rng = np.random.default_rng(seed)
    table = all_distances(edges, lengths)
    chosen = rng.permutation(len(table))[: rng.integers(2, len(table) + 1)]
    for records, whole in ((None, table), (chosen, table[np.ix_(chosen, chosen)])):
        domain = Domain.from_graph(edges, lengths, records=records)
        assert np.array_equal(domain.distances(), whole)
        assert domain.diameter == whole.max()
        i, j = np.triu_indices(domain.size, 1)
        assert np.array_equal(domain.metric.pairs(j, i), whole[j, i])
        # Edges are the pairs without a record in between, and no others.
        between = whole[:, :, None] + whole[None]
        away = ~np.eye(domain.size, dtype=bool)
        between = between == whole[:, None, :]
        passed = (between & away[:, :, None] & away[None]).any(axis=1)
        expected = np.argwhere(np.triu(~passed, 1))
        assert np.array_equal(domain.metric.generating_pairs, expected)
        count = min(3, domain.size - 1)
        near, distance = domain.neighbours(count)
        assert np.array_equal(distance, np.sort(whole + np.diag([np.inf] * len(whole)))[:, :count])
        assert np.array_equal(np.take_along_axis(whole, near, 1), distance)


def test_trees_are_measured_up_and_down() -> None:
    parents = {"a1": "a", "a2": "a", "a": "all", "b1": "b", "b": "all"}
    whole = Domain.from_tree(parents)
    assert whole.labels == ("a1", "a", "a2", "all", "b1", "b") and len(whole.metric.edges) == 5
    assert whole.distance(whole.record("a1"), whole.record("b1")) == 4
    leaves = Domain.from_tree(parents, {"a1": 1, "a2": 2, "a": 3, "b1": 4, "b": 5}, leaves=True)
    assert leaves.labels == ("a1", "a2", "b1")
    assert leaves.distances().tolist() == [[0, 3, 13], [3, 0, 14], [13, 14, 0]]
    with pytest.raises(DomainError, match="one root"):
        Domain.from_tree({"a": "b", "c": "d"})
    with pytest.raises(DomainError, match="not connected"):
        Domain.from_tree({"a": "b", "b": "a", "d": "c"})


@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_over_edges_is_that_over_all_pairs(seed: int) -> None:
    edges, lengths = random_graph(seed)
    domain = Domain.from_graph(edges, lengths)
    outputs = np.arange(0, domain.size, 4)
    loss = np.random.default_rng(seed).uniform(size=(domain.size, len(outputs)))
    problem = Problem(domain, outputs, loss, 0.7)
    given = Problem(Domain.from_matrix(domain.distances()), outputs, loss, 0.7)
    exact = solve_lp(given, "all")
    best = optimal(problem, 1e-4)
    assert best.lower_bound is not None and exact.lower_bound is not None
    assert best.lower_bound <= exact.loss * (1 + 1e-9)
    assert exact.lower_bound <= best.loss <= exact.loss * (1 + 2e-4)
    assert Mechanism(given, best.weights, "again").audit.epsilon == best.audit.epsilon


@pytest.mark.parametrize("backend", ["cpu", "jax"])
def test_first_order_solvers_take_path_metrics(city: City, backend: str) -> None:
    if backend == "jax":
        pytest.importorskip("jax")
    domain = city.road_domain(200, seed=4)
    outputs = np.arange(0, 200, 20)
    problem = Problem(domain, outputs, travel_loss(city, domain, outputs, [5]), 2.0)
    best = optimal(problem, 0.05, backend=backend)
    given = Problem(Domain.from_matrix(domain.distances()), outputs, problem.loss, 2.0)
    assert Mechanism(given, best.weights, "again").audit.epsilon == best.audit.epsilon <= 2


def test_tables_over_a_floor_follow_edges_too(city: City) -> None:
    """Outputs in tiles: the audit over edges, those that leave the stored rows included, is that
    over all pairs of a distance matrix."""
    domain = city.road_domain()
    outputs = np.arange(0, domain.size, 3)
    problem = Problem(domain, outputs, distance_loss(domain, outputs), 6.0)
    tiles = TilingTuning(least_outputs=64, worthwhile=0.95)
    best = optimal(problem, 0.1, backend=CpuEngine(tiles))
    assert isinstance(best.weights, FlooredRows) and best.gap is not None and best.gap <= 0.1
    given = Problem(Domain.from_matrix(domain.distances()), outputs, problem.loss, 6.0)
    assert Mechanism(given, best.weights, "again").audit.epsilon == best.audit.epsilon <= 6
    assert Mechanism(given, best.weights[:], "whole").audit.epsilon == best.audit.epsilon


def test_an_audit_over_edges_sees_what_one_over_all_pairs_does(city: City) -> None:
    domain = city.road_domain()
    given = Domain.from_matrix(domain.distances())
    rng = np.random.default_rng(0)
    outputs = np.arange(12)
    for share in (0.0, 1e-3, 1.0):
        rows = rng.dirichlet(np.ones(12)) * (1 + share * rng.uniform(size=(domain.size, 12)))
        rows[7] *= 1 + 1e-5 * np.arange(12)
        weights = quantise(rows / rows.sum(axis=1, keepdims=True))
        one, other = (audit_weights(d, outputs, weights, 1.0) for d in (domain, given))
        assert one.epsilon == other.epsilon and set(one.worst[:2]) == set(other.worst[:2])


@pytest.fixture(scope="module")
def city() -> City:
    return synthetic_city(400, seed=3)


def test_blocks_pairs_and_table_are_road_distances(city: City) -> None:
    domain = city.road_domain(60, seed=1)
    assert domain.unit == "km"
    expected = travel(city, domain.nodes, domain.nodes)
    rows, cols = np.array([5, 3, 5, 59]), np.array([7, 3, 0])
    block = domain.distances(rows, cols)
    # Lengths are rounded to 2^-30 units each.
    np.testing.assert_allclose(block, expected[np.ix_(rows, cols)], atol=1e-7)
    pairs = domain.metric.pairs(rows[:3], cols)
    assert np.array_equal(pairs, block[[0, 1, 2], [0, 1, 2]])
    table = domain.distances()
    assert np.array_equal(table[np.ix_(rows, cols)], block)
    assert np.array_equal(table, table.T) and (np.diag(table) == 0).all()
    assert np.array_equal(domain.distances(rows, cols), block)


def test_table_is_a_metric_to_the_last_bit(city: City) -> None:
    table = city.road_domain(80).distances()
    steps = table * 2**30
    assert (steps == np.rint(steps)).all()
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
    pairs = domain.metric.generating_pairs
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
    assert again.problem.domain.fingerprint == domain.fingerprint and again.audit == best.audit
    told = subprocess.run([sys.executable, "-I", CHECKER, path], check=True, capture_output=True)
    assert b"edges, which imply all pairs" in told.stdout
    short = compact(best).save(path.with_name("short.pmdp"))
    assert subprocess.run([sys.executable, "-I", CHECKER, short], check=False).returncode == 0


def test_bad_roads_are_refused() -> None:
    apart = City([0, 0, 1, 1], [0, 1, 0, 1], [0, 2], [1, 3], [1.0, 1.0])
    with pytest.raises(DomainError, match=r"records 0 and 2 .*largest_component"):
        apart.road_domain()
    together = City([0, 0, 0], [0, 0.1, 1], [0, 1], [1, 2], [0.0, 400.0])
    with pytest.raises(DomainError, match="records 0 and 1 are joined by an edge of no length"):
        together.road_domain()
    assert together.road_domain(np.array([0, 2])).distance(0, 1) == round(0.4 * 2**30) / 2**30
    with pytest.raises(CityError, match="twice"):
        together.road_domain(np.array([0, 0]))
    with pytest.raises(CityError, match=r"records\[0\] is 3"):
        together.road_domain(np.array([3, 0]))


def test_bad_graphs_are_refused() -> None:
    for edges, lengths, said in (
        ([[0, 1], [1, 2]], [1.0, np.inf], "length of edge 1 is inf"),
        ([[0, 1], [1, 2]], [1.0, -1.0], "length of edge 1 is -1"),
        ([[0, 1], [2, 3]], [1.0, 1.0], "records 0 and 2 are not connected"),
        ([[0, 1], [0, 2]], [1e-12, 1.0], "edge of no length"),
        ([0, 1], [1.0], "pairs of nodes"),
    ):
        with pytest.raises(DomainError, match=said):
            Domain.from_graph(edges, lengths)
    with pytest.raises(DomainError, match="named twice"):
        Domain.from_graph([[0, 1]], [1.0], records=[0, 0])
    around = PathMetric(np.array([[0, 1], [0, 2], [1, 2]]), np.array([1, 5, 2]))
    with pytest.raises(DomainError, match="no shorter than a path around it"):
        Domain(around)


def test_all_pairs_of_many_records_are_refused_and_few_are_measured() -> None:
    nodes = np.arange(8_001)
    chain = Domain.from_graph(np.stack([nodes[:-1], nodes[1:]], axis=1), 1.0)
    with pytest.raises(DomainError, match="use at most 8,000 records"):
        chain.metric.distances  # noqa: B018
    assert chain.diameter == 8_000 and chain.distance(0, 4_321) == 4_321
    assert chain.distances([8_000, 5], [0, 1]).tolist() == [[8_000, 7_999], [5, 4]]


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


def held_within_a_nat(domain: Domain, weights: np.ndarray) -> np.ndarray:
    return (domain.distances() <= 1) @ weights


def test_balls_of_one_nat_hold_enough_people(city: City) -> None:
    rng = np.random.default_rng(1)
    weights = rng.integers(0, 30, city.nodes).astype(float)
    domain = city.density_domain(300, weights)
    assert domain.unit == "nat" and domain.nodes is not None
    held = held_within_a_nat(domain, weights[domain.nodes])
    assert 300 <= held.min() < 320 and held.min() < weights.sum() / 3
    streets = city.road_domain()
    assert streets.nodes is not None
    own = weights[streets.nodes]
    assert held_within_a_nat(streets.by_density(own, 300), own).min() >= 300
    for people, given, said in (
        (0, own, "more than nobody"),
        (own.sum() + 1, own, "at most everybody"),
        (300, own[:5], "one per record|each of the"),
        (300, -own, "not negative"),
    ):
        with pytest.raises(DomainError, match=said):
            streets.by_density(given, people)
    with pytest.raises(DomainError, match="use triangulated"):
        city.domain(50).by_density(np.ones(50), 5)


def test_places_that_hold_enough_people_by_themselves_lie_no_farther_than_can_be_told(
    city: City,
) -> None:
    """Their balls have no radius; lengths over next to nothing were no whole numbers."""
    weights = np.ones(city.nodes)
    weights[::3] = 1e3
    for given in (weights, np.full(city.nodes, 1e3)):
        domain = city.density_domain(300, given)
        lengths = domain.metric.steps * 2.0**-30
        assert lengths.min() > 0 and 1 < lengths.max() <= LONGEST
        assert held_within_a_nat(domain, given[domain.nodes]).min() >= 300


def test_radii_of_density_change_by_half_along_a_unit_at_most(city: City) -> None:
    """Every radius is the largest that a wider one elsewhere asks for, and no wider."""
    domain = city.road_domain(60)
    wide = np.random.default_rng(6).uniform(0.01, 2.0, domain.size)
    expected = (wide - 0.5 * domain.distances()).max(axis=1)
    assert (expected > wide).any()
    assert slow(domain.metric, wide) == pytest.approx(expected, rel=1e-9)


def test_a_ball_ends_where_it_holds_enough_to_the_last_one() -> None:
    """Five nodes in a row, one person at each: three are two steps away at an end, one inside."""
    starts, others = np.array([0, 1, 3, 5, 7, 8]), np.array([1, 0, 2, 1, 3, 2, 4, 3])
    radius, inside, away = np.empty(5), np.full((5, 4), -1), np.zeros((5, 4), np.int64)
    balls(starts, others, np.full(8, 10), 0, np.ones(5), 3.0, radius, inside, away)
    assert radius.tolist() == [20, 10, 10, 10, 20]
    assert inside[0].tolist() == [0, 1, 2, -1] and away[0, :3].tolist() == [0, 10, 20]
    balls(starts, others, np.full(8, 10), 0, np.ones(5), 6.0, radius, inside, away)
    assert np.isinf(radius).all()


def test_an_edge_is_measured_by_the_wider_radius_of_its_ends() -> None:
    metric = Domain.from_graph([(0, 1), (1, 2)], [1.0, 3.0]).metric
    found = measured_by(metric, np.array([1.0, 2.0, 0.5]))
    assert (found.steps / 2.0**30).tolist() == [0.5, 1.5]


@pytest.mark.parametrize("seed", [2, 10, 29, 31])
def test_edges_between_records_are_those_that_no_third_record_lies_on(seed: int) -> None:
    """Also where nodes lie together: a record may be at the place of another node."""
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(4, 7))
    edges = np.array([p for p in combinations(range(nodes), 2) if rng.random() < 0.6])
    lengths = rng.choice([0.0, 1.0, 2.0], len(edges))
    table = np.full((nodes, nodes), np.inf)
    np.fill_diagonal(table, 0.0)
    table[tuple(edges.T)] = table[tuple(edges.T[::-1])] = lengths
    for k in range(nodes):
        table = np.minimum(table, table[:, k, None] + table[k])
    # Of nodes that lie together one is a record.
    records = np.array([x for x in range(nodes) if not (table[x, :x] == 0).any()])[::-1]
    far = table[np.ix_(records, records)]
    every = range(len(records))
    due = [
        [i, j]
        for i, j in combinations(every, 2)
        if all(k in (i, j) or far[i, k] + far[k, j] > far[i, j] for k in every)
    ]
    found, steps = graph_of_records(edges, lengths, records)
    assert sorted(found.tolist()) == due
    assert [far[i, j] * 2**30 for i, j in found] == steps.tolist()


@pytest.mark.parametrize("seed", range(12))
def test_the_diameter_is_the_largest_distance(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = [(int(rng.integers(0, k)), k) for k in range(1, 25)]
    domain = Domain.from_graph(tree, rng.uniform(0.1, 3.0, len(tree)))
    assert domain.metric.diameter == domain.distances().max()


def test_triangles_stay_within_twice_the_straight_line(city: City) -> None:
    straight = city.domain(150, seed=3)
    away = ~np.eye(150, dtype=bool)
    ratio = straight.triangulated().distances()[away] / straight.distances()[away]
    assert ratio.min() > 1 - 1e-6 and 1.01 < ratio.max() < 1.998 * 1.001
