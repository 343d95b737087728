"""Files of PAnDA: what was saved comes back, and what was forged does not."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from forging import DELTA, PHASES, File, changed, problem
from forging import panda_table as table
from second_checker import in_a_process

import panda_mdp as pm
from panda_mdp.errors import FileFormatError, MethodError, NotForReleaseError, PrivacyError
from panda_mdp.panda.file import decode, decode_panda
from panda_mdp.table.decode import load_mechanism
from panda_mdp.table.encode import encode

KINDS = ("common", "candidates", "coins")


def taken(kind: str) -> File:
    return File.of(table(kind).encode())


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved_comes_back(kind: str, tmp_path: Path) -> None:
    made = table(kind)
    path = made.save(tmp_path / "panda.pmdp")
    read = pm.load(path, expected=pm.Expected(epsilon=1.0, unit="km"))
    delta = 0.0 if kind == "common" else DELTA
    assert read.guarantee == made.guarantee == pm.Guarantee(1.0, delta, "km")
    assert read.identity == made.identity
    weights = np.asarray(made.table.mechanism.weights)
    assert np.array_equal(read.table.mechanism.weights, weights)
    assert read.loss == pytest.approx(made.loss, rel=1e-12)
    assert read.account.violation <= made.account.violation * (1 + 1e-9)
    assert read.download == pytest.approx(made.download)
    assert pickle.loads(pickle.dumps(read)).identity == made.identity
    assert pm.inspect(path).phased
    assert pm.inspect(path).header["selection"]["delta"] == delta
    with pytest.raises(PrivacyError, match=r"at most 0\.5"):
        pm.load(path, expected=pm.Expected(epsilon=0.5))


@pytest.mark.parametrize("violation", [2 * DELTA, np.nan])
def test_an_account_that_does_not_hold_or_is_no_number_is_refused(violation: float) -> None:
    scheme = table("common").scheme
    spoiled = replace(scheme.account, violation=violation)
    with pytest.raises(PrivacyError, match="and delta is"):
        pm.PandaTable(scheme.holding(account=spoiled))


@pytest.mark.parametrize("kind", KINDS)
def test_draws_are_of_the_integers(kind: str) -> None:
    """Reports over all draws have the marginal law, which sums both phases exactly."""
    read = decode(table(kind).encode())
    assert np.allclose(read.matrix.sum(axis=1), 1.0, atol=1e-12)
    assert read.problem.expected_loss(read.matrix) == pytest.approx(read.loss, rel=1e-12)
    drawn = read.sample(np.full(4000, 5))
    counts = np.array([(drawn == y).sum() for y in read.problem.outputs])
    spread = np.sqrt(4000 * read.matrix[5] * (1 - read.matrix[5]))
    assert (np.abs(counts - 4000 * read.matrix[5]) <= 6 * spread + 1).all()
    assert read.sample(5) in read.problem.outputs
    assert len(read.sample(5, size=3)) == 3
    assert read.report(5, read.select(5)) in read.problem.outputs


def test_clients_of_balls_need_no_losses() -> None:
    made = table("common")
    assert len(made.wire) == made.download <= len(made.encode())
    read = decode_panda(made.wire)
    assert read.identity == made.identity and read.sample(5) in read.problem.outputs
    # Distances need no file; other losses are not known to who fetches it.
    given = replace(made.problem, loss=np.asarray(made.problem.loss) ** 2 + 1)
    whole = pm.PandaTable(pm.BallAnchors(0.4).scheme(given))
    assert len(whole.wire) == whole.download < len(whole.encode())
    fetched = decode_panda(whole.wire)
    assert fetched.identity == whole.identity
    assert "left out of the file" in "\n".join(fetched.explain())
    assert fetched.sample(5) in given.outputs
    assert len(table("coins").wire) == len(table("coins").encode())


def test_the_file_of_balls_holds_its_table_and_three_numbers() -> None:
    """About the bytes of the plain compact table, whose rows they are."""
    made = table("common")
    assert set(taken("common").header["selection"]) == {
        *("kind", "delta", "epsilon", "edge", "radius")
    }
    plain = encode(made.table.mechanism.with_facts(stages=(), details={}), losses=False)
    assert abs(made.download - len(plain)) < 400


@pytest.mark.parametrize("name", PHASES)
def test_a_forged_file_is_refused(name: str) -> None:
    kind, change = PHASES[name]
    with pytest.raises(FileFormatError):
        decode(changed(f"panda {kind}", change))


@pytest.mark.parametrize("kind", ["common", "candidates"])
def test_plain_readers_say_what_reads_it(kind: str, tmp_path: Path) -> None:
    path = table(kind).save(tmp_path / "panda.pmdp")
    with pytest.raises(FileFormatError, match=r"panda_mdp\.load\(path\) reads it"):
        load_mechanism(path)
    assert in_a_process(path).returncode == 0
    plain = pm.exponential(problem()).save(tmp_path / "plain.pmdp")
    with pytest.raises(FileFormatError, match=r"panda_mdp\.load\(path\) reads it"):
        decode_panda(plain.read_bytes())
    assert not pm.inspect(plain).phased


def test_labels_are_reported(tmp_path: Path) -> None:
    asked = problem("labels")
    run = pm.panda(asked, [1, 2], pm.BallAnchors(0.4), DELTA)
    assert str(run.sample(0)).startswith("zone")
    read = pm.load(run.save(tmp_path / "labels.pmdp"))
    assert read.sample(3).startswith("zone")
    assert all(name.startswith("zone") for name in read.sample([1, 2, 3]))


def test_a_run_saves_nothing_of_its_users(tmp_path: Path) -> None:
    """Whoever ran it and with whatever seed, the public part is the same to the last bit."""
    files = []
    for users, seed in (([1, 2], 5), ([9], 6)):
        run = pm.panda(problem(), users, pm.BallAnchors(0.4), DELTA, seed=seed)
        files.append(File.of(run.save(tmp_path / f"{seed}.pmdp").read_bytes()))
    for name, array in files[0].arrays.items():
        assert np.array_equal(array, files[1].arrays[name]), name


def test_reports_from_one_selection_add_up() -> None:
    ball, coins = table("common"), table("candidates")
    three = pm.compose(ball.guarantee, ball.further, ball.further)
    assert three.epsilon == pytest.approx(1.0 + 2 * 0.6) and three.delta == 0
    three = pm.compose(coins.guarantee, coins.further, coins.further)
    assert three == pm.Guarantee(3.0, DELTA, "km")


def test_a_study_is_not_saved() -> None:
    study = pm.study_panda(problem(), [1], pm.BernoulliAnchors(), 1e-7, seed=1)
    with pytest.raises(NotForReleaseError):
        study.save("nowhere.pmdp")


def test_records_do_not_show_in_errors() -> None:
    for call in (table("common").sample, table("common").select):
        with pytest.raises(MethodError) as caught:
            call(987654)
        assert "987654" not in str(caught.value)
        frames = [frame.frame.f_locals for frame in caught.traceback]
        assert not any(987654 in local.values() for local in frames[1:])
