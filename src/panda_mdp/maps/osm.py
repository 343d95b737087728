"""OpenStreetMap extracts, `.osm.pbf` and `.osm`, through osmium.

Two passes: the ways that the traveller may use, then the places of the nodes that they name.
Filters run inside osmium, so what is no road never reaches Python.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from panda_mdp._arrays import IntArray
from panda_mdp.errors import CityError, FileFormatError
from panda_mdp.maps.network import Network, need, positions
from panda_mdp.maps.options import MapOptions
from panda_mdp.maps.roads import allowed, direction, speed_kmh
from panda_mdp.metrics import haversine_km


def read_osm(path: Path, options: MapOptions) -> Network:
    """The pieces of road of an extract, between consecutive nodes of its ways."""
    try:
        import osmium
    except ImportError as error:
        raise need("osmium", "reading OpenStreetMap extracts", "geo") from error
    try:
        return _read(osmium, path, options)
    except (RuntimeError, UnicodeDecodeError) as error:
        msg = f"{path.name} is damaged, cut short or no OpenStreetMap file ({error})"
        raise FileFormatError(msg) from error


def _read(osmium: Any, path: Path, options: MapOptions) -> Network:
    refs: list[int] = []
    counts: list[int] = []
    directions: list[int] = []
    speeds: list[float] = []
    ways = osmium.FileProcessor(str(path), osmium.osm.WAY)
    for way in ways.with_filter(osmium.filter.KeyFilter("highway")):
        tags = way.tags
        if not allowed(tags, options.network):
            continue
        nodes = [node.ref for node in way.nodes]
        if len(nodes) < 2:
            continue
        refs += nodes
        counts.append(len(nodes))
        directions.append(direction(tags, options.network))
        speeds.append(speed_kmh(tags, options.network))
    if not counts:
        msg = (
            f"{path.name} has no roads for network {options.network!r}; "
            "choose another network ('drive', 'walk', 'bike') or another file"
        )
        raise CityError(msg)
    ids = np.unique(np.array(refs, dtype=np.int64))
    lat, lon = _places(osmium, path, ids)
    return _segments(
        ids,
        lat,
        lon,
        np.array(refs, dtype=np.int64),
        np.array(counts, dtype=np.int64),
        np.array(directions, dtype=np.int64),
        np.array(speeds),
    )


def _places(osmium: Any, path: Path, ids: IntArray) -> tuple[Any, Any]:
    """Latitude and longitude of each node id; NaN where the extract does not hold it."""
    lat, lon = np.full(len(ids), np.nan), np.full(len(ids), np.nan)
    found: list[int] = []
    places: list[float] = []
    nodes = osmium.FileProcessor(str(path), osmium.osm.NODE)
    for node in nodes.with_filter(osmium.filter.IdFilter(ids.tolist())):
        where = node.location
        if where.valid():
            found.append(node.id)
            places += (where.lat, where.lon)
    at, _ = positions(ids, np.array(found, dtype=np.int64))
    lat[at], lon[at] = places[0::2], places[1::2]
    return lat, lon


def _segments(
    ids: IntArray,
    lat: Any,
    lon: Any,
    refs: IntArray,
    counts: IntArray,
    directions: IntArray,
    speeds: Any,
) -> Network:
    at, _ = positions(ids, refs)
    way = np.repeat(np.arange(len(counts)), counts)
    within = way[1:] == way[:-1]
    a, b, of = at[:-1][within], at[1:][within], way[:-1][within]
    length = 1000 * haversine_km(lat[a], lon[a], lat[b], lon[b])
    known = np.isfinite(length)
    # A node named twice in a row is a slip of the mapper's hand, not a piece of road.
    kept = known & (a != b)
    a, b, of, length = a[kept], b[kept], of[kept], length[kept]
    against = directions[of] < 0
    return Network(
        osmid=ids,
        lat=np.where(np.isfinite(lat), lat, 0.0),
        lon=np.where(np.isfinite(lon), lon, 0.0),
        a=np.where(against, b, a),
        b=np.where(against, a, b),
        length_m=length,
        oneway=directions[of] != 0,
        speed_kmh=speeds[of],
        raw=True,
        incomplete=int((~known).sum()),
    )
