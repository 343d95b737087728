"""The command line: answers, exit codes, and what must never be printed."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import copied
import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

import panda_mdp as pm
from panda_mdp.cli import app
from panda_mdp.cli.frame import write_json
from panda_mdp.table.bound import Stated

ROW = {
    "method",
    "loss",
    "lower_bound",
    "bound",
    "unit",
    "epsilon",
    "audited_epsilon",
    "holds",
    "attacker_error",
    "vulnerability",
    "delta",
    "kept",
    "topics",
    "seconds",
    "peak_mb",
    "note",
    "status",
}


def call(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refused(result: Result) -> str:
    """The one line of an error."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    return lines[0]


@pytest.fixture(scope="module")
def city_file(tmp_path_factory) -> Path:
    return pm.synthetic_city(400, seed=1).save(tmp_path_factory.mktemp("city") / "town.npz")


@pytest.fixture(scope="module")
def places() -> pm.Mechanism:
    generator = np.random.default_rng(0)
    domain = pm.Domain.from_points(
        41.9 + generator.uniform(-0.02, 0.02, 40), 12.5 + generator.uniform(-0.02, 0.02, 40)
    )
    outputs = np.arange(10)
    return pm.exponential(pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), 2.0))


@pytest.fixture(scope="module")
def saved(places: pm.Mechanism, tmp_path_factory) -> Path:
    return places.save(tmp_path_factory.mktemp("mechanism") / "places.pmdp")


@pytest.fixture(scope="module")
def saved_vectors(tmp_path_factory) -> Path:
    domain = pm.Domain.from_vectors([[0.0], [1.0], [2.0]])
    problem = pm.Problem(domain, [2], [[2.0], [1.0], [0.0]], 1.0)
    return pm.exponential(problem).save(tmp_path_factory.mktemp("mechanism") / "vectors.pmdp")


