"""Rows as short floating-point integers, each told as its difference from a near row.

A weight w at p bits is its first p + 1 binary digits and how many zeros follow. As one number,

    code = shift 2^p + floor(w / 2^shift),    shift = max(0, floor(log2 w) - p),

which grows with w and is nearly linear in log w, so that near rows have near codes at any
precision. All rows of a block are deflated together and apart from other blocks. The byte layout
is in docs/format.md; `Rows` is what it holds.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.errors import FileFormatError
from panda_mdp.privacy.quantise import TOTAL

BLOCK_ROWS = 256
"""Rows of a block: a parent is named by one byte."""
MOST_OUTPUTS = 1 << 16
MOST_BITS = 46
"""Codes stay below 2^52 then, which a browser's numbers hold exactly."""
LEVEL = 9

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Rows:
    """A table in the form that is stored.

    An entry is at its column's floor, or stored at its row's precision, or the rest of its row:
    w[x, rest[x]] = 2^62 - the sum of the others.
    """

    weights: IntArray
    """(n, m), rows summing to 2^62."""
    raised: BoolArray
    """(n, m): entries that are not at the floor; the rest is one of them."""
    bits: IntArray
    """(n,): stored entries have at most bits + 1 significant binary digits."""
    rest: IntArray
    """(n,): the column that takes what the others leave."""

    @property
    def raised_share(self) -> float:
        """Part of the table that is not at the floor."""
        return float(self.raised.mean())

    def take(self, positions: IntArray) -> Rows:
        """Some of the rows."""
        return Rows(
            self.weights[positions],
            self.raised[positions],
            self.bits[positions],
            self.rest[positions],
        )


def shifts(weights: IntArray, bits: IntArray) -> IntArray:
    """How many low binary digits of each weight are beyond its precision."""
    least = np.maximum(weights, 1)
    exponent = np.frexp(least.astype(np.float64))[1].astype(np.int64) - 1
    # float64 may round up to the next power of two.
    exponent -= (least >> exponent) == 0
    return np.asarray(np.maximum(exponent - bits, 0))


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
        chosen = int(nearest.argmin())
        order[place], parent[place] = chosen, via[chosen]
        waiting[chosen] = False
        nearest[chosen] = np.inf
        closer = waiting & (between[chosen] < nearest)
        nearest[closer] = between[chosen][closer]
        via[closer] = place
    return order, parent


def pack_planes(numbers: IntArray) -> bytes:
    """Whole numbers as zigzag bytes: how many a number takes, then all first bytes, and so on."""
    folded = ((numbers << 1) ^ (numbers >> 63)).astype(np.uint64)
    width = (int(folded.max(initial=0)).bit_length() + 7) // 8
    planes = folded.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width]
    return bytes([width]) + np.ascontiguousarray(planes.T).tobytes()


def unpack_planes(data: bytes, count: int) -> IntArray:
    """`count` numbers of `pack_planes`; they must take all of `data`."""
    width = data[0] if data else 9
    if width > 8 or len(data) != 1 + width * count:
        msg = f"{len(data)} bytes for {count} numbers of {width} bytes each; the file is damaged"
        raise FileFormatError(msg)
    planes = np.zeros((count, 8), dtype=np.uint8)
    planes[:, :width] = np.frombuffer(data, np.uint8, offset=1).reshape(width, count).T
    folded = planes.view("<u8").reshape(-1)
    return ((folded >> np.uint64(1)) ^ (np.uint64(0) - (folded & np.uint64(1)))).view(np.int64)


def deflate(data: bytes) -> bytes:
    """The zlib format (RFC 1950)."""
    return zlib.compress(data, LEVEL)


def inflate(data: bytes, most: int) -> bytes:
    """What was deflated, refused beyond `most` bytes."""
    reader = zlib.decompressobj()
    try:
        plain = reader.decompress(data, most + 1)
    except zlib.error as error:
        msg = f"a section cannot be inflated ({error}); the file is damaged"
        raise FileFormatError(msg) from error
    if not reader.eof or reader.unused_data or len(plain) > most:
        msg = f"a section does not end where it should (at most {most} bytes); the file is damaged"
        raise FileFormatError(msg)
    return plain


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
        msg = f"a block of {count} rows ends early; the file is damaged"
        raise FileFormatError(msg)
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
        msg = f"{what} is out of range; the file is damaged"
        raise FileFormatError(msg)
