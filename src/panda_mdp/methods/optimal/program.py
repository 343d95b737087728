"""What solvers iterate on: nodes x width arrays over a constraint graph, and which sums make a row.

Outputs lie in tiles. A node is (T, x), x a record that tile T sees, an edge (T, i, j) a constrained
pair that T sees both ends of. Costs, tables and multipliers are arrays of nodes or edges times the
width of a tile; only the rows' sums run over all nodes of a record. **A dense table is one tile**
of all outputs that sees every record.

Where any place may be reported nearly all of a table is next to nothing: outputs lie in tiles that
are alike in their losses then, and T sees the records for which one of its outputs costs at most
`nats` L / epsilon more than the record's cheapest, L a typical slope of the loss.

**The bound** holds for the whole table whatever tiles see: constraints outside have multipliers 0
and entries outside keep their plain cost, of which the least counts for every record. Where that
outside cost is what limits the bound tiles are made to see more.

**Private** is what the closure over all pairs and all outputs makes of the table, as ever.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from panda_mdp.base.arrays import (
    BoolArray,
    Float32Array,
    FloatArray,
    IntArray,
    offsets,
    owners,
)
from panda_mdp.loss import seen_by_groups
from panda_mdp.methods.optimal.graph import Graph
from panda_mdp.problem import Problem
from panda_mdp.space.tiles import order_in_space

WIDTH = 32
WIDER = 1.5
"""By which tiles see farther where what they do not see limits the bound."""
SLOPE_EDGES = 2048
SLOPE_OUTPUTS = 512
"""Of which the slopes of the loss are looked at."""
LANDMARKS = 16
"""Records by whose losses outputs are compared."""
RECORDS_AT_ONCE = 1 << 8


@dataclass(frozen=True)
class TilingTuning:
    """Which problems are cut into tiles, and how much tiles see."""

    least_outputs: int = 512
    """Fewer outputs are one tile, where the iteration is faster, and give dense tables."""
    host_outputs: int = 128
    host_multipliers: int = 1 << 22
    """From so many outputs, and more than so many multipliers, on tiles pay on the CPU, whose cache
    these no longer fit."""
    worthwhile: float = 0.35
    """Part of the table that the nodes may hold for tiles to pay."""
    nats: float = 10.0
    host_nats: float = 7.0
    """On the CPU, where nodes that are missing are added one by one."""
    most_nats: float = 60.0
    limited: float = 1e-3
    """Of the bound: what lies outside may take from it before tiles see more."""


TILING = TilingTuning()


@dataclass(frozen=True)
class Tiling:
    """Which tile of outputs sees which record."""

    tiles: IntArray
    """(tiles, width) outputs; the last tile is filled up with outputs that it has."""
    sees: BoolArray
    """(tiles, K)."""
    outside: FloatArray
    """Least p_x c_xy over the outputs that no node of record x holds; inf where it holds all."""
    nats: float = np.inf
    steepness: float = 0.0
    """epsilon over a typical slope of the loss."""

    @classmethod
    def whole(cls, problem: Problem) -> Tiling:
        """One tile of all outputs that sees every record."""
        everything = np.arange(problem.outputs_count)[None]
        return cls(everything, np.ones((1, problem.size), bool), np.full(problem.size, np.inf))

    @classmethod
    def reaching(cls, problem: Problem, graph: Graph, nats: float) -> Tiling:
        """Tiles of outputs that are alike, each with the records that may use them."""
        loss = problem.loss
        some = np.linspace(0, problem.size - 1, min(LANDMARKS, problem.size)).astype(np.int64)
        order, starts = order_in_space(np.ascontiguousarray(loss[some].T), WIDTH)
        tiles = np.stack([np.resize(order[a:b], WIDTH) for a, b in itertools.pairwise(starts)])
        typical = typical_slope(problem, graph)
        sees, outside = seen_by_groups(loss, order, starts, nats * typical / problem.epsilon)
        steepness = problem.epsilon / typical if typical > 0 else 0.0
        return cls(tiles, sees, problem.prior * outside, nats, steepness)

    @property
    def one(self) -> bool:
        """Whether this is one tile that holds the whole table."""
        return len(self.tiles) == 1 and bool(self.sees.all())

    @property
    def share(self) -> float:
        """Part of the table that the nodes hold."""
        return float(self.sees.mean())

    @cached_property
    def fold(self) -> IntArray:
        """For every place of a tile the first place of its output."""
        return (self.tiles[:, :, None] == self.tiles[:, None, :]).argmax(axis=2)

    @cached_property
    def again(self) -> BoolArray:
        """Which places of tiles hold an output that the tile has already."""
        return self.fold != np.arange(self.tiles.shape[1])

    @property
    def columns(self) -> IntArray:
        """The outputs of every tile, -1 where one has fewer."""
        return np.where(self.again, -1, self.tiles)

    def seeing(self, problem: Problem, sees: BoolArray, nats: float) -> Tiling:
        """The same tiles, which see all that they saw and more."""
        changed = np.flatnonzero((sees != self.sees).any(axis=0))
        outside = self.outside.copy()
        outside[changed] = least_outside(problem, self.tiles, sees, changed)
        return replace(self, sees=sees, outside=outside, nats=nats)


def typical_slope(problem: Problem, graph: Graph) -> float:
    """A typical slope of the loss along the graph's edges, from some edges and outputs."""
    if not graph.count:
        return 0.0
    step = max(1, graph.count // SLOPE_EDGES)
    ends = graph.ends[::step]
    length = graph.length[::step]
    columns = np.arange(0, problem.outputs_count, max(1, problem.outputs_count // SLOPE_OUTPUTS))
    rise = problem.loss[ends[:, :1], columns] - problem.loss[ends[:, 1:], columns]
    return float(np.quantile(np.abs(rise) / length[:, None], 0.9))


def least_outside(
    problem: Problem, tiles: IntArray, sees: BoolArray, records: IntArray
) -> FloatArray:
    """Least p_x c_xy over the outputs of tiles that do not see record x; inf where all do."""
    tile_of = np.empty(problem.outputs_count, np.int64)
    tile_of[tiles] = np.arange(len(tiles))[:, None]
    least = [
        np.where(sees[:, some][tile_of].T, np.inf, problem.loss[some]).min(axis=1)
        for some in np.array_split(records, len(records) // RECORDS_AT_ONCE + 1)
    ]
    return problem.prior[records] * np.concatenate(least)


class Program:
    """The nodes of a tiling: tile by tile, within a tile in the records' order in space."""

    def __init__(self, problem: Problem, tiling: Tiling) -> None:
        self.problem = problem
        self.tiling = tiling
        order = problem.domain.tiles.order
        self.place = np.argsort(order)
        self.tile, self.row = np.nonzero(tiling.sees[:, order])
        """Of every node; a row is a record's place in the order in space."""
        self.record = order[self.row]
        self.count = len(self.tile)

    @cached_property
    def node(self) -> IntArray:
        """(tiles, K): the node of a tile and a record, -1 where there is none."""
        number = np.full(self.tiling.sees.shape, -1)
        number[self.tile, self.record] = np.arange(self.count)
        return number

    @property
    def columns(self) -> IntArray:
        """(nodes, width): the outputs of every node."""
        return self.tiling.tiles[self.tile]

    @property
    def losses(self) -> FloatArray:
        """c_xy of every node, (nodes, width)."""
        if self.tiling.one:
            return self.problem.loss[self.record]
        return self.problem.loss[self.record[:, None], self.columns]

    @property
    def costs(self) -> FloatArray:
        """p_x c_xy of every node."""
        return np.ascontiguousarray(self.losses * self.problem.prior[self.record, None])

    def start(self, table: FloatArray | None) -> FloatArray:
        """A table of the whole problem on the nodes, or one that falls off with the loss."""
        if table is not None and self.tiling.one:
            return table[self.record]
        if table is not None:
            return table[self.record[:, None], self.columns]
        cost = self.losses
        least = np.full(self.problem.size, np.inf)
        np.minimum.at(least, self.record, cost.min(axis=1))
        cost -= least[self.record, None]
        start = np.exp(-np.minimum(cost * (self.tiling.steepness / 2), 700.0))
        start /= np.bincount(self.record, start.sum(axis=1))[self.record, None]
        return start

    def node_graph(self, graph: Graph) -> Graph:
        """Every edge in every tile that sees both of its ends, sorted by its ends."""
        rows = np.sort(self.place[graph.ends], axis=1)
        along = np.argsort(rows[:, 0] * self.problem.size + rows[:, 1], kind="stable")
        rows = rows[along]
        length = graph.length[along]
        if self.tiling.one:
            return Graph(rows, length)
        count = np.bincount(rows[:, 0], minlength=self.problem.size)
        begin = offsets(count)
        # Every node asks, for each edge of its record, whether its tile sees the other end.
        first = offsets(count[self.row])
        node = owners(first)
        edge = np.arange(len(node)) + (begin[self.row] - first[:-1])[node]
        second = self.problem.domain.tiles.order[rows[:, 1]]
        other = self.node[self.tile[node], second[edge]]
        inside = other >= 0
        return Graph(np.stack([node[inside], other[inside]], axis=1), length[edge[inside]])

    def least_of_records(self, least: FloatArray) -> FloatArray:
        """The least number of every record over its nodes; -inf where one is no number."""
        out = np.full(self.problem.size, np.inf)
        np.minimum.at(out, self.record, np.where(np.isnan(least), -np.inf, least))
        return out

    def whole(self, z: FloatArray | Float32Array) -> FloatArray:
        """A table on the nodes as one of all records and outputs, 0 outside."""
        out = np.zeros(self.problem.loss.shape)
        if self.tiling.one:
            out[self.record] = z
        else:
            np.add.at(out, (self.record[:, None], self.columns), z)
        return out


def tiling_for(
    problem: Problem,
    graph: Graph,
    tuning: TilingTuning,
    *,
    host: bool = False,
) -> Tiling:
    """Tiles where they pay, on the host or on an accelerator, else one."""
    least = tuning.least_outputs
    nats = tuning.nats
    if host:
        nats = tuning.host_nats
        if 2 * graph.count * problem.outputs_count > tuning.host_multipliers:
            least = min(tuning.host_outputs, least)
    if problem.outputs_count >= least:
        tiling = Tiling.reaching(problem, graph, nats)
        if tiling.share <= tuning.worthwhile:
            return tiling
    return Tiling.whole(problem)
