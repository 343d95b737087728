"""The frontier of loss and vulnerability, and each record's protection, as two pictures.

    python benchmarks/lab_frontier.py --out docs/images

A synthetic city of 200 places that may all be reported, displacement, 3 per km.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import panda_mdp as pm
from panda_mdp import plot
from panda_mdp.plot.style import BLUE, INK, VERMILION, new_figure, plain_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SLACKS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)


@dataclass(frozen=True)
class FrontierPoint:
    """One table of the frontier: its slack, loss, the objective with its bound, the error."""

    slack: float
    loss: float
    value: float
    bound: float
    error: float


def frontier(problem: pm.Problem, gap: float = 0.01) -> list[FrontierPoint]:
    """The optimum, and the tables whose second objective was made best within each slack."""
    first = pm.optimal(problem, gap, backend="cpu")
    error = pm.attack(first, radii=()).error
    points = [FrontierPoint(0.0, first.loss, float("nan"), float("nan"), error)]
    for slack in SLACKS:
        table = pm.second_objective(first, "vulnerability", slack)
        facts = table.details["second"]
        points[0] = replace(points[0], value=facts["before"])
        error = pm.attack(table, radii=()).error
        points.append(FrontierPoint(slack, table.loss, facts["value"], facts["bound"], error))
    return points


def draw_frontier(points: Sequence[FrontierPoint], title: str) -> Figure:
    """Loss against how often a guess is right, with the proven bound, and the attacker's error."""
    figure = new_figure(10, 4.4)
    figure.suptitle(title, x=0.015, ha="left", color=INK)
    left, right = figure.subplots(1, 2)
    loss = [point.loss for point in points]
    left.plot(loss, [100 * p.value for p in points], "o-", color=BLUE, label="reached")
    left.plot(
        loss[1:], [100 * p.bound for p in points[1:]], "_", color=VERMILION, markersize=14,
        markeredgewidth=2, label="no private table of this loss has less",
    )  # fmt: skip
    left.set_ylabel("best guess of the record is right [%]")
    left.set_ylim(bottom=0)
    left.legend(frameon=False)
    right.plot(loss, [point.error for point in points], "o-", color=BLUE)
    right.set_ylabel("best attacker off by [km]")
    for axes in (left, right):
        axes.set_xlabel("expected loss [km]")
        plain_axes(axes)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/lab"))
    parser.add_argument("--records", type=int, default=200)
    parser.add_argument("--epsilon", type=float, default=3.0)
    chosen = parser.parse_args()
    city = pm.synthetic_city(nodes=2000, seed=0)
    domain = city.domain(records=chosen.records, seed=0)
    outputs = range(domain.size)
    problem = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), chosen.epsilon)
    points = frontier(problem)
    for point in points:
        print(point)
    title = (
        f"What a little more loss buys: {chosen.records} places, epsilon {chosen.epsilon:g} per km"
    )
    figure = draw_frontier(points, title)
    print("drawn to", plot.save_figure(figure, chosen.out / "lab-frontier.png"))
    table = pm.optimal(problem)
    figure = plot.draw_attacker_error(table, city=city)
    print("drawn to", plot.save_figure(figure, chosen.out / "lab-protection.png"))


if __name__ == "__main__":
    main()
