"""The demo: every method on one synthetic city."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.console import Console

from panda_mdp.base.units import per
from panda_mdp.city.draw import draw_problem
from panda_mdp.city.synthetic import synthetic_city
from panda_mdp.cli.frame import working, write_json
from panda_mdp.cli.printing import best_bound, print_comparison
from panda_mdp.cli.progress import run_all, show_compiling
from panda_mdp.errors import SolverError
from panda_mdp.plot.comparison import draw_losses, draw_side_by_side
from panda_mdp.plot.style import new_figure, save_figure
from panda_mdp.survey.registry import methods
from panda_mdp.survey.runs import Outcome
from panda_mdp.table.mechanism import Mechanism

NODES, RECORDS, OUTPUTS, TASKS, EPSILON, SEED = 5000, 1000, 100, 1, 5.0, 0


def run_demo(folder: Path, console: Console) -> list[Outcome]:
    """Run everything, print the table, write pictures, results and the best mechanism."""
    # Where nothing can be drawn, that is said before the work and not after it.
    new_figure(1, 1)
    folder.mkdir(parents=True, exist_ok=True)
    with working("building the city"):
        city = synthetic_city(NODES, SEED)
        draw = draw_problem(city, RECORDS, OUTPUTS, TASKS, EPSILON, SEED)
        problem = draw.problem
    chosen = tuple(m for m in methods().values() if m.demo_seconds is not None)
    show_compiling(chosen, problem)
    outcomes = list(run_all(chosen, problem, tuple(m.demo_seconds for m in chosen)))
    title = (
        f"Synthetic city: {RECORDS:,} records, {OUTPUTS} outputs, {TASKS} task, "
        f"epsilon {EPSILON:g} {per(problem.domain.unit)}"
    )
    print_comparison(console, outcomes, title)
    tables = [o for o in outcomes if o.holds and o.weights is not None]
    ranked = sorted(tables, key=lambda o: o.loss or 0.0)
    if not ranked:
        msg = "no method gave a private table in its time; the lines above say why"
        raise SolverError(msg)
    shown = panels(outcomes, ranked)
    with working("drawing"):
        save_figure(draw_side_by_side(city, draw.tasks, shown), folder / "map.png")
        save_figure(draw_losses(outcomes, best_bound(outcomes)), folder / "chart.png")
    write_json(folder / "results.json", [outcome.row() for outcome in outcomes])
    saved = _mechanism(ranked[0]).save(folder / "best.pmdp")
    console.print(f"Wrote map.png, chart.png, results.json and best.pmdp to {folder}.")
    console.print(
        f"Try: panda-mdp perturb {saved}, which asks for a place and draws a report", soft_wrap=True
    )
    return outcomes


def panels(outcomes: list[Outcome], ranked: list[Outcome]) -> list[Outcome]:
    """What the picture shows side by side: the exponential mechanism, PAnDA, the best table."""
    phased = [o for o in outcomes if o.marginal is not None and o.holds]
    first, best = _baseline(ranked), ranked[0]
    return [first, *phased[:1], *([] if best is first else [best])]


def _baseline(ranked: list[Outcome]) -> Outcome:
    """The exponential mechanism where it is there, else the worst method."""
    named = [o for o in ranked if o.method.name == "exponential"]
    return named[0] if named else ranked[-1]


def _mechanism(outcome: Outcome) -> Mechanism:
    problem = outcome.problem
    weights = np.asarray(outcome.weights)
    return Mechanism(problem, weights, outcome.method.label, outcome.lower_bound)
