"""Files changed at random: library and second checker say the same of each, and so do commands."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import fuzzing
import pytest
from typer.testing import CliRunner

import panda_mdp as pm
from panda_mdp.cli import app
from panda_mdp.errors import FileFormatError

FILES, COMMANDS = 1200, 40
pytestmark = pytest.mark.filterwarnings("ignore::panda_mdp.errors.ScaleWarning")


def test_two_checkers_say_the_same():
    counts, broken = fuzzing.run(FILES, 1, None)
    assert not broken
    assert min(counts["accepted"], counts["refused"]) > FILES / 10


def test_commands_refuse_in_one_line(tmp_path: Path):
    """Whatever the file, `info`, `audit`, `explain` and `map` end in words or one line of error."""
    runner, seen = CliRunner(), set()
    for number in range(COMMANDS):
        path = fuzzing.sample(random.Random(f"commands {number}")).write(tmp_path)
        for command in ("info", "audit", "explain", "map"):
            more = ["--out", str(tmp_path / "map.html")] if command == "map" else []
            done = runner.invoke(app, [command, str(path), *more])
            assert done.exception is None or isinstance(done.exception, SystemExit), number
            assert done.exit_code in (0, 1, 2), number
            seen.add((command, done.exit_code))
            if done.exit_code == 2:
                assert len(done.stderr.splitlines()) == 1, number
                assert done.stderr.startswith("error: "), number
        with contextlib.suppress(FileFormatError):
            repr(pm.inspect(path))
    assert {(c, e) for c in ("info", "audit", "explain") for e in (0, 2)} <= seen


def test_the_generator_is_seeded():
    twice = [fuzzing.sample(random.Random("7 3")).data for _ in range(2)]
    assert twice[0] == twice[1]
