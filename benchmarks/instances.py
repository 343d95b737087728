"""Instances that others can run and cite: make them, solve them, check what was submitted.

    python benchmarks/instances.py make                            # write the instances' files
    python benchmarks/instances.py run city-500x100 --gap 0.01     # solve one, write an entry
    python benchmarks/instances.py check city-500x100 TABLE --bound BOUND
    python benchmarks/instances.py leaderboard --docs              # verify entries, write the table

`check` is for anybody's table and anybody's bound, whatever made them: the table is audited over
all pairs on its integers and its loss is summed again, the bound is computed again from its
multipliers with every rounding accounted for. The leaderboard holds what passed, and nothing else.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from instance_files import (
    FOLDER,
    FORMAT,
    VERSION,
    instance_path,
    instance_text,
    read_bound,
    read_instance,
    read_weights,
    refuse_changed,
    write_bound,
    write_digests,
)

import panda_mdp as pm
from panda_mdp.base.atomic import atomic_file
from panda_mdp.errors import PandaError, PrivacyError
from panda_mdp.privacy.audit import audit_weights
from panda_mdp.privacy.quantise import TOTAL, check_weights
from panda_mdp.table.bound import Multipliers, Proved

DOCS = FOLDER.parent.parent / "docs" / "instances.md"
BEGIN, END = "<!-- leaderboard: begin -->", "<!-- leaderboard: end -->"
METRES = 3
"""Decimals of a city's kilometres."""
EARTH_KM_PER_DEGREE = 111.195
BITS = 8
"""Binary digits of a multiplier that an entry of ours stores."""
GIVE_AWAY = 0.1
"""Of the gap asked for: what storing few and short multipliers may cost the bound."""
EXACT_ENTRIES = 4096
"""Tables of up to this many entries are stored to the last bit, larger ones compactly."""


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=FOLDER, help="the set's folder")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("make", help="write the instances' files")
    check = commands.add_parser("check", help="judge a table and a bound")
    check.add_argument("name")
    check.add_argument("table", type=Path, nargs="?", help=".npz or .pmdp")
    check.add_argument("--bound", type=Path, help=".npz of multipliers")
    run = commands.add_parser("run", help="solve an instance and write an entry")
    run.add_argument("name")
    run.add_argument("--method", choices=list(METHODS), default="optimal")
    run.add_argument("--gap", type=float, default=0.01)
    run.add_argument("--limit", type=float, default=600.0, help="seconds")
    run.add_argument("--table-only", action="store_true", help="store no bound")
    run.add_argument("--out", type=Path, help="folder of the entry; the set's own by default")
    board = commands.add_parser("leaderboard", help="verify all entries and print the table")
    board.add_argument("--docs", action="store_true", help="write it into docs/instances.md too")
    options = parser.parse_args()
    try:
        return {"make": make, "check": check_command, "run": run_command, "leaderboard": table}[
            options.command
        ](options)
    except PandaError as error:
        print(f"refused: {error}", file=sys.stderr)
        return 2


@dataclass(frozen=True)
class Verdict:
    """What was proved about a table, or about a bound."""

    loss: float | None = None
    epsilon: float | None = None
    """Audited, over all pairs."""
    bound: float | None = None


def judge(problem: pm.Problem, table: Path | None, bound: Path | None) -> Verdict:
    """The verdict on a submission; `PandaError` where it is refused."""
    loss = epsilon = least = None
    if table is not None:
        weights = read_weights(table, problem)
        check_weights(weights, (problem.size, problem.outputs_count))
        audit = audit_weights(problem.domain, problem.outputs, weights, problem.epsilon)
        if not audit.holds:
            msg = f"{table.name} is {audit.shortfall}"
            raise PrivacyError(msg)
        loss, epsilon = exact_loss(problem, weights), audit.epsilon
    if bound is not None:
        least = Proved(problem, read_bound(bound, problem)).value
    return Verdict(loss, epsilon, least)


