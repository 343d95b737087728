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
from panda_mdp.methods.optimal.graph import Graph
from panda_mdp.problem import Problem
from panda_mdp.space.tiles import order_in_space

WIDTH = 32
LEAST_OUTPUTS = 512
"""Fewer outputs are one tile: the dense iteration is faster."""
WORTHWHILE = 0.35
"""Part of the table that the nodes may hold for lifting to pay."""
NATS, MOST_NATS, WIDER = 10.0, 60.0, 1.5
LIMITED = 1e-3
"""Of the bound: what the reach may take from it before it is made wider."""
BLOCK_ENTRIES = 1 << 22
"""Losses that are looked at together."""
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
    step = max(1, graph.count // 4096)
    ends = graph.ends[::step]
    slopes = np.abs(loss[ends[:, 0]] - loss[ends[:, 1]]) / graph.length[::step, None]
    typical = float(np.quantile(slopes, 0.9)) if graph.count else 0.0
    sees = np.empty((len(tiles), problem.size), dtype=np.bool_)
    outside = np.full(problem.size, np.inf)
    step = max(1, BLOCK_ENTRIES // problem.outputs_count)
    for begin in range(0, problem.size, step):
        rows = slice(begin, begin + step)
        least = np.minimum.reduceat(loss[rows][:, order], starts[:-1], axis=1)
        limit = least.min(axis=1) + nats * typical / problem.epsilon
        inside = least <= limit[:, None]
        sees[:, rows] = inside.T
        outside[rows] = np.where(inside, np.inf, least).min(axis=1)
    steepness = problem.epsilon / typical if typical > 0 else 0.0
    return Reach(tiles, sees, problem.prior * outside, nats, steepness)


class Nodes:
    """The lifted graph: nodes tile by tile, within a tile in the records' order in space."""

    def __init__(self, problem: Problem, reached: Reach) -> None:
        along = problem.domain.tiles.order
        tile, position = np.nonzero(reached.sees[:, along])
        self.tile, self.record = tile, along[position]
        self.count = len(tile)
        self._id = np.full(reached.sees.shape, -1, dtype=np.int64)
        self._id[self.tile, self.record] = np.arange(self.count)

    def lift(self, graph: Graph) -> Graph:
        """Every edge in every tile that sees both of its ends."""
        ends, lengths = [], []
        for ids in self._id:
            first, second = ids[graph.ends[:, 0]], ids[graph.ends[:, 1]]
            inside = (first >= 0) & (second >= 0)
            ends.append(np.stack([first[inside], second[inside]], axis=1))
            lengths.append(graph.length[inside])
        return Graph(np.concatenate(ends), np.concatenate(lengths))


def node_problem(problem: Problem, reached: Reach, nodes: Nodes) -> Any:
    """What the iteration asks of a problem, with nodes for records and WIDTH outputs."""
    columns = reached.tiles[nodes.tile]
    metric = SimpleNamespace(relative_error=problem.domain.metric.relative_error)
    tiles = SimpleNamespace(order=np.arange(nodes.count))
    return SimpleNamespace(
        size=nodes.count,
        outputs_count=WIDTH,
        epsilon=problem.epsilon,
        weighted_loss=problem.prior[nodes.record, None]
        * problem.loss[nodes.record[:, None], columns],
        domain=SimpleNamespace(tiles=tiles, metric=metric),
    )


class Lifted:
    """A solver of the whole problem that iterates on nodes; `make` builds the iteration."""

    def __init__(
        self, problem: Problem, graph: Graph, start: FloatArray | None, reached: Reach, make: Any
    ) -> None:
        self.problem, self.graph, self._make = problem, graph, make
        self._before = 0
        self._build(start, reached)

    def _build(self, start: FloatArray | None, reached: Reach) -> None:
        problem, graph = self.problem, self.graph
        self.reached = reached
        self._nodes = nodes = Nodes(problem, reached)
        columns = reached.tiles[nodes.tile]
        # An output that fills a tile up shares its mass with itself.
        same = (columns[:, :, None] == columns[:, None, :]).sum(axis=2)
        cut = node_problem(problem, reached, nodes)
        if start is None:
            # The warm start of the dense iteration, of which only the nodes are looked at.
            cost = cut.weighted_loss / np.maximum(problem.prior[nodes.record, None], 1e-300)
            least = np.full(problem.size, np.inf)
            np.minimum.at(least, nodes.record, cost.min(axis=1))
            rise = np.minimum((cost - least[nodes.record, None]) * reached.steepness / 2, 700.0)
            table = np.exp(-rise) / same
            table /= np.bincount(nodes.record, table.sum(axis=1))[nodes.record, None]
        else:
            table = start[nodes.record[:, None], columns] / same
        self._inner = self._make(cut, nodes.lift(graph), table, nodes.record)

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

    def grouped(self, order: IntArray) -> tuple[IntArray, BoolArray, FloatArray, float]:
        """The outputs of every tile, -1 where one has fewer; which records, along `order`, it sees;
        the current table on those nodes, and its loss."""
        tiles, nodes = self.reached.tiles, self._nodes
        again = np.zeros(tiles.shape, dtype=np.bool_)
        for k in range(1, WIDTH):
            again[:, k] = (tiles[:, :k] == tiles[:, k : k + 1]).any(axis=1)
        z = np.asarray(self._inner.matrix())
        loss = float((z * self._inner.problem.weighted_loss).sum())
        for tile, k in np.argwhere(again).tolist():
            here = nodes.tile == tile
            first = int(np.argmax(tiles[tile] == tiles[tile, k]))
            z[here, first] += z[here, k]
        # Nodes lie tile by tile in the records' order in space.
        return np.where(again, -1, tiles), self.reached.sees[:, order], z, loss

    def matrix(self) -> FloatArray:
        """The current table, K x m; 0 outside the nodes."""
        out = np.zeros(self.problem.loss.shape)
        columns = self.reached.tiles[self._nodes.tile]
        np.add.at(out, (self._nodes.record[:, None], columns), self._inner.matrix())
        return out

    def bound(self) -> float:
        """A rigorous lower bound on the optimum of the whole problem."""
        from panda_mdp.methods.optimal.dual import UNIT_ROUNDOFF, total_from_below

        least = np.asarray(self._inner.least())
        inside = np.full(self.problem.size, np.inf)
        np.minimum.at(inside, self._nodes.record, np.where(np.isnan(least), -np.inf, least))
        outside = self.reached.outside * (1 - 2 * UNIT_ROUNDOFF)
        bound = total_from_below(np.minimum(inside, outside))
        # Where plain costs outside are the least, a wider reach would raise the bound.
        limited = float(np.maximum(inside - outside, 0.0).sum())
        if limited > LIMITED * abs(bound) and self.reached.nats < MOST_NATS:
            table, self._before = self.matrix(), self.iterations
            self._build(table, reach(self.problem, self.graph, WIDER * self.reached.nats))
        return bound

    def proof(self) -> None:
        """None: multipliers of nodes are not those of records."""


def localised(problem: Problem, graph: Graph) -> Reach | None:
    """The reach of a problem for which lifting pays, else None."""
    if problem.outputs_count < LEAST_OUTPUTS:
        return None
    reached = reach(problem, graph)
    return reached if reached.share <= WORTHWHILE else None
