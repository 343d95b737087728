"""Shortest paths over a city's streets, in km or minutes, and the loss that they make.

The graph holds, for each pair of nodes, the shortest of their parallel streets (building a sparse
matrix from repeated entries would add them up). Symmetrised, a street may be travelled both ways;
directed, one-way streets are obeyed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.errors import CityError, ProblemError
from panda_mdp.problem import check_probabilities
from panda_mdp.space.domain import Domain, check_indices

if TYPE_CHECKING:
    from panda_mdp.city.city import City

Measure = Literal["length", "time"]
BLOCK_ENTRIES = 1 << 21
LOSS_ENTRIES = 1 << 15
"""Entries of the table that are summed over tasks at a time: a block that stays in cache."""


def travel_unit(by: Measure) -> str:
    """The unit of travel: km by length, min by time."""
    return "km" if by == "length" else "min"


def travel_graph(
    city: City, by: Measure = "length", *, directed: bool = False
) -> scipy.sparse.csr_array:
    """Weights of the streets as a sparse matrix, nodes x nodes, in km or minutes."""
    cost = street_costs(city, by)
    two_way = np.ones(len(cost), dtype=np.bool_)
    if directed and city.oneway is not None:
        two_way = ~city.oneway
    first = np.concatenate([city.u, city.v[two_way]])
    second = np.concatenate([city.v, city.u[two_way]])
    a, b, best = shortest_parallel(first, second, np.concatenate([cost, cost[two_way]]))
    starts = np.searchsorted(a, np.arange(city.nodes + 1))
    return scipy.sparse.csr_array(
        (best, b.astype(np.int32), starts.astype(np.int32)), shape=(city.nodes, city.nodes)
    )


def street_costs(city: City, by: Measure) -> FloatArray:
    """What each street takes: km, or minutes at its speed."""
    if by == "length":
        return city.length_m / 1000
    if by != "time":
        msg = f"travel is measured by 'length' or 'time', not {by!r}"
        raise CityError(msg)
    if city.speed_kmh is None:
        msg = (
            "this city has no speeds, so travel takes no known time; measure by 'length' "
            "or give speed_kmh per street (imports from OpenStreetMap set it)"
        )
        raise CityError(msg)
    return city.length_m / 1000 / city.speed_kmh * 60


def travel_rows(
    graph: scipy.sparse.csr_array, sources: IntArray, *, reverse: bool = False
) -> Iterator[tuple[slice, FloatArray]]:
    """Shortest paths from `sources` to all nodes, in blocks of rows of bounded memory.

    `reverse` gives the paths to the sources instead. Unreachable nodes are at infinity.
    """
    nodes = graph.shape[0]
    used = graph.T.tocsr() if reverse else graph
    step = max(1, BLOCK_ENTRIES // nodes)
    for start in range(0, len(sources), step):
        part = slice(start, min(start + step, len(sources)))
        # A symmetric matrix read as directed gives the same paths in half the time.
        yield (
            part,
            np.asarray(scipy.sparse.csgraph.dijkstra(used, directed=True, indices=sources[part])),
        )


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
    columns = (
        np.arange(city.nodes)
        if targets is None
        else check_indices(targets, city.nodes, "targets", CityError)
    )
    out = np.empty((len(first), len(columns)))
    for part, rows in travel_rows(travel_graph(city, by, directed=directed), first):
        out[part] = rows[:, columns]
    return out


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
        msg = "tasks is empty; name at least one record to travel to"
        raise ProblemError(msg)
    shares = check_probabilities(probabilities, len(goals), "distribution of tasks", "task")
    graph = travel_graph(city, by, directed=directed)
    ways = np.empty((len(goals), domain.size))
    for part, rows in travel_rows(graph, nodes[goals], reverse=directed):
        ways[part] = rows[:, nodes]
    _refuse_unreachable(ways, goals, directed)
    return _mean_difference(ways, ways[:, columns], shares)


def _mean_difference(ways: FloatArray, ends: FloatArray, shares: FloatArray) -> FloatArray:
    """sum_t q_t |ways[t, x] - ends[t, y]|, a few records at a time."""
    size, count = ways.shape[1], ends.shape[1]
    loss = np.zeros((size, count))
    step = max(1, LOSS_ENTRIES // max(1, count))
    scratch = np.empty((step, count))
    for start in range(0, size, step):
        block = loss[start : start + step]
        difference = scratch[: len(block)]
        for t, share in enumerate(shares):
            np.subtract(ways[t, start : start + step, None], ends[t], out=difference)
            np.abs(difference, out=difference)
            difference *= share
            block += difference
    return loss


def _nodes_of(city: City, domain: Domain) -> IntArray:
    nodes = domain.nodes
    if nodes is None:
        msg = "this domain does not know its city's nodes; make it with city.domain(...)"
        raise CityError(msg)
    same = len(nodes) == 0 or int(nodes.max()) < city.nodes
    if same and domain.geographic:
        # Longitudes may have been brought into [-180, 180).
        turns = (city.lon[nodes] - domain.lon) / 360
        same = np.array_equal(city.lat[nodes], domain.lat) and bool(np.all(turns == np.rint(turns)))
    if not same:
        msg = "the domain's nodes lie elsewhere in this city; give the city that it was made from"
        raise CityError(msg)
    return nodes


def _refuse_unreachable(ways: FloatArray, goals: IntArray, directed: bool) -> None:
    cut = np.isinf(ways)
    if not cut.any():
        return
    t = int(cut.any(axis=1).argmax())
    kind = "city.largest_component(strong=True)" if directed else "city.largest_component()"
    msg = (
        f"{int(cut[t].sum())} records cannot reach task {int(goals[t])} over the streets; "
        f"make the domain from {kind}"
    )
    raise CityError(msg)
