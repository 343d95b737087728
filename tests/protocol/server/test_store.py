"""The store: durable, alone, and clear about what it cannot open."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import copied
import pytest
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from panda_mdp.errors import FileFormatError, InvalidInputError
from panda_mdp.protocol.server.auth import TokenBook
from panda_mdp.protocol.server.store.database import Store
from panda_mdp.protocol.server.store.schema import LAYOUT, SettingRow, when


def test_sqlite_is_durable_and_private(tmp_path: Path) -> None:
    with Store.create(str(tmp_path / "panda.db")) as store, store.read() as session:
        assert session.scalar(text("PRAGMA journal_mode")) == "wal"
        assert session.scalar(text("PRAGMA synchronous")) == 2  # FULL
        assert session.scalar(text("PRAGMA foreign_keys")) == 1
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path.name


def test_create_then_open(database: str) -> None:
    with Store.create(database) as store:
        assert store.value("layout") == LAYOUT
    with Store.create(database):
        pass
    with Store.open(database) as store:
        assert store.value("nothing") is None


def test_a_database_that_is_missing_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="--init"):
        Store.open(str(tmp_path / "none.db"))
    assert not (tmp_path / "none.db").exists()


def test_an_empty_database_says_how_to_make_one(database: str, tmp_path: Path) -> None:
    if "://" not in database:
        Path(database).touch()
    with pytest.raises(FileFormatError, match="--init"):
        Store.open(database)


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "foreign.db"
    path.write_bytes(b"this is not a database, it only looks like a file" * 100)
    with pytest.raises(FileFormatError, match="cannot be used"):
        Store.open(str(path))


def test_another_layout_is_refused(database: str) -> None:
    with Store.create(database) as store:
        store.set_value("layout", "99")
    for take in (Store.open, Store.create):
        with pytest.raises(FileFormatError, match="layout '99' and this version needs '6'"):
            take(database)


def test_a_database_without_an_encoding_takes_any_text(request: pytest.FixtureRequest) -> None:
    """PostgreSQL makes such ones where the system names no locale, as in a bare container."""
    bare = "ENCODING 'SQL_ASCII' TEMPLATE template0 LOCALE 'C'"
    with Store.create(request.getfixturevalue("postgres").database(bare)) as store:
        made = TokenBook(store).make("reporter", "Mobilità")
        assert [token.label for token in TokenBook(store).list()] == ["Mobilità"]
        assert made[0].label == "Mobilità"


@pytest.mark.parametrize("address", ["mysql://x/y", "sqlite://", "://", "ftp://a@b/c"])
def test_other_databases_are_refused(address: str) -> None:
    with pytest.raises(InvalidInputError, match="postgresql"):
        Store.open(address)


def test_a_password_is_never_shown() -> None:
    address = "postgresql://panda:hunter2@localhost:1/none"
    with pytest.raises(FileFormatError) as caught:
        Store.open(address)
    assert "hunter2" not in str(caught.value)
    store = Store(address)
    assert "hunter2" not in repr(store)
    assert "hunter2" in store.url.render_as_string(hide_password=False)
    store.close()


def test_a_change_that_fails_leaves_nothing(database: str) -> None:
    with Store.create(database) as store:
        with pytest.raises(RuntimeError), store.write() as session:
            session.add(SettingRow(key="half", value="done"))
            session.flush()
            raise RuntimeError
        assert store.value("half") is None


def test_changes_happen_one_at_a_time(database: str) -> None:
    with Store.create(database) as store, Store.open(database) as other:
        errors: list[BaseException] = []

        def count(which: Store) -> None:
            try:
                for _ in range(20):
                    with which.write() as session:
                        Store.count_change(session, "token_changes")
            except BaseException as error:
                errors.append(error)

        # Two threads each of what are two processes' stores.
        threads = [threading.Thread(target=count, args=(s,)) for s in (store, store, other, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        assert store.value("token_changes") == "80"


def test_sqlite_has_one_server_and_postgresql_many(database: str) -> None:
    with Store.create(database) as store, Store.open(database) as other:
        if not store.sqlite:
            with store.claim(), other.claim():
                return
        with store.claim(), pytest.raises(InvalidInputError, match="another server"), other.claim():
            pass
        with other.claim():
            pass


def test_a_second_server_does_not_start(tmp_path: Path) -> None:
    database = str(tmp_path / "panda.db")
    with Store.create(database) as store, store.claim():
        where = ["--database", database, "--port", "0", "--key", str(tmp_path / "k")]
        found = copied.run(["serve", *where], tmp_path)
    assert found.returncode == 2
    assert "another server uses this database" in found.stderr


def test_a_store_that_answers_with_something_else_is_not_writable(tmp_path: Path) -> None:
    """Such as a disk that goes back to what it held before."""
    with Store.create(str(tmp_path / "panda.db")) as store:
        store.check_writable()
        with store.write() as session:
            session.execute(
                text(
                    "CREATE TRIGGER forgetful AFTER UPDATE ON meta WHEN new.key = 'checked' "
                    "BEGIN UPDATE meta SET value = old.value WHERE key = 'checked'; END"
                )
            )
        with pytest.raises(SQLAlchemyError, match="cannot be read"):
            store.check_writable()
        with pytest.raises(FileFormatError, match="cannot be written"):
            store.check_start()


def test_a_read_sees_one_state(tmp_path: Path) -> None:
    with Store.create(str(tmp_path / "panda.db")) as store:
        number = text("SELECT count(*) FROM tokens")
        with store.read() as session:
            before = session.scalar(number)
            TokenBook(store).make("admin")
            assert before == session.scalar(number) == 0
        with store.read() as session:
            assert session.scalar(number) == 1


def test_times_are_utc() -> None:
    assert when(0).isoformat() == "1970-01-01T00:00:00+00:00"
