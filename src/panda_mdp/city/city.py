"""Road networks: junctions, streets, and the domains sampled from them."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy

from panda_mdp.base.adjacency import adjacency
from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray, Rebuilt, digest, frozen
from panda_mdp.base.card import card
from panda_mdp.city.travel import Measure, shortest_parallel, travel_graph, travel_unit
from panda_mdp.city.write.graphml import save_graphml
from panda_mdp.city.write.npz import save_npz
from panda_mdp.errors import CityError
from panda_mdp.space.domain import Domain, check_indices
from panda_mdp.space.road import Road


@dataclass(frozen=True, eq=False)
class City(Rebuilt):
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
        set_ = object.__setattr__
        lat, lon = _floats(self.lat, "lat"), _floats(self.lon, "lon")
        _check_places(lat, lon)
        nodes = len(lat)
        u = check_indices(self.u, nodes, "u", CityError)
        v = check_indices(self.v, nodes, "v", CityError)
        length = _floats(self.length_m, "length_m")
        if not len(u) == len(v) == len(length):
            msg = (
                f"u, v and length_m have {len(u)}, {len(v)} and {len(length)} entries; "
                "give one of each per street"
            )
            raise CityError(msg)
        if len(u) == 0:
            msg = "the network has no streets; give at least one"
            raise CityError(msg)
        _refuse(length < 0, length, "length_m", "not be negative")
        for name, value in {"lat": lat, "lon": lon, "u": u, "v": v, "length_m": length}.items():
            set_(self, name, frozen(value))
        if self.oneway is not None:
            oneway = frozen(_per(self.oneway, len(u), "oneway").astype(np.bool_))
            set_(self, "oneway", oneway if oneway.any() else None)
        if self.speed_kmh is not None:
            speed = _per(self.speed_kmh, len(u), "speed_kmh").astype(np.float64)
            _refuse(~(speed > 0), speed, "speed_kmh", "be positive")
            set_(self, "speed_kmh", frozen(speed))
        if self.osmid is not None:
            set_(self, "osmid", frozen(_per(self.osmid, nodes, "osmid").astype(np.int64)))

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
        oneway = np.zeros(0, dtype=np.bool_) if self.oneway is None else self.oneway
        speed = np.zeros(0) if self.speed_kmh is None else self.speed_kmh
        return digest(self.lat, self.lon, self.u, self.v, self.length_m, oneway, speed)

    def components(self, *, strong: bool = False) -> IntArray:
        """The component of each node; `strong` obeys one-way streets."""
        u, v = self.u, self.v
        if strong and self.oneway is not None:
            both = ~self.oneway
            u, v = np.concatenate([u, self.v[both]]), np.concatenate([v, self.u[both]])
        graph = adjacency(u, v, self.nodes)
        directed = strong and self.oneway is not None
        labels = scipy.sparse.csgraph.connected_components(
            graph, directed=directed, connection="strong" if directed else "weak"
        )[1]
        return np.asarray(labels, dtype=np.int64)

    def largest_component(self, *, strong: bool = False) -> City:
        """The city restricted to its largest (strongly) connected part."""
        labels = self.components(strong=strong)
        counts = np.bincount(labels)
        if len(counts) == 1:
            return self
        return self.take(np.flatnonzero(labels == counts.argmax()))

    def take(self, nodes: npt.ArrayLike) -> City:
        """The city restricted to some nodes and the streets between them, in the given order."""
        chosen = check_indices(nodes, self.nodes, "nodes", CityError)
        position = np.full(self.nodes, -1, dtype=np.int64)
        position[chosen] = np.arange(len(chosen))
        inside = (position[self.u] >= 0) & (position[self.v] >= 0)
        return replace(
            self,
            lat=self.lat[chosen],
            lon=self.lon[chosen],
            u=position[self.u[inside]],
            v=position[self.v[inside]],
            length_m=self.length_m[inside],
            oneway=None if self.oneway is None else self.oneway[inside],
            speed_kmh=None if self.speed_kmh is None else self.speed_kmh[inside],
            osmid=None if self.osmid is None else self.osmid[chosen],
        )

    def domain(self, records: int | None = 5000, seed: int = 0) -> Domain:
        """A domain of `records` nodes drawn at random, or of all nodes where it is None.

        Places are compared by great-circle distance in km. Of nodes at the very same place only
        the first can be a record. The domain remembers its nodes, so that losses can be travelled.
        """
        return Domain.from_points(
            self.lat[chosen := self.sample_nodes(records, seed)], self.lon[chosen]
        ).with_nodes(chosen)

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
                msg = "a node is named twice; a domain's records are distinct"
                raise CityError(msg)
        metric = Road.over(travel_graph(self, by), nodes, travel_unit(by))
        return Domain(metric, nodes=nodes)

    def sample_nodes(self, records: int | None, seed: int = 0) -> IntArray:
        """Nodes at distinct places: `records` of them in random order, or all in their order."""
        places = np.stack([self.lat, self.lon], axis=1) + 0.0
        distinct = np.sort(np.unique(places, axis=0, return_index=True)[1])
        if records is None:
            return distinct
        if not 2 <= records <= len(distinct):
            msg = (
                f"records is {records}; this city has {len(distinct):,} nodes at distinct places: "
                "choose between 2 and that, or None for all"
            )
            raise CityError(msg)
        return np.random.default_rng(seed).choice(distinct, size=records, replace=False)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the city as compressed `.npz` or as OSMnx's `.graphml`, atomically."""
        target = Path(path)
        if target.suffix == ".npz":
            return save_npz(self, target)
        if target.suffix == ".graphml":
            return save_graphml(self, target)
        msg = f"{target.name} ends in neither .npz nor .graphml; cities are saved as one of them"
        raise CityError(msg)


def _floats(values: npt.ArrayLike, name: str) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        msg = f"{name} has shape {array.shape}; give a flat list"
        raise CityError(msg)
    _refuse(~np.isfinite(array), array, name, "be finite")
    return array


def _check_places(lat: FloatArray, lon: FloatArray) -> None:
    if len(lat) != len(lon):
        msg = f"lat has {len(lat)} entries and lon {len(lon)}; give one of each per node"
        raise CityError(msg)
    if len(lat) < 2:
        msg = f"the network has {len(lat)} node(s); it needs at least 2"
        raise CityError(msg)
    _refuse(np.abs(lat) > 90, lat, "lat", "lie in [-90, 90] degrees (swapped?)")
    _refuse((lon < -180) | (lon > 360), lon, "lon", "lie in [-180, 360] degrees")


def _per(values: npt.ArrayLike, count: int, name: str) -> npt.NDArray[np.generic]:
    array = np.asarray(values)
    if array.shape != (count,):
        msg = f"{name} has shape {array.shape}; it must be ({count},)"
        raise CityError(msg)
    return array


def _refuse(bad: npt.NDArray[np.bool_], values: FloatArray, name: str, rule: str) -> None:
    wrong = np.flatnonzero(bad)
    if len(wrong):
        more = f" ({len(wrong)} such)" if len(wrong) > 1 else ""
        msg = f"{name}[{wrong[0]}] is {values[wrong[0]]}; it must {rule}{more}"
        raise CityError(msg)
