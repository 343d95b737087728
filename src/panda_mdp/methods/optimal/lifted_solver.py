"""lifted.py on one accelerator: nodes, their losses and edges are made where they are iterated on.

Nodes are numbered tile by tile, within a tile along the records' order in space, as on the host. A
row is a record's place in that order. Arrays of nodes are padded; the last node is of no record.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.compute.jax import displacement, triton
from panda_mdp.compute.jax.blocks import power
from panda_mdp.compute.jax.device import Array, ladder, measures, precise
from panda_mdp.loss import DistanceLoss
from panda_mdp.methods.optimal.graph import Graph
from panda_mdp.methods.optimal.halpern import SMALLEST
from panda_mdp.methods.optimal.jax_solver import JaxSolver, _sorted, _take
from panda_mdp.methods.optimal.lifted import WIDTH, Lifted, Reach
from panda_mdp.problem import Problem


def fits(problem: Problem, mesh: Mesh) -> bool:
    """Whether there is one device, and it measures the metric."""
    return int(mesh.devices.size) == 1 and measures(problem.domain.metric)


class DeviceNodes:
    """The nodes of a reach on the device."""

    def __init__(self, problem: Problem, reached: Reach, put: Any) -> None:
        self.along = problem.domain.tiles.order
        self.place = np.argsort(self.along)
        self._put = put
        along = put(self.along)
        sees, of_row = _along(put(reached.sees), along)
        self.of_row: IntArray = np.asarray(of_row)
        self.count = int(self.of_row.sum())
        self.size = ladder(self.count + 1)
        rows, most = ladder(problem.size + 1), ladder(int(self.of_row.max()))
        same = (reached.tiles[:, :, None] == reached.tiles[:, None, :]).sum(axis=2)
        self.tile, self.row, self.number, self.real, self.shares, of_nodes = _numbered(
            sees, self.count, along, put(reached.tiles), put(same), self.size, rows, most
        )
        self.record, self.columns, self.same = of_nodes
        """`same`: how many places of its tile hold the same output, which shares its mass with
        itself."""
        self._longest = [power(self.size)] * 2

    def losses(self, problem: Problem) -> Array:
        """c_xy of every node, (size, WIDTH)."""
        loss = problem.loss
        if isinstance(loss, DistanceLoss):
            outputs = self._put(loss.outputs)
            return displacement.losses(
                problem.domain, outputs, loss.power, self.record, self.columns
            )
        return _entries(self._put(np.asarray(loss)), self.record, self.columns)

    def lift(self, graph: Graph) -> tuple[IntArray, tuple[Array, Array, Array], int]:
        """Every edge in every tile that sees both of its ends: the edges in the order that they are
        numbered in here; first and second node and the edge, padded with the last node and 0, and
        how many there are."""
        place = self.place[graph.ends]
        first, second = place.min(axis=1), place.max(axis=1)
        order = np.lexsort((second, first))
        count = np.bincount(first, minlength=len(self.place))
        begin = np.cumsum(count) - count
        # Every node asks, for each edge of its row, whether its tile sees the other end.
        asked = int(count @ self.of_row)
        # Lengths are compiled for: lists stay as long as the longest was.
        self._longest = [
            max(a, power(b)) for a, b in zip(self._longest, (len(order), asked), strict=True)
        ]
        put = partial(jax.device_put, device=self.tile.device)
        lifted, total = _lifted(
            self.tile, self.row, self.real, self.number,
            put(_padded(second[order], self._longest[0])), put(count), put(begin),
            self._longest[1],
        )  # fmt: skip
        return order, lifted, int(total)


def _padded(array: Any, size: int) -> Any:
    return np.pad(array, (0, size - len(array)), constant_values=1)


class NodeSolver(JaxSolver):
    """Iterates on nodes whose edges and losses never were anywhere else."""

    _edges: tuple[Array, Array, Array]

    def __init__(
        self, problem: Problem, graph: Graph, start: Array, mesh: Mesh, nodes: DeviceNodes
    ) -> None:
        self.nodes, self._whole = nodes, problem
        listed = np.arange(nodes.count)
        cut: Any = SimpleNamespace(
            size=nodes.count,
            outputs_count=WIDTH,
            epsilon=problem.epsilon,
            domain=SimpleNamespace(
                tiles=SimpleNamespace(order=listed), metric=problem.domain.metric
            ),
        )
        super().__init__(cut, graph, start, mesh, nodes)

    def _expected(self, graph: Graph) -> int:
        # At most: of an edge's two ends the one that fewer tiles see decides.
        return int(self.nodes.of_row[self.nodes.place[graph.ends]].min(axis=1).sum())

    def _row_shares(self, owner: Any) -> dict[str, Array]:
        return dict(self.nodes.shares)

    def _start(self, start: Array) -> None:
        nodes = self.nodes
        prior = jax.device_put(self._whole.prior, nodes.tile.device)
        begun, unit, sums, shares = _begun(
            nodes.losses(self._whole), prior, nodes.record, start, nodes.real, nodes.shares
        )
        self._cost64, self._cost, self._scale, self._inverse, self._x = self._on.rows(begun)
        self.unit = float(unit)
        self.scale_sums = np.asarray(sums)[: nodes.count]
        self._row_share = shares
        self._mu = self._on.whole(np.zeros(self._records, dtype=np.float32))
        self._growths = np.ones(1), np.ones(1)
        self._lifted = 0

    def _share_rows(self) -> None:
        sums = np.zeros(self._records)
        sums[: self.nodes.count] = self.scale_sums
        self._row_share = _shares(self._on.whole(sums), self.nodes.real, self.nodes.shares)

    def extend(self, graph: Graph) -> None:
        """Constrain the edges of `graph`, of records, in every tile that sees both ends."""
        with precise():
            self._extend(graph)
        self._restart()

    def _extend(self, graph: Graph) -> None:
        order, new, count = self.nodes.lift(graph)
        exponent = self.problem.epsilon * graph.length[order]
        error = self.problem.domain.metric.relative_error + 4e-16
        # Upper bounds on exp(epsilon d): a looser constraint keeps the lower bound rigorous.
        above = np.exp(exponent * (1 + error)) * (1 + 1e-15)
        known = len(self._growths[0])
        self._growths = (
            np.concatenate([self._growths[0], np.exp(exponent)]),
            np.concatenate([self._growths[1], above]),
        )
        self._lifted += count
        size = self._padded(self._lifted, 0 if known == 1 else len(self._edges[0]))
        if known == 1:
            edges, u = _no_edges(self._records, size)
            # What depends on no array lies on no device in particular.
            self._edges = jax.device_put(edges, self.nodes.tile.device)
            self._u = self._on.rows(u)
        # Records have fewer edges than nodes have, as a rule: one length for both.
        longest = max(size, power(len(self._growths[0])))
        growths = tuple(self._on.whole(_padded(part, longest)) for part in self._growths)
        self._edges, u, self._graph, starts, self._growth_above, self._degree = _joined(
            self._edges, new, self._u, np.int32(known), growths, size, self._records
        )
        self._u = self._on.rows(u)
        if triton.available(self._on.mesh.local_devices[0]):
            # Padding, at the last node, counts for nobody.
            self._shares |= starts

    def least_of_records(self) -> FloatArray:
        """The least reduced cost of every record, rounding errors subtracted."""
        with precise():
            least = _least_of_rows(self._least(), self.nodes.shares["nodes"])
            out = np.empty(len(self.nodes.along))
            out[self.nodes.along] = np.asarray(least)[: len(out)]
        return out


class DeviceLifted(Lifted):
    """`Lifted` with the nodes on one accelerator."""

    _nodes: Any
    _inner: NodeSolver

    def __init__(
        self, problem: Problem, graph: Graph, start: FloatArray | None, reached: Reach, mesh: Mesh
    ) -> None:
        self._mesh = mesh
        self._put = partial(jax.device_put, device=mesh.local_devices[0])
        super().__init__(problem, graph, start, reached, None)

    def _nodes_of(self, reached: Reach) -> Any:
        with precise():
            return DeviceNodes(self.problem, reached, self._put)

    def _first_table(self, reached: Reach, nodes: Any, start: FloatArray | None) -> Any:
        with precise():
            if start is not None:
                return _entries(self._put(start), nodes.record, nodes.columns) / nodes.same
            cost = nodes.losses(self.problem)
            steepness = np.float64(reached.steepness / 2)
            return _warm(cost, nodes.same, nodes.real, nodes.shares, steepness)

    def _build(self, reached: Reach, nodes: Any, table: Any) -> None:
        self.reached, self._nodes = reached, nodes
        self._inner = NodeSolver(self.problem, self.graph, table, self._mesh, nodes)

    def _moved(self, old: Any, nodes: Any, table: Any) -> Any:
        with precise():
            at = nodes.number[old.tile, old.row]
            return _placed(table, jnp.where(old.real, at, nodes.size - 1), nodes.size)

    def _table(self) -> Any:
        return self._inner.table()

    def extend(self, graph: Graph) -> None:
        self.graph = self.graph.join(graph.ends, graph.length)
        self._inner.extend(graph)

    def matrix(self) -> FloatArray:
        out = np.zeros(self.problem.loss.shape)
        count = self._nodes.count
        record, columns = np.asarray(self._nodes.record), np.asarray(self._nodes.columns)
        np.add.at(out, (record[:count, None], columns[:count]), self._inner.matrix())
        return out

    def _least_of_records(self) -> FloatArray:
        return self._inner.least_of_records()


@jax.jit
def _along(sees: Array, along: Array) -> tuple[Array, Array]:
    """What tiles see along an order of the records, and how many see each record."""
    sees = sees[:, along]
    return sees, jnp.sum(sees, axis=0)


@partial(jax.jit, static_argnames=("size", "rows", "most"))
def _numbered(
    sees: Array, count: Array, along: Array, tiles: Array, same: Array, size: int, rows: int,
    most: int,
) -> Any:  # fmt: skip
    """Tile and row of every node; the node of a tile and a row, -1 where none is; which nodes are
    real; `_row_lists`; and of every node its record, its tile's outputs and what they share."""
    records = sees.shape[1]
    at = jnp.nonzero(sees.reshape(-1), size=size, fill_value=0)[0]
    number = jnp.cumsum(sees.reshape(-1), dtype=jnp.int32).reshape(sees.shape) - 1
    tile, row = (at // records).astype(jnp.int32), (at % records).astype(jnp.int32)
    real = jnp.arange(size) < count
    shares = _row_lists(sees, tile, row, real, rows, most)
    of_nodes = along[row], tiles[tile], same[tile]
    return tile, row, jnp.where(sees, number, -1), real, shares, of_nodes


def _row_lists(
    sees: Array, tile: Array, row: Array, real: Array, rows: int, most: int
) -> dict[str, Array]:
    """`JaxSolver._row_shares`: sums over such lists have a fixed order."""
    size = len(tile)
    rank = jnp.cumsum(sees, axis=0, dtype=jnp.int32)[tile, row] - 1
    own = jnp.where(real, row, rows - 1)
    lists = jnp.full((rows, most), size - 1, dtype=jnp.int32)
    # Nodes that are none are written outside, which drops them.
    at = (jnp.where(real, own, rows), rank)
    lists = lists.at[at].set(jnp.arange(size, dtype=jnp.int32), mode="drop")
    return {"nodes": lists, "row": own}


@jax.jit
def _entries(table: Array, records: Array, columns: Array) -> Array:
    return table[records[:, None], columns]


@jax.jit
def _warm(cost: Array, same: Array, real: Array, shares: Any, steepness: Array) -> Array:
    """The warm start of the dense iteration, of which only the nodes are looked at."""
    cost = jnp.where(real[:, None], cost, jnp.inf)
    least = jnp.min(jnp.min(cost, axis=1)[shares["nodes"]], axis=1)[shares["row"]]
    above = jnp.where(real[:, None], cost - least[:, None], 0.0)
    table = jnp.exp(-jnp.minimum(above * steepness, 700.0)) / same
    table = jnp.where(real[:, None], table, 0.0)
    total = jnp.sum(jnp.sum(table, axis=1)[shares["nodes"]], axis=1)[shares["row"]]
    return table / jnp.where(real, total, 1.0)[:, None]


@jax.jit
def _begun(loss: Array, prior: Array, record: Array, z: Array, real: Array, shares: Any) -> Any:
    """What `Halpern` and `JaxSolver` begin with: costs in both precisions, the scale and its
    inverse, the scaled table; the costs' unit, the scale's sums over nodes and one over those over
    rows."""
    prior, there = prior[record], real[:, None]
    entries = jnp.sum(real) * loss.shape[1]
    cost = jnp.where(there, loss * prior[:, None], 0.0)
    mean = jnp.sum(cost) / entries
    unit = jnp.where(mean > 0, mean, 1.0)
    scale = jnp.sqrt(jnp.maximum(z, SMALLEST))
    scale = jnp.where(there, scale / (jnp.sum(jnp.where(there, scale, 0.0)) / entries), 1.0)
    sums = jnp.where(real, jnp.sum(scale, axis=1), 0.0)
    share = _shares(sums, real, shares)
    single = scale.astype(jnp.float32)
    x = jnp.where(there, z, 0.0).astype(jnp.float32) / single
    single_cost = (cost / unit).astype(jnp.float32)
    return (cost, single_cost, single, 1 / single, x), unit, sums, share


@jax.jit
def _shares(sums: Array, real: Array, shares: Any) -> Array:
    """One over the sums of the scale over whole rows, for every node."""
    whole = jnp.sum(sums[shares["nodes"]], axis=1)[shares["row"]]
    return jnp.where(real, 1 / jnp.where(real, whole, 1.0), 0.0)


@partial(jax.jit, static_argnames="size")
def _placed(table: Array, at: Array, size: int) -> Array:
    return jnp.zeros((size, table.shape[1]), table.dtype).at[at].set(table).at[size - 1].set(0)


@partial(jax.jit, static_argnames="size")
def _lifted(
    tile: Array, row: Array, real: Array, number: Array, second: Array, count: Array, begin: Array,
    size: int,
) -> Any:  # fmt: skip
    """Nodes, the nodes of the other ends of the edges of their rows, where their tiles see them,
    and the edges, padded with the last node and 0; and how many they are."""
    own = jnp.where(real, count[row], 0)
    before = jnp.cumsum(own) - own
    nodes = jnp.arange(len(tile), dtype=jnp.int32)
    node = jnp.repeat(nodes, own, total_repeat_length=size)
    place = jnp.arange(size)
    asked = place < before[-1] + own[-1]
    edge = jnp.where(asked, begin[row[node]] + place - before[node], 0)
    other = number[tile[node], second[edge]]
    inside = asked & (other >= 0)
    at = jnp.nonzero(inside, size=size, fill_value=-1)[0]
    last = len(tile) - 1
    lists = (
        jnp.where(at >= 0, node[at], last),
        jnp.where(at >= 0, other[at], last),
        jnp.where(at >= 0, edge[at].astype(jnp.int32), 0),
    )
    return lists, jnp.sum(inside)


@partial(jax.jit, static_argnames=("records", "size"))
def _no_edges(records: int, size: int) -> Any:
    """A list of edges that are all padding, and their multipliers."""
    last, nothing = jnp.full(size, records - 1, jnp.int32), jnp.zeros((size, WIDTH), jnp.float32)
    return (last, last, jnp.zeros_like(last)), (nothing, nothing)


@partial(jax.jit, static_argnames=("size", "records"))
def _joined(old: Any, new: Any, u: Any, known: Array, growths: Any, size: int, records: int) -> Any:
    """Two lists of edges as one, sorted by their ends and padded to `size`; their multipliers, 0 of
    new ones; and what the iteration, its sums and the bound read of it. The numbers of new edges
    count from `known` on."""
    count, last = len(old[0]), records - 1
    numbered = jnp.where(new[0] < last, new[2] + known, 0)
    pad = max(0, size - count - len(new[0]))
    first, second, edge = (
        jnp.concatenate([a, b, jnp.full(pad, fill, a.dtype)])
        for a, b, fill in zip(old, (*new[:2], numbered), (last, last, 0), strict=True)
    )
    along = jnp.argsort(first.astype(jnp.int64) * records + second, stable=True)[:size]
    first, second, edge = first[along], second[along], edge[along]
    by_second, sorted_second = _sorted(second)
    growth, above = (part[edge] for part in growths)
    degree = jnp.zeros(records, jnp.int32).at[first].add(1).at[second].add(1)
    graph = {
        "first": first,
        "second": second,
        "by_second": by_second,
        "sorted_second": sorted_second,
        "growth": growth.astype(jnp.float32),
    }
    source = jnp.where(along < count, along, -1)
    u = tuple(_take(side, source) for side in u)
    starts = {"starts": _starts(first, records), "later": _starts(sorted_second, records)}
    degree = degree.at[last].set(0).astype(jnp.float64)
    return (first, second, edge), u, graph, starts, above, degree


def _starts(ends: Array, records: int) -> Array:
    """Where in a sorted list the edges of every node start; the last node has none."""
    starts = jnp.searchsorted(ends, jnp.arange(records, dtype=ends.dtype)).astype(jnp.int32)
    return jnp.append(starts, starts[-1])


@jax.jit
def _least_of_rows(least: Array, nodes: Array) -> Array:
    """Over the nodes of every row; what is no number bounds nothing."""
    known = jnp.where(jnp.isnan(least), -jnp.inf, least).at[len(least) - 1].set(jnp.inf)
    return jnp.min(known[nodes], axis=1)
