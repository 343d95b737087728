"""Road networks: junctions, streets, the domains sampled from them, and travel over them.

Travel is by shortest paths, in km or minutes. Its graph holds, for each pair of nodes, the shortest
of their parallel streets (building a sparse matrix from repeated entries would add them up).
Symmetrised, a street may be travelled both ways; directed, one-way streets are obeyed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike

from panda_mdp.base.arrays import (
    AnyArray,
    BoolArray,
    FloatArray,
    IntArray,
    RebuiltOnCopy,
    Sections,
    adjacency,
    digest,
    frozen,
    shortest_parallel,
)
from panda_mdp.base.atomic import FilePath, atomic_file
from panda_mdp.base.text import picked, present
from panda_mdp.errors import CityError, ProblemError
from panda_mdp.problem import check_probabilities
from panda_mdp.space.domain import Domain, check_indices, distinct_indices

Measure = Literal["length", "time"]
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
            # Streets that are all open both ways need no column.
            vars(self)[name] = frozen(array) if name != "oneway" or array.any() else None

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

    @property
    def one_way(self) -> BoolArray:
        """Of every street whether it is open from u to v only."""
        return np.zeros(len(self.u), bool) if self.oneway is None else self.oneway

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the network, the name of this city in certificates and reports."""
        said = {"oneway": np.zeros(0, bool), "speed_kmh": np.zeros(0)} | self._columns()
        return digest(*(said[name] for name in COLUMNS if name != "osmid"))

    def components(self, *, strong: bool = False) -> IntArray:
        """The component of each node; `strong` obeys one-way streets."""
        labels = scipy.sparse.csgraph.connected_components(
            travel_graph(self, directed=strong), connection="strong" if strong else "weak"
        )[1]
        return labels.astype(np.int64)

    def largest_component(self, *, strong: bool = False) -> City:
        """The city restricted to its largest (strongly) connected part."""
        labels = self.components(strong=strong)
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

    def road_domain(
        self,
        records: int | ArrayLike | None = None,
        *,
        seed: int = 0,
        by: Measure = "length",
    ) -> Domain:
        """A domain of nodes under road distance in km, or travel time in minutes by `time`.

        `records` are nodes, a number of nodes to draw, or None for all. Streets count as open both
        ways. Streets between records are all that methods and audits ask for, at any size
        (space/paths.py).
        """
        nodes = self._chosen(records, seed)
        domain = Domain.from_graph(
            np.stack([self.u, self.v], axis=1),
            street_costs(self, by),
            records=nodes,
            places=(self.lat[nodes], self.lon[nodes]),
            unit="km" if by == "length" else "min",
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

    def _columns(self) -> Sections:
        return present(picked(self, *COLUMNS))

    def _graphml(self) -> Iterator[str]:
        """Lines of the city as OSMnx writes it: a two-way street is two edges."""
        yield GRAPHML
        ids = (np.arange(self.nodes) if self.osmid is None else self.osmid).tolist()
        for number, lat, lon in zip(ids, self.lat.tolist(), self.lon.tolist(), strict=True):
            place = f'<data key="y">{lat}</data><data key="x">{lon}</data>'
            yield f'<node id="{number}">{place}</node>\n'
        speeds: Any = [None] * len(self.u) if self.speed_kmh is None else self.speed_kmh.tolist()
        columns = (column.tolist() for column in (self.u, self.v, self.length_m, self.one_way))
        for k, (u, v, length, oneway, speed) in enumerate(zip(*columns, speeds, strict=True)):
            pace = "" if speed is None else f'<data key="speed_kph">{speed}</data>'
            for a, b, back in ((u, v, False), (v, u, True))[: 2 - oneway]:
                yield (
                    f'<edge source="{ids[a]}" target="{ids[b]}" id="{2 * k + back}">'
                    f'<data key="length">{length}</data><data key="oneway">{oneway}</data>{pace}'
                    f'<data key="reversed">{back}</data></edge>\n'
                )
        yield "</graph>\n</graphml>\n"


def distinct_places(lat: FloatArray, lon: FloatArray) -> IntArray:
    """The first of every set of equal places, in their order."""
    # Of zeros the sign is dropped.
    return np.sort(np.unique(np.stack([lat, lon], axis=1) + 0.0, axis=0, return_index=True)[1])


def travel_graph(
    city: City, by: Measure = "length", *, directed: bool = False
) -> scipy.sparse.csr_array:
    """Weights of the streets as a sparse matrix, nodes x nodes, in km or minutes."""
    back = np.flatnonzero(~(directed & city.one_way))
    cost = street_costs(city, by)
    first = np.append(city.u, city.v[back])
    second = np.append(city.v, city.u[back])
    a, b, best = shortest_parallel(first, second, np.append(cost, cost[back]))
    return adjacency(a, b, city.nodes, best)


def street_costs(city: City, by: Measure) -> FloatArray:
    """What each street takes: km, or minutes at its speed."""
    if by not in ("length", "time"):
        raise CityError(f"travel is measured by 'length' or 'time', not {by!r}")
    if by == "length":
        return city.length_m / 1000
    if city.speed_kmh is None:
        raise CityError(
            "this city has no speeds, so travel takes no known time; measure by 'length' "
            "or give speed_kmh per street (imports from OpenStreetMap set it)"
        )
    return city.length_m / 1000 / city.speed_kmh * 60


def travel(
    city: City,
    sources: ArrayLike,
    targets: ArrayLike | None = None,
    *,
    by: Measure = "length",
    directed: bool = False,
) -> FloatArray:
    """Shortest travel from each source node to each target node, in km or minutes.

    Shape (sources, targets); all nodes where `targets` is None; infinite where there is no way.

    >>> from panda_mdp import City
    >>> line = City([0, 0, 0], [0, 1, 2], [0, 1], [1, 2], [5000, 7000])
    >>> travel(line, [0]).tolist()
    [[0.0, 5.0, 12.0]]
    """
    first = check_indices(sources, city.nodes, "sources", CityError)
    # A symmetric matrix read as directed gives the same paths in half the time.
    graph = travel_graph(city, by, directed=directed)
    ways = scipy.sparse.csgraph.dijkstra(graph, directed=True, indices=first)
    if targets is None:
        return ways
    return ways[:, check_indices(targets, city.nodes, "targets", CityError)]


def group_ranks(*keys: AnyArray) -> tuple[IntArray, IntArray]:
    """Of each row: how many before it have the same keys, and how many have them in all."""
    order = np.lexsort(keys)
    rows = np.stack(keys)[:, order]
    new = np.append(True, (rows[:, 1:] != rows[:, :-1]).any(axis=0))[: len(order)]
    starts = np.flatnonzero(new)
    group = np.cumsum(new) - 1
    place = np.argsort(order)
    return (np.arange(len(order)) - starts[group])[place], np.bincount(group)[group][place]


def travel_loss(
    city: City,
    domain: Domain,
    outputs: ArrayLike,
    tasks: ArrayLike,
    probabilities: ArrayLike | None = None,
    *,
    by: Measure = "length",
    directed: bool = False,
) -> FloatArray:
    """The paper's loss: how far off the travel to a task is when y is reported for x,

        c(x, y) = sum_t q_t |travel(x, t) - travel(y, t)|,      shape (K, m), in km,

    by shortest paths on the streets. `outputs` and `tasks` are indices into the domain, which must
    come from this city; q is uniform where `probabilities` is None. `by="time"` gives minutes;
    `directed` obeys one-way streets (streets are open both ways otherwise).

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
    # Of the ways to the tasks, which the transposed graph has from them.
    graph = travel_graph(city, by, directed=directed).T.tocsr()
    ways = scipy.sparse.csgraph.dijkstra(graph, directed=True, indices=nodes[goals])[:, nodes]
    cut = np.isinf(ways)
    if cut.any():
        t = int(cut.any(axis=1).argmax())
        raise CityError(
            f"{int(cut[t].sum())} records cannot reach task {int(goals[t])} over the streets; "
            f"make the domain from city.largest_component({'strong=True' if directed else ''})"
        )
    return scipy.spatial.distance.cdist(ways.T, ways.T[columns], "cityblock", w=shares)


def _nodes_of(city: City, domain: Domain) -> IntArray:
    nodes = domain.nodes
    if nodes is None:
        raise CityError("this domain does not know its city's nodes; make it with city.domain(...)")
    same = nodes.max() < city.nodes
    if same and domain.geographic:
        # Longitudes may have been brought into [-180, 180).
        turns = (city.lon[nodes] - domain.lon) / 360
        same = ((city.lat[nodes] == domain.lat) & (turns == np.rint(turns))).all()
    if not same:
        raise CityError(
            "the domain's nodes lie elsewhere in this city; give the city that it was made from"
        )
    return nodes
