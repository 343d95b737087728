"""Points, zones and cells as records."""

from __future__ import annotations

from pathlib import Path

import geopandas as gpd
import pandas as pd
import pytest
from shapely import Point, Polygon

import panda_mdp as pm
from panda_mdp.errors import FileFormatError

# A horseshoe: its centroid lies outside it.
SHOE = Polygon([(11, 48), (11.3, 48), (11.3, 48.3), (11.2, 48.3), (11.2, 48.05), (11.1, 48.05),
                (11.1, 48.3), (11, 48.3)])  # fmt: skip
SQUARE = Polygon([(12, 48), (12.1, 48), (12.1, 48.1), (12, 48.1)])


def zones() -> gpd.GeoDataFrame:
    return gpd.GeoDataFrame({"zone": ["shoe", "square"]}, geometry=[SHOE, SQUARE], crs=4326)


def test_points_of_a_csv(tmp_path: Path) -> None:
    path = tmp_path / "shops.csv"
    path.write_text("Name,Latitude,Longitude\nA,48.0,11.0\nB,48.1,11.1\nA again,48.0,11.0\n")
    places = pm.load_places(path)
    assert len(places) == 2 and places.names == ("A", "B") and places.domain.record("B") == 1
    assert places.domain.lat.tolist() == [48.0, 48.1]
    path.write_text("a,b\n1,2\n")
    with pytest.raises(FileFormatError, match="no columns lat and lon"):
        pm.load_places(path)
    path.write_text("lat,lon\n11.0,148.0\n48,x\n")
    with pytest.raises(FileFormatError, match="no numbers"):
        pm.load_places(path)
    path.write_text("lat,lon\n148.0,11.0\n148.1,11.1\n")
    with pytest.raises(FileFormatError, match="exchanged"):
        pm.load_places(path)


@pytest.mark.parametrize("suffix", [".gpkg", ".geojson", ".shp", ".parquet"])
def test_zones_of_files_stand_inside_themselves(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"zones{suffix}"
    frame = zones() if suffix == ".geojson" else zones().to_crs(32632)
    if suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_file(path)
    places = pm.load_places(path)
    assert places.names == ("shoe", "square") and places.shapes is not None
    for k, shape in enumerate((SHOE, SQUARE)):
        assert shape.contains(Point(places.domain.lon[k], places.domain.lat[k]))
        assert places.shapes[k].symmetric_difference(shape).area < 1e-6


def test_frames_are_taken_as_they_are() -> None:
    assert pm.load_places(zones()).names == ("shoe", "square")
    points = pm.load_places(pd.DataFrame({"lat": [48.0, 48.1], "lon": [11.0, 11.1]}))
    assert points.names == ("0", "1") and points.shapes is None
    series = gpd.GeoSeries([Point(11, 48), Point(11.1, 48.1)], crs=4326).to_crs(32632)
    assert pm.load_places(series).domain.lat.tolist() == pytest.approx([48.0, 48.1])
    with pytest.raises(FileFormatError, match="no column 'nom'"):
        pm.load_places(zones(), name="nom")


def test_places_are_records_of_a_problem() -> None:
    places = pm.load_places(zones())
    problem = pm.Problem(places.domain, [0, 1], pm.distance_loss(places.domain, [0, 1]), 0.01)
    assert pm.exponential(problem).audit.holds
