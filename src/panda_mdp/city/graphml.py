"""OSMnx's GraphML, streamed: what is not needed is forgotten while the file passes by.

A file of 170 MB takes little more memory than the city itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from xml.etree import ElementTree

import numpy as np

from panda_mdp.city.city import City
from panda_mdp.city.network import Arcs, MapOptions
from panda_mdp.city.roads import parse_speed, speed_kmh
from panda_mdp.errors import FileFormatError

SPEEDS = ("speed_kph", "maxspeed", "highway")
Values = dict[str, str]


class PlainXml:
    """A stream of XML that ends with an error where a document type begins: maps have none.

    Without one there are no entities to expand.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._last = b""

    def read(self, size: int = -1) -> bytes:
        part = self._stream.read(size)
        if b"<!DOCTYPE" in self._last + part:
            raise ValueError("it declares a document type, and with it entities")
        self._last = part[-8:]
        return part


def graph_elements(path: Path) -> Iterator[tuple[str, Values, Values]]:
    """`node`, `edge` and at last `graph` elements: the kind, its attributes, its data by name."""
    names: Values = {}
    try:
        with path.open("rb") as stream:
            for _, element in ElementTree.iterparse(PlainXml(stream)):  # noqa: S314 (no entities)
                if element.tag.endswith("data"):
                    continue
                kind = element.tag.rpartition("}")[2]
                if kind == "key":
                    names[element.attrib["id"]] = element.attrib["attr.name"]
                elif kind in ("node", "edge", "graph"):
                    data = {names[d.attrib["key"]]: d.text or "" for d in element if d.text}
                    yield kind, element.attrib, data
                    element.clear()
    except (ElementTree.ParseError, ValueError, KeyError) as error:
        raise FileFormatError(f"{path.name} is damaged or no GraphML ({error})") from error


def read_graphml(path: Path, options: MapOptions) -> tuple[City, bool]:
    """The streets of an OSMnx graph, and whether nodes that are no junctions are still in it."""
    ids: list[str] = []
    places: list[tuple[str, str]] = []
    ends: list[tuple[str, str]] = []
    lengths: list[str] = []
    speeds: list[float] = []
    settings: Values = {}
    told_speed, directed = False, True
    for kind, attributes, data in graph_elements(path):
        if kind == "graph":
            settings, directed = data, attributes.get("edgedefault") != "undirected"
        elif kind == "node":
            ids.append(attributes.get("id", ""))
            places.append((data.get("x", "nan"), data.get("y", "nan")))
        else:
            ends.append((attributes.get("source", ""), attributes.get("target", "")))
            lengths.append(data.get("length", "nan"))
            # Without any word on speeds or classes, none are made up.
            told_speed = told_speed or not data.keys().isdisjoint(SPEEDS)
            speeds.append(parse_speed(data.get("speed_kph", ""), speed_kmh(data, "drive")))
    try:
        arcs = Arcs(
            path.name,
            ids,
            np.array(places, dtype=np.float64),
            ends,
            np.array(lengths, dtype=np.float64),
            np.array(speeds) if told_speed else None,
            crs=settings.get("crs"),
            directed=directed,
        )
    except ValueError as error:
        raise FileFormatError(f"{path.name} is damaged or no GraphML ({error})") from error
    return arcs.city(options), settings.get("simplified") != "True"
