"""PAnDA where it pays: balls and candidate sets on Rome, and balls on a synthetic region.

    python benchmarks/panda.py centres [--records 1000] [--delta 1e-2]
    python benchmarks/panda.py rome [--records 1000] [--epsilon 5] [--delta 1e-2] [--seed 9]
    python benchmarks/panda.py region [--records 300000] [--figure FILE]

Rome's road map is read from ../shared/data beside the repository, or from the folder named by
PANDA_MDP_DATA: 100 outputs, one task, the travel loss, a uniform prior. Prints the exact expected
loss, the download and what the upload tells, each certified, beside the whole table's loss.
`region` scatters records over 400 x 400 km in towns, reports one of 100 of them, and compares balls
with the whole table of a closed form: a table is not the point there, the download is.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
from scipy.optimize import brentq

import panda_mdp as pm
from panda_mdp.city.draw import draw_problem
from panda_mdp.panda.options import Options
from panda_mdp.panda.schemes.scheme import Scheme
from panda_mdp.panda.selection.candidates import spread_out
from panda_mdp.panda.selection.centres import BallLaw

ROOT = Path(__file__).resolve().parent.parent
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5)


def line(name: str, scheme: Scheme, begin: float) -> None:
    """One line of the table: what a scheme costs, and whether its account holds."""
    account = scheme.account()
    holds = account is not None and account.violation <= scheme.delta
    share = scheme.expected_anchors / scheme.problem.size
    print(
        f"| {name} | {1000 * scheme.expected_loss():.0f} m | {share:.1%} | "
        f"{'certified' if holds else 'NOT CERTIFIED'} | {time.perf_counter() - begin:.0f} s |",
        flush=True,
    )


def rome(records: int, epsilon: float, delta: float, seed: int, candidates: bool) -> None:
    """Balls over shares of epsilon for the centre, and candidate sets."""
    problem = draw_problem(pm.load_city(rome_map()), records, 100, 1, epsilon, seed).problem
    best = pm.optimal(problem, 0.02, time_limit=120)
    print(
        f"Rome, K={records}, epsilon {epsilon:g} per km, delta {delta:g}, seed {seed}: whole table"
    )
    print(f"{1000 * best.loss:.0f} m (bound {1000 * (best.lower_bound or 0):.0f} m), ", end="")
    print(f"loss exponential {1000 * pm.loss_exponential(problem).loss:.0f} m\n")
    print("| selection | loss | download | account | time |\n|---|---|---|---|---|")
    options = Options(gap=0.02, time_limit=120)
    for share in SHARES:
        begin = time.perf_counter()
        scheme = pm.BallAnchors(share * epsilon).scheme(problem, delta, options)
        line(f"ball, centre {share * epsilon:g} /km, radius {scheme.radius:.2f} km", scheme, begin)
    if candidates:
        for count in (records // 4, records // 2):
            begin = time.perf_counter()
            selection = pm.BernoulliAnchors.alike(problem.domain, count, min(delta, 1e-7))
            line(f"{count} candidates", selection.scheme(problem, delta, options), begin)


def centres(records: int, delta: float, seed: int) -> None:
    """Least radius of each law of the centre, and the share of the table in its balls."""
    problem = draw_problem(pm.load_city(rome_map()), records, 100, 1, 5.0, seed).problem
    domain = problem.domain
    print("| eps_1 /km | centres | law | exponent / eps_1 | radius | download | time |")
    print("|---|---|---|---|---|---|---|")
    for epsilon in (0.5, 1.0, 2.0):
        least = brentq(lambda t: (1 + t) * np.exp(-t) - delta, 1e-6, 100) / epsilon
        for count in sorted({min(256, records), min(1_000, records)}):
            chosen = spread_out(domain, count)
            for kind in ("exponential", "tightest"):
                begin = time.perf_counter()
                law = BallLaw.build(domain, chosen, epsilon, delta, kind)
                share = law.expected_size(problem.prior) / records
                part = float(law.mechanism.details["exponent"]) / epsilon
                print(
                    f"| {epsilon:g} | {count:,} | {kind} | {part:.2f} | {law.radius:.1f} km | "
                    f"{share:.0%} | {time.perf_counter() - begin:.0f} s |",
                    flush=True,
                )
        print(f"| {epsilon:g} | | least in the plane | 1 | {least:.1f} km | | |", flush=True)


def rome_map() -> Path:
    """Where Rome's road map is."""
    folder = Path(os.environ.get("PANDA_MDP_DATA", ROOT.parent / "shared" / "data"))
    path = folder / "rome.npz"
    if not path.exists():
        sys.exit(f"rome.npz is not in {folder}; set PANDA_MDP_DATA to the folder of the road maps")
    return path


def region_problem(records: int, epsilon: float = 5.0, seed: int = 0) -> pm.Problem:
    """Records in towns over 400 x 400 km, one of 100 places to report, the distance as loss."""
    rng = np.random.default_rng(seed)
    towns = rng.random((400, 2)) * 400
    size = rng.pareto(1.2, len(towns)) + 1
    home = rng.choice(len(towns), records, p=size / size.sum())
    places = towns[home] + rng.normal(size=(records, 2)) * 4
    domain = pm.Domain.from_vectors(places, unit="km")
    outputs = rng.choice(records, 100, replace=False)
    loss = domain.distances(np.arange(records), outputs)
    return pm.Problem(domain, outputs, loss, epsilon, loss_unit="km")


