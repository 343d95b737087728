"""Frames of every kind: the same kind comes back, people are counted, budgets hold."""

from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

import duckdb
import forging
import geopandas as gpd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from worker_jobs import reported

import panda_mdp as pm
from panda_mdp.errors import (
    BudgetError,
    FileFormatError,
    InvalidInputError,
    NotForReleaseError,
    SnapError,
)
from panda_mdp.frames.drawing import OUTSIDE, Sampler
from panda_mdp.frames.perturb import Columns, Perturber

KEY = pm.DrawKey(bytes(range(32)))
LATS, OUTPUTS = [41.9, 41.9, 41.95, 41.93, 41.9], {41.9, 41.93, 41.96, 41.99}
ROWS = {"user": ["a", "a", "b", "a", "b"], "lat": LATS, "lon": [12.5] * 5, "x": [1, 2, 3, 4, 5]}
KINDS = {
    "pandas": lambda rows: pd.DataFrame(rows, index=range(10, 10 + len(rows["x"]))),
    "polars": pl.DataFrame,
    "lazy": pl.LazyFrame,
    "pyarrow": pa.table,
    "duckdb": lambda rows: duckdb.from_arrow(pa.table(rows)),
}


def plain(frame: Any) -> dict[str, list[Any]]:
    """Columns as lists, None for what is missing."""
    if isinstance(frame, pl.LazyFrame):
        frame = frame.collect()
    if isinstance(frame, duckdb.DuckDBPyRelation):
        frame = frame.to_arrow_table()
    if isinstance(frame, pa.Table):
        return frame.to_pydict()
    if isinstance(frame, pl.DataFrame):
        return frame.to_dict(as_series=False)
    return {c: [None if v != v else v for v in frame[c]] for c in frame.columns}


def test_places_over_a_mesh_draw_at_a_random_corner_of_their_triangle():
    table = forging.everywhere()
    domain, inside = table.problem.domain, table.mesh.inside[table.mesh.triangles].all(axis=1)
    corners = table.mesh.triangles[np.flatnonzero(inside)[0]]
    lat, lon = domain.lat[corners].mean(), domain.lon[corners].mean()
    drawn = Sampler.of(table).snapped(np.full(600, lat), np.full(600, lon), np.inf)
    # Each corner comes up with a chance of a third: none is missed but once in 10^105.
    assert set(drawn.tolist()) == set(corners.tolist())
    assert Sampler.of(table).snapped(np.array([80.0]), np.array([lon]), np.inf) == OUTSIDE


def test_a_key_repeats_draws_of_records_and_not_at_points():
    table = forging.everywhere()
    inside = np.flatnonzero(table.mesh.inside)[:3]
    places = pd.DataFrame({"lat": table.problem.domain.lat[inside]})
    places["lon"] = table.problem.domain.lon[inside]
    places["who"] = ["a", "b", "c"]
    with pytest.raises(InvalidInputError, match="at another vertex each time"):
        pm.perturb(places, table, Columns(person="who"), key=KEY)
    records, named = places[["who"]].assign(place=inside), Columns(record="place", person="who")
    first, again = (pm.perturb(records, table, named, key=KEY) for _ in range(2))
    assert first.equals(again)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_kind_comes_back_and_nothing_else_changes(kind, mechanism):
    frame = KINDS[kind](ROWS)
    result = pm.perturb(frame, mechanism)
    assert type(result) is type(frame)
    columns = plain(result)
    assert list(columns) == ["user", "x", "reported_lat", "reported_lon"]
    assert columns["user"] == ROWS["user"] and columns["x"] == ROWS["x"]
    assert set(np.round(columns["reported_lat"], 9)) <= OUTPUTS
    kept = plain(pm.perturb(frame, mechanism, pm.Columns(keep=True)))
    assert kept["lat"] == LATS
    if kind == "pandas":
        assert result.index.tolist() == [10, 11, 12, 13, 14]


def test_other_types_of_columns_survive_in_pandas(mechanism):
    frame = pd.DataFrame(ROWS)
    frame["kind"] = pd.Categorical(["p", "q", "p", "q", "p"])
    frame["when"] = pd.date_range("2024-01-01", periods=5, tz="Europe/Rome")
    frame["thing"] = [{"k": 1}, None, [2], "s", 5]
    result = pm.perturb(frame, mechanism)
    for name in ("kind", "when", "thing", "x", "user"):
        pd.testing.assert_series_equal(result[name], frame[name])


