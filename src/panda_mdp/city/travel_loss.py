"""The paper's loss: extra travel to tasks when another place is reported. K x m tables."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.city.city import City
from panda_mdp.city.travel import Measure, travel_graph, travel_rows
from panda_mdp.errors import CityError, ProblemError
from panda_mdp.space.domain import Domain, check_indices

BLOCK_ENTRIES = 1 << 15
"""Entries of the table that are summed over tasks at a time: a block that stays in cache."""


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
    shares = _shares(probabilities, len(goals))
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
    step = max(1, BLOCK_ENTRIES // max(1, count))
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


def _shares(probabilities: npt.ArrayLike | None, count: int) -> FloatArray:
    if probabilities is None:
        return np.full(count, 1.0 / count)
    shares = np.asarray(probabilities, dtype=np.float64)
    if shares.shape != (count,) or not (np.isfinite(shares).all() and (shares >= 0).all()):
        msg = f"task probabilities must be {count} finite, non-negative numbers, one per task"
        raise ProblemError(msg)
    if abs(shares.sum() - 1) > 1e-9:
        msg = f"task probabilities sum to {shares.sum():.12g}; they must sum to 1"
        raise ProblemError(msg)
    return shares


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
