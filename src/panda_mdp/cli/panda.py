"""The command that runs both phases of PAnDA for simulated users, and the audit of its files."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np
import typer

from panda_mdp.base.text import Facts
from panda_mdp.cli.frame import output_console, working
from panda_mdp.cli.options import (
    CityFile,
    Drawn,
    FromOne,
    MaybePath,
    MaybeText,
    NonNegative,
    Number,
    described,
    require,
    told,
)
from panda_mdp.cli.printing import show

if TYPE_CHECKING:
    from panda_mdp.panda.calibrate import Calibration, Trial
    from panda_mdp.panda.coins import Decay
    from panda_mdp.panda.run import PandaResult
    from panda_mdp.panda.selection import Budgets
    from panda_mdp.problem import Problem

COINS = ("alpha", "rate")
PAPERS = Drawn(records=1000, outputs=100, tasks=1)


def probability(text: str) -> float:
    """A number between 0 and 1, neither of them."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    require(0 < value < 1, f"{text!r} is not a probability between 0 and 1")
    return value


@dataclass(frozen=True)
class Choice:
    """How anchors are selected.

    Options:
        delta NUMBER: Probability of more than epsilon; balls need none.
        centre NUMBER: What a ball's centre may tell per km.
        edge NUMBER: What rows of a ball may tell per km to fade at its edge.
        candidates COUNT: Public candidates for everybody, instead of balls.
        calibrate: Search, and show the frontier.
        decay NAME: The paper's coins: 'power', 'exponential' or 'logistic'.
        alpha NUMBER: With --decay: alpha of Table 1.
        rate NUMBER: With --decay: lambda of Table 1.
        radius KM: Of balls; with --decay gamma, beyond which all are selected alike.
        budgets NAME: By the 'certificate', or the paper's 'margin'.
    """

    delta: Annotated[float, typer.Option(parser=probability)] = 1e-2
    centre: Number = None
    edge: Number = None
    candidates: FromOne = None
    calibrate: bool = False
    decay: MaybeText = None
    alpha: Number = None
    rate: Number = None
    radius: Number = None
    budgets: str = "certificate"

    def __post_init__(self) -> None:
        given = [f"--{name}" for name in ("centre", "candidates", "decay") if told(self, name)]
        given += ["--calibrate"] * self.calibrate
        both = " and ".join(given[:2])
        require(len(given) < 2, f"{both} exclude each other: each names the selection")
        belong = "alpha and rate belong to --decay"
        require(self.decay is not None or not told(self, *COINS), belong, "--decay")
        others = given not in ([], ["--centre"])
        require(not (others and told(self, "edge")), "edge belongs to balls", "--edge")

    def selection(self, problem: Problem) -> Any:
        """The selection that is named; balls where none is."""
        from panda_mdp.panda.balls import BallAnchors
        from panda_mdp.panda.coins import BernoulliAnchors
        from panda_mdp.panda.selection import CENTRE_SHARE

        if self.decay is not None:
            return BernoulliAnchors(cast("Decay", self.decay), **told(self, "radius", *COINS))
        if self.candidates is not None:
            return BernoulliAnchors.alike(problem.domain, self.candidates, self.delta, problem)
        share = CENTRE_SHARE * problem.epsilon if self.centre is None else self.centre
        return BallAnchors(share, **told(self, "radius", "edge"))


