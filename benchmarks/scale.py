"""Whole cities to a certified gap: time, memory, and speed against the memory-bandwidth limit.

    python benchmarks/scale.py --city ../shared/data/rome.npz --records all --gaps 0.02 0.01

Every case is solved twice in one process: the first run includes compilation, the second does not.
A case prints one JSON line with stages, trace, gap, audited epsilon and peak memory; with --out the
lines are appended to a file as they come.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

import numpy as np

import panda_mdp as pm


def instance(city: pm.City, records: int | None, outputs: int, tasks: int, seed: int) -> pm.Problem:
    """The paper's set-up: random records, outputs and tasks; travel loss; epsilon 5 per km."""
    domain = city.domain(records=records, seed=seed)
    rng = np.random.default_rng(seed)
    chosen = rng.choice(domain.size, size=outputs, replace=False)
    targets = rng.choice(domain.size, size=tasks, replace=False)
    loss = pm.travel_loss(city, domain, chosen, targets)
    return pm.Problem(domain, chosen, loss, epsilon=5.0)


def bandwidth(backend: str) -> float:
    """Bytes per second of a large copy, read plus written, on the machine that iterates."""
    if backend == "cpu":
        source = np.ones(1 << 24, dtype=np.float32)
        target = np.empty_like(source)
        best = np.inf
        for _ in range(5):
            start = time.perf_counter()
            np.copyto(target, source)
            best = min(best, time.perf_counter() - start)
        return 2 * source.nbytes / best
    import jax
    import jax.numpy as jnp

    source = jnp.ones(1 << 30, dtype=jnp.float32)
    copy = jax.jit(lambda a: a + 1)
    copy(source).block_until_ready()
    best = np.inf
    for _ in range(5):
        start = time.perf_counter()
        copy(source).block_until_ready()
        best = min(best, time.perf_counter() - start)
    return 2 * source.nbytes / best


def bytes_per_iteration(edges: int, records: int, outputs: int) -> int:
    """What an iteration must move: multipliers read twice, anchor read, multipliers written;
    table, anchor, costs and scales read and table and midpoint written."""
    return 4 * outputs * (4 * 2 * edges + 8 * records)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--city", default="synthetic")
    parser.add_argument("--records", nargs="+", default=["all"])
    parser.add_argument("--outputs", nargs="+", type=int, default=[100])
    parser.add_argument("--tasks", type=int, default=1)
    parser.add_argument("--gaps", nargs="+", type=float, default=[0.02, 0.01])
    parser.add_argument("--backend", default="cpu", choices=["cpu", "jax"])
    parser.add_argument("--time-limit", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    city = pm.synthetic_city(5000) if options.city == "synthetic" else pm.load_city(options.city)
    speed = bandwidth(options.backend)
    for records in options.records:
        for outputs in options.outputs:
            count = None if records == "all" else int(records)
            problem = instance(city, count, outputs, options.tasks, options.seed)
            for gap in options.gaps:
                for run in range(options.runs):
                    row = solve(problem, gap, options, run, speed)
                    row["city"] = Path(options.city).stem
                    line = json.dumps(row)
                    print(line, flush=True)
                    if options.out:
                        with options.out.open("a") as file:
                            file.write(line + "\n")


def solve(
    problem: pm.Problem, gap: float, options: argparse.Namespace, run: int, speed: float
) -> dict[str, object]:
    """One solve as a row."""
    start = time.perf_counter()
    mechanism = pm.optimal(problem, gap=gap, backend=options.backend, time_limit=options.time_limit)
    seconds = time.perf_counter() - start
    details = mechanism.details
    stages = dict(mechanism.stages)
    iterations = int(details["iterations"])
    moved = bytes_per_iteration(details["edges"], problem.size, problem.outputs_count)
    return {
        "records": problem.size,
        "outputs": problem.outputs_count,
        "backend": options.backend,
        "run": run + 1,
        "wanted_gap": gap,
        "gap": mechanism.gap,
        "loss": mechanism.loss,
        "lower_bound": mechanism.lower_bound,
        "audited_epsilon": mechanism.audit.epsilon,
        "holds": mechanism.audit.holds,
        "stopped": details["stopped"],
        "seconds": seconds,
        "stages": {name: round(value, 3) for name, value in stages.items()},
        "iterations": iterations,
        "edges": details["edges"],
        "ms_per_iteration": 1000 * stages.get("solve", 0.0) / max(1, iterations),
        "bandwidth_gb_s": speed / 1e9,
        "limit_ms_per_iteration": 1000 * moved / speed,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "trace": [
            [round(s, 2), n, round(v, 6) if np.isfinite(v) else None, round(b, 6)]
            for s, n, v, b in details["trace"]
        ],
    }


if __name__ == "__main__":
    main()
