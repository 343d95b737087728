"""PAnDA where it pays: balls and candidate sets on Rome, and balls on a synthetic region.

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
import os
import sys
import time
from pathlib import Path

import numpy as np

import panda_mdp as pm
from panda_mdp.city.draw import draw_problem
from panda_mdp.panda.options import Options
from panda_mdp.panda.schemes.scheme import Scheme

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
    folder = Path(os.environ.get("PANDA_MDP_DATA", ROOT.parent / "shared" / "data"))
    path = folder / "rome.npz"
    if not path.exists():
        sys.exit(f"rome.npz is not in {folder}; set PANDA_MDP_DATA to the folder of the road maps")
    problem = draw_problem(pm.load_city(path), records, 100, 1, epsilon, seed).problem
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


def region(records: int, delta: float, figure: Path | None) -> None:
    """Download and loss of balls over what the centre may tell, with closed-form tables."""
    problem = region_problem(records)
    begin = time.perf_counter()
    whole = pm.exponential(problem, tight=True)
    print(f"region, K={records:,}, epsilon 5 per km, delta {delta:g}: whole table (exponential) ")
    print(f"{whole.loss:.2f} km, {time.perf_counter() - begin:.0f} s\n")
    print("| centre, per km | radius, km | download | loss, km | whole table | time |")
    print("|---|---|---|---|---|---|")
    found = []
    for share in (0.1, 0.2, 0.4, 0.6):
        begin = time.perf_counter()
        scheme = pm.BallAnchors(share * problem.epsilon).scheme(problem, delta, Options())
        scheme.__dict__["mechanism"] = pm.exponential(
            problem.with_epsilon(scheme.left * (1 - 1e-12)), tight=True
        )
        part, loss = scheme.expected_anchors / records, scheme.expected_loss()
        found.append((share * problem.epsilon, part, loss))
        seconds = time.perf_counter() - begin
        print(
            f"| {share * problem.epsilon:g} | {scheme.radius:.1f} | {part:.2%} | {loss:.2f} | "
            f"{whole.loss:.2f} | {seconds:.0f} s |",
            flush=True,
        )
    if figure is not None:
        draw(found, whole.loss, records, figure)


def draw(found: list[tuple[float, float, float]], whole: float, records: int, path: Path) -> None:
    """Two panels over what the centre may tell: download and loss."""
    from panda_mdp.plot.style import BLUE, PALE, new_figure, plain_axes, save_figure

    figure = new_figure(8.4, 3.4)
    left, right = figure.subplots(1, 2)
    told, shares, losses = (np.array(values) for values in zip(*found, strict=True))
    left.plot(told, 100 * shares, "o-", color=BLUE)
    left.set(ylabel="download, % of the table", title=f"{records:,} records over 400 x 400 km")
    right.plot(told, losses, "o-", color=BLUE, label="ball")
    right.axhline(whole, color=PALE, ls="--", label="whole table")
    right.set(ylabel="expected loss, km")
    right.set_ylim(bottom=0)
    right.legend(frameon=False)
    for axes in (left, right):
        axes.set_xlabel("centre's epsilon, per km")
        plain_axes(axes)
    left.set_ylim(bottom=0)
    save_figure(figure, path)


def main() -> None:
    """Parse the command line and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("rome", "region"))
    parser.add_argument("--records", type=int)
    parser.add_argument("--epsilon", type=float, default=5.0)
    parser.add_argument("--delta", type=float)
    parser.add_argument("--seed", type=int, default=9)
    parser.add_argument("--candidates", action="store_true")
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    if given.what == "rome":
        delta = 1e-2 if given.delta is None else given.delta
        rome(given.records or 1000, given.epsilon, delta, given.seed, given.candidates)
    else:
        region(given.records or 300_000, 1e-7 if given.delta is None else given.delta, given.figure)


if __name__ == "__main__":
    main()
