"""Draws from integer weights with the operating system's generator.

A row sums to 2^62, so 62 random bits u select output y exactly when
w_1 + .. + w_(y-1) <= u < w_1 + .. + w_y. The sums are exact integers; no float is involved, and the
probabilities are the audited ones to the last bit.
"""

from __future__ import annotations

import secrets
from typing import Protocol

import numpy as np

from panda_mdp.base.arrays import IntArray
from panda_mdp.base.floored import Weights
from panda_mdp.privacy.quantise import TOTAL

ROWS_TOGETHER = 64
"""Rows that are taken at a time: those that are computed are so in one matrix product."""


class BitSource(Protocol):
    """Where random bits come from."""

    def integers(self, count: int) -> IntArray:
        """`count` independent uniform integers in [0, 2^62)."""


class SystemBits:
    """The operating system's generator, through `secrets`."""

    def integers(self, count: int) -> IntArray:
        """Uniform integers in [0, 2^62)."""
        raw = np.frombuffer(secrets.token_bytes(8 * count), dtype="<u8")
        return (raw & np.uint64(TOTAL - 1)).astype(np.int64)


class SeededBits:
    """A seeded generator for simulations. Its draws are predictable: never release them."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def integers(self, count: int) -> IntArray:
        """Uniform integers in [0, 2^62)."""
        return self._generator.integers(0, TOTAL, size=count, dtype=np.int64)

    def __repr__(self) -> str:
        return "SeededBits(seed=<hidden>)"


class GivenBits:
    """Words that were made elsewhere: at each call the next ones."""

    def __init__(self, *words: IntArray) -> None:
        self._words = list(words)

    def __repr__(self) -> str:
        return "GivenBits(<hidden>)"

    def integers(self, count: int) -> IntArray:
        """The next `count` integers, which were given together."""
        words = self._words.pop(0)
        if len(words) != count:
            raise ValueError("another number of words was given")
        return words


def choose(weights: IntArray, uniforms: IntArray) -> IntArray:
    """The column that each uniform integer in [0, 2^62) selects."""
    # Exact sums: entry y is the first u that is beyond output y.
    beyond = np.cumsum(weights, dtype=np.int64)
    return np.searchsorted(beyond, uniforms, side="right").astype(np.int64)


def choose_rows(weights: Weights, rows: IntArray, bits: BitSource) -> IntArray:
    """A column for each of `rows` of a K x m table, drawn independently; rows may repeat.

    Rows are taken in order, so that each one's sums are formed once.
    """
    uniforms = bits.integers(len(rows))
    order = np.argsort(rows, kind="stable")
    columns = np.empty(len(rows), dtype=np.int64)
    wanted, starts = np.unique(rows[order], return_index=True)
    ends = np.append(starts, len(rows))[1:]
    for first in range(0, len(wanted), ROWS_TOGETHER):
        some = slice(first, first + ROWS_TOGETHER)
        block = weights[wanted[some]]
        for row, start, end in zip(block, starts[some].tolist(), ends[some].tolist(), strict=True):
            places = order[start:end]
            columns[places] = choose(row, uniforms[places])
    return columns
