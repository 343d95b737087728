"""The demo: every method on one synthetic city."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console

from panda_mdp.city.draw import draw_problem
from panda_mdp.city.synthetic import synthetic_city
from panda_mdp.cli.frame import progress_console, working, write_json
from panda_mdp.cli.printing import best_bound, print_comparison, run_all
from panda_mdp.errors import SolverError
from panda_mdp.plot import draw_losses, draw_side_by_side, save_figure
from panda_mdp.plot.style import new_figure
from panda_mdp.survey.bench import Comparison, MethodRun
from panda_mdp.survey.registry import Method, methods
from panda_mdp.table.mechanism import Mechanism

SEED = 0
EPSILON = 5.0
COMPILING = "loading compiled loops; the first run on a machine compiles them, about a minute."


@dataclass(frozen=True)
class Demo:
    """What the demo runs, and at what size; every place travels to one task."""

    nodes: int = 5000
    records: int = 1000
    outputs: int = 100
    methods: tuple[Method, ...] = tuple(
        method for method in methods().values() if method.demo_seconds is not None
    )


WHOLE = Demo()


def run_demo(folder: Path, console: Console, demo: Demo = WHOLE) -> list[MethodRun]:
    """Run everything, print the table, write pictures, results and the best mechanism."""
    # Where nothing can be drawn, that is said before the work and not after it.
    new_figure(1, 1)
    folder.mkdir(parents=True, exist_ok=True)
    with working("building the city"):
        city = synthetic_city(demo.nodes, SEED)
        draw = draw_problem(city, demo.records, demo.outputs, 1, EPSILON, SEED)
        problem = draw.problem
    progress_console().print(COMPILING, soft_wrap=True)
    with working("compiling once"):
        Comparison(problem).compile_kernels(demo.methods)
    limits = tuple(method.demo_seconds for method in demo.methods)
    outcomes = list(run_all(demo.methods, problem, limits))
    print_comparison(console, outcomes, "Synthetic city, 1 task")
    tables = (o for o in outcomes if o.holds and o.weights is not None)
    ranked = sorted(tables, key=lambda o: o.loss or 0.0)
    if not ranked:
        raise SolverError("no method gave a private table in its time; the lines above say why")
    with working("drawing"):
        shown = panels(outcomes, ranked)
        save_figure(draw_side_by_side(city, draw.tasks, shown), folder / "map.png")
        save_figure(draw_losses(outcomes, best_bound(outcomes)), folder / "chart.png")
    write_json(folder / "results.json", [outcome.row() for outcome in outcomes])
    best = ranked[0]
    mechanism = Mechanism(problem, np.asarray(best.weights), best.method.label, best.bound)
    saved = mechanism.save(folder / "best.pmdp")
    console.print(f"Wrote map.png, chart.png, results.json and best.pmdp to {folder}.")
    console.print(
        f"Try: panda-mdp perturb {saved}, which asks for a place and draws a report", soft_wrap=True
    )
    return outcomes


def panels(outcomes: list[MethodRun], ranked: list[MethodRun]) -> list[MethodRun]:
    """What the picture shows side by side: the exponential mechanism, PAnDA, the best table.

    Where the exponential mechanism is not there, the worst method stands in for it.
    """
    first = next((o for o in ranked if o.method.name == "exponential"), ranked[-1])
    phased = [o for o in outcomes if o.marginal is not None and o.holds]
    return [first, *phased[:1], *(o for o in ranked[:1] if o is not first)]
