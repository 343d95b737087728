"""Compiled distances against NumPy's and against 50-digit arithmetic, for every kind."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from helpers import KINDS, exact_distance, random_domain

from panda_mdp import Domain
from panda_mdp.compute.numba import njit
from panda_mdp.compute.numba.distance import fill
from panda_mdp.space.metrics import EARTH_RADIUS_KM, SUM_TERMS, Euclidean
from panda_mdp.space.tiles import EUCLIDEAN, HAVERSINE, LOCAL_HAVERSINE, MATRIX, coordinates


def compiled(domain: Domain, order: np.ndarray) -> tuple[int, np.ndarray]:
    """Kind, and all distances in the given order."""
    places = coordinates(domain.metric, order)
    out = np.empty((len(order), len(order)))
    for i in range(len(order)):
        fill(places, i, 0, len(order), out[i])
    return places.kind, out


DOMAINS = {
    "city": (LOCAL_HAVERSINE, lambda: random_domain("haversine", 40)),
    "country": (
        LOCAL_HAVERSINE,
        lambda: Domain.from_points(
            *np.random.default_rng(0).uniform([[40], [5]], [[47.9], [12.9]], (2, 40))
        ),
    ),
    "metres": (
        LOCAL_HAVERSINE,
        lambda: Domain.from_points(*(45 + 1e-6 * np.random.default_rng(0).random((2, 40)))),
    ),
    "arctic": (
        LOCAL_HAVERSINE,
        lambda: Domain.from_points(
            *np.random.default_rng(0).uniform([[82.2], [5]], [[90], [12.9]], (2, 40))
        ),
    ),
    "world": (
        HAVERSINE,
        lambda: Domain.from_points(
            *np.random.default_rng(0).uniform([[-90], [-180]], [[90], [180]], (2, 40))
        ),
    ),
    "date line": (
        HAVERSINE,
        lambda: Domain.from_points(
            10 + np.random.default_rng(0).random(40) / 50,
            180 + (np.random.default_rng(1).random(40) - 0.5) / 50,
        ),
    ),
    "antipodes": (
        HAVERSINE,
        lambda: Domain.from_points(
            np.concatenate([np.linspace(9, 10, 20), -np.linspace(9, 10, 20)]),
            np.concatenate([np.linspace(9, 10, 20), np.linspace(9, 10, 20) - 180 + 1e-9]),
        ),
    ),
    "line": (EUCLIDEAN, lambda: Domain.from_vectors(np.random.default_rng(0).normal(size=40))),
    "space": (EUCLIDEAN, lambda: random_domain("euclidean", 40)),
    "many dimensions": (
        EUCLIDEAN,
        lambda: Domain.from_vectors(1e3 + np.random.default_rng(0).normal(size=(40, 300))),
    ),
    "matrix": (MATRIX, lambda: random_domain("matrix", 40)),
}


@pytest.mark.parametrize("name", sorted(DOMAINS))
def test_matches_numpy_and_exact_distances(name):
    kind, build = DOMAINS[name]
    domain = build()
    order = np.random.default_rng(2).permutation(domain.size)
    got_kind, got = compiled(domain, order)
    assert got_kind == kind
    error = domain.metric.relative_error
    np.testing.assert_allclose(got, domain.distances(order, order), rtol=2 * error, atol=0)
    for i in range(0, domain.size, 3):
        for j in range(i):
            exact = exact_distance(domain, int(order[i]), int(order[j]))
            assert abs(mp.mpf(float(got[i, j])) / exact - 1) <= error


@pytest.mark.parametrize(("degrees", "kind"), [(7.5, LOCAL_HAVERSINE), (60.0, HAVERSINE)])
def test_an_arc_of_a_meridian_has_its_length(degrees, kind):
    """Its share of a circle; beyond 8 degrees the short series are no longer close enough."""
    domain = Domain.from_points([-degrees / 2, degrees / 2], [0.0, 0.0])
    got_kind, got = compiled(domain, np.arange(2))
    assert got_kind == kind
    with mp.workdps(50):
        exact = mp.mpf(EARTH_RADIUS_KM) * mp.pi * degrees / 180
        assert abs(mp.mpf(float(got[0, 1])) / exact - 1) <= domain.metric.relative_error


def test_long_sums_lose_nothing():
    """1 and 400 squares of 2^-54, each below half a unit in the last place of 1."""
    vectors = np.zeros((2, 401 * SUM_TERMS))
    vectors[1, ::SUM_TERMS] = 2.0**-27
    vectors[1, 0] = 1.0
    metric = Euclidean(vectors)
    places = coordinates(metric, np.arange(2))
    out = np.empty(1)
    fill(places, 0, 1, 2, out)
    with mp.workdps(50):
        exact = mp.sqrt(1 + 400 * mp.mpf(2) ** -54)
        for got in (out[0], metric.block(np.array([0]), np.array([1]))[0, 0]):
            assert abs(mp.mpf(float(got)) / exact - 1) <= metric.relative_error


def test_distances_take_no_fast_arithmetic_from_loops_that_ask_for_them():
    """A loop is compiled for whoever calls it first, and its options were that one's."""
    assert fill.targetoptions["fastmath"] is False
    assert fill.targetoptions["error_model"] == "python"


def test_what_a_quotient_by_0_is_does_not_follow_from_who_asks_first():
    """A loop that says nothing keeps its check, compiled for one that has none."""

    @njit()
    def quotient(a, b):
        return a / b

    @njit(error_model="numpy")
    def unchecked(a, b):
        return quotient(a, b)

    with pytest.raises(ZeroDivisionError):
        unchecked(1.0, 0.0)
    with pytest.raises(ZeroDivisionError):
        quotient(1.0, 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_fills_a_part_of_a_row(kind):
    domain = random_domain(kind, 20)
    order = np.arange(20)
    whole = compiled(domain, order)[1]
    places = coordinates(domain.metric, order)
    out = np.full(6, -1.0)
    fill(places, 4, 7, 12, out)
    np.testing.assert_array_equal(out[:5], whole[4, 7:12])
    assert out[5] == -1.0
