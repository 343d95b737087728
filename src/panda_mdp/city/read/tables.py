"""Tables of nodes and edges, as GIS programs and OSMnx write them, become a network."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.city.read.network import Network, join_directions
from panda_mdp.city.read.roads import DRIVE_SPEEDS, parse_speed
from panda_mdp.errors import FileFormatError
from panda_mdp.space.metrics import haversine_km

YES = frozenset({"true", "1", "yes", "t"})
WKB_POINT = 1


@dataclass(frozen=True)
class NodeTable:
    """A row per node; ids may be numbers or names."""

    ids: Sequence[Any]
    lat: FloatArray
    lon: FloatArray


@dataclass(frozen=True)
class EdgeTable:
    """A row per edge, with what is known of it; None where the table lacks the column."""

    u: Sequence[Any]
    v: Sequence[Any]
    length_m: FloatArray | None = None
    oneway: Sequence[Any] | None = None
    maxspeed: Sequence[Any] | None = None
    highway: Sequence[Any] | None = None


def build_network(source: str, nodes: NodeTable, edges: EdgeTable) -> Network:
    """Streets from the tables; an edge and its way back of equal length are one street."""
    if len(nodes.ids) == 0 or len(edges.u) == 0:
        msg = f"{source} holds {len(nodes.ids)} nodes and {len(edges.u)} edges; it needs both"
        raise FileFormatError(msg)
    if not (np.isfinite(nodes.lat).all() and np.isfinite(nodes.lon).all()):
        msg = f"{source} has nodes without coordinates"
        raise FileFormatError(msg)
    if np.abs(nodes.lat).max() > 90 or np.abs(nodes.lon).max() > 360:
        msg = f"{source} has coordinates that are no degrees; save it unprojected (EPSG:4326)"
        raise FileFormatError(msg)
    a, b = _ends(source, nodes.ids, edges)
    straight = 1000 * haversine_km(nodes.lat[a], nodes.lon[a], nodes.lat[b], nodes.lon[b])
    length = straight
    if edges.length_m is not None:
        length = np.where(np.isfinite(edges.length_m), edges.length_m, straight)
    kept, single = join_directions(a, b, length)
    oneway = single
    if edges.oneway is not None:
        flags = np.array([str(value).lower() in YES for value in edges.oneway], dtype=np.bool_)
        oneway = single & flags[kept]
    speed = _speeds(edges)
    return Network(
        osmid=_numbers(nodes.ids),
        lat=nodes.lat,
        lon=nodes.lon,
        a=a[kept],
        b=b[kept],
        length_m=length[kept],
        oneway=oneway,
        speed_kmh=None if speed is None else speed[kept],
        raw=False,
    )


def point(blob: bytes | None, skip: int = 0) -> tuple[float, float]:
    """x and y of a well-known-binary point that starts `skip` bytes into a blob."""
    try:
        if blob is None:
            raise struct.error
        order = "<" if blob[skip] == 1 else ">"
        kind, x, y = struct.unpack_from(f"{order}Idd", blob, skip + 1)
    except (struct.error, IndexError, TypeError):
        return float("nan"), float("nan")
    # Dimensions beyond the plane are told in the thousands or the high bits of the kind.
    plain = (kind & 0xFFFF) % 1000 == WKB_POINT
    return (x, y) if plain else (float("nan"), float("nan"))


def _ends(source: str, ids: Sequence[Any], edges: EdgeTable) -> tuple[IntArray, IntArray]:
    position = {name: index for index, name in enumerate(ids)}
    try:
        a = np.array([position[name] for name in edges.u], dtype=np.int64)
        b = np.array([position[name] for name in edges.v], dtype=np.int64)
    except KeyError as error:
        msg = f"{source} has an edge to node {error}, which it does not hold"
        raise FileFormatError(msg) from error
    return a, b


def _speeds(edges: EdgeTable) -> FloatArray | None:
    if edges.maxspeed is None and edges.highway is None:
        return None
    count = len(edges.u)
    signed = edges.maxspeed if edges.maxspeed is not None else [""] * count
    kinds = edges.highway if edges.highway is not None else [""] * count
    known: dict[tuple[str, str], float] = {}
    speeds = np.empty(count)
    for k, key in enumerate(zip(map(str, signed), map(str, kinds), strict=True)):
        if key not in known:
            known[key] = listed_speed(*key)
        speeds[k] = known[key]
    return speeds


def listed_speed(signed: str, kind: str) -> float:
    """A speed from texts that may be Python lists, as OSMnx writes where merged roads differed.

    >>> listed_speed("['50', '30']", "residential"), listed_speed("", "['primary', 'tertiary']")
    (30.0, 60.0)
    """
    first = kind.strip("[]").replace("'", "").split(",")[0].strip()
    text = signed.strip("[]").replace("'", "").replace(",", ";")
    return parse_speed(text, DRIVE_SPEEDS.get(first, 40.0))


def _numbers(ids: Sequence[Any]) -> IntArray:
    try:
        return np.array([int(name) for name in ids], dtype=np.int64)
    except (ValueError, TypeError, OverflowError):
        return np.arange(len(ids))
