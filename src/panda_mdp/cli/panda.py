"""The command that runs both phases of PAnDA for simulated users, and the audit of its files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np
import typer

from panda_mdp.base.text import per
from panda_mdp.cli.frame import output_console, working
from panda_mdp.cli.options import CityFile, Epsilon, FromOne, NonNegative, Seed, described, require
from panda_mdp.cli.printing import show, tell

if TYPE_CHECKING:
    from panda_mdp.panda.calibrate import Calibration, Trial
    from panda_mdp.panda.coins import Decay
    from panda_mdp.panda.run import PandaResult
    from panda_mdp.panda.selection import Budgets


def probability(text: str) -> float:
    """A number between 0 and 1, neither of them."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    require(0 < value < 1, f"{text!r} is not a probability between 0 and 1")
    return value


@described
def panda(
    city: CityFile,
    records: Annotated[int, typer.Option(min=2)] = 1000,
    outputs: Annotated[int, typer.Option(min=1)] = 100,
    epsilon: Epsilon = 5.0,
    delta: Annotated[float, typer.Option(parser=probability)] = 1e-2,
    centre: float | None = None,
    candidates: FromOne = None,
    calibrate: bool = False,
    decay: str | None = None,
    alpha: float | None = None,
    rate: float | None = None,
    radius: float | None = None,
    budgets: str = "certificate",
    study: bool = False,
    tasks: Annotated[int, typer.Option(min=1)] = 1,
    prior: Path | None = None,
    users: Annotated[int, typer.Option(min=1)] = 20,
    seed: Seed = 0,
    limit: NonNegative = 60.0,
    out: Path = Path("out/panda"),
) -> None:
    """Run both phases of PAnDA for simulated users on a city, account for them and draw them.

    Balls by default, candidates that are the same for everybody with --candidates, the best of a
    search with --calibrate, the paper's coins with --decay. Those seldom fit; with --study they run
    without a guarantee, and only the loss and the reasons are printed. Writes results.json,
    pictures, and panda.pmdp, which holds nothing of the users and with which `panda-mdp perturb`
    runs both phases for others. The users' records are drawn from the city with the seed: they are
    nobody's, and their reports are not for release.

    Options:
        records COUNT: Records drawn from the city.
        outputs COUNT: Outputs among the records.
        delta NUMBER: Probability of more than epsilon.
        centre NUMBER: What a ball's centre may tell per km.
        candidates COUNT: Public candidates for everybody, instead of balls.
        calibrate: Search, and show the frontier.
        decay NAME: The paper's coins: 'power', 'exponential' or 'logistic'.
        alpha NUMBER: With --decay: alpha of Table 1.
        rate NUMBER: With --decay: lambda of Table 1.
        radius KM: With --decay: gamma, beyond which all are selected alike.
        budgets NAME: By the 'certificate', or the paper's 'margin'.
        study: Run what does not fit, without a guarantee.
        tasks COUNT: Tasks that travel is measured to.
        prior FILE: A prior that `panda-mdp prior` made.
        users COUNT: Simulated users.
        limit SECONDS: Time limit of the table; 0 for none.
        out DIR: Folder for the results.
    """
    from panda_mdp.city.draw import draw_problem, find_city
    from panda_mdp.city.traces import load_prior
    from panda_mdp.panda.audit import audit_panda
    from panda_mdp.panda.balls import BallAnchors
    from panda_mdp.panda.calibrate import SearchSpace, whole_table, wire_bytes
    from panda_mdp.panda.calibrate import calibrate as search
    from panda_mdp.panda.coins import BernoulliAnchors
    from panda_mdp.panda.run import panda as run_both
    from panda_mdp.panda.run import study_panda
    from panda_mdp.panda.selection import CENTRE_SHARE, PandaOptions

    given = {
        "--centre": centre,
        "--candidates": candidates,
        "--calibrate": calibrate or None,
        "--decay": decay,
    }
    chosen = [name for name, value in given.items() if value is not None]
    both = " and ".join(chosen[:2])
    require(len(chosen) < 2, f"{both} exclude each other: each names the selection")
    require(
        candidates is None or candidates < records,
        f"{candidates} of {records} records are the whole table for everybody, without a "
        "Phase I; choose fewer, or make that table with `panda-mdp solve`",
        "--candidates",
    )
    named = {"alpha": alpha, "rate": rate, "radius": radius}
    coins: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    require(decay is not None or not coins, "alpha, rate and radius belong to --decay", "--decay")
    clock = time.perf_counter()
    with working("drawing the problem"):
        where = find_city(city, records, seed)
        problem = draw_problem(where, records, outputs, tasks, epsilon, seed).problem
        if prior is not None:
            problem = load_prior(prior, problem.domain).on(problem)
    frontier = None
    if calibrate:
        with working("searching"):
            frontier = search(problem, delta, SearchSpace(("ball", "candidates")))
        _print_frontier(frontier, problem.loss_unit or "")
        if frontier.best is None or frontier.best.selection is None:
            typer.echo(frontier.binding)
            raise typer.Exit(1)
        selection: Any = frontier.selection
        delta = frontier.best.delta
    elif decay is not None:
        selection = BernoulliAnchors(cast("Decay", decay), **coins)
    elif candidates is not None:
        selection = BernoulliAnchors.alike(problem.domain, candidates, delta, problem)
    else:
        selection = BallAnchors(CENTRE_SHARE * epsilon if centre is None else centre)
    people = np.random.default_rng(seed).choice(problem.size, users)
    words = cast("Budgets", budgets)
    options = PandaOptions(budgets=words, gap=0.02, time_limit=limit or None)
    if study:
        with working("running both phases"):
            seen = study_panda(problem, people, selection, delta, options, seed=seed)
        lost = f"{seen.loss:.4f} {problem.loss_unit}"
        typer.echo(f"loss of these users {lost}; no guarantee: {seen.reasons}")
        raise typer.Exit(1)
    with working("running both phases"):
        run = run_both(problem, people, selection, delta, options, seed=seed)
    with working("auditing all pairs"):
        verdict = audit_panda(run)
    with working("solving the whole table"):
        whole = whole_table(problem, options)
    result = _figures(run, verdict.holds, verdict.violation, wire_bytes(whole))
    result["seconds"] = time.perf_counter() - clock
    out.mkdir(parents=True, exist_ok=True)
    with working("saving what is public"):
        run.save(out / "panda.pmdp")
    with working("drawing"):
        pictures = _pictures(run, where, frontier, out)
    said = tell(FACTS, **_words(result))
    result["frontier"] = [] if frontier is None else [_row(one) for one in frontier.frontier]
    show(f"PAnDA on {city}", said, out / "results.json", result)
    output_console().print(
        f"Wrote {', '.join([*pictures, 'results.json', 'panda.pmdp'])} to {out}."
    )
    raise typer.Exit(not verdict.holds)


