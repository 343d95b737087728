"""Rows over a floor as short floating-point integers, each told as its difference from a near row.

A weight w at p bits is its first p + 1 binary digits and how many zeros follow. As one number,

    code = shift 2^p + floor(w / 2^shift),    shift = max(0, floor(log2 w) - p),

which grows with w and is nearly linear in log w, so that near rows have near codes at any
precision. Nothing is rounded here: which precision a row has, and which of its entries is the rest
that makes it full, follows from its integers. 256 rows make a block, deflated apart from others.
The byte layout is in docs/format.md.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Self

import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.base.floored import FlooredRows
from panda_mdp.errors import FileFormatError
from panda_mdp.privacy.quantise import TOTAL
from panda_mdp.space.domain import Domain
from panda_mdp.table.container import Section, deflate, inflate, pack_planes, unpack_planes

BLOCK_ROWS = 256
"""Rows of a block: a parent is named by one byte."""
MOST_OUTPUTS = 1 << 16
MOST_BITS = 46
"""Codes stay below 2^52 then, which a browser's numbers hold exactly."""


@dataclass(frozen=True)
class Rows:
    """Rows in the form that is stored.

    An entry is at its column's floor, or stored at its row's precision, or the rest of its row:
    w[x, rest[x]] = 2^62 - the sum of the others.
    """

    weights: IntArray
    """(n, m), rows summing to 2^62."""
    raised: BoolArray
    """(n, m): entries that are not at the floor."""
    bits: IntArray
    """(n,): stored entries have at most bits + 1 significant binary digits."""
    rest: IntArray
    """(n,): the column that takes what the others leave."""

    @classmethod
    def of(cls, weights: IntArray, floor: IntArray) -> Self:
        """Rows of integers: the rest is the entry of most digits, the largest of such."""
        raised = weights != floor
        digits = np.where(raised, significant_digits(weights), 0)
        along = np.arange(len(weights))
        rest = np.where(digits == digits.max(axis=1, keepdims=True), weights, -1).argmax(axis=1)
        digits[along, rest] = 0
        return cls(weights, raised, np.maximum(digits.max(axis=1) - 1, 0), rest)


def significant_digits(weights: IntArray) -> IntArray:
    """Binary digits from the first to the last one that is set; 0 for 0.

    >>> significant_digits(np.array([0, 1, 12, 2**61 + 1])).tolist()
    [0, 1, 2, 62]
    """
    lowest = np.frexp((weights & -weights).astype(np.float64))[1] - 1
    return np.where(weights > 0, exponents(weights) - lowest + 1, 0)


def exponents(weights: IntArray) -> IntArray:
    """floor(log2 w) of weights from 1 on; 0 for 0."""
    least = np.maximum(weights, 1)
    exponent = np.frexp(least.astype(np.float64))[1].astype(np.int64) - 1
    # float64 may round up to the next power of two.
    return np.asarray(exponent - ((least >> exponent) == 0))


def pack_rows(domain: Domain, rows: FlooredRows) -> dict[str, IntArray | Section] | None:
    """The sections of rows over a floor; None where their numbers are too long for blocks."""
    if rows.shape[1] > MOST_OUTPUTS:
        return None
    order = domain.tiles.order.copy()
    data, stored = [], 0
    for start in range(0, len(rows), BLOCK_ROWS):
        near = order[start : start + BLOCK_ROWS]
        along, parent = spanning_order(domain.distances(near, near))
        members = near[along]
        order[start : start + BLOCK_ROWS] = members
        short = Rows.of(rows[members], rows.floor)
        if short.bits.max() > MOST_BITS:
            return None
        block = encode_block(short, parent, rows.floor)
        data += [struct.pack("<I", len(block)), block]
        stored += int(short.raised.sum())
    section = Section("blocks", (*rows.shape, stored), b"".join(data))
    return {"floor": rows.floor, "order": order, "blocks": section}


def unpack_rows(section: Section, order: IntArray, floor: IntArray) -> FlooredRows:
    """The rows over a floor of a section of blocks, every field checked."""
    size, outputs, left = section.shape
    _refuse(outputs > MOST_OUTPUTS, "the number of outputs")
    _refuse(not np.array_equal(np.sort(order), np.arange(size)), "the order of the rows")
    _refuse(bool((floor < 0).any()) or floor.sum(dtype=np.float64) > TOTAL, "a floor")
    counts, columns, values = [], [], []
    at = 0
    for start in range(0, size, BLOCK_ROWS):
        _refuse(at + 4 > len(section.data), "the length of a block")
        (length,) = struct.unpack_from("<I", section.data, at)
        block = section.data[at + 4 : at + 4 + length]
        at += 4 + length
        _refuse(at > len(section.data), "the length of a block")
        weights = decode_block(block, min(BLOCK_ROWS, size - start), floor).weights
        above = weights != floor
        counts.append(above.sum(axis=1))
        left -= int(counts[-1].sum())
        _refuse(left < 0, "the number of stored entries")
        columns.append(np.nonzero(above)[1].astype(np.int32))
        values.append(weights[above])
    _refuse(left != 0 or at != len(section.data), "the number of stored entries")
    count = np.concatenate(counts)
    ends = np.cumsum(count)
    place = np.argsort(order)
    starts = np.concatenate([[0], np.cumsum(count[place])])
    along = np.repeat((ends - count)[place] - starts[:-1], count[place]) + np.arange(starts[-1])
    return FlooredRows(floor, starts, np.concatenate(columns)[along], np.concatenate(values)[along])


