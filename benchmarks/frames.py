"""Fixes per second: from coordinates to drawn places, beside a NumPy planar Laplace.

    python benchmarks/frames.py --city rome.npz [--rows 1000000] [--parquet 10000000] [--spark 1,2]

Seconds are the processor's of one thread where they say `cpu`, so that a busy machine counts less.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

import panda_mdp as pm
from panda_mdp.frames.drawing import Sampler
from panda_mdp.frames.files import perturb_file
from panda_mdp.frames.perturb import Columns, Perturber
from panda_mdp.space.metrics import EARTH_RADIUS_KM

EPSILON = 5.0


def planar_laplace(lat: np.ndarray, lon: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The usual baseline: a Gamma(2) radius in a uniform direction, seeded, to any place."""
    radius = rng.gamma(2.0, 1 / EPSILON, len(lat))
    angle = rng.uniform(0, 2 * np.pi, len(lat))
    north = lat + np.rad2deg(radius * np.cos(angle) / EARTH_RADIUS_KM)
    east = lon + np.rad2deg(radius * np.sin(angle) / EARTH_RADIUS_KM / np.cos(np.deg2rad(lat)))
    return np.stack([north, east])


def timed(label: str, rows: int, run: Callable[[], object], repeats: int = 3) -> float:
    """The best of a few, in processor seconds of this thread."""
    best = np.inf
    for _ in range(repeats):
        start = time.thread_time()
        run()
        best = min(best, time.thread_time() - start)
    print(f"{label:45s} {best:8.3f} s cpu  {rows / best / 1e6:7.2f} million/s")
    return best


