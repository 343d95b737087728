"""Losses of the closed forms on Rome, over ten draws, beside the paper's figures.

    python benchmarks/closed_forms.py [--draws 10] [--records 500,1000,2000,5000] [--json FILE]

Rome's road map is read from a folder of maps, which PANDA_MDP_DATA names. Per draw: records, 100
outputs and one task uniformly at random, uniform prior, epsilon 5 per km. Prints a markdown table
of mean ± 1.96 standard deviations in metres, as the paper gives them; every table of every draw is
audited over all pairs. Exits with 1 where the loss exponential mechanism is not at least 40 % below
the remapped exponential one.
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
from panda_mdp.city.draw import draw_problem
from panda_mdp.survey.registry import choose_methods

ROOT = Path(__file__).resolve().parent.parent
OUTPUTS, TASKS, EPSILON = 100, 1, 5.0
METHODS = (
    "exponential",
    "exponential_remap",
    "planar_laplace",
    "planar_laplace_remap",
    "loss_exponential",
)
PAPER = {
    "EM, paper": {500: "1315±98", 1000: "1322±85", 2000: "1402±95", 5000: "1387±73"},
    "EM+BR, paper": {500: "964±36", 1000: "1020±55", 2000: "1179±52", 5000: "1170±82"},
}
REQUIRED_REDUCTION = 0.40


def rome() -> pm.City:
    """The road map of Rome."""
    folder = Path(os.environ.get("PANDA_MDP_DATA", ROOT.parent / "shared" / "data"))
    path = folder / "rome.npz"
    if not path.exists():
        sys.exit(f"rome.npz is not in {folder}; set PANDA_MDP_DATA to the folder of the road maps")
    return pm.load_city(path)


def measure(city: pm.City, records: int, draws: int) -> list[dict[str, object]]:
    """One row per draw and method."""
    rows: list[dict[str, object]] = []
    for seed in range(draws):
        problem = draw_problem(city, records, OUTPUTS, TASKS, EPSILON, seed).problem
        for method in choose_methods(METHODS):
            start = time.perf_counter()
            table = method.run(problem)
            rows.append(
                {
                    "records": records,
                    "draw": seed,
                    "method": method.name,
                    "loss_m": 1000 * table.loss,
                    "audited_epsilon": table.audit.epsilon,
                    "holds": table.audit.holds,
                    "seconds": time.perf_counter() - start,
                }
            )
    return rows


def column(rows: list[dict[str, object]], records: int, method: str, field: str) -> np.ndarray:
    """A field over the draws."""
    return np.array(
        [row[field] for row in rows if (row["records"], row["method"]) == (records, method)],
        dtype=float,
    )


def report(rows: list[dict[str, object]], sizes: list[int]) -> str:
    """The markdown table."""
    lines = [
        "| loss in metres | " + " | ".join(f"K={size:,}" for size in sizes) + " |",
        "|---|" + "---|" * len(sizes),
    ]
    for method in choose_methods(METHODS):
        cells = []
        for size in sizes:
            losses = column(rows, size, method.name, "loss_m")
            spread = 1.96 * losses.std(ddof=min(1, len(losses) - 1))
            cells.append(f"{losses.mean():.0f}±{spread:.0f}")
        lines.append(f"| {method.label} | " + " | ".join(cells) + " |")
    for label, values in PAPER.items():
        cells = [values.get(size, "") for size in sizes]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    for name, field in (("worst audited epsilon", "audited_epsilon"), ("seconds", "seconds")):
        for method in choose_methods(["loss_exponential"]):
            values = [column(rows, size, method.name, field) for size in sizes]
            shown = [
                f"{v.max():.4f}" if field == "audited_epsilon" else f"{v.mean():.1f}"
                for v in values
            ]
            lines.append(f"| {name}, {method.label} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and fail where the figures do."""
    parser = argparse.ArgumentParser(description="Losses of the closed forms on Rome.")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--records", default="500,1000,2000,5000")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sizes = [int(part) for part in options.records.split(",")]
    city = rome()
    rows = [row for size in sizes for row in measure(city, size, options.draws)]
    print(report(rows, sizes))
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    failed = [row for row in rows if not row["holds"]]
    if failed:
        sys.exit(f"{len(failed)} tables do not hold their epsilon, the first: {failed[0]}")
    for size in sizes:
        ours = column(rows, size, "loss_exponential", "loss_m").mean()
        reduction = 1 - ours / column(rows, size, "exponential_remap", "loss_m").mean()
        print(f"K={size:,}: loss exponential is {reduction:.1%} below exponential + remap")
        if reduction < REQUIRED_REDUCTION:
            sys.exit(f"the reduction at K={size:,} is below {REQUIRED_REDUCTION:.0%}")


if __name__ == "__main__":
    main()
