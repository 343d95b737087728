"""What files and callers once got believed, beside numbers that were right: each is tried again."""

from __future__ import annotations

import math

import forging
import numpy as np
import pytest
from forging import both, put, state
from helpers import displacement_problem, random_domain
from second_checker import checker
from typer.testing import CliRunner

import panda_mdp as pm
from panda_mdp.base.threads import within
from panda_mdp.cli.app import app
from panda_mdp.errors import FileFormatError, PandaError, PrivacyError, ProblemError, TimeLimitError
from panda_mdp.panda.selection import PandaOptions
from panda_mdp.table.bound import Stated
from panda_mdp.table.decode import Expected, inspect

AGES = pm.Domain.from_vectors([[0.0], [1.0], [100.0]], unit="years").with_labels([0, 1, 100])
COMMANDS = ("info", "audit", "explain", "verify")


def printed(command: str, path: object) -> str:
    """What a command prints of a file."""
    return CliRunner().invoke(app, [command, str(path)]).output


@pytest.mark.parametrize("losses", [True, False])
def test_exchanged_labels_name_another_table(losses, tmp_path):
    problem = displacement_problem(AGES, [0, 1, 2], 0.2)
    table = pm.compact(pm.exponential(problem))
    path = table.save(tmp_path / "ages.pmdp", losses=losses)
    file = forging.File.of(path.read_bytes())
    file.header["domain"]["labels"] = [0, 100, 1]
    path.write_bytes(file.bytes())
    for name in (table.identity, problem.identity, AGES.fingerprint):
        with pytest.raises(PrivacyError, match="was expected"):
            pm.load(path, expected=Expected(identity=name))


@pytest.mark.parametrize("kind", ["euclidean", "compact euclidean"])
def test_a_bound_that_is_written_into_a_file_is_stated(kind, tmp_path):
    path = tmp_path / "table.pmdp"
    path.write_bytes(forging.honest(kind))
    loss = pm.load(path).loss if kind == "euclidean" else 0.1
    words = "optimal, proved by the file's multipliers"
    change = both(state("notes.lower_bound", loss), state("notes.method", words))
    path.write_bytes(forging.changed(kind, change))
    table = pm.load(path)
    if kind == "euclidean":
        assert table.bound == Stated(loss, "the file")
        assert "(stated by the file, not proved)" in repr(table)
    assert table.method == words and "multipliers (unverified)" in repr(table)
    assert "proved by the file's multipliers\n" not in printed("explain", path)
    assert "stated, not proved in this file" in printed("verify", path) or kind != "euclidean"


@pytest.mark.parametrize(
    "name",
    ["guarantee", "audit", "lower_bound", "gap", "snapping", "claims", "selection_epsilon"],
)
@pytest.mark.parametrize("kind", ["euclidean", "panda common", "panda coins", "mesh"])
def test_there_is_no_place_for_claims(kind, name, tmp_path):
    words = "Further reports of the same record are free."
    for value in (words, 1e300, {"epsilon": 0.1, "holds": True}):
        path = tmp_path / "table.pmdp"
        path.write_bytes(forging.changed(kind, state(name, value)))
        with pytest.raises(FileFormatError):
            pm.load(path)
        with pytest.raises(FileFormatError):
            inspect(path)
        assert checker().main(str(path)) == 2
        assert words not in printed("info", path)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("mesh", state("mesh.spacing", 10**400)),
        ("mesh", state("mesh.middle", [10**400, 1])),
        ("panda coins", state("selection.rate", 10**400)),
        ("euclidean", forging.without("domain.kind")),
        ("euclidean", state("domain", 3)),
        ("euclidean", state("notes.stages", [[1]])),
        ("euclidean", state("sections", {"lat": None})),
        ("euclidean", state("epsilon", "1.5")),
        ("euclidean", state("domain.labels", ["a"] * 12)),
        ("euclidean", put("weights", (0, 0), -1)),
    ],
)
def test_hostile_files_end_in_a_typed_error_and_one_line(kind, change, tmp_path):
    path = tmp_path / "table.pmdp"
    path.write_bytes(forging.changed(kind, change))
    with pytest.raises(FileFormatError):
        pm.load(path)
    for command in COMMANDS:
        result = CliRunner().invoke(app, [command, str(path)])
        assert result.exception is None or isinstance(result.exception, SystemExit)
        assert "Traceback" not in result.output
    assert checker().main(str(path)) in (1, 2)


