"""Factored rows against Python's own whole numbers."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from panda_mdp.base.factored import FactoredRows, lattice, power_tables
from panda_mdp.errors import PrivacyError

TOTAL = 1 << 62


def small_rows(**changes: object) -> FactoredRows:
    """Five points and four outputs, two of them with peaks at one record."""
    points = np.array([[0, 0], [3, 4], [10, -7], [200, 5], [-31, 400]])
    given = {
        "points": points,
        "unit_bits": 0,
        "rate": 12345678901,
        "centres": np.array([0, 2, 2, 4]),
        "peaks": np.array([1 << 28, 1 << 27, (1 << 29) + 77, 123456]),
    }
    return FactoredRows(**(given | changes))


def _power(k: int, digits: int) -> int:
    """floor(2^31 2^(-k / 2^digits)), by 40 decimal digits."""
    with localcontext() as context:
        context.prec = 40
        return int(Decimal(2) ** (31 - Decimal(k) / (1 << digits)))


def test_the_tables_are_powers_of_two_rounded_down() -> None:
    for table, digits in zip(power_tables(), (14, 27, 40), strict=True):
        some = [0, 1, 2, 77, len(table) // 2, len(table) - 1]
        assert [int(table[k]) for k in some] == [_power(k, digits) for k in some]


def test_rows_follow_the_law_to_the_last_unit() -> None:
    rows = small_rows()
    expected = reference(rows)
    assert np.asarray(rows).tolist() == expected
    assert rows[3].tolist() == expected[3]
    assert rows[[4, 1]].tolist() == [expected[4], expected[1]]
    assert all(sum(row) == TOTAL for row in expected)


def reference(rows: FactoredRows) -> list[list[int]]:
    """The law of the module's head, in whole numbers of any length."""
    first, second, third = (table.tolist() for table in power_tables())
    out = []
    for point in rows.points.tolist():
        ticks = []
        for other in rows.points.tolist():
            square = sum((a - b) ** 2 for a, b in zip(point, other, strict=True))
            root = math.isqrt(square)
            ticks.append(min(rows.law.reach, root + (root * root < square)))
        row = []
        for c, v in zip(rows.centres.tolist(), rows.peaks.tolist(), strict=True):
            steps = rows.rate * ticks[c]
            part = steps % (1 << 40)
            m = first[part >> 26] * second[(part >> 13) % 8192] >> 31
            m = m * third[part % 8192] >> 31
            row.append(v * m >> (steps >> 40))
        row[row.index(max(row))] += TOTAL - sum(row)
        out.append(row)
    return out


def test_facts_name_the_nearest_two_and_the_largest_rest() -> None:
    rows = small_rows()
    facts = rows.facts
    assert facts.least_square == 25
    assert set(facts.nearest) == {0, 1}
    before = rows.numbers(rows.squares(np.arange(5)))
    ratios = [(TOTAL - int(row.sum())) / int(row.max()) for row in before]
    assert facts.most_rest == pytest.approx(max(ratios), rel=1e-15)


def test_a_row_beyond_the_whole_is_seen() -> None:
    heavy = small_rows(peaks=np.full(4, 1 << 31))
    assert math.isinf(heavy.facts.most_rest)
    # By a hair as well: what is missing of the other rows does not hide it.
    slight = small_rows(peaks=np.array([1 << 28, (1 << 30) + 5, 1 << 30, 123456]))
    sums = slight.numbers(slight.squares(np.arange(5))).sum(axis=1)
    assert (sums > TOTAL).any() and (sums < TOTAL).any() and sums.max() < 1.2 * TOTAL
    assert math.isinf(slight.facts.most_rest)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rate": 0}, "a rate"),
        ({"rate": (34 << 40) + 1}, "a rate"),
        ({"peaks": np.array([1, 1, 0, 1])}, "peaks from 1"),
        ({"peaks": np.array([1, 1, 1, (1 << 31) + 1])}, "peaks from 1"),
        ({"centres": np.array([0, 1, 2, 5])}, "centres that are records"),
        ({"centres": np.array([0, 1, -1, 2])}, "centres that are records"),
        ({"centres": np.array([0, 1, 2])}, "a peak for each output"),
        ({"points": np.array([[0, 0]]), "centres": np.zeros(4, int)}, "two points"),
        ({"points": np.full((5, 2), 1 << 40)}, "exact squares"),
        ({"points": np.zeros((5, 2))}, "whole numbers"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(PrivacyError, match=words):
        small_rows(**changes)


def test_a_lattice_is_as_fine_as_exact_squares_allow() -> None:
    vectors = np.random.default_rng(0).normal(size=(50, 300))
    points, bits = lattice(vectors)
    assert np.abs(np.ldexp(points.astype(float), -bits) - vectors).max() <= 2.0 ** -(bits + 1)
    exact = sum((a - b) ** 2 for a, b in zip(points[0].tolist(), points[1].tolist(), strict=True))
    assert exact < 1 << 52
    rows = FactoredRows(points, bits, 1 << 20, np.arange(50), np.ones(50, dtype=np.int64))
    assert rows.squares(np.array([0]))[0, 1] == exact
