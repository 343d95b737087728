"""One toy study that several tests of the experiments look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from panda_mdp import synthetic_city
from panda_paper.cells import runner
from panda_paper.cells.outcome import Row
from panda_paper.cells.results import Store
from panda_paper.cells.runner import run_cells
from panda_paper.cells.workspace import Study
from panda_paper.report.item_files import write_item
from panda_paper.settings.paper_figures import ITEMS


@dataclass(frozen=True)
class ToyFigures:
    """Every figure at toy size: its rows and its files."""

    study: Study
    rows: Mapping[str, list[Row]]
    files: Mapping[str, list[Path]]


@pytest.fixture(scope="session")
def toy_figures(tmp_path_factory: pytest.TempPathFactory) -> ToyFigures:
    folder = tmp_path_factory.mktemp("toy") / "synthetic"
    study = Study(synthetic_city(300, seed=1), "synthetic", folder, synthetic=True)
    store = Store(folder, study)
    rows: dict[str, list[Row]] = {}
    files: dict[str, list[Path]] = {}
    for figure in ITEMS:
        toy = figure.toy().restricted(repeats=1)
        rows[figure.name] = run_cells(list(toy.cells()), study, store, isolate=False)
        files[figure.name] = write_item(toy, rows[figure.name], study)
    return ToyFigures(study, rows, files)


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells run in this process."""
    monkeypatch.setattr(
        runner, "_isolated", lambda worker, cell, limit: worker._prepare.run(cell, limit)
    )
