"""The command: files, resuming, exit codes, one-line errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import panda_mdp as pm
from panda_mdp.cli import app
from panda_paper.cells import runner


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


def test_a_run_writes_its_files_and_is_used_again(tmp_path: Path, city: Path, monkeypatch) -> None:
    arguments = ("toy", "--city", city, "--out", tmp_path, "--methods", "EM", "--repeats", "1")
    result = call(*arguments)
    assert result.exit_code == 0, result.output
    folder = tmp_path / "town"
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "cells.jsonl",
        "environment.json",
        "study.json",
        "toy.csv",
        "toy.json",
        "toy.md",
    }
    assert str(folder / "toy.md") in result.stdout
    before = (folder / "cells.jsonl").read_text()
    assert before.count("\n") == 2

    def never(self: object, *_: object) -> None:
        raise AssertionError("everything is known already")

    monkeypatch.setattr(runner.Worker, "answer", never)
    assert call(*arguments).exit_code == 0
    assert (folder / "cells.jsonl").read_text() == before


def test_files_show_all_that_the_folder_holds(tmp_path: Path, city: Path, inline) -> None:
    common = ("toy", "--city", city, "--out", tmp_path, "--methods")
    assert call(*common, "EM", "--repeats", "3").exit_code == 0
    assert call(*common, "EM+BR", "--repeats", "2", "--records", "45").exit_code == 0
    lines = (tmp_path / "town" / "toy.md").read_text().splitlines()
    rows = [line.split(" | ")[:3] for line in lines if line.startswith(("| EM |", "| EM+BR |"))]
    assert rows == [["| EM", "40", "3"], ["| EM", "50", "3"], ["| EM+BR", "45", "2"]]


def test_without_a_city_it_is_synthetic_and_says_so(tmp_path: Path, inline) -> None:
    result = call("table4", "--toy", "--methods", "EM", "--repeats", "1", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "SYNTHETIC" in (tmp_path / "synthetic-toy" / "table4.md").read_text()


def test_traces_make_the_real_prior(tmp_path: Path, city: Path, inline) -> None:
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


def test_a_failed_cell_is_told_and_the_exit_code_is_1(
    tmp_path: Path, city: Path, inline, monkeypatch
) -> None:
    monkeypatch.setattr("panda_paper.cells.table_methods.METHODS", None)
    result = call("toy", "--city", city, "--out", tmp_path, "--methods", "EM")
    assert result.exit_code == 1
    assert "failed: EM, K=40" in result.stderr


def test_an_interrupt_says_where_the_results_are(tmp_path: Path, city: Path, monkeypatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run_cells", interrupted)
    result = call("toy", "--city", city, "--out", tmp_path)
    assert result.exit_code == 130
    assert "what was done is in" in result.stderr


def test_a_remark_on_the_map_is_remembered_and_shown(tmp_path: Path, city: Path, inline) -> None:
    common = ("toy", "--city", city, "--out", tmp_path, "--methods", "EM", "--repeats", "1")
    assert call(*common, "--remark", "made-up streets").exit_code == 0
    assert call(*common).exit_code == 0
    assert "Town (made-up streets)" in (tmp_path / "town" / "toy.md").read_text()
    assert call("report", "--out", tmp_path).exit_code == 0
    page = (tmp_path / "report.html").read_text()
    assert "The map is not the paper's own: made-up streets" in page.replace("&#39;", "'")


def test_the_list_names_every_item() -> None:
    result = call("list")
    assert result.exit_code == 0
    for name in ("table2", "table12", "clustering"):
        assert name in result.stdout


def test_mistakes_are_one_line(tmp_path: Path, city: Path) -> None:
    assert "there is no item 'table1'" in refused(call("table1"))
    assert "no such file" in refused(call("toy", "--city", tmp_path / "nowhere.npz"))
    assert "'x' is not a number of records" in refused(call("toy", "--records", "500,x"))
    assert "no method 'XY'" in refused(call("toy", "--methods", "XY"))
    assert "repeats is 0" in refused(call("toy", "--repeats", "0"))
    assert "not a time" in refused(call("toy", "--time-limit", "0"))
    assert "at least once" in refused(call("toy", "--slow", "--slow-repeats", "0"))
    call("toy", "--city", city, "--out", tmp_path, "--methods", "EM", "--repeats", "1")
    other = pm.synthetic_city(300, seed=2).save(tmp_path / "Town.npz")
    message = refused(call("toy", "--city", other, "--out", tmp_path, "--methods", "EM"))
    assert "another study" in message
