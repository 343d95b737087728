"""Closure, violated pairs and scaling of a table that is cut into groups of outputs, compiled.

Tables are (nodes, width); parts of a group and a tile, and pairs of parts, are those of
compute/pairs.py.
"""

from __future__ import annotations

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.threads import in_parts
from panda_mdp.compute.numba import njit
from panda_mdp.compute.numba.distance import fill
from panda_mdp.compute.pairs import Cut
from panda_mdp.space.tiles import TILE

SCALINGS = 8
WIDTH = 32
"""Outputs that a thread relaxes along links at a time."""
BEYOND = 1e300
"""Stands for the floor in columns that do not exist: nothing is above it."""


@njit(fastmath=True, error_model="numpy")
def _ratio(high, inverse):
    """max_y high_y inverse_y."""
    most = 0.0
    for y in range(len(high)):
        most = max(most, high[y] * inverse[y])
    return most


@njit(fastmath=True, error_model="numpy")
def _lacks(source, row, factor):
    """Whether factor source_y > row_y for some y; counted, which vectorises better than asking."""
    count = 0
    for y in range(len(source)):
        count += factor * source[y] > row[y]
    return count > 0


@njit(nogil=True, fastmath=True, error_model="numpy")
def close(first_turn, last_turn, z, out, active, epsilon, nats, high, starts, places, turns, near):
    """out_iy = max over the nodes j of i's group with epsilon d(i, j) < nats of z_jy
    exp(-epsilon d(i, j)), for the active nodes i; the rows of the others are left as they are, and
    `out` is given as z.

    `high` bounds z in every part: what a row lacks of it bounds how far away that can raise it.
    """
    nearby, others, between = near
    outputs = z.shape[1]
    distance = np.empty(TILE)
    inverse = np.empty((TILE, outputs))
    for turn in range(first_turn, last_turn):
        a = turns[turn]
        begin = starts[a]
        low = np.zeros(outputs)
        some = False
        for i in range(begin, starts[a + 1]):
            if not active[i]:
                continue
            some = True
            of_row = inverse[i - begin]
            source = z[i]
            for y in range(outputs):
                of_row[y] = 1 / source[y]
            for y in range(outputs):
                low[y] = max(low[y], of_row[y])
        if not some:
            continue
        for pair in range(nearby[a], nearby[a + 1]):
            b = others[pair]
            distant = epsilon * between[pair]
            nearest = np.exp(-distant)
            if distant >= nats or _ratio(high[b], low) * nearest <= 1.0:
                continue
            for i in range(begin, starts[a + 1]):
                row = out[i]
                if not active[i] or not _lacks(high[b], row, nearest):
                    continue
                reach = min(nats, np.log(_ratio(high[b], inverse[i - begin])))
                fill(places, i, starts[b], starts[b + 1], distance)
                for j in range(starts[b], starts[b + 1]):
                    exponent = epsilon * distance[j - starts[b]]
                    if exponent >= reach or j == i:
                        continue
                    factor = np.exp(-exponent)
                    source = z[j]
                    for y in range(outputs):
                        row[y] = max(row[y], factor * source[y])


@njit(nogil=True, fastmath=True, error_model="numpy")
def miss(
    begin, end, z, epsilon, nats, high, inverse, starts, places, near, least_gain, partner, gain
):
    """For every node the partners, (nodes, most), whose constraint it misses by the most mass, of
    pairs within `nats`, where that exceeds `least_gain`; and the mass."""
    outputs = z.shape[1]
    most = partner.shape[1]
    distance = np.empty(TILE)
    for a in range(begin, end):
        for pair in range(near.starts[a], near.starts[a + 1]):
            b = near.second[pair]
            # No log ratio of the two parts is larger.
            within = min(np.log(_ratio(high[b], inverse[a])), nats)
            if within <= epsilon * near.between[pair]:
                continue
            first = starts[b]
            last = starts[b + 1]
            for i in range(starts[a], starts[a + 1]):
                fill(places, i, first, last, distance)
                row = z[i]
                for j in range(first, last):
                    exponent = epsilon * distance[j - first]
                    if j == i or exponent >= within:
                        continue
                    factor = np.float32(np.exp(-exponent))
                    source = z[j]
                    value = np.float32(0)
                    for y in range(outputs):
                        value += max(np.float32(0), factor * source[y] - row[y])
                    if value > least_gain and value > gain[i, most - 1]:
                        k = most - 1
                        while k > 0 and gain[i, k - 1] < value:
                            gain[i, k] = gain[i, k - 1]
                            partner[i, k] = partner[i, k - 1]
                            k -= 1
                        gain[i, k] = value
                        partner[i, k] = j


