"""The first-order method on accelerators: the iteration of compute/numba/pdhg.py in JAX.

Nodes, their losses and edges are made on the device. Nodes lie tile by tile, within a tile along
the records' order in space. Arrays of nodes are padded; the last node is of no record.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.base.floored import FlooredRows
from panda_mdp.compute.jax import device, floored, pdhg, triton
from panda_mdp.compute.jax.closure import closure_for, lists_of, power
from panda_mdp.compute.jax.device import (
    Array,
    ladder,
    precise,
    put,
    require_memory,
)
from panda_mdp.loss import DistanceLoss
from panda_mdp.methods.optimal.finish import Candidate, SparseFinish
from panda_mdp.methods.optimal.graph_solver import GraphSolver
from panda_mdp.methods.optimal.halpern import ROW_PULL, SCALE_ANEW, SMALLEST
from panda_mdp.methods.optimal.program import (
    WIDER,
    Graph,
    Lent,
    Program,
    Tiling,
    growths,
)
from panda_mdp.methods.second.device_forms import stored
from panda_mdp.privacy.quantise import SLACK, TOTAL
from panda_mdp.problem import Problem


class Losses:
    """p_x c_xy of records and outputs, on a device."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @cached_property
    def _table(self) -> Array:
        return put(np.asarray(self.problem.loss))

    def plain(self, records: Array, columns: Array | None) -> Array:
        """c_xy of records (n,) and columns (n, width) or all of them."""
        loss = self.problem.loss
        if isinstance(loss, DistanceLoss) and columns is not None:
            outputs = put(loss.outputs)
            return device.losses(self.problem.domain, outputs, loss.power, records, columns)
        return pdhg.entries(self._table, records, columns)

    def weighted(self, records: Array, columns: Array | None) -> Array:
        """The same times the prior."""
        plain = self.plain(records, columns)
        return pdhg.weighted(plain, put(self.problem.prior), records)


class Nodes(Program):
    """A program whose nodes, costs and edges are on a device too."""

    def __init__(self, problem: Problem, tiling: Tiling) -> None:
        super().__init__(problem, tiling)
        self.size = ladder(self.count + 1)
        self.of_record: IntArray = tiling.sees.sum(axis=0)
        pad = 0, self.size - self.count
        tile, record = (put(np.pad(a, pad).astype(np.int32)) for a in (self.tile, self.record))
        columns = row = along = None
        if not tiling.one:
            columns = pdhg.taken(put(tiling.tiles), tile)
            rows = ladder(problem.size + 1)
            row = put(np.pad(self.record, pad, constant_values=rows - 1).astype(np.int32))
            along = put(lists_of(self.record, np.arange(self.count), rows, self.size - 1))
        real = put(np.arange(self.size) < self.count)
        number = put(self.node.astype(np.int32))
        self.arrays = pdhg.Nodes(tile, record, real, number, columns, row, along)
        self._losses = Losses(problem)
        self._longest = [power(self.size)] * 2

    @cached_property
    def sees(self) -> BoolArray:
        """(tiles, K): which records tiles see, by place in space."""
        return self.tiling.sees[:, self.problem.domain.tiles.order]

    @property
    def costs(self) -> Array:
        """p_x c_xy of every node."""
        return self._losses.weighted(self.arrays.record, self.arrays.columns)

    def start(self, table: FloatArray | None) -> Array:
        """A table K x m on the nodes, or one that falls off with the loss."""
        arrays = self.arrays
        if table is None:
            plain = self._losses.plain(arrays.record, arrays.columns)
            return pdhg.warm(plain, arrays, np.float64(self.tiling.steepness / 2))
        given = put(table)
        return pdhg.entries(given, arrays.record, arrays.columns)

    def edges(self, graph: Graph) -> int:
        """How many edges of nodes a graph has, at most: of an edge's two ends the one that fewer
        tiles see decides."""
        return int(self.of_record[graph.ends].min(axis=1).sum())

    def lift_edges(self, graph: Graph) -> tuple[IntArray, tuple[Array, Array, Array], int]:
        """`lift` on the device: the edges in the order that they are numbered in here; first and
        second node and the edge, padded with the last node and 0, and how many there are."""
        # The first end comes first in space, as its nodes do.
        along = np.argsort(self.place[graph.ends], axis=1)
        first, second = np.take_along_axis(graph.ends, along, axis=1).T
        order = np.argsort(first, kind="stable")
        count = np.bincount(first, minlength=self.problem.size)
        # Every node asks, for each edge of its record, whether its tile sees the other end. Lengths
        # are compiled for: lists stay as long as the longest was.
        needed = (len(order), int(count @ self.of_record))
        self._longest = [max(a, power(b)) for a, b in zip(self._longest, needed, strict=True)]
        longest, asked = self._longest
        lifted, total = pdhg.lifted(
            self.arrays, put(_padded(second[order], longest)), put(count), asked
        )
        return order, lifted, int(total)


