"""The public instances: what was published is what there is, and forged entries are refused."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from pathlib import Path

import instances
import numpy as np
import pytest
from instance_files import FOLDER, digest, listed_digests, read_instance

from panda_mdp import optimal
from panda_mdp.errors import FileFormatError, PandaError, PrivacyError
from panda_mdp.privacy.quantise import TOTAL

SMALL = "grid-5x5"
TABLE = FOLDER / f"{SMALL}.optimal.table.npz"
BOUND = FOLDER / f"{SMALL}.optimal.bound.npz"
PROBLEM = read_instance(FOLDER / f"{SMALL}.json")


def command(*words: str | Path, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["instances.py", *map(str, words)])
    return instances.main()


@pytest.fixture
def weights() -> np.ndarray:
    with np.load(TABLE) as arrays:
        return arrays["weights"].copy()


@pytest.fixture
def multipliers() -> dict[str, np.ndarray]:
    with np.load(BOUND) as arrays:
        return {name: arrays[name].copy() for name in arrays}


def test_every_file_of_the_set_is_the_published_one():
    listed = listed_digests()
    there = {path.name for path in FOLDER.iterdir()} - {"SHA256SUMS"}
    assert set(listed) == there
    assert all(digest(FOLDER / name) == code for name, code in listed.items())


def test_the_instances_come_out_the_same_when_they_are_made_again():
    for given in (instances.grid(5), instances.grid(10), instances.ages(), instances.city(100, 20)):
        text = instances.instance_text(given)
        assert (FOLDER / f"{given['name']}.json").read_text() == text


def test_the_documented_leaderboard_is_what_passes_now():
    text = instances.DOCS.read_text()
    shown = text.partition(instances.BEGIN)[2].partition(instances.END)[0].strip().splitlines()
    assert shown == instances.leaderboard()


def test_the_verdict_is_the_solvers_own_on_an_honest_entry():
    verdict = instances.judge(PROBLEM, TABLE, BOUND)
    best = optimal(PROBLEM, gap=1e-5)
    assert verdict.loss == pytest.approx(best.loss, rel=1e-5)
    assert verdict.epsilon <= PROBLEM.epsilon
    assert best.lower_bound * (1 - 1e-5) <= verdict.bound <= best.loss


def move(weights: np.ndarray) -> None:
    """One person's mass moved to where the loss is least: cheaper, and no longer private."""
    weights[0, 0] += weights[0, 24]
    weights[0, 24] = 0


def double(weights: np.ndarray) -> None:
    weights[3, 3] += 2**40


def below_zero(weights: np.ndarray) -> None:
    weights[2, 0] -= TOTAL
    weights[2, 1] += TOTAL


def sharpen(weights: np.ndarray) -> None:
    """A little mass moved: the loss falls by little, and so does the guarantee."""
    moved = weights[:, 24] // 100
    weights[:, 24] -= moved
    weights[0, 0] += moved[0]
    weights[1:, 12] += moved[1:]


@pytest.mark.parametrize("forge", [move, double, below_zero, sharpen])
def test_a_forged_table_is_refused(forge, weights, tmp_path):
    forge(weights)
    np.savez(tmp_path / "forged.npz", weights=weights)
    with pytest.raises(PrivacyError):
        instances.judge(PROBLEM, tmp_path / "forged.npz", None)


def test_probabilities_are_no_weights(weights, tmp_path):
    np.savez(tmp_path / "floats.npz", weights=weights / TOTAL)
    with pytest.raises(PrivacyError, match="int64"):
        instances.judge(PROBLEM, tmp_path / "floats.npz", None)


def test_a_table_of_another_instance_is_refused():
    other = FOLDER / "grid-10x10.optimal.pmdp"
    with pytest.raises(FileFormatError, match="other records"):
        instances.judge(PROBLEM, other, None)
    with pytest.raises(PrivacyError, match="shape"):
        instances.judge(PROBLEM, FOLDER / "ages.optimal.table.npz", None)


def test_a_file_of_objects_is_refused_and_nothing_in_it_runs(tmp_path):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("a pickle ran",))

    np.savez(tmp_path / "trap.npz", weights=np.array([Trap()], dtype=object))
    with pytest.raises(FileFormatError, match="plain arrays"):
        instances.judge(PROBLEM, tmp_path / "trap.npz", None)


