"""Tables: means and spreads, the paper's interval, files for machines and for people."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from panda_mdp.city.synthetic import synthetic_city
from panda_mdp.survey.bench import Outcome
from panda_paper.items import ITEMS, Cell, Item, Setting, grid
from panda_paper.results import Row
from panda_paper.study import Study
from panda_paper.tables import comparison, ending, markdown, summarise, write_item

SETTING = Setting(500)
METHODS = ("EM", "LP", "PAnDA-e", "PAnDA-e published")
ITEM = Item("table4", "Losses", grid(METHODS, (500,)), "loss_m")


def row(method: str, repeat: int, status: str = "done", note: str = "", **values: object) -> Row:
    outcome = Outcome(values, (("work", 2.0),), status, note)  # type: ignore[arg-type]
    return Row(Cell("method", method, SETTING, repeat), outcome, 1800.0, "env", "date")


ROWS = [
    *(
        row("EM", k, loss_m=loss, audited_epsilon=5 - 0.1 * k, claimed_epsilon=5.0, holds=True)
        for k, loss in enumerate((1100.0, 1300.0, 1500.0))
    ),
    row("LP", 0, "time limit", "stopped after 1800 s"),
    row("PAnDA-e", 0, "infeasible", "Phase I costs 13"),
    row(
        "PAnDA-e published",
        0,
        loss_m=150.0,
        audited_epsilon=float("inf"),
        claimed_epsilon=5.0,
        holds=False,
        violated_pairs=0.02,
        true_loss_m=700.0,
    ),
    row(
        "PAnDA-e published",
        1,
        loss_m=160.0,
        audited_epsilon=60.0,
        claimed_epsilon=5.0,
        holds=False,
        violated_pairs=0.04,
        true_loss_m=500.0,
    ),
]


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Study:
    folder: Path = tmp_path_factory.mktemp("tables")
    return Study(synthetic_city(50, 0), "rome", folder)


def test_means_spreads_and_the_papers_interval() -> None:
    entries = {entry["method"]: entry for entry in summarise(ITEM, ROWS, "rome")}
    em = entries["EM"]
    assert em["mean"] == 1300
    assert em["spread_1.96_std"] == pytest.approx(1.96 * np.std([1100, 1300, 1500], ddof=1))
    assert em["paper"] == "1315.27±98.35"
    assert em["difference"] == pytest.approx(-15.27)
    assert em["inside_paper_interval"] is True
    assert em["intervals_overlap"] is True
    assert em["readme"] == 1145
    assert (em["audited_epsilon"], em["audit_holds"], em["seconds"]) == (5.0, True, 2.0)
    published = entries["PAnDA-e published"]
    assert published["paper"] == entries["PAnDA-e"]["paper"], "both stand beside the paper's row"
    assert published["audited_epsilon"] == float("inf")
    assert published["audit_holds"] is False
    assert published["inside_paper_interval"] is False
    assert published["intervals_overlap"] is False
    assert published["mean_violated_pairs"] == pytest.approx(0.03)
    assert entries["LP"]["mean"] is None
    assert (entries["LP"]["status"], ending(entries["LP"])) == ("time limit 1", "time limit")
    assert entries["PAnDA-e"]["note"] == "Phase I costs 13"


def test_files_for_machines(study: Study) -> None:
    paths = write_item(ITEM, ROWS, study)
    table = json.loads(paths[1].read_text())
    assert [line["method"] for line in table] == list(ITEM.methods)
    assert table[3]["audited_epsilon"] == "inf"
    assert table[0]["inside_paper_interval"] is True
    with paths[0].open() as stream:
        lines = list(csv.DictReader(stream))
    assert len(lines) == 4
    assert float(lines[0]["mean"]) == 1300
    assert lines[2]["status"] == "infeasible 1"
    assert lines[0]["records"] == "500"


def test_the_markdown_shows_claim_audit_and_misses(study: Study) -> None:
    text = markdown(ITEM, summarise(ITEM, ROWS, "rome"), study)
    lines = {line.split(" | ")[0].strip("| "): line for line in text.splitlines()}
    assert "1300 ± 392" in lines["EM"]
    assert "1315.27±98.35 | -15.27 | yes | 1145" in lines["EM"]
    assert "| **∞** |" in lines["PAnDA-e published"]
    assert "3.00% of pairs violated" in lines["PAnDA-e published"]
    assert "over true records 600 m" in lines["PAnDA-e published"]
    assert "| infeasible |" in lines["PAnDA-e"]
    assert "Phase I costs 13" in lines["PAnDA-e"]
    assert "| time limit |" in lines["LP"]
    assert "1 of 2 entries" in text
    columns = {line.count(" | ") for line in text.splitlines() if line.startswith("| ")}
    assert len(columns) == 1


def test_nothing_to_compare_with_is_said(study: Study) -> None:
    entries = summarise(ITEMS["toy"], [row("EM", 0, loss_m=1.0)], "rome")
    assert comparison(entries).startswith("No entry has an interval")


def test_the_synthetic_city_and_the_prior_are_labelled(study: Study) -> None:
    made = Study(study.city, "synthetic", study.folder, synthetic=True)
    real = Item("table5", "Losses", grid(("EM",), (500,), prior="real"), "loss_m")
    cell = Cell("method", "EM", real.settings[0], 0)
    rows = [Row(cell, Outcome({"loss_m": 1.0}), None, "env", "date")]
    text = markdown(real, summarise(real, rows, made.name), made)
    assert "SYNTHETIC" in text
    assert "number of streets" in text


def test_a_note_of_some_repeats_says_of_how_many() -> None:
    rows = [row("EM", k, note="the solver failed" if k == 1 else "", loss_m=1.0) for k in range(3)]
    assert summarise(ITEM, rows, "rome")[0]["note"] == "the solver failed (1 of 3 repeats)"
