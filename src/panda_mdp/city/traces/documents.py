"""Traces that are no lines of text: GPX and GeoJSON documents, and frames of data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any
from xml.etree import ElementTree

from panda_mdp.city.traces.formats import NAMES, BadLineError, Fix, column_of, make_fix
from panda_mdp.errors import FileFormatError

Outcome = Fix | BadLineError
"""A position, or why something that should be one is none."""
TIMES = ("coordTimes", "times", "timestamps")
"""Where converters put the times of a line's vertices."""


def gpx(stream: IO[str], path: Path) -> Iterator[Outcome]:
    """Track points, route points and waypoints; the person is the file's name."""
    try:
        # Without a document type there are no entities to expand, which is what S314 is about.
        plain = _WithoutEntities(stream, path.name)
        for _, element in ElementTree.iterparse(plain, events=("end",)):  # noqa: S314
            kind = element.tag.rpartition("}")[2]
            if kind in ("trkpt", "rtept", "wpt"):
                time = next((e.text or "" for e in element if e.tag.endswith("time")), "")
                yield _attempt(path.stem, time, element.get("lat"), element.get("lon"))
            if kind in ("trkpt", "rtept", "wpt", "trkseg", "trk"):
                element.clear()
    except ElementTree.ParseError as error:
        msg = f"{path.name} is not GPX, or is cut short ({error})"
        raise FileFormatError(msg) from error


class _WithoutEntities:
    """A stream of XML that ends with an error where a document type begins: GPX has none."""

    def __init__(self, stream: IO[str], name: str) -> None:
        self._stream = stream
        self._name = name
        self._last = ""

    def read(self, size: int = -1) -> bytes:
        part = self._stream.read(size)
        if "<!DOCTYPE" in self._last + part:
            msg = f"{self._name} declares a document type, which GPX does not; it is refused"
            raise FileFormatError(msg)
        self._last = part[-8:]
        return part.encode()


def geojson(stream: IO[str], path: Path, columns: dict[str, str] | None) -> Iterator[Outcome]:
    """Points, lines and their collections, with `user` and `time` among the properties.

    A line's vertices take the times of `coordTimes`, as converters from GPX write them. Features
    that name no person are the file's.
    """
    try:
        document = json.load(stream)
    except ValueError as error:
        msg = f"{path.name} is not JSON, or is cut short ({error})"
        raise FileFormatError(msg) from error
    features = document.get("features", [document]) if isinstance(document, dict) else []
    if not isinstance(features, list) or not features:
        msg = f"{path.name} has no features; it is not GeoJSON"
        raise FileFormatError(msg)
    for feature in features:
        properties, geometry = _parts(feature)
        user = str(_property(properties, "user", columns) or path.stem)
        said = _property(properties, "time", columns)
        times = next((properties[name] for name in TIMES if name in properties), None)
        for place, vertices in enumerate(_lines(geometry)):
            own = _times(times, place)
            for k, vertex in enumerate(vertices):
                time = own[k] if k < len(own) else said
                if not (isinstance(vertex, list) and len(vertex) >= 2):
                    yield BadLineError("a coordinate is no [lon, lat]")
                    continue
                yield _attempt(user, "" if time is None else str(time), vertex[1], vertex[0])


def frame(table: Any, columns: dict[str, str] | None) -> Iterator[Outcome]:
    """Rows of a frame: pandas, Polars, PyArrow, or GeoPandas with its points."""
    if hasattr(table, "geometry") and hasattr(table, "to_crs"):
        placed = table.to_crs(4326) if table.crs is not None else table
        given: dict[str, Sequence[Any]] = {name: list(table[name]) for name in table.columns}
        lats: Sequence[Any] = list(placed.geometry.y)
        lons: Sequence[Any] = list(placed.geometry.x)
    else:
        names = list(getattr(table, "column_names", table.columns))
        given = {str(name): _values(table[name]) for name in names}
        lats = _column(given, "lat", columns, needed=True)
        lons = _column(given, "lon", columns, needed=True)
    users = _column(given, "user", columns) or [""] * len(lats)
    times = _column(given, "time", columns) or [""] * len(lats)
    for user, time, lat, lon in zip(users, times, lats, lons, strict=True):
        yield _attempt(str(user), "" if time is None else str(time), lat, lon)


def _column(
    given: dict[str, Sequence[Any]],
    kind: str,
    columns: dict[str, str] | None,
    needed: bool = False,
) -> Sequence[Any]:
    names = list(given)
    at = column_of(kind, names, columns)
    if at is None and needed:
        msg = f"no column for {kind} among {', '.join(names)}; name it: columns={{'{kind}': '...'}}"
        raise FileFormatError(msg)
    return [] if at is None else given[names[at]]


def _values(column: Any) -> list[Any]:
    return column.to_pylist() if hasattr(column, "to_pylist") else list(column)


def _attempt(user: str, time: str, lat: Any, lon: Any) -> Outcome:
    try:
        return make_fix(user, time, lat, lon)
    except BadLineError as error:
        return error


def _parts(feature: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    if not isinstance(feature, dict):
        return {}, {}
    geometry = feature.get("geometry") if feature.get("type") == "Feature" else feature
    properties = feature.get("properties")
    return (
        properties if isinstance(properties, dict) else {},
        geometry if isinstance(geometry, dict) else {},
    )


def _property(properties: dict[str, Any], kind: str, columns: dict[str, str] | None) -> Any:
    wanted = (columns or {}).get(kind)
    names = NAMES[kind] if wanted is None else (wanted,)
    lower = {name if wanted else name.lower(): name for name in properties}
    return next((properties[lower[name]] for name in names if name in lower), None)


def _lines(geometry: dict[str, Any]) -> list[list[Any]]:
    """The vertices of a geometry, line by line."""
    kind, coordinates = geometry.get("type"), geometry.get("coordinates")
    if kind == "GeometryCollection":
        return [line for part in geometry.get("geometries", []) for line in _lines(part)]
    if not isinstance(coordinates, list):
        return []
    if kind == "Point":
        return [[coordinates]]
    if kind in ("MultiPoint", "LineString"):
        return [coordinates]
    return (
        [line for line in coordinates if isinstance(line, list)]
        if kind == "MultiLineString"
        else []
    )


def _times(times: Any, line: int) -> list[Any]:
    """The times of one line's vertices: there is a list for each of several lines."""
    if not isinstance(times, list):
        return []
    if not (times and isinstance(times[0], list)):
        return times
    return times[line] if line < len(times) and isinstance(times[line], list) else []
