"""Tables of nodes and edges, as GIS programs and OSMnx write them, become a network."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.city.read.map_options import METRES
from panda_mdp.city.read.network import Network, join_directions
from panda_mdp.city.read.roads import DRIVE_SPEEDS, parse_speed
from panda_mdp.errors import FileFormatError
from panda_mdp.space.metrics import haversine_km

YES = frozenset({"true", "1", "yes", "t"})
WKB_POINT = 1
UNIT_STREETS_M = 5.0
"""Shorter streets tell little about the unit of their lengths."""


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
        swapped = np.abs(nodes.lon).max() <= 90 and np.abs(nodes.lat).max() <= 360
        remedy = (
            "latitude and longitude are exchanged: x is the longitude, y the latitude"
            if swapped
            else "save it unprojected (EPSG:4326)"
        )
        msg = f"{source} has coordinates that are no degrees; {remedy}"
        raise FileFormatError(msg)
    a, b = _ends(source, nodes.ids, edges)
    straight = 1000 * haversine_km(nodes.lat[a], nodes.lon[a], nodes.lat[b], nodes.lon[b])
    length = straight
    if edges.length_m is not None:
        _check_unit(source, edges.length_m, straight)
        length = np.where(np.isfinite(edges.length_m), edges.length_m, straight)
    retained, single = join_directions(a, b, length)
    oneway = single
    if edges.oneway is not None:
        flags = np.array([str(value).lower() in YES for value in edges.oneway], dtype=np.bool_)
        oneway = single & flags[retained]
    speed = street_speeds(edges.maxspeed, edges.highway, len(edges.u))
    return Network(
        osmid=_numbers(nodes.ids),
        lat=nodes.lat,
        lon=nodes.lon,
        a=a[retained],
        b=b[retained],
        length_m=length[retained],
        oneway=oneway,
        speed_kmh=None if speed is None else speed[retained],
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


def _check_unit(source: str, length_m: FloatArray, straight_m: FloatArray) -> None:
    """Refuse lengths that are in another unit: streets are about as long as they are far."""
    known = np.isfinite(length_m) & (length_m > 0) & (straight_m > UNIT_STREETS_M)
    if not known.any():
        return
    ratio = float(np.median(length_m[known] / straight_m[known]))
    for unit, metres in METRES.items():
        if unit != "m" and 0.9 < ratio * metres < 1.4:
            msg = (
                f"the streets of {source} are {ratio:.3g} times as long as their ends are apart: "
                f"the lengths seem to be in {unit}; say so: length_unit={unit!r} (--length-unit)"
            )
            raise FileFormatError(msg)


def floats(values: Sequence[Any]) -> FloatArray:
    """Numbers of a column; NaN where there is none."""
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def street_speeds(
    maxspeed: Sequence[Any] | None, highway: Sequence[Any] | None, count: int
) -> FloatArray | None:
    """A speed in km/h per row: the signed one, else the class's; None where neither is told."""
    if maxspeed is None and highway is None:
        return None
    signed = maxspeed if maxspeed is not None else [""] * count
    kinds = highway if highway is not None else [""] * count
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
    text = signed.strip("[]").replace("'", "").replace(",", ";")
    return parse_speed(text, DRIVE_SPEEDS.get(first_of(kind), 40.0))


def first_of(kind: str) -> str:
    """The first of what may be a list written as text."""
    return kind.strip("[]").replace("'", "").split(",")[0].strip()


def _numbers(ids: Sequence[Any]) -> IntArray:
    try:
        return np.array([int(name) for name in ids], dtype=np.int64)
    except (ValueError, TypeError, OverflowError):
        return np.arange(len(ids))