@pytest.mark.parametrize("kind", KINDS)
def test_with_a_key_every_kind_of_frame_draws_alike(kind, mechanism):
    expected = plain(pm.perturb(pd.DataFrame(ROWS), mechanism, pm.Columns(person="user"), key=KEY))
    result = plain(pm.perturb(KINDS[kind](ROWS), mechanism, pm.Columns(person="user"), key=KEY))
    assert result["reported_lat"] == expected["reported_lat"]
    assert result["reported_lat"][0] == result["reported_lat"][1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [None, float("nan"), 50.0, 91.0])
def test_rows_that_are_not_covered(kind, bad, mechanism):
    frame = KINDS[kind]({**ROWS, "lat": [41.9, bad, 41.95, 41.93, 41.9]})
    with pytest.raises(Exception, match="outside='drop' or 'null'") as caught:
        plain(pm.perturb(frame, mechanism))
    assert "50" not in str(caught.value) and "91" not in str(caught.value)
    summary = pm.FrameSummary()
    columns = plain(pm.perturb(frame, mechanism, outside="drop", summary=summary))
    assert columns["x"] == [1, 3, 4, 5] and None not in columns["reported_lat"]
    columns = plain(pm.perturb(frame, mechanism, outside="null"))
    assert columns["x"] == [1, 2, 3, 4, 5]
    assert [v is None for v in columns["reported_lat"]] == [False, True, False, False, False]
    assert (summary.rows, summary.reported, summary.outside) == (5, 4, 1)


def test_points_of_geopandas_in_their_own_reference_system(mechanism):
    points = gpd.points_from_xy(ROWS["lon"], ROWS["lat"], crs=4326)
    frame = gpd.GeoDataFrame({"x": ROWS["x"]}, geometry=points).to_crs(32633)
    frame["user"] = ROWS["user"]
    result = pm.perturb(frame, mechanism, pm.Columns(person="user"), key=KEY)
    assert isinstance(result, gpd.GeoDataFrame) and result.crs == frame.crs
    assert list(result.columns) == ["x", "user", "geometry"]
    expected = plain(pm.perturb(pd.DataFrame(ROWS), mechanism, pm.Columns(person="user"), key=KEY))
    assert np.allclose(result.to_crs(4326).geometry.y, expected["reported_lat"])
    kept = pm.perturb(frame, mechanism, pm.Columns(keep=True))
    assert kept["true_geometry"].geom_equals(frame.geometry).all()
    nameless = frame.set_crs(None, allow_override=True)
    with pytest.raises(FileFormatError, match="names no reference system"):
        pm.perturb(nameless, mechanism)
    said = pm.perturb(nameless, mechanism, pm.Columns(person="user", crs="EPSG:32633"), key=KEY)
    assert said.geometry.geom_equals(result.geometry).all() and said.crs == frame.crs
    with pytest.raises(InvalidInputError, match="representative_point"):
        pm.perturb(frame.set_geometry(frame.buffer(10)), mechanism)


def test_records_instead_of_places(ages):
    frame = pd.DataFrame({"age": [0, 4, 2], "x": ["p", "q", "r"]})
    result = pm.perturb(frame, ages, pm.Columns(record="age"))
    assert list(result.columns) == ["x", "reported"] and set(result["reported"]) <= {1, 3}
    wrong = pd.DataFrame({"age": [0, 5, None, 1.5, -1]})
    with pytest.raises(SnapError):
        pm.perturb(wrong, ages, pm.Columns(record="age"))
    result = pm.perturb(wrong, ages, pm.Columns(record="age"), outside="null")
    assert result["reported"].isna().tolist() == [False, True, True, True, True]
    with pytest.raises(SnapError, match="name the column of records"):
        pm.perturb(pd.DataFrame(ROWS), ages)


def labelled() -> pm.Mechanism:
    domain = pm.Domain.from_vectors([[30.0], [38.0], [50.0]], unit="years")
    problem = pm.Problem(domain.with_labels([30, 38, 50]), [0, 1], np.ones((3, 2)), 0.1)
    return pm.exponential(problem)


def test_labels_come_in_and_go_out():
    """30 and 38 are ages, not records 30 and 38."""
    frame = pd.DataFrame({"age": [30, 50, 38, 31]})
    result = pm.perturb(frame, labelled(), pm.Columns(record="age"), outside="drop")
    assert len(result) == 3 and set(result["reported"]) <= {30, 38}


