"""Commands for an operator's bad days: back a service up, restore it, look at what is there."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from panda_mdp.base.atomic import write_private
from panda_mdp.base.packages import need
from panda_mdp.cli.frame import working
from panda_mdp.cli.options import Json, MaybePath, described
from panda_mdp.cli.printing import show
from panda_mdp.cli.serve import Service
from panda_mdp.errors import InvalidInputError

if TYPE_CHECKING:
    from panda_mdp.protocol.server.backup import Manifest
    from panda_mdp.protocol.server.store.database import Store

Backup = Annotated[Path, typer.Argument(metavar="FOLDER")]


@described
def backup(folder: Backup, service: Service, json: Json = None) -> None:
    """Back up a service, running or not: the database of one moment, the sheet of keys, a manifest.

    Private keys are not copied; keep theirs elsewhere. The folder holds what people reported.

    Options:
        folder FOLDER: New folder of the backup.
    """
    need("fastapi", "a server", "server")
    from panda_mdp.protocol.messages.signing import SigningKey
    from panda_mdp.protocol.server.backup import back_up
    from panda_mdp.protocol.server.store.database import Store

    if folder.exists():
        raise InvalidInputError(f"{folder} is there already; give a new folder")
    # A damaged sheet is refused before anything is copied.
    _ = service.sheet
    with Store.open(service.database, read_only=True) as store, working("backing up"):
        key_id = SigningKey.load(service.key_path(store)).id
        made = back_up(service.database, folder, key_id, service.keys)
    _show(made, f"Backup in {folder}", json)


@described
def restore(folder: Backup, service: Service, json: Json = None) -> None:
    """Restore a backup to a database that does not exist, or into an empty one of PostgreSQL.

    Of whichever kind the backup is: so a service moves from SQLite to PostgreSQL, and back. Stop
    the server first. Refuses to write beside what another database left.

    Options:
        folder FOLDER: A folder that `backup` made.
        key FILE: The server's key, if it is there; beside a SQLite database by default.
        keys FILE: Where the sheet of keys goes.
    """
    need("fastapi", "a server", "server")
    from panda_mdp.protocol.messages.signing import SigningKey
    from panda_mdp.protocol.server.backup import SHEET, read_manifest
    from panda_mdp.protocol.server.backup import restore as restored
    from panda_mdp.protocol.server.store.database import Store

    manifest = read_manifest(folder)
    keys = service.keys
    with closing(Store(service.database)) as store:
        key_file = service.key_path(store)
    if key_file.exists() and SigningKey.load(key_file).id != manifest.key:
        raise InvalidInputError(
            f"{key_file} is another key than {manifest.key}, which the backup is of"
        )
    sheet = (folder / SHEET).read_bytes() if SHEET in manifest.files else None
    if sheet is not None and keys is not None and keys.exists() and keys.read_bytes() != sheet:
        raise InvalidInputError(f"{keys} is another sheet of keys than the backup's; move it aside")
    with working("restoring"):
        restored(folder, service.database)
    if sheet is not None and keys is not None and not keys.exists():
        write_private(keys, sheet)
    _show(manifest, f"Restored from {folder}", json)
    if not key_file.exists():
        typer.echo(
            f"key {manifest.key} is in no backup: put it to {key_file} before the start", err=True
        )
    typer.echo("what came after the backup is lost; clients that saw more will say so", err=True)


@described
def doctor(
    service: Service,
    backup: MaybePath = None,
    json: Json = None,
) -> None:
    """Look at everything that a server needs and change nothing. Exit code 1 where it is not well.

    Files and disk, the database page by page, the log against its hashes, counts against reports,
    the key against what it signed. Works beside a running server.

    Options:
        backup FOLDER: Look at this backup too.
    """
    need("fastapi", "a server", "server")
    from panda_mdp.protocol.server.backup import examine

    def signing(store: Store) -> str:
        return f"{service.operator(store).id}, as before"

    with working("looking"):
        found = examine(service.database, signing, backup)
    rows = [(each.what, f"{'good' if each.good else 'NOT GOOD'}: {each.seen}") for each in found]
    show(f"Service on {_named(service.database)}", rows, json, [each._asdict() for each in found])
    raise typer.Exit(not all(each.good for each in found))


def _named(database: str) -> str:
    """A database without its password."""
    from panda_mdp.protocol.server.store.database import Store

    with closing(Store(database)) as store:
        return str(store.path or store.url)


def _show(manifest: Manifest, title: str, json: Path | None) -> None:
    rows: list[tuple[str, object]] = [
        ("made", f"{manifest.made:%Y-%m-%d %H:%M:%S} UTC"),
        ("layout", manifest.layout),
        ("key", f"{manifest.key}, not inside"),
        ("log", "empty" if manifest.log is None else f"{manifest.log.size:,} entries"),
        *((name, f"{count:,}") for name, count in manifest.rows.items() if count),
    ]
    show(title, rows, json, manifest.model_dump(mode="json"))
