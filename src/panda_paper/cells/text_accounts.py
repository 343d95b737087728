"""PAnDA as the paper's text has it, accounted for in full: what the figures show of it as cells.

The text's parameters do not fit (epsilon, delta) on the paper's maps, so `panda` refuses to run
them. These cells compute everything all the same, for study: what a user's choice costs, how many
records the LP covers, how the budget is spent, and, where a table is asked for, its loss and what
an audit of the sets that were drawn finds. None of it is a mechanism.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.panda.accounts.budgets import PandaPlan
from panda_mdp.panda.accounts.coverage import Feasibility, feasibility
from panda_mdp.panda.audit import audit_set
from panda_mdp.panda.result import PandaRun
from panda_mdp.panda.run import study_panda
from panda_mdp.panda.selection.bernoulli import BernoulliAnchors
from panda_mdp.panda.selection.law import AnchorLaw
from panda_paper.cells.outcome import METRES, Outcome
from panda_paper.cells.workspace import Draw, Workspace
from panda_paper.settings.cell import Cell
from panda_paper.settings.method_names import decay_of

SAMPLE = 80
"""Anchors of the union that budget shares are averaged over."""
STREAM = 6
AUDITED = 4
"""Users whose set is audited over all pairs."""
NEAR_KM = 2.0
"""Pairs nearer than this are looked at on their own: averages over all pairs are about far ones."""


def run_accounts(cell: Cell, work: Workspace) -> Outcome:
    """Records covered by the LP, feasibility and budget shares; no table is computed.

    `anchors` is the expected size of the union of all users' anchors, exactly:
    sum_a (1 - prod_n (1 - w(x_n, a))). Shares are means over pairs of 80 anchors of the union.
    """
    draw = work.draw(cell)
    selection = selection_of(cell)
    law = selection.on(draw.problem.domain)
    start = time.perf_counter()
    weights = covered(law, draw.users)
    fit = fits(law, draw, cell)
    middle = time.perf_counter()
    generator = np.random.default_rng([draw.seed, STREAM])
    count = min(SAMPLE, int((weights > 0).sum()))
    chosen = generator.choice(len(weights), count, replace=False, p=weights / weights.sum())
    plan = PandaPlan.over(draw.problem, selection, np.sort(chosen), cell.setting.delta)
    values = {
        "anchors": float(weights.sum()),
        "variables": float(weights.sum()) * draw.problem.outputs_count,
        **_shares(plan),
        **_conditions(fit),
    }
    stages = (("feasibility", middle - start), ("shares", time.perf_counter() - middle))
    return Outcome(values, stages)


def run_text_table(cell: Cell, work: Workspace) -> Outcome:
    """Both phases without a guarantee: loss, time, budget shares, and audits of drawn sets."""
    draw = work.draw(cell)
    start = time.perf_counter()
    run = study_panda(
        draw.problem,
        draw.users,
        selection_of(cell),
        cell.setting.delta,
        weights="prior",
        relaxed=False,
        time_limit=work.limit,
        seed=draw.seed,
    )
    spent = time.perf_counter() - start
    values: dict[str, Any] = {
        "loss_m": METRES * run.loss,
        "anchor_loss_m": METRES * run.anchor_loss,
        "anchors_drawn": len(run.anchors),
        "claimed_epsilon": draw.problem.epsilon,
        "reasons": "; ".join(reason.split(". ")[0] for reason in run.reasons),
        **audited(run),
    }
    plan = PandaPlan.over(draw.problem, selection_of(cell), run.anchors, cell.setting.delta)
    values |= {**_shares(plan), **_conditions(plan.feasibility)}
    rest = max(0.0, spent - run.seconds)
    return Outcome(values, (*run.stages, ("the rest", rest)))


def selection_of(cell: Cell) -> BernoulliAnchors:
    """The selection with the parameters of the paper's text: alpha .95, lambda .5, d_max / 50."""
    return BernoulliAnchors(decay_of(cell.method))


def covered(law: AnchorLaw, users: IntArray) -> FloatArray:
    """The probability of each record to be an anchor of some user, (K,)."""
    return np.asarray(-np.expm1(np.log1p(-law.dense(users)).sum(axis=0)))


def fits(law: AnchorLaw, draw: Draw, cell: Cell) -> Feasibility:
    """The paper's three conditions over the whole domain."""
    problem = draw.problem
    return feasibility(law, problem.epsilon, cell.setting.delta, problem.prior, 20)


def audited(run: PandaRun) -> dict[str, Any]:
    """Audits of the first users' sets over all pairs: the composed mechanism, one user."""
    audits = [
        audit_set(run.scheme, chosen, run.table_of(n))
        for n, chosen in enumerate(run.anchor_sets[:AUDITED])
        if len(chosen)
    ]
    if not audits:
        return {"audited_sets": 0}
    return {
        "audited_sets": len(audits),
        "audited_epsilon": max(one.epsilon for one in audits),
        "median_epsilon": float(np.median([one.epsilon for one in audits])),
        "selection_epsilon": max(one.selection_epsilon for one in audits),
        "violated_pairs": float(np.mean([one.violations / one.pairs for one in audits])),
    }


def _shares(plan: PandaPlan) -> dict[str, float]:
    """Mean shares of eps d over all pairs of anchors, and of Phase I over the near ones."""
    shares = plan.shares
    near = np.triu(plan.distance < NEAR_KM, k=1)
    rates = plan.leakage[near] / (plan.problem.epsilon * plan.distance[near])
    return {
        "near_cost": float(np.median(rates)) if len(rates) else float("nan"),
        "share_selection": shares.selection,
        "share_margin": shares.margin,
        "share_rest": shares.remaining,
        "clipped": plan.clipped / max(1, plan.pair_count),
    }


def _conditions(fit: Feasibility) -> dict[str, Any]:
    return {
        "fits": fit.fits,
        "cost_epsilon": fit.cost.rate,
        "shortfall": fit.shortfall,
        "uncovered": fit.uncovered,
        "near": fit.near,
    }
