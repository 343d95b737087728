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
from panda_mdp.city.city import City, group_ranks
from panda_mdp.city.roads import Traveller, direction, speed_kmh
from panda_mdp.errors import CityError, FileFormatError
from panda_mdp.space.metrics import are_places, haversine_km

Values = dict[str, str]
Element = tuple[str, Any, Values]
"""Of a graph: its kind, which it is, and what is said of it. A `node` has its name, an `edge` those
of its ends, and a `graph` whether it is directed."""
SPEEDS = ("speed_kph", "maxspeed", "highway")
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
                elif kind == "graph":
                    which = said.get("edgedefault") != "undirected"
                if kind in ("node", "edge", "graph"):
                    data = {names[d.attrib["key"]]: d.text or "" for d in element if d.text}
                    yield kind, which, data
                    element.clear()
    except (ElementTree.ParseError, ValueError, KeyError) as error:
        raise FileFormatError(f"{path.name} is damaged or no GraphML ({error})") from error


def graph_city(elements: Iterable[Element], options: MapOptions, source: str) -> tuple[City, bool]:
    """The streets of a graph, and whether nodes that are no junctions are still in it.

    An arc and its way back of equal length are one street; one without its way back is one-way,
    unless its own tag says otherwise.
    """
    places: dict[Any, tuple[str, str]] = {}
    ends = []
    lengths = []
    speeds = []
    single = []
    told_speed = False
    directed = True
    settings = Values()
    for kind, name, data in elements:
        if kind == "graph":
            directed = name
            settings = data
        elif kind == "node":
            places[name] = data.get("x", "nan"), data.get("y", "nan")
        else:
            ends.append(name)
            lengths.append(data.get("length", "nan"))
            # Without any word on speeds or classes, none are made up.
            told_speed |= not data.keys().isdisjoint(SPEEDS)
            speeds.append(speed_kmh(data, options.network))
            single.append("oneway" not in data or direction(data, options.network) != 0)
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
    lon, lat = to_degrees(x, y, options.crs or settings.get("crs"), source)
    straight = 1000 * haversine_km(lat[a], lon[a], lat[b], lon[b])
    _check_unit(source, length, straight)
    length = np.where(np.isfinite(length), length, straight)
    arcs = np.arange(len(a))
    oneway = np.zeros(len(a), bool)
    if directed:
        arcs, oneway = join_directions(a, b, length)
        oneway &= np.array(single)[arcs]
    speed = np.array(speeds)[arcs] if told_speed else None
    try:
        numbers = np.array(list(places), dtype=np.int64)
    except (ValueError, OverflowError, TypeError):
        # Names that are no numbers of OpenStreetMap's are not kept.
        numbers = np.arange(len(places))
    city = City(lat, lon, a[arcs], b[arcs], length[arcs], oneway, speed, numbers)
    return city, settings.get("simplified") != "True"


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


def join_directions(a: IntArray, b: IntArray, length_m: FloatArray) -> tuple[IntArray, BoolArray]:
    """Streets from arcs: an arc and its way back of the same length are one two-way street.

    Returns the arcs that stay, in their order, and whether each is a one-way street.
    """
    low = np.minimum(a, b)
    high = np.maximum(a, b)
    # Lengths agree to the micrometre where they were summed in opposite directions.
    micrometres = np.round(length_m * 1e6).astype(np.int64)
    repeats, _ = group_ranks(a > b, micrometres, high, low)
    # The i-th arc there pairs with the i-th back, and a loop with the next of its kind.
    rank, size = group_ranks(np.where(a == b, repeats // 2, repeats), micrometres, high, low)
    first = np.flatnonzero(rank == 0)
    return first, size[first] == 1


def contract(city: City) -> City:
    """Contract every node where exactly two streets meet and nothing changes; nodes keep numbers.

    A node stays where one or more than two streets meet, where a two-way road becomes one-way,
    and where two one-way roads meet head on. Lengths add up; the speed of a street is its length
    over the sum of its pieces' times. A ring without any junction keeps one node.
    """
    pieces = len(city.u)
    node = np.concatenate([city.u, city.v])
    piece = np.tile(np.arange(pieces), 2)
    inner = _inner_nodes(city, node)
    while True:
        chain, count = _chains(node, piece, inner)
        outer = np.flatnonzero(~inner[node])
        rings = np.flatnonzero(np.bincount(chain[piece[outer]], minlength=count) == 0)
        if len(rings) == 0:
            break
        # A ring that nothing else touches has no ends; its first node becomes one.
        inner[city.u[np.unique(chain, return_index=True)[1][rings]]] = False
    # Within a chain an end where a piece starts comes first: for one-way chains the only one.
    order = np.lexsort((outer >= pieces, chain[piece[outer]]))
    start, stop = node[outer][order].reshape(count, 2).T
    length = np.asarray(np.bincount(chain, city.length_m, count), dtype=float)
    single = np.zeros(count, bool)
    single[chain] = city.one_way
    speed = None
    if city.speed_kmh is not None:
        # One of its speeds where a chain has no length.
        speed = np.empty(count)
        speed[chain] = city.speed_kmh
        hours = np.bincount(chain, city.length_m / city.speed_kmh, count)
        np.divide(length, hours, out=speed, where=hours > 0)
    return replace(city, u=start, v=stop, length_m=length, oneway=single, speed_kmh=speed)


def _inner_nodes(city: City, ends: IntArray) -> BoolArray:
    inner = np.bincount(ends, minlength=city.nodes) == 2
    inner[city.u[city.u == city.v]] = False
    # Of two pieces, none or both are one-way, and then one leads in and one out.
    leaving, leading = (np.bincount(end, city.one_way, city.nodes) for end in (city.u, city.v))
    return inner & (leaving == leading)


def _chains(node: IntArray, piece: IntArray, inner: BoolArray) -> tuple[IntArray, int]:
    """The chain of each piece: pieces that meet at an inner node belong together."""
    meeting = np.flatnonzero(inner[node])
    pairs = piece[meeting[np.argsort(node[meeting], kind="stable")]].reshape(-1, 2)
    count, label = scipy.sparse.csgraph.connected_components(
        adjacency(pairs[:, 0], pairs[:, 1], len(piece) // 2), directed=False
    )
    return np.asarray(label, dtype=np.int64), int(count)
