"""Three checkers that share no code, over the same files: the library, the second checker, and the
one that is extracted from the proofs."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import forging
import numpy as np
import pytest
from second_checker import checker

import panda_mdp as pm
from panda_mdp.errors import PandaError

PARTS = 2
"""Two workers share the files."""


def library(path: Path) -> bool:
    """Whether the library's verified reading accepts a file."""
    try:
        pm.load(path)
    except PandaError:
        return False
    return True


def third(built: Path, path: Path) -> tuple[int, str]:
    """Exit code and words of the extracted checker."""
    done = subprocess.run(
        [built / "checker", path], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stderr == "", path.name
    assert done.stdout.count("\n") == 1, path.name
    return done.returncode, done.stdout


def bound(built: Path, path: Path) -> float | None:
    """What the extracted checker says that the loss is at least."""
    code, said = third(built, path)
    assert code == 0, said
    value = said.partition("; bound: ")[2]
    return None if value.startswith("none") else float(value.partition(", proved")[0])


def by_coins(sample: forging.Sample) -> bool:
    """PAnDA's tables whose anchors are drawn by coins: the extracted checker reads none."""
    return sample.group == "panda" and b'"kind":"coins"' in sample.data


@pytest.mark.parametrize("part", range(PARTS))
def test_they_agree_on_good_broken_and_forged_files(built, part, tmp_path, capsys):
    verdicts: Counter[tuple[str, bool]] = Counter()
    for group, samples in (("good", forging.good()), ("forged", forging.forged())):
        for sample in [s for s in samples if not by_coins(s)][part::PARTS]:
            path = sample.write(tmp_path)
            code, said = third(built, path)
            assert code in (0, 1, 2)
            accepted = [library(path), checker().main(str(path)) == 0, code == 0]
            assert accepted == [group == "good"] * 3, f"{sample.name}: {said}"
            assert said.startswith(("holds: ", "DOES NOT HOLD: ", "not readable: ")[code])
            verdicts[sample.group, code == 0] += 1
    capsys.readouterr()
    print(f"three checkers agree on {verdicts.total()} files: {dict(verdicts)}")
    assert verdicts["plain", False] >= 100 and verdicts["floor", False] >= 8
    assert verdicts["panda", False] >= 8 and verdicts["mesh", False] >= 8
    assert verdicts["streets", False] >= 8 and verdicts["factors", False] >= 8
    assert verdicts["plain", True] >= 8 and verdicts["floor", True] == 2


def test_what_it_does_not_read_is_refused_by_name(built, tmp_path):
    data = forging.honest("panda coins")
    code, said = third(built, forging.Sample("", "", data).write(tmp_path))
    assert code == 2
    assert "coins is not read here" in said


def test_rows_over_a_floor_are_read_as_they_are_stored_however_large_they_are(built, tmp_path):
    """300 records x 115,000 outputs, 276 MB written out, of which two numbers are not the floor."""
    records, outputs = 300, 115_000
    file = forging.File.of(forging.honest("compact of places"))
    file.header["domain"]["labels"] = None
    each = forging.TOTAL // outputs
    floor = np.full(outputs, each)
    floor[-1] += forging.TOTAL - floor.sum()
    file.sections.clear()
    file.arrays = {
        "lat": 41 + 1e-3 * np.arange(records),
        "lon": np.full(records, 12.5),
        "output_lat": np.full(outputs, 41.0),
        "output_lon": np.full(outputs, 12.5),
        "floor": floor,
        "starts": np.where(np.arange(records + 1) > 5, 2, 0),
        "columns": np.array([7, 9]),
        "values": np.array([each + each // 100, each - each // 100]),
    }
    path = tmp_path / "wide.pmdp"
    path.write_bytes(file.bytes())
    assert 8 * records * outputs > (1 << 28) + 128 * path.stat().st_size
    code, said = third(built, path)
    assert code == 0 and library(path), said


def test_a_bound_is_proved_by_its_multipliers(built, tmp_path):
    data = forging.changed("euclidean", forging.with_proof())
    path = forging.Sample("", "", data).write(tmp_path)
    assert bound(built, path) == pytest.approx(pm.load(path).bound.value, rel=1e-8)
    # Losses that follow from distances are taken from below.
    for kind in ("euclidean", "haversine", "matrix"):
        path.write_bytes(forging.honest(f"distances {kind}"))
        assert bound(built, path) == pytest.approx(pm.load(path).bound.value, rel=1e-8)
    path.write_bytes(forging.honest("euclidean"))
    assert third(built, path)[1].endswith("bound: stated, not proved in this file\n")


@pytest.mark.parametrize("name", ["averages", "averages given"])
def test_averages_over_points_are_summed_up_again(name, built, tmp_path):
    """Law and losses of the file are those of what was given, and the bound is the library's; of
    another law, or of losses that differ in the ninth digit, nothing is proved."""
    file = forging.File.of(forging.honest(name))
    path = forging.Sample("", "", file.bytes()).write(tmp_path)
    assert bound(built, path) == pytest.approx(pm.load(path).bound.value, rel=1e-8)
    given, losses = file.arrays["given_prior"].copy(), file.arrays["loss"].copy()
    here = np.flatnonzero(given)
    file.arrays["given_prior"][here] = given[here][::-1]
    path.write_bytes(file.bytes())
    assert bound(built, path) is None and pm.load(path).bound is None
    file.arrays["given_prior"], file.arrays["loss"] = given, losses * (1 + 1e-9)
    path.write_bytes(file.bytes())
    assert bound(built, path) is None and pm.load(path).bound is None


def test_graphs_of_any_size_are_read(built, tmp_path):
    """Edges are looked at, not pairs: 2,500 records, and a share of epsilon too much along one."""
    side = 50
    number = np.arange(side * side).reshape(side, side)
    across = np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], axis=1)
    down = np.stack([number[:-1].ravel(), number[1:].ravel()], axis=1)
    edges = np.concatenate([across, down])
    lengths = np.random.default_rng(3).integers(256, 500, len(edges)) / 256
    domain = pm.Domain.from_graph(edges, lengths)
    outputs = number[::24, ::24].ravel()
    problem = pm.Problem(domain, outputs, domain.distances(None, outputs), 0.25)
    path = pm.exponential(problem).save(tmp_path / "graph.pmdp")
    assert library(path) and third(built, path)[0] == 0
    file = forging.File.of(path.read_bytes())
    file.header["epsilon"] = pm.load(path).audit.epsilon * (1 - 1e-9)
    path.write_bytes(file.bytes())
    assert not library(path) and third(built, path)[0] == 1


def test_what_is_no_file(built, tmp_path):
    (tmp_path / "empty.pmdp").write_bytes(b"")
    (tmp_path / "text.pmdp").write_text("no table")
    for name in ("empty.pmdp", "text.pmdp", "nowhere.pmdp"):
        assert third(built, tmp_path / name)[0] == 2


def test_rome(built, road_maps, tmp_path, capsys):
    """1,000 junctions of Rome, 100 outputs: half a million pairs, all three checkers."""
    domain = road_maps("rome").domain(records=1000, seed=0)
    outputs = np.arange(100)
    problem = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), epsilon=5.0)
    mechanism = pm.optimal(problem, gap=0.2)
    for name, table in (("rome", mechanism), ("short", pm.compact(mechanism))):
        path = table.save(tmp_path / f"{name}.pmdp")
        assert library(path)
        assert third(built, path)[0] == 0
    assert checker().main(str(path)) == 0
    assert "holds: " in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["euclidean", "haversine", "angular"])