def _padded(array: Any, size: int) -> Any:
    return np.pad(array, (0, size - len(array)), constant_values=1)


class JaxSolver(GraphSolver):
    """Iterates in float32 on a device."""

    on_host = False
    program: Nodes
    few_multipliers = 1 << 25
    """Of one side of the edges: up to here iterating over some more costs less than compiling
    anew."""

    def _begin(self, tiling: Tiling, start: FloatArray | None) -> None:
        with precise():
            nodes = Nodes(self.problem, tiling)
            self._build(nodes, nodes.start(start))

    def _build(self, nodes: Nodes, z: Array) -> None:
        """Take over nodes and a table on them."""
        self.tiling = nodes.tiling
        self.program = nodes
        length = self._room(nodes.edges(self.graph), 0)
        width = self._width
        require_memory(bytes_needed(nodes.size, length, width))
        self._costs, self._scale, x, unit = pdhg.begin(
            nodes.costs, z, nodes.arrays.real, smallest=SMALLEST
        )
        self._cost, self.unit = self._costs[1], float(unit)
        last = np.full(length, nodes.size - 1, np.int32)
        self._edges: Any = tuple(put(part) for part in (last, last, np.zeros_like(last)))
        u = tuple(put(np.zeros((length, width), np.float32)) for _ in range(2))
        self._point: Any = (x, put(np.zeros(nodes.size, np.float32)), u)
        self._growths = np.ones((2, 1))
        self._lifted = 0
        self._extend(self.graph)

    @property
    def _width(self) -> int:
        """Outputs of a tile."""
        return self.tiling.tiles.shape[1]

    def _precisely(self) -> AbstractContextManager[Any]:
        return precise()

    def _stored(self, forms: Any) -> Any:
        return stored(forms, self.program.size)

    @property
    def _entry_scale(self) -> Array:
        return self._scale.of_entries

    def entries(self) -> Array:
        return self.table()

    def _ahead(self, keep: float) -> Array:
        x, anchor = self._point[0], self._anchored[0]
        return (x - np.float32(1 - keep) * anchor) * (self._scale.of_entries / np.float32(keep))

    def _charge(self, added: Array) -> None:
        self._cost = self._costs[1] + added

    def _stiffen(self, added: Array) -> None:
        degree = self._own_degree + jnp.ceil(added).astype(self._own_degree.dtype)
        self._edges = self._edges._replace(degree=degree)

    def _room(self, edges: int, length: int) -> int:
        """Edges with their padding, where lists have this length already, 0 at first. Where they
        are few, half as many again have room from the beginning: as a rule no more will be added,
        and every length is compiled for."""
        if 0 < edges <= length:
            return length
        few = edges * self._width < self.few_multipliers
        more = edges // 2 if few and length == 0 else 0
        return ladder(edges + more, fine=not few)

    @property
    def room(self) -> int:
        """Edges that lists have room for."""
        return len(self._edges[0])

    def _join(self, graph: Graph) -> None:
        with precise():
            self._extend(graph)

    def _extend(self, graph: Graph) -> None:
        order, new, count = self.program.lift_edges(graph)
        known = np.int32(self._growths.shape[1])
        more = growths(self.problem, graph.length[order])
        self._growths = np.concatenate([self._growths, more], axis=1)
        self._lifted += count
        length = self._room(self._lifted, self.room)
        # Records have fewer edges than nodes have, as a rule: one length for both.
        longest = max(length, power(self._growths.shape[1]))
        growth = tuple(put(_padded(part, longest)) for part in self._growths)
        x, mu, u = self._point
        self._edges, u = pdhg.joined(
            self._edges[:3],
            new,
            u,
            known,
            growth,
            length=length,
            nodes=self.program.size,
        )
        self._point = (x, mu, u)
        self._own_degree = self._edges.degree
        self._built()

    def _widen(self) -> None:
        """Go on from the current table with tiles that see more."""
        tiling = Tiling.reaching(self.problem, self.graph, WIDER * self.tiling.nats)
        self.weight = self.pace.start_weight
        self._scale_anew = self.iterations + SCALE_ANEW
        z = self.table()
        with precise():
            nodes = Nodes(self.problem, tiling)
            self._build(nodes, pdhg.moved(z, self.program.arrays, nodes.arrays))

    def _rescale(self) -> None:
        with precise():
            real = self.program.arrays.real
            self._point, self._scale = pdhg.rescale(
                self._point, self._scale, self._edges, real,
                smallest=SMALLEST,
            )  # fmt: skip

    def _anchor(self) -> None:
        self._anchored = self._point

    def _run(self, steps: int, since: int) -> float:
        many = not self.tiling.one
        with precise():
            self._point, moved = pdhg.run(
                self._point, self._anchored, self._cost, self._scale, self._edges,
                self.program.arrays, (np.int32(steps), np.float32(since), np.float64(self.weight)),
                row_pull=ROW_PULL,
                kernels=many and triton.available(),
            )  # fmt: skip
            return float(moved)

    def _travel(self) -> tuple[float, float]:
        with precise():
            primal, dual = pdhg.travel(
                self._point, self._anchored, self._scale.of_entries,
                self._edges.degree, self._scale.sums, row_pull=ROW_PULL,
            )  # fmt: skip
            return float(primal), float(dual)

    @property
    def finish(self) -> DeviceFinish:
        return DeviceFinish(self.problem)

    def matrix(self) -> FloatArray:
        return self.program.whole(np.asarray(self.table())[: self.program.count])

    def table(self) -> Array:
        """The current table where it lies, node by node and padded."""
        return self._current()[0]

    def _current(self) -> tuple[Array, Array]:
        """The table, and its loss."""
        with precise():
            scale = self._scale.of_entries
            z, loss = pdhg.current(self._point[0], scale, self._costs[0])
            return z, loss

    def grouped(self) -> tuple[BoolArray, Array, float]:
        """Which records, by place in space, tiles see; the current table on those nodes and behind,
        every output of a tile once, and its loss."""
        z, loss = self._current()
        with precise():
            folded = pdhg.folded(z, self.program.arrays, put(self.tiling.fold))
            return self.program.sees, folded, float(loss)

    def lent(self) -> Lent:
        edges = self._edges
        ends = np.stack([np.asarray(edges.first), np.asarray(edges.second)], axis=1)
        # The others are padding.
        real = np.flatnonzero(ends[:, 0] < self.program.count)
        above, (own, other) = np.asarray(edges.above), map(np.asarray, self._point[2])
        sides, inverse = (own[real], other[real]), np.asarray(self._scale.inverse)
        return Lent(self.program, ends[real], above[real], sides, inverse, self.unit)

    def least(self, added: Array | None = None) -> FloatArray:
        with precise():
            cost = self._costs[0] if added is None else self._costs[0] + added
            least = pdhg.least(
                cost, self._point[2], self._scale.inverse, self._edges,
                np.float64(self.unit),
            )  # fmt: skip
            return self.program.least_of_records(np.asarray(least)[: self.program.count])


