"""What Phase I really costs on Rome: Proposition 1 summed over all records.

    python benchmarks/phase_one.py [--records 500,1000,2000,5000] [--draws 1] [--tail 0.95e-4]
                                   [--json FILE] [--margins] [--plan]

Rome's road map is read from a folder of maps, which PANDA_MDP_DATA names. Prints two markdown
tables:

1. The paper's parameters as its text has them (alpha .95, lambda .5 per km, gamma = d_max / 50,
   clipped at h(gamma)) and as its published code has them (.95 exp(-.2 d) within d_max / 80, / 100,
   / 140, / 220, and a tail of 0.95e-4), exponential decay, pairs of records nearer than 2 km.
2. The three decays of the paper's Table 1 at the text's parameters.

Cost: leakage over distance per pair, in nats per km. Shortfall: the mean over records of the
probability that no anchor within gamma is selected. Coverage: the mean over anchors of the
probability that the 20 nearest records hold the user's record (one-sided; a pair's is a product of
two). Worst: the largest cost over all pairs of records of the domain, at any distance.

`--margins` prints instead how the safety margin depends on lambda and alpha (delta 1e-2, gamma =
d_max / 8, 150 random pairs of 500 records): mean in nats, and the share of pairs for which none
suffices. `--plan` times leakage and estimated margins over all anchor pairs of 50 users at 5,000
records with 15 records within gamma on average.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

import panda_mdp as pm
from panda_mdp.panda.leakage import leakages, worst_leakage
from panda_mdp.panda.margins import MarginPlan, candidate_values, nearest_records, uncovered

ROOT = Path(__file__).resolve().parent.parent
NEAR_KM = 2.0
GAMMA = 20
CODE_PARTS = {500: 80, 1000: 100, 2000: 140, 5000: 220}
CODE_TAIL = 0.95e-4
COLUMNS = (
    "anchors",
    "median",
    "p99",
    "over5",
    "over15",
    "shortfall",
    "coverage",
    "worst",
)
HEADER = (
    "| K | selection | anchors per user | median cost /km | 99th pct | pairs > 5 /km | > 15 /km "
    "| shortfall of h | coverage, Gamma = 20 | worst pair /km |"
)


def rome() -> pm.City:
    """The road map of Rome."""
    folder = Path(os.environ.get("PANDA_MDP_DATA", ROOT.parent / "shared" / "data"))
    path = folder / "rome.npz"
    if not path.exists():
        sys.exit(f"rome.npz is not in {folder}; set PANDA_MDP_DATA to the folder of the road maps")
    return pm.load_city(path)


def cost(domain: pm.Domain, selection: pm.BernoulliAnchors) -> dict[str, float]:
    """All columns for one selection on one domain."""
    law = selection.on(domain)
    rows = law.all_rows
    rates = np.concatenate(
        [
            leakages(law, rows, first, second) / apart
            for first, second, apart in domain.pairs_within(NEAR_KM)
            if len(first)
        ]
    )
    near = np.zeros(domain.size)
    np.add.at(near, rows.owner, rows.probability - law.tail)
    prior = np.full(domain.size, 1 / domain.size)
    everyone = np.arange(domain.size)
    missing = uncovered(law, everyone, nearest_records(domain, everyone, GAMMA), prior)
    return {
        "anchors": float(near.mean() + law.tail * domain.size),
        "median": float(np.median(rates)),
        "p99": float(np.quantile(rates, 0.99)),
        "over5": float((rates > 5).mean()),
        "over15": float((rates > 15).mean()),
        "shortfall": float(rows.missed.mean()),
        "coverage": float(1 - missing.mean()),
        "worst": worst_leakage(law).rate,
    }


def text(decay: str = "exponential") -> pm.BernoulliAnchors:
    """The parameters of the paper's text."""
    return pm.BernoulliAnchors(decay, alpha=0.95, rate=0.5)


def code(domain: pm.Domain, size: int, tail: float) -> pm.BernoulliAnchors:
    """The parameters of the published code, on right distances."""
    nearest = min(CODE_PARTS, key=lambda known: abs(known - size))
    radius = domain.diameter / CODE_PARTS[nearest]
    return pm.BernoulliAnchors("exponential", alpha=0.95, rate=0.2, radius=radius, tail=tail)


