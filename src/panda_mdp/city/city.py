"""Road networks: junctions, streets, the domains sampled from them, and travel over them.

Travel is by shortest paths, in km; streets are open both ways. Its graph holds, for each pair of
nodes, the shortest of their parallel streets (building a sparse matrix from repeated entries would
add them up).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from panda_mdp.base.arrays import (
    FloatArray,
    IntArray,
    RebuiltOnCopy,
    Sections,
    both_ways,
    frozen,
    shortest_parallel,
)
from panda_mdp.base.atomic import FilePath, atomic_file
from panda_mdp.base.text import picked
from panda_mdp.errors import CityError, ProblemError
from panda_mdp.problem import check_probabilities
from panda_mdp.space.domain import Domain, check_indices, distinct_indices

LARGEST = np.finfo(np.float64).max
COLUMNS: dict[str, tuple[str, Any, float, float, str]] = {
    "lat": ("node", np.float64, -90, 90, "lie in [-90, 90] degrees (swapped?)"),
    "lon": ("node", np.float64, -180, 360, "lie in [-180, 360] degrees"),
    "u": ("street", np.int64, 0, np.inf, "be a node"),
    "v": ("street", np.int64, 0, np.inf, "be a node"),
    "length_m": ("street", np.float64, 0, LARGEST, "be finite and not negative"),
}
"""Of each column: what has an entry, its type, the range of its values, and that in words."""


@dataclass(frozen=True, eq=False)
class City(RebuiltOnCopy):
    """A road network: junctions by latitude and longitude, streets between them.

    Row k of `u`, `v`, `length_m` is a street between nodes `u[k]` and `v[k]`, open both ways;
    parallel streets and loops are allowed, and the shortest counts.

    >>> triangle = City([0, 0, 0.01], [0, 0.01, 0], [0, 1, 2], [1, 2, 0], [1112, 1573, 1112])
    >>> triangle
    City(3 nodes, 3 streets, 3.8 km)
    >>> triangle.domain(records=None)
    Domain(3 records, haversine, km)
    """

    lat: FloatArray
    lon: FloatArray
    """Degrees, brought into [-180, 180)."""
    u: IntArray
    v: IntArray
    length_m: FloatArray
    name: str = ""

    def __post_init__(self) -> None:
        counts = {"node": np.size(self.lat), "street": np.size(self.length_m)}
        if counts["node"] < 2 or counts["street"] < 1:
            raise CityError(
                f"the network has {counts['node']} nodes and {counts['street']} streets; it needs "
                "at least 2 nodes and a street"
            )
        for name, given in self._columns().items():
            owner, kind, low, high, rule = COLUMNS[name]
            ends = name in ("u", "v")
            column = check_indices(given, counts["node"], name, CityError) if ends else given
            array = np.asarray(column, dtype=kind)
            if array.shape != (counts[owner],):
                raise CityError(
                    f"{name} has shape {array.shape}; give one per {owner}, ({counts[owner]},)"
                )
            # Comparisons are false for NaN, so that it is refused too.
            wrong = np.flatnonzero(~((array >= low) & (array <= high)))
            if len(wrong):
                more = f" ({len(wrong)} such)" if len(wrong) > 1 else ""
                raise CityError(f"{name}[{wrong[0]}] is {array[wrong[0]]}; it must {rule}{more}")
            turned = np.where(array >= 180, array - 360, array) if name == "lon" else array
            vars(self)[name] = frozen(turned)

    def __repr__(self) -> str:
        name = f"{self.name}: " if self.name else ""
        return (
            f"City({name}{self.nodes:,} nodes, {self.streets:,} streets, {self.total_km:,.1f} km)"
        )

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

    def components(self) -> IntArray:
        """The component of each node."""
        labels = scipy.sparse.csgraph.connected_components(travel_graph(self), directed=False)[1]
        return labels.astype(np.int64)

    def largest_component(self) -> City:
        """The city restricted to its largest connected part."""
        labels = self.components()
        if not labels.any():
            return self
        return self.take(np.flatnonzero(labels == np.bincount(labels).argmax()))

    def take(self, nodes: ArrayLike) -> City:
        """The city restricted to some nodes and the streets between them, in the given order."""
        retained = check_indices(nodes, self.nodes, "nodes", CityError)
        position = np.full(self.nodes, -1, dtype=np.int64)
        position[retained] = np.arange(len(retained))
        inside = (position[self.u] >= 0) & (position[self.v] >= 0)
        rows = {"node": retained, "street": np.flatnonzero(inside)}
        parts = {name: column[rows[COLUMNS[name][0]]] for name, column in self._columns().items()}
        return replace(self, **parts | {"u": position[parts["u"]], "v": position[parts["v"]]})

    def domain(self, records: int | ArrayLike | None = 5000, seed: int = 0) -> Domain:
        """A domain of `records` nodes drawn at random, of all nodes where it is None, or of named
        ones.

        Places are compared by great-circle distance in km. Of nodes at the very same place only
        the first can be a record. The domain remembers its nodes, so that losses can be travelled.
        """
        nodes = self._chosen(records, seed)
        return Domain.from_points(self.lat[nodes], self.lon[nodes]).with_nodes(nodes)

    def road_domain(self, records: int | ArrayLike | None = None, *, seed: int = 0) -> Domain:
        """A domain of nodes under road distance in km.

        `records` are nodes, a number of nodes to draw, or None for all. Streets between records are
        all that methods and audits ask for, at any size (space/paths.py).
        """
        nodes = self._chosen(records, seed)
        domain = Domain.from_graph(
            np.stack([self.u, self.v], axis=1),
            self.length_m / 1000,
            records=nodes,
            places=(self.lat[nodes], self.lon[nodes]),
            unit="km",
        )
        return domain.with_nodes(nodes)

    def density_domain(
        self,
        people: float,
        weights: ArrayLike | None = None,
        records: int | ArrayLike | None = None,
        *,
        seed: int = 0,
    ) -> Domain:
        """A domain of nodes in nats: at epsilon 1 every place is hidden among `people`.

        `weights` are people at each node (a census, counts that were released privately), one at
        each where None; those at nodes that are no records count at the nearest record. Distances
        are straight lines over triangles, long where few people live and short where many do:
        each ball of radius 1 holds `people`, which is checked. Along streets:
        `city.road_domain().by_density(weights, people)`.
        """
        count = np.ones(self.nodes) if weights is None else np.asarray(weights, dtype=float)
        if count.shape != (self.nodes,):
            raise CityError(f"weights has shape {count.shape}; give one per node, ({self.nodes},)")
        domain = self.domain(records, seed)
        nearest = domain.snap(self.lat, self.lon, limit=np.inf).record
        held = np.bincount(nearest, count, minlength=domain.size)
        return domain.triangulated().by_density(held, people)

    def _chosen(self, records: int | ArrayLike | None, seed: int) -> IntArray:
        """Nodes that are named, or drawn."""
        if records is None or isinstance(records, int):
            return self.sample_nodes(records, seed)
        return distinct_indices(records, self.nodes, CityError)

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

    def save(self, path: FilePath) -> Path:
        """Write the city as compressed `.npz`, whole or not at all."""
        target = Path(path)
        if target.suffix != ".npz":
            raise CityError(f"{target.name} does not end in .npz; cities are saved as that")
        with atomic_file(target) as stream:
            np.savez_compressed(
                stream, allow_pickle=False, name=np.array(self.name), **self._columns()
            )
        return target

    def _columns(self) -> Sections:
        return picked(self, *COLUMNS)


def distinct_places(lat: FloatArray, lon: FloatArray) -> IntArray:
    """The first of every set of equal places, in their order."""
    # Of zeros the sign is dropped.
    return np.sort(np.unique(np.stack([lat, lon], axis=1) + 0.0, axis=0, return_index=True)[1])


def travel_graph(city: City) -> scipy.sparse.csr_array:
    """Lengths of the streets as a sparse matrix, nodes x nodes, in km."""
    a, b, length_m = city.pairs
    return both_ways(np.stack([a, b], axis=1), length_m / 1000, city.nodes)


def travel(city: City, sources: ArrayLike, targets: ArrayLike | None = None) -> FloatArray:
    """Shortest travel from each source node to each target node, in km.

    Shape (sources, targets); all nodes where `targets` is None; infinite where there is no way.

    >>> from panda_mdp import City
    >>> line = City([0, 0, 0], [0, 1, 2], [0, 1], [1, 2], [5000, 7000])
    >>> travel(line, [0]).tolist()
    [[0.0, 5.0, 12.0]]
    """
    first = check_indices(sources, city.nodes, "sources", CityError)
    # A symmetric matrix read as directed gives the same paths in half the time.
    ways = scipy.sparse.csgraph.dijkstra(travel_graph(city), directed=True, indices=first)
    if targets is None:
        return ways
    return ways[:, check_indices(targets, city.nodes, "targets", CityError)]


def travel_loss(
    city: City,
    domain: Domain,
    outputs: ArrayLike,
    tasks: ArrayLike,
    probabilities: ArrayLike | None = None,
) -> FloatArray:
    """The paper's loss: how far off the travel to a task is when y is reported for x,

        c(x, y) = sum_t q_t |travel(x, t) - travel(y, t)|,      shape (K, m), in km,

    by shortest paths on the streets. `outputs` and `tasks` are indices into the domain, which must
    come from this city; q is uniform where `probabilities` is None.

    >>> from panda_mdp import City
    >>> line = City([0, 0, 0], [0, 1, 2], [0, 1], [1, 2], [5000, 7000])
    >>> travel_loss(line, line.domain(records=None), [0, 2], [0]).tolist()
    [[0.0, 12.0], [5.0, 7.0], [12.0, 0.0]]
    """
    nodes = _nodes_of(city, domain)
    columns = check_indices(outputs, domain.size, "outputs", ProblemError)
    goals = check_indices(tasks, domain.size, "tasks", ProblemError)
    if len(goals) == 0:
        raise ProblemError("tasks is empty; name at least one record to travel to")
    shares = check_probabilities(probabilities, len(goals), "distribution of tasks", "task")
    ways = travel(city, nodes[goals], nodes)
    cut = np.isinf(ways)
    if cut.any():
        t = int(cut.any(axis=1).argmax())
        raise CityError(
            f"{int(cut[t].sum())} records cannot reach task {int(goals[t])} over the streets; "
            "make the domain from city.largest_component()"
        )
    return scipy.spatial.distance.cdist(ways.T, ways.T[columns], "cityblock", w=shares)


def _nodes_of(city: City, domain: Domain) -> IntArray:
    nodes = domain.nodes
    if nodes is None:
        raise CityError("this domain does not know its city's nodes; make it with city.domain(...)")
    same = nodes.max() < city.nodes
    if same and domain.geographic:
        same = ((city.lat[nodes] == domain.lat) & (city.lon[nodes] == domain.lon)).all()
    if not same:
        raise CityError(
            "the domain's nodes lie elsewhere in this city; give the city that it was made from"
        )
    return nodes