def exact_loss(problem: pm.Problem, weights: np.ndarray) -> float:
    """sum p_x c_xy w_xy / 2^62: products to 2^-53 of each, their sum rounded once."""
    return math.fsum((problem.weighted_loss * weights).ravel()) / TOTAL


def check_command(options: argparse.Namespace) -> int:
    path = instance_path(options.name, options.folder)
    refuse_changed(path, options.folder)
    problem = read_instance(path)
    verdict = judge(problem, options.table, options.bound)
    unit = problem.loss_unit
    if verdict.loss is not None:
        pairs = problem.size * (problem.size - 1) // 2
        print(
            f"table: private, audited epsilon {verdict.epsilon:.9g} of {problem.epsilon:g} per "
            f"{problem.domain.unit} over all {pairs:,} pairs; loss {verdict.loss:.9g} {unit}"
        )
    if verdict.bound is not None:
        print(f"bound: no {problem.epsilon:g}-mDP table loses less than {verdict.bound:.9g} {unit}")
    if verdict.loss is not None and verdict.bound is not None and verdict.bound > 0:
        print(f"gap: {100 * (verdict.loss / verdict.bound - 1):.4f} %")
    return 0


def run_command(options: argparse.Namespace) -> int:
    """Solve an instance, and write what `check` needs to believe it."""
    path = instance_path(options.name, options.folder)
    problem = read_instance(path)
    out = options.out or options.folder
    out.mkdir(parents=True, exist_ok=True)
    entry: dict[str, Any] = {"instance": options.name, "version": f"panda-mdp {pm.__version__}"}
    mechanism, proof, entry["method"] = METHODS[options.method](problem, options)
    proof = None if options.table_only else proof
    stem = f"{options.name}.{options.method}"
    if mechanism.weights.size <= EXACT_ENTRIES:
        entry["table"] = f"{stem}.table.npz"
        with atomic_file(out / entry["table"]) as stream:
            np.savez_compressed(stream, weights=np.asarray(mechanism.weights))
    else:
        entry["table"] = f"{stem}.pmdp"
        short = pm.compact(mechanism, slack=2e-4, floor_cost=2e-4)
        short.save(out / entry["table"], losses=False)
    if proof is not None:
        entry["bound"] = f"{stem}.bound.npz"
        write_bound(out / entry["bound"], thinned(proof, GIVE_AWAY * options.gap))
    verdict = judge(problem, out / entry["table"], out / entry["bound"] if proof else None)
    record(out / "entries.json", entry)
    if out == FOLDER:
        write_digests(out)
    print(f"{stem}: loss {verdict.loss:.6g}, bound {verdict.bound}; entry in {out}")
    return 0


Solved = tuple[pm.Mechanism, Proved | None, str]


def by_optimal(problem: pm.Problem, options: argparse.Namespace) -> Solved:
    """`optimal` with the multipliers of its bound."""
    backend = "auto" if problem.size <= 64 else "cpu"
    mechanism = pm.optimal(problem, backend=backend, gap=options.gap, time_limit=options.limit)
    return mechanism, proof_of(mechanism), f"optimal, gap {options.gap:g} asked for"


def by_highs(problem: pm.Problem, options: argparse.Namespace) -> Solved:
    """HiGHS on the LP of the constraint graph, closed over all pairs."""
    mechanism = pm.solve_lp(problem, time_limit=options.limit)
    return mechanism, proof_of(mechanism), "HiGHS, interior point, closed over all pairs"


def proof_of(mechanism: pm.Mechanism) -> Proved | None:
    """The proof of a table's bound, where there is one."""
    return mechanism.bound if isinstance(mechanism.bound, Proved) else None


