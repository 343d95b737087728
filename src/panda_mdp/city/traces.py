"""Traces in: positions of people, streamed from CSV, GPX and GeoJSON files and from frames."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args
from xml.etree import ElementTree

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.city.graphml import PlainXml
from panda_mdp.errors import FileFormatError, InvalidInputError

Format = Literal["csv", "gpx", "geojson"]
SUFFIXES: dict[str, Format] = {".gpx": "gpx", ".geojson": "geojson", ".json": "geojson"}
"""The format of a file whose name tells it; others are taken for `csv`."""
COLUMNS = {
    "lat": ("lat", "latitude", "y"),
    "lon": ("lon", "lng", "long", "longitude", "x"),
    "user": (
        *("user", "user_id", "userid", "person", "person_id", "driver", "driver_id"),
        *("rider_id", "passenger_id", "customer_id", "device_id", "taxi", "taxi_id"),
        *("vehicle", "vehicle_id", "uid", "id"),
    ),
    "time": ("time", "timestamp", "datetime", "date", "t"),
}
"""Names of columns that are recognised where none are given."""
DOUBTFUL = frozenset({"uid", "id"})
"""Columns that name people in some files and number the rows in others."""
NOBODY = frozenset({"", "na", "nan", "none", "null", "nil", "unknown", "-"})
"""What stands in a column of people where the person is not known."""
VERTEX_TIMES = ("coordTimes", "times", "timestamps")
"""Where converters put the times of a line's vertices."""
GEOMETRIES = frozenset({"Point", "MultiPoint", "LineString", "MultiLineString"})
POINTS = frozenset({"trkpt", "rtept", "wpt"})
CHUNK = 1 << 16
EXAMPLES, EXAMPLE_CHARACTERS = 5, 80


class Fix(NamedTuple):
    """One position; `time` is as the source has it."""

    user: str
    time: str
    lat: float
    lon: float


Entry = tuple[str, str, Fix | str]
"""Where something stands in its source, its text, and the position or why it is none."""


@dataclass
class TraceReport:
    """What was read; `examples` are the first lines that could not be.

    Examples hold text from the file, which is people's own: look at them, do not publish them.
    """

    lines: int = 0
    fixes: int = 0
    malformed: int = 0
    anonymous: int = 0
    """Fixes that name no person."""
    doubtful: str | None = None
    """A column that was taken for the person's although it may number the rows."""
    examples: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return (
            f"TraceReport({self.lines:,} lines, {self.fixes:,} fixes, {self.malformed:,} malformed)"
        )

    def fixes_of(self, entries: Iterator[Entry]) -> Iterator[Fix]:
        """The positions among entries; the others are counted, and the first few kept."""
        for where, text, outcome in entries:
            self.lines += 1
            if isinstance(outcome, str):
                self.malformed += 1
                if len(self.examples) < EXAMPLES:
                    self.examples.append(f"{where}: {outcome}: {text[:EXAMPLE_CHARACTERS]!r}")
                continue
            self.fixes += 1
            self.anonymous += outcome.user.strip().lower() in NOBODY
            yield outcome


@dataclass(frozen=True)
class Fixes:
    """A chunk of positions. `user` numbers people in order of appearance over the whole stream."""

    user: IntArray
    time: FloatArray
    """Seconds since 1970; NaN where the source tells none."""
    lat: FloatArray
    lon: FloatArray

    def __len__(self) -> int:
        return len(self.user)


