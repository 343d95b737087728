"""The optimal mechanism of a whole city in pictures, and as a compact file.

    python benchmarks/whole_city.py --city ../shared/data/rome.npz

Solves the paper's set-up on every junction to a certified gap, writes the compact file that phones
would fetch, reads it back (which audits it over all pairs), and draws where one record's reports go
and what each junction loses: docs/images/whole-city-*.png.
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--city", type=Path, required=True)
    parser.add_argument("--gap", type=float, default=0.02)
    parser.add_argument("--records", type=int, help="a sample instead of all junctions")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    city = pm.load_city(options.city)
    domain = city.domain(records=options.records, seed=options.seed)
    rng = np.random.default_rng(options.seed)
    outputs = rng.choice(domain.size, 100, replace=False)
    task = rng.choice(domain.size, 1, replace=False)
    problem = pm.Problem(domain, outputs, pm.travel_loss(city, domain, outputs, task), 5.0)
    start = time.perf_counter()
    best = pm.optimal(problem, gap=options.gap)
    print(f"{best!r}\n{best.audit}\n{time.perf_counter() - start:.1f} s")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        saved = best.save(folder / "city.pmdp")
        pm.save_compact(best, folder / "city.pmdc")
        table = pm.load_compact(folder / "city.pmdc")
        print(
            f"{saved.stat().st_size / 1e6:.1f} MB as .pmdp, "
            f"{table.size_bytes / 1e6:.2f} MB compact, "
            f"loss {100 * table.loss_cost:+.2f} %, audit {table.audit}"
        )
        # A record whose reports travel: half way out from the task.
        away = domain.distances(task, None)[0]
        record = int(np.argsort(away)[len(away) // 2])
        title = f"{options.city.stem.title()}: all {domain.size:,} junctions"
        pictures = {
            "record": plot.draw_record(best, record, city=city, tasks=task, title=title),
            "loss": plot.draw_expected_loss(best, city=city, title=title),
        }
        for kind, figure in pictures.items():
            reduced(plot.save_figure(figure, folder / f"{kind}.png"), f"whole-city-{kind}")


if __name__ == "__main__":
    main()
