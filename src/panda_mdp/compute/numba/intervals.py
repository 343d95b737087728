"""Rows of levels within intervals, written and read, compiled; see `compute.intervals`."""

from __future__ import annotations

import numpy as np
from numba import njit

from panda_mdp.compute import intervals
from panda_mdp.compute.intervals import (
    CONTEXTS,
    DEEP,
    LEAST_RANGE,
    LIMIT,
    NONE,
    OCTAVE,
    ONE,
    PLACES,
    RATE,
    SIZES,
)

_next_symbol = njit(cache=True)(intervals.next_symbol)


@njit(cache=True)
def weight_of(level, coarse, fine):
    """Nearly 2^(level / 2^20): a product of two factors of 31 binary digits."""
    product = (coarse[(level >> 10) & 1023] * fine[level & 1023]) >> 31
    octave = level >> OCTAVE
    return product << (octave - 31) if octave >= 31 else product >> (31 - octave)


@njit(cache=True)
def _bounds(x, near, cost, floor, starts, columns, levels, fresh, low, high, count, kind, wanted):
    """The columns that row x may store, ascending in `wanted`, with low, high and kind of each;
    -1 where a fresh column is not."""
    listed = 0
    for j in range(near.shape[1]):
        other = near[x, j]
        if other < 0:
            break
        listed += 1
        for p in range(starts[other], starts[other + 1]):
            y = columns[p]
            if count[y] == 0:
                count[y], low[y], high[y] = 1, floor[y], LIMIT
            low[y] = max(low[y], levels[p] - cost[x, j])
            high[y] = min(high[y], levels[p] + cost[x, j])
            if count[y] == j + 1:
                count[y] = j + 2
    for y in fresh:
        if count[y] != 0:
            return -1
        count[y], low[y], high[y] = -1, floor[y], LIMIT
    seen = 0
    for y in range(len(floor)):
        if count[y] == 0:
            continue
        wanted[seen] = y
        seen += 1
        if listed > 0 and count[y] <= listed:
            # The nearest of the rows that do not store the column is at the floor.
            high[y] = min(high[y], floor[y] + cost[x, max(count[y] - 1, 0)])
        high[y] = max(high[y], low[y])
        kind[y] = 0
        if count[y] < 0:
            kind[y] = 3
        elif low[y] == floor[y]:
            kind[y] = 1 if count[y] > 1 else 2
        count[y] = 0
    return seen


@njit(cache=True)
def _grid(digits, begin):
    for o in range(len(digits)):
        begin[o + 1] = begin[o] + (1 << (OCTAVE - digits[o]))


@njit(cache=True)
def _position(level, digits, begin):
    octave = level >> OCTAVE
    return begin[octave] + ((level & ((1 << OCTAVE) - 1)) >> digits[octave])


@njit(cache=True)
def _last(low, high, digits, begin):
    if high == low:
        return 0
    return _position(high - 1, digits, begin) - _position(low, digits, begin) + 1


@njit(cache=True)
def _value(symbol, last, low, high, digits, begin):
    """The level that a symbol means."""
    if symbol == 0:
        return low
    if symbol == last:
        return high
    position = _position(low, digits, begin) + symbol
    octave = low >> OCTAVE
    while begin[octave + 1] <= position:
        octave += 1
    return (octave << OCTAVE) + ((position - begin[octave]) << digits[octave])


