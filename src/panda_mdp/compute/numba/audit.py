"""The largest privacy loss per unit of distance over all pairs, compiled."""

from __future__ import annotations

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.parts import in_parts
from panda_mdp.compute.numba.compiling import njit
from panda_mdp.compute.numba.distance import FINITE, fill, largest_gap, largest_step

CHUNK = 256


@njit(cache=True)
def _equal(weights, i, j):
    for y in range(weights.shape[1]):
        if weights[i, y] != weights[j, y]:
            return False
    return True


@njit(cache=True, fastmath=FINITE)
def _scan(
    logs, weights, kind, table, order, starts, high, low, a, b, constant, shrink, best, where
):
    """Scan tile a against tile b; raises `best` and `where` in place."""
    b0 = starts[b]
    b1 = starts[b + 1]
    distances = np.empty(b1 - b0)
    for i in range(starts[a], starts[a + 1]):
        first = max(b0, i + 1)
        if first >= b1:
            continue
        reach = largest_step(logs[i], high[b], low[b])
        fill(kind, table, order, i, first, b1, distances)
        for j in range(first, b1):
            d = distances[j - first]
            if reach + constant <= best[0] * d * shrink:
                continue
            worst = largest_gap(logs[i], logs[j])
            if worst + constant > best[0] * d * shrink:
                if _equal(weights, i, j):
                    continue
                value = np.inf if d == 0.0 else (worst + constant) / (d * shrink)
                if value > best[0]:
                    best[0] = value
                    where[0] = i
                    where[1] = j


@njit(cache=True, nogil=True)
def _scan_runs(
    begin, end, floor, logs, weights, kind, table, order, starts, high, low, runs, first, second,
    between, constant, shrink, values, places, visited,
):  # fmt: skip
    """Scan the runs begin <= r < end of tile pairs, from runs[r] to runs[r + 1]."""
    best = np.empty(1)
    where = np.empty(2, np.int64)
    for r in range(begin, end):
        best[0] = floor
        for k in range(runs[r], runs[r + 1]):
            a = first[k]
            b = second[k]
            reach = max(
                largest_step(high[a], high[b], low[b]), largest_step(low[a], high[b], low[b])
            )
            if reach + constant <= best[0] * between[k] * shrink:
                continue
            visited[r] += 1
            _scan(
                logs, weights, kind, table, order, starts, high, low, a, b, constant, shrink, best,
                where,
            )  # fmt: skip
        if best[0] > floor:
            values[r] = best[0]
            places[r, 0] = where[0]
            places[r, 1] = where[1]


def worst_pair(
    logs: FloatArray,
    weights: IntArray,
    kind: int,
    table: FloatArray,
    order: IntArray,
    starts: IntArray,
    high: FloatArray,
    low: FloatArray,
    first: IntArray,
    second: IntArray,
    between: FloatArray,
    constant: float,
    shrink: float,
    floor: float = 0.0,
) -> tuple[float, int, int, int]:
    """max over pairs i < j of (max_y |log z_iy - log z_jy| + constant) / (shrink d(i, j)), i in
    tile first[k] and j in second[k] for some k; 0 where none exceeds `floor`.

    `between[k]` bounds the distance from below, and `high` and `low` (tiles, m) a tile's
    logarithms, so a tile pair that cannot exceed what was found already is passed over, and so is
    a pair of records. Pairs are sorted by the first tile, which threads share.
    Returns the value, the two positions, and the number of tile pairs visited.
    """
    runs = np.append(np.flatnonzero(np.diff(first, prepend=-1)), len(first))
    count = len(runs) - 1
    values = np.zeros(count)
    places = np.zeros((count, 2), np.int64)
    visited = np.zeros(count, np.int64)
    tables = (logs, weights, kind, table, order, starts, high, low)
    pairs = (runs, first, second, between)
    in_parts(_scan_runs, count, floor, *tables, *pairs, constant, shrink, values, places, visited)
    top = int(values.argmax())
    return values[top], places[top, 0], places[top, 1], int(visited.sum())


@njit(cache=True, nogil=True)
def _local_rates(begin, end, logs, spread, kind, table, order, rates):
    size = len(logs)
    distance = np.empty(CHUNK)
    for i in range(begin, end):
        best = 0.0
        for start in range(0, size, CHUNK):
            stop = min(start + CHUNK, size)
            fill(kind, table, order, i, start, stop, distance)
            for j in range(start, stop):
                d = distance[j - start]
                if j == i or spread <= best * d:
                    continue
                worst = largest_gap(logs[i], logs[j])
                if worst > best * d:
                    best = worst / d
        rates[i] = best


def local_rates(
    logs: FloatArray, spread: float, kind: int, table: FloatArray, order: IntArray
) -> FloatArray:
    """For every position i the maximum over j of max_y |log z_iy - log z_jy| / d(i, j).

    `spread` bounds every log ratio, so pairs too far apart to matter are passed over.
    """
    rates = np.zeros(len(logs))
    in_parts(_local_rates, len(logs), logs, spread, kind, table, order, rates)
    return rates
