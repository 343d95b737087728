"""The rows of the tables: each method on one draw, with its loss, certificate, audit and stages.

What the library's registry has under a name of the paper is run as it is; the text's variants of
PAnDA and of LP+CA and what the published code does (`published.py`, `artifact.py`) stand beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from panda_mdp.errors import InfeasibleError
from panda_mdp.methods.coarse import coarse_unsound
from panda_mdp.methods.optimal.lp import solve_lp
from panda_mdp.panda.audit import audit_panda
from panda_mdp.panda.balls import BallAnchors
from panda_mdp.panda.coins import BernoulliAnchors
from panda_mdp.panda.margins import Feasibility, feasibility
from panda_mdp.panda.run import panda
from panda_mdp.panda.selection import PandaOptions
from panda_mdp.problem import Problem
from panda_mdp.survey.bench import Outcome
from panda_mdp.survey.registry import METHODS as LIBRARY
from panda_mdp.table.mechanism import Table
from panda_paper import artifact
from panda_paper.accounts import COVERED
from panda_paper.artifact import GAP, audited_values
from panda_paper.cell import COARSE, EXACT, OURS, PUBLISHED, SWAPPED, Cell, decay_of
from panda_paper.published import PublishedRun, run_published
from panda_paper.study import METRES, Draw, Stopwatch, Workspace

Run = Callable[[Cell, Draw, Workspace], Outcome]
"""How a method of the tables is run on a draw."""
BALL_SHARE = 0.4
"""Share of epsilon that the centre of a ball may tell: 2 of 5 /km."""
BALL_MISSED = 0.2
"""Share of delta that a ball may miss its record with."""
AUDITED_SETS = {500: 50, 1000: 24, 2000: 12}
"""Sets that are audited over all pairs, by the largest K; fewer for larger domains."""
FEWEST_AUDITED = 4
ACCOUNTS = "published accounting: NO GUARANTEE; loss over the anchors"
DETAILS = ("violated_pairs", "violated_constraints", "cells_gap", "iterations", "stopped")
"""What the tables take over from a table's details."""


def table_outcome(table: Table, seconds: float, limit: float | None, note: str = "") -> Outcome:
    """What the tables show of a perturbation table over all records."""
    values = audited_values(table)
    if table.lower_bound is not None:
        values |= {"lower_bound_m": METRES * table.lower_bound, "gap": table.gap}
    values |= {name: table.details[name] for name in DETAILS if name in table.details}
    rest = max(0.0, seconds - sum(spent for _, spent in table.stages))
    stages = (*table.stages, ("audit and the rest", rest))
    stopped = table.details.get("stopped")
    if limit is not None and stopped == "time limit":
        values["best_loss_m"] = values.pop("loss_m")
        reason = f"not solved within {limit:g} s; the best found so far is best_loss_m"
        return Outcome(values, stages, "time limit", reason)
    if stopped == "failed":
        note = f"the solver failed: this is the {table.details.get('table', 'best')} table"
    return Outcome(values, stages, "done", note)


def tabled(make: Callable[[Problem, float | None], Any], note: str = "") -> Run:
    """A method that gives one table over all records, from a problem and a limit in seconds."""

    def run(cell: Cell, draw: Draw, work: Workspace) -> Outcome:
        start = time.perf_counter()
        table: Table = make(draw.problem, work.limit)
        return table_outcome(table, time.perf_counter() - start, work.limit, note)

    return run


def whole_lp(problem: Problem, limit: float | None) -> Table:
    """The paper's LP: all pairs, handed to HiGHS."""
    return solve_lp(problem, pairs="all", time_limit=limit)


def coarse_of_the_text(problem: Problem, limit: float | None) -> Table:
    """LP+CA as the paper's text has it: an 8 x 8 grid, distances between centres."""
    return coarse_unsound(problem, 8, gap=GAP, time_limit=limit)


def exact(cell: Cell, draw: Draw, work: Workspace) -> Outcome:
    """PAnDA with the text's parameters and everything accounted for, or why it does not fit."""
    # All records are covered, so that a small Gamma is not what fails.
    selection = BernoulliAnchors(
        decay_of(cell.method), alpha=0.95, rate=0.5, neighbours=draw.problem.size
    )
    return exact_outcome(selection, cell, draw, work)


def exact_outcome(selection: BernoulliAnchors, cell: Cell, draw: Draw, work: Workspace) -> Outcome:
    """PAnDA with one user's exact account, or which condition fails, with its number."""
    problem, delta = draw.problem, cell.setting.delta
    clock = Stopwatch()
    law = selection.on(problem.domain)
    fit = feasibility(law, problem.epsilon, delta, problem.prior, problem.size)
    small = feasibility(law, problem.epsilon, delta, problem.prior, COVERED)
    values: dict[str, Any] = {
        "claimed_epsilon": problem.epsilon,
        "delta": delta,
        "phase_one_epsilon": fit.cost.rate,
        "shortfall": fit.shortfall,
        "uncovered_20": small.uncovered,
    }
    if not fit.fits:
        return Outcome(values, clock.lap("feasibility"), "infeasible", "; ".join(_reasons(fit)))
    try:
        result = panda(
            problem,
            draw.users,
            selection,
            delta,
            PandaOptions(weights="prior", gap=GAP, time_limit=work.limit),
            seed=draw.seed,
        )
    except InfeasibleError as error:
        # Its first sentence, without its remedy.
        note = str(error).split(". ")[0]
        return Outcome(values, clock.lap("feasibility and certificate"), "infeasible", note)
    verdict = audit_panda(result)
    values |= {
        "loss_m": METRES * result.loss,
        "anchor_loss_m": METRES * result.anchor_loss,
        "anchors": len(result.anchors),
        "variables": len(result.anchors) * problem.outputs_count,
        "holds": verdict.holds,
        "violation": verdict.violation,
        "audited_epsilon": max(one.epsilon for one in verdict.sets),
    }
    return Outcome(values, result.stages)