def by_cupdlpx(problem: pm.Problem, options: argparse.Namespace) -> Solved:
    """cuPDLPx on the LP of the constraint graph, closed over all pairs; `gap` is its tolerance."""
    from solver_gpu import solve_cupdlpx
    from solver_judge import GraphLp, closed

    lp = GraphLp.of(problem)
    solution, prices, _, _ = solve_cupdlpx(lp, options.limit, options.gap)
    mechanism = closed(problem, lp.table(solution))
    multipliers = lp.multipliers(prices).reshape(-1, problem.outputs_count)
    pairs = np.concatenate([lp.graph.ends, lp.graph.ends[:, ::-1]])
    proof = Proved(problem, Multipliers.of(pairs, multipliers))
    return mechanism, proof, f"cuPDLPx 0.3.0 at {options.gap:g}, closed over all pairs"


def by_loss_exponential(problem: pm.Problem, options: argparse.Namespace) -> Solved:
    """The closed form that needs no solver."""
    return pm.loss_exponential(problem), None, "loss_exponential"


METHODS = {
    "optimal": by_optimal,
    "highs": by_highs,
    "cupdlpx": by_cupdlpx,
    "loss_exponential": by_loss_exponential,
}


def thinned(proof: Proved, give_away: float) -> Multipliers:
    """Fewer and shorter multipliers that prove nearly the same: any that are not negative prove
    something. Rounded down to a few binary digits; then the smallest go, as many as may.

    `give_away` is the share of the bound that each of the two may cost.
    """
    full, best = proof.multipliers, proof
    share, power = np.frexp(full.values)
    for bits in (BITS, BITS + 2, BITS + 5, 23):
        short = np.ldexp(np.floor(share * 2.0**bits) / 2.0**bits, power).astype(np.float32)
        made = Proved(proof.problem, replace(full, values=short.astype(np.float64)))
        if made.value >= proof.value * (1 - give_away):
            best = made
            break
    least, kept = best.value, best.multipliers
    for drop in (3e-2, 1e-2, 3e-3, 1e-3, 1e-4, 1e-5, 1e-7):
        some = kept.values >= drop * least / proof.problem.size
        parts = kept.owner[some], kept.columns[some], kept.values[some]
        fewer = Proved(proof.problem, Multipliers.listed(kept.pairs, *parts))
        if fewer.value >= least * (1 - give_away):
            return fewer.multipliers
    return kept


def record(path: Path, entry: dict[str, Any]) -> None:
    """Put an entry into the list, in place of the one of the same files."""
    old = json.loads(path.read_text()) if path.exists() else []
    entries = [e for e in old if e["table"] != entry["table"]]
    entries = sorted([*entries, entry], key=lambda e: (e["instance"], e["table"]))
    with atomic_file(path) as stream:
        stream.write((json.dumps(entries, indent=1) + "\n").encode())


def table(options: argparse.Namespace) -> int:
    """Verify every entry and print the leaderboard, or write it."""
    lines = leaderboard(options.folder)
    print("\n".join(lines))
    if options.docs:
        head, _, rest = DOCS.read_text().partition(BEGIN)
        tail = rest.partition(END)[2]
        with atomic_file(DOCS) as stream:
            stream.write(f"{head}{BEGIN}\n{chr(10).join(lines)}\n{END}{tail}".encode())
    return 0


def leaderboard(folder: Path = FOLDER) -> list[str]:
    """The table, from what passes here and now: for every instance the best bound, then its tables
    by loss. A file that is not the published one, or does not pass, is an error."""
    entries = json.loads((folder / "entries.json").read_text())
    lines = [
        "| instance | K | m | ε | lower bound | loss | gap | audited ε / ε | method | version |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|---|",
    ]
    for name in sorted({entry["instance"] for entry in entries}, key=lambda n: size(n, folder)):
        path = instance_path(name, folder)
        refuse_changed(path, folder)
        problem = read_instance(path)
        verdicts = []
        for entry in (e for e in entries if e["instance"] == name):
            files = [folder / entry[kind] if kind in entry else None for kind in ("table", "bound")]
            for file in filter(None, files):
                refuse_changed(file, folder)
            verdicts.append((judge(problem, *files), entry))
        least = max((v.bound for v, _ in verdicts if v.bound is not None), default=None)
        shown = "" if least is None else f"{least:.6g}"
        verdicts.sort(key=lambda pair: pair[0].loss or math.inf)
        for verdict, entry in verdicts:
            gap = "" if not least else f"{100 * (verdict.loss / least - 1):.3g} %"
            lines.append(
                f"| {name} | {problem.size:,} | {problem.outputs_count:,} | {problem.epsilon:g} | "
                f"{shown} | {verdict.loss:.6g} | {gap} | {verdict.epsilon / problem.epsilon:.5f} | "
                f"{entry['method']} | {entry['version']} |"
            )
    return lines


