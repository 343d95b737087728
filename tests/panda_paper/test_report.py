"""The page on the paper's claims is complete, and made of the rows alone."""

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


def test_the_page_has_every_claim_and_links_to_every_file(toy_figures: Any) -> None:
    study, _ = toy_figures
    folder = study.folder.parent
    target = write_report(folder)
    assert target == folder / "report.md"
    text = target.read_text()
    for claim in CLAIMS:
        assert f"| {claim.key} | {claim.says} " in text
    assert "| guarantee |" in text and "| does not hold |" in text
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert {Path(link).stem for link in links} >= {*FIGURES}
    assert all((folder / link).exists() for link in links)


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
