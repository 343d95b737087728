"""Closure, violated pairs and scaling of a table that is cut into groups of outputs, compiled.

Tables are (nodes, width); parts of a group and a tile, and pairs of parts, are those of
compute/cut.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from panda_mdp.base.arrays import BoolArray, Float32Array, FloatArray, IntArray
from panda_mdp.base.floored import Int32Array
from panda_mdp.base.threads import in_parts
from panda_mdp.compute.cut import BLOCK, Blocks, Cut
from panda_mdp.compute.numba import njit
from panda_mdp.compute.numba.distance import coordinates, fill
from panda_mdp.space.tiles import TILE, TilePairs

SCALINGS = 8
BEYOND = 1e300
"""Stands for the floor in columns that do not exist: nothing is above it."""


class Sources(NamedTuple):
    """For every node the nodes that may raise it."""

    above: FloatArray
    """By which rows may lie above what they are now."""
    margin: FloatArray
    """Nats by which a row may fall before sources are missing from its list."""
    length: IntArray
    """Sources of a row; -1 where there is no list."""
    partner: Int32Array
    """(nodes, most)."""
    exponent: Float32Array
    """epsilon d of the partners."""


@njit(cache=True, fastmath=True, error_model="numpy")
def _ratio(high, inverse):
    """max_y high_y inverse_y."""
    most = 0.0
    for y in range(len(high)):
        most = max(most, high[y] * inverse[y])
    return most


@njit(cache=True, fastmath=True, error_model="numpy")
def _lacks(source, row, factor):
    """Whether factor source_y > row_y for some y; counted, which vectorises better than asking."""
    count = 0
    for y in range(len(source)):
        count += factor * source[y] > row[y]
    return count > 0


@njit(cache=True, fastmath=True, error_model="numpy")
def _raise(source, row, factor):
    """row <- max(row, factor source)."""
    for y in range(len(source)):
        row[y] = max(row[y], factor * source[y])


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
def _close(first_turn, last_turn, z, out, active, epsilon, nats, sources, high, top, cut, near):
    nodes, outputs = z.shape
    starts, blocks, begins, places, radius, slack, turns = cut
    nearby, others, between = near
    above, margin, count, partner, exponents = sources
    most = partner.shape[1]
    for turn in range(first_turn, last_turn):
        a = turns[turn]
        begin = starts[a]
        open_ = np.zeros(TILE, np.bool_)
        some = False
        for i in range(begin, starts[a + 1]):
            if not active[i]:
                continue
            if count[i] < 0:
                open_[i - begin] = True
                some = True
                continue
            row = out[i]
            for k in range(count[i]):
                source = z[partner[i, k]]
                factor = np.exp(-np.float64(exponents[i, k]))
                if _lacks(source, row, factor):
                    _raise(source, row, factor)
        if not some:
            continue
        distance = np.empty(BLOCK)
        away = np.empty(TILE // BLOCK)
        inverse = np.empty((TILE, outputs))
        low = np.zeros(outputs)
        grow = np.ones(TILE)
        listed = np.zeros(TILE, np.int64)
        for i in range(begin, starts[a + 1]):
            if open_[i - begin]:
                of_row = inverse[i - begin]
                source = z[i]
                grow[i - begin] = np.exp(margin[i])
                for y in range(outputs):
                    of_row[y] = grow[i - begin] / source[y]
                for y in range(outputs):
                    low[y] = max(low[y], of_row[y])
        for pair in range(nearby[a], nearby[a + 1]):
            b = others[pair]
            distant = epsilon * between[pair]
            if distant >= nats or _ratio(high[b], low) <= np.exp(distant):
                continue
            for i in range(begin, starts[a + 1]):
                if not open_[i - begin]:
                    continue
                reach = min(nats, np.log(_ratio(high[b], inverse[i - begin])))
                if reach <= distant:
                    continue
                row = out[i]
                fill(places, i, nodes + blocks[b], nodes + blocks[b + 1], away)
                for block in range(blocks[b], blocks[b + 1]):
                    to_centre = away[block - blocks[b]]
                    nearest = to_centre - radius[block] - slack * (to_centre + radius[block])
                    exponent = epsilon * max(0.0, nearest)
                    if exponent >= reach:
                        continue
                    if not _lacks(top[block], row, np.exp(-exponent) * grow[i - begin]):
                        continue
                    left = begins[block]
                    fill(places, i, left, begins[block + 1], distance)
                    for j in range(left, begins[block + 1]):
                        exponent = epsilon * distance[j - left]
                        if exponent >= reach or j == i:
                            continue
                        factor = np.exp(-exponent)
                        source = z[j]
                        if not _lacks(source, row, factor * grow[i - begin] * above[j]):
                            continue
                        _raise(source, row, factor)
                        k = listed[i - begin]
                        if k < most:
                            partner[i, k] = j
                            exponents[i, k] = exponent
                        listed[i - begin] = k + 1
        for i in range(begin, starts[a + 1]):
            if open_[i - begin] and listed[i - begin] <= most:
                count[i] = listed[i - begin]


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
def _tops(first, last, z, above, begins, top):
    for block in range(first, last):
        most = top[block]
        for i in range(begins[block], begins[block + 1]):
            _raise(z[i], most, above[i])


def tops(z: FloatArray, above: FloatArray, cut: Blocks) -> FloatArray:
    """The largest `above` times z of every output among the nodes of each block: (blocks, m)."""
    top = np.zeros((cut.blocks[-1], z.shape[1]))
    in_parts(_tops, len(top), z, above, cut.begin, top)
    return top


def close(
    z: FloatArray,
    out: FloatArray,
    active: BoolArray,
    epsilon: float,
    nats: float,
    sources: Sources,
    top: FloatArray,
    cut: Blocks,
    near: TilePairs,
) -> None:
    """out_iy = max over the nodes j of i's group with epsilon d(i, j) < nats of z_jy
    exp(-epsilon d(i, j)), for the active nodes i; the rows of the others are left as they are, and
    `out` is given as z.

    `top` bounds `above` times z for `BLOCK` nodes at a time: what a row lacks of that bounds how
    far away a block, or a whole part, can raise it.

    The nodes that have a list of sources go along it alone. For the others all nodes near are
    looked at, and those are listed for which above_j z_j exp(-epsilon d) comes within the node's
    `margin` of its row, unless they are more than the list takes.
    """
    high = np.maximum.reduceat(top, cut.blocks[:-1], axis=0) if len(top) else top
    loop = (z, out, active, epsilon, nats, sources, high, top, cut, near)
    in_parts(_close, len(cut.turns), *loop)


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
def _violated(begin, end, z, epsilon, nats, high, inverse, cut, near, least_gain, partner, gain):
    outputs = z.shape[1]
    most = partner.shape[1]
    starts, places = cut.starts, cut.places
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


def violated(
    z: FloatArray,
    epsilon: float,
    nats: float,
    cut: Blocks,
    near: TilePairs,
    most: int,
    least_gain: float,
) -> tuple[IntArray, FloatArray]:
    """For every node the `most` partners whose constraint it misses by the most mass.

    gain_ij = sum_y max(0, z_jy exp(-epsilon d) - z_iy), of pairs within `nats`. Partners (nodes,
    most) are -1 where none exceeds `least_gain`.
    """
    partner = np.full((len(z), most), -1, np.int64)
    gain = np.zeros((len(z), most))
    high = np.maximum.reduceat(z, cut.starts[:-1], axis=0)
    inverse = 1 / np.minimum.reduceat(z, cut.starts[:-1], axis=0)
    single = z.astype(np.float32)
    loop = (single, epsilon, nats, high, inverse, cut, near, least_gain, partner, gain)
    in_parts(_violated, len(high), *loop)
    return partner, gain


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
def _scale(begin, end, records, z, floors, group, start, part, total, sums, factors):
    for n in range(begin, end):
        r = records[n]
        nodes = part[start[r] : start[r + 1]]
        above = 0.0
        for node in nodes:
            row, floor = z[node], floors[group[node]]
            for y in range(len(row)):
                above += max(row[y] - floor[y], 0.0)
        sums[r] = above + total
        factor = 1 / sums[r]
        # Without a floor that is all.
        for _ in range(SCALINGS if total > 0.0 else 0):
            mass = 0.0
            freed = 0.0
            for node in nodes:
                row, floor = z[node], floors[group[node]]
                for y in range(len(row)):
                    if row[y] * factor > floor[y]:
                        mass += row[y]
                        freed += floor[y]
            new = (1 - total + freed) / (mass if mass > 0 else 1.0)
            still = abs(new / factor - 1) < 1e-14
            factor = new
            if still:
                break
        factors[r] = factor
        for node in nodes:
            row, floor = z[node], floors[group[node]]
            for y in range(len(row)):
                if floor[y] < BEYOND:
                    row[y] = max(row[y] * factor, floor[y])


def scale(z: FloatArray, cut: Cut, records: IntArray) -> tuple[FloatArray, FloatArray]:
    """z <- max(s z, floor) with the s, one for every record, for which its row sums to 1 over the
    floor of all outputs, in place for some records, by position; what all rows summed to before,
    and s, both 1 for the other records.

    Each step takes the entries that s leaves above the floor to be those of the last.
    """
    sums, factors = np.ones(cut.domain.size), np.ones(cut.domain.size)
    floors = np.where(cut.exists, cut.floors, BEYOND)
    rows = (z, floors, cut.group, *cut.by_position, float(cut.floor.sum()))
    in_parts(_scale, len(records), records, *rows, sums, factors)
    return sums, factors


@njit(cache=True, nogil=True)
def _cover(begin, end, lifts, groups, position, tile, epsilon, places, starts, between, inside):
    distance = np.empty(TILE)
    for g in range(begin, end):
        for i in range(groups[g], groups[g + 1]):
            for b in range(len(starts) - 1):
                if epsilon * between[tile[i], b] >= lifts[i]:
                    continue
                fill(places, position[i], starts[b], starts[b + 1], distance)
                for p in range(starts[b], starts[b + 1]):
                    if epsilon * distance[p - starts[b]] < lifts[i]:
                        inside[g, p] = True


def covered(lifts: FloatArray, cut: Cut, epsilon: float) -> BoolArray:
    """Which positions some node of a group raises above the floor, (groups, K): those within
    `lifts` nats of it."""
    tiles = cut.domain.tiles
    inside = np.zeros((len(cut.columns), cut.domain.size), np.bool_)
    nodes = (lifts, cut.groups, cut.position, cut.tile, epsilon)
    places = coordinates(cut.domain.metric, tiles.order)
    in_parts(_cover, len(cut.columns), *nodes, places, tiles.starts, tiles.between, inside)
    return inside
