"""Drills of an operator: one command to begin with, and the bad days. `make test-operate`."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from protocol_servers import COMMAND, PATIENCE


def test_one_command_ends_in_a_report_and_an_estimate(tmp_path: Path) -> None:
    folder = tmp_path / "quick"
    command = [*COMMAND, "quickstart", "--folder", str(folder), "--no-page"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert re.search(r"report was accepted: place [0-9]+, epsilon 4\n", done.stdout)
    assert re.search(r"estimate of 1 report: [0-9]+ zones", done.stdout)
    assert (folder / "admin.token").stat().st_mode & 0o077 == 0
    again = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert again.returncode == 2 and "is there already" in again.stderr
