"""Traces into visits: rows per second and memory, on a generated CSV file.

    python benchmarks/traces.py                  # 2 million rows
    python benchmarks/traces.py --rows 21800000  # as many as the taxis of Rome left

Memory is the process's peak over that before the pass: it does not grow with the file.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from panda_mdp import City, load_traces, synthetic_city

TAXIS = 316


def write_csv(city: City, path: Path, rows: int) -> None:
    """`user,time,lat,lon` for taxis that jump between the city's junctions."""
    rng = np.random.default_rng(0)
    with path.open("w") as stream:
        stream.write("user,time,lat,lon\n")
        for start in range(0, rows, 100_000):
            count = min(100_000, rows - start)
            at = rng.integers(0, city.nodes, count)
            places = zip(city.lat[at].tolist(), city.lon[at].tolist(), strict=True)
            for k, (lat, lon) in enumerate(places, start=start):
                moment = (
                    f"2014-02-{1 + k // 86400 % 28:02d} {k // 3600 % 24:02d}:{k // 60 % 60:02d}"
                )
                stream.write(f"{k % TAXIS},{moment}:{k % 60:02d}.739166+01,{lat},{lon}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Traces into visits.")
    parser.add_argument("--rows", type=int, default=2_000_000)
    arguments = parser.parse_args()
    city = synthetic_city(43_160)
    domain = city.domain(5000)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "taxi.csv"
        write_csv(city, path, arguments.rows)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        start = time.perf_counter()
        visits = load_traces(path).visits(domain, limit_km=1.0)
        spent = time.perf_counter() - start
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    print(visits)
    print(f"{spent:.1f} s, {arguments.rows / spent:,.0f} rows/s, {more:.0f} MB more memory")
    start = time.perf_counter()
    print(visits.private_prior(1.0))
    print(f"private prior in {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