def table_of(city: pm.City) -> pm.Mechanism:
    """A closed form with 100 outputs over all places: drawing costs the same for every table."""
    domain = city.domain(None)
    outputs = np.random.default_rng(0).choice(domain.size, 100, replace=False)
    problem = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), EPSILON)
    return pm.exponential(problem)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--city", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--parquet", type=int, default=0, help="rows of a Parquet file, 0 for none")
    parser.add_argument("--spark", default="", help="numbers of worker processes, e.g. 1,2,4")
    options = parser.parse_args()
    city = pm.load_city(options.city) if options.city else pm.synthetic_city(43_160, 0)
    mechanism = table_of(city)
    domain = mechanism.problem.domain
    print(f"{domain.size:,} places, 100 outputs, {options.rows:,} fixes")
    rng = np.random.default_rng(1)
    at = rng.integers(0, domain.size, options.rows)
    lat = domain.lat[at] + rng.normal(0, 0.001, options.rows)
    lon = domain.lon[at] + rng.normal(0, 0.001, options.rows)
    sampler = Sampler.of(mechanism)
    sampler.records(sampler.snapped(lat[:10], lon[:10], 0.5))
    domain.snap(lat[:10], lon[:10], 0.5)

    base = timed(
        "planar Laplace, NumPy, seeded", options.rows, lambda: planar_laplace(lat, lon, rng)
    )
    kernel = timed("coordinates to draws", options.rows,
                   lambda: sampler.records(sampler.snapped(lat, lon, 0.5)))  # fmt: skip
    timed("snapping alone", options.rows, lambda: domain.snap(lat, lon, 0.5))
    frame = pd.DataFrame({"user": at % 1000, "lat": lat, "lon": lon})
    timed("pm.perturb(pandas)", options.rows, lambda: pm.perturb(frame, mechanism, outside="null"))
    key = pm.DrawKey.fresh()
    personal = {"outside": "null", "columns": pm.Columns(person="user"), "key": key}
    # Its loops are compiled, or loaded, first: they are no part of a million rows.
    pm.perturb(frame[:10], mechanism, **personal)
    keyed = timed("pm.perturb(pandas, person, key)", options.rows,
                  lambda: pm.perturb(frame, mechanism, **personal))  # fmt: skip
    print(f"one loop / planar Laplace: {kernel / base:.1f}")
    if options.spark:
        on_spark(frame, mechanism, key, [int(n) for n in options.spark.split(",")], keyed)
    if options.parquet:
        with tempfile.TemporaryDirectory() as folder:
            source, table = Path(folder) / "in.parquet", Path(folder) / "table.pmdp"
            mechanism.save(table)
            part = pa.Table.from_pandas(frame, preserve_index=False)
            with parquet.ParquetWriter(source, part.schema) as writer:
                for _ in range(max(1, options.parquet // len(frame))):
                    writer.write_table(part)
            # The peak is that of a process, so it has one of its own.
            spawn = multiprocessing.get_context("spawn")
            process = spawn.Process(target=parquet_to_parquet, args=(source, table))
            process.start()
            process.join()


def on_spark(
    frame: pd.DataFrame, mechanism: pm.Mechanism, key: pm.DrawKey, workers: list[int], plain: float
) -> None:
    """The same rows by Spark's worker processes, some of whose tasks are killed.

    Processor seconds are of all processes that this one starts, so they hold what Spark itself
    spends, and leave out killed ones; a run that draws nothing shows what moving the rows costs.
    """
    from pyspark.sql import SparkSession

    rows = frame.assign(row=np.arange(len(frame)))
    drawn = pm.perturb(rows, mechanism, pm.Columns(person="user"), outside="null", key=key)
    expected = drawn[["row", "reported_lat"]].set_index("row")["reported_lat"]
    source = str(Path(pm.__file__).resolve().parents[1])
    os.environ.update(PYSPARK_PYTHON=sys.executable, PYTHONPATH=source, SPARK_LOCAL_IP="127.0.0.1")
    with tempfile.TemporaryDirectory() as folder:
        given = f"{folder}/in.parquet"
        parquet.write_table(pa.Table.from_pandas(rows, preserve_index=False), given,
                            row_group_size=len(rows) // 8)  # fmt: skip
        for count in workers:
            # Each task is tried up to four times; a worker is a process that is forked for it.
            session = (
                SparkSession.builder.master(f"local[{count},4]")
                .config("spark.ui.enabled", "false")
                .config("spark.driver.memory", "2g")
                .config("spark.sql.files.maxPartitionBytes", str(2**21))
                .getOrCreate()
            )
            session.sparkContext.setLogLevel("OFF")
            df = session.read.parquet(given)
            options = {"outside": "null", "columns": pm.Columns(person="user"), "key": key}
            copied = df.mapInArrow(lambda batches: batches, df.schema)
            steps = {
                "reading and writing": copied,
                "perturb": pm.perturb(df, mechanism, **options),
                "perturb, tasks killed": pm.perturb(
                    df.mapInArrow(killing_once, df.schema), mechanism, **options
                ),
            }
            spent = {}
            for name, step in steps.items():
                # A first run loads the table and the compiled loops.
                for _ in range(1 if "killed" in name else 2):
                    start, before = time.perf_counter(), processor_seconds()
                    step.write.mode("overwrite").parquet(f"{folder}/out")
                    clock = time.perf_counter() - start
                    spent[name] = processor_seconds() - before
                same = ""
                if name != "reading and writing":
                    out = pd.read_parquet(f"{folder}/out").set_index("row")["reported_lat"]
                    equal = out.sort_index().equals(expected)
                    same = ", the same rows" if equal else ", OTHER ROWS"
                cpu = "" if "killed" in name else f"{spent[name]:6.1f} s cpu, "
                print(f"Spark, {count} workers: {name:22s} {cpu}{clock:5.1f} s by the clock{same}",
                      flush=True)  # fmt: skip
            over = spent["perturb"] - spent["reading and writing"]
            print(f"Spark, {count} workers: draws {over:.1f} s cpu, plain {plain:.1f}; in all "
                  f"{spent['perturb'] / plain:.1f} times the plain call", flush=True)  # fmt: skip
            session.stop()


def killing_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Every fourth task's first attempt is killed after its first batch."""
    from pyspark import TaskContext

    task = TaskContext.get()
    for number, batch in enumerate(batches):
        if number == 1 and task.attemptNumber() == 0 and task.partitionId() % 4 == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch


def processor_seconds() -> float:
    """Processor seconds of this process's descendants, ended or not, as the system counts them."""
    tick, total = os.sysconf("SC_CLK_TCK"), 0
    parents, spent = {}, {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = entry.read_text().rpartition(")")[2].split()
            number = int(entry.parent.name)
            parents[number], spent[number] = int(fields[1]), sum(map(int, fields[11:15]))
    for number in parents:
        above = number
        while above in parents and above != os.getpid():
            above = parents[above]
        total += spent[number] if above == os.getpid() and number != os.getpid() else 0
    return total / tick


def parquet_to_parquet(source: Path, table: Path) -> None:
    """A file to a file, by the clock, with the peak memory of the process: reading and auditing the
    table comes first and is told apart."""
    start = time.perf_counter()
    perturber = Perturber(pm.load(table), Columns(), outside="null")
    loaded = time.perf_counter() - start
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    total = parquet.read_metadata(source).num_rows
    start, cpu = time.perf_counter(), time.process_time()
    perturb_file(perturber, source, source.with_name("out.parquet"))
    seconds, spent = time.perf_counter() - start, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"Parquet to Parquet, {total:,} rows: {seconds:.1f} s by the clock, {spent:.1f} s cpu, "
          f"peak {peak:,.0f} MB (reading the table {loaded:.1f} s, {before:,.0f} MB)")  # fmt: skip


if __name__ == "__main__":
    main()
