"""One toy study that several tests of the experiments look at."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock

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
    """Made by the first worker that asks: the others find its cells and its files."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    drawn = base / "toy-files.json"
    rows: dict[str, list[Row]] = {}
    files: dict[str, list[Path]] = {}
    with FileLock(base / "toy.lock"):
        study = Study(
            synthetic_city(300, seed=1), "synthetic", base / "toy" / "synthetic", synthetic=True
        )
        store, bench = CellStore(study), Bench(CellLaboratory(study), "none")
        known = json.loads(drawn.read_text()) if drawn.exists() else {}
        for figure in FIGURES:
            toy = figure.toy().restricted(repeats=1)
            rows[figure.name] = run_cells(list(toy.cells()), store, bench)
            found = known.get(figure.name) or write_item(toy, rows[figure.name], study)
            files[figure.name] = [Path(path) for path in found]
        drawn.write_text(json.dumps({name: list(map(str, made)) for name, made in files.items()}))
    return ToyFigures(study, rows, files)
