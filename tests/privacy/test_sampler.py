"""Draws have exactly the audited probabilities."""

from __future__ import annotations

import secrets

import numpy as np
import pytest
from helpers import displacement_problem, random_domain
from scipy.stats import chisquare

from panda_mdp import exponential
from panda_mdp.privacy.quantise import TOTAL, SeededBits, SystemBits, choose, choose_rows, quantise


@pytest.mark.parametrize(
    "row",
    [[4, 2, 1, 1], [0, 8], [8, 0], [0, 0, 16, 0], [1] * 16, [0, 3, 0, 0, 5, 0], [64]],
)
def test_every_uniform_value_enumerated(row):
    """Each output is chosen by exactly as many values of the uniform integer as its weight."""
    weights = np.array(row)
    chosen = choose(weights, np.arange(weights.sum()))
    assert np.bincount(chosen, minlength=len(row)).tolist() == row


def test_intervals_of_full_rows_have_the_weights_as_lengths():
    """On 62 bits: the first and last value of each interval select it, and lengths are weights."""
    rng = np.random.default_rng(0)
    matrix = rng.random((20, 9)) ** 6
    matrix[:, 4] = 0
    weights = quantise(matrix / matrix.sum(axis=1, keepdims=True))
    for row in weights:
        edges = [0]
        for w in row.tolist():
            edges.append(edges[-1] + w)
        assert edges[-1] == TOTAL
        for y, w in enumerate(row.tolist()):
            if w:
                assert choose(row, np.array([edges[y], edges[y + 1] - 1])).tolist() == [y, y]
        assert choose(row, np.array([0])).tolist() == [int(np.flatnonzero(row)[0])]
        assert choose(row, np.array([TOTAL - 1])).tolist() == [int(np.flatnonzero(row)[-1])]


def test_system_bits_are_62_bits_of_the_operating_system(monkeypatch):
    asked = []

    def token_bytes(count: int) -> bytes:
        asked.append(count)
        return bytes(range(1, count + 1))

    monkeypatch.setattr(secrets, "token_bytes", token_bytes)
    got = SystemBits().integers(2)
    assert asked == [16]
    words = [int.from_bytes(bytes(range(s, s + 8)), "little") for s in (1, 9)]
    assert got.tolist() == [word % TOTAL for word in words]


def test_system_bits_use_every_bit():
    values = SystemBits().integers(4000)
    assert values.min() >= 0
    assert values.max() < TOTAL
    ones = [(int(np.bitwise_or.reduce(values)) >> b) & 1 for b in range(62)]
    zeros = [(int(np.bitwise_and.reduce(values)) >> b) & 1 for b in range(62)]
    assert all(ones)
    assert not any(zeros)


def test_seeded_bits_repeat_and_hide_the_seed():
    np.testing.assert_array_equal(SeededBits(31337).integers(9), SeededBits(31337).integers(9))
    assert "31337" not in repr(SeededBits(31337))
    assert SeededBits(0).integers(1000).max() < TOTAL


def test_chi_square_of_a_million_draws():
    """Draws of the operating system's generator fit the audited row at significance 1e-6."""
    domain = random_domain("haversine", 60)
    mechanism = exponential(displacement_problem(domain, np.arange(0, 60, 3), 0.3))
    row = mechanism.matrix[17]
    assert row.min() * 1e6 > 100, "every cell is well filled"
    draws = mechanism.sample(17, 10**6)
    counts = np.bincount(draws, minlength=60)[mechanism.problem.outputs]
    assert counts.sum() == 10**6
    assert chisquare(counts, row / row.sum() * 10**6).pvalue > 1e-6


def test_chi_square_would_notice_a_percent():
    """The test above has the power to fail: a row that is off by a percent does not pass it."""
    domain = random_domain("haversine", 60)
    mechanism = exponential(displacement_problem(domain, np.arange(0, 60, 3), 0.3))
    row = mechanism.matrix[17] * np.where(np.arange(20) % 2, 1.01, 0.99)
    draws = mechanism.simulate(0).sample(17, 10**6)
    counts = np.bincount(draws, minlength=60)[mechanism.problem.outputs]
    assert chisquare(counts, row / row.sum() * 10**6).pvalue < 1e-6


def test_sampling_never_touches_floats():
    """No matrix of floats is formed on the way to a draw."""
    mechanism = exponential(displacement_problem(random_domain("euclidean", 8), [0, 3], 1.0))
    fresh = type(mechanism)(mechanism.problem, mechanism.weights, mechanism.method)
    fresh.sample(2, 10)
    assert "matrix" not in vars(fresh)


def test_every_record_draws_from_its_own_row():
    """Rows that are certain of one output each, asked for in any order, some more than once."""
    certain = np.eye(5, dtype=np.int64) * TOTAL
    rows = np.array([3, 0, 2, 0, 4, 1, 3, 3])
    np.testing.assert_array_equal(choose_rows(certain, rows, SystemBits()), rows)
