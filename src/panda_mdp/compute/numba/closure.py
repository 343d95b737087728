"""The log-Lipschitz closure of a table over all pairs, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.parts import in_parts
from panda_mdp.compute.numba.compiling import njit
from panda_mdp.compute.numba.distance import fill
from panda_mdp.space.tiles import TILE

BLOCK = 8
"""Records of a tile that are compared with a row at once before each of them is."""


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
def _close(
    first_turn, last_turn, z, out, active, epsilon, nats, margin, above, high, top, turns, count,
    partner, exponents, kind, table, order, blocks, radius, slack, starts, nearby, others, between,
):  # fmt: skip
    records, outputs = z.shape
    most = partner.shape[1]
    for turn in range(first_turn, last_turn):
        a = turns[turn]
        begin = starts[a]
        open_ = np.zeros(TILE, np.bool_)
        some = False
        for i in range(begin, starts[a + 1]):
            if not active[i]:
                continue
            row = out[i]
            source = z[i]
            for y in range(outputs):
                row[y] = source[y]
            if count[i] < 0:
                open_[i - begin] = True
                some = True
                continue
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
        for near in range(nearby[a], nearby[a + 1]):
            b = others[near]
            distant = epsilon * between[near]
            if distant >= nats or _ratio(high[b], low) <= np.exp(distant):
                continue
            first = starts[b]
            last = starts[b + 1]
            for i in range(begin, starts[a + 1]):
                if not open_[i - begin]:
                    continue
                reach = min(nats, np.log(_ratio(high[b], inverse[i - begin])))
                if reach <= distant:
                    continue
                row = out[i]
                centre = records + blocks[b]
                fill(kind, table, order, i, centre, records + blocks[b + 1], away)
                for block in range(blocks[b], blocks[b + 1]):
                    to_centre = away[block - blocks[b]]
                    nearest = to_centre - radius[block] - slack * (to_centre + radius[block])
                    exponent = epsilon * max(0.0, nearest)
                    if exponent >= reach:
                        continue
                    if not _lacks(top[block], row, np.exp(-exponent) * grow[i - begin]):
                        continue
                    left = first + BLOCK * (block - blocks[b])
                    right = min(left + BLOCK, last)
                    fill(kind, table, order, i, left, right, distance)
                    for j in range(left, right):
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


def close(z: Any, out: Any, active: Any, epsilon: float, nats: float, *arrays: Any) -> None:
    """out_xy = max over the x' with epsilon d(x, x') < nats of z_x'y exp(-epsilon d(x, x')), for
    the active records x; the rows of the others are left as they are.

    `high` (tiles, m) bounds `above` times z in every tile: what a row lacks of that bounds how far
    away a tile can raise it; `top` does the same for `BLOCK` records at a time, those of tile a
    from blocks[a] on, which lie within `radius` of a centre: position K + block. `turns` are the
    tiles in the order in which threads share them, and others[nearby[a]:nearby[a + 1]] those that
    may raise tile a, at `between` at least. The other arguments are those of the loop above.

    Rows of `partner` and `exponents`, epsilon d, (K, n) list the sources of a record, `count` of
    them; where that is negative all records are looked at, and those are listed for which
    above_x' z_x' exp(-epsilon d) comes within the record's `margin` of its row, unless they are
    more than n.
    """
    in_parts(_close, len(arrays[-3]) - 1, z, out, active, epsilon, nats, *arrays)


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
def _tops(begin, end, z, above, starts, blocks, top):
    for a in range(begin, end):
        for block in range(blocks[a], blocks[a + 1]):
            left = starts[a] + BLOCK * (block - blocks[a])
            most = top[block]
            for y in range(len(most)):
                most[y] = 0.0
            for i in range(left, min(left + BLOCK, starts[a + 1])):
                _raise(z[i], most, above[i])


def tops(z: FloatArray, above: FloatArray, starts: IntArray, blocks: IntArray) -> FloatArray:
    """The largest `above` times z of every output among the records of each block: (blocks, m)."""
    top = np.empty((blocks[-1], z.shape[1]))
    in_parts(_tops, len(starts) - 1, z, above, starts, blocks, top)
    return top


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
def _replace(begin, end, rows, z, above, below, centred, sums):
    for k in range(begin, end):
        row = z[rows[k]]
        high = above[rows[k]]
        low = below[rows[k]]
        if centred:
            for y in range(len(row)):
                row[y] = np.sqrt(high[y] / low[y])
        else:
            for y in range(len(row)):
                row[y] = high[y]
        total = 0.0
        for y in range(len(row)):
            total += row[y]
        for y in range(len(row)):
            row[y] /= total
        sums[rows[k]] = total


def replace(
    z: FloatArray, rows: IntArray, above: FloatArray, below: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """z with some rows replaced by those of `above`, or by sqrt(above / below), scaled to sum 1,
    and what the rows' sums were: 1 for those that stay."""
    out, sums = z.copy(), np.ones(len(z))
    low = above if below is None else below
    in_parts(_replace, len(rows), rows, out, above, low, below is not None, sums)
    return out, sums
