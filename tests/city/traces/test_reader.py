"""Trace files, written here in the exact formats of the published data sets."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from panda_mdp.city.traces import TraceReport, Traces, load_traces
from panda_mdp.city.traces.formats import seconds
from panda_mdp.errors import FileFormatError, InvalidInputError

ROME = """\
156;2014-02-01 00:00:00.739166+01;POINT(41.8836718276551 12.4877775603346)
187;2014-02-01 00:00:01.148457+01;POINT(41.9285433333333 12.4690366666667)
156;2014-02-01 00:00:15.5+01;POINT(41.8836 12.4878)
"""
TDRIVE = """\
1,2008-02-02 15:36:08,116.51172,39.92123
1,2008-02-02 15:46:08,116.51135,39.93883
"""
PORTO = """\
"TRIP_ID","CALL_TYPE","ORIGIN_CALL","ORIGIN_STAND","TAXI_ID","TIMESTAMP","DAY_TYPE",\
"MISSING_DATA","POLYLINE"
"1372636858620000589","C","","","20000589","1372636858","A","False",\
"[[-8.618643,41.141412],[-8.618499,41.141376],[-8.620326,41.14251]]"
"1372637303620000596","B","","7","20000596","1372637303","A","False","[]"
"""
GEOLIFE = """\
Geolife trajectory
WGS 84
Altitude is in Feet
Reserved 3
0,2,255,My Track,0,0,2,8421376
0
39.984702,116.318417,0,492,39744.1201851852,2008-10-23,02:53:04
39.984683,116.31845,0,492,39744.1202546296,2008-10-23,02:53:10
"""


def read(traces: Traces) -> tuple[list[list[float]], TraceReport]:
    report = TraceReport()
    chunks = list(traces.chunks(report))
    columns = [
        np.concatenate([getattr(chunk, name) for chunk in chunks]).tolist() if chunks else []
        for name in ("user", "time", "lat", "lon")
    ]
    return columns, report


def test_rome_has_latitude_first(tmp_path: Path) -> None:
    path = tmp_path / "taxi.txt"
    path.write_text(ROME)
    (user, time, lat, lon), report = read(load_traces(path, "rome"))
    assert user == [0, 1, 0]
    assert time[0] == pytest.approx(1391209200.739166) and time[2] - time[0] < 15
    assert lat == [41.8836718276551, 41.9285433333333, 41.8836]
    assert lon == [12.4877775603346, 12.4690366666667, 12.4878]
    assert (report.lines, report.fixes, report.malformed) == (3, 3, 0)


def test_tdrive_has_longitude_first_and_many_files(tmp_path: Path) -> None:
    for name in ("1.txt", "2.txt"):
        (tmp_path / name).write_text(TDRIVE.replace("1,2008", f"{name[0]},2008"))
    (user, time, lat, lon), _ = read(load_traces(tmp_path, "tdrive"))
    assert user == [0, 0, 1, 1]
    assert lat[:2] == [39.92123, 39.93883] and lon[:2] == [116.51172, 116.51135]
    assert time[1] - time[0] == 600


def test_porto_trips_unfold_every_15_seconds(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text(PORTO)
    (user, time, lat, lon), report = read(load_traces(path, "porto"))
    assert user == [0, 0, 0]
    assert time == [1372636858, 1372636873, 1372636888]
    assert lat == [41.141412, 41.141376, 41.14251] and lon[0] == -8.618643
    assert (report.lines, report.fixes, report.malformed) == (2, 3, 0)


def test_geolife_person_is_the_folder(tmp_path: Path) -> None:
    for person in ("000", "001"):
        folder = tmp_path / "Data" / person / "Trajectory"
        folder.mkdir(parents=True)
        for name in ("20081023025304.plt", "20081024020959.plt"):
            (folder / name).write_text(GEOLIFE.replace("\n", "\r\n"))
    (user, time, lat, lon), report = read(load_traces(tmp_path, "geolife"))
    assert user == [0, 0, 0, 0, 1, 1, 1, 1]
    assert (lat[0], lon[0], time[1] - time[0]) == (39.984702, 116.318417, 6)
    assert report.lines == 8


def test_csv_finds_columns_or_takes_the_names_given(tmp_path: Path) -> None:
    path = tmp_path / "fixes.csv"
    path.write_text('Time;who;Latitude;LNG\n2024-01-01T00:00:00Z;"ann;a";1.5;2.5\n')
    (user, time, lat, lon), report = read(load_traces(path, "csv", columns={"user": "who"}))
    assert (user, time, lat, lon) == ([0], [1704067200.0], [1.5], [2.5])
    assert report.anonymous == 0
    _, unnamed = read(load_traces(path))
    assert unnamed.anonymous == 1
    with pytest.raises(FileFormatError, match="no column 'speed'"):
        read(load_traces(path, "csv", columns={"user": "speed"}))
    path.write_text("a,b\n1,2\n")
    with pytest.raises(FileFormatError, match="no column for lat or lon among a, b"):
        read(load_traces(path))


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (
            "rome",
            ROME,
            ["nonsense", "1;2014-02-01;POINT(41.9 x)", "1;t;POINT(141.9 12.4)", "1;t;POINT(nan 1)"],
        ),
        ("tdrive", TDRIVE, ["1,2008-02-02 15:36:08,116.51172", "1,t,216.5,39.9"]),
        ("geolife", GEOLIFE, ["39.98,116.3,0,492", ",,,,,,"]),
        (
            "porto",
            PORTO,
            ['"1","C","","","2","x","A","False","[]"', '"1","C","","","2","3","A","False","[[1]]"'],
        ),
        ("csv", "lat,lon\n1,2\n", ["1", "x,y", "1,2,3"]),
    ],
)
def test_malformed_lines_are_counted_and_shown(
    tmp_path: Path, kind: str, good: str, bad: list[str]
) -> None:
    path = tmp_path / ("x.plt" if kind == "geolife" else "x.txt")
    path.write_text(good)
    (expected, *_), clean = read(load_traces(path, kind))
    path.write_text(good + "".join(line + "\n" for line in bad))
    (users, *_), report = read(load_traces(path, kind))
    assert len(users) == len(expected)
    assert report.malformed == len(bad) and clean.malformed == 0
    assert report.lines == clean.lines + len(bad)
    assert len(report.examples) == len(bad)
    assert f"line {len(good.splitlines()) + 1}: " in report.examples[0]
    assert bad[0][:20] in report.examples[0]
    # The short form goes to logs and shows nobody's place.
    assert repr(report) == (
        f"TraceReport({report.lines} lines, {report.fixes} fixes, {len(bad)} malformed)"
    )


def test_only_the_first_malformed_lines_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "taxi.txt"
    path.write_text("nonsense\n" * 1000)
    _, report = read(load_traces(path, "rome"))
    assert report.malformed == 1000 and len(report.examples) == 5


def test_packed_files_and_progress(tmp_path: Path) -> None:
    path = tmp_path / "taxi.txt.gz"
    path.write_bytes(gzip.compress(ROME.encode()))
    seen: list[tuple[int, int]] = []
    chunks = list(load_traces(path, "rome").chunks(progress=lambda *told: seen.append(told)))
    assert sum(map(len, chunks)) == 3
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(FileFormatError, match="damaged"):
        read(load_traces(path, "rome"))


def test_chunks_are_of_bounded_size(tmp_path: Path) -> None:
    path = tmp_path / "taxi.txt"
    path.write_text(TDRIVE * 40_000)
    sizes = [len(chunk) for chunk in load_traces(path, "tdrive").chunks(times=False)]
    assert sizes == [65536, 14464]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda path: load_traces(path / "nowhere", "rome"), "does not exist"),
        (lambda path: load_traces(path, "rome"), r"holds no \*\.txt"),
        (lambda path: load_traces(path, "shp"), "format is 'shp'"),
    ],
)
def test_wrong_calls(tmp_path: Path, call: Callable[[Path], Traces], message: str) -> None:
    with pytest.raises((OSError, InvalidInputError), match=message):
        call(tmp_path)


def test_times_in_all_forms() -> None:
    assert seconds("1970-01-01 00:01:00") == 60
    assert seconds("1970-01-01T01:00:00+01:00") == 0
    assert seconds("1372636858") == 1372636858
    assert np.isnan(seconds("yesterday"))
