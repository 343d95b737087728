"""Two checkers that share no code refuse the same forged files and accept the same honest ones."""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from pathlib import Path

import forging
import pytest
from helpers import KINDS
from second_checker import SOURCE, checker, in_a_process

import panda_mdp as pm
from panda_mdp.errors import FileFormatError
from panda_mdp.table.bound import Proved, Stated

LEAST = {"plain": 250, "floor": 19, "panda": 35, "mesh": 20, "streets": 19, "factors": 25}
# A forged epsilon may hide nothing, which is said on the way.
pytestmark = pytest.mark.filterwarnings("ignore::panda_mdp.errors.ScaleWarning")


def second(path: Path) -> tuple[int, list[str]]:
    """Exit code and lines of the second checker."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = checker().main(str(path))
    return code, said.getvalue().splitlines()


def test_forged_files_are_refused_by_both(tmp_path):
    """Every one of them, with a typed error and a reason, and none for what is said about it."""
    refused: Counter[str] = Counter()
    codes: Counter[int] = Counter()
    files = []
    for sample in forging.forged():
        path = sample.write(tmp_path)
        with pytest.raises(FileFormatError) as error:
            pm.load(path)
            pytest.fail(f"the library accepts: {sample.name}")
        assert str(path) in str(error.value), sample.name
        code, said = second(path)
        assert code in (1, 2), f"the second checker accepts: {sample.name}"
        assert said[-1].startswith(("DOES NOT HOLD: ", "not readable: ")), sample.name
        refused[sample.group] += 1
        codes[code] += 1
        files.append(sample.data)
    assert all(refused[group] >= least for group, least in LEAST.items()), refused
    assert min(codes[1], codes[2]) >= 80
    # A generator that fell back on one honest file would prove nothing.
    honest = {sample.data for sample in forging.good()}
    assert not honest & set(files)
    assert len(set(files)) > 0.97 * len(files)


def test_honest_files_are_accepted_by_both(tmp_path):
    seen = Counter()
    for sample in forging.good():
        path = sample.write(tmp_path)
        table = pm.load(path)
        code, said = second(path)
        assert code == 0, f"{sample.name}: {said}"
        assert said[-1].startswith(f"holds: epsilon {table.problem.epsilon!r} per "), sample.name
        assert sum(line.startswith("holds: ") for line in said) == 1, sample.name
        seen[sample.group] += 1
    assert seen["plain"] >= 15 and seen["floor"] == 4 and seen["panda"] == 5
    assert all(seen[name] == 1 for name in ("mesh", "graph", "streets", "factors"))


def test_the_pair_too_near_breaks_privacy_itself():
    """Not only the triangle inequality: the rate of that pair is millions above what is claimed."""
    module = checker()
    table = module.read(forging.two_clusters(60))
    metric = object.__new__(module.Given)
    metric.rows, metric.least = module.whole(table.values["distances"], table.size)
    with pytest.raises(ValueError, match="exceeded between records 0 and 59"):
        module.check_pairs(table.rows, metric, 0.01)


def test_nothing_is_unpacked_of_what_is_too_much(tmp_path):
    """800 MB in 800 kB: refused from the list of sections, by both."""
    path = tmp_path / "bomb.pmdp"
    path.write_bytes(forging.bomb())
    assert path.stat().st_size < 2_000_000
    with pytest.raises(FileFormatError, match=r"would unpack to 80.*; at most"):
        pm.load(path)
    assert second(path) == (2, ["not readable: it would unpack to too much"])


def test_a_bound_is_proved_or_called_stated(tmp_path):
    """The file's multipliers prove it; without them it is called stated, by both."""
    path = tmp_path / "table.pmdp"
    path.write_bytes(forging.changed("euclidean", forging.with_proof()))
    loaded = pm.load(path)
    assert isinstance(loaded.bound, Proved)
    assert loaded.lower_bound == loaded.bound.value
    (line,) = (line for line in second(path)[1] if line.startswith("bound: "))
    assert line.endswith("proved by the multipliers in this file")
    assert float(line.split()[1].rstrip(",")) == pytest.approx(loaded.lower_bound, rel=1e-9)
    path.write_bytes(forging.honest("euclidean"))
    assert pm.load(path).bound == Stated(forging.mechanism("euclidean").lower_bound, "the file")
    assert any(line.endswith("stated, not proved in this file") for line in second(path)[1])


