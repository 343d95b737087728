"""Domains: what is refused and why, merging, snapping, and searches against brute force."""

from __future__ import annotations

import subprocess
import sys
import traceback

import numpy as np
import pytest
from helpers import KINDS, domains, random_domain
from hypothesis import given, settings
from hypothesis import strategies as st

from panda_mdp import Domain
from panda_mdp.errors import DomainError, SnapError
from panda_mdp.space.domain import check_indices, check_record
from panda_mdp.space.metrics import haversine_km
from panda_mdp.space.snapping import Snap


def changed(table, *edits):
    """A copy with entries replaced: (i, j, value)."""
    copy = np.array(table, dtype=float)
    for i, j, value in edits:
        copy[i, j] = value
    return copy


LINE = np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0)))

REFUSED = {
    "one place": (lambda: Domain.from_points([1.0], [2.0]), ["1 distinct record", "add records"]),
    "no places": (lambda: Domain.from_points([], []), ["0 distinct record", "add records"]),
    "NaN latitude": (
        lambda: Domain.from_points([1.0, np.nan], [2.0, 3.0]),
        ["lat of record 1 is nan", "finite", "leave out"],
    ),
    "infinite longitude": (
        lambda: Domain.from_points([1.0, 2.0, 3.0], [2.0, 3.0, np.inf]),
        ["lon of record 2 is inf", "finite", "leave out"],
    ),
    "latitude": (
        lambda: Domain.from_points([1.0, 91.0], [2.0, 3.0]),
        ["latitude of record 1 is 91.0", "[-90, 90]", "swapped"],
    ),
    "longitude": (
        lambda: Domain.from_points([1.0, 2.0], [-181.0, 3.0]),
        ["longitude of record 0 is -181.0", "[-180, 360]"],
    ),
    "several": (lambda: Domain.from_points([95.0, 2, 96], [0, 1, 2]), ["record 0", "(2 such)"]),
    "lengths": (lambda: Domain.from_points([1.0, 2.0], [3.0]), ["(2,)", "lon (1,)", "one of each"]),
    "table of latitudes": (lambda: Domain.from_points([[1.0], [2]], [1, 2]), ["(2, 1)", "flat"]),
    "equal places": (
        lambda: Domain.from_points([1.0, 2.0, 1.0], [5.0, 5.0, 5.0]),
        ["record 2 repeats record 0", "leave "],
    ),
    "date line twice": (
        lambda: Domain.from_points([1.0, 1.0], [180.0, -180.0]),
        ["record 1 repeats record 0", "leave "],
    ),
    "one pole twice": (
        lambda: Domain.from_points([90.0, 0.0, 90.0], [0.0, 0.0, 50.0]),
        ["record 2 repeats record 0"],
    ),
    "places at no distance": (
        lambda: Domain.from_points([0.0, 1e-200], [0.0, 0.0]),
        ["record 1 repeats record 0"],
    ),
    "one vector": (lambda: Domain.from_vectors([[1.0, 2.0]]), ["1 distinct record"]),
    "no dimensions": (lambda: Domain.from_vectors(np.empty((3, 0))), ["(3, 0)"]),
    "cube of vectors": (lambda: Domain.from_vectors(np.zeros((2, 2, 2))), ["(2, 2, 2)"]),
    "NaN vector": (
        lambda: Domain.from_vectors([[0.0, 1.0], [2.0, np.nan]]),
        ["coordinate 1 of record 1 is nan", "finite", "leave out"],
    ),
    "huge vector": (
        lambda: Domain.from_vectors([[0.0], [1e200]]),
        ["coordinate 0 of record 1 is 1e+200", "another unit"],
    ),
    "vanishing vector": (
        lambda: Domain.from_vectors([[0.0], [1e-170]]),
        ["coordinate 0 of record 1 is 1e-170", "another unit"],
    ),
    "equal vectors": (
        lambda: Domain.from_vectors([[0.0], [1.0], [-0.0]]),
        ["record 2 repeats record 0", "leave "],
    ),
    "not square": (lambda: Domain.from_matrix(np.zeros((2, 3))), ["(2, 3)", "square"]),
    "1 x 1": (lambda: Domain.from_matrix([[0.0]]), ["1 distinct record"]),
    "not symmetric": (
        lambda: Domain.from_matrix(changed(LINE, (1, 3, 2.5))),
        ["(1, 3) is 2.5", "(3, 1) is 2.0", "symmetric", "(D + D.T) / 2"],
    ),
    "diagonal": (
        lambda: Domain.from_matrix(changed(LINE, (2, 2, 0.5))),
        ["(2, 2) is 0.5", "diagonal", "fill_diagonal"],
    ),
    "negative": (
        lambda: Domain.from_matrix(changed(LINE, (0, 2, -2.0), (2, 0, -2.0))),
        ["(0, 2) is -2.0", "negative"],
    ),
    "NaN distance": (
        lambda: Domain.from_matrix(changed(LINE, (0, 2, np.nan), (2, 0, np.nan))),
        ["(0, 2) is nan", "finite"],
    ),
    "no path": (
        lambda: Domain.from_matrix(changed(LINE, (0, 3, np.inf), (3, 0, np.inf))),
        ["(0, 3) is inf", "finite", "large finite distance"],
    ),
    "vanishing distance": (
        lambda: Domain.from_matrix(LINE * 1e-300),
        ["(0, 1) is 1e-300", "another unit"],
    ),
    "zero distance": (
        lambda: Domain.from_matrix(np.abs(np.subtract.outer([0.0, 1, 1], [0.0, 1, 1]))),
        ["records 1 and 2 are at distance 0", "leave "],
    ),
    "triangle": (
        lambda: Domain.from_matrix(changed(LINE, (0, 3, 3.1), (3, 0, 3.1))),
        ["triangle inequality fails for records (0, 3, ", "3.1", "shortest-path closure"],
    ),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused_with_index_and_remedy(name, backend):
    build, words = REFUSED[name]
    with pytest.raises(DomainError) as caught:
        build()
    for word in words:
        assert word in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("size", [4, 130])
def test_triangle_tolerance_is_relative(size):
    line = np.abs(np.subtract.outer(np.arange(float(size)), np.arange(float(size))))
    inside = changed(line, (0, 3, 3 * (1 + 0.9e-9)), (3, 0, 3 * (1 + 0.9e-9)))
    assert Domain.from_matrix(inside).size == size
    outside = changed(line, (0, 3, 3 * (1 + 1.1e-9)), (3, 0, 3 * (1 + 1.1e-9)))
    with pytest.raises(DomainError, match=r"\(0, 3, [12]\)"):
        Domain.from_matrix(outside)
    small = 1e-30 * outside
    with pytest.raises(DomainError, match="triangle"):
        Domain.from_matrix(small)


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 7), st.randoms(use_true_random=False))
def test_a_planted_broken_triangle_is_named(size, random):
    points = np.sort(np.array([random.random() for _ in range(size)])) + np.arange(size)
    table = np.abs(np.subtract.outer(points, points))
    i, j = sorted(random.sample(range(size), 2))
    table[i, j] = table[j, i] = 10.0 * size
    with pytest.raises(DomainError) as caught:
        Domain.from_matrix(table)
    a, b, c = map(int, str(caught.value).split("records (")[1].split(")")[0].split(","))
    assert {a, b} == {i, j} or table[a, b] > (1 + 1e-9) * (table[a, c] + table[c, b])
    assert table[a, b] > table[a, c] + table[c, b]


