"""Files of PAnDA: what was saved comes back, and what was forged does not."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from forging import Archive
from forging_versions import DELTA, PHASES, SIZE, changed, problem
from forging_versions import panda_table as table
from second_checker import in_a_process

import panda_mdp as pm
from panda_mdp.errors import FileFormatError, MethodError, NotForReleaseError, PrivacyError
from panda_mdp.panda.file.decode import decode, read_panda_certificate
from panda_mdp.panda.file.encode import encode
from panda_mdp.panda.options import Options
from panda_mdp.privacy.sampler import thresholds
from panda_mdp.table.pmdp.decode import decode as decode_plain
from panda_mdp.table.pmdp.decode import is_phased, read_certificate, version_of

KINDS = ("common", "nearest", "candidates", "coins")


def taken(kind: str) -> Archive:
    return Archive.of(encode(table(kind)))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved_comes_back(kind: str, tmp_path: Path) -> None:
    made = table(kind)
    path = made.save(tmp_path / "panda.pmdp")
    read = pm.load_panda(path, expected=pm.Expected(epsilon=1.0, unit="km"))
    assert read.guarantee == made.guarantee == pm.Guarantee(1.0, DELTA, "km")
    assert np.array_equal(read.weights, made.weights)
    assert read.loss == pytest.approx(made.loss, rel=1e-12)
    assert read.account.violation <= made.account.violation * (1 + 1e-9)
    assert read.download == pytest.approx(made.download)
    assert np.array_equal(pickle.loads(pickle.dumps(read)).weights, made.weights)
    assert is_phased(path)
    assert version_of(path.read_bytes()) == 4
    assert read_panda_certificate(path)["delta"] == DELTA
    with pytest.raises(PrivacyError, match=r"at most 0\.5"):
        pm.load_panda(path, expected=pm.Expected(epsilon=0.5))


@pytest.mark.parametrize("kind", KINDS)
def test_draws_are_of_the_integers(kind: str) -> None:
    """Reports over all draws have the marginal law, which sums both phases exactly."""
    read = decode(encode(table(kind)))
    assert np.allclose(read.marginal.sum(axis=1), 1.0, atol=1e-12)
    assert read.problem.expected_loss(read.marginal) == pytest.approx(read.loss, rel=1e-12)
    drawn = read.sample(np.full(4000, 5))
    counts = np.array([(drawn == y).sum() for y in read.problem.outputs])
    spread = np.sqrt(4000 * read.marginal[5] * (1 - read.marginal[5]))
    assert (np.abs(counts - 4000 * read.marginal[5]) <= 6 * spread + 1).all()
    assert read.sample(5) in read.problem.outputs
    assert len(read.sample(5, size=3)) == 3
    assert read.report(5, read.select(5)) in read.problem.outputs


class Given:
    """Bits that were chosen before."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def integers(self, count: int) -> np.ndarray:
        assert count == len(self.values)
        return self.values


@pytest.mark.parametrize("kind", ["common", "nearest"])
def test_each_centre_leads_to_its_row(kind: str) -> None:
    made = table(kind)
    law, record = made.scheme.law, 7
    last = thresholds(law.mechanism.weights[record]) - 1
    centres = np.flatnonzero(law.mechanism.weights[record])
    rows = made.draw_rows(np.full(len(centres), record), Given(last[centres]))
    for centre, row in zip(centres, rows, strict=True):
        ball = law.ball(int(centre))
        wanted, place = made.scheme.rows(ball, made.table, np.array([record]))
        assert np.array_equal(made.weights[row], wanted[place[0]])


@pytest.mark.parametrize("kind", ["common", "nearest"])
def test_the_account_covers_every_pair_of_a_file(kind: str) -> None:
    """From the arrays alone, by brute force over centres and outputs, in extended precision."""
    archive = taken(kind)
    weights, chosen = archive.arrays["weights"], archive.arrays["centres"]
    radius, epsilon = archive.certificate["selection"]["radius"], archive.certificate["epsilon"]
    apart = problem().domain.distances()
    chance = archive.arrays["centre_weights"].astype(np.longdouble) / 2**62
    worst = 0.0
    for x in range(SIZE):
        for x2 in range(SIZE):
            if x == x2:
                continue
            total = np.longdouble(0)
            for k, centre in enumerate(chosen):
                rows = []
                for one in (x, x2):
                    if apart[one, centre] <= radius:
                        rows.append(weights[one])
                    elif kind == "common":
                        rows.append(archive.arrays["outside_weights"][k])
                    else:
                        ball = np.flatnonzero(apart[:, centre] <= radius)
                        rows.append(weights[ball[apart[one, ball].argmin()]])
                own, other = (row.astype(np.longdouble) for row in rows)
                leak = np.log(chance[x, k] / chance[x2, k])
                beyond = np.abs(leak + np.log(own / other)) > epsilon * apart[x, x2] + 1e-12
                total += chance[x, k] * (own[beyond] / 2**62).sum()
            worst = max(worst, float(total))
    read = decode(archive.bytes())
    assert worst <= read.account.violation <= DELTA
    assert worst > 0 or kind == "nearest"


