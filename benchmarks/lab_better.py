"""Better than today's approximate location by every measure at once: one table, one picture.

    python benchmarks/lab_better.py ../shared/data/rome.npz --out docs/images/lab-better.png

Some places in the middle of a city, every one of them an output, displacement as the loss. All
tables have the mean displacement of Android's grid: planar Laplace with a remap and `optimal` by
their epsilons, the table of `pm.dominate` at the epsilon of Laplace. Guesses lie anywhere; all
numbers are exact sums.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

import panda_mdp as pm
from panda_mdp.city.draw import find_city
from panda_mdp.methods.certify import print_progress
from panda_mdp.methods.references import android_grid, at_displacement
from panda_mdp.plot import save_figure
from panda_mdp.plot.style import BLUE, GREEN, INK, VERMILION, new_figure, plain_axes
from panda_mdp.table.mechanism import Table

RADII = (0.1, 0.2, 0.5)
COLOURS = (INK, VERMILION, BLUE, GREEN)


def row(name: str, table: Table) -> dict[str, object]:
    """Every measure of one table."""
    seen = pm.attack(table, radii=RADII)
    return {
        "table": name,
        "epsilon": table.problem.epsilon if isinstance(table, pm.Mechanism) else None,
        "displacement_km": table.loss,
        "error_km": seen.error,
        "right_place": seen.vulnerability,
        **{f"within_{radius:g}_km": seen.located[radius] for radius in RADII},
        "most_hit_record": seen.most_hit,
    }


def draw(rows: list[dict[str, object]], path: Path, title: str) -> None:
    """Bars of every measure, beside each other."""
    names = ["right_place", *(f"within_{radius:g}_km" for radius in RADII)]
    figure = new_figure(9.5, 4.6)
    figure.suptitle(title, x=0.015, ha="left", color=INK, fontsize=11.5)
    axes = figure.subplots()
    width = 0.8 / len(rows)
    for k, told in enumerate(rows):
        at = np.arange(len(names)) + (k - (len(rows) - 1) / 2) * width
        heights = [100 * float(told[name]) for name in names]
        axes.bar(at, heights, width * 0.92, color=COLOURS[k], label=str(told["table"]))
        for x, height in zip(at, heights, strict=True):
            axes.annotate(f"{height:.1f}", (x, height), ha="center", va="bottom", fontsize=7.5)
    labels = ["right place", *(f"within {1000 * radius:.0f} m" for radius in RADII)]
    axes.set_xticks(range(len(names)), labels)
    axes.set_ylabel("% of reports after which the best guess is so near")
    plain_axes(axes)
    axes.legend(loc="upper left", frameon=False)
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("city")
    parser.add_argument("--records", type=int, default=250)
    parser.add_argument("--time-limit", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/lab/better.png"))
    chosen = parser.parse_args()
    city = find_city(chosen.city, chosen.records, chosen.seed)
    whole = city.domain(None, chosen.seed)
    middle = int(((whole.plane - np.median(whole.plane, axis=0)) ** 2).sum(axis=1).argmin())
    near = np.argsort(whole.distances([middle], None)[0])[: 20 * chosen.records]
    rng = np.random.default_rng(chosen.seed)
    domain = whole.take(np.sort(rng.choice(near, chosen.records, replace=False)))
    problem = pm.Problem(domain, np.arange(domain.size), domain.distances(), 1.0)
    android = android_grid(problem)
    laplace = at_displacement(problem, lambda at: pm.remap(pm.planar_laplace(at)), android.loss)
    plain = at_displacement(problem, lambda at: pm.optimal(at, gap=0.02), android.loss)
    ours = pm.dominate(
        problem.with_epsilon(laplace.problem.epsilon),
        android,
        time_limit=chosen.time_limit,
        progress=print_progress,
    )
    tables = {
        "Android's grid, no guarantee": android,
        "planar Laplace + remap": laplace,
        "optimal": plain,
        "ours, against Android's grid": ours,
    }
    rows = [row(name, table) for name, table in tables.items()]
    for told in rows:
        print(json.dumps(told), flush=True)
    facts = ours.details["dominates"]
    print(json.dumps({name: facts[name] for name in ("factor", "bound", "holds", "error", "loss")}))
    title = f"{city.name or 'City'}: {domain.size} places, mean displacement {android.loss:.2f} km"
    draw(rows, chosen.out, title)
    print("drawn to", chosen.out)


if __name__ == "__main__":
    main()