def size(name: str, folder: Path) -> tuple[int, str]:
    """Instances are listed from the smallest on."""
    given = json.loads(instance_path(name, folder).read_text())
    return len(given["points"]) * len(given["outputs"]), name


def make(options: argparse.Namespace) -> int:
    """Write the instances; where they are there, they come out the same."""
    options.folder.mkdir(parents=True, exist_ok=True)
    for given in made():
        with atomic_file(options.folder / f"{given['name']}.json") as stream:
            stream.write(instance_text(given).encode())
        print(given["name"])
    write_digests(options.folder)
    return 0


def made() -> list[dict[str, Any]]:
    """All instances of the set."""
    return [grid(5), grid(10), ages(), *(city(*shape) for shape in CITIES)]


CITIES = ((100, 20), (500, 100), (1000, 100))


def instance(name: str, about: str, unit: str, **rest: Any) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": name,
        "about": about,
        "unit": unit,
        **rest,
    }


def grid(n: int) -> dict[str, Any]:
    """n x n points, every point an output."""
    return instance(
        f"grid-{n}x{n}",
        "points of a square grid, every point an output, loss the displacement",
        "cell",
        epsilon=1.0,
        loss="distance",
        prior="uniform",
        outputs=list(range(n * n)),
        points=[[x, y] for y in range(n) for x in range(n)],
    )


def ages() -> dict[str, Any]:
    """Years of life on a line, reported by fives, under a prior that falls with age."""
    people = [round(1 / (1 + math.exp((age - 75) / 8)), 6) for age in range(100)]
    total = math.fsum(people)
    return instance(
        "ages",
        "ages 0 to 99 on a line, every fifth an output, loss the years by which a report is off; "
        "a prior that falls with age",
        "year",
        epsilon=0.1,
        loss="distance",
        prior=[number / total for number in people],
        outputs=list(range(2, 100, 5)),
        points=[[age] for age in range(100)],
    )


def city(records: int, outputs: int) -> dict[str, Any]:
    """Junctions of a synthetic city in a plane, to the metre, and the travel to one of them."""
    streets = pm.synthetic_city(nodes=5000, seed=0)
    domain = streets.domain(records=records, seed=0)
    rng = np.random.default_rng(0)
    chosen = rng.choice(records, outputs, replace=False)
    task = int(rng.choice(records))
    way = pm.travel_loss(streets, domain, [task], [task])[:, 0]
    middle = np.radians(domain.lat.mean())
    east = (domain.lon - domain.lon.mean()) * EARTH_KM_PER_DEGREE * np.cos(middle)
    north = (domain.lat - domain.lat.mean()) * EARTH_KM_PER_DEGREE
    return instance(
        f"city-{records}x{outputs}",
        "junctions of a synthetic city in a plane, km to the metre; the loss of reporting y for x "
        "is the difference of their travel to one place, |t_x - t_y| with t below",
        "km",
        epsilon=5.0,
        loss=[round(float(t), METRES) for t in way],
        prior="uniform",
        outputs=chosen.tolist(),
        points=[
            [round(float(x), METRES), round(float(y), METRES)]
            for x, y in zip(east, north, strict=True)
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
