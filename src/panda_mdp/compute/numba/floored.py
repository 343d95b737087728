"""The largest privacy loss per unit of distance of a sparse table, compiled."""

from __future__ import annotations

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.parts import in_parts
from panda_mdp.compute.numba.compiling import njit
from panda_mdp.compute.numba.distance import fill, largest_gap, largest_step
from panda_mdp.space.tiles import TILE


def worst_of_groups(
    logs: FloatArray,
    weights: IntArray,
    lifts: FloatArray,
    position: IntArray,
    tile: IntArray,
    groups: IntArray,
    kind: int,
    table: FloatArray,
    order: IntArray,
    starts: IntArray,
    between: FloatArray,
    constant: float,
    shrink: float,
    least: float,
) -> tuple[float, int, int]:
    """max over groups of outputs and pairs of positions of (max_y |log ratio| + constant) /
    (shrink d), where it exceeds `least`; and the pair.

    Group g holds the nodes groups[g] to groups[g + 1]: positions at which some output of the group
    is not at its floor, ascending. Whatever is no node of a group is at the floor in it; `lifts` is
    the largest log ratio of a node to that, -1 where all its weights are the floor's.
    """
    count = len(groups) - 1
    values = np.full(count, least)
    places = np.full((count, 2), -1, np.int64)
    nodes = (logs, weights, lifts, position, tile, groups)
    where = (kind, table, order, starts, between)
    in_parts(_scan_groups, count, *nodes, *where, constant, shrink, least, values, places)
    top = int(values.argmax())
    return values[top], places[top, 0], places[top, 1]


@njit(cache=True, nogil=True)
def _scan_groups(
    start, stop, logs, weights, lifts, position, tile, groups, kind, table, order, starts, between,
    constant, shrink, least, values, places,
):  # fmt: skip
    """Scan the groups start <= g < stop."""
    size = starts[-1]
    tiles = len(starts) - 1
    width = logs.shape[1]
    for g in range(start, stop):
        begin = groups[g]
        end = groups[g + 1]
        best = least
        first = -1
        second = -1
        distance = np.empty(TILE)
        member = np.zeros(size, np.bool_)
        cuts = np.empty(end - begin + 1, np.int64)
        parts = 0
        for i in range(begin, end):
            member[position[i]] = True
            if i == begin or tile[i] != tile[i - 1]:
                cuts[parts] = i
                parts += 1
        cuts[parts] = end
        high = np.full((parts, width), -np.inf)
        low = np.full((parts, width), np.inf)
        for a in range(parts):
            for i in range(cuts[a], cuts[a + 1]):
                for y in range(width):
                    high[a, y] = max(high[a, y], logs[i, y])
                    low[a, y] = min(low[a, y], logs[i, y])
        for a in range(parts):
            own = tile[cuts[a]]
            for b in range(a, parts):
                other = tile[cuts[b]]
                reach = 0.0
                for y in range(width):
                    reach = max(reach, high[a, y] - low[b, y])
                    reach = max(reach, high[b, y] - low[a, y])
                if reach + constant <= best * between[own, other] * shrink:
                    continue
                for i in range(cuts[a], cuts[a + 1]):
                    reach = largest_step(logs[i], high[b], low[b])
                    if reach + constant <= best * between[own, other] * shrink:
                        continue
                    fill(
                        kind, table, order, position[i], starts[other], starts[other + 1], distance
                    )
                    for j in range(max(cuts[b], i + 1), cuts[b + 1]):
                        d = distance[position[j] - starts[other]]
                        if reach + constant <= best * d * shrink:
                            continue
                        worst = largest_gap(logs[i], logs[j])
                        if worst + constant > best * d * shrink:
                            same = True
                            for y in range(width):
                                same = same and weights[i, y] == weights[j, y]
                            if not same:
                                value = np.inf if d == 0.0 else (worst + constant) / (d * shrink)
                                if value > best:
                                    best = value
                                    first = position[i]
                                    second = position[j]
            highest = -1.0
            for i in range(cuts[a], cuts[a + 1]):
                highest = max(highest, lifts[i])
            for other in range(tiles):
                if highest < 0.0:
                    break
                if highest + constant <= best * between[own, other] * shrink:
                    continue
                for i in range(cuts[a], cuts[a + 1]):
                    if lifts[i] < 0.0:
                        continue
                    if lifts[i] + constant <= best * between[own, other] * shrink:
                        continue
                    fill(
                        kind, table, order, position[i], starts[other], starts[other + 1], distance
                    )
                    for p in range(starts[other], starts[other + 1]):
                        d = distance[p - starts[other]]
                        if not member[p] and lifts[i] + constant > best * d * shrink:
                            best = np.inf if d == 0.0 else (lifts[i] + constant) / (d * shrink)
                            first = position[i]
                            second = p
        values[g] = best
        places[g, 0] = first
        places[g, 1] = second
