"""The second checker's own arithmetic, against 50 digits: bounds on the right side, and close."""

from __future__ import annotations

import ast
import math
import random
import sys
from fractions import Fraction
from types import SimpleNamespace

import mpmath as mp
import numpy as np
import pytest
from helpers import KINDS, exact_distance, exact_epsilon, random_domain
from second_checker import SOURCE, checker

import panda_mdp as pm

verify = checker()
P, Q = verify.P, verify.Q
DIGITS = 110


@pytest.fixture(autouse=True)
def many_digits():
    with mp.workdps(DIGITS):
        yield


def table_of(domain: pm.Domain) -> SimpleNamespace:
    arrays = domain.metric.arrays()
    values = {name: tuple(array.ravel().tolist()) for name, array in arrays.items()}
    return SimpleNamespace(kind=domain.metric.kind, size=domain.size, values=values)


def test_pi():
    assert abs(mp.mpf(verify.PI) / mp.mpf(2) ** (P + 64) - mp.pi) < mp.mpf(2) ** -(P + 63)


@pytest.mark.parametrize(
    "degrees", [0.0, 1e-300, 1e-9, 12.5, 45.0, 89.99999999, 90.0, 120.1, -179.999, -180.0, -33.3]
)
def test_sine_and_cosine(degrees):
    sine, cosine = (mp.mpf(v) / mp.mpf(2) ** P for v in verify.sine_cosine(degrees))
    with mp.workdps(400):
        radians = mp.mpf(degrees) * mp.pi / 180
        assert abs(sine - mp.sin(radians)) < 2 * mp.mpf(2) ** -P
        assert abs(cosine - mp.cos(radians)) < 2 * mp.mpf(2) ** -P


def exponents() -> list[int]:
    rng = random.Random(1)
    drawn = [rng.getrandbits(rng.randint(1, Q + 9)) for _ in range(300)]
    return [0, 1, 2, 1 << Q, (1 << Q) - 1, 43 << Q, (1 << (Q + 10)) - 1, *drawn]


def test_exponentials_enclose():
    for t in exponents():
        exact = mp.exp(mp.mpf(t) / mp.mpf(2) ** Q) * mp.mpf(2) ** Q
        low, high = verify.exponential(t, False), verify.exponential(t, True)
        assert low <= exact <= high
        assert (high - low) / exact < mp.mpf(2) ** -98


def test_angles_enclose():
    rng = random.Random(2)
    one = 1 << P
    drawn = [rng.getrandbits(rng.randint(1, P)) for _ in range(300)]
    for h in [0, 1, 4, one >> 12, (one >> 12) - 1, one // 2, one - 1, one, *drawn]:
        exact = 2 * mp.asin(mp.sqrt(mp.mpf(h) / mp.mpf(2) ** P)) * mp.mpf(2) ** Q
        low, high = verify.angle(h, False), verify.angle(h, True)
        assert low <= exact <= high
        assert high - low == 1 << 11


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [1e-3, 0.7, 5.0, 1e6])
def test_distances_enclose(kind, epsilon):
    domain = random_domain(kind, 9, seed=4)
    metric = verify.METRICS[kind](table_of(domain))
    n, e = verify.dyadic(epsilon)
    for i in range(9):
        for j in range(i):
            with mp.workdps(DIGITS):
                exact = mp.mpf(epsilon) * fine_distance(domain, i, j)
                low = mp.mpf(metric.exponent(i, j, n, e)) / mp.mpf(2) ** Q
                high = mp.mpf(metric.exponent(i, j, n, e, above=True)) / mp.mpf(2) ** Q
                assert low <= exact * (1 + RADIUS) and exact * (1 - RADIUS) <= high
                assert high - low < exact * mp.mpf(2) ** -80 + mp.mpf(2) ** -80


RADIUS = 2e-16
"""The library's radius is the float64 next to 6371.0088."""


def fine_distance(domain: pm.Domain, i: int, j: int) -> mp.mpf:
    import helpers

    before, helpers.DIGITS = helpers.DIGITS, DIGITS
    try:
        return exact_distance(domain, i, j)
    finally:
        helpers.DIGITS = before


@pytest.mark.parametrize(
    ("lat", "lon"),
    [
        ([0.0, 0.0], [179.9999999, -179.9999999]),
        ([89.9999999, 89.9999999], [10.0, -170.0]),
        ([90.0, -90.0], [0.0, 0.0]),
        ([41.9, 41.9], [12.5, math.nextafter(12.5, 13)]),
        ([1e-9, -1e-9], [0.0, 179.99]),
        ([45.0, -45.0], [10.0, -170.0]),
    ],
)
def test_places_in_corners(lat, lon):
    """The date line, poles, antipodes and neighbours in the last bit."""
    domain = pm.Domain.from_points(lat, lon)
    metric = verify.Sphere(table_of(domain))
    exact = fine_distance(domain, 0, 1)
    low, high = (mp.mpf(metric.exponent(0, 1, 1, 0, above)) / 2**Q for above in (False, True))
    assert low <= exact * (1 + RADIUS)
    assert high >= exact * (1 - RADIUS)
    assert high - low < exact * mp.mpf(2) ** -60


