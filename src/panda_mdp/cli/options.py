"""Arguments and options that several commands share: their bounds are declared, not checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from panda_mdp.cli.frame import check_target

ALL = 0
"""What the word 'all' stands for among counts."""


def count_or_all(text: str) -> int:
    """A whole number from 1, or ALL for the word."""
    if text == "all":
        return ALL
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:12]) < 10**9:
        msg = f"{text!r} is neither a whole number from 1 nor 'all'"
        raise typer.BadParameter(msg)
    return int(text)


def comma_separated(text: str) -> list[str]:
    """Names that commas separate; empty ones are none."""
    return [part.strip() for part in text.split(",") if part.strip()]


TableFile = Annotated[Path, typer.Argument(metavar="FILE", help="A saved mechanism (.pmdp).")]
MapFile = Annotated[
    str, typer.Argument(metavar="MAP", help="A map with roads, points or zones, or 'synthetic'.")
]
CityFile = Annotated[
    str, typer.Argument(metavar="CITY", help="Path of a road map, or the word 'synthetic'.")
]
Json = Annotated[
    Path | None,
    typer.Option(
        "--json", metavar="FILE", callback=check_target, help="Also write the results as JSON."
    ),
]
Html = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="FILE", callback=check_target, help="Also write a page with a picture."
    ),
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
