"""Networks from graph objects of their own libraries."""

from __future__ import annotations

from typing import Any

import geopandas as gpd
import igraph
import networkx as nx
import numpy as np
import pytest
from shapely import LineString

from panda_mdp import load_city
from panda_mdp.city.maps import MapOptions
from panda_mdp.errors import CityError, FileFormatError

PLACES = {"a": (11.0, 48.0), "b": (11.01, 48.0), "c": (11.01, 48.01)}


def directed(first: str = "x", second: str = "y") -> nx.MultiDiGraph:
    """As OSMnx makes them: an arc each way, or one arc alone."""
    graph = nx.MultiDiGraph(crs="epsg:4326")
    for name, (x, y) in PLACES.items():
        graph.add_node(name, **{first: x, second: y})
    graph.add_edge("a", "b", length=800.5, oneway=False, highway="residential")
    graph.add_edge("b", "a", length=800.5, oneway=False, highway="residential")
    graph.add_edge("b", "c", length=1200.25, oneway=True, highway="primary", maxspeed="50")
    return graph


def check(source: Any, **options: Any) -> None:
    city = load_city(source, MapOptions(**options))
    assert np.allclose(city.lon, [11.0, 11.01, 11.01]) and np.allclose(city.lat, [48, 48, 48.01])
    assert (city.u.tolist(), city.v.tolist()) == ([0, 1], [1, 2])
    assert city.length_m.tolist() == pytest.approx([800.5, 1200.25])


@pytest.mark.parametrize("names", [("x", "y"), ("lon", "lat"), ("longitude", "latitude")])
def test_networkx(names):
    check(directed(*names))


def test_undirected_graphs():
    graph = nx.Graph()
    for name, place in PLACES.items():
        graph.add_node(name, pos=place)
    graph.add_edge("a", "b", weight=800.5)
    graph.add_edge("b", "c", weight=1200.25)
    check(graph)


def test_projected_graphs_name_their_system():
    points = gpd.GeoSeries.from_xy(*zip(*PLACES.values(), strict=True), crs=4326).to_crs(32632)
    graph = directed()
    for name, point in zip(PLACES, points, strict=True):
        graph.nodes[name].update(x=point.x, y=point.y)
    graph.graph["crs"] = "EPSG:32632"
    check(graph)
    del graph.graph["crs"]
    with pytest.raises(FileFormatError, match="crs='EPSG"):
        load_city(graph)
    check(graph, crs="EPSG:32632")


def test_igraph():
    check(igraph.Graph.from_networkx(directed()))


def test_a_frame_of_lines():
    lines = [LineString([PLACES["a"], PLACES["b"]]), LineString([PLACES["b"], PLACES["c"]])]
    frame = gpd.GeoDataFrame({"k": [1, 2]}, geometry=lines, crs=4326).to_crs(3857)
    city = load_city(frame, MapOptions(simplify=False))
    assert (city.nodes, city.streets) == (3, 2)
    assert sorted(city.lat.round(6)) == [48.0, 48.0, 48.01]


def test_what_is_no_map_is_refused():
    with pytest.raises(CityError, match="int is no map"):
        load_city(5)
    graph = nx.Graph()
    graph.add_edge(1, 2)
    with pytest.raises(FileFormatError, match="need coordinates"):
        load_city(graph)
