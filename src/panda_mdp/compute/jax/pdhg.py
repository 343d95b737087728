"""The structured first-order method and the lower bound of its multipliers, compiled by JAX.

compute/numba/pdhg.py says what is iterated. Arrays are (nodes or edges) x outputs, padded. The two
sides of the edges lie apart: one array that holds both is copied every iteration. Nodes of tiles
(methods/optimal/program.py) are joined by edges here as well; the last one is none.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from panda_mdp.compute.jax import triton
from panda_mdp.compute.jax.device import Array

UNIT_ROUNDOFF = 2.0**-53


class Nodes(NamedTuple):
    """What is known of every node; `columns`, `row` and `along` where there are many tiles."""

    tile: Array
    record: Array
    real: Array
    number: Array
    """(tiles, K): the node of a tile and a record, -1 where none is."""
    columns: Array | None
    """(nodes, width) outputs."""
    row: Array | None
    """The record; of what is no node a number that no record has."""
    along: Array | None
    """(rows, most): the nodes of every row, padded with the last."""


class Edges(NamedTuple):
    """Edges of nodes, sorted by their ends and padded with the last node."""

    first: Array
    second: Array
    length: Array
    """The number of an edge's records in the lists of growths."""
    by_second: Array
    """Their places sorted by the second end."""
    growth: Array
    above: Array
    """exp(epsilon d), and an upper bound."""
    degree: Array
    starts: Array
    later: Array
    """Where the edges of every node start, by first and by second ends."""


class Scale(NamedTuple):
    """What the table is scaled by, and that over nodes' outputs."""

    of_entries: Array
    inverse: Array
    sums: Array


def _scale(root, real) -> Scale:
    """Roots of mean 1 where nodes are real."""
    there = real[:, None]
    count = root.shape[1] * jnp.sum(real)
    mean = jnp.sum(jnp.where(there, root, 0), dtype=jnp.float64) / count
    scale = jnp.where(there, root / mean, 1.0)
    sums = jnp.sum(jnp.where(there, scale, 0.0), axis=1, dtype=jnp.float64)
    single = scale.astype(jnp.float32)
    return Scale(single, 1 / single, sums)


@partial(jax.jit, static_argnames="smallest")
def begin(cost, z, real, smallest: float):
    """What an iteration begins with: costs in both precisions, the scale, the scaled table, and the
    costs' unit."""
    there = real[:, None]
    cost = jnp.where(there, cost, 0.0)
    mean = jnp.sum(cost) / (cost.shape[1] * jnp.sum(real))
    # Costs of order 1 make one starting weight fit all problems.
    unit = jnp.where(mean > 0, mean, 1.0)
    z = jnp.where(there, z.astype(jnp.float64), 0.0)
    scale = _scale(jnp.sqrt(jnp.maximum(z, smallest)), real)
    costs = cost, (cost / unit).astype(jnp.float32)
    return costs, scale, z.astype(jnp.float32) * scale.inverse, unit


@partial(jax.jit, static_argnames="smallest")
def rescale(point, old: Scale, edges: Edges, real, smallest: float):
    """The point at the scale of its table."""
    x, mu, u = point
    root = jnp.sqrt(jnp.maximum(jnp.maximum(x, 0) * old.of_entries, smallest))
    scale = _scale(root, real)
    change = scale.of_entries / old.of_entries
    return (x / change, mu, (u[0] * change[edges.first], u[1] * change[edges.second])), scale


@jax.jit
def current(x, scale, cost):
    """The table, and its loss."""
    z = jnp.maximum(x, 0) * scale
    return z, jnp.sum(jnp.where(z > 0, z * cost, 0.0), dtype=jnp.float64)


def over_rows(numbers, nodes: Nodes):
    """Sums of numbers of nodes over whole rows, for every node. Lists have a fixed order."""
    if nodes.row is None:
        return numbers
    return jnp.sum(numbers[nodes.along], axis=1)[nodes.row]


def by_node(first, second, edges: Edges, nodes: int):
    """Sums over the edges of every node, of the one at its first end and at its second."""
    add = partial(jax.ops.segment_sum, num_segments=nodes, indices_are_sorted=True)
    at_second = edges.by_second
    return add(first, edges.first) + add(second[at_second], edges.second[at_second])


