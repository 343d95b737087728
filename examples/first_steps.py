"""First steps: a city, a problem, the best table for it, and a report.

    python examples/first_steps.py [FOLDER]

Draws where one record goes (first_steps.png) and a page to look around in (first_steps.html).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import panda_mdp as pm
from panda_mdp import plot


def main(out: Path = Path("out/examples"), records: int = 1000, seconds: float = 30) -> Path:
    # Records are places that a user may be at; outputs are places that may be reported.
    city = pm.synthetic_city(nodes=5000, seed=0)
    domain = city.domain(records=records, seed=0)
    rng = np.random.default_rng(0)
    outputs = rng.choice(domain.size, 60, replace=False)
    tasks = rng.choice(domain.size, 3, replace=False)

    # A wrong report costs what it changes in the travel to a task, in km.
    loss = pm.travel_loss(city, domain, outputs, tasks)
    problem = pm.Problem(domain, outputs, loss, epsilon=5.0)

    # The best table that keeps epsilon, with a bound that no table can pass, and an audit.
    best = pm.optimal(problem, gap=0.02, time_limit=seconds)
    print(f"expected loss {best.loss:.3f} km; no table is below {best.lower_bound:.3f} km")
    print(best.audit)

    # A user who is at a place reports one of the outputs.
    here = domain.snap(float(domain.lat[17]), float(domain.lon[17]), limit=0.5)
    report = best.sample(here.record)
    print(f"reported: {domain.lat[report]:.5f}, {domain.lon[report]:.5f}")

    middle = int(np.hypot(domain.lat - 45.0, (domain.lon - 10.0) * 0.7).argmin())
    plot.write_map(out / "first_steps.html", city=city, table=best, title="First steps")
    figure = plot.draw_record(best, middle, city=city, tasks=tasks)
    return plot.save_figure(figure, out / "first_steps.png")


if __name__ == "__main__":
    print("drawn to", main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("out/examples")))