def test_a_label_that_the_table_lacks_is_reported_by_nothing():
    """Labels that are no numbers have no nearest one."""
    domain = pm.Domain.from_vectors([[30.0], [38.0]]).with_labels(["thirty", "thirty-eight"])
    table = pm.exponential(pm.Problem(domain, [0, 1], np.ones((2, 2)), 0.1))
    frame = pd.DataFrame({"age": ["thirty", "forty", "thirty-eight", None]})
    asked = pm.Columns(record="age")
    with pytest.raises(SnapError):
        pm.perturb(frame, table, asked)
    result = pm.perturb(frame, table, asked, outside="null")
    assert result["reported"].isna().tolist() == [False, True, False, True]


def test_numbers_are_snapped_to_the_nearest_value():
    domain = pm.Domain.from_values(range(20, 60, 2), unit="years")
    every = list(range(domain.size))
    table = pm.exponential(pm.Problem(domain, every, domain.distances(), epsilon=40.0))
    summary = pm.FrameSummary()
    frame = pd.DataFrame({"age": [30.4, 57.6, 90.0, None]})
    out = pm.perturb(
        frame, table, pm.Columns(record="age"), limit=1.0, outside="null", summary=summary
    )
    assert out["reported"].tolist()[:2] == [30, 58]
    assert out["reported"].isna().tolist() == [False, False, True, True]
    assert "2 rows not covered beyond 1 years" in str(summary)
    assert "(d + 2 years)" in str(summary)


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_that_are_no_records_are_reported_where_they_are(kind, domain):
    """Zones beside the road: neither their index nor a record's place may be reported instead."""
    outputs = pm.Outputs.at([41.95, 41.85], [12.6, 12.6], labels=["north", "south"])
    problem = pm.Problem(domain, outputs, outputs.distances(domain), 2.0)
    mechanism = pm.loss_exponential(problem)
    columns = plain(pm.perturb(KINDS[kind](ROWS), mechanism))
    assert set(columns["reported_lon"]) == {12.6}
    places = {"north": 41.95, "south": 41.85}
    assert columns["reported_lat"] == [places[name] for name in columns["reported"]]


def test_outputs_that_are_labels_only(domain):
    problem = pm.Problem(domain, pm.Outputs.labels(["in", "out"]), np.ones((10, 2)), 2.0)
    result = pm.perturb(pd.DataFrame(ROWS), pm.loss_exponential(problem))
    assert list(result.columns) == ["user", "x", "reported"]
    assert set(result["reported"]) <= {"in", "out"}


def test_repeats_are_the_same_draw_within_a_period_only(mechanism):
    """The same person, place and period; 400 days give both answers somewhere."""
    day = 86400
    count = 400
    frame = pd.DataFrame(
        {
            "user": ["a"] * (2 * count),
            "lat": [41.915] * (2 * count),
            "lon": [12.5] * (2 * count),
            "t": [day * k + s for k in range(count) for s in (5, 80000)],
        }
    )
    options: dict[str, Any] = {"key": KEY, "limit": 1.0}
    daily = pm.perturb(
        frame, mechanism, pm.Columns(person="user", time="t", period="day"), **options
    )["reported_lat"]
    pairs = daily.to_numpy().reshape(count, 2)
    assert (pairs[:, 0] == pairs[:, 1]).all() and len(set(pairs[:, 0])) > 1
    assert (
        len(set(pm.perturb(frame, mechanism, pm.Columns(person="user"), **options)["reported_lat"]))
        == 1
    )
    labelled = frame.assign(p=[f"p{t // day}" for t in frame["t"]])
    by_label = pm.perturb(labelled, mechanism, pm.Columns(person="user", period="p"), **options)[
        "reported_lat"
    ].to_numpy()
    assert (by_label.reshape(count, 2)[:, 0] == by_label.reshape(count, 2)[:, 1]).all()
    # Texts and timestamps are read as the seconds are.
    texts = frame.assign(t=pd.to_datetime(frame["t"], unit="s").astype(str))
    stamps = frame.assign(t=pd.to_datetime(frame["t"], unit="s", utc=True))
    for other in (texts, stamps):
        again = pm.perturb(
            other, mechanism, pm.Columns(person="user", time="t", period="day"), **options
        )
        assert (again["reported_lat"] == daily).all()


