"""PAnDA on Rome: balls and candidate sets; a country is in country.py.

    python benchmarks/panda.py figures [--seeds 9 0 1 2] [--sizes 500 1000 2000 3000] [--jobs 1]
    python benchmarks/panda.py candidates [--records 12000] [--count 10000] [--limit 240]
    python benchmarks/panda.py rome [--records 1000] [--epsilon 5] [--delta 1e-2] [--seed 9]
        [--candidates]

Rome's road map is read from a folder of maps, which PANDA_MDP_DATA names: 100 outputs, one task,
the travel loss, a uniform prior. Prints the exact expected loss, the bytes of the file and what the
upload tells, each certified, beside the whole table's loss.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

import panda_mdp as pm
from panda_mdp.panda.lattice import radius_for
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.panda.selection import PandaOptions, Scheme
from panda_paper.paper import paper_value

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = ((0.1, 1e-4), (0.15, 1e-4), (0.2, 1e-5), (0.2, 1e-3), (0.3, 1e-5))
"""Shares of epsilon for the centre, and how often a ball leaves its record out."""
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
    return (
        f"| {name} | {1000 * scheme.expected_loss:.0f} m | {PandaTable(scheme).download:,} | "
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
        "| selection | loss | bytes of the file | account | time |\n|---|---|---|---|---|",
    ]
    options = PandaOptions(gap=0.01, time_limit=120)
    for share, missed in SETTINGS:
        begin = time.perf_counter()
        spent = share * epsilon
        scheme = pm.BallAnchors(spent, radius_for(spent, missed)).scheme(problem, 0.0, options)
        name = f"ball, centre {spent:g} /km, missing {missed:g}"
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
        print("| K | seed | whole table | ball | loss | bytes of the file | account | time |")
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


def rome_map() -> Path:
    """Where Rome's road map is."""
    folder = Path(os.environ.get("PANDA_MDP_DATA", ROOT.parent / "shared" / "data"))
    path = folder / "rome.npz"
    if not path.exists():
        sys.exit(f"rome.npz is not in {folder}; set PANDA_MDP_DATA to the folder of the road maps")
    return path


def main() -> None:
    """Parse the command line and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("rome", "figures", "candidates"))
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
    given = parser.parse_args()
    delta = given.delta
    if given.what == "rome":
        delta = 1e-2 if delta is None else delta
        lines = rome(given.records or 1000, given.epsilon, delta, given.seed, given.candidates)
        print("\n".join(lines))
    elif given.what == "figures":
        figures(given.seeds, given.sizes, given.jobs)
    else:
        delta = 1e-2 if delta is None else delta
        candidates(given.records or 12_000, given.count, delta, given.seed, given.limit)


if __name__ == "__main__":
    main()
