"""One iteration of the structured first-order method, compiled.

Arrays are (records or edges) x outputs with outputs contiguous: the inner loops over outputs
vectorise, threads take records in the primal pass and edges in the dual pass.

The problem is split by edges. Edge e = (i, j) keeps a copy of its two rows in the cone
C_e = {(a, b): a <= e^t b, b <= e^t a}, t = epsilon d(i, j), one cone for every output; its
multiplier u_e = (u_ei, u_ej) lies in the polar cone, spanned by (alpha, -beta) and (-beta, alpha)
with alpha = 1 / sqrt(1 + e^2t), beta = 1 / sqrt(1 + e^-2t). Both inequalities of an edge are
projected on together: with one multiplier for each the two would pull against each other.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

F = np.float32
CHUNK = 32


@njit(cache=True, inline="always")
def _polar(v, other, a, b):
    """This side's half of the projection of (v, other) on the polar cone."""
    first = max(a * v - b * other, F(0))
    second = max(a * other - b * v, F(0))
    apex = (b * v + a * other <= F(0)) & (a * v + b * other <= F(0))
    return v if apex else a * first - b * second


@njit(cache=True, parallel=True, fastmath=True, error_model="numpy")
def run(
    steps,
    done,
    z,
    z0,
    mid,
    mu,
    mu0,
    u,
    u0,
    cost,
    start,
    slot,
    ends,
    alpha,
    beta,
    primal_step,
    dual_step,
    row_step,
    moved,
):
    """`steps` reflected Halpern iterations from the anchor (z0, mu0, u0); `done` were made before.

    z, mu and u are updated in place. `moved` (3,) receives the squared, step-weighted movement of
    z, mu and u in the last iteration: the fixed-point residual.

    The loops over outputs are many and short because each then has few enough streams for the
    compiler to prove them apart and vectorise; a row stays in the first-level cache meanwhile.
    """
    records, outputs = z.shape
    edges = len(ends)
    record_chunks = (records + CHUNK - 1) // CHUNK
    edge_chunks = (edges + CHUNK - 1) // CHUNK
    move_z = np.zeros(record_chunks)
    move_mu = np.zeros(record_chunks)
    move_u = np.zeros(edge_chunks)
    for step in range(steps):
        keep = F((done + step + 1.0) / (done + step + 2.0))
        pull = F(1) - keep
        measure = step == steps - 1
        for chunk in prange(record_chunks):
            grad = np.empty(outputs, np.float32)
            square_z = 0.0
            square_mu = 0.0
            for i in range(chunk * CHUNK, min(records, (chunk + 1) * CHUNK)):
                tau = primal_step[i]
                price = mu[i]
                cost_i = cost[i]
                z_i = z[i]
                z0_i = z0[i]
                mid_i = mid[i]
                for y in range(outputs):
                    grad[y] = cost_i[y] - price
                for k in range(start[i], start[i + 1]):
                    row = u[slot[k] >> 1, slot[k] & 1]
                    for y in range(outputs):
                        grad[y] += row[y]
                total = F(0)
                for y in range(outputs):
                    both = F(2) * max(F(0), z_i[y] - tau * grad[y]) - z_i[y]
                    mid_i[y] = both
                    total += both
                if measure:
                    square = F(0)
                    for y in range(outputs):
                        square += (mid_i[y] - z_i[y]) * (mid_i[y] - z_i[y])
                    square_z += 0.25 * square / tau
                    square_mu += row_step * (F(1) - total) * (F(1) - total)
                for y in range(outputs):
                    z_i[y] = keep * mid_i[y] + pull * z0_i[y]
                raised = price + row_step * (F(1) - total)
                mu[i] = keep * (F(2) * raised - price) + pull * mu0[i]
            move_z[chunk] = square_z
            move_mu[chunk] = square_mu
        for chunk in prange(edge_chunks):
            vi = np.empty(outputs, np.float32)
            vj = np.empty(outputs, np.float32)
            square_u = 0.0
            for e in range(chunk * CHUNK, min(edges, (chunk + 1) * CHUNK)):
                mid_i = mid[ends[e, 0]]
                mid_j = mid[ends[e, 1]]
                a = alpha[e]
                b = beta[e]
                u_i = u[e, 0]
                u_j = u[e, 1]
                u0_i = u0[e, 0]
                u0_j = u0[e, 1]
                for y in range(outputs):
                    vi[y] = u_i[y] + dual_step * mid_i[y]
                for y in range(outputs):
                    vj[y] = u_j[y] + dual_step * mid_j[y]
                if measure:
                    square = F(0)
                    for y in range(outputs):
                        change = _polar(vi[y], vj[y], a, b) - u_i[y]
                        square += change * change
                    for y in range(outputs):
                        change = _polar(vj[y], vi[y], a, b) - u_j[y]
                        square += change * change
                    square_u += square / dual_step
                for y in range(outputs):
                    new = _polar(vi[y], vj[y], a, b)
                    u_i[y] = keep * (F(2) * new - u_i[y]) + pull * u0_i[y]
                for y in range(outputs):
                    new = _polar(vj[y], vi[y], a, b)
                    u_j[y] = keep * (F(2) * new - u_j[y]) + pull * u0_j[y]
            move_u[chunk] = square_u
    moved[0] = move_z.sum()
    moved[1] = move_mu.sum()
    moved[2] = move_u.sum()