def test_keyed_draws_have_the_table_s_distribution(mechanism):
    """Over people the pseudo-random draws follow the row; 5 sigma of 20,000."""
    people = 20_000
    frame = pd.DataFrame({"user": range(people), "lat": 41.93, "lon": 12.5})
    reported = pm.perturb(frame, mechanism, pm.Columns(person="user"), key=pm.DrawKey.fresh())[
        "reported_lat"
    ]
    row = mechanism.matrix[3]
    for output, share in zip((41.9, 41.93, 41.96, 41.99), row, strict=True):
        seen = np.isclose(reported, output).sum()
        assert abs(seen - people * share) <= 5 * np.sqrt(people * share * (1 - share)) + 1


@pytest.mark.parametrize("budget", [4.0, 5.9])
def test_half_a_report_is_none(mechanism, budget):
    """Each costs 2: what is left of a budget pays for no further one."""
    frame, summary = KINDS["pandas"](ROWS), pm.FrameSummary()
    named = pm.Columns(person="user")
    pm.perturb(frame, mechanism, named, budget=budget, outside="null", summary=summary)
    assert (summary.most, summary.over_budget, summary.spent) == (2, 1, 4.0)


def test_budgets_are_added_up_and_capped(mechanism):
    rows = {"user": ["a", "a", "a", "b", "a", "a"], "lat": [41.9, 41.9, 41.91, 41.9, 41.92, 41.9]}
    frame = pd.DataFrame({**rows, "lon": 12.5})
    summary = pm.FrameSummary()
    options: dict[str, Any] = {"columns": pm.Columns(person="user"), "budget": 4.0}
    options["summary"] = summary
    result = pm.perturb(frame, mechanism, key=KEY, outside="null", **options)
    # Two different places fit; the third is held back, repeats of the first are free.
    assert result["reported_lat"].isna().tolist() == [False, False, False, False, True, False]
    assert (summary.over_budget, summary.people, summary.most, summary.spent) == (1, 2, 2, 4.0)
    with pytest.raises(BudgetError, match="beyond their person's budget"):
        pm.perturb(frame, mechanism, key=KEY, **options)
    # Without a key each row costs: two of a person's rows fit.
    summary = pm.FrameSummary()
    options["summary"] = summary
    result = pm.perturb(frame, mechanism, outside="null", **options)
    assert result["reported_lat"].isna().tolist() == [False, False, True, False, True, True]
    assert (summary.over_budget, summary.most, summary.spent) == (3, 2, 4.0)
    with pytest.raises(BudgetError, match="less than one report costs"):
        pm.perturb(frame, mechanism, pm.Columns(person="user"), budget=1.9)


@pytest.mark.parametrize(
    ("period", "last", "first", "end"),
    [
        ("hour", "2026-11-16 09:59:59", "2026-11-16 10:00:00", "2026-11-16 10:59:59"),
        ("day", "2026-11-15 23:59:59", "2026-11-16 00:00:00", "2026-11-16 23:59:59"),
        # A Sunday, the Monday after it, and the Sunday of that week.
        ("week", "2026-11-15 23:59:59", "2026-11-16 00:00:00", "2026-11-22 23:59:59"),
        ("month", "2026-10-31 23:59:59", "2026-11-01 00:00:00", "2026-11-30 23:59:59"),
    ],
)
def test_periods_end_where_the_calendar_says(period, last, first, end, mechanism):
    """A budget of one report: the first row of a period has it, the last one does not."""
    frame = pd.DataFrame({"user": "a", "t": [last, first, end], "lat": 41.9, "lon": 12.5})
    columns = pm.Columns(person="user", time="t", period=period)
    result = pm.perturb(frame, mechanism, columns, outside="null", budget=2.0)
    assert result["reported_lat"].isna().tolist() == [False, False, True]


def test_summaries_of_parts_add_up():
    whole, each = pm.FrameSummary(), partial(pm.FrameSummary, pm.Guarantee(2.0, 0.0, "km"))
    whole.add(each(rows=9, reported=4, outside=3, over_budget=2, draws={b"a": 3, b"b": 1}))
    whole.add(each(rows=5, reported=5, draws={b"c": 5}))
    whole.add(each(rows=1, outside=1))
    assert (whole.rows, whole.reported, whole.outside, whole.over_budget) == (15, 9, 4, 2)
    assert (whole.people, whole.most, whole.spent) == (3, 5, 10.0)


