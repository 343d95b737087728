"""The structured first-order method and the lower bound of its multipliers, compiled by JAX.

compute/numba/pdhg.py says what is iterated. Arrays are (nodes or edges) x outputs, padded, outputs
split over the devices of a mesh; an iteration needs one all-reduce, of the row sums. The two sides
of the edges lie apart: one array that holds both is copied every iteration. Nodes of tiles
(methods/optimal/program.py) are numbered, joined by edges and summed by rows here as well.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from panda_mdp.compute.jax import triton
from panda_mdp.compute.jax.device import AXIS, Array

PADDED_COST = 1e4
"""Of outputs that do not exist, in units of the largest cost: their entries stay 0."""
NEVER_LEAST = 1e300
"""Their cost in the bound, whatever the multipliers of the others are."""
UNIT_ROUNDOFF = 2.0**-53
WHOLE = PartitionSpec()
ROWS = PartitionSpec(None, AXIS)
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


def named(mesh: Mesh, specs: Any) -> Any:
    """Where arrays lie; what lies elsewhere, or is named otherwise, is compiled for again."""
    is_spec = lambda part: isinstance(part, PartitionSpec)  # noqa: E731
    return jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs, is_leaf=is_spec)


@cache
def compiled_begin(mesh: Mesh, size: int, outputs: int, smallest: float) -> Any:
    """Rows padded to `size`, and what an iteration begins with: costs in both precisions, the scale
    and its inverse, the scaled table; the costs' unit and the scale's sums over nodes."""

    def begin(cost: Array, z: Array, real: Array) -> Any:
        extra = ((0, size - len(cost)), (0, 0))
        exists = jnp.arange(cost.shape[1]) < outputs
        there = real[:, None] & exists
        entries = jnp.sum(there)
        cost = jnp.where(there, jnp.pad(cost, extra), 0.0)
        mean = jnp.sum(cost) / entries
        # Costs of order 1 make one starting weight fit all problems.
        unit = jnp.where(mean > 0, mean, 1.0)
        dearest = PADDED_COST * jnp.maximum(1.0, jnp.max(cost) / unit)
        z = jnp.where(there, jnp.pad(z.astype(jnp.float64), extra), 0.0)
        scale = jnp.where(there, jnp.sqrt(jnp.maximum(z, smallest)), 0.0)
        scale = jnp.where(there, scale / (jnp.sum(scale) / entries), 1.0)
        sums = jnp.sum(jnp.where(there, scale, 0.0), axis=1)
        single = scale.astype(jnp.float32)
        x = z.astype(jnp.float32) / single
        relative = jnp.where(exists, cost / unit, dearest).astype(jnp.float32)
        arrays = jnp.where(exists, cost, NEVER_LEAST), relative, single, 1 / single, x
        return arrays, unit, sums

    return jax.jit(begin, out_shardings=named(mesh, ((ROWS,) * 5, WHOLE, WHOLE)))


@cache
def compiled_rescale(mesh: Mesh, outputs: int, smallest: float) -> Any:
    """What follows the scale of the table, and its sums over outputs."""

    def rescale(x: Array, u: Any, old: Array, first: Array, second: Array, real: Array) -> Any:
        there = real[:, None] & (jnp.arange(x.shape[1]) < outputs)
        root = jnp.sqrt(jnp.maximum(jnp.maximum(x, 0) * old, smallest))
        mean = jnp.sum(jnp.where(there, root, 0), dtype=jnp.float64) / jnp.sum(there)
        scale = jnp.where(there, root / mean, 1.0).astype(jnp.float32)
        change = scale / old
        sums = jnp.sum(jnp.where(there, scale, 0), axis=1, dtype=jnp.float64)
        return x / change, (u[0] * change[first], u[1] * change[second]), scale, 1 / scale, sums

    return jax.jit(rescale, out_shardings=named(mesh, (ROWS, SIDES, ROWS, ROWS, WHOLE)))


@cache
def compiled_current(mesh: Mesh) -> Any:
    """The table, and its loss."""

    def current(x: Array, scale: Array, cost: Array) -> tuple[Array, Array]:
        z = jnp.maximum(x, 0) * scale
        return z, jnp.sum(jnp.where(z > 0, z * cost, 0.0), dtype=jnp.float64)

    return jax.jit(current, out_shardings=named(mesh, (ROWS, WHOLE)))


@jax.jit
def copied(arrays: Any) -> Any:
    return jax.tree.map(jnp.copy, arrays)


@jax.jit
def steps(
    degree: Array, sums: Array, real: Array, shares: Any, weight: Array, row_pull: Array
) -> Any:
    """By how much nodes and rows move at a weight; a row that does not exist has no sum to keep."""
    whole = over_rows(sums, shares)
    row_step = jnp.where(real, weight * row_pull / jnp.where(real, whole, 1.0), 0.0)
    return (weight * degree).astype(jnp.float32), row_step.astype(jnp.float32)


def over_rows(numbers: Array, shares: Any) -> Array:
    """Sums of numbers of nodes over whole rows, for every node. Lists have a fixed order."""
    if "row" not in shares:
        return numbers
    return jnp.sum(numbers[shares["nodes"]], axis=1)[shares["row"]]


def by_node(first: Array, second: Array, c: Any, nodes: int) -> Array:
    """Sums over the edges of every node, of the one at its first end and at its second."""
    at_first = jax.ops.segment_sum(first, c["first"], num_segments=nodes, indices_are_sorted=True)
    return at_first + jax.ops.segment_sum(
        second[c["by_second"]], c["sorted_second"], num_segments=nodes, indices_are_sorted=True
    )


def step(state: Any, anchor: Any, c: Any, keep: Array, measure: bool) -> Any:
    x, mu, (ui, uj) = state
    x0, mu0, (ui0, uj0) = anchor
    one = jnp.float32(1)
    pull = one - keep
    if "starts" in c:
        lent = triton.summed(ui, uj, c["starts"], c["later"], c["by_second"])
    else:
        lent = by_node(ui, uj, c, len(x))
    grad = c["scale"] * (c["cost"] - mu[:, None]) + lent
    stiff = c["stiff"][:, None] + c["row_pull"] * c["scale"]
    mid = 2 * jnp.maximum(x - grad / stiff, 0) - x
    total = jax.lax.psum(jnp.sum(c["scale"] * mid, axis=1), AXIS)
    short = one - over_rows(total, c)
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


@cache
def compiled_run(mesh: Mesh, shares: frozenset[str]) -> Any:
    constants = {**CONSTANTS, **dict.fromkeys(shares, WHOLE)}

    def run(state: Any, anchor: Any, c: Any, steps: Array, since: Array) -> Any:
        def share(k: Array) -> Array:
            done = since + k.astype(jnp.float32)
            return (done + 1) / (done + 2)

        def body(k: Array, state: Any) -> Any:
            return step(state, anchor, c, share(k), measure=False)[0]

        state = jax.lax.fori_loop(0, steps - 1, body, state)
        return step(state, anchor, c, share(steps - 1), measure=True)

    mapped = jax.shard_map(
        run,
        mesh=mesh,
        in_specs=(STATE, STATE, constants, WHOLE, WHOLE),
        out_specs=(STATE, WHOLE),
        check_vma=False,
    )
    donated = () if mesh.devices.flat[0].platform == "cpu" else (0,)
    return jax.jit(mapped, donate_argnums=donated, out_shardings=named(mesh, (STATE, WHOLE)))


@cache
def compiled_travel(mesh: Mesh, row_pull: float) -> Any:
    """Step-weighted squared distances of primal and dual from the anchor."""

    def travel(point: Any, anchor: Any, scale: Array, degree: Array, sums: Array) -> Any:
        (x, mu, u), (x0, mu0, u0) = point, anchor
        step, degree = x - x0, degree.astype(jnp.float32)
        primal = jnp.sum(step * step * (degree[:, None] + row_pull * scale), dtype=jnp.float64)
        dual = sum(
            jnp.sum((side - side0) ** 2, dtype=jnp.float64)
            for side, side0 in zip(u, u0, strict=True)
        )
        rise = mu.astype(jnp.float64) - mu0
        return primal, dual + jnp.sum(rise * rise * sums) / row_pull

    return jax.jit(travel, out_shardings=named(mesh, (WHOLE, WHOLE)))


@cache
def compiled_bound(mesh: Mesh) -> Any:
    """`least_reduced_costs`: min_y of the reduced costs, rounding errors subtracted, in float64."""

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
        h = cost + by_node(up - g * down, down - g * up, graph, len(cost))
        size = jnp.abs(cost) + by_node(up + g * down, down + g * up, graph, len(cost))
        terms = 2.0 * degree + 6.0
        return jnp.min(h - (terms[:, None] * UNIT_ROUNDOFF) * size, axis=1)

    return jax.jit(least, out_shardings=named(mesh, WHOLE))


@jax.jit
def along(sees: Array, along: Array) -> tuple[Array, Array]:
    """What tiles see along an order of the records, and how many see each record."""
    sees = sees[:, along]
    return sees, jnp.sum(sees, axis=0)


@partial(jax.jit, static_argnames=("size", "rows", "most"))
def numbered(
    sees: Array, count: Array, along: Array, tiles: Array, copies: Array, size: int, rows: int,
    most: int,
) -> Any:  # fmt: skip
    """Tile and row of every node; the node of a tile and a row, -1 where none is; which nodes are
    real; `row_lists`; and of every node its record, its tile's outputs and what they share."""
    records = sees.shape[1]
    at = jnp.nonzero(sees.reshape(-1), size=size, fill_value=0)[0]
    number = jnp.cumsum(sees.reshape(-1), dtype=jnp.int32).reshape(sees.shape) - 1
    tile, row = (at // records).astype(jnp.int32), (at % records).astype(jnp.int32)
    real = jnp.arange(size) < count
    shares = row_lists(sees, tile, row, real, rows, most)
    of_nodes = along[row], tiles[tile], copies[tile]
    return tile, row, jnp.where(sees, number, -1), real, shares, of_nodes


def row_lists(
    sees: Array, tile: Array, row: Array, real: Array, rows: int, most: int
) -> dict[str, Array]:
    """The nodes of every row, padded with one that is always 0, and the row of every node."""
    size = len(tile)
    rank = jnp.cumsum(sees, axis=0, dtype=jnp.int32)[tile, row] - 1
    own = jnp.where(real, row, rows - 1)
    lists = jnp.full((rows, most), size - 1, dtype=jnp.int32)
    # Nodes that are none are written outside, which drops them.
    at = (jnp.where(real, own, rows), rank)
    lists = lists.at[at].set(jnp.arange(size, dtype=jnp.int32), mode="drop")
    return {"nodes": lists, "row": own}


@jax.jit
def entries(table: Array, records: Array, columns: Array) -> Array:
    return table[records[:, None], columns]


@jax.jit
def weighted(losses: Array, prior: Array, records: Array) -> Array:
    return losses * prior[records][:, None]


@jax.jit
def warm(cost: Array, copies: Array, real: Array, shares: Any, steepness: Array) -> Array:
    """The warm start of the dense iteration, of which only the nodes are looked at."""
    cost = jnp.where(real[:, None], cost, jnp.inf)
    least = jnp.min(jnp.min(cost, axis=1)[shares["nodes"]], axis=1)[shares["row"]]
    above = jnp.where(real[:, None], cost - least[:, None], 0.0)
    table = jnp.exp(-jnp.minimum(above * steepness, 700.0)) / copies
    table = jnp.where(real[:, None], table, 0.0)
    total = over_rows(jnp.sum(table, axis=1), shares)
    return table / jnp.where(real, total, 1.0)[:, None]


@partial(jax.jit, static_argnames="size")
def placed(table: Array, at: Array, size: int) -> Array:
    return jnp.zeros((size, table.shape[1]), table.dtype).at[at].set(table).at[size - 1].set(0)


@partial(jax.jit, static_argnames="size")
def lifted(
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


@cache
def compiled_joined(mesh: Mesh, length: int, nodes: int) -> Any:
    """Two lists of edges as one, sorted by their ends and padded to `length`; their multipliers, 0
    of new ones; and what the iteration, its sums and the bound read of it. The numbers of new edges
    count from `known` on."""
    last = nodes - 1

    def joined(old: Any, new: Any, u: Any, known: Array, growth: Any) -> Any:
        count = len(old[0])
        numbered = jnp.where(new[0] < last, new[2] + known, 0)
        pad = max(0, length - count - len(new[0]))
        first, second, edge = (
            jnp.concatenate([a, b, jnp.full(pad, fill, a.dtype)])
            for a, b, fill in zip(old, (*new[:2], numbered), (last, last, 0), strict=True)
        )
        along = jnp.argsort(first.astype(jnp.int64) * nodes + second, stable=True)[:length]
        first, second, edge = first[along], second[along], edge[along]
        by_second = jnp.argsort(second, stable=True).astype(jnp.int32)
        growths, above = (part[edge] for part in growth)
        degree = jnp.zeros(nodes, jnp.int32).at[first].add(1).at[second].add(1)
        graph = {
            "first": first,
            "second": second,
            "by_second": by_second,
            "sorted_second": second[by_second],
            "growth": growths.astype(jnp.float32),
        }
        source = jnp.where(along < count, along, -1)
        kept = (source >= 0)[:, None]
        u = tuple(jnp.where(kept, side[jnp.maximum(source, 0)], 0) for side in u)
        lists = {
            "starts": starts(first, nodes),
            "later": starts(graph["sorted_second"], nodes),
        }
        degree = degree.at[last].set(0).astype(jnp.float64)
        return (first, second, edge), u, graph, lists, above, degree

    kernels = {"starts": WHOLE, "later": WHOLE}
    specs = ((WHOLE,) * 3, SIDES, GRAPH, kernels, WHOLE, WHOLE)
    return jax.jit(joined, out_shardings=named(mesh, specs))


def starts(ends: Array, records: int) -> Array:
    """Where in a sorted list the edges of every node start; the last node has none."""
    starts = jnp.searchsorted(ends, jnp.arange(records, dtype=ends.dtype)).astype(jnp.int32)
    return jnp.append(starts, starts[-1])


@jax.jit
def least_of_rows(least: Array, nodes: Array) -> Array:
    """Over the nodes of every row; what is no number bounds nothing."""
    known = jnp.where(jnp.isnan(least), -jnp.inf, least).at[len(least) - 1].set(jnp.inf)
    return jnp.min(known[nodes], axis=1)
