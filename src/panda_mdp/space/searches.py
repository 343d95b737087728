"""Searches along the edges of a graph, nearest nodes first, each as far as it has to go.

Compiled where there is numba; plain Python with the same answers where there is none. Lengths are
whole numbers. Arrays of all nodes are made once for many sources and wiped where they were used.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

import numpy as np

try:
    from numba import njit
except ImportError:

    def njit(**options: Any) -> Any:
        """Leave the function as it is."""
        return lambda function: function


@njit(cache=True, nogil=True)
def direct_pairs(starts, others, steps, sources, number):
    """Pairs of records, nodes whose `number` is not -1, of which the first is one of `sources`,
    that no shortest path between them has a record in between; by number, and their steps.

    A node is clear while no shortest path to it that was found has a record in between. A search
    ends when no node that is still to be reached is clear: all beyond has a record in between.
    """
    nodes = len(starts) - 1
    best = np.full(nodes, -1, np.int64)
    clear = np.zeros(nodes, np.bool_)
    reached = np.zeros(nodes, np.bool_)
    first = [np.int64(0) for _ in range(0)]
    second = [np.int64(0) for _ in range(0)]
    length = [np.int64(0) for _ in range(0)]
    for source in sources:
        best[source] = 0
        clear[source] = True
        waiting = 1
        touched = [source]
        heap = [(np.int64(0), source)]
        while waiting > 0:
            far, node = heappop(heap)
            if reached[node] or far > best[node]:
                continue
            reached[node] = True
            onward = clear[node]
            if onward:
                waiting -= 1
                if node != source and number[node] >= 0:
                    first.append(number[source])
                    second.append(number[node])
                    length.append(far)
                    onward = False
            for e in range(starts[node], starts[node + 1]):
                other = others[e]
                away = far + steps[e]
                if reached[other] or (best[other] >= 0 and away > best[other]):
                    continue
                if away == best[other]:
                    if clear[other] and not onward:
                        clear[other] = False
                        waiting -= 1
                    continue
                if best[other] < 0:
                    touched.append(other)
                elif clear[other]:
                    waiting -= 1
                best[other] = away
                clear[other] = onward
                if onward:
                    waiting += 1
                heappush(heap, (away, other))
        for node in touched:
            best[node] = -1
            clear[node] = False
            reached[node] = False
    return np.array(first, np.int64), np.array(second, np.int64), np.array(length, np.int64)


@njit(cache=True, nogil=True)
def balls(starts, others, steps, begin, weights, enough, radius, inside, away):
    """radius[k] = steps to the node with which those reached from begin + k hold `enough` of
    `weights`; inside[k] the first of them, and away[k] the steps to each."""
    nodes = len(starts) - 1
    best = np.full(nodes, -1, np.int64)
    done = np.zeros(nodes, np.bool_)
    for k in range(len(radius)):
        radius[k] = np.inf
        source = np.int64(begin + k)
        best[source] = 0
        touched = [source]
        heap = [(np.int64(0), source)]
        held = 0.0
        count = 0
        while len(heap) > 0:
            far, node = heappop(heap)
            if done[node]:
                continue
            done[node] = True
            if count < inside.shape[1]:
                inside[k, count] = node
                away[k, count] = far
                count += 1
            held += weights[node]
            if held >= enough:
                radius[k] = far
                break
            for e in range(starts[node], starts[node + 1]):
                other = others[e]
                reached = far + steps[e]
                if best[other] < 0 or reached < best[other]:
                    if best[other] < 0:
                        touched.append(other)
                    best[other] = reached
                    heappush(heap, (reached, other))
        for node in touched:
            best[node] = -1
            done[node] = False
