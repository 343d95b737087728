"""The triangle inequality of a distance matrix over all triples, compiled (numba)."""

from __future__ import annotations

import numpy as np
from numba import njit

from panda_mdp.base.arrays import FloatArray
from panda_mdp.base.threads import in_parts

DETOUR_ROWS, DETOUR_COLUMNS = 32, 512


@njit(cache=True, nogil=True)
def _first_broken(begin, end, table, factor, column):
    """column[i] becomes a j that a detour from i undercuts, for rows of blocks [begin, end).

    Shortest detours are found for blocks of rows and columns that stay in the cache, so the table
    is read once per block of rows and not once per row.
    """
    size = len(table)
    # A shape of constants would be unrolled: it took 45 s to compile.
    best = np.empty((min(size, DETOUR_ROWS), min(size, DETOUR_COLUMNS)))
    for block in range(begin, end):
        top = block * DETOUR_ROWS
        bottom = min(size, top + DETOUR_ROWS)
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
                    if column[i] < 0 and table[i, j] > factor * best[i - top, j - left]:
                        column[i] = j


def broken_triangle(table: FloatArray, factor: float) -> tuple[int, int, int]:
    """A triple (i, j, k) with d(i, j) > factor (d(i, k) + d(k, j)), or (-1, -1, -1)."""
    size = len(table)
    column = np.full(size, -1, np.int64)
    in_parts(_first_broken, -(-size // DETOUR_ROWS), table, factor, column)
    for i in np.flatnonzero(column >= 0):
        j = column[i]
        for k in np.flatnonzero(table[i, j] > factor * (table[i] + table[:, j])):
            return int(i), int(j), int(k)
    return -1, -1, -1
