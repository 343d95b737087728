"""Reports for places on standard input, or for all rows of a file.

Neither a line nor anything derived from it appears in an error, a log or a traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from inspect import unwrap
from pathlib import Path
from typing import Any, TextIO

import typer

from panda_mdp.base.atomic import write_whole
from panda_mdp.base.text import Facts
from panda_mdp.cli.frame import check_target, progress_console, write_json
from panda_mdp.cli.options import (
    Crs,
    Drawn,
    Json,
    MaybeFile,
    MaybePath,
    MaybeText,
    NewFile,
    Number,
    Picture,
    Promise,
    SnapLimit,
    comma_separated,
    described,
    require,
)
from panda_mdp.cli.solve import Measured, Objectives, Solving, solve
from panda_mdp.errors import MethodError
from panda_mdp.frames.columns import Treatment
from panda_mdp.frames.drawing import reported_columns
from panda_mdp.frames.files import perturb_file
from panda_mdp.frames.key import DrawKey
from panda_mdp.frames.perturb import Columns, Perturber, Uncovered
from panda_mdp.frames.recipe import read_recipe, statement
from panda_mdp.meaning.attack import hides_nothing
from panda_mdp.panda.file import load
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.space.domain import Domain
from panda_mdp.table.everywhere import EverywhereMechanism
from panda_mdp.table.mechanism import Mechanism

PLACE = ("lat", "lon")
Given = int | tuple[float, float]
"""What a line says: a record's index, or a place (lat, lon)."""
LINE_BYTES = 256
"""No place and no index is longer; what is, is refused before anything parses it."""
PLACES_IN_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True}
"""A place that somebody types as an argument must reach our refusal, which does not repeat it."""


@dataclass(frozen=True)
class Rows:
    """A file of rows, and what becomes of it.

    Options:
        rows FILE: Rows: .csv, .tsv (.gz), .ndjson, .parquet; else standard input.
        out FILE: Target for the rows.
        place LAT,LON: Columns of a place, once for each end of a trip; all are accounted together.
        column NAME=WAY: What becomes of another column: keep, drop, hour, day, week, month, or a
            number to round to. A file is not written before each that looks like coordinates, a
            time, an id or a length is spoken of.
        recipe FILE: Places, person, period and columns from a recipe (TOML).
        statement FILE: Also write one page of what was done and what it costs (Markdown).
    """

    rows: MaybeFile = None
    out: NewFile = None
    place: list[str] | None = None
    column: list[str] | None = None
    recipe: MaybePath = None
    statement: Picture = None

    def pairs(self, written: Facts) -> tuple[tuple[str, str], ...]:
        """The columns of places, as named here or else in a recipe."""
        named = [comma_separated(text) for text in self.place or []] or written.get("places", [])
        require(
            all(len(pair) == 2 for pair in named),
            "a place is two columns: latitude,longitude",
            "--place",
        )
        return tuple((str(north), str(east)) for north, east in named)


@dataclass(frozen=True)
class Named:
    """Columns by what they hold.

    Options:
        lat COLUMN: Column of latitudes.
        lon COLUMN: Column of longitudes.
        record COLUMN: Column of records' indices instead.
        person COLUMN: Column that names the person.
        time COLUMN: Column of times.
        period WORD: hour, day, week or month of --time; else a column.
        keep: Keep the true columns beside the reports.
    """

    lat: str = "lat"
    lon: str = "lon"
    record: MaybeText = None
    person: MaybeText = None
    time: MaybeText = None
    period: MaybeText = None
    keep: bool = False
    crs: Crs = None


@dataclass(frozen=True)
class Drawing:
    """How reports are drawn.

    Options:
        outside: What becomes of rows that are not covered.
        key FILE: Repeat draws by this key (panda-mdp key).
        budget NUMBER: The most epsilon of a person in a period.
    """

    snap_limit: SnapLimit = 0.5
    outside: Uncovered = "refuse"
    key: MaybePath = None
    budget: Number = None


@described
def perturb(
    context: typer.Context,
    table: Path,
    file: Rows,
    named: Named,
    drawing: Drawing,
    promise: Promise,
    displacement: Number = None,
    json: Json = None,
) -> None:
    """Draw a report for every line of standard input, or for every row of a file.

    A line is a place (`lat,lon`) or a record's index. Places are never taken from the arguments,
    which end up in shell histories and process lists. Prints the reported places only (indices
    where records are not places). A place that is snapped to its nearest record is covered up to
    the snap limit: epsilon (d + 2 limit). A table for every point of an area
    draws at the point, and nothing is snapped. Each further report of the same place spends epsilon
    again, unless --key repeats draws. With a map in place of a table and --displacement, what
    `solve` makes of them is saved beside the target, and taken again where it is there: another
    table for the same people would add what it tells. A table of PAnDA runs Phase I first: for
    every line, or once for each person, period and place where --person names one.

    Options:
        table TABLE: A saved mechanism (.pmdp), or a map.
        displacement KM: With a map: how far reports lie from places on average.
    """
    rows = file.rows
    out = file.out
    require(
        not context.args and (rows is None or rows.exists()),
        "what follows TABLE is no file; places are read from standard input or a file, never from "
        "the arguments",
    )
    require(
        (rows is None) == (out is None),
        "FILE and --out go together; without both, lines are read from standard input",
    )
    if displacement is not None:
        table = _table_of(table, out, displacement, named.crs)
    mechanism = load(table, expected=promise.expected)
    if loud := hides_nothing(mechanism):
        progress_console().print(loud, style="bold red")
    if rows is None or out is None:
        write_json(json, _perturb_lines(mechanism, drawing.snap_limit))
        return
    written = {} if file.recipe is None else read_recipe(file.recipe)
    ways = dict(written.get("columns", {})) | dict(map(_way, file.column or []))
    told = {name: vars(named)[name] or written.get(name) for name in ("person", "time", "period")}
    columns = Columns(**vars(named) | told, places=file.pairs(written))
    perturber = Perturber(
        mechanism,
        columns,
        limit=float(written.get("snap_limit", drawing.snap_limit)),
        outside=written.get("outside", drawing.outside),
        key=None if drawing.key is None else DrawKey.load(drawing.key),
        budget=written.get("budget") if drawing.budget is None else drawing.budget,
        treatment=Treatment(ways),
    )
    with progress_console().status("drawing") as status:
        summary = perturb_file(
            perturber, rows, out, progress=lambda n: status.update(f"drawing: {n:,} rows")
        )
    typer.echo("\n".join([*summary.lines(), f"saved to {out}"]))
    if file.statement is not None:
        write_whole(file.statement, statement(summary, perturber, mechanism, table.name))


