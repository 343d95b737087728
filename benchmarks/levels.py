"""What a table of any place takes as a compact file of levels: bits an entry by section, seconds.

    python benchmarks/levels.py --records 2000 5000 --city rome.npz
    python benchmarks/levels.py --records 43160 --backend jax --gap 0.019 --calls 2 --city rome.npz

One line of JSON for each solve, `--calls` of them, and one for each size: the last table is coded,
audited, decoded and compared to the bit.
"""

from __future__ import annotations

import argparse
import json
import time

from any_place import any_place, described

import panda_mdp as pm
from panda_mdp.base.floored import FlooredRows
from panda_mdp.table.pmdc import levels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, nargs="+", default=[1000])
    parser.add_argument("--backend", choices=["cpu", "jax"], default="cpu")
    parser.add_argument("--city", help="a road map; a synthetic city by default")
    parser.add_argument("--gap", type=float, default=0.02)
    parser.add_argument("--calls", type=int, default=1, help="solves; the first one compiles")
    args = parser.parse_args()
    city = pm.load_city(args.city) if args.city else pm.synthetic_city(2 * max(args.records))
    for size in args.records:
        problem = any_place(city, size, 5.0)
        for _ in range(args.calls):
            start = time.perf_counter()
            best = pm.optimal(problem, args.gap, args.backend)
            print(json.dumps(described(best, time.perf_counter() - start)), flush=True)
        if isinstance(best.weights, FlooredRows):
            print(json.dumps(measure(best, best.weights)), flush=True)


def measure(best: pm.Mechanism, rows: FlooredRows) -> dict:
    """Bytes and bits, seconds of coding with its audit and of decoding, and what it costs."""
    start = time.perf_counter()
    coded = levels.level(best, rows, 1 - best.audit.epsilon / best.problem.epsilon)
    written = time.perf_counter()
    back = levels.read_levels(coded.header, coded.sections, coded.order, rows.shape[1])
    read = time.perf_counter()
    names = ("floor", "starts", "columns", "values")
    lengths = {name: len(data) for name, data in coded.sections.items()}
    return {
        "records": best.problem.size,
        "stored": rows.stored,
        "mb": round(sum(lengths.values()) / 1e6, 3),
        "bits": {name: round(8 * n / rows.stored, 3) for name, n in lengths.items()},
        "same": all((getattr(back, n) == getattr(coded.rows, n)).all() for n in names),
        "holds": coded.mechanism.audit.holds,
        "loss_cost": coded.mechanism.loss / best.loss - 1,
        "gap": coded.mechanism.gap,
        "coded_s": round(written - start, 1),
        "decoded_s": round(read - written, 1),
    }


if __name__ == "__main__":
    main()
