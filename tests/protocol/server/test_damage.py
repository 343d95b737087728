"""A database that cannot keep what is sent: not ready, nothing acknowledged, no start."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import copied
import pytest
from protocol_servers import Running, error_of, new_id, publish, small_domain, small_table

from panda_mdp.protocol.server.store.database import Store

REPORTS = "/v1/deployments/main/reports"


def test_a_server_does_not_start_on_a_damaged_database(tmp_path: Path) -> None:
    database = tmp_path / "panda.db"
    with Store.create(str(database)):
        pass
    with sqlite3.connect(database) as connection:
        rows = [(f"{n}", "x" * 100) for n in range(2_000)]
        connection.executemany("INSERT INTO meta VALUES (?, ?)", rows)
    connection.close()
    data = bytearray(database.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 4_096] = b"\xff" * 4_096
    database.write_bytes(data)
    where = ["--database", str(database), "--port", "0", "--key", str(tmp_path / "k")]
    found = copied.run(["serve", "--init", *where], tmp_path)
    assert found.returncode == 2
    assert "is damaged" in found.stderr and "restore a backup" in found.stderr


@pytest.mark.parametrize(
    ("damage", "ready", "taken"),
    [
        # Written, and gone before anybody could read it.
        (
            "CREATE TRIGGER lost AFTER INSERT ON reports "
            "BEGIN DELETE FROM reports WHERE seq = NEW.seq; END",
            True,
            False,
        ),
        (
            "CREATE TRIGGER full BEFORE UPDATE ON meta BEGIN SELECT RAISE(ABORT, 'full'); END",
            False,
            True,
        ),
        ("DROP TABLE reports", False, False),
    ],
)
def test_what_cannot_be_read_back_is_not_acknowledged(
    damage: str, ready: bool, taken: bool, make_server: Callable[..., Running], tmp_path: Path
) -> None:
    server = make_server()
    publish(server.admin, small_table(small_domain()), "city", tmp_path)
    wanted = {"kind": "table", "name": "main", "table": {"name": "city", "version": 1}}
    server.admin.post("/v1/deployments", json=wanted | {"reports_per_period": 100})
    (reporter,) = server.reporters(1)
    assert reporter.post(REPORTS, json={"id": new_id(), "output": 5}).status_code == 201
    assert server.client().get("/readyz").status_code == 200
    with sqlite3.connect(server.database) as connection:
        connection.execute(damage)
    # The last answer is good for a second.
    time.sleep(1.1)
    found = server.client().get("/readyz")
    assert found.status_code == (200 if ready else 503), found.text
    sent = reporter.post(REPORTS, json={"id": new_id(), "output": 5})
    assert sent.status_code == 201 if taken else error_of(sent) == (503, "unavailable")
