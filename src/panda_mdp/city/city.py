"""Road networks: junctions, streets, and the domains sampled from them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray, RebuiltOnCopy, digest, frozen
from panda_mdp.base.atomic import atomic_file
from panda_mdp.base.card import card
from panda_mdp.city.travel import Measure, shortest_parallel, travel_graph, travel_unit
from panda_mdp.errors import CityError
from panda_mdp.space.domain import Domain, check_indices
from panda_mdp.space.road import Road

LARGEST = np.finfo(np.float64).max
COLUMNS: dict[str, tuple[str, Any, float, float, str]] = {
    "lat": ("node", np.float64, -90, 90, "lie in [-90, 90] degrees (swapped?)"),
    "lon": ("node", np.float64, -180, 360, "lie in [-180, 360] degrees"),
    "u": ("street", np.int64, 0, np.inf, "be a node"),
    "v": ("street", np.int64, 0, np.inf, "be a node"),
    "length_m": ("street", np.float64, 0, LARGEST, "be finite and not negative"),
    "oneway": ("street", np.bool_, 0, 1, "be true or false"),
    "speed_kmh": ("street", np.float64, 5e-324, LARGEST, "be finite and positive"),
    "osmid": ("node", np.int64, -np.inf, np.inf, "be a whole number"),
}
"""Of each column: what has an entry, its type, the range of its values, and that in words."""

GRAPHML = """<?xml version='1.0' encoding='utf-8'?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="created_with" for="graph" attr.name="created_with" attr.type="string" />
<key id="crs" for="graph" attr.name="crs" attr.type="string" />
<key id="simplified" for="graph" attr.name="simplified" attr.type="string" />
<key id="y" for="node" attr.name="y" attr.type="string" />
<key id="x" for="node" attr.name="x" attr.type="string" />
<key id="length" for="edge" attr.name="length" attr.type="string" />
<key id="oneway" for="edge" attr.name="oneway" attr.type="string" />
<key id="reversed" for="edge" attr.name="reversed" attr.type="string" />
<key id="speed_kph" for="edge" attr.name="speed_kph" attr.type="string" />
<graph edgedefault="directed"><data key="created_with">panda-mdp</data>
<data key="crs">epsg:4326</data><data key="simplified">True</data>
"""
"""The head of a city's GraphML: what is said of the graph, its nodes and its edges."""


