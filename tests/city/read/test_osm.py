"""OpenStreetMap extracts written by the tests, and what must come out of them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from panda_mdp import City, load_city
from panda_mdp.city.read.load import MapOptions, read_map
from panda_mdp.errors import CityError, FileFormatError, MissingDependencyError
from panda_mdp.space.metrics import haversine_km

PLACES = {
    1: (48.000, 11.000),
    2: (48.000, 11.010),
    3: (48.000, 11.020),
    4: (48.010, 11.010),
    5: (47.990, 11.010),
    6: (47.990, 11.020),
    7: (48.100, 11.100),
    8: (48.100, 11.110),
    9: (48.005, 11.012),
}
WAYS = [
    # A crossing at 2; the way from 2 to 4 bends at 9, which is no junction.
    ([1, 2, 3], {"highway": "residential"}),
    ([2, 9, 4], {"highway": "primary", "maxspeed": "30 mph"}),
    # Mapped against the direction of travel.
    ([2, 5], {"highway": "tertiary", "oneway": "-1"}),
    ([5, 6], {"highway": "living_street"}),
    ([6, 3], {"highway": "footway"}),
    ([1, 5], {"highway": "residential", "access": "private"}),
    ([1, 4], {"highway": "cycleway"}),
    # Another part of the map, connected to nothing.
    ([7, 8], {"highway": "residential"}),
    ([3, 999], {"highway": "residential"}),
    ([1, 2, 5, 1], {"building": "yes"}),
]


def osm_xml(ways: list[tuple[list[int], dict[str, str]]]) -> str:
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<osm version="0.6">']
    for number, (lat, lon) in PLACES.items():
        lines.append(f'  <node id="{number}" lat="{lat}" lon="{lon}" version="1"/>')
    for k, (nodes, tags) in enumerate(ways):
        refs = "".join(f'<nd ref="{node}"/>' for node in nodes)
        told = "".join(f'<tag k="{key}" v="{value}"/>' for key, value in tags.items())
        lines.append(f'  <way id="{k + 1}" version="1">{refs}{told}</way>')
    return "\n".join([*lines, "</osm>"])


def write(path: Path, ways: list[tuple[list[int], dict[str, str]]] = WAYS) -> Path:
    path.write_text(osm_xml(ways))
    return path


def streets(city: City) -> dict[tuple[int, int], tuple[float, bool, float]]:
    """Length, one-way and speed of each street by the OpenStreetMap numbers of its ends."""
    assert city.osmid is not None and city.speed_kmh is not None
    oneway = np.zeros(len(city.u), bool) if city.oneway is None else city.oneway
    rows = zip(
        city.osmid[city.u], city.osmid[city.v], city.length_m, oneway, city.speed_kmh, strict=True
    )
    return {(int(u), int(v)): (float(m), bool(o), float(s)) for u, v, m, o, s in rows}


def metres(*nodes: int) -> float:
    lat, lon = np.array([PLACES[node] for node in nodes]).T
    return float(1000 * haversine_km(lat[:-1], lon[:-1], lat[1:], lon[1:]).sum())


def test_drivable_network(tmp_path: Path) -> None:
    report = read_map(write(tmp_path / "town.osm"))
    found = streets(report.city)
    assert found.keys() == {(1, 2), (2, 3), (2, 4), (5, 2), (5, 6)}
    assert found[2, 4] == (pytest.approx(metres(2, 9, 4)), False, pytest.approx(48.28032))
    assert found[5, 2] == (pytest.approx(metres(5, 2)), True, 45.0)
    assert found[5, 6][2] == 10.0
    assert (report.contracted, report.dropped_nodes, report.parts) == (1, 2, 2)
    assert report.incomplete == 1
    assert report.city.name == "town"
    assert "2 junctions in 1 smaller" in "\n".join(report.lines())


def test_walking_and_cycling(tmp_path: Path) -> None:
    path = write(tmp_path / "town.osm")
    walk = streets(load_city(path, MapOptions(network="walk")))
    # On foot one-way streets are open both ways, so the ring 2-5-6-3-2 has no corner but 2.
    assert walk.keys() == {(1, 2), (2, 4), (2, 2)}
    assert walk[2, 2] == (pytest.approx(metres(2, 5, 6, 3, 2)), False, pytest.approx(4.8))
    bike = streets(load_city(path, MapOptions(network="bike")))
    assert all(speed == pytest.approx(15.0) for _, _, speed in bike.values())
    assert (2, 2) in bike or (5, 2) in bike


def test_bbox_and_unsimplified(tmp_path: Path) -> None:
    path = write(tmp_path / "town.osm")
    part = load_city(path, MapOptions(bbox=(47.995, 10.9, 48.02, 11.03), simplify=False))
    assert streets(part).keys() == {(1, 2), (2, 3), (2, 9), (9, 4)}
    whole = load_city(path, MapOptions(largest=False))
    assert (7, 8) in streets(whole)
    with pytest.raises(CityError, match="no roads for network 'drive' within the bbox"):
        load_city(path, MapOptions(bbox=(0, 0, 1, 1)))
    with pytest.raises(CityError, match="south, west, north, east"):
        MapOptions(bbox=(48, 11, 47, 12))
    with pytest.raises(CityError, match="network is 'fly'"):
        MapOptions(network="fly")


def test_roundabouts_and_motorways_are_one_way(tmp_path: Path) -> None:
    path = write(
        tmp_path / "ring.osm",
        [
            ([1, 2, 4, 1], {"highway": "residential", "junction": "roundabout"}),
            ([2, 3], {"highway": "motorway"}),
            ([3, 6], {"highway": "motorway", "oneway": "no"}),
            ([4, 5], {"highway": "residential"}),
        ],
    )
    found = streets(load_city(path))
    assert {ends: told[1] for ends, told in found.items()} == {
        (2, 4): True,
        (4, 2): True,  # over node 1, which is no junction
        (2, 3): True,
        (3, 6): False,
        (4, 5): False,
    }


def test_pbf_equals_xml(tmp_path: Path) -> None:
    osmium = pytest.importorskip("osmium")
    xml = write(tmp_path / "town.osm")
    pbf = tmp_path / "town.osm.pbf"
    with osmium.SimpleWriter(str(pbf)) as writer:
        for entity in osmium.FileProcessor(str(xml)):
            writer.add(entity)
    assert streets(load_city(pbf)) == streets(load_city(xml))
    data = pbf.read_bytes()
    for damaged in (data[: len(data) // 2], data[:60] + bytes(20) + data[80:], b"", b"no map"):
        pbf.write_bytes(damaged)
        with pytest.raises(FileFormatError, match=r"town\.osm\.pbf is damaged"):
            load_city(pbf)


def test_ways_may_come_before_their_nodes(tmp_path: Path) -> None:
    """As in what Overpass answers to `out body; >; out skel;`."""
    text = osm_xml(WAYS)
    lines = text.splitlines()
    nodes = [line for line in lines if "<node" in line]
    ways = [line for line in lines if "<way" in line]
    late = tmp_path / "late.osm"
    late.write_text("\n".join([*lines[:2], *ways, *nodes, lines[-1]]))
    report, usual = read_map(late), read_map(write(tmp_path / "town.osm"))
    assert streets(report.city) == streets(usual.city)
    assert report.incomplete == usual.incomplete == 1


def test_files_without_roads_and_broken_xml(tmp_path: Path) -> None:
    path = write(tmp_path / "empty.osm", [([1, 2], {"building": "yes"})])
    with pytest.raises(CityError, match="no roads for network 'drive'"):
        load_city(path)
    path.write_text(osm_xml(WAYS)[:-30])
    with pytest.raises(FileFormatError, match="damaged"):
        load_city(path)


def test_missing_osmium_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "osmium", None)
    with pytest.raises(MissingDependencyError, match=r"panda-mdp\[geo\]"):
        load_city(write(tmp_path / "town.osm"))
