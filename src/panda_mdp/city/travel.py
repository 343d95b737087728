"""Shortest paths over a city's streets, in km or minutes.

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
from panda_mdp.errors import CityError
from panda_mdp.space.domain import check_indices

if TYPE_CHECKING:
    from panda_mdp.city.city import City

Measure = Literal["length", "time"]
BLOCK_ENTRIES = 1 << 21


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
    a, b, length = a[order], b[order], length[order]
    first = np.ones(len(a), dtype=np.bool_)
    first[1:] = (a[1:] != a[:-1]) | (b[1:] != b[:-1])
    return a[first], b[first], length[first]
