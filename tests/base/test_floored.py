"""Rows over a floor are the array that they stand for, and are refused where they are no rows."""

from __future__ import annotations

import hashlib
import pickle

import numpy as np
import pytest

from panda_mdp.base.arrays import digest
from panda_mdp.base.floored import FlooredRows
from panda_mdp.errors import PrivacyError


def some_table(seed: int = 0, shape: tuple[int, int] = (17, 9)) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    floor = rng.integers(0, 5, shape[1])
    table = np.where(rng.random(shape) < 0.3, rng.integers(0, 100, shape), floor)
    return table, floor


def test_indexes_like_the_array() -> None:
    table, floor = some_table()
    rows = FlooredRows.of(table, floor)
    assert rows.shape == table.shape and len(rows) == len(table)
    assert np.array_equal(np.asarray(rows), table)
    assert np.array_equal(rows[3], table[3]) and np.array_equal(rows[-1], table[-1])
    assert np.array_equal(rows[[5, 5, 0]], table[[5, 5, 0]])
    assert np.array_equal(rows[2:7], table[2:7])
    assert np.array_equal(rows[:, [1, 4]], table[:, [1, 4]])
    assert np.array_equal(np.stack(list(rows)), table)
    assert np.array_equal(rows.any(axis=0), table.any(axis=0))

    exact, nearly = rows.sums()
    assert np.array_equal(exact, table.sum(axis=1)) and np.allclose(nearly, exact)


@pytest.mark.parametrize("records", [40, 3_000_000])
def test_sums_of_rows_in_parts_and_modulo_two_to_the_64(records: int) -> None:
    rng = np.random.default_rng(3)
    table = rng.integers(1 << 61, 1 << 62, (records, 6))
    floor = rng.integers(0, 9, 6)
    low = rng.random(table.shape) < 0.5
    table[low] = np.broadcast_to(floor, table.shape)[low]
    table[7] = floor
    exact, nearly = FlooredRows.of(table, floor).sums()
    true = [sum(map(int, row)) for row in table[:40]]
    assert max(true) > 1 << 63
    assert [int(value) % (1 << 64) for value in exact[:40]] == [v % (1 << 64) for v in true]
    assert np.array_equal(exact, table.sum(axis=1))
    assert np.allclose(nearly, (table >> 31).sum(axis=1) * 2.0**31, rtol=1e-8, atol=1e11)


def test_columns_that_all_rows_store_do_not_count_their_floor() -> None:
    rows = FlooredRows(np.array([7]), np.array([0, 1, 2]), np.array([0, 0]), np.array([0, 0]))
    assert not rows.any(axis=0)[0]


def test_the_digest_is_the_arrays_whatever_is_stored_and_however_large() -> None:
    table, floor = some_table()
    for least in (floor, table[0], table.max(axis=0)):
        assert digest(floor, FlooredRows.of(table, least)) == digest(floor, table)
    # 1 GiB and a little as one array: more than is ever written out at once.
    size, wide = (1 << 13) + 1, 1 << 14
    place = np.arange(size)
    rows = FlooredRows(np.zeros(wide, np.int64), np.arange(size + 1), place, 1 + place)
    state, row = hashlib.sha256(f"<i8({size}, {wide})".encode()), np.zeros(wide, "<i8")
    for x in range(size):
        row[[x - 1, x]] = 0, x + 1
        state.update(row)
    assert digest(rows) == state.hexdigest()


def test_arrays_are_its_own_and_it_pickles() -> None:
    table, floor = some_table()
    mine = floor.copy()
    rows = FlooredRows.of(table, mine)
    mine[:] = 99
    assert np.array_equal(np.asarray(rows), table)
    with pytest.raises(ValueError, match="read-only"):
        rows.values[0] = 1
    again = pickle.loads(pickle.dumps(rows))
    assert np.array_equal(np.asarray(again), table)


@pytest.mark.parametrize(
    ("starts", "columns", "values"),
    [
        ([0, 2, 3], [1, 0, 0], [1, 1, 1]),
        ([0, 2, 3], [1, 1, 0], [1, 1, 1]),
        ([0, 2, 3], [0, 4, 0], [1, 1, 1]),
        ([0, 2, 3], [-1, 1, 0], [1, 1, 1]),
        ([0, 2, 4], [0, 1, 0], [1, 1, 1]),
        ([1, 2, 3], [0, 1, 0], [1, 1, 1]),
        ([0, 3, 2, 3], [0, 1, 0], [1, 1, 1]),
        ([0, 2, 3], [0, 1, 0], [1, 1]),
        ([0], [], []),
    ],
)
def test_what_is_no_rows_is_refused(starts: list, columns: list, values: list) -> None:
    with pytest.raises(PrivacyError):
        FlooredRows(np.ones(4, int), np.array(starts), np.array(columns), np.array(values, int))


def test_empty_rows_are_the_floor() -> None:
    rows = FlooredRows(np.array([2, 3]), np.array([0, 0, 1, 1]), np.array([1]), np.array([9]))
    assert np.asarray(rows).tolist() == [[2, 3], [2, 9], [2, 3]]


@pytest.mark.parametrize("before", [0, 1 << 22])
def test_columns_ascend_in_every_row_however_they_are_looked_at(before: int) -> None:
    """Rows of one entry come first, as many as are looked at in one go, less one and two."""
    for alone in {max(0, before - 1), max(0, before - 2)}:
        floor, values = np.zeros(9, np.int64), np.zeros(alone + 5, np.int64)
        starts = np.concatenate([np.arange(alone), alone + np.array([0, 3, 3, 5])])

        def rows(columns: list[int], alone: int = alone) -> np.ndarray:
            return np.concatenate([np.full(alone, 8), columns])

        FlooredRows(floor, starts, rows([1, 4, 8, 0, 2]), values)
        for columns in ([1, 4, 4, 0, 2], [1, 4, 8, 2, 0], [4, 1, 8, 0, 2]):
            with pytest.raises(PrivacyError, match="not ascending"):
                FlooredRows(floor, starts, rows(columns), values)
