"""Backups of both databases, restores that refuse what would be neither, and the examination."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from protocol_servers import Running, new_id, publish, small_domain, small_table
from sqlalchemy import delete, func, select
from typer.testing import CliRunner, Result

from panda_mdp.cli.app import app
from panda_mdp.errors import FileFormatError, InvalidInputError
from panda_mdp.protocol.messages.signing import KeySheet, SigningKey, certify
from panda_mdp.protocol.server.auth import TokenBook
from panda_mdp.protocol.server.backup import back_up, read_manifest, restore
from panda_mdp.protocol.server.store.catalogue import examine, store_table
from panda_mdp.protocol.server.store.database import Store
from panda_mdp.protocol.server.store.reports import Quota, Report, store_reports
from panda_mdp.protocol.server.store.schema import EntryRow, ReportRow
from panda_mdp.table.encode import encode

REPORTS = "/v1/deployments/main/reports"
KEY = "0123456789abcdef"


def new_bytes(number: int) -> bytes:
    """The id of a report."""
    return number.to_bytes(16)


def command(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def filled(database: str) -> str:
    """A database with a table, a log and tokens."""
    with Store.create(database) as store:
        TokenBook(store).make("reporter", count=7)
        with store.write() as session:
            row = examine(encode(small_table(small_domain())))
            store_table(session, SigningKey.generate(), "city", row)
    return database


@pytest.fixture
def target(filled: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Where nothing is yet, of the same kind."""
    if "://" in filled:
        url: str = request.getfixturevalue("postgres").database()
        return url
    return str(tmp_path / "restored.db")


def exported(client: httpx.Client) -> tuple[int, int, list[str]]:
    """How many reports there are and are counted, and the tables."""
    lines = client.get(REPORTS).text.splitlines()
    counted = client.get("/v1/deployments/main/counts").json()["reports"]
    tables = [entry["sha256"] for entry in client.get("/v1/tables").json()["tables"]]
    return len(lines), counted, tables


