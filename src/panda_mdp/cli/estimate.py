"""Where people are, from a file of reports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from panda_mdp.base.text import Facts
from panda_mdp.city.places import Places, load_places
from panda_mdp.cli.frame import check_target, output_console, working, write_json
from panda_mdp.cli.options import (
    Crs,
    Json,
    MaybePath,
    MaybeText,
    NonNegative,
    Picture,
    Positive,
    SnapLimit,
    comma_separated,
    described,
    require,
)
from panda_mdp.frames.estimate import estimate as estimate_shares
from panda_mdp.frames.estimate import quality as compare
from panda_mdp.meaning.estimate import Estimate
from panda_mdp.panda.file import load
from panda_mdp.plot.estimates import draw_density, draw_flows, draw_lengths, draw_shares
from panda_mdp.plot.html import write_page
from panda_mdp.plot.style import save_figure

LISTED = 30
NOTES = (
    "Limits: 95 % each, whatever the truth is, as long as reports are independent draws; repeats "
    "of a person's draw under a key are one.",
    "Raw: the share of the reports that name a place in the zone, noise and all.",
)
Html = Annotated[Path | None, typer.Option(metavar="FILE", callback=check_target)]


@dataclass(frozen=True)
class Outlines:
    """Zones.

    Options:
        zones FILE: Outlines of zones (GeoJSON, GeoPackage, shapefile); else cells of near records.
        zone_name COLUMN: Column with the zones' names.
        by COLUMN: Take each value of this column for itself; TIME=hour the hours of its times.
    """

    zones: MaybePath = None
    zone_name: MaybeText = None
    crs: Crs = None
    by: MaybeText = None

    def load(self) -> Places | None:
        """The zones, where a file has them."""
        if self.zones is None:
            return None
        return load_places(self.zones, name=self.zone_name, crs=self.crs)


@dataclass(frozen=True)
class Reported:
    """Columns of reports.

    Options:
        columns NAMES: Columns of the reports: latitude,longitude, or one of labels.
        start NAMES: Columns of where trips start; with --end, flows are estimated.
        end NAMES: Columns of where trips end.
    """

    columns: MaybeText = None
    start: MaybeText = None
    end: MaybeText = None


@described
def estimate(
    table: Path,
    reports: Path,
    outlines: Outlines,
    reported: Reported,
    map: Picture = None,
    html: Html = None,
    json: Json = None,
) -> None:
    """Estimate shares of people per zone, or of trips from zone to zone, from a file of reports.

    The noise of the table is undone by penalised likelihood, and every share has 95 % limits that
    hold whatever the truth is. Where the table cannot tell a zone from others, that is said.

    Options:
        table TABLE: The mechanism that the reports were drawn from (.pmdp).
        reports FILE: Reports, as perturb writes them: .csv, .tsv, .ndjson, .parquet.
        map FILE: Also draw the shares as a map (.png, .svg, .pdf).
        html FILE: Also write one page with tables and pictures.
    """
    start = reported.start
    by = outlines.by
    require((start is None) == (reported.end is None), "--start and --end go together", "--start")
    require(start is None or (by is None and map is None), "flows have no --by and no --map")
    release = load(table)
    places = outlines.load()
    columns, end = (text and _columns(text) for text in (start or reported.columns, reported.end))
    with working("estimating"):
        found: Any = estimate_shares(reports, release, places, columns=columns, by=by, end=end)
    rows = list(found.rows())
    shown = _show(repr(release), rows, NOTES)
    if map is not None:
        save_figure(draw_density(found, release.problem.domain, places), map)
    if html is not None:
        parts = [repr(release), *NOTES, *_pictures(found, release, places), shown]
        write_page(html, "What the reports tell", parts)
    write_json(json, rows)


@dataclass(frozen=True)
class Compared:
    """Columns of places and of their reports.

    Options:
        place NAMES: Columns of a true place: latitude,longitude (the default), or one of records;
            twice for trips.
        reported NAMES: Columns of its reports, as often; by default those that perturb writes.
        release EPSILON: Also draw both total variations so that they may be handed on: both
            together are epsilon-differentially private for a person.
        rows_of_person COUNT: The most rows that a person has, for --release.
    """

    place: list[str] | None = None
    reported: list[str] | None = None
    snap_limit: SnapLimit = 0.5
    release: NonNegative = 0.0
    rows_of_person: Positive = 1


@described
def quality(
    table: Path,
    before: Path,
    after: Path,
    outlines: Outlines,
    compared: Compared,
    html: Html = None,
    json: Json = None,
) -> None:
    """Compare data with its reports: zone by zone, or zone to zone for trips with two places.

    Shares before, in the reports as they are, and estimated from them, and how far apart these are.
    What is printed is exact, and so it is people's own: it is for whoever holds the data.

    Options:
        table TABLE: The mechanism that the reports were drawn from (.pmdp).
        before FILE: The data: .csv, .tsv, .ndjson, .parquet.
        after FILE: Its reports, as perturb writes them.
        html FILE: Also write one page with tables and pictures.
    """
    release = load(table)
    places = outlines.load()
    texts = compared.place or ["lat,lon"]
    true = [_columns(text) for text in texts]
    named: list[Any] = [_columns(text) for text in compared.reported or []] or [
        tuple(f"reported_{name}" for name in pair) if len(true) == 2 else None for pair in true
    ]
    require(len(named) == len(true), "--reported names as many places as --place", "--reported")
    ends = range(len(true))
    asked = [[*ends], *([k] for k in ends if len(true) > 1)]
    page: list[Any] = [repr(release), *NOTES]
    results: list[Facts] = []
    for number, chosen in enumerate(asked):
        with working("comparing"):
            found = compare(
                before,
                after,
                release,
                places,
                true=[true[k] for k in chosen],
                reported=[named[k] for k in chosen],
                by=outlines.by if len(chosen) == 1 else None,
                limit=compared.snap_limit,
            )
        rows = list(found.rows())
        measures = found.measures()
        told = [f"{name}: {value:.4g}" for name, value in measures.items()]
        if compared.release and number == 0:
            drawn = found.private(compared.release, compared.rows_of_person)
            told += [f"{name}, to be handed on: {value:.4g}" for name, value in drawn.items()]
        title = " to ".join(texts[k] for k in chosen)
        shown = _show(title, rows, told)
        page += [title, *told, *_pictures(found.found, release, places, found.before), shown]
        results.append({"measures": measures, "rows": rows})
    for note in NOTES:
        output_console().print(note)
    if html is not None:
        write_page(html, "What the reports tell", page)
    write_json(json, {**results[0], "ends": results[1:]})


def _show(title: str, rows: list[Any], notes: Iterable[str]) -> list[dict[str, str]]:
    """Print the largest rows; all of them in words."""
    told = [{n.replace("_", " "): _words(value) for n, value in row.items()} for row in rows]
    shown = Table(title=title, title_justify="left")
    for name in told[0]:
        shown.add_column(name, justify="left" if name == "zone" else "right", overflow="fold")
    for k in sorted(range(len(rows)), key=lambda k: -rows[k]["share"])[:LISTED]:
        shown.add_row(*told[k].values())
    console = output_console()
    console.print(shown)
    if len(rows) > LISTED:
        console.print(f"{LISTED} of {len(rows):,} rows.")
    for note in notes:
        console.print(note)
    return told


def _pictures(found: Any, release: Any, zones: Any, before: Any = None) -> list[Any]:
    domain = release.problem.domain
    if not isinstance(found, Estimate):
        return [draw_flows(found), draw_lengths(found, domain, zones, before)]
    parts = [draw_shares(found, w, before) for w in range(len(found.windows))]
    if domain.geographic:
        parts += [draw_density(found, domain, zones, of=what) for what in ("share", "width")]
    return parts


def _columns(text: str) -> Any:
    names = comma_separated(text)
    require(len(names) in (1, 2), f"{text!r} names {len(names)} columns; name one or two")
    return names[0] if len(names) == 1 else (names[0], names[1])


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "cannot be told apart here"
    return f"{value:.2%}" if isinstance(value, float) else str(value)
