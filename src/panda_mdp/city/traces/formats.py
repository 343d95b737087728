"""Lines of known trace files become fixes: who, when, latitude, longitude.

A parser returns `Fix` tuples and raises `BadLineError` with a reason for a line that it cannot
read; the reader counts those and goes on.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from panda_mdp.errors import FileFormatError, InvalidInputError

Format = Literal["rome", "tdrive", "porto", "geolife", "csv", "gpx", "geojson"]
FORMATS: tuple[Format, ...] = ("rome", "tdrive", "porto", "geolife", "csv", "gpx", "geojson")
SUFFIXES: dict[str, Format] = {
    ".gpx": "gpx",
    ".geojson": "geojson",
    ".json": "geojson",
    ".plt": "geolife",
}
"""The format of a file whose name tells it; others are taken for `csv`."""
GEOLIFE_HEADER_LINES = 6
PORTO_STEP_S = 15.0
NAMES = {
    "lat": ("lat", "latitude", "y"),
    "lon": ("lon", "lng", "long", "longitude", "x"),
    "user": (
        *("user", "user_id", "userid", "person", "person_id", "driver", "driver_id"),
        *("rider_id", "passenger_id", "customer_id", "device_id", "taxi", "taxi_id"),
        *("vehicle", "vehicle_id", "uid", "id"),
    ),
    "time": ("time", "timestamp", "datetime", "date", "t"),
}
"""Column names that are recognised in a plain CSV, where none are given."""
DOUBTFUL = frozenset({"uid", "id"})
"""Columns that name people in some files and number the rows in others."""
NOBODY = frozenset({"", "na", "nan", "none", "null", "nil", "unknown", "-"})
"""What stands in a column of people where the person is not known."""


PATTERNS: dict[Format, str] = {
    "geolife": "*.plt",
    "tdrive": "*.txt",
    "rome": "*.txt",
    "gpx": "*.gpx",
    "geojson": "*.geojson",
}
"""The files of a format in a folder; `*.csv` for the others."""


class BadLineError(ValueError):
    """A line that is not in the format; its message is the reason."""


class Fix(NamedTuple):
    """One position: `time` is a text that `seconds` reads, or seconds already."""

    user: str
    time: str | float
    lat: float
    lon: float


LineParser = Callable[[str], Sequence[Fix]]


def rome_line(line: str) -> Sequence[Fix]:
    """`id;time;POINT(lat lon)`: latitude first, unlike the usual order of a POINT."""
    user, _, rest = line.partition(";")
    time, _, point = rest.partition(";")
    if not (user and point.startswith("POINT(") and point.endswith(")")):
        msg = "not id;time;POINT(lat lon)"
        raise BadLineError(msg)
    lat, _, lon = point[6:-1].partition(" ")
    return (make_fix(user, time, lat, lon),)


def tdrive_line(line: str) -> Sequence[Fix]:
    """`id,time,lon,lat`."""
    parts = line.split(",")
    if len(parts) != 4:
        msg = f"{len(parts)} fields, not id,time,lon,lat"
        raise BadLineError(msg)
    return (make_fix(parts[0], parts[1], parts[3], parts[2]),)


def geolife_line(user: str) -> LineParser:
    """`lat,lon,0,altitude,days,date,time` of one person's file."""

    def parse(line: str) -> Sequence[Fix]:
        parts = line.split(",")
        if len(parts) != 7:
            msg = f"{len(parts)} fields, not lat,lon,0,altitude,days,date,time"
            raise BadLineError(msg)
        return (make_fix(user, f"{parts[5]} {parts[6]}", parts[0], parts[1]),)

    return parse


def porto_line(header: str) -> LineParser:
    """A trip per line, its POLYLINE a list of [lon, lat] every 15 seconds."""
    names = [name.strip().upper() for name in next(csv.reader([header]))]
    missing = [name for name in ("TAXI_ID", "TIMESTAMP", "POLYLINE") if name not in names]
    if missing:
        msg = f"the header lacks {', '.join(missing)}; it is not Porto's"
        raise FileFormatError(msg)
    at_user, at_time, at_line = (names.index(name) for name in ("TAXI_ID", "TIMESTAMP", "POLYLINE"))

    def parse(line: str) -> Sequence[Fix]:
        fields = next(csv.reader([line]))
        if len(fields) != len(names):
            msg = f"{len(fields)} fields, the header has {len(names)}"
            raise BadLineError(msg)
        try:
            start, places = float(fields[at_time]), json.loads(fields[at_line])
        except ValueError as error:
            msg = "TIMESTAMP or POLYLINE cannot be read"
            raise BadLineError(msg) from error
        if not isinstance(places, list):
            msg = "POLYLINE is not a list"
            raise BadLineError(msg)
        if not all(isinstance(place, list) and len(place) == 2 for place in places):
            msg = "POLYLINE holds something else than [lon, lat]"
            raise BadLineError(msg)
        return [
            make_fix(fields[at_user], start + PORTO_STEP_S * k, lat, lon)
            for k, (lon, lat) in enumerate(places)
        ]

    return parse


