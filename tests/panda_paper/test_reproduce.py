"""The command: files, resuming, exit codes, one-line errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

import panda_mdp as pm
from panda_mdp.cli import app
from panda_mdp.cli.reproduce import tell_failures
from panda_mdp.survey.bench import Bench, Status
from panda_paper.items import Cell, Setting, choose_items
from panda_paper.results import Results
from panda_paper.runner import CellLaboratory, run_cells
from panda_paper.study import Study
from panda_paper.tables import write_item

ENDINGS: tuple[Status, ...] = ("done", "infeasible", "time limit", "failed")


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["reproduce", *(str(a) for a in arguments)])


def refused(result: Result) -> str:
    assert result.exit_code == 2, result.output
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    return lines[0]


@pytest.fixture(scope="module")
def city(tmp_path_factory) -> Path:
    return pm.synthetic_city(300, seed=1).save(tmp_path_factory.mktemp("city") / "Town.npz")


def test_a_run_writes_its_files_and_is_used_again(tmp_path: Path, city: Path) -> None:
    toy = ("table4", "--toy", "--out", tmp_path, "--methods", "EM", "--repeats", "1")
    arguments = (*toy, "--city", city)
    result = call(*arguments, "--remark", "made-up streets")
    assert result.exit_code == 0, result.output
    folder = tmp_path / "town-toy"
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "cells.jsonl",
        "environment.json",
        "study.json",
        "table4.csv",
        "table4.md",
    }
    assert str(folder / "table4.md") in result.stdout
    before = (folder / "cells.jsonl").read_text()
    assert before.count("\n") == 2
    assert call(*arguments).exit_code == 0
    assert (folder / "cells.jsonl").read_text() == before, "everything is known already"
    assert "Town (made-up streets)" in (folder / "table4.md").read_text(), "remarks are remembered"
    assert call("report", "--out", tmp_path).exit_code == 0
    assert "made-up streets" in (tmp_path / "report.md").read_text()
    other = pm.synthetic_city(300, seed=2).save(tmp_path / "Town.npz")
    message = refused(call(*toy, "--city", other))
    assert "another study" in message


def test_files_show_all_that_the_folder_holds(tmp_path: Path) -> None:
    study = Study(pm.synthetic_city(300, seed=1), "town", tmp_path)
    bench = Bench(CellLaboratory(study), "none")
    (item,) = (item.toy() for item in choose_items("table4"))
    for methods, repeats, records in ((["EM"], 3, None), (["EM+BR"], 2, [45])):
        part = item.restricted(records, methods, repeats)
        results = Results.of_study(study)
        run_cells(part.draws(), results, bench)
        write_item(item.with_all_of(part), results)
    lines = (tmp_path / "table4.md").read_text().splitlines()
    rows = [line.split(" | ")[:3] for line in lines if line.startswith(("| EM |", "| EM+BR |"))]
    assert rows == [["| EM", "40", "3"], ["| EM", "50", "3"], ["| EM+BR", "45", "2"]]


def test_without_a_city_it_is_synthetic_and_says_so(tmp_path: Path) -> None:
    result = call("table4", "--toy", "--methods", "EM", "--repeats", "1", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "SYNTHETIC" in (tmp_path / "synthetic-toy" / "table4.md").read_text()


def test_traces_make_the_real_prior(tmp_path: Path, city: Path) -> None:
    town = pm.load_city(city)
    lines = [f"{k % 7},{town.lat[k]},{town.lon[k]}" for k in range(0, 300, 3)]
    traces = tmp_path / "taxis.csv"
    traces.write_text("user,lat,lon\n" + "\n".join(lines) + "\n")
    common = ("table5", "--toy", "--methods", "EM", "--repeats", "1", "--city", city)
    result = call(*common, "--out", tmp_path / "a", "--traces", traces)
    assert result.exit_code == 0, result.output
    assert "taxis.csv" in (tmp_path / "a" / "town-toy" / "table5.md").read_text()
    away = tmp_path / "away.csv"
    away.write_text("user,lat,lon\n1,-10.0,-10.0\n")
    message = refused(call(*common, "--out", tmp_path / "b", "--traces", away))
    assert "no fix of" in message


def test_failed_cells_are_told_and_the_exit_code_is_1(capsys: pytest.CaptureFixture[str]) -> None:
    lines = {
        Cell("method", "EM", Setting(40), repeat): {"status": status, "note": "oops"}
        for repeat, status in enumerate(ENDINGS)
    }
    with pytest.raises(typer.Exit) as exit_:
        tell_failures(lines)
    assert exit_.value.exit_code == 1
    assert capsys.readouterr().err == "failed: EM, K=40, draw 4: oops\n"
    tell_failures(dict([*lines.items()][:3]))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_an_interrupt_says_where_the_results_are(tmp_path: Path, city: Path) -> None:
    command = ["-c", "from panda_mdp.cli import main; main()", "reproduce", "table4", "--toy"]
    # Where the tests run in the background, interrupts are ignored, and children inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, *command, "--city", str(city), "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    signal.signal(signal.SIGINT, before)
    results = tmp_path / "town-toy" / "cells.jsonl"
    deadline = time.monotonic() + 300
    while not (results.exists() and results.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert out == ""
    assert f"what was done is in {results.parent}" in "".join(err.splitlines())
    assert results.read_text().endswith("\n")


def test_the_list_names_every_item() -> None:
    result = call("list")
    assert result.exit_code == 0
    for name in ("table2", "table12", "clustering"):
        assert name in result.stdout


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    assert "there is no item 'table1'" in refused(call("table1"))
    assert "no such file" in refused(call("table4", "--city", tmp_path / "nowhere.npz"))
    assert "'x' is not a number of records" in refused(call("table4", "--records", "500,x"))
    assert "no method 'XY'" in refused(call("table4", "--methods", "XY"))
    assert "--repeats" in refused(call("table4", "--repeats", "0"))
    assert "--time-limit" in refused(call("table4", "--time-limit", "0"))
