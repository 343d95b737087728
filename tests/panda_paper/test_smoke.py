"""Every item of the registry at toy size: cells run, files appear, nothing fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from panda_mdp.city.synthetic import synthetic_city
from panda_mdp.survey.bench import Bench
from panda_paper.items import EXACT, ITEMS, TABLES
from panda_paper.results import CellStore
from panda_paper.runner import CellLaboratory, run_cells
from panda_paper.study import Study
from panda_paper.tables import write_item


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Iterator[tuple[Study, CellStore]]:
    folder: Path = tmp_path_factory.mktemp("toy")
    made = Study(synthetic_city(400, 0), "synthetic", folder, synthetic=True)
    yield made, CellStore(made)


@pytest.mark.parametrize("name", [item.name for item in TABLES])
def test_every_table_runs_at_toy_size(name: str, study: tuple[Study, CellStore]) -> None:
    made, store = study
    toy = ITEMS[name].toy()
    toy = toy.restricted(methods=toy.methods, repeats=1)
    cells = list(toy.cells())
    assert cells, "an item without cells shows nothing"
    rows = run_cells(cells, store, Bench(CellLaboratory(made), "none"), 60.0)
    assert [row.outcome.note for row in rows if row.status == "failed"] == []
    solved = [row for row in rows if row.status == "done"]
    assert all(row.value(toy.measure) is not None for row in solved)
    assert {row.cell.method for row in solved} >= set(toy.methods) - set(EXACT)
    paths = write_item(toy, rows, made)
    assert [path.suffix for path in paths] == [".csv", ".json", ".md"]
    table = json.loads(paths[1].read_text())
    assert len(table) == len({(row.cell.method, row.cell.setting) for row in rows})
    assert "SYNTHETIC" in paths[2].read_text()
