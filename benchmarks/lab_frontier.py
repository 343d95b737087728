"""The frontier of loss and vulnerability, and each record's protection, as two pictures.

    python benchmarks/lab_frontier.py --out docs/images

A synthetic city of 200 places that may all be reported, displacement, 3 per km.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import panda_mdp as pm
from panda_mdp import plot


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
    points = plot.frontier(problem)
    for point in points:
        print(point)
    title = (
        f"What a little more loss buys: {chosen.records} places, epsilon {chosen.epsilon:g} per km"
    )
    figure = plot.draw_frontier(points, unit="km", title=title)
    print("drawn to", plot.save_figure(figure, chosen.out / "lab-frontier.png"))
    table = pm.optimal(problem)
    figure = plot.draw_attacker_error(table, city=city)
    print("drawn to", plot.save_figure(figure, chosen.out / "lab-protection.png"))


if __name__ == "__main__":
    main()
