"""Shortest paths between all pairs of a dense graph, in blocks that stay in the cache."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

BLOCK = 64


@njit(cache=True)
def _relax(out, left, right):
    """out[i, j] = min(out[i, j], left[i, k] + right[k, j]) for one block, k outermost."""
    for k in range(left.shape[1]):
        for i in range(out.shape[0]):
            first = left[i, k]
            for j in range(out.shape[1]):
                out[i, j] = min(out[i, j], first + right[k, j])


@njit(cache=True, parallel=True)
def close(table):
    """Floyd and Warshall's shortest paths, in place, for a symmetric non-negative table."""
    size = len(table)
    count = (size + BLOCK - 1) // BLOCK
    for step in range(count):
        k0 = step * BLOCK
        k1 = min(size, k0 + BLOCK)
        middle = table[k0:k1, k0:k1]
        _relax(middle, middle, middle)
        for other in prange(count):
            if other != step:
                j0 = other * BLOCK
                j1 = min(size, j0 + BLOCK)
                _relax(table[k0:k1, j0:j1], middle, table[k0:k1, j0:j1])
                _relax(table[j0:j1, k0:k1], table[j0:j1, k0:k1], middle)
        for row in prange(count):
            if row == step:
                continue
            i0 = row * BLOCK
            i1 = min(size, i0 + BLOCK)
            left = np.ascontiguousarray(table[i0:i1, k0:k1])
            for column in range(count):
                if column != step:
                    j0 = column * BLOCK
                    j1 = min(size, j0 + BLOCK)
                    _relax(table[i0:i1, j0:j1], left, table[k0:k1, j0:j1])
