"""The command that runs both phases of PAnDA for simulated users."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from panda_mdp.base.units import per
from panda_mdp.cli.frame import output_console, working, write_json
from panda_mdp.cli.options import CityFile, Epsilon, Seed

if TYPE_CHECKING:
    from panda_mdp.panda.calibrate import Calibration
    from panda_mdp.panda.run import PandaResult


def probability(text: str) -> float:
    """A number between 0 and 1, neither of them."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        msg = f"{text!r} is not a probability between 0 and 1"
        raise typer.BadParameter(msg)
    return value


def panda(
    city: CityFile,
    records: Annotated[
        int, typer.Option(min=2, metavar="COUNT", help="Records drawn from the city.")
    ] = 1000,
    outputs: Annotated[
        int, typer.Option(min=1, metavar="COUNT", help="Outputs among the records.")
    ] = 100,
    epsilon: Epsilon = 5.0,
    delta: Annotated[
        float,
        typer.Option(
            parser=probability, metavar="NUMBER", help="Probability of more than epsilon."
        ),
    ] = 1e-2,
    centre: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="What a ball's centre may tell per km."),
    ] = None,
    candidates: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="COUNT", help="Public candidates for everybody, instead of balls."
        ),
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Search, and show the frontier.")
    ] = False,
    users: Annotated[int, typer.Option(min=1, metavar="COUNT", help="Simulated users.")] = 20,
    seed: Seed = 0,
    limit: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Time limit of the table; 0 for none.")
    ] = 60.0,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the results.")] = Path(
        "out/panda"
    ),
) -> None:
    """Run both phases of PAnDA for simulated users on a city, account for them and draw them.

    Balls by default, candidates that are the same for everybody with --candidates, the best of a
    search with --calibrate. Writes results.json, pictures, and panda.pmdp, which holds nothing of
    the users and with which `panda-mdp perturb` runs both phases for others. The users' records are
    drawn from the city with the seed: they are nobody's, and their reports are not for release.
    """
    from panda_mdp.city.draw import draw_problem, find_city
    from panda_mdp.cli.printing import facts
    from panda_mdp.panda.audit import audit_panda
    from panda_mdp.panda.balls import BallAnchors
    from panda_mdp.panda.calibrate import SearchSpace
    from panda_mdp.panda.calibrate import calibrate as search
    from panda_mdp.panda.coins import BernoulliAnchors
    from panda_mdp.panda.run import panda as run_both
    from panda_mdp.panda.selection import CENTRE_SHARE, PandaOptions

    given = {"--centre": centre, "--candidates": candidates, "--calibrate": calibrate or None}
    chosen = [name for name, value in given.items() if value is not None]
    if len(chosen) > 1:
        msg = f"{chosen[0]} and {chosen[1]} exclude each other: each names the selection"
        raise typer.BadParameter(msg)
    if candidates is not None and candidates >= records:
        msg = (
            f"{candidates} of {records} records are the whole table for everybody, without a "
            "Phase I; choose fewer, or make that table with `panda-mdp solve`"
        )
        raise typer.BadParameter(msg, param_hint="--candidates")
    clock = time.perf_counter()
    with working("drawing the problem"):
        where = find_city(city, records, seed)
        problem = draw_problem(where, records, outputs, 1, epsilon, seed).problem
    frontier = None
    if calibrate:
        with working("searching"):
            frontier = search(problem, delta, SearchSpace(("ball", "candidates")))
        if frontier.selection is None:
            typer.echo(frontier.binding)
            raise typer.Exit(1)
        selection: Any = frontier.selection
    elif candidates is not None:
        selection = BernoulliAnchors.alike(problem.domain, candidates, delta, problem)
    else:
        selection = BallAnchors(CENTRE_SHARE * epsilon if centre is None else centre)
    people = np.random.default_rng(seed).choice(problem.size, users)
    with working("running both phases"):
        options = PandaOptions(gap=0.02, time_limit=limit or None)
        run = run_both(problem, people, selection, delta, options, seed=seed)
    with working("auditing all pairs"):
        verdict = audit_panda(run)
    result = _figures(run, verdict.holds, verdict.violation)
    result["seconds"] = time.perf_counter() - clock
    out.mkdir(parents=True, exist_ok=True)
    with working("saving what is public"):
        run.save(out / "panda.pmdp")
    with working("drawing"):
        pictures = _pictures(run, where, frontier, out)
    output_console().print(facts(f"PAnDA on {city}", _facts(result)))
    if frontier is not None:
        _print_frontier(frontier, problem.size, problem.loss_unit or "")
    result["frontier"] = [] if frontier is None else _rows(frontier, problem.size)
    write_json(out / "results.json", result)
    output_console().print(
        f"Wrote {', '.join([*pictures, 'results.json', 'panda.pmdp'])} to {out}."
    )
    if not verdict.holds:
        raise typer.Exit(1)


