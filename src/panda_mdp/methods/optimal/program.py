"""What solvers iterate on: which pairs are constrained, the nodes of tiles, and what multipliers of
them prove.

**Pairs.** The privacy constraints of all pairs of records follow, up to a little, from those of
near pairs. Leaving pairs out only enlarges the feasible set, so any lower bound for the graph's
problem is one for the true problem; the exact repair then enforces all pairs.

**Nodes.** Outputs lie in tiles. A node is (T, x), x a record that tile T sees, an edge (T, i, j) a
constrained pair that T sees both ends of. Costs, tables and multipliers are arrays of nodes or
edges times the width of a tile; only the rows' sums run over all nodes of a record. **A dense table
is one tile** of all outputs that sees every record.

Where any place may be reported nearly all of a table is next to nothing: outputs lie in tiles that
are alike in their losses then, and T sees the records for which one of its outputs costs at most
`nats` L / epsilon more than the record's cheapest, L a typical slope of the loss.

**The bound** holds for the whole table whatever tiles see: constraints outside have multipliers 0
and entries outside keep their plain cost, of which the least counts for every record. Where that
outside cost is what limits the bound tiles are made to see more. `table.bound` has the bound of any
multipliers; here it is asked over the edges of a graph, both ways, and beside it stand the bounds
that need no multipliers, all rigorous, in float64 with NumPy.

**Private** is what the closure over all pairs and all outputs makes of the table, as ever.
"""

from __future__ import annotations

import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from panda_mdp.base.arrays import (
    AnyArray,
    BoolArray,
    Float32Array,
    FloatArray,
    IntArray,
    delaunay,
    offsets,
    owners,
)
from panda_mdp.base.threads import by_slices
from panda_mdp.compute.closure import NEAR_NATS, Closure
from panda_mdp.problem import Losses, Problem, loss_blocks
from panda_mdp.space.domain import Domain
from panda_mdp.space.tiles import order_in_space
from panda_mdp.table.bound import (
    LIBRARY_ERROR,
    UNIT_ROUNDOFF,
    Multipliers,
    Proved,
    growth,
    reduced_blocks,
    total_from_below,
)
from panda_mdp.table.mechanism import normalise

PER_RECORD = 2
"""Pairs that are added for a record at a time."""
LEAST_GAIN = 3e-5
"""Violations by less than this share of a row's mass are left to the repair."""
SMALL_GAIN = 3e-6
"""Of a row's mass, by which one group of outputs may miss a constraint before it is counted."""
NEIGHBOURS = 16
"""Of a record; half as many in a plane, where triangles give it more."""
ALL_PAIRS_RECORDS = 40
MAX_EXPONENT = 30.0
"""Edges with epsilon d beyond this bind nothing that is left above the floor; they are dropped,
never shortened: the bound must hold for the true constraints."""


@dataclass(frozen=True)
class Graph:
    """Undirected edges first < second with their true distances."""

    ends: IntArray
    length: FloatArray

    @property
    def count(self) -> int:
        return len(self.ends)

    def join(self, ends: IntArray, length: FloatArray) -> Graph:
        """This graph and further edges (which must be new), at the end."""
        return Graph(np.concatenate([self.ends, ends]), np.concatenate([self.length, length]))


def constraint_graph(
    domain: Domain, epsilon: float, neighbours: int = NEIGHBOURS, small: int = ALL_PAIRS_RECORDS
) -> Graph:
    """The nearest neighbours and, in a plane, the Delaunay triangulation; all pairs up to `small`
    records; for path metrics the edges, which imply all pairs."""
    if domain.size <= small and domain.metric.generating_pairs is None:
        return all_pairs(domain, epsilon)
    whole = _graph_of(domain, neighbours)
    short = epsilon * whole.length <= MAX_EXPONENT
    return Graph(np.ascontiguousarray(whole.ends[short]), whole.length[short])