def test_the_verdict_is_sharp_across_tiles(kind, built, tmp_path):
    """Rows differ between three clusters only, one of them so far that its tiles are passed over:
    the stated rate holds, one part in 1e9 less does not."""
    rng = np.random.default_rng(5)
    cluster = np.arange(90) % 3
    middle = np.array([[0.0, 0.0, 1.0], [0.0, 0.3, 1.0], [40.0, 1.0, 1.0]])[cluster]
    vectors = middle + 0.01 * rng.random((90, 3))
    if kind == "haversine":
        domain = pm.Domain.from_points(*vectors[:, :2].T)
    else:
        domain = pm.Domain.from_vectors(vectors, metric=kind)
    table = np.array([[0.5, 0.5], [0.9, 0.1], [0.7, 0.3]])[cluster]
    nearest = domain.distances()[cluster[:, None] < cluster].min()
    problem = pm.Problem(domain, [0, 1], np.ones((90, 2)), epsilon=2 / nearest)
    path = tmp_path / "clusters.pmdp"
    pm.Mechanism.from_matrix(problem, table).save(path)
    assert third(built, path)[0] == 0
    rate = pm.load(path).audit.epsilon
    for epsilon, code in ((rate, 0), (rate * (1 - 1e-9), 1)):
        file = forging.File.of(path.read_bytes())
        file.header["epsilon"] = epsilon
        path.write_bytes(file.bytes())
        assert third(built, path)[0] == code
        assert checker().main(str(path)) == code