def _figures(run: PandaResult, holds: bool, violation: float) -> dict[str, Any]:
    """What `results.json` says of a run."""
    problem, shares, expected = run.problem, run.shares, run.scheme.expected_anchors
    return {
        "selection": repr(run.scheme.selection),
        "epsilon": run.guarantee.epsilon,
        "delta": run.guarantee.delta,
        "unit": problem.domain.unit,
        "holds": holds,
        "violation": violation,
        "share_selection": shares.selection,
        "share_margin": shares.margin,
        "share_table": shares.remaining,
        "records": problem.size,
        "outputs": problem.outputs_count,
        "users": run.users,
        "anchors_per_user": float(np.mean([len(chosen) for chosen in run.anchor_sets])),
        "expected_anchors": expected,
        "download": expected / problem.size,
        "expected_loss": run.scheme.expected_loss,
        "users_loss": run.loss,
        "loss_unit": problem.loss_unit,
    }


FACTS = {
    "selection": "{selection}",
    "guarantee": "epsilon {epsilon:g} {per_unit}, delta {delta:g}",
    "holds": "{verdict}",
    "largest violation": "{violation:.3g}",
    "Phase I": "{share_selection:.0%} of epsilon; margin {share_margin:.0%}",
    "left for the table": "{share_table:.0%} of epsilon",
    "records, outputs": "{records:,}, {outputs:,}",
    "users": "{users}",
    "anchors per user": "{anchors_per_user:,.1f} (expected {expected_anchors:,.1f})",
    "download per user": "{download:.1%} of the table",
    "expected loss": "{expected_loss:.4f} {loss_unit}, over true records",
    "loss of these users": "{users_loss:.4f} {loss_unit}",
    "seconds": "{seconds:.1f}",
}
"""How the figures of a run are printed."""


def _facts(result: dict[str, Any]) -> list[tuple[str, object]]:
    words = {"per_unit": per(result["unit"]), "verdict": "yes" if result["holds"] else "NO"}
    return [(name, words_of.format(**result, **words)) for name, words_of in FACTS.items()]


def _rows(frontier: Calibration, size: int) -> list[dict[str, Any]]:
    return [
        {
            "selection": repr(trial.selection),
            "loss": trial.loss,
            "download": trial.anchors / size,
            "selection_epsilon": trial.selection_epsilon,
            "whole_table": trial.degenerate,
        }
        for trial in frontier.frontier
    ]


def _print_frontier(frontier: Calibration, size: int, unit: str) -> None:
    from rich.table import Table

    table = Table(title="What fits: loss, download, what the upload tells", title_justify="left")
    for heading in ("selection", f"loss, {unit}", "download", "ε of the upload"):
        table.add_column(heading, justify="left" if heading == "selection" else "right")
    for row in _rows(frontier, size):
        name = row["selection"] + (" (whole table)" if row["whole_table"] else "")
        table.add_row(
            name, f"{row['loss']:.4f}", f"{row['download']:.0%}", f"{row['selection_epsilon']:.3g}"
        )
    output_console().print(table)


def _pictures(run: PandaResult, city: Any, frontier: Calibration | None, folder: Path) -> list[str]:
    """One user's anchors on the map, and the frontier; none where matplotlib is missing."""
    from panda_mdp.errors import MissingDependencyError
    from panda_mdp.plot import draw_anchors, draw_calibration, save_figure

    try:
        names = {"anchors.png": draw_anchors(run, 0, city=city)}
    except MissingDependencyError:
        return []
    if frontier is not None:
        names["frontier.png"] = draw_calibration(frontier, run.problem)
    for name, figure in names.items():
        save_figure(figure, folder / name)
    return list(names)
