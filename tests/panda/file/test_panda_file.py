"""Files of PAnDA: what was saved comes back, and what was forged does not."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from forging import Archive
from second_checker import in_a_process

import panda_mdp as pm
from panda_mdp.errors import FileFormatError, MethodError, NotForReleaseError, PrivacyError
from panda_mdp.panda.file.decode import decode, read_panda_certificate
from panda_mdp.panda.file.encode import encode
from panda_mdp.panda.options import Options
from panda_mdp.privacy.sampler import thresholds
from panda_mdp.table.pmdp.decode import decode as decode_plain
from panda_mdp.table.pmdp.decode import is_phased, read_certificate, version_of

SIZE, DELTA = 24, 2e-2
KINDS = ("common", "nearest", "candidates", "coins")


@cache
def problem(kind: str = "records") -> pm.Problem:
    rng = np.random.default_rng(3)
    domain = pm.Domain.from_points(41.8 + 0.2 * rng.random(SIZE), 12.4 + 0.2 * rng.random(SIZE))
    chosen = np.arange(0, SIZE, 4)
    losses = domain.distances(None, chosen)
    outputs = chosen if kind == "records" else pm.Outputs.labels([f"zone {k}" for k in range(6)])
    return pm.Problem(domain, outputs, losses, 1.0, prior=rng.dirichlet(np.ones(SIZE)))


@cache
def table(kind: str) -> pm.PandaTable:
    asked = problem()
    if kind in ("common", "nearest"):
        selection = pm.BallAnchors(0.4, outside=kind)
    elif kind == "candidates":
        selection = pm.BernoulliAnchors.alike(asked.domain, 9, DELTA)
    else:
        selection = pm.BernoulliAnchors(
            "logistic", 0.997, rate=1e-4, radius=3.0, candidates=np.arange(0, SIZE, 3)
        )
    return pm.PandaTable.of(selection.scheme(asked, DELTA, Options(gap=0.02)))


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


def swap(name: str, i: int, j: int) -> Callable[[Archive], None]:
    def change(archive: Archive) -> None:
        rows = archive.arrays[name].copy()
        rows[[i, j]] = rows[[j, i]]
        archive.arrays[name] = rows

    return change


def claim(path: str, value: object) -> Callable[[Archive], None]:
    """Another claim, in words and numbers."""

    def change(archive: Archive) -> None:
        claims = archive.certificate
        before = claims["epsilon"], claims["delta"]
        *parents, last = path.split(".")
        for parent in parents:
            claims = claims[parent]
        claims[last] = value(claims[last]) if callable(value) else value
        top = archive.certificate
        words = top["guarantee"].replace(f"of {before[0]!r} d", f"of {top['epsilon']!r} d")
        top["guarantee"] = words.replace(f"most {before[1]!r}.", f"most {top['delta']!r}.")

    return change


def swap_far(name: str) -> Callable[[Archive], None]:
    """The first row for the one that differs most from it."""

    def change(archive: Archive) -> None:
        rows = archive.arrays[name].astype(np.float64)
        swap(name, 0, int(np.abs(rows - rows[0]).sum(axis=1).argmax()))(archive)

    return change


def one_zero(archive: Archive) -> None:
    rows = archive.arrays["weights"].copy()
    rows[0, 1] += rows[0, 0]
    rows[0, 0] = 0
    archive.arrays["weights"] = rows


def point_mass(archive: Archive) -> None:
    """Everybody outside says where the centre is."""
    rows = np.zeros_like(archive.arrays["outside_weights"])
    rows[np.arange(len(rows)), np.arange(len(rows)) % rows.shape[1]] = 1 << 62
    archive.arrays["outside_weights"] = rows


def scaled(factor: float) -> Callable[[float], float]:
    return lambda value: value * factor


FORGED = {
    "centres swapped": ("common", swap_far("centre_weights"), "contradict"),
    "a centre moved": ("common", swap("centres", 0, 11), "centre|ball|probability|violation|loss"),
    "rows swapped": ("common", swap("weights", 0, 9), "contradict"),
    "rows outside swapped": ("common", swap_far("outside_weights"), "different rows|loss"),
    "rows outside that tell": ("common", point_mass, "no mean of the records"),
    "a smaller radius": ("common", claim("selection.radius", scaled(0.7)), "contradict|different"),
    "a smaller delta": ("common", claim("delta", 1e-5), "contradict"),
    "no delta": ("common", claim("delta", 0.0), "contradict"),
    "delta of 1": ("common", claim("delta", 1.0), "no probability below 1"),
    "a smaller epsilon": ("common", claim("epsilon", 0.9), "contradict"),
    "a smaller epsilon_1": ("common", claim("selection.epsilon", 0.3), "contradict"),
    "a smaller table": ("common", claim("selection.table_epsilon", 0.5), "contradict"),
    "another rule outside": (
        "common",
        claim("selection.outside", "nearest"),
        "expected the arrays",
    ),
    "an unknown rule": ("nearest", claim("selection.outside", "extend"), "are none"),
    "nearest, a smaller radius": ("nearest", claim("selection.radius", scaled(0.7)), "contradict"),
    "nearest, a smaller delta": ("nearest", claim("delta", 1e-5), "contradict"),
    "nearest, rows swapped": ("nearest", swap("weights", 0, 9), "contradict"),
    "an account below": ("common", claim("account.violation", scaled(0.5)), "violation is"),
    "an account above delta": ("common", claim("account.violation", 0.5), "violation is"),
    "a cheaper upload": ("common", claim("account.selection_epsilon", 0.1), "selection_epsilon is"),
    "a smaller download": ("coins", claim("account.expected_anchors", 1.0), "expected_anchors is"),
    "fewer pairs": ("common", claim("account.pairs", 7), "accounts for 7 pairs"),
    "a smaller loss": ("common", claim("loss", scaled(0.9)), "claims a loss"),
    "other words": ("common", claim("guarantee", "It is private."), "words are not those"),
    "another kind": ("common", claim("selection.kind", "net"), "kind 'net'"),
    "other anchors": ("candidates", swap("anchor_rows", 0, 5), "contradict|loss"),
    "anchors that moved": ("candidates", swap("candidates", 0, 5), "do not ascend"),
    "anchors beyond": ("candidates", lambda a: a.arrays["candidates"].__iadd__(SIZE), "candidates"),
    "rarer anchors": ("candidates", claim("selection.alpha", 0.9), "contradict"),
    "anchors that tell": ("candidates", claim("selection.rate", 2.0), "contradict"),
    "budgets: rows swapped": ("candidates", swap("weights", 0, 5), "contradict|loss"),
    "budgets: an impossible output": ("candidates", one_zero, "impossible for one"),
    "candidates, smaller epsilon": ("candidates", claim("epsilon", 0.8), "contradict"),
    "candidates, smaller delta": ("candidates", claim("delta", 1e-4), "contradict"),
    "a sharper decay": ("coins", claim("selection.rate", 3.0), "contradict"),
    "another decay": ("coins", claim("selection.decay", "step"), "contradict"),
    "outputs twice": ("common", lambda a: a.arrays["outputs"].__setitem__(1, 0), "named 2 times"),
    "no outputs of it": ("common", lambda a: a.arrays["outputs"].__iadd__(SIZE), "outputs"),
    "weights that do not sum": ("coins", lambda a: a.arrays["weights"].__iadd__(1), "sum"),
    "records moved": ("common", lambda a: a.arrays["lat"].__imul__(0.99), "domain"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_file_is_refused(name: str, tmp_path: Path) -> None:
    kind, change, reason = FORGED[name]
    archive = taken(kind)
    archive.arrays = {key: value.copy() for key, value in archive.arrays.items()}
    change(archive)
    path = tmp_path / "forged.pmdp"
    path.write_bytes(archive.bytes())
    with pytest.raises(FileFormatError, match=reason):
        pm.load_panda(path)


def test_records_elsewhere_are_refused_with_their_own_fingerprint() -> None:
    """Nearer records with the old rows: nothing is told by sums, the audit tells."""
    archive = taken("common")
    archive.arrays["lat"] = 41.8 + (archive.arrays["lat"] - 41.8) / 3
    archive.rename()
    with pytest.raises(FileFormatError, match="contradict"):
        decode(archive.bytes())


@pytest.mark.parametrize("kind", ["common", "candidates"])
def test_plain_readers_say_what_reads_it(kind: str, tmp_path: Path) -> None:
    path = table(kind).save(tmp_path / "panda.pmdp")
    for read in (pm.load, pm.inspect, read_certificate):
        with pytest.raises(FileFormatError, match=r"panda_mdp\.load_panda\(path\) reads it"):
            read(path)
    with pytest.raises(FileFormatError):
        pm.load_compact(path)
    second = in_a_process(path)
    assert second.returncode == 2
    assert "a table of PAnDA: `panda-mdp audit FILE` verifies" in second.stdout
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
