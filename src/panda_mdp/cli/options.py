"""Arguments and options that several commands share: their bounds are declared, not checked."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Annotated, TypeVar, get_type_hints

import typer

from panda_mdp.cli.frame import check_target

ALL = 0
"""What the word 'all' stands for among counts."""
PARAGRAPH = re.compile(r"^(\w+)(?: (\S+))?: (.+(?:\n +.+)*)", re.M)
Command = TypeVar("Command", bound=Callable[..., None])


def described(command: Command) -> Command:
    """A command, with what its docstring says of its parameters.

    Below the line `Options:` a parameter has a paragraph: its name, the placeholder of its value
    (switches have none), a colon, and the help. Its type may declare bounds beside that.
    """
    text, _, options = (command.__doc__ or "").partition("Options:\n")
    hints = get_type_hints(command, include_extras=True)
    parameters = inspect.signature(command).parameters
    for name, placeholder, words in PARAGRAPH.findall(inspect.cleandoc(options)):
        default, kind = parameters[name].default, hints[name]
        declared = getattr(kind, "__metadata__", None)
        if declared:
            kind, described_as = kind.__origin__, copy(declared[0])
        elif default is inspect.Parameter.empty:
            described_as = typer.Argument()
        else:
            # Without its own name a switch would have a second one, --no-...
            names = (f"--{name.replace('_', '-')}",) if default is False else ()
            described_as = typer.Option(*names)
        described_as.metavar, described_as.help = placeholder or None, " ".join(words.split())
        command.__annotations__[name] = Annotated[kind, described_as]
    command.__doc__ = text.rstrip()
    return command


def require(holds: object, message: str, option: str | None = None) -> None:
    """Refuse options that do not go together, in words that say what does."""
    if not holds:
        raise typer.BadParameter(message, param_hint=option)


def count_or_all(text: str) -> int:
    """A whole number from 1, or ALL for the word."""
    if text == "all":
        return ALL
    whole = text.isascii() and text.isdigit() and 1 <= int(text[:12]) < 10**9
    require(whole, f"{text!r} is neither a whole number from 1 nor 'all'")
    return int(text)


def comma_separated(text: str) -> list[str]:
    """Names that commas separate; empty ones are none."""
    return [part.strip() for part in text.split(",") if part.strip()]


NonNegative = Annotated[float, typer.Option(min=0)]
AtMost = Annotated[float | None, typer.Option(min=0)]
Share = Annotated[float | None, typer.Option(min=0, max=1)]
FromOne = Annotated[int | None, typer.Option(min=1)]
Target = Annotated[Path, typer.Option("--out", "-o", callback=check_target)]
NewFile = Annotated[Path | None, typer.Option("--out", "-o", callback=check_target)]
MaybeFile = Annotated[Path | None, typer.Argument()]
Picture = Annotated[Path | None, typer.Option(callback=check_target)]
TableFile = Annotated[Path, typer.Argument(metavar="FILE", help="A saved mechanism (.pmdp).")]
MapFile = Annotated[
    str, typer.Argument(metavar="MAP", help="A map with roads, points or zones, or 'synthetic'.")
]
CityFile = Annotated[
    str, typer.Argument(metavar="CITY", help="Path of a road map, or the word 'synthetic'.")
]
Json = Annotated[
    Path | None,
    typer.Option(metavar="FILE", callback=check_target, help="Also write the results as JSON."),
]
Records = Annotated[
    int | None,
    typer.Option(
        parser=count_or_all,
        metavar="COUNT",
        help="Records drawn from the map, or 'all'; by default all of a small one.",
    ),
]
Outputs = Annotated[
    int | None,
    typer.Option(
        parser=count_or_all,
        metavar="COUNT",
        help="Outputs drawn from the records, or 'all'; up to 100.",
    ),
]
Tasks = Annotated[
    int,
    typer.Option(min=0, metavar="COUNT", help="Travel loss to so many tasks; 0 for displacement."),
]
Epsilon = Annotated[float, typer.Option(metavar="NUMBER", help="Privacy budget per km.")]
Seed = Annotated[
    int, typer.Option(min=0, metavar="NUMBER", help="Seed of the draw of records, outputs, tasks.")
]
SnapLimit = Annotated[
    float, typer.Option(metavar="KM", help="Farthest that a place may be from a record.")
]
