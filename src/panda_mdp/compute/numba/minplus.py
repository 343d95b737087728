"""Shortest paths between all pairs of a dense symmetric graph, in blocks that stay in the cache."""

from __future__ import annotations

import numpy as np
from numba import njit

from panda_mdp.base.arrays import FloatArray
from panda_mdp.base.parts import in_parts

BLOCK = 64


@njit(cache=True)
def _middle(middle):
    """The block on the diagonal through itself."""
    for k in range(len(middle)):
        for i in range(len(middle)):
            first = middle[i, k]
            for j in range(len(middle)):
                middle[i, j] = min(middle[i, j], first + middle[k, j])


@njit(cache=True, fastmath={"nnan"})
def _relax(row, left, i, right, j0, j1):
    """row[j] = min(row[j], left[k, i] + right[k, j]) for j0 <= j < j1, four k at a time.

    There are no NaN, so minima become single instructions.
    """
    out = row[j0:j1]
    steps = len(left) // 4 * 4
    for k in range(0, steps, 4):
        a, b, c, d = left[k, i], left[k + 1, i], left[k + 2, i], left[k + 3, i]
        first, second = right[k][j0:j1], right[k + 1][j0:j1]
        third, fourth = right[k + 2][j0:j1], right[k + 3][j0:j1]
        for j in range(len(out)):
            near, far = min(a + first[j], b + second[j]), min(c + third[j], d + fourth[j])
            out[j] = min(out[j], near, far)
    for k in range(steps, len(left)):
        a, first = left[k, i], right[k][j0:j1]
        for j in range(len(out)):
            out[j] = min(out[j], a + first[j])


@njit(cache=True, nogil=True)
def _cross(begin, end, table, middle, k0, known, panel):
    """panel[k, j]: from the block's records to all, by paths that end through the block."""
    for block in range(begin, end):
        j0 = block * BLOCK
        j1 = min(len(table), j0 + BLOCK)
        for k in range(len(middle)):
            for j in range(j0, j1):
                # Only one side of the diagonal is kept up to date.
                known[k, j] = table[k0 + k, j] if j >= k0 else table[j, k0 + k]
                panel[k, j] = known[k, j]
        for k in range(len(middle)):
            _relax(panel[k], middle, k, known, j0, j1)


@njit(cache=True, nogil=True)
def _others(begin, end, table, panel):
    """Blocks on and above the diagonal, of some rows of blocks, through the block of the panel."""
    size = len(table)
    count = -(-size // BLOCK)
    for turn in range(begin, end):
        # Long rows and short ones in turn, so that parts take alike.
        row = turn // 2 if turn % 2 == 0 else count - 1 - turn // 2
        for j0 in range(row * BLOCK, size, BLOCK):
            j1 = min(size, j0 + BLOCK)
            for i in range(row * BLOCK, min(size, (row + 1) * BLOCK)):
                _relax(table[i], panel, i, panel, j0, j1)


@njit(cache=True, nogil=True)
def _mirror(begin, end, table):
    for block in range(begin, end):
        for i in range(block * BLOCK, min(len(table), (block + 1) * BLOCK)):
            for j in range(i):
                table[i, j] = table[j, i]


def close(table: FloatArray) -> None:
    """Floyd and Warshall's shortest paths, in place, for a symmetric non-negative table.

    Half of the table is computed, and the result is symmetric to the last bit.
    """
    size = len(table)
    count = -(-size // BLOCK)
    for k0 in range(0, size, BLOCK):
        middle = table[k0 : k0 + BLOCK, k0 : k0 + BLOCK].copy()
        _middle(middle)
        panel = np.empty((len(middle), size))
        in_parts(_cross, count, table, middle, k0, np.empty_like(panel), panel)
        in_parts(_others, count, table, panel)
    in_parts(_mirror, count, table)
