"""Rows of levels, read within the intervals that earlier rows leave them.

A level is a logarithm, in units of 2^-20 octaves. Row x lists earlier rows with costs, and a level
of column y lies between

    low  = max(floor_y, level of each listed row - its cost),
    high = min(level of each listed row + its cost),

where a row that does not store y is at floor_y. What is stored is which level of the row's own
grid it is, coded by an adaptive binary range coder. `docs/format.md` has every step; all of it is
on integers. This is the reader for NumPy alone; `compute.numba.intervals` reads the same, compiled.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import IntArray

OCTAVE = 20
OCTAVES = 62
LIMIT = (OCTAVES << OCTAVE) - 1
"""The highest level, nearly 2^62."""
ONE = 1 << 15
"""A probability of 1 in the coder; probabilities are of a 0."""
RATE = 5
LEAST_RANGE = 1 << 24
CONTEXTS = 8
"""An entry between two others, by where in its interval the one before it is, in quarters, or none
is (0 to 4); one whose interval begins at the floor, the nearest row above it or not (5, 6); a fresh
one (7)."""
NONE = 4
SIZES = 32
PLACES = 18
"""Probabilities of one class and size: is it the lowest, is it the highest, a tree of 4 digits."""
DEEP = 32
"""Probabilities of digits beyond the tree."""

Bytes = npt.NDArray[np.uint8]


def grid_digits(base: int, cap: int, core: int, tail: int, most: int) -> IntArray:
    """For every octave, how many binary digits the levels of a row's grid lack in it."""
    octave = np.arange(OCTAVES)
    digits = np.minimum(base + np.maximum(0, core - octave), cap)
    digits = digits + np.minimum(np.maximum(0, tail - octave), most)
    return np.asarray(np.minimum(digits, OCTAVE))


def next_symbol(coder: IntArray, data: Bytes, chances: IntArray, context: int, last: int) -> int:
    """A number of 0..last: whether it is 0, whether it is `last`, then the digits of what it is.

    `coder` is (range, code, next byte). A number above `last` comes of a damaged file alone.
    """
    size = last
    if last >= 8:
        size, rest = 5, last
        while rest > 0:
            size += 1
            rest >>= 1
    digits, rest = 0, last - 2
    while rest > 0:
        digits += 1
        rest >>= 1
    first = (context * SIZES + size) * PLACES
    symbol, node, turn = 0, 1, -2
    while True:
        place = len(chances) - 1 - turn
        if turn < 0:
            place = first + 2 + turn
        elif turn < 4:
            place = first + 1 + node
        chance = chances[place]
        part = (coder[0] >> 15) * chance
        bit = 0
        if coder[1] < part:
            coder[0] = part
            chances[place] = chance + ((ONE - chance) >> RATE)
        else:
            bit = 1
            coder[0] -= part
            coder[1] -= part
            chances[place] = chance - (chance >> RATE)
        while coder[0] < LEAST_RANGE:
            coder[0] <<= 8
            byte = data[coder[2]] if coder[2] < len(data) else 0
            coder[1] = (coder[1] << 8) + byte
            coder[2] += 1
        if turn == -2 and (bit == 0 or last == 1):
            return bit
        if turn == -1 and (bit == 0 or last == 2):
            return 1 if bit else last
        if turn >= 0:
            symbol = 2 * symbol + bit
            node = 2 * node + bit
        turn += 1
        if turn >= 0 and turn == digits:
            return symbol + 1


