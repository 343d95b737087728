"""Networks from GeoPackage, shapefile, GeoJSON and GeoParquet files of their own writers."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import geopandas as gpd
import numpy as np
import osmnx
import pytest
from maps import write_graphml
from shapely import LineString, Polygon

from panda_mdp import load_city, synthetic_city
from panda_mdp.city.maps import MapOptions, read_map
from panda_mdp.errors import CityError, FileFormatError, MissingDependencyError

# GeoPandas warns when it is made to write what these tests need.
pytestmark = pytest.mark.filterwarnings("ignore:.*crs.*:UserWarning")
PLACES = [(11.0, 48.0), (11.01, 48.0), (11.01, 48.01)]


def line_frame() -> gpd.GeoDataFrame:
    """A street with a bend and two straight ones: lines that share a vertex."""
    bent = LineString([PLACES[0], (11.005, 48.001), PLACES[1]])
    lines = [bent, LineString(PLACES[:0:-1]), LineString([PLACES[1], (11.02, 48.0)])]
    lines.append(LineString([PLACES[2], (11.02, 48.02)]))
    columns = {"fclass": ["residential", "primary", "residential", "footway"]}
    return gpd.GeoDataFrame(columns, geometry=lines, crs=4326)


def check_lines(path: Path, **options: object) -> None:
    report = read_map(path, MapOptions(**options))  # type: ignore[arg-type]
    city = report.city
    assert (city.nodes, city.streets, report.contracted) == (4, 3, 1)
    assert sorted(city.lon.round(6)) == [11.0, 11.01, 11.01, 11.02]
    assert city.length_m.sum() == pytest.approx(777.1 + 1112.0 + 744.0, abs=3)


@pytest.mark.parametrize("crs", [4326, 3857])
@pytest.mark.parametrize(("nodes", "edges"), [("nodes", "edges"), ("junctions", "my streets")])
def test_osmnx_writes_a_line_for_each_direction(
    tmp_path: Path, crs: int, nodes: str, edges: str
) -> None:
    town = synthetic_city(200, seed=3)
    source = write_graphml(town, tmp_path / "town.graphml")
    graph = osmnx.load_graphml(source)
    points, lines = osmnx.graph_to_gdfs(graph)
    path = tmp_path / "town.gpkg"
    points.to_crs(crs).to_file(path, layer=nodes)
    lines.to_crs(crs).to_file(path, layer=edges)
    found = read_map(path, MapOptions(simplify=False)).city
    assert (found.nodes, found.streets) == (town.nodes, town.streets)
    # Lengths are those of the lines, which are straight here.
    assert found.total_km == pytest.approx(town.total_km, rel=0.05)
    simplified, due = load_city(path), load_city(source, MapOptions(simplify=True))
    assert (simplified.nodes, simplified.streets) == (due.nodes, due.streets)
    assert due.nodes < town.nodes


def test_rows_without_a_class_of_road_are_none(tmp_path: Path) -> None:
    frame = line_frame()
    frame.loc[2, "fclass"] = None
    # Who walks has the footway, and nobody the row of which nothing is said.
    for network, nodes in (("drive", 4), ("walk", 5)):
        assert load_city(frame, MapOptions(network=network, simplify=False)).nodes == nodes


@pytest.mark.parametrize("suffix", [".gpkg", ".shp", ".geojson", ".fgb", ".parquet"])
@pytest.mark.parametrize("crs", [4326, 32632])
def test_lines_alone_are_a_network(tmp_path: Path, suffix: str, crs: int) -> None:
    path = tmp_path / f"roads{suffix}"
    frame = line_frame().to_crs(4326 if suffix == ".geojson" else crs)
    if suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_file(path)
    check_lines(path)


def test_a_zipped_shapefile(tmp_path: Path) -> None:
    (tmp_path / "roads").mkdir()
    line_frame().to_file(tmp_path / "roads" / "roads.shp")
    check_lines(Path(shutil.make_archive(str(tmp_path / "town"), "zip", tmp_path / "roads")))


def test_packages_that_are_missing_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line_frame().to_parquet(tmp_path / "x.parquet")
    line_frame().to_file(tmp_path / "x.gpkg")
    for package, name in (("pyarrow", "x.parquet"), ("geopandas", "x.gpkg")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(MissingDependencyError, match=package):
            load_city(tmp_path / name)
    monkeypatch.undo()
    (tmp_path / "x.parquet").write_bytes(b"PAR1 damaged")
    with pytest.raises(FileFormatError, match="damaged"):
        load_city(tmp_path / "x.parquet")


def test_a_file_that_names_no_reference_system(tmp_path: Path) -> None:
    path = tmp_path / "roads.shp"
    projected = line_frame().to_crs(32632)
    projected.set_crs(None, allow_override=True).to_file(path)
    with pytest.raises(FileFormatError, match=r"names no reference system.*crs='EPSG"):
        load_city(path)
    check_lines(path, crs="EPSG:32632")
    with pytest.raises(FileFormatError, match="is not known"):
        load_city(path, MapOptions(crs="EPSG:nonsense"))


def test_a_wrong_reference_system_is_said(tmp_path: Path) -> None:
    path = tmp_path / "roads.gpkg"
    projected = line_frame().to_crs(32632)
    projected.set_crs(4326, allow_override=True).to_file(path)
    with pytest.raises(FileFormatError, match=r"says WGS 84, but its coordinates do not fit"):
        load_city(path)
    check_lines(path, crs="EPSG:32632")


def test_feet_of_a_projection_are_read_as_feet(tmp_path: Path) -> None:
    """New York's state plane is in feet: the file says so and pyproj knows."""
    frame = line_frame()
    frame = frame.set_geometry(frame.geometry.translate(-11 - 73.95, -48 + 40.7)).to_crs(2263)
    path = tmp_path / "roads.gpkg"
    frame.to_file(path)
    city = load_city(path)
    assert np.allclose(sorted(city.lat.round(6)), [40.7, 40.7, 40.7, 40.71], atol=2e-6)


def test_swapped_axes_are_said(tmp_path: Path) -> None:
    path = tmp_path / "roads.geojson"
    lines = [LineString([(44.0, 111.0), (44.1, 111.1)])]
    gpd.GeoDataFrame({"k": [1]}, geometry=lines).to_file(path)
    with pytest.raises(FileFormatError, match="latitude and longitude exchanged"):
        load_city(path)


def test_a_box_in_another_order_is_said(tmp_path: Path) -> None:
    path = tmp_path / "roads.gpkg"
    line_frame().to_file(path)
    check_lines(path, bbox=(47.9, 10.9, 48.1, 11.1))
    with pytest.raises(CityError, match="no roads within the bbox, which is south, west"):
        load_city(path, MapOptions(bbox=(10.9, 47.9, 11.1, 48.1)))
    with pytest.raises(CityError, match="south below north"):
        MapOptions(bbox=(48.1, 47.9, 11.1, 10.9))


def test_what_is_no_network_is_named(tmp_path: Path) -> None:
    path = tmp_path / "zones.gpkg"
    square = Polygon([(0, 0), (0, 1), (1, 1)])
    gpd.GeoDataFrame({"zone": ["a"]}, geometry=[square], crs=4326).to_file(path, layer="parcels")
    with pytest.raises(FileFormatError, match=r"it has parcels \(polygon\).*load_places"):
        load_city(path)
    for content in (b"SQLite format 3\x00" + bytes(200), b"text, not a database " * 40):
        path.write_bytes(content)
        with pytest.raises(FileFormatError, match="damaged"):
            load_city(path)
