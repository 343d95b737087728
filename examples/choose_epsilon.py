"""Choose epsilon: what it means in metres and odds, and what it costs.

    python examples/choose_epsilon.py [FOLDER]

Whatever an observer believed before, one report changes the odds between two places at distance d
by at most exp(epsilon d). Prints that factor, and how far reports really fall; draws both
(choose_epsilon.png).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import panda_mdp as pm
from panda_mdp import plot
from panda_mdp.plot.style import INK, MARKERS, PALETTE, new_figure, plain_axes

DISTANCES_M = (50, 100, 200, 500, 1000)


def main(
    out: Path = Path("out/examples"),
    records: int = 800,
    epsilons: Sequence[float] = (0.5, 1, 2, 5, 10, 20),
) -> Path:
    city = pm.synthetic_city(nodes=5000, seed=0)
    domain = city.domain(records=records, seed=0)
    outputs = np.random.default_rng(0).choice(domain.size, records // 4, replace=False)
    problem = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), 1.0)

    print(
        "epsilon | odds change by less than 2 within | by at most, at a distance of | report off by"
    )
    print(
        "  [/km] |                                   | "
        + " ".join(f"{d:4d} m" for d in DISTANCES_M)
    )
    displacement = []
    for epsilon in epsilons:
        table = pm.exponential(problem.with_epsilon(epsilon), tight=True)
        displacement.append(table.loss)
        factors = " ".join(f"{np.exp(epsilon * d / 1000):6.3g}" for d in DISTANCES_M)
        half = 1000 * np.log(2) / epsilon
        print(f"{epsilon:7g} | {half:31.0f} m | {factors} | {table.loss:8.2f} km")
    # A report that knows nothing is off by this much: no epsilon costs more.
    blind = float((problem.prior @ problem.loss).min())
    print(f"reporting always the same place is off by {blind:.2f} km")
    return plot.save_figure(draw(epsilons, displacement, blind), out / "choose_epsilon.png")


def draw(epsilons: Sequence[float], displacement: Sequence[float], blind: float) -> Figure:
    figure = new_figure(11, 4.6)
    left, right = figure.subplots(1, 2)
    metres = np.linspace(0, 1000, 200)
    for k, epsilon in enumerate(epsilons):
        factor = np.exp(epsilon * metres / 1000)
        shown = factor <= 1000
        colour = PALETTE[k % len(PALETTE)]
        left.plot(metres[shown], factor[shown], color=colour, linewidth=2)
        left.annotate(
            f"{epsilon:g} per km", (metres[shown][-1], factor[shown][-1]), xytext=(4, -2),
            textcoords="offset points", color=colour, weight="bold", annotation_clip=False,
        )  # fmt: skip
        right.plot(epsilon, displacement[k], MARKERS[k], color=colour, markersize=9)
    left.set_yscale("log")
    left.set_xlim(0, 1150)
    left.set_ylim(1, 1500)
    left.set_yticks([1, 2, 10, 100, 1000], ["1", "2", "10", "100", "1,000"])
    left.set_xlabel("distance of two places [m]")
    left.set_ylabel("odds change by a factor of at most")
    left.set_title("What an observer can learn from one report", loc="left", color=INK)
    right.plot(epsilons, displacement, color=INK, linewidth=1, zorder=1)
    right.axhline(blind, color=INK, linestyle="--", linewidth=1)
    right.annotate("always the same report", (epsilons[-1], blind), xytext=(0, 4),
                   textcoords="offset points", ha="right")  # fmt: skip
    right.set_xscale("log")
    right.set_xticks(list(epsilons), [f"{epsilon:g}" for epsilon in epsilons])
    right.minorticks_off()
    right.set_ylim(bottom=0)
    right.set_xlabel("epsilon [1/km]")
    right.set_ylabel("mean distance of the report from the place [km]")
    right.set_title("What it costs", loc="left", color=INK)
    for axes in (left, right):
        plain_axes(axes)
    return figure


if __name__ == "__main__":
    print("drawn to", main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("out/examples")))
