"""Estimates from frames and files of reports, by the library and by the command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import panda_mdp as pm
from panda_mdp.cli import app
from panda_mdp.errors import InvalidInputError
from panda_mdp.frames.estimate import STEPS, Quality, quality

SIDE = 5
LAT, LON = (
    part.reshape(-1)
    for part in np.meshgrid(41.9 + 0.01 * np.arange(SIDE), 12.4 + 0.012 * np.arange(SIDE))
)
DOMAIN = pm.Domain.from_points(LAT, LON)
WEST = {"west": np.flatnonzero(LON < 12.42), "east": np.flatnonzero(LON > 12.42)}


@pytest.fixture(scope="module")
def table() -> pm.Mechanism:
    return pm.exponential(pm.Problem(DOMAIN, np.arange(25), DOMAIN.distances(), 4.0))


@pytest.fixture(scope="module")
def frame(table: pm.Mechanism) -> pd.DataFrame:
    """600 people in the west in the morning, in the east in the evening."""
    rng = np.random.default_rng(0)
    true = np.concatenate([rng.choice(WEST["west"], 600), rng.choice(WEST["east"], 600)])
    drawn = table.simulate(5).sample(true)
    return pd.DataFrame(
        {
            "hour": ["morning"] * 600 + ["evening"] * 600,
            "reported": drawn,
            "reported_lat": LAT[drawn],
            "reported_lon": LON[drawn],
        }
    )


def test_frames_columns_and_outputs_tell_the_same(table: pm.Mechanism, frame: pd.DataFrame) -> None:
    by_place = pm.estimate(frame, table, WEST)
    by_index = pm.estimate(frame, table, WEST, columns="reported")
    by_array = pm.estimate(frame["reported"].to_numpy(), table, WEST)
    for found in (by_index, by_array):
        np.testing.assert_array_equal(found.share, by_place.share)
        np.testing.assert_array_equal(found.low, by_place.low)
    assert by_place.reports.tolist() == [1200.0]
    assert by_place.low[0, 0] < 0.5 < by_place.high[0, 0]


def test_windows_come_by_a_column(table: pm.Mechanism, frame: pd.DataFrame) -> None:
    found = pm.estimate(frame, table, WEST, by="hour")
    assert found.windows == ("evening", "morning")
    assert found.share[1, 0] > 0.9 and found.share[0, 0] < 0.1


def test_rows_without_a_report_are_left_out(table: pm.Mechanism, frame: pd.DataFrame) -> None:
    holes = frame.copy()
    holes.loc[::2, ["reported_lat", "reported_lon"]] = np.nan
    assert pm.estimate(holes, table, WEST).reports.tolist() == [600.0]


def test_labels_of_outputs(table: pm.Mechanism) -> None:
    named = pm.Domain.from_matrix(1.0 - np.eye(3), labels=["a", "b", "c"])
    release = pm.exponential(pm.Problem(named, np.arange(3), named.distances(), 3.0))
    reports = pd.DataFrame({"reported": ["a", "a", None, "b"]})
    found = pm.estimate(reports, release)
    assert found.zones == ("a", "b", "c") and found.reports.tolist() == [3.0]
    with pytest.raises(InvalidInputError, match="no outputs of this table"):
        pm.estimate(pd.DataFrame({"reported": ["d"]}), release)


def test_reports_of_another_table_are_refused(table: pm.Mechanism, frame: pd.DataFrame) -> None:
    moved = frame.assign(reported_lat=frame["reported_lat"] + 0.001)
    with pytest.raises(InvalidInputError, match="1,200 of 1,200 rows are at places"):
        pm.estimate(moved, table, WEST)
    with pytest.raises(InvalidInputError, match="no column 'where'"):
        pm.estimate(frame, table, WEST, columns="where")


def test_a_file_without_reports_says_what_it_has(table: pm.Mechanism, tmp_path: Path) -> None:
    true = tmp_path / "true.csv"
    true.write_text("lat,lon,name\n41.9,12.5,a\n")
    with pytest.raises(InvalidInputError, match="it has lat, lon, name"):
        pm.estimate(true, table, WEST)


def test_flows_of_two_reported_ends(table: pm.Mechanism) -> None:
    rng = np.random.default_rng(1)
    ends = [rng.choice(WEST[side], 2000) for side in ("west", "east")]
    drawn = [table.simulate(k).sample(end) for k, end in enumerate(ends)]
    trips = pd.DataFrame({"a": drawn[0], "b": drawn[1]})
    found = pm.estimate(trips, table, WEST, columns="a", end="b")
    with pytest.raises(InvalidInputError, match="flows have no windows"):
        pm.estimate(trips, table, WEST, columns="a", end="b", by="a")
    assert found.share[0, 1] > 0.9 and found.low[0, 1] > 0.7
    assert found.reports == 2000


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".tsv", ".parquet", ".ndjson"])
def test_files_of_every_kind(
    suffix: str, table: pm.Mechanism, frame: pd.DataFrame, tmp_path: Path
) -> None:
    path = tmp_path / f"reports{suffix}"
    if suffix == ".parquet":
        frame.to_parquet(path)
    elif suffix == ".ndjson":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
    found = pm.estimate(path, table, WEST, by="hour")
    expected = pm.estimate(frame, table, WEST, by="hour")
    np.testing.assert_allclose(found.share, expected.share)


def test_the_command_writes_numbers_pictures_and_a_page(
    table: pm.Mechanism, frame: pd.DataFrame, tmp_path: Path
) -> None:
    import geopandas
    from shapely.geometry import box

    halves = [box(12.39, 41.89, 12.42, 41.95), box(12.42, 41.89, 12.46, 41.95)]
    zones = geopandas.GeoDataFrame({"name": ["west", "east"]}, geometry=halves, crs=4326)
    zones.to_file(tmp_path / "zones.geojson")
    frame.to_csv(tmp_path / "reports.csv", index=False)
    saved = table.save(tmp_path / "table.pmdp")
    made = {name: tmp_path / f"out.{name}" for name in ("png", "html", "json")}
    given = [
        *("estimate", saved, tmp_path / "reports.csv", "--zones", tmp_path / "zones.geojson"),
        *("--map", made["png"], "--html", made["html"]),
        *("--json", made["json"]),
    ]
    result = CliRunner().invoke(app, [str(part) for part in given])
    assert result.exit_code == 0, result.output
    assert "whatever the truth is" in " ".join(result.output.split())
    rows = json.loads(made["json"].read_text())
    assert [row["zone"] for row in rows] == ["west", "east"]
    page = made["html"].read_text()
    assert page.count("data:image/png") == 3 and "west" in page
    assert made["png"].stat().st_size > 5000
    pairs = ["--start", "reported", "--end", "reported", "--html", str(made["html"])]
    result = CliRunner().invoke(app, [*map(str, given[:5]), *pairs])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(app, [*map(str, given[:5]), "--start", "reported"])
    assert result.exit_code == 2


def test_quality_puts_the_truth_beside_reports_and_estimates(table: pm.Mechanism) -> None:
    """The true shares are counted exactly, window by window, and measures follow from the rows."""
    true = np.repeat([*WEST["west"][:3], *WEST["east"][:1]], [900, 600, 300, 200])
    drawn = table.simulate(3).sample(true)
    before = pd.DataFrame({"lat": LAT[true], "lon": LON[true], "day": ["a"] * 1500 + ["b"] * 500})
    after = pd.DataFrame({"reported": drawn, "day": before["day"]})
    found = quality(before, after, table, WEST, reported=["reported"], by="day")
    np.testing.assert_allclose(found.before, [[1.0, 0.0], [0.6, 0.4]])
    assert found.found.windows == ("a", "b")
    measures = found.measures()
    off = np.abs(found.found.share - found.before).sum() / 4
    assert measures["total variation, estimated"] == pytest.approx(off)
    assert off < measures["total variation, reported"]
    assert [row["before"] for row in found.rows()] == pytest.approx([1.0, 0.0, 0.6, 0.4])
    exact = quality(before, after.assign(reported=true), table, WEST, reported=["reported"])
    assert exact.measures()["total variation, reported"] == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(InvalidInputError, match="1 true and 2 reported"):
        quality(before, after, table, WEST, reported=["reported", "reported"])


def test_hours_of_exact_times_are_those_of_coarse_ones(table: pm.Mechanism) -> None:
    """perturb writes hours; the data's own times matched none of them, and were counted as zero."""
    true = np.repeat([0, 24], [60, 40])
    times = pd.date_range("2026-03-01T08:00", periods=100, freq="73s")
    before = pd.DataFrame({"lat": LAT[true], "lon": LON[true], "at": times.astype(str)})
    after = pd.DataFrame(
        {"reported": table.simulate(1).sample(true), "at": times.strftime("%Y-%m-%dT%H:00")}
    )
    found = quality(before, after, table, WEST, reported=["reported"], by="at=hour")
    assert found.found.windows == ("2026-03-01T08:00", "2026-03-01T09:00", "2026-03-01T10:00")
    assert found.found.reports.tolist() == [50, 49, 1]
    np.testing.assert_allclose(found.before, [[1.0, 0.0], [10 / 49, 39 / 49], [0.0, 1.0]])
    with pytest.raises(InvalidInputError, match="in both the data and its reports"):
        quality(before, after, table, WEST, reported=["reported"], by="at")
    with pytest.raises(InvalidInputError, match="'at' is to be 'fortnight'; choose"):
        pm.estimate(after, table, WEST, columns="reported", by="at=fortnight")
    with pytest.raises(InvalidInputError, match="there is no column 'at'"):
        pm.estimate(after, table, WEST, columns="reported", by="at=drop")


