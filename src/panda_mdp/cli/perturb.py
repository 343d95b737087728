"""Reports for places on standard input, or for all rows of a file.

Neither a line nor anything derived from it appears in an error, a log or a traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TextIO, TypeVar

import typer

from panda_mdp.cli.frame import check_target, output_console, progress_console, write_json
from panda_mdp.cli.options import Json, SnapLimit
from panda_mdp.errors import MethodError
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.space.domain import Domain
from panda_mdp.table.everywhere import EverywhereMechanism
from panda_mdp.table.mechanism import Mechanism

LINE_BYTES = 256
"""No place and no index is longer; what is, is refused before anything parses it."""
PLACES_IN_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True}
"""A place that somebody types as an argument must reach our refusal, which does not repeat it."""


class Uncovered(StrEnum):
    """What becomes of rows that are not covered."""

    refuse = "refuse"
    drop = "drop"
    null = "null"


T = TypeVar("T")


@dataclass(frozen=True)
class Report:
    """What is released."""

    text: str
    fields: dict[str, Any]


def perturb(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="TABLE", help="A saved mechanism (.pmdp).")],
    rows: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Rows: .csv, .ndjson, .parquet; else standard input."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", callback=check_target, help="Target for the rows."
        ),
    ] = None,
    snap_limit: SnapLimit = 0.5,
    lat: Annotated[str, typer.Option(metavar="COLUMN", help="Column of latitudes.")] = "lat",
    lon: Annotated[str, typer.Option(metavar="COLUMN", help="Column of longitudes.")] = "lon",
    record: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of records' indices instead.")
    ] = None,
    outside: Annotated[
        Uncovered, typer.Option(help="What becomes of rows that are not covered.")
    ] = Uncovered.refuse,
    person: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column that names the person.")
    ] = None,
    time: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of times.")] = None,
    period: Annotated[
        str | None,
        typer.Option(metavar="WORD", help="hour, day, week or month of --time; else a column."),
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option("--key", metavar="FILE", help="Repeat draws by this key (panda-mdp key)."),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="The most epsilon of a person in a period."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the true columns beside the reports.")
    ] = False,
    at_most: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="Refuse a table with a larger epsilon."),
    ] = None,
    unit: Annotated[
        str | None, typer.Option(metavar="WORD", help="Refuse a table per another unit.")
    ] = None,
    fingerprint: Annotated[
        str | None, typer.Option(metavar="HEX", help="Refuse a table over another domain.")
    ] = None,
    json: Json = None,
) -> None:
    """Draw a report for every line of standard input, or for every row of a file.

    A line is a place (`lat,lon`) or a record's index. Places are never taken from the arguments,
    which end up in shell histories and process lists. Prints the reported places only (indices
    where records are not places). A place that is snapped to its nearest record is covered up to
    the snap limit: epsilon (d + 2 limit). A table for every point of an area
    draws at the point, and nothing is snapped. Each further report of the same place spends epsilon
    again, unless --key repeats draws. A table of PAnDA runs Phase I first: for every line, or once
    for each person, period and place where --person names one.
    """
    from panda_mdp.panda.file import load
    from panda_mdp.table.decode import Expected

    if context.args or (rows is not None and not rows.exists()):
        msg = (
            "what follows TABLE is no file; places are read from standard input or a file, never "
            "from the arguments"
        )
        raise typer.BadParameter(msg)
    if (rows is None) != (out is None):
        msg = "FILE and --out go together; without both, lines are read from standard input"
        raise typer.BadParameter(msg)
    mechanism = load(file, expected=Expected(at_most, unit, fingerprint))
    if rows is None or out is None:
        _perturb_lines(mechanism, snap_limit, json)
        return
    from panda_mdp.frames.files import perturb_file
    from panda_mdp.frames.key import DrawKey
    from panda_mdp.frames.perturb import Columns, Perturber

    perturber = Perturber(
        mechanism,
        Columns(lat, lon, record, person, time, period, keep),
        limit=snap_limit,
        outside=outside.value,
        key=None if key_file is None else DrawKey.load(key_file),
        budget=budget,
    )
    with progress_console().status("drawing") as status:
        summary = perturb_file(
            perturber,
            rows,
            out,
            progress=lambda count: status.update(f"drawing: {count:,} rows"),
        )
    console = output_console()
    for line in [*summary.lines(), f"saved to {out}"]:
        console.print(line, soft_wrap=True)


def key(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The key's file.")],
    destroy: Annotated[
        bool, typer.Option("--destroy", help="Overwrite and remove the key instead.")
    ] = False,
) -> None:
    """Make a key for draws that repeat per person and period, or destroy one.

    Whoever has the key can tell a report's true place by trying all of them: keep it like a
    password, away from the reports, and destroy it when the periods are over.
    """
    from panda_mdp.frames.key import DrawKey

    if destroy:
        DrawKey.destroy(file)
        output_console().print(f"{file} is destroyed; backups and copies of it are not")
        return
    check_target(file)
    DrawKey.make(file)
    output_console().print(f"{file} is made; only its owner can read it")


def _perturb_lines(mechanism: Mechanism | PandaTable, snap_limit: float, json: Path | None) -> None:
    domain = mechanism.problem.domain

    def place(lat: float, lon: float) -> int:
        if isinstance(mechanism, EverywhereMechanism):
            return mechanism.draw_vertex(lat, lon)
        return domain.snap(lat, lon, snap_limit).record

    answers = [report(mechanism, read_first(domain, place, int, sys.stdin))]
    typer.echo(answers[0].text)
    number = 1
    # A person who types gives one place; a pipe gives as many as it has lines.
    while not sys.stdin.isatty():
        line = _line(sys.stdin)
        if line is None:
            break
        number += 1
        if line:
            answers.append(report(mechanism, _record(domain, place, int, line, number)))
            typer.echo(answers[-1].text)
    fields = [answer.fields for answer in answers]
    write_json(json, fields[0] if len(fields) == 1 else fields)


def read_record(domain: Domain, snap_limit: float, stream: TextIO) -> int:
    """The record of a line `lat,lon` or of a record's index; prompts where a person types."""
    return read_first(
        domain, lambda lat, lon: domain.snap(lat, lon, snap_limit).record, int, stream
    )