def test_budgets_hold_across_batches(mechanism):
    frame = pa.table(
        {"user": ["a"] * 6, "lat": [41.9 + 0.01 * k for k in range(6)], "lon": [12.5] * 6}
    )
    perturber = Perturber(mechanism, Columns(person="user"), outside="drop", key=KEY, budget=6.0)
    summary = pm.FrameSummary()
    batches = list(perturber.batches(frame.to_batches(max_chunksize=2), summary))
    assert sum(len(batch) for batch in batches) == 3
    assert (summary.most, summary.over_budget) == (3, 3)
    unkeyed = Perturber(mechanism, Columns(person="user"), outside="drop", budget=6.0)
    assert sum(map(len, unkeyed.batches(frame.to_batches(max_chunksize=2)))) == 3


def test_the_summary_says_what_was_spent_and_its_repr_nothing(mechanism):
    summary = pm.FrameSummary()
    pm.perturb(pd.DataFrame(ROWS), mechanism, pm.Columns(person="user"), summary=summary)
    assert "at most 3 rows, each an independent draw in a period: up to 6 per km" in str(summary)
    assert "epsilon (d + 1 km)" in str(summary)
    assert repr(summary) == "FrameSummary(<hidden>; print it)"
    summary = pm.FrameSummary()
    pm.perturb(pd.DataFrame(ROWS), mechanism, summary=summary)
    assert "a person in n rows spends n times that" in str(summary)
    summary = pm.FrameSummary()
    pm.perturb(pd.DataFrame(ROWS), mechanism, pm.Columns(person="user"), key=KEY, summary=summary)
    assert "2 persons and periods; at most 2 different places in a period: up to 4 per km" in str(
        summary
    )
    assert "whoever lacks the key" in str(summary)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"columns": pm.Columns(lat="latitude")}, "no column 'latitude'"),
        ({"columns": pm.Columns(lat="lat", lon="lat")}, "lat, lat; each has two columns"),
        (
            {"columns": pm.Columns(places=(("lat", "lon"), ("lat", "lon")))},
            "each has two columns of its own",
        ),
        ({"outside": "ignore"}, "outside is 'ignore'"),
        ({"key": KEY}, "name the person's column"),
        ({"budget": 5.0}, "name the person's column"),
        ({"columns": pm.Columns(person="user", time="x", period="year")}, "period is 'year'"),
        ({"columns": pm.Columns(person="user", time="user", period="day")}, "rows without a time"),
        ({"columns": pm.Columns(lat="user")}, "'user' is not of numbers"),
        ({"limit": 0.0}, "limit is 0.0"),
    ],
)
def test_what_cannot_be_is_refused(options, words, mechanism):
    with pytest.raises(ValueError, match=words) as caught:
        pm.perturb(pd.DataFrame(ROWS), mechanism, **options)
    assert "41.9" not in str(caught.value)


def test_other_refusals(mechanism):
    with pytest.raises(InvalidInputError, match="no frame that is known"):
        pm.perturb([1, 2, 3], mechanism)
    with pytest.raises(InvalidInputError, match="'reported_lat' already"):
        pm.perturb(pd.DataFrame({**ROWS, "reported_lat": 0.0}), mechanism)
    for nobody in (None, float("nan")):
        frame = pl.DataFrame({**ROWS, "user": [1.0, 1.0, nobody, 2.0, 2.0]})
        with pytest.raises(InvalidInputError, match="name no person"):
            pm.perturb(frame, mechanism, pm.Columns(person="user"))
    study = pm.NoGuarantee.from_matrix(mechanism.problem, np.full((10, 4), 0.25))
    with pytest.raises(NotForReleaseError):
        pm.perturb(pd.DataFrame(ROWS), study)  # type: ignore[arg-type]


def test_workers_draw_as_one_process_does(mechanism):
    """A picklable function is all that a pool, Dask or Ray needs."""
    perturber = Perturber(mechanism, Columns(person="user"), key=KEY)
    frame = pd.DataFrame(ROWS)
    packed = pickle.dumps(perturber)
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        parts = list(pool.map(reported, [(packed, frame[:2]), (packed, frame[2:])] * 2))
    assert (
        parts[0] + parts[1] == parts[2] + parts[3] == list(perturber.frame(frame)["reported_lat"])
    )
