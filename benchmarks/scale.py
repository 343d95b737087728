"""Whole cities to a certified gap: time, memory, and speed against the memory-bandwidth limit.

    python benchmarks/scale.py --suite cpu --data MAPS               # on two cores, 15 minutes
    python benchmarks/scale.py --suite gpu --data MAPS               # on an accelerator, 4 minutes
    python benchmarks/scale.py --report --docs                        # the section of the docs
    python benchmarks/scale.py --city rome.npz --records all --gaps 0.02 0.01
    python benchmarks/scale.py --city rome.npz --metric straight road density --gaps 0.02 --runs 1

Every case is a process of its own, so that its peak memory is its own. It is solved twice: the
first run compiles, or loads what an earlier process compiled, the second does not, and their
difference is listed as such. `--keep FOLDER` keeps metrics by density there, which take minutes to
make where nothing is compiled. `--anew` solves it once more as a new problem, of whose domain
nothing is known yet. Importing JAX counts for no run. Each run gives one JSON line with stages,
trace, gap, audited epsilon, peak memory and the programs that JAX compiled or loaded, appended to
results.jsonl in --out: runs of several machines lie side by side there, and the report takes all.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from any_place import count_programs, programs
from scale_report import write_report
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

import panda_mdp as pm
from panda_mdp.space.paths import PathMetric

ROOT = Path(__file__).resolve().parent.parent
Case = dict[str, Any]
METRICS = ["straight", "road", "density"]


def case(city: str, records: int | None, gap: float, backend: str, outputs: int = 100) -> Case:
    return {
        "city": city,
        "records": records,
        "outputs": outputs,
        "gap": gap,
        "backend": backend,
        "runs": 2,
        "tasks": 1,
        "seed": 0,
        "time_limit": 1500.0,
        "metric": "straight",
        "keep": None,
    }


SUITES = {
    "cpu": [
        *(case("rome", k, 0.01, "cpu") for k in (500, 1000, 2000, 5000, 10_000, 20_000)),
        case("rome", 5000, 0.02, "cpu"),
        {**case("rome", None, 0.02, "cpu"), "runs": 1},
        {**case("london", None, 0.03, "cpu"), "runs": 1},
    ],
    "gpu": [
        case("rome", 5000, 0.01, "jax"),
        case("rome", 20_000, 0.01, "jax"),
        case("rome", None, 0.02, "jax"),
        case("rome", None, 0.01, "jax"),
        case("london", None, 0.02, "jax"),
        case("rome", 5000, 0.02, "jax", outputs=1000),
    ],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", choices=list(SUITES), help="the cases of the docs")
    parser.add_argument("--only", nargs="+", type=int, help="which cases of the suite, from 0")
    parser.add_argument("--data", type=Path, help="folder of rome.npz and london.npz")
    parser.add_argument("--city", help="a city file instead; 'synthetic' needs none")
    parser.add_argument("--records", nargs="+", default=["all"])
    parser.add_argument("--outputs", nargs="+", type=int, default=[100])
    parser.add_argument("--metric", nargs="+", default=["straight"], choices=METRICS)
    parser.add_argument("--keep", type=Path, help="folder of metrics by density")
    parser.add_argument("--tasks", type=int, default=1)
    parser.add_argument("--gaps", nargs="+", type=float, default=[0.02, 0.01])
    parser.add_argument("--backend", default="cpu", choices=["cpu", "jax"])
    parser.add_argument("--time-limit", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "scale")
    parser.add_argument("--anew", action="store_true", help="once more as a new problem")
    parser.add_argument("--report", action="store_true", help="run nothing, write the report")
    parser.add_argument("--docs", action="store_true", help="write docs/benchmarks.md as well")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        run_case(json.loads(options.cell))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    lines = options.out / "results.jsonl"
    if not options.report:
        for one in wanted(options):
            measure({**one, "anew": options.anew}, lines)
    rows = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
    write_report(rows, options.out, ROOT / "docs" / "benchmarks.md" if options.docs else None)


def wanted(options: argparse.Namespace) -> list[Case]:
    """The cases that were asked for, each with the path of its map."""
    if options.suite:
        folder = options.data or Path(
            os.environ.get("PANDA_MDP_DATA", ROOT.parent / "shared" / "data")
        )
        chosen = SUITES[options.suite]
        if options.only:
            chosen = [chosen[k] for k in options.only]
        return [{**one, "path": str(folder / f"{one['city']}.npz")} for one in chosen]
    path = options.city or "synthetic"
    return [
        {
            **case(Path(path).stem, None if count == "all" else int(count), gap, options.backend),
            "outputs": outputs,
            "tasks": options.tasks,
            "runs": options.runs,
            "seed": options.seed,
            "time_limit": options.time_limit,
            "path": path,
            "metric": metric,
            "keep": options.keep and str(options.keep.resolve()),
        }
        for metric in options.metric
        for count in options.records
        for outputs in options.outputs
        for gap in options.gaps
    ]


def measure(one: Case, lines: Path) -> None:
    """One case in a process of its own; its rows are appended as they come."""
    command = [sys.executable, str(Path(__file__).resolve()), "--cell", json.dumps(one)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        for line in child.stdout or ():
            print(line, end="", flush=True)
            if line.startswith("{"):
                with lines.open("a") as stream:
                    stream.write(line)
    if child.returncode:
        print(f"the case {one} ended with exit code {child.returncode}", flush=True)


def run_case(one: Case) -> None:
    """All runs of a case, one JSON line each."""
    if one["backend"] == "cpu":
        warm_up()
    else:
        count_programs()
    path, size = one["path"], max(5000, one["records"] or 0)
    city = pm.synthetic_city(size) if path == "synthetic" else pm.load_city(path)
    shape = one["records"], one["outputs"], one["tasks"], one["seed"], one["metric"], one["keep"]
    problem = instance(city, *shape)
    rows = [solve(problem, one) for _ in range(one["runs"])]
    anew = solve(instance(city, *shape), one)["seconds"] if one["anew"] else None
    # Last: its arrays are no part of the solver's memory.
    speed = bandwidth(one["backend"])
    for run, row in enumerate(rows, start=1):
        row |= {
            "run": run,
            "first_seconds": rows[0]["seconds"],
            "anew_seconds": anew,
            "bandwidth_gb_s": speed / 1e9,
        }
        print(json.dumps(row), flush=True)


def warm_up() -> None:
    """Compile the kernels, or read them from the cache, on a small instance."""
    city = pm.synthetic_city(400, seed=1)
    pm.optimal(instance(city, 300, 8, 1, 0), backend="cpu")


def instance(
    city: pm.City,
    records: int | None,
    outputs: int,
    tasks: int,
    seed: int,
    metric: str = "straight",
    keep: str | None = None,
) -> pm.Problem:
    """The paper's set-up: random records, outputs and tasks; travel loss; epsilon 5 per km, along
    streets too, or 1 per nat with a thousandth of all junctions in each ball."""
    start = time.perf_counter()
    domain = city.domain(records=records, seed=seed)
    if metric == "road":
        domain = city.road_domain(domain.nodes)
    elif metric == "density":
        domain = by_density(city, domain.nodes, keep)
    print(f"domain, {metric}: {time.perf_counter() - start:.1f} s", file=sys.stderr)
    rng = np.random.default_rng(seed)
    chosen = rng.choice(domain.size, size=outputs, replace=False)
    targets = rng.choice(domain.size, size=tasks, replace=False)
    loss = pm.travel_loss(city, domain, chosen, targets)
    return pm.Problem(domain, chosen, loss, epsilon=1.0 if metric == "density" else 5.0)


def by_density(city: pm.City, nodes: np.ndarray, keep: str | None) -> pm.Domain:
    """The domain of nodes by density, from a folder where it was made before."""
    path = keep and Path(keep) / f"{city.name}-{len(nodes)}-density.npz"
    if path and path.exists():
        with np.load(path) as kept:
            if np.array_equal(kept["nodes"], nodes):
                parts = (kept[name] for name in ("edges", "steps", "unit", "lat", "lon"))
                edges, steps, unit, lat, lon = parts
                return pm.Domain(PathMetric(edges, steps, str(unit), lat, lon)).with_nodes(nodes)
    domain = city.density_domain(max(20, city.nodes // 1000), None, nodes)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        metric: Any = domain.metric
        arrays = {name: getattr(metric, name) for name in ("edges", "steps", "unit", "lat", "lon")}
        np.savez_compressed(path, nodes=nodes, **arrays)
    return domain


def sampled_rate(table: pm.Mechanism, sources: int = 1000) -> float:
    """The largest rate of some records to all others under a path metric, by shortest paths from
    each in SciPy over the file's edges and by 64-bit logarithms: an audit that shares no code."""
    metric: Any = table.problem.domain.metric
    ends, size = metric.edges.astype(np.int32), metric.size
    graph = csr_array((metric.steps * 2.0**-30, (ends[:, 0], ends[:, 1])), shape=(size, size))
    weights = np.asarray(table.weights, dtype=np.float64)
    # Outputs that nobody reports tell nothing; a zero among others is an infinite rate.
    with np.errstate(divide="ignore"):
        logs = np.log(weights[:, weights.any(axis=0)])
    some = np.random.default_rng(0).choice(size, min(size, sources), replace=False)
    worst = 0.0
    for x in some.tolist():
        away = dijkstra(graph, directed=False, indices=x)
        gap = np.abs(logs - logs[x]).max(axis=1)
        away[x] = np.inf
        worst = max(worst, float((gap / away).max()))
    return worst


