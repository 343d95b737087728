"""Maps in: road networks from files, graphs and frames.

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
from panda_mdp.city.city import COLUMNS, City
from panda_mdp.city.layers import OSM, PARQUET, line_network, object_elements, read_vector
from panda_mdp.city.network import (
    MapOptions,
    MapReport,
    assemble,
    graph_city,
    graph_elements,
)
from panda_mdp.errors import CityError, FileFormatError

SUFFIXES = (".npz", ".graphml", ".gpkg", ".shp", ".zip", ".geojson", ".fgb", *PARQUET, *OSM)
"""What is read."""


def read_map(path: Path, options: MapOptions | None = None) -> MapReport:
    """Read a map of any known format, the suffix decides; say what was left out."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file; give a road map")
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
    if path.suffix.lower() == ".graphml":
        city, raw = graph_city(graph_elements(path), asked.crs, path.name)
    else:
        city, raw = read_vector(path, asked), True
    return assemble(city, asked, ".".join(suffix), name, raw=raw)


def load_city(source: FilePath | Any, options: MapOptions | None = None) -> City:
    """Read a road network; the suffix of a file tells the format.

    `.npz` holds arrays `lat`, `lon` (degrees), `u`, `v` (node indices) and `length_m`. `.osm.pbf`
    and `.osm` are OpenStreetMap extracts, `.graphml` is OSMnx's, `.gpkg`, `.shp`, `.geojson` and
    `.parquet` are lines, in any reference system. A graph of NetworkX,
    OSMnx or igraph, or a GeoDataFrame of lines, may be given itself. `options` choose the network
    and the area for maps that are imported.
    """
    asked = options or MapOptions()
    if isinstance(source, str | os.PathLike):
        return read_map(Path(source), options).city
    if hasattr(source, "geometry"):
        city, raw = line_network(source, asked, "the frame"), True
    elif hasattr(source, "is_directed"):
        city, raw = graph_city(object_elements(source), asked.crs, "the graph")
    else:
        raise CityError(
            f"{type(source).__name__} is no map; give a path, a graph or a GeoDataFrame"
        )
    return assemble(city, asked, "object", "", raw=raw).city


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


__all__ = ["MapOptions", "MapReport", "load_city", "read_map"]