def _figures(run: PandaResult, holds: bool, violation: float, whole: int) -> dict[str, Any]:
    """What `results.json` says of a run."""
    problem, shares = run.problem, run.shares
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
        "expected_anchors": run.scheme.expected_anchors,
        "download": run.public.download,
        "whole_table": whole,
        "expected_loss": run.scheme.expected_loss,
        "users_loss": run.loss,
        "loss_unit": problem.loss_unit,
    }


FITTING = "{selection}{knee}|{loss:.4f}|{download:,}|{selection_epsilon:.3g}"
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
    "download per user": "{download:,} bytes; the whole compact table has {whole_table:,}",
    "expected loss": "{expected_loss:.4f} {loss_unit}, over true records",
    "loss of these users": "{users_loss:.4f} {loss_unit}",
    "seconds": "{seconds:.1f}",
}
"""How the figures of a run are printed."""
AUDITED = {
    "holds": "{verdict}",
    "guarantee": "epsilon {epsilon:g} {per_unit}, delta {delta:g}",
    "violation": "at most {violation:.6g}",
    "worst pair": "records {worst[records][0]} and {worst[records][1]}",
    "Phase I": "{selection_epsilon:.6g} {per_unit}",
    "pairs covered": "{pairs:,}, both phases",
}


def _row(trial: Trial) -> dict[str, Any]:
    names = ("delta", "loss", "download", "selection_epsilon")
    return {"selection": str(trial), **{name: getattr(trial, name) for name in names}}


def _print_frontier(found: Calibration, unit: str) -> None:
    from rich.table import Table

    table = Table(title="What fits: loss, bytes, what the upload tells", title_justify="left")
    table.add_column("selection")
    for heading in (f"loss, {unit}", "bytes", "ε of the upload"):
        table.add_column(heading, justify="right")
    for trial in found.frontier:
        knee = " (knee)" if trial is found.knee else ""
        table.add_row(*FITTING.format(knee=knee, **_row(trial)).split("|"))
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


def show_audit(file: Path, json: Path | None) -> None:
    """Everything that a file of PAnDA claims, computed again over all pairs of records."""
    from panda_mdp.panda.file import decode_panda
    from panda_mdp.table.decode import at_path

    with working("auditing both phases over all pairs"):
        table = at_path(file, decode_panda)
    problem = table.problem
    numbers = {
        "holds": True,
        "epsilon": table.epsilon,
        "delta": table.delta,
        "unit": problem.domain.unit,
        "violation": table.account.violation,
        "worst": {"records": list(table.account.pair)},
        "selection_epsilon": table.selection_epsilon,
        "pairs": problem.size * (problem.size - 1) // 2,
    }
    show(f"Audit of {file}", tell(AUDITED, **_words(numbers)), json, numbers)


def _words(numbers: dict[str, Any]) -> dict[str, Any]:
    """Numbers, with words that templates have for some."""
    verdict = "yes" if numbers["holds"] else "NO"
    return {**numbers, "verdict": verdict, "per_unit": per(numbers["unit"])}
