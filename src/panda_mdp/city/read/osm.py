"""OpenStreetMap extracts, `.osm.pbf` and `.osm`, through osmium.

One pass: osmium keeps the places of nodes and hands over the ways, with what is no road filtered
out before it reaches Python. Nodes that a file names only after its ways are looked up in a second.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.city.read.map_options import MapOptions
from panda_mdp.city.read.network import Network, need, positions
from panda_mdp.city.read.roads import allowed, direction, speed_kmh
from panda_mdp.errors import CityError, FileFormatError
from panda_mdp.space.metrics import haversine_km

UNKNOWN = 2**31 - 1
"""The coordinate that osmium gives to a node without a place."""


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
    east: list[int] = []
    north: list[int] = []
    counts: list[int] = []
    directions: list[int] = []
    speeds: list[float] = []
    entities = osmium.FileProcessor(str(path), osmium.osm.NODE | osmium.osm.WAY)
    ways = entities.with_locations("flex_mem").with_filter(
        osmium.filter.EntityFilter(osmium.osm.WAY)
    )
    for way in ways.with_filter(osmium.filter.KeyFilter("highway")):
        tags = way.tags
        if not allowed(tags, options.network):
            continue
        nodes = list(way.nodes)
        if len(nodes) < 2:
            continue
        refs += [node.ref for node in nodes]
        places = [node.location for node in nodes]
        east += [place.x for place in places]
        north += [place.y for place in places]
        counts.append(len(nodes))
        directions.append(direction(tags, options.network))
        speeds.append(speed_kmh(tags, options.network))
    if not counts:
        msg = (
            f"{path.name} has no roads for network {options.network!r}; "
            "choose another network ('drive', 'walk', 'bike') or another file"
        )
        raise CityError(msg)
    named = np.array(refs, dtype=np.int64)
    ids, first = np.unique(named, return_index=True)
    lon, lat = _degrees(east, first), _degrees(north, first)
    missing = np.flatnonzero(np.isnan(lat))
    if len(missing):
        lat[missing], lon[missing] = _look_up(osmium, path, ids[missing])
    return _segments(
        ids,
        lat,
        lon,
        named,
        np.array(counts, dtype=np.int64),
        np.array(directions, dtype=np.int64),
        np.array(speeds),
    )


def _degrees(steps: list[int], chosen: IntArray) -> FloatArray:
    """Coordinates from osmium's whole steps of 1e-7 degrees; NaN where a place is not known."""
    whole = np.array(steps, dtype=np.int64)[chosen]
    return np.where(whole == UNKNOWN, np.nan, whole / 1e7)


def _look_up(osmium: Any, path: Path, ids: IntArray) -> tuple[FloatArray, FloatArray]:
    """Latitude and longitude of node ids, ascending; NaN where the extract does not hold them."""
    lat, lon = np.full(len(ids), np.nan), np.full(len(ids), np.nan)
    nodes = osmium.FileProcessor(str(path), osmium.osm.NODE)
    for node in nodes.with_filter(osmium.filter.IdFilter(ids.tolist())):
        where = node.location
        if where.valid():
            at = int(np.searchsorted(ids, node.id))
            lat[at], lon[at] = where.lat, where.lon
    return lat, lon


def _segments(
    ids: IntArray,
    lat: FloatArray,
    lon: FloatArray,
    refs: IntArray,
    counts: IntArray,
    directions: IntArray,
    speeds: FloatArray,
) -> Network:
    at, _ = positions(ids, refs)
    way = np.repeat(np.arange(len(counts)), counts)
    within = way[1:] == way[:-1]
    a, b, of = at[:-1][within], at[1:][within], way[:-1][within]
    length = 1000 * haversine_km(lat[a], lon[a], lat[b], lon[b])
    known = np.isfinite(length)
    # A node named twice in a row is a slip of the mapper's hand, not a piece of road.
    usable = known & (a != b)
    a, b, of, length = a[usable], b[usable], of[usable], length[usable]
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
