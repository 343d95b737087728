"""OSMnx's GraphML, streamed: what is not needed is forgotten while the file passes by.

A file of 170 MB takes little more memory than the city itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from xml.etree import ElementTree

from panda_mdp.city.network import Element, Values
from panda_mdp.errors import FileFormatError


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


def graph_elements(path: Path) -> Iterator[Element]:
    """Nodes and edges, at last the graph."""
    names: Values = {}
    try:
        with path.open("rb") as stream:
            for _, element in ElementTree.iterparse(PlainXml(stream)):  # noqa: S314 (no entities)
                if element.tag.endswith("data"):
                    continue
                kind, said = element.tag.rpartition("}")[2], element.attrib
                if kind == "key":
                    names[said["id"]] = said["attr.name"]
                which = {
                    "node": said.get("id"),
                    "edge": (said.get("source"), said.get("target")),
                    "graph": said.get("edgedefault") != "undirected",
                }
                if kind in which:
                    data = {names[d.attrib["key"]]: d.text or "" for d in element if d.text}
                    yield kind, which[kind], data
                    element.clear()
    except (ElementTree.ParseError, ValueError, KeyError) as error:
        raise FileFormatError(f"{path.name} is damaged or no GraphML ({error})") from error
