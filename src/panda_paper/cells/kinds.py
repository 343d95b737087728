"""The kinds of cells: what computes each, under the name that results are saved with."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from panda_paper.cells.clustering import run_clustering
from panda_paper.cells.lower_bounds import run_bound
from panda_paper.cells.margin_cells import run_estimates, run_margins
from panda_paper.cells.outcome import Outcome
from panda_paper.cells.selection_profile import run_selection
from panda_paper.cells.table_methods import run_method
from panda_paper.cells.text_accounts import run_accounts, run_text_table
from panda_paper.cells.workspace import Workspace
from panda_paper.settings.cell import Cell, Kind

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
