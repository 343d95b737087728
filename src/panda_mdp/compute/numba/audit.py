"""The largest privacy loss per unit of distance over all pairs, compiled."""

from __future__ import annotations

import numpy as np

from panda_mdp.compute.numba import njit
from panda_mdp.compute.numba.distance import FINITE, fill, largest_gap, largest_step
from panda_mdp.space.tiles import TILE


@njit(fastmath=FINITE)
def _scan(rows, places, starts, a, b, constant, best):
    """Scan part a against part b; raises `best`, a rate and its two nodes, in place.

    `rows` are logarithms and weights of all nodes, the highest and lowest logarithms of every part,
    (parts, width), and by what distances are multiplied so that they are none too large.
    """
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
                    best[0] = value
                    best[1] = i
                    best[2] = j


@njit(nogil=True)
def scan_runs(begin, end, rows, places, starts, runs, pairs, constant, found):
    """max over pairs i < j of (max_y |log z_iy - log z_jy| + constant) / (shrink d(i, j)), i in
    the first part of a pair and j in the second, and the two, where it exceeds what `found` begins
    with: of the runs begin <= r < end of pairs of parts, from runs[r] to runs[r + 1]."""
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


@njit(nogil=True)
def scan_floor(first, last, lifts, nodes, places, starts, near, shrink, constant, found):
    """max over nodes and records that are none of their group of (lift + constant) / (shrink d),
    and the two positions: of the groups first <= g < last. A node with a negative lift is at the
    floor. `near` has the pairs of tiles that may exceed what was found."""
    groups, position, tile = nodes
    member = np.zeros(starts[-1], np.bool_)
    distance = np.empty(TILE)
    for g in range(first, last):
        best = found[g, 0]
        member[:] = False
        member[position[groups[g] : groups[g + 1]]] = True
        for i in range(groups[g], groups[g + 1]):
            reach = lifts[i] + constant
            if lifts[i] < 0.0:
                continue
            for pair in range(near.starts[tile[i]], near.starts[tile[i] + 1]):
                if reach <= best * near.between[pair] * shrink:
                    continue
                other = near.second[pair]
                fill(places, position[i], starts[other], starts[other + 1], distance)
                for p in range(starts[other], starts[other + 1]):
                    d = distance[p - starts[other]]
                    if not member[p] and reach > best * d * shrink:
                        best = np.inf if d == 0.0 else reach / (d * shrink)
                        found[g, 0] = best
                        found[g, 1] = position[i]
                        found[g, 2] = p
