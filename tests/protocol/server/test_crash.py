"""What the server promised survives `kill -9`. The full run: benchmarks/protocol_crash.py."""

from __future__ import annotations

from pathlib import Path

from protocol_crashes import run_crashes


def test_nothing_acknowledged_is_lost_or_counted_twice(database: str, tmp_path: Path) -> None:
    found = run_crashes(database, tmp_path, kills=3, seed=7)
    assert (found.lost, found.twice, found.never_sent, found.wrong) == (0, 0, 0, [])
    assert found.kills >= 3 and found.acknowledged > 100
    # Work went on across the kills, and was not only waited for.
    assert found.jobs >= 1 and found.rounds >= 1 and found.uploads >= 3
