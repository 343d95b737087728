"""The pictures of docs/gallery.md, small and drawn in seconds.

python .ci/gallery.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import panda_mdp as pm
from panda_mdp import plot
from panda_mdp.meaning.estimate import cells, estimate_pairs, zone_matrix
from panda_mdp.plot.estimates import draw_density, draw_flows, draw_lengths, draw_shares


def draw_gallery(folder: Path) -> list[Path]:
    """Draw everything; the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    city = pm.synthetic_city(nodes=2000, seed=0)
    domain = city.domain(records=400, seed=0)
    outputs = np.arange(60)
    problem = pm.Problem(domain, outputs, pm.travel_loss(city, domain, outputs, [70]), epsilon=5.0)
    table, plain = pm.loss_exponential(problem), pm.exponential(problem)
    zones = [f"zone {k + 1}" for k in cells(domain.plane, domain.size, 9)]
    rng = np.random.default_rng(0)
    near = rng.dirichlet(np.full(domain.size, 0.2))
    ends = rng.choice(domain.size, (20_000, 2), p=near)
    every = pm.exponential(pm.Problem(domain, range(400), domain.distances(), epsilon=8.0))
    drawn = every.simulate(0).sample(ends.reshape(-1)).reshape(-1, 2)
    _, members = zone_matrix(zones, domain)
    found = pm.estimate(drawn[:, 0], every, zones)
    before = np.bincount(ends[:, 0], minlength=domain.size)[None] @ members / len(ends)
    pairs = np.zeros((400, 400))
    np.add.at(pairs, tuple(drawn.T), 1)
    flows = estimate_pairs(pairs, every, zones)
    figures = {
        "city": plot.draw_city(city, domain=domain),
        "record": plot.draw_record(plain, 17, city=city),
        "loss": plot.draw_expected_loss(table, city=city),
        "local": plot.draw_local_epsilon(table, city=city),
        "attacker": plot.draw_attacker_error(plain, city=city),
        "shares": draw_shares(found, before=before),
        "density": draw_density(found, domain, zones),
        "flows": draw_flows(flows),
        "lengths": draw_lengths(flows, domain, zones),
    }
    return [plot.save_figure(figure, folder / f"{n}.png") for n, figure in figures.items()]


if __name__ == "__main__":
    print(*draw_gallery(Path(sys.argv[1] if len(sys.argv) > 1 else "out/gallery")), sep="\n")
