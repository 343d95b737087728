"""PAnDA on the command line: a city to a file, and what the other commands make of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import panda_mdp as pm
from panda_mdp.cli import app

SMALL = ["--records", "40", "--outputs", "8", "--epsilon", "1"]


def call(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("panda")
    done = call("panda", "synthetic", *SMALL, "--users", "3", "--seed", "4", "--out", out)
    assert done.exit_code == 0, done.output
    assert "epsilon 1 per km, delta 0" in " ".join(done.stdout.split())
    return out


def test_panda_writes_a_file_that_others_run(folder: Path) -> None:
    assert {"results.json", "panda.pmdp", "anchors.png"} <= {p.name for p in folder.iterdir()}
    table = pm.load(folder / "panda.pmdp")
    result = json.loads((folder / "results.json").read_text())
    assert result["holds"] is True
    assert result["violation"] == result["delta"] == 0
    assert result["expected_loss"] == pytest.approx(table.loss)
    # Who fetches it needs no losses, which the file has.
    assert 0 < result["download"] == table.download < (folder / "panda.pmdp").stat().st_size
    assert result["whole_table"] > 0
    shares = [result[f"share_{part}"] for part in ("selection", "margin", "table")]
    assert sum(shares) == pytest.approx(1)


def test_candidates_and_the_frontier(tmp_path: Path) -> None:
    done = call("panda", "synthetic", *SMALL, "--candidates", "10", "--out", tmp_path / "some")
    assert done.exit_code == 0, done.output
    some = pm.load(tmp_path / "some" / "panda.pmdp").scheme
    assert some.expected_anchors == pytest.approx(10 * (1 - 0.01 / 4))
    done = call("panda", "synthetic", *SMALL, "--calibrate", "--out", tmp_path / "best")
    assert done.exit_code == 1, done.output
    assert "fetch the whole table" in " ".join(done.stdout.split())
    assert "(knee)" in done.stdout
    # The answer has its picture too, though there is no Phase I to run.
    assert (tmp_path / "best" / "frontier.png").stat().st_size > 5_000


def test_the_papers_coins_by_one_line(tmp_path: Path) -> None:
    """A gentle decay fits and is saved; the paper's own does not, and is studied."""
    gentle = ("--decay", "logistic", "--alpha", "0.9999", "--rate", "0.0001", "--tasks", "2")
    done = call("panda", "synthetic", *SMALL, *gentle, "--out", tmp_path / "coins")
    assert done.exit_code == 0, done.output
    selection = pm.load(tmp_path / "coins" / "panda.pmdp").scheme.selection
    assert (selection.decay, selection.alpha, selection.rate) == ("logistic", 0.9999, 0.0001)
    steep = ("--decay", "power", "--rate", "0.5", "--radius", "1", "--budgets", "margin")
    refused = call("panda", "synthetic", *SMALL, *steep, "--out", tmp_path / "none")
    assert refused.exit_code == 2
    studied = call("panda", "synthetic", *SMALL, *steep, "--study", "--out", tmp_path / "none")
    assert studied.exit_code == 1, studied.output
    said = studied.stdout.split("no guarantee: ")[1]
    assert said[0].isalpha(), said
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--delta", "1"], "delta is 1.0; it must be a probability"),
        (["--users", "0"], "'--users'"),
        (["--seed", "-1"], "'--seed'"),
        (["--limit", "-1"], "'--limit'"),
        (["--centre", "7"], "centre and edge alone cost 7"),
        (["--candidates", "0"], "'--candidates'"),
        (["--candidates", "40"], "the whole table for everybody"),
        (["--candidates", "41"], "the whole table for everybody"),
        (["--centre", "1", "--candidates", "9"], "--centre and --candidates exclude each other"),
        (["--alpha", "0.9"], "belong to --decay"),
        (["--candidates", "9", "--edge", "0.1"], "edge belongs to balls"),
        (["--edge", "0.9"], "centre and edge alone cost 1.1"),
        (["--decay", "cubic"], "choose from 'power'"),
        (["--candidates", "9", "--calibrate"], "--candidates and --calibrate exclude each other"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(wrong: list[str], said: str, tmp_path: Path) -> None:
    done = call("panda", "synthetic", *SMALL, *wrong, "--out", tmp_path)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.output
    assert not list(tmp_path.iterdir())


def test_info_audit_and_explain_speak_of_both_phases(folder: Path, tmp_path: Path) -> None:
    file = folder / "panda.pmdp"
    info = call("info", file, "--json", tmp_path / "info.json")
    assert info.exit_code == 0, info.output
    for words in ("delta", "Both phases", "not verified"):
        assert words in info.stdout
    assert json.loads((tmp_path / "info.json").read_text())["selection"]["delta"] == 0
    audit = call("audit", file, "--json", tmp_path / "audit.json")
    assert audit.exit_code == 0, audit.output
    verdict = json.loads((tmp_path / "audit.json").read_text())
    assert verdict["holds"] and verdict["violation"] == verdict["delta"] == 0
    assert verdict["pairs"] == 40 * 39 // 2
    assert call("audit", file, "--epsilon", "2").exit_code == 2
    said = call("explain", file)
    assert said.exit_code == 0, said.output
    assert "except with probability" not in said.stdout
    assert "bytes" in said.stdout
    assert "the own row, which fades at the ball's edge" in " ".join(said.stdout.split())
    assert call("explain", file, "--against", "android").exit_code == 2
    verify = call("verify", file)
    assert verify.exit_code == 0, verify.output
    assert "over all pairs, centre and report" in verify.stdout
    attack = call("attack", file, "--json", tmp_path / "attack.json")
    assert attack.exit_code == 0, attack.output
    assert "anchors sent" in attack.stdout
    expected = pm.attack(pm.load(file).seen)
    assert json.loads((tmp_path / "attack.json").read_text())["error"] == expected.error


def test_reports_of_both_phases_are_drawn_on_a_map(folder: Path, tmp_path: Path) -> None:
    table = pm.load(folder / "panda.pmdp")
    summed = table.summed
    np.testing.assert_allclose(summed.weights / 2.0**62, table.matrix, atol=1e-15)
    assert summed.loss == pytest.approx(table.loss) and summed.audit.epsilon <= table.epsilon
    for name in ("all.png", "page.html"):
        done = call("map", folder / "panda.pmdp", "--out", tmp_path / name)
        assert done.exit_code == 0, done.output
        assert (tmp_path / name).stat().st_size > 5_000


def test_perturb_draws_anchors_for_each_line(folder: Path) -> None:
    table = pm.load(folder / "panda.pmdp")
    done = call("perturb", folder / "panda.pmdp", stdin="3\n17\n3\n")
    assert done.exit_code == 0, done.output
    places = {f"{lat!r},{lon!r}" for lat, lon in zip(*_outputs(table), strict=True)}
    assert len(done.stdout.splitlines()) == 3
    assert set(done.stdout.splitlines()) <= places
    assert call("perturb", folder / "panda.pmdp", "--at-most", "0.5", stdin="3\n").exit_code == 2


def _outputs(table: pm.PandaTable) -> tuple[list[float], list[float]]:
    domain, chosen = table.problem.domain, table.problem.outputs
    return domain.lat[chosen].tolist(), domain.lon[chosen].tolist()


def test_perturb_shares_a_selection_within_a_person(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    rows = tmp_path / "rows.csv"
    lines = [f"{user},{place}" for user in "ab" for place in (3, 3, 9)]
    rows.write_text("user,place\n" + "\n".join(lines) + "\n")
    options = ["--record", "place", "--person", "user", "--column", "user=keep"]
    options += ["-o", tmp_path / "out.csv"]
    done = call("perturb", folder / "panda.pmdp", rows, *options)
    assert done.exit_code == 0, done.output
    assert "once for each person, period and place" in " ".join(done.stdout.split())
    assert "except with probability 0" in " ".join(done.stdout.split())
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 7


def test_solve_writes_the_file_too(tmp_path: Path) -> None:
    out = tmp_path / "solved.pmdp"
    done = call(
        "solve", "synthetic", *SMALL, "--method", "panda-candidates", "-o", out,
        "--json", tmp_path / "solved.json", "--delta", "0.003",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    row = json.loads((tmp_path / "solved.json").read_text())
    assert row["loss"] == pytest.approx(pm.load(out).loss)
    assert row["download"] == out.stat().st_size
    assert row["delta"] == pm.load(out).delta == 0.003
    plain = call("solve", "synthetic", *SMALL, "-o", out, "--delta", "0.1")
    assert plain.exit_code == 2
    assert "only PAnDA's methods have a delta" in " ".join(plain.stderr.split())
