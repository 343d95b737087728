"""Any place may be reported: K = m, displacement, tiles of outputs against the dense iteration.

    python benchmarks/any_place.py --records 1000 2000 5000 --backend jax --dense 2000
    python benchmarks/any_place.py --records 1000 2000 --calls 1 --dense 1000 --city rome.npz
    python benchmarks/any_place.py --records 43160 --backend jax --city rome.npz

Each size is solved twice, unless `--calls 1`: the first call compiles, or loads what an earlier
process compiled. `--calls 3` solves it once more as a new problem, of which nothing is known yet.
`--dense` names the sizes that are solved without tiles as well, in the same run: on a machine that
does other work too, only their ratio means something. One line of JSON for each; `programs` are
those that JAX had to compile or load. Importing JAX counts for no call.
"""

from __future__ import annotations

import argparse
import json
import resource
import time

import panda_mdp as pm
from panda_mdp.methods.optimal.optimal import CpuEngine, JaxEngine
from panda_mdp.methods.optimal.program import TilingTuning

programs: list[str] = []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, nargs="+", default=[500])
    parser.add_argument("--dense", type=int, nargs="*", default=[])
    parser.add_argument("--backend", choices=["cpu", "jax"], default="cpu")
    parser.add_argument("--city", help="a road map; a synthetic city by default")
    parser.add_argument("--gap", type=float, default=0.02)
    parser.add_argument("--epsilon", type=float, default=5.0)
    parser.add_argument("--calls", type=int, choices=[1, 2, 3], default=2)
    parser.add_argument("--limit", type=float, default=200.0, help="seconds of one solve")
    args = parser.parse_args()
    if args.backend == "jax":
        count_programs()
    largest = max(args.records)
    city = pm.load_city(args.city) if args.city else pm.synthetic_city(2 * largest, seed=0)
    for size in args.records:
        problem = any_place(city, size, args.epsilon)
        for tiles in [True, False] if size in args.dense else [True]:
            for call in ("first", "second", "anew")[: args.calls]:
                if call == "anew":
                    problem = any_place(city, size, args.epsilon)
                print(json.dumps(measure(problem, args, tiles, call)), flush=True)


def any_place(city: pm.City, size: int, epsilon: float) -> pm.Problem:
    """A problem has its own copy of the losses: none is held beside it."""
    domain = city.domain(size, seed=0)
    return pm.Problem(domain, range(size), pm.distance_loss(domain, range(size)), epsilon)


def measure(problem: pm.Problem, args: argparse.Namespace, tiles: bool, call: str) -> dict:
    """One solve: seconds by stage, certified gap, loss and bound in metres."""
    start, worked, before = time.perf_counter(), time.process_time(), len(programs)
    least = 1 if tiles else 1 << 62
    tuning = TilingTuning(least_outputs=least, host_outputs=least)
    engine = {"cpu": CpuEngine, "jax": JaxEngine}[args.backend](tiling=tuning)
    best = pm.optimal(problem, args.gap, backend=engine, time_limit=args.limit)
    return {
        "tiles": tiles,
        "call": call,
        **described(best, time.perf_counter() - start),
        "cpu_seconds": round(time.process_time() - worked, 2),
        "programs": len(programs) - before,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def described(best: pm.Mechanism, seconds: float) -> dict:
    """A solve and what came of it, in seconds and metres."""
    return {
        "records": best.problem.size,
        "seconds": round(seconds, 2),
        "stages": {name: round(part, 2) for name, part in best.stages},
        "iterations": best.details["iterations"],
        "stopped": best.details["stopped"],
        "gap": round(best.gap, 5),
        "loss_m": round(1000 * best.loss, 2),
        "bound_m": round(1000 * best.lower_bound, 2),
        "holds": best.audit.holds,
        "stored": best.details.get("stored", best.weights.shape[0] * best.weights.shape[1]),
    }


def count_programs() -> None:
    """Have JAX say of every program that it compiles or loads."""
    import jax

    def listen(event: str, _: float, **about: object) -> None:
        if event.endswith("backend_compile_duration"):
            programs.append(str(about.get("fun_name")))

    jax.monitoring.register_event_duration_secs_listener(listen)


if __name__ == "__main__":
    main()
