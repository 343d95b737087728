"""Names of streets and landmarks, for people who look for a place on a map.

From OSMnx's `.graphml` (names of edges), OpenStreetMap extracts (names of roads, and of what many
people know: stations, churches, museums), or a `.csv` with columns name, lat, lon and, if wanted,
kind. A street's name stands at the middle of its longest piece; longer streets come first.
"""

from __future__ import annotations

import ast
import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from panda_mdp.base.packages import need
from panda_mdp.city.graphml import graph_elements
from panda_mdp.city.layers import OSM, column, line_tags, read_layers
from panda_mdp.errors import FileFormatError

LANDMARKS = {
    "amenity": {"hospital", "library", "place_of_worship", "theatre", "townhall", "university"},
    "railway": {"station", "halt"},
    "tourism": {"attraction", "museum"},
    "historic": {"castle", "monument", "ruins"},
    "leisure": {"park", "stadium"},
}
"""OpenStreetMap's tags of what many people know."""


@dataclass(frozen=True)
class PlaceName:
    """A name, and where it stands in degrees."""

    name: str
    lat: float
    lon: float
    kind: Literal["street", "landmark"]


Piece = tuple[str, float, float, float]
"""A name with the middle of a piece of street, and its length in degrees of latitude."""


def read_names(path: Path) -> list[PlaceName]:
    """The names of a map; none where its format holds none.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "names.csv"
    ...     _ = file.write_text("name,lat,lon,kind\\nGhirlandina,44.6463,10.9258,landmark\\n")
    ...     read_names(file)
    [PlaceName(name='Ghirlandina', lat=44.6463, lon=10.9258, kind='landmark')]
    """
    name = path.name.lower()
    if name.endswith(".csv"):
        return _read_csv(path)
    if name.endswith(".graphml"):
        return _longest_first(_graphml_pieces(path))
    if name.endswith(OSM):
        return [*_landmarks(path), *_longest_first(_osm_pieces(path))]
    return []


def _longest_first(pieces: Iterable[Piece]) -> list[PlaceName]:
    """One label for each name: at its longest piece; the longest street first."""
    named: dict[str, list[Piece]] = {}
    for piece in pieces:
        named.setdefault(piece[0], []).append(piece)
    ranked = sorted(named, key=lambda name: (-sum(piece[3] for piece in named[name]), name))
    longest = [max(named[name], key=lambda piece: piece[3]) for name in ranked]
    return [PlaceName(name, lat, lon, "street") for name, lat, lon, _ in longest]


def _read_csv(path: Path) -> list[PlaceName]:
    places = []
    with path.open(newline="", encoding="utf-8") as stream:
        for number, row in enumerate(csv.DictReader(stream), start=2):
            try:
                name, lat, lon = row["name"].strip(), float(row["lat"]), float(row["lon"])
            except (KeyError, ValueError, AttributeError, TypeError):
                msg = f"{path.name}: line {number} has no name, lat and lon; give these columns"
                raise FileFormatError(msg) from None
            landmark = (row.get("kind") or "").strip() == "landmark"
            if name:
                places.append(PlaceName(name, lat, lon, "landmark" if landmark else "street"))
    return places


def _graphml_pieces(path: Path) -> Iterable[Piece]:
    places: dict[str, tuple[float, float]] = {}
    for kind, attributes, data in graph_elements(path):
        try:
            if kind == "node":
                places[attributes["id"]] = (float(data["y"]), float(data["x"]))
            elif kind == "edge" and data.get("name"):
                ends = np.array([places[attributes[end]] for end in ("source", "target")])
                lat, lon = ends.mean(axis=0)
                north, east = np.diff(ends, axis=0)[0]
                length = np.hypot(north, east * np.cos(np.deg2rad(lat)))
                yield _first(data["name"]), float(lat), float(lon), float(length)
        except (KeyError, ValueError) as error:
            msg = f"{path.name} is damaged or no GraphML ({error})"
            raise FileFormatError(msg) from error


def _first(text: str) -> str:
    """The first of several names that OSMnx wrote as a list."""
    if not text.startswith("["):
        return text
    try:
        return str(ast.literal_eval(text)[0])
    except (ValueError, SyntaxError, IndexError):
        return text


def _osm_pieces(path: Path) -> Iterable[Piece]:
    shapely = need("shapely", "reading lines", "geo")
    (roads,) = read_layers(path, "lines", where="highway IS NOT NULL AND name IS NOT NULL")
    lines = roads.geometry.to_numpy()
    middle = shapely.get_coordinates(shapely.line_interpolate_point(lines, 0.5, normalized=True))
    # A degree of longitude is shorter than one of latitude.
    shrink = np.array([np.cos(np.deg2rad(middle[:, 1].mean())), 1.0]) if len(lines) else 1.0
    length = shapely.length(shapely.transform(lines, lambda xy: xy * shrink))
    for name, (lon, lat), size in zip(column(roads, "name") or (), middle, length, strict=True):
        yield name, float(lat), float(lon), float(size)


def _landmarks(path: Path) -> Iterable[PlaceName]:
    """Each name once, at a point or within a building or park."""
    found: dict[str, PlaceName] = {}
    for layer in read_layers(path, "points", "multipolygons", where="name IS NOT NULL"):
        points = layer.geometry.representative_point()
        tagged = {key: column(layer, key) for key in LANDMARKS}
        for k, (name, tags) in enumerate(
            zip(column(layer, "name") or (), line_tags(layer), strict=True)
        ):
            tags |= {key: values[k] for key, values in tagged.items() if values and values[k]}
            if any(tags.get(key) in values for key, values in LANDMARKS.items()):
                place = points.iloc[k]
                found.setdefault(name, PlaceName(name, place.y, place.x, "landmark"))
    return found.values()