OUTSIDE = (50.0, 0.0)
"""Near no record."""


def compared(table: pm.Mechanism, places: list[tuple[float, float]]) -> Quality:
    """Ten rows against reports that are given as they are, all in the west."""
    frame = pd.DataFrame(places, columns=["lat", "lon"])
    return quality(frame, np.full(10, 3), table, WEST)


def laws(found: Quality, epsilon: float, rows: int = 1) -> dict[str, np.ndarray]:
    """Of the numbers that are handed on: rows of the audited table."""
    table = np.array(found.drawing(epsilon, rows).matrix)
    return {name: table[round(value * STEPS)] for name, value in found.apart().items()}


@pytest.mark.parametrize("near", [1, 9])
def test_rows_near_no_record_are_hidden_too(table: pm.Mechanism, near: int) -> None:
    """Neighbours differ in one row of ten, inside the limit or not: each number's law differs by
    e^(epsilon / 2) at most, and two rows' by as much where they are promised."""
    west, east = ((float(LAT[k]), float(LON[k])) for k in (0, 24))
    places = [*[west] * near, *[OUTSIDE] * (10 - near)]
    given = compared(table, places)
    assert (given.counted, given.given) == (near, 10)
    for row, at, rows in ((east, 0, 1), (OUTSIDE, 0, 1), (west, 9, 1), (OUTSIDE, 0, 2)):
        other = compared(table, [*places[:at], *[row] * rows, *places[at + rows :]])
        mine, theirs = laws(given, 1.0, rows), laws(other, 1.0, rows)
        for name, value in given.apart().items():
            assert abs(other.apart()[name] - value) <= rows / 10 + 1e-12
            assert np.abs(np.log(mine[name] / theirs[name])).max() <= 0.5


