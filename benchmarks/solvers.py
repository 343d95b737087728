"""Ours against general LP solvers, on identical instances over growing K and m.

    python benchmarks/solvers.py --limit 600                     # everything, hours
    python benchmarks/solvers.py --toy --limit 20 --out /tmp/toy # a minute, to see that it works
    python benchmarks/solvers.py --gpu --limit 30                # cuPDLPx and MPAX beside ours

Every cell (solver x instance) runs in a process of its own (with --gpu one process for all cells,
which starts the device once), after a warm-up that compiles the kernels, and its result
is appended to results.jsonl at once: a run that was stopped goes on where it was. Where a solver
does not end within the limit on an instance, larger ones of that series are not tried. Afterwards
results.json, table.md and the charts are written, and with --docs the part of docs/benchmarks.md
between its two marks.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from solver_cases import FULL, GPU_CASES, ROOT, TOY, Case, city_name
from solver_report import write_report
from solver_runs import CPU, GPU, SOLVERS, missing, prepared, ran_out

import panda_mdp
from panda_mdp.base.processes import NoAnswer, Worker


def main() -> None:
    """Run what is missing and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--toy", action="store_true", help="tiny instances")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds a cell")
    parser.add_argument("--gap", type=float, default=0.01, help="the certified gap asked for")
    parser.add_argument("--gpu", action="store_true", help="solvers that run on an accelerator")
    parser.add_argument("--out", type=Path, help="folder of the results")
    parser.add_argument("--solvers", nargs="+", choices=list(SOLVERS), help="these alone")
    parser.add_argument("--records", nargs="+", type=int, help="instances of these K alone")
    parser.add_argument("--families", nargs="+", help="city, grid, 'clusters, near', ...")
    parser.add_argument(
        "--draws",
        type=int,
        default=3,
        help="cities for ours as K grows, for its exponent",
    )
    parser.add_argument("--report", action="store_true", help="run nothing, write the report")
    parser.add_argument("--docs", action="store_true", help="write docs/benchmarks.md as well")
    options = parser.parse_args()
    kind = "solvers-gpu" if options.gpu else "solvers"
    options.out = options.out or ROOT / "benchmarks" / "results" / kind
    options.solvers = options.solvers or list(GPU if options.gpu else CPU)
    options.out.mkdir(parents=True, exist_ok=True)
    cases = [
        case
        for case in (TOY if options.toy else GPU_CASES if options.gpu else FULL)
        if (options.families is None or case.family in options.families)
        and (options.records is None or case.records in options.records)
    ]
    lines = options.out / "results.jsonl"
    where = options.out / "machine.json"
    if not options.report or not where.exists():
        where.write_text(json.dumps(machine(options), indent=1))
    if not options.report:
        run_all(cases, options, lines)
    docs = ROOT / "docs" / "benchmarks.md" if options.docs else None
    write_report(read(lines), options.out, json.loads(where.read_text()), docs, kind)
    print(f"report in {options.out}")


def run_all(cases: list[Case], options: argparse.Namespace, lines: Path) -> None:
    """All cells that have no result yet, each appended as it comes."""
    with Worker(prepared) as worker:
        for solver in options.solvers:
            reason = missing(solver)
            if reason is None:
                run_solver(solver, cases, options, lines, worker)
            else:
                print(f"{solver}: skipped, {reason}", flush=True)


def run_solver(
    solver: str, cases: list[Case], options: argparse.Namespace, lines: Path, worker: Worker
) -> None:
    """All cells of a solver."""
    done = {(row["solver"], row["case"]) for row in read(lines)}
    beaten = [row for row in read(lines) if row["solver"] == solver and not row["reached"]]
    for case in [*cases, *further_draws(solver, cases, options.draws)]:
        if (solver, case.key) in done:
            continue
        if any(is_larger(case, row) for row in beaten):
            print(f"{solver}, {case.key}: not tried, a smaller one was not solved", flush=True)
            continue
        row = measure(solver, case, options, worker)
        if solver in CPU:
            worker.close()
        with lines.open("a") as stream:
            stream.write(json.dumps(row) + "\n")
        print(summary(row), flush=True)
        if not row["reached"]:
            beaten.append(row)


def further_draws(solver: str, cases: list[Case], draws: int) -> list[Case]:
    """More cities of every size for ours: one draw's iterations say little about growth."""
    if solver != "panda-mdp":
        return []
    growing = [case for case in cases if (case.family, case.series) == ("city", "K")]
    return [replace(case, seed=seed) for seed in range(1, draws) for case in growing]


def is_larger(case: Case, row: dict) -> bool:
    """Whether a case is a larger one of the same series."""
    same = (case.family, case.series) == (row["family"], row["series"])
    return same and case.records * case.outputs > row["records"] * row["outputs"]


def measure(solver: str, case: Case, options: argparse.Namespace, worker: Worker) -> dict:
    """One cell."""
    row = {"solver": solver, "case": case.key, **asdict(case), "limit": options.limit}
    # Up to three tolerances are tried, and building and certifying come on top; a solver that does
    # not obey the limit, or knows none, is stopped.
    most = options.limit + 60 if solver == "qif" else 3.2 * options.limit + 240
    answer = worker.answer((solver, case, options.gap, options.limit), most)
    if isinstance(answer, NoAnswer):
        answer = {"error": f"no answer: {answer.reason}"}
    row |= answer
    if "error" in row:
        return {**row, "reached": False}
    bound = row["lower_bound"]
    gap = None if bound is None else row["loss"] / bound - 1 if bound > 0 else None
    # A solver that ends by itself has solved its LP; the graph may keep it from the gap.
    near = gap is not None and gap <= options.gap * (1 + 1e-9)
    return {**row, "gap": gap, "reached": bool(near or not ran_out(row["stopped"]))}


def summary(row: dict) -> str:
    """A line about a cell."""
    head = f"{row['solver']}, {row['case']}: "
    if "error" in row:
        return head + row["error"]
    gap = "no bound" if row["gap"] is None else f"gap {100 * row['gap']:.2f} %"
    return (
        f"{head}{row['seconds']:.2f} s, loss {row['loss']:.6g}, {gap}, "
        f"{row['peak_mb']:.0f} MB, {row['stopped']}"
    )


def read(lines: Path) -> list[dict]:
    """The results so far; a line cut short by a crash is left out."""
    rows = []
    if lines.exists():
        for line in lines.read_text().splitlines():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                continue
    return rows


def machine(options: argparse.Namespace) -> dict:
    """Where and with what it was measured."""
    model = platform.processor() or platform.machine()
    cpus = Path("/proc/cpuinfo")
    if cpus.exists():
        names = [x for x in cpus.read_text().splitlines() if x.startswith("model name")]
        model = names[0].split(":", 1)[1].strip() if names else model
    packages = {"panda-mdp": panda_mdp.__version__}
    measured = ("jax", "mpax") if options.gpu else ("numba", "highspy", "ortools", "qif")
    for name in ("numpy", *measured):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = "absent"
    if options.gpu:
        packages["cuPDLPx"] = "0.3.0" if os.environ.get("CUPDLPX_LIBRARY") else "absent"
    return {
        "accelerator": accelerator_name() if options.gpu else None,
        "processor": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "packages": packages,
        "city": city_name(),
        "gap": options.gap,
        "limit": options.limit,
    }


def accelerator_name() -> str:
    """What JAX calls the first device."""
    import jax

    return str(jax.devices()[0].device_kind)


if __name__ == "__main__":
    main()
