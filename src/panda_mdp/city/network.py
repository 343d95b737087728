"""From pieces of road to a city: cut to an area, contracted to junctions, connected.

Readers hand over the elements of a graph (OSMnx's GraphML is streamed: what is not needed is
forgotten while the file passes by), or a `City` with the pieces of road as their source has them;
`assemble` does the rest, the same for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO
from xml.etree import ElementTree

import numpy as np
import scipy

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray, adjacency
from panda_mdp.base.packages import need
from panda_mdp.city.city import City
from panda_mdp.city.roads import Traveller
from panda_mdp.errors import CityError, FileFormatError
from panda_mdp.space.metrics import are_places, haversine_km

Values = dict[str, str]
Element = tuple[str, Any, Values]
"""Of a graph: its kind, which it is, and what is said of it. A `node` has its name, an `edge` those
of its ends."""
DEGREES = "EPSG:4326"
UNIT_STREETS_M = 5.0
"""Shorter streets tell little about the unit of their lengths."""
USUAL_DETOURS = (0.7, 2.5)
"""What the median street is as long as its ends are apart, where lengths are in metres."""


@dataclass(frozen=True)
class MapOptions:
    """What is taken of a map.

    Options:
        network: Whose roads: 'drive', 'walk' or 'bike'.
        bbox S W N E: Keep this area only: south, west, north, east in degrees.
        simplify: Contract nodes that are no junctions (by default where the file has them).
        largest: Keep the largest connected part only.
        crs NAME: Reference system, where the file names none or a wrong one: EPSG:32632.
    """

    network: Traveller = "drive"
    bbox: tuple[float, float, float, float] | None = None
    simplify: bool | None = None
    largest: bool = True
    crs: str | None = None

    def __post_init__(self) -> None:
        if self.network not in ("drive", "walk", "bike"):
            raise CityError(f"network is {self.network!r}; choose 'drive', 'walk' or 'bike'")
        if self.bbox is not None:
            south, west, north, east = self.bbox
            if not (-90 <= south < north <= 90 and -180 <= west < east <= 180):
                raise CityError(
                    f"bbox is {self.bbox}; it is south, west, north, east in degrees, "
                    "south below north and west below east"
                )


class PlainXml:
    """A stream of XML that ends with an error where a document type begins: maps have none.

    Without one there are no entities to expand.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._last = b""

    def read(self, size: int = -1) -> bytes:
        part = self._stream.read(size)
        if b"<!DOCTYPE" in self._last + part:
            raise ValueError("it declares a document type, and with it entities")
        self._last = part[-8:]
        return part


def graph_elements(path: Path) -> Iterator[Element]:
    """Nodes and edges, at last the graph."""
    names: Values = {}
    try:
        with path.open("rb") as stream:
            for _, element in ElementTree.iterparse(PlainXml(stream)):  # noqa: S314 (no entities)
                if element.tag.endswith("data"):
                    continue
                kind = element.tag.rpartition("}")[2]
                said = element.attrib
                which: Any = said.get("id")
                if kind == "key":
                    names[which] = said["attr.name"]
                elif kind == "edge":
                    which = (said["source"], said["target"])
                if kind in ("node", "edge", "graph"):
                    data = {names[d.attrib["key"]]: d.text or "" for d in element if d.text}
                    yield kind, which, data
                    element.clear()
    except (ElementTree.ParseError, ValueError, KeyError) as error:
        raise FileFormatError(f"{path.name} is damaged or no GraphML ({error})") from error


def graph_city(elements: Iterable[Element], crs: Any, source: str) -> tuple[City, bool]:
    """The streets of a graph, and whether nodes that are no junctions are still in it.

    An arc and its way back of equal length are one street.
    """
    places: dict[Any, tuple[str, str]] = {}
    ends = []
    lengths = []
    settings = Values()
    for kind, name, data in elements:
        if kind == "graph":
            settings = data
        elif kind == "node":
            places[name] = data.get("x", "nan"), data.get("y", "nan")
        else:
            ends.append(name)
            lengths.append(data.get("length", "nan"))
    if not places or not ends:
        raise FileFormatError(f"{source} holds no graph: {len(places)} nodes and {len(ends)} edges")
    try:
        x, y = np.array(list(places.values()), dtype=float).T
        length = np.array(lengths, dtype=float)
        position = {name: k for k, name in enumerate(places)}
        a, b = np.array([(position[start], position[stop]) for start, stop in ends]).T
    except ValueError as error:
        raise FileFormatError(
            f"{source} is damaged: a length or coordinate is no number ({error})"
        ) from error
    except KeyError as error:
        raise FileFormatError(
            f"{source} has an edge to node {error}, which it does not hold"
        ) from error
    if not np.isfinite([x, y]).all():
        raise FileFormatError(
            f"{source} has nodes without coordinates; all need coordinates: x and y, lon and lat, "
            "pos, or one point each"
        )
    lon, lat = to_degrees(x, y, crs or settings.get("crs"), source)
    straight = 1000 * haversine_km(lat[a], lon[a], lat[b], lon[b])
    _check_unit(source, length, straight)
    length = np.where(np.isfinite(length), length, straight)
    # Lengths agree to the micrometre where they were summed in opposite directions.
    micrometres = np.round(length * 1e6).astype(np.int64)
    streets = np.stack([np.minimum(a, b), np.maximum(a, b), micrometres])
    one = np.sort(np.unique(streets, axis=1, return_index=True)[1])
    return City(lat, lon, a[one], b[one], length[one]), settings.get("simplified") != "True"


