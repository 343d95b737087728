"""The cells of a study on the bench: each saved as it ends, none run twice.

All cells of a run go through one worker process that keeps the draw at hand, so methods of one draw
share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from panda_mdp.base.arrays import stopwatch
from panda_mdp.base.text import Facts
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
from panda_paper.items import GROUPS, Cell, Setting
from panda_paper.methods import METHODS, Run
from panda_paper.results import Results
from panda_paper.study import Draw, Study, draw_cell

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


KINDS: Mapping[str, Run] = {
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


@dataclass
class CellLaboratory:
    """Runs the cells of a study."""

    study: Study
    kinds: Mapping[str, Run] = field(default_factory=lambda: KINDS)
    _rehearsed: set[tuple[str, str]] = field(default_factory=set)

    def run(self, cell: Cell, limit: float | None) -> Outcome:
        """Run a cell in this process; it takes what it takes where it names no stages."""
        draw = draw_cell(self.study, cell, limit)
        spent = stopwatch()
        outcome = self.kinds[cell.kind](draw)
        return outcome if outcome.stages else replace(outcome, stages=spent("all"))

    def rehearse(self, cell: Cell) -> None:
        """Load the kernels of a cell's method on a small draw, once."""
        if (cell.kind, cell.method) in self._rehearsed:
            return
        self._rehearsed.add((cell.kind, cell.method))
        setting = TINY if cell.method in GROUPS["slow"] else WARM
        size = min(setting.records, self.study.city.nodes // 2)
        small = replace(cell, setting=replace(setting, records=size), repeat=0)
        execute(self, small, WARM_LIMIT)


def run_cells(
    cells: Iterable[Cell],
    results: Results,
    bench: Bench[Cell],
    limit: float | None = TIME_LIMIT,
    *,
    fresh: bool = False,
    progress: Callable[[int, Cell], None] = lambda done, cell: None,
) -> list[Facts]:
    """The lines of all cells, each run where it is not known or where a `fresh` result is asked
    for."""
    unique = dict.fromkeys(cells)
    for done, cell in enumerate(unique):
        progress(done, cell)
        if fresh or not results.has_final(cell, limit):
            results.add(cell, bench.run(cell, limit), limit)
    return [results.lines[cell] for cell in unique]
