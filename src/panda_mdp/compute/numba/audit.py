"""The largest privacy loss per unit of distance over all pairs, compiled."""

from __future__ import annotations

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.parts import in_parts
from panda_mdp.compute.cut import Cut, Rows
from panda_mdp.compute.numba import njit
from panda_mdp.compute.numba.distance import (
    FINITE,
    Coordinates,
    coordinates,
    fill,
    largest_gap,
    largest_step,
)
from panda_mdp.space.tiles import TILE, Pairs

CHUNK = 256


@njit(cache=True)
def _equal(weights, i, j):
    for y in range(weights.shape[1]):
        if weights[i, y] != weights[j, y]:
            return False
    return True


@njit(cache=True, fastmath=FINITE)
def _scan(rows, places, starts, a, b, constant, best, where):
    """Scan part a against part b; raises `best` and `where` in place."""
    logs, weights, high, low, shrink = rows
    b0 = starts[b]
    b1 = starts[b + 1]
    distances = np.empty(b1 - b0)
    for i in range(starts[a], starts[a + 1]):
        first = max(b0, i + 1)
        if first >= b1:
            continue
        reach = largest_step(logs[i], high[b], low[b])
        fill(places, i, first, b1, distances)
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
    begin, end, least, rows, places, starts, runs, pairs, constant, values, ends, visited
):
    """Scan the runs begin <= r < end of pairs of parts, from runs[r] to runs[r + 1]."""
    _, _, high, low, shrink = rows
    first, second, between = pairs
    best = np.empty(1)
    where = np.empty(2, np.int64)
    for r in range(begin, end):
        best[0] = least
        for k in range(runs[r], runs[r + 1]):
            a = first[k]
            b = second[k]
            reach = max(
                largest_step(high[a], high[b], low[b]), largest_step(low[a], high[b], low[b])
            )
            if reach + constant <= best[0] * between[k] * shrink:
                continue
            visited[r] += 1
            _scan(rows, places, starts, a, b, constant, best, where)
        if best[0] > least:
            values[r] = best[0]
            ends[r, 0] = where[0]
            ends[r, 1] = where[1]


def worst_pair(
    rows: Rows,
    places: Coordinates,
    starts: IntArray,
    pairs: Pairs,
    constant: float,
    least: float = 0.0,
) -> tuple[float, int, int, int]:
    """max over pairs i < j of (max_y |log z_iy - log z_jy| + constant) / (shrink d(i, j)), i in
    the first part of a pair and j in the second; 0 where none exceeds `least`.

    The distance of a pair of parts and `high` and `low` of the rows bound what it can attain, so
    one that cannot exceed what was found already is passed over, and so is a pair of nodes. Pairs
    are sorted by the first part, which threads share. Returns the value, the two nodes, and the
    number of pairs of parts visited.
    """
    runs = np.append(np.flatnonzero(np.diff(pairs[0], prepend=-1)), len(pairs[0]))
    count = len(runs) - 1
    if count == 0:
        return 0.0, 0, 1, 0
    values = np.zeros(count)
    ends = np.zeros((count, 2), np.int64)
    visited = np.zeros(count, np.int64)
    table = (least, rows, places, starts, runs, pairs, constant)
    in_parts(_scan_runs, count, *table, values, ends, visited)
    top = int(values.argmax())
    return float(values[top]), int(ends[top, 0]), int(ends[top, 1]), int(visited.sum())


@njit(cache=True, nogil=True)
def _scan_floor(
    first, last, lifts, nodes, places, starts, between, constant, shrink, least, values, ends
):
    """Scan the groups first <= g < last."""
    groups, runs, parts, position, tile = nodes
    member = np.zeros(starts[-1], np.bool_)
    distance = np.empty(TILE)
    for g in range(first, last):
        best = least
        member[:] = False
        for i in range(groups[g], groups[g + 1]):
            member[position[i]] = True
        for part in range(runs[g], runs[g + 1]):
            highest = lifts[parts[part] : parts[part + 1]].max()
            home = tile[parts[part]]
            for other in range(len(starts) - 1 if highest >= 0.0 else 0):
                if highest + constant <= best * between[home, other] * shrink:
                    continue
                for i in range(parts[part], parts[part + 1]):
                    reach = lifts[i] + constant
                    if lifts[i] < 0.0 or reach <= best * between[home, other] * shrink:
                        continue
                    fill(places, position[i], starts[other], starts[other + 1], distance)
                    for p in range(starts[other], starts[other + 1]):
                        d = distance[p - starts[other]]
                        if not member[p] and reach > best * d * shrink:
                            best = np.inf if d == 0.0 else reach / (d * shrink)
                            ends[g, 0] = position[i]
                            ends[g, 1] = p
        values[g] = best


def worst_at_floor(
    cut: Cut, lifts: FloatArray, constant: float, shrink: float, least: float
) -> tuple[float, int, int]:
    """max over nodes and records that are none of their group of (lift + constant) / (shrink d),
    where it exceeds `least`, and the two positions; a node with a negative lift is at the floor."""
    tiles, count = cut.domain.tiles, len(cut.columns)
    values, ends = np.full(count, least), np.zeros((count, 2), np.int64)
    nodes = (cut.groups, cut.runs, cut.starts, cut.position, cut.tile)
    places = coordinates(cut.domain.metric, tiles.order)
    where = (places, tiles.starts, tiles.between)
    in_parts(_scan_floor, count, lifts, nodes, *where, constant, shrink, least, values, ends)
    top = int(values.argmax())
    return float(values[top]), int(ends[top, 0]), int(ends[top, 1])


@njit(cache=True, nogil=True)
def _local_rates(begin, end, logs, spread, places, rates):
    size = len(logs)
    distance = np.empty(CHUNK)
    for i in range(begin, end):
        best = 0.0
        for start in range(0, size, CHUNK):
            stop = min(start + CHUNK, size)
            fill(places, i, start, stop, distance)
            for j in range(start, stop):
                d = distance[j - start]
                if j == i or spread <= best * d:
                    continue
                worst = largest_gap(logs[i], logs[j])
                if worst > best * d:
                    best = worst / d
        rates[i] = best


def local_rates(logs: FloatArray, spread: float, places: Coordinates) -> FloatArray:
    """For every position i the maximum over j of max_y |log z_iy - log z_jy| / d(i, j).

    `spread` bounds every log ratio, so pairs too far apart to matter are passed over.
    """
    rates = np.zeros(len(logs))
    in_parts(_local_rates, len(logs), logs, spread, places, rates)
    return rates
