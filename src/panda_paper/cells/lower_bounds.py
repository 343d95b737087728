"""Runs under published accounting beside their lower bound, and what their reports alone tell."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from panda_mdp.panda.accounts.composed import scan_pairs
from panda_mdp.panda.accounts.leakage import leakage_table
from panda_mdp.panda.anpo import relaxed_bound
from panda_mdp.panda.selection.law import surrogates
from panda_paper.cells.outcome import METRES, Outcome
from panda_paper.cells.published import PublishedRun, run_published
from panda_paper.cells.text_accounts import NEAR_KM
from panda_paper.cells.workspace import Workspace
from panda_paper.settings.cell import Cell
from panda_paper.settings.method_names import decay_of

SETS = 4


def run_bound(cell: Cell, work: Workspace) -> Outcome:
    """Relaxed AnPO over the anchors of a published run, and audits of its reports alone.

    `relaxed_m` is a rigorous lower bound on the loss over those anchors (Proposition 6), `ratio`
    the paper's approximation ratio against it. `report_...` count the report as if the anchors had
    told nothing: the part that the paper's violation rate is about. `real_...` are budget shares
    of the same run with Phase I charged what Proposition 1 says, all factors of it.
    """
    draw = work.draw(cell)
    problem = draw.problem
    start = time.perf_counter()
    run = run_published(
        problem,
        draw.users,
        decay_of(cell.method),
        city=work.study.name,
        delta=cell.setting.delta,
        seed=draw.seed,
        audited_sets=0,
    )
    middle = time.perf_counter()
    weights = np.full(len(run.anchors), 1 / len(run.anchors))
    bound = relaxed_bound(problem, run.anchors, weights, time_limit=work.limit)
    after = time.perf_counter()
    values: dict[str, Any] = {**reports_alone(run), **real_shares(run)}
    if bound is not None:
        values["relaxed_m"] = METRES * bound
        values["ratio"] = run.anchor_loss / bound if bound > 0 else float("nan")
    end = time.perf_counter()
    stages = (("run", middle - start), ("relaxed AnPO", after - middle), ("audit", end - after))
    return Outcome(values, stages)


def reports_alone(run: PublishedRun) -> dict[str, Any]:
    """What reports tell over all pairs of records, anchors left aside, for the first users."""
    domain, epsilon = run.problem.domain, run.problem.epsilon
    pairs = domain.size * (domain.size - 1) / 2
    epsilons, broken = [], []
    with np.errstate(divide="ignore"):
        logs = np.log(run.matrix)
    for chosen in [one for one in run.anchor_sets if len(one)][:SETS]:
        row = np.searchsorted(run.anchors, chosen)[surrogates(domain, chosen)]
        used, row = np.unique(row, return_inverse=True)
        nothing = np.zeros(domain.size)
        total = scan_pairs(domain, nothing, row.astype(np.int64), logs[used], epsilon)
        epsilons.append(total[0])
        broken.append(total[2] / pairs)
    if not epsilons:
        return {}
    return {"report_epsilon": max(epsilons), "report_violated": float(np.mean(broken))}


def real_shares(run: PublishedRun) -> dict[str, float]:
    """How eps d is spent when Phase I is charged in full, and what it costs near pairs.

    Shares are means over pairs of anchors: Phase I at most everything, the margin as the run
    charges it, at most what is left. `near_cost` is the median over pairs nearer than 2 km of
    Phase I's cost over eps d, not cut off at 1.
    """
    law = run.selection.on(run.problem.domain)
    distance = run.problem.domain.distances(run.anchors, run.anchors)
    np.fill_diagonal(distance, 0.0)
    upper = np.triu_indices(len(run.anchors), k=1)
    if not len(upper[0]):
        return {}
    whole = run.problem.epsilon * distance[upper]
    spent = leakage_table(law, law.rows(run.anchors), distance)[upper] / whole
    first = np.minimum(1.0, spent)
    second = np.clip(np.maximum(run.margin, run.margin.T)[upper] / whole, 0.0, 1.0 - first)
    near = distance[upper] < NEAR_KM
    return {
        "real_selection": float(first.mean()),
        "real_margin": float(second.mean()),
        "real_rest": float((1.0 - first - second).mean()),
        "near_cost": float(np.median(spent[near])) if near.any() else float("nan"),
    }
