"""Every item of the registry at toy size: cells run, files appear, nothing fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from panda_mdp.city.synthetic import synthetic_city
from panda_paper.cells.results import Store
from panda_paper.cells.runner import run_cells
from panda_paper.cells.workspace import Study
from panda_paper.report.item_files import write_item
from panda_paper.settings.paper_items import choose_items
from panda_paper.settings.paper_tables import ITEMS


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Iterator[tuple[Study, Store]]:
    folder: Path = tmp_path_factory.mktemp("toy")
    made = Study(synthetic_city(400, 0), "synthetic", folder, synthetic=True)
    yield made, Store(folder, made)


@pytest.mark.parametrize("name", [item.name for item in ITEMS])
def test_every_table_runs_at_toy_size(name: str, study: tuple[Study, Store]) -> None:
    made, store = study
    (item,) = choose_items(name)
    toy = item.toy().restricted(repeats=1)
    cells = list(toy.cells(slow_repeats=1))
    assert cells, "an item without cells shows nothing"
    rows = run_cells(cells, made, store, limit=60.0, isolate=False)
    assert [row.outcome.note for row in rows if row.status == "failed"] == []
    solved = [row for row in rows if row.status == "done"]
    assert all(row.value(toy.measure) is not None for row in solved)
    assert {row.cell.method for row in solved} >= set(toy.methods) - {
        "PAnDA-e",
        "PAnDA-p",
        "PAnDA-l",
    }
    paths = write_item(toy, rows, made)
    assert [path.suffix for path in paths] == [".csv", ".json", ".md"]
    table = json.loads(paths[1].read_text())
    assert len(table) == len({(row.cell.method, row.cell.setting) for row in rows})
    assert "SYNTHETIC" in paths[2].read_text()
