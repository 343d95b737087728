"""One toy study that several tests of the experiments look at."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from filelock import FileLock

from panda_mdp import synthetic_city
from panda_mdp.survey.bench import Bench, Outcome
from panda_paper.figures import FIGURES
from panda_paper.items import ITEMS, Cell
from panda_paper.results import Results
from panda_paper.runner import CellLaboratory, run_cells
from panda_paper.study import Study
from panda_paper.tables import write_item

Rows = Iterable[tuple[Cell, Outcome]]


@pytest.fixture(scope="session")
def toy_figures(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, Results]:
    """Every figure at toy size, with its files. Made by the first worker that asks: the others find
    its cells and its files."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = base / "toy" / "synthetic"
    with FileLock(base / "toy.lock"):
        study = Study(synthetic_city(300, seed=1), "synthetic", folder, synthetic=True)
        results, bench = Results.of_study(study), Bench(CellLaboratory(study), "none")
        for name in FIGURES:
            toy = ITEMS[name].toy().restricted(repeats=1)
            run_cells(toy.draws(), results, bench)
            if not (folder / f"{name}.md").exists():
                write_item(toy, results)
    return study, results


@pytest.fixture
def results_of(tmp_path: Path) -> Callable[[Rows], Results]:
    """Results of cells whose outcomes are given."""

    def make(rows: Rows) -> Results:
        place = tmp_path / f"city{len([*tmp_path.iterdir()])}"
        place.mkdir()
        made = Results(place)
        for cell, outcome in rows:
            made.add(cell, outcome, 1800.0)
        return made

    return make
