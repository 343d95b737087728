"""The first-order method on accelerators: the iteration of kernels/pdhg.py in JAX.

Outputs are split over the devices of a mesh; an iteration needs one all-reduce, of the row sums.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.compute.jax import triton
from panda_mdp.compute.jax.device import AXIS, Array, Placement, ladder, precise, require_memory
from panda_mdp.methods.optimal.dual import total_from_below
from panda_mdp.methods.optimal.graph import Graph
from panda_mdp.methods.optimal.halpern import ROW_PULL, SMALLEST, Halpern
from panda_mdp.problem import Problem

PADDED_COST = 1e4
"""Of outputs that do not exist, in units of the largest cost: their entries stay 0."""
NEVER_LEAST = 1e300
"""Their cost in the bound, whatever the multipliers of the others are."""
UNIT_ROUNDOFF = 2.0**-53
WHOLE = PartitionSpec()
ROWS = PartitionSpec(None, AXIS)
FEW_MULTIPLIERS = 1 << 25
"""Of one side of the edges: up to here iterating over some more costs less than compiling anew."""


class JaxSolver(Halpern):
    """Iterates in float32 on the devices of a mesh, outputs split over them."""

    def __init__(
        self,
        problem: Problem,
        graph: Graph,
        start: FloatArray,
        mesh: Mesh,
        owner: Any = None,
    ) -> None:
        self._owner = owner
        self._on = Placement(mesh, problem.outputs_count)
        # One more record than there are takes the padded edges.
        self._records = ladder(problem.size + 1)
        edges = self._padded(self._expected(graph), 0)
        require_memory(bytes_needed(self._records, edges, self._on.width), mesh)
        with precise():
            self._shares = {} if owner is None else self._row_shares(owner)
            super().__init__(problem, graph, start)

    def _expected(self, graph: Graph) -> int:
        """Edges that are iterated on."""
        return graph.count

    def _padded(self, edges: int, length: int) -> int:
        """Edges with their padding, where lists have this length already, 0 or 1 at first. Where
        they are few, half as many again have room from the beginning: as a rule no more will be
        added, and every length is compiled for."""
        if edges <= length:
            return length
        few = edges * self._on.width < FEW_MULTIPLIERS
        more = edges // 2 if few and length <= 1 else 0
        return ladder(edges + more, fine=not few)

    def _row_shares(self, owner: IntArray) -> dict[str, Array]:
        """Where records are cut into nodes (lifted.py): the nodes of every row, padded with one
        that is always 0, and the row of every node. Sums over such lists have a fixed order."""
        count = np.bincount(owner)
        along = np.argsort(owner, kind="stable")
        place = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
        nodes = np.full((ladder(len(count) + 1), int(count.max())), self._records - 1)
        nodes[owner[along], place] = along
        row = np.full(self._records, len(nodes) - 1)
        row[: len(owner)] = owner
        return {
            "nodes": self._on.whole(nodes.astype(np.int32)),
            "row": self._on.whole(row.astype(np.int32)),
        }

    def _begin(self, cost: FloatArray, scale: FloatArray, z: FloatArray) -> None:
        single = np.float32
        dearest = PADDED_COST * max(1.0, float(cost.max()) / self.unit)
        self._cost64, self._cost, self._scale, self._inverse, self._x = _compiled_begin(
            self._on.mesh, self._records, self._on.outputs
        )(
            self._on.sharded(cost, NEVER_LEAST),
            self._on.sharded(scale.astype(single), 1.0),
            self._on.sharded(z.astype(single), 0.0),
            np.float64(self.unit),
            single(dearest),
        )
        self._mu = self._on.whole(np.zeros(self._records, dtype=np.float32))
        # The two sides of the edges lie apart: one array that holds both is copied every iteration.
        nothing = np.zeros((1, z.shape[1]), dtype=np.float32)
        self._u = (self._on.sharded(nothing, 0.0), self._on.sharded(nothing, 0.0))

    def _connect(self, source: IntArray) -> None:
        with precise():
            self._connect_padded(source)

    def _connect_padded(self, source: IntArray) -> None:
        last = self._records - 1
        size = self._padded(self.graph.count, len(self._u[0]))
        extra = size - self.graph.count
        padded = np.concatenate([source, np.full(extra, -1)])
        at = self._on.whole(padded)
        self._u = (_take(self._u[0], at), _take(self._u[1], at))
        ends = np.concatenate([self.ends, np.full((extra, 2), last)]).astype(np.int32)
        # Edges are sorted by their first end; this sorts them by the second.
        second = self._on.whole(np.ascontiguousarray(ends[:, 1]))
        by_second, sorted_second = _sorted(second)
        degree = np.zeros(self._records)
        degree[: self.problem.size] = self.degree
        ones = np.ones(extra)
        self._degree = degree
        self._share_rows()
        self._graph = {
            "first": self._on.whole(np.ascontiguousarray(ends[:, 0])),
            "second": second,
            "by_second": by_second,
            "sorted_second": sorted_second,
            "growth": self._on.whole(np.concatenate([self.growth, ones]).astype(np.float32)),
        }
        self._growth_above = self._on.whole(np.concatenate([self.growth_above, ones]))

    def _share_rows(self) -> None:
        # A row that does not exist has no sum to keep.
        self._row_share = np.zeros(self._records)
        sums = self.scale_sums
        if self._owner is not None:
            sums = np.bincount(self._owner, sums)[self._owner]
        self._row_share[: self.problem.size] = 1 / sums

    def _rescale(self) -> None:
        with precise():
            ends = self._graph["first"], self._graph["second"]
            self._x, self._u, self._scale, self._inverse, sums = _compiled_rescale(self._on.mesh)(
                self._x, self._u, self._scale, *ends, self.problem.size, self._on.outputs
            )
            self.scale_sums = np.asarray(sums)[: self.problem.size]
            self._share_rows()

    def _anchor(self) -> None:
        with precise():
            # Copies: the iteration may reuse the memory of what it is given.
            self._x0, self._mu0, self._u0 = _copied((self._x, self._mu, self._u))

    def _iterate(self, steps: int, since: int) -> float:
        weight = self.weight
        with precise():
            stiff, row_step = _steps(self._degree, self._row_share, weight)
            constants = {
                "cost": self._cost,
                "scale": self._scale,
                **self._graph,
                **self._shares,
                "stiff": self._on.whole(stiff),
                "dual_step": np.float32(weight),
                "row_pull": np.float32(weight * ROW_PULL),
                "row_step": self._on.whole(row_step),
            }
            anchor = (self._x0, self._mu0, self._u0)
            run = _compiled_run(self._on.mesh, frozenset(self._shares))
            (self._x, self._mu, self._u), moved = run(
                (self._x, self._mu, self._u), anchor, constants, np.int32(steps), np.float32(since)
            )
            return float(moved)

    def _travel(self) -> tuple[float, float]:
        with precise():
            primal, turn = _compiled_travel(self._on.mesh)(
                self._x, self._x0, self._u, self._u0, self._scale, self._on.whole(self._degree)
            )
            rise = np.asarray(self._mu, dtype=np.float64) - np.asarray(self._mu0, dtype=np.float64)
            rise = rise[: self.problem.size]
            row = float(rise**2 @ self.scale_sums) / ROW_PULL
            return float(primal), float(turn) + row

    def matrix(self) -> FloatArray:
        """The current table in the domain's order: non-negative, rows near 1, nearly feasible."""
        with precise():
            rows = self._on.whole(self.place.astype(np.int32))
            z = self._on.host(_compiled_table(self._on.mesh)(self._x, self._scale, rows))
        return np.asarray(z, dtype=np.float64)

    def table(self) -> Array:
        """The current table where it lies, along the order in space and padded."""
        with precise():
            return _compiled_scaled(self._on.mesh)(self._x, self._scale)

    def on_device(self) -> tuple[Array, float]:
        """The current table along the order in space, padded, where it is, and its loss."""
        with precise():
            z, loss = _compiled_current(self._on.mesh)(self._x, self._scale, self._cost64)
            return z, float(loss)

    def bound(self) -> float:
        """A rigorous lower bound on the true problem's optimum from the current multipliers."""
        return total_from_below(self.least())

    def least(self) -> FloatArray:
        """The least reduced cost of every record, rounding errors subtracted."""
        with precise():
            return np.asarray(self._least())[: self.problem.size]

    def _least(self) -> Array:
        return _compiled_bound(self._on.mesh)(
            self._cost64,
            self._u,
            self._inverse,
            self._graph,
            self._growth_above,
            np.float64(self.unit),
            self._on.whole(self._degree),
        )


