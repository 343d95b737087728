"""One toy study that several tests of the experiments look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from panda_mdp import synthetic_city
from panda_mdp.survey.bench import Bench
from panda_paper.items import FIGURES
from panda_paper.results import CellStore, Row
from panda_paper.runner import CellLaboratory, run_cells
from panda_paper.study import Study
from panda_paper.tables import write_item


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
    store, bench = CellStore(study), Bench(CellLaboratory(study), "none")
    rows: dict[str, list[Row]] = {}
    files: dict[str, list[Path]] = {}
    for figure in FIGURES:
        toy = figure.toy().restricted(repeats=1)
        rows[figure.name] = run_cells(list(toy.cells()), store, bench)
        files[figure.name] = write_item(toy, rows[figure.name], study)
    return ToyFigures(study, rows, files)
