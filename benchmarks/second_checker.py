"""Seconds of one core that the second checker takes, by kind of metric.

python benchmarks/second_checker.py [--records 1000] [--outputs 100]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import panda_mdp as pm

CHECKER = Path(__file__).resolve().parents[1] / "verify" / "panda_verify.py"


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


def seconds(path: Path) -> float:
    """Processor time of the checker on one file, which must hold."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run([sys.executable, "-I", CHECKER, path], check=True, stdout=subprocess.DEVNULL)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--outputs", type=int, default=100)
    given = parser.parse_args()
    outputs = np.arange(given.outputs) * (given.records // given.outputs)
    with tempfile.TemporaryDirectory() as folder:
        for kind, domain in domains(given.records).items():
            problem = pm.Problem(domain, outputs, domain.distances(None, outputs), 3.0)
            path = pm.exponential(problem).save(Path(folder) / "table.pmdp")
            print(f"{kind}: {seconds(path):.1f} s")


if __name__ == "__main__":
    main()
