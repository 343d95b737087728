"""Many outputs: each tile of outputs sees only the records that may use it.

Where any place may be reported, nearly all of a table is next to nothing. Outputs lie in tiles of
`WIDTH` that are alike in their losses. Tile T sees the records S_T for which one of its outputs
costs at most `nats` L / epsilon more than the record's cheapest, L a typical slope of the loss. A
node is (T, x) with x in S_T, an edge (T, i, j) a constrained pair inside S_T; arrays are nodes x
WIDTH and edges x WIDTH, and the iteration is the dense one on this graph. Only the rows' sums
change: they run over all nodes of a record. A dense problem is the case of one tile.

**The bound** holds for the whole table whatever the reach is: constraints outside have multipliers
0 and entries outside keep their plain cost, of which the least counts for every record. Where that
outside cost is what limits the bound the reach is made larger.

**Private** is what the closure over all pairs and all outputs makes of the table, as ever.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.loss import seen_by_groups
from panda_mdp.methods.optimal.graph import Graph
from panda_mdp.problem import Problem
from panda_mdp.space.tiles import order_in_space

WIDTH = 32
LEAST_OUTPUTS = 512
"""Fewer outputs are one tile, where the dense iteration is faster, and give dense tables."""
HOST_OUTPUTS = 128
"""From so many on tiles pay on the CPU, where multipliers no longer fit its cache."""
WORTHWHILE = 0.35
"""Part of the table that the nodes may hold for lifting to pay."""
NATS, MOST_NATS, WIDER = 10.0, 60.0, 1.5
HOST_NATS = 7.0
"""On the CPU, where nodes that are missing are added one by one (host_lifted.py)."""
LIMITED = 1e-3
"""Of the bound: what the reach may take from it before it is made wider."""
SLOPE_EDGES, SLOPE_OUTPUTS = 2048, 512
"""Of which the slopes of the loss are looked at."""
LANDMARKS = 16
"""Records by whose losses outputs are compared."""


@dataclass(frozen=True)
class Reach:
    """Which tile of outputs sees which record."""

    tiles: IntArray
    """(tiles, WIDTH) outputs; the last tile is filled up with outputs that it has."""
    sees: BoolArray
    """(tiles, K)."""
    outside: FloatArray
    """Least p_x c_xy over the outputs that no node of record x holds; inf where it holds all."""
    nats: float
    steepness: float = 0.0
    """epsilon over a typical slope of the loss."""

    @property
    def share(self) -> float:
        """Part of the table that the nodes hold."""
        return float(self.sees.mean())


def reach(problem: Problem, graph: Graph, nats: float = NATS) -> Reach:
    """Tiles of outputs and the records that each sees."""
    loss = problem.loss
    some = np.linspace(0, problem.size - 1, min(LANDMARKS, problem.size)).astype(np.int64)
    order, starts = order_in_space(np.ascontiguousarray(loss[some].T), WIDTH)
    tiles = np.stack([np.resize(order[a:b], WIDTH) for a, b in itertools.pairwise(starts)])
    typical = _typical_slope(problem, graph)
    sees, outside = seen_by_groups(loss, order, starts, nats * typical / problem.epsilon)
    steepness = problem.epsilon / typical if typical > 0 else 0.0
    return Reach(tiles, sees, problem.prior * outside, nats, steepness)


def _typical_slope(problem: Problem, graph: Graph) -> float:
    """A typical slope of the loss along the graph's edges, from some edges and outputs."""
    if not graph.count:
        return 0.0
    step = max(1, graph.count // SLOPE_EDGES)
    ends, length = graph.ends[::step], graph.length[::step]
    columns = np.arange(0, problem.outputs_count, max(1, problem.outputs_count // SLOPE_OUTPUTS))
    rise = problem.loss[ends[:, :1], columns] - problem.loss[ends[:, 1:], columns]
    return float(np.quantile(np.abs(rise) / length[:, None], 0.9))


class Nodes:
    """The lifted graph: nodes tile by tile, within a tile in the records' order in space."""

    def __init__(self, problem: Problem, reached: Reach) -> None:
        along = problem.domain.tiles.order
        self._place = np.argsort(along)
        tile, position = np.nonzero(reached.sees[:, along])
        self.tile, self.record = tile, along[position]
        self.count = len(tile)
        self.id = np.full(reached.sees.shape, -1, dtype=np.int32)
        self.id[self.tile, self.record] = np.arange(self.count, dtype=np.int32)

    def lift(self, graph: Graph) -> Graph:
        """Every edge in every tile that sees both of its ends, sorted by its ends."""
        place = self._place[graph.ends]
        swap = place[:, 0] > place[:, 1]
        first = np.where(swap, graph.ends[:, 1], graph.ends[:, 0])
        second = np.where(swap, graph.ends[:, 0], graph.ends[:, 1])
        along = np.lexsort((place.max(axis=1), first))
        second, length = second[along], graph.length[along]
        count = np.bincount(first, minlength=len(self._place))
        begin = np.cumsum(count) - count
        # Every node asks, for each edge of its record, whether its tile sees the other end.
        own = count[self.record]
        node = np.repeat(np.arange(self.count), own)
        edge = np.arange(len(node)) - np.repeat(np.cumsum(own) - own, own)
        edge += begin[self.record[node]]
        other = self.id[self.tile[node], second[edge]]
        inside = other >= 0
        ends = np.stack([node[inside], other[inside].astype(np.int64)], axis=1)
        return Graph(ends, length[edge[inside]])


def node_problem(problem: Problem, reached: Reach, nodes: Nodes) -> Any:
    """What the iteration asks of a problem, with nodes for records and WIDTH outputs."""
    metric = SimpleNamespace(relative_error=problem.domain.metric.relative_error)
    tiles = SimpleNamespace(order=np.arange(nodes.count))
    cost = problem.loss[nodes.record[:, None], reached.tiles[nodes.tile]]
    cost *= problem.prior[nodes.record, None]
    return SimpleNamespace(
        size=nodes.count,
        outputs_count=WIDTH,
        epsilon=problem.epsilon,
        weighted_loss=cost,
        domain=SimpleNamespace(tiles=tiles, metric=metric),
    )


class Lifted:
    """A solver of the whole problem that iterates on nodes; `make` builds the iteration."""

    def __init__(
        self, problem: Problem, graph: Graph, start: FloatArray | None, reached: Reach, make: Any
    ) -> None:
        self.problem, self.graph, self._make = problem, graph, make
        self._before = 0
        nodes = self._nodes_of(reached)
        self._build(reached, nodes, self._first_table(reached, nodes, start))

    def _nodes_of(self, reached: Reach) -> Nodes:
        return Nodes(self.problem, reached)

    def _first_table(self, reached: Reach, nodes: Nodes, start: FloatArray | None) -> FloatArray:
        """A table on nodes from one of the whole problem, or a start of its own."""
        problem = self.problem
        columns = reached.tiles[nodes.tile]
        # An output that fills a tile up shares its mass with itself.
        same = (reached.tiles[:, :, None] == reached.tiles[:, None, :]).sum(axis=2)[nodes.tile]
        if start is not None:
            return np.asarray(start[nodes.record[:, None], columns] / same)
        # The warm start of the dense iteration, of which only the nodes are looked at.
        cost = np.asarray(problem.loss[nodes.record[:, None], columns])
        least = np.full(problem.size, np.inf)
        np.minimum.at(least, nodes.record, cost.min(axis=1))
        cost -= least[nodes.record, None]
        table = np.exp(-np.minimum(cost * (reached.steepness / 2), 700.0)) / same
        table /= np.bincount(nodes.record, table.sum(axis=1))[nodes.record, None]
        return np.asarray(table)

    def _build(self, reached: Reach, nodes: Nodes, table: FloatArray) -> None:
        self.reached, self._nodes = reached, nodes
        cut = node_problem(self.problem, reached, nodes)
        self._inner = self._make(cut, nodes.lift(self.graph), table, nodes.record)

    def _widen(self) -> None:
        """Go on from the current table with a larger reach: the same tiles see more."""
        old, table = self._nodes, self._table()
        self._before = self.iterations
        del self._inner
        reached = reach(self.problem, self.graph, WIDER * self.reached.nats)
        nodes = self._nodes_of(reached)
        self._build(reached, nodes, self._moved(old, nodes, table))

    def _table(self) -> FloatArray:
        """The current table on the nodes."""
        return np.asarray(self._inner.matrix())

    def _moved(self, old: Nodes, nodes: Nodes, table: FloatArray) -> FloatArray:
        """A table of old nodes on nodes of the same tiles, and more; 0 on those."""
        wide = np.zeros((nodes.count, WIDTH))
        wide[nodes.id[old.tile, old.record]] = table
        return wide

    def grow(self, table: Any) -> None:
        """See what the current table, `table` as a sparse one's candidate, lacks, where the machine
        can."""

    @property
    def iterations(self) -> int:
        return self._before + int(self._inner.iterations)

    def advance(self, iterations: int) -> None:
        """At least `iterations` more iterations."""
        self._inner.advance(iterations)

    def extend(self, graph: Graph) -> None:
        """Constrain further pairs, in every tile that sees both."""
        self.graph = self.graph.join(graph.ends, graph.length)
        self._inner.extend(self._nodes.lift(graph))

    @property
    def _again(self) -> BoolArray:
        """Which places of tiles hold an output that the tile has already."""
        tiles = self.reached.tiles
        again = np.zeros(tiles.shape, dtype=np.bool_)
        for k in range(1, WIDTH):
            again[:, k] = (tiles[:, :k] == tiles[:, k : k + 1]).any(axis=1)
        return again

    @property
    def columns(self) -> IntArray:
        """The outputs of every tile, -1 where one has fewer."""
        return np.where(self._again, -1, self.reached.tiles)

    @property
    def fold(self) -> IntArray:
        """For every place of a tile the first place of its output."""
        tiles = self.reached.tiles
        return np.asarray((tiles[:, :, None] == tiles[:, None, :]).argmax(axis=2))

    def on_device(self) -> tuple[Any, float]:
        """The current table on the nodes where an accelerator has it, and its loss."""
        z, loss = self._inner.on_device()
        return z, float(loss)

    def grouped(self, order: IntArray) -> tuple[IntArray, BoolArray, FloatArray, float]:
        """The outputs of every tile, -1 where one has fewer; which records, along `order`, it sees;
        the current table on those nodes, and its loss."""
        nodes, fold = self._nodes, self.fold
        z = np.asarray(self._inner.matrix())
        loss = float((z * self._inner.problem.weighted_loss).sum())
        for tile, k in np.argwhere(self._again).tolist():
            here = nodes.tile == tile
            z[here, fold[tile, k]] += z[here, k]
        # Nodes lie tile by tile in the records' order in space.
        return self.columns, self.reached.sees[:, order], z, loss

    def matrix(self) -> FloatArray:
        """The current table, K x m; 0 outside the nodes."""
        out = np.zeros(self.problem.loss.shape)
        columns = self.reached.tiles[self._nodes.tile]
        np.add.at(out, (self._nodes.record[:, None], columns), self._inner.matrix())
        return out

    def bound(self) -> float:
        """A rigorous lower bound on the optimum of the whole problem."""
        from panda_mdp.methods.optimal.dual import UNIT_ROUNDOFF, total_from_below

        inside = self._least_of_records()
        outside = self.reached.outside * (1 - 2 * UNIT_ROUNDOFF)
        bound = total_from_below(np.minimum(inside, outside))
        # Where plain costs outside are the least, a wider reach would raise the bound.
        limited = float(np.maximum(inside - outside, 0.0).sum())
        if limited > LIMITED * abs(bound) and self.reached.nats < MOST_NATS:
            self._widen()
        return bound

    def _least_of_records(self) -> FloatArray:
        """The least reduced cost of every record over its nodes; -inf where that is no number."""
        least = np.asarray(self._inner.least())
        inside = np.full(self.problem.size, np.inf)
        np.minimum.at(inside, self._nodes.record, np.where(np.isnan(least), -np.inf, least))
        return inside

    def proof(self) -> None:
        """None: multipliers of nodes are not those of records."""


def localised(
    problem: Problem, graph: Graph, fewer: bool = False, nats: float = NATS
) -> Reach | None:
    """The reach of a problem for which lifting pays, else None; with `fewer` outputs on the CPU."""
    if problem.outputs_count < (min(HOST_OUTPUTS, LEAST_OUTPUTS) if fewer else LEAST_OUTPUTS):
        return None
    reached = reach(problem, graph, nats)
    return reached if reached.share <= WORTHWHILE else None
