"""Iterations of the first-order method over triangles, compiled.

A triangle holds a copy of its three rows, and for each output the copy lies in the cone

    C = { a : |a - mean(a)| <= slope min(a) },

which says that the gradient of what is linear between the three is at most kappa times its least
value, slope = kappa side / sqrt(2). C is the intersection of three quadratic cones, one for each
corner that may be the least. It does not change when corners are exchanged, so a projection keeps
their order: it is the one on the cone of the least corner, or, where that would change the order,
the one on the plane where the two least are equal.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numba import prange

from panda_mdp.compute.numba import SHARED, njit, pdhg
from panda_mdp.compute.numba.pdhg import move, price

SOURCES = (*SHARED, Path(pdhg.__file__))
F = np.float32
ROOT = F(np.sqrt(0.5))
CHUNK = 16


def cone(slope):
    """(axis of the least corner, axis of the others, tangent, growth, flatness) of a slope's cones.

    With M = 1 - J / 3 - slope^2 e e' (J all ones, e the least corner) a lies in the cone where
    a' M a <= 0. One eigenvalue is 1 (the difference of the other two), one `flatness`, 1 up to
    2/3 slope^2, and one is negative: -tangent^2, with the axis as its vector. `growth` is how much
    larger than two equal ones the third may be.
    """
    square = slope * slope
    matrix = np.array([[2 / 3 - square, -np.sqrt(2) / 3], [-np.sqrt(2) / 3, 1 / 3]])
    values, vectors = np.linalg.eigh(matrix)
    axis = vectors[:, 0] * np.sign(vectors[0, 0])
    tangent = np.sqrt(-values[0])
    return np.array(
        [axis[0], axis[1] / np.sqrt(2), tangent, 1 + slope * np.sqrt(1.5), values[1]],
        dtype=np.float32,
    )


@njit(inline="always", error_model="numpy")
def project(a, b, c, shape):
    """The nearest point of the cone for a <= b <= c, on it for sure, nearest up to slope^4.

    Off the axis lie p and q, and the nearest point has (p, w q) times a number there, w = h + (1 -
    h) flatness where q itself shrinks by h. With the h of w = 1 this is the nearest point of the
    ray of that direction.
    """
    along = shape[0] * a + shape[1] * (b + c)
    p = ROOT * (F(2) * shape[1] * a - shape[0] * (b + c))
    q = ROOT * (c - b)
    tangent = shape[2]
    flat = shape[4]
    square = tangent * tangent
    level = flat * p * p + q * q
    if along >= 0:
        if level <= square * along * along:
            return a, b, c
    elif square * (p * p + flat * q * q) <= flat * along * along:
        return F(0), F(0), F(0)
    height = np.sqrt(level)
    off = p * p + q * q
    shrink = tangent * (along * height + tangent * off) / (level + square * off)
    turned = (shrink + (F(1) - shrink) * flat) * q
    level = flat * p * p + turned * turned
    height = np.sqrt(level)
    size = along * height * tangent + square * (p * p + turned * q)
    size = max(F(0), size / (level + square * (p * p + turned * turned)))
    far = size * height / tangent
    p *= size
    q = size * turned
    pa = far * shape[0] + F(2) * ROOT * shape[1] * p
    middle = far * shape[1] - ROOT * shape[0] * p
    pb = middle - ROOT * q
    pc = middle + ROOT * q
    if pa <= pb:
        return pa, pb, pc
    low = F(0.5) * (a + b)
    growth = shape[3]
    if low <= c <= growth * low:
        return low, low, c
    low = max(F(0), (F(2) * low + growth * c) / (F(2) + growth * growth))
    return low, low, growth * low


@njit(inline="always", error_model="numpy")
def _beyond(a, b, c, shape):
    """What the nearest point of the cone leaves of three numbers, in any order."""
    low = min(a, b, c)
    high = max(a, b, c)
    least, between, most = project(low, max(min(a, b), min(max(a, b), c)), high, shape)
    near_a = least if a == low else (most if a == high else between)
    near_b = least if b == low else (most if b == high else between)
    near_c = least if c == low else (most if c == high else between)
    return a - near_a, b - near_b, c - near_c


@njit(sources=SOURCES, parallel=True, error_model="numpy")
def run(
    steps, done, now, anchor, mid, adjoint, nodes, edges, corners, start, slot, shape, weight,
    row_pull, moved,
):  # fmt: skip
    """`steps` reflected Halpern iterations from an anchor; `done` were made before.

    The point is updated in place, its rows as in compute/numba/pdhg.py with `edges` that are none;
    u are the multipliers of triangles, (T, 3, outputs). `corners` (T, 3) are rows, `start` and
    `slot` the slots 3 t + corner by row. A triangle's copy is scale x over the largest of its three
    scales. `moved` (3,) receives the squared, step-weighted movement in the last iteration.
    """
    u = now.u
    u0 = anchor.u
    scale = nodes.scale
    records, outputs = mid.shape
    triangles = len(corners)
    chunks = (triangles + CHUNK - 1) // CHUNK
    move_x = np.zeros(records)
    move_mu = np.zeros(records)
    move_u = np.zeros(chunks)
    totals = np.zeros(records, np.float32)
    largest = np.empty((triangles, outputs), np.float32)
    for t in prange(triangles):
        for y in range(outputs):
            largest[t, y] = max(
                scale[corners[t, 0], y], scale[corners[t, 1], y], scale[corners[t, 2], y]
            )
    for step in range(steps):
        keep = F((done + step + 1.0) / (done + step + 2.0))
        pull = F(1) - keep
        measure = step == steps - 1
        for i in prange(records):
            for k in range(start[i], start[i + 1]):
                t = slot[k] // 3
                corner = slot[k] % 3
                for y in range(outputs):
                    adjoint[i, y] += scale[i, y] * (u[t, corner, y] / largest[t, y])
            move_x[i] = move(
                i, i + 1, now, anchor, mid, adjoint, totals, nodes, edges, row_pull, keep, measure
            )
            move_mu[i] = price(i, i + 1, now.mu, anchor.mu, totals, nodes, keep)
        for chunk in prange(chunks):
            square_u = 0.0
            for t in range(chunk * CHUNK, min(triangles, (chunk + 1) * CHUNK)):
                i = corners[t, 0]
                j = corners[t, 1]
                k = corners[t, 2]
                for y in range(outputs):
                    part = weight / largest[t, y]
                    new = _beyond(
                        u[t, 0, y] + part * scale[i, y] * mid[i, y],
                        u[t, 1, y] + part * scale[j, y] * mid[j, y],
                        u[t, 2, y] + part * scale[k, y] * mid[k, y],
                        shape,
                    )
                    for corner in range(3):
                        old = u[t, corner, y]
                        square_u += (new[corner] - old) ** 2
                        u[t, corner, y] = (
                            keep * (F(2) * new[corner] - old) + pull * u0[t, corner, y]
                        )
            move_u[chunk] = square_u / weight
    moved[0] = move_x.sum()
    moved[1] = move_mu.sum()
    moved[2] = move_u.sum()


@njit(parallel=True, error_model="numpy")
def raise_pairs(columns, ends, lent):
    """Raise the lesser of each pair to `lent` (pairs,) of the other, in place, once."""
    for y in prange(len(columns)):
        z = columns[y]
        for e in range(len(ends)):
            i = ends[e, 0]
            j = ends[e, 1]
            z[i] = max(z[i], lent[e] * z[j])
            z[j] = max(z[j], lent[e] * z[i])
