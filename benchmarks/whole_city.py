"""The optimal mechanism of a whole city in pictures, and as a compact file.

    python benchmarks/whole_city.py --city rome.npz
    python benchmarks/whole_city.py --city rome.npz --any-place --records 5000

Solves the paper's set-up on every junction to a certified gap, writes the compact file that phones
would fetch, reads it back (which audits it over all pairs), and draws where one record's reports go
and what each junction loses: docs/images/whole-city-*.png. With `--any-place` every record may be
reported and the loss is the displacement: docs/images/any-place-*.png. `--table` draws a table that
was saved.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from pictures import reduced

import panda_mdp as pm
from panda_mdp import plot
from panda_mdp.base.arrays import IntArray

EPSILON = 5.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--city", type=Path, required=True)
    parser.add_argument("--gap", type=float, default=0.02)
    parser.add_argument("--records", type=int, help="a sample instead of all junctions")
    parser.add_argument("--any-place", action="store_true", help="every record may be reported")
    parser.add_argument("--table", type=Path, help="draw this saved table and solve nothing")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    city = pm.load_city(options.city)
    if options.table:
        best = pm.load(options.table)
    else:
        start = time.perf_counter()
        best = pm.optimal(question(city, options), gap=options.gap)
        print(f"{time.perf_counter() - start:.1f} s")
    print(f"{best!r}\n{best.audit}")
    domain = best.problem.domain
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        saved = best.save(folder / "city.pmdp")
        short = pm.compact(best).save(folder / "short.pmdp")
        table = pm.load(short)
        print(
            f"{saved.stat().st_size / 1e6:.1f} MB as .pmdp, "
            f"{short.stat().st_size / 1e6:.2f} MB compact, "
            f"loss {100 * table.details['compact']['loss_cost']:+.2f} %, audit {table.audit}"
        )
        task = task_of(domain, options.seed)
        # A record whose reports travel: half way out from the task.
        away = domain.distances(task, None)[0]
        record = int(np.argsort(away)[len(away) // 2])
        every = "all" if domain.size == city.nodes else f"{domain.size:,} of"
        title = f"{options.city.stem.title()}: {every} {city.nodes:,} junctions"
        tasks = None if options.any_place else task
        pictures = {
            "record": plot.draw_record(best, record, city=city, tasks=tasks, title=title),
            "loss": plot.draw_expected_loss(best, city=city, title=title),
        }
        for kind, figure in pictures.items():
            kept = "any-place" if options.any_place else "whole-city"
            reduced(plot.save_figure(figure, folder / f"{kind}.png"), f"{kept}-{kind}")


def task_of(domain: pm.Domain, seed: int) -> IntArray:
    rng = np.random.default_rng(seed)
    rng.choice(domain.size, 100, replace=False)
    return rng.choice(domain.size, 1, replace=False)


def question(city: pm.City, options: argparse.Namespace) -> pm.Problem:
    domain = city.domain(records=options.records, seed=options.seed)
    if options.any_place:
        everyone = range(domain.size)
        return pm.Problem(domain, everyone, pm.distance_loss(domain, everyone), EPSILON)
    outputs = np.random.default_rng(options.seed).choice(domain.size, 100, replace=False)
    loss = pm.travel_loss(city, domain, outputs, task_of(domain, options.seed))
    return pm.Problem(domain, outputs, loss, EPSILON)


if __name__ == "__main__":
    main()
