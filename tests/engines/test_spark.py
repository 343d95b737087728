"""Spark on a real local cluster of worker processes, with tasks killed on the way."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from outside import left_out

import panda_mdp as pm
from panda_mdp.errors import InvalidInputError

pytestmark = pytest.mark.filterwarnings("ignore")
KEY = pm.DrawKey(bytes(range(32)))
ROWS = 4000


@pytest.fixture(scope="module")
def mechanism() -> pm.Mechanism:
    domain = pm.Domain.from_points(41.9 + 0.01 * np.arange(10), [12.5] * 10)
    problem = pm.Problem(domain, [0, 3, 6, 9], pm.distance_loss(domain, [0, 3, 6, 9]), 2.0)
    return pm.exponential(problem)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "row": np.arange(ROWS),
            "user": [f"u{k}" for k in rng.integers(0, 40, ROWS)],
            "lat": 41.9 + 0.01 * rng.integers(0, 10, ROWS),
            "lon": 12.5,
            "at": rng.integers(0, 5 * 86400, ROWS),
        }
    )


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two executors in processes of their own; a task may fail four times."""
    if find_spec("pyspark") is None or shutil.which("java") is None:
        left_out("Java", "install Java 17 or newer, and pip install 'panda-mdp[engines]' for Spark")
    import pyspark.sql

    source = str(Path(pm.__file__).resolve().parents[1])
    path = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
    os.environ.update(
        SPARK_HOME=str(Path(pyspark.__file__).parent),
        PYSPARK_PYTHON=sys.executable,
        PYTHONPATH=path,
        SPARK_LOCAL_IP="127.0.0.1",
        SPARK_WORKER_DIR=str(tmp_path_factory.mktemp("spark")),
    )
    session = (
        pyspark.sql.SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.speculation", "true")
        .config("spark.executorEnv.PYTHONPATH", path)
        .config("spark.executor.memory", "512m")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "200")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def killing_once() -> Any:
    """A step that kills its worker process in the middle of every first attempt."""

    def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        for number, batch in enumerate(batches):
            if number == 2 and TaskContext.get().attemptNumber() == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    return pass_on


def rows_of(df: Any) -> dict[int, float | None]:
    return {row["row"]: row["reported_lat"] for row in df.collect()}


@pytest.mark.parametrize("partitions", [1, 4])
def test_the_same_rows_whatever_is_killed(spark, frame, mechanism, partitions):

    columns = pm.Columns(person="user", time="at", period="day")
    options: dict[str, Any] = {"columns": columns, "key": KEY}
    plain = pm.perturb(frame, mechanism, **options)
    expected = dict(zip(plain["row"], plain["reported_lat"], strict=True))
    df = spark.createDataFrame(frame).repartition(partitions)
    assert rows_of(pm.perturb(df, mechanism, **options)) == expected
    killed = df.mapInArrow(killing_once(), df.schema)
    result = pm.perturb(killed, mechanism, **options)
    assert result.columns == ["row", "user", "at", "reported_lat", "reported_lon"]
    assert rows_of(result) == expected


def test_budgets_hold_over_the_cluster(spark, frame, mechanism):

    options: dict[str, Any] = {"columns": pm.Columns(person="user"), "key": KEY}
    options |= {"budget": 6.0, "outside": "null"}
    df = spark.createDataFrame(frame).repartition(3)
    first = rows_of(pm.perturb(df, mechanism, **options))
    killed = df.repartition(5).mapInArrow(killing_once(), df.schema)
    assert rows_of(pm.perturb(killed, mechanism, **options)) == first
    reported = frame[[first[row] is not None for row in frame["row"]]]
    # Ten places each and a budget for three: every person keeps exactly three.
    assert (reported.groupby("user")["lat"].nunique() == 3).all()


def test_a_key_is_required(spark, frame, mechanism):

    with pytest.raises(InvalidInputError, match="may run a task twice"):
        pm.perturb(spark.createDataFrame(frame[:5]), mechanism, pm.Columns(person="user"), key=None)


def test_spark_counts_and_the_estimate_is_that_of_the_rows(spark, frame, mechanism):
    """Of places, by a column, and of two ends; from rows that Spark holds in parts."""
    columns = pm.Columns(person="user", time="at", period="day")
    reports = pm.perturb(frame, mechanism, columns, key=KEY)
    reports["day"] = reports["at"] // 86400
    df = spark.createDataFrame(reports).repartition(3)
    for by in (None, "day"):
        plain, found = (pm.estimate(part, mechanism, by=by) for part in (reports, df))
        assert plain.windows == found.windows and (plain.reports == found.reports).all()
        for name in ("raw", "share", "low", "high"):
            np.testing.assert_allclose(getattr(found, name), getattr(plain, name), rtol=1e-9)
    ends = dict.fromkeys(("columns", "end"), ("reported_lat", "reported_lon"))
    flows, plain = (pm.estimate(part, mechanism, **ends) for part in (df, reports))
    np.testing.assert_allclose(flows.share, plain.share, rtol=1e-9)
    with pytest.raises(InvalidInputError, match="no column 'where'"):
        pm.estimate(df, mechanism, columns="where")


def test_several_places_of_a_row_are_reported(spark, frame, mechanism):
    trips = frame.assign(to_lat=frame["lat"].iloc[::-1].to_numpy(), to_lon=12.5)
    columns = pm.Columns(person="user", places=(("lat", "lon"), ("to_lat", "to_lon")))
    plain = pm.perturb(trips, mechanism, columns, key=KEY)
    made = pm.perturb(spark.createDataFrame(trips).repartition(2), mechanism, columns, key=KEY)
    assert made.columns == list(plain.columns)
    found = {row["row"]: row["reported_to_lat"] for row in made.collect()}
    assert found == dict(zip(plain["row"], plain["reported_to_lat"], strict=True))


def test_texts_of_rows_are_replaced_once(spark):
    words = ["cat", "dog", "paris", "rome", "runs"]
    domain = pm.Domain.from_vectors(np.arange(5.0)[:, None]).with_labels(words)
    table = pm.exponential(pm.Problem(domain, range(5), domain.distances(), 0.5))
    texts = pd.DataFrame({"row": np.arange(900), "text": ["dog, cat runs Zebra."] * 900})
    options: dict[str, Any] = {"columns": ["text"], "key": KEY, "row": "row"}
    plain = pm.sanitise(texts, table, **options)
    df = spark.createDataFrame(texts).repartition(3)
    made = pm.sanitise(df.mapInArrow(killing_once(), df.schema), table, **options)
    assert made.schema == df.schema
    found = {row["row"]: row["text"] for row in made.collect()}
    assert found == dict(zip(plain["row"], plain["text"], strict=True))
    assert len(set(found.values())) > 100
    with pytest.raises(InvalidInputError, match="may run a task twice"):
        pm.sanitise(df, table, columns=["text"])
