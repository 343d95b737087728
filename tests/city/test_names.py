"""Names of streets and landmarks."""

from __future__ import annotations

from pathlib import Path

import pytest

from panda_mdp.city.names import read_names
from panda_mdp.errors import FileFormatError

OSM = """<osm version="0.6">
  <node id="1" lat="44.60" lon="10.90"/><node id="2" lat="44.61" lon="10.90"/>
  <node id="3" lat="44.605" lon="10.91"><tag k="name" v="Duomo"/>
    <tag k="amenity" v="place_of_worship"/></node>
  <node id="4" lat="44.605" lon="10.92"><tag k="name" v="Bar"/><tag k="amenity" v="bar"/></node>
  <node id="5" lat="44.61" lon="10.91"/><node id="6" lat="44.64" lon="10.90"/>
  <way id="8"><nd ref="1"/><nd ref="5"/><tag k="name" v="Via Corta"/>
    <tag k="highway" v="residential"/></way>
  <way id="9"><nd ref="1"/><nd ref="2"/><tag k="name" v="Via Emilia"/>
    <tag k="highway" v="primary"/></way>
  <way id="11"><nd ref="2"/><nd ref="6"/><tag k="name" v="Via Emilia"/>
    <tag k="highway" v="primary"/></way>
  <way id="10"><nd ref="1"/><nd ref="2"/><nd ref="5"/><nd ref="1"/><tag k="name" v="Parco"/>
    <tag k="leisure" v="park"/></way>
</osm>
"""


def test_a_street_is_named_once_at_its_longest_piece_and_long_ones_come_first(
    tmp_path: Path,
) -> None:
    path = tmp_path / "town.osm"
    path.write_text(OSM)
    first, second = read_names(path)
    assert (first.name, second.name) == ("Via Emilia", "Via Corta")
    assert (first.lat, first.kind) == (pytest.approx(44.625, abs=1e-4), "street")
    assert first.lon == pytest.approx(10.9)


@pytest.mark.parametrize("text", ["name,lat\nA,1\n", "name,lat,lon\nA,one,2\n"])
def test_a_table_without_places_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "names.csv"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=r"names\.csv (has lat|needs).*(one|lat and lon)"):
        read_names(path)


def test_formats_without_names_have_none(tmp_path: Path) -> None:
    assert read_names(tmp_path / "city.npz") == []
