"""From pieces of road to a city: cut, contracted, connected."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from panda_mdp.base.arrays import BoolArray
from panda_mdp.city.city import City
from panda_mdp.city.read.map_options import MapOptions
from panda_mdp.city.read.network import Network, keep_segments
from panda_mdp.city.read.simplify import contract
from panda_mdp.errors import CityError


@dataclass(frozen=True)
class MapReport:
    """A city read from a map, and what was left out of it."""

    city: City
    source: str
    """The format."""
    segments: int
    """Pieces of road in the file, within the area."""
    contracted: int = 0
    """Nodes that were no junctions."""
    dropped_nodes: int = 0
    """Junctions outside the largest connected part."""
    parts: int = 1
    """Connected parts before the largest was taken."""
    incomplete: int = 0
    """Segments that lacked an end."""

    def lines(self) -> list[str]:
        """What happened, for people."""
        sentences = [f"{self.source}: {self.segments:,} pieces of road -> {self.city!r}"]
        if self.contracted:
            sentences.append(f"{self.contracted:,} nodes were no junctions and were contracted")
        if self.dropped_nodes:
            sentences.append(
                f"{self.dropped_nodes:,} junctions in {self.parts - 1:,} smaller connected parts "
                "were left out"
            )
        if self.incomplete:
            sentences.append(f"{self.incomplete:,} pieces of road lacked an end and were left out")
        return sentences


def assemble(network: Network, options: MapOptions, source: str, name: str) -> MapReport:
    """Cut to the area, contract chains, keep the largest connected part."""
    whole_map = network
    if options.bbox is not None:
        network = _cut(network, options.bbox)
    if len(network.a) == 0:
        if options.bbox is not None and (fitting := _other_order(whole_map, options.bbox)):
            msg = (
                f"{name} has no roads within the bbox, which fits if it is {fitting}; "
                "it is south, west, north, east: give it in that order"
            )
            raise CityError(msg)
        where = "" if options.bbox is None else " within the bbox"
        msg = (
            f"{name} has no roads for network {options.network!r}{where}; "
            "choose another network ('drive', 'walk', 'bike') or area"
        )
        raise CityError(msg)
    segments = len(network.a)
    simplify = network.raw if options.simplify is None else options.simplify
    used = np.zeros(len(network.lat), dtype=np.bool_)
    used[network.a] = used[network.b] = True
    present = int(used.sum())
    if simplify:
        network = contract(network)
        used[:] = False
        used[network.a] = used[network.b] = True
    contracted = present - int(used.sum())
    city = _city(network, used, name)
    parts = int(city.components().max()) + 1
    whole = city.nodes
    if options.largest:
        city = city.largest_component()
    return MapReport(
        city=city,
        source=source,
        segments=segments,
        contracted=contracted,
        dropped_nodes=whole - city.nodes,
        parts=parts,
        incomplete=network.incomplete,
    )


def _city(network: Network, used: BoolArray, name: str) -> City:
    if int(used.sum()) < 2:
        msg = f"{name} holds no street between two junctions; import it with simplify=False"
        raise CityError(msg)
    position = np.cumsum(used) - 1
    return City(
        network.lat[used],
        network.lon[used],
        position[network.a],
        position[network.b],
        network.length_m,
        oneway=network.oneway,
        speed_kmh=network.speed_kmh,
        osmid=network.osmid[used],
        name=name,
    )


def _other_order(network: Network, bbox: tuple[float, float, float, float]) -> str | None:
    """The order in which a box that holds nothing would hold roads."""
    a, b, c, d = bbox
    orders = {"west, south, east, north": (b, a, d, c), "south, north, west, east": (a, c, b, d)}
    for words, (south, west, north, east) in orders.items():
        if south < north and west < east and len(_cut(network, (south, west, north, east)).a):
            return words
    return None


def _cut(network: Network, bbox: tuple[float, float, float, float]) -> Network:
    south, west, north, east = bbox
    inside = (network.lat >= south) & (network.lat <= north)
    inside &= (network.lon >= west) & (network.lon <= east)
    return keep_segments(network, inside[network.a] & inside[network.b])
