"""Better than today's approximate location by every measure at once, and from which epsilon on.

    python benchmarks/lab_better.py rome.npz london.npz nyc.npz --out docs/images/lab-better.png

Some places in the middle of each city, every one of them an output, displacement as the loss. The
tables beside each other have the mean displacement of Android's grid: planar Laplace with a remap
and `optimal` by their epsilons, the table of `pm.dominate`, against Android's grid and Laplace at
once, at the epsilon of Laplace. Guesses lie anywhere; all numbers are exact sums. `least_epsilon`
looks for the least epsilon at which each reference is beaten at its own displacement; between the
two numbers it prints nothing is known. With --neighbours a second table minds, as one more measure,
the place that is told best from so many nearest ones. Limits are seconds of the processor, or of
the clock where another backend is named.

    python benchmarks/lab_better.py rome.npz --records 5000 --alone --decide 0 --seconds 150

--alone makes the table of `pm.dominate` and its references, and says what they took.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

import numpy as np

import panda_mdp as pm
from panda_mdp.city.draw import find_city
from panda_mdp.meaning.epsilon import least_epsilon
from panda_mdp.methods.certify import Budget
from panda_mdp.methods.references import android_grid, at_displacement, decimals
from panda_mdp.methods.second.dominate import least_factor, measures_of
from panda_mdp.plot import save_figure
from panda_mdp.plot.style import BLUE, GREEN, INK, PURPLE, VERMILION, new_figure, plain_axes
from panda_mdp.table.mechanism import Table

RADII = (0.1, 0.2, 0.5)
COLOURS = (INK, VERMILION, BLUE, GREEN, PURPLE)
BARS = {
    "right_place": "right place",
    **{f"within_{radius:g}_km": f"within {1000 * radius:.0f} m" for radius in RADII},
    "worst_within_0.2_km": "within 200 m,\nworst place",
}


def row(city: str, name: str, table: Table) -> dict[str, object]:
    """Every measure of one table."""
    seen = pm.attack(table, radii=RADII)
    told = {
        "city": city,
        "table": name,
        "epsilon": table.problem.epsilon if isinstance(table, pm.Mechanism) else None,
        "displacement_km": table.loss,
        "error_km": seen.error,
        "right_place": seen.vulnerability,
        **{f"within_{radius:g}_km": seen.located[radius] for radius in RADII},
        "worst_within_0.2_km": seen.most_located[0.2],
    }
    print(json.dumps(told), flush=True)
    return told


def draw(rows: list[dict[str, object]], path: Path) -> None:
    """Bars of every measure, beside each other, one panel for each city."""
    cities = list(dict.fromkeys(str(told["city"]) for told in rows))
    figure = new_figure(9.5, 0.9 + 3.1 * len(cities))
    panels = np.atleast_1d(figure.subplots(len(cities), 1))
    for axes, city in zip(panels, cities, strict=True):
        own = [told for told in rows if told["city"] == city]
        width = 0.8 / len(own)
        for k, told in enumerate(own):
            at = np.arange(len(BARS)) + (k - (len(own) - 1) / 2) * width
            heights = [100 * float(told[name]) for name in BARS]
            axes.bar(at, heights, width * 0.92, color=COLOURS[k], label=str(told["table"]))
            for x, height in zip(at, heights, strict=True):
                axes.annotate(f"{height:.1f}", (x, height), ha="center", va="bottom", fontsize=7.5)
        axes.set_xticks(range(len(BARS)), BARS.values())
        axes.set_ylabel("% of reports after which\nthe best guess is so near")
        axes.set_title(
            f"{city}, mean displacement {own[0]['displacement_km']:.2f} km", loc="left", color=INK
        )
        axes.margins(y=0.12)
        plain_axes(axes)
    panels[0].legend(loc="upper left", frameon=False)
    save_figure(figure, path)


def middle_of(file: str, records: int, seed: int) -> pm.Domain:
    """Places drawn from those in the middle of a city, twenty times as many."""
    whole = find_city(file, records, seed).domain(None, seed)
    middle = int(((whole.plane - np.median(whole.plane, axis=0)) ** 2).sum(axis=1).argmin())
    near = np.argsort(whole.distances([middle], None)[0])[: 20 * records]
    drawn = np.random.default_rng(seed).choice(near, records, replace=False)
    return whole.take(np.sort(drawn))


def budget(seconds: float, backend: str = "cpu") -> Budget:
    """So much of the processor for each of the two solves of a table, whatever else runs; of the
    clock where others wait for an accelerator."""
    clock = time.process_time if backend == "cpu" else time.perf_counter
    return Budget(0.005, 2 * seconds, clock=clock)


class Spent:
    """What parts took: seconds by the clock and of all cores, and the most memory so far."""

    def __init__(self) -> None:
        self.began = time.perf_counter(), time.process_time()

    def tell(self, part: str) -> None:
        """A line, and what follows begins."""
        now = time.perf_counter(), time.process_time()
        clock, cores = (b - a for a, b in zip(self.began, now, strict=True))
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{part}: {clock:.1f} s, {cores:.1f} s of all cores, {most:.0f} MB", flush=True)
        self.began = now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cities", nargs="+")
    parser.add_argument("--records", type=int, default=120)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--decide", type=float, default=10.0, help="0: no least epsilons")
    parser.add_argument("--neighbours", type=int, default=0, help="a table that minds the worst")
    parser.add_argument("--alone", action="store_true", help="ours and the references, no picture")
    parser.add_argument("--backend", default="cpu", choices=("cpu", "jax"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/lab/better.png"))
    chosen = parser.parse_args()
    rows = []
    for file in chosen.cities:
        name, spent = Path(file).stem, Spent()
        domain = middle_of(file, chosen.records, chosen.seed)
        problem = pm.Problem(domain, np.arange(domain.size), domain.distances(), 1.0)
        android = android_grid(problem)
        laplace = at_displacement(problem, lambda at: pm.remap(pm.planar_laplace(at)), android.loss)
        at = problem.with_epsilon(laplace.problem.epsilon)
        both, made = [android, laplace], {}
        spent.tell("references")
        for near in dict.fromkeys((0, chosen.neighbours)):
            measures = measures_of(at, both, RADII, neighbours=near)
            spent.tell("what guesses gain from them")
            limit = budget(chosen.seconds, chosen.backend)
            made[near] = least_factor(at, both, measures, limit, backend=chosen.backend)
            spent.tell("a table against both")
            facts = made[near].details["dominates"]
            print(json.dumps({key: facts[key] for key in ("factor", "bound", "holds", "error")}))
            print(json.dumps({"stages": made[near].stages, "measures": facts["measures"]}))
        if chosen.alone:
            continue
        plain = at_displacement(problem, lambda at: pm.optimal(at, gap=0.02), android.loss)
        rows += [
            row(name, "Android's grid, no guarantee", android),
            row(name, "planar Laplace + remap", laplace),
            row(name, "optimal", plain),
            *(
                row(name, f"ours, against both{f', {near} neighbours' * bool(near)}", ours)
                for near, ours in made.items()
            ),
        ]
        references = {
            "Android's grid": android,
            "planar Laplace + remap": laplace,
            "rounding to 2 decimals": decimals(problem, 2),
        }
        for reference, table in references.items() if chosen.decide else ():
            found, none_at = least_epsilon(at, table, radii=RADII, budget=budget(chosen.decide))
            told = {"city": name, "beaten": reference, "displacement_km": table.loss}
            told |= {"at_epsilon": found.epsilon, "at_none_up_to": none_at}
            told["guarantee"] = table.epsilon if isinstance(table, pm.Mechanism) else None
            print(json.dumps(told), flush=True)
    if rows:
        draw(rows, chosen.out)
        print("drawn to", chosen.out)


if __name__ == "__main__":
    main()