def test_a_backup_of_a_running_server_is_restored(
    database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    target = str(tmp_path / "restored.db")
    if "://" in database:
        target = request.getfixturevalue("postgres").database()
    running = Running(database, tmp_path).start()
    key, copy = tmp_path / "operator.key", tmp_path / "copy"
    try:
        publish(running.admin, small_table(small_domain()), "city", tmp_path)
        wanted = {"kind": "table", "name": "main", "table": {"name": "city", "version": 1}}
        running.admin.post("/v1/deployments", json=wanted | {"reports_per_period": 100})
        (reporter,) = running.reporters(1)
        body = {"id": new_id(), "output": 5}
        assert reporter.post(REPORTS, json=body).status_code == 201
        made = command("backup", copy, "--database", database, "--key", key)
        assert made.exit_code == 0, made.output
        before = exported(running.admin)
        # Reported after the backup, and lost with the machine.
        assert reporter.post(REPORTS, json={"id": new_id(), "output": 10}).status_code == 201
        token, admin = reporter.headers["authorization"], running.admin_token
    finally:
        running.kill()
    # The private key is named, and not inside.
    assert read_manifest(copy).key == SigningKey.load(key).id
    inside = {path.name: path.read_bytes() for path in copy.iterdir()}
    assert inside.keys() == {"database", "manifest.json"}
    assert not any(key.read_bytes() in data for data in inside.values())
    assert all(path.stat().st_mode & 0o077 == 0 for path in (copy, *copy.iterdir()))
    done = command("restore", copy, "--database", target, "--key", key)
    assert done.exit_code == 0, done.output
    found = command("doctor", "--database", target, "--key", key, "--backup", copy)
    # No server has said yet which operator the restored one is of.
    assert found.exit_code == 0, found.output
    again = Running(target, tmp_path).start()
    try:
        again.admin_token = admin
        assert exported(again.admin) == before == (1, 1, before[2])
        assert again.client().get("/readyz").status_code == 200
        # What was acknowledged before the backup is known; tokens work as before.
        sent = again.client().post(REPORTS, json=body, headers={"authorization": token})
        assert sent.status_code == 200
    finally:
        again.stop()


def test_a_backup_is_not_restored_beside_the_log_of_a_lost_database(tmp_path: Path) -> None:
    """SQLite would write the old log into the restored file, which is then neither of the two."""
    database, key, copy = tmp_path / "panda.db", tmp_path / "operator.key", tmp_path / "copy"
    where = ("--database", database, "--key", key)
    running = Running(str(database), tmp_path).start()
    try:
        assert command("backup", copy, *where).exit_code == 0
        running.reporters(200)
        live = command("restore", copy, *where)
        assert live.exit_code == 2 and "another server uses this database" in live.output
        database.rename(tmp_path / "lost.db")
        # Moved away below a server that still writes into it.
        live = command("restore", copy, *where)
        assert live.exit_code == 2 and "another server uses this database" in live.output
    finally:
        running.kill()
    strays = [Path(f"{database}{suffix}") for suffix in ("-wal", "-shm")]
    assert all(stray.exists() for stray in strays)
    refused = command("restore", copy, *where)
    assert refused.exit_code == 2 and not database.exists()
    assert "move the old database aside together with its -wal" in refused.output
    assert command("doctor", *where).exit_code == 1
    for stray in strays:
        stray.unlink()
    assert command("restore", copy, *where).exit_code == 0
    again = Running(str(database), tmp_path).start()
    again.admin_token = running.admin_token
    try:
        assert again.admin.get("/v1/tokens").json()["total"] == 1
    finally:
        again.stop()
    assert "is there already" in command("restore", copy, *where).output


def test_a_database_that_is_not_there_is_not_backed_up(tmp_path: Path) -> None:
    SigningKey.create(tmp_path / "k")
    copy, missing = tmp_path / "copy", tmp_path / "none.db"
    found = command("backup", copy, "--database", missing, "--key", tmp_path / "k")
    assert found.exit_code == 2 and "there is no database here" in found.output
    assert not copy.exists() and not missing.exists()


def test_everything_of_both_databases_comes_back(filled: str, target: str, tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.json"
    sheet.write_text("{}")
    made = back_up(filled, tmp_path / "copy", KEY, sheet)
    assert (made.rows["tokens"], made.rows["tables"], made.log and made.log.size) == (7, 1, 1)
    assert read_manifest(tmp_path / "copy") == made == restore(tmp_path / "copy", target)
    with pytest.raises(InvalidInputError, match="already"):
        restore(tmp_path / "copy", target)
    again = back_up(target, tmp_path / "again", KEY)
    assert (again.rows, again.log) == (made.rows, made.log)


def test_the_sheet_of_keys_comes_back(tmp_path: Path) -> None:
    offline, server = SigningKey.generate(), SigningKey.create(tmp_path / "k")
    word = certify(offline, server.public.base64, days=30)
    sheet, kept = KeySheet(operator=offline.public.base64, certificates=[word]), tmp_path / "s.json"
    sheet.save(kept)
    before, after = tmp_path / "before.db", tmp_path / "after.db"
    with Store.create(str(before)):
        pass
    where = ("--key", tmp_path / "k", "--keys")
    made = command("backup", tmp_path / "copy", "--database", before, *where, kept)
    assert made.exit_code == 0, made.output
    found = command("restore", tmp_path / "copy", "--database", after, *where, tmp_path / "new")
    assert found.exit_code == 0, found.output
    assert KeySheet.load(tmp_path / "new") == sheet
    other = command("restore", tmp_path / "copy", "--database", after, *where, tmp_path / "k")
    assert other.exit_code == 2 and "another sheet of keys" in other.output


def test_an_offline_database_is_only_read(tmp_path: Path) -> None:
    database = tmp_path / "panda.db"
    with Store.create(str(database)) as store:
        TokenBook(store).make("reporter")
    before = database.read_bytes()
    back_up(str(database), tmp_path / "copy", KEY)
    assert database.read_bytes() == before
    # SQLite shares its readers' marks by a file; nothing waits in the log.
    assert Path(f"{database}-wal").stat().st_size == 0


@pytest.mark.parametrize("spoil", ["byte", "half", "manifest", "layout", "rows"])
def test_a_damaged_backup_is_not_restored(spoil: str, tmp_path: Path) -> None:
    database, copy, target = tmp_path / "panda.db", tmp_path / "copy", tmp_path / "new.db"
    with Store.create(str(database)) as store:
        TokenBook(store).make("reporter", count=3)
    back_up(str(database), copy, KEY)
    file, manifest = copy / "database", copy / "manifest.json"
    said: dict[str, Any] = json.loads(manifest.read_text())
    data = bytearray(file.read_bytes())
    if spoil == "byte":
        data[5_000] ^= 1
        file.write_bytes(data)
    if spoil == "half":
        # As somebody who also forges the sums would.
        file.write_bytes(data[: len(data) // 2])
        with file.open("rb") as stream:
            said["files"]["database"] = hashlib.file_digest(stream, "sha256").hexdigest()
    if spoil == "layout":
        said["layout"] = "0"
    if spoil == "rows":
        said["rows"]["tokens"] = 4
    manifest.write_text("{}" if spoil == "manifest" else json.dumps(said))
    with pytest.raises(FileFormatError):
        restore(copy, str(target))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("new.db")] in (
        [],
        ["new.db.lock"],
    )


def test_what_a_killed_restore_left_is_refused(tmp_path: Path) -> None:
    with Store.create(str(tmp_path / "panda.db")) as store:
        TokenBook(store).make("reporter", count=3)
    back_up(str(tmp_path / "panda.db"), tmp_path / "copy", KEY)
    left, target = tmp_path / "new.db.restoring-wal", tmp_path / "new.db"
    left.write_bytes(b"left")
    with pytest.raises(InvalidInputError, match=r"restoring-wal is there already"):
        restore(tmp_path / "copy", str(target))
    assert left.read_bytes() == b"left" and not target.exists()
    left.unlink()
    restore(tmp_path / "copy", str(target))


def test_one_kind_of_database_is_restored_into_the_other(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """And back, with all that was there; what comes next gets numbers of its own."""
    url: str = request.getfixturevalue("postgres").database()
    first, last = str(tmp_path / "panda.db"), str(tmp_path / "last.db")
    with Store.create(first) as store:
        [token] = TokenBook(store).make("reporter")
        with store.write() as session:
            row = examine(encode(small_table(small_domain())))
            store_table(session, SigningKey.generate(), "city", row)
        with store.reports() as session:
            sent = [(Report(1, new_bytes(k), token.id, 1, k), Quota(1_000, 9)) for k in range(3)]
            store_reports(session, sent, 5)
    made = back_up(first, tmp_path / "one", KEY)
    restore(tmp_path / "one", url)
    with Store.open(url) as store:
        assert store.value("layout") is not None
        with store.reports() as session:
            late = Report(1, new_bytes(3), token.id, 1, 3)
            assert store_reports(session, [(late, Quota(1_000, 9))], 5) == ["new"]
            assert session.scalar(select(func.max(ReportRow.seq))) == 4
    again = back_up(url, tmp_path / "two", KEY)
    assert again.log == made.log and again.rows == made.rows | {
        "reports": 4,
    }
    assert restore(tmp_path / "two", last) == again


def test_a_damaged_database_is_not_backed_up(tmp_path: Path) -> None:
    database = tmp_path / "panda.db"
    with Store.create(str(database)) as store:
        TokenBook(store).make("reporter", count=2_000)
    data = bytearray(database.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 4_096] = b"\xff" * 4_096
    database.write_bytes(data)
    with pytest.raises(FileFormatError, match="is damaged"):
        back_up(str(database), tmp_path / "copy", KEY)
    assert not (tmp_path / "copy").exists()


def test_another_key_than_the_backups(tmp_path: Path) -> None:
    database, copy, key = tmp_path / "panda.db", tmp_path / "copy", tmp_path / "k"
    SigningKey.create(key)
    with Store.create(str(database)):
        pass
    assert command("backup", copy, "--database", database, "--key", key).exit_code == 0
    assert command("backup", copy, "--database", database, "--key", key).exit_code == 2
    other = tmp_path / "other"
    SigningKey.create(other)
    target = ("--database", tmp_path / "new.db", "--key")
    refused = command("restore", copy, *target, other)
    assert refused.exit_code == 2 and "is another key than" in refused.output
    assert not (tmp_path / "new.db").exists()
    done = command("restore", copy, *target, tmp_path / "missing")
    assert done.exit_code == 0 and "is in no backup" in done.output


def test_what_the_examination_finds(filled: str, tmp_path: Path) -> None:
    key = tmp_path / "k"
    SigningKey.create(key)
    where = ("doctor", "--database", filled, "--key", key, "--json", tmp_path / "found.json")

    def ill() -> set[str]:
        code = command(*where).exit_code
        found = json.loads((tmp_path / "found.json").read_text())
        bad = {entry["what"] for entry in found if not entry["good"]}
        assert code == bool(bad)
        return bad

    assert ill() == set()
    with Store.open(filled) as store:
        store.set_value("operator", SigningKey.generate().public.base64)
    assert ill() == {"key"}
    with Store.open(filled) as store, store.write() as session:
        session.execute(delete(EntryRow))
        session.add(EntryRow(size=1, entry="x", leaf="ab", root="cd", at=0, signature="A" * 8))
    assert ill() == {"key", "log"}
    if "://" not in filled:
        Path(filled).chmod(0o644)
        assert ill() == {"key", "log", "files"}
