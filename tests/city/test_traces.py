"""Traces in CSV and frames, against what is written into them."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import geopandas
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import shapely

from panda_mdp.city.traces import TraceReport, Traces, load_traces
from panda_mdp.errors import FileFormatError, InvalidInputError

TABLE = {"person": ["a", "b", "a"], "lat": [1.0, 2.0, 95.0], "lon": [3.0, 4.0, 5.0], "t": [7, 8, 9]}


def read(source: object, **options: object) -> tuple[list[tuple[float, ...]], TraceReport]:
    report = TraceReport()
    rows = [
        tuple(float(v) for v in row)
        for chunk in load_traces(source, **options).chunks(report)
        for row in zip(chunk.user, chunk.lat, chunk.lon, strict=True)
    ]
    return rows, report


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table])
def test_frames(kind: type) -> None:
    rows, report = read(kind(TABLE))
    assert rows == [(0.0, 1.0, 3.0), (1.0, 2.0, 4.0)]
    assert (report.fixes, report.malformed) == (2, 1)
    with pytest.raises(FileFormatError, match="no column 'lat'"):
        read(kind({"a": [1.0], "lon": [2.0]}))


def test_frames_of_points_are_reprojected() -> None:
    points = geopandas.GeoDataFrame(
        {"user": ["a", "b"]},
        geometry=[shapely.Point(12.4, 41.8), shapely.Point(12.5, 41.9)],
        crs=4326,
    )
    rows, _ = read(points.to_crs(3857))
    np.testing.assert_allclose([row[1:] for row in rows], [(41.8, 12.4), (41.9, 12.5)])


def test_frames_of_lines_have_a_fix_for_each_vertex() -> None:
    frame = geopandas.GeoDataFrame(
        {"driver": ["anna", "bruno", None]},
        geometry=[
            shapely.LineString([(12.49, 41.9, 7.0), (12.5, 41.91, 7.0)]),
            shapely.MultiLineString([[(1, 2), (3, 4)], [(5, 6), (6, 6)]]),
            shapely.MultiPoint([(7, 8)]),
        ],
        crs=4326,
    )
    rows, report = read(frame)
    assert [row[0] for row in rows] == [0, 0, 1, 1, 1, 1, 2]
    assert rows[1][1:] == (41.91, 12.5) and rows[2][1:] == (2.0, 1.0) and rows[6][1:] == (8.0, 7.0)
    # Where people are named, whom it does not name is nobody.
    assert (report.malformed, report.anonymous) == (0, 1)


def test_shapes_without_a_reference_system_are_not_taken_for_degrees() -> None:
    geopandas = pytest.importorskip("geopandas")
    frame = geopandas.GeoDataFrame({"u": ["a"]}, geometry=geopandas.points_from_xy([12.5], [41.9]))
    with pytest.raises(FileFormatError, match="names no reference system"):
        next(load_traces(frame).chunks())


def test_what_is_no_source_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="a file, a folder or a frame"):
        load_traces(7)
    assert repr(load_traces(pd.DataFrame(TABLE))) == "Traces(a frame)"


def test_csv_finds_columns_or_takes_the_names_given(tmp_path: Path) -> None:
    path = tmp_path / "fixes.csv"
    path.write_text('Time;who;Latitude;LNG\n2024-01-01T00:00:00Z;"ann;a";1.5;2.5\n')
    rows, report = read(path, columns={"user": "who"})
    assert rows == [(0, 1.5, 2.5)]
    assert report.anonymous == 0
    assert read(path)[1].anonymous == 1
    with pytest.raises(FileFormatError, match="no column 'speed'"):
        read(path, columns={"user": "speed"})
    path.write_text("a,b\n1,2\n")
    with pytest.raises(FileFormatError, match="no column 'lat' among a, b"):
        read(path)
    path.write_text("")
    with pytest.raises(FileFormatError, match="needs a header"):
        read(path)


def test_malformed_lines_are_counted_and_the_first_shown(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    bad = ["nonsense", "x,y", "1,2,3", "141.9,12.4", "nan,1", "1,216.5", ",", "1"]
    path.write_text("\n".join(["lat,lon", "1,2", *bad]) + "\n")
    rows, report = read(path)
    assert len(rows) == report.fixes == 1
    assert (report.lines, report.malformed, len(report.examples)) == (9, 8, 5)
    assert report.examples[0].startswith("x.csv, line 3: not 2 fields with a latitude in [-90, 90]")
    assert report.examples[0].endswith(": 'nonsense'")
    # The short form goes to logs and shows nobody's place.
    assert repr(report) == "TraceReport(9 lines, 1 fixes, 8 malformed)"


def test_packed_files(tmp_path: Path) -> None:
    path = tmp_path / "taxi.csv.gz"
    path.write_bytes(gzip.compress(b"user,lat,lon\n" + b"ann,41.9,12.5\n" * 300))
    assert len(read(path)[0]) == 300
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(FileFormatError, match="damaged"):
        read(path)


def test_chunks_are_of_bounded_size_over_all_files(tmp_path: Path) -> None:
    for name in ("1", "2"):
        (tmp_path / f"{name}.csv").write_text("user,lon,lat\n" + f"{name},116.5,39.9\n" * 40_000)
    chunks = list(load_traces(tmp_path).chunks())
    assert [len(chunk) for chunk in chunks] == [65536, 14464]
    assert np.unique(chunks[0].user).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda path: load_traces(path / "nowhere"), "does not exist"),
        (load_traces, "holds no traces: .csv"),
    ],
)
def test_wrong_calls(tmp_path: Path, call: Callable[[Path], Traces], message: str) -> None:
    with pytest.raises((OSError, InvalidInputError), match=message):
        call(tmp_path)
