"""Every table at toy size: cells run, files appear, nothing fails."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from panda_mdp.city.synthetic import synthetic_city
from panda_mdp.survey.bench import Bench
from panda_paper.items import EXACT, ITEMS
from panda_paper.results import Results
from panda_paper.runner import CellLaboratory, run_cells
from panda_paper.study import Study
from panda_paper.tables import write_item


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> tuple[Study, Results]:
    folder: Path = tmp_path_factory.mktemp("toy")
    made = Study(synthetic_city(400, 0), "synthetic", folder, synthetic=True)
    return made, Results.of_study(made)


@pytest.mark.parametrize("name", [item.name for item in ITEMS.values() if item.measure])
def test_every_table_runs_at_toy_size(name: str, study: tuple[Study, Results]) -> None:
    made, results = study
    toy = ITEMS[name].toy()
    toy = toy.restricted(methods=toy.methods, repeats=1)
    lines = run_cells(toy.draws(), results, Bench(CellLaboratory(made), "none"), 60.0)
    assert lines, "an item without cells shows nothing"
    assert [line["note"] for line in lines if line["status"] == "failed"] == []
    rows = results.shown(toy)
    solved = rows[rows["status"] == "done"]
    assert solved[toy.measure].notna().all()
    assert {*solved["method"]} >= set(toy.methods) - set(EXACT)
    paths = write_item(toy, results)
    assert [path.suffix for path in paths] == [".csv", ".md"]
    table = [*csv.DictReader(paths[0].read_text().splitlines())]
    assert len(table) == len({(cell.method, cell.setting) for cell in rows["cell"]})
    assert "SYNTHETIC" in paths[1].read_text()
