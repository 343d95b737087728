"""The report is one file that asks for nothing, complete, and made of the rows alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from panda_mdp.errors import FileFormatError
from panda_paper.claims import CLAIMS
from panda_paper.figures import FIGURES
from panda_paper.results import load_results
from panda_paper.tables import write_report


@pytest.fixture(scope="module")
def page(toy_figures: Any) -> str:
    study, _ = toy_figures
    folder = study.folder.parent
    (folder / "report.html").unlink(missing_ok=True)
    before = {*folder.rglob("*")}
    target = write_report(folder)
    assert target == folder / "report.html"
    assert {*folder.rglob("*")} - before == {target}
    return target.read_text()


def test_the_page_asks_for_nothing(page: str) -> None:
    assert all(one.startswith("data:") for one in re.findall(r'(?:src|href)="([^"]*)', page))
    assert "<script" not in page and "@import" not in page and "url(" not in page
    assert "default-src 'none'" in page


def test_the_page_is_complete(page: str) -> None:
    text = page.replace("&#x27;", "'")
    for claim in CLAIMS:
        assert f"<td>{claim.key}<" in text
    for name in FIGURES:
        assert f"{name}: " in text
    assert page.count("<img") == len(FIGURES)
    assert "not comparable with the paper" in page


def test_lines_that_are_cut_off_are_passed_over_and_broken_ones_are_not(
    toy_figures: Any, tmp_path: Path
) -> None:
    study, _ = toy_figures
    lines = (study.folder / "cells.jsonl").read_text().splitlines()[:3]
    path = tmp_path / "cells.jsonl"
    path.write_text("\n".join([*lines, lines[0][:40]]))
    (results,) = load_results(tmp_path)
    assert len(results.lines) == 3 and results.name == tmp_path.name
    path.write_text("\n".join([lines[0][:40], *lines, ""]))
    with pytest.raises(FileFormatError, match="line 1"):
        load_results(tmp_path)


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="panda-mdp reproduce all"):
        load_results(tmp_path)
