"""Leakage of anchor selection over many pairs of records, compiled.

Rows are compressed lists of anchors in ascending order with their probabilities; an anchor that a
row does not list has the tail's probability.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange


@njit(cache=True, inline="always")
def _favour(w, other):
    """log of how much better w explains its likelier outcome than `other` does: at least 0.

    A difference of nearby floats is exact, so log1p keeps small terms accurate.
    """
    if w > other:
        return np.log1p((w - other) / other)
    if w < other:
        return np.log1p((other - w) / (1.0 - other))
    return 0.0


@njit(cache=True)
def pair_leakage(start, anchor, probability, tail, i, j):
    """Suprema over anchor sets of log P_i(A) / P_j(A) and of log P_j(A) / P_i(A)."""
    up = 0.0
    down = 0.0
    a = start[i]
    b = start[j]
    a_end = start[i + 1]
    b_end = start[j + 1]
    while a < a_end or b < b_end:
        if b >= b_end or (a < a_end and anchor[a] < anchor[b]):
            w = probability[a]
            other = tail
            a += 1
        elif a >= a_end or anchor[b] < anchor[a]:
            w = tail
            other = probability[b]
            b += 1
        else:
            w = probability[a]
            other = probability[b]
            a += 1
            b += 1
        up += _favour(w, other)
        down += _favour(other, w)
    return up, down


@njit(cache=True, parallel=True)
def many_leakages(start, anchor, probability, tail, first, second):
    """The larger of the two suprema for each pair (first[k], second[k]) of rows."""
    out = np.empty(len(first))
    for k in prange(len(first)):
        up, down = pair_leakage(start, anchor, probability, tail, first[k], second[k])
        out[k] = max(up, down)
    return out


@njit(cache=True, parallel=True)
def one_sided(start, probability, tail):
    """Suprema against a record with no anchor in common: (row over it, it over row)."""
    rows = len(start) - 1
    up = np.zeros(rows)
    down = np.zeros(rows)
    for i in prange(rows):
        for k in range(start[i], start[i + 1]):
            up[i] += _favour(probability[k], tail)
            down[i] += _favour(tail, probability[k])
    return up, down


@njit(cache=True, parallel=True)
def leakage_matrix(start, anchor, probability, tail, up, down, distance, split):
    """All leakages, symmetric; records at least `split` apart have no anchor in common."""
    rows = len(start) - 1
    out = np.zeros((rows, rows))
    for i in prange(rows):
        for j in range(i):
            if distance[i, j] >= split:
                out[i, j] = max(up[i] + down[j], down[i] + up[j])
            else:
                one, two = pair_leakage(start, anchor, probability, tail, i, j)
                out[i, j] = max(one, two)
    for i in prange(rows):
        for j in range(i + 1, rows):
            out[i, j] = out[j, i]
    return out
