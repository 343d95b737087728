"""Cells of the tables: one method on one draw, with its loss, certificate, audit and stages."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from panda_mdp.errors import MethodError
from panda_mdp.survey.registry import methods as library_methods
from panda_mdp.table.mechanism import Table
from panda_paper import cells_artifact, cells_panda
from panda_paper.cells_panda import Run
from panda_paper.draws import Draw, Workspace
from panda_paper.specs import Cell
from panda_paper.store import Outcome

METRES = 1000.0
GAP = 0.01
"""Gap to which the LPs of this library are solved."""


@dataclass(frozen=True)
class TableMethod:
    """A row of the tables."""

    name: str
    run: Run
    paper: str | None = None
    """The row of the paper's tables that it stands beside."""


def run_method(cell: Cell, work: Workspace) -> Outcome:
    """The cell kind of the tables: `cell.method` on the cell's draw."""
    if cell.method not in METHODS:
        msg = f"there is no method {cell.method!r}; choose from {', '.join(METHODS)}"
        raise MethodError(msg)
    draw = work.draw(cell)
    outcome = METHODS[cell.method].run(cell, draw, work)
    values = {**outcome.values, "draw_seconds": draw.seconds}
    return Outcome(values, outcome.stages, outcome.status, outcome.note)


def table_outcome(table: Table, seconds: float, limit: float | None, note: str = "") -> Outcome:
    """What the tables show of a perturbation table over all records."""
    values: dict[str, Any] = {
        "loss_m": METRES * table.loss,
        "claimed_epsilon": table.epsilon,
        "audited_epsilon": table.audit.epsilon,
        "holds": table.audit.holds,
    }
    if table.lower_bound is not None:
        values["lower_bound_m"] = METRES * table.lower_bound
        values["gap"] = table.gap
    for name in ("violated_pairs", "violated_constraints", "cells_gap", "iterations", "stopped"):
        if name in table.details:
            values[name] = table.details[name]
    stages = list(table.stages)
    rest = seconds - sum(spent for _, spent in stages)
    stages.append(("audit and the rest", max(0.0, rest)))
    over = limit is not None and table.details.get("stopped") == "time limit"
    if over:
        values["best_loss_m"] = values.pop("loss_m")
        told = f"not solved within {limit:g} s; the best found so far is best_loss_m"
        return Outcome(values, tuple(stages), "time limit", told)
    if table.details.get("stopped") == "failed":
        kept = table.details.get("table", "best")
        note = f"the solver failed: this is the {kept} table"
    return Outcome(values, tuple(stages), "done", note)


def library(name: str) -> Run:
    """A method of the library's registry."""

    def run(cell: Cell, draw: Draw, work: Workspace) -> Outcome:
        start = time.perf_counter()
        table = library_methods()[name].run(draw.problem, work.limit)
        return table_outcome(table, time.perf_counter() - start, work.limit)

    return run


def whole_lp(cell: Cell, draw: Draw, work: Workspace) -> Outcome:
    """The paper's LP: all pairs, handed to HiGHS."""
    from panda_mdp.methods.optimal.reference import solve_highs

    start = time.perf_counter()
    table = solve_highs(draw.problem, pairs="all", time_limit=work.limit)
    return table_outcome(table, time.perf_counter() - start, work.limit)


def unsound_coarse(cell: Cell, draw: Draw, work: Workspace) -> Outcome:
    """LP+CA as the paper's text has it: an 8 x 8 grid, distances between centres."""
    from panda_mdp.methods.coarse import coarse

    start = time.perf_counter()
    table = coarse(draw.problem, 8, sound=False, gap=GAP, time_limit=work.limit)
    note = "the paper's text: distances between cells' centres, no guarantee"
    return table_outcome(table, time.perf_counter() - start, work.limit, note)


METHODS: dict[str, TableMethod] = {
    method.name: method
    for method in (
        TableMethod("EM", library("exponential"), "EM"),
        TableMethod("LP", whole_lp, "LP"),
        TableMethod("LP+CA", library("coarse"), "LP+CA"),
        TableMethod("LP+CA 8x8", unsound_coarse, "LP+CA"),
        TableMethod("LP+CA published", cells_artifact.coarse_published, "LP+CA"),
        TableMethod("LP+BD", library("benders"), "LP+BD"),
        TableMethod("LP+BD published", cells_artifact.benders_published, "LP+BD"),
        TableMethod("LP+EM", library("constopt"), "LP+EM"),
        TableMethod("EM+BR", library("exponential_remap"), "EM+BR"),
        TableMethod("PAnDA-e", cells_panda.exact("exponential"), "PAnDA-e"),
        TableMethod("PAnDA-p", cells_panda.exact("power"), "PAnDA-p"),
        TableMethod("PAnDA-l", cells_panda.exact("logistic"), "PAnDA-l"),
        TableMethod("PAnDA-e published", cells_panda.published("exponential"), "PAnDA-e"),
        TableMethod("PAnDA-p published", cells_panda.published("power"), "PAnDA-p"),
        TableMethod("PAnDA-l published", cells_panda.published("logistic"), "PAnDA-l"),
        TableMethod("loss exponential", library("loss_exponential")),
        TableMethod("optimal", library("optimal")),
        TableMethod("ball", cells_panda.ball),
        # On the artifact's own distances, latitude and longitude exchanged.
        TableMethod("EM swapped", cells_artifact.exponential_swapped, "EM"),
        TableMethod("EM+BR swapped", cells_artifact.remap_swapped, "EM+BR"),
        TableMethod(
            "PAnDA-e swapped", cells_panda.published("exponential", swapped=True), "PAnDA-e"
        ),
        TableMethod("PAnDA-p swapped", cells_panda.published("power", swapped=True), "PAnDA-p"),
        TableMethod("PAnDA-l swapped", cells_panda.published("logistic", swapped=True), "PAnDA-l"),
    )
}
