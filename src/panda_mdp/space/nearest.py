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

    south: float
    west: float
    step_lat: float
    step_lon: float
    rows: int
    cols: int
    starts: IntArray
    order: IntArray
    xyz: FloatArray


def make_grid(lat: FloatArray, lon: FloatArray, xyz_km: FloatArray) -> Grid:
    """Cells of about two records each over places within a few degrees of one another."""
    south, west = float(lat.min()), float(lon.min())
    high, wide = float(np.ptp(lat)), float(np.ptp(lon)) * np.cos(np.deg2rad(np.abs(lat).max()))
    side = max(np.sqrt(high * wide * PER_CELL / len(lat)), max(high, wide) / len(lat), 1e-9)
    step_lon = side / np.cos(np.deg2rad(np.abs(lat).max()))
    rows, cols = int(high // side) + 1, int(np.ptp(lon) // step_lon) + 1
    row = np.minimum((lat - south) // side, rows - 1).astype(np.int64)
    col = np.minimum((lon - west) // step_lon, cols - 1).astype(np.int64)
    cell = row * cols + col
    order = np.argsort(cell, kind="stable")
    starts = np.searchsorted(cell[order], np.arange(rows * cols + 1))
    return Grid(south, west, float(side), float(step_lon), rows, cols,
                starts.astype(np.int64), order.astype(np.int64),
                np.ascontiguousarray(xyz_km[order]))  # fmt: skip


@njit(cache=True, nogil=True)
def nearest_record(lat, lon, limit_km, grid):
    """The record nearest to a place in degrees and its distance in km; OUTSIDE beyond the limit.

    What is no place (NaN, latitude beyond 90, longitude out of -180..360) is outside too.
    """
    if not (abs(lat) <= 90.0 and -180.0 <= lon <= 360.0):
        return OUTSIDE, np.inf
    gap = lon - grid.west
    if gap > 180.0:
        lon -= 360.0
    elif gap < -180.0:
        lon += 360.0
    radian = np.pi / 180.0
    km = EARTH_RADIUS_KM * radian
    reach = limit_km / km * 1.001
    top = grid.south + grid.rows * grid.step_lat
    if lat < grid.south - reach or lat > top + reach:
        return OUTSIDE, np.inf
    cosine = np.cos(lat * radian)
    x = EARTH_RADIUS_KM * cosine * np.cos(lon * radian)
    y = EARTH_RADIUS_KM * cosine * np.sin(lon * radian)
    z = EARTH_RADIUS_KM * np.sin(lat * radian)
    up, right = (lat - grid.south) / grid.step_lat, (lon - grid.west) / grid.step_lon
    row, col = int(np.floor(up)), int(np.floor(right))
    # How much nearer than a whole ring the place is to the border of its own cell.
    inside = min(up - row, row + 1 - up, right - col, col + 1 - right)
    ring_km = min(km * grid.step_lat, km * grid.step_lon * cosine) * SHRINK
    best, record = np.inf, OUTSIDE
    largest = max(row, grid.rows - 1 - row, col, grid.cols - 1 - col)
    for ring in range(min(largest, RINGS) + 1):
        nearest = max(0.0, ring - 1 + inside) * ring_km
        if nearest > limit_km or nearest * nearest > best:
            break
        low, high = max(row - ring, 0), min(row + ring, grid.rows - 1)
        first, last = max(col - ring, 0), min(col + ring, grid.cols - 1)
        for r in range(low, high + 1):
            # Only the border of the square is new, its two sides in the rows between.
            step = 1 if r in (row - ring, row + ring) or ring == 0 else 2 * ring
            c = first if step == 1 or col - ring >= 0 else col + ring
            while 0 <= c <= last:
                cell = r * grid.cols + c
                for k in range(grid.starts[cell], grid.starts[cell + 1]):
                    a, b, d = grid.xyz[k, 0] - x, grid.xyz[k, 1] - y, grid.xyz[k, 2] - z
                    square = a * a + b * b + d * d
                    if square < best or (square == best and grid.order[k] < record):
                        best, record = square, grid.order[k]
                c += step
    else:
        if largest > RINGS:
            for k in range(len(grid.order)):
                a, b, d = grid.xyz[k, 0] - x, grid.xyz[k, 1] - y, grid.xyz[k, 2] - z
                square = a * a + b * b + d * d
                if square < best or (square == best and grid.order[k] < record):
                    best, record = square, grid.order[k]
    half = np.sqrt(best) / (2 * EARTH_RADIUS_KM)
    arc = 2 * EARTH_RADIUS_KM * np.arcsin(min(half, 1.0))
    return (record, arc) if arc <= limit_km else (OUTSIDE, np.inf)


@njit(cache=True, nogil=True)
def nearest_records(lat, lon, limit_km, grid):
    """`nearest_record` of every place: records and distances."""
    record = np.empty(len(lat), np.int64)
    distance = np.empty(len(lat))
    for i in range(len(lat)):
        record[i], distance[i] = nearest_record(lat[i], lon[i], limit_km, grid)
    return record, distance
