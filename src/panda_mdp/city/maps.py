"""Maps in: road networks from files, graphs and frames, and places by name.

npz, GraphML, layers, graphs  ->  pieces of road  ->  assemble  ->  MapReport
"""

from __future__ import annotations

import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from panda_mdp.base.atomic import FilePath
from panda_mdp.base.packages import need
from panda_mdp.city.city import COLUMNS, City
from panda_mdp.city.graphml import read_graphml
from panda_mdp.city.layers import OSM, PARQUET, graph_network, layer_network, read_vector
from panda_mdp.city.network import MapOptions, MapReport, assemble
from panda_mdp.errors import CityError, FileFormatError

SUFFIXES = (".npz", ".graphml", ".gpkg", ".shp", ".zip", ".geojson", ".fgb", *PARQUET, *OSM)
"""What is read."""


def read_map(path: Path, options: MapOptions | None = None) -> MapReport:
    """Read a map of any known format, the suffix decides; say what was left out."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    asked = options or MapOptions()
    name, *suffix = path.name.split(".")
    if not path.name.lower().endswith(SUFFIXES):
        raise FileFormatError(f"{path.name} has an unknown suffix; known: {', '.join(SUFFIXES)}")
    if path.suffix.lower() == ".npz":
        city = load_npz(path)
        # A city is taken as it is; cut or contracted only where that was asked for.
        if asked.bbox is None and not asked.simplify:
            return MapReport(city, "npz", segments=len(city.u))
        return assemble(city, asked, "npz", city.name, raw=False)
    read = read_graphml if path.suffix.lower() == ".graphml" else read_vector
    city, raw = read(path, asked)
    return assemble(city, asked, ".".join(suffix), name, raw=raw)


def load_city(source: FilePath | Any, options: MapOptions | None = None) -> City:
    """Read a road network; the suffix of a file tells the format.

    `.npz` holds arrays `lat`, `lon` (degrees), `u`, `v` (node indices), `length_m`, and optionally
    `oneway`, `speed_kmh` and `osmid`. `.osm.pbf` and `.osm` are OpenStreetMap extracts, `.graphml`
    is OSMnx's, `.gpkg`, `.shp`, `.geojson` and `.parquet` are tables of nodes and edges or lines,
    in any reference system. A graph of NetworkX, OSMnx or igraph, or a GeoDataFrame of lines, may
    be given itself. `options` choose the network and the area for maps that are imported.
    """
    asked = options or MapOptions()
    if isinstance(source, str | os.PathLike):
        return read_map(Path(source), options).city
    if hasattr(source, "geometry"):
        city, raw = layer_network([source], asked, "the frame")
    elif hasattr(source, "is_directed"):
        city, raw = graph_network(source, asked, "the graph"), False
    else:
        raise CityError(
            f"{type(source).__name__} is no map; give a path, a graph or a GeoDataFrame"
        )
    return assemble(city, asked, "object", "", raw=raw).city


def fetch_place(place: str, options: MapOptions | None = None) -> MapReport:
    """Download the street network of a place by name, for example 'Modena, Italy'.

    Asks OpenStreetMap's servers through OSMnx: the name of the place leaves this machine.
    """
    osmnx = need("osmnx", "fetching a place by name", "geo")
    asked = options or MapOptions()
    try:
        graph = osmnx.graph_from_place(place, network_type=asked.network)
    except (OSError, ValueError, TypeError) as error:
        raise CityError(
            f"OSMnx could not fetch {place!r} ({error}); check the name and the connection"
        ) from error
    city, name = graph_network(graph, asked, place), place.partition(",")[0]
    return assemble(city, asked, "OSMnx", name, raw=False)


def load_npz(path: Path) -> City:
    """Read a city from `.npz`; what is missing, damaged or not a network is named."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in (*COLUMNS, "name") if name in archive}
    except (zipfile.BadZipFile, zlib.error, EOFError, TypeError, ValueError) as error:
        raise FileFormatError(
            f"{path.name} is damaged, or no .npz archive of numbers ({error})"
        ) from error
    name = str(arrays.pop("name", path.stem))
    try:
        return City(**arrays, name=name)
    except (CityError, TypeError, ValueError) as error:
        raise FileFormatError(f"{path.name} does not hold a road network: {error}") from error


__all__ = ["MapOptions", "MapReport", "fetch_place", "load_city", "read_map"]
