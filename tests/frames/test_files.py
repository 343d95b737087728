"""Files of rows: the formats' own writers in, the same format out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner, Result

import panda_mdp as pm
from panda_mdp.cli import app
from panda_mdp.errors import FileFormatError, InvalidInputError
from panda_mdp.frames.columns import Treatment
from panda_mdp.frames.files import perturb_file
from panda_mdp.frames.perturb import Columns, Perturber

KEPT = Treatment({"user": "keep"})
KEY = pm.DrawKey(bytes(range(32)))
FRAME = pd.DataFrame(
    {
        "user": ["a", "a", "b", "a", "b"],
        "lat": [41.9, 41.9, 41.95, 41.93, 41.9],
        "lon": [12.5] * 5,
        "code": ["007", "", 'x,"y"', "1e5", "ü"],
    }
)


@pytest.fixture
def keyed(mechanism) -> Perturber:
    return Perturber(mechanism, Columns(person="user"), key=KEY, treatment=KEPT)


@pytest.fixture
def expected(keyed) -> list[float]:
    return list(keyed.frame(FRAME)["reported_lat"])


def rows_of(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".csv":
        return pd.read_csv(path, dtype={"code": str}, keep_default_na=False).to_dict("records")
    if path.suffix == ".ndjson":
        return [json.loads(line) for line in path.read_text().splitlines()]
    return parquet.read_table(path).to_pylist()


def write(path: Path, frame: pd.DataFrame = FRAME) -> Path:
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".ndjson":
        frame.to_json(path, orient="records", lines=True, force_ascii=False)
    else:
        parquet.write_table(pa.Table.from_pandas(frame, preserve_index=False), path)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".ndjson", ".parquet"])
def test_every_row_is_reported_and_the_rest_is_copied(suffix, keyed, expected, tmp_path):
    source, target = write(tmp_path / f"in{suffix}"), tmp_path / f"out{suffix}"
    summary = perturb_file(keyed, source, target)
    rows = rows_of(target)
    assert [list(row) for row in rows] == [["user", "code", "reported_lat", "reported_lon"]] * 5
    assert [row["code"] for row in rows] == FRAME["code"].tolist()
    assert [row["reported_lat"] for row in rows] == pytest.approx(expected)
    assert (summary.rows, summary.reported, summary.most) == (5, 5, 2)


@pytest.mark.parametrize("suffix", [".csv", ".ndjson", ".parquet"])
def test_many_batches_without_people(suffix, mechanism, tmp_path):
    many = pd.concat([FRAME] * 60, ignore_index=True).assign(n=range(300))
    many.loc[7, "lat"] = 50.0
    source, target = write(tmp_path / f"in{suffix}", many), tmp_path / f"out{suffix}"
    perturber = Perturber(
        mechanism, outside="drop", treatment=Treatment({"user": "keep", "n": "keep"})
    )
    seen: list[int] = []
    summary = perturb_file(perturber, source, target, progress=seen.append, rows=40)
    assert [int(row["n"]) for row in rows_of(target)] == [n for n in range(300) if n != 7]
    assert (summary.rows, summary.outside) == (300, 1) and seen[-1] == 300


def test_people_are_counted_over_all_batches(keyed, tmp_path):
    """A record that somebody reported in an earlier batch is the same draw, and counts once."""
    many = pd.concat([FRAME] * 12, ignore_index=True)
    source, counted = write(tmp_path / "in.ndjson", many), []
    for rows in (1000, 7):
        summary = perturb_file(keyed, source, tmp_path / "out.ndjson", rows=rows)
        counted.append((summary.rows, summary.people, summary.most, summary.spent))
    assert counted[0] == counted[1] and counted[0][2] == 2


def notes_of(path: Path) -> dict[str, Any]:
    return json.loads(parquet.read_schema(path).metadata[b"geo"])["columns"]["geometry"]


@pytest.mark.parametrize("crs", [4326, 32633])
def test_geoparquet_keeps_its_reference_system_and_drops_true_boxes(crs, keyed, expected, tmp_path):
    points = gpd.points_from_xy(FRAME["lon"], FRAME["lat"], crs=4326)
    frame = gpd.GeoDataFrame(FRAME[["user", "code"]], geometry=points).to_crs(crs)
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    frame.to_parquet(source, write_covering_bbox=True)
    assert {"bbox", "covering"} <= set(notes_of(source))
    perturb_file(keyed, source, target)
    result = gpd.read_parquet(target)
    assert result.crs == frame.crs and list(result.columns) == ["user", "code", "geometry"]
    assert result.to_crs(4326).geometry.y.tolist() == pytest.approx(expected)
    assert "covering" not in notes_of(target)
    # The box of the reports, not of the true places.
    assert notes_of(target)["bbox"] == pytest.approx(result.total_bounds.tolist())


def test_what_goes_wrong_leaves_no_file_and_shows_no_value(keyed, mechanism, tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text("user,lat,lon\na,41.98765x,12.5\n")
    (tmp_path / "bad.ndjson").write_text('{"user": "a", "lat": 41.98765\n')
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 41.98765")
    for suffix in (".csv", ".ndjson", ".parquet"):
        with pytest.raises(FileFormatError) as caught:
            out = tmp_path / f"out{suffix}"
            perturb_file(keyed, tmp_path / f"bad{suffix}", out)
        assert "98765" not in str(caught.value) and caught.value.__cause__ is None
        assert not (tmp_path / f"out{suffix}").exists()
    with pytest.raises(InvalidInputError, match="different formats"):
        perturb_file(keyed, bad, tmp_path / "out.parquet")
    with pytest.raises(InvalidInputError, match="overwrite"):
        perturb_file(keyed, bad, bad)
    with pytest.raises(FileFormatError, match="unknown suffix"):
        perturb_file(keyed, tmp_path / "x.xlsx", tmp_path / "y.xlsx")
    with pytest.raises(InvalidInputError, match="no column 'user'"):
        bad.write_text("lat,lon\n41.9,12.5\n")
        perturb_file(keyed, bad, tmp_path / "out.csv")


@pytest.mark.parametrize("suffix", [".csv", ".ndjson", ".parquet"])
def test_other_columns_are_spoken_of_in_every_kind_of_file(suffix, mechanism, tmp_path):
    """A plain call of one place: nothing is written while a column is left unsaid."""
    at = [f"2026-03-0{day}T10:2{day}" for day in range(1, 6)]
    source = write(tmp_path / f"in{suffix}", FRAME.assign(drop_lat=FRAME["lat"], at=at))
    target = tmp_path / f"out{suffix}"
    with pytest.raises(InvalidInputError, match="user looks like an id; drop_lat looks like coord"):
        perturb_file(Perturber(mechanism), source, target)
    assert not target.exists()
    said = Treatment({"user": "drop", "drop_lat": 1, "at": "day"})
    perturb_file(Perturber(mechanism, treatment=said), source, target)
    rows = rows_of(target)
    assert not any({"user", "lat", "lon"} & set(row) for row in rows)
    assert [float(row["drop_lat"]) for row in rows] == [42.0] * 5
    assert [row["at"] for row in rows] == [f"2026-03-0{day}T00:00" for day in range(1, 6)]


def test_other_columns_of_points_are_treated(mechanism, tmp_path):
    points = gpd.points_from_xy(FRAME["lon"], FRAME["lat"], crs=4326)
    frame = gpd.GeoDataFrame(FRAME[["user", "code"]], geometry=points).assign(fare=range(5))
    frame.to_parquet(tmp_path / "in.parquet")
    files = (tmp_path / "in.parquet", tmp_path / "out.parquet")
    with pytest.raises(InvalidInputError, match="fare looks like what determines a length"):
        perturb_file(Perturber(mechanism, treatment=KEPT), *files)
    perturb_file(Perturber(mechanism, treatment=Treatment({"user": "drop", "fare": 2})), *files)
    result = gpd.read_parquet(files[1])
    assert list(result.columns) == ["code", "fare", "geometry"]
    assert result["fare"].tolist() == [0.0, 0.0, 2.0, 4.0, 4.0]


def test_what_a_frame_keeps_beside_its_reports_is_said(mechanism):
    summary = pm.FrameSummary()
    pm.perturb(FRAME.assign(fare=1), mechanism, summary=summary)
    assert "user looks like an id; fare looks like what determines a length" in str(summary)


def call(*arguments: str | Path, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)


def test_the_command_line_perturbs_files(mechanism, tmp_path):
    table = mechanism.save(tmp_path / "t.pmdp")
    source = write(tmp_path / "in.csv")
    assert call("key", tmp_path / "k.key").exit_code == 0
    arguments = ["perturb", table, source, "--person", "user", "--key", tmp_path / "k.key"]
    assert "user looks like an id" in call(*arguments, "-o", tmp_path / "one.csv").stderr
    arguments += ["--column", "user=keep"]
    for name in ("one.csv", "two.csv"):
        result = call(*arguments, "-o", tmp_path / name)
        assert result.exit_code == 0, result.output
        assert "at most 2 different places in a period: up to 4 per km" in " ".join(
            result.stdout.split()
        )
    # A retry with the same key draws the same.
    assert (tmp_path / "one.csv").read_text() == (tmp_path / "two.csv").read_text()
    assert call("key", tmp_path / "k.key").exit_code == 2
    assert call("key", tmp_path / "k.key", "--destroy").exit_code == 0
    assert not (tmp_path / "k.key").exists()
    assert "go together" in call("perturb", table, source).stderr
    missing = call("perturb", table, "41.98765,12.5", "-o", tmp_path / "x.csv")
    assert missing.exit_code == 2 and "98765" not in missing.output


def test_all_lines_of_standard_input_are_answered(mechanism, tmp_path):
    table = mechanism.save(tmp_path / "t.pmdp")
    result = call("perturb", table, "--json", tmp_path / "r.json", stdin="0\n41.9,12.5\n\n7\n")
    assert result.exit_code == 0 and len(result.stdout.splitlines()) == 3
    assert [
        f"{r['lat']!r},{r['lon']!r}" for r in json.loads((tmp_path / "r.json").read_text())
    ] == (result.stdout.splitlines())
    refused = call("perturb", table, stdin="0\n41.98765,nonsense\n")
    assert refused.exit_code == 2 and refused.stderr.startswith("error: line 2 on standard input")
    assert "98765" not in refused.stderr


def test_memory_does_not_grow_with_the_file(mechanism, tmp_path):
    rows = 20_000
    rng = np.random.default_rng(0)
    part = pa.table(
        {"lat": rng.uniform(41.89, 41.91, rows), "lon": rng.uniform(12.49, 12.51, rows)}
    )
    with parquet.ParquetWriter(tmp_path / "in.parquet", part.schema) as writer:
        for _ in range(40):
            writer.write_table(part)
    held: list[int] = []
    start = pa.total_allocated_bytes()
    perturb_file(
        Perturber(mechanism, Columns(), limit=5.0),
        tmp_path / "in.parquet",
        tmp_path / "out.parquet",
        progress=lambda _: held.append(pa.total_allocated_bytes() - start),
        rows=rows,
    )
    assert len(held) == 40
    # A batch has 0.3 MB in and 0.3 MB out; the file has 13 MB.
    assert max(held) < 5_000_000
