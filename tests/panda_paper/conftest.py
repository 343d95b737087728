"""One toy study that several tests of the experiments look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from panda_mdp import synthetic_city
from panda_paper.draws import Study
from panda_paper.figure_specs import ITEMS
from panda_paper.runner import run_cells
from panda_paper.specs import function
from panda_paper.store import Row, Store


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
        files[figure.name] = function(figure.render)(toy, rows[figure.name], study)
    return ToyFigures(study, rows, files)
