"""OpenStreetMap extracts written by the tests, and what must come out of them."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
import osmnx
import pytest

from panda_mdp import City, load_city, synthetic_city
from panda_mdp.city.maps import MapOptions, read_map
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


def streets(city: City) -> dict[tuple[int, int], float]:
    """Length of each street by the numbers of its ends above, the lower one first."""
    numbers = {place: number for number, place in PLACES.items()}
    node = np.array([numbers[place] for place in zip(city.lat, city.lon, strict=True)])
    rows = zip(node[city.u], node[city.v], city.length_m, strict=True)
    return {(int(min(u, v)), int(max(u, v))): float(m) for u, v, m in rows}


def metres(*nodes: int) -> float:
    lat, lon = np.array([PLACES[node] for node in nodes]).T
    return float(1000 * haversine_km(lat[:-1], lon[:-1], lat[1:], lon[1:]).sum())


def test_drivable_network(tmp_path: Path) -> None:
    report = read_map(write(tmp_path / "town.osm"))
    found = streets(report.city)
    # Streets are open both ways here, so 5 is no junction between 2 and 6.
    assert found.keys() == {(1, 2), (2, 3), (2, 4), (2, 6)}
    assert found[2, 4] == pytest.approx(metres(2, 9, 4))
    assert found[2, 6] == pytest.approx(metres(2, 5, 6))
    assert (report.contracted, report.dropped_nodes, report.parts) == (2, 2, 2)
    assert report.city.name == "town"
    assert "2 junctions in 1 smaller" in "\n".join(report.lines())


def test_walking_and_cycling(tmp_path: Path) -> None:
    path = write(tmp_path / "town.osm")
    walk = streets(load_city(path, MapOptions(network="walk")))
    # The ring 2-5-6-3-2 has no corner but 2.
    assert walk.keys() == {(1, 2), (2, 4), (2, 2)}
    assert walk[2, 2] == pytest.approx(metres(2, 5, 6, 3, 2))
    # The cycleway from 1 to 4 is one for bicycles alone, the footway from 6 to 3 none.
    bike = streets(load_city(path, MapOptions(network="bike")))
    assert bike.keys() == {(2, 2), (2, 3), (2, 6)}
    assert bike[2, 2] == pytest.approx(metres(2, 1, 4, 9, 2))


def test_bbox_and_unsimplified(tmp_path: Path) -> None:
    path = write(tmp_path / "town.osm")
    part = load_city(path, MapOptions(bbox=(47.995, 10.9, 48.02, 11.03), simplify=False))
    assert streets(part).keys() == {(1, 2), (2, 3), (2, 9), (4, 9)}
    whole = load_city(path, MapOptions(largest=False))
    assert (7, 8) in streets(whole)
    with pytest.raises(CityError, match="no roads within the bbox"):
        load_city(path, MapOptions(bbox=(0, 0, 1, 1)))
    with pytest.raises(CityError, match="south, west, north, east"):
        MapOptions(bbox=(48, 11, 47, 12))
    with pytest.raises(CityError, match="network is 'fly'"):
        MapOptions(network="fly")


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
    assert streets(load_city(late)) == streets(load_city(write(tmp_path / "town.osm")))


def test_files_without_roads_and_broken_xml(tmp_path: Path) -> None:
    path = write(tmp_path / "empty.osm", [([1, 2], {"building": "yes"})])
    with pytest.raises(CityError, match="no roads for network 'drive'"):
        load_city(path)
    path.write_text(osm_xml(WAYS)[:-30])
    with pytest.raises(FileFormatError, match="damaged"):
        load_city(path)


def test_osmnx_simplifies_alike(tmp_path: Path) -> None:
    town = synthetic_city(300, seed=3)
    lines = ['<osm version="0.6">']
    for k, (lat, lon) in enumerate(zip(town.lat, town.lon, strict=True)):
        lines.append(f'<node id="{k + 1}" lat="{lat:.7f}" lon="{lon:.7f}"/>')
    for k, (u, v) in enumerate(zip(town.u.tolist(), town.v.tolist(), strict=True)):
        # Every street bends once.
        lat, lon = (town.lat[u] + town.lat[v]) / 2 + 1e-5, (town.lon[u] + town.lon[v]) / 2
        lines.insert(1, f'<node id="{1000 + k}" lat="{lat:.7f}" lon="{lon:.7f}"/>')
        refs = "".join(f'<nd ref="{node}"/>' for node in (u + 1, 1000 + k, v + 1))
        tags = '<tag k="highway" v="residential"/>'
        lines.append(f'<way id="{k + 1}">{refs}{tags}</way>')
    path = tmp_path / "town.osm"
    path.write_text("\n".join([*lines, "</osm>"]))
    ours = load_city(path)
    theirs = load_city(osmnx.graph_from_xml(path))
    assert (ours.nodes, ours.streets) == (theirs.nodes, theirs.streets)
    assert ours.total_km == pytest.approx(theirs.total_km, rel=1e-4)


def test_packed_extracts(tmp_path: Path) -> None:
    xml = write(tmp_path / "town.osm")
    packed = tmp_path / "packed.osm.gz"
    packed.write_bytes(gzip.compress(xml.read_bytes()))
    assert streets(load_city(packed)) == streets(load_city(xml))


def test_a_missing_package_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "geopandas", None)
    with pytest.raises(MissingDependencyError, match=r"panda-mdp\[geo\]"):
        load_city(write(tmp_path / "town.osm"))
