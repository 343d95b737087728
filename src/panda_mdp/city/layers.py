"""Geographic layers and graphs as road networks: tables of nodes and edges, or lines alone.

GeoPandas reads the files (OpenStreetMap extracts too, through GDAL), pyproj turns coordinates into
degrees; what is here finds the columns, and refuses what cannot be right.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import BoolArray, FloatArray
from panda_mdp.base.packages import need
from panda_mdp.city.city import City
from panda_mdp.city.network import Arcs, MapOptions, to_degrees
from panda_mdp.city.roads import allowed, direction, speed_kmh
from panda_mdp.errors import CityError, FileFormatError
from panda_mdp.space.metrics import haversine_km

Frame = Any
"""A GeoDataFrame, or a DataFrame where a layer has no shapes."""
Shapes = npt.NDArray[np.object_]
XML = (".osm", ".osm.gz")
OSM = (*XML, ".osm.pbf", ".pbf")
PARQUET = (".parquet", ".geoparquet")
IDS = ("osmid", "node_id", "id", "nodeid", "name")
ENDS = (("u", "v"), ("from", "to"), ("source", "target"), ("from_node", "to_node"),
        ("a_node", "b_node"), ("node_a", "node_b"))  # fmt: skip
PLACES = (("x", "y"), ("lon", "lat"), ("lng", "lat"), ("longitude", "latitude"))
CLASSES = ("highway", "fclass", "class", "road_class")
YES = frozenset({"true", "1", "yes", "t"})
_TAG = re.compile(r'"((?:[^"\\]|\\.)*)"=>"((?:[^"\\]|\\.)*)"')


class NoStreetsError(FileFormatError):
    """A file of places alone."""


def read_layers(path: Path, *only: str, where: str | None = None) -> list[Frame]:
    """All layers of a geographic file, or some, each with its name in `attrs`."""
    geopandas = need("geopandas", f"reading {path.suffix} files", "geo")
    shapely = need("shapely", "reading shapes", "geo")
    name = path.name.lower()
    try:
        # GDAL warns of oddities before it fails; what counts is said in the error.
        with warnings.catch_warnings(action="ignore"):
            if name.endswith(PARQUET):
                need("pyarrow", "reading GeoParquet", "geo")
                layers = {path.stem: geopandas.read_parquet(path)}
            else:
                source = f"/vsigzip/{path}" if name.endswith(".gz") else path
                # Without it GDAL takes an extract only where the numbers of nodes ascend.
                indexing = {"USE_CUSTOM_INDEXING": "NO"} if name.endswith(XML) else {}
                layers = {
                    str(layer): geopandas.read_file(source, layer=layer, where=where, **indexing)
                    for layer in only or geopandas.list_layers(source)["name"]
                }
    except (RuntimeError, ValueError, OSError, shapely.errors.ShapelyError) as error:
        msg = f"{path.name} is damaged or of a foreign format ({str(error).splitlines()[0]})"
        raise FileFormatError(msg) from error
    for layer, frame in layers.items():
        frame.attrs["layer"] = layer
    return list(layers.values())


def read_vector(path: Path, options: MapOptions) -> tuple[City, bool]:
    """The network of an OpenStreetMap extract, GeoPackage, shapefile, GeoJSON or GeoParquet."""
    if path.name.lower().endswith(OSM):
        (roads,) = read_layers(path, "lines", where="highway IS NOT NULL")
        return line_network(roads, options, path.name), True
    if path.is_dir():
        # GeoPandas writes OSMnx's two frames into one folder.
        path = path / "edges.parquet"
        if not (path.exists() and path.with_name("nodes.parquet").exists()):
            msg = f"{path.parent} holds no nodes.parquet and edges.parquet; a network is both"
            raise FileFormatError(msg)
    layers = read_layers(path)
    for one, other in (("nodes", "edges"), ("edges", "nodes")):
        twin = path.with_name(path.name.replace(one, other))
        if len(layers) == 1 and one in path.name and twin.exists():
            layers += read_layers(twin)
    return layer_network(layers, options, path.name)


def layer_network(layers: Sequence[Frame], options: MapOptions, source: str) -> tuple[City, bool]:
    """Nodes and edges where two layers have them, by whatever name; lines otherwise.

    With whether nodes that are no junctions are still in it.
    """
    layers = [x if x.index.names == [None] else x.reset_index() for x in layers]
    edges = next((x for x in layers if _ends(x) is not None), None)
    nodes = next((x for x in layers if x is not edges and column(x, *IDS) is not None), None)
    if edges is not None and nodes is not None and shape_kind(nodes) == "point":
        return table_network(nodes, column(nodes, *IDS) or [], edges, options, source), False
    lines = next((x for x in layers if shape_kind(x) == "line"), None)
    if lines is not None:
        return line_network(lines, options, source), True
    listed = ", ".join(f"{x.attrs.get('layer')} ({shape_kind(x)})" for x in layers) or "none"
    msg = (
        f"{source} has no layer of lines, nor one of nodes and one of edges (columns u and v); "
        f"it has {listed}. Places without streets are read by pm.load_places"
    )
    raise NoStreetsError(msg)


def graph_network(graph: Any, options: MapOptions, source: str) -> City:
    """The network of a graph of NetworkX, OSMnx or igraph whose nodes have coordinates."""
    pandas = need("pandas", "reading a graph", "geo")
    if hasattr(graph, "get_vertex_dataframe"):
        nodes, edges = graph.get_vertex_dataframe(), graph.get_edge_dataframe()
        crs = graph["crs"] if "crs" in graph.attributes() else None
    else:
        networkx = need("networkx", "reading a graph", "geo")
        nodes = pandas.DataFrame.from_dict(dict(graph.nodes(data=True)), orient="index")
        edges, crs = networkx.to_pandas_edgelist(graph), graph.graph.get("crs")
    nodes.attrs["crs"] = crs
    ids, directed = nodes.index.tolist(), bool(graph.is_directed())
    return table_network(nodes, ids, edges, options, source, directed=directed)


def table_network(
    nodes: Frame,
    ids: list[Any],
    edges: Frame,
    options: MapOptions,
    source: str,
    *,
    directed: bool = True,
) -> City:
    """Streets from tables of nodes and edges."""
    flags = column(edges, "oneway")
    missing = [None] * len(edges)
    crs = getattr(nodes, "crs", None) or nodes.attrs.get("crs")
    return Arcs(
        source,
        ids,
        _node_places(nodes, source),
        _ends(edges) or [],
        np.array(column(edges, "length", "length_m", "weight") or missing, dtype=np.float64),
        _speeds(line_tags(edges), options),
        None if flags is None else np.array([str(flag).lower() in YES for flag in flags]),
        crs,
        directed,
    ).city(options)


def line_network(lines: Frame, options: MapOptions, source: str) -> City:
    """A street per piece between two vertices; lines meet where they share a vertex."""
    shapely = need("shapely", "reading lines", "geo")
    tags = line_tags(lines)
    usable = np.flatnonzero(_usable(lines, tags, options))
    parts, row = shapely.get_parts(lines.geometry.to_numpy()[usable], return_index=True)
    places, part = shapely.get_coordinates(parts, return_index=True)
    joined = part[1:] == part[:-1]
    _, first, node = np.unique(places, axis=0, return_index=True, return_inverse=True)
    node = node.reshape(-1)
    # A place named twice in a row is a slip of the mapper's hand, not a piece of road.
    joined &= node[1:] != node[:-1]
    line = usable[row[part[1:][joined]]]
    way = np.array([direction(each, options.network) for each in tags], dtype=np.int64)[line]
    if not joined.any():
        msg = (
            f"{source} has no roads for network {options.network!r}; "
            "choose another network ('drive', 'walk', 'bike') or another file"
        )
        raise CityError(msg)
    a, b = node[:-1][joined], node[1:][joined]
    a, b = np.where(way < 0, b, a), np.where(way < 0, a, b)
    where = f"{source}, layer {lines.attrs.get('layer', 'of the frame')}"
    x, y = places[first].T
    lon, lat = to_degrees(x, y, options.crs or lines.crs, where)
    speed = _speeds(tags, options)
    return City(
        lat,
        lon,
        a,
        b,
        np.asarray(1000 * haversine_km(lat[a], lon[a], lat[b], lon[b])),
        oneway=np.asarray(way != 0),
        speed_kmh=None if speed is None else speed[line],
    )


def line_tags(frame: Frame) -> list[dict[str, str]]:
    """What OpenStreetMap says of each row, whatever the columns are called."""
    oneway = [str(value).strip().lower() for value in column(frame, "oneway") or ()]
    # Geofabrik writes B, F and T (against the line); elsewhere T is "true".
    words = {"f": "yes", "ft": "yes", "t": "-1", "tf": "-1"} if "b" in oneway else {"t": "yes"}
    columns = {
        "highway": column(frame, *CLASSES),
        "maxspeed": column(frame, "maxspeed"),
        "oneway": [words.get(word, word) for word in oneway] or None,
    }
    tags: list[dict[str, str]] = [{} for _ in range(len(frame))]
    for key, values in columns.items():
        for row, value in zip(tags, values or (), strict=values is not None):
            if value is not None:
                row[key] = str(value)
    for row, text in zip(tags, column(frame, "other_tags") or (), strict=False):
        row.update(_TAG.findall(text or ""))
    return tags


def _usable(lines: Frame, tags: list[dict[str, str]], options: MapOptions) -> BoolArray:
    """Lines that the traveller may use; all where the layer names no class of road."""
    present = np.asarray(~(lines.geometry.isna() | lines.geometry.is_empty), dtype=np.bool_)
    if column(lines, *CLASSES) is None:
        return present
    fit = present & np.array([allowed(each, options.network) for each in tags], dtype=np.bool_)
    # Classes of another vocabulary than OpenStreetMap's say nothing about travellers.
    foreign = column(lines, "highway", "fclass") is None and not fit.any()
    return present if foreign else fit


def _speeds(tags: list[dict[str, str]], options: MapOptions) -> FloatArray | None:
    """A speed in km/h per row: the signed one, else the class's; None where neither is told."""
    if not any("maxspeed" in each or "highway" in each for each in tags):
        return None
    return np.array([speed_kmh(each, options.network) for each in tags])


