"""The results in docs/results: nothing saved is orphaned, and every figure has its picture."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from panda_paper.items import ITEMS
from panda_paper.results import Row
from panda_paper.runner import KINDS

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
CITIES = sorted(path.parent for path in RESULTS.glob("*/cells.jsonl.gz"))


def test_there_are_results_of_the_papers_cities() -> None:
    assert [folder.name for folder in CITIES] == ["london", "nyc", "rome"]


@pytest.mark.parametrize("folder", CITIES, ids=lambda path: path.name)
def test_every_saved_cell_belongs_to_an_item_and_says_what_made_it(folder: Path) -> None:
    known = [item.with_all_of(item) for item in ITEMS.values()]
    environments = json.loads((folder / "environment.json").read_text())
    templates = set()
    for line in gzip.decompress((folder / "cells.jsonl.gz").read_bytes()).splitlines():
        fields = json.loads(line)
        row = Row.read(fields)
        assert fields["kind"] in KINDS and fields["key"] == row.cell.key
        assert row.version and row.environment in environments
        templates.add((row.cell.first, row.cell))
    once = dict(templates)
    assert [str(cell) for cell in once.values() if not any(one.shows(cell) for one in known)] == []


@pytest.mark.parametrize("folder", CITIES, ids=lambda path: path.name)
def test_every_item_has_its_files(folder: Path) -> None:
    for item in ITEMS.values():
        if item.group == "paper":
            ends = (".png", ".md") if item.measure is None else (".csv", ".md")
            missing = [end for end in ends if not (folder / f"{item.name}{end}").exists()]
            assert missing == [], item.name
