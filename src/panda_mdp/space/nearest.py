"""The nearest record of each of many places by a grid of cells, compiled (numba).

Records are sorted into square cells of the plane in which they spread most. A search looks at a
square of cells around a place, at one twice as wide and so on, and ends when no record beyond can
be nearer: chords through the globe are no shorter than their shadows on a plane. Their order is
that of arcs up to the rounding of a few nanometres.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from panda_mdp.base.arrays import FloatArray, IntArray

OUTSIDE = -1
PER_CELL = 0.5
"""Records in a cell, on average."""
GRID_KM = 1200.0
"""Places of a larger area cluster too much for cells of one size."""


class Grid(NamedTuple):
    """Records by cells: `xyz_km` and `order` are sorted so, `starts` says where each begins."""

    axes: FloatArray
    """Two directions, (3, 2)."""
    low: FloatArray
    """The least place along each, km."""
    side: float
    """Of a cell, km."""
    shape: IntArray
    starts: IntArray
    order: IntArray
    xyz_km: FloatArray


def make_grid(xyz_km: FloatArray) -> Grid | None:
    """Cells of about half a record each; None where places spread too far."""
    axes = np.linalg.eigh(np.cov(xyz_km.T))[1][:, 1:]
    flat = xyz_km @ axes
    low = flat.min(axis=0)
    span = np.ptp(flat, axis=0)
    if span.max() > GRID_KM:
        return None
    side = max(np.sqrt(span.prod() * PER_CELL / len(flat)), span.max() / len(flat), 1e-6)
    shape = (span // side).astype(np.int64) + 1
    row, col = np.minimum((flat - low) // side, shape - 1).astype(np.int64).T
    cell = row * shape[1] + col
    order = np.argsort(cell, kind="stable")
    starts = np.searchsorted(cell[order], np.arange(shape.prod() + 1))
    return Grid(axes, low, side, shape, starts, order, xyz_km[order])


def nearest_records(xyz_km: FloatArray, limit_km: float, grid: Grid) -> tuple[FloatArray, IntArray]:
    """The chord to the nearest record of each place, km, and the record.

    Infinity and `OUTSIDE` where it is beyond the limit, though what is beyond may be found as well.
    """
    chord = np.empty(len(xyz_km))
    record = np.empty(len(xyz_km), np.int64)
    cell = ((xyz_km @ grid.axes - grid.low) // grid.side).astype(np.int64)
    _search(cell, xyz_km, limit_km, grid, chord, record)
    return chord, record


@njit(cache=True, nogil=True)
def _search(cell, xyz_km, limit_km, grid, chord, record):
    rows, cols = grid.shape
    for i in range(len(xyz_km)):
        (row, col), (x, y, z) = cell[i], xyz_km[i]
        widest = max(row, rows - 1 - row, col, cols - 1 - col)
        best = np.inf
        nearest = OUTSIDE
        width = 1
        while True:
            west = min(max(col - width, 0), cols)
            east = max(min(col + width + 1, cols), 0)
            for r in range(max(row - width, 0), min(row + width + 1, rows)):
                for k in range(grid.starts[r * cols + west], grid.starts[r * cols + east]):
                    a = grid.xyz_km[k, 0] - x
                    b = grid.xyz_km[k, 1] - y
                    c = grid.xyz_km[k, 2] - z
                    square = a * a + b * b + c * c
                    if square < best or (square == best and grid.order[k] < nearest):
                        best = square
                        nearest = grid.order[k]
            # The place lies in the middle cell: what was not looked at is so many cells away.
            if width >= widest or (width * grid.side) ** 2 >= min(best, limit_km * limit_km):
                break
            width *= 2
        chord[i] = np.sqrt(best)
        record[i] = nearest