def shifts(weights: IntArray, bits: IntArray) -> IntArray:
    """How many low binary digits of each weight are beyond its precision."""
    return np.asarray(np.maximum(exponents(weights) - bits, 0))


def shorten(weights: IntArray, bits: IntArray) -> IntArray:
    """Codes of weights, rounded down to the precision.

    >>> shorten(np.array([5, 64, 66, 128]), np.array(2)).tolist()
    [5, 20, 20, 24]
    """
    shift = shifts(weights, bits)
    return np.asarray((shift << bits) + (weights >> shift))


def lengthen(codes: IntArray, bits: IntArray) -> IntArray:
    """Weights of codes.

    >>> lengthen(np.array([5, 20, 24]), np.array(2)).tolist()
    [5, 64, 128]
    """
    shift = np.maximum((codes >> bits) - 1, 0)
    return np.asarray((codes - (shift << bits)) << shift)


def round_weights(weights: IntArray, bits: IntArray) -> IntArray:
    """The nearest weights of this precision; off by at most 2^-(bits + 1) of themselves."""
    shift = shifts(weights, bits)
    half = (np.int64(1) << shift) >> 1
    return np.asarray(((weights + half) >> shift) << shift)


def spanning_order(between: FloatArray) -> tuple[IntArray, IntArray]:
    """An order of some records, and for each the earlier one, by place, that it is nearest to.

    Prim's algorithm: the tree of least total length, so that predictions are as near as can be.
    """
    size = len(between)
    order, parent = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    nearest, via = between[0].copy(), np.zeros(size, dtype=np.int64)
    nearest[0] = np.inf
    waiting = np.ones(size, dtype=np.bool_)
    waiting[0] = False
    for place in range(1, size):
        record = int(nearest.argmin())
        order[place], parent[place] = record, via[record]
        waiting[record] = False
        nearest[record] = np.inf
        closer = waiting & (between[record] < nearest)
        nearest[closer] = between[record][closer]
        via[closer] = place
    return order, parent


def encode_block(rows: Rows, parent: IntArray, floors: IntArray) -> bytes:
    """Rows in an order in which parents come first, as deflated bytes."""
    count = len(parent)
    first = np.arange(count) == 0
    raised = rows.raised.copy()
    raised[1:] ^= rows.raised[parent[1:]]
    stored = rows.raised.copy()
    stored[np.arange(count), rows.rest] = False
    near = np.where(first[:, None], floors, rows.weights[parent])
    bits = rows.bits[:, None]
    change = shorten(rows.weights, bits) - shorten(near, bits)
    return deflate(
        parent.astype(np.uint8).tobytes()
        + rows.bits.astype(np.uint8).tobytes()
        + rows.rest.astype("<u2").tobytes()
        + np.packbits(raised.T.ravel()).tobytes()
        + pack_planes(change.T[stored.T])
    )


def decode_block(data: bytes, count: int, floors: IntArray) -> Rows:
    """The rows of a block, every field checked."""
    outputs = len(floors)
    flags = (count * outputs + 7) // 8
    plain = inflate(data, 4 * count + flags + 1 + 8 * count * outputs)
    if len(plain) < 4 * count + flags:
        raise FileFormatError(f"a block of {count} rows ends early; the file is damaged")
    parent = np.frombuffer(plain, np.uint8, count).astype(np.int64)
    bits = np.frombuffer(plain, np.uint8, count, count).astype(np.int64)
    rest = np.frombuffer(plain, "<u2", count, 2 * count).astype(np.int64)
    _refuse(bool((parent[1:] >= np.arange(1, count)).any()), "the row of a parent")
    _refuse(bool((bits > MOST_BITS).any()), "a precision")
    _refuse(bool((rest >= outputs).any()), "the column of a rest")
    packed = np.frombuffer(plain, np.uint8, flags, 4 * count)
    changed = np.unpackbits(packed, count=count * outputs).astype(np.bool_)
    raised = np.ascontiguousarray(changed.reshape(outputs, count).T)
    for i in range(1, count):
        raised[i] ^= raised[parent[i]]
    stored = raised.copy()
    stored[np.arange(count), rest] = False
    change = np.zeros((outputs, count), dtype=np.int64)
    change[stored.T] = unpack_planes(plain[4 * count + flags :], int(stored.sum()))
    weights = _predict(parent, bits, rest, stored, change.T, floors)
    return Rows(weights, raised, bits, rest)


def _predict(
    parent: IntArray,
    bits: IntArray,
    rest: IntArray,
    stored: BoolArray,
    change: IntArray,
    floors: IntArray,
) -> IntArray:
    weights = np.empty(stored.shape, dtype=np.int64)
    for i in range(len(parent)):
        near = floors if i == 0 else weights[parent[i]]
        row = floors.copy()
        columns = np.flatnonzero(stored[i])
        codes = shorten(near[columns], bits[i]) + change[i, columns]
        highest = (63 - bits[i]) << bits[i]
        _refuse(bool(((codes < 0) | (codes > highest)).any()), "a weight")
        row[columns] = lengthen(codes, bits[i])
        row[rest[i]] = 0
        # The integer sum is exact modulo 2^64; the float sum rules out that it went round.
        total = int(row.sum())
        _refuse(total > TOTAL or row.sum(dtype=np.float64) > 1.5 * TOTAL, "the sum of a row")
        row[rest[i]] = TOTAL - total
        weights[i] = row
    return weights


def _refuse(wrong: bool, what: str) -> None:
    if wrong:
        raise FileFormatError(f"{what} is out of range; the file is damaged")