def decode_rows(
    near: IntArray,
    cost: IntArray,
    digits: IntArray,
    floor: IntArray,
    fresh_starts: IntArray,
    fresh: IntArray,
    stored: int,
    data: Bytes,
) -> tuple[IntArray, npt.NDArray[np.int32], IntArray, int, int]:
    """Starts, columns and levels of rows over a floor, the row at fault or -1, and bytes used.

    near, cost : (K, n) earlier rows, -1 after the last of them, and their costs
    digits : (K, 62) of each row's grid, by octave
    fresh : the columns from fresh_starts[x] to fresh_starts[x + 1] that no listed row stores
    """
    size = len(near)
    starts = np.zeros(size + 1, dtype=np.int64)
    columns, levels = np.zeros(stored, dtype=np.int32), np.zeros(stored, dtype=np.int64)
    chances = np.full(CONTEXTS * SIZES * PLACES + DEEP, ONE // 2, dtype=np.int64)
    coder = np.array([0xFFFFFFFF, int.from_bytes(data[1:5].tobytes(), "big"), 5])
    for x in range(size):
        wanted, low, high, kind = _intervals(
            near[x], cost[x], floor, starts, columns, levels, fresh[slice(*fresh_starts[x : x + 2])]
        )
        begin = np.concatenate([[0], np.cumsum(1 << (OCTAVE - digits[x]))])
        first, beyond = _position(low, digits[x], begin), _position(high - 1, digits[x], begin)
        last = np.where(high > low, beyond - first + 1, 0)
        symbol = np.zeros(len(wanted), dtype=np.int64)
        before = NONE
        for k in np.flatnonzero(last):
            context = int(kind[k]) + NONE if kind[k] else before
            symbol[k] = next_symbol(coder, data, chances, context, int(last[k]))
            if kind[k] == 0:
                before = int(4 * symbol[k] // (last[k] + 1))
        if (symbol > last).any():
            return starts, columns, levels, x, 0
        octave = np.searchsorted(begin, first + symbol, side="right") - 1
        octave = np.minimum(octave, OCTAVES - 1)
        between = (octave << OCTAVE) + ((first + symbol - begin[octave]) << digits[x][octave])
        value = np.where(symbol == 0, low, np.where(symbol == last, high, between))
        above = value > floor[wanted]
        end = starts[x] + int(above.sum())
        if end > stored or end == starts[x]:
            return starts, columns, levels, x, 0
        columns[starts[x] : end], levels[starts[x] : end] = wanted[above], value[above]
        starts[x + 1] = end
    return starts, columns, levels, -1, int(coder[2])


def _intervals(
    near: IntArray,
    cost: IntArray,
    floor: IntArray,
    starts: IntArray,
    columns: npt.NDArray[np.int32],
    levels: IntArray,
    fresh: IntArray,
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """The columns that a row may store, ascending, with low, high and class of each."""
    low, high = floor.copy(), np.full(len(floor), LIMIT)
    listed = int((near >= 0).sum())
    count = np.zeros(len(floor), dtype=np.int64)
    for j in range(listed):
        part = slice(starts[near[j]], starts[near[j] + 1])
        y, level = columns[part], levels[part]
        low[y] = np.maximum(low[y], level - cost[j])
        high[y] = np.minimum(high[y], level + cost[j])
        count[y] = np.where(count[y] == 0, 1, count[y])
        count[y] += count[y] == j + 1
    if count[fresh].any():
        return tuple(np.zeros(0, dtype=np.int64) for _ in range(4))  # type: ignore[return-value]
    count[fresh] = -1
    wanted = np.flatnonzero(count)
    low, high, count = low[wanted], high[wanted], count[wanted]
    # The nearest of the rows that do not store the column is at the floor.
    at_floor = (count <= listed) & (listed > 0)
    nearest = cost[np.maximum(np.minimum(count, listed) - 1, 0)]
    high = np.where(at_floor, np.minimum(high, floor[wanted] + nearest), high)
    high = np.maximum(high, low)
    kind = np.where(low > floor[wanted], 0, np.where(count > 1, 1, 2))
    return wanted, low, high, np.where(count < 0, 3, kind)


def _position(level: IntArray, digits: IntArray, begin: IntArray) -> IntArray:
    """How many levels of the grid are at most this one, less one."""
    octave = level >> OCTAVE
    return np.asarray(begin[octave] + ((level & ((1 << OCTAVE) - 1)) >> digits[octave]))
