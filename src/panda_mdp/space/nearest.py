"""The nearest record of each of many places by a grid of cells, compiled (numba).

Records are sorted into cells of latitude and longitude. A search looks at a square of cells around
a place, at one twice as wide and so on, and ends when no record beyond can be nearer. Distances
are compared as chords through the globe: their order is that of arcs up to the rounding of a few
nanometres.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from panda_mdp.base.arrays import FloatArray, IntArray

OUTSIDE = -1
PER_CELL = 0.5
"""Records in a cell, on average."""
GRID_DEGREES = 10.0
"""Places within so many degrees, away from the poles, are searched by a grid of cells."""
SHRINK = 0.99
"""Below sin(x) / x for such angles, for chords and meridians at once."""


class Grid(NamedTuple):
    """Records by cells: `xyz_km` and `order` are sorted so, `starts` says where each begins."""

    low: FloatArray
    """The least latitude and longitude, degrees."""
    step: FloatArray
    """The sides of a cell."""
    degree_km: float
    """Less than a degree of a great circle."""
    shape: IntArray
    starts: IntArray
    order: IntArray
    xyz_km: FloatArray


def make_grid(lat: FloatArray, lon: FloatArray, xyz_km: FloatArray) -> Grid | None:
    """Cells of about half a record each; None where places spread too far."""
    places = np.stack([lat, lon], axis=1)
    low, span = places.min(axis=0), np.ptp(places, axis=0)
    if span.max() > GRID_DEGREES or np.abs(lat).max() > 80:
        return None
    shrink = np.array([1.0, np.cos(np.deg2rad(np.abs(lat).max()))])
    wide = span * shrink
    side = max(np.sqrt(wide.prod() * PER_CELL / len(lat)), wide.max() / len(lat), 1e-9)
    step = side / shrink
    shape = (span // step).astype(np.int64) + 1
    row, col = np.minimum((places - low) // step, shape - 1).astype(np.int64).T
    cell = row * shape[1] + col
    order = np.argsort(cell, kind="stable")
    starts = np.searchsorted(cell[order], np.arange(shape.prod() + 1))
    degree_km = float(np.linalg.norm(xyz_km[0])) * np.pi / 180 * SHRINK
    return Grid(low, step, degree_km, shape, starts, order, xyz_km[order])


@njit(cache=True, nogil=True)
def nearest_records(lat, lon, xyz_km, limit_km, grid):
    """The chord to the nearest record of each place in degrees, km, and the record.

    Infinity and `OUTSIDE` where it is beyond the limit, though what is beyond may be found as well.
    """
    rows, cols = grid.shape
    chord, record = np.empty(len(lat)), np.empty(len(lat), np.int64)
    for i in range(len(lat)):
        x, y, z = xyz_km[i]
        gap = lon[i] - grid.low[1]
        if abs(gap) > 180.0:
            gap -= np.copysign(360.0, gap)
        row, col = int((lat[i] - grid.low[0]) // grid.step[0]), int(gap // grid.step[1])
        cell_km = grid.degree_km * min(grid.step[0], grid.step[1] * np.cos(np.deg2rad(lat[i])))
        widest = max(row, rows - 1 - row, col, cols - 1 - col)
        best, nearest, width = np.inf, OUTSIDE, 1
        while True:
            west, east = min(max(col - width, 0), cols), max(min(col + width + 1, cols), 0)
            for r in range(max(row - width, 0), min(row + width + 1, rows)):
                for k in range(grid.starts[r * cols + west], grid.starts[r * cols + east]):
                    a, b, c = grid.xyz_km[k, 0] - x, grid.xyz_km[k, 1] - y, grid.xyz_km[k, 2] - z
                    square = a * a + b * b + c * c
                    if square < best or (square == best and grid.order[k] < nearest):
                        best, nearest = square, grid.order[k]
            # The place lies in the middle cell: what was not looked at is so many cells away.
            clear = (width * cell_km) ** 2
            narrow = width * max(grid.step[0], grid.step[1]) < GRID_DEGREES
            if width >= widest or (narrow and clear >= min(best, limit_km * limit_km)):
                break
            width *= 2
        chord[i], record[i] = np.sqrt(best), nearest
    return chord, record