def bytes_needed(records: int, edges: int, outputs: int) -> int:
    """Memory of a solve: multipliers, their anchor and one temporary; eight tables of rows; the
    float64 terms of the bound."""
    iterating = 4 * outputs * (3 * 2 * edges + 8 * records)
    bounding = 8 * outputs * (2 * 2 * edges + 4 * records)
    return iterating + bounding


@cache
def _compiled_begin(mesh: Mesh, records: int, outputs: int) -> Any:
    """Rows padded to `records`, and what follows from them."""

    def begin(cost: Array, scale: Array, z: Array, unit: Array, dearest: Array) -> Any:
        extra = ((0, records - len(cost)), (0, 0))
        real = jnp.arange(cost.shape[1]) < outputs
        cost = jnp.where(real, jnp.pad(cost, extra), NEVER_LEAST)
        relative = jnp.where(real, cost / unit, 0.0).astype(jnp.float32)
        scale = jnp.pad(scale, extra, constant_values=1)
        x = jnp.pad(z, extra) / scale
        return cost, jnp.where(real, relative, dearest), scale, 1 / scale, x

    return jax.jit(begin, out_shardings=(NamedSharding(mesh, ROWS),) * 5)


@cache
def _compiled_rescale(mesh: Mesh) -> Any:
    """`CpuSolver._rescale`: what follows the scale of the table, and its sums over outputs."""

    def rescale(
        x: Array, u: Any, old: Array, first: Array, second: Array, rows: Array, outputs: Array
    ) -> Any:
        real = (jnp.arange(len(x)) < rows)[:, None] & (jnp.arange(x.shape[1]) < outputs)
        root = jnp.sqrt(jnp.maximum(jnp.maximum(x, 0) * old, SMALLEST))
        mean = jnp.sum(jnp.where(real, root, 0), dtype=jnp.float64) / (rows * outputs)
        scale = jnp.where(real, root / mean, 1.0).astype(jnp.float32)
        change = scale / old
        sums = jnp.sum(jnp.where(real, scale, 0), axis=1, dtype=jnp.float64)
        return x / change, (u[0] * change[first], u[1] * change[second]), scale, 1 / scale, sums

    rows, whole = NamedSharding(mesh, ROWS), NamedSharding(mesh, WHOLE)
    return jax.jit(rescale, out_shardings=(rows, (rows, rows), rows, rows, whole))


