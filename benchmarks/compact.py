"""What a table of any place takes as a compact file: bits an entry, seconds, price in loss.

    python benchmarks/compact.py --records 2000 5000 --city rome.npz

One line of JSON for each size: the table is solved, written with its audit, and read back with it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from any_place import any_place

import panda_mdp as pm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, nargs="+", default=[1000])
    parser.add_argument("--backend", choices=["cpu", "jax"], default="cpu")
    parser.add_argument("--city", help="a road map; a synthetic city by default")
    parser.add_argument("--gap", type=float, default=0.02)
    args = parser.parse_args()
    city = pm.load_city(args.city) if args.city else pm.synthetic_city(2 * max(args.records))
    for size in args.records:
        best = pm.optimal(any_place(city, size, 5.0), args.gap, backend=args.backend)
        print(json.dumps(measure(best)), flush=True)


def measure(best: pm.Mechanism) -> dict:
    """Bytes and bits, seconds of writing and reading with their audits, and what it costs."""
    with tempfile.TemporaryDirectory() as folder:
        path, start = Path(folder) / "table.pmdp", time.perf_counter()
        compact = pm.compact(best)
        compact.save(path)
        written = time.perf_counter()
        pm.load(path)
        read = time.perf_counter()
        length = path.stat().st_size
    stored = getattr(best.weights, "stored", best.weights.shape[0] * best.weights.shape[1])
    return {
        "records": best.problem.size,
        "stored": stored,
        "mb": round(length / 1e6, 3),
        "bits": round(8 * length / stored, 3),
        "loss_cost": compact.details["compact"]["loss_cost"],
        "written_s": round(written - start, 1),
        "read_s": round(read - written, 1),
    }


if __name__ == "__main__":
    main()
