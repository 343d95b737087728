"""Maps as other programs write them."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import osmnx

from panda_mdp import City


def write_graphml(city: City, path: Path) -> Path:
    """A city as OSMnx writes it: a street is two edges, there and back."""
    graph = nx.MultiDiGraph(crs="epsg:4326", simplified=True)
    for node, (lat, lon) in enumerate(zip(city.lat.tolist(), city.lon.tolist(), strict=True)):
        graph.add_node(node, y=lat, x=lon)
    for u, v, length in zip(city.u.tolist(), city.v.tolist(), city.length_m.tolist(), strict=True):
        graph.add_edge(u, v, length=length)
        graph.add_edge(v, u, length=length)
    osmnx.save_graphml(graph, path)
    return path
