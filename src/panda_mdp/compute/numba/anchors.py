"""Leakage of anchor selection over many pairs of records, compiled.

Rows are compressed lists of anchors in ascending order with their probabilities; an anchor that a
row does not list has the tail's probability.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.parts import in_parts


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


@njit(cache=True, nogil=True)
def _many_leakages(begin, end, start, anchor, probability, tail, first, second, out):
    for k in range(begin, end):
        up, down = pair_leakage(start, anchor, probability, tail, first[k], second[k])
        out[k] = max(up, down)


def many_leakages(
    start: IntArray,
    anchor: IntArray,
    probability: FloatArray,
    tail: float,
    first: IntArray,
    second: IntArray,
) -> FloatArray:
    """The larger of the two suprema for each pair (first[k], second[k]) of rows."""
    out = np.empty(len(first))
    rows = (start, anchor, probability, tail)
    in_parts(_many_leakages, len(first), *rows, first, second, out)
    return out


@njit(cache=True, nogil=True)
def _one_sided(begin, end, start, probability, tail, up, down):
    for i in range(begin, end):
        for k in range(start[i], start[i + 1]):
            up[i] += _favour(probability[k], tail)
            down[i] += _favour(tail, probability[k])


def one_sided(
    start: IntArray, probability: FloatArray, tail: float
) -> tuple[FloatArray, FloatArray]:
    """Suprema against a record with no anchor in common: (row over it, it over row)."""
    up, down = np.zeros(len(start) - 1), np.zeros(len(start) - 1)
    in_parts(_one_sided, len(up), start, probability, tail, up, down)
    return up, down


@njit(cache=True, nogil=True)
def _leakage_matrix(begin, end, start, anchor, probability, tail, up, down, distance, split, out):
    for i in range(begin, end):
        for j in range(i):
            if distance[i, j] >= split:
                out[i, j] = max(up[i] + down[j], down[i] + up[j])
            else:
                one, two = pair_leakage(start, anchor, probability, tail, i, j)
                out[i, j] = max(one, two)
            out[j, i] = out[i, j]


def leakage_matrix(
    start: IntArray,
    anchor: IntArray,
    probability: FloatArray,
    tail: float,
    up: FloatArray,
    down: FloatArray,
    distance: FloatArray,
    split: float,
) -> FloatArray:
    """All leakages, symmetric; records at least `split` apart have no anchor in common."""
    out = np.zeros((len(up), len(up)))
    rows = (start, anchor, probability, tail)
    in_parts(_leakage_matrix, len(up), *rows, up, down, distance, split, out)
    return out