def _reasons(fit: Feasibility) -> list[str]:
    """Each condition that fails, with its number."""
    conditions = (
        (
            fit.cost.rate > fit.epsilon,
            f"Phase I alone costs up to {fit.cost.rate:.4g} /km, epsilon is {fit.epsilon:g}",
        ),
        (
            fit.shortfall > fit.delta,
            f"no anchor within gamma with probability {fit.shortfall:.3g}, delta is {fit.delta:g}",
        ),
        (
            fit.uncovered > fit.delta,
            f"coverage misses {fit.uncovered:.3g}, delta is {fit.delta:g}",
        ),
    )
    return [reason for fails, reason in conditions if fails]


def published(cell: Cell, draw: Draw, work: Workspace) -> Outcome:
    """PAnDA under published accounting, with the audit of what was drawn beside its claim."""
    weights = None
    if cell.setting.prior == "real":
        # The artifact weighs its anchors by the street counts of the first rows.
        weights = work.study.street_counts(draw.problem.domain).astype(np.float64)
    result = run_published(
        draw.problem,
        draw.users,
        decay_of(cell.method),
        city=work.study.name,
        delta=cell.setting.delta,
        seed=draw.seed,
        swapped=cell.method in SWAPPED,
        weights=weights,
    )
    return Outcome(published_values(result), result.stages, "done", ACCOUNTS)


def published_values(run: PublishedRun) -> dict[str, Any]:
    """What the tables and figures show of a run under published accounting."""
    first, second, rest = run.shares
    size = run.problem.size
    count = next((sets for most, sets in AUDITED_SETS.items() if size <= most), FEWEST_AUDITED)
    return {
        "loss_m": METRES * run.anchor_loss,
        "true_loss_m": METRES * run.true_loss,
        "claimed_epsilon": run.problem.epsilon,
        "holds": False,
        "anchors": len(run.anchors),
        "anchors_per_user": float(np.mean([len(one) for one in run.anchor_sets])),
        "variables": run.matrix.size,
        "constrained_pairs": run.constrained,
        "lp_seconds": run.lp_seconds,
        "share_selection": first,
        "share_margin": second,
        "share_rest": rest,
        **run.audit(run.anchor_sets[:count]),
    }


def ball(cell: Cell, draw: Draw, work: Workspace) -> Outcome:
    """Ball anchors at (epsilon, delta): the centre tells 40 % of epsilon, the table the rest.

    A ball misses its record with at most a fifth of delta, since a miss costs kilometres.
    """
    problem, delta = draw.problem, cell.setting.delta
    result = panda(
        problem,
        draw.users,
        BallAnchors(BALL_SHARE * problem.epsilon, BALL_MISSED * delta),
        delta,
        PandaOptions(gap=GAP, time_limit=work.limit),
        seed=draw.seed,
    )
    table = result.tables[0].mechanism
    violation = result.scheme.account.violation
    audited = result.scheme.selection_epsilon + table.audit.epsilon
    values = {
        "loss_m": METRES * result.scheme.expected_loss,
        "users_loss_m": METRES * result.loss,
        "claimed_epsilon": problem.epsilon,
        "delta": delta,
        "audited_epsilon": audited,
        "audited_delta": violation,
        "holds": bool(audited <= problem.epsilon and violation <= delta),
        "anchors": len(result.anchors),
        "variables": problem.size * problem.outputs_count,
        "download": result.scheme.expected_anchors / problem.size,
        "table_gap": table.gap,
    }
    return Outcome(values, result.stages)


METHODS: dict[str, Run] = {
    **{method.paper: tabled(method.run) for method in LIBRARY if method.paper is not None},
    **{method.label: tabled(method.run) for method in LIBRARY if method.label in OURS},
    "LP": tabled(whole_lp),
    COARSE: tabled(
        coarse_of_the_text,
        "the paper's text: distances between cells' centres, no guarantee",
    ),
    "LP+CA published": artifact.coarse_published,
    "LP+BD published": artifact.benders_published,
    **dict.fromkeys(EXACT, exact),
    **dict.fromkeys(PUBLISHED, published),
    "ball": ball,
    # On the artifact's own distances, latitude and longitude exchanged.
    **dict.fromkeys(SWAPPED[:2], artifact.exponential_swapped),
    **dict.fromkeys(SWAPPED[2:], published),
}
"""The rows of the tables by name."""