@cache
def _compiled_table(mesh: Mesh) -> Any:
    def table(x: Array, scale: Array, rows: Array) -> Array:
        return (jnp.maximum(x, 0) * scale)[rows]

    return jax.jit(table, out_shardings=NamedSharding(mesh, PartitionSpec(None, AXIS)))


@cache
def _compiled_scaled(mesh: Mesh) -> Any:
    def scaled(x: Array, scale: Array) -> Array:
        return jnp.maximum(x, 0) * scale

    return jax.jit(scaled, out_shardings=NamedSharding(mesh, PartitionSpec(None, AXIS)))


@cache
def _compiled_current(mesh: Mesh) -> Any:
    def current(x: Array, scale: Array, cost: Array) -> tuple[Array, Array]:
        z = jnp.maximum(x, 0) * scale
        return z, jnp.sum(jnp.where(z > 0, z * cost, 0.0), dtype=jnp.float64)

    whole = NamedSharding(mesh, PartitionSpec())
    return jax.jit(current, out_shardings=(whole, whole))


@jax.jit
def _copied(arrays: Any) -> Any:
    return jax.tree.map(jnp.copy, arrays)


@jax.jit
def _steps(degree: Array, row_share: Array, weight: Array) -> tuple[Array, Array]:
    """By how much records and rows move at a weight."""
    stiff, row_step = weight * degree, weight * ROW_PULL * row_share
    return stiff.astype(jnp.float32), row_step.astype(jnp.float32)


