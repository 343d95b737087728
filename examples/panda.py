"""PAnDA: a private ball of rows instead of the whole table, in a file that anybody can run.

    python examples/panda.py [FOLDER]

Draws the ball of one simulated user on the map (panda.png).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import panda_mdp as pm
from panda_mdp import plot


def main(out: Path = Path("out/examples"), records: int = 600, seconds: float = 20) -> Path:
    city = pm.synthetic_city(nodes=5000, seed=0)
    domain = city.domain(records=records, seed=0)
    rng = np.random.default_rng(0)
    outputs = rng.choice(domain.size, min(60, records), replace=False)
    loss = pm.distance_loss(domain, outputs)
    problem = pm.Problem(domain, outputs, loss, epsilon=10.0)

    # Phase I tells 3 per km by the centre of a ball, Phase II the rest by the report. The users
    # are simulated: only whoever simulates has their records.
    people = rng.choice(domain.size, 10)
    options = pm.PandaOptions(time_limit=seconds)
    run = pm.panda(problem, people, pm.BallAnchors(3.0), options=options)
    print(run)
    print(pm.audit_panda(run))

    # The file holds what is public, nothing of these users; reading it computes the account again.
    out.mkdir(parents=True, exist_ok=True)
    table = pm.load(run.save(out / "panda.pmdp"))
    print(f"loss {table.loss:.3f} km with {table.download:,} bytes, {table.guarantee}")

    # Both phases at once; or one selection, and what a further report from it costs.
    print("reported:", table.sample(17))
    centre = table.select(17)
    records = len(table.scheme.anchors(centre))
    print(f"a ball of {records} records; reported from it: {table.report(17, centre)}")
    print("another report from the same ball costs", table.further)

    figure = plot.draw_anchors(run, 0, city=city)
    return plot.save_figure(figure, out / "panda.png")


if __name__ == "__main__":
    print("drawn to", main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("out/examples")))
