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
from typing import Any

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray
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


def significant_digits(weights: IntArray) -> IntArray:
    """Binary digits from the first to the last one that is set; 0 for 0.

    >>> significant_digits(np.array([0, 1, 12, 2**61 + 1])).tolist()
    [0, 1, 2, 62]
    """
    lowest = np.frexp((weights & -weights).astype(float))[1] - 1
    return np.where(weights > 0, exponents(weights) - lowest + 1, 0)


def exponents(weights: IntArray) -> IntArray:
    """floor(log2 w) of weights from 1 on; 0 for 0."""
    least = np.maximum(weights, 1)
    exponent = np.frexp(least.astype(float))[1].astype(np.int64) - 1
    # float64 may round up to the next power of two.
    return np.asarray(exponent - ((least >> exponent) == 0))


def pack_rows(domain: Domain, rows: FlooredRows) -> dict[str, IntArray | Section] | None:
    """The sections of rows over a floor; None where their numbers are too long for blocks."""
    if rows.shape[1] > MOST_OUTPUTS:
        return None
    order = domain.tiles.order.copy()
    data = []
    stored = 0
    for start in range(0, len(rows), BLOCK_ROWS):
        members = order[start : start + BLOCK_ROWS]
        along, parent = spanning_order(domain.distances(members, members))
        members[:] = members[along]
        weights = rows[members]
        stored += int((weights != rows.floor).sum())
        try:
            block = encode_block(weights, parent, rows.floor)
        except FileFormatError:
            return None
        data += [struct.pack("<I", len(block)), block]
    section = Section("blocks", (*rows.shape, stored), b"".join(data))
    return {"floor": rows.floor, "order": order, "blocks": section}


def unpack_rows(section: Section, order: IntArray, floor: IntArray) -> FlooredRows:
    """The rows over a floor of a section of blocks, every field checked."""
    size, outputs, stored = section.shape
    _refuse(outputs > MOST_OUTPUTS, "the number of outputs")
    _refuse(not np.array_equal(np.sort(order), np.arange(size)), "the order of the rows")
    _refuse((floor < 0).any() or floor.sum(dtype=float) > TOTAL, "a floor")
    columns = [floor[:0]] * size
    values = [floor[:0]] * size
    at = 0
    for start in range(0, size, BLOCK_ROWS):
        members = order[start : start + BLOCK_ROWS].tolist()
        begin = at + 4
        at = begin + int.from_bytes(section.data[at:begin], "little")
        _refuse(max(begin, at) > len(section.data), "the length of a block")
        rows = decode_block(section.data[begin:at], len(members), floor)
        for record, row in zip(members, rows, strict=True):
            columns[record] = np.flatnonzero(row != floor)
            values[record] = row[columns[record]]
            stored -= len(columns[record])
        _refuse(stored < 0, "the number of stored entries")
    _refuse(stored != 0 or at != len(section.data), "the number of stored entries")
    starts = np.cumsum([0, *map(len, columns)])
    return FlooredRows(floor, starts, np.concatenate(columns), np.concatenate(values))


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
    """An order of some records, and for each the earlier one, by place, that it is next to in the
    tree of least total length, so that predictions are as near as can be."""
    # Prim's tree, the nearest record at each turn: no pairs have to be sorted.
    size = len(between)
    least = between[0].copy()
    next_to = np.zeros(size, np.int64)
    apart = np.arange(size) > 0
    for _ in range(size - 1):
        at = int(np.where(apart, least, np.inf).argmin())
        apart[at] = False
        nearer = apart & (between[at] < least)
        least[nearer] = between[at, nearer]
        next_to[nearer] = at
    links = np.ones(size - 1), (next_to[1:], np.arange(1, size))
    tree = scipy.sparse.csr_array(links, shape=(size, size))
    found, before = scipy.sparse.csgraph.depth_first_order(tree, 0, directed=False)
    order = found.astype(np.int64)
    # The first one has none: it is its own.
    return order, np.asarray(np.argsort(order)[np.maximum(before[order], 0)], dtype=np.int64)


def encode_block(weights: IntArray, parent: IntArray, floors: IntArray) -> bytes:
    """Rows, each summing to 2^62, in an order in which parents come first, as deflated bytes.

    An entry is at its column's floor, or stored at its row's precision, or the rest of its row,
    which takes what the others leave: the entry of most digits, the largest of such. Refused where
    the others have more than `MOST_BITS` + 1 digits.
    """
    along = np.arange(len(weights))
    raised = weights != floors
    digits = np.where(raised, significant_digits(weights), 0)
    rest = np.where(digits == digits.max(axis=1, keepdims=True), weights, -1).argmax(axis=1)
    digits[along, rest] = 0
    bits = np.maximum(digits.max(axis=1) - 1, 0)
    _refuse(bits > MOST_BITS, "a precision")
    changed = raised.copy()
    changed[1:] ^= raised[parent[1:]]
    raised[along, rest] = False
    near = np.where((along == 0)[:, None], floors, weights[parent])
    change = shorten(weights, bits[:, None]) - shorten(near, bits[:, None])
    return deflate(
        parent.astype(np.uint8).tobytes()
        + bits.astype(np.uint8).tobytes()
        + rest.astype("<u2").tobytes()
        + np.packbits(changed.T.ravel()).tobytes()
        + pack_planes(change.T[raised.T])
    )


def decode_block(data: bytes, count: int, floors: IntArray) -> IntArray:
    """The rows of a block, (count, m), every field checked."""
    outputs = len(floors)
    flags = 4 * count + (count * outputs + 7) // 8
    plain = inflate(data, flags + 1 + 8 * count * outputs)
    if len(plain) < flags:
        raise FileFormatError(f"a block of {count} rows ends early; the file is damaged")
    head = np.frombuffer(plain, np.uint8, flags)
    parent, bits = head[: 2 * count].reshape(2, count).astype(np.int64)
    rest = head[2 * count : 4 * count].view("<u2").astype(np.int64)
    _refuse(parent[1:] >= np.arange(1, count), "the row of a parent")
    _refuse(bits > MOST_BITS, "a precision")
    _refuse(rest >= outputs, "the column of a rest")
    raised = np.unpackbits(head[4 * count :], count=count * outputs).astype(bool)
    raised = np.ascontiguousarray(raised.reshape(outputs, count).T)
    for i in range(1, count):
        raised[i] ^= raised[parent[i]]
    raised[np.arange(count), rest] = False
    change = np.zeros((outputs, count), np.int64)
    change[raised.T] = unpack_planes(plain[flags:], int(raised.sum()))
    weights = np.tile(floors, (count, 1))
    for i, row in enumerate(weights):
        columns = np.flatnonzero(raised[i])
        near = floors if i == 0 else weights[parent[i]]
        codes = shorten(near[columns], bits[i]) + change[columns, i]
        _refuse((codes < 0) | (codes > (63 - bits[i]) << bits[i]), "a weight")
        row[columns] = lengthen(codes, bits[i])
        row[rest[i]] = 0
        # The integer sum is exact modulo 2^64; the float sum rules out that it went round.
        total = int(row.sum())
        _refuse(total > TOTAL or row.sum(dtype=float) > 1.5 * TOTAL, "the sum of a row")
        row[rest[i]] = TOTAL - total
    return weights


def _refuse(wrong: Any, what: str) -> None:
    if np.any(wrong):
        raise FileFormatError(f"{what} is out of range; the file is damaged")
