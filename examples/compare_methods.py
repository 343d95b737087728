"""Compare all methods: what privacy costs under each, over a range of epsilons.

    python examples/compare_methods.py [FOLDER]

Draws loss against epsilon with the bound that no method can pass (compare_methods.png).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import numpy as np

import panda_mdp as pm
from panda_mdp import plot
from panda_mdp.plot.style import GRID, LINE_STYLES, chart_figure
from panda_mdp.survey.registry import choose_methods

NAMES = ("exponential", "exponential_remap", "planar_laplace", "loss_exponential", "optimal")


def main(
    out: Path = Path("out/examples"),
    records: int = 500,
    epsilons: Sequence[float] = (1, 2, 5, 10, 20),
    seconds: float = 15,
) -> Path:
    city = pm.synthetic_city(nodes=max(1000, 2 * records), seed=0)
    domain = city.domain(records=records, seed=0)
    rng = np.random.default_rng(0)
    outputs = rng.choice(domain.size, min(50, records // 2), replace=False)
    tasks = rng.choice(domain.size, 1)
    problem = pm.Problem(domain, outputs, pm.travel_loss(city, domain, outputs, tasks), 5.0)

    chosen = choose_methods(NAMES)
    curves = {
        method.label: [method.run(problem.with_epsilon(e), seconds) for e in epsilons]
        for method in chosen
    }
    for name, points in curves.items():
        losses = "  ".join(f"{point.loss:6.3f}" for point in points)
        print(f"{name:24s} {losses} km")

    figure, axes = chart_figure(7.6, 5, "What privacy costs")
    for (name, points), look in zip(curves.items(), cycle(LINE_STYLES), strict=False):
        losses = [point.loss for point in points]
        axes.plot(epsilons, losses, **look, linewidth=2, label=name)
    bounds = [
        max(points[k].lower_bound or 0 for points in curves.values()) for k in range(len(epsilons))
    ]
    axes.fill_between(epsilons, bounds, color=GRID, zorder=0, label="below the bound: no table")
    axes.set(xscale="log", xlabel="epsilon [1/km] (more privacy to the left)")
    axes.set(ylabel="expected loss [km]", ylim=(0, None))
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.minorticks_off()
    axes.legend(frameon=False)
    return plot.save_figure(figure, out / "compare_methods.png")


if __name__ == "__main__":
    print("drawn to", main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("out/examples")))
