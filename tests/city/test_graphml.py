"""OSMnx's GraphML."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from maps import write_graphml

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
    assert city.lat.tolist() == [48.0, 48.0, 48.01] and city.lon.tolist() == [11.0, 11.01, 11.01]
    assert (city.u.tolist(), city.v.tolist()) == ([0, 1], [1, 2])
    assert city.length_m.tolist() == [800.5, 1200.25]


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


@pytest.mark.parametrize("metres", [0.3048, 1000.0, 1609.344])
def test_lengths_in_another_unit_are_said(tmp_path: Path, metres: float) -> None:
    text = OSMNX
    for length in (800.5, 1200.25):
        text = text.replace(f">{length}<", f">{length / metres}<")
    with pytest.raises(FileFormatError, match="lengths are in metres"):
        load_city(write(tmp_path / "town.graphml", text))


def test_what_osmnx_writes_is_read_to_the_bit(tmp_path: Path) -> None:
    base = synthetic_city(300, seed=2)
    # A parallel street and a loop.
    ends = [np.concatenate([part, [more, 3]]) for part, more in ((base.u, 5), (base.v, 6))]
    city = City(base.lat, base.lon, *ends, np.append(base.length_m, [900.5, 50.25]))
    again = load_city(write_graphml(city, tmp_path / "city.graphml"))
    assert [np.array_equal(again.lat, city.lat), np.array_equal(again.lon, city.lon)] == [True] * 2
    assert sorted(zip(*streets_of(again), strict=True)) == sorted(
        zip(*streets_of(city), strict=True)
    )


def streets_of(city: City) -> tuple[list[float], ...]:
    low, high = np.minimum(city.u, city.v), np.maximum(city.u, city.v)
    return low.tolist(), high.tolist(), city.length_m.tolist()


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
