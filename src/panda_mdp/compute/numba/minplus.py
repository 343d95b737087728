"""Shortest paths between all pairs of a dense graph, in blocks that stay in the cache."""

from __future__ import annotations

from numba import njit

from panda_mdp.base.arrays import FloatArray
from panda_mdp.base.parts import in_parts

BLOCK = 64


@njit(cache=True)
def _relax(out, left, right):
    """out[i, j] = min(out[i, j], left[i, k] + right[k, j]) for one block, k outermost."""
    for k in range(left.shape[1]):
        for i in range(out.shape[0]):
            first = left[i, k]
            for j in range(out.shape[1]):
                out[i, j] = min(out[i, j], first + right[k, j])


@njit(cache=True)
def _diagonal(table, step):
    """The block on the diagonal through itself."""
    k0 = step * BLOCK
    k1 = min(len(table), k0 + BLOCK)
    middle = table[k0:k1, k0:k1]
    _relax(middle, middle, middle)


@njit(cache=True, nogil=True)
def _cross(begin, end, table, step):
    """The block's row and column of blocks, through the block on the diagonal."""
    size = len(table)
    k0 = step * BLOCK
    k1 = min(size, k0 + BLOCK)
    middle = table[k0:k1, k0:k1]
    for other in range(begin, end):
        if other != step:
            j0 = other * BLOCK
            j1 = min(size, j0 + BLOCK)
            _relax(table[k0:k1, j0:j1], middle, table[k0:k1, j0:j1])
            _relax(table[j0:j1, k0:k1], table[j0:j1, k0:k1], middle)


@njit(cache=True, nogil=True)
def _others(begin, end, table, step):
    """All other blocks of some rows of blocks, through that row and column."""
    size = len(table)
    k0 = step * BLOCK
    k1 = min(size, k0 + BLOCK)
    for row in range(begin, end):
        if row != step:
            i0 = row * BLOCK
            i1 = min(size, i0 + BLOCK)
            for column in range(0, size, BLOCK):
                if column != k0:
                    j1 = min(size, column + BLOCK)
                    _relax(table[i0:i1, column:j1], table[i0:i1, k0:k1], table[k0:k1, column:j1])


def close(table: FloatArray) -> None:
    """Floyd and Warshall's shortest paths, in place, for a symmetric non-negative table."""
    count = -(-len(table) // BLOCK)
    for step in range(count):
        _diagonal(table, step)
        in_parts(_cross, count, table, step)
        in_parts(_others, count, table, step)
