"""Runs cells one after the other under a time limit, saves each at once, and resumes.

All cells of a run go through one worker process that keeps the draw at hand, so methods of one draw
share it. A cell that exceeds its limit is stopped by ending the worker, whatever the solver does,
and a new worker goes on. Ctrl-C ends the worker too; what was done is saved already.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from panda_mdp.base.processes import NoAnswer, Worker, bound_memory
from panda_mdp.errors import PandaError
from panda_paper.cells.clustering_cells import run_clustering
from panda_paper.cells.lower_bounds import run_bound
from panda_paper.cells.margin_cells import run_estimates, run_margins
from panda_paper.cells.outcome import Outcome, Row
from panda_paper.cells.results import Store
from panda_paper.cells.selection_profile import run_selection
from panda_paper.cells.table_methods import run_method
from panda_paper.cells.text_accounts import run_accounts, run_text_table
from panda_paper.cells.workspace import Study, Workspace
from panda_paper.settings.cell import Cell, Kind, Setting
from panda_paper.settings.method_names import SLOW

TIME_LIMIT = 1800.0
"""Seconds after which the paper calls a cell unsolved."""
GRACE = 10.0
"""What a cell that watches the clock itself may take beyond its limit to certify what it has."""
WARM = Setting(records=300, outputs=20, users=5)
"""A draw on which compiled kernels are loaded before anything is timed: large enough that they are
used at all."""
TINY = Setting(records=24, outputs=4, users=2)
"""The same for methods that would take long."""
WARM_LIMIT = 10.0
MEMORY_SHARE = 0.7
"""Of the machine's memory, for the process that runs cells."""
LACKING = "needs more memory than there is"
KINDS: Mapping[Kind, Callable[[Cell, Workspace], Outcome]] = {
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


@dataclass(frozen=True)
class Progressed:
    """How far a run is."""

    done: int
    total: int
    cell: Cell


def run_cells(
    cells: Sequence[Cell],
    study: Study,
    store: Store,
    *,
    limit: float | None = TIME_LIMIT,
    isolate: bool = True,
    fresh: bool = False,
    progress: Callable[[Progressed], None] | None = None,
) -> list[Row]:
    """The rows of all cells, from the store where they are known, run otherwise.

    A result is known where its cell is done or infeasible, or ran into a limit at least as long;
    `fresh` runs everything again. `isolate=False` runs in this process, where a limit is only
    kept by cells that watch the clock.
    """
    unique = list(dict.fromkeys(cells))
    rows: dict[Cell, Row] = {}
    bench = Bench(study)
    with Worker(bench) as worker:
        for done, cell in enumerate(unique):
            if progress is not None:
                progress(Progressed(done, len(unique), cell))
            known = None if fresh else store.get(cell)
            if known is not None and settled(known, limit):
                rows[cell] = known
                continue
            outcome = _isolated(worker, cell, limit) if isolate else bench.run(cell, limit)
            rows[cell] = store.add(cell, outcome, limit)
    return [rows[cell] for cell in unique]


def _isolated(
    worker: Worker[tuple[Cell, float | None], Outcome], cell: Cell, limit: float | None
) -> Outcome:
    """The outcome of a cell in the worker's process, or that it was stopped."""
    answer = worker.answer((cell, limit), None if limit is None else limit + GRACE)
    if not isinstance(answer, NoAnswer):
        return answer
    if answer.reason == "time limit" and limit is not None:
        note = f"stopped after {limit:g} s"
        return Outcome({}, (("stopped", limit),), "time limit", note)
    if answer.reason == "out of memory":
        return Outcome({}, (), "out of memory", LACKING)
    note = f"its process ended without an answer (exit code {answer.code})"
    return Outcome({}, (), "failed", note)


def settled(row: Row, limit: float | None) -> bool:
    """Whether running the cell again could not tell more."""
    if row.status == "time limit":
        return row.limit is not None and limit is not None and row.limit >= limit
    return row.status in ("done", "infeasible", "out of memory")


def execute(cell: Cell, work: Workspace) -> Outcome:
    """Run a cell here; what goes wrong on purpose is an answer, anything else a failure."""
    start = time.perf_counter()
    try:
        return KINDS[cell.kind](cell, work)
    except PandaError as error:
        stages = (("until it was refused", time.perf_counter() - start),)
        return Outcome({}, stages, "infeasible", " ".join(str(error).split()))
    except MemoryError:
        stages = (("until memory ran out", time.perf_counter() - start),)
        return Outcome({}, stages, "out of memory", LACKING)
    except Exception as error:  # a bug in one cell must not hide the others' results
        return Outcome({}, (), "failed", f"{type(error).__name__}: {error}")


class Bench:
    """Runs the cells of a study, and has their draw at hand."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._warmed: set[tuple[str, str]] = set()

    @cached_property
    def _work(self) -> Workspace:
        return Workspace(self._study)

    def run(self, cell: Cell, limit: float | None) -> Outcome:
        """Run a cell in this process."""
        self._work.limit = limit
        return execute(cell, self._work)

    def __call__(self, request: tuple[Cell, float | None]) -> Callable[[], Outcome]:
        """In a worker's process: the run of a cell, its method's compiled kernels loaded."""
        cell, limit = request
        if not self._warmed:
            bound_memory(MEMORY_SHARE)
        if (cell.kind, cell.method) not in self._warmed:
            self._warmed.add((cell.kind, cell.method))
            warm = TINY if cell.method in SLOW else WARM
            size = min(warm.records, self._study.city.nodes // 2)
            tiny = replace(cell, setting=replace(warm, records=size), repeat=0)
            self.run(tiny, WARM_LIMIT)
        return partial(self.run, cell, limit)
