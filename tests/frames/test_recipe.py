"""Trips: several places of a row, the columns beside them, and the statement."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

import panda_mdp as pm
from panda_mdp.cli import app
from panda_mdp.errors import FileFormatError, InvalidInputError, SnapError
from panda_mdp.frames.columns import Treatment, classify, narwhals_of
from panda_mdp.frames.files import perturb_file
from panda_mdp.frames.perturb import Perturber

ENDS = (("pickup_latitude", "pickup_longitude"), ("dropoff_latitude", "dropoff_longitude"))
TRIPS = pd.DataFrame(
    {
        "medallion": ["a", "a", "b", "a"],
        "pickup_datetime": ["2024-03-01 08:15", "2024-03-02 09:59", "2024-03-01 10:00"] * 1
        + ["2024-03-02 23:10"],
        "pickup_latitude": [41.9, 41.93, 41.95, 41.9],
        "pickup_longitude": [12.5] * 4,
        "dropoff_latitude": [41.94, 41.9, 41.91, 41.92],
        "dropoff_longitude": [12.5] * 4,
        "fare_amount": [12.3, 7.9, 31.0, 8.8],
        "colour": ["red", "blue", "red", "red"],
    }
)
RECIPE = """
places = [["pickup_latitude", "pickup_longitude"], ["dropoff_latitude", "dropoff_longitude"]]
person = "medallion"
time = "pickup_datetime"
period = "day"
[columns]
medallion = "drop"
pickup_datetime = "hour"
fare_amount = 5
"""


def test_every_place_of_a_row_is_reported_and_counted(mechanism) -> None:
    summary = pm.FrameSummary()
    columns = pm.Columns(person="medallion", time="pickup_datetime", period="day", places=ENDS)
    made = pm.perturb(TRIPS, mechanism, columns, summary=summary)
    assert not set(made.columns) & {name for pair in ENDS for name in pair}
    outputs = set(mechanism.problem.domain.lat[mechanism.problem.outputs].tolist())
    for name in ("reported_pickup_latitude", "reported_dropoff_latitude"):
        assert set(made[name]) <= outputs
    # Two draws a trip: a has one trip on the first day and two on the second.
    assert (summary.rows, summary.reported, summary.most) == (8, 8, 4)
    assert sorted(summary.totals.values()) == [2, 6]
    assert summary.spent_in_all == pytest.approx(6 * mechanism.epsilon)
    assert "12 per km in all" in str(summary) and "8 per km in a period" in str(summary)


def looks(*, places: tuple[tuple[str, str], ...] = (), **columns: object) -> str:
    return classify(narwhals_of().from_native(pd.DataFrame(columns)), places)


def test_what_looks_telling() -> None:
    names = ["medallion", "pickup_datetime", "colour", "fare_amount", "hack_license", "geometry"]
    telling = [name for name in names if looks(**{name: [1]})]
    assert telling == [name for name in names if name != "colour"]
    several = {name: [1] for name in ("dropoff_longitude", "tripDistance", "pickup_x", "n")}
    assert looks(**several) == (
        "dropoff_longitude looks like coordinates; tripDistance looks like what determines a "
        "length; pickup_x looks like coordinates"
    )


def test_what_is_told_by_what_a_column_holds() -> None:
    """Names that say nothing: values that look like places, times, ids, or go with a length."""
    rng = np.random.default_rng(0)
    lat, lon, to_lat, to_lon = 0.1 * rng.random((4, 60)) + np.array([[41.9], [12.5]] * 2)
    length = np.hypot(to_lat - lat, to_lon - lon)
    pairs = (("a", "b"), ("c", "d"))
    true = {"a": lat, "b": lon, "c": to_lat, "d": to_lon}
    told = {
        "e": 5e5 + 8e4 * lon,  # metres of a grid
        "f": [f"POINT ({x:.5f} {y:.5f})" for x, y in zip(lon, lat, strict=True)],
        "g": 1.7e9 + rng.integers(0, 10**6, 60) // 3600,
        "h": ["08:15", "23:10"] * 30,
        "i": 3 + 200 * length + rng.random(60),
        "j": [f"{k:x}" for k in range(60)],
    }
    dull = {"k": ["red", "blue"] * 30, "l": rng.integers(1, 5, 60), "m": rng.random(60)}
    assert looks(places=pairs, **true, **told, **dull) == (
        "e looks like coordinates; f looks like coordinates; g looks like a time; h looks like a "
        "time; i looks like what determines a length; j looks like an id"
    )
    assert looks(**dull) == ""
    # One number that might be a time, among others that are none, makes no column of times.
    incomes = np.array([1.5e9, *[25_000.0, 31_000.0] * 29, 4e4])
    assert looks(n=incomes) == "" and looks(n=incomes * 0 + 1.5e9) == "n looks like a time"


def call(tmp_path: Path, mechanism: pm.Mechanism, *given: str) -> Result:
    TRIPS.to_csv(tmp_path / "trips.csv", index=False)
    saved = mechanism.save(tmp_path / "table.pmdp")
    (tmp_path / "recipe.toml").write_text(RECIPE)
    files = ("perturb", str(saved), str(tmp_path / "trips.csv"), "-o", str(tmp_path / "out.csv"))
    return CliRunner().invoke(app, [*files, *given])


def test_nothing_is_written_before_each_column_is_spoken_of(mechanism, tmp_path) -> None:
    places = [part for pair in ENDS for part in ("--place", ",".join(pair))]
    result = call(tmp_path, mechanism, *places)
    assert result.exit_code == 2
    for said in ("medallion looks like an id", "fare_amount looks like what determines a length"):
        assert said in result.stderr
    assert not (tmp_path / "out.csv").exists()
    ways = ("medallion=drop", "pickup_datetime=keep", "fare_amount=keep")
    result = call(tmp_path, mechanism, *places, *(p for way in ways for p in ("--column", way)))
    assert result.exit_code == 0, result.output
    assert "8 of 8 places (2 in a row) reported" in result.output


def test_a_recipe_makes_file_and_statement(mechanism, tmp_path) -> None:
    page = tmp_path / "statement.md"
    result = call(
        tmp_path, mechanism, "--recipe", str(tmp_path / "recipe.toml"), "--statement", str(page)
    )
    assert result.exit_code == 0, result.output
    made = pd.read_csv(tmp_path / "out.csv")
    assert made["pickup_datetime"].tolist() == [
        *("2024-03-01T08:00", "2024-03-02T09:00", "2024-03-01T10:00", "2024-03-02T23:00"),
    ]
    assert made["fare_amount"].tolist() == [10.0, 10.0, 30.0, 10.0]
    assert "medallion" not in made and made["colour"].tolist() == TRIPS["colour"].tolist()
    text = page.read_text()
    assert f"at most epsilon {6 * mechanism.epsilon:g} per km over the whole file" in text
    assert "| fare_amount | rounded to 5 |" in text and "What is not covered" in text
    assert "guesses the right one" in text and "counts of the 8 reports" in text
    assert "HIDES NOTHING" not in text


def test_a_table_that_hides_nothing_is_said_loudly(domain, tmp_path) -> None:
    every = np.arange(domain.size)
    bare = pm.exponential(pm.Problem(domain, every, domain.distances(), epsilon=30.0))
    page, recipe = tmp_path / "page.md", str(tmp_path / "recipe.toml")
    result = call(tmp_path, bare, "--recipe", recipe, "--statement", str(page))
    assert result.exit_code == 0 and "HIDES NOTHING" in result.output
    assert "HIDES NOTHING" in page.read_text()
    for command in ("info", "explain"):
        shown = CliRunner().invoke(app, [command, str(tmp_path / "table.pmdp")])
        assert "HIDES NOTHING" in shown.output


@pytest.mark.parametrize(
    ("ways", "said"),
    [
        ({"colour": "hide"}, "'hide'; choose keep"),
        ({"colour": -1}, "-1; choose keep"),
        ({"color": "drop"}, "no column 'color'"),
        ({"colour": 5}, "one that is to be of numbers is not"),
        ({"colour": "day"}, "cannot be coarsened to 'day'"),
    ],
)
def test_ways_that_do_not_fit_are_refused(ways, said, mechanism, tmp_path) -> None:
    rest = dict.fromkeys(("medallion", "pickup_datetime", "fare_amount"), "drop")
    TRIPS.to_csv(tmp_path / "trips.csv", index=False)
    with pytest.raises((InvalidInputError, FileFormatError), match=said):
        treatment = Treatment({**rest, **ways})
        perturber = Perturber(mechanism, pm.Columns(places=ENDS), treatment=treatment)
        perturb_file(perturber, tmp_path / "trips.csv", tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


def test_text_files_come_back_as_they_came(mechanism, tmp_path) -> None:
    source, target = tmp_path / "in.csv", tmp_path / "out.csv"
    text = 'name;lat;lon;n\r\nMünchen;41,9;12,5;007\r\n"a;b";41,93;12,5;1,50\r\n'
    source.write_bytes(text.encode("cp1252"))
    perturb_file(Perturber(mechanism), source, target)
    lines = target.read_bytes().decode("cp1252").split("\r\n")
    assert lines[0] == "name;n;reported_lat;reported_lon"
    assert lines[1].startswith("München;007;41,9") and lines[2].startswith('"a;b";1,50;41,9')
    assert lines[3] == ""
    whole = '"lat","lon","n"\n"41.9","12.5","1"\n'
    source.write_text(whole)
    perturb_file(Perturber(mechanism), source, target)
    assert target.read_text().splitlines()[1].startswith('"1","41.9')


def test_not_one_covered_row_is_an_error_with_a_guess(mechanism, tmp_path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("lat,lon\n12.5,41.9\n12.5,41.93\n")
    with pytest.raises(SnapError, match="exchanged"):
        perturb_file(Perturber(mechanism, outside="drop"), source, tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()
    far = pd.DataFrame({"lat": [0.0], "lon": [0.0]})
    with pytest.raises(SnapError, match="of one area"):
        pm.perturb(far, mechanism, outside="null")
    assert np.isnan(
        pm.perturb(
            pd.DataFrame({"lat": [0.0, 41.9], "lon": [0.0, 12.5]}), mechanism, outside="null"
        )["reported_lat"][0]
    )


@pytest.mark.parametrize("outside", ["refuse", "drop", "null"])
def test_a_place_that_no_row_has_covered_is_an_error_with_a_guess(outside, mechanism) -> None:
    """A file without a row was written where one of two places was exchanged."""
    turned = TRIPS.rename(columns=dict(zip(ENDS[0], ENDS[0][::-1], strict=True)))
    with pytest.raises(SnapError, match=r"not one of 4 rows .+ exchanged"):
        pm.perturb(turned, mechanism, pm.Columns(places=ENDS), outside=outside)
