"""Road networks from geographic layers: tables of nodes and edges, or lines alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.city.read.layers import Layer, read_layers, vertices
from panda_mdp.city.read.map_options import MapOptions
from panda_mdp.city.read.network import Network
from panda_mdp.city.read.roads import allowed
from panda_mdp.city.read.tables import (
    EdgeTable,
    NodeTable,
    build_network,
    first_of,
    floats,
    street_speeds,
)
from panda_mdp.errors import FileFormatError
from panda_mdp.space.metrics import haversine_km

IDS = ("osmid", "node_id", "id", "nodeid", "name")
ENDS = (("u", "v"), ("from", "to"), ("source", "target"), ("from_node", "to_node"),
        ("a_node", "b_node"), ("node_a", "node_b"))  # fmt: skip
CLASSES = ("highway", "fclass", "class", "road_class")
FORWARD = frozenset({"true", "1", "yes", "t", "f", "ft"})
BACKWARD = frozenset({"-1", "reverse", "tf"})
"""`F` and `T` are Geofabrik's words for a street that is open from start to end or back."""


def read_vector(path: Path, options: MapOptions) -> Network:
    """The network of a GeoPackage, shapefile, GeoJSON, FlatGeobuf or GeoParquet."""
    if path.is_dir():
        # GeoPandas writes OSMnx's two frames into one folder.
        path = path / "edges.parquet"
        if not (path.exists() and path.with_name("nodes.parquet").exists()):
            msg = f"{path.parent} holds no nodes.parquet and edges.parquet; a network is both"
            raise FileFormatError(msg)
    layers = read_layers(path)
    if len(layers) == 1 and (twin := _twin(path)) is not None:
        layers += read_layers(twin)
    return network_of(layers, options, path.name)


class NoStreetsError(FileFormatError):
    """A file of places alone."""


def network_of(layers: Sequence[Layer], options: MapOptions, source: str) -> Network:
    """Nodes and edges where two layers have them, by whatever name; lines otherwise."""
    edges = next((layer for layer in layers if _ends(layer) is not None), None)
    nodes = next((x for x in layers if x is not edges and x.column(*IDS) is not None), None)
    if edges is not None and nodes is not None and (nodes.kind == "point" or _has_xy(nodes)):
        return _from_tables(nodes, edges, options, source)
    lines = next((layer for layer in layers if layer.kind == "line"), None)
    if lines is not None:
        return _from_lines(lines, options, source)
    listed = ", ".join(f"{layer.name} ({layer.kind})" for layer in layers) or "none"
    msg = (
        f"{source} has no layer of lines, nor one of nodes and one of edges (columns u and v); "
        f"it has {listed}. Places without streets are read by pm.load_places"
    )
    raise NoStreetsError(msg)


def _twin(path: Path) -> Path | None:
    """The other file of a network that is kept as `...nodes.shp` and `...edges.shp`."""
    for one, other in (("nodes", "edges"), ("edges", "nodes")):
        twin = path.with_name(path.name.replace(one, other))
        if one in path.name and twin.exists():
            return twin
    return None


def _ends(layer: Layer) -> tuple[Sequence[Any], Sequence[Any]] | None:
    for first, second in ENDS:
        start, stop = layer.column(first), layer.column(second)
        if start is not None and stop is not None:
            return start, stop
    return None


def _has_xy(layer: Layer) -> bool:
    return layer.column("x", "lon") is not None and layer.column("y", "lat") is not None


def _from_tables(nodes: Layer, edges: Layer, options: MapOptions, source: str) -> Network:
    if nodes.kind == "point":
        at = vertices(nodes, nodes.shapes, options.crs, source)
        if len(at.lon) != len(nodes):
            msg = f"{source}, layer {nodes.name}: some nodes have no point or several"
            raise FileFormatError(msg)
        lon, lat = at.lon, at.lat
    else:
        lon, lat = (floats(nodes.column(*names) or ()) for names in (("x", "lon"), ("y", "lat")))
    ids, ends = nodes.column(*IDS), _ends(edges)
    length = edges.column("length", "length_m")
    table = EdgeTable(
        u=ends[0] if ends else (),
        v=ends[1] if ends else (),
        length_m=None if length is None else floats(length) * options.metres,
        oneway=edges.column("oneway"),
        maxspeed=edges.column("maxspeed"),
        highway=edges.column(*CLASSES),
    )
    return build_network(source, NodeTable(ids or (), lat, lon), table)


def _from_lines(layer: Layer, options: MapOptions, source: str) -> Network:
    """A street per piece between two vertices; lines meet where they share a vertex."""
    import shapely

    usable = np.flatnonzero(_usable(layer, options))
    parts, row = shapely.get_parts(layer.shapes[usable], return_index=True)
    row = usable[row]
    at = vertices(layer, parts, options.crs, source)
    joined = at.shape[1:] == at.shape[:-1]
    places = np.stack([at.x, at.y], axis=1)
    _, first, node = np.unique(places, axis=0, return_index=True, return_inverse=True)
    node = node.reshape(-1)
    a, b = node[:-1][joined], node[1:][joined]
    line = row[at.shape[:-1][joined]]
    way = _directions(layer, options)[line]
    a, b = np.where(way < 0, b, a), np.where(way < 0, a, b)
    lat, lon = at.lat[first], at.lon[first]
    speed = street_speeds(layer.column("maxspeed"), layer.column(*CLASSES), len(layer))
    return Network(
        osmid=np.arange(len(first)),
        lat=lat,
        lon=lon,
        a=a,
        b=b,
        length_m=np.asarray(1000 * haversine_km(lat[a], lon[a], lat[b], lon[b])),
        oneway=np.asarray(way != 0),
        speed_kmh=None if speed is None else _by_line(speed, line),
        raw=True,
    )


def _by_line(values: FloatArray, line: IntArray) -> FloatArray:
    return values[line]


def _usable(layer: Layer, options: MapOptions) -> BoolArray:
    """Lines that the traveller may use; all where the layer names no class of road."""
    classes = layer.column(*CLASSES)
    present = np.array([shape is not None for shape in layer.shapes], dtype=np.bool_)
    if classes is None:
        return present
    known: dict[str, bool] = {}
    for value in map(str, classes):
        if value not in known:
            known[value] = allowed({"highway": first_of(value)}, options.network)
    fine = np.array([known[str(value)] for value in classes], dtype=np.bool_)
    # Classes of another vocabulary than OpenStreetMap's say nothing about travellers.
    return present & fine if fine.any() else present


def _directions(layer: Layer, options: MapOptions) -> IntArray:
    """1 for one-way along the line, -1 against it, 0 for both ways."""
    values = layer.column("oneway")
    if values is None or options.network == "walk":
        return np.zeros(len(layer), dtype=np.int64)
    words = [str(value).strip().lower() for value in values]
    # Geofabrik writes B, F and T; elsewhere T is "true".
    geofabrik = "b" in words
    backward = BACKWARD | {"t"} if geofabrik else BACKWARD
    forward = FORWARD - {"t"} if geofabrik else FORWARD - {"f"}
    return np.array([(w in forward) - (w in backward) for w in words], dtype=np.int64)
