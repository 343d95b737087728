"""The triangle inequality of a distance matrix over all triples, compiled (numba)."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

DETOUR_ROWS, DETOUR_COLUMNS = 32, 512


@njit(cache=True, parallel=True)
def broken_triangle(table, factor):
    """A triple (i, j, k) with d(i, j) > factor (d(i, k) + d(k, j)), or (-1, -1, -1).

    Shortest detours are found for blocks of rows and columns that stay in the cache, so the table
    is read once per block of rows and not once per row.
    """
    size = len(table)
    end = np.full(size, -1, np.int64)
    for block in prange((size + DETOUR_ROWS - 1) // DETOUR_ROWS):
        top = block * DETOUR_ROWS
        bottom = min(size, top + DETOUR_ROWS)
        best = np.empty((DETOUR_ROWS, DETOUR_COLUMNS))
        # The matrix is symmetric: columns left of the block belong to other blocks.
        for left in range(top, size, DETOUR_COLUMNS):
            right = min(size, left + DETOUR_COLUMNS)
            best[:] = np.inf
            for k in range(size):
                onward = table[k, left:right]
                for i in range(bottom - top):
                    first = table[top + i, k]
                    shortest = best[i, : right - left]
                    for j in range(len(onward)):
                        shortest[j] = min(shortest[j], first + onward[j])
            for i in range(top, bottom):
                for j in range(left, right):
                    if end[i] < 0 and table[i, j] > factor * best[i - top, j - left]:
                        end[i] = j
    for i in range(size):
        if end[i] >= 0:
            for k in range(size):
                if table[i, end[i]] > factor * (table[i, k] + table[k, end[i]]):
                    return i, end[i], k
    return -1, -1, -1