def line(size: int, name: str, found: dict[str, float]) -> str:
    """One row of a table."""
    return (
        f"| {size:,} | {name} | {found['anchors']:,.1f} | {found['median']:.2g} | "
        f"{found['p99']:.3g} | {found['over5']:.0%} | {found['over15']:.0%} | "
        f"{found['shortfall']:.1e} | {found['coverage']:.1%} | {found['worst']:.4g} |"
    )


def margins(city: pm.City) -> None:
    """Mean safety margin against lambda, for each decay and two alphas."""
    domain = city.domain(records=500, seed=0)
    rng = np.random.default_rng(0)
    pairs = [pair for pair in rng.choice(500, (150, 2)) if pair[0] != pair[1]]
    rates = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
    print(f"| decay | alpha | {' | '.join(f'lambda {rate:g}' for rate in rates)} |")
    print("|---|---|" + "---|" * len(rates))
    for decay in ("exponential", "power", "logistic"):
        for alpha in (0.95, 0.5):
            cells = []
            for rate in rates:
                selection = pm.BernoulliAnchors(
                    decay, alpha=alpha, rate=rate, radius=domain.diameter / 8
                )
                law = selection.on(domain)
                found = np.array(
                    [candidate_values(law, int(x), int(y), 5.0).margin(1e-2) for x, y in pairs]
                )
                finite = found[np.isfinite(found)]
                mean = f"{finite.mean():.1f}" if len(finite) else "none"
                cells.append(f"{mean} ({np.isinf(found).mean():.0%})")
            print(f"| {decay} | {alpha:g} | {' | '.join(cells)} |", flush=True)


def plan(city: pm.City) -> None:
    """Time a plan at the size of the paper's largest experiment."""
    domain = city.domain(records=5000, seed=0)
    problem = pm.Problem(domain, [0], np.zeros((5000, 1)), 5.0)
    users = np.random.default_rng(0).choice(5000, 50)
    for name, tail in (("clipped tail", "clip"), ("tail 1e-4", 1e-4)):
        selection = pm.BernoulliAnchors("exponential", radius=0.65, tail=tail)
        near = len(selection.on(domain).all_rows.anchor) / 5000
        sets = [selection.draw(domain, int(user)) for user in users]
        start = time.perf_counter()
        found = MarginPlan.over(
            problem,
            selection.on(domain),
            np.unique(np.concatenate(sets)),
            neighbours=selection.neighbours,
        )
        stages = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in found.stages)
        print(
            f"{name}: {near:.1f} records within gamma, {len(found.anchors):,} anchors, "
            f"{found.pair_count:,} pairs: {time.perf_counter() - start:.1f} s ({stages})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="What Phase I really costs, on Rome.")
    parser.add_argument("--records", default="500,1000,2000,5000")
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--tail", type=float, default=CODE_TAIL, help="of the published code")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--margins", action="store_true")
    parser.add_argument("--plan", action="store_true")
    options = parser.parse_args()
    city = rome()
    if options.margins or options.plan:
        if options.margins:
            margins(city)
        if options.plan:
            plan(city)
        return
    results: list[dict[str, object]] = []
    tables: dict[str, list[str]] = {"published": [], "decays": []}
    for size in (int(part) for part in options.records.split(",")):
        found: dict[tuple[str, str], list[dict[str, float]]] = {}
        start = time.perf_counter()
        for seed in range(options.draws):
            domain = city.domain(records=size, seed=seed)
            for table, name, selection in (
                ("published", "text", text()),
                ("published", "code", code(domain, size, options.tail)),
                ("decays", "power", text("power")),
                ("decays", "exponential", text("exponential")),
                ("decays", "logistic", text("logistic")),
            ):
                measured = cost(domain, selection)
                found.setdefault((table, name), []).append(measured)
                results.append({"records": size, "selection": name, "seed": seed, **measured})
        for (table, name), draws in found.items():
            mean = {column: float(np.mean([d[column] for d in draws])) for column in COLUMNS}
            tables[table].append(line(size, name, mean))
        print(f"K={size}: {time.perf_counter() - start:.1f} s", file=sys.stderr)
    for title, rows in (
        ("Exponential decay: the paper's text and its published code", tables["published"]),
        ("The three decays at the text's parameters", tables["decays"]),
    ):
        print(f"\n{title}\n\n{HEADER}\n{'|---' * 10}|")
        print("\n".join(rows))
    if options.json:
        part = options.json.with_name(f"{options.json.name}.part")
        part.write_text(json.dumps(results, indent=1))
        part.replace(options.json)


if __name__ == "__main__":
    main()