@njit(cache=True)
def decode_rows(near, cost, digits, floor, fresh_starts, fresh, stored, data):
    """As `compute.intervals.decode_rows`."""
    size, outputs = len(near), len(floor)
    low, high = np.zeros(outputs, np.int64), np.zeros(outputs, np.int64)
    count, kind = np.zeros(outputs, np.int64), np.zeros(outputs, np.int64)
    wanted, begin = np.zeros(outputs, np.int64), np.zeros(digits.shape[1] + 1, np.int64)
    starts = np.zeros(size + 1, np.int64)
    columns, levels = np.zeros(stored, np.int32), np.zeros(stored, np.int64)
    chances = np.full(CONTEXTS * SIZES * PLACES + DEEP, ONE // 2, np.int64)
    coder = np.array([0xFFFFFFFF, 0, 1])
    for _ in range(4):
        byte = data[coder[2]] if coder[2] < len(data) else 0
        coder[1] = (coder[1] << 8) + byte
        coder[2] += 1
    for x in range(size):
        own = fresh[fresh_starts[x] : fresh_starts[x + 1]]
        seen = _bounds(
            x, near, cost, floor, starts, columns, levels, own, low, high, count, kind, wanted
        )
        _grid(digits[x], begin)
        at, before = starts[x], NONE
        for k in range(seen):
            y = wanted[k]
            last = _last(low[y], high[y], digits[x], begin)
            symbol = 0
            if last > 0:
                context = kind[y] + NONE if kind[y] else before
                symbol = _next_symbol(coder, data, chances, context, last)
                if symbol > last:
                    return starts, columns, levels, x, 0
                if kind[y] == 0:
                    before = 4 * symbol // (last + 1)
            value = _value(symbol, last, low[y], high[y], digits[x], begin)
            if value > floor[y]:
                if at == stored:
                    return starts, columns, levels, x, 0
                columns[at], levels[at] = y, value
                at += 1
        if at == starts[x]:
            return starts, columns, levels, x, 0
        starts[x + 1] = at
    return starts, columns, levels, -1, coder[2]


@njit(cache=True)
def _put(coder, out, chances, place, bit):
    chance = chances[place]
    part = (coder[1] >> 15) * chance
    if bit:
        coder[0] += part
        coder[1] -= part
        chances[place] = chance - (chance >> RATE)
    else:
        coder[1] = part
        chances[place] = chance + ((ONE - chance) >> RATE)
    while coder[1] < LEAST_RANGE:
        coder[1] <<= 8
        _shift(coder, out)


@njit(cache=True)
def _shift(coder, out):
    """Write the highest byte once no carry can change it: (low, range, byte, waiting, length)."""
    if coder[0] < 0xFF000000 or coder[0] >= 1 << 32:
        carry = coder[0] >> 32
        byte = coder[2]
        for _ in range(coder[3] + 1):
            if coder[4] < len(out):
                out[coder[4]] = (byte + carry) & 255
            coder[4] += 1
            byte = 255
        coder[3] = 0
        coder[2] = (coder[0] >> 24) & 255
    else:
        coder[3] += 1
    coder[0] = (coder[0] & 0xFFFFFF) << 8


@njit(cache=True)
def _digits(number):
    digits = 0
    while number > 0:
        digits += 1
        number >>= 1
    return digits


@njit(cache=True)
def _put_symbol(coder, out, chances, context, last, symbol):
    size = last if last < 8 else 5 + _digits(last)
    first = (context * SIZES + size) * PLACES
    _put(coder, out, chances, first, symbol != 0)
    if symbol == 0 or last == 1:
        return
    _put(coder, out, chances, first + 1, symbol != last)
    if last in (symbol, 2):
        return
    digits, node = _digits(last - 2), 1
    for k in range(digits):
        bit = ((symbol - 1) >> (digits - 1 - k)) & 1
        place = first + 1 + node if k < 4 else len(chances) - 1 - k
        _put(coder, out, chances, place, bit)
        node = 2 * node + bit


@njit(cache=True)
def _fill(over, minus_aim, chosen, low, high, digits, begin, symbol, coarse, fine):
    """Levels of large entries that bring a row, with `over` too much, near to what it should sum
    to: all move by one share, within their intervals, and each is rounded to the side that is
    better then, the largest first."""
    mass = 0
    for k in range(len(chosen)):
        mass += weight_of(-minus_aim[k], coarse, fine)
    shift = int(np.rint(np.log2(max(1 - over / mass, 0.5)) * (1 << OCTAVE)))
    for k in range(len(chosen)):
        y, aim = chosen[k], -minus_aim[k]
        moved = min(max(aim + shift, low[y]), high[y])
        over += weight_of(moved, coarse, fine) - weight_of(aim, coarse, fine)
        minus_aim[k] = -moved
    for k in np.argsort(minus_aim):
        y, aim = chosen[k], -minus_aim[k]
        last = _last(low[y], high[y], digits, begin)
        below = _position(aim, digits, begin) - _position(low[y], digits, begin)
        below = last if aim == high[y] else min(max(below, 0), last)
        over -= weight_of(aim, coarse, fine)
        best = over + weight_of(_value(below, last, low[y], high[y], digits, begin), coarse, fine)
        symbol[y] = below
        for other in (below - 1, below + 1):
            if 0 <= other <= last:
                value = _value(other, last, low[y], high[y], digits, begin)
                rest = over + weight_of(value, coarse, fine)
                if abs(rest) < abs(best):
                    best, symbol[y] = rest, other
        over = best


@njit(cache=True)
def encode_rows(
    near, cost, digits, floor, starts, columns, targets, below_largest, total, coarse, fine, out
):
    """Choose a level for every entry, row by row, and write it into `out`.

    Entries are rounded up, so that no level that rests on them has to fall. Those that are at most
    `below_largest` below the row's largest make up for it. Returns starts, columns and levels, the
    fresh columns' starts and numbers, the bytes.
    """
    size, outputs = len(starts) - 1, len(floor)
    low, high = np.zeros(outputs, np.int64), np.zeros(outputs, np.int64)
    count, kind = np.zeros(outputs, np.int64), np.zeros(outputs, np.int64)
    wanted, begin = np.zeros(outputs, np.int64), np.zeros(digits.shape[1] + 1, np.int64)
    aim, symbol = floor.copy(), np.zeros(outputs, np.int64)
    ground, bottom = np.zeros(outputs, np.int64), 0
    for y in range(outputs):
        ground[y] = weight_of(floor[y], coarse, fine)
        bottom += ground[y]
    room = len(targets) + outputs
    own_starts, own_columns = np.zeros(size + 1, np.int64), np.zeros(room, np.int32)
    own_levels = np.zeros(room, np.int64)
    fresh_starts, fresh = np.zeros(size + 1, np.int64), np.zeros(len(targets), np.int64)
    mark = np.full(outputs, -1, np.int64)
    chances = np.full(CONTEXTS * SIZES * PLACES + DEEP, ONE // 2, np.int64)
    coder = np.array([0, 0xFFFFFFFF, 0, 0, 0])
    for x in range(size):
        for j in range(near.shape[1]):
            if near[x, j] < 0:
                break
            for p in range(own_starts[near[x, j]], own_starts[near[x, j] + 1]):
                mark[own_columns[p]] = x
        end = fresh_starts[x]
        for p in range(starts[x], starts[x + 1]):
            aim[columns[p]] = targets[p]
            if mark[columns[p]] != x:
                fresh[end] = columns[p]
                end += 1
        fresh_starts[x + 1] = end
        fresh[fresh_starts[x] : end].sort()
        seen = _bounds(
            x, near, cost, floor, own_starts, own_columns, own_levels,
            fresh[fresh_starts[x] : end], low, high, count, kind, wanted,
        )  # fmt: skip
        _grid(digits[x], begin)
        least = -1
        for p in range(starts[x], starts[x + 1]):
            least = max(least, targets[p] - below_largest)
        over, large = bottom - total, 0
        keys, chosen = np.empty(seen, np.int64), np.empty(seen, np.int64)
        for k in range(seen):
            y = wanted[k]
            last = _last(low[y], high[y], digits[x], begin)
            symbol[y] = 0
            if aim[y] > low[y]:
                above = _position(aim[y] - 1, digits[x], begin) + 1
                symbol[y] = min(last, above - _position(low[y], digits[x], begin))
            value = _value(symbol[y], last, low[y], high[y], digits[x], begin)
            if value >= least:
                value = min(max(aim[y], low[y]), high[y])
                keys[large], chosen[large] = -value, y
                large += 1
            over += weight_of(value, coarse, fine) - ground[y]
        if large > 0:
            _fill(
                over, keys[:large], chosen[:large], low, high, digits[x], begin, symbol, coarse,
                fine,
            )  # fmt: skip
        at = own_starts[x]
        if at + seen > len(own_columns):
            more = len(own_columns) // 2 + seen
            own_columns = np.concatenate((own_columns, np.zeros(more, np.int32)))
            own_levels = np.concatenate((own_levels, np.zeros(more, np.int64)))
        before = NONE
        for k in range(seen):
            y = wanted[k]
            last = _last(low[y], high[y], digits[x], begin)
            if last > 0:
                context = kind[y] + NONE if kind[y] else before
                _put_symbol(coder, out, chances, context, last, symbol[y])
                if kind[y] == 0:
                    before = 4 * symbol[y] // (last + 1)
            value = _value(symbol[y], last, low[y], high[y], digits[x], begin)
            if value > floor[y]:
                own_columns[at], own_levels[at] = y, value
                at += 1
        own_starts[x + 1] = at
        for p in range(starts[x], starts[x + 1]):
            aim[columns[p]] = floor[columns[p]]
    for _ in range(5):
        _shift(coder, out)
    stored = own_starts[size]
    return (
        own_starts, own_columns[:stored], own_levels[:stored],
        fresh_starts, fresh[: fresh_starts[size]], coder[4],
    )  # fmt: skip