def test_no_printer_passes_on_what_a_terminal_obeys(tmp_path):
    table = pm.exponential(displacement_problem(random_domain("euclidean", 6), [0, 3], 1.0))
    method = "optimal\x1b[2J\nepsilon: 0.001\x9b2J\r"
    path = table.with_facts(method=method, details={"a\x1b": "b\x1b"}).save(tmp_path / "t.pmdp")
    shown = (repr(pm.load(path)), repr(inspect(path)))
    for said in (*shown, *(printed(command, path) for command in COMMANDS)):
        assert not {"\x1b", "\x9b", "\r"} & set(said)
    assert "\n" not in repr(pm.load(path))
    for labels in (["a", "b\x1b[2J"], ["a", "b\nholds: yes"], ["a", "\x7f"]):
        with pytest.raises(ProblemError, match="labels are plain text or finite numbers"):
            pm.Outputs.labels(labels)
        with pytest.raises(PandaError, match="labels are plain text or finite numbers"):
            pm.Domain.from_vectors([[0.0], [1.0]]).with_labels(labels)


@pytest.mark.parametrize("bound", [1e9, math.inf, math.nan])
def test_a_bound_that_a_caller_passes_is_checked_or_stated(bound):
    table = pm.exponential(displacement_problem(random_domain("euclidean", 6), [0, 3], 1.0))
    with pytest.raises(PrivacyError):
        table.with_facts(bound=bound)
    assert table.with_facts(bound=table.loss).bound == Stated(table.loss, "the caller")


@pytest.mark.parametrize("objective", ["vulnerability", "error"])
def test_a_second_objective_that_cannot_be_asked_leaves_the_first(objective):
    points = [[0.0, 0.0], [5.0, 0.0], [2.5, 5 * math.sqrt(0.75)]]
    domain = pm.Domain.from_vectors(points)
    problem = pm.Problem(domain, [0, 1, 2], domain.distances(), 4.0)
    first = pm.optimal(problem)
    made = pm.second_objective(first, objective, 0.05)
    assert isinstance(made, pm.Mechanism) and made.loss <= 1.06 * first.loss


@pytest.mark.filterwarnings("ignore::panda_mdp.errors.GapWarning")
def test_epsilons_that_hide_nothing_or_all_are_answered():
    domain = random_domain("euclidean", 8)
    small = pm.solve_lp(displacement_problem(domain, range(8), 4.3e-6), "all")
    assert small.audit.holds
    with pytest.warns(pm.errors.ScaleWarning):
        problem = displacement_problem(domain, range(8), 1e5)
    assert pm.optimal(problem).loss == pytest.approx(0, abs=1e-9)


def test_numbers_are_numbers():
    domain = random_domain("euclidean", 4)
    for epsilon in ("5", True, 5 + 0j):
        with pytest.raises(ProblemError):
            pm.Problem(domain, [0], np.zeros((4, 1)), epsilon)
    with pytest.raises(ProblemError, match="complex128"):
        pm.Problem(domain, [0], np.full((4, 1), 1 + 1j), 1.0)


def test_limits_of_panda_are_kept_by_the_clock_that_is_given():
    """In looks at a clock that jumps beyond every limit: few are left until the end."""
    plane = pm.Domain.from_vectors(2 * np.random.default_rng(11).normal(size=(40, 2)))
    problem = displacement_problem(plane, [0, 9, 17, 30], 1.0)
    begin = looks = 0

    def clock() -> float:
        nonlocal looks
        looks += 1
        return 0.0 if looks < begin else 1e6

    options, selection = PandaOptions(gap=1e-9, time_limit=20.0), pm.BallAnchors(0.4)
    # Later than the first looks: from then on the limit's time is counted.
    for most in (5, 15, 30):
        begin, looks = most, 0
        with within(math.inf, clock):
            run = pm.panda(problem, [1, 2], selection, 0.05, options=options)
        assert run.guarantee.epsilon == 1.0
        # Without the jump there are more than a hundred.
        assert begin <= looks <= begin + 40
    for most in (3, 100, 400):
        begin, looks = most, 0
        with within(30.0, clock), pytest.raises(TimeLimitError):
            pm.calibrate(problem, 0.01, gap=1e-5)
        assert begin <= looks <= begin + 30