def bytes_needed(nodes: int, edges: int, outputs: int) -> int:
    """Memory of a solve: multipliers, their anchor and one temporary; eight tables of rows; the
    float64 terms of the bound."""
    iterating = 4 * outputs * (3 * 2 * edges + 8 * nodes)
    bounding = 8 * outputs * (2 * 2 * edges + 4 * nodes)
    return iterating + bounding


class DeviceFinish(SparseFinish):
    """In blocks on one accelerator; the table stays there until it is quantised."""

    backend = "jax"
    # An audit costs about as much as the closure here: one, of the integers, as a rule.
    audits_before = (False, True)
    # Certifying a whole city takes as long as a thousand iterations.
    iterations = 3840

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem, closure_for(problem.domain))
        self._losses = Losses(problem)

    def loss(self, table: Candidate) -> float:
        cut = table.closure.cut
        with precise():
            columns = np.pad(np.maximum(cut.columns, 0), ((0, 1), (0, 0))).astype(np.int32)
            named = floored.names(cut.blocks, table.closure.records, columns)
            costs = self._losses.weighted(*named)
            above = float(floored.loss_above(table.z, cut.blocks, costs))
        return above + float(self.problem.mean_loss @ cut.floor)

    def _quantised(self, closure: Any, z: Array) -> FlooredRows:
        return FlooredRows(*closure.whole_rows(z, TOTAL, SLACK))
