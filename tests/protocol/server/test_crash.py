"""What the server promised survives `kill -9`. The full run: benchmarks/protocol_crash.py."""

from __future__ import annotations

from pathlib import Path

from protocol_crashes import ACKNOWLEDGED, run_crashes
from protocol_servers import Postgres


def test_nothing_acknowledged_is_lost_or_counted_twice(database: str, tmp_path: Path) -> None:
    found = run_crashes(database, tmp_path, kills=3, seed=7)
    assert (found.lost, found.twice, found.never_sent, found.wrong) == (0, 0, 0, [])
    assert found.kills >= 3 and found.acknowledged >= ACKNOWLEDGED
    # Work went on across the kills, and was not only waited for.
    assert found.rounds >= 1 and found.uploads >= 3


def test_three_servers_lose_nothing_when_one_and_the_database_are_killed(tmp_path: Path) -> None:
    cluster = Postgres().start()
    try:
        found = run_crashes(
            cluster.database(),
            tmp_path,
            kills=1,
            seed=3,
            uptime_s=0.5,
            servers=3,
            cluster=cluster,
            database_kills=1,
            work=False,
        )
    finally:
        cluster.stop()
    assert (found.lost, found.twice, found.never_sent, found.wrong) == (0, 0, 0, [])
    assert found.kills >= 1 and found.database_kills == 1 and found.acknowledged >= ACKNOWLEDGED
