"""AequilibraE's project files, and places by name."""

from __future__ import annotations

import sqlite3
import struct
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from panda_mdp import load_city, synthetic_city
from panda_mdp.city.read.graphs import fetch_place
from panda_mdp.city.read.load import MapOptions
from panda_mdp.errors import CityError, FileFormatError, MissingDependencyError

NODES = [(100, 11.0, 48.0), (200, 11.01, 48.0), (300, 11.01, 48.01)]


def wkb(x: float, y: float) -> bytes:
    return struct.pack("<BIdd", 1, 1, x, y)


def check(path: Path) -> None:
    city = load_city(path)
    assert city.osmid is not None and city.osmid.tolist() == [100, 200, 300]
    assert city.lat.tolist() == [48.0, 48.0, 48.01] and city.lon.tolist() == [11.0, 11.01, 11.01]
    assert (city.u.tolist(), city.v.tolist()) == ([0, 1], [1, 2])
    assert city.length_m.tolist() == [800.5, 1200.25]
    assert city.oneway is not None and city.oneway.tolist() == [False, True]
    assert city.speed_kmh is not None and city.speed_kmh.tolist() == [30.0, 50.0]


def test_aequilibrae_project(tmp_path: Path) -> None:
    path = tmp_path / "project_database.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE nodes (node_id INTEGER, geometry BLOB)")
        for number, x, y in [*NODES, (400, 11.02, 48.02)]:
            box = struct.pack("<4d", x, y, x, y)
            blob = b"\x00\x01" + struct.pack("<i", 4326) + box + b"\x7c" + wkb(x, y)[1:] + b"\xfe"
            database.execute("INSERT INTO nodes VALUES (?, ?)", (number, blob))
        database.execute(
            "CREATE TABLE links (link_id INTEGER, a_node INTEGER, b_node INTEGER, "
            "direction INTEGER, distance REAL, modes TEXT, link_type TEXT, "
            "speed_ab REAL, speed_ba REAL)"
        )
        database.executemany(
            "INSERT INTO links VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (1, 100, 200, 0, 800.5, "cw", "residential", None, None),
                (2, 300, 200, -1, 1200.25, "c", "primary", None, 50.0),
                (3, 300, 400, 0, 900.0, "wb", "footway", None, None),
            ],
        )
        database.commit()
    check(path)
    (tmp_path / "other.sqlite").write_bytes(b"SQLite format 3\x00" + bytes(200))
    with pytest.raises(FileFormatError, match="damaged"):
        load_city(tmp_path / "other.sqlite")
    walk = load_city(path, MapOptions(network="walk", largest=False))
    assert walk.length_m.tolist() == [800.5, 900.0]
    assert walk.speed_kmh is not None and walk.speed_kmh.tolist() == [4.8, 4.8]


def test_places_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = synthetic_city(30).save(tmp_path / "stored.graphml").read_text()
    asked = []

    def graph_from_place(place: str, network_type: str) -> str:
        asked.append((place, network_type))
        if place == "Atlantis":
            msg = "nothing found"
            raise ValueError(msg)
        return stored

    fake = SimpleNamespace(
        graph_from_place=graph_from_place,
        save_graphml=lambda graph, path: Path(path).write_text(graph),
    )
    monkeypatch.setitem(sys.modules, "osmnx", fake)
    report = fetch_place("Modena, Italy", MapOptions(network="walk"))
    assert asked == [("Modena, Italy", "walk")]
    assert (report.city.nodes, report.city.name) == (30, "Modena")
    with pytest.raises(CityError, match="Atlantis"):
        fetch_place("Atlantis")
    monkeypatch.setitem(sys.modules, "osmnx", None)
    with pytest.raises(MissingDependencyError, match="pip install osmnx"):
        fetch_place("Modena, Italy")
