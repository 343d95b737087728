"""Maps in: road networks from files, each format in its own module.

    read_osm, read_graphml, read_geopackage, ...  ->  Network  ->  assemble  ->  MapReport

An importer hands over pieces of road as its file has them; `assemble` cuts to the area, contracts
chains and keeps the largest connected part, the same for all.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from panda_mdp.city import City
from panda_mdp.errors import FileFormatError
from panda_mdp.maps.network import MapReport, Network, assemble, plain_name
from panda_mdp.maps.options import MapOptions

OSM = (".osm.pbf", ".osm", ".osm.gz", ".osm.bz2", ".pbf")
SUFFIXES = (".npz", *OSM, ".graphml", ".gpkg", ".parquet", ".sqlite")


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
        from panda_mdp.maps.osm import read_osm

        return assemble(read_osm(path, chosen), chosen, "OpenStreetMap", plain_name(path))
    if name.endswith(".graphml"):
        from panda_mdp.maps.graphml import read_graphml

        return assemble(read_graphml(path), chosen, "GraphML", plain_name(path))
    if name.endswith((".gpkg", ".sqlite")):
        from panda_mdp.maps.geopackage import read_sqlite

        network, source = read_sqlite(path, chosen)
        return assemble(network, chosen, source, plain_name(path))
    if name.endswith(".parquet") or path.is_dir():
        from panda_mdp.maps.geoparquet import read_geoparquet

        return assemble(read_geoparquet(path), chosen, "GeoParquet", plain_name(path))
    msg = f"{path.name} has an unknown suffix; known: {', '.join(SUFFIXES)}"
    raise FileFormatError(msg)


def _npz(path: Path, options: MapOptions) -> MapReport:
    """A city as it is; cut or contracted only where that was asked for."""
    from panda_mdp.maps.npz import load_npz

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


__all__ = ["MapOptions", "MapReport", "read_map"]
