"""The command that runs both phases of PAnDA for simulated users, and the audit of its files."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import typer

from panda_mdp.base.text import Facts, picked
from panda_mdp.cli.frame import working
from panda_mdp.cli.options import (
    CityFile,
    FromOne,
    MaybePath,
    MaybeText,
    NonNegative,
    Number,
    PapersDraw,
    Positive,
    described,
    require,
    told,
)
from panda_mdp.cli.printing import show, tell
from panda_mdp.panda.audit import audit_panda
from panda_mdp.panda.balls import BallAnchors
from panda_mdp.panda.calibrate import SearchSpace, calibrate, wire_bytes
from panda_mdp.panda.coins import BernoulliAnchors, Decay
from panda_mdp.panda.run import PandaResult, study_panda
from panda_mdp.panda.run import panda as run_both
from panda_mdp.panda.selection import CENTRE_SHARE, Budgets, PandaOptions
from panda_mdp.plot import draw_anchors, draw_calibration, save_figure
from panda_mdp.plot.style import new_figure
from panda_mdp.problem import Problem

COINS = ("alpha", "rate")


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

    delta: float = 1e-2
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
    drawn: PapersDraw,
    study: bool = False,
    prior: MaybePath = None,
    users: Positive = 20,
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
    clock = time.perf_counter()
    # Where nothing can be drawn, that is said before the work and not after it.
    new_figure(1, 1)
    with working("drawing the problem"):
        source, problem = drawn.read(city, prior=prior)
    require(
        choice.candidates is None or choice.candidates < problem.size,
        f"{choice.candidates} of {problem.size} records are the whole table for everybody, without "
        "a Phase I; choose fewer, or make that table with `panda-mdp solve`",
        "--candidates",
    )
    frontier: list[Facts] = []
    delta = choice.delta
    if not choice.calibrate:
        selection = choice.selection(problem)
    else:
        with working("searching"):
            found = calibrate(problem, delta, SearchSpace(("ball", "candidates")))
        for trial in found.frontier:
            numbers = picked(trial, "delta", "loss", "download", "selection_epsilon")
            knee = " (knee)" if trial is found.knee else ""
            frontier.append({"selection": str(trial), "knee": knee, **numbers})
        rows = [row for one in frontier for row in tell(FITTING, **one, unit=problem.loss_unit)]
        show("What fits: loss, bytes, what the upload tells", rows)
        if found.best is not None:
            out.mkdir(parents=True, exist_ok=True)
            save_figure(draw_calibration(found, problem), out / "frontier.png")
            typer.echo(f"Wrote frontier.png to {out}.")
        if found.best is None or found.best.selection is None:
            typer.echo(found.binding)
            raise typer.Exit(1)
        selection, delta = found.best.selection, found.best.delta
    people = np.random.default_rng(drawn.seed).choice(problem.size, users)
    budgets = cast("Budgets", choice.budgets)
    options = PandaOptions(budgets=budgets, gap=0.02, time_limit=limit or None)
    with working("running both phases"):
        run: Any = (study_panda if study else run_both)(
            problem, people, selection, delta, options, seed=drawn.seed
        )
    if study:
        lost = f"{run.loss:.4f} {problem.loss_unit}"
        typer.echo(f"loss of these users {lost}; no guarantee: {'; '.join(run.reasons)}")
        raise typer.Exit(1)
    with working("auditing all pairs, and solving the whole table"):
        verdict = audit_panda(run)
        whole = options.short_table(problem)
    facts = {
        **_figures(run),
        "holds": verdict.holds,
        "violation": verdict.violation,
        "whole_table": wire_bytes(whole),
        "frontier": frontier,
        "seconds": time.perf_counter() - clock,
    }
    out.mkdir(parents=True, exist_ok=True)
    with working("drawing"):
        run.save(out / "panda.pmdp")
        save_figure(draw_anchors(run, 0, city=source.city), out / "anchors.png")
    show(f"PAnDA on {city}", FACTS, out / "results.json", facts)
    typer.echo(f"Wrote anchors.png, results.json, panda.pmdp to {out}.")
    raise typer.Exit(not verdict.holds)


def _figures(run: PandaResult) -> Facts:
    """What `results.json` says of a run."""
    problem = run.problem
    shares = run.shares
    scheme = run.scheme
    return {
        **picked(run.guarantee, "epsilon", "delta", "unit"),
        **picked(scheme, "expected_anchors", "expected_loss"),
        "selection": repr(scheme.selection),
        "share_selection": shares.selection,
        "share_margin": shares.margin,
        "share_table": shares.remaining,
        "records": problem.size,
        "outputs": problem.outputs_count,
        "users": run.users,
        "anchors_per_user": float(np.mean([*map(len, run.anchor_sets)])),
        "download": run.public.download,
        "users_loss": run.loss,
        "loss_unit": problem.loss_unit,
    }


FITTING = {
    "selection": "{selection}{knee}",
    "  loss": "{loss:.4f} {unit}",
    "  bytes": "{download:,}",
    "  ε of the upload": "{selection_epsilon:.3g}",
}
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
