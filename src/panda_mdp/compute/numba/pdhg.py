"""The structured first-order method and the lower bound of its multipliers, compiled.

Arrays are (records or edges) x outputs with outputs contiguous: the inner loops over outputs
vectorise, threads take records in the primal pass and edges in the dual pass.

The table is scaled, z = D x, with D near the square root of the table that is expected: entries
span many orders of magnitude, and steps that fit all of them must grow with the entry.
The problem is split by edges. Edge e = (i, j) keeps a copy of its two rows in the cone

    x_i <= g x_j,  x_j <= h x_i,   g = e^t D_j / D_i,  h = e^t D_i / D_j,  t = epsilon d(i, j),

one cone for every output. Its multiplier lies in the polar cone, spanned by (1, -g) and (-h, 1).
Both inequalities are projected on together: with a multiplier for each, the two would pull against
each other and halve the steps.

Records lie in spatial order. A thread takes a block of neighbours, moves their rows, and then turns
the edges within the block, adding up what they will tell their ends in the next iteration: their
multipliers, by far the most of all that is held, are read once, in order. The edges between
blocks follow, and are gathered by the records.

A record may be cut into several nodes, each with some of its outputs (methods/optimal/program.py):
only the sum over its outputs, and the price mu that keeps it at 1, is then taken over several.

Both passes are functions of their own that are compiled once, and called by the parallel loops with
whole blocks: inlined into those they took half a minute to compile.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import prange

from panda_mdp.base.arrays import Float32Array, IntArray
from panda_mdp.compute.numba import njit

F = np.float32
UNIT_ROUNDOFF = 2.0**-53
CHUNK = 32
RECORDS = 1024
PASSES = 60
WIDTH = 512
"""Outputs that are taken at a time."""


class Point(NamedTuple):
    """Where an iteration stands."""

    x: Float32Array
    """(nodes, outputs): the scaled table."""
    mu: Float32Array
    """(records,): the prices of the rows' sums."""
    u: Float32Array
    """(edges, 2, outputs): the multipliers."""


class Nodes(NamedTuple):
    """What belongs to nodes and rows."""

    cost: Float32Array
    scale: Float32Array
    owner: IntArray
    """The row of every node."""
    part_start: IntArray
    part: IntArray
    """The nodes of row r are part[part_start[r] : part_start[r + 1]]."""
    stiff: Float32Array
    """The step of entry (i, y) is 1 / (stiff_i + row_pull D_iy)."""
    row_step: Float32Array


class Edges(NamedTuple):
    """The constrained pairs of nodes, sorted by their ends."""

    ends: IntArray
    growth: Float32Array
    inside: IntArray
    """The edges within blocks of nodes, those of block b from inside_start[b] on."""
    inside_start: IntArray
    across: IntArray
    """The edges between blocks."""
    across_start: IntArray
    across_slot: IntArray
    """Their slots (2 edge + side) by node."""


@njit(fastmath=True, error_model="numpy")
def turn(which, begin, end, tell, edges, mid, scale, u, u0, adjoint, dual_step, keep, measure):
    """The dual steps of the edges which[begin:end], all outputs; their squared movement where that
    is measured. With `tell` the new multipliers are added to the adjoint at their ends.

    With p = D_i v_i and q = D_j v_j the multiplier is r (D_i, -e^t D_j), r = (p - e^t q) / (D_i^2 +
    e^2t D_j^2), where p > e^t q, and the same the other way round: outside the apex one of them at
    most, so one division does. The loops over outputs have few enough streams for the compiler to
    prove them apart and vectorise; what they hand over lies in one buffer, at fixed places.
    """
    ends = edges.ends
    growth = edges.growth
    pull = F(1) - keep
    outputs = mid.shape[1]
    new = np.empty(2 * WIDTH, np.float32)
    moved = 0.0
    for k in range(begin, end):
        e = which[k]
        i = ends[e, 0]
        j = ends[e, 1]
        grow = growth[e]
        for first in range(0, outputs, WIDTH):
            last = min(outputs, first + WIDTH)
            mid_i = mid[i, first:last]
            mid_j = mid[j, first:last]
            scale_i = scale[i, first:last]
            scale_j = scale[j, first:last]
            u_i = u[e, 0, first:last]
            u_j = u[e, 1, first:last]
            u0_i = u0[e, 0, first:last]
            u0_j = u0[e, 1, first:last]
            for y in range(last - first):
                vi = u_i[y] + dual_step * mid_i[y]
                vj = u_j[y] + dual_step * mid_j[y]
                si = scale_i[y]
                sj = scale_j[y]
                # At the apex of the cone the multiplier is all of v.
                apex = (grow * sj * vi + si * vj <= F(0)) & (sj * vi + grow * si * vj <= F(0))
                up = si * vi - grow * sj * vj
                down = sj * vj - grow * si * vi
                above = up > down
                near = si if above else sj
                far = grow * (sj if above else si)
                r = max(up, down, F(0)) / (near * near + far * far)
                back = -grow * r
                new[y] = vi if apex else si * (r if above else back)
                new[WIDTH + y] = vj if apex else sj * (back if above else r)
            if measure:
                square = F(0)
                for y in range(last - first):
                    square += (new[y] - u_i[y]) * (new[y] - u_i[y])
                for y in range(last - first):
                    square += (new[WIDTH + y] - u_j[y]) * (new[WIDTH + y] - u_j[y])
                moved += square / dual_step
            for y in range(last - first):
                u_i[y] = keep * (F(2) * new[y] - u_i[y]) + pull * u0_i[y]
                u_j[y] = keep * (F(2) * new[WIDTH + y] - u_j[y]) + pull * u0_j[y]
            if tell:
                adjoint_i = adjoint[i, first:last]
                adjoint_j = adjoint[j, first:last]
                for y in range(last - first):
                    adjoint_i[y] += u_i[y]
                    adjoint_j[y] += u_j[y]
    return moved