def test_properties_and_repr():
    domain = Domain.from_points([41.9, 41.91], [12.49, 12.5])
    assert (len(domain), domain.size, domain.unit, domain.geographic) == (2, 2, "km", True)
    assert repr(domain) == "Domain(2 records, haversine, km)"
    assert domain.plane.shape == (2, 2)
    flat = Domain.from_vectors([[0.0, 0.0], [3.0, 4.0]], unit="m")
    assert (flat.unit, flat.geographic, flat.distance(0, 1)) == ("m", False, 5.0)
    assert np.shares_memory(flat.plane, flat.metric.vectors)
    assert Domain.from_vectors([0.0, 1.0]).plane is None
    assert Domain.from_points([0.0, 50.0], [0.0, 50.0]).plane is None
    with pytest.raises(DomainError, match="from_points"):
        _ = flat.lat
    with pytest.raises(DomainError, match="from_points"):
        flat.snap(0.0, 0.0, 1.0)


def test_plane_is_close_to_the_metric_in_a_city():
    domain = random_domain("haversine", 50)
    apart = np.linalg.norm(domain.plane[:, None] - domain.plane, axis=2)
    np.testing.assert_allclose(apart, domain.distances(), rtol=5e-3)


def test_east_longitudes_above_180_are_the_same_places():
    east = Domain.from_points([10.0, 20.0], [190.0, 359.0])
    assert east.lon.tolist() == [-170.0, -1.0]


