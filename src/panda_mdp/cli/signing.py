"""Keys of an operator: one that stays offline, and what it says about those of servers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from panda_mdp.cli.options import described
from panda_mdp.errors import InvalidInputError

if TYPE_CHECKING:
    from panda_mdp.protocol.messages.signing import KeySheet, SigningKey

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
def show(file: File) -> None:
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
