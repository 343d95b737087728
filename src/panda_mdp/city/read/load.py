"""Maps in: road networks from files, each format in its own module.

    read_osm, read_graphml, read_vector, ...  ->  Network  ->  assemble  ->  MapReport

An importer hands over pieces of road as its file has them; `assemble` cuts to the area, contracts
chains and keeps the largest connected part, the same for all.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from panda_mdp.city.city import City
from panda_mdp.city.read.assembly import MapReport, assemble
from panda_mdp.city.read.map_options import MapOptions
from panda_mdp.city.read.network import Network, plain_name
from panda_mdp.errors import CityError, FileFormatError

OSM = (".osm.pbf", ".osm", ".osm.gz", ".osm.bz2", ".pbf")
GEO = (".gpkg", ".shp", ".geojson", ".fgb", ".zip", ".parquet", ".geoparquet")
SUFFIXES = (".npz", *OSM, ".graphml", *GEO, ".json", ".sqlite")
GEO_NAMES = {".gpkg": "GeoPackage", ".shp": "shapefile", ".zip": "shapefile", ".geojson": "GeoJSON",
             ".fgb": "FlatGeobuf"}  # fmt: skip


def read_map(path: Path, options: MapOptions | None = None) -> MapReport:
    """Read a map of any known format, the suffix decides; say what was left out."""
    if not path.exists():
        msg = f"{path} does not exist"
        raise FileNotFoundError(msg)
    chosen = options or MapOptions()
    name = path.name.lower()
    if name.endswith(".npz"):
        return _npz(path, chosen)
    if name.endswith(OSM):
        from panda_mdp.city.read.osm import read_osm

        return assemble(read_osm(path, chosen), chosen, "OpenStreetMap", plain_name(path))
    if name.endswith(".graphml"):
        from panda_mdp.city.read.graphml import read_graphml

        return assemble(read_graphml(path), chosen, "GraphML", plain_name(path))
    if name.endswith(".sqlite"):
        from panda_mdp.city.read.aequilibrae import read_aequilibrae

        return assemble(read_aequilibrae(path, chosen), chosen, "AequilibraE", plain_name(path))
    if name.endswith(".json"):
        from panda_mdp.city.read.graphs import read_node_link

        return assemble(read_node_link(path, chosen), chosen, "node-link JSON", plain_name(path))
    if name.endswith(GEO) or path.is_dir():
        from panda_mdp.city.read.vector import read_vector

        kind = GEO_NAMES.get(path.suffix.lower(), "GeoParquet")
        return assemble(read_vector(path, chosen), chosen, kind, plain_name(path))
    msg = f"{path.name} has an unknown suffix; known: {', '.join(SUFFIXES)}"
    raise FileFormatError(msg)


def load_city(path: str | os.PathLike[str] | Any, options: MapOptions | None = None) -> City:
    """Read a road network; the suffix tells the format.

    `.npz` holds arrays `lat`, `lon` (degrees), `u`, `v` (node indices), `length_m`, and optionally
    `oneway`, `speed_kmh` and `osmid`. `.osm.pbf` and `.osm` are OpenStreetMap extracts, `.graphml`
    is OSMnx's, `.gpkg`, `.shp`, `.geojson` and `.parquet` are tables of nodes and edges or lines,
    in any reference system, `.json` is NetworkX's node-link format. A graph of NetworkX, OSMnx or
    igraph, or a GeoDataFrame of lines, may be given itself. `options` choose the network and the
    area for maps that are imported.
    """
    chosen = options or MapOptions()
    if hasattr(path, "geometry"):
        from panda_mdp.city.read.layers import frame_layer
        from panda_mdp.city.read.vector import network_of

        network = network_of([frame_layer(path)], chosen, "the frame")
        return assemble(network, chosen, "GeoDataFrame", "").city
    if isinstance(path, str | os.PathLike):
        return read_map(Path(path), options).city
    from panda_mdp.city.read.graphs import is_graph, read_graph

    if not is_graph(path):
        msg = f"{type(path).__name__} is no map; give a path, a graph or a GeoDataFrame"
        raise CityError(msg)
    return assemble(read_graph(path, chosen), chosen, "graph", "").city


def _npz(path: Path, options: MapOptions) -> MapReport:
    """A city as it is; cut or contracted only where that was asked for."""
    from panda_mdp.city.read.npz import load_npz

    city = load_npz(path)
    if options.bbox is None and not options.simplify:
        return MapReport(city, "npz", segments=len(city.u))
    return assemble(_as_network(city), options, "npz", city.name)


def _as_network(city: City) -> Network:
    streets = len(city.u)
    return Network(
        osmid=np.arange(city.nodes) if city.osmid is None else city.osmid,
        lat=city.lat,
        lon=city.lon,
        a=city.u,
        b=city.v,
        length_m=city.length_m,
        oneway=np.zeros(streets, dtype=np.bool_) if city.oneway is None else city.oneway,
        speed_kmh=city.speed_kmh,
        raw=False,
    )


__all__ = ["MapOptions", "MapReport", "load_city", "read_map"]
