"""Backups and their restore, for both databases, and an examination of what is there.

A backup is a folder: the database of one moment, the sheet of keys where there is one, and a
manifest that says what is inside. Private keys are in none; the manifest names them by their ids.
The database is opened for reading alone, and copied row by row into a file of SQLite, whichever it
is: a backup of one kind is restored into the other. What is restored is counted and checked before
it has its name, and never put beside what another database left.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, ValidationError
from sqlalchemy import func, insert, inspect, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from panda_mdp.base.atomic import digest_of_file, sync_folder, write_private
from panda_mdp.errors import FileFormatError, InvalidInputError, PandaError
from panda_mdp.protocol.messages.log import LogHead
from panda_mdp.protocol.messages.types import Count, Hex, Label, Message, Sha256
from panda_mdp.protocol.server.store.database import Store
from panda_mdp.protocol.server.store.log import check_log
from panda_mdp.protocol.server.store.schema import LAYOUT, Base, ReportRow, now
from panda_mdp.version import __version__

DATABASE = "database"
SHEET = "keys.json"
MANIFEST = "manifest.json"
BESIDE = ("", "-wal", "-shm", "-journal")
"""What SQLite keeps beside a database, by the end of its name."""
ROOM = 2
"""Times a database's size that its disk should have left."""
BATCH = 500
Content = tuple[LogHead | None, dict[str, int]]
"""The head of the log, and the rows of each table."""


class Manifest(Message):
    """What a backup holds."""

    backup: Literal["panda-mdp backup 1"] = "panda-mdp backup 1"
    made: datetime
    library: Label = __version__
    layout: Label = LAYOUT
    key: Hex
    """The id of the key that the server signs with, which is kept elsewhere."""
    rows: dict[Label, Count]
    """How many rows each table has."""
    log: LogHead | None
    files: Annotated[dict[Label, Sha256], Field(max_length=2)]


def back_up(database: str, folder: Path, key: str, sheet: Path | None = None) -> Manifest:
    """Write a backup of a database, which may be in use, into a new folder.

    `key` is the id of the server's key. Raises `FileFormatError` where the database, or the copy,
    is not whole; then there is no folder.
    """
    target = folder / DATABASE
    with Store.open(database, read_only=True) as store:
        store.check_whole("integrity_check")
        folder.mkdir(mode=0o700)
        try:
            head, rows = _copy(store, target)
            with closing(sqlite3.connect(target)) as copied:
                # One file, without a log beside it.
                copied.execute("PRAGMA journal_mode = DELETE")
            files = {DATABASE: digest_of_file(target)}
            if sheet is not None:
                write_private(folder / SHEET, sheet.read_bytes())
                files[SHEET] = digest_of_file(folder / SHEET)
            manifest = Manifest(made=now(), key=key, rows=rows, log=head, files=files)
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
        if name not in (DATABASE, SHEET) or digest_of_file(folder / name) != digest:
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
    manifest = read_manifest(folder)
    kept = str(folder / DATABASE)
    wanted = manifest.log, manifest.rows
    with closing(Store(database)) as store, store.claim(), Store.open(kept, read_only=True) as old:
        old.check_whole("integrity_check")
        if store.path is None:
            _copy(old, database, wanted)
            return manifest
        part = store.path.with_name(f"{store.path.name}.restoring")
        _check_free(store.path)
        # What a restore left that was killed.
        _check_free(part)
        try:
            _copy(old, part, wanted)
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


def _copy(source: Store, target: Path | str, wanted: Content | None = None) -> Content:
    """Copy every row of one moment into a new file, or a database without tables; all or nothing,
    and only where it is what is wanted."""
    if isinstance(target, Path):
        write_private(target, b"")
    with closing(Store(str(target))) as store, source.read() as old, store.write() as new:
        connection = new.connection()
        if inspect(connection).get_table_names():
            raise InvalidInputError(
                f"{store.url!r} has tables already; give an empty database (`createdb`)"
            )
        Base.metadata.create_all(connection)
        for table in Base.metadata.sorted_tables:
            rows = old.execute(select(table), execution_options={"yield_per": BATCH})
            for part in rows.mappings().partitions():
                new.execute(insert(table), [dict(row) for row in part])
            serial = table.autoincrement_column
            if serial is not None and not store.sqlite:
                sequence = func.pg_get_serial_sequence(table.name, serial.name)
                new.execute(select(func.setval(sequence, func.max(serial))))
        copied = _content(new)
        if copied != (wanted or _content(old)):
            raise FileFormatError(
                "what was copied is not what the manifest or the database says; try again, or take "
                "another backup"
            )
    return copied


def _content(session: Session) -> Content:
    """What is there; the head must be that of the log's entries."""
    log = check_log(session)
    rows = {
        table.name: session.scalar(select(func.count()).select_from(table)) or 0
        for table in Base.metadata.sorted_tables
    }
    return None if log is None else log.head, rows


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

    def look(what: str, action: Callable[..., str], *given: Any) -> bool:
        try:
            found.append(Finding(what, True, action(*given)))
        except (PandaError, OSError, SQLAlchemyError) as error:
            found.append(Finding(what, False, str(error).splitlines()[0]))
        return found[-1].good

    with closing(Store(database)) as named:
        if named.path is not None:
            look("files", _files, named.path)
    if look("database", _opened, database):
        with Store.open(database, read_only=True) as store:
            look("reports", _stored, store)
            look("log", _log_words, store)
            look("key", check_key, store)
    if backup is not None:
        look("backup", lambda: f"of {read_manifest(backup).made:%Y-%m-%d %H:%M} UTC, whole")
    return found


def _files(path: Path) -> str:
    if not path.exists() and any(Path(f"{path}{end}").exists() for end in BESIDE):
        raise FileFormatError(
            f"{path} is gone and its -wal, -shm or -journal is there; move it too"
        )
    size = path.stat().st_size
    free = shutil.disk_usage(path.parent).free
    room = f"{size >> 20:,} MB, {free >> 20:,} MB left on the disk"
    if path.stat().st_mode & 0o077:
        raise FileFormatError(f"{path} may be read by others; `chmod 600` it")
    if free < ROOM * size:
        raise FileFormatError(f"{room}; make more")
    return room


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