@jax.jit
def _sorted(ends: Array) -> tuple[Array, Array]:
    along = jnp.argsort(ends, stable=True).astype(jnp.int32)
    return along, ends[along]


@jax.jit
def _take(u: Array, source: Array) -> Array:
    return jnp.where((source >= 0)[:, None], u[jnp.maximum(source, 0)], 0)


def _by_record(first: Array, second: Array, c: Any, records: int) -> Array:
    """Sums over the edges of every record, of the one at its first end and at its second."""
    at_first = jax.ops.segment_sum(first, c["first"], num_segments=records, indices_are_sorted=True)
    return at_first + jax.ops.segment_sum(
        second[c["by_second"]], c["sorted_second"], num_segments=records, indices_are_sorted=True
    )


def _step(state: Any, anchor: Any, c: Any, keep: Array, measure: bool) -> Any:
    x, mu, (ui, uj) = state
    x0, mu0, (ui0, uj0) = anchor
    one = jnp.float32(1)
    pull = one - keep
    if "starts" in c:
        lent = triton.summed(ui, uj, c["starts"], c["later"], c["by_second"])
    else:
        lent = _by_record(ui, uj, c, len(x))
    grad = c["scale"] * (c["cost"] - mu[:, None]) + lent
    stiff = c["stiff"][:, None] + c["row_pull"] * c["scale"]
    mid = 2 * jnp.maximum(x - grad / stiff, 0) - x
    total = jax.lax.psum(jnp.sum(c["scale"] * mid, axis=1), AXIS)
    if "row" in c:
        total = jnp.sum(total[c["nodes"]], axis=1)[c["row"]]
    short = one - total
    raised = mu + c["row_step"] * short
    i, j = c["first"], c["second"]
    ratio = c["scale"][j] / c["scale"][i]
    g = c["growth"][:, None] * ratio
    h = c["growth"][:, None] / ratio
    vi = ui + c["dual_step"] * mid[i]
    vj = uj + c["dual_step"] * mid[j]
    first = jnp.maximum(vi - g * vj, 0) / (one + g * g)
    second = jnp.maximum(vj - h * vi, 0) / (one + h * h)
    apex = (g * vi + vj <= 0) & (vi + h * vj <= 0)
    new_i = jnp.where(apex, vi, first - h * second)
    new_j = jnp.where(apex, vj, second - g * first)
    moved = jnp.float32(0)
    if measure:
        change = mid - x
        across = 0.25 * jnp.sum(change * change * stiff)
        turn = jnp.sum((new_i - ui) ** 2) + jnp.sum((new_j - uj) ** 2)
        local = across + turn / c["dual_step"]
        moved = jax.lax.psum(local, AXIS) + jnp.sum(c["row_step"] * short * short)
    state = (
        keep * mid + pull * x0,
        keep * (2 * raised - mu) + pull * mu0,
        (keep * (2 * new_i - ui) + pull * ui0, keep * (2 * new_j - uj) + pull * uj0),
    )
    return state, moved