def test_data_near_no_record_is_wholly_wrong(table: pm.Mechanism) -> None:
    found = compared(table, [OUTSIDE] * 10)
    assert list(found.apart().values()) == pytest.approx([1.0, 1.0])
    assert found.measures()["total variation, reported"] == pytest.approx(1.0)
    assert set(found.private(1.0)) == set(found.apart())
    with pytest.raises(InvalidInputError, match="rows is 0; it must be a whole number from 1"):
        found.private(1.0, rows=0)


def test_measures_to_be_handed_on_are_drawn(table: pm.Mechanism) -> None:
    """Near the truth where rows are many, far from it where epsilon is next to nothing."""
    true = np.repeat(WEST["west"][:4], 500)
    after = pd.DataFrame({"reported": table.simulate(3).sample(true)})
    before = pd.DataFrame({"lat": LAT[true], "lon": LON[true]})
    found = quality(before, after, table, WEST, reported=["reported"])
    exact = {name: value for name, value in found.measures().items() if "total" in name}
    assert found.apart() == pytest.approx(exact)
    numbers = np.arange(STEPS + 1) / STEPS
    nearly, blindly = laws(found, 5.0), laws(found, 1e-3, rows=9)
    for name, value in exact.items():
        near, blind = nearly[name], blindly[name]
        assert near @ np.abs(numbers - value) < 0.01 and near.max() < 0.9
        assert blind @ np.square(numbers - blind @ numbers) > 0.1
    drawn = found.private(5.0)
    assert drawn == pytest.approx(exact, abs=0.2)
    assert [round(value * STEPS) / STEPS for value in drawn.values()] == list(drawn.values())
    windows = quality(
        before.assign(day=true % 2), after.assign(day=true % 2), table, WEST,
        reported=["reported"], by="day",
    )  # fmt: skip
    with pytest.raises(InvalidInputError, match="leave out by"):
        windows.private(1.0)


