"""What becomes of the other columns of a table of trips, and a statement of what was done.

A report hides a place; an exact time, an id or a fare beside it may give it away again. Columns
that look like one of those are named, and a file is not written before each is kept, coarsened or
dropped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from panda_mdp.base.text import Facts, per
from panda_mdp.errors import FileFormatError, InvalidInputError
from panda_mdp.frames.drawing import FrameSummary
from panda_mdp.privacy.guarantee import Guarantee

KINDS = {
    "coordinates": re.compile(
        r"lat|lon|lng|coord|geo|h3|(\b|_)[xy]\d*(\b|_)|address|street|zip|post|location|tract|station"
    ),
    "a time": re.compile(r"time|date|hour|minute|stamp|\bat\b|_ts\b"),
    "an id": re.compile(
        r"id\b|_id|user|person|passenger_?name|medallion|licen[cs]e|plate|phone|mail"
    ),
    "what determines a length": re.compile(
        r"fare|amount|price|toll|tip|dist|mile|km|durat|secs|speed"
    ),
}
"""What a column looks like by its name, in lower case."""
STEPS = ("hour", "day", "week", "month")
WAYS = f"keep, drop, {', '.join(STEPS)} (of a time) or a number to round to"


def classify(names: Sequence[str]) -> str:
    """Columns that may give a place away, and what each looks like; empty where none does.

    >>> classify(["pickup_datetime", "colour", "fare_amount"])
    'pickup_datetime looks like a time; fare_amount looks like what determines a length'
    """
    found = []
    for name in names:
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        kind = next((kind for kind, look in KINDS.items() if look.search(words)), None)
        if kind is not None:
            found.append(f"{name} looks like {kind}")
    return "; ".join(found)


@dataclass(frozen=True)
class Treatment:
    """What becomes of the columns that are no places: `keep`, `drop`, a step, or a number."""

    columns: Mapping[str, str | float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, way in self.columns.items():
            number = isinstance(way, int | float) and not isinstance(way, bool) and way > 0
            if not number and way not in ("keep", "drop", *STEPS):
                raise InvalidInputError(f"column {name!r} is to be {way!r}; choose {WAYS}")

    def check(self, names: Sequence[str], true: Sequence[str]) -> None:
        """Refuse columns that look telling and are not spoken of, and words about none."""
        missing = [name for name in self.columns if name not in names]
        if missing:
            raise InvalidInputError(f"there is no column {missing[0]!r}; it has {', '.join(names)}")
        others = [name for name in names if name not in true and name not in self.columns]
        if telling := classify(others):
            raise InvalidInputError(
                f"nothing is written before each is spoken of: {telling}. Say for each what "
                f"becomes of it: --column NAME=WAY, or [columns] of a recipe; a way is {WAYS}"
            )

    def apply(self, frame: Any) -> Any:
        """An Arrow table with the columns dropped or coarsened."""
        import pyarrow
        from pyarrow import compute

        for name, way in self.columns.items():
            place = frame.schema.get_field_index(name)
            if place < 0 or way == "keep":
                continue
            column = frame.column(place)
            if way == "drop":
                frame = frame.remove_column(place)
                continue
            try:
                if isinstance(way, str):
                    moments = column.cast(pyarrow.timestamp("us"))
                    floored = compute.floor_temporal(moments, unit=way)
                    coarse = compute.strftime(floored, format="%Y-%m-%dT%H:%M")
                else:
                    numbers = column.cast(pyarrow.float64())
                    coarse = compute.multiply(compute.round(compute.divide(numbers, way)), way)
            except pyarrow.ArrowInvalid:
                # Arrow's message shows the value.
                raise InvalidInputError(
                    f"column {name!r} cannot be coarsened to {way!r}: it holds other values"
                ) from None
            frame = frame.set_column(place, name, coarse)
        return frame


UNTREATED = Treatment()
"""Every column stays: for rows where none looks telling."""


def read_recipe(path: Path) -> Facts:
    """A recipe in TOML: `places`, `person`, `time`, `period`, `snap_limit`, and `[columns]`."""
    import tomllib

    known = {"places", "person", "time", "period", "snap_limit", "outside", "budget", "columns"}
    try:
        recipe = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path.name} is no recipe in TOML ({error})") from error
    if unknown := sorted(set(recipe) - known):
        raise FileFormatError(
            f"{path.name} speaks of {unknown[0]!r}; a recipe has {', '.join(sorted(known))}"
        )
    return recipe


def statement(
    summary: FrameSummary, places: Sequence[Sequence[str]], treatment: Treatment, table: str
) -> str:
    """One page for whoever is responsible: what was done, what it costs, what is not covered."""
    each: Guarantee = summary.guarantee
    unit = each.unit
    told = "\n".join(f"- {line}" for line in summary.lines())
    columns = "\n".join(f"| {name} | {way} |" for name, way in treatment.columns.items())
    drawn = "\n".join(f"- {', '.join(pair)}" for pair in places)
    whole = (
        f"A person spends at most epsilon {summary.spent_in_all:g} {per(unit)} over the whole file."
        if summary.totals
        else "No column names persons, so what one person spends in several rows is **not known**."
    )
    return f"""# What was done to this file

Places were replaced by random reports, drawn from the table `{table}` with the operating system's
generator:

{drawn}

One report has epsilon {each.epsilon:g} {per(unit)} and delta {each.delta:g}:
whoever sees it, whatever they knew before, can raise the odds between two places
d {unit} apart by a factor of at most e^({each.epsilon:g} d). {whole}

{told}

## Other columns

| column | what became of it |
|---|---|
{columns or "| (none was spoken of) | |"}

## What is not covered

- The other columns are not random. What is kept, exact or coarse, is as telling as it was.
- That a person is in the file, and in how many rows, is not hidden.
- Reports of one person add up: the total above is what counts against somebody who links rows.
- Rows that are missing because no record is near tell that their places lie outside the table.
"""
