"""Backups and their restore, for both databases, and an examination of what is there.

A backup is a folder: the database of one moment, the sheet of keys where there is one, and a
manifest that says what is inside. Private keys are in none; the manifest names them by their ids.
The database is opened for reading alone. What is restored is counted and checked before it has its
name, and never put beside what another database left.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, ValidationError
from sqlalchemy import func, inspect, select, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from panda_mdp.base.atomic import sync_folder, write_private
from panda_mdp.errors import FileFormatError, InvalidInputError, PandaError
from panda_mdp.protocol.messages.log import LogHead
from panda_mdp.protocol.messages.types import Base64, Count, Hex, Label, Message, Sha256
from panda_mdp.protocol.server.store.database import Store
from panda_mdp.protocol.server.store.log import check_log
from panda_mdp.protocol.server.store.schema import LAYOUT, Base, ReportRow, now
from panda_mdp.version import __version__

DATABASE, SHEET, MANIFEST = "database", "keys.json", "manifest.json"
BESIDE = ("", "-wal", "-shm", "-journal")
"""What SQLite keeps beside a database, by the end of its name."""
ROOM = 2
"""Times a database's size that its disk should have left."""


class Manifest(Message):
    """What a backup holds."""

    backup: Literal["panda-mdp backup 1"] = "panda-mdp backup 1"
    made: datetime
    library: Label = __version__
    layout: Label = LAYOUT
    kind: Literal["sqlite", "postgresql"]
    key: Hex
    """The id of the key that the server signs with, which is kept elsewhere."""
    operator: Base64 | None
    rows: dict[Label, Count]
    """How many rows each table has."""
    log: LogHead | None
    files: Annotated[dict[Label, Sha256], Field(max_length=2)]


