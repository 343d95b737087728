"""Many places at once snap as one by one do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panda_mdp import Domain
from panda_mdp.errors import DomainError, SnapError
from panda_mdp.space.metrics import haversine_km
from panda_mdp.space.snapping import FEW_PLACES, snap_values


def clustered(seed: int, count: int, lat: float, lon: float) -> Domain:
    """Places as unevenly spread as a city's."""
    rng = np.random.default_rng(seed)
    spread = 0.3 * rng.random((count, 1)) ** 4
    places = np.array([lat, lon]) + spread * rng.normal(size=(count, 2))
    return Domain.from_points(*np.unique(places, axis=0).T)


def check(domain: Domain, lat: np.ndarray, lon: np.ndarray, limit: float) -> None:
    """Against all distances; ties of a nanometre may go either way."""
    many = FEW_PLACES + len(lat)
    snaps = domain.snap(np.resize(lat, many), np.resize(lon, many), limit)
    for k in range(len(lat)):
        distances = haversine_km(lat[k], lon[k], domain.lat, domain.lon)
        least = distances.min()
        if snaps.record[k] < 0:
            assert least > limit * (1 - 1e-12) and snaps.distance[k] == np.inf
        else:
            assert distances[snaps.record[k]] - least < 1e-11
            assert snaps.distance[k] == pytest.approx(least, abs=1e-11)
            assert least <= limit + 1e-11
    assert np.array_equal(snaps.inside, snaps.record >= 0)
    few = domain.snap(lat[:FEW_PLACES], lon[:FEW_PLACES], limit)
    assert np.allclose(few.distance, snaps.distance[: len(few)], rtol=0, atol=1e-11)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(2, 400),
    lat=st.floats(-78, 78),
    lon=st.floats(-175, 175),
    limit=st.sampled_from([0.1, 2.0, 40.0, 3000.0]),
)
def test_many_places_snap_as_one_by_one(seed, count, lat, lon, limit):
    domain = clustered(seed, count, lat, lon)
    rng = np.random.default_rng(seed + 1)
    near = rng.integers(0, domain.size, 20)
    wide = rng.uniform(-1, 1, (20, 2)) * [[5, 10]]
    check(
        domain,
        np.concatenate([domain.lat[near] + rng.normal(0, 0.01, 20), lat + wide[:, 0]]),
        np.concatenate([domain.lon[near], (lon + wide[:, 1] + 180) % 360 - 180]),
        limit,
    )


def test_far_out_places_are_searched_over_all_records():
    domain = clustered(3, 3000, 41.9, 12.5)
    check(domain, np.array([41.0, 45.0, 41.9]), np.array([9.0, 12.5, 14.5]), 2000.0)


def test_across_the_date_line_and_beyond_180():
    near = Domain.from_points([10.0, 10.0], [-179.95, -179.0])
    check(near, np.array([10.0, 10.0]), np.array([179.99, -179.99]), 50.0)
    assert near.snap([10.0], [180.06], 50.0).record.tolist() == [0]
    both = Domain.from_points([10.0, 10.0], [-179.95, 179.95])
    check(both, np.array([10.0, 10.0]), np.array([179.99, -179.99]), 50.0)


def test_what_is_no_place_has_no_record():
    domain = clustered(5, 500, 41.9, 12.5)
    rng = np.random.default_rng(0)
    lat, lon = 41.9 + rng.normal(0, 0.2, 500), 12.5 + rng.normal(0, 0.2, 500)
    lat[:3] = np.nan, 91.0, -95.0
    quick = domain.snap(lat, lon, 1.0)
    assert (quick.record[:3] == -1).all() and quick.inside.any() and not quick.inside.all()


@pytest.mark.parametrize("count", [5, FEW_PLACES + 5])
def test_what_is_no_place_has_no_record_where_degrees_begin_either(count):
    """Around 0, 0, where what is no place would be taken to lie."""
    domain = Domain.from_points([0.0, 0.01], [0.0, 0.01])
    lat, lon = np.zeros(count), np.zeros(count)
    lat[:4], lon[3:5] = [np.nan, 91.0, -95.0, 0.0], [np.inf, 361.0]
    snaps = domain.snap(lat, lon, 1.0)
    assert (snaps.record[:5] == -1).all() and np.isinf(snaps.distance[:5]).all()
    assert (snaps.record[5:] == 0).all()


def test_of_two_values_as_near_the_lower_one_is_taken():
    """Also by a rounding: 0.5 lies in the middle of 0 and 1, and what is above it does not."""
    values = np.array([0.0, 1.0, 3.0])
    given = [0.5, np.nextafter(0.5, 1), 2.0, np.nextafter(2.0, 3), -7.0, 9.0]
    snaps = snap_values(values, given, 10.0)
    assert snaps.record.tolist() == [0, 1, 1, 2, 0, 2]
    assert snaps.distance[:3] == pytest.approx([0.5, 0.5, 1.0])


def test_a_record_at_the_limit_is_found():
    domain = Domain.from_points([41.9, 41.91], [12.5, 12.5])
    away = float(haversine_km(41.895, 12.5, domain.lat, domain.lon).min())
    many = np.full(FEW_PLACES + 1, 41.895)
    for limit, record in ((away + 1e-9, 0), (away - 1e-9, -1)):
        snaps = domain.snap(many, np.full(len(many), 12.5), limit)
        assert (snaps.record == record).all()


def test_records_in_a_line():
    domain = Domain.from_points(np.full(50, 41.9), np.linspace(12, 13, 50))
    check(domain, np.array([41.9, 41.95]), np.array([12.51, 12.02]), 10.0)


def test_what_is_no_list_of_places_is_refused_without_naming_it():
    domain = Domain.from_points([41.9, 41.95], [12.4, 12.5])
    for lat, lon in (([41.98765], 12.4), ([41.98765, 1.0], [12.4]), (["41.98765x"], [12.4])):
        with pytest.raises(SnapError) as caught:
            domain.snap(lat, lon, 1.0)
        assert "98765" not in str(caught.value)
    with pytest.raises(SnapError, match="limit is 0"):
        domain.snap([41.9], [12.4], 0)
    with pytest.raises(DomainError, match="needs places"):
        Domain.from_vectors([[0.0], [1.0]]).snap([41.9], [12.4], 1.0)
    assert "41" not in repr(domain.snap([41.9], [12.4], 1.0))
    assert len(domain.snap([], [], 1.0)) == 0
