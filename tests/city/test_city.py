"""Road networks as objects and as files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from panda_mdp import City, load_city, synthetic_city
from panda_mdp.errors import CityError, FileFormatError


def line() -> City:
    """Three nodes in a row with a longer parallel street and a loop."""
    return City([0, 0, 0], [0, 1, 2], [0, 1, 2, 1], [1, 2, 1, 1], [5.0, 9.0, 7.0, 3.0])


def test_parallel_streets_count_once_with_the_shortest() -> None:
    city = line()
    assert (city.nodes, city.streets) == (3, 2)
    assert [values.tolist() for values in city.pairs] == [[0, 1], [1, 2], [5.0, 7.0]]
    assert city.degrees.tolist() == [1, 2, 1]


def test_longitudes_are_told_in_one_way() -> None:
    city = City([10, 10, 10], [190, -180, 179], [0, 1], [1, 2], [5, 5])
    assert city.lon.tolist() == [-170, -180, 179]
    assert City([0, 0], [180, 360], [0], [1], [5]).lon.tolist() == [-180, 0]


def test_arrays_are_read_only_copies() -> None:
    lat = np.zeros(2)
    city = City(lat, [0, 1], [0], [1], [5])
    lat[0] = 1
    assert city.lat[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        city.lat[0] = 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0], [0], [0], [0], [1]), "1 nodes and 1 streets; it needs at least 2"),
        (([0, 95], [0, 1], [0], [1], [1]), r"lat\[1\] is 95.0"),
        (([0, 0], [0, 400], [0], [1], [1]), r"lon\[1\] is 400"),
        (([0, np.nan], [0, 1], [0], [1], [1]), r"lat\[1\] is nan"),
        (([0, 0], [0, 1], [0], [2], [1]), r"v\[0\] is 2"),
        (([0, 0], [0, 1], [0], [1], [-1]), r"length_m\[0\] is -1"),
        (([0, 0], [0, 1], [0, 1], [1], [1]), r"u has shape \(2,\); give one per street, \(1,\)"),
        (([0, 0], [0], [0], [1], [1]), r"lon has shape \(1,\); give one per node"),
        (([0, 0], [0, 1], [], [], []), "2 nodes and 0 streets"),
    ],
)
def test_bad_networks_are_refused(arguments: tuple[list[float], ...], message: str) -> None:
    with pytest.raises(CityError, match=message):
        City(*arguments)


def test_largest_component_keeps_streets_and_columns() -> None:
    city = City([0, 0, 1, 1, 1], [0, 1, 0, 1, 2], [0, 2, 3], [1, 3, 4], [1, 2, 3])
    part = city.largest_component()
    assert (part.lat.tolist(), part.lon.tolist()) == ([1, 1, 1], [0, 1, 2])
    assert (part.u.tolist(), part.v.tolist(), part.length_m.tolist()) == ([0, 1], [1, 2], [2, 3])


def test_domain_remembers_nodes_and_skips_repeated_places() -> None:
    city = City([0, 0, 0, 1], [0, 1, 1, 1], [0, 1, 2], [1, 2, 3], [1, 1, 1])
    everything = city.domain(records=None)
    assert everything.nodes is not None and everything.nodes.tolist() == [0, 1, 3]
    some = synthetic_city(200).domain(records=50, seed=3)
    again = synthetic_city(200).domain(records=50, seed=3)
    assert some.nodes is not None and again.nodes is not None
    assert np.array_equal(some.nodes, again.nodes) and len(set(some.nodes.tolist())) == 50
    assert np.array_equal(some.lat, synthetic_city(200).lat[some.nodes])
    with pytest.raises(CityError, match="records is 4"):
        city.domain(records=4)


def test_round_trip_through_npz(tmp_path: Path) -> None:
    city = line()
    again = load_city(city.save(tmp_path / "deep" / "city.npz"))
    for name in ("lat", "lon", "u", "v", "length_m"):
        assert np.array_equal(getattr(again, name), getattr(city, name))
    assert [entry.name for entry in (tmp_path / "deep").iterdir()] == ["city.npz"]
    with pytest.raises(CityError, match=r"\.npz"):
        city.save(tmp_path / "city.csv")


def test_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    path = line().save(tmp_path / "city.npz")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(FileFormatError, match="is damaged"):
        load_city(path)
    path.write_text("not an archive")
    with pytest.raises(FileFormatError, match=r"city\.npz"):
        load_city(path)
    np.savez(path, lat=np.zeros(2))
    with pytest.raises(FileFormatError, match="'lon', 'u', 'v', and 'length_m'"):
        load_city(path)
    np.savez(path, lat=np.zeros(2), lon=np.zeros(2), u=[0], v=[5], length_m=[1.0])
    with pytest.raises(FileFormatError, match=r"v\[0\] is 5"):
        load_city(path)
    with pytest.raises(OSError, match="no such file"):
        load_city(tmp_path / "nowhere.npz")
    (tmp_path / "city.xyz").write_text("")
    with pytest.raises(FileFormatError, match="unknown suffix"):
        load_city(tmp_path / "city.xyz")


@pytest.mark.data
def test_rome_measures_what_is_known(road_maps: Callable[[str], City]) -> None:
    rome = road_maps("rome")
    assert (rome.nodes, rome.streets, len(rome.u)) == (43160, 60021, 89739)
    assert rome.components().max() == 0
