"""Integers that sum exactly, stay close, and are equal where rows are equal."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import panda_mdp.privacy.quantise as quantise_module
from panda_mdp.base.floored import FlooredRows
from panda_mdp.errors import PrivacyError
from panda_mdp.privacy.quantise import BITS, TOTAL, check_weights, quantise


def exact_sums(weights: np.ndarray) -> list[int]:
    return [sum(int(w) for w in row) for row in weights]


def test_bits():
    assert BITS == 62
    assert TOTAL == 2**62


@settings(max_examples=500, deadline=None)
@given(
    st.lists(
        st.one_of(st.just(0.0), st.floats(1e-12, 1.0), st.floats(0.0, 1.0)),
        min_size=1,
        max_size=12,
    ).filter(lambda row: sum(row) > 1e-3)
)
def test_rows_sum_exactly_and_move_little(row):
    values = np.array([row]) / np.sum(row)
    weights = quantise(values)
    assert exact_sums(weights) == [TOTAL]
    total = sum(Fraction(float(z)) for z in values[0])
    for z, w in zip(values[0], weights[0], strict=True):
        exact = Fraction(float(z)) / total * TOTAL
        assert abs(int(w) - exact) <= 2 + exact * Fraction(4, 2**53)
        assert w > 0 or z * TOTAL < 2
        if z == 0:
            assert w == 0


@pytest.mark.parametrize("outputs", [1, 2, 3, 7, 1000, 20_000])
def test_large_rows_sum_exactly(outputs):
    rng = np.random.default_rng(outputs)
    matrix = rng.random((3, outputs)) ** 8
    matrix[2] = 1.0
    matrix /= matrix.sum(axis=1, keepdims=True)
    weights = quantise(matrix)
    assert exact_sums(weights) == [TOTAL] * 3
    assert weights.min() >= 0
    assert np.ptp(weights[2]) <= 512


def test_skewed_rows_sum_exactly():
    matrix = np.zeros((4, 5))
    matrix[0, 2] = 1.0
    matrix[1] = [1 - 4e-300, 1e-300, 1e-300, 1e-300, 1e-300]
    matrix[2] = [1 - 2.0**-52, 2.0**-52, 0, 0, 0]
    matrix[3] = [0.2] * 5
    weights = quantise(matrix)
    assert exact_sums(weights) == [TOTAL] * 4
    assert weights[0].tolist() == [0, 0, TOTAL, 0, 0]
    assert weights[1].tolist() == [TOTAL, 0, 0, 0, 0]


def test_equal_rows_give_equal_integers():
    rng = np.random.default_rng(0)
    row = rng.random(37)
    row /= row.sum()
    matrix = np.tile(row, (50_000, 1))
    weights = quantise(matrix)
    assert (weights == weights[0]).all()
    assert exact_sums(weights[:1]) == [TOTAL]


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        ([[0.5, 0.5], [0.5, 0.4]], "row 1 sums to 0.9"),
        ([[1.5, -0.5]], r"matrix\[0, 1\] is -0.5"),
        ([[0.5, np.nan]], r"matrix\[0, 1\] is nan"),
        ([[np.inf, 0.5]], r"matrix\[0, 0\] is inf"),
    ],
)
def test_refusals(matrix, words):
    with pytest.raises(PrivacyError, match=words):
        quantise(np.array(matrix, dtype=float))


def test_sums_within_the_tolerance_are_scaled():
    weights = quantise(np.array([[0.5, 0.5 + 5e-7]]))
    assert exact_sums(weights) == [TOTAL]
    assert weights[0, 1] / weights[0, 0] == pytest.approx(1 + 1e-6, rel=1e-12)


def test_check_weights_accepts_what_quantise_makes():
    check_weights(quantise(np.array([[0.1, 0.9]])), (1, 2))


def test_rows_over_a_floor_keep_it_and_their_shares():
    rng = np.random.default_rng(5)
    table = rng.dirichlet(np.full(60, 0.05), 80)
    floor = rng.uniform(0, 1e-6, 60)
    table = np.maximum(table, floor)
    table /= table.sum(axis=1, keepdims=True)
    table = np.maximum(table, floor)
    above = table > floor
    starts = np.concatenate([[0], np.cumsum(above.sum(axis=1))])
    columns = np.nonzero(above)[1].astype(np.int32)
    rows = quantise_module.quantise_floored(floor, starts, columns, table[above])
    check_weights(rows, (80, 60))
    stored, off = table[above], np.abs(table.sum(axis=1) - 1).max()
    assert (
        np.abs(rows.values / TOTAL - stored) <= (4 * off + 2.0**-48) * stored + 70 / TOTAL
    ).all()
    assert (rows.values >= rows.floor[columns]).all()
    with pytest.raises(PrivacyError, match="sums to"):
        quantise_module.quantise_floored(floor, starts, columns, 1.1 * table[above])


def test_sums_of_rows_over_a_floor_are_checked():
    """Sums that go round 2^64 are refused as well."""
    floor = np.array([5, 1, 1])
    rows = FlooredRows.of(np.array([[TOTAL - 2, 1, 1], [5, 1, TOTAL - 6]]), floor)
    check_weights(rows, (2, 3))
    with pytest.raises(PrivacyError, match="row 1 do not sum"):
        check_weights(FlooredRows.of(np.array([[TOTAL - 2, 1, 1], [5, 1, 7]]), floor), (2, 3))
    round_it = np.array([[TOTAL, TOTAL, TOTAL, TOTAL, TOTAL]])
    with pytest.raises(PrivacyError, match="row 0 do not sum"):
        check_weights(FlooredRows.of(round_it, np.zeros(5, dtype=np.int64)), (1, 5))
    with pytest.raises(PrivacyError, match="negative"):
        check_weights(FlooredRows.of(np.array([[TOTAL + 1, -1]]), np.zeros(2, np.int64)), (1, 2))
