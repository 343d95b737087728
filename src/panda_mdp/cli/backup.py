"""Commands for an operator's bad days: back a service up, restore it, look at what is there; and
keys of an operator, one that stays offline and what it says about those of servers."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from panda_mdp.base.atomic import write_private
from panda_mdp.base.packages import need
from panda_mdp.cli.frame import working
from panda_mdp.cli.options import Json, MaybePath, described
from panda_mdp.cli.printing import show, tell
from panda_mdp.cli.serve import Service
from panda_mdp.errors import InvalidInputError

if TYPE_CHECKING:
    from panda_mdp.protocol.messages.signing import KeySheet, SigningKey
    from panda_mdp.protocol.server.backup import Manifest
    from panda_mdp.protocol.server.store.database import Store

MANIFEST = {
    "made": "{made}",
    "layout": "{layout}",
    "key": "{key}, not inside",
    "log": "{log[size]:,} entries",
}
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
    keys = service.keys if SHEET in manifest.files else None
    with closing(Store(service.database)) as store:
        key_file = service.key_path(store)
    if key_file.exists() and SigningKey.load(key_file).id != manifest.key:
        raise InvalidInputError(
            f"{key_file} is another key than {manifest.key}, which the backup is of"
        )
    kept = folder / SHEET
    if keys is not None and keys.exists() and keys.read_bytes() != kept.read_bytes():
        raise InvalidInputError(f"{keys} is another sheet of keys than the backup's; move it aside")
    with working("restoring"):
        restored(folder, service.database)
    if keys is not None and not keys.exists():
        write_private(keys, kept.read_bytes())
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
    show("Service", rows, json, [each._asdict() for each in found])
    raise typer.Exit(not all(each.good for each in found))


def _show(manifest: Manifest, title: str, json: Path | None) -> None:
    counts = ((name, f"{count:,}") for name, count in manifest.rows.items() if count)
    facts = manifest.model_dump(mode="json")
    show(title, [*tell(MANIFEST, **facts), *counts], json, facts)


signing_app = typer.Typer(
    help="Make keys, certify a server's key offline, name a successor.", rich_markup_mode=None
)
File = Annotated[Path, typer.Argument(metavar="FILE", help="A key file, mode 0600.")]
Public = Annotated[str, typer.Argument(metavar="BASE64", help="A public key.")]
Sheet = Annotated[
    Path, typer.Option("--keys", metavar="FILE", help="The sheet that `serve --keys` publishes.")
]


@signing_app.command("new")
def new(file: File) -> None:
    """Make a key in a new file, and print its public part."""
    from panda_mdp.protocol.messages.signing import SigningKey

    if file.exists():
        raise InvalidInputError(f"{file} is there already; keys are not replaced")
    typer.echo(SigningKey.create(file).public.base64)


@signing_app.command("show")
def show_key(file: File) -> None:
    """Print the public part of a key."""
    from panda_mdp.protocol.messages.signing import SigningKey

    typer.echo(SigningKey.load(file).public.base64)


@signing_app.command("certify")
@described
def certify(
    file: File,
    public: Public,
    keys: Sheet,
    days: Annotated[float, typer.Option(min=0.01, max=400)] = 30.0,
) -> None:
    """Let a server's key sign for the operator's key in FILE, for some days.

    Earlier certificates stay in the sheet until they run out: that is the overlap.

    Options:
        days NUMBER: Days that it may sign.
    """
    from panda_mdp.protocol.messages.signing import certify as sign

    operator, sheet = _operator(file, keys)
    valid = [entry for entry in sheet.certificates if entry.until > time.time()]
    made = sign(operator, public, days)
    _save(sheet.model_copy(update={"certificates": [*valid, made]}), keys)


@signing_app.command("succeed")
def succeed(file: File, public: Public, keys: Sheet) -> None:
    """Name the key that takes the place of the operator's key in FILE; clients follow it.

    What the old key certified ends with it: certify servers' keys with the new one.
    """
    from panda_mdp.protocol.messages.signing import KeySheet
    from panda_mdp.protocol.messages.signing import succeed as sign

    old, sheet = _operator(file, keys)
    steps = [*sheet.successions, sign(old, public)]
    _save(KeySheet(operator=public, certificates=[], successions=steps), keys)


def _operator(file: Path, keys: Path) -> tuple[SigningKey, KeySheet]:
    """The operator's key and its sheet, an empty one where there is none yet."""
    from panda_mdp.protocol.messages.signing import KeySheet, SigningKey

    operator = SigningKey.load(file)
    public = operator.public.base64
    sheet = KeySheet.load(keys) if keys.exists() else KeySheet(operator=public)
    if sheet.operator != public:
        raise InvalidInputError(
            f"{keys} is of another operator's key than {file}; `panda-mdp signing succeed` names a "
            "successor"
        )
    return operator, sheet


def _save(sheet: KeySheet, path: Path) -> None:
    sheet.save(path)
    typer.echo(f"written to {path}; give it to every server before the new key signs")