def test_take_and_nodes():
    domain = random_domain("haversine", 10).with_nodes(np.arange(100, 110))
    part = domain.take([7, 2, 5])
    assert part.nodes.tolist() == [107, 102, 105]
    np.testing.assert_array_equal(part.lat, domain.lat[[7, 2, 5]])
    with pytest.raises(DomainError, match="twice"):
        domain.take([1, 1])
    with pytest.raises(DomainError, match=r"records\[1\] is 10; indices lie in 0..9"):
        domain.take([0, 10])
    with pytest.raises(DomainError, match="1 distinct record"):
        domain.take([3])


def test_fingerprint_depends_on_the_order_of_records():
    domain = random_domain("euclidean", 6)
    assert domain.fingerprint == random_domain("euclidean", 6).fingerprint
    assert domain.fingerprint != domain.take([1, 0, 2, 3, 4, 5]).fingerprint


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([0.5], "whole numbers"),
        ([True], "whole numbers"),
        (["a"], "whole numbers"),
        ([np.nan], "whole numbers"),
        ([np.inf], r"things\[0\] is inf"),
        ([1e300], r"things\[0\] is 1e\+300"),
        ([-1], r"things\[0\] is -1"),
        ([0, 5], r"things\[1\] is 5; indices lie in 0..4"),
        ([[0, 1]], r"shape \(1, 2\)"),
    ],
)
def test_indices_are_checked(values, words):
    with pytest.raises(DomainError, match=words):
        check_indices(values, 5, "things")


def test_indices_may_be_whole_floats_or_empty():
    assert check_indices([1.0, 4], 5, "things").tolist() == [1, 4]
    assert check_indices([], 5, "things").dtype == np.int64
    assert check_indices(np.uint8(3), 5, "things").tolist() == [3]


def says_nothing_of(error: BaseException, *secrets: str) -> None:
    """No message in the chain of an error names a secret."""
    lines = "".join(traceback.format_exception_only(error))
    assert error.__cause__ is None
    assert error.__context__ is None
    for secret in secrets:
        assert secret not in lines


@pytest.mark.parametrize("record", [987654, -987654, 0.987654, "987654", None, [987654, 1]])
def test_record_errors_do_not_name_the_record(record):
    with pytest.raises(DomainError) as caught:
        check_record(record, 5)
    says_nothing_of(caught.value, "987654")
    with pytest.raises(DomainError) as caught:
        random_domain("euclidean", 5).distance(record, 1)
    says_nothing_of(caught.value, "987654")


class TestSnap:
    domain = Domain.from_points([41.9, 41.95, 41.9], [12.4, 12.5, 179.9])

    def test_finds_the_nearest_record_and_its_distance(self):
        snap = self.domain.snap(41.94, 12.49, limit=2.0)
        assert snap.record == 1
        assert snap.distance == pytest.approx(1.38, abs=0.01)

    def test_across_the_date_line(self):
        assert self.domain.snap(41.9, -179.9, limit=20.0).record == 2
        assert self.domain.snap(41.9, 180.1, limit=20.0).record == 2

    def test_ties_go_to_the_lowest_index(self):
        domain = Domain.from_points([0.0, 0.0], [1.0, -1.0])
        assert domain.snap(0.0, 0.0, limit=200.0).record == 0

    def test_limit_is_exact(self):
        apart = self.domain.snap(41.93, 12.47, limit=50.0).distance
        assert self.domain.snap(41.93, 12.47, limit=apart).distance == apart
        with pytest.raises(SnapError, match="raise the limit"):
            self.domain.snap(41.93, 12.47, limit=np.nextafter(apart, 0))

    @pytest.mark.parametrize(
        ("lat", "lon", "limit"),
        [
            (45.67891, 12.34567, 1.0),
            (123.67891, 12.34567, 1.0),
            (45.67891, 1234.34567, 1.0),
            (np.nan, 12.34567, 1.0),
            ("45.67891x", 12.34567, 1.0),
            (None, 12.34567, 1.0),
            (45.67891, 12.34567, 0.0),
            (45.67891, 12.34567, np.nan),
        ],
    )
    def test_errors_do_not_name_the_place(self, lat, lon, limit):
        with pytest.raises(SnapError) as caught:
            self.domain.snap(lat, lon, limit)
        says_nothing_of(caught.value, "67891", "34567", "45.6", "12.3")
        # Nor how far it is: that is a circle around the nearest record.
        apart = haversine_km(45.67891, 12.34567, self.domain.lat, self.domain.lon).min()
        says_nothing_of(caught.value, f"{apart:.2f}"[:4])

    def test_repr_hides_record_and_distance(self):
        assert repr(Snap(3, 0.25)) == "Snap(record=<hidden>, distance=<hidden>)"
        assert "3" not in f"{Snap(3, 0.25)}"

    def test_triangle_inequality_gives_the_stated_guarantee(self):
        """d(x, x') <= d(p, p') + snap(p) + snap(p'), what docs and certificates state."""
        rng = np.random.default_rng(0)
        domain = random_domain("haversine", 40)
        for _ in range(50):
            p, p2 = ((41.8 + 0.2 * rng.random(), 12.4 + 0.2 * rng.random()) for _ in range(2))
            s, s2 = domain.snap(*p, 50.0), domain.snap(*p2, 50.0)
            apart = float(haversine_km(*p, np.array([p2[0]]), np.array([p2[1]]))[0])
            reach = apart + s.distance + s2.distance
            assert domain.distance(s.record, s2.record) <= reach * (1 + 1e-12)


