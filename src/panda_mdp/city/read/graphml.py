"""OSMnx's `.graphml`, streamed with the standard library.

Only the five or six values that a city needs are kept while the file passes by, so a file of
120 MB needs little more memory than the city itself.
"""

from __future__ import annotations

from pathlib import Path
from xml.parsers import expat

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.city.read.network import Network, join_directions
from panda_mdp.city.read.roads import parse_speed
from panda_mdp.city.read.tables import listed_speed
from panda_mdp.errors import FileFormatError
from panda_mdp.space.metrics import haversine_km

CHUNK = 1 << 20
NODE_VALUES = ("y", "x")
EDGE_VALUES = ("length", "maxspeed", "speed_kph", "highway")
GRAPH_VALUES = ("crs", "simplified")


class _Reader:
    """Collects nodes and edges while expat passes over the file."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.graph: dict[str, str] = {}
        self.ids: list[str] = []
        self.lat: list[str] = []
        self.lon: list[str] = []
        self.edges: list[tuple[str, str]] = []
        self.length: list[str] = []
        self.speed: list[float] = []
        self.directed = True
        self.seen_graph = False
        self.speed_keys: set[str] = set()
        self._values: dict[str, str] = {}
        self._text: list[str] = []
        self._wanted = ""
        self._at = "graph"
        self._ends = ("", "")
        self._speeds: dict[tuple[str, str, str], float] = {}
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        # Entities could expand without bound; a graph needs none.
        self.parser.EntityDeclHandler = _refuse_entities

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        tag = name.rpartition(":")[2]
        if tag == "data":
            wanted = self.names.get(attributes.get("key", ""), "")
            if wanted:
                self._wanted = wanted
                self._text.clear()
                self.parser.CharacterDataHandler = self._text.append
        elif tag == "node":
            self._at = "node"
            self._values = {}
            self._ends = (attributes["id"], "")
        elif tag == "edge":
            self._at = "edge"
            self._values = {}
            self._ends = (attributes["source"], attributes["target"])
        elif tag == "key":
            self._key(attributes)
        elif tag == "graph":
            self.seen_graph = True
            self.directed = attributes.get("edgedefault", "directed") != "undirected"

    def _key(self, attributes: dict[str, str]) -> None:
        wanted = {"node": NODE_VALUES, "edge": EDGE_VALUES, "graph": GRAPH_VALUES}
        kind, name = attributes.get("for", ""), attributes.get("attr.name", "")
        if name in wanted.get(kind, ()):
            self.names[attributes["id"]] = name
            if kind == "edge" and name != "length":
                self.speed_keys.add(attributes["id"])

    def _end(self, name: str) -> None:
        tag = name.rpartition(":")[2]
        if tag == "data":
            if self._wanted:
                values = self.graph if self._at == "graph" else self._values
                values[self._wanted] = "".join(self._text)
                self._wanted = ""
                self.parser.CharacterDataHandler = None
        elif tag == "node":
            self.ids.append(self._ends[0])
            self.lat.append(self._values.get("y", "nan"))
            self.lon.append(self._values.get("x", "nan"))
            self._at = "graph"
        elif tag == "edge":
            self.edges.append(self._ends)
            self.length.append(self._values.get("length", "nan"))
            self.speed.append(self._speed())
            self._at = "graph"

    def _speed(self) -> float:
        get = self._values.get
        key = (get("speed_kph", ""), get("maxspeed", ""), get("highway", ""))
        if key not in self._speeds:
            self._speeds[key] = parse_speed(key[0], listed_speed(key[1], key[2]))
        return self._speeds[key]


def _refuse_entities(*_: object) -> None:
    msg = "it declares entities"
    raise ValueError(msg)


def read_graphml(path: Path) -> Network:
    """The nodes and streets of an OSMnx graph; arcs of both directions become one street."""
    reader = _Reader()
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(CHUNK):
                reader.parser.Parse(chunk, False)
            reader.parser.Parse(b"", True)
        lat = np.array(reader.lat, dtype=np.float64)
        lon = np.array(reader.lon, dtype=np.float64)
        length = np.array(reader.length, dtype=np.float64)
    except (expat.ExpatError, ValueError, KeyError) as error:
        msg = f"{path.name} is damaged or no GraphML ({error})"
        raise FileFormatError(msg) from error
    if not reader.seen_graph or not reader.ids:
        msg = f"{path.name} holds no graph with nodes; give a file written by osmnx.save_graphml"
        raise FileFormatError(msg)
    _check_places(path, reader.graph.get("crs", ""), lat, lon)
    del reader.lat, reader.lon, reader.length
    a, b = _ends(path, reader)
    missing = np.isnan(length)
    length[missing] = 1000 * haversine_km(
        lat[a[missing]], lon[a[missing]], lat[b[missing]], lon[b[missing]]
    )
    # Without any word on speeds or classes, none are made up.
    speed = np.array(reader.speed) if reader.speed_keys else None
    retained, oneway = np.arange(len(a)), np.zeros(len(a), dtype=np.bool_)
    if reader.directed:
        retained, oneway = join_directions(a, b, length)
    return Network(
        osmid=_numbers(reader.ids),
        lat=lat,
        lon=lon,
        a=a[retained],
        b=b[retained],
        length_m=length[retained],
        oneway=oneway,
        speed_kmh=None if speed is None else speed[retained],
        raw=reader.graph.get("simplified", "") != "True",
    )


def _check_places(path: Path, crs: str, lat: FloatArray, lon: FloatArray) -> None:
    if np.isnan(lat).any() or np.isnan(lon).any():
        msg = (
            f"{path.name} has nodes without x and y; give a file written by osmnx.save_graphml, "
            "with longitude as x and latitude as y"
        )
        raise FileFormatError(msg)
    if np.abs(lat).max() > 90 or np.abs(lon).max() > 360:
        named = f" ({crs})" if crs else ""
        msg = (
            f"{path.name} has coordinates that are no degrees{named}; save the graph "
            "before it is projected (osmnx.project_graph(graph, to_latlong=True))"
        )
        raise FileFormatError(msg)


def _ends(path: Path, reader: _Reader) -> tuple[IntArray, IntArray]:
    position = {name: index for index, name in enumerate(reader.ids)}
    try:
        a = np.array([position[source] for source, _ in reader.edges], dtype=np.int64)
        b = np.array([position[target] for _, target in reader.edges], dtype=np.int64)
    except KeyError as error:
        msg = f"{path.name} has an edge to node {error}, which it does not hold; it is damaged"
        raise FileFormatError(msg) from error
    return a, b


def _numbers(ids: list[str]) -> IntArray:
    """OpenStreetMap's numbers where the ids are numbers, else their positions."""
    try:
        return np.array(ids, dtype=np.int64)
    except (ValueError, OverflowError):
        return np.arange(len(ids))