@lru_cache(maxsize=1)
def _graph_of(domain: Domain, neighbours: int) -> Graph:
    """The graph before any edge is too long, kept: solves of one domain follow each other."""
    pairs = domain.metric.generating_pairs
    if pairs is None:
        # One core triangulates while the others look for neighbours.
        with ThreadPoolExecutor(1) as pool:
            plane = domain.plane
            triangles = None if plane is None else pool.submit(delaunay, plane)
            count = min(neighbours if plane is None else neighbours // 2, domain.size - 1)
            near, _ = domain.neighbours(count)
            pairs = np.stack([np.repeat(np.arange(domain.size), count), near.ravel()], axis=1)
            if triangles is not None:
                pairs = np.concatenate([pairs, triangles.result()])
    return measured(domain, distinct(pairs, domain.size), 0.0)


def all_pairs(domain: Domain, epsilon: float, most: float = MAX_EXPONENT) -> Graph:
    """Every pair of records with epsilon d of at most `most`, or the pairs that imply all."""
    pairs = domain.metric.generating_pairs
    if pairs is None:
        pairs = np.stack(np.triu_indices(domain.size, 1), axis=1)
    return measured(domain, pairs, epsilon, most)


def distinct(pairs: IntArray, size: int) -> IntArray:
    """The pairs of `size` records without order and repetition, sorted."""
    keys = np.unique(pairs.min(axis=1) * size + pairs.max(axis=1))
    return np.stack(np.divmod(keys, size), axis=1)


def measured(domain: Domain, ends: IntArray, epsilon: float, most: float = MAX_EXPONENT) -> Graph:
    """The edges whose epsilon d is at most `most`, with their lengths."""
    length = np.empty(len(ends))

    def work(part: slice) -> None:
        length[part] = domain.metric.pairs(ends[part, 0], ends[part, 1])

    by_slices(work, len(ends), 1 << 16)
    short = epsilon * length <= most
    return Graph(np.ascontiguousarray(ends[short]), length[short])


def broken_pairs(
    closure: Closure, graph: Graph, z: Any, epsilon: float, most: int = PER_RECORD
) -> Graph:
    """For every record the pairs outside the graph whose constraints a table of `closure` breaks
    the most.

    Few at a time: every edge slows the solver, and one edge often mends its neighbours' breaks.
    """
    broken, _ = closure.broken(z, epsilon, NEAR_NATS, (SMALL_GAIN, LEAST_GAIN), most)
    return missing(closure.domain, graph, closure.order[broken], epsilon)


def missing(domain: Domain, graph: Graph, pairs: IntArray, epsilon: float) -> Graph:
    """Those pairs of records that the graph lacks."""
    pairs = distinct(pairs, domain.size)
    old, keys = (e.min(axis=1) * domain.size + e.max(axis=1) for e in (graph.ends, pairs))
    return measured(domain, pairs[~np.isin(keys, old)], epsilon)


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
    rescales: bool = True
    """Whether steps are scaled by the table, which an objective that follows may move far away."""


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


def seen_by_groups(
    loss: Losses, order: IntArray, starts: IntArray, margin: float
) -> tuple[BoolArray, FloatArray]:
    """Whether some output order[starts[g]:starts[g + 1]] of a group costs a record at most `margin`
    more than its cheapest one, (groups, K), and the least loss of every record over the groups
    where none does."""
    if getattr(loss, "on_device", False):
        from panda_mdp.compute.jax import device

        width = int(np.diff(starts).max())
        tiles = [np.resize(order[a:b], width) for a, b in itertools.pairwise(starts)]
        return device.seen_by_groups(loss.domain, loss.outputs[np.stack(tiles)], loss.power, margin)
    sees = np.empty((len(starts) - 1, len(loss)), dtype=bool)
    outside = np.empty(len(loss))
    for rows, block in loss_blocks(loss):
        least_losses = np.minimum.reduceat(block[:, order], starts[:-1], axis=1)
        inside = least_losses <= least_losses.min(axis=1, keepdims=True) + margin
        sees[:, rows] = inside.T
        outside[rows] = np.where(inside, np.inf, least_losses).min(axis=1)
    return sees, outside


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
        return self._on_nodes(self.problem.loss)

    def _on_nodes(self, table: Any) -> FloatArray:
        """Of a table of all records and outputs, what nodes have."""
        if self.tiling.one:
            return table[self.record]
        return table[self.record[:, None], self.columns]

    @property
    def costs(self) -> FloatArray:
        """p_x c_xy of every node."""
        return np.ascontiguousarray(self.losses * self.problem.prior[self.record, None])

    def start(self, table: FloatArray | None) -> FloatArray:
        """A table of the whole problem on the nodes, or one that falls off with the loss."""
        if table is not None:
            return self._on_nodes(table)
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


def one_row(problem: Problem) -> FloatArray:
    """The best table that ignores the record: private at every epsilon."""
    row = np.arange(problem.outputs_count) == problem.best_single_output
    return np.tile(row.astype(float), (problem.size, 1))


def warm_start(problem: Problem, graph: Graph) -> FloatArray:
    """Weights exp(-epsilon c / (2 L)), L a typical slope of the loss along the graph's edges."""
    typical = typical_slope(problem, graph)
    if typical <= 0:
        return one_row(problem)
    logits = -problem.epsilon / (2 * typical) * problem.loss
    return normalise(np.exp(logits - logits.max(axis=1, keepdims=True)))


def both_ways(ends: IntArray) -> IntArray:
    """Edges (E, 2) as pairs (i, j), then as (j, i), (2 E, 2)."""
    return np.concatenate([ends, ends[:, ::-1]])


def growths(problem: Problem, length: FloatArray) -> tuple[FloatArray, FloatArray]:
    """exp(epsilon d) of edges, and upper bounds on it: a looser constraint keeps a lower bound
    rigorous."""
    above = growth(problem.epsilon, length, problem.domain.metric.relative_error)
    return np.exp(problem.epsilon * length), above


class Lent(NamedTuple):
    """Multipliers of edges between nodes."""

    program: Program
    ends: IntArray
    """(E, 2) nodes."""
    above: FloatArray
    """(E,) upper bounds on exp(epsilon d)."""
    sides: tuple[AnyArray, AnyArray]
    """(E, width) each: of z_i <= g z_j and of z_j <= g z_i, scaled as the table is."""
    inverse: AnyArray
    """(nodes, width): one over that scale."""
    unit: float
    """Of the costs that they are for."""

    @property
    def multipliers(self) -> Multipliers:
        """In the form that a file holds, read off as its kernel does where both sides have their
        sign; of outputs that a tile has twice the first."""
        program, ends, above, sides, inverse, unit = self
        again, width = program.tiling.again, inverse.shape[1]
        found = []
        for side in range(2):
            own, other = sides[side], sides[1 - side]
            both = (own > 0) & (other < 0)
            if again.any():
                both &= ~again[program.tile[ends[:, 0]]]
            places = np.flatnonzero(both)
            edge, column = np.divmod(places, width)
            near, far = ends[edge, side], ends[edge, 1 - side]
            up = own.ravel()[places].astype(float) * inverse[near, column]
            down = other.ravel()[places].astype(float) * inverse[far, column]
            value = unit * np.minimum(up, -down / above[edge])
            output = program.tiling.tiles[program.tile[near], column]
            sound = np.isfinite(value)
            found.append((edge[sound] + side * len(ends), output[sound], value[sound]))
        owner, outputs, values = map(np.concatenate, zip(*found, strict=True))
        return Multipliers.listed(both_ways(program.record[ends]), owner, outputs, values)


def edge_multipliers(graph: Graph, multipliers: FloatArray) -> Multipliers:
    """Multipliers (2, E, m) of a graph in the form that a file holds."""
    return Multipliers.of(both_ways(graph.ends), multipliers.reshape(-1, multipliers.shape[-1]))


def centre_proof(problem: Problem, centre: int) -> Proved:
    """`centre_bound` by multipliers: record x lends the centre all that it costs itself."""
    others = np.delete(np.arange(problem.size), centre)
    pairs = np.stack([np.full(len(others), centre), others], axis=1)
    metric = problem.domain.metric
    length = metric.pairs(pairs[:, 0], pairs[:, 1])
    lent = growth(problem.epsilon, length, metric.relative_error)
    return Proved(problem, Multipliers.of(pairs, problem.weighted_loss[others] / lent[:, None]))


def free_proof(problem: Problem) -> Proved:
    """`free_bound`, which needs no multipliers."""
    none = np.empty((0, 2), np.int64)
    return Proved(problem, Multipliers.of(none, np.empty((0, problem.outputs_count))))


def boxed_bound(problem: Problem, edges: Multipliers, most: FloatArray, cost: FloatArray) -> float:
    """`table.bound.dual_bound` for tables whose entries are at most `most` (K x m), as those of an
    optimal one are known to be.

    A row that sums to 1 within its box costs, for every price u, at least
    u - sum_y max(0, u - h_y) most_y; the best u is the reduced cost at which the cheapest outputs
    fill the row. Entries that are tiny because they are expensive then weigh little, however far
    their own reduced costs are from exact.
    """
    reduced = np.concatenate([*reduced_blocks(problem, edges, cost)])
    along = np.argsort(reduced, axis=1)
    filled = np.cumsum(np.take_along_axis(most, along, 1), axis=1)
    last = np.minimum((filled < 1).sum(axis=1), most.shape[1] - 1)
    price = np.take_along_axis(reduced, np.take_along_axis(along, last[:, None], 1), 1)
    short = np.maximum(price - reduced, 0.0) * most
    least = price[:, 0] - np.array([math.fsum(row) for row in short]) * (1 + 4 * UNIT_ROUNDOFF)
    return total_from_below(least - 2 * UNIT_ROUNDOFF * np.abs(price[:, 0]))


def free_bound(problem: Problem) -> float:
    """A lower bound without any multipliers: every record takes its cheapest output."""
    least = problem.prior * problem.loss.min(axis=1)
    # A product is rounded by half an ulp, or to a whole unit where it nearly vanishes.
    rounded = 2 * UNIT_ROUNDOFF * least + np.finfo(np.float64).smallest_subnormal
    return max(0.0, total_from_below(least - rounded))


def middle(domain: Domain) -> int:
    """The record nearest to the mean of all coordinates."""
    points = domain.metric.embedding
    return int(((points - points.mean(axis=0)) ** 2).sum(axis=1).argmin())


def centre_bound(problem: Problem, centre: int) -> float:
    """A lower bound from the constraints of one record alone.

    z_xy >= exp(-epsilon d(x, centre)) z_centre,y, and the centre's row sums to 1: the loss is at
    least min_y sum_x p_x c_xy exp(-epsilon d(x, centre)). Tight where epsilon is so small that all
    rows are nearly equal, which is where multipliers are hardest to come by.
    """
    distance = problem.domain.distances([centre])[0]
    error = problem.domain.metric.relative_error + 3 * LIBRARY_ERROR
    lent = np.exp(-problem.epsilon * distance * (1 + error)) * (1 - LIBRARY_ERROR)
    total = float(((lent * problem.prior) @ problem.loss).min())
    # Terms are not negative: a sum of n products, in whatever order, errs by n + 2 roundings.
    return total * (1 - 2 * (problem.size + 2) * UNIT_ROUNDOFF)
