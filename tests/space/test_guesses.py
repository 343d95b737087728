"""Guesses at any place, against smallest circles round every set of records."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.space import guesses
from panda_mdp.space.guesses import (
    CLOSED,
    best_records,
    coordinates,
    held_sets,
    metric_distances,
    place_distances,
    refined_medians,
)

KM = 1 / 111.195


def without_parts(found):
    """The largest of the sets, each of which its own centre holds, however centres are told."""
    sets, _ = found
    return sets[guesses.largest_sets(sets)]


def smallest_radius(points: np.ndarray) -> float:
    """Of a circle round all of a few points in the plane: it passes through two or three."""
    if len(points) == 1:
        return 0.0
    circles = [
        ((a + b) / 2, np.linalg.norm(a - b) / 2) for a, b in itertools.combinations(points, 2)
    ]
    for a, b, c in itertools.combinations(points, 3):
        sides = 2 * np.array([b - a, c - a])
        if abs(np.linalg.det(sides)) > 1e-12:
            centre = np.linalg.solve(sides, [(b @ b - a @ a), (c @ c - a @ a)])
            circles.append((centre, np.linalg.norm(centre - a)))
    holds = [
        r for centre, r in circles if (np.linalg.norm(points - centre, axis=1) <= r + 1e-9).all()
    ]
    return min(holds)


def largest_sets(points: np.ndarray, radius: float) -> set[frozenset[int]]:
    subsets = itertools.chain.from_iterable(
        itertools.combinations(range(len(points)), n) for n in range(1, len(points) + 1)
    )
    held = [frozenset(s) for s in subsets if smallest_radius(points[list(s)]) <= radius]
    return {s for s in held if not any(s < other for other in held)}


@pytest.mark.parametrize("kind", ["plane", "sphere", "line"])
@pytest.mark.parametrize("radius", [0.2, 0.6, 1.3])
def test_the_sets_are_those_of_all_circles(kind, radius):
    points = np.random.default_rng(7).uniform(0, 3, (8, 2))
    if kind == "line":
        points[:, 1] = 0
        domain = pm.Domain.from_vectors(points[:, :1])
    elif kind == "plane":
        domain = pm.Domain.from_vectors(points)
    else:
        domain = pm.Domain.from_points(KM * points[:, 1], KM * points[:, 0])
    all_sets, centres = held_sets(domain, radius)
    far = place_distances(domain.metric, coordinates(domain, centres))
    told = far <= radius * CLOSED
    # What a centre beside a line holds, the point of the line holds too, and maybe more.
    assert (told[all_sets.nonzero()]).all() and (kind == "line" or told.sum() == all_sets.sum())
    found = without_parts((all_sets, centres))
    sets = {frozenset(np.flatnonzero(row).tolist()) for row in found.toarray()}
    assert sets == largest_sets(points, radius)


def test_the_best_record_is_the_same_however_distances_are_cut():
    rng = np.random.default_rng(4)
    domain = pm.Domain.from_vectors(rng.normal(size=(2_100, 3)))
    assert len(list(domain.blocks())) == 2
    columns, apart = rng.random((2_100, 5)), domain.distances()
    # The best guess of the last column is in the second block.
    columns[:, 4] = np.arange(2_100) == 2_099
    for radius in (None, float(np.median(apart))):
        cost = (apart if radius is None else -1.0 * (apart <= radius)) @ columns
        least, best = best_records(domain, columns, radius)
        assert least == pytest.approx(cost.min(axis=0))
        assert cost[best, np.arange(5)] == pytest.approx(least)


def test_records_on_the_circle_are_inside():
    """Two records at exactly twice the radius, and three on one circle."""
    two = pm.Domain.from_vectors([[0.0, 0.0], [2.0, 0.0]])
    assert without_parts(held_sets(two, 1.0)).shape[0] == 1
    three = pm.Domain.from_vectors([[1.0, 0.0], [-0.5, 0.75**0.5], [-0.5, -(0.75**0.5)]])
    assert without_parts(held_sets(three, 1.0)).toarray().sum() == 3
    assert without_parts(held_sets(three, 0.999)).shape[0] == 3


def test_where_nothing_lies_between_records_there_are_no_centres():
    for domain in (
        pm.Domain.from_matrix([[0.0, 1.0], [1.0, 0.0]]),
        pm.Domain.from_vectors(np.eye(4)),
    ):
        assert held_sets(domain, 1.0) is None


def test_a_median_is_the_nearest_place_on_average():
    """The corners of a triangle without a wide angle: where all sides are seen at 120 degrees."""
    corners = np.array([[0.0, 0.0], [4.0, 0.0], [1.0, 3.0]])
    domain = pm.Domain.from_vectors(corners)
    weights = np.array([[1.0, 1.0], [1.0, 0.1], [1.0, 0.1]]) / 3
    places, off = refined_medians(domain, weights, np.array([0, 0]))
    directions = (corners - places[0]) / np.linalg.norm(corners - places[0], axis=1)[:, None]
    assert np.abs(directions.sum(axis=0)).max() < 1e-3
    assert off[0] < (weights[:, 0] * domain.distances([0], None)[0]).sum() - 0.1
    # More than half of the weight at one corner keeps the median there.
    assert off[1] == pytest.approx((weights[:, 1] * domain.distances([0], None)[0]).sum())
    assert metric_distances(domain.metric, places)[0, 1] == pytest.approx(0)
