"""One iteration of the structured first-order method, compiled.

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

A record may be cut into several rows, each with some of its outputs (methods/optimal/lifted.py):
only the sum over its outputs, and the price mu that keeps it at 1, is then taken over several rows.

Both passes are functions of their own that are compiled once, and called by the parallel loops with
whole blocks: inlined into those they took half a minute to compile.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

F = np.float32
CHUNK = 32
RECORDS = 1024
WIDTH = 512
"""Outputs that are taken at a time."""


@njit(cache=True, fastmath=True, error_model="numpy")
def turn(
    which,
    begin,
    end,
    tell,
    ends,
    growth,
    mid,
    scale,
    u,
    u0,
    adjoint,
    dual_step,
    keep,
    pull,
    measure,
):
    """The dual steps of the edges which[begin:end], all outputs; their squared movement where that
    is measured. With `tell` the new multipliers are added to the adjoint at their ends.

    With p = D_i v_i and q = D_j v_j the multiplier is r (D_i, -e^t D_j), r = (p - e^t q) / (D_i^2 +
    e^2t D_j^2), where p > e^t q, and the same the other way round: outside the apex one of them at
    most, so one division does. The loops over outputs have few enough streams for the compiler to
    prove them apart and vectorise; what they hand over lies in one buffer, at fixed places.
    """
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


@njit(cache=True, fastmath=True, error_model="numpy")
def move(
    begin,
    end,
    x,
    x0,
    mid,
    adjoint,
    totals,
    mu,
    owner,
    u,
    cost,
    scale,
    across_start,
    across_slot,
    primal_step,
    row_pull,
    keep,
    pull,
    measure,
):
    """The primal steps of rows begin to end: `x`, `mid` and the rows' `totals`; their squared
    movement where that is measured."""
    outputs = x.shape[1]
    grad = np.empty(outputs, np.float32)
    moved = 0.0
    for i in range(begin, end):
        price = mu[owner[i]]
        stiff = primal_step[i]
        cost_i = cost[i]
        scale_i = scale[i]
        x_i = x[i]
        x0_i = x0[i]
        mid_i = mid[i]
        adjoint_i = adjoint[i]
        for y in range(outputs):
            grad[y] = scale_i[y] * (cost_i[y] - price) + adjoint_i[y]
        for y in range(outputs):
            adjoint_i[y] = F(0)
        for k in range(across_start[i], across_start[i + 1]):
            row = u[across_slot[k] >> 1, across_slot[k] & 1]
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


@njit(cache=True, parallel=True, fastmath=True, error_model="numpy")
def run(
    steps,
    done,
    block,
    x,
    x0,
    mid,
    adjoint,
    heard,
    mu,
    mu0,
    u,
    u0,
    cost,
    scale,
    ends,
    inside,
    inside_start,
    across,
    across_start,
    across_slot,
    growth,
    owner,
    part_start,
    part,
    primal_step,
    dual_step,
    row_pull,
    row_step,
    moved,
):
    """`steps` reflected Halpern iterations from the anchor (x0, mu0, u0); `done` were made before.

    x, mu and u are updated in place. `moved` (3,) receives the squared, step-weighted movement of
    x, mu and u in the last iteration: the fixed-point residual. The step of entry (i, y) is
    1 / (primal_step_i + row_pull D_iy), that of an edge `dual_step`, of a record's sum `row_step`.
    Rows are taken in blocks of `block`; `inside` are the edges within blocks, those of block b from
    `inside_start[b]` on, `across` the edges between blocks, and `across_start`, `across_slot` their
    slots (2 edge + side) by row. Row i belongs to record `owner[i]`, whose rows are
    part[part_start[r] : part_start[r + 1]]. `adjoint` holds, between calls too, the multipliers of
    the edges inside summed at their ends; unless they were `heard` it is added up first.
    """
    rows, outputs = x.shape
    blocks = (rows + block - 1) // block
    records = len(mu)
    sums = (records + RECORDS - 1) // RECORDS
    chunks = sums + (len(across) + CHUNK - 1) // CHUNK
    totals = np.zeros(rows, np.float32)
    squares = np.zeros((4, max(blocks, chunks)))
    if not heard:
        for i in range(rows):
            adjoint_i = adjoint[i]
            for y in range(outputs):
                adjoint_i[y] = F(0)
        for k in range(2 * len(inside)):
            adjoint_i = adjoint[ends[inside[k >> 1], k & 1]]
            row = u[inside[k >> 1], k & 1]
            for y in range(outputs):
                adjoint_i[y] += row[y]
    # One parallel loop for both passes: each takes as long to compile as all that it calls.
    for half in range(2 * steps):
        step = half >> 1
        keep = F((done + step + 1.0) / (done + step + 2.0))
        pull = F(1) - keep
        measure = step == steps - 1
        primal = half & 1 == 0
        # Chosen beforehand: with a branch in its argument the loop is compiled as a serial one.
        tasks = blocks if primal else chunks
        for k in prange(tasks):
            begin, end = 0, 0
            if primal:
                squares[0, k] = move(
                    k * block, min(rows, (k + 1) * block), x, x0, mid, adjoint, totals, mu, owner,
                    u, cost, scale, across_start, across_slot, primal_step, row_pull, keep, pull,
                    measure,
                )  # fmt: skip
                # No other block reads the multipliers of these edges.
                begin, end = inside_start[k], inside_start[k + 1]
            elif k >= sums:
                begin = (k - sums) * CHUNK
                end = min(len(across), begin + CHUNK)
            else:
                square = 0.0
                for r in range(k * RECORDS, min(records, (k + 1) * RECORDS)):
                    total = F(0)
                    for i in range(part_start[r], part_start[r + 1]):
                        total += totals[part[i]]
                    short = F(1) - total
                    square += row_step[r] * short * short
                    raised = mu[r] + row_step[r] * short
                    mu[r] = keep * (F(2) * raised - mu[r]) + pull * mu0[r]
                squares[1, k] = square
            turned = turn(
                inside if primal else across, begin, end, primal, ends, growth, mid, scale, u, u0,
                adjoint, dual_step, keep, pull, measure,
            )  # fmt: skip
            squares[2 if primal else 3, k] = turned
    for part_of in range(3):
        moved[part_of] = 0.0
    for k in range(squares.shape[1]):
        moved[0] += squares[0, k]
        moved[1] += squares[1, k]
        moved[2] += squares[2, k] + squares[3, k]