def test_compare_prints_a_table_and_writes_rows(city_file: Path, tmp_path: Path) -> None:
    target = tmp_path / "rows.json"
    result = call(
        "compare", city_file, "--records", "60", "--outputs", "8", "--tasks", "2",
        "--epsilon", "3", "--methods", "exponential,loss-exponential", "--seed", "4",
        "--json", target,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "loss exponential" in result.stdout
    rows = json.loads(target.read_text())
    assert [row["method"] for row in rows] == ["exponential", "loss_exponential"]
    for row in rows:
        assert set(row) == ROW
        assert row["holds"] is True
        assert row["unit"] == "km"
        assert row["epsilon"] == 3.0
        assert 0 < row["audited_epsilon"] <= 3.0
        assert row["seconds"] > 0
        # A fresh interpreter with NumPy and the kernels, not the memory of this one.
        assert 30 < row["peak_mb"] < 1000
        assert row["lower_bound"] is None
    assert listing(tmp_path) == ["rows.json"]


def test_compare_agrees_with_the_library(city_file: Path, tmp_path: Path) -> None:
    from panda_mdp.city.draw import draw_problem

    target = tmp_path / "rows.json"
    call("compare", city_file, "--records", "all", "--outputs", "5", "--methods", "exponential",
         "--seed", "9", "--json", target)  # fmt: skip
    problem = draw_problem(pm.load_city(city_file), None, 5, 1, 5.0, 9).problem
    assert problem.size == 400
    row, table = json.loads(target.read_text())[0], pm.exponential(problem)
    assert row["loss"] == table.loss
    seen = pm.attack(table)
    assert (row["attacker_error"], row["vulnerability"]) == (seen.error, seen.vulnerability)


def test_an_attacker_sees_both_phases(city_file: Path, tmp_path: Path) -> None:
    """What anchors and report tell together, and delta as a column."""
    from panda_mdp.city.draw import draw_problem
    from panda_mdp.survey.registry import choose_methods

    target = tmp_path / "rows.json"
    shown = call("compare", city_file, "--records", "40", "--outputs", "5", "--methods",
                 "exponential,panda,panda_candidates", "--json", target)  # fmt: skip
    assert "δ" in shown.stdout.split()
    plain, balls, candidates = json.loads(target.read_text())
    assert (plain["delta"], balls["delta"], candidates["delta"]) == (None, 0.0, 1e-7)
    problem = draw_problem(pm.load_city(city_file), 40, 5, 1, 5.0, 0).problem
    seen = pm.attack(choose_methods(["panda"])[0].run(problem).seen)
    # Places are looked for in other blocks, and to a billionth.
    assert balls["attacker_error"] == pytest.approx(seen.error, rel=1e-7)
    assert balls["vulnerability"] == seen.vulnerability
    assert balls["vulnerability"] > plain["vulnerability"]


def test_a_limit_that_bites_is_stated(city_file: Path, tmp_path: Path) -> None:
    target = tmp_path / "rows.json"
    result = call("compare", city_file, "--records", "300", "--outputs", "20", "--limit", "1e-6",
                  "--methods", "loss_exponential", "--json", target)  # fmt: skip
    assert result.exit_code == 0
    assert "stopped at the time limit of 1e-06 s" in " ".join(result.stdout.split())
    row = json.loads(target.read_text())[0]
    assert row["loss"] is None
    assert row["note"] == "stopped at the time limit of 1e-06 s"


def test_demo_writes_pictures_results_and_the_best_mechanism(tmp_path: Path) -> None:
    from panda_mdp.cli.demo import Demo, panels, run_demo
    from panda_mdp.survey.registry import choose_methods

    names = ["exponential", "loss_exponential", "panda"]
    folder = tmp_path / "new" / "folder"
    demo = Demo(nodes=300, records=80, outputs=10, methods=choose_methods(names))
    printed = io.StringIO()
    outcomes = run_demo(folder, Console(file=printed, width=80), demo)
    assert "80 records, 10 outputs" in printed.getvalue()
    assert listing(folder) == ["best.pmdp", "chart.png", "map.png", "results.json"]
    for picture in ("map.png", "chart.png"):
        assert (folder / picture).read_bytes().startswith(b"\x89PNG")
    rows = json.loads((folder / "results.json").read_text())
    assert [row["method"] for row in rows] == names
    ranked = sorted(outcomes[:2], key=lambda one: one.loss or 0.0)
    shown = [one.method.name for one in panels(outcomes, ranked)]
    assert shown == ["exponential", "panda", "loss_exponential"]
    best = pm.load(folder / "best.pmdp")
    assert best.loss == pytest.approx(min(row["loss"] for row in rows[:2]), rel=1e-12)


def test_demo_without_matplotlib_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "panda-mdp[plot]" in refused(call("demo", "--out", tmp_path / "new"))
    assert listing(tmp_path) == []


def test_audit_reports_the_library_answer(
    saved: Path, places: pm.Mechanism, tmp_path: Path
) -> None:
    target = tmp_path / "audit.json"
    result = call("audit", saved, "--json", target)
    assert result.exit_code == 0, result.output
    answer = json.loads(target.read_text())
    assert answer["holds"] is True
    assert answer["audited_epsilon"] == places.audit.epsilon
    assert (*answer["worst"]["records"], answer["worst"]["output"]) == places.audit.worst


def test_audit_against_a_smaller_epsilon_says_no(saved: Path) -> None:
    result = call("audit", saved, "--epsilon", "0.1")
    assert result.exit_code == 1
    assert "NO" in result.stdout


def test_audit_does_not_vouch_for_forged_files(tmp_path: Path) -> None:
    """A pair said to be near, a matrix that is none: sums fit, and the audit is not fooled."""
    from forging import RECORDS, changed, swap, two_clusters

    path = tmp_path / "forged.pmdp"
    path.write_bytes(two_clusters(200))
    assert "triangle inequality fails" in refused(call("audit", path))
    for name, change in RECORDS["matrix"].items():
        path.write_bytes(changed("matrix", change))
        result = call("audit", path)
        assert result.exit_code in (1, 2), name
        assert "yes" not in result.stdout, name
    path.write_bytes(changed("euclidean", swap("weights", 0, 5)))
    result = call("audit", path)
    assert result.exit_code == 1, result.output
    assert "NO" in result.stdout
    assert call("audit", path, "--epsilon", "1000").exit_code == 0


@pytest.mark.filterwarnings("ignore::panda_mdp.errors.ScaleWarning")
def test_info_and_perturb_refuse_forged_claims(tmp_path: Path) -> None:
    """Never a traceback; what `info` shows is what the file says, and called unverified."""
    from forging import HEADERS, changed

    path = tmp_path / "forged.pmdp"
    shown = []
    for name, change in HEADERS.items():
        path.write_bytes(changed("euclidean", change))
        refused(call("perturb", path, stdin="3\n"))
        result = call("info", path)
        assert result.exit_code in (0, 2), name
        assert result.exception is None or isinstance(result.exception, SystemExit), name
        if result.exit_code == 0:
            assert "not verified" in result.stdout
            shown.append(name)
    # Fields that are not there, of a wrong type, or in another form are refused by `info` too.
    assert not any(name.startswith(("JSON", "no ", "an unknown", "version")) for name in shown)


def test_verify_runs_the_second_checker(saved: Path, tmp_path: Path) -> None:
    result = call("verify", saved)
    assert result.exit_code == 0, result.output
    assert [line.split(":")[0] for line in result.stdout.splitlines()] == [
        *("file", "rows", "metric", "pairs", "loss", "bound", "guess", "holds")
    ]
    damaged = tmp_path / "damaged.pmdp"
    damaged.write_bytes(saved.read_bytes()[:-1])
    result = call("verify", damaged)
    assert (result.exit_code, result.stdout[:14]) == (2, "not readable: ")
    assert "missing.pmdp" in refused(call("verify", "missing.pmdp"))


def test_info_shows_the_certificate(saved: Path, tmp_path: Path) -> None:
    result = call("info", saved, "--json", tmp_path / "info.json")
    assert result.exit_code == 0, result.output
    assert "exponential" in result.stdout
    assert json.loads((tmp_path / "info.json").read_text())["epsilon"] == 2.0


@pytest.mark.parametrize(
    ("kept", "words"),
    [(False, "lower_bound, not verified"), (True, "what its multipliers prove")],
)
def test_a_bound_without_its_proof_is_called_stated(kept, words, places, tmp_path: Path) -> None:
    """By `info` and by `verify`, where a file has no multipliers."""
    table = pm.optimal(places.problem, gap=0.05)
    if not kept:
        stated = Stated(table.lower_bound, "somebody")
        table = pm.Mechanism(table.problem, table.weights, "optimal", stated)
    path = table.save(tmp_path / "bound.pmdp")
    shown = call("info", path).stdout
    assert words in " ".join(shown.split())
    proved = call("verify", path)
    assert proved.exit_code == 0, proved.output
    assert ("stated, not proved in this file" in proved.stdout) != kept


def test_perturb_prints_the_reported_place_only(
    saved: Path, places: pm.Mechanism, tmp_path: Path
) -> None:
    domain = places.problem.domain
    allowed = {f"{float(domain.lat[y])!r},{float(domain.lon[y])!r}" for y in range(10)}
    target = tmp_path / "report.json"
    for line in ("41.9,12.5\n", " 41.9 , 12.5 ", "3\n"):
        result = call("perturb", saved, "--snap-limit", "2", "--json", target, stdin=line)
        assert result.exit_code == 0, result.output
        assert result.stdout.strip() in allowed
        assert result.stderr == ""
        report = json.loads(target.read_text())
        assert f"{report['lat']!r},{report['lon']!r}" == result.stdout.strip()


def test_perturb_without_places_prints_an_index(saved_vectors: Path) -> None:
    assert call("perturb", saved_vectors, stdin="1\n").stdout == "2\n"
    message = refused(call("perturb", saved_vectors, stdin="41.9,12.5\n"))
    assert "whole number in 0..2" in message


@pytest.mark.parametrize(
    "secret",
    ["47.12345,8.98765", "41.9x,12.5", "91.5,12.5", "98765", "-3", "41.9,12.5,7", "nan,12.5", "²"],
)
def test_errors_never_show_the_place(saved: Path, secret: str) -> None:
    message = refused(call("perturb", saved, stdin=f"{secret}\n"))
    assert secret not in message
    assert "47.12" not in message


@pytest.mark.parametrize(
    "line", [b"9" * 5000, b"41.9,\xff12.5", b"\xff", b"41.9,12.5" + b" " * 300, b"\x00" * 20]
)
def test_lines_that_are_no_text_are_one_line_and_code_2(
    saved: Path, line: bytes, tmp_path: Path
) -> None:
    done = copied.run(["perturb", str(saved)], tmp_path, line + b"\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: the line on standard input is not valid")
    assert done.stderr.count("\n") == 1 and "41.9" not in done.stderr


def test_perturb_notices_swapped_coordinates(saved: Path) -> None:
    message = refused(call("perturb", saved, "--snap-limit", "2", stdin="12.5,41.9\n"))
    assert "latitude and longitude exchanged" in message and "41.9" not in message


def test_perturb_refuses_places_in_arguments(saved: Path) -> None:
    for place in (["47.12345,8.98765"], ["--", "-33.86,151.2"], ["-33.86,151.2"]):
        message = refused(call("perturb", saved, *place))
        assert "standard input" in message
        assert "47.12" not in message
        assert "33.86" not in message


@pytest.mark.parametrize(
    "option",
    [("--at-most", "1.5"), ("--unit", "m"), ("--identity", "0" * 16), ("--identity", "0")],
)
def test_perturb_refuses_a_table_that_was_not_expected(saved: Path, option) -> None:
    refused(call("perturb", saved, *option, stdin="3\n"))
    assert call("perturb", saved, "--at-most", "2", "--unit", "km", stdin="3\n").exit_code == 0


def test_perturb_without_a_line_is_refused(saved: Path) -> None:
    assert "is empty" in refused(call("perturb", saved, stdin=""))


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["audit", "missing.pmdp"], "missing.pmdp"),
        (["info", "missing.pmdp"], "missing.pmdp"),
        (["perturb", "missing.pmdp"], "missing.pmdp"),
        (["compare", "missing.npz"], "no such file"),
        (["compare"], "CITY"),
        (["compare", "synthetic", "--records", "many"], "neither a whole number from 1"),
        (["compare", "synthetic", "--epsilon", "-1"], "epsilon"),
        (["compare", "synthetic", "--epsilon", "five"], "epsilon"),
        (["compare", "synthetic", "--outputs", "0"], "neither a whole number from 1"),
        (["compare", "synthetic", "--records", "10", "--outputs", "11"], "11 is not in 1..10"),
        (["compare", "synthetic", "--tasks", "-1"], "--tasks"),
        (["compare", "synthetic", "--methods", "magic"], "choose from exponential"),
        (["compare", "synthetic", "--limit", "-1"], "--limit"),
        (["compare", "synthetic", "--limit", "nan"], "--limit"),
        (["compare", "synthetic", "--seed", "-1"], "--seed"),
        (["compare", "synthetic", "--json", "no/such/folder/x.json"], "does not exist"),
        (["compare", "synthetic", "--nonsense"], "--nonsense"),
        (["dance"], "dance"),
    ],
)
def test_bad_input_is_one_line_and_code_2(
    arguments: list[str], part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert part in refused(call(*arguments))
    assert listing(tmp_path) == []


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.pmdp"
    foreign.write_bytes(b"not a mechanism")
    for command in ("audit", "info", "perturb"):
        assert "foreign.pmdp" in refused(call(command, foreign))
    assert refused(call("info", tmp_path))
    assert refused(call("compare", foreign))


def test_help_and_version() -> None:
    assert "compare" in call().stdout
    assert call("--version").stdout == f"panda-mdp {pm.__version__}\n"
    assert "standard input" in call("perturb", "--help").stdout


def test_json_has_no_infinities(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a": [float("inf"), 1.0], "b": (float("nan"),)})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": [None, 1.0], "b": [None]}


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "x.json"
    target.write_text("old")

    def fail(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(KeyboardInterrupt):
        write_json(target, "new")
    assert target.read_text() == "old"
    assert listing(tmp_path) == ["x.json"]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from panda_mdp.cli import main; main()", *arguments]


def test_real_process_exit_codes(saved: Path) -> None:
    done = subprocess.run(command("perturb", str(saved)), input="3\n", text=True,
                          capture_output=True, check=False)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.split(",")) == 2
    bad = subprocess.run(command("audit", "missing.pmdp"), text=True, capture_output=True,
                         check=False)  # fmt: skip
    assert bad.returncode == 2
    assert bad.stdout == ""
    assert bad.stderr.startswith("error: missing.pmdp: ")
    assert bad.stderr.count("\n") == 1


def running(group: int) -> list[str]:
    """Processes of a group that are not over; those that nobody has waited for are."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, member = entry.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(member) == group and state != "Z":
            found.append(entry.parent.name)
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_interrupt_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "rows.json"
    # Where the tests run in the background, interrupts are ignored, and children inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        command("compare", "synthetic", "--json", str(target)),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    signal.signal(signal.SIGINT, before)
    # Until the methods' processes are there.
    deadline = time.monotonic() + 300
    while len(running(process.pid)) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    # Ctrl-C in a terminal reaches the whole group.
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert out == ""
    assert err == "interrupted; nothing was written\n"
    assert listing(tmp_path) == []
    deadline = time.monotonic() + 120
    while running(process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert running(process.pid) == []
