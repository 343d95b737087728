"""Tables: means and spreads, the paper's interval, files for machines and for people."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from panda_mdp.survey.bench import Outcome, Status
from panda_paper.items import Cell, Item, Setting
from panda_paper.results import Results
from panda_paper.tables import comparison, summarise, write_item

METHODS = ("EM", "LP", "PAnDA-e", "PAnDA-e published")
ITEM = Item("table4", "Losses", [{"methods": METHODS, "records": 500}], "loss_m")


def row(method: str, repeat: int, status: Status = "done", note: str = "", **values: object) -> Any:
    outcome = Outcome(values, (("work", 2.0),), status, note)
    return Cell("method", method, Setting(500), repeat), outcome


PROMISE = {"claimed_epsilon": 5.0, "holds": False}
ROWS = [
    *(
        row("EM", k, loss_m=loss, audited_epsilon=5 - 0.1 * k, claimed_epsilon=5.0, holds=True)
        for k, loss in enumerate((1100.0, 1300.0, 1500.0))
    ),
    row("LP", 0, "time limit", "stopped after 1800 s"),
    row("PAnDA-e", 0, "infeasible", "Phase I costs 13"),
    *(
        row("PAnDA-e published", k, **PROMISE, loss_m=150.0 + 10 * k, audited_epsilon=audited,
            violated_pairs=0.02 + 0.02 * k, true_loss_m=700.0 - 200 * k)
        for k, audited in enumerate((float("inf"), 60.0))
    ),
]  # fmt: skip


@pytest.fixture
def rome(results_of: Callable[[Any], Results]) -> Results:
    made = results_of(ROWS)
    made.facts = {"city": "rome", "nodes": 50}
    return made


def table_of(city: Results) -> Any:
    return summarise(ITEM, city.shown(ITEM), city.name)


def test_means_spreads_and_the_papers_interval(rome: Results) -> None:
    table = table_of(rome).set_index("method")
    em = table.loc["EM"]
    assert em["mean"] == 1300
    assert em["spread"] == pytest.approx(1.96 * np.std([1100, 1300, 1500], ddof=1))
    assert em["paper"] == "1315.27±98.35"
    assert em["difference"] == pytest.approx(-15.27)
    assert em["inside"] and em["overlap"]
    assert em["readme"] == 1145
    assert (em["audited_epsilon"], em["holds"], em["mean_spent"]) == (5.0, True, 2.0)
    published = table.loc["PAnDA-e published"]
    assert published["paper"] == table["paper"]["PAnDA-e"], "both stand beside the paper's row"
    assert published["audited_epsilon"] == float("inf")
    assert published["holds"] == False  # noqa: E712
    assert not published["inside"] and not published["overlap"]
    assert published["mean_violated_pairs"] == pytest.approx(0.03)
    assert np.isnan(table["mean"]["LP"]) and table["status"]["LP"] == "time limit 1"
    assert table["note"]["PAnDA-e"] == "Phase I costs 13"


def test_files_for_machines(rome: Results) -> None:
    path, _ = write_item(ITEM, rome)
    with path.open() as stream:
        lines = list(csv.DictReader(stream))
    assert [line["method"] for line in lines] == list(METHODS)
    assert float(lines[0]["mean"]) == 1300 and lines[3]["audited_epsilon"] == "inf"
    assert lines[2]["status"] == "infeasible 1"
    assert (lines[0]["records"], lines[0]["inside"]) == ("500", "True")


def test_the_markdown_shows_claim_audit_and_misses(rome: Results) -> None:
    _, path = write_item(ITEM, rome)
    lines = [line.strip("| ").split(" | ") for line in path.read_text().splitlines() if "|" in line]
    names, _, *table = lines
    rows = {line[0]: dict(zip(names, line, strict=False)) for line in table}
    em = rows["EM"]
    assert (em["ours"], em["±"], em["paper"]) == ("1300", "392", "1315.27±98.35")
    assert (em["difference"], em["inside"], em["README"]) == ("-15.27", "True", "1145")
    published = rows["PAnDA-e published"]
    assert (published["audited ε"], published["holds"]) == ("inf", "False")
    assert published["pairs violated"] == "3.00%"
    assert published["loss over true records"] == "600"
    assert rows["LP"]["ended"] == "time limit 1" and rows["LP"]["note"] == "stopped after 1800 s"
    assert "in 1 of 2 entries" in path.read_text()
    assert "EM 1/1, PAnDA-e published 0/1." in path.read_text()


def test_nothing_to_compare_with_is_said(rome: Results) -> None:
    assert "in 0 of 0 entries" in comparison(table_of(rome).query("method == 'LP'"))


def test_the_synthetic_city_and_the_prior_are_labelled(
    results_of: Callable[[Any], Results],
) -> None:
    cells = [{"methods": ["EM"], "records": 500, "prior": "real"}]
    real = Item("table5", "Losses", cells, "loss_m")
    city = results_of([(cell, Outcome({"loss_m": 1.0})) for cell in real.draws()])
    city.facts = {"city": "synthetic", "synthetic": True, "real_prior": "number of streets"}
    text = write_item(real, city)[-1].read_text()
    assert "SYNTHETIC" in text
    assert "number of streets" in text


def test_a_note_of_some_repeats_says_of_how_many(results_of: Callable[[Any], Results]) -> None:
    notes = ("", "the solver failed", "")
    city = results_of([row("EM", k, note=note, loss_m=1.0) for k, note in enumerate(notes)])
    assert table_of(city)["note"][0] == "the solver failed (1 of 3 repeats)"


def test_results_of_a_folder_alone_write_every_file(rome: Results, tmp_path: Path) -> None:
    assert rome.folder.is_relative_to(tmp_path)
    again = Results(rome.folder)
    assert [path.name for path in write_item(ITEM, again)] == ["table4.csv", "table4.md"]