@settings(max_examples=60, deadline=None)
@given(domains(), st.data())
def test_searches_match_brute_force(domain, data):
    size = domain.size
    apart = domain.distances()
    np.testing.assert_allclose(apart, apart.T, rtol=1e-14)
    assert (np.diag(apart) == 0).all()
    assert domain.diameter == apart.max()

    count = data.draw(st.integers(1, size - 1))
    near, distance = domain.neighbours(count)
    others = np.where(np.eye(size, dtype=bool), np.inf, apart)
    np.testing.assert_allclose(distance, np.sort(others, axis=1)[:, :count], rtol=1e-13)
    np.testing.assert_allclose(np.take_along_axis(apart, near, 1), distance, rtol=1e-14)
    for x in range(size):
        assert x not in near[x]
        assert len(set(near[x])) == count

    radius = data.draw(st.sampled_from([0.0, *np.unique(apart).tolist(), float("inf")]))
    slack = 1e-13 * radius if np.isfinite(radius) else 0.0
    pairs = {}
    for first, second, length in domain.pairs_within(radius):
        for i, j, d in zip(first.tolist(), second.tolist(), length.tolist(), strict=True):
            assert i < j
            assert (i, j) not in pairs
            assert d == pytest.approx(apart[i, j], rel=1e-13)
            pairs[i, j] = d
    expected = [(i, j) for i in range(size) for j in range(i + 1, size)]
    assert {p for p in expected if apart[p] <= radius - slack} <= set(pairs)
    assert set(pairs) <= {p for p in expected if apart[p] <= radius + slack}


@pytest.mark.parametrize("kind", KINDS)
def test_searches_over_many_tiles(kind):
    domain = random_domain(kind, 300, seed=9)
    apart = domain.distances()
    assert domain.diameter == pytest.approx(apart.max(), rel=1e-14)
    radius = float(np.quantile(apart, 0.1))
    found = {
        (i, j)
        for first, second, _ in domain.pairs_within(radius)
        for i, j in zip(first.tolist(), second.tolist(), strict=True)
    }
    i, j = np.nonzero(np.triu(apart <= radius, k=1))
    assert found == set(zip(i.tolist(), j.tolist(), strict=True))
    near, distance = domain.neighbours(5)
    others = np.where(np.eye(300, dtype=bool), np.inf, apart)
    np.testing.assert_allclose(distance, np.sort(others, axis=1)[:, :5], rtol=1e-13)
    assert near.shape == (300, 5)


def test_neighbours_in_many_dimensions_and_of_near_duplicates():
    rng = np.random.default_rng(0)
    domain = Domain.from_vectors(rng.normal(size=(60, 40)))
    others = np.where(np.eye(60, dtype=bool), np.inf, domain.distances())
    np.testing.assert_allclose(domain.neighbours(3)[1], np.sort(others, axis=1)[:, :3], rtol=1e-13)
    lat = 41.9 + np.arange(4) * np.spacing(41.9)
    close = Domain.from_points(lat, np.full(4, 12.4))
    near, distance = close.neighbours(1)
    assert all(near[x, 0] != x for x in range(4))
    assert (distance > 0).all()


