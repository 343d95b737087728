"""Ball anchors on Rome: what the centre may tell against download size and loss.

    python benchmarks/ball.py [--records 2000] [--epsilon 5] [--check 2.0] [--figure FILE]

Rome's road map is read from ../shared/data beside the repository, or from the folder named by
PANDA_MDP_DATA. 100 outputs, one task, uniform prior. For every eps_1: the radius, the share of the
domain that a user downloads at delta = 1e-7 and 1e-2, and the loss of the table at (eps - eps_1)/2.
`--check EPS_1` instead runs `panda` with that eps_1 and audits claim against measurement.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np

import panda_mdp as pm

ROOT = Path(__file__).resolve().parent.parent
DELTAS = (1e-7, 1e-2)
CENTRE = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)


def rome_problem(records: int, epsilon: float) -> pm.Problem:
    """The paper's set-up on Rome: 100 outputs and one task at random."""
    folder = Path(os.environ.get("PANDA_MDP_DATA", ROOT.parent / "shared" / "data"))
    path = folder / "rome.npz"
    if not path.exists():
        sys.exit(f"rome.npz is not in {folder}; set PANDA_MDP_DATA to the folder of the road maps")
    city = pm.load_city(path)
    domain = city.domain(records=records, seed=0)
    rng = np.random.default_rng(0)
    outputs = rng.choice(records, 100, replace=False)
    tasks = rng.choice(records, 1)
    loss = pm.travel_loss(city, domain, outputs, tasks)
    return pm.Problem(domain, outputs, loss, epsilon, loss_unit="km")


def curve(problem: pm.Problem, limit: float) -> dict[str, list[float]]:
    """Download shares and losses over eps_1; prints a markdown table."""
    found: dict[str, list[float]] = {"epsilon": [], "loss": [], **{str(d): [] for d in DELTAS}}
    print("| eps_1 /km | radius, delta 1e-7 | download | radius, 1e-2 | download | loss m |")
    print("|---|---|---|---|---|---|")
    for centre in (e for e in CENTRE if e < problem.epsilon):
        cells = []
        for delta in DELTAS:
            law = pm.BallAnchors(centre, delta).on(problem.domain)
            share = law.expected_size(problem.prior) / problem.size
            found[str(delta)].append(share)
            cells.append(f"{law.radius:.1f} km | {share:.0%}")
        table = pm.optimal(
            problem.with_epsilon((problem.epsilon - centre) / 2), gap=0.02, time_limit=limit
        )
        found["epsilon"].append(centre)
        found["loss"].append(1000 * table.loss)
        print(f"| {centre:g} | {' | '.join(cells)} | {1000 * table.loss:.0f} |", flush=True)
    return found


def draw(problem: pm.Problem, found: dict[str, list[float]], best: float, path: Path) -> None:
    """Two panels over eps_1: download and loss."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.2), dpi=110, layout="constrained")
    for delta, colour in zip(DELTAS, ("#1b6ca8", "#e07b39"), strict=True):
        shares = 100 * np.array(found[str(delta)])
        left.plot(found["epsilon"], shares, "o-", color=colour, label=f"delta = {delta:g}")
    left.set(xlabel="eps_1 of the centre, per km", ylabel="download, % of the domain")
    left.set_ylim(0, 105)
    left.legend(frameon=False)
    right.plot(found["epsilon"], found["loss"], "o-", color="#1b6ca8", label="ball anchors")
    right.axhline(best, color="#666666", ls="--", label="no Phase I: whole table at eps")
    right.set(xlabel="eps_1 of the centre, per km", ylabel="expected loss, m")
    right.set_ylim(0, None)
    right.legend(frameon=False)
    for panel in (left, right):
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(alpha=0.25)
    figure.suptitle(
        f"Ball anchors, Rome, K = {problem.size:,}, epsilon = {problem.epsilon:g} per km",
        fontsize=10,
    )
    figure.savefig(path)
    plt.close(figure)


def check(problem: pm.Problem, centre: float, delta: float, limit: float) -> None:
    """Run and audit one setting: claimed and measured side by side."""
    start = time.perf_counter()
    run = pm.panda(
        problem,
        np.arange(5),
        pm.BallAnchors(centre, delta),
        delta,
        gap=0.02,
        time_limit=limit,
        relaxed=False,
    )
    seconds = time.perf_counter() - start
    audit = pm.audit_panda(run)
    law, table = run.ball, run.tables[0].mechanism
    if law is None:
        sys.exit("a run with balls has their law")
    print(run)
    print(audit)
    print(f"centre: claimed {centre:g} per km, audited {law.mechanism.audit.epsilon:.6f}")
    print(f"delta: claimed {delta:g}, exact {law.missed.max():.6g}, radius {law.radius:.2f} km")
    print(f"table: claimed {table.epsilon:.6f} per km, audited {table.audit.epsilon:.6f}")
    total = law.mechanism.audit.epsilon + 2 * table.audit.epsilon
    print(f"total: claimed {problem.epsilon:g} per km, audited parts {total:.6f}")
    worst = max(found.covered_epsilon for found in audit.sets)
    print(f"balls drawn: largest loss of pairs with a record inside {worst:.4f} per km")
    stages = ", ".join(f"{name} {took:.1f} s" for name, took in run.stages)
    print(f"{seconds:.1f} s in all: {stages}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Ball anchors on Rome.")
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--epsilon", type=float, default=5.0)
    parser.add_argument("--delta", type=float, default=1e-7, help="for --check")
    parser.add_argument("--check", type=float, help="run and audit this eps_1")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds per table")
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    problem = rome_problem(options.records, options.epsilon)
    if options.check is not None:
        check(problem, options.check, options.delta, options.time_limit)
        return
    found = curve(problem, options.time_limit)
    best = pm.optimal(problem, gap=0.02, time_limit=options.time_limit)
    print(f"no Phase I, whole table at {problem.epsilon:g} per km: {1000 * best.loss:.0f} m")
    if options.figure:
        draw(problem, found, 1000 * best.loss, options.figure)


if __name__ == "__main__":
    main()
