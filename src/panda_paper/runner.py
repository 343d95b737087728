"""The cells of a study on the bench: each saved as it ends, none run twice.

All cells of a run go through one worker process that keeps the draw at hand, so methods of one draw
share it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from panda_mdp.base.arrays import stopwatch
from panda_mdp.errors import MethodError
from panda_mdp.survey.bench import Bench, Outcome, execute
from panda_paper.accounts import (
    run_accounts,
    run_bound,
    run_clustering,
    run_estimates,
    run_margins,
    run_selection,
    run_text_table,
)
from panda_paper.items import SLOW, Cell, Item, Kind, Setting
from panda_paper.methods import METHODS, Run
from panda_paper.results import CellStore, Row, matching
from panda_paper.study import Draw, Study, Workspace
from panda_paper.tables import write_item

TIME_LIMIT = 1800.0
"""Seconds after which the paper calls a cell unsolved."""
WARM = Setting(records=300, outputs=20, users=5)
"""A draw on which compiled kernels are loaded before anything is timed: large enough that they are
used at all."""
TINY = Setting(records=24, outputs=4, users=2)
"""The same for methods that would take long."""
WARM_LIMIT = 10.0


def run_method(draw: Draw) -> Outcome:
    """The cell kind of the tables: the cell's method on its draw."""
    name = draw.cell.method
    if name not in METHODS:
        raise MethodError(f"there is no method {name!r}; choose from {', '.join(METHODS)}")
    outcome = METHODS[name](draw)
    return replace(outcome, values={**outcome.values, "draw_seconds": draw.seconds})


KINDS: Mapping[Kind, Run] = {
    "method": run_method,
    "clustering": run_clustering,
    "accounts": run_accounts,
    "text table": run_text_table,
    "bound": run_bound,
    "selection": run_selection,
    "margins": run_margins,
    "estimates": run_estimates,
}
"""What computes each kind of cell, under the name that results are saved with."""


class CellLaboratory:
    """Runs the cells of a study, and has their draw at hand."""

    def __init__(self, study: Study, kinds: Mapping[Kind, Run] = KINDS) -> None:
        self.study = study
        self.kinds = kinds
        self._rehearsed: set[tuple[str, str]] = set()

    @cached_property
    def workspace(self) -> Workspace:
        """The draws; made where the cells run."""
        return Workspace(self.study)

    def run(self, cell: Cell, limit: float | None) -> Outcome:
        """Run a cell in this process; it takes what it takes where it names no stages."""
        draw = self.workspace.draw(cell, limit)
        spent = stopwatch()
        outcome = self.kinds[cell.kind](draw)
        return outcome if outcome.stages else replace(outcome, stages=spent("all"))

    def rehearse(self, cell: Cell) -> None:
        """Load the kernels of a cell's method on a small draw, once."""
        if (cell.kind, cell.method) in self._rehearsed:
            return
        self._rehearsed.add((cell.kind, cell.method))
        setting = TINY if cell.method in SLOW else WARM
        size = min(setting.records, self.study.city.nodes // 2)
        small = replace(cell, setting=replace(setting, records=size), repeat=0)
        execute(self, small, WARM_LIMIT)


def run_cells(
    cells: Sequence[Cell],
    store: CellStore,
    bench: Bench[Cell],
    limit: float | None = TIME_LIMIT,
    progress: Callable[[int, Cell], None] = lambda done, cell: None,
) -> list[Row]:
    """The rows of all cells, from the store where they are known, run otherwise."""
    unique = list(dict.fromkeys(cells))
    for done, cell in enumerate(unique):
        progress(done, cell)
        if not store.has_final(cell, limit):
            store.add(cell, bench.run(cell, limit), limit)
    return [row for row in map(store.get, unique) if row is not None]


def write_items(
    items: Sequence[Item], parts: Sequence[Item], store: CellStore, study: Study
) -> list[str]:
    """Write the files of items of which parts were run, with all that the store knows of them."""
    wholes = [item.with_all_of(part) for item, part in zip(items, parts, strict=True)]
    return [
        str(path)
        for whole in wholes
        for path in write_item(whole, matching(whole, store.rows), study)
    ]
