"""PAnDA where it pays: balls and candidate sets on Rome, and balls on a synthetic region.

    python benchmarks/panda.py figures [--seeds 9 0 1 2] [--sizes 500 1000 2000 3000] [--jobs 1]
    python benchmarks/panda.py candidates [--records 12000] [--count 10000] [--limit 240]
    python benchmarks/panda.py centres [--records 1000] [--delta 1e-2]
    python benchmarks/panda.py rome [--records 1000] [--epsilon 5] [--delta 1e-2] [--seed 9]
        [--candidates]
    python benchmarks/panda.py region [--records 300000] [--out LINES]
    python benchmarks/panda.py draw --rows LINES --figure FILE

Rome's road map is read from ../shared/data beside the repository, or from the folder named by
PANDA_MDP_DATA: 100 outputs, one task, the travel loss, a uniform prior. Prints the exact expected
loss, the download and what the upload tells, each certified, beside the whole table's loss.
`region` scatters records over 400 x 400 km in towns and reports one of 100 of them; `draw` makes
the figure of its lines.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from scipy.optimize import brentq
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

import panda_mdp as pm
from panda_mdp.city.draw import draw_problem
from panda_mdp.panda.candidates import spread_out
from panda_mdp.panda.centres import BallLaw
from panda_mdp.panda.selection import PandaOptions, Scheme
from panda_paper.paper import paper_value

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = ((0.12, 1.0), (0.16, 0.2), (0.2, 1.0), (0.3, 1.0))
"""Shares of epsilon for the centre, and the part of delta that a ball may miss its record with."""
APPENDIX = (0.3, 0.4, 0.5)
"""Shares of epsilon for the centre that are searched at the paper's appendix setting."""


def drawn(records: int, epsilon: float, seed: int) -> pm.Problem:
    """Records of a seed; outputs and the task from the same stream, begun anew."""
    city = pm.load_city(rome_map())
    domain, rng = city.domain(records, seed), np.random.default_rng(seed)
    outputs = rng.choice(records, 100, replace=False)
    loss = pm.travel_loss(city, domain, outputs, rng.choice(records, 1))
    return pm.Problem(domain, outputs, loss, epsilon)


def line(name: str, scheme: Scheme, begin: float) -> str:
    """One line of the table: what a scheme costs, and whether its account holds."""
    holds = scheme.account.violation <= scheme.delta
    share = scheme.expected_anchors / scheme.problem.size
    return (
        f"| {name} | {1000 * scheme.expected_loss:.0f} m | {share:.1%} | "
        f"{'certified' if holds else 'NOT CERTIFIED'} | {time.perf_counter() - begin:.0f} s |"
    )


