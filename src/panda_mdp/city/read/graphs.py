"""Road networks from graphs: NetworkX, igraph, node-link JSON, and OSMnx by the name of a place."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.city.read.assembly import MapReport, assemble
from panda_mdp.city.read.graphml import read_graphml
from panda_mdp.city.read.layers import to_degrees
from panda_mdp.city.read.map_options import MapOptions
from panda_mdp.city.read.network import Network
from panda_mdp.city.read.tables import EdgeTable, NodeTable, build_network, floats
from panda_mdp.errors import CityError, FileFormatError, MissingDependencyError

PLACES = (("x", "y"), ("lon", "lat"), ("lng", "lat"), ("longitude", "latitude"))
Attributes = dict[str, Any]


def is_graph(thing: object) -> bool:
    """Whether an object is a graph of NetworkX or igraph."""
    return type(thing).__module__.split(".")[0] in ("networkx", "igraph")


def read_graph(graph: Any, options: MapOptions) -> Network:
    """The network of a graph whose nodes have coordinates (`x` and `y`, `lon` and `lat`, `pos`)."""
    if type(graph).__module__.startswith("igraph"):
        nodes = [(v.index, v.attributes()) for v in graph.vs]
        edges = [(e.source, e.target, e.attributes()) for e in graph.es]
        known: Attributes = {name: graph[name] for name in graph.attributes()}
        return _network(nodes, edges, known, graph.is_directed(), options, "the igraph graph")
    return _network(
        list(graph.nodes(data=True)),
        list(graph.edges(data=True)),
        graph.graph,
        graph.is_directed(),
        options,
        "the NetworkX graph",
    )


def read_node_link(path: Path, options: MapOptions) -> Network:
    """NetworkX's node-link JSON: `nodes` with ids, `edges` or `links` with source and target."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        nodes = [(node["id"], node) for node in content["nodes"]]
        links = content.get("edges", content.get("links"))
        edges = [(link["source"], link["target"], link) for link in links]
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        msg = f"{path.name} is no node-link JSON (nodes with ids, edges with source and target)"
        raise FileFormatError(msg) from error
    known = content.get("graph", {})
    directed = bool(content.get("directed", False))
    return _network(nodes, edges, dict(known), directed, options, path.name)


def _network(
    nodes: Sequence[tuple[Any, Attributes]],
    edges: Sequence[tuple[Any, Any, Attributes]],
    known: Attributes,
    directed: bool,
    options: MapOptions,
    source: str,
) -> Network:
    x, y = _coordinates([data for _, data in nodes], source)
    crs = options.crs or (None if known.get("crs") is None else str(known["crs"]).upper())
    lon, lat = to_degrees(x, y, crs, source)
    length = _column(edges, "length", "weight")
    table = EdgeTable(
        u=[edge[0] for edge in edges],
        v=[edge[1] for edge in edges],
        length_m=None if length is None else floats(length) * options.metres,
        # An undirected graph has no one-way streets; a directed one says so or pairs its arcs.
        oneway=_column(edges, "oneway") if directed else [False] * len(edges),
        maxspeed=_column(edges, "maxspeed"),
        highway=_column(edges, "highway"),
    )
    return build_network(source, NodeTable([node for node, _ in nodes], lat, lon), table)


def _coordinates(nodes: Iterable[Attributes], source: str) -> tuple[FloatArray, FloatArray]:
    rows = list(nodes)
    for first, second in PLACES:
        if rows and all(first in row and second in row for row in rows):
            return floats([row[first] for row in rows]), floats([row[second] for row in rows])
    if rows and all("pos" in row for row in rows):
        pairs = np.array([row["pos"] for row in rows], dtype=np.float64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]
    msg = f"nodes of {source} need coordinates: attributes x and y, lon and lat, or pos"
    raise FileFormatError(msg)


def _column(edges: Sequence[tuple[Any, Any, Attributes]], *names: str) -> list[Any] | None:
    for name in names:
        if any(name in edge[2] for edge in edges):
            return [edge[2].get(name) for edge in edges]
    return None


def fetch_place(place: str, options: MapOptions | None = None) -> MapReport:
    """Download the street network of a place by name, for example 'Modena, Italy'.

    Asks OpenStreetMap's servers through OSMnx: the name of the place leaves this machine.
    """
    try:
        import osmnx
    except ImportError as error:
        msg = (
            "fetching a place by name needs osmnx, which is not installed: pip install osmnx; "
            "or import an extract that you have (.osm.pbf, .graphml, ...)"
        )
        raise MissingDependencyError(msg) from error
    chosen = options or MapOptions()
    try:
        graph = osmnx.graph_from_place(place, network_type=chosen.network)
    except (OSError, ValueError, TypeError) as error:
        msg = f"OSMnx could not fetch {place!r} ({error}); check the name and the connection"
        raise CityError(msg) from error
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "place.graphml"
        osmnx.save_graphml(graph, path)
        return assemble(read_graphml(path), chosen, "OSMnx", place.split(",", maxsplit=1)[0])
