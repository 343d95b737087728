"""Exact counts and subsets, by enumeration of the bits where possible."""

from __future__ import annotations

from itertools import product
from math import comb

import numpy as np
import pytest

from panda_mdp.panda.selection import draws
from panda_mdp.privacy.quantise import BITS, TOTAL
from panda_mdp.privacy.sampler import SeededBits, SystemBits


class Script:
    """Random integers from a list; counts what was asked for."""

    def __init__(self, words: list[int]) -> None:
        self.words = list(words)

    def integers(self, count: int) -> np.ndarray:
        taken, self.words = self.words[:count], self.words[count:]
        return np.array(taken, dtype=np.int64)


def test_ones_counts_only_the_bits_that_were_asked_for() -> None:
    full = TOTAL - 1
    for count in (0, 1, 61, 62, 63, 200):
        assert draws.ones(count, Script([full] * 10)) == count
        assert draws.ones(count, Script([0] * 10)) == 0


def test_a_coin_succeeds_for_exactly_its_numerator_of_words() -> None:
    """A coin of 3 / 2^62 succeeds for the words 0, 1 and 2, not for 3."""
    probabilities = np.full(5, 3 * 2.0**-62)
    found = draws.flip(probabilities, Script([0, 1, 2, 3, TOTAL - 1]))
    assert found.tolist() == [True, True, True, False, False]


@pytest.mark.parametrize("numerator", [1, 2, 5, TOTAL // 2 + 2**10])
def test_one_counted_coin_succeeds_for_exactly_its_numerator_of_words(numerator) -> None:
    """The word bit by bit from the top: below the numerator it succeeds, to the last bit."""
    for word in (0, numerator - 1, numerator, numerator + 1, TOTAL - 1):
        bits = [(word >> level & 1) << (BITS - 1) for level in range(BITS - 1, -1, -1)]
        assert draws.binomial(1, numerator / TOTAL, Script(bits)) == int(word < numerator)


def test_binomial_is_exact_by_enumeration() -> None:
    """Probability 5/8: three levels of bits decide; all equally likely scripts are counted."""
    probability = 5 / 8
    coins = 3

    def run(bits: tuple[int, ...]) -> tuple[int, int]:
        """The algorithm with `ones` fed bit by bit; returns successes and bits used."""
        used = 0

        class Feed:
            def integers(self, count: int) -> np.ndarray:
                nonlocal used
                want = self.want
                value = 0
                for _ in range(want):
                    value = value << 1 | bits[used]
                    used += 1
                return np.array([value << (BITS - want)], dtype=np.int64)

        feed = Feed()
        original = draws.ones

        def ones(count: int, source: object) -> int:
            feed.want = count
            return original(count, source)

        draws.ones = ones
        try:
            return draws.binomial(coins, probability, feed), used
        finally:
            draws.ones = original

    # Below the third level p has only zeros: an undecided coin fails at last. Enumerating nine
    # bits decides all coins but those with u = 5/8 exactly, which fail too; pad with zeros.
    counts = np.zeros(coins + 1)
    for bits in product((0, 1), repeat=9):
        successes, _ = run((*bits, *([0] * coins * BITS)))
        counts[successes] += 1
    expected = [comb(coins, k) * 5**k * 3 ** (coins - k) for k in range(coins + 1)]
    assert counts.tolist() == expected


@pytest.mark.parametrize("probability", [2.0**-62, 1e-4, 0.5, 0.95, 1 - 2.0**-53])
def test_binomial_has_the_right_mean_and_variance(probability) -> None:
    bits, n, repeats = SystemBits(), 2_000, 300
    counts = [draws.binomial(n, probability, bits) for _ in range(repeats)]
    mean, variance = n * probability, n * probability * (1 - probability)
    assert abs(np.mean(counts) - mean) <= 6 * np.sqrt(variance / repeats) + 1e-9
    assert all(0 <= count <= n for count in counts)


def test_subsets_are_uniform() -> None:
    bits = SeededBits(5)
    counts: dict[tuple[int, ...], int] = {}
    for _ in range(6_000):
        key = tuple(draws.subset(6, 3, bits).tolist())
        counts[key] = counts.get(key, 0) + 1
    expected = 6_000 / comb(6, 3)
    assert len(counts) == comb(6, 3)
    # chi-square with 19 degrees of freedom at 1e-6: 61
    assert sum((found - expected) ** 2 / expected for found in counts.values()) < 61


@pytest.mark.parametrize(("size", "count"), [(1, 0), (1, 1), (10, 10), (1000, 999), (1000, 7)])
def test_subsets_have_the_size_that_was_asked_for(size, count) -> None:
    found = draws.subset(size, count, SystemBits())
    assert len(found) == count
    assert len(np.unique(found)) == count
    assert np.all((found >= 0) & (found < size))


def test_uniform_integers_reject_the_uneven_rest() -> None:
    limit = 3
    usable = TOTAL - TOTAL % limit
    assert draws.below(limit, 2, Script([usable, 4, 5])).tolist() == [1, 2]


def test_quantised_probabilities_are_exact_in_float() -> None:
    values = np.array([0.0, 1e-30, 2.0**-62, 1e-5, 0.3, 0.95, 1 - 2.0**-53, 1.0])
    found = draws.quantise_probability(values)
    integers = draws.numerators(found)
    assert np.array_equal(integers.astype(object) / TOTAL, found.astype(object))
    assert integers.min() == 1
    assert integers.max() < TOTAL