def test_the_command_compares_trips_on_one_page(table: pm.Mechanism, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    ends = [rng.choice(WEST[side], 400) for side in ("west", "east")]
    columns = {f"{end}_{name}": part[true] for end, true in zip("ab", ends, strict=True)
               for name, part in (("lat", LAT), ("lon", LON))}  # fmt: skip
    pd.DataFrame(columns).to_csv(tmp_path / "trips.csv", index=False)
    saved = table.save(tmp_path / "table.pmdp")
    places = ["--place", "a_lat,a_lon", "--place", "b_lat,b_lon"]
    files = [str(saved), *(str(tmp_path / name) for name in ("trips.csv", "out.csv"))]
    given = ["perturb", *files[:2], "-o", files[2], *places]
    assert CliRunner().invoke(app, given).exit_code == 0
    page, told = tmp_path / "page.html", tmp_path / "told.json"
    given = ["quality", *files, *places, "--html", str(page), "--json", str(told), "--release", "1"]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 0, result.output
    assert "total variation, estimated, to be handed on: 0." in " ".join(result.output.split())
    numbers = json.loads(told.read_text())
    assert sum(row["before"] for row in numbers["rows"]) == pytest.approx(1.0)
    # The command's draws are the system's; how often limits hold is tested where they are seeded.
    held = [row["low"] - 1e-9 <= row["before"] <= row["high"] + 1e-9 for row in numbers["rows"]]
    assert numbers["measures"]["limits that hold"] == pytest.approx(np.mean(held))
    text = page.read_text()
    # Flows and lengths; shares, a map of them and one of how wide limits are, for each end.
    assert text.count("data:image/png") == 8 and 'alt="How far trips go' in text
    assert text.count("total variation, estimated") == 4 and "<th>from<th>to<th>before" in text
    assert [len(end["rows"]) for end in numbers["ends"]] == [25, 25]
    result = CliRunner().invoke(app, ["quality", *files, "--reported", "a,b", "--reported", "b,a"])
    assert result.exit_code == 2 and "as many places as --place" in result.output
