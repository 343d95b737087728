"""Cells of PAnDA: exact accounting, published accounting, and ball anchors."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from panda_mdp.errors import InfeasibleError
from panda_mdp.panda.accounts.coverage import Feasibility, feasibility
from panda_mdp.panda.audit import audit_panda
from panda_mdp.panda.run import panda
from panda_mdp.panda.selection.ball import BallAnchors
from panda_mdp.panda.selection.bernoulli import BernoulliAnchors
from panda_paper.cells.outcome import METRES, Outcome
from panda_paper.cells.published import PublishedRun, run_published
from panda_paper.cells.workspace import Draw, Workspace, street_counts
from panda_paper.settings.cell import Cell
from panda_paper.settings.method_names import Decay

Run = Callable[[Cell, Draw, Workspace], Outcome]
"""How a method of the tables is run on a draw."""
GAP = 0.01
"""Gap to which the LPs of this library are solved."""
BALL_SHARE = 0.4
"""Share of epsilon that the centre of a ball may tell: 2 of 5 /km."""
BALL_MISSED = 0.2
"""Share of delta that a ball may miss its record with."""
COVERED = 20
"""The largest Gamma of the paper's experiments."""
AUDITED_SETS = {500: 50, 1000: 24, 2000: 12}
"""Sets that are audited over all pairs, by the largest K; fewer for larger domains."""
FEWEST_AUDITED = 4
ACCOUNTS = "published accounting: NO GUARANTEE; loss over the anchors"


def exact(decay: Decay) -> Run:
    """PAnDA with the text's parameters and everything accounted for, or why it does not fit."""

    def run(cell: Cell, draw: Draw, work: Workspace) -> Outcome:
        problem, delta = draw.problem, cell.setting.delta
        start = time.perf_counter()
        # All records are covered, so that a small Gamma is not what fails.
        selection = BernoulliAnchors(decay, alpha=0.95, rate=0.5, neighbours=problem.size)
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
            stages = (("feasibility", time.perf_counter() - start),)
            return Outcome(values, stages, "infeasible", "; ".join(_reasons(fit)))
        try:
            result = panda(
                problem,
                draw.users,
                selection,
                delta,
                weights="prior",
                gap=GAP,
                time_limit=work.limit,
                relaxed=False,
                seed=draw.seed,
            )
        except InfeasibleError as error:
            stages = (("feasibility and certificate", time.perf_counter() - start),)
            return Outcome(values, stages, "infeasible", _short(error))
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

    return run


def published(decay: Decay, *, swapped: bool = False) -> Run:
    """PAnDA under published accounting, with the audit of what was drawn beside its claim."""

    def run(cell: Cell, draw: Draw, work: Workspace) -> Outcome:
        weights = None
        if cell.setting.prior == "real":
            # The artifact weighs its anchors by the street counts of the first rows.
            weights = street_counts(work.study.city, draw.problem.domain).astype(np.float64)
        result = run_published(
            draw.problem,
            draw.users,
            decay,
            city=work.study.name,
            delta=cell.setting.delta,
            seed=draw.seed,
            swapped=swapped,
            weights=weights,
            audited_sets=audited_sets(draw.problem.size),
        )
        return Outcome(published_values(result), result.stages[:3], "done", ACCOUNTS)

    return run


def published_values(run: PublishedRun) -> dict[str, Any]:
    """What the tables and figures show of a run under published accounting."""
    first, second, rest = run.shares
    values: dict[str, Any] = {
        "loss_m": METRES * run.anchor_loss,
        "true_loss_m": METRES * run.true_loss,
        "claimed_epsilon": run.problem.epsilon,
        "holds": False,
        "anchors": len(run.anchors),
        "anchors_per_user": float(np.mean([len(chosen) for chosen in run.anchor_sets])),
        "variables": len(run.anchors) * run.problem.outputs_count,
        "constrained_pairs": run.constrained,
        "lp_seconds": run.lp_seconds,
        "share_selection": first,
        "share_margin": second,
        "share_rest": rest,
    }
    if run.audits is not None:
        values |= {
            "audited_epsilon": run.audits.epsilon,
            "median_epsilon": run.audits.median_epsilon,
            "selection_epsilon": run.audits.selection_epsilon,
            "violated_pairs": run.audits.violated,
            "audited_sets": run.audits.sets,
        }
    return values


def audited_sets(size: int) -> int:
    """How many of the drawn sets are audited over all pairs of records."""
    return next((sets for most, sets in AUDITED_SETS.items() if size <= most), FEWEST_AUDITED)


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
        gap=GAP,
        time_limit=work.limit,
        relaxed=False,
        seed=draw.seed,
    )
    table = result.tables[0].mechanism
    account = result.scheme.account()
    violation = 1.0 if account is None else account.violation
    audited = float(result.details["centre_epsilon"]) + table.audit.epsilon
    values = {
        "loss_m": METRES * result.scheme.expected_loss(),
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


def _reasons(fit: Feasibility) -> list[str]:
    """Each condition that fails, with its number."""
    reasons = []
    if fit.cost.rate > fit.epsilon:
        reasons.append(
            f"Phase I alone costs up to {fit.cost.rate:.4g} /km, epsilon is {fit.epsilon:g}"
        )
    if fit.shortfall > fit.delta:
        reasons.append(
            f"no anchor within gamma with probability {fit.shortfall:.3g}, delta is {fit.delta:g}"
        )
    if fit.uncovered > fit.delta:
        reasons.append(f"coverage misses {fit.uncovered:.3g}, delta is {fit.delta:g}")
    return reasons


def _short(error: InfeasibleError) -> str:
    """An error's first sentence, without its remedy."""
    return str(error).split(". ")[0]