@dataclass(frozen=True)
class Traces:
    """Positions in files or a frame, read anew by each pass. Nothing of them is kept here."""

    source: Any
    format: Format | Literal["frame"]
    columns: dict[str, str] | None = None

    def __repr__(self) -> str:
        return f"Traces({self.name})"

    @property
    def name(self) -> str:
        """What the source is called: in certificates too."""
        return "a frame" if self.format == "frame" else f"{self.source.name} ({self.format})"

    def chunks(self, report: TraceReport | None = None, *, times: bool = True) -> Iterator[Fixes]:
        """All positions, in chunks of bounded size; `report` collects what happened.

        `times=False` leaves times unread, which is faster.
        """
        tally = report if report is not None else TraceReport()
        people: dict[str, int] = {}
        pending: list[Fix] = []
        for fix in tally.fixes_of(self._entries(tally)):
            pending.append(fix)
            if len(pending) == CHUNK:
                yield _pack(pending, people, times)
                pending.clear()
        if pending:
            yield _pack(pending, people, times)

    def _entries(self, report: TraceReport) -> Iterator[Entry]:
        if self.format == "frame":
            yield from self._frame(report)
            return
        for path in _files(self.source, self.format):
            try:
                with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
                    if self.format == "gpx":
                        yield from _gpx(stream, path)
                    elif self.format == "geojson":
                        yield from _geojson(stream, path, self.columns)
                    else:
                        # What cannot be decoded shows up as malformed lines.
                        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace")
                        yield from self._csv(text, path, report)
            except (gzip.BadGzipFile, EOFError, zlib.error, csv.Error) as error:
                msg = f"{path.name} is damaged or cut short ({error})"
                raise FileFormatError(msg) from error

    def _csv(self, stream: io.TextIOWrapper, path: Path, report: TraceReport) -> Iterator[Entry]:
        header = stream.readline()
        if not header:
            msg = f"{path.name} is empty; it needs a header line"
            raise FileFormatError(msg)
        delimiter = max(",;\t", key=header.count)
        names = [name.strip() for name in next(csv.reader([header], delimiter=delimiter))]
        columns = self._columns(names, report)
        rows = csv.reader(stream, delimiter=delimiter)
        for fields in rows:
            if not fields:
                continue
            outcome: Fix | str = f"{len(fields)} fields, the header has {len(names)}"
            if len(fields) == len(names):
                lat, lon, user, time = ("" if at is None else fields[at] for at in columns)
                outcome = make_fix(user, time, lat, lon)
            yield f"{path.name}, line {rows.line_num + 1}", delimiter.join(fields), outcome

    def _frame(self, report: TraceReport) -> Iterator[Entry]:
        """Rows of a frame: pandas, Polars, PyArrow, or GeoPandas with its points."""
        table = self.source
        if hasattr(table, "geometry") and hasattr(table, "to_crs"):
            placed = (table if table.crs is None else table.to_crs(4326)).geometry
            table = table.drop(columns=placed.name).assign(lat=placed.y, lon=placed.x)
        names = [str(name) for name in getattr(table, "column_names", table.columns)]
        columns = [
            None if at is None else _values(table[names[at]]) for at in self._columns(names, report)
        ]
        missing = [""] * len(table)
        rows = zip(*(missing if values is None else values for values in columns), strict=True)
        for number, (lat, lon, user, time) in enumerate(rows, start=1):
            fix = make_fix(str(user), "" if time is None else str(time), lat, lon)
            yield f"the frame, entry {number}", "", fix

    def _columns(self, names: list[str], report: TraceReport) -> list[int | None]:
        """Where lat, lon, user and time stand: as named, or under a name that is recognised."""
        lower = [name.lower() for name in names]
        found: list[int | None] = []
        for kind, usual in COLUMNS.items():
            given = (self.columns or {}).get(kind)
            sought, among = (usual, lower) if given is None else ((given,), names)
            at = next((among.index(name) for name in sought if name in among), None)
            if at is None and (given is not None or kind in ("lat", "lon")):
                msg = (
                    f"there is no column {given or kind!r} among {', '.join(names)}; "
                    f"name it: columns={{{kind!r}: ...}}"
                )
                raise FileFormatError(msg)
            if kind == "user" and given is None and at is not None and lower[at] in DOUBTFUL:
                report.doubtful = names[at]
            found.append(at)
        return found


def load_traces(
    source: str | os.PathLike[str] | Any,
    format: Format | None = None,
    *,
    columns: dict[str, str] | None = None,
) -> Traces:
    """Name a trace file (or folder of them); it is streamed when it is used.

    Formats: `csv` (a header that names the columns; `columns` maps `lat`, `lon`, `user`, `time` to
    the file's names), `gpx` (a person per file), `geojson` (points and lines with a user and a time
    among their properties). Without a format the name tells it: `.gpx`, `.geojson`, otherwise
    `csv`. Files ending in `.gz` are unpacked on the way. A frame (pandas, GeoPandas, Polars,
    PyArrow) is taken as a file is.
    """
    if not isinstance(source, str | os.PathLike):
        if not hasattr(source, "columns"):
            msg = f"traces are a {type(source).__name__}; give a file, a folder or a frame"
            raise InvalidInputError(msg)
        return Traces(source, "frame", columns)
    path = Path(source)
    bare = path.with_suffix("") if path.suffix == ".gz" else path
    kind = format or SUFFIXES.get(bare.suffix.lower(), "csv")
    if kind not in get_args(Format):
        msg = f"format is {kind!r}; choose one of {', '.join(get_args(Format))}"
        raise InvalidInputError(msg)
    _files(path, kind)
    return Traces(path, kind, columns)


def make_fix(user: str, time: str, lat: Any, lon: Any) -> Fix | str:
    """A position, or why it is none."""
    try:
        north, east = float(lat), float(lon)
    except (ValueError, TypeError):
        return "latitude or longitude is no number"
    # Comparisons are false for NaN, so that it is refused too.
    if not -90 <= north <= 90:
        return "latitude out of [-90, 90] (swapped?)"
    if not -180 <= east <= 180:
        return "longitude out of [-180, 180]"
    return Fix(user, time, north, east)


