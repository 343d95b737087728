"""Path metrics: a weighted graph of records, distances by its shortest paths, and no K x K table.

Streets, trees of categories and lengths that follow the density of people are all of this kind.
Edges have whole numbers of steps of 2^-30 units for lengths, so path lengths are exact sums:
distances are symmetric and obey the triangle inequality to the last bit, as float64 too.

**Edges are enough.** Every node is a record and every edge the shortest path between its ends. A
table with z_x <= e^(eps len) z_x' along all edges, both ways, has it for all pairs: multiply along
a shortest path. The audit, the closure, the LP and its bound ask for edges alone.

**Contraction.** Where records are only some nodes of a graph, the edges are the pairs of records
with no record in between on any shortest path, at their distance (`contracted`). Records on a
shortest path between two others cut it into parts that are shortest themselves. Of all shortest
paths take one with the most records: its parts have no record in between on any shortest path, so
they are edges, and the graph of records has the distances of the whole one.

**Density.** Lengths that follow the density of people, as many of them within a nat everywhere
(`by_density`): with r(x) the radius at which the ball around x holds enough people and R >= r such
that |R(x) - R(x')| <= d(x, x') / 2, an edge (u, v) of length l becomes l / max(R(u), R(v)). Within
r(x) of x the integral of 1 / R along a path is at most that of 1 / (r(x) - t / 2), 2 log 2 = 1.39:
balls of this radius hold enough already. Radii are corrected by what balls turn out to need, and in
the end all lengths are divided by the largest radius that any ball needs, found by a search from
every record: then balls of radius 1 hold enough, which is checked on the final lengths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Self

import numpy as np
import scipy

from panda_mdp.base.arrays import (
    BLOCK_ENTRIES,
    FloatArray,
    IntArray,
    adjacency,
    both_ways,
    frozen,
    shortest_parallel,
)
from panda_mdp.base.threads import by_slices
from panda_mdp.errors import DomainError
from panda_mdp.space.metrics import (
    Haversine,
    Metric,
    check_places,
)

STEP = 2.0**-30
"""Of the unit: edges are whole multiples of it."""
MOST_STEPS = 2**53
"""Sums of fewer steps are exact in float64."""
MOST_EDGES = 1 << 23
TABLE_RECORDS = 8000
"""Beyond this many records a table of all distances is not formed for loops that need one."""
SOURCES = 256
"""Searches that a thread makes at a time."""
SLOWNESS = 0.5
"""By which radii of density may change along a unit of length."""
ROUNDS = 2
"""How often radii are corrected, place by place, by what balls still need."""
LONGEST = 16.0
"""Nats of an edge between places that hold enough people by themselves."""
ROUNDING = 1e-6
"""By which lengths are shortened for what rounding does to them."""


def _whole(graph: scipy.sparse.csr_array) -> tuple[IntArray, ...]:
    """A graph as searches take it: where the neighbours of every node begin, those, and steps."""
    return tuple(part.astype(np.int64) for part in (graph.indptr, graph.indices, graph.data))


@dataclass(frozen=True, eq=False)
class PathMetric(Metric):
    """Shortest paths over edges between records."""

    edges: IntArray
    """(E, 2), ascending, the lower end first."""
    steps: IntArray
    """(E,): lengths, whole multiples of `STEP` units."""
    unit: str = "unit"
    lat: FloatArray | None = None
    """Where records lie, for maps and for snapping; distances do not depend on it."""
    lon: FloatArray | None = None

    kind = "graph"
    relative_error = 0.0

    @cached_property
    def size(self) -> int:
        return int(self.edges.max(initial=-1)) + 1

    @cached_property
    def places(self) -> Haversine | None:
        if self.lat is None or self.lon is None:
            return None
        return Haversine(self.lat, self.lon)

    def check(self) -> None:
        edges = self.edges
        steps = self.steps
        size = self.size
        if edges.dtype.kind != "i" or steps.dtype.kind != "i" or edges.shape != (len(steps), 2):
            raise DomainError("a graph has whole numbers for edges, (E, 2), and for steps, (E,)")
        if edges.min(initial=0) < 0 or size > len(edges) + 1:
            raise DomainError(f"{len(edges)} edges do not join records up to {size - 1}")
        self._check_steps()
        check_connected(edges, np.arange(size))
        where = [at for at in (self.lat, self.lon) if at is not None]
        if len(where) == 1 or any(at.shape != (size,) for at in where):
            raise DomainError(f"give one lat and lon for each of the {size} records, or none")
        if where:
            check_places(where[0], where[1], turned=True)
        known = contracted(edges, steps, np.arange(size))
        if not all(map(np.array_equal, known, (edges, steps))):
            raise DomainError(
                "an edge is no shorter than a path around it; Domain.from_graph leaves such edges "
                "out"
            )

    def _check_steps(self) -> None:
        still = np.flatnonzero(self.steps < 1)
        if len(still):
            i, j = self.edges[still[0]]
            raise DomainError(
                f"records {i} and {j} are joined by an edge of no length, or below 2^-30 "
                f"{self.unit} ({len(still)} such); take one of them only"
            )
        if float(self.steps.sum(dtype=float)) >= MOST_STEPS:
            raise DomainError(
                f"all edges together are longer than 2^23 {self.unit}; use a larger unit"
            )

    @cached_property
    def around(self) -> scipy.sparse.csr_array:
        """The edges both ways and their steps."""
        return both_ways(self.edges, self.steps.astype(float), self.size)

    @property
    def generating_pairs(self) -> IntArray:
        return self.edges

    @cached_property
    def distances(self) -> FloatArray:
        """The whole table, for compiled loops over all pairs of few records."""
        if self.size > TABLE_RECORDS:
            raise DomainError(
                f"this needs the distances of all pairs of records, and {self.size:,} records on a "
                f"graph have a table of {self.size**2 * 8 / 1e9:.0f} GB; use at most "
                f"{TABLE_RECORDS:,} records, or straight lines: city.domain(...)"
            )
        everything = np.arange(self.size)
        return frozen(self.block(everything, everything))

    def block(self, rows: IntArray, cols: IntArray) -> FloatArray:
        if len(cols) < len(rows):
            return np.ascontiguousarray(self.block(cols, rows).T)
        out = np.empty((len(rows), len(cols)))

        def work(part: slice) -> None:
            found = scipy.sparse.csgraph.dijkstra(self.around, directed=True, indices=rows[part])
            out[part] = STEP * found[:, cols]

        by_slices(work, len(rows), max(1, BLOCK_ENTRIES // 8 // self.size))
        return out

    def pairs(self, first: IntArray, second: IntArray) -> FloatArray:
        given = np.sort(np.broadcast_arrays(first, second), axis=0)
        low, high = given.reshape(2, -1)
        looked_up: Any = self.around[low[None], high[None]]
        length = STEP * looked_up.toarray()[0]
        others = np.flatnonzero((length == 0) & (low != high))
        sources, row = np.unique(low[others], return_inverse=True)
        step = max(1, BLOCK_ENTRIES // self.size)
        for start in range(0, len(sources), step):
            some = np.flatnonzero(row // step == start // step)
            block = self.block(sources[start : start + step], np.arange(self.size))
            length[others[some]] = block[row[some] - start, high[others[some]]]
        return length.reshape(given.shape[1:])

    def balls(
        self, weights: FloatArray, enough: float, most: int = 0
    ) -> tuple[FloatArray, IntArray, FloatArray]:
        """The radius at which the ball around every record holds `enough` of `weights`, infinite
        where all records do not; the records nearest to it, up to `most`, itself first, and their
        distances."""
        from panda_mdp.space.searches import balls

        radius = np.empty(self.size)
        inside = np.full((self.size, most), -1)
        away = np.zeros(inside.shape)
        graph = _whole(self.around)

        def work(part: slice) -> None:
            found = (radius[part], inside[part], away[part])
            balls(*graph, part.start, weights, enough, *found)

        by_slices(work, self.size, SOURCES)
        return STEP * radius, inside, STEP * away

    def take(self, indices: IntArray) -> Self:
        lat, lon = (None if at is None else at[indices] for at in (self.lat, self.lon))
        return type(self)(*contracted(self.edges, self.steps, indices), self.unit, lat, lon)

    @cached_property
    def diameter(self) -> float:
        """The largest distance, by bounds on how far the farthest record of each is, which every
        search from a record narrows down for all others (Takes and Kosters 2011)."""
        low = np.zeros(self.size)
        high = np.full(self.size, np.inf)
        widest = True
        while low.max() < high.max():
            source = int(
                np.argmax(high) if widest else np.argmin(np.where(high > low.max(), low, np.inf))
            )
            away = self.block(np.array([source]), np.arange(self.size))[0]
            farthest = away.max()
            low = np.maximum(low, np.maximum(away, farthest - away))
            high = np.minimum(high, farthest + away)
            widest = not widest
        return float(low.max())


def contracted(edges: IntArray, steps: IntArray, records: IntArray) -> tuple[IntArray, IntArray]:
    """The edges and steps among `records`, nodes of a graph, that have its distances: the pairs
    without another record in between on a shortest path."""
    from panda_mdp.space.searches import direct_pairs

    check_connected(edges, records)
    count = int(edges.max()) + 1
    graph = _whole(both_ways(edges, steps.astype(float), count))
    number = np.full(count, -1)
    number[records] = np.arange(len(records))
    found: dict[int, tuple[IntArray, ...]] = {}

    def work(part: slice) -> None:
        some = found[part.start] = direct_pairs(*graph, records[part], number)
        if len(some[0]) * (len(records) // SOURCES) > 2 * MOST_EDGES:
            raise DomainError(
                f"more than {MOST_EDGES:,} pairs of records have no record in between; make the "
                "nodes between them records too, or take fewer records"
            )

    by_slices(work, len(records), SOURCES)
    first, second, length = (np.concatenate(part) for part in zip(*found.values(), strict=True))
    once = first < second
    order = np.lexsort((second[once], first[once]))
    return np.stack([first[once], second[once]], axis=1)[order], length[once][order]


def check_connected(edges: IntArray, records: IntArray) -> None:
    """Refuse records that no path joins."""
    nodes = max(int(edges.max(initial=-1)), int(records.max(initial=-1))) + 1
    graph = adjacency(edges[:, 0], edges[:, 1], nodes)
    part = scipy.sparse.csgraph.connected_components(graph, directed=False)[1][records]
    wrong = np.flatnonzero(part != part[:1])
    if len(wrong):
        raise DomainError(
            f"records 0 and {wrong[0]} are not connected ({len(wrong)} such); take a connected "
            "part: city.largest_component()"
        )


def graph_of_records(
    edges: IntArray, lengths: FloatArray, records: IntArray
) -> tuple[IntArray, IntArray]:
    """Edges among records, and their steps, of a graph as it is given: parallel edges, loops,
    lengths that are rounded to the nearest whole number of steps."""
    bad = np.flatnonzero(~((lengths >= 0) & (lengths / STEP < MOST_STEPS)))
    if len(bad):
        raise DomainError(
            f"the length of edge {bad[0]} is {lengths[bad[0]]}; lengths are finite, not negative "
            f"and below 2^23 ({len(bad)} such)"
        )
    steps = np.rint(lengths / STEP).astype(np.int64)
    low, high, steps = shortest_parallel(edges.min(axis=1), edges.max(axis=1), steps)
    found = contracted(np.stack([low, high], axis=1), steps, records)
    # Nodes that lie together may hide a record in between; a second time there are none such.
    return found if steps.all() else contracted(*found, np.arange(len(records)))


def tree_edges(
    parents: Mapping[Any, Any], length: float | Mapping[Any, float], leaves: bool
) -> tuple[list[tuple[int, int]], Any, list[Any], list[int]]:
    """The edges of a tree of names, their lengths, the names in the order in which they come up,
    and which of them are records: all, or the leaves."""
    names = list(dict.fromkeys(chain.from_iterable(parents.items())))
    if len(names) != len(parents) + 1:
        raise DomainError(
            f"{len(names)} names and {len(parents)} parents; a tree has one root, the only name "
            "without a parent"
        )
    number = {name: k for k, name in enumerate(names)}
    edges = [(number[child], number[parent]) for child, parent in parents.items()]
    lengths = [length[child] for child in parents] if isinstance(length, Mapping) else length
    inner = set(parents.values()) if leaves else ()
    return edges, lengths, names, [number[name] for name in names if name not in inner]


def by_density(metric: PathMetric, weights: FloatArray, people: float) -> PathMetric:
    """The same edges, of lengths at which every ball of radius 1 holds `people` of `weights`."""
    if weights.shape != (metric.size,) or not (np.isfinite(weights) & (weights >= 0)).all():
        raise DomainError(
            f"weights has shape {weights.shape}; give a number of people for each of the "
            f"{metric.size} records, finite and not negative"
        )
    if not 0 < people <= weights.sum():
        raise DomainError(
            f"people is {people!r}, and the weights sum to {weights.sum():g}; balls can hold more "
            "than nobody and at most everybody"
        )

    def needed(lengths: PathMetric) -> FloatArray:
        return lengths.balls(weights, people)[0]

    radius = slow(metric, np.maximum(needed(metric), STEP))
    for _ in range(ROUNDS):
        radius = slow(metric, radius * np.maximum(needed(measured_by(metric, radius)), SLOWNESS))
    most = needed(measured_by(metric, radius)).max()
    found = measured_by(metric, radius * max(most, STEP) * (1 + ROUNDING))
    if not needed(found).max() <= 1:
        raise DomainError(
            f"records lie too near for {people:g} people in multiples of 2^-30; merge some of them"
        )
    return found


def measured_by(metric: PathMetric, radius: FloatArray) -> PathMetric:
    """The metric whose edges are as long as before over the larger radius of their ends, rounded
    down, or `LONGEST`: balls hold no less."""
    steps = np.minimum(metric.steps / radius[metric.edges].max(axis=1), LONGEST / STEP)
    steps = np.floor(steps).astype(np.int64)
    within = contracted(metric.edges, np.maximum(steps, 1), np.arange(metric.size))
    return PathMetric(*within, "nat", metric.lat, metric.lon)


def slow(metric: PathMetric, radius: FloatArray) -> FloatArray:
    """The least radii above these that change by no more than `SLOWNESS` along a unit.

    They are max over x' of r(x') - d(x, x') / 2, by one search from a node that lies max r - r(x')
    and 1 away from every x'.
    """
    size = metric.size
    around = metric.around.tocoo()
    away = radius.max() + 1 - radius
    first: IntArray = np.append(around.row, np.full(size, size))
    second: IntArray = np.append(around.col, np.arange(size))
    graph = adjacency(first, second, size + 1, np.append(SLOWNESS * STEP * around.data, away))
    found = scipy.sparse.csgraph.dijkstra(graph, directed=True, indices=np.array([size]))
    return np.maximum(radius.max() + 1 - found[0, :size], radius)
