"""OSMnx's GraphML: reading, writing, and the round trip."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from panda_mdp import City, load_city, synthetic_city
from panda_mdp.city.maps import MapOptions, read_map
from panda_mdp.errors import FileFormatError

OSMNX = """<?xml version='1.0' encoding='utf-8'?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="d14" for="edge" attr.name="geometry" attr.type="string" />
  <key id="d11" for="edge" attr.name="maxspeed" attr.type="string" />
  <key id="d9" for="edge" attr.name="length" attr.type="string" />
  <key id="d7" for="edge" attr.name="highway" attr.type="string" />
  <key id="d6" for="edge" attr.name="osmid" attr.type="string" />
  <key id="d4" for="node" attr.name="x" attr.type="string" />
  <key id="d3" for="node" attr.name="y" attr.type="string" />
  <key id="d2" for="graph" attr.name="simplified" attr.type="string" />
  <key id="d1" for="graph" attr.name="crs" attr.type="string" />
  <graph edgedefault="directed">
    <data key="d1">epsg:4326</data>
    <data key="d2">SIMPLIFIED</data>
    <node id="100"><data key="d3">48.0</data><data key="d4">11.0</data></node>
    <node id="200"><data key="d3">48.0</data><data key="d4">11.01</data></node>
    <node id="300"><data key="d3">48.01</data><data key="d4">11.01</data></node>
    <edge source="100" target="200" id="0"><data key="d6">[1, 2]</data>
      <data key="d7">['residential', 'tertiary']</data><data key="d9">800.5</data>
      <data key="d14">LINESTRING (11 48, 11.005 48.001, 11.01 48)</data></edge>
    <edge source="200" target="100" id="0"><data key="d9">800.5</data>
      <data key="d7">['residential', 'tertiary']</data></edge>
    <edge source="200" target="300" id="0"><data key="d9">1200.25</data>
      <data key="d7">primary</data><data key="d11">['70', '50']</data></edge>
  </graph>
</graphml>
"""


def write(path: Path, text: str = OSMNX, simplified: str = "True") -> Path:
    path.write_text(text.replace("SIMPLIFIED", simplified))
    return path


def test_osmnx_graph(tmp_path: Path) -> None:
    city = load_city(write(tmp_path / "town.graphml"))
    assert city.osmid is not None and city.osmid.tolist() == [100, 200, 300]
    assert city.lat.tolist() == [48.0, 48.0, 48.01] and city.lon.tolist() == [11.0, 11.01, 11.01]
    assert (city.u.tolist(), city.v.tolist()) == ([0, 1], [1, 2])
    assert city.length_m.tolist() == [800.5, 1200.25]
    assert city.oneway is not None and city.oneway.tolist() == [False, True]
    assert city.speed_kmh is not None and city.speed_kmh.tolist() == [30.0, 50.0]


def test_graphs_that_are_not_simplified_are(tmp_path: Path) -> None:
    text = OSMNX.replace('<edge source="200" target="300"', '<edge source="300" target="200"')
    text = text.replace("</graph>", '<edge source="200" target="300" id="0"/></graph>')
    text = text.replace('<data key="d9">1200.25</data>', "")
    raw = read_map(write(tmp_path / "raw.graphml", text, simplified="False"))
    assert raw.contracted == 1 and raw.city.streets == 1
    kept = read_map(tmp_path / "raw.graphml", MapOptions(simplify=False))
    assert kept.city.nodes == 3
    # Without a length the straight one is taken.
    assert kept.city.length_m[1] == pytest.approx(1112, abs=1)


@pytest.mark.parametrize("extra", [{}, {"speed": True}, {"oneway": True, "osmid": True}])
def test_round_trip_is_exact(tmp_path: Path, extra: dict[str, bool]) -> None:
    base = synthetic_city(300, seed=2)
    rng = np.random.default_rng(0)
    # Parallel streets and loops included.
    u = np.concatenate([base.u, base.u[:5], [3, 3]])
    v = np.concatenate([base.v, base.v[:5], [3, 3]])
    length = np.concatenate([base.length_m, base.length_m[:3], base.length_m[3:5] + 9, [50.0] * 2])
    city = City(
        base.lat,
        base.lon,
        u,
        v,
        length,
        oneway=rng.uniform(size=len(u)) < 0.5 if extra.get("oneway") else None,
        speed_kmh=rng.uniform(10, 90, len(u)) if extra.get("speed") else None,
        osmid=rng.permutation(300) + 10**10 if extra.get("osmid") else None,
        name="ring",
    )
    if city.oneway is not None:
        # Equal parallel streets in opposite directions are, rightly, read as one two-way street.
        flags = city.oneway.copy()
        flags[len(base.u) :] = [*flags[:5].tolist(), False, False]
        city = City(base.lat, base.lon, u, v, length, oneway=flags, osmid=city.osmid)
    middle = load_city(city.save(tmp_path / "city.graphml"))
    again = load_city(middle.save(tmp_path / "city.npz"))
    assert again.fingerprint == city.fingerprint
    expected = np.arange(300) if city.osmid is None else city.osmid
    assert again.osmid is not None and np.array_equal(again.osmid, expected)


@pytest.mark.data
def test_round_trip_of_rome(road_maps: Callable[[str], City], tmp_path: Path) -> None:
    rome = road_maps("rome")
    again = load_city(load_city(rome.save(tmp_path / "r.graphml")).save(tmp_path / "r.npz"))
    assert again.fingerprint == rome.fingerprint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[:-60], "damaged"),
        (lambda text: "not xml", "damaged"),
        (lambda text: "<html></html>", "holds no graph"),
        (lambda text: text.replace("48.01", "5310000.0"), "no degrees"),
        (lambda text: text.replace('target="300"', 'target="400"'), "edge to node '400'"),
        (lambda text: text.replace('<data key="d3">48.01</data>', ""), "nodes without coordinates"),
        (lambda text: text.replace(">1200.25<", ">far<"), "damaged"),
        (
            lambda text: text.replace("<graphml", '<!DOCTYPE x [<!ENTITY a "aaaa">]><graphml', 1),
            "document type",
        ),
    ],
)
def test_damaged_files(tmp_path: Path, change: Callable[[str], str], message: str) -> None:
    with pytest.raises(FileFormatError, match=message):
        load_city(write(tmp_path / "town.graphml", change(OSMNX)))
