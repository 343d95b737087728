"""The triangle inequality of a distance matrix over all triples, compiled (numba)."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

DETOUR_ROWS, DETOUR_COLUMNS = 32, 512


@njit(cache=True)
def _first_broken(table, factor, top, bottom, end):
    """end[i] becomes a column j of row i that a detour undercuts, for rows top <= i < bottom.

    Shortest detours are found for blocks of rows and columns that stay in the cache, so the table
    is read once per block of rows and not once per row.
    """
    size = len(table)
    # A shape of constants would be unrolled: it took 45 s to compile.
    best = np.empty((bottom - top, min(size, DETOUR_COLUMNS)))
    # The matrix is symmetric: columns left of the block belong to other blocks.
    for left in range(top, size, DETOUR_COLUMNS):
        right = min(size, left + DETOUR_COLUMNS)
        for i in range(len(best)):
            for j in range(best.shape[1]):
                best[i, j] = np.inf
        for k in range(size):
            onward = table[k, left:right]
            for i in range(bottom - top):
                first = table[top + i, k]
                shortest = best[i]
                for j in range(len(onward)):
                    shortest[j] = min(shortest[j], first + onward[j])
        for i in range(top, bottom):
            for j in range(left, right):
                if end[i] < 0 and table[i, j] > factor * best[i - top, j - left]:
                    end[i] = j


@njit(cache=True, parallel=True)
def broken_triangle(table, factor):
    """A triple (i, j, k) with d(i, j) > factor (d(i, k) + d(k, j)), or (-1, -1, -1)."""
    size = len(table)
    end = np.full(size, -1, np.int64)
    for block in prange((size + DETOUR_ROWS - 1) // DETOUR_ROWS):
        top = block * DETOUR_ROWS
        _first_broken(table, factor, top, min(size, top + DETOUR_ROWS), end)
    for i in range(size):
        if end[i] >= 0:
            for k in range(size):
                if table[i, end[i]] > factor * (table[i, k] + table[k, end[i]]):
                    return i, end[i], k
    return -1, -1, -1