@described
def panda(
    city: CityFile,
    choice: Choice,
    drawn: Drawn = PAPERS,
    study: bool = False,
    prior: MaybePath = None,
    users: Annotated[int, typer.Option(min=1)] = 20,
    limit: NonNegative = 60.0,
    out: Path = Path("out/panda"),
) -> None:
    """Run both phases of PAnDA for simulated users on a city, account for them and draw them.

    Balls by default, candidates that are the same for everybody with --candidates, the best of a
    search with --calibrate, the paper's coins with --decay. Its own fit on none of its maps: with
    --study they run without a guarantee, and only the loss and the reasons are printed. Writes
    results.json, pictures, and panda.pmdp, which holds nothing of the users and with which
    `panda-mdp perturb` runs both phases for others. The users' records are drawn from the city with
    the seed: they are nobody's, and their reports are not for release.

    Options:
        study: Run what does not fit, without a guarantee.
        prior FILE: A prior that `panda-mdp prior` made.
        users COUNT: Simulated users.
        limit SECONDS: Time limit of the table; 0 for none.
        out DIR: Folder for the results.
    """
    from panda_mdp.city.draw import Source
    from panda_mdp.city.traces import load_prior
    from panda_mdp.panda.audit import audit_panda
    from panda_mdp.panda.calibrate import SearchSpace, calibrate, wire_bytes
    from panda_mdp.panda.run import panda as run_both
    from panda_mdp.panda.run import study_panda
    from panda_mdp.panda.selection import PandaOptions

    clock = time.perf_counter()
    with working("drawing the problem"):
        source = Source.find(city, drawn.records, drawn.seed, drawn.crs)
        problem = drawn.problem(source)
        if prior is not None:
            problem = load_prior(prior, problem.domain).on(problem)
    require(
        choice.candidates is None or choice.candidates < problem.size,
        f"{choice.candidates} of {problem.size} records are the whole table for everybody, without "
        "a Phase I; choose fewer, or make that table with `panda-mdp solve`",
        "--candidates",
    )
    frontier = None
    delta = choice.delta
    if choice.calibrate:
        with working("searching"):
            frontier = calibrate(problem, delta, SearchSpace(("ball", "candidates")))
        _print_frontier(frontier, problem.loss_unit or "")
        if frontier.best is None or frontier.best.selection is None:
            out.mkdir(parents=True, exist_ok=True)
            if frontier.best is not None and _pictures(None, source.city, frontier, problem, out):
                output_console().print(f"Wrote frontier.png to {out}.")
            typer.echo(frontier.binding)
            raise typer.Exit(1)
        selection = frontier.best.selection
        delta = frontier.best.delta
    else:
        selection = choice.selection(problem)
    people = np.random.default_rng(drawn.seed).choice(problem.size, users)
    options = PandaOptions(
        budgets=cast("Budgets", choice.budgets), gap=0.02, time_limit=limit or None
    )
    asked: Any = (problem, people, selection, delta, options)
    if study:
        with working("running both phases"):
            seen = study_panda(*asked, seed=drawn.seed)
        lost = f"{seen.loss:.4f} {problem.loss_unit}"
        typer.echo(f"loss of these users {lost}; no guarantee: {seen.reasons}")
        raise typer.Exit(1)
    with working("running both phases"):
        run = run_both(*asked, seed=drawn.seed)
    with working("auditing all pairs"):
        verdict = audit_panda(run)
    with working("solving the whole table"):
        whole = options.short_table(problem)
    facts = {
        **_figures(run),
        "holds": verdict.holds,
        "violation": verdict.violation,
        "whole_table": wire_bytes(whole),
        "frontier": [] if frontier is None else [_row(one) for one in frontier.frontier],
        "seconds": time.perf_counter() - clock,
    }
    out.mkdir(parents=True, exist_ok=True)
    with working("saving what is public"):
        run.save(out / "panda.pmdp")
    with working("drawing"):
        pictures = _pictures(run, source.city, frontier, problem, out)
    show(f"PAnDA on {city}", FACTS, out / "results.json", facts)
    output_console().print(
        f"Wrote {', '.join([*pictures, 'results.json', 'panda.pmdp'])} to {out}."
    )
    raise typer.Exit(not verdict.holds)


def _figures(run: PandaResult) -> Facts:
    """What `results.json` says of a run."""
    problem = run.problem
    shares = run.shares
    scheme = run.scheme
    return {
        "selection": repr(scheme.selection),
        "epsilon": run.guarantee.epsilon,
        "delta": run.guarantee.delta,
        "unit": problem.domain.unit,
        "share_selection": shares.selection,
        "share_margin": shares.margin,
        "share_table": shares.remaining,
        "records": problem.size,
        "outputs": problem.outputs_count,
        "users": run.users,
        "anchors_per_user": float(np.mean([*map(len, run.anchor_sets)])),
        "expected_anchors": scheme.expected_anchors,
        "download": run.public.download,
        "expected_loss": scheme.expected_loss,
        "users_loss": run.loss,
        "loss_unit": problem.loss_unit,
    }


FITTING = "{selection}{knee}|{loss:.4f}|{download:,}|{selection_epsilon:.3g}"
FACTS = {
    "selection": "{selection}",
    "guarantee": "epsilon {epsilon:g} {per}, delta {delta:g}",
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


def _row(trial: Trial) -> Facts:
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


def _pictures(
    run: PandaResult | None, city: Any, frontier: Calibration | None, problem: Problem, folder: Path
) -> list[str]:
    """One user's anchors on the map, and the frontier; none where matplotlib is missing."""
    from panda_mdp.errors import MissingDependencyError
    from panda_mdp.plot import draw_anchors, draw_calibration, save_figure

    names = {}
    with suppress(MissingDependencyError):
        if run is not None:
            names["anchors.png"] = draw_anchors(run, 0, city=city)
        if frontier is not None:
            names["frontier.png"] = draw_calibration(frontier, problem)
    for name, figure in names.items():
        save_figure(figure, folder / name)
    return list(names)
