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
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

F = np.float32
CHUNK = 32


@njit(inline="always", fastmath=True, error_model="numpy")
def turn(
    e,
    ends,
    growth,
    mid,
    scale,
    inverse,
    u,
    u0,
    dual_step,
    keep,
    pull,
    measure,
    vi,
    vj,
    g,
    h,
    first,
    second,
):
    """The dual step of one edge, all outputs; its squared movement where that is measured.

    The loops over outputs are many and short because each then has few enough streams for the
    compiler to prove them apart and vectorise; a row stays in the first-level cache meanwhile.
    """
    outputs = len(vi)
    i = ends[e, 0]
    j = ends[e, 1]
    grow = growth[e]
    mid_i = mid[i]
    mid_j = mid[j]
    scale_i = scale[i]
    scale_j = scale[j]
    inverse_i = inverse[i]
    inverse_j = inverse[j]
    u_i = u[e, 0]
    u_j = u[e, 1]
    u0_i = u0[e, 0]
    u0_j = u0[e, 1]
    for y in range(outputs):
        vi[y] = u_i[y] + dual_step * mid_i[y]
    for y in range(outputs):
        vj[y] = u_j[y] + dual_step * mid_j[y]
    for y in range(outputs):
        g[y] = grow * scale_j[y] * inverse_i[y]
    for y in range(outputs):
        h[y] = grow * scale_i[y] * inverse_j[y]
    for y in range(outputs):
        first[y] = max(vi[y] - g[y] * vj[y], F(0)) / (F(1) + g[y] * g[y])
    for y in range(outputs):
        second[y] = max(vj[y] - h[y] * vi[y], F(0)) / (F(1) + h[y] * h[y])
    # At the apex of the cone the multiplier is all of v.
    for y in range(outputs):
        apex = (g[y] * vi[y] + vj[y] <= F(0)) & (vi[y] + h[y] * vj[y] <= F(0))
        new = vi[y] if apex else first[y] - h[y] * second[y]
        h[y] = vj[y] if apex else second[y] - g[y] * first[y]
        vi[y] = new
    square = F(0)
    if measure:
        for y in range(outputs):
            square += (vi[y] - u_i[y]) * (vi[y] - u_i[y])
        for y in range(outputs):
            square += (h[y] - u_j[y]) * (h[y] - u_j[y])
    for y in range(outputs):
        u_i[y] = keep * (F(2) * vi[y] - u_i[y]) + pull * u0_i[y]
    for y in range(outputs):
        u_j[y] = keep * (F(2) * h[y] - u_j[y]) + pull * u0_j[y]
    return square / dual_step


@njit(cache=True, parallel=True, fastmath=True, error_model="numpy")
def run(
    steps,
    done,
    block,
    x,
    x0,
    mid,
    mu,
    mu0,
    u,
    u0,
    cost,
    scale,
    inverse,
    start,
    slot,
    ends,
    by_first,
    across,
    across_start,
    across_slot,
    growth,
    primal_step,
    dual_step,
    row_pull,
    row_step,
    moved,
):
    """`steps` reflected Halpern iterations from the anchor (x0, mu0, u0); `done` were made before.

    x, mu and u are updated in place. `moved` (3,) receives the squared, step-weighted movement of
    x, mu and u in the last iteration: the fixed-point residual. The step of entry (i, y) is
    1 / (primal_step_i + row_pull D_iy), that of an edge `dual_step`, of a row sum `row_step_i`.
    Edges are sorted by their first end, the lower one; those of record i begin at `by_first[i]`.
    Records are taken in blocks of `block`; `across` are the edges between blocks, and
    `across_start`, `across_slot` their slots (2 edge + side) by record, as `start` and `slot` are
    those of all edges.
    """
    records, outputs = x.shape
    blocks = (records + block - 1) // block
    edge_chunks = (len(across) + CHUNK - 1) // CHUNK
    told = np.zeros((records, outputs), np.float32)
    for i in prange(records):
        told_i = told[i]
        for k in range(start[i], start[i + 1]):
            e = slot[k] >> 1
            if ends[e, 0] // block == ends[e, 1] // block:
                row = u[e, slot[k] & 1]
                for y in range(outputs):
                    told_i[y] += row[y]
    move_x = np.zeros(blocks)
    move_mu = np.zeros(blocks)
    move_u = np.zeros(blocks)
    move_across = np.zeros(edge_chunks)
    for step in range(steps):
        keep = F((done + step + 1.0) / (done + step + 2.0))
        pull = F(1) - keep
        measure = step == steps - 1
        for b in prange(blocks):
            grad = np.empty(outputs, np.float32)
            vi = np.empty(outputs, np.float32)
            vj = np.empty(outputs, np.float32)
            g = np.empty(outputs, np.float32)
            h = np.empty(outputs, np.float32)
            first = np.empty(outputs, np.float32)
            second = np.empty(outputs, np.float32)
            square_x = 0.0
            square_mu = 0.0
            square_u = 0.0
            last = min(records, (b + 1) * block)
            for i in range(b * block, last):
                price = mu[i]
                stiff = primal_step[i]
                cost_i = cost[i]
                scale_i = scale[i]
                x_i = x[i]
                x0_i = x0[i]
                mid_i = mid[i]
                told_i = told[i]
                for y in range(outputs):
                    grad[y] = scale_i[y] * (cost_i[y] - price) + told_i[y]
                for y in range(outputs):
                    told_i[y] = F(0)
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
                if measure:
                    square = F(0)
                    for y in range(outputs):
                        change = mid_i[y] - x_i[y]
                        square += change * change * (stiff + row_pull * scale_i[y])
                    square_x += 0.25 * square
                    square_mu += row_step[i] * (F(1) - total) * (F(1) - total)
                for y in range(outputs):
                    x_i[y] = keep * mid_i[y] + pull * x0_i[y]
                raised = price + row_step[i] * (F(1) - total)
                mu[i] = keep * (F(2) * raised - price) + pull * mu0[i]
            # No other block reads the multipliers of these edges.
            for e in range(by_first[b * block], by_first[last]):
                if ends[e, 1] < last:
                    square_u += turn(
                        e, ends, growth, mid, scale, inverse, u, u0, dual_step, keep, pull,
                        measure, vi, vj, g, h, first, second,
                    )  # fmt: skip
                    for side in range(2):
                        told_i = told[ends[e, side]]
                        row = u[e, side]
                        for y in range(outputs):
                            told_i[y] += row[y]
            move_x[b] = square_x
            move_mu[b] = square_mu
            move_u[b] = square_u
        for chunk in prange(edge_chunks):
            vi = np.empty(outputs, np.float32)
            vj = np.empty(outputs, np.float32)
            g = np.empty(outputs, np.float32)
            h = np.empty(outputs, np.float32)
            first = np.empty(outputs, np.float32)
            second = np.empty(outputs, np.float32)
            square_u = 0.0
            for e in across[chunk * CHUNK : (chunk + 1) * CHUNK]:
                square_u += turn(
                    e, ends, growth, mid, scale, inverse, u, u0, dual_step, keep, pull,
                    measure, vi, vj, g, h, first, second,
                )  # fmt: skip
            move_across[chunk] = square_u
    moved[:] = 0.0
    for b in range(blocks):
        moved[0] += move_x[b]
        moved[1] += move_mu[b]
        moved[2] += move_u[b]
    for chunk in range(edge_chunks):
        moved[2] += move_across[chunk]