@pytest.mark.parametrize("count", [0, 5, -1])
def test_neighbours_need_a_possible_count(count):
    with pytest.raises(DomainError, match=f"count is {count}; a domain of 5 has 1 to 4"):
        random_domain("euclidean", 5).neighbours(count)


@pytest.mark.parametrize("radius", [-1.0, np.nan])
def test_radius_is_checked(radius):
    domain = random_domain("euclidean", 5)
    with pytest.raises(DomainError, match="radius is"):
        list(domain.pairs_within(radius))


def test_blocks_cover_all_records():
    domain = random_domain("haversine", 50)
    rows = [part for part, _ in domain.blocks([3, 7])]
    assert rows[0].start == 0
    assert rows[-1].stop == 50
    whole = np.concatenate([block for _, block in domain.blocks([3, 7])])
    np.testing.assert_array_equal(whole, domain.distances(None, [3, 7]))
    np.testing.assert_array_equal(domain.distances([1], [2, 0]), domain.distances()[[1]][:, [2, 0]])


LARGE = """
import numpy as np
import panda_mdp as pm

rng = np.random.default_rng(0)
size = 128_000
domain = pm.Domain.from_points(51.3 + 0.4 * rng.random(size), -0.5 + 0.8 * rng.random(size))
near, _ = domain.neighbours(8)
assert near.shape == (size, 8)
assert domain.diameter > 60
pairs = sum(len(first) for first, _, _ in domain.pairs_within(0.1))
assert pairs > size / 2
for _, _, length in domain.pairs_within(1e9):
    assert len(length)
    break
for _, block in domain.blocks(np.arange(100)):
    assert block.shape[1] == 100
next(domain.blocks())
domain.fingerprint
domain.snap(51.5, 0.0, limit=5.0)
# Not ru_maxrss, which a process inherits from the one that started it.
print(int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024)
"""


def test_128000_records_fit_in_a_gigabyte():
    """Peak resident memory of a process that does everything a method asks of a domain."""
    done = subprocess.run(
        [sys.executable, "-c", LARGE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1024


def test_values_are_records_called_by_themselves():
    salaries = Domain.from_values([2500.5, 1000.0, 2500.5], unit="EUR")
    assert salaries.labels == (1000.0, 2500.5) and salaries.unit == "EUR"
    assert salaries.record(2500.5) == 1 and salaries.distance(0, 1) == 1500.5
    for values in ([[1, 2]], ["a", "b"], [7, 7], [1.0, np.nan]):
        with pytest.raises(DomainError):
            Domain.from_values(values)


class TestNearest:
    @pytest.mark.parametrize("limit", [0.4, 3.0, 100.0])
    def test_it_is_the_nearest_of_all(self, limit: float) -> None:
        values = np.unique(np.random.default_rng(3).normal(0, 10, 40))
        given = np.random.default_rng(4).normal(0, 20, 500)
        found = Domain.from_values(values).nearest(given, limit)
        every = np.abs(given[:, None] - values)
        inside = every.min(axis=1) <= limit
        assert np.array_equal(found.record, np.where(inside, every.argmin(axis=1), -1))
        assert np.array_equal(found.distance[inside], every.min(axis=1)[inside])
        assert inside.sum() > 0

    def test_one_number_beyond_the_limit_is_an_error_that_does_not_name_it(self) -> None:
        ages = Domain.from_values([30, 38, 50], unit="years")
        assert ages.nearest(34.0, limit=4).record == 0
        with pytest.raises(SnapError, match="years") as caught:
            ages.nearest(77.125, limit=5)
        assert "77" not in str(caught.value)
        assert ages.nearest([np.nan, 50.0], limit=1).record.tolist() == [-1, 2]

    def test_other_domains_have_no_numbers(self) -> None:
        for domain in (
            Domain.from_vectors([[0.0], [1.0]]),
            Domain.from_vectors([[0.0], [1.0]]).with_labels(["a", "b"]),
            Domain.from_vectors([[0.0], [1.0]]).with_labels([1, 0]),
            Domain.from_points([0.0, 1.0], [0.0, 1.0]).with_labels([0, 1]),
        ):
            assert domain.values is None
            with pytest.raises(DomainError, match="from_values"):
                domain.nearest(0.0, limit=1.0)
