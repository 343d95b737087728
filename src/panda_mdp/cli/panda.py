"""The command that runs both phases of PAnDA for simulated users."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from panda_mdp.base.units import per
from panda_mdp.cli.frame import output_console, working, write_json

if TYPE_CHECKING:
    from panda_mdp.panda.calibrate import Calibration
    from panda_mdp.panda.result import PandaResult

CENTRE_SHARE = 0.3
"""Share of epsilon that the centre of a ball may tell, where nothing else is said."""


def panda(
    city: Annotated[
        str, typer.Argument(metavar="CITY", help="Path of a road map, or the word 'synthetic'.")
    ],
    records: Annotated[
        int, typer.Option(metavar="COUNT", help="Records drawn from the city.")
    ] = 1000,
    outputs: Annotated[int, typer.Option(metavar="COUNT", help="Outputs among the records.")] = 100,
    epsilon: Annotated[float, typer.Option(metavar="NUMBER", help="Privacy budget per km.")] = 5.0,
    delta: Annotated[
        float, typer.Option(metavar="NUMBER", help="Probability of more than epsilon.")
    ] = 1e-2,
    centre: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="What a ball's centre may tell per km."),
    ] = None,
    candidates: Annotated[
        int | None,
        typer.Option(metavar="COUNT", help="Public candidates for everybody, instead of balls."),
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Search, and show the frontier.")
    ] = False,
    users: Annotated[int, typer.Option(metavar="COUNT", help="Simulated users.")] = 20,
    seed: Annotated[
        int, typer.Option(metavar="NUMBER", help="Seed of the draw of records, outputs, users.")
    ] = 0,
    limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time limit of the table; 0 for none.")
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
    from panda_mdp.panda.calibrate import calibrate as search
    from panda_mdp.panda.run import panda as run_both
    from panda_mdp.panda.selection.ball import BallAnchors
    from panda_mdp.panda.selection.bernoulli import BernoulliAnchors

    if not 0 < delta < 1:
        msg = f"{delta!r} is not a probability between 0 and 1"
        raise typer.BadParameter(msg, param_hint="--delta")
    least: tuple[tuple[str, float, float], ...] = (
        ("--users", users, 1),
        ("--seed", seed, 0),
        ("--limit", limit, 0),
    )
    for name, value, bound in least:
        if not value >= bound:
            msg = f"{value!r} is less than {bound}"
            raise typer.BadParameter(msg, param_hint=name)
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
            frontier = search(problem, delta, families=("ball", "candidates"))
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
        run = run_both(
            problem,
            people,
            selection,
            delta,
            relaxed=False,
            gap=0.02,
            time_limit=limit or None,
            seed=seed,
        )
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


def _figures(run: PandaResult, holds: bool, violation: float | None) -> dict[str, Any]:
    """What `results.json` says of a run."""
    problem, shares, expected = run.problem, run.shares, run.scheme.expected_anchors
    return {
        "selection": repr(run.selection),
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
        "expected_loss": run.scheme.expected_loss(),
        "users_loss": run.loss,
        "loss_unit": problem.loss_unit,
    }


def _facts(result: dict[str, Any]) -> list[tuple[str, object]]:
    violation, unit = result["violation"], result["loss_unit"]
    return [
        ("selection", result["selection"]),
        (
            "guarantee",
            f"epsilon {result['epsilon']:g} {per(result['unit'])}, delta {result['delta']:g}",
        ),
        ("holds", "yes" if result["holds"] else "NO"),
        ("largest violation", "unknown" if violation is None else f"{violation:.3g}"),
        (
            "Phase I",
            f"{result['share_selection']:.0%} of epsilon; margin {result['share_margin']:.0%}",
        ),
        ("left for the table", f"{result['share_table']:.0%} of epsilon"),
        ("records, outputs", f"{result['records']:,}, {result['outputs']:,}"),
        ("users", result["users"]),
        (
            "anchors per user",
            f"{result['anchors_per_user']:,.1f} (expected {result['expected_anchors']:,.1f})",
        ),
        ("download per user", f"{result['download']:.1%} of the table"),
        ("expected loss", f"{result['expected_loss']:.4f} {unit}, over true records"),
        ("loss of these users", f"{result['users_loss']:.4f} {unit}"),
        ("seconds", f"{result['seconds']:.1f}"),
    ]


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
    try:
        from panda_mdp.plot.anchors import draw_anchors, draw_frontier
    except ImportError:
        return []
    from panda_mdp.plot.style import save_figure

    names = {"anchors.png": draw_anchors(run, 0, city=city)}
    if frontier is not None:
        names["frontier.png"] = draw_frontier(frontier, run.problem)
    for name, figure in names.items():
        save_figure(figure, folder / name)
    return list(names)
