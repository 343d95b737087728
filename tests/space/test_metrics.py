"""Distances against 50-digit arithmetic, to the relative error that the audit relies on."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from helpers import KINDS, exact_distance, exact_haversine, random_domain

from panda_mdp.space.metrics import (
    EARTH_RADIUS_KM,
    SUM_TERMS,
    Euclidean,
    Haversine,
    Matrix,
    broken_triangle,
    haversine_km,
    latitude_cosine,
    longitude_gap,
)

BOUND = 4e-15


def relative_error(got, exact) -> float:
    return float(abs(mp.mpf(float(got)) / exact - 1))


def places(name: str, count: int) -> tuple[np.ndarray, ...]:
    """Pairs of places (lat, lon, lat2, lon2) of one kind of difficulty."""
    rng = np.random.default_rng(7)
    lat, lon = rng.uniform(-85, 85, count), rng.uniform(-170, 170, count)
    tiny = 10.0 ** rng.uniform(-12, 0, count)
    if name == "anywhere":
        return (
            rng.uniform(-90, 90, count),
            rng.uniform(-180, 180, count),
            rng.uniform(-90, 90, count),
            rng.uniform(-180, 180, count),
        )
    if name == "centimetres":
        step = 1e-7
        return lat, lon, lat + step * rng.normal(size=count), lon + step * rng.normal(size=count)
    if name == "near":
        return lat, lon, lat + tiny * rng.normal(size=count), lon + tiny * rng.normal(size=count)
    if name == "same meridian":
        return lat, lon, lat + tiny, lon
    if name == "same parallel":
        return lat, lon, lat, lon + tiny
    if name == "antipodal":
        away = np.where(lon > 0, lon - 180, lon + 180)
        return lat, lon, -lat + tiny * 1e-2, away - np.sign(away) * tiny * 1e-2
    if name == "date line":
        return lat, 180 - tiny, lat + tiny * rng.normal(size=count), -180 + tiny * rng.random(count)
    if name == "pole":
        return 90 - tiny, lon, 90 - tiny * rng.random(count), rng.uniform(-180, 180, count)
    assert name == "quarter"
    return np.zeros(count), np.zeros(count), tiny, 90 + tiny * rng.normal(size=count)


CASES = (
    "anywhere",
    "centimetres",
    "near",
    "same meridian",
    "same parallel",
    "antipodal",
    "date line",
    "pole",
    "quarter",
)


@pytest.mark.parametrize("name", CASES)
def test_haversine_against_mpmath(name):
    pairs = places(name, 150)
    got = haversine_km(*pairs)
    worst = max(
        relative_error(d, exact_haversine(*place)) for d, *place in zip(got, *pairs, strict=True)
    )
    assert worst <= BOUND < Haversine.relative_error


def test_haversine_mixes_near_and_far_in_one_call():
    lat2, lon2 = np.array([0.0, 10.0, -10.0]), np.array([0.0, 20.0, -160.0])
    got = haversine_km(10.0, 20.0, lat2, lon2)
    assert got[1] == 0.0
    assert got[2] == pytest.approx(np.pi * EARTH_RADIUS_KM, rel=1e-15)
    assert relative_error(got[0], exact_haversine(10.0, 20.0, 0.0, 0.0)) <= BOUND


def test_cosine_of_latitude_keeps_its_digits_at_the_pole():
    for lat in (0.0, 44.9, 45.1, -60.0, 89.999, -89.9999999, 90.0 - 2.0**-40):
        with mp.workdps(40):
            exact = mp.cos(mp.radians(mp.mpf(lat)))
            assert abs(mp.mpf(float(latitude_cosine(lat))) / exact - 1) < 1e-15
    assert latitude_cosine(90.0) == 0.0


def test_longitude_gap_goes_the_short_way():
    assert longitude_gap(179.0, np.array([-179.0, 179.5, -1.0])).tolist() == [2.0, 0.5, 180.0]
    east, west = 180 - 2.0**-40, -180 + 2.0**-41
    assert longitude_gap(east, np.array([west]))[0] == 2.0**-40 + 2.0**-41


@pytest.mark.parametrize("dimensions", [1, 2, 3, SUM_TERMS, SUM_TERMS + 1, 300, 1000])
def test_euclidean_against_mpmath(dimensions):
    rng = np.random.default_rng(dimensions)
    vectors = 100 + rng.normal(size=(12, dimensions)) * 10.0 ** rng.uniform(-6, 0, (12, 1))
    metric = Euclidean(vectors)
    everyone = np.arange(12)
    block = metric.block(everyone, everyone)
    first, second = np.triu_indices(12, k=1)
    assert metric.relative_error < 5e-15
    for d, e, i, j in zip(
        block[first, second], metric.pairs(first, second), first, second, strict=True
    ):
        with mp.workdps(40):
            exact = mp.sqrt(
                mp.fsum(
                    (mp.mpf(float(a)) - mp.mpf(float(b))) ** 2
                    for a, b in zip(vectors[i], vectors[j], strict=True)
                )
            )
        assert relative_error(d, exact) <= metric.relative_error
        assert relative_error(e, exact) <= metric.relative_error


@pytest.mark.parametrize("kind", KINDS)
def test_block_pairs_and_take_agree(kind):
    metric = random_domain(kind, 30).metric
    rows, cols = np.array([3, 0, 29]), np.array([5, 3, 3, 17])
    block = metric.block(rows, cols)
    assert block.shape == (3, 4)
    pairs = metric.pairs(np.repeat(rows, 4), np.tile(cols, 3)).reshape(3, 4)
    np.testing.assert_allclose(block, pairs, rtol=2 * metric.relative_error, atol=0)
    part = metric.take(np.array([29, 5, 17]))
    assert part.size == 3
    assert part.unit == metric.unit
    whole = metric.block(np.array([29, 5]), np.array([17]))
    np.testing.assert_array_equal(part.block(np.array([0, 1]), np.array([2])), whole)


@pytest.mark.parametrize("kind", KINDS)
def test_distances_match_exact_ones(kind):
    domain = random_domain(kind, 12, seed=3)
    for i in range(12):
        for j in range(i):
            exact = exact_distance(domain, i, j)
            assert relative_error(domain.distance(i, j), exact) <= domain.metric.relative_error


@pytest.mark.parametrize("kind", KINDS)
def test_embedding_never_exceeds_the_metric(kind):
    metric = random_domain(kind, 40, seed=4).metric
    everyone = np.arange(40)
    apart = metric.block(everyone, everyone)
    embedded = np.linalg.norm(metric.embedding[:, None] - metric.embedding, axis=2)
    assert (embedded <= apart * (1 + 1e-12) + 1e-9).all()


def test_tree_only_where_it_is_exact_and_pays_off():
    assert random_domain("haversine", 5).metric.tree is not None
    assert random_domain("euclidean", 5).metric.tree is not None
    assert random_domain("matrix", 5).metric.tree is None
    assert Euclidean(np.eye(20)).tree is None


def test_fingerprints_name_kind_unit_and_numbers():
    base = Euclidean(np.eye(3), "m")
    assert base.fingerprint == Euclidean(np.eye(3), "m").fingerprint
    others = [Euclidean(np.eye(3), "km"), Euclidean(2 * np.eye(3), "m"), Matrix(np.eye(3), "m")]
    assert len({base.fingerprint, *(m.fingerprint for m in others)}) == 4


def test_arrays_are_read_only_copies():
    lat = np.array([1.0, 2.0])
    metric = Haversine(lat, np.array([1.0, 2.0]))
    lat[0] = 50.0
    assert metric.lat[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        metric.lat[0] = 3.0


def test_broken_triangle_finds_what_brute_force_finds():
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(60):
        table = rng.uniform(1.0, 2.3, (7, 7))
        table = np.triu(table, k=1) + np.triu(table, k=1).T
        detours = table[:, :, None] + table[None, :, :]
        broken = table[:, None, :] > (1 + 1e-9) * detours
        i, j, k = broken_triangle(table, 1 + 1e-9)
        assert (i >= 0) == bool(broken.any())
        if i >= 0:
            found += 1
            assert table[i, j] > (1 + 1e-9) * (table[i, k] + table[k, j])
    assert 10 < found < 60


@pytest.mark.parametrize(("i", "j"), [(0, 1), (31, 32), (5, 598), (40, 511), (40, 512), (598, 599)])
def test_broken_triangle_across_blocks(i, j):
    """One pair is too long in a table of several blocks of rows and columns."""
    points = np.random.default_rng(3).random((600, 2))
    table = plane_distances(points)
    assert broken_triangle(table, 1 + 1e-9) == (-1, -1, -1)
    table[i, j] = table[j, i] = 3.0
    a, b, k = broken_triangle(table, 1 + 1e-9)
    assert (a, b) == (i, j)
    assert table[a, b] > table[a, k] + table[k, b]


def plane_distances(points: np.ndarray) -> np.ndarray:
    apart = np.linalg.norm(points[:, None] - points, axis=2)
    return (apart + apart.T) / 2
