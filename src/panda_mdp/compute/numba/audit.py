"""The largest privacy loss per unit of distance over all pairs, compiled."""

from __future__ import annotations

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.base.threads import in_parts
from panda_mdp.compute.cut import Cut, Rows, Worst
from panda_mdp.compute.numba import njit
from panda_mdp.compute.numba.distance import (
    FINITE,
    coordinates,
    fill,
    largest_gap,
    largest_step,
)
from panda_mdp.space.tiles import TILE, Pairs


@njit(cache=True, fastmath=FINITE)
def _scan(rows, places, starts, a, b, constant, best):
    """Scan part a against part b; raises `best`, a rate and its two nodes, in place."""
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
                if (weights[i] == weights[j]).all():
                    continue
                value = np.inf if d == 0.0 else (worst + constant) / (d * shrink)
                if value > best[0]:
                    best[0], best[1], best[2] = value, i, j


@njit(cache=True, nogil=True)
def _scan_runs(begin, end, rows, places, starts, runs, pairs, constant, found):
    """Scan the runs begin <= r < end of pairs of parts, from runs[r] to runs[r + 1]."""
    _, _, high, low, shrink = rows
    first, second, between = pairs
    for r in range(begin, end):
        best = found[r]
        for k in range(runs[r], runs[r + 1]):
            a = first[k]
            b = second[k]
            reach = max(
                largest_step(high[a], high[b], low[b]), largest_step(low[a], high[b], low[b])
            )
            if reach + constant <= best[0] * between[k] * shrink:
                continue
            _scan(rows, places, starts, a, b, constant, best)


def worst_pair(cut: Cut, rows: Rows, pairs: Pairs, constant: float, best: Worst) -> Worst:
    """max over pairs i < j of (max_y |log z_iy - log z_jy| + constant) / (shrink d(i, j)), i in
    the first part of a pair and j in the second, and the two positions; `best` where none exceeds
    it.

    The distance of a pair of parts and `high` and `low` of the rows bound what it can attain, so
    one that cannot exceed what was found already is passed over, and so is a pair of nodes. Pairs
    are sorted by the first part, which threads share.
    """
    runs = np.append(np.flatnonzero(np.diff(pairs[0], prepend=-1)), len(pairs[0]))
    found = np.full((len(runs), 3), best[0])
    in_parts(_scan_runs, len(runs) - 1, rows, cut.places, cut.starts, runs, pairs, constant, found)
    value, i, j = found[found[:, 0].argmax()].tolist()
    if value > best[0]:
        return value, int(cut.position[int(i)]), int(cut.position[int(j)])
    return best


@njit(cache=True, nogil=True)
def _scan_floor(first, last, lifts, nodes, places, starts, between, constant, shrink, found):
    """Scan the groups first <= g < last."""
    groups, position, tile = nodes
    member = np.zeros(starts[-1], np.bool_)
    distance = np.empty(TILE)
    for g in range(first, last):
        best = found[g, 0]
        member[:] = False
        member[position[groups[g] : groups[g + 1]]] = True
        for i in range(groups[g], groups[g + 1]):
            reach = lifts[i] + constant
            for other in range(len(starts) - 1 if lifts[i] >= 0.0 else 0):
                if reach <= best * between[tile[i], other] * shrink:
                    continue
                fill(places, position[i], starts[other], starts[other + 1], distance)
                for p in range(starts[other], starts[other + 1]):
                    d = distance[p - starts[other]]
                    if not member[p] and reach > best * d * shrink:
                        best = np.inf if d == 0.0 else reach / (d * shrink)
                        found[g, 0], found[g, 1], found[g, 2] = best, position[i], p


def worst_at_floor(
    cut: Cut, lifts: FloatArray, constant: float, shrink: float, best: Worst
) -> Worst:
    """max over nodes and records that are none of their group of (lift + constant) / (shrink d),
    and the two positions; `best` where none exceeds it. A node with a negative lift is at the
    floor."""
    tiles = cut.domain.tiles
    found = np.full((len(cut.columns), 3), best[0])
    nodes = (cut.groups, cut.position, cut.tile)
    where = (coordinates(cut.domain.metric, tiles.order), tiles.starts, tiles.between)
    in_parts(_scan_floor, len(found), lifts, nodes, *where, constant, shrink, found)
    value, i, j = found[found[:, 0].argmax()].tolist()
    return (value, int(i), int(j)) if value > best[0] else best
