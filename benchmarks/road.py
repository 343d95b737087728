"""The optimum under road distance, with its certificate, on a real map.

    python benchmarks/road.py                          # Rome, 500 and 1,000 records; its centre
    python benchmarks/road.py --records 2000 --seconds 120

Two settings: a sample of all of the city's nodes, where the constraints are the pairs of records
whose shortest way passes no other record; and a part of the city in which every node is a record,
where the constraints are the streets themselves. The straight line stands beside.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np

import panda_mdp as pm
from panda_mdp.methods.optimal.program import constraint_graph

DATA = Path(os.environ.get("PANDA_MDP_DATA", Path(__file__).resolve().parents[2] / "shared/data"))


def measure(name: str, city: pm.City, records: int | None, outputs: int, seconds: float) -> None:
    start = time.process_time()
    by_road = city.road_domain(records, seed=0)
    formed = time.process_time() - start
    nodes = by_road.nodes
    if nodes is None:
        raise SystemExit("a road domain knows its nodes")
    straight = pm.Domain.from_points(city.lat[nodes], city.lon[nodes]).with_nodes(nodes)
    rng = np.random.default_rng(1)
    chosen = rng.choice(by_road.size, outputs, replace=False)
    tasks = rng.choice(by_road.size, 1)
    edges = constraint_graph(by_road, 5.0).count
    print(f"{name}: {by_road.size:,} records, {outputs} outputs, one task, epsilon 5 per km")
    print(
        f"  edges between records (up to {by_road.diameter:.1f} km apart) in {formed:.1f} CPU s; "
        f"{edges:,} pairs constrain"
    )
    for label, domain in (("road", by_road), ("straight", straight)):
        loss = pm.travel_loss(city, domain, chosen, tasks)
        problem = pm.Problem(domain, chosen, loss, 5.0)
        start = time.process_time()
        best = pm.optimal(problem, gap=0.01, time_limit=seconds)
        spent = time.process_time() - start
        bound = best.lower_bound or 0.0
        print(
            f"  {label:9s} loss {1000 * best.loss:6.1f} m, no table below {1000 * bound:6.1f} m "
            f"(gap {100 * (best.gap or 0):.2f} %), audited epsilon {best.audit.epsilon:.6f} over "
            f"{best.audit.pairs:,} pairs, {spent:.1f} CPU s ({best.details['stopped']})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="The optimum under road distance.")
    parser.add_argument("--records", type=int, nargs="*", default=[500, 1000])
    parser.add_argument("--outputs", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    rome = pm.load_city(DATA / "rome.npz")
    for records in arguments.records:
        measure("all of Rome", rome, records, arguments.outputs, arguments.seconds)
    centre = (np.abs(rome.lat - 41.895) < 0.012) & (np.abs(rome.lon - 12.485) < 0.016)
    part = rome.take(np.flatnonzero(centre)).largest_component()
    outputs = min(arguments.outputs, part.nodes // 8)
    measure("Rome's centre, every node", part, None, outputs, arguments.seconds)


if __name__ == "__main__":
    main()
