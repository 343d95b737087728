"""The first-order method on accelerators: the iteration of compute/numba/pdhg.py in JAX.

Outputs of a dense table are split over the devices of a mesh; an iteration needs one all-reduce, of
the row sums. Tiles are iterated on by one device, where their nodes, losses and edges are made.
Nodes lie tile by tile, within a tile along the records' order in space; a row is a record's place
in that order. Arrays of nodes are padded; the last node is of no record.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.floored import FlooredRows
from panda_mdp.compute.jax import device, pdhg, triton
from panda_mdp.compute.jax.blocks import power
from panda_mdp.compute.jax.device import (
    Array,
    Placement,
    ladder,
    laid_out,
    make_mesh,
    precise,
    require_memory,
)
from panda_mdp.compute.jax.lifted import JaxLiftedClosure, Seen
from panda_mdp.loss import DistanceLoss
from panda_mdp.methods.optimal.finish import Candidate, SparseFinish
from panda_mdp.methods.optimal.graph import Graph
from panda_mdp.methods.optimal.halpern import (
    ROW_PULL,
    SCALE_ANEW,
    SMALLEST,
    START_WEIGHT,
    GraphSolver,
    growths,
)
from panda_mdp.methods.optimal.program import WIDER, WIDTH, Tiling, TilingTuning
from panda_mdp.privacy.quantise import SLACK, TOTAL
from panda_mdp.problem import Problem
from panda_mdp.space.tiles import TILE


class DenseNodes:
    """One tile that sees every record: nodes are rows."""

    shares: dict[str, Array] = {}  # noqa: RUF012 - empty: every row is a node of its own

    def __init__(self, problem: Problem, on: Placement) -> None:
        self.problem, self._on = problem, on
        self.order = problem.domain.tiles.order
        self.place = np.argsort(self.order)
        self.count = problem.size
        self.size = ladder(self.count + 1)
        self.real = on.whole(np.arange(self.size) < self.count)

    def costs(self) -> Array:
        """p_x c_xy of every node."""
        return self._on.sharded(self.problem.weighted_loss[self.order], 0.0)

    def start(self, table: FloatArray) -> Array:
        """A table K x m on the nodes."""
        return self._on.sharded(table[self.order], 0.0)

    def edges(self, graph: Graph) -> int:
        """How many edges of nodes a graph has, at most."""
        return graph.count

    def lift(self, graph: Graph) -> tuple[IntArray, tuple[Array, Array, Array], int]:
        """The edges in the order that they are numbered in here; first and second node and the
        edge, padded with the last node and 0, and how many there are."""
        rows = np.sort(self.place[graph.ends], axis=1)
        order = np.argsort(rows[:, 0] * self.count + rows[:, 1], kind="stable")
        pad = (0, power(graph.count) - graph.count)
        lists = (*rows[order].T, np.arange(graph.count))
        ends = (
            self._on.whole(np.pad(part, pad, constant_values=fill).astype(np.int32))
            for part, fill in zip(lists, (self.size - 1, self.size - 1, 0), strict=True)
        )
        first, second, edge = ends
        return order, (first, second, edge), graph.count

    def least_of_records(self, least: Array) -> FloatArray:
        """The least number of every record over its nodes."""
        return np.asarray(least)[self.place]

    def whole(self, z: Array) -> FloatArray:
        """A table on the nodes, K x m."""
        return np.asarray(self._on.host(z)[self.place], dtype=np.float64)


class TileNodes:
    """The nodes of several tiles, made on one device."""

    def __init__(self, problem: Problem, tiling: Tiling, on: Placement) -> None:
        self.problem, self.tiling, self._on = problem, tiling, on
        self.order = problem.domain.tiles.order
        self.place = np.argsort(self.order)
        along = on.whole(self.order)
        sees, of_row = pdhg.along(on.whole(tiling.sees), along)
        self.of_row: IntArray = np.asarray(of_row)
        self.count = int(self.of_row.sum())
        self.size = ladder(self.count + 1)
        rows, most = ladder(problem.size + 1), ladder(int(self.of_row.max()))
        tiles, copies = on.whole(tiling.tiles), on.whole(tiling.copies)
        self.tile, self.row, self.number, self.real, self.shares, of_nodes = pdhg.numbered(
            sees, self.count, along, tiles, copies, self.size, rows, most
        )
        self.record, self.columns, self.copies = of_nodes
        self._longest = [power(self.size)] * 2

    def _losses(self) -> Array:
        loss = self.problem.loss
        if isinstance(loss, DistanceLoss):
            listed = (self._on.whole(loss.outputs), loss.power, self.record, self.columns)
            return device.losses(self.problem.domain, *listed)
        return pdhg.entries(self._on.whole(np.asarray(loss)), self.record, self.columns)

    def costs(self) -> Array:
        """p_x c_xy of every node."""
        return pdhg.weighted(self._losses(), self._on.whole(self.problem.prior), self.record)

    def start(self, table: FloatArray | None) -> Array:
        """A table K x m on the nodes, or one that falls off with the loss."""
        if table is not None:
            entries = pdhg.entries(self._on.whole(table), self.record, self.columns)
            return entries / self.copies
        steepness = np.float64(self.tiling.steepness / 2)
        return pdhg.warm(self._losses(), self.copies, self.real, self.shares, steepness)

    def moved(self, old: TileNodes, z: Array) -> Array:
        """A table of nodes of the same tiles, which saw less, on these; 0 on the others."""
        at = self.number[old.tile, old.row]
        return pdhg.placed(z, jnp.where(old.real, at, self.size - 1), self.size)

    def edges(self, graph: Graph) -> int:
        """How many edges of nodes a graph has, at most: of an edge's two ends the one that fewer
        tiles see decides."""
        return int(self.of_row[self.place[graph.ends]].min(axis=1).sum())

    def lift(self, graph: Graph) -> tuple[IntArray, tuple[Array, Array, Array], int]:
        """`DenseNodes.lift`, every edge in every tile that sees both of its ends."""
        place = self.place[graph.ends]
        first, second = place.min(axis=1), place.max(axis=1)
        order = np.lexsort((second, first))
        count = np.bincount(first, minlength=len(self.place))
        begin = np.cumsum(count) - count
        # Every node asks, for each edge of its row, whether its tile sees the other end.
        asked = int(count @ self.of_row)
        # Lengths are compiled for: lists stay as long as the longest was.
        needed = (len(order), asked)
        self._longest = [max(a, power(b)) for a, b in zip(self._longest, needed, strict=True)]
        put = self._on.whole
        lifted, total = pdhg.lifted(
            self.tile, self.row, self.real, self.number,
            put(_padded(second[order], self._longest[0])), put(count), put(begin),
            self._longest[1],
        )  # fmt: skip
        return order, lifted, int(total)

    def least_of_records(self, least: Array) -> FloatArray:
        """The least number of every record over its nodes; -inf where one is no number."""
        return np.asarray(pdhg.least_of_rows(least, self.shares["nodes"]))[self.place]

    def whole(self, z: Array) -> FloatArray:
        """A table on the nodes, K x m; 0 outside."""
        out = np.zeros(self.problem.loss.shape)
        record, columns = (np.asarray(a)[: self.count] for a in (self.record, self.columns))
        np.add.at(out, (record[:, None], columns), np.asarray(z)[: self.count])
        return out


def _padded(array: Any, size: int) -> Any:
    return np.pad(array, (0, size - len(array)), constant_values=1)


class JaxSolver(GraphSolver):
    """Iterates in float32 on the devices of a mesh."""

    few_multipliers = 1 << 25
    """Of one side of the edges: up to here iterating over some more costs less than compiling
    anew."""

    def __init__(
        self,
        problem: Problem,
        graph: Graph,
        start: FloatArray | None,
        mesh: Mesh,
        tiling: Tiling | None = None,
        tuning: TilingTuning | None = None,
    ) -> None:
        self._mesh = mesh
        super().__init__(problem, graph, start, tiling, tuning)

    def _begin(self, tiling: Tiling, start: FloatArray | None) -> None:
        with precise():
            nodes = self._nodes_of(tiling)
            self._build(tiling, nodes, nodes.start(start))

    def _nodes_of(self, tiling: Tiling) -> Any:
        if tiling.one:
            return DenseNodes(self.problem, Placement(self._mesh, self.problem.outputs_count))
        one = make_mesh(self._mesh.local_devices[:1])
        return TileNodes(self.problem, tiling, Placement(one, WIDTH))

    def _build(self, tiling: Tiling, nodes: Any, z: Array) -> None:
        """Take over the nodes of a tiling, and a table on them."""
        self.tiling, self.nodes, self._on = tiling, nodes, nodes._on
        edges = self._room(nodes.edges(self.graph), 0)
        require_memory(bytes_needed(nodes.size, edges, self._on.width), self._on.mesh)
        arrays, unit, sums = pdhg.compiled_begin(
            self._on.mesh, nodes.size, self._on.outputs, SMALLEST
        )(nodes.costs(), z, nodes.real)
        self._cost64, self._cost, self._scale, self._inverse, self._x = arrays
        self.unit, self.scale_sums = float(unit), sums
        self._mu = self._on.whole(np.zeros(nodes.size, dtype=np.float32))
        self._growths = np.ones(1), np.ones(1)
        self._kernels: dict[str, Array] = {}
        self._lifted = 0
        self._edges: Any = None
        self._extend(self.graph)
        self._restart()

    def _room(self, edges: int, length: int) -> int:
        """Edges with their padding, where lists have this length already, 0 at first. Where they
        are few, half as many again have room from the beginning: as a rule no more will be added,
        and every length is compiled for."""
        if 0 < edges <= length:
            return length
        few = edges * self._on.width < self.few_multipliers
        more = edges // 2 if few and length == 0 else 0
        return ladder(edges + more, fine=not few)

    @property
    def room(self) -> int:
        """Edges that lists have room for."""
        return len(self._edges[0])

    def _join(self, graph: Graph) -> None:
        with precise():
            self._extend(graph)
        self._restart()

    def _extend(self, graph: Graph) -> None:
        order, new, count = self.nodes.lift(graph)
        known, size = len(self._growths[0]), self.nodes.size
        more = growths(self.problem, graph.length[order])
        self._growths = (
            np.concatenate([self._growths[0], more[0]]),
            np.concatenate([self._growths[1], more[1]]),
        )
        self._lifted += count
        length = self._room(self._lifted, 0 if self._edges is None else len(self._edges[0]))
        if self._edges is None:
            last = np.full(length, size - 1, np.int32)
            edges = (last, last, np.zeros_like(last))
            self._edges = tuple(self._on.whole(part) for part in edges)
            nothing = np.zeros((length, self._on.outputs), np.float32)
            self._u = tuple(self._on.sharded(nothing, 0.0) for _ in range(2))
        # Records have fewer edges than nodes have, as a rule: one length for both.
        longest = max(length, power(len(self._growths[0])))
        growth = tuple(self._on.whole(_padded(part, longest)) for part in self._growths)
        run = pdhg.compiled_joined(self._on.mesh, length, size)
        self._edges, self._u, self._graph, starts, self._growth_above, self._degree = run(
            self._edges, new, self._u, np.int32(known), growth
        )
        if not self.tiling.one and triton.available(self._on.mesh.local_devices[0]):
            # Padding, at the last node, counts for nobody.
            self._kernels = starts

    def _widen(self) -> None:
        """Go on from the current table with tiles that see more."""
        tiling = Tiling.reaching(self.problem, self.graph, WIDER * self.tiling.nats)
        self.weight, self._scale_anew = START_WEIGHT, self.iterations + SCALE_ANEW
        old, z = self.nodes, self.table()
        with precise():
            nodes = self._nodes_of(tiling)
            self._build(tiling, nodes, nodes.moved(old, z))

    def _rescale(self) -> None:
        with precise():
            ends = self._graph["first"], self._graph["second"]
            run = pdhg.compiled_rescale(self._on.mesh, self._on.outputs, SMALLEST)
            self._x, self._u, self._scale, self._inverse, self.scale_sums = run(
                self._x, self._u, self._scale, *ends, self.nodes.real
            )

    def _anchor(self) -> None:
        with precise():
            # Copies: the iteration may reuse the memory of what it is given.
            self._x0, self._mu0, self._u0 = pdhg.copied((self._x, self._mu, self._u))

    def _iterate(self, steps: int, since: int) -> float:
        weight, shares = self.weight, self.nodes.shares
        with precise():
            stiff, row_step = pdhg.steps(
                self._degree, self.scale_sums, self.nodes.real, shares, weight, ROW_PULL
            )
            constants = {
                "cost": self._cost,
                "scale": self._scale,
                **self._graph,
                **shares,
                **self._kernels,
                "stiff": stiff,
                "dual_step": np.float32(weight),
                "row_pull": np.float32(weight * ROW_PULL),
                "row_step": row_step,
            }
            anchor = (self._x0, self._mu0, self._u0)
            run = pdhg.compiled_run(self._on.mesh, frozenset({**shares, **self._kernels}))
            (self._x, self._mu, self._u), moved = run(
                (self._x, self._mu, self._u), anchor, constants, np.int32(steps), np.float32(since)
            )
            return float(moved)

    def _travel(self) -> tuple[float, float]:
        with precise():
            point, anchor = (self._x, self._mu, self._u), (self._x0, self._mu0, self._u0)
            run = pdhg.compiled_travel(self._on.mesh, ROW_PULL)
            primal, dual = run(point, anchor, self._scale, self._degree, self.scale_sums)
            return float(primal), float(dual)

    def matrix(self) -> FloatArray:
        return self.nodes.whole(self.table())

    def table(self) -> Array:
        """The current table where it lies, node by node and padded."""
        return self.on_device()[0]

    def on_device(self) -> tuple[Array, float]:
        """The current table where it lies, node by node and padded, and its loss."""
        with precise():
            z, loss = pdhg.compiled_current(self._on.mesh)(self._x, self._scale, self._cost64)
            return z, float(loss)

    def least(self) -> FloatArray:
        with precise():
            least = pdhg.compiled_bound(self._on.mesh)(
                self._cost64,
                self._u,
                self._inverse,
                self._graph,
                self._growth_above,
                np.float64(self.unit),
                self._degree,
            )
            return self.nodes.least_of_records(least)


def bytes_needed(nodes: int, edges: int, outputs: int) -> int:
    """Memory of a solve: multipliers, their anchor and one temporary; eight tables of rows; the
    float64 terms of the bound."""
    iterating = 4 * outputs * (3 * 2 * edges + 8 * nodes)
    bounding = 8 * outputs * (2 * 2 * edges + 4 * nodes)
    return iterating + bounding


class DeviceFinish(SparseFinish):
    """In blocks on one accelerator; the table stays there until it is quantised."""

    # An audit costs about as much as the closure here: one, of the integers, as a rule.
    audits_before = False
    # Certifying a whole city takes as long as a thousand iterations.
    iterations = 3840

    def __init__(self, problem: Problem, mesh: Mesh) -> None:
        super().__init__(problem, "jax", JaxLiftedClosure(problem.domain, mesh.local_devices[0]))
        self._seen: tuple[Tiling, Seen] | None = None
        self._known: tuple[IntArray, tuple[Any, Array]] | None = None

    def candidate(self, solver: JaxSolver) -> Candidate:
        closure, tiling = self.closure, solver.tiling
        if self._seen is None or self._seen[0] is not tiling:
            self._seen = (tiling, closure.seen(tiling.sees[:, closure.order]))
        seen = self._seen[1]
        z, loss = solver.on_device()
        rows, floor = closure.gathered(seen, z, tiling.fold), self._floor(loss)
        epsilon = self.problem.epsilon
        return Candidate(*closure.cut_for(tiling.columns, seen.mask, rows, floor, epsilon))

    def loss(self, table: Candidate) -> float:
        cut, z = table.closure.cut, table.z
        with precise():
            columns = np.concatenate([np.maximum(cut.columns, 0), np.zeros_like(cut.columns[:1])])
            tables, prior = self._costs(columns)
            run = _compiled_above(self._losses, getattr(self.problem.loss, "power", 1.0))
            above = run(z, cut.floors, cut.exists, cut.layout.arrays, tables, prior)
            return float(above) + float(self.problem.mean_loss @ cut.floor)

    def _quantised(self, closure: JaxLiftedClosure, z: Array) -> FlooredRows:
        return FlooredRows(*closure.whole_rows(z, TOTAL, SLACK))

    @property
    def _losses(self) -> Any:
        """What computes the losses of tiles and groups from the tables of `_costs`."""
        computed = isinstance(self.problem.loss, DistanceLoss)
        return self.closure.grid.distances if computed else None

    def _costs(self, columns: IntArray) -> tuple[Any, Array]:
        """What the losses of the rows of all tiles and the columns of all groups are computed from,
        and the prior of the rows, 0 in padding. Computed anew where the groups are other ones."""
        if self._known is not None and np.array_equal(self._known[0], columns):
            return self._known[1]
        closure, problem = self.closure, self.problem
        records = np.zeros((len(closure.grid.members), TILE), dtype=np.int64)
        prior = np.zeros(records.shape)
        records.ravel()[closure.slot] = closure.order
        prior.ravel()[closure.slot] = problem.prior[closure.order]
        if isinstance(problem.loss, DistanceLoss):
            # Groups stand behind the tiles as tiles of their own, half of them padding.
            wide = np.pad(problem.loss.outputs[columns], ((0, 0), (0, TILE - columns.shape[1])))
            tables = laid_out(problem.domain.metric, np.concatenate([records, wide]))[1]
        else:
            tables = (np.asarray(problem.loss), records, columns)
        put = partial(jax.device_put, device=closure.device)
        self._known = (columns, (jax.tree.map(put, tables), put(prior)))
        return self._known[1]


@cache
def _compiled_above(distances: Any, power: float) -> Any:
    """The loss of what lies above the floor."""

    def above(z: Array, floors: Array, exists: Array, c: Any, tables: Any, prior: Array) -> Array:
        group, tile = c["group"], c["tile"]
        if distances is None:
            loss, records, columns = tables
            cost = loss[records[tile][:, :, None], columns[group][:, None, :]]
        else:
            cost = distances(tables, tile, len(prior) + group)[:, :, : z.shape[2]] ** power
        there = exists[group][:, None, :]
        part = jnp.where(there, (z - floors[group][:, None, :]) * cost, 0.0)
        return jnp.sum(prior[tile] * jnp.sum(part, axis=2))

    return jax.jit(above)
