"""The report is one file that asks for nothing, complete, and made of the rows alone."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from panda_mdp.errors import FileFormatError
from panda_mdp.survey.bench import Outcome
from panda_paper.claims import CLAIMS
from panda_paper.items import FIGURES, Cell, Setting
from panda_paper.results import CityResults, Row, Rows, load_results
from panda_paper.tables import report_html, write_report

VOID = {"meta", "br", "img", "link", "hr", "input"}


class Tags(HTMLParser):
    """Checks that tags are closed in order, and collects ids and addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id" and value:
                self.ids.append(value)
            if name == "href" and value and value.startswith("#"):
                self.targets.append(value[1:])
            if name in ("src", "href", "xlink:href", "data", "action") and value:
                self.addresses.append(value)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag


@pytest.fixture(scope="module")
def page(toy_figures: Any) -> str:
    return report_html(load_results(toy_figures.study.folder.parent))


def test_the_page_is_well_formed_and_its_links_lead_somewhere(page: str) -> None:
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert set(tags.targets) <= set(tags.ids)
    own = [name for name in tags.ids if name.startswith(("claim-", "synthetic"))]
    assert len(own) == len(set(own)) == len(CLAIMS) + len(FIGURES) + 1


def test_the_page_asks_for_nothing(page: str) -> None:
    tags = Tags()
    tags.feed(page)
    assert all(one.startswith(("#", "data:")) for one in tags.addresses)
    assert "<script" not in page and "@import" not in page
    assert not re.search(r"url\((?!['\"]?#)", page)
    assert "default-src 'none'" in page


def test_the_page_is_complete(page: str) -> None:
    for claim in CLAIMS:
        assert f">{claim.key}</a>" in page.replace("&#x27;", "'")
    for figure in FIGURES:
        assert f"panda-mdp reproduce {figure.name} --city FILE" in page
    assert page.count("<svg") == len(FIGURES)
    assert "not comparable with the paper" in page
    assert "prefers-color-scheme: dark" in page and "@media print" in page
    assert "__" not in re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)


def test_ids_of_pictures_do_not_collide(page: str) -> None:
    clips = re.findall(r'<clipPath id="([^"]+)"', page)
    assert clips and len(clips) == len(set(clips))


def test_the_top_says_how_many_draws_each_table_rests_on(tmp_path: Path) -> None:
    cells = [
        Cell("method", name, Setting(size, prior=prior), repeat)
        for name, prior, sizes, repeats in [
            ("EM", "uniform", (500, 1000), 3),
            ("EM+BR", "uniform", (500, 1000), 3),
            ("optimal", "uniform", (500, 1000), 2),
            ("ball", "uniform", (1000,), 1),
            ("EM", "real", (500, 1000), 2),
        ]
        for size in sizes
        for repeat in range(repeats)
    ]
    rows = Rows(Row(cell, Outcome({"loss_m": 1.0}), None, "", "") for cell in cells)
    page = report_html([CityResults(tmp_path, {}, {}, rows)])
    assert "Tables 2 and 4: 3; optimal 2, ball 1. Tables 3 and 5: 2. Figures" in page


def test_names_are_escaped(toy_figures: Any) -> None:
    (found,) = load_results(toy_figures.study.folder)
    nasty = type(found)(found.folder, {**found.facts, "city": "<b>&"}, {}, Rows(found.rows[:3]))
    text = report_html([nasty])
    assert "<b>&<" not in text and "&lt;b&gt;&amp;" in text


def test_the_file_is_written_beside_the_results(toy_figures: Any, tmp_path: Path) -> None:
    lines = (toy_figures.study.folder / "cells.jsonl").read_text().splitlines()[:3]
    results = tmp_path / "results"
    results.mkdir()
    (results / "cells.jsonl").write_text("\n".join(lines) + "\n")
    target = write_report(results)
    assert target == results / "report.html"
    assert target.read_text().startswith("<!doctype html>")
    assert sorted(results.iterdir()) == [results / "cells.jsonl", target]


def test_an_interrupted_line_is_passed_over_and_a_broken_one_is_not(
    toy_figures: Any, tmp_path: Path
) -> None:
    source = toy_figures.study.folder
    lines = (source / "cells.jsonl").read_text().splitlines()[:3]
    path = tmp_path / "cells.jsonl"
    path.write_text("\n".join([*lines, lines[0][:40]]))
    (results,) = load_results(tmp_path)
    assert len(results.rows) == 3 and results.name == tmp_path.name
    again = json.loads(lines[1])
    again["values"] = {"loss_m": "inf"}
    path.write_text("\n".join([*lines, json.dumps(again)]))
    (results,) = load_results(tmp_path)
    assert len(results.rows) == 3
    assert sorted(r.value("loss_m") == float("inf") for r in results.rows) == [False, False, True]
    path.write_text("\n".join([lines[0][:40], *lines]))
    with pytest.raises(FileFormatError, match="line 1"):
        load_results(tmp_path)


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="panda-mdp reproduce all"):
        load_results(tmp_path)