def _check_unit(source: str, length_m: FloatArray, straight_m: FloatArray) -> None:
    """Refuse lengths that are in another unit: streets are about as long as they are far."""
    telling = (length_m > 0) & (length_m < np.inf) & (straight_m > UNIT_STREETS_M)
    ratio = float(np.median(length_m[telling] / straight_m[telling])) if telling.any() else 1.0
    if not USUAL_DETOURS[0] < ratio < USUAL_DETOURS[1]:
        raise FileFormatError(
            f"the streets of {source} are {ratio:.3g} times as long as their ends are apart; "
            "lengths are in metres: turn the column of lengths into metres, or leave it out"
        )


def to_degrees(
    x: FloatArray, y: FloatArray, crs: Any, source: str
) -> tuple[FloatArray, FloatArray]:
    """Longitude and latitude of coordinates in a reference system; None stands for degrees."""
    lon = x
    lat = y
    if crs is not None and str(crs).upper() != DEGREES:
        pyproj = need("pyproj", "another reference system than degrees", "geo")
        try:
            lon, lat = pyproj.Transformer.from_crs(crs, DEGREES, always_xy=True).transform(x, y)
        except pyproj.exceptions.ProjError as error:
            raise FileFormatError(
                f"the reference system {str(crs)[:40]!r} of {source} is not known ({error})"
            ) from error
    if are_places(lat, lon).all():
        return np.asarray(lon), np.asarray(lat)
    if are_places(x, y).all():
        raise FileFormatError(
            f"{source} has latitude and longitude exchanged: x is the longitude, y the latitude; "
            "write it again in that order"
        )
    said = "names no reference system" if crs is None else f"says {getattr(crs, 'name', crs)}"
    raise FileFormatError(
        f"{source} {said}, but its coordinates do not fit, or are no degrees (metres or feet of a "
        "projection?); say which it is in: crs='EPSG:...' (--crs)"
    )


@dataclass(frozen=True)
class MapReport:
    """A city read from a map, and what was left out of it."""

    city: City
    source: str
    """The format."""
    segments: int
    """Pieces of road in the file, within the area."""
    contracted: int = 0
    """Nodes that were no junctions."""
    dropped_nodes: int = 0
    """Junctions outside the largest connected part."""
    parts: int = 1
    """Connected parts before the largest was taken."""

    def lines(self) -> list[str]:
        """What happened, for people."""
        sentences = [f"{self.source}: {self.segments:,} pieces of road -> {self.city!r}"]
        if self.contracted:
            sentences.append(f"{self.contracted:,} nodes were no junctions and were contracted")
        if self.dropped_nodes:
            sentences.append(
                f"{self.dropped_nodes:,} junctions in {self.parts - 1:,} smaller connected parts "
                "were left out"
            )
        return sentences


def assemble(city: City, options: MapOptions, source: str, name: str, *, raw: bool) -> MapReport:
    """Cut to the area, contract chains (where the map is `raw`), keep the largest connected part.

    `city` has the pieces of road as the source has them for streets.
    """
    city = replace(city, name=name)
    if options.bbox is not None:
        south, west, north, east = options.bbox
        inside = (city.lat >= south) & (city.lat <= north) & (city.lon >= west) & (city.lon <= east)
        if not (inside[city.u] & inside[city.v]).any():
            raise CityError(
                f"{name} has no roads within the bbox, which is south, west, north, east"
            )
        city = city.take(np.flatnonzero(inside))
    segments = len(city.u)
    city = city.take(np.unique([city.u, city.v]))
    nodes = city.nodes
    if raw if options.simplify is None else options.simplify:
        city = contract(city)
        junctions = np.unique([city.u, city.v])
        if len(junctions) < 2:
            raise CityError(
                f"{name} holds no street between two junctions; import it with simplify=False"
            )
        city = city.take(junctions)
    contracted = nodes - city.nodes
    parts = int(city.components().max()) + 1
    largest = city.largest_component() if options.largest else city
    return MapReport(largest, source, segments, contracted, city.nodes - largest.nodes, parts)


def contract(city: City) -> City:
    """Contract every node where exactly two streets meet; nodes keep numbers, and lengths add up.

    A ring without any junction keeps one node.
    """
    node = np.concatenate([city.u, city.v])
    piece = np.tile(np.arange(len(city.u)), 2)
    inner = np.bincount(node, minlength=city.nodes) == 2
    inner[city.u[city.u == city.v]] = False
    while True:
        chain, count = _chains(node, piece, inner)
        outer = np.flatnonzero(~inner[node])
        rings = np.flatnonzero(np.bincount(chain[piece[outer]], minlength=count) == 0)
        if len(rings) == 0:
            break
        # A ring that nothing else touches has no ends; its first node becomes one.
        inner[city.u[np.unique(chain, return_index=True)[1][rings]]] = False
    order = np.argsort(chain[piece[outer]], kind="stable")
    start, stop = node[outer][order].reshape(count, 2).T
    return replace(
        city, u=start, v=stop, length_m=np.bincount(chain, city.length_m, count).astype(float)
    )


def _chains(node: IntArray, piece: IntArray, inner: BoolArray) -> tuple[IntArray, int]:
    """The chain of each piece: pieces that meet at an inner node belong together."""
    meeting = np.flatnonzero(inner[node])
    pairs = piece[meeting[np.argsort(node[meeting], kind="stable")]].reshape(-1, 2)
    count, label = scipy.sparse.csgraph.connected_components(
        adjacency(pairs[:, 0], pairs[:, 1], len(piece) // 2), directed=False
    )
    return np.asarray(label, dtype=np.int64), int(count)
