"""GeoPackages of nodes and edges, and AequilibraE's project files: both are SQLite files."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.city.read.network import Network
from panda_mdp.city.read.options import MapOptions
from panda_mdp.city.read.roads import BIKE_SPEED, DRIVE_SPEEDS, WALK_SPEED
from panda_mdp.city.read.tables import EdgeTable, NodeTable, build_network, point
from panda_mdp.errors import FileFormatError

WGS84 = 4326
ENVELOPE_BYTES = (0, 32, 48, 48, 64)
SPATIALITE_HEADER = 38
MODES = {"drive": "c", "walk": "w", "bike": "b"}


def read_sqlite(path: Path, options: MapOptions) -> tuple[Network, str]:
    """The network of a GeoPackage (layers nodes and edges) or an AequilibraE project."""
    try:
        # Immutable: nothing is written beside the user's file.
        uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as database:
            names = _tables(database)
            if {"nodes", "links"} <= names:
                return _aequilibrae(path, database, options), "AequilibraE"
            if {"nodes", "edges"} <= names:
                return _geopackage(path, database), "GeoPackage"
    except sqlite3.DatabaseError as error:
        msg = f"{path.name} is damaged or no GeoPackage ({error})"
        raise FileFormatError(msg) from error
    layers = sorted(name for name in names if not name.startswith(("gpkg_", "rtree_", "sqlite_")))
    msg = (
        f"{path.name} has no layers 'nodes' and 'edges' (it has {', '.join(layers) or 'none'}); "
        "osmnx.save_graph_geopackage writes both"
    )
    raise FileFormatError(msg)


def _tables(database: sqlite3.Connection) -> set[str]:
    return {str(name) for (name,) in database.execute("SELECT name FROM sqlite_master")}


def _columns(database: sqlite3.Connection, table: str) -> list[str]:
    rows = database.execute("SELECT name FROM pragma_table_info(?)", (table,))
    return [str(name) for (name,) in rows]


def _geopackage(path: Path, database: sqlite3.Connection) -> Network:
    _check_reference(path, database)
    present = _columns(database, "nodes")
    identity = next((name for name in ("osmid", "id", "node_id") if name in present), None)
    edge_columns = _columns(database, "edges")
    if identity is None or not {"u", "v"} <= set(edge_columns):
        msg = f"{path.name} needs columns osmid in layer nodes and u, v in layer edges"
        raise FileFormatError(msg)
    ids = _column(database, "nodes", identity)
    if {"x", "y"} <= set(present):
        lon, lat = _floats(database, "nodes", "x"), _floats(database, "nodes", "y")
    else:
        shape = _geometry_column(database)
        blobs = _column(database, "nodes", shape)
        places = np.array([point(blob, _header_bytes(blob)) for blob in blobs])
        lon, lat = places[:, 0], places[:, 1]

    def optional(name: str) -> Sequence[Any] | None:
        return _column(database, "edges", name) if name in edge_columns else None

    edges = EdgeTable(
        u=_column(database, "edges", "u"),
        v=_column(database, "edges", "v"),
        length_m=_floats(database, "edges", "length") if "length" in edge_columns else None,
        oneway=optional("oneway"),
        maxspeed=optional("maxspeed"),
        highway=optional("highway"),
    )
    return build_network(path.name, NodeTable(ids, lat, lon), edges)


def _check_reference(path: Path, database: sqlite3.Connection) -> None:
    if "gpkg_geometry_columns" not in _tables(database):
        msg = f"{path.name} is an SQLite file but no GeoPackage (it has no gpkg_geometry_columns)"
        raise FileFormatError(msg)
    rows = database.execute(
        "SELECT srs_id FROM gpkg_geometry_columns WHERE table_name = 'nodes'"
    ).fetchall()
    if rows and rows[0][0] != WGS84:
        msg = (
            f"layer nodes of {path.name} is in reference system {rows[0][0]}, not degrees; "
            "save it unprojected (EPSG:4326)"
        )
        raise FileFormatError(msg)


def _geometry_column(database: sqlite3.Connection) -> str:
    rows = database.execute(
        "SELECT column_name FROM gpkg_geometry_columns WHERE table_name = 'nodes'"
    ).fetchall()
    return str(rows[0][0]) if rows else "geom"


def _header_bytes(blob: bytes | None) -> int:
    if blob is None or len(blob) < 4:
        return 0
    kind = (blob[3] >> 1) & 7
    return 8 + ENVELOPE_BYTES[kind] if kind < len(ENVELOPE_BYTES) else 0


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _column(database: sqlite3.Connection, table: str, name: str) -> list[Any]:
    # Both names come from the file's own list of tables and columns, and are quoted.
    query = f"SELECT {_quoted(name)} FROM {_quoted(table)} ORDER BY rowid"  # noqa: S608
    return [value for (value,) in database.execute(query)]


def _floats(database: sqlite3.Connection, table: str, name: str) -> FloatArray:
    values = _column(database, table, name)
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _aequilibrae(path: Path, database: sqlite3.Connection, options: MapOptions) -> Network:
    rows = database.execute("SELECT node_id, geometry FROM nodes ORDER BY node_id").fetchall()
    places = np.array([_spatialite_point(blob) for _, blob in rows]).reshape(-1, 2)
    mode = MODES[options.network]
    links = database.execute(
        "SELECT a_node, b_node, direction, distance, link_type, speed_ab, speed_ba FROM links "
        "WHERE instr(modes, ?) > 0 ORDER BY link_id",
        (mode,),
    ).fetchall()
    against = [row[2] == -1 for row in links]
    edges = EdgeTable(
        u=[row[1] if back else row[0] for row, back in zip(links, against, strict=True)],
        v=[row[0] if back else row[1] for row, back in zip(links, against, strict=True)],
        length_m=np.array([np.nan if row[3] is None else row[3] for row in links], dtype=float),
        oneway=[row[2] != 0 and options.network != "walk" for row in links],
        maxspeed=[_pace(row, options) for row in links],
    )
    nodes = NodeTable([node for node, _ in rows], places[:, 1], places[:, 0])
    network = build_network(path.name, nodes, edges)
    return replace(network, raw=True)


def _pace(row: Sequence[Any], options: MapOptions) -> float:
    if options.network != "drive":
        return WALK_SPEED if options.network == "walk" else BIKE_SPEED
    signed = row[6] if row[2] == -1 else row[5]
    return float(signed) if signed else DRIVE_SPEEDS.get(str(row[4]), 40.0)


def _spatialite_point(blob: bytes | None) -> tuple[float, float]:
    """SpatiaLite keeps well-known binary behind a header, with its own mark for the start."""
    if blob is None or len(blob) <= SPATIALITE_HEADER:
        return float("nan"), float("nan")
    return point(blob[1:2] + blob[SPATIALITE_HEADER + 1 :])