@njit(fastmath=True, error_model="numpy")
def move(begin, end, now, anchor, mid, adjoint, totals, nodes, edges, row_pull, keep, measure):
    """The primal steps of rows begin to end: `x`, `mid` and the rows' `totals`; their squared
    movement where that is measured."""
    across_start = edges.across_start
    across_slot = edges.across_slot
    pull = F(1) - keep
    outputs = now.x.shape[1]
    grad = np.empty(outputs, np.float32)
    moved = 0.0
    for i in range(begin, end):
        price = now.mu[nodes.owner[i]]
        stiff = nodes.stiff[i]
        cost_i = nodes.cost[i]
        scale_i = nodes.scale[i]
        x_i = now.x[i]
        x0_i = anchor.x[i]
        mid_i = mid[i]
        adjoint_i = adjoint[i]
        for y in range(outputs):
            grad[y] = scale_i[y] * (cost_i[y] - price) + adjoint_i[y]
        adjoint_i[:] = F(0)
        for k in range(across_start[i], across_start[i + 1]):
            row = now.u[across_slot[k] >> 1, across_slot[k] & 1]
            for y in range(outputs):
                grad[y] += row[y]
        for y in range(outputs):
            tau = F(1) / (stiff + row_pull * scale_i[y])
            mid_i[y] = F(2) * max(F(0), x_i[y] - tau * grad[y]) - x_i[y]
        total = F(0)
        for y in range(outputs):
            total += scale_i[y] * mid_i[y]
        totals[i] = total
        if measure:
            square = F(0)
            for y in range(outputs):
                change = mid_i[y] - x_i[y]
                square += change * change * (stiff + row_pull * scale_i[y])
            moved += 0.25 * square
        for y in range(outputs):
            x_i[y] = keep * mid_i[y] + pull * x0_i[y]
    return moved


@njit(fastmath=True, error_model="numpy")
def price(first, last, mu, mu0, totals, nodes, keep):
    """The steps of the prices of rows first to last; their squared movement."""
    square = 0.0
    for r in range(first, last):
        total = F(0)
        for i in range(nodes.part_start[r], nodes.part_start[r + 1]):
            total += totals[nodes.part[i]]
        short = F(1) - total
        square += nodes.row_step[r] * short * short
        raised = mu[r] + nodes.row_step[r] * short
        mu[r] = keep * (F(2) * raised - mu[r]) + (F(1) - keep) * mu0[r]
    return square


