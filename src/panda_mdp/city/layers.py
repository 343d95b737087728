"""Geographic layers and graphs as road networks: lines that meet, or nodes and edges.

GeoPandas reads the files (OpenStreetMap extracts too, through GDAL), pyproj turns coordinates into
degrees; what is here finds what is looked for, and refuses what cannot be right.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from panda_mdp.base.packages import need
from panda_mdp.city.city import City
from panda_mdp.city.network import Element, MapOptions, Values, to_degrees
from panda_mdp.city.roads import allowed
from panda_mdp.errors import CityError, FileFormatError
from panda_mdp.space.metrics import haversine_km

Frame = Any
"""A GeoDataFrame, or a DataFrame where a layer has no shapes."""
Shapes = npt.NDArray[np.object_]
XML = (".osm", ".osm.gz")
OSM = (*XML, ".osm.pbf", ".pbf")
PARQUET = (".parquet", ".geoparquet")
NAMES = {
    **dict.fromkeys(("lon", "longitude"), "x"),
    **dict.fromkeys(("lat", "latitude"), "y"),
    **dict.fromkeys(("length_m", "weight"), "length"),
}
"""OSMnx's names of what others call so."""
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
        raise FileFormatError(
            f"{path.name} is damaged or of a foreign format ({str(error).splitlines()[0]})"
        ) from error
    for layer, frame in layers.items():
        frame.attrs["layer"] = layer
    return list(layers.values())


def read_vector(path: Path, options: MapOptions) -> City:
    """The network of an OpenStreetMap extract, GeoPackage, shapefile, GeoJSON or GeoParquet."""
    if path.name.lower().endswith(OSM):
        (roads,) = read_layers(path, "lines", where="highway IS NOT NULL")
        return line_network(roads, options, path.name)
    layers = read_layers(path)
    kinds = [shape_kind(layer) for layer in layers]
    if "line" in kinds:
        return line_network(layers[kinds.index("line")], options, path.name)
    named = zip(layers, kinds, strict=True)
    listed = ", ".join(f"{layer.attrs['layer']} ({kind})" for layer, kind in named) or "none"
    raise NoStreetsError(
        f"{path.name} has no layer of lines; it has {listed}. Places without streets are read by "
        "pm.load_places"
    )


def object_elements(graph: Any) -> Iterator[Element]:
    """The elements of a graph of NetworkX, OSMnx or igraph."""
    # igraph's own way to NetworkX.
    graph = graph.to_networkx() if hasattr(graph, "to_networkx") else graph
    # What is made by hand has junctions alone; OSMnx says where a graph has not.
    yield "graph", None, _said({"simplified": True} | graph.graph)
    for name, data in graph.nodes(data=True):
        yield "node", name, _said(data)
    for start, stop, data in graph.edges(data=True):
        yield "edge", (start, stop), _said(data)


def _said(data: Mapping[str, Any]) -> Values:
    """What is said of an element, in words, by OSMnx's names."""
    said = {str(key).lower(): str(value) for key, value in data.items() if value is not None}
    said = dict(zip("xy", map(str, data.get("pos", ())), strict=False)) | said
    return {NAMES[key]: value for key, value in said.items() if key in NAMES} | said


def line_network(lines: Frame, options: MapOptions, source: str) -> City:
    """A street per piece between two vertices; lines meet where they share a vertex."""
    shapely = need("shapely", "reading lines", "geo")
    shapes = lines.geometry.to_numpy()
    kind = find_name(getattr(lines, "columns", ()), "highway", "fclass")
    # Where no class of road is named, every line is one.
    if kind is not None:
        fit = [allowed(tags, options.network) for tags in _tags(lines, kind)]
        shapes = shapes[np.flatnonzero(fit)]
    parts = shapely.get_parts(shapes)
    places, part = shapely.get_coordinates(parts, return_index=True)
    joined = part[1:] == part[:-1]
    _, first, node = np.unique(places, axis=0, return_index=True, return_inverse=True)
    node = node.reshape(-1)
    # A place named twice in a row is a slip of the mapper's hand, not a piece of road.
    joined &= node[1:] != node[:-1]
    if not joined.any():
        raise CityError(
            f"{source} has no roads for network {options.network!r}; "
            "choose another network ('drive', 'walk', 'bike') or another file"
        )
    # Some files have a line for each direction.
    ends = np.sort([node[:-1][joined], node[1:][joined]], axis=0)
    a, b = np.unique(ends, axis=1)
    where = f"{source}, layer {lines.attrs.get('layer', 'of the frame')}"
    x, y = places[first].T
    lon, lat = to_degrees(x, y, system_of(lines, options.crs, where), where)
    return City(lat, lon, a, b, 1000 * haversine_km(lat[a], lon[a], lat[b], lon[b]))


def _tags(frame: Frame, kind: Any) -> Iterator[dict[str, str]]:
    """What OpenStreetMap says of each row, of which a column says what kind of road it is."""
    other = frame["other_tags"] if "other_tags" in frame else [None] * len(frame)
    for highway, more in zip(frame[kind], other, strict=True):
        # What is missing is None or NaN.
        named = {"highway": str(highway)} if isinstance(highway, str | list) else {}
        yield named | dict(_TAG.findall(more if isinstance(more, str) else ""))


def system_of(frame: Frame, crs: Any, source: str) -> Any:
    """The reference system of a layer of shapes: the one that is said, or its own.

    A file without one is not taken for degrees: metres of a local grid can look like them.
    """
    system = crs or getattr(frame, "crs", None) or frame.attrs.get("crs")
    if system is None:
        raise FileFormatError(
            f"{source} names no reference system; say which its coordinates are in: "
            "crs='EPSG:...' (--crs), EPSG:4326 for degrees"
        )
    return system


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
