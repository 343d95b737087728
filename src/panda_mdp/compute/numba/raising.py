"""The table closed from above over triangles: the least corner is raised until gradients fit.

A triangle with values a <= b <= c keeps the bound kappa where

    (a - b)^2 + (b - c)^2 + (c - a)^2 <= k a^2,    k = 3/2 (kappa side)^2.

Where it does not, a becomes the smaller root of that in a; where this would exceed b, or there is
none, both become c / (1 + sqrt(k / 2)). Values only ever rise and never above the largest, so
sweeps over the triangles come to rest on a column that keeps the bound everywhere.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange


@njit(inline="always", error_model="numpy")
def least(b, c, k):
    """What the least corner must be, at least, beside b <= c."""
    both = c / (1 + np.sqrt(k / 2))
    if both >= b:
        return both
    half = b + c
    root = half * half - 2 * (2 - k) * (b * b + c * c - b * c)
    return (half - np.sqrt(max(root, 0.0))) / (2 - k)


@njit(cache=True, parallel=True, error_model="numpy")
def raise_columns(columns, corners, bound, tolerance, sweeps):
    """Raise each row of `columns` (outputs, K) in place; the most sweeps that one of them took.

    `bound` (outputs, T) is k of the module's head. Ends where no value rises by more than
    `tolerance` of it in a sweep; -1 where some column is not at rest after `sweeps`.
    """
    outputs, triangles = len(columns), len(corners)
    needed = np.zeros(outputs, np.int64)
    for y in prange(outputs):
        z = columns[y]
        needed[y] = sweeps + 1
        for sweep in range(sweeps):
            risen = 0.0
            for place in range(triangles):
                t = place if sweep % 2 == 0 else triangles - 1 - place
                i, j, k = corners[t, 0], corners[t, 1], corners[t, 2]
                if z[i] > z[j]:
                    i, j = j, i
                if z[j] > z[k]:
                    j, k = k, j
                if z[i] > z[j]:
                    i, j = j, i
                low = least(z[j], z[k], bound[y, t])
                if z[i] < low:
                    risen = max(risen, (low - z[i]) / low)
                    z[i] = low
                    z[j] = max(z[j], low)
            if risen <= tolerance:
                needed[y] = sweep + 1
                break
    most = needed.max()
    return most if most <= sweeps else -1


@njit(cache=True, parallel=True, error_model="numpy")
def raise_pairs(columns, ends, lent):
    """Raise the lesser of each pair to `lent` (pairs,) of the other, in place, once."""
    for y in prange(len(columns)):
        z = columns[y]
        for e in range(len(ends)):
            i, j = ends[e, 0], ends[e, 1]
            z[i] = max(z[i], lent[e] * z[j])
            z[j] = max(z[j], lent[e] * z[i])