@partial(jax.jit, static_argnames=("row_pull", "kernels"))
def run(
    point, anchor, cost, scale: Scale, edges: Edges, nodes: Nodes, c,
    row_pull: float, kernels: bool,
):  # fmt: skip
    """Iterations, and the squared residual of the last; `c` are their number, how many there were
    since the anchor, and the weight."""
    steps, since, weight = c
    own_pull = (weight * edges.degree).astype(jnp.float32)[:, None]
    pull = jnp.float32(weight * row_pull)
    # A row that does not exist has no sum to keep.
    row_sums = jnp.where(nodes.real, over_rows(scale.sums, nodes), 1.0)
    row_step = jnp.where(nodes.real, weight * row_pull / row_sums, 0.0).astype(jnp.float32)
    dual_step = jnp.float32(weight)
    one = jnp.float32(1)
    i = edges.first
    j = edges.second

    def step(k, point, measure: bool):
        x, mu, (ui, uj) = point
        done = since + k.astype(jnp.float32)
        keep = (done + 1) / (done + 2)
        if kernels:
            lent = triton.summed(ui, uj, edges.starts, edges.later, edges.by_second)
        else:
            lent = by_node(ui, uj, edges, len(x))
        grad = scale.of_entries * (cost - mu[:, None]) + lent
        stiff = own_pull + pull * scale.of_entries
        mid = 2 * jnp.maximum(x - grad / stiff, 0) - x
        short = one - over_rows(jnp.sum(scale.of_entries * mid, axis=1), nodes)
        raised = mu + row_step * short
        ratio = scale.of_entries[j] / scale.of_entries[i]
        g = edges.growth[:, None] * ratio
        h = edges.growth[:, None] / ratio
        vi = ui + dual_step * mid[i]
        vj = uj + dual_step * mid[j]
        first = jnp.maximum(vi - g * vj, 0) / (one + g * g)
        second = jnp.maximum(vj - h * vi, 0) / (one + h * h)
        apex = (g * vi + vj <= 0) & (vi + h * vj <= 0)
        new_i = jnp.where(apex, vi, first - h * second)
        new_j = jnp.where(apex, vj, second - g * first)
        moved = jnp.float32(0)
        if measure:
            across = 0.25 * jnp.sum((mid - x) ** 2 * stiff)
            turn = jnp.sum((new_i - ui) ** 2) + jnp.sum((new_j - uj) ** 2)
            moved = across + turn / dual_step + jnp.sum(row_step * short * short)
        reflected = (mid, 2 * raised - mu, (2 * new_i - ui, 2 * new_j - uj))
        return jax.tree.map(
            lambda new, old: keep * new + (one - keep) * old, reflected, anchor
        ), moved

    point = jax.lax.fori_loop(0, steps - 1, lambda k, point: step(k, point, False)[0], point)
    return step(steps - 1, point, True)


@partial(jax.jit, static_argnames="row_pull")
def travel(point, anchor, scale, degree, sums, row_pull: float):
    """Step-weighted squared distances of primal and dual from the anchor."""
    step, rise, turn = jax.tree.map(jnp.subtract, point, anchor)
    stiff = degree.astype(jnp.float32)[:, None] + row_pull * scale
    primal = jnp.sum(step * step * stiff, dtype=jnp.float64)
    dual = sum(jnp.sum(side**2, dtype=jnp.float64) for side in turn)
    rise = rise.astype(jnp.float64)
    return primal, dual + jnp.sum(rise * rise * sums) / row_pull


@jax.jit
def least(cost, u, inverse, edges: Edges, unit):
    """`least_reduced_costs`: min_y of the reduced costs, rounding errors subtracted, in float64."""
    g = edges.above[:, None]
    own, other = (
        side.astype(jnp.float64) * inverse[end].astype(jnp.float64)
        for side, end in zip(u, (edges.first, edges.second), strict=True)
    )
    up = unit * jnp.maximum(0.0, jnp.minimum(own, -other / g))
    down = unit * jnp.maximum(0.0, jnp.minimum(other, -own / g))
    h = cost + by_node(up - g * down, down - g * up, edges, len(cost))
    size = jnp.abs(cost) + by_node(up + g * down, down + g * up, edges, len(cost))
    terms = 2.0 * edges.degree + 6.0
    return jnp.min(h - (terms[:, None] * UNIT_ROUNDOFF) * size, axis=1)


# Nodes and edges.


@jax.jit
def taken(rows, at):
    """Of every tile, for its nodes."""
    return rows[at]


