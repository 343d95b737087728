"""Short numbers, predictions and blocks: every step undone exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panda_mdp.errors import FileFormatError
from panda_mdp.privacy.quantise import TOTAL
from panda_mdp.table.blocks import (
    MOST_BITS,
    decode_block,
    encode_block,
    lengthen,
    round_weights,
    shorten,
    spanning_order,
)
from panda_mdp.table.container import deflate, inflate, pack_planes, unpack_planes

WEIGHTS = st.lists(
    st.one_of(
        st.integers(0, TOTAL),
        st.builds(
            lambda k, d: min(TOTAL, max(0, (1 << k) + d)), st.integers(0, 62), st.integers(-2, 2)
        ),
    ),
    min_size=1,
    max_size=20,
)
BITS = st.integers(0, MOST_BITS)


@given(WEIGHTS, BITS)
def test_codes_in_whole_numbers(values, p):
    codes = shorten(np.array(values, dtype=np.int64), np.array(p))
    for w, code in zip(values, codes.tolist(), strict=True):
        shift = max(0, w.bit_length() - 1 - p)
        assert code == (shift << p) + (w >> shift)
        assert 0 <= code <= (63 - p) << p
        assert code < 2**52


@given(WEIGHTS, BITS)
def test_what_has_few_digits_comes_back(values, p):
    bits = np.array(p)
    weights = round_weights(np.array(values, dtype=np.int64), bits)
    assert np.array_equal(lengthen(shorten(weights, bits), bits), weights)
    for w, near in zip(values, weights.tolist(), strict=True):
        assert abs(near - w) * 2 ** (p + 1) <= w


@given(WEIGHTS, BITS)
def test_codes_grow_with_weights(values, p):
    weights = np.sort(np.array(values, dtype=np.int64))
    assert (np.diff(shorten(weights, np.array(p))) >= 0).all()


@given(st.lists(st.integers(-(2**62), 2**62), max_size=30))
def test_planes_come_back(values):
    numbers = np.array(values, dtype=np.int64)
    assert np.array_equal(unpack_planes(pack_planes(numbers), len(numbers)), numbers)


@pytest.mark.parametrize(("data", "count"), [(b"", 0), (b"\x09", 0), (b"\x01", 2), (b"\x01ab", 1)])
def test_planes_of_another_length_are_refused(data, count):
    with pytest.raises(FileFormatError, match="damaged"):
        unpack_planes(data, count)


@pytest.mark.parametrize("damage", [lambda d: d[:-1], lambda d: d + b"x", lambda d: b"x" + d])
def test_inflating_stops_at_the_end(damage):
    assert inflate(deflate(b"abc"), 3) == b"abc"
    with pytest.raises(FileFormatError, match="damaged"):
        inflate(damage(deflate(b"abc")), 100)
    with pytest.raises(FileFormatError, match="at most 2 bytes"):
        inflate(deflate(b"abc"), 2)


def test_parents_are_the_nearest_of_a_spanning_tree():
    points = np.random.default_rng(0).normal(size=(40, 2))
    between = np.linalg.norm(points[:, None] - points, axis=2)
    order, parent = spanning_order(between)
    assert sorted(order) == list(range(40))
    assert (parent[1:] < np.arange(1, 40)).all()
    length = between[order[1:], order[parent[1:]]].sum()
    from scipy.sparse.csgraph import minimum_spanning_tree

    assert length == pytest.approx(minimum_spanning_tree(between).sum())


@st.composite
def blocks(draw) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of all kinds: floors of 0, rows that are all floor but for the rest, one column."""
    count, outputs = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    floors = rng.integers(0, 1 << int(rng.integers(1, 50)), outputs) * rng.integers(0, 2, outputs)
    bits = rng.integers(0, MOST_BITS + 1, count)
    rest = rng.integers(0, outputs, count)
    raised = rng.random((count, outputs)) < draw(st.sampled_from([0.0, 0.5, 1.0]))
    raised[np.arange(count), rest] = True
    size = (TOTAL // (2 * outputs) * rng.random((count, outputs)) ** 9).astype(np.int64)
    weights = np.where(raised, round_weights(size, bits[:, None]), floors)
    weights[np.arange(count), rest] = 0
    weights[np.arange(count), rest] = TOTAL - weights.sum(axis=1)
    parent = np.array([rng.integers(0, max(1, i)) for i in range(count)])
    return weights, parent, floors


@given(blocks())
def test_blocks_come_back(block):
    weights, parent, floors = block
    again = decode_block(encode_block(weights, parent, floors), len(parent), floors)
    assert np.array_equal(again, weights)


def test_numbers_of_many_digits_fit_in_no_block():
    row = np.array([[TOTAL // 3, TOTAL // 5, 0]])
    row[0, 2] = TOTAL - row.sum()
    with pytest.raises(FileFormatError, match="a precision"):
        encode_block(row, np.zeros(1, np.int64), np.zeros(3, np.int64))


def one_row(parent=0, bits=10, rest=0, flags=0b11000000, change=b"\x01\x00", parents=None) -> bytes:
    """A block of one row and two outputs by hand: column 1 is stored."""
    return deflate(bytes([parent, bits]) + rest.to_bytes(2, "little") + bytes([flags]) + change)


def test_a_block_by_hand():
    floors = np.array([5, 7])
    assert decode_block(one_row(), 1, floors).tolist() == [[TOTAL - 7, 7]]
    assert decode_block(one_row(change=b"\x01\x02"), 1, floors).tolist() == [[TOTAL - 8, 8]]


@pytest.mark.parametrize(
    ("block", "what"),
    [
        (one_row(bits=47), "a precision"),
        (one_row(rest=2), "the column of a rest"),
        (one_row(change=b"\x01\x0f"), "a weight"),
        (one_row(change=b"\x08" + b"\xfe" * 8), "a weight"),
        (one_row(change=b""), "damaged"),
        (one_row(flags=0), "damaged"),
        (deflate(b"\x00"), "ends early"),
    ],
)
def test_blocks_out_of_range_are_refused(block, what):
    with pytest.raises(FileFormatError, match=what):
        decode_block(block, 1, np.array([5, 7]))


def test_a_row_above_the_whole_is_refused():
    floors = np.array([1, 1, 1])
    highest = (((63 - 0) << 0) - 1) * 2  # the code of 2^62 at 0 bits, less that of the floor
    planes = bytes([1, highest, highest])
    block = deflate(bytes([0, 0, 0, 0, 0b11100000]) + planes)
    with pytest.raises(FileFormatError, match="the sum of a row"):
        decode_block(block, 1, floors)
    parents = deflate(bytes([0, 1, 0, 0, 0, 0, 0, 0, 0]) + bytes([0]))
    with pytest.raises(FileFormatError, match="a parent"):
        decode_block(parents, 2, floors)
