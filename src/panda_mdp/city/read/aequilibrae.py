"""AequilibraE's project files: SQLite, with SpatiaLite's points."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from panda_mdp.city.read.map_options import MapOptions
from panda_mdp.city.read.network import Network
from panda_mdp.city.read.roads import BIKE_SPEED, DRIVE_SPEEDS, WALK_SPEED
from panda_mdp.city.read.tables import EdgeTable, NodeTable, build_network, floats, point
from panda_mdp.errors import FileFormatError

SPATIALITE_HEADER = 38
MODES = {"drive": "c", "walk": "w", "bike": "b"}


def read_aequilibrae(path: Path, options: MapOptions) -> Network:
    """The network of a project's database."""
    try:
        # Immutable: nothing is written beside the user's file.
        uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as database:
            rows = database.execute("SELECT name FROM sqlite_master")
            if {"nodes", "links"} <= {str(name) for (name,) in rows}:
                return _network(path, database, options)
    except sqlite3.DatabaseError as error:
        msg = f"{path.name} is damaged or no SQLite file ({error})"
        raise FileFormatError(msg) from error
    msg = f"{path.name} has no tables 'nodes' and 'links': it is no project of AequilibraE"
    raise FileFormatError(msg)


def _network(path: Path, database: sqlite3.Connection, options: MapOptions) -> Network:
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
        length_m=floats([row[3] for row in links]),
        oneway=[row[2] != 0 and options.network != "walk" for row in links],
        maxspeed=[_pace(row, options) for row in links],
    )
    nodes = NodeTable([node for node, _ in rows], places[:, 1], places[:, 0])
    return replace(build_network(path.name, nodes, edges), raw=True)


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
