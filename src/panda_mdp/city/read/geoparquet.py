"""GeoParquet tables of nodes and edges, as GeoPandas writes OSMnx's frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.city.read.network import Network, need
from panda_mdp.city.read.tables import EdgeTable, NodeTable, build_network, point
from panda_mdp.errors import FileFormatError


def read_geoparquet(path: Path) -> Network:
    """The network of `...nodes.parquet` and `...edges.parquet`; `path` is either, or the folder."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise need("pyarrow", "reading GeoParquet", "geo") from error
    node_path, edge_path = _both(path)
    try:
        nodes = pyarrow.parquet.read_table(node_path)
        edges = pyarrow.parquet.read_table(edge_path)
    except (pyarrow.ArrowException, OSError) as error:
        msg = f"{node_path.name} or {edge_path.name} is damaged or no Parquet file ({error})"
        raise FileFormatError(msg) from error
    present = set(nodes.column_names)
    identity = next((name for name in ("osmid", "id", "node_id") if name in present), None)
    if identity is None or not {"u", "v"} <= set(edges.column_names):
        msg = f"{path.name}: nodes need a column osmid, edges need u and v"
        raise FileFormatError(msg)
    if {"x", "y"} <= present:
        lon, lat = _floats(nodes, "x"), _floats(nodes, "y")
    elif "geometry" in present:
        places = np.array([point(blob) for blob in nodes["geometry"].to_pylist()]).reshape(-1, 2)
        lon, lat = places[:, 0], places[:, 1]
    else:
        msg = f"{node_path.name} has neither x and y nor a geometry"
        raise FileFormatError(msg)

    def optional(name: str) -> list[Any] | None:
        return edges[name].to_pylist() if name in edges.column_names else None

    table = EdgeTable(
        u=edges["u"].to_pylist(),
        v=edges["v"].to_pylist(),
        length_m=_floats(edges, "length") if "length" in edges.column_names else None,
        oneway=optional("oneway"),
        maxspeed=optional("maxspeed"),
        highway=optional("highway"),
    )
    return build_network(path.name, NodeTable(nodes[identity].to_pylist(), lat, lon), table)


def _both(path: Path) -> tuple[Path, Path]:
    if path.is_dir():
        nodes, edges = path / "nodes.parquet", path / "edges.parquet"
    elif "edges" in path.name:
        nodes, edges = path.with_name(path.name.replace("edges", "nodes")), path
    elif "nodes" in path.name:
        nodes, edges = path, path.with_name(path.name.replace("nodes", "edges"))
    else:
        msg = f"{path.name} names neither nodes nor edges; give ...nodes.parquet or its folder"
        raise FileFormatError(msg)
    for part in (nodes, edges):
        if not part.exists():
            msg = f"{part} does not exist; a network is a file of nodes and a file of edges"
            raise FileFormatError(msg)
    return nodes, edges


def _floats(table: Any, name: str) -> FloatArray:
    values = table[name].to_pylist()
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
