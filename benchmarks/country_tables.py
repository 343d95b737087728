"""Maps of a country and of three cities as one domain, and the tables that `country.py` serves.

    python benchmarks/country_tables.py --records 1000000 --backend jax --tables FOLDER
    python benchmarks/country_tables.py --cities --records 300000 --backend jax --tables FOLDER
    python benchmarks/country_tables.py --records 1000000 --outputs 1000 --needed

A country: records over 400 x 400 km in 400 towns of Pareto size, some of them to report. Cities:
so many junctions of Rome, London and New York, or all, in one domain (`PANDA_MDP_DATA` names the
folder of the road maps). The loss is the distance. A table is solved for all of epsilon and for
what every one of `SPLITS` leaves, and kept in its compact form in FOLDER, where it is not solved
again; solving needs nothing but the library, so it can be done on another machine. `--needed` says
what of an accelerator's memory a solve takes, by the rule that refuses those that do not fit, and
solves nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np

import panda_mdp as pm
from panda_mdp.loss import DistanceLoss
from panda_mdp.methods.optimal.program import TILING, Tiling, constraint_graph
from panda_mdp.space.tiles import order_in_space
from panda_mdp.table.mechanism import audited_table

ROOT = Path(__file__).resolve().parent.parent
KM = 1 / 111.2
EPSILON = 5.0
SPLITS = ((1.0, 0.2), (2.0, 0.15), (3.0, 0.1), (0.5, 0.225), (1.0, 0.6), (1.0, 1.0))
"""What the centre and the fading at the edge cost, of epsilon 5 per km; the first is served."""
ROOM = 1.5e-3
"""Share of epsilon that compact forms may use."""
CITIES = ("rome", "london", "nyc")


def country(records: int) -> tuple[np.ndarray, np.ndarray]:
    """Latitudes and longitudes in towns."""
    rng = np.random.default_rng(0)
    towns = rng.random((400, 2)) * 400
    size = rng.pareto(1.2, len(towns)) + 1
    home = rng.choice(len(towns), records, p=size / size.sum())
    east, north = (towns[home] + rng.normal(size=(records, 2)) * 4 - 200).T * KM
    return 42 + north, 12 + east / np.cos(np.deg2rad(42))


def cities(records: int) -> tuple[np.ndarray, np.ndarray]:
    """Latitudes and longitudes of junctions."""
    folder = Path(os.environ.get("PANDA_MDP_DATA", ROOT.parent / "shared" / "data"))
    found = [pm.load_city(folder / f"{name}.npz") for name in CITIES]
    lat, lon = (np.concatenate([getattr(city, side) for city in found]) for side in ("lat", "lon"))
    some = np.random.default_rng(0).permutation(len(lat))[:records]
    return lat[some], lon[some]


def domain_of(name: str, records: int, outputs: int) -> tuple[pm.Domain, np.ndarray]:
    """Places in an order in which near ones have near numbers, and those to report."""
    lat, lon = cities(records) if name == "cities" else country(records)
    places = np.unique(np.round(np.stack([lat, lon], axis=1), 6), axis=0)
    domain = pm.Domain.from_points(*places.T)
    order, _ = order_in_space(domain.metric.embedding, 64)
    rng = np.random.default_rng(1)
    chosen = np.sort(rng.choice(domain.size, outputs, replace=False))
    return domain.take(order), chosen


def given() -> argparse.ArgumentParser:
    """What both programs are asked."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__.split("\n")[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--cities", action="store_true", help="records of three, not of a country")
    parser.add_argument("--outputs", type=int, default=100)
    parser.add_argument("--splits", type=int, default=1, help="how many of SPLITS, from the first")
    parser.add_argument("--gap", type=float, default=0.03)
    parser.add_argument("--backend", default="auto", choices=["auto", "cpu", "jax"])
    parser.add_argument("--needed", action="store_true", help="the memory of a solve, by rule")
    parser.add_argument("--tables", type=Path, default=ROOT / "out")
    return parser


def needed(options: argparse.Namespace) -> None:
    """Print what a solve would take of an accelerator's memory, in tiles and as one."""
    from panda_mdp.compute.jax.device import ladder
    from panda_mdp.methods.optimal.jax_solver import bytes_needed

    domain, outputs = domain_of("country", options.records, options.outputs)
    problem = pm.Problem(domain, outputs, DistanceLoss(domain, outputs), EPSILON)
    graph = constraint_graph(domain, EPSILON)
    print(f"{domain.size:,} records, {len(outputs):,} outputs, {graph.count:,} edges")
    for tiling in (Tiling.reaching(problem, graph, TILING.nats), Tiling.whole(problem)):
        seen = tiling.sees.sum(axis=0)
        nodes, edges = ladder(int(seen.sum()) + 1), ladder(int(seen[graph.ends].min(axis=1).sum()))
        count, width = tiling.tiles.shape
        print(
            f"{count:,} tiles of {width:,} outputs, {tiling.share:.3f} of the table: {nodes:,} "
            f"nodes, {edges:,} edges, {bytes_needed(nodes, edges, width) / 1e9:.1f} GB"
        )


def tables(options: argparse.Namespace) -> dict[float, Path]:
    """The compact table at every epsilon, by epsilon; solved where it is not there."""
    options.tables.mkdir(parents=True, exist_ok=True)
    name = "cities" if options.cities else "country"
    domain, outputs = domain_of(name, options.records, options.outputs)
    print(
        f"{name}: {domain.size:,} records, {len(outputs)} outputs, {EPSILON:g} per km", flush=True
    )
    paths = {}
    for spent in (0.0, *(sum(split) for split in SPLITS[: options.splits])):
        epsilon = EPSILON - spent
        path = options.tables / f"{name}-{domain.size}-{len(outputs)}-{epsilon:g}.pmdp"
        paths[epsilon] = path
        if path.exists():
            continue
        losses = pm.distance_loss(domain, outputs)
        problem = pm.Problem(domain, outputs, losses, epsilon)
        # Solved from losses that are written out, with room for what a compact form rounds: it
        # then needs no closing, which machines without numba do slowly.
        parts = [losses[some] for some in np.array_split(np.arange(domain.size), 64)]
        within = pm.Problem(domain, outputs, np.concatenate(parts), epsilon * (1 - ROOM))
        began, used = time.perf_counter(), time.process_time()
        made = pm.optimal(within, options.gap, backend=options.backend, time_limit=3_600)
        solved = time.perf_counter()
        table = audited_table(problem, made.weights, made.method)
        if not isinstance(table, pm.Mechanism):
            raise SystemExit(f"the table is not private at {epsilon:g}: {table.audit}")
        pm.compact(table).save(path)
        print(
            f"{epsilon:g} per km: {solved - began:.1f} s to {made!r}, compact in "
            f"{time.perf_counter() - solved:.1f} s, {path.stat().st_size:,} bytes; "
            f"{time.process_time() - used:.0f} s of processor",
            flush=True,
        )
    return paths


if __name__ == "__main__":
    asked = given().parse_args()
    (needed if asked.needed else tables)(asked)