@pytest.mark.parametrize("name", PHASES)
def test_a_forged_file_is_refused(name: str, tmp_path: Path) -> None:
    kind, change, reason = PHASES[name]
    path = tmp_path / "forged.pmdp"
    path.write_bytes(changed(encode(table(kind)), change))
    with pytest.raises(FileFormatError, match=reason):
        pm.load_panda(path)


@pytest.mark.parametrize("kind", ["common", "candidates"])
def test_plain_readers_say_what_reads_it(kind: str, tmp_path: Path) -> None:
    path = table(kind).save(tmp_path / "panda.pmdp")
    for read in (pm.load, pm.inspect, read_certificate):
        with pytest.raises(FileFormatError, match=r"panda_mdp\.load_panda\(path\) reads it"):
            read(path)
    with pytest.raises(FileFormatError):
        pm.load_compact(path)
    assert in_a_process(path).returncode == 0
    plain = pm.exponential(problem()).save(tmp_path / "plain.pmdp")
    with pytest.raises(FileFormatError, match=r"panda_mdp\.load\(path\) reads it"):
        pm.load_panda(plain)
    assert not is_phased(plain)
    assert not is_phased(tmp_path / "none")
    assert decode_plain(plain.read_bytes()).epsilon == 1.0


def test_labels_are_reported(tmp_path: Path) -> None:
    asked = problem("labels")
    run = pm.panda(asked, [1, 2], pm.BallAnchors(0.4), DELTA, relaxed=False)
    assert str(run.sample(0)).startswith("zone")
    read = pm.load_panda(run.save(tmp_path / "labels.pmdp"))
    assert read.sample(3).startswith("zone")
    assert all(name.startswith("zone") for name in read.sample([1, 2, 3]))


def test_a_run_saves_nothing_of_its_users(tmp_path: Path) -> None:
    """Whoever ran it and with whatever seed, the public part is the same to the last bit."""
    files = []
    for users, seed in (([1, 2], 5), ([9], 6)):
        run = pm.panda(problem(), users, pm.BallAnchors(0.4), DELTA, relaxed=False, seed=seed)
        files.append(Archive.of(run.save(tmp_path / f"{seed}.pmdp").read_bytes()))
    for name, array in files[0].arrays.items():
        assert np.array_equal(array, files[1].arrays[name]), name


def test_reports_from_one_selection_add_up() -> None:
    ball, nearest, coins = (table(kind) for kind in ("common", "nearest", "candidates"))
    assert ball.cost(1) == ball.guarantee
    assert ball.cost(3).epsilon == pytest.approx(1.0 + 2 * 0.6)
    assert ball.cost(3).delta == pytest.approx(3 * DELTA)
    assert nearest.cost(3).delta == pytest.approx(DELTA)
    assert coins.cost(3) == pm.Guarantee(3.0, DELTA, "km")
    with pytest.raises(MethodError):
        ball.cost(0)


def test_what_has_no_table_for_all_is_refused() -> None:
    scheme = pm.BallAnchors(0.4, outside="extend").scheme(problem(), DELTA, Options())
    with pytest.raises(MethodError, match="outside='common'"):
        pm.PandaTable.of(scheme)
    study = pm.study_panda(problem(), [1], pm.BernoulliAnchors(), 1e-7, relaxed=False, seed=1)
    with pytest.raises(NotForReleaseError):
        study.save("nowhere.pmdp")


def test_records_do_not_show_in_errors() -> None:
    for call in (table("common").sample, table("common").select):
        with pytest.raises(MethodError) as caught:
            call(987654)
        assert "987654" not in str(caught.value)
        frames = [frame.frame.f_locals for frame in caught.traceback]
        assert not any(987654 in local.values() for local in frames[1:])
