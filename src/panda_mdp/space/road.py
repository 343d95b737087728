"""Distance along the streets as the metric of privacy.

Street costs are taken as whole multiples of 1e-9 units (micrometres, or sixty billionths of a
second), so every path length is an exact sum: distances are symmetric and obey the triangle
inequality to the last bit before they are divided back into km or minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray, adjacency, frozen
from panda_mdp.errors import DomainError
from panda_mdp.space.metrics import Matrix

STEPS_PER_UNIT = 1e9
MATRIX_RECORDS = 8000
"""Beyond this many records the K x K table is not formed."""
BLOCK_ENTRIES = 1 << 21


class Road(Matrix):
    """Shortest road distance between some nodes of a city, streets open both ways.

    The table is formed when it is first asked for.
    """

    graph: scipy.sparse.csr_array
    nodes: IntArray

    def __init__(self, graph: scipy.sparse.csr_array, nodes: IntArray, unit: str) -> None:
        vars(self).update(graph=graph, nodes=frozen(nodes), unit=unit)

    def __reduce__(self) -> tuple[Any, ...]:
        return Road, (self.graph, self.nodes, self.unit)

    def check(self) -> None:
        costs, turned = self.graph, self.graph.T.tocsr()
        symmetric = abs(costs - turned).max() == 0
        if not symmetric or not np.all(costs.data >= 0) or np.any(costs.data % 1):
            raise DomainError(
                "the graph of a road metric is symmetric, in whole steps that are not negative"
            )
        part = self._parts(costs)
        wrong = np.flatnonzero(part != part[0])
        if len(wrong):
            raise DomainError(
                f"records 0 and {wrong[0]} are not connected by streets ({len(wrong)} such); "
                "use city.largest_component()"
            )
        # Records that streets of no length join are at distance 0.
        ends = costs.tocoo()
        still = ends.data == 0
        group = self._parts(adjacency(ends.row[still], ends.col[still], costs.shape[0]))
        _, first, inverse = np.unique(group, return_index=True, return_inverse=True)
        again = np.flatnonzero(first[inverse] != np.arange(self.size))
        if len(again):
            raise DomainError(
                f"records {first[inverse[again[0]]]} and {again[0]} are joined by a street of no "
                f"length ({len(again)} such); take one of them only"
            )

    def _parts(self, graph: scipy.sparse.csr_array) -> IntArray:
        """The connected part of a graph that each record is in."""
        label = scipy.sparse.csgraph.connected_components(graph, directed=False)[1]
        return label[self.nodes].astype(np.int64)

    @classmethod
    def over(cls, graph: scipy.sparse.csr_array, nodes: IntArray, unit: str) -> Road:
        """The metric of a symmetric graph of costs in `unit`; records must be joined by it."""
        graph.data = frozen(np.rint(graph.data * STEPS_PER_UNIT))
        return cls(graph, nodes, unit)

    @property
    def size(self) -> int:
        return len(self.nodes)

    def take(self, indices: IntArray) -> Road:
        return Road(self.graph, self.nodes[indices], self.unit)

    def _ways(self) -> Iterator[tuple[slice, FloatArray, npt.NDArray[np.int32]]]:
        """Shortest ways from some records at a time to all nodes: which, how long, and the node
        before each on its way."""
        if self.size > MATRIX_RECORDS:
            gigabytes = self.size**2 * 8 / 1e9
            raise DomainError(
                f"a road metric over {self.size:,} records needs a table of {gigabytes:.0f} GB; "
                f"use at most {MATRIX_RECORDS:,} records (a smaller sample, or a part of the city "
                "with --bbox), or great-circle distance with city.domain(...)"
            )
        step = max(1, BLOCK_ENTRIES // self.graph.shape[0])
        for start in range(0, self.size, step):
            part = slice(start, start + step)
            length, before = scipy.sparse.csgraph.dijkstra(
                self.graph, directed=True, indices=self.nodes[part], return_predecessors=True
            )
            yield part, length, before

    @cached_property
    def distances(self) -> FloatArray:
        """The whole table, K x K."""
        parts = [length[:, self.nodes] for _, length, _ in self._ways()]
        return frozen(np.concatenate(parts) / STEPS_PER_UNIT)

    @cached_property
    def generating_pairs(self) -> IntArray:
        """Pairs, shape (E, 2), whose constraints imply those of all pairs, exactly.

        A pair is left out where a shortest way between the two passes another record: then its
        constraint follows from the two parts. Where every node is a record these are streets.
        Equivalent to keeping the other nodes in the LP as variables without row sums, since
        eliminating those leaves just the shortest ways between records.
        """
        is_record = np.zeros(self.graph.shape[0], dtype=np.bool_)
        is_record[self.nodes] = True
        pairs = []
        for part, _, before in self._ways():
            for k, source in enumerate(self.nodes[part].tolist()):
                last = _last_record(before[k], source, is_record)[self.nodes]
                direct = np.flatnonzero((last == source) & (self.nodes != source))
                pairs.append(np.stack([np.full(len(direct), part.start + k), direct], axis=1))
        return np.unique(np.sort(np.concatenate(pairs), axis=1), axis=0)


def _last_record(before: npt.NDArray[np.int32], source: int, is_record: BoolArray) -> IntArray:
    """For every node the last record on the way to it, itself excluded."""
    last = before.astype(np.int64)
    last[source] = source
    # Two steps at a time, four, eight: the depth of the tree is halved by each round.
    while not (reached := is_record[last]).all():
        last = np.where(reached, last, last[last])
    return last
