"""Closure and violated pairs of a table that is cut into groups of outputs, compiled.

Group g holds the nodes groups[g] to groups[g + 1], at ascending positions along the domain's tiles;
whatever is no node of a group is at the group's floor in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.base.parts import in_parts
from panda_mdp.compute.numba.compiling import njit
from panda_mdp.compute.numba.distance import fill
from panda_mdp.space.tiles import TILE


def covered(
    lifts: FloatArray,
    position: IntArray,
    tile: IntArray,
    groups: IntArray,
    epsilon: float,
    kind: int,
    table: FloatArray,
    order: IntArray,
    starts: IntArray,
    between: FloatArray,
) -> BoolArray:
    """Which positions some node of a group raises above the floor, (groups, K): those within
    `lifts` nats of it."""
    count = len(groups) - 1
    inside = np.zeros((count, starts[-1]), np.bool_)
    nodes, where = (lifts, position, tile, groups), (kind, table, order, starts, between)
    in_parts(_cover, count, *nodes, epsilon, *where, inside)
    return inside


@njit(cache=True, nogil=True)
def _cover(
    begin, end, lifts, position, tile, groups, epsilon, kind, table, order, starts, between, inside
):
    tiles = len(starts) - 1
    for g in range(begin, end):
        distance = np.empty(TILE)
        for i in range(groups[g], groups[g + 1]):
            if lifts[i] <= 0.0:
                continue
            for b in range(tiles):
                if epsilon * between[tile[i], b] >= lifts[i]:
                    continue
                fill(kind, table, order, position[i], starts[b], starts[b + 1], distance)
                for p in range(starts[b], starts[b + 1]):
                    if epsilon * distance[p - starts[b]] < lifts[i]:
                        inside[g, p] = True


def close_groups(z: FloatArray, out: FloatArray, groups: IntArray, *others: Any) -> None:
    """out_iy = max over the nodes j of i's group of z_jy exp(-epsilon d(i, j)), for active i; the
    rows of the others are copied. Pairs beyond `nats` are left out.

    With `most` > 0 nothing is closed: `partner` and `gain` (nodes, most) receive for every node the
    partners from which it misses the most mass, sum_y max(0, z_jy exp(-epsilon d) - z_iy), where
    that exceeds `least_gain`. `others` are as in `_close_groups`.
    """
    in_parts(_close_groups, len(groups) - 1, z, out, groups, *others)


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
def _close_groups(
    first, last, z, out, groups, active, floor, epsilon, nats, most, least_gain, partner, gain,
    position, tile, kind, table, order, starts, between,
):  # fmt: skip
    width = z.shape[1]
    for g in range(first, last):
        begin = groups[g]
        end = groups[g + 1]
        distance = np.empty(TILE)
        lift = np.empty(end - begin)
        cuts = np.empty(end - begin + 1, np.int64)
        parts = 0
        for i in range(begin, end):
            highest = 0.0
            for y in range(width):
                highest = max(highest, z[i, y] / floor[g, y])
            lift[i - begin] = np.log(highest)
            if i == begin or tile[i] != tile[i - 1]:
                cuts[parts] = i
                parts += 1
            if most == 0:
                for y in range(width):
                    out[i, y] = z[i, y]
        cuts[parts] = end
        high = np.zeros((parts, width))
        low = np.full((parts, width), np.inf)
        for a in range(parts):
            for i in range(cuts[a], cuts[a + 1]):
                for y in range(width):
                    high[a, y] = max(high[a, y], z[i, y])
                    low[a, y] = min(low[a, y], z[i, y])
        for a in range(parts):
            some = False
            for i in range(cuts[a], cuts[a + 1]):
                some = some or active[i]
            if not some:
                continue
            own = tile[cuts[a]]
            for b in range(parts):
                other = tile[cuts[b]]
                ratio = 0.0
                for y in range(width):
                    ratio = max(ratio, high[b, y] / low[a, y])
                reach = min(np.log(ratio), nats)
                if reach <= epsilon * between[own, other]:
                    continue
                for i in range(cuts[a], cuts[a + 1]):
                    if not active[i]:
                        continue
                    ratio = 0.0
                    for y in range(width):
                        ratio = max(ratio, high[b, y] / z[i, y])
                    own_reach = min(np.log(ratio), reach)
                    if own_reach <= epsilon * between[own, other]:
                        continue
                    fill(
                        kind, table, order, position[i], starts[other], starts[other + 1], distance
                    )
                    for j in range(cuts[b], cuts[b + 1]):
                        exponent = epsilon * distance[position[j] - starts[other]]
                        if exponent >= own_reach or exponent >= lift[j - begin] or j == i:
                            continue
                        factor = np.exp(-exponent)
                        source = z[j]
                        if most == 0:
                            row = out[i]
                            for y in range(width):
                                row[y] = max(row[y], factor * source[y])
                            continue
                        row = z[i]
                        value = 0.0
                        for y in range(width):
                            value += max(0.0, factor * source[y] - row[y])
                        if value > least_gain and value > gain[i, most - 1]:
                            k = most - 1
                            while k > 0 and gain[i, k - 1] < value:
                                gain[i, k] = gain[i, k - 1]
                                partner[i, k] = partner[i, k - 1]
                                k -= 1
                            gain[i, k] = value
                            partner[i, k] = position[j]


def scale_rows(
    z: FloatArray,
    out: FloatArray,
    sums: FloatArray,
    floor: FloatArray,
    exists: BoolArray,
    group: IntArray,
    start: IntArray,
    part: IntArray,
    scalings: int,
) -> None:
    """out = max(s z, floor) with the s, one for every record, for which its row sums to 1 over the
    floor of all outputs; `sums` receives what the rows summed to before.

    The nodes of record r are part[start[r] : start[r + 1]], those of its row that are no nodes are
    at the floor. Each step takes the entries that s leaves above the floor to be those of the last.
    """
    nodes = (z, out, sums, floor, exists, group, start, part)
    in_parts(_scale_rows, len(start) - 1, *nodes, scalings)


@njit(cache=True, nogil=True, error_model="numpy")
def _scale_rows(begin, end, z, out, sums, floor, exists, group, start, part, scalings):
    width = z.shape[1]
    total = 0.0
    for g in range(len(floor)):
        for y in range(width):
            if exists[g, y]:
                total += floor[g, y]
    for r in range(begin, end):
        above = 0.0
        for k in range(start[r], start[r + 1]):
            i = part[k]
            g = group[i]
            for y in range(width):
                if exists[g, y]:
                    above += z[i, y] - floor[g, y]
        sums[r] = above + total
        scale = 1.0
        for _ in range(scalings):
            mass = 0.0
            freed = 0.0
            for k in range(start[r], start[r + 1]):
                i = part[k]
                g = group[i]
                for y in range(width):
                    if exists[g, y] and z[i, y] * scale > floor[g, y]:
                        mass += z[i, y]
                        freed += floor[g, y]
            new = (1 - total + freed) / (mass if mass > 0 else 1.0)
            still = abs(new / scale - 1) < 1e-14
            scale = new
            if still:
                break
        for k in range(start[r], start[r + 1]):
            i = part[k]
            g = group[i]
            for y in range(width):
                out[i, y] = max(z[i, y] * scale, floor[g, y]) if exists[g, y] else 1.0
