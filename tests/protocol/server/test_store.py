"""The store: durable, alone, and clear about what it cannot open."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import copied
import pytest
from sqlalchemy import Connection, func, insert, inspect, select, text, update

from panda_mdp.errors import FileFormatError, InvalidInputError
from panda_mdp.protocol.server.store import schema
from panda_mdp.protocol.server.store.database import Store, now_ms
from panda_mdp.protocol.server.store.schema import meta, tokens, when


def test_sqlite_is_durable_and_private(tmp_path: Path) -> None:
    with Store.create(str(tmp_path / "panda.db")) as store, store.read() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 2  # FULL
        assert connection.execute(text("PRAGMA foreign_keys")).scalar() == 1
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path.name


def test_create_then_open(database: str) -> None:
    with Store.create(database) as store:
        assert store.value("schema") == schema.VERSION
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
    with Store.create(database) as store, store.write() as connection:
        connection.execute(update(meta).where(meta.c.key == "schema").values(value="99"))
    with pytest.raises(FileFormatError, match="layout '99'"):
        Store.open(database)


@pytest.mark.parametrize("address", ["mysql://x/y", "sqlite://", "://", "ftp://a@b/c"])
def test_other_databases_are_refused(address: str) -> None:
    with pytest.raises(InvalidInputError, match="postgresql"):
        Store.open(address)


def test_a_password_is_never_shown() -> None:
    address = "postgresql://panda:hunter2@localhost:1/none"
    with pytest.raises(FileFormatError) as caught:
        Store.open(address)
    assert "hunter2" not in str(caught.value)
    store = Store._connect(address)
    assert "hunter2" not in repr(store)
    assert "hunter2" in store.address
    store.close()


def test_a_change_that_fails_leaves_nothing(database: str) -> None:
    with Store.create(database) as store:
        with pytest.raises(RuntimeError), store.write() as connection:
            connection.execute(insert(meta).values(key="half", value="done"))
            raise RuntimeError
        assert store.value("half") is None


def test_changes_happen_one_at_a_time(database: str) -> None:
    with Store.create(database) as store, Store.open(database) as other:
        errors: list[BaseException] = []

        def count(which: Store) -> None:
            try:
                for _ in range(20):
                    with which.write() as connection:
                        Store.count_change(connection, "token_changes")
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


def test_a_read_sees_one_state(tmp_path: Path) -> None:
    with Store.create(str(tmp_path / "panda.db")) as store:
        with store.read() as connection:
            before = connection.execute(select(func.count()).select_from(tokens)).scalar()
            with store.write() as writing:
                writing.execute(
                    insert(tokens).values(
                        id="0" * 12, digest=b"", role="admin", label="", created=now_ms()
                    )
                )
            after = connection.execute(select(func.count()).select_from(tokens)).scalar()
        assert before == after == 0
        with store.read() as connection:
            assert connection.execute(select(func.count()).select_from(tokens)).scalar() == 1


def test_times_are_utc() -> None:
    assert when(0).isoformat() == "1970-01-01T00:00:00+00:00"


def columns(connection: Connection) -> dict[str, dict[str, str]]:
    """Tables with the types and keys of their columns, as the database sees them."""
    seen = inspect(connection)
    return {
        name: {column["name"]: str(column["type"]) for column in seen.get_columns(name)}
        | {"key": str(seen.get_pk_constraint(name)["constrained_columns"])}
        for name in seen.get_table_names()
        if name != "alembic_version"
    }


def test_migrations_lead_to_the_layout_that_the_code_expects(database: str) -> None:
    with Store.create(database) as store, store.write() as connection:
        migrated = columns(connection)
        indices = {name: inspect(connection).get_indexes(name) for name in migrated}
        schema.metadata.drop_all(connection)
        schema.metadata.create_all(connection)
        assert columns(connection) == migrated
        assert {name: inspect(connection).get_indexes(name) for name in migrated} == indices


def test_a_database_from_before_migrations_is_brought_up_to_date(database: str) -> None:
    with Store.create(database) as store, store.write() as connection:
        # As the first release left it: layout 1, and no word of Alembic.
        layout_1(connection)
        connection.execute(
            insert(tokens).values(id="0" * 12, digest=b"", role="admin", label="", created=now_ms())
        )
        connection.execute(text("DROP TABLE alembic_version"))
    if schema.VERSION != "1":
        with pytest.raises(FileFormatError, match=r"layout '1'.*--init"):
            Store.open(database)
    with Store.create(database) as store, store.read() as connection:
        assert connection.execute(select(func.count()).select_from(tokens)).scalar() == 1
        assert store.value("schema") == schema.VERSION


def layout_1(connection: Connection) -> None:
    from panda_mdp.protocol.server.store.migrations.versions import layout_1 as first

    schema.metadata.drop_all(connection)
    first._metadata.create_all(connection)
    connection.execute(insert(meta), [{"key": "schema", "value": "1"}])
    connection.execute(insert(meta), [{"key": "token_changes", "value": "0"}])
