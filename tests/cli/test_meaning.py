"""The commands that say what a table means."""

from __future__ import annotations

import json

import pytest
from helpers import displacement_problem, random_domain
from typer.testing import CliRunner

import panda_mdp as pm
from panda_mdp.cli import app

RUNNER = CliRunner()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    domain = random_domain("haversine", 12, seed=3)
    table = pm.exponential(displacement_problem(domain, range(12), 5.0))
    return table.save(tmp_path_factory.mktemp("meaning") / "table.pmdp")


def test_explain_says_the_sentence(file):
    done = RUNNER.invoke(app, ["explain", str(file)])
    assert done.exit_code == 0, done.stderr
    assert "100 m: right at most 62 times in 100" in done.stdout


def test_attack_prints_and_writes_the_same(file, tmp_path):
    target = tmp_path / "attack.json"
    done = RUNNER.invoke(app, ["attack", str(file), "--radius", "0.3", "--json", str(target)])
    assert done.exit_code == 0, done.stderr
    numbers = json.loads(target.read_text())
    expected = pm.attack(pm.load(file), radii=[0.3])
    assert numbers["vulnerability"] == expected.vulnerability
    assert numbers["located"] == {"0.3": expected.located[0.3]}
    assert f"{expected.error:.4g} km" in done.stdout
    assert RUNNER.invoke(app, ["attack", str(file), "--radius", "-1"]).exit_code == 2


def test_epsilon_from_a_wish(tmp_path):
    target = tmp_path / "choice.json"
    wish = ["--within", "0.2", "--odds", "4", "--records", "30", "--outputs", "8"]
    done = RUNNER.invoke(app, ["epsilon", "synthetic", *wish, "--json", str(target)])
    assert done.exit_code == 0, done.stderr
    choice = json.loads(target.read_text())
    assert choice["epsilon"] == pytest.approx(6.9315, abs=1e-4)
    assert len(choice["curve"]) == 5
    assert RUNNER.invoke(app, ["epsilon", "synthetic"]).exit_code == 2
