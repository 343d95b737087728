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
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

import numpy as np

from panda_mdp.city.read.network import need
from panda_mdp.errors import FileFormatError
from panda_mdp.space.metrics import haversine_km

OSM = (".osm.pbf", ".osm", ".osm.gz", ".osm.bz2", ".pbf")
KNOWN = {
    "amenity": {"hospital", "library", "place_of_worship", "theatre", "townhall", "university"},
    "railway": {"station", "halt"},
    "tourism": {"attraction", "museum"},
    "historic": {"castle", "monument", "ruins"},
    "leisure": {"park", "stadium"},
}
"""Tags of landmarks in OpenStreetMap."""


@dataclass(frozen=True)
class PlaceName:
    """A name, and where it stands in degrees."""

    name: str
    lat: float
    lon: float
    kind: Literal["street", "landmark"]


Piece = tuple[str, float, float, float]
"""A name with the middle of a piece of street, and its length in km."""


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
        return _joined(_graphml_pieces(path))
    if name.endswith(OSM):
        return _read_osm(path)
    return []


def _joined(pieces: Iterable[Piece]) -> list[PlaceName]:
    """One label for each name: at its longest piece; the longest street first."""
    total: dict[str, float] = {}
    best: dict[str, Piece] = {}
    for piece in pieces:
        name, _, _, km = piece
        total[name] = total.get(name, 0.0) + km
        if name not in best or km > best[name][3]:
            best[name] = piece
    ranked = sorted(total, key=lambda name: (-total[name], name))
    return [PlaceName(name, best[name][1], best[name][2], "street") for name in ranked]


def _read_csv(path: Path) -> list[PlaceName]:
    places = []
    with path.open(newline="", encoding="utf-8") as stream:
        for number, row in enumerate(csv.DictReader(stream), start=2):
            try:
                kind = (row.get("kind") or "street").strip()
                place = PlaceName(
                    row["name"].strip(),
                    float(row["lat"]),
                    float(row["lon"]),
                    "landmark" if kind == "landmark" else "street",
                )
            except (KeyError, ValueError, AttributeError):
                msg = f"{path.name}: line {number} has no name, lat and lon; give these columns"
                raise FileFormatError(msg) from None
            if place.name:
                places.append(place)
    return places


def _graphml_pieces(path: Path) -> Iterable[Piece]:
    keys: dict[str, str] = {}
    places: dict[str, tuple[float, float]] = {}
    try:
        for _, element in ElementTree.iterparse(path):  # noqa: S314 (expat bounds entities)
            tag = element.tag.rpartition("}")[2]
            if tag == "key":
                keys[element.get("id", "")] = element.get("attr.name", "")
            elif tag in ("node", "edge"):
                values = {keys.get(d.get("key", ""), ""): d.text or "" for d in element}
                if tag == "node":
                    places[element.get("id", "")] = (float(values["y"]), float(values["x"]))
                elif values.get("name"):
                    ends = (places[element.get(end, "")] for end in ("source", "target"))
                    (lat, lon), (lat2, lon2) = ends
                    km = _km(lat, lon, lat2, lon2)
                    yield _first(values["name"]), (lat + lat2) / 2, (lon + lon2) / 2, km
                element.clear()
    except (ElementTree.ParseError, KeyError, ValueError) as error:
        msg = f"{path.name} is damaged or no GraphML ({error})"
        raise FileFormatError(msg) from None


def _first(text: str) -> str:
    """The first of several names that OSMnx wrote as a list."""
    if text.startswith("["):
        try:
            return str(ast.literal_eval(text)[0])
        except (ValueError, SyntaxError, IndexError):
            return text
    return text


def _read_osm(path: Path) -> list[PlaceName]:
    try:
        import osmium
    except ImportError as error:
        raise need("osmium", "reading OpenStreetMap extracts", "geo") from error
    pieces: list[Piece] = []
    landmarks: dict[str, PlaceName] = {}
    try:
        entities = osmium.FileProcessor(str(path), osmium.osm.NODE | osmium.osm.WAY)
        named = entities.with_locations("flex_mem").with_filter(osmium.filter.KeyFilter("name"))
        for entity in named:
            name, tags = entity.tags["name"], entity.tags
            known = any(tags.get(key) in values for key, values in KNOWN.items())
            if entity.is_node():
                if known:
                    where = entity.location
                    landmarks.setdefault(name, PlaceName(name, where.lat, where.lon, "landmark"))
                continue
            places = [n.location for n in entity.nodes if n.location.valid()]
            if len(places) < 2:
                continue
            middle = places[len(places) // 2]
            if known:
                landmarks.setdefault(name, PlaceName(name, middle.lat, middle.lon, "landmark"))
            elif "highway" in tags:
                pieces.append((name, middle.lat, middle.lon, _length(places)))
    except RuntimeError as error:
        msg = f"{path.name} is damaged, cut short or no OpenStreetMap file ({error})"
        raise FileFormatError(msg) from None
    return [*landmarks.values(), *_joined(pieces)]


def _length(places: list[Any]) -> float:
    return sum(_km(a.lat, a.lon, b.lat, b.lon) for a, b in pairwise(places))


def _km(lat: float, lon: float, lat2: float, lon2: float) -> float:
    return float(haversine_km(lat, lon, np.array([lat2]), np.array([lon2]))[0])
