"""What leaving outputs out gains: one problem with all outputs and with those that `prune` keeps.

    python benchmarks/pruning.py --data ../shared/data

Two samples of Rome, 2,000 junctions and 1,000 outputs each: all of the city, and its centre, where
outputs lie closer. Both are solved to the same certified gap about the problem with all outputs:
the pruned one to what its proved cost leaves of it.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np

import panda_mdp as pm

ROOT = Path(__file__).resolve().parent.parent


def samples(city: pm.City, records: int, outputs: int, seed: int) -> dict[str, pm.Problem]:
    """Random junctions of the whole city, and the ones nearest to its middle."""
    rng = np.random.default_rng(seed)
    middle = np.median(city.lat), np.median(city.lon)
    away = np.hypot(city.lat - middle[0], (city.lon - middle[1]) * np.cos(np.radians(middle[0])))
    inside = np.argsort(away)[: 2 * records]
    chosen = {
        "whole city": rng.choice(len(city.lat), records, replace=False),
        "centre": rng.choice(inside, records, replace=False),
    }
    found = {}
    for name, drawn in chosen.items():
        places = np.unique(np.stack([city.lat, city.lon], axis=1)[drawn], axis=0, return_index=True)
        nodes = np.sort(drawn[places[1]])
        domain = pm.Domain.from_points(city.lat[nodes], city.lon[nodes]).with_nodes(nodes)
        picked = rng.choice(domain.size, outputs, replace=False)
        loss = pm.travel_loss(city, domain, picked, rng.choice(domain.size, 1))
        found[name] = pm.Problem(domain, picked, loss, epsilon=5.0)
    return found


def compare(name: str, problem: pm.Problem, gap: float, share: float, limit: float) -> dict:
    """Both ways to one gap."""
    start = time.perf_counter()
    whole = pm.optimal(problem, gap=gap, backend="cpu", time_limit=limit)
    all_seconds = time.perf_counter() - start
    start = time.perf_counter()
    pruned = pm.prune(problem, cost=share * whole.loss)
    prune_seconds = time.perf_counter() - start
    left = gap - pruned.cost_bound / whole.loss
    table = pruned.expand(
        pm.optimal(pruned.problem, gap=0.9 * left, backend="cpu", time_limit=limit)
    )
    return {
        "sample": name,
        "records": problem.size,
        "outputs": problem.outputs_count,
        "kept": len(pruned.kept),
        "cost_bound_m": 1000 * pruned.cost_bound,
        "gap_asked": gap,
        "all": {"seconds": all_seconds, "gap": whole.gap, "loss_m": 1000 * whole.loss},
        "pruned": {
            "seconds": time.perf_counter() - start,
            "prune_seconds": prune_seconds,
            "gap": table.gap,
            "loss_m": 1000 * table.loss,
            "holds": table.audit.holds,
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--outputs", type=int, default=1000)
    parser.add_argument("--gap", type=float, default=0.03)
    parser.add_argument("--share", type=float, default=0.01, help="of the loss, for pruning")
    parser.add_argument("--limit", type=float, default=150.0)
    options = parser.parse_args()
    folder = options.data or Path(os.environ.get("PANDA_MDP_DATA", ROOT.parent / "shared/data"))
    path = folder / "rome.npz"
    city = pm.load_city(path) if path.exists() else pm.synthetic_city(2 * options.records)
    pm.optimal(samples(pm.synthetic_city(400), 100, 8, 0)["centre"], backend="cpu")  # compiles
    for name, problem in samples(city, options.records, options.outputs, 0).items():
        print(json.dumps(compare(name, problem, options.gap, options.share, options.limit)))


if __name__ == "__main__":
    main()