@dataclass(frozen=True, eq=False)
class City(RebuiltOnCopy):
    """A road network: junctions by latitude and longitude, streets between them.

    Row k of `u`, `v`, `length_m` is a street from node `u[k]` to node `v[k]`. It is open both ways
    unless `oneway[k]`; parallel streets and loops are allowed, and the shortest counts.

    >>> triangle = City([0, 0, 0.01], [0, 0.01, 0], [0, 1, 2], [1, 2, 0], [1112, 1573, 1112])
    >>> triangle
    City(3 nodes, 3 streets, 3.8 km)
    >>> triangle.domain(records=None)
    Domain(3 records, haversine, km)
    """

    lat: FloatArray
    lon: FloatArray
    u: IntArray
    v: IntArray
    length_m: FloatArray
    oneway: BoolArray | None = None
    """Whether a street is open from u to v only; None means that all are open both ways."""
    speed_kmh: FloatArray | None = None
    """Speed on each street, for travel times."""
    osmid: IntArray | None = None
    """OpenStreetMap's number of each node, where the map had one."""
    name: str = ""

    def __post_init__(self) -> None:
        counts = {"node": np.size(self.lat), "street": np.size(self.length_m)}
        if counts["node"] < 2 or counts["street"] < 1:
            raise CityError(
                f"the network has {counts['node']} nodes and {counts['street']} streets; it needs "
                "at least 2 nodes and a street"
            )
        for name, (owner, kind, low, high, rule) in COLUMNS.items():
            value = getattr(self, name)
            if value is None:
                continue
            if name in ("u", "v"):
                value = check_indices(value, counts["node"], name, CityError)
            array = np.asarray(value, dtype=kind)
            if array.shape != (counts[owner],):
                raise CityError(
                    f"{name} has shape {array.shape}; give one per {owner}, ({counts[owner]},)"
                )
            # Comparisons are false for NaN, so that it is refused too.
            wrong = np.flatnonzero(~((array >= low) & (array <= high)))
            if len(wrong):
                more = f" ({len(wrong)} such)" if len(wrong) > 1 else ""
                raise CityError(f"{name}[{wrong[0]}] is {array[wrong[0]]}; it must {rule}{more}")
            object.__setattr__(self, name, frozen(array))
        if self.oneway is not None and not self.oneway.any():
            object.__setattr__(self, "oneway", None)

    def __repr__(self) -> str:
        name = f"{self.name}: " if self.name else ""
        return (
            f"City({name}{self.nodes:,} nodes, {self.streets:,} streets, {self.total_km:,.1f} km)"
        )

    def _repr_html_(self) -> str:
        facts = [
            ("junctions", f"{self.nodes:,}"),
            ("streets", f"{self.streets:,}, {self.total_km:,.1f} km"),
            ("latitude", f"{self.lat.min():.4f} to {self.lat.max():.4f}"),
            ("longitude", f"{self.lon.min():.4f} to {self.lon.max():.4f}"),
        ]
        return card(self.name or "City", facts)

    @property
    def nodes(self) -> int:
        """Number of junctions."""
        return len(self.lat)

    @property
    def streets(self) -> int:
        """Number of pairs of distinct nodes that a street joins, in either direction."""
        return len(self.pairs[0])

    @cached_property
    def pairs(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Joined pairs a < b and the length in metres of the shortest street between them."""
        return shortest_parallel(
            np.minimum(self.u, self.v), np.maximum(self.u, self.v), self.length_m
        )

    @property
    def total_km(self) -> float:
        """Length of all joined pairs together."""
        return float(self.pairs[2].sum()) / 1000

    @cached_property
    def degrees(self) -> IntArray:
        """How many other nodes each node is joined to."""
        a, b, _ = self.pairs
        return frozen(np.bincount(np.concatenate([a, b]), minlength=self.nodes))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the network, the name of this city in certificates and reports."""
        said = {"oneway": np.zeros(0, dtype=np.bool_), "speed_kmh": np.zeros(0)} | self._columns()
        return digest(*(said[name] for name in COLUMNS if name != "osmid"))

    def components(self, *, strong: bool = False) -> IntArray:
        """The component of each node; `strong` obeys one-way streets."""
        graph = travel_graph(self, directed=strong)
        labels = scipy.sparse.csgraph.connected_components(
            graph, connection="strong" if strong else "weak"
        )[1]
        return labels.astype(np.int64)

    def largest_component(self, *, strong: bool = False) -> City:
        """The city restricted to its largest (strongly) connected part."""
        labels = self.components(strong=strong)
        counts = np.bincount(labels)
        if len(counts) == 1:
            return self
        return self.take(np.flatnonzero(labels == counts.argmax()))

    def take(self, nodes: npt.ArrayLike) -> City:
        """The city restricted to some nodes and the streets between them, in the given order."""
        retained = check_indices(nodes, self.nodes, "nodes", CityError)
        position = np.full(self.nodes, -1, dtype=np.int64)
        position[retained] = np.arange(len(retained))
        inside = (position[self.u] >= 0) & (position[self.v] >= 0)
        rows = {"node": retained, "street": np.flatnonzero(inside)}
        parts = {name: column[rows[COLUMNS[name][0]]] for name, column in self._columns().items()}
        return replace(self, **parts | {"u": position[parts["u"]], "v": position[parts["v"]]})

    def domain(self, records: int | None = 5000, seed: int = 0) -> Domain:
        """A domain of `records` nodes drawn at random, or of all nodes where it is None.

        Places are compared by great-circle distance in km. Of nodes at the very same place only
        the first can be a record. The domain remembers its nodes, so that losses can be travelled.
        """
        nodes = self.sample_nodes(records, seed)
        return Domain.from_points(self.lat[nodes], self.lon[nodes]).with_nodes(nodes)

    def road_domain(
        self,
        records: int | npt.ArrayLike | None = None,
        *,
        seed: int = 0,
        by: Measure = "length",
    ) -> Domain:
        """A domain of nodes under road distance in km, or travel time in minutes by `time`.

        `records` are nodes, a number of nodes to draw, or None for all. Streets count as open both
        ways. Methods and audits need the K x K table, so K is limited (`space/road.py`).
        """
        if records is None or isinstance(records, int):
            nodes = self.sample_nodes(records, seed)
        else:
            nodes = check_indices(records, self.nodes, "records", CityError)
            if len(np.unique(nodes)) != len(nodes):
                raise CityError("a node is named twice; a domain's records are distinct")
        metric = Road.over(travel_graph(self, by), nodes, travel_unit(by))
        return Domain(metric, nodes=nodes)

    def sample_nodes(self, records: int | None, seed: int = 0) -> IntArray:
        """Nodes at distinct places: `records` of them in random order, or all in their order."""
        distinct = distinct_places(self.lat, self.lon)
        if records is None:
            return distinct
        if not 2 <= records <= len(distinct):
            raise CityError(
                f"records is {records}; this city has {len(distinct):,} nodes at distinct places: "
                "choose between 2 and that, or None for all"
            )
        return np.random.default_rng(seed).choice(distinct, size=records, replace=False)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the city as compressed `.npz` or as OSMnx's `.graphml`, whole or not at all."""
        target = Path(path)
        if target.suffix not in (".npz", ".graphml"):
            raise CityError(
                f"{target.name} ends in neither .npz nor .graphml; cities are saved as one of them"
            )
        with atomic_file(target) as stream:
            if target.suffix == ".graphml":
                stream.writelines(line.encode() for line in self._graphml())
            else:
                np.savez_compressed(
                    stream, allow_pickle=False, name=np.array(self.name), **self._columns()
                )
        return target

    def _columns(self) -> dict[str, npt.NDArray[Any]]:
        columns = {name: getattr(self, name) for name in COLUMNS}
        return {name: column for name, column in columns.items() if column is not None}

    def _graphml(self) -> Iterator[str]:
        """Lines of the city as OSMnx writes it: a two-way street is two edges."""
        yield GRAPHML
        ids = (np.arange(self.nodes) if self.osmid is None else self.osmid).tolist()
        for number, lat, lon in zip(ids, self.lat.tolist(), self.lon.tolist(), strict=True):
            place = f'<data key="y">{lat}</data><data key="x">{lon}</data>'
            yield f'<node id="{number}">{place}</node>\n'
        oneway = np.zeros(len(self.u), dtype=np.bool_) if self.oneway is None else self.oneway
        told = {"length": self.length_m, "oneway": oneway, "speed_kph": self.speed_kmh}
        columns = {name: column.tolist() for name, column in told.items() if column is not None}
        streets = zip(self.u.tolist(), self.v.tolist(), *columns.values(), strict=True)
        for k, (u, v, *values) in enumerate(streets):
            named = zip(columns, values, strict=True)
            facts = "".join(f'<data key="{name}">{value}</data>' for name, value in named)
            for a, b, back in ((u, v, False), (v, u, True))[: 1 if oneway[k] else 2]:
                ends = f'source="{ids[a]}" target="{ids[b]}" id="{2 * k + back}"'
                yield f'<edge {ends}>{facts}<data key="reversed">{back}</data></edge>\n'
        yield "</graph>\n</graphml>\n"


def distinct_places(lat: FloatArray, lon: FloatArray) -> IntArray:
    """The first of every set of equal places, in their order."""
    # Of zeros the sign is dropped.
    places = np.stack([lat, lon], axis=1) + 0.0
    return np.sort(np.unique(places, axis=0, return_index=True)[1])