@njit(parallel=True, fastmath=True, error_model="numpy")
def run(
    steps,
    done,
    block,
    now,
    anchor,
    mid,
    adjoint,
    adjoint_known,
    nodes,
    edges,
    dual_step,
    row_pull,
    moved,
):
    """`steps` reflected Halpern iterations from a point and its anchor; `done` were made before.

    The point is updated in place. `moved` (3,) receives the squared, step-weighted movement of
    x, mu and u in the last iteration: the fixed-point residual. The step of an edge is `dual_step`.
    Nodes are taken in blocks of `block`. `adjoint` holds, between calls too, the multipliers of
    the edges inside blocks summed at their ends; unless it is known it is added up first.
    """
    rows, outputs = now.x.shape
    blocks = (rows + block - 1) // block
    records = len(now.mu)
    sums = (records + RECORDS - 1) // RECORDS
    chunks = sums + (len(edges.across) + CHUNK - 1) // CHUNK
    totals = np.zeros(rows, np.float32)
    squares = np.zeros((4, max(blocks, chunks)))
    if not adjoint_known:
        adjoint[:] = F(0)
        for k in range(2 * len(edges.inside)):
            e = edges.inside[k >> 1]
            adjoint_i = adjoint[edges.ends[e, k & 1]]
            row = now.u[e, k & 1]
            for y in range(outputs):
                adjoint_i[y] += row[y]
    # One parallel loop for both passes: each takes as long to compile as all that it calls.
    for half in range(2 * steps):
        step = half >> 1
        keep = F((done + step + 1.0) / (done + step + 2.0))
        measure = step == steps - 1
        primal = half & 1 == 0
        # Chosen beforehand: with a branch in its argument the loop is compiled as a serial one.
        tasks = blocks if primal else chunks
        for k in prange(tasks):
            begin = 0
            end = 0
            if primal:
                squares[0, k] = move(
                    k * block, min(rows, (k + 1) * block), now, anchor, mid, adjoint, totals,
                    nodes, edges, row_pull, keep, measure,
                )  # fmt: skip
                # No other block reads the multipliers of these edges.
                begin = edges.inside_start[k]
                end = edges.inside_start[k + 1]
            elif k >= sums:
                begin = (k - sums) * CHUNK
                end = min(len(edges.across), begin + CHUNK)
            else:
                first = k * RECORDS
                last = min(records, (k + 1) * RECORDS)
                squares[1, k] = price(first, last, now.mu, anchor.mu, totals, nodes, keep)
            which = edges.inside if primal else edges.across
            squares[2 if primal else 3, k] = turn(
                which, begin, end, primal, edges, mid, nodes.scale, now.u, anchor.u, adjoint,
                dual_step, keep, measure,
            )  # fmt: skip
    moved[:] = 0.0
    for k in range(squares.shape[1]):
        moved[0] += squares[0, k]
        moved[1] += squares[1, k]
        moved[2] += squares[2, k] + squares[3, k]


@njit(inline="always")
def _multiplier(own, other, growth, scale):
    """A multiplier >= 0 of "own <= growth * other" read off the edge's dual pair.

    On the polar cone's ray own = l, other = -growth l. Off it, any value >= 0 gives a valid bound;
    the smaller of the two readings moves neither reduced cost further than the pair does.
    """
    return scale * max(0.0, min(own, -other / growth))


@njit(nogil=True)
def least_reduced_costs(begin, end, cost, u, inverse, ends, start, slot, growth, scale, least):
    """min_y of the reduced costs of every record, rounding errors subtracted.

    For any multipliers l >= 0 of the constraints z_i <= g z_j (g an upper bound on exp(eps d)),
    h_iy = cost_iy + sum over edges (l_ij - g l_ji) and every feasible z has
    sum cost z >= sum_i min_y h_iy, because rows sum to 1. `inverse` takes the multipliers u of
    the scaled problem back to the unscaled one.
    """
    outputs = cost.shape[1]
    h = np.empty(outputs)
    size = np.empty(outputs)
    for i in range(begin, end):
        for y in range(outputs):
            h[y] = cost[i, y]
            size[y] = abs(cost[i, y])
        for k in range(start[i], start[i + 1]):
            edge = slot[k] >> 1
            side = slot[k] & 1
            own = u[edge, side]
            other = u[edge, 1 - side]
            own_inverse = inverse[i]
            other_inverse = inverse[ends[edge, 1 - side]]
            g = growth[edge]
            for y in range(outputs):
                mine = np.float64(own[y]) * np.float64(own_inverse[y])
                theirs = np.float64(other[y]) * np.float64(other_inverse[y])
                up = _multiplier(mine, theirs, g, scale)
                down = g * _multiplier(theirs, mine, g, scale)
                h[y] += up - down
                size[y] += up + down
        terms = 2.0 * (start[i + 1] - start[i]) + 6.0
        low = np.inf
        for y in range(outputs):
            value = h[y] - terms * UNIT_ROUNDOFF * size[y]
            # What is no number bounds nothing, and compares as larger than anything.
            if not value >= low:
                low = value if value < low else -np.inf
        least[i] = low


@njit(error_model="numpy")
def onto_simplex(weights):
    """max(weights - t, 0) with the t of every column for which it sums to 1 (Michelot 1986).

    Weights below what would do for all that are left drop out, until none does. The largest of a
    column is taken off first: beside large numbers a 1 would be lost.
    """
    rows, columns = weights.shape
    top = np.full(columns, -np.inf)
    for i in range(rows):
        top = np.maximum(top, weights[i])
    weights = weights - top
    shift = np.full(columns, -np.inf)
    for _ in range(PASSES):
        count = np.zeros(columns)
        total = np.full(columns, -1.0)
        for i in range(rows):
            for y in range(columns):
                if weights[i, y] > shift[y]:
                    count[y] += 1.0
                    total[y] += weights[i, y]
        before = shift
        shift = total / count
        if (before == shift).all():
            break
    return np.maximum(weights - shift, 0.0)
