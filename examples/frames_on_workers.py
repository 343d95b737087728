"""Frames on several workers: a picklable function is all that a pool, Dask or Ray needs.

    python examples/frames_on_workers.py

With a key the draws are the same whoever computes them, so a task may be retried.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl

import panda_mdp as pm
from panda_mdp import plot
from panda_mdp.frames.perturb import Columns, Perturber


def main(out: Path, *, rows: int = 10_000) -> Path:
    """Perturb made-up fixes in a pool, in Polars and in DuckDB; draw what the table costs."""
    city = pm.synthetic_city(400, seed=0)
    domain = city.domain(None)
    outputs = np.arange(0, domain.size, 10)
    problem = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), epsilon=5.0)
    mechanism = pm.exponential(problem)

    at = np.random.default_rng(0).integers(0, domain.size, rows)
    fixes = pd.DataFrame({"user": at % 20, "lat": domain.lat[at], "lon": domain.lon[at]})
    perturber = Perturber(mechanism, Columns(person="user"), key=pm.DrawKey.fresh())

    # Dask: client.map(perturber.frame, parts). Ray: ray.remote(perturber.frame), task by task.
    parts = [fixes[k : k + rows // 4] for k in range(0, rows, rows // 4)]
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        pooled = pd.concat(pool.map(perturber.frame, parts))
    alone = perturber.frame(fixes)
    print("a pool draws as one process does:", pooled.equals(alone))

    lazy = perturber.frame(pl.from_pandas(fixes).lazy())
    print("so does Polars, when it is collected:", lazy.collect().to_pandas().equals(alone))

    relation = perturber.frame(duckdb.from_df(fixes))
    counted = relation.aggregate("reported_lat, reported_lon, count(*) AS n").order("n DESC")
    print("DuckDB, the place that is reported most:", counted.limit(1).fetchall()[0])

    summary = pm.FrameSummary()
    perturber.frame(fixes, summary)
    print(summary)
    picture = plot.draw_expected_loss(mechanism, city=city)
    return plot.save_figure(picture, out / "frames_on_workers.png")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out"))