def test_a_note_that_cannot_be_true_is_left_out(tmp_path):
    (sample,) = (s for s in forging.good() if s.name == forging.UNTRUE)
    assert pm.load(sample.write(tmp_path)).lower_bound is None


@pytest.mark.parametrize(
    ("change", "share"), [(lambda a: a * 0, 0.9), (lambda a: a * 2, 0.9), (lambda a: a / 2, 1.0)]
)
def test_other_multipliers_prove_less(change, share, tmp_path):
    """Whatever multipliers a file has, what they prove is true; there is nothing to overstate."""
    best = pm.load(forging.Sample("", "", forging.honest("proved euclidean")).write(tmp_path))
    file = forging.changed(
        "euclidean", forging.with_proof(forging.array("bound_multipliers", change))
    )
    path = tmp_path / "other.pmdp"
    path.write_bytes(file)
    loaded = pm.load(path)
    assert loaded.lower_bound is None or loaded.lower_bound <= share * best.loss
    assert second(path)[0] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_what_optimal_saves_is_proved_by_both(kind, tmp_path):
    """Bound and gap of the solver come back, proved, and are saved again with their proof."""
    made = pm.optimal(forging.mechanism(kind).problem, gap=0.01)
    path = made.save(tmp_path / "table.pmdp")
    loaded = pm.load(path)
    assert isinstance(made.bound, Proved) and isinstance(loaded.bound, Proved)
    assert loaded.lower_bound == made.lower_bound
    assert loaded.gap <= made.gap <= 0.01
    for again in (path, loaded.save(tmp_path / "again.pmdp")):
        code, said = second(again)
        assert code == 0
        (line,) = (line for line in said if line.startswith("bound: "))
        assert line.endswith("proved by the multipliers in this file")
        assert float(line.split()[1].rstrip(",")) >= loaded.lower_bound


def test_labels_belong_to_the_domain(tmp_path):
    """With two labels exchanged a table protects other people: it is over another domain."""
    domain = pm.Domain.from_vectors([[0.0], [1.0], [100.0]], unit="year").with_labels([0, 1, 100])
    problem = pm.Problem(domain, range(3), domain.distances(), 0.2)
    path = pm.exponential(problem).save(tmp_path / "ages.pmdp")
    expected = pm.Expected(identity=domain.fingerprint)
    honest = pm.load(path, expected=expected)
    file = forging.File.of(path.read_bytes())
    file.header["domain"]["labels"] = [0, 100, 1]
    path.write_bytes(file.bytes())
    assert pm.load(path).identity != honest.identity
    with pytest.raises(pm.errors.PrivacyError, match="was expected"):
        pm.load(path, expected=expected)


def test_it_runs_alone(tmp_path):
    """Without site-packages, without the environment, from another folder."""
    done = in_a_process(next(forging.good()).write(tmp_path))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.splitlines()[-1].startswith("holds: ")
    (tmp_path / "given.pmdp").write_text("no table")
    assert in_a_process(tmp_path / "given.pmdp").returncode == 2
    assert in_a_process(tmp_path / "nowhere.pmdp").returncode == 2


def test_its_files_are_short_and_share_nothing() -> None:
    allowed = {
        "hashlib,",
        "math",
        "fractions",
        "itertools",
        "operator",
        "types",
        "panda_verify",
    } | {"heapq", "collections"}
    allowed |= {"panda_verify"}
    for part in ("", "_phases", "_mesh", "_words", "_paths", "_terms"):
        name = f"panda_verify{part}"
        text = SOURCE.with_name(f"{name}.py").read_text()
        assert len(text.splitlines()) < 480
        lines = [line for line in text.splitlines() if line.startswith(("from ", "import "))]
        assert {line.split()[1] for line in lines} <= allowed


def test_a_missing_file_of_the_checker_is_named(tmp_path: Path) -> None:
    alone = tmp_path / "panda_verify.py"
    alone.write_bytes(SOURCE.read_bytes())
    done = in_a_process(forging.Sample("", "", forging.honest("mesh")).write(tmp_path), alone)
    assert done.returncode == 2
    assert "panda_verify_mesh.py" in done.stdout
