"""Seconds of one core that checkers of files take.

python benchmarks/second_checker.py [--records 1000] [--outputs 100]
python benchmarks/second_checker.py --city rome.npz --records 500 1000 2000 4000

The second checker by kind of metric; or of tables over a city of which every record may be
reported, at epsilon 5 and a gap of 2 %, how long deriving the bound takes, and the third checker
(`make proofs` builds it) with the bound and without.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import panda_mdp as pm
from panda_mdp.loss import DistanceLoss
from panda_mdp.methods.optimal.optimal import CpuEngine
from panda_mdp.methods.optimal.program import TilingTuning

ROOT = Path(__file__).resolve().parents[1]
SECOND = [sys.executable, "-I", ROOT / "verify" / "panda_verify.py"]
THIRD = [ROOT / "out" / "proofs" / "checker"]
MOST_BOUND = 1000
"""Records up to which the third checker computes the bound here."""


def domains(size: int) -> dict[str, pm.Domain]:
    """Random records of every kind of metric."""
    rng = np.random.default_rng(0)
    places = 41.8 + 0.2 * rng.random(size), 12.4 + 0.2 * rng.random(size)
    plane = rng.random((size, 2))
    matrix = np.sqrt(((plane[:, None] - plane[None]) ** 2).sum(axis=2))
    return {
        "haversine": pm.Domain.from_points(*places),
        "euclidean, 2 dimensions": pm.Domain.from_vectors(plane),
        "angular, 20 dimensions": pm.Domain.from_vectors(
            rng.normal(size=(size, 20)), metric="angular"
        ),
        "matrix": pm.Domain.from_matrix(matrix),
    }


def seconds(checker: list[str | Path], path: Path) -> float:
    """Processor time of a checker on one file, which must hold."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run([*checker, path], check=True, stdout=subprocess.DEVNULL)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def any_place(city: pm.City, size: int, path: Path) -> str:
    """A table of which every record may be reported: its proof, and what checking it takes."""
    domain = city.domain(size, seed=0)
    problem = pm.Problem(domain, range(size), DistanceLoss(domain, np.arange(size)), 5.0)
    engine = CpuEngine(TilingTuning(least_outputs=1, host_outputs=1))
    table = pm.optimal(problem, 0.02, backend=engine)
    start = time.process_time()
    bytes_with = table.save(path).stat().st_size
    loaded = pm.load(path)
    said = f"{size:,} x {size:,}: {bytes_with:,} bytes, {loaded.bound}, saved and loaded in "
    said += f"{time.process_time() - start:.1f} s"
    if size <= MOST_BOUND:
        said += f"; third checker with the bound {seconds(THIRD, path):.1f} s"
    table.with_facts(bound=None).save(path)
    return f"{said}; third checker without {seconds(THIRD, path):.1f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, nargs="+", default=[1000])
    parser.add_argument("--outputs", type=int, default=100)
    parser.add_argument("--city", help="a road map, for tables of any place")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.pmdp"
        for size in given.records:
            if given.city:
                print(any_place(pm.load_city(given.city), size, path), flush=True)
                continue
            outputs = np.arange(given.outputs) * (size // given.outputs)
            for kind, domain in domains(size).items():
                problem = pm.Problem(domain, outputs, domain.distances(None, outputs), 3.0)
                pm.exponential(problem).save(path)
                print(f"{kind}: {seconds(SECOND, path):.1f} s")


if __name__ == "__main__":
    main()