def bandwidth(backend: str) -> float:
    """Bytes per second of a large copy, read plus written, on the machine that iterates."""
    copy = threaded_copy() if backend == "cpu" else device_copy()
    size = copy()
    best = np.inf
    for _ in range(5):
        start = time.perf_counter()
        copy()
        best = min(best, time.perf_counter() - start)
    return 2 * size / best


def threaded_copy() -> Any:
    """Copies 256 MB with as many threads as the solver has; returns the bytes."""
    from numba import njit, prange

    source = np.ones(1 << 26, dtype=np.float32)
    target = np.empty_like(source)

    @njit(parallel=True)
    def copy(a: Any, b: Any) -> None:
        for i in prange(len(a)):
            b[i] = a[i]

    def run() -> int:
        copy(source, target)
        return source.nbytes

    return run


def device_copy() -> Any:
    import jax
    import jax.numpy as jnp

    source = jnp.ones(1 << 30, dtype=jnp.float32)
    add = jax.jit(lambda a: a + 1)

    def run() -> int:
        add(source).block_until_ready()
        return int(source.nbytes)

    return run


def solve(problem: pm.Problem, one: Case) -> dict[str, Any]:
    """One solve as a row."""
    start, worked, before = time.perf_counter(), time.process_time(), len(programs)
    mechanism = pm.optimal(
        problem, gap=one["gap"], backend=one["backend"], time_limit=one["time_limit"]
    )
    seconds, worked = time.perf_counter() - start, time.process_time() - worked
    details = mechanism.details
    stages = dict(mechanism.stages)
    iterations = int(details["iterations"])
    return {
        "city": one["city"] + ("" if one["metric"] == "straight" else f", {one['metric']}"),
        "records": problem.size,
        "outputs": problem.outputs_count,
        "backend": one["backend"],
        "machine": machine(one["backend"]),
        "version": pm.__version__,
        "wanted_gap": one["gap"],
        "gap": mechanism.gap,
        "loss": mechanism.loss,
        "lower_bound": mechanism.lower_bound,
        "audited_epsilon": mechanism.audit.epsilon,
        "sampled_epsilon": None if one["metric"] == "straight" else sampled_rate(mechanism),
        "holds": mechanism.audit.holds,
        "stopped": details["stopped"],
        "seconds": seconds,
        "cpu_seconds": round(worked, 2),
        "programs": len(programs) - before,
        "stages": {name: round(value, 3) for name, value in stages.items()},
        "iterations": iterations,
        "edges": details["edges"],
        "closure_rounds": details.get("closure_rounds"),
        "ms_per_iteration": 1000 * stages.get("solve", 0.0) / max(1, iterations),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "device_mb": device_memory(one["backend"]),
        "trace": [
            [round(s, 2), n, round(v, 6) if np.isfinite(v) else None, round(b, 6)]
            for s, n, v, b in details["trace"]
        ],
    }


def machine(backend: str) -> str:
    """What iterates, in words."""
    if backend == "jax":
        import jax

        return f"{len(jax.devices())} x {jax.devices()[0].device_kind}"
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return f"{len(os.sched_getaffinity(0))} cores, {model}"


def device_memory(backend: str) -> float | None:
    """Most megabytes that were in use on the device; None where it does not say."""
    if backend == "cpu":
        return None
    import jax

    told = jax.devices()[0].memory_stats()
    return None if not told else told.get("peak_bytes_in_use", 0) / 2**20


if __name__ == "__main__":
    main()
