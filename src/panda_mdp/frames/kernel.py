"""From records to drawn outputs in one compiled loop (numba), on integers.

The cumulative weights of a record end at 2^62; 62 uniform bits u select the first output whose
sum exceeds u.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from panda_mdp.base.arrays import IntArray
from panda_mdp.base.floored import FlooredRows, Int32Array, Weights
from panda_mdp.privacy.quantise import TOTAL
from panda_mdp.space.snapping import OUTSIDE

MASK = np.uint64(TOTAL - 1)
CONSTANTS = np.frombuffer(b"expand 32-byte k", dtype="<u4").astype(np.uint32)
DOUBLE_ROUNDS = 10


class Thresholds(NamedTuple):
    """Rows over a floor, summed up: what 62 bits are compared with.

    Up to a stored entry j of a row all weights sum to reached[j]; between two of them the sums rise
    as the floor's do. A row of which everything is stored is one of plain cumulative sums.
    """

    starts: IntArray
    """(K + 1,): the stored entries of row x are those from starts[x] to starts[x + 1]."""
    columns: Int32Array
    """Ascending within a row."""
    reached: IntArray
    floor: IntArray
    """(m,): cumulative sums of the floor."""

    @classmethod
    def of(cls, weights: Weights) -> Thresholds:
        """The sums of a table's integers, in the memory that its stored entries take."""
        rows = FlooredRows.over(weights)
        floor = np.cumsum(rows.floor)
        # Sums over all rows, of which each one's own are what was added since its beginning.
        change = np.concatenate([[0], np.cumsum(rows.values - rows.floor[rows.columns])])
        before = np.repeat(change[rows.starts[:-1]], np.diff(rows.starts))
        return cls(rows.starts, rows.columns, change[1:] - before + floor[rows.columns], floor)


@njit(cache=True, nogil=True)
def choose_output(record, rows, bits):
    """The column that 62 bits select: the first whose cumulative weight exceeds them."""
    bits = np.int64(bits)
    begin = rows.starts[record]
    end = rows.starts[record + 1]
    at = begin + np.searchsorted(rows.reached[begin:end], bits, side="right")
    # Between the stored entry before and this one everything is at the floor.
    left = 0
    above = np.int64(0)
    if at > begin:
        left = rows.columns[at - 1] + 1
        above = rows.reached[at - 1] - rows.floor[left - 1]
    right = rows.columns[at] if at < end else len(rows.floor)
    return left + np.searchsorted(rows.floor[left:right], bits - above, side="right")


@njit(cache=True, nogil=True)
def draw_records(records, rows, words):
    """Draw for every record; OUTSIDE stays OUTSIDE."""
    drawn = np.empty(len(records), np.int64)
    for i in range(len(records)):
        drawn[i] = records[i]
        if records[i] != OUTSIDE:
            drawn[i] = choose_output(records[i], rows, words[i] & MASK)
    return drawn


@njit(cache=True, nogil=True, inline="always")
def _mix(state, a, b, d, bits):
    state[a] += state[b]
    x = state[d] ^ state[a]
    state[d] = (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))


@njit(cache=True, nogil=True, inline="always")
def _quarter(state, a, b, c, d):
    _mix(state, a, b, d, 16)
    _mix(state, c, d, b, 12)
    _mix(state, a, b, d, 8)
    _mix(state, c, d, b, 7)


@njit(cache=True, nogil=True)
def keyed_words(key, nonces, group, counter, constants):
    """The first 64 bits of ChaCha20's block (RFC 8439) for each nonce `group[i]` and counter.

    `key` are 8 words of 32 bits, `nonces` 3 of each group. The block function under a secret key
    is a pseudo-random function of nonce and counter.
    """
    out = np.empty(len(group), np.uint64)
    start = np.empty(16, np.uint32)
    state = np.empty(16, np.uint32)
    start[:4] = constants
    start[4:12] = key
    for i in range(len(group)):
        start[12] = np.uint32(counter[i])
        start[13:] = nonces[group[i]]
        state[:] = start
        for _ in range(DOUBLE_ROUNDS):
            for k in range(4):
                _quarter(state, k, 4 + k, 8 + k, 12 + k)
            for k in range(4):
                _quarter(state, k, 4 + (k + 1) % 4, 8 + (k + 2) % 4, 12 + (k + 3) % 4)
        # Sums of 32 bits are computed in 64: the carry must not reach the second word.
        low = np.uint32(state[0] + start[0])
        high = np.uint32(state[1] + start[1])
        out[i] = np.uint64(low) | (np.uint64(high) << np.uint64(32))
    return out
