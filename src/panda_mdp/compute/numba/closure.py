"""The log-Lipschitz closure of a table over all pairs, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from panda_mdp.base.parts import in_parts
from panda_mdp.compute.numba.compiling import njit
from panda_mdp.compute.numba.distance import fill
from panda_mdp.space.tiles import TILE


@njit(cache=True, fastmath=True, error_model="numpy")
def _ratio(high, inverse):
    """max_y high_y inverse_y."""
    most = 0.0
    for y in range(len(high)):
        most = max(most, high[y] * inverse[y])
    return most


@njit(cache=True, fastmath=True, error_model="numpy")
def _lack(source, row, factor):
    """max_y (factor source_y - row_y)."""
    most = -1.0
    for y in range(len(source)):
        most = max(most, factor * source[y] - row[y])
    return most


@njit(cache=True, fastmath=True, error_model="numpy")
def _raise(source, row, factor):
    """row <- max(row, factor source)."""
    for y in range(len(source)):
        row[y] = max(row[y], factor * source[y])


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
def _close(
    first_turn, last_turn, z, out, active, epsilon, nats, margin, above, high, turns, count,
    partner, exponents, kind, table, order, starts, nearby, others, between,
):  # fmt: skip
    outputs = z.shape[1]
    most = partner.shape[1]
    for turn in range(first_turn, last_turn):
        a = turns[turn]
        begin = starts[a]
        open_ = np.zeros(TILE, np.bool_)
        some = False
        for i in range(begin, starts[a + 1]):
            row = out[i]
            source = z[i]
            for y in range(outputs):
                row[y] = source[y]
            if not active[i]:
                continue
            if count[i] < 0:
                open_[i - begin] = True
                some = True
                continue
            for k in range(count[i]):
                source = z[partner[i, k]]
                factor = np.exp(-np.float64(exponents[i, k]))
                if _lack(source, row, factor) > 0.0:
                    _raise(source, row, factor)
        if not some:
            continue
        distance = np.empty(TILE)
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
                fill(kind, table, order, i, first, last, distance)
                row = out[i]
                for j in range(first, last):
                    exponent = epsilon * distance[j - first]
                    if exponent >= reach or j == i:
                        continue
                    factor = np.exp(-exponent)
                    source = z[j]
                    if _lack(source, row, factor * grow[i - begin] * above[j]) <= 0.0:
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
    the active records x; the rows of the others are copied.

    `high` (tiles, m) bounds `above` times z in every tile: what a row lacks of that bounds how far
    away a tile can raise it. `turns` are the tiles in the order in which threads share them, and
    others[nearby[a]:nearby[a + 1]] those that may raise tile a, at `between` at least. The other
    arguments are those of the loop above.

    Rows of `partner` and `exponents`, epsilon d, (K, n) list the sources of a record, `count` of
    them; where that is negative all records are looked at, and those are listed for which
    above_x' z_x' exp(-epsilon d) comes within the record's `margin` of its row, unless they are
    more than n.
    """
    in_parts(_close, len(arrays[-3]) - 1, z, out, active, epsilon, nats, *arrays)