def column(frame: Frame, *names: str) -> list[Any] | None:
    """The first of some columns that there is, names in any case; None for what is missing."""
    name = find_name(getattr(frame, "columns", ()), *names)
    if name is None:
        return None
    found = frame[name]
    return list(found.astype(object).where(found.notna(), None))


def find_name(present: Iterable[Any], *wanted: str) -> Any:
    """The first of the wanted names that is present, in any case; None where none is."""
    lower = {str(name).lower(): name for name in present}
    return next((lower[name] for name in wanted if name in lower), None)


def shape_kind(frame: Frame) -> str:
    """`point`, `line`, `polygon` or `none`: what most of a layer's shapes are."""
    if not hasattr(frame, "geometry"):
        return "none"
    dimensions = need("shapely", "reading shapes", "geo").get_dimensions(frame.geometry.to_numpy())
    present = dimensions[dimensions >= 0]
    return ("point", "line", "polygon")[np.bincount(present).argmax()] if len(present) else "none"


def _ends(frame: Frame) -> list[tuple[Any, Any]] | None:
    for first, second in ENDS:
        start, stop = column(frame, first), column(frame, second)
        if start is not None and stop is not None:
            return list(zip(start, stop, strict=True))
    return None


def _node_places(nodes: Frame, source: str) -> FloatArray:
    pairs: Any = column(nodes, "pos")
    for first, second in PLACES:
        x, y = column(nodes, first), column(nodes, second)
        if x is not None and y is not None:
            pairs = list(zip(x, y, strict=True))
            break
    if shape_kind(nodes) == "point":
        pairs = need("shapely", "reading points", "geo").get_coordinates(nodes.geometry)
    if pairs is None or len(pairs) != len(nodes):
        msg = f"nodes of {source} need coordinates: x and y, lon and lat, pos, or one point each"
        raise FileFormatError(msg)
    return np.array(pairs, dtype=np.float64)
