"""Files of tables for every point, and draws from them: nothing is snapped, nothing believed."""

from __future__ import annotations

import json

import numpy as np
import pytest
from second_checker import in_a_process
from typer.testing import CliRunner

import panda_mdp as pm
from panda_mdp.cli.app import app
from panda_mdp.errors import InvalidInputError, SnapError
from panda_mdp.methods.coarse import coarse_unsound
from panda_mdp.table.decode import promise

BOX = (41.89, 12.48, 41.91, 12.505)


@pytest.fixture(scope="module")
def mechanism():
    domain = pm.Domain.from_area(BOX, spacing=0.4)
    outputs = np.flatnonzero(domain.mesh.inside)[::2]
    loss = pm.distance_loss(domain, outputs)
    problem = pm.Problem(domain, outputs, loss, 1.0)
    table = np.exp(-0.3 * loss)
    return pm.EverywhereMechanism.from_matrix(problem, table / table.sum(axis=1, keepdims=True))


def test_a_file_comes_back_as_what_it_was(mechanism, tmp_path):
    again = pm.load(mechanism.save(tmp_path / "area.pmdp"))
    assert isinstance(again, pm.EverywhereMechanism)
    assert again.everywhere == mechanism.everywhere
    assert np.array_equal(again.mesh.triangles, mechanism.mesh.triangles)
    assert again.sample_at(41.9, 12.49) in mechanism.problem.outputs
    assert again.identity == mechanism.identity
    assert "No place is snapped" in promise(pm.inspect(tmp_path / "area.pmdp").header)[1]
    second = in_a_process(tmp_path / "area.pmdp")
    assert second.returncode == 0, second.stdout
    audited = CliRunner().invoke(app, ["audit", str(tmp_path / "area.pmdp")])
    assert audited.exit_code == 0, audited.output


def test_vertices_alone_are_no_claim_for_points(mechanism):
    """Weights that pass the audit of pairs and not the one of points are no such file."""
    problem = mechanism.problem
    tight = problem.with_epsilon(mechanism.audit.epsilon * 1.0001)
    plain = pm.Mechanism(tight, mechanism.weights, "given")
    assert plain.audit.holds
    with pytest.raises(pm.errors.PrivacyError, match="every point"):
        pm.EverywhereMechanism.of(plain)
    with pytest.raises(pm.errors.PrivacyError, match="not 1-mDP"):
        pm.EverywhereMechanism.of(coarse_unsound(problem))


def test_frames_draw_at_the_point(mechanism):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(
        {"lat": rng.uniform(BOX[0], BOX[2], 300), "lon": rng.uniform(BOX[1], BOX[3], 300)}
    )
    summary = pm.FrameSummary()
    # The limit plays no part: it is far below the distance of points to vertices.
    drawn = pm.perturb(frame, mechanism, limit=1e-6, summary=summary)
    assert len(drawn) == 300
    assert drawn["reported_lat"].notna().all()
    assert not any("snapped" in line for line in summary.lines())
    far = pandas.DataFrame({"lat": [45.0], "lon": [9.0]})
    with pytest.raises(SnapError):
        pm.perturb(far, mechanism)
    with pytest.raises(InvalidInputError, match="another vertex each time"):
        pm.perturb(frame.assign(who=1), mechanism, pm.Columns(person="who"), key=pm.DrawKey.fresh())


def test_frames_follow_the_law_of_the_point(mechanism):
    pandas = pytest.importorskip("pandas")
    count = 40_000
    place = {"lat": 41.9003, "lon": 12.4921}
    frame = pandas.DataFrame({name: np.full(count, value) for name, value in place.items()})
    drawn = pm.perturb(frame, mechanism)["reported_lat"].to_numpy()
    domain, outputs = mechanism.problem.domain, mechanism.problem.outputs
    row = mechanism.row_at(**place)
    for lat in np.unique(domain.lat[outputs]):
        expected = row[domain.lat[outputs] == lat].sum()
        assert abs((drawn == lat).mean() - expected) < 5 * np.sqrt(expected / count)


def test_the_command_line_draws_at_the_point(mechanism, tmp_path):
    file = mechanism.save(tmp_path / "area.pmdp")
    runner = CliRunner()
    command = ["perturb", str(file), "--snap-limit", "1e-6", "--json", str(tmp_path / "out.json")]
    done = runner.invoke(app, command, input=b"41.9003,12.4921\n")
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "out.json").read_text())["output"] in mechanism.problem.outputs
    outside = runner.invoke(app, command, input=b"45.0,9.0\n")
    assert outside.exit_code == 2
    assert "45.0" not in outside.output
