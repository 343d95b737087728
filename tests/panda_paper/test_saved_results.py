"""The results in docs/results: nothing saved is orphaned, and every item has its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from panda_paper.items import ITEMS
from panda_paper.results import Results
from panda_paper.runner import KINDS

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
CITIES = sorted(path.parent for path in RESULTS.glob("*/cells.jsonl.gz"))


def test_there_are_results_of_the_papers_cities() -> None:
    assert [folder.name for folder in CITIES] == ["london", "nyc", "rome"]


@pytest.mark.parametrize("folder", CITIES, ids=lambda path: path.name)
def test_every_saved_cell_belongs_to_an_item_and_says_what_made_it(folder: Path) -> None:
    results = Results(folder)
    templates = {}
    for cell, line in results.lines.items():
        assert cell.kind in KINDS
        assert line["version"] and line["environment"] in results.environments
        templates[cell.kind, cell.method, cell.setting, cell.options] = cell
    shown = {
        (cell.kind, cell.method, cell.setting, cell.options)
        for item in ITEMS.values()
        for cell in item.plan
    }
    assert [str(cell) for key, cell in templates.items() if key not in shown] == []


@pytest.mark.parametrize("folder", CITIES, ids=lambda path: path.name)
def test_every_item_has_its_files(folder: Path) -> None:
    for item in ITEMS.values():
        ends = (".png", ".md") if item.measure is None else (".csv", ".md")
        missing = [end for end in ends if not (folder / f"{item.name}{end}").exists()]
        assert missing == [], item.name
