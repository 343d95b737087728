"""Cities out: NumPy archives, the project's own format, and OSMnx's GraphML."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from panda_mdp.base.atomic import atomic_file

if TYPE_CHECKING:
    from panda_mdp.city.city import City

REQUIRED = ("lat", "lon", "u", "v", "length_m")
OPTIONAL = ("oneway", "speed_kmh", "osmid")
KEYS = {
    "graph": ("created_with", "crs", "simplified"),
    "node": ("y", "x"),
    "edge": ("length", "oneway", "reversed", "speed_kph"),
}
"""The values that are written of the graph, of each node and of each edge."""


def save_npz(city: City, path: Path) -> Path:
    """Write a city as compressed `.npz`; a reader never sees half a file."""
    arrays = {name: getattr(city, name) for name in REQUIRED}
    arrays |= {name: getattr(city, name) for name in OPTIONAL if getattr(city, name) is not None}
    with atomic_file(path) as stream:
        np.savez_compressed(stream, allow_pickle=False, name=np.array(city.name), **arrays)
    return path


def save_graphml(city: City, path: Path) -> Path:
    """Write a city as OSMnx does, both directions of a two-way street as two edges; atomically."""
    with atomic_file(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8")
        _write(city, text.write)
        # Flushes, and leaves the stream open for the one who opened it.
        text.detach()
    return path


def _write(city: City, write: Callable[[str], object]) -> None:
    write("<?xml version='1.0' encoding='utf-8'?>\n")
    write('<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n')
    for kind, names in KEYS.items():
        for name in names:
            if name != "speed_kph" or city.speed_kmh is not None:
                about = f'for="{kind}" attr.name="{name}" attr.type="string"'
                write(f'  <key id="{_key(kind, name)}" {about} />\n')
    write('  <graph edgedefault="directed">\n    ')
    write(_data("graph", "panda-mdp", "epsg:4326", True) + "\n")
    ids = (np.arange(city.nodes) if city.osmid is None else city.osmid).tolist()
    for number, lat, lon in zip(ids, city.lat.tolist(), city.lon.tolist(), strict=True):
        write(f'    <node id="{number}">{_data("node", lat, lon)}</node>\n')
    oneway = [False] * len(city.u) if city.oneway is None else city.oneway.tolist()
    speeds = [()] * len(city.u) if city.speed_kmh is None else city.speed_kmh[:, None].tolist()
    keys: dict[tuple[int, int], int] = {}
    streets = (city.u.tolist(), city.v.tolist(), city.length_m.tolist(), oneway, speeds)
    for u, v, length, single, speed in zip(*streets, strict=True):
        for a, b, back in [(u, v, False), (v, u, True)][: 1 if single else 2]:
            keys[a, b] = number = keys.get((a, b), -1) + 1
            write(f'    <edge source="{ids[a]}" target="{ids[b]}" id="{number}">')
            write(_data("edge", length, single, back, *speed) + "</edge>\n")
    write("  </graph>\n</graphml>\n")


def _data(kind: str, *values: object) -> str:
    named = zip(KEYS[kind], values, strict=False)
    return "".join(f'<data key="{_key(kind, name)}">{value}</data>' for name, value in named)


@cache
def _key(kind: str, name: str) -> str:
    return f"{kind[0]}{KEYS[kind].index(name)}"