@njit(nogil=True, fastmath=True, error_model="numpy")
def _scale(begin, end, records, z, floors, group, start, part, total, sums):
    for n in range(begin, end):
        r = records[n]
        nodes = part[start[r] : start[r + 1]]
        above = 0.0
        for node in nodes:
            row = z[node]
            floor = floors[group[node]]
            for y in range(len(row)):
                above += max(row[y] - floor[y], 0.0)
        sums[r] = above + total
        factor = 1 / sums[r]
        # Without a floor that is all.
        for _ in range(SCALINGS if total > 0.0 else 0):
            mass = 0.0
            freed = 0.0
            for node in nodes:
                row = z[node]
                floor = floors[group[node]]
                for y in range(len(row)):
                    if row[y] * factor > floor[y]:
                        mass += row[y]
                        freed += floor[y]
            new = (1 - total + freed) / (mass if mass > 0 else 1.0)
            still = abs(new / factor - 1) < 1e-14
            factor = new
            if still:
                break
        for node in nodes:
            row = z[node]
            floor = floors[group[node]]
            for y in range(len(row)):
                if floor[y] < BEYOND:
                    row[y] = max(row[y] * factor, floor[y])


def scale(z: FloatArray, cut: Cut, records: IntArray) -> FloatArray:
    """z <- max(s z, floor) with the s, one for every record, for which its row sums to 1 over the
    floor of all outputs, in place for some records, by position; what all rows summed to before, 1
    for the other records.

    Each step takes the entries that s leaves above the floor to be those of the last.
    """
    sums = np.ones(cut.domain.size)
    floors = np.where(cut.exists, cut.floors, BEYOND)
    rows = (z, floors, cut.group, *cut.by_position, float(cut.floor.sum()))
    in_parts(_scale, len(records), records, *rows, sums)
    return sums


@njit(nogil=True)
def cover(begin, end, lifts, groups, position, tile, epsilon, places, starts, near, inside):
    """Which positions some node of a group raises above the floor."""
    distance = np.empty(TILE)
    for g in range(begin, end):
        for i in range(groups[g], groups[g + 1]):
            for pair in range(near.starts[tile[i]], near.starts[tile[i] + 1]):
                if epsilon * near.between[pair] >= lifts[i]:
                    continue
                b = near.second[pair]
                fill(places, position[i], starts[b], starts[b + 1], distance)
                for p in range(starts[b], starts[b + 1]):
                    if epsilon * distance[p - starts[b]] < lifts[i]:
                        inside[g, p] = True


@njit(nogil=True, error_model="numpy")
def relax(begin, end, z, starts, others, factors):
    """z_i <- max(z_i, factor z_j) along the links of nodes until nothing changes, in place; rows
    that were raised raise their neighbours, first come, first served. A link of factor 0 is none.
    """
    nodes = len(starts) - 1
    waiting = np.arange(nodes)
    queued = np.ones(nodes, np.bool_)
    for block in range(begin, end):
        left = block * WIDTH
        right = min(left + WIDTH, z.shape[1])
        for i in range(nodes):
            waiting[i] = i
            queued[i] = True
        head = 0
        count = nodes
        while count > 0:
            node = waiting[head]
            head = head + 1 if head + 1 < nodes else 0
            count -= 1
            queued[node] = False
            source = z[node, left:right]
            for e in range(starts[node], starts[node + 1]):
                factor = factors[e]
                if factor == 0.0:
                    continue
                other = others[e]
                row = z[other, left:right]
                lacking = 0
                for y in range(len(row)):
                    lacking += factor * source[y] > row[y]
                if lacking == 0:
                    continue
                for y in range(len(row)):
                    row[y] = max(row[y], factor * source[y])
                if not queued[other]:
                    queued[other] = True
                    tail = head + count
                    waiting[tail if tail < nodes else tail - nodes] = other
                    count += 1