@jax.jit
def entries(table, records, columns: Array | None):
    """Of a table K x m, the rows of records, or some columns (n, width) of them."""
    return table[records] if columns is None else table[records[:, None], columns]


@jax.jit
def weighted(losses, prior, records):
    """p c."""
    return losses * prior[records][:, None]


@jax.jit
def warm(cost, nodes: Nodes, steepness):
    """The warm start of the dense iteration, of which only the nodes are looked at."""
    cost = jnp.where(nodes.real[:, None], cost, jnp.inf)
    least = jnp.min(jnp.min(cost, axis=1)[nodes.along], axis=1)[nodes.row]
    above = jnp.where(nodes.real[:, None], cost - least[:, None], 0.0)
    table = jnp.exp(-jnp.minimum(above * steepness, 700.0))
    table = jnp.where(nodes.real[:, None], table, 0.0)
    total = over_rows(jnp.sum(table, axis=1), nodes)
    return table / jnp.where(nodes.real, total, 1.0)[:, None]


@jax.jit
def moved(z, old: Nodes, new: Nodes):
    """A table of nodes of the same tiles, which saw less, on others; 0 where it saw nothing."""
    size = len(new.tile)
    at = jnp.where(old.real, new.number[old.tile, old.record], size)
    return jnp.zeros((size, z.shape[1]), z.dtype).at[at].set(z, mode="drop")


@jax.jit
def folded(z, nodes: Nodes, fold):
    """A table with every output of a tile in its first place alone."""
    return jnp.zeros(z.shape).at[(jnp.arange(len(z))[:, None], fold[nodes.tile])].add(z)


@partial(jax.jit, static_argnames="size")
def lifted(nodes: Nodes, second, count, size: int):
    """Nodes, the nodes of the other ends of the edges of their rows, where their tiles see them,
    and the edges, padded with the last node and 0; and how many they are. Edges are sorted by their
    first record, `count` of each."""
    begin = jnp.cumsum(count) - count
    own = jnp.where(nodes.real, count[nodes.record], 0)
    before = jnp.cumsum(own) - own
    every = jnp.arange(len(own), dtype=jnp.int32)
    node = jnp.repeat(every, own, total_repeat_length=size)
    asked = jnp.arange(size) < before[-1] + own[-1]
    edge = jnp.where(asked, begin[nodes.record[node]] + jnp.arange(size) - before[node], 0)
    other = nodes.number[nodes.tile[node], second[edge]]
    inside = asked & (other >= 0)
    at = jnp.nonzero(inside, size=size, fill_value=-1)[0]
    lists = (
        jnp.where(at >= 0, part[at].astype(jnp.int32), fill)
        for part, fill in ((node, len(own) - 1), (other, len(own) - 1), (edge, 0))
    )
    return tuple(lists), jnp.sum(inside)


@partial(jax.jit, static_argnames=("length", "nodes"))
def joined(old, new, u, known, growth, length: int, nodes: int):
    """Two lists of edges as one, padded to `length`, and their multipliers, 0 of new ones. The
    numbers of new edges count from `known` on."""
    last = nodes - 1
    count = len(old[0])
    numbers = jnp.where(new[0] < last, new[2] + known, 0)
    pad = max(0, length - count - len(numbers))
    first, second, edge = (
        jnp.concatenate([a, b, jnp.full(pad, fill, a.dtype)])
        for a, b, fill in zip(old, (*new[:2], numbers), (last, last, 0), strict=True)
    )
    along = jnp.argsort(first.astype(jnp.int64) * nodes + second, stable=True)[:length]
    first = first[along]
    second = second[along]
    edge = edge[along]
    by_second = jnp.argsort(second, stable=True).astype(jnp.int32)
    degree = jnp.zeros(nodes).at[first].add(1).at[second].add(1).at[last].set(0)
    starts, later = (_starts(ends, nodes) for ends in (first, second[by_second]))
    growths, above = (part[edge] for part in growth)
    edges = Edges(
        first, second, edge, by_second, growths.astype(jnp.float32), above, degree, starts, later
    )
    kept = along < count
    return edges, tuple(jnp.where(kept[:, None], side[jnp.where(kept, along, 0)], 0) for side in u)


def _starts(ends, nodes: int):
    """Where in a sorted list the edges of every node start; the last node has none."""
    starts = jnp.searchsorted(ends, jnp.arange(nodes, dtype=ends.dtype)).astype(jnp.int32)
    return jnp.append(starts, starts[-1])