def rome(records: int, epsilon: float, delta: float, seed: int, candidates: bool) -> list[str]:
    """Balls over shares of epsilon for the centre, and candidate sets."""
    problem = drawn(records, epsilon, seed)
    best = pm.optimal(problem, 0.02, time_limit=120)
    exponential = pm.loss_exponential(problem).loss
    lines = [
        f"\nRome, K={records}, epsilon {epsilon:g} per km, delta {delta:g}, seed {seed}: whole "
        f"table {1000 * best.loss:.0f} m (bound {1000 * (best.lower_bound or 0):.0f} m), loss "
        f"exponential {1000 * exponential:.0f} m\n",
        "| selection | loss | download | account | time |\n|---|---|---|---|---|",
    ]
    options = PandaOptions(gap=0.01, time_limit=120)
    for share, part in SETTINGS:
        begin = time.perf_counter()
        scheme = pm.BallAnchors(share * epsilon, part * delta).scheme(problem, delta, options)
        name = f"ball, centre {share * epsilon:g} /km, missing {part * delta:g}"
        lines.append(line(f"{name}, radius {scheme.law.radius:.2f} km", scheme, begin))
    for count in (records // 4, records // 2) if candidates else ():
        begin = time.perf_counter()
        selection = pm.BernoulliAnchors.alike(problem.domain, count, min(delta, 1e-7), problem)
        scheme = selection.scheme(problem, delta, options)
        lines.append(line(f"{count} candidates", scheme, begin))
    return lines


def within(records: int, seed: int) -> tuple[str, float]:
    """At (15 per km, 0.15): the ball of least loss that `calibrate` finds."""
    begin = time.perf_counter()
    problem = drawn(records, 15.0, seed)
    best = pm.optimal(problem, 0.02, time_limit=120)
    answer = pm.calibrate(problem, 0.15, pm.SearchSpace(("ball",), centre_shares=APPENDIX))
    fitting = sorted((trial.loss or 0.0, k) for k, trial in enumerate(answer.tried) if trial.fits)
    found = next((t for _, k in fitting if (t := answer.tried[k]).selection is not None), None)
    if found is None or not isinstance(found.selection, pm.BallAnchors):
        return f"| {records:,} | {seed} | nothing fits: {answer.binding} |", float("inf")
    options = PandaOptions(gap=0.02, time_limit=120)
    scheme = found.selection.scheme(problem, found.delta, options)
    centre = f"centre {found.selection.epsilon:g} /km, radius {scheme.law.radius:.2f} km"
    bound = f"{1000 * best.loss:.0f} m (bound {1000 * (best.lower_bound or 0):.0f} m)"
    return line(f"{records:,} | {seed} | {bound} | {centre}", scheme, begin), scheme.expected_loss


def figures(seeds: list[int], sizes: list[int], jobs: int) -> None:
    """Balls at the paper's appendix setting beside its PAnDA-e, certified over all pairs."""
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        # The long ones first; printed in order.
        balls = {k: [pool.submit(within, k, seed) for seed in seeds] for k in reversed(sizes)}
        print("Balls at (15 per km, delta 0.15)\n")
        print("| K | seed | whole table | ball | loss | download | account | time |")
        print("|---|---|---|---|---|---|---|---|", flush=True)
        means = []
        for records in sizes:
            answers = [one.result() for one in balls[records]]
            print("\n".join(text for text, _ in answers), flush=True)
            known = paper_value("table10", "rome", "PAnDA-e", records)
            paper = "none" if known is None or known.mean is None else f"{known.mean:.0f} m"
            mean = 1000 * float(np.mean([loss for _, loss in answers]))
            means.append(f"K={records:,}: mean of {len(answers)} seeds {mean:.0f} m, paper {paper}")
        print("\n" + "\n".join(means))


def candidates(records: int, count: int, delta: float, seed: int, limit: float) -> None:
    """Many public candidates: budgets from the certificate, stage by stage, certified, audited."""
    problem = drawn(records, 5.0, seed)
    selection = pm.BernoulliAnchors.alike(problem.domain, count, min(delta, 1e-7), problem)
    scheme = selection.scheme(problem, delta, PandaOptions(gap=0.05, time_limit=limit))
    stages: tuple[tuple[str, Callable[[], object]], ...] = (
        ("budgets", lambda: scheme.budgets.shape),
        ("certificate", lambda: scheme.account),
        ("table and its audit over all pairs", lambda: scheme.whole_table.mechanism),
        ("expected loss, km", lambda: scheme.expected_loss),
    )
    for name, stage in stages:
        begin = time.perf_counter()
        print(f"{name}: {stage()!r} in {time.perf_counter() - begin:.0f} s", flush=True)
    audit = scheme.whole_table.mechanism.audit
    print(f"K={records:,}, {count:,} candidates, epsilon 5 per km, delta {delta:g}, seed {seed}: ")
    print(f"certificate {scheme.failure is None}, audit of the rows {audit.holds}, {audit!r}")


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


def region_places(records: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Records in 400 towns of Pareto size over 400 x 400 km, and 100 of them to report."""
    rng = np.random.default_rng(seed)
    towns = rng.random((400, 2)) * 400
    size = rng.pareto(1.2, len(towns)) + 1
    home = rng.choice(len(towns), records, p=size / size.sum())
    places = towns[home] + rng.normal(size=(records, 2)) * 4
    return places, places[rng.choice(records, 100, replace=False)]


class Lattice:
    """Centres on a square lattice of the plane: p(c|x) = exp(-a sqrt(d(x, c)^2 + h^2)) / Z(x).

    The logarithm of a term has slope at most a. Z repeats from cell to cell; with k the largest
    slope of log Z the law is (a + k)-mDP at all places of the plane, so for any records. k is the
    largest slope on a fine grid of a cell, plus what it can change between grid points: the
    second derivative of log Z is at most a / h + a^2.
    """

    fine = 64
    reach = 60

    def __init__(self, epsilon: float) -> None:
        self.epsilon, self.step, self.rounding = epsilon, 1 / epsilon, 1.25 / epsilon
        side = self.step * np.arange(-self.reach, self.reach + 1)
        self.points = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
        # By symmetry a quarter of a cell is enough; everything is within `near` of the grid.
        side = self.step * (np.arange(self.fine // 2) + 0.5) / self.fine
        self.grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
        self.near = self.step / self.fine * np.sqrt(0.5)
        self.exponent = epsilon
        for _ in range(4):
            self.exponent = epsilon - self.slope()
        # Solved to a trifle; what is left of it comes off.
        self.exponent -= max(0.0, self.exponent + self.slope() - epsilon) * 2
        self.spent = self.exponent + self.slope()

    def terms(self, at: np.ndarray) -> np.ndarray:
        """The weights of the lattice points around a place in the first cell, not normalised."""
        apart = np.linalg.norm(self.points - at, axis=1)
        return np.exp(-self.exponent * (np.hypot(apart, self.rounding) - self.rounding))

    def slope(self) -> float:
        largest = 0.0
        for at in self.grid:
            terms, offset = self.terms(at), at - self.points
            length = np.hypot(np.linalg.norm(offset, axis=1), self.rounding)
            slope = (terms / length) @ offset * self.exponent / terms.sum()
            largest = max(largest, float(np.linalg.norm(slope)))
        return largest + (self.exponent / self.rounding + self.exponent**2) * self.near

    def radius(self, delta: float) -> float:
        """A radius that misses a record with at most delta, wherever it is.

        Between grid points the chance of any centre changes by exp(epsilon t), distances by t.
        """
        largest = 0.0
        for at in self.grid:
            terms = self.terms(at)
            apart = np.linalg.norm(self.points - at, axis=1)
            order = np.argsort(-apart)
            beyond = np.cumsum(terms[order]) / terms.sum()
            last = int((beyond > delta * np.exp(-self.epsilon * self.near)).argmax())
            largest = max(largest, float(apart[order[last]]))
        return largest + self.near

    def draw(self, place: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A centre, with floating-point numbers: to measure downloads, not for release."""
        cell = np.floor(place / self.step) * self.step
        terms = self.terms(place - cell)
        return cell + self.points[rng.choice(len(terms), p=terms / terms.sum())]


def region(records: int, epsilon: float, delta: float, draws: int, out: Path | None) -> None:
    """Download and loss of balls over what the centre may tell, beside the whole table.

    Everything is in closed form: the lattice's law, and the exponential mechanism over the
    outputs with a floor of 1e-8 as the table, whose columns then spread by at most log 1e10, so
    that the radius is the lattice's plus log(1e10) / eps_2 (`BallScheme`, the plain bound). Losses
    are sums over all records; what is outside a ball, at most delta, counts with the largest loss.
    Downloads are means over draws, with 1.96 standard errors.
    """
    places, outputs = region_places(records)
    tree, rng = cKDTree(places), np.random.default_rng(1)
    floor = 1e-8
    print(f"region, K={records:,}, epsilon {epsilon:g} per km, delta {delta:g}\n")
    print("| centre, per km | radius, km | download | loss, km | beyond the nearest output, m |")
    print("|---|---|---|---|---|", flush=True)
    for told in (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0):
        left = epsilon - told
        loss, least, farthest = 0.0, 0.0, 0.0
        for begin in range(0, records, 20_000):
            apart = cdist(places[begin : begin + 20_000], outputs)
            near = apart.min(axis=1)
            rows = np.exp(-left / 2 * (apart - near[:, None]))
            rows = (1 - floor) * rows / rows.sum(axis=1, keepdims=True) + floor / len(outputs)
            loss += float((rows * apart).sum()) / records
            least += float(near.sum()) / records
            farthest = max(farthest, float(apart.max()))
        radius, share, error = np.inf, 1.0, 0.0
        if told:
            lattice = Lattice(told)
            radius = lattice.radius(delta) + np.log(len(outputs) / floor) / left
            some = rng.choice(records, draws, replace=False)
            centres = np.stack([lattice.draw(places[x], rng) for x in some])
            sizes = tree.query_ball_point(centres, radius, return_length=True) / records
            share, error = float(sizes.mean()), 1.96 * float(sizes.std()) / draws**0.5
            loss += delta * farthest
        row = {
            "records": records,
            "epsilon": epsilon,
            "delta": delta,
            "told": told,
            "radius": radius,
            "download": share,
            "error": error,
            "loss": loss,
            "least": least,
        }
        spread = f" ± {error:.2%}" if told else ""
        print(
            f"| {told or 'whole table'} | {radius:.1f} | {share:.2%}{spread} | {loss:.3f} | "
            f"{1000 * (loss - least):.0f} |",
            flush=True,
        )
        if out is not None:
            with out.open("a") as file:
                file.write(json.dumps(row) + "\n")


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
    parser.add_argument(
        "what", choices=("rome", "figures", "candidates", "centres", "region", "draw")
    )
    parser.add_argument("--records", type=int)
    parser.add_argument("--epsilon", type=float, default=5.0)
    parser.add_argument("--delta", type=float)
    parser.add_argument("--seed", type=int, default=9)
    parser.add_argument("--seeds", type=int, nargs="+", default=[9, 0, 1, 2])
    parser.add_argument("--sizes", type=int, nargs="*", default=[500, 1000, 2000, 3000])
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--candidates", action="store_true")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--limit", type=float, default=240.0)
    parser.add_argument("--draws", type=int, default=1_000)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rows", type=Path, nargs="*", default=[])
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    delta = given.delta
    if given.what == "rome":
        delta = 1e-2 if delta is None else delta
        lines = rome(given.records or 1000, given.epsilon, delta, given.seed, given.candidates)
        print("\n".join(lines))
    elif given.what == "figures":
        figures(given.seeds, given.sizes, given.jobs)
    elif given.what == "candidates":
        delta = 1e-2 if delta is None else delta
        candidates(given.records or 12_000, given.count, delta, given.seed, given.limit)
    elif given.what == "centres":
        centres(given.records or 1000, 1e-2 if delta is None else delta, given.seed)
    elif given.what == "draw":
        draw(given.rows, given.figure)
    else:
        region(
            given.records or 300_000,
            given.epsilon,
            1e-7 if delta is None else delta,
            given.draws,
            given.out,
        )


if __name__ == "__main__":
    main()
