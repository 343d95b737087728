"""The nearest record of a place by a grid of cells, compiled (numba).

Records are sorted into cells of latitude and longitude. A search looks at the cells around a
place, ring by ring, and ends when no farther ring can hold a nearer record. Distances are compared
as chords through the globe: their order is that of arcs up to the rounding of a few nanometres.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.space.metrics import EARTH_RADIUS_KM

PER_CELL = 2.0
"""Records in a cell, on average."""
RINGS = 24
"""Beyond so many rings a search goes on over all records: the place lies far out."""
SHRINK = 0.99
"""Below sin(x) / x for the angles of a grid (10 degrees), for chords and meridians at once."""
OUTSIDE = -1


class Grid(NamedTuple):
    """Records by cells; `xyz` and `order` are sorted by cell, `starts` says where each begins."""

    low: tuple[float, float]
    """The least latitude and longitude, degrees."""
    step: tuple[float, float]
    """The sides of a cell."""
    shape: tuple[int, int]
    starts: IntArray
    order: IntArray
    xyz: FloatArray


def make_grid(lat: FloatArray, lon: FloatArray, xyz_km: FloatArray) -> Grid:
    """Cells of about two records each over places within a few degrees of one another."""
    degrees = np.stack([lat, lon])
    low, span = degrees.min(axis=1), np.ptp(degrees, axis=1)
    shrink = np.array([1.0, np.cos(np.deg2rad(np.abs(lat).max()))])
    wide = span * shrink
    side = max(np.sqrt(wide.prod() * PER_CELL / len(lat)), wide.max() / len(lat), 1e-9)
    step = side / shrink
    shape = (span // step).astype(np.int64) + 1
    row, col = np.minimum((degrees.T - low) // step, shape - 1).astype(np.int64).T
    cell = row * shape[1] + col
    order = np.argsort(cell, kind="stable")
    starts = np.searchsorted(cell[order], np.arange(shape.prod() + 1))
    low, step, shape = (tuple(values.tolist()) for values in (low, step, shape))
    return Grid(low, step, shape, starts, order, np.ascontiguousarray(xyz_km[order]))


@njit(cache=True, nogil=True, inline="always")
def _nearer(grid, begin, end, x, y, z, best, record):
    """The least squared chord and its record, among those from `begin` to `end` and `best`."""
    for k in range(begin, end):
        a, b, d = grid.xyz[k, 0] - x, grid.xyz[k, 1] - y, grid.xyz[k, 2] - z
        square = a * a + b * b + d * d
        if square < best or (square == best and grid.order[k] < record):
            best, record = square, grid.order[k]
    return best, record


@njit(cache=True, nogil=True)
def nearest_record(lat, lon, limit_km, grid):
    """The record nearest to a place in degrees and its distance in km; OUTSIDE beyond the limit.

    What is no place (NaN, latitude beyond 90, longitude out of -180..360) is outside too.
    """
    if not (abs(lat) <= 90.0 and -180.0 <= lon <= 360.0):
        return OUTSIDE, np.inf
    gap = lon - grid.low[1]
    if abs(gap) > 180.0:
        lon -= np.copysign(360.0, gap)
    rows, cols = grid.shape
    radian = np.pi / 180.0
    km = EARTH_RADIUS_KM * radian
    reach = limit_km / km * 1.001
    if not -reach <= lat - grid.low[0] <= rows * grid.step[0] + reach:
        return OUTSIDE, np.inf
    cosine = np.cos(lat * radian)
    x = EARTH_RADIUS_KM * cosine * np.cos(lon * radian)
    y = EARTH_RADIUS_KM * cosine * np.sin(lon * radian)
    z = EARTH_RADIUS_KM * np.sin(lat * radian)
    up, right = (lat - grid.low[0]) / grid.step[0], (lon - grid.low[1]) / grid.step[1]
    row, col = int(np.floor(up)), int(np.floor(right))
    # How much nearer than a whole ring the place is to the border of its own cell.
    inside = min(up - row, row + 1 - up, right - col, col + 1 - right)
    ring_km = km * min(grid.step[0], grid.step[1] * cosine) * SHRINK
    best, record = np.inf, OUTSIDE
    largest = max(row, rows - 1 - row, col, cols - 1 - col)
    for ring in range(min(largest, RINGS) + 1):
        nearest = max(0.0, ring - 1 + inside) * ring_km
        if nearest > limit_km or nearest * nearest > best:
            break
        for r in range(max(row - ring, 0), min(row + ring, rows - 1) + 1):
            # Only the border of the square is new, its two sides in the rows between.
            width = 0 if abs(r - row) < ring else 2 * ring
            for side in range(col - ring, col + ring + 1 - width, 2 * ring + (ring == 0)):
                west, east = max(side, 0), min(side + width, cols - 1)
                if west <= east:
                    first, last = grid.starts[r * cols + west], grid.starts[r * cols + east + 1]
                    best, record = _nearer(grid, first, last, x, y, z, best, record)
    else:
        if largest > RINGS:
            best, record = _nearer(grid, 0, len(grid.order), x, y, z, best, record)
    half = np.sqrt(best) / (2 * EARTH_RADIUS_KM)
    arc = 2 * EARTH_RADIUS_KM * np.arcsin(min(half, 1.0))
    return (record, arc) if arc <= limit_km else (OUTSIDE, np.inf)


@njit(cache=True, nogil=True)
def nearest_records(lat, lon, limit_km, grid):
    """`nearest_record` of every place: records and distances."""
    record, distance = np.empty(len(lat), np.int64), np.empty(len(lat))
    for i in range(len(lat)):
        record[i], distance[i] = nearest_record(lat[i], lon[i], limit_km, grid)
    return record, distance
