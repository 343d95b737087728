"""Cells of the tables: one method on one draw, with its loss, certificate, audit and stages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from panda_mdp.errors import MethodError
from panda_mdp.survey.registry import METHODS as LIBRARY
from panda_mdp.survey.registry import Method
from panda_mdp.table.mechanism import Table
from panda_paper.cells import artifact, panda_methods
from panda_paper.cells.outcome import METRES, Outcome
from panda_paper.cells.panda_methods import GAP, Run
from panda_paper.cells.workspace import Draw, Workspace
from panda_paper.settings.cell import Cell
from panda_paper.settings.method_names import COARSE, EXACT, OURS, PUBLISHED, SWAPPED, decay_of


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
        reason = f"not solved within {limit:g} s; the best found so far is best_loss_m"
        return Outcome(values, tuple(stages), "time limit", reason)
    if table.details.get("stopped") == "failed":
        origin = table.details.get("table", "best")
        note = f"the solver failed: this is the {origin} table"
    return Outcome(values, tuple(stages), "done", note)


def library(method: Method) -> Run:
    """A method of the library's registry."""

    def run(cell: Cell, draw: Draw, work: Workspace) -> Outcome:
        start = time.perf_counter()
        table = method.run(draw.problem, work.limit)
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
    from panda_mdp.methods.coarse import coarse_unsound

    start = time.perf_counter()
    table = coarse_unsound(draw.problem, 8, gap=GAP, time_limit=work.limit)
    note = "the paper's text: distances between cells' centres, no guarantee"
    return table_outcome(table, time.perf_counter() - start, work.limit, note)


def _named() -> Iterator[TableMethod]:
    """What the library's registry has under a name of the paper, and two of its own."""
    for method in LIBRARY:
        if method.label in OURS:
            yield TableMethod(method.label, library(method))
        elif method.paper is not None and method.paper not in EXACT:
            yield TableMethod(method.paper, library(method), method.paper)


METHODS: dict[str, TableMethod] = {
    method.name: method
    for method in (
        *_named(),
        TableMethod("LP", whole_lp, "LP"),
        TableMethod(COARSE, unsound_coarse, "LP+CA"),
        TableMethod("LP+CA published", artifact.coarse_published, "LP+CA"),
        TableMethod("LP+BD published", artifact.benders_published, "LP+BD"),
        *(TableMethod(name, panda_methods.exact(decay_of(name)), name) for name in EXACT),
        *(
            TableMethod(name, panda_methods.published(decay_of(name)), name.split(" ")[0])
            for name in PUBLISHED
        ),
        TableMethod("ball", panda_methods.ball),
        # On the artifact's own distances, latitude and longitude exchanged.
        TableMethod("EM swapped", artifact.exponential_swapped, "EM"),
        TableMethod("EM+BR swapped", artifact.remap_swapped, "EM+BR"),
        *(
            TableMethod(
                name, panda_methods.published(decay_of(name), swapped=True), name.split(" ")[0]
            )
            for name in SWAPPED[2:]
        ),
    )
}
"""The rows of the tables by name."""
