"""Losses against brute force."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from helpers import random_domain
from scipy.sparse.csgraph import dijkstra

from panda_mdp import (
    City,
    Domain,
    Problem,
    distance_loss,
    exponential,
    load,
    synthetic_city,
    travel_loss,
)
from panda_mdp.base.floored import FlooredRows
from panda_mdp.city.city import travel, travel_graph
from panda_mdp.errors import CityError, ProblemError
from panda_mdp.loss import DistanceLoss
from panda_mdp.methods.optimal.program import seen_by_groups
from panda_mdp.problem import distance_power, losses_above


def floyd(city: City) -> np.ndarray:
    """All shortest paths in km, by the three loops."""
    best = np.full((city.nodes, city.nodes), np.inf)
    np.fill_diagonal(best, 0)
    for a, b, metres in zip(city.u, city.v, city.length_m, strict=True):
        best[a, b] = min(best[a, b], metres / 1000)
        best[b, a] = min(best[b, a], metres / 1000)
    for k in range(city.nodes):
        best = np.minimum(best, best[:, k, None] + best[k])
    return best


def test_travel_loss_equals_brute_force() -> None:
    city = synthetic_city(120, seed=4)
    domain = city.domain(records=60, seed=1)
    outputs, tasks = [3, 17, 40], [0, 5, 5, 59]
    shares = np.array([0.1, 0.2, 0.3, 0.4])
    ways = floyd(city)[np.ix_(domain.nodes, domain.nodes)]
    expected = np.zeros((60, 3))
    for t, share in zip(tasks, shares, strict=True):
        expected += share * np.abs(ways[:, t, None] - ways[outputs, t])
    found = travel_loss(city, domain, outputs, tasks, shares)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    uniform = travel_loss(city, domain, outputs, tasks)
    even = travel_loss(city, domain, outputs, tasks, [0.25] * 4)
    np.testing.assert_allclose(uniform, even, rtol=1e-14)
    assert found.min() >= 0 and found[3, 0] == 0


def test_parallel_streets_do_not_add_up() -> None:
    city = City([0, 0], [0, 1], [0, 0, 1], [1, 1, 0], [900.0, 400.0, 700.0])
    assert travel(city, [0], [1]).item() == 0.4
    assert travel_graph(city).nnz == 2


def test_streets_of_length_zero_join_their_ends() -> None:
    city = City([0, 0, 0], [0, 0, 1], [0, 1], [1, 2], [0.0, 400.0])
    assert travel(city, [0]).tolist() == [[0.0, 0.0, 0.4]]


def test_cut_off_records_are_named_with_the_remedy() -> None:
    city = City([0, 0, 1, 1], [0, 1, 0, 1], [0, 2], [1, 3], [1.0, 1.0])
    assert np.isinf(travel(city, [0], [2])).all()
    with pytest.raises(CityError, match=r"2 records cannot reach task 0 .*largest_component\(\)"):
        travel_loss(city, city.domain(records=None), [1], [0])


def test_domain_and_city_must_belong_together() -> None:
    city, other = synthetic_city(100, seed=1), synthetic_city(100, seed=2)
    domain = city.domain(records=10)
    with pytest.raises(CityError, match="lie elsewhere"):
        travel_loss(other, domain, [0], [1])
    with pytest.raises(CityError, match="does not know its city's nodes"):
        travel_loss(city, Domain.from_points(city.lat[:5], city.lon[:5]), [0], [1])


def test_options_are_checked() -> None:
    city = synthetic_city(100)
    domain = city.domain(records=10)
    with pytest.raises(ProblemError, match=r"tasks\[0\] is 10"):
        travel_loss(city, domain, [0], [10])
    with pytest.raises(ProblemError, match="tasks is empty"):
        travel_loss(city, domain, [0], [])
    with pytest.raises(ProblemError, match=r"sums to 0\.9"):
        travel_loss(city, domain, [0], [1], [0.9])
    with pytest.raises(ProblemError, match="power is 0"):
        distance_loss(domain, [0], power=0)


def test_distance_loss_is_displacement() -> None:
    domain = synthetic_city(100).domain(records=10)
    np.testing.assert_array_equal(distance_loss(domain, [2, 3]), domain.distances(None, [2, 3]))
    np.testing.assert_array_equal(
        distance_loss(domain, [2], power=2), domain.distances(None, [2]) ** 2
    )


@pytest.mark.data
def test_london_with_100_tasks_searches_once_from_each(
    road_maps: Callable[[str], City], monkeypatch: pytest.MonkeyPatch
) -> None:
    london = road_maps("london")
    domain = london.domain(records=None)
    rng = np.random.default_rng(0)
    searched: list[int] = []

    def counted(graph: object, **options: Any) -> Any:
        searched.extend(options["indices"])
        return dijkstra(graph, **options)

    monkeypatch.setattr("scipy.sparse.csgraph.dijkstra", counted)
    tasks = rng.choice(len(domain), 100)
    loss = travel_loss(london, domain, rng.choice(len(domain), 100), tasks)
    assert loss.shape == (128203, 100)
    assert len(searched) <= len(set(tasks.tolist())), "not from every record"


def computed_loss(kind: str, size: int, power: float) -> tuple[DistanceLoss, np.ndarray]:
    """Losses that are computed as they are used, and the same as an array."""
    domain = random_domain(kind, size, seed=2)
    outputs = np.random.default_rng(3).permutation(size)[:120]
    return DistanceLoss(domain, outputs, power), domain.distances(None, outputs) ** power


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(
    ("kind", "size", "power"), [("haversine", 35_000, 1.0), ("matrix", 150, 1.5)]
)
def test_losses_that_are_not_stored_are_those_of_the_array(
    kind: str, size: int, power: float
) -> None:
    loss, full = computed_loss(kind, size, power)
    assert len(list(loss.blocks())) == (1 if size == 150 else 2)
    rng = np.random.default_rng(4)
    prior, rows, columns = rng.dirichlet(np.ones(size)), *rng.integers(0, 120, (2, 40))
    same = partial(np.testing.assert_allclose, rtol=loss.relative_error)
    same(prior @ loss, prior @ full, rtol=1e-13)
    same(np.stack([prior, 1 - prior]) @ loss, np.stack([prior, 1 - prior]) @ full, rtol=1e-13)
    same(loss.min(axis=1), full.min(axis=1))
    same(loss[7], full[7])
    same(loss[3:9], full[3:9])
    same(loss[rows], full[rows])
    same(loss[:, columns[:3]], full[:, columns[:3]])
    same(loss[rows, columns], full[rows, columns])
    many = rng.integers(0, 120, (40, 32))
    same(loss[rows[:, None], many], full[rows[:, None], many])
    same(np.asarray(loss), full)
    order, starts = rng.permutation(120), np.array([0, 32, 64, 96, 120])
    for margin in (-np.inf, 0.5):
        sees, outside = seen_by_groups(loss, order, starts, margin)
        expected, beyond = seen_by_groups(full, order, starts, margin)
        assert np.array_equal(sees, expected)
        same(outside, beyond)
    least = np.minimum.reduceat(full[:, order], starts[:-1], axis=1)
    assert np.array_equal(sees.T, least <= least.min(axis=1, keepdims=True) + 0.5)
    assert repr(pickle.loads(pickle.dumps(loss))) == repr(loss)


def test_computed_losses_give_the_problem_of_stored_ones() -> None:
    domain = random_domain("haversine", 60, seed=1)
    stored = Problem(domain, range(60), distance_loss(domain, range(60)), 1.0)
    computed = Problem(domain, range(60), DistanceLoss(domain, np.arange(60)), 1.0)
    assert isinstance(computed.loss, DistanceLoss) and isinstance(stored.loss, np.ndarray)
    np.testing.assert_allclose(computed.mean_loss, stored.mean_loss, rtol=1e-13)
    assert computed.best_single_output == stored.best_single_output
    assert 0 < computed.loss_error < 1e-13 and stored.loss_error == 0
    with pytest.raises(ProblemError, match="shape"):
        Problem(domain, range(59), computed.loss, 1.0)


def test_losses_of_another_domain_are_told_as_they_are(tmp_path) -> None:
    """Only distances of the records themselves follow from the records."""
    near, far = (Domain.from_vectors(np.arange(5.0)[:, None] * step) for step in (1.0, 2.0))
    own = Problem(near, range(5), DistanceLoss(near, np.arange(5)), 1.0)
    other = Problem(near, range(5), DistanceLoss(far, np.arange(5)), 1.0)
    turned = Problem(near, range(5), DistanceLoss(near, np.arange(5)[::-1]), 1.0)
    assert distance_power(own) == 1.0
    assert distance_power(other) is None and distance_power(turned) is None
    assert len({own.identity, other.identity, turned.identity}) == 3
    for problem in (other, turned):
        read = load(exponential(problem).save(tmp_path / "t.pmdp"))
        np.testing.assert_array_equal(read.problem.loss, np.asarray(problem.loss))


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0, 7.5])
def test_a_power_errs_as_many_times_as_its_distance(power: float) -> None:
    loss = DistanceLoss(random_domain("haversine", 9), np.arange(9), power)
    off = loss.domain.metric.relative_error
    # As far as distances may be off, and no farther: (1 + off)^power.
    assert (1 + off) ** power - 1 <= loss.relative_error <= 4 * max(power, 1.0) * (off + 1e-15)


def test_records_that_no_output_is_pay_where_outputs_are_as_many() -> None:
    line = Domain.from_vectors([[0.0], [1.0], [5.0]])
    loss = DistanceLoss(line, np.array([0, 0, 1]))
    assert loss.min(axis=1).tolist() == [0.0, 0.0, 4.0]


def test_many_losses_are_computed_and_say_so_where_an_array_is_asked_for() -> None:
    domain = random_domain("haversine", 8_193, seed=1)
    few, many = distance_loss(domain, range(8)), distance_loss(domain, range(8_193))
    assert isinstance(few, np.ndarray) and isinstance(many, DistanceLoss)
    np.testing.assert_allclose(many[:, np.arange(8)], few, rtol=many.relative_error)
    for whole in (lambda: np.asarray(many), lambda: np.ptp(many)):
        with pytest.raises(ProblemError, match=r"67,125,249 losses.*take rows"):
            whole()
    with pytest.raises(ProblemError, match="not finite"):
        DistanceLoss(domain, range(60), 1e4)


def test_losses_that_are_not_stored_do_not_change() -> None:
    loss = DistanceLoss(Domain.from_vectors([[0.0], [1.0], [3.0]]), [0, 2])
    with pytest.raises(AttributeError):
        loss.power = 2.0
    with pytest.raises(ValueError, match="read-only"):
        loss.outputs[0] = 1
    assert loss[1].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(("power", "on_device"), [(1.0, False), (2.0, False), (1.0, True)])
def test_losses_of_rows_over_a_floor_need_no_array(power, on_device):
    domain = random_domain("haversine", 30, seed=3)
    loss = DistanceLoss(domain, range(30), power)
    vars(loss)["on_device"] = on_device
    floor = np.arange(30)
    table = floor + np.random.default_rng(0).integers(0, 3, (30, 30))
    expected = ((table - floor) * np.asarray(loss)).sum(axis=1)
    np.testing.assert_allclose(
        losses_above(loss, FlooredRows.of(table, floor)), expected, rtol=1e-12
    )