def back_up(database: str, folder: Path, key: str, sheet: Path | None = None) -> Manifest:
    """Write a backup of a database, which may be in use, into a new folder.

    `key` is the id of the server's key. Raises `FileFormatError` where the database, or the copy,
    is not whole; then there is no folder.
    """
    with Store.open(database, read_only=True) as store:
        store.check_whole("integrity_check")
        folder.mkdir(mode=0o700)
        try:
            with _copied(store, folder / DATABASE) as session:
                head, rows = _content(session)
            files = {DATABASE: _digest(folder / DATABASE)}
            if sheet is not None:
                write_private(folder / SHEET, sheet.read_bytes())
                files[SHEET] = _digest(folder / SHEET)
            manifest = Manifest(
                made=now(),
                kind="sqlite" if store.sqlite else "postgresql",
                key=key,
                operator=store.value("operator"),
                rows=rows,
                log=head,
                files=files,
            )
            write_private(folder / MANIFEST, manifest.model_dump_json(indent=1).encode())
        except BaseException:
            shutil.rmtree(folder)
            raise
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a backup, whose files must be those that it names."""
    try:
        manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except ValidationError:
        raise FileFormatError(f"{folder}: its {MANIFEST} is not that of a backup") from None
    for name, digest in manifest.files.items():
        if name not in (DATABASE, SHEET) or _digest(folder / name) != digest:
            raise FileFormatError(f"{folder / name} is not what was backed up; take another backup")
    if manifest.layout != LAYOUT:
        raise FileFormatError(
            f"{folder} has layout {manifest.layout!r} and this version needs {LAYOUT!r}; use "
            f"panda-mdp {manifest.library}"
        )
    return manifest


def restore(folder: Path, database: str) -> Manifest:
    """Restore a backup to where no database is; what it holds is checked against the manifest.

    Raises `InvalidInputError` where something is there: a database, what one has left, or a server
    that still uses what was moved away.
    """
    manifest, store = read_manifest(folder), Store(database)
    if store.sqlite != (manifest.kind == "sqlite"):
        store.close()
        raise InvalidInputError(
            f"{folder} is a backup of {manifest.kind}; restore it into a database of that kind"
        )
    with closing(store), store.claim():
        if store.path is None:
            _restore_postgres(store, folder / DATABASE)
            _check_restored(database, manifest)
        else:
            _check_free(store.path)
            part = store.path.with_name(f"{store.path.name}.restoring")
            try:
                write_private(part, (folder / DATABASE).read_bytes())
                _check_restored(str(part), manifest)
                # Not a rename, which would replace what has appeared meanwhile.
                os.link(part, store.path)
                sync_folder(part.parent)
            finally:
                part.unlink(missing_ok=True)
    return manifest


def _check_free(path: Path) -> None:
    for file in (Path(f"{path}{end}") for end in BESIDE):
        if file.exists():
            raise InvalidInputError(
                f"{file} is there already, and SQLite would write what a lost database left into "
                "the restored one; move the old database aside together with its -wal, -shm and "
                "-journal"
            )


def _check_restored(database: str, manifest: Manifest) -> None:
    with Store.open(database, read_only=True) as store:
        store.check_whole("integrity_check")
        with store.read() as session:
            found = _content(session)
    if found != (manifest.log, manifest.rows):
        raise FileFormatError(
            "what was restored is not what the manifest says; take another backup"
        )


def _content(session: Session) -> tuple[LogHead | None, dict[str, int]]:
    """The head of the log, which must be that of its entries, and the rows of each table."""
    log = check_log(session)
    rows = {
        table.name: session.scalar(select(func.count()).select_from(table)) or 0
        for table in Base.metadata.sorted_tables
    }
    return None if log is None else log.head, rows


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# How each database is copied


@contextmanager
def _copied(store: Store, target: Path) -> Iterator[Session]:
    """Copy a database of one moment; a session that sees that moment."""
    if store.path is None:
        with store.read() as session:
            snapshot = session.scalar(text("SELECT pg_export_snapshot()"))
            _call(store, "pg_dump", "--format=custom", f"--snapshot={snapshot}", f"--file={target}")
            target.chmod(0o600)
            yield session
        return
    os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
    with closing(store.engine.raw_connection()) as source, closing(sqlite3.connect(target)) as copy:
        connection = source.driver_connection
        if connection is not None:
            connection.backup(copy)
        # One file, without a log beside it.
        copy.execute("PRAGMA journal_mode = DELETE")
    with Store.open(str(target), read_only=True) as copied:
        copied.check_whole("integrity_check")
        with copied.read() as session:
            yield session


def _restore_postgres(store: Store, dump: Path) -> None:
    if inspect(store.engine).get_table_names():
        raise InvalidInputError(
            f"{store.url!r} has tables already; give an empty database (`createdb`)"
        )
    whole = ("--exit-on-error", "--single-transaction", "--no-owner")
    _call(store, "pg_restore", *whole, str(dump))


def _call(store: Store, program: str, *arguments: str) -> None:
    """Run a program of PostgreSQL on a database; its password is not among the arguments."""
    places = os.pathsep.join(map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"))[::-1]))
    found = shutil.which(program) or shutil.which(program, path=places)
    if found is None:
        raise InvalidInputError(f"{program} is not here; install PostgreSQL's client programs")
    plain = store.url.set(drivername="postgresql", password=None)
    address = f"--dbname={plain.render_as_string(hide_password=False)}"
    password = {} if store.url.password is None else {"PGPASSWORD": str(store.url.password)}
    done = subprocess.run(  # noqa: S603
        [found, address, *arguments],
        env=os.environ | password,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise FileFormatError(f"{program} failed: {said}")


# What is there


class Finding(NamedTuple):
    """What was looked at, whether it is as it should be, and what was seen."""

    what: str
    good: bool
    seen: str


def examine(
    database: str, check_key: Callable[[Store], str], backup: Path | None = None
) -> list[Finding]:
    """Look at everything that a server needs, and change nothing.

    `check_key` says which key the server would sign with, or raises.
    """
    found: list[Finding] = []

    def look(what: str, action: Callable[[], str]) -> bool:
        try:
            found.append(Finding(what, True, action()))
        except (PandaError, OSError, SQLAlchemyError) as error:
            found.append(Finding(what, False, str(error).splitlines()[0]))
        return found[-1].good

    with closing(Store(database)) as named:
        path = named.path
    if path is not None:
        look("files", lambda: _files(path))
    if look("database", lambda: _opened(database)):
        with Store.open(database, read_only=True) as store:
            look("reports", lambda: _stored(store))
            look("log", lambda: _log_words(store))
            look("key", lambda: check_key(store))
    if backup is not None:
        look("backup", lambda: f"of {read_manifest(backup).made:%Y-%m-%d %H:%M} UTC, whole")
    return found


def _files(path: Path) -> str:
    if not path.exists() and any(Path(f"{path}{end}").exists() for end in BESIDE):
        raise FileFormatError(
            f"{path} is gone and its -wal, -shm or -journal is there; move it too"
        )
    size, free = path.stat().st_size, shutil.disk_usage(path.parent).free
    if path.stat().st_mode & 0o077:
        raise FileFormatError(f"{path} may be read by others; `chmod 600` it")
    if free < ROOM * size:
        raise FileFormatError(f"{free >> 20:,} MB are left on the disk, {size >> 20:,} MB are used")
    return f"{size >> 20:,} MB, {free >> 20:,} MB left on the disk"


def _opened(database: str) -> str:
    with Store.open(database, read_only=True) as store:
        store.check_whole("integrity_check")
        return f"opens, is whole, layout {LAYOUT}"


def _log_words(store: Store) -> str:
    with store.read() as session:
        log = check_log(session)
    return "nothing is published" if log is None else f"{log.head.size:,} entries, whole"


def _stored(store: Store) -> str:
    with store.read() as session:
        return f"{session.scalar(select(func.count()).select_from(ReportRow)):,}"