SIDES = (ROWS, ROWS)
STATE = (ROWS, WHOLE, SIDES)
GRAPH = {
    "first": WHOLE,
    "second": WHOLE,
    "by_second": WHOLE,
    "sorted_second": WHOLE,
    "growth": WHOLE,
}
CONSTANTS = {
    "cost": ROWS,
    "scale": ROWS,
    **GRAPH,
    "stiff": WHOLE,
    "dual_step": WHOLE,
    "row_pull": WHOLE,
    "row_step": WHOLE,
}


@cache
def _compiled_run(mesh: Mesh, shares: frozenset[str]) -> Any:
    constants = {**CONSTANTS, **dict.fromkeys(shares, WHOLE)}

    def run(state: Any, anchor: Any, c: Any, steps: Array, since: Array) -> Any:
        def share(k: Array) -> Array:
            done = since + k.astype(jnp.float32)
            return (done + 1) / (done + 2)

        def body(k: Array, state: Any) -> Any:
            return _step(state, anchor, c, share(k), measure=False)[0]

        state = jax.lax.fori_loop(0, steps - 1, body, state)
        return _step(state, anchor, c, share(steps - 1), measure=True)

    mapped = jax.shard_map(
        run,
        mesh=mesh,
        in_specs=(STATE, STATE, constants, WHOLE, WHOLE),
        out_specs=(STATE, WHOLE),
        check_vma=False,
    )
    donated = () if mesh.devices.flat[0].platform == "cpu" else (0,)
    # Named as they came in: what is named otherwise is compiled for again.
    out = jax.tree.map(lambda spec: NamedSharding(mesh, spec), (STATE, WHOLE))
    return jax.jit(mapped, donate_argnums=donated, out_shardings=out)


@cache
def _compiled_travel(mesh: Mesh) -> Any:
    def travel(x: Array, x0: Array, u: Any, u0: Any, scale: Array, degree: Array) -> Any:
        step, degree = x - x0, degree.astype(jnp.float32)
        primal = jnp.sum(step * step * (degree[:, None] + ROW_PULL * scale), dtype=jnp.float64)
        dual = sum(
            jnp.sum((side - side0) ** 2, dtype=jnp.float64)
            for side, side0 in zip(u, u0, strict=True)
        )
        return jax.lax.psum(primal, AXIS), jax.lax.psum(dual, AXIS)

    mapped = jax.shard_map(
        travel,
        mesh=mesh,
        in_specs=(ROWS, ROWS, SIDES, SIDES, ROWS, WHOLE),
        out_specs=(WHOLE, WHOLE),
        check_vma=False,
    )
    return jax.jit(mapped)


@cache
def _compiled_bound(mesh: Mesh) -> Any:
    """kernels/bound.py: min_y of the reduced costs, rounding errors subtracted, in float64."""

    def least(
        cost: Array,
        u: Any,
        inverse: Array,
        graph: Any,
        growth: Array,
        unit: Array,
        degree: Array,
    ) -> Array:
        i, j = graph["first"], graph["second"]
        g = growth[:, None]
        own = u[0].astype(jnp.float64) * inverse[i].astype(jnp.float64)
        other = u[1].astype(jnp.float64) * inverse[j].astype(jnp.float64)
        up = unit * jnp.maximum(0.0, jnp.minimum(own, -other / g))
        down = unit * jnp.maximum(0.0, jnp.minimum(other, -own / g))
        h = cost + _by_record(up - g * down, down - g * up, graph, len(cost))
        size = jnp.abs(cost) + _by_record(up + g * down, down + g * up, graph, len(cost))
        terms = 2.0 * degree + 6.0
        lowest = jnp.min(h - (terms[:, None] * UNIT_ROUNDOFF) * size, axis=1)
        return jax.lax.pmin(lowest, AXIS)

    mapped = jax.shard_map(
        least,
        mesh=mesh,
        in_specs=(ROWS, SIDES, ROWS, GRAPH, WHOLE, WHOLE, WHOLE),
        out_specs=WHOLE,
        check_vma=False,
    )
    return jax.jit(mapped)
