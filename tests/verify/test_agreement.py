"""Two checkers that share no code refuse the same forged files and accept the same honest ones."""

from __future__ import annotations

import zipfile
from collections import Counter
from pathlib import Path

import forging
import pytest
from helpers import KINDS
from second_checker import checker, in_a_process

import panda_mdp as pm
from panda_mdp.errors import FileFormatError

LEAST = 100
# A forged epsilon of 1e300 is refused; that it would hide nothing is said on the way.
pytestmark = pytest.mark.filterwarnings("ignore::panda_mdp.errors.ScaleWarning")


@pytest.fixture(scope="module")
def forged() -> list[forging.Sample]:
    return list(forging.forged())


def library(path: Path) -> None:
    """The library's own verified reading."""
    (pm.load if path.suffix == ".pmdp" else pm.load_compact)(path)


def second(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and last line of the second checker."""
    code = checker().main(str(path))
    return code, capsys.readouterr().out.splitlines()[-1]


def test_forged_files_are_refused_by_both(forged, tmp_path, capsys):
    """Every one of them, with a typed error and a reason; none is 'unreadable' by accident only."""
    codes: Counter[tuple[str, int]] = Counter()
    for sample in forged:
        path = sample.write(tmp_path)
        with pytest.raises(FileFormatError) as refused:
            library(path)
            pytest.fail(f"the library accepts: {sample.name} ({sample.suffix})")
        assert str(path) in str(refused.value), sample.name
        code, said = second(path, capsys)
        assert code in (1, 2), f"the second checker accepts: {sample.name} ({sample.suffix})"
        assert said.startswith(("DOES NOT HOLD: ", "not readable: ")), sample.name
        codes[sample.suffix, code] += 1
    assert codes.total() >= 3 * LEAST
    assert min(codes[suffix, code] for suffix in (".pmdp", ".pmdc") for code in (1, 2)) >= LEAST / 4


def test_honest_files_are_accepted_by_both(tmp_path, capsys):
    samples = list(forging.good())
    assert len({sample.name for sample in samples}) >= 10
    for sample in samples:
        path = sample.write(tmp_path)
        library(path)
        code, said = second(path, capsys)
        assert code == 0, f"{sample.name}: {said}"
        assert said.startswith("holds: epsilon 1.5 per "), sample.name


def test_no_forged_file_is_made_twice(forged):
    """A generator that fell back on one honest file would prove nothing."""
    files = [sample.data for sample in forged]
    honest = {sample.data for sample in forging.good()}
    assert not honest & set(files)
    assert len(set(files)) > 0.97 * len(files)


def test_the_pair_too_near_breaks_privacy_itself(tmp_path, capsys, monkeypatch):
    """Not only the triangle inequality: the rate of that pair is millions above what is claimed."""
    module = checker()
    monkeypatch.setattr(module.Given, "__init__", lambda self, table: None)
    table = module.read(forging.two_clusters(60))
    metric = module.Given(table)
    metric.rows, metric.least = module.whole(table.values["distances"], table.size)
    with pytest.raises(ValueError, match="exceeded between records 0 and 59"):
        module.check_pairs(table.rows, metric, 0.01)


@pytest.mark.parametrize("size", [800 << 20, 300 << 20])
def test_nothing_is_unpacked_of_what_is_too_much(size, tmp_path, monkeypatch):
    """A few kB that would become 800 MB: refused from the list of members."""
    path = tmp_path / "bomb.pmdp"
    path.write_bytes(forging.announced("arrays/weights.npy", size))
    assert path.stat().st_size < 10_000
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("unpacked"))
    with pytest.raises(FileFormatError, match=r"would unpack to .*; at most"):
        pm.load(path)
    assert checker().main(str(path)) == 2


def test_a_wide_matrix_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    path = tmp_path / "bomb.pmdc"
    path.write_bytes(forging.wide_bomb())
    assert path.stat().st_size < 2_000_000
    monkeypatch.setattr("panda_mdp.table.pmdc.layout.inflate", lambda *_: pytest.fail("unpacked"))
    with pytest.raises(FileFormatError, match="would unpack to 80"):
        pm.load_compact(path)


def test_a_bound_is_proved_stated_or_refused(tmp_path, capsys):
    """The file's multipliers prove it; without them it is called stated, by both."""
    path = forging.Sample("", ".pmdp", forging.archive("euclidean", forging.prove)).write(tmp_path)
    assert "proved" in pm.load(path).details["bound_source"]
    assert checker().main(str(path)) == 0
    assert "bound: " in (said := capsys.readouterr().out)
    assert "not proved" not in said
    path.write_bytes(forging.honest("euclidean", ".pmdp"))
    assert pm.load(path).proof is None
    assert pm.load(path).details["bound_source"] == "stated in the file, not proved there"
    assert checker().main(str(path)) == 0
    assert "stated, not proved in this file" in capsys.readouterr().out


@pytest.mark.parametrize("kind", KINDS)
def test_what_optimal_saves_is_proved_by_both(kind, tmp_path, capsys):
    """Bound and gap of the solver come back, proved, and are saved again with their proof."""
    made = pm.optimal(forging.mechanism(kind).problem, gap=0.01)
    path = made.save(tmp_path / "table.pmdp")
    loaded = pm.load(path)
    assert (loaded.lower_bound, loaded.gap) == (made.lower_bound, made.gap)
    assert made.gap <= 0.01
    assert loaded.details["bound_source"] == "proved by the file's multipliers"
    for again in (path, loaded.save(tmp_path / "again.pmdp")):
        assert checker().main(str(again)) == 0
        assert f"bound: {made.lower_bound!r}, proved in this file" in capsys.readouterr().out


def test_what_is_written_can_be_read(tmp_path, monkeypatch, capsys):
    """A table that deflates so well that it looks like a bomb is stored as it is."""
    monkeypatch.setattr("panda_mdp.table.claims.UNPACKED_BYTES", 0)
    monkeypatch.setattr("panda_mdp.table.claims.UNPACKED_RATIO", 1)
    path = forging.mechanism("matrix").save(tmp_path / "table.pmdp")
    with zipfile.ZipFile(path) as archive:
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
    assert pm.load(path).audit.holds
    assert second(path, capsys)[0] == 0


@pytest.mark.parametrize("version", [0, 6, 3.5, "1", None])
def test_versions_that_it_does_not_know_are_foreign(version, tmp_path, capsys):
    """Not readable, never vouched for, though the rest of the file is honest and its sums fit."""
    honest = next(sample for sample in forging.good() if sample.suffix == ".pmdp")
    archive = forging.Archive.of(honest.data)
    archive.certificate["version"] = version
    path = tmp_path / "other.pmdp"
    path.write_bytes(archive.bytes())
    assert second(path, capsys) == (2, "not readable: a foreign format")


def test_it_runs_alone(tmp_path):
    """Without site-packages, without the environment, from another folder."""
    done = in_a_process(next(forging.good()).write(tmp_path))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.splitlines()[-1].startswith("holds: ")
    (tmp_path / "given.pmdp").write_text("no table")
    assert in_a_process(tmp_path / "given.pmdp").returncode == 2
    assert in_a_process(tmp_path / "nowhere.pmdp").returncode == 2