def csv_line(header: str, columns: dict[str, str] | None) -> LineParser:
    """Named columns; `columns` maps lat, lon, user and time to the file's own names."""
    delimiter = max(",;\t", key=header.count)
    names = [name.strip() for name in next(csv.reader([header], delimiter=delimiter))]
    at = {kind: column_of(kind, names, columns) for kind in NAMES}
    at_lat, at_lon, at_user, at_time = at["lat"], at["lon"], at["user"], at["time"]
    if at_lat is None or at_lon is None:
        msg = (
            f"no column for lat or lon among {', '.join(names)}; "
            "name them: columns={'lat': ..., 'lon': ...}"
        )
        raise FileFormatError(msg)

    def parse(line: str) -> Sequence[Fix]:
        fields = next(csv.reader([line], delimiter=delimiter))
        if len(fields) != len(names):
            msg = f"{len(fields)} fields, the header has {len(names)}"
            raise BadLineError(msg)
        user = "" if at_user is None else fields[at_user]
        time = "" if at_time is None else fields[at_time]
        return (make_fix(user, time, fields[at_lat], fields[at_lon]),)

    return parse


def doubtful_person(header: str, columns: dict[str, str] | None) -> str | None:
    """The column that would be taken for the person's and may as well number the rows.

    >>> doubtful_person("id,lat,lon", None), doubtful_person("id,lat,lon", {"user": "id"})
    ('id', None)
    """
    if (columns or {}).get("user") is not None:
        return None
    delimiter = max(",;\t", key=header.count)
    names = [name.strip() for name in next(csv.reader([header], delimiter=delimiter))]
    at = column_of("user", names, None)
    return names[at] if at is not None and names[at].lower() in DOUBTFUL else None


def column_of(kind: str, names: list[str], columns: dict[str, str] | None) -> int | None:
    """Where the column of `lat`, `lon`, `user` or `time` is: the one that was named, or a known
    name; None where there is none."""
    given = (columns or {}).get(kind)
    if given is not None:
        if given not in names:
            msg = f"there is no column {given!r} among {', '.join(names)}"
            raise FileFormatError(msg)
        return names.index(given)
    lower = [name.lower() for name in names]
    return next((lower.index(name) for name in NAMES[kind] if name in lower), None)


def make_fix(user: str, time: str | float, lat: Any, lon: Any) -> Fix:
    """A position; raises where it is none."""
    try:
        north, east = float(lat), float(lon)
    except (ValueError, TypeError):
        msg = "latitude or longitude is no number"
        raise BadLineError(msg) from None
    # Comparisons are false for NaN, so that it is refused too.
    if not -90 <= north <= 90:
        msg = "latitude out of [-90, 90] (swapped?)"
        raise BadLineError(msg)
    if not -180 <= east <= 180:
        msg = "longitude out of [-180, 180]"
        raise BadLineError(msg)
    return Fix(user, time, north, east)


def seconds(time: str | float) -> float:
    """Seconds since 1970; a time without a zone counts as UTC. NaN where it cannot be read."""
    if isinstance(time, float):
        return time
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        try:
            return float(time)
        except ValueError:
            return float("nan")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp()


def files_of(path: Path, kind: Format) -> list[Path]:
    """The files of a data set that may be one file or a folder, in a fixed order."""
    if not path.exists():
        msg = f"{path} does not exist"
        raise FileNotFoundError(msg)
    if not path.is_dir():
        return [path]
    pattern = PATTERNS.get(kind, "*.csv")
    files = sorted(entry for entry in path.rglob(pattern) if entry.is_file())
    if not files:
        msg = f"{path} holds no {pattern} files"
        raise FileFormatError(msg)
    return files


def parser_of(
    path: Path, kind: Format, header: list[str], columns: dict[str, str] | None
) -> LineParser:
    """The parser of one file, given its header lines."""
    if kind == "rome":
        return rome_line
    if kind == "tdrive":
        return tdrive_line
    if kind == "geolife":
        # Data/000/Trajectory/20081023025304.plt: the person is the folder above Trajectory.
        folder = path.resolve().parent
        return geolife_line(folder.parent.name if folder.name == "Trajectory" else folder.name)
    if not header:
        msg = f"{path.name} is empty; it needs a header line"
        raise FileFormatError(msg)
    return porto_line(header[0]) if kind == "porto" else csv_line(header[0], columns)


def header_lines(kind: Format) -> int:
    """How many lines come before the data."""
    return {"geolife": GEOLIFE_HEADER_LINES, "porto": 1, "csv": 1}.get(kind, 0)


def check_format(kind: str) -> None:
    """Refuse a format that is not known."""
    if kind not in FORMATS:
        msg = f"format is {kind!r}; choose one of {', '.join(FORMATS)}"
        raise InvalidInputError(msg)
