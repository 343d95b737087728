"""Cities as OSMnx's `.graphml`."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

import numpy as np

from panda_mdp.base.atomic import atomic_file

if TYPE_CHECKING:
    from panda_mdp.city.city import City


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
    keys = [
        *((f"d{k}", "graph", name) for k, name in enumerate(("created_with", "crs", "simplified"))),
        *((f"d{k + 3}", "node", name) for k, name in enumerate(("y", "x"))),
        *((f"d{k + 5}", "edge", name) for k, name in enumerate(("length", "oneway", "reversed"))),
    ]
    if city.speed_kmh is not None:
        keys.append(("d8", "edge", "speed_kph"))
    for key, kind, name in keys:
        write(f'  <key id="{key}" for="{kind}" attr.name="{name}" attr.type="string" />\n')
    write('  <graph edgedefault="directed">\n    <data key="d0">panda-mdp</data>\n')
    write('    <data key="d1">epsg:4326</data>\n    <data key="d2">True</data>\n')
    ids = np.arange(city.nodes) if city.osmid is None else city.osmid
    for number, lat, lon in zip(ids.tolist(), city.lat.tolist(), city.lon.tolist(), strict=True):
        write(f'    <node id="{number}"><data key="d3">{lat!r}</data>')
        write(f'<data key="d4">{lon!r}</data></node>\n')
    for line in _edges(city, ids.tolist()):
        write(line)
    write("  </graph>\n</graphml>\n")


def _edges(city: City, ids: list[int]) -> Iterator[str]:
    oneway = [False] * len(city.u) if city.oneway is None else city.oneway.tolist()
    speeds: list[float | None] = [None] * len(city.u)
    if city.speed_kmh is not None:
        speeds = city.speed_kmh.tolist()
    used: dict[tuple[int, int], int] = {}
    rows = zip(
        city.u.tolist(), city.v.tolist(), city.length_m.tolist(), oneway, speeds, strict=True
    )
    for u, v, length, one, speed in rows:
        limit = "" if speed is None else f'<data key="d8">{speed!r}</data>'
        arcs = [(u, v, False)] if one else [(u, v, False), (v, u, True)]
        for a, b, back in arcs:
            key = used.get((a, b), 0)
            used[a, b] = key + 1
            yield (
                f'    <edge source="{ids[a]}" target="{ids[b]}" id={quoteattr(str(key))}>'
                f'<data key="d5">{length!r}</data><data key="d6">{one}</data>{limit}'
                f'<data key="d7">{back}</data></edge>\n'
            )