def region(
    records: int,
    epsilon: float,
    delta: float,
    shares: list[float],
    centres: int,
    whole: bool,
    out: Path | None,
) -> None:
    """Download and loss of balls over what the centre may tell, each table solved and certified.

    The excess is what a table loses beyond reporting the nearest of the outputs, which nobody can
    avoid. Saves a line of JSON after each step.
    """
    problem = region_problem(records, epsilon)
    least = float(problem.prior @ problem.loss.min(axis=1))
    options = Options(gap=0.05, time_limit=120)
    print(f"region, K={records:,}, epsilon {epsilon:g} per km, delta {delta:g}: the nearest output")
    print(f"is {least:.3f} km away on average; {centres} centres\n")
    print("| centre, per km | radius, km | download | loss, km | excess, m | bound, m | time |")
    print("|---|---|---|---|---|---|---|", flush=True)

    def note(told: float, radius: float, part: float, loss: float, bound: float, took: float):
        excess, below = 1000 * (loss - least), 1000 * (max(bound, least) - least)
        print(
            f"| {told:g} | {radius:.1f} | {part:.2%} | {loss:.4f} | {excess:.1f} | {below:.1f} | "
            f"{took:.0f} s |",
            flush=True,
        )
        row = {
            "records": records,
            "epsilon": epsilon,
            "delta": delta,
            "centres": centres,
            "told": told,
            "radius": radius,
            "download": part,
            "loss": loss,
            "least": least,
            "bound": bound,
            "seconds": took,
        }
        if out is not None:
            with out.open("a") as file:
                file.write(json.dumps(row) + "\n")

    chosen = spread_out(problem.domain, centres)
    for share in shares:
        begin = time.perf_counter()
        selection = pm.BallAnchors(share * epsilon, delta, chosen)
        law = selection.on(problem.domain)
        took = time.perf_counter() - begin
        print(f"  law of centres: {dict(law.mechanism.details)}, {took:.0f} s", flush=True)
        scheme = selection.scheme(problem, delta, options)
        if scheme.failure is not None:
            raise scheme.failure
        part, loss = scheme.expected_anchors / records, scheme.expected_loss()
        bound = scheme.mechanism.lower_bound or 0.0
        note(share * epsilon, scheme.radius, part, loss, bound, time.perf_counter() - begin)
    if whole:
        begin = time.perf_counter()
        table = pm.optimal(problem, 0.05, time_limit=120)
        note(0.0, np.inf, 1.0, table.loss, table.lower_bound or 0.0, time.perf_counter() - begin)


def draw(files: list[Path], path: Path) -> None:
    """Download and excess over what the centre may tell, one line for each number of records."""
    from panda_mdp.plot.style import BLUE, ORANGE, new_figure, plain_axes, save_figure

    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    figure = new_figure(8.4, 3.4)
    left, right = figure.subplots(1, 2)
    for size, colour in zip(sorted({row["records"] for row in rows}), (BLUE, ORANGE), strict=False):
        some = sorted((r for r in rows if r["records"] == size), key=lambda r: r["told"])
        balls = [row for row in some if row["told"] > 0]
        told = [row["told"] for row in balls]
        excess = [1000 * (row["loss"] - row["least"]) for row in balls]
        left.plot(told, [100 * r["download"] for r in balls], "o-", color=colour, label=f"{size:,}")
        right.plot(told, excess, "o-", color=colour, label=f"ball, {size:,} records")
        for row in some:
            if row["told"] == 0:
                worth = 1000 * (row["loss"] - row["least"])
                right.axhline(worth, color=colour, ls="--", label=f"whole table, {size:,}")
    left.set(ylabel="download, % of the table", title="How much of the table a ball has")
    left.legend(frameon=False, title="records")
    right.set(ylabel="loss beyond the nearest output, m", title="What the report loses")
    right.legend(frameon=False)
    for axes in (left, right):
        axes.set_xlabel("epsilon of the centre, per km (of 5)")
        axes.set_ylim(bottom=0)
        plain_axes(axes)
    save_figure(figure, path)


def main() -> None:
    """Parse the command line and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("rome", "centres", "region", "draw"))
    parser.add_argument("--records", type=int)
    parser.add_argument("--epsilon", type=float, default=5.0)
    parser.add_argument("--delta", type=float)
    parser.add_argument("--seed", type=int, default=9)
    parser.add_argument("--candidates", action="store_true")
    parser.add_argument("--shares", type=float, nargs="*", default=[0.1, 0.2, 0.4])
    parser.add_argument("--centres", type=int, default=256)
    parser.add_argument("--no-whole", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rows", type=Path, nargs="*", default=[])
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    delta = given.delta
    if given.what == "rome":
        delta = 1e-2 if delta is None else delta
        rome(given.records or 1000, given.epsilon, delta, given.seed, given.candidates)
    elif given.what == "centres":
        centres(given.records or 1000, 1e-2 if delta is None else delta, given.seed)
    elif given.what == "draw":
        draw(given.rows, given.figure)
    else:
        region(
            given.records or 300_000,
            given.epsilon,
            1e-7 if delta is None else delta,
            given.shares,
            given.centres,
            not given.no_whole,
            given.out,
        )


if __name__ == "__main__":
    main()
