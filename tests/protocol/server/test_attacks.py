"""The attacks on an operator's bad day are tried, and every promise against them holds.

`python tests/support/planting.py --lists operate` takes the answers out one at a time and shows
that the same attacks then succeed, or that the tests of their parts fail.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from protocol_servers import PATIENCE

ATTACKS = Path(__file__).parents[3] / "benchmarks" / "attacks"


def attack(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ATTACKS / f"{name}.py")],
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2_000:]
    assert "held: " in done.stdout and "BROKEN" not in done.stdout


def test_a_lost_disk() -> None:
    attack("lost_disk")


def test_silence_in_a_small_area() -> None:
    attack("snap_oracle")


def test_a_poisoned_batch() -> None:
    attack("poisoned_batch")


@pytest.mark.skipif(sys.platform != "linux", reason="connects from a second address of loopback")
def test_many_connections_and_quotas() -> None:
    attack("many_connections")