def _table_of(city: Path, out: Path | None, displacement: float, crs: str | None) -> Path:
    """The table of a map beside the target: the one that is there, or what `solve` makes."""
    require(
        city.suffix != ".pmdp",
        "--displacement is for a map; this is a table, whose displacement is what it is",
        "--displacement",
    )
    require(out is not None, "a table of a map is saved beside --out FILE; name it", "--out")
    made = Path(out or "").with_suffix(".pmdp")
    if made.exists():
        typer.echo(f"{made} is there, and is taken; --displacement is not looked at")
    else:
        unwrap(solve)(
            str(city),
            made,
            Drawn(crs=crs),
            Measured(),
            Solving(),
            Objectives(displacement=displacement),
        )
    return made


def _way(text: str) -> tuple[str, str | float]:
    """NAME=WAY, where a number is one."""
    name, _, way = text.partition("=")
    require(name and way, f"{text!r} is not NAME=WAY", "--column")
    with suppress(ValueError):
        return name, float(way)
    return name, way


@described
def key(file: Path, destroy: bool = False) -> None:
    """Make a key for draws that repeat per person and period, or destroy one.

    Whoever has the key can tell a report's true place by trying all of them: keep it like a
    password, away from the reports, and destroy it when the periods are over.

    Options:
        file FILE: The key's file.
        destroy: Overwrite and remove the key instead.
    """
    if destroy:
        DrawKey.destroy(file)
        typer.echo(f"{file} is destroyed; backups and copies of it are not")
        return
    check_target(file)
    DrawKey.make(file)
    typer.echo(f"{file} is made; only its owner can read it")


def _perturb_lines(mechanism: Mechanism | PandaTable, snap_limit: float) -> Any:
    """Print a report for each line, drawn with the operating system's generator: a place where
    outputs are places. The reports, or the only one."""
    domain = mechanism.problem.domain
    outputs = mechanism.problem.reports
    told = reported_columns(domain, outputs)
    names = None if outputs.records is not None else outputs.names
    positions = list(names or outputs.codes.tolist())
    answers: list[Facts] = []
    for given in read_lines(domain, sys.stdin):
        if isinstance(mechanism, EverywhereMechanism) and not isinstance(given, int):
            record = mechanism.draw_vertex(*given)
        else:
            record = record_of(domain, given, snap_limit)
        output = mechanism.sample(record)
        at = positions.index(output)
        if "reported_lat" in told:
            place = {name: float(told[f"reported_{name}"][at]) for name in PLACE}
            answers.append({"output": output, **place})
            typer.echo(",".join(map(repr, place.values())))
        else:
            answers.append({"output": told["reported"][at]})
            typer.echo(told["reported"][at])
    return answers[0] if len(answers) == 1 else answers


def record_of(domain: Domain, given: Given, snap_limit: float) -> int:
    """The record of an index or of a place."""
    return given if isinstance(given, int) else domain.snap(*given, snap_limit).record


def read_lines(domain: Domain, stream: TextIO) -> Iterator[Given]:
    """What lines of a stream say; the first one must.

    A person who types is asked for one place; a pipe gives as many as it has lines.
    """
    typed = stream.isatty()
    if typed:
        what = "place as lat,lon or record's index" if domain.geographic else "record's index"
        typer.echo(f"{what}: ", nl=False, err=True)
    lines = iter(partial(_line, stream), None)
    yield _parsed(domain, next(lines, ""), "the line")
    for number, line in enumerate(() if typed else lines, 2):
        if line:
            yield _parsed(domain, line, f"line {number}")


def _parsed(domain: Domain, line: str, which: str) -> Given:
    parts = line.split(",")
    if domain.geographic and len(parts) == 2:
        with suppress(ValueError):
            return float(parts[0]), float(parts[1])
    elif line.isascii() and line.isdigit() and int(line) < domain.size:
        return int(line)
    rule = f"a record's index, a whole number in 0..{domain.size - 1}"
    if domain.geographic:
        rule = f"a place as lat,lon in degrees, or {rule}"
    raise MethodError(
        f"{which} on standard input is {'not valid' if line else 'empty'}; give {rule}"
    )


def _line(stream: TextIO) -> str | None:
    """One line, stripped, None at the end; what is no text or too long becomes an invalid one."""
    # Bytes: decoding by the stream would put the secret into an exception.
    raw = stream.buffer.readline(LINE_BYTES + 1)
    if not raw:
        return None
    return "?" if len(raw) > LINE_BYTES else raw.decode("utf-8", errors="replace").strip()
