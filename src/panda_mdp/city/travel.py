"""Shortest paths over a city's streets, in km or minutes, and the loss that they make.

The graph holds, for each pair of nodes, the shortest of their parallel streets (building a sparse
matrix from repeated entries would add them up). Symmetrised, a street may be travelled both ways;
directed, one-way streets are obeyed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import scipy

from panda_mdp.base.adjacency import adjacency
from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.errors import CityError, ProblemError
from panda_mdp.problem import check_probabilities
from panda_mdp.space.domain import Domain, check_indices

if TYPE_CHECKING:
    from panda_mdp.city.city import City

Measure = Literal["length", "time"]


def travel_unit(by: Measure) -> str:
    """The unit of travel: km by length, min by time."""
    return "km" if by == "length" else "min"


def travel_graph(
    city: City, by: Measure = "length", *, directed: bool = False
) -> scipy.sparse.csr_array:
    """Weights of the streets as a sparse matrix, nodes x nodes, in km or minutes."""
    obeyed = city.oneway if directed and city.oneway is not None else np.zeros_like(city.u, bool)
    back = np.flatnonzero(~obeyed)
    cost = street_costs(city, by)
    first, second = np.append(city.u, city.v[back]), np.append(city.v, city.u[back])
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
    sources: npt.ArrayLike,
    targets: npt.ArrayLike | None = None,
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
    ways = _shortest(travel_graph(city, by, directed=directed), first)
    if targets is None:
        return ways
    return ways[:, check_indices(targets, city.nodes, "targets", CityError)]


def _shortest(graph: scipy.sparse.csr_array, sources: IntArray) -> FloatArray:
    # A symmetric matrix read as directed gives the same paths in half the time.
    return np.asarray(scipy.sparse.csgraph.dijkstra(graph, directed=True, indices=sources))


def shortest_parallel(
    a: IntArray, b: IntArray, length: FloatArray
) -> tuple[IntArray, IntArray, FloatArray]:
    """Each pair (a, b) once, with the shortest length; loops dropped, pairs ascending."""
    proper = a != b
    a, b, length = a[proper], b[proper], length[proper]
    order = np.lexsort((length, b, a))
    first = order[group_starts(a[order], b[order])]
    return a[first], b[first], length[first]


def group_starts(*keys: npt.NDArray[np.generic]) -> IntArray:
    """Where a new group begins among rows whose equal keys stand together."""
    new = np.ones(len(keys[0]), dtype=np.bool_)
    new[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    return np.flatnonzero(new)


def group_ranks(*keys: npt.NDArray[np.generic]) -> tuple[IntArray, IntArray]:
    """Of each row: how many before it have the same keys, and how many have them in all."""
    order = np.lexsort(keys)
    starts = group_starts(*(key[order] for key in keys))
    sizes = np.diff(np.append(starts, len(order)))
    rank, size = np.empty_like(order), np.empty_like(order)
    rank[order] = np.arange(len(order)) - np.repeat(starts, sizes)
    size[order] = np.repeat(sizes, sizes)
    return rank, size


def travel_loss(
    city: City,
    domain: Domain,
    outputs: npt.ArrayLike,
    tasks: npt.ArrayLike,
    probabilities: npt.ArrayLike | None = None,
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
    graph = travel_graph(city, by, directed=directed)
    # Of the ways to the tasks, which the transposed graph has from them.
    ways = _shortest(graph.T.tocsr() if directed else graph, nodes[goals])[:, nodes]
    cut = np.isinf(ways)
    if cut.any():
        t = int(cut.any(axis=1).argmax())
        raise CityError(
            f"{int(cut[t].sum())} records cannot reach task {int(goals[t])} over the streets; "
            f"make the domain from city.largest_component({'strong=True' if directed else ''})"
        )
    distance = scipy.spatial.distance.cdist(ways.T, ways.T[columns], "cityblock", w=shares)
    return np.asarray(distance)


def _nodes_of(city: City, domain: Domain) -> IntArray:
    nodes = domain.nodes
    if nodes is None:
        raise CityError("this domain does not know its city's nodes; make it with city.domain(...)")
    same = len(nodes) == 0 or int(nodes.max()) < city.nodes
    if same and domain.geographic:
        # Longitudes may have been brought into [-180, 180).
        turns = (city.lon[nodes] - domain.lon) / 360
        same = np.array_equal(city.lat[nodes], domain.lat) and bool(np.all(turns == np.rint(turns)))
    if not same:
        raise CityError(
            "the domain's nodes lie elsewhere in this city; give the city that it was made from"
        )
    return nodes