def read_first(
    domain: Domain, place: Callable[[float, float], T], index: Callable[[int], T], stream: TextIO
) -> T:
    """What a line `lat,lon` or a record's index stands for; prompts where a person types."""
    if stream.isatty():
        what = "place as lat,lon or record's index" if domain.geographic else "record's index"
        sys.stderr.write(f"{what}: ")
        sys.stderr.flush()
    return _record(domain, place, index, _line(stream) or "", 1)


def report(mechanism: Mechanism | PandaTable, record: int) -> Report:
    """Draw with the operating system's generator; a place where outputs are places."""
    domain, outputs = mechanism.problem.domain, mechanism.problem.reports
    output = mechanism.sample(record)
    if outputs.records is not None and domain.geographic:
        lat, lon = float(domain.lat[output]), float(domain.lon[output])
    elif outputs.lat is not None and outputs.lon is not None:
        column = output if outputs.names is None else outputs.names.index(output)
        lat, lon = float(outputs.lat[column]), float(outputs.lon[column])
    else:
        if outputs.records is not None and domain.labels is not None:
            output = domain.labels[output]
        return Report(str(output), {"output": output})
    return Report(f"{lat!r},{lon!r}", {"output": output, "lat": lat, "lon": lon})


def _record(
    domain: Domain,
    place: Callable[[float, float], T],
    index: Callable[[int], T],
    line: str,
    number: int,
) -> T:
    rule = f"a record's index, a whole number in 0..{domain.size - 1}"
    if domain.geographic:
        rule = f"a place as lat,lon in degrees, or {rule}"
    parts = line.split(",")
    if domain.geographic and len(parts) == 2:
        degrees = _degrees(parts)
        if degrees is not None:
            return place(*degrees)
    elif len(parts) == 1 and line.isascii() and line.isdigit() and int(line) < domain.size:
        return index(int(line))
    which = "the line" if number == 1 else f"line {number}"
    msg = f"{which} on standard input is {'empty' if not line else 'not valid'}; give {rule}"
    raise MethodError(msg)


def _line(stream: TextIO) -> str | None:
    """One line, stripped, None at the end; what is no text or too long becomes an invalid one."""
    # Bytes: decoding by the stream would put the secret into an exception.
    raw = stream.buffer.readline(LINE_BYTES + 1)
    if not raw:
        return None
    return "?" if len(raw) > LINE_BYTES else raw.decode("utf-8", errors="replace").strip()


def _degrees(parts: list[str]) -> tuple[float, float] | None:
    try:
        return float(parts[0]), float(parts[1])
    except ValueError:
        return None