@pytest.mark.parametrize("kind", KINDS)
def test_the_verdict_is_exact(kind):
    """At the exact rate it holds, a part in 1e15 below it does not."""
    domain = random_domain(kind, 8, seed=6)
    rng = np.random.default_rng(3)
    shares = rng.random((8, 3)) + 0.2
    weights = (shares / shares.sum(axis=1, keepdims=True) * 2**62).astype(np.int64)
    weights[:, 0] += 2**62 - weights.sum(axis=1)
    table = table_of(domain)
    table.rows = [tuple(row) for row in weights.tolist()]
    metric = verify.METRICS[kind](table)
    rate = float(exact_epsilon(domain, weights))
    verify.check_pairs(table.rows, metric, rate * (1 + 1e-15))
    with pytest.raises(ValueError, match="is exceeded between records"):
        verify.check_pairs(table.rows, metric, rate * (1 - 1e-15))


def test_zeros_and_far_pairs():
    """0 against 0 is nothing, a weight against 0 is too much, however far the records are."""
    table = SimpleNamespace(kind="euclidean", size=2, values={"vectors": (0.0, 1e6)})
    metric = verify.Euclidean(table)
    table.rows = [(2**62 - 1, 1, 0), (1, 2**62 - 1, 0)]
    verify.check_pairs(table.rows, metric, 1.0)
    table.rows = [(2**62, 0, 0), (2**62 - 1, 1, 0)]
    with pytest.raises(ValueError, match="is exceeded"):
        verify.check_pairs(table.rows, metric, 1.0)


@pytest.mark.parametrize("off", [0.0, 1e-10, 2e-9])
def test_triangles(off):
    """|d(i, j)| up to one part in 1e9 above a detour is rounding, more is no metric."""
    flat = np.array([[0, 1, 2 * (1 + off)], [1, 0, 1], [2 * (1 + off), 1, 0]])
    table = SimpleNamespace(size=3, values={"distances": tuple(flat.ravel().tolist())})
    if off < 1e-9:
        verify.Given(table)
    else:
        with pytest.raises(ValueError, match="triangle inequality fails at records"):
            verify.Given(table)


def test_the_source_is_short_and_alone():
    """Standard library only, under 480 lines, none of them too long to read."""
    text = SOURCE.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert len(lines) < 480
    assert max(map(len, lines)) <= 100
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(str(node.module).split(".")[0])
    assert names <= set(sys.stdlib_module_names)
    assert "eval" not in {getattr(node, "id", None) for node in ast.walk(ast.parse(text))}


def test_no_weight_passes_that_is_one_unit_too_large():
    """w = floor(e^d w') + 1, for weights of 60 bits: the factor is rounded down, never up."""
    low = (1 << 62) // 5
    for k in range(300):
        apart = 0.3 + k / 1024
        with mp.workdps(60):
            high = int(mp.floor(mp.exp(mp.mpf(apart)) * low)) + 1
        table = SimpleNamespace(kind="euclidean", size=2, values={"vectors": (0.0, apart)})
        table.rows = [(high, 2**62 - high), (low, 2**62 - low)]
        with pytest.raises(ValueError, match="is exceeded"):
            verify.check_pairs(table.rows, verify.Euclidean(table), 1.0)


def test_places_so_near_that_the_sines_hardly_differ():
    """1e-35 degrees: the error of the coordinates is what the two bounds differ by."""
    table = SimpleNamespace(
        kind="haversine", size=2, values={"lat": (0.0, 1e-35), "lon": (0.0, 0.0)}
    )
    metric = verify.Sphere(table)
    with mp.workdps(DIGITS):
        exact = mp.mpf(1e-35) * mp.pi / 180 * mp.mpf("6371.0088") * mp.mpf(2) ** Q
        assert metric.exponent(0, 1, 1, 0) < exact < metric.exponent(0, 1, 1, 0, above=True)


@pytest.mark.parametrize("apart", [0.5, 1.0, 1.5, 3.0])
def test_the_bound_on_the_loss_is_never_above_it(apart):
    """A multiplier of 1 on output 0 of two records makes it min(0 + 1, 1) + min(50 - e^d, 50)."""
    values = {"vectors": (0.0, apart), "bound_pairs": (0, 1), "bound_starts": (0, 1)}
    values |= {"bound_columns": (0,), "bound_multipliers": (1.0,)}
    table = SimpleNamespace(kind="euclidean", size=2, values=values, epsilon=1.0)
    costs = [[Fraction(0), Fraction(1)], [Fraction(50), Fraction(50)]]
    bound = verify.lower_bound(table, verify.Euclidean(table), costs)
    with mp.workdps(DIGITS):
        exact = 51 - mp.exp(mp.mpf(apart))
        assert 0 < exact - mp.mpf(bound.numerator) / bound.denominator < mp.mpf(2) ** -90


@pytest.mark.parametrize(("stated", "right"), [(1.25, True), (1.0, True), (1.25 + 2e-9, False)])
def test_a_loss_is_summed_exactly_and_no_bound_is_above_it(stated, right, capsys):
    """1/4 of the mean of 0 and 4, and 3/4 of 1."""
    table = SimpleNamespace(
        claims={"notes": {"lower_bound": stated}, "loss": {"power": None}},
        rows=[(2**61, 2**61), (2**62, 0)],
        prior=(0.25, 0.75),
        loss=(0.0, 4.0, 1.0, 8.0),
        values={},
    )
    verify.check_loss(table, None)
    said = capsys.readouterr().out
    assert "loss: 1.25, summed exactly" in said
    assert (f"bound: {stated!r}, stated" if right else "bound: none, ") in said