def seconds(time: str) -> float:
    """Seconds since 1970; a time without a zone counts as UTC. NaN where it cannot be read."""
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        try:
            return float(time)
        except ValueError:
            return float("nan")
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _files(path: Path, kind: Format) -> list[Path]:
    """The files of a data set that may be one file or a folder, in a fixed order."""
    if not path.exists():
        msg = f"{path} does not exist"
        raise FileNotFoundError(msg)
    if not path.is_dir():
        return [path]
    files = sorted(entry for entry in path.rglob(f"*.{kind}") if entry.is_file())
    if not files:
        msg = f"{path} holds no *.{kind} files"
        raise FileFormatError(msg)
    return files


def _gpx(stream: Any, path: Path) -> Iterator[Entry]:
    """Track points, route points and waypoints; the person is the file's name."""
    number = 0
    try:
        for _, element in ElementTree.iterparse(PlainXml(stream)):  # noqa: S314 (no entities)
            kind = element.tag.rpartition("}")[2]
            if kind in POINTS:
                number += 1
                time = next((e.text or "" for e in element if e.tag.endswith("time")), "")
                fix = make_fix(path.stem, time, element.get("lat"), element.get("lon"))
                yield f"{path.name}, entry {number}", "", fix
            if kind in POINTS or kind in ("trkseg", "trk"):
                element.clear()
    except (ElementTree.ParseError, ValueError) as error:
        msg = f"{path.name} is not GPX, or is cut short ({error})"
        raise FileFormatError(msg) from error


def _geojson(stream: Any, path: Path, columns: dict[str, str] | None) -> Iterator[Entry]:
    """Points, lines and their collections, with `user` and `time` among the properties.

    Vertices take the times of `coordTimes`, as converters from GPX write them, where there is one
    for each. Features that name no person are the file's.
    """
    try:
        document = json.load(stream)
    except ValueError as error:
        msg = f"{path.name} is not JSON, or is cut short ({error})"
        raise FileFormatError(msg) from error
    features = document.get("features", [document]) if isinstance(document, dict) else []
    if not isinstance(features, list) or not all(isinstance(one, dict) for one in features or [0]):
        msg = f"{path.name} has no features; it is not GeoJSON"
        raise FileFormatError(msg)
    number = 0
    for feature in features:
        properties = feature.get("properties") or {}
        vertices = _vertices(feature.get("geometry", feature))
        user = str(_property(properties, "user", columns) or path.stem)
        said = _property(properties, "time", columns)
        times = _flat(next((properties[name] for name in VERTEX_TIMES if name in properties), None))
        if len(times) != len(vertices):
            times = ["" if said is None else said] * len(vertices)
        for vertex, time in zip(vertices, times, strict=True):
            number += 1
            outcome: Fix | str = "a coordinate is no [lon, lat]"
            if isinstance(vertex, list) and len(vertex) >= 2:
                outcome = make_fix(user, str(time), vertex[1], vertex[0])
            yield f"{path.name}, entry {number}", "", outcome


def _property(properties: dict[str, Any], kind: str, columns: dict[str, str] | None) -> Any:
    if (given := (columns or {}).get(kind)) is not None:
        return properties.get(given)
    lower = {name.lower(): value for name, value in properties.items()}
    return next((lower[name] for name in COLUMNS[kind] if name in lower), None)


def _vertices(geometry: Any) -> list[Any]:
    if not isinstance(geometry, dict):
        return []
    if geometry.get("type") == "GeometryCollection":
        return [place for part in geometry.get("geometries", []) for place in _vertices(part)]
    return _flat(geometry.get("coordinates"), 2) if geometry.get("type") in GEOMETRIES else []


def _flat(nested: Any, depth: int = 1) -> list[Any]:
    """What nested lists hold: `depth` 1 for single values, 2 for lists of them."""
    if not isinstance(nested, list):
        return []
    if nested and isinstance(nested[0], list):
        return [value for part in nested for value in _flat(part, depth)]
    return [nested] if depth == 2 else nested


def _values(column: Any) -> list[Any]:
    return column.to_pylist() if hasattr(column, "to_pylist") else list(column)


def _pack(fixes: list[Fix], people: dict[str, int], times: bool) -> Fixes:
    number = people.setdefault
    return Fixes(
        user=np.array([number(fix.user, len(people)) for fix in fixes], dtype=np.int64),
        time=np.array([seconds(fix.time) if times else np.nan for fix in fixes], dtype=np.float64),
        lat=np.array([fix.lat for fix in fixes]),
        lon=np.array([fix.lon for fix in fixes]),
    )