def test_a_file_that_unpacks_without_end_is_refused(tmp_path):
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("weights.npy", bytes(1 << 21))
        # The directory at the file's end, which is written last, is what is asked first.
        archive.getinfo("weights.npy").file_size = (1 << 30) + 1
    with pytest.raises(FileFormatError, match="unpacks to 1,073,741,825 bytes"):
        instances.judge(PROBLEM, path, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("multiplier", -1.0),
        ("multiplier", np.nan),
        ("multiplier", np.inf),
        ("x", 25),
        ("x2", -1),
        ("y", 25),
    ],
)
def test_a_forged_multiplier_is_refused(name, value, multipliers, tmp_path):
    array = multipliers[name].astype(float if name == "multiplier" else np.int64)
    array[7] = value
    np.savez(tmp_path / "bound.npz", **{**multipliers, name: array})
    with pytest.raises(FileFormatError, match=name):
        instances.judge(PROBLEM, None, tmp_path / "bound.npz")


def test_lists_of_unequal_length_and_indices_that_are_no_integers_are_refused(
    multipliers, tmp_path
):
    path = tmp_path / "bound.npz"
    np.savez(path, **{**multipliers, "y": multipliers["y"][:-1]})
    with pytest.raises(FileFormatError, match="one length"):
        instances.judge(PROBLEM, None, path)
    np.savez(path, **{**multipliers, "x": multipliers["x"] + 0.5})
    with pytest.raises(FileFormatError, match="integers"):
        instances.judge(PROBLEM, None, path)


@pytest.mark.parametrize("factor", [0.0, 0.5, 1.01, 3.0, 1e6, 1e300])
def test_no_multipliers_prove_more_than_the_best_table_loses(factor, multipliers, tmp_path):
    loss = instances.judge(PROBLEM, TABLE, None).loss
    multipliers["multiplier"] = multipliers["multiplier"].astype(np.float64) * factor
    np.savez(tmp_path / "bound.npz", **multipliers)
    assert instances.judge(PROBLEM, None, tmp_path / "bound.npz").bound <= loss


def test_an_instance_that_was_changed_is_refused(tmp_path, monkeypatch, capsys):
    for path in FOLDER.glob(f"{SMALL}*"):
        shutil.copy(path, tmp_path)
    shutil.copy(FOLDER / "SHA256SUMS", tmp_path)
    words = ("--folder", tmp_path, "check", SMALL, TABLE, "--bound", BOUND)
    assert command(*words, monkeypatch=monkeypatch) == 0
    assert "table: private" in capsys.readouterr().out
    given = json.loads((tmp_path / f"{SMALL}.json").read_text())
    given["epsilon"] = 2.0
    (tmp_path / f"{SMALL}.json").write_text(json.dumps(given))
    assert command(*words, monkeypatch=monkeypatch) == 2
    error = capsys.readouterr().err
    assert error.startswith("refused: ")
    assert len(error.splitlines()) == 1


def test_an_entry_that_was_exchanged_stops_the_leaderboard(tmp_path):
    for path in FOLDER.iterdir():
        if path.name.startswith(SMALL) or path.name == "SHA256SUMS":
            shutil.copy(path, tmp_path)
    entry = {"instance": SMALL, "method": "m", "version": "v", "table": TABLE.name}
    (tmp_path / "entries.json").write_text(json.dumps([entry]))
    assert len(instances.leaderboard(tmp_path)) == 3
    shutil.copy(FOLDER / f"{SMALL}.loss_exponential.table.npz", tmp_path / TABLE.name)
    with pytest.raises(FileFormatError, match="not the published file"):
        instances.leaderboard(tmp_path)


def test_what_run_writes_passes_check(tmp_path, monkeypatch, capsys):
    shutil.copy(FOLDER / f"{SMALL}.json", tmp_path)
    words = ("--folder", tmp_path, "run", SMALL, "--gap", "0.001", "--out", tmp_path)
    assert command(*words, monkeypatch=monkeypatch) == 0
    verdict = instances.judge(
        PROBLEM, tmp_path / f"{SMALL}.optimal.table.npz", tmp_path / f"{SMALL}.optimal.bound.npz"
    )
    assert verdict.loss <= verdict.bound * 1.0012
    capsys.readouterr()


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"format": "panda-mdp instance"}', None],
)
def test_what_is_no_instance_is_refused(text, tmp_path):
    path = tmp_path / "bad.json"
    given = json.loads((FOLDER / f"{SMALL}.json").read_text())
    path.write_text(json.dumps({**given, "version": 2}) if text is None else text)
    with pytest.raises(PandaError):
        read_instance(path)


def test_an_unknown_name_lists_those_there_are(monkeypatch, capsys):
    assert command("check", "no-such-city", monkeypatch=monkeypatch) == 2
    assert "grid-5x5" in capsys.readouterr().err
