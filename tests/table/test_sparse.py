"""Tables over a floor: the same audit, losses, draws and files as the array they stand for."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from second_checker import in_a_process

import panda_mdp as pm
from panda_mdp.base.floored import FlooredRows
from panda_mdp.compute.pairs import floored_rate
from panda_mdp.errors import PrivacyError
from panda_mdp.privacy.audit import audit_weights
from panda_mdp.privacy.quantise import TOTAL, quantise_floored
from panda_mdp.problem import Problem
from panda_mdp.table.mechanism import Mechanism, NoGuarantee


def floored_problem(size: int = 150, seed: int = 0) -> tuple[Problem, FlooredRows]:
    """A problem of any place, and a private table of it with most entries at a floor."""
    rng = np.random.default_rng(seed)
    domain = pm.Domain.from_points(41.9 + 0.08 * rng.random(size), 12.4 + 0.1 * rng.random(size))
    apart = domain.distances()
    problem = pm.Problem(domain, range(size), apart, 6.0)
    floor = np.full(size, 1e-6)
    table = np.exp(-2.5 * apart)
    for _ in range(50):
        table = np.maximum(table / table.sum(axis=1, keepdims=True), floor)
    raised = table > floor
    starts = np.concatenate([[0], np.cumsum(raised.sum(axis=1))])
    columns = np.nonzero(raised)[1].astype(np.int32)
    return problem, quantise_floored(floor, starts, columns, table[raised])


PROBLEM, ROWS = floored_problem()


def shaken(rows: FlooredRows, record: int) -> FlooredRows:
    """The table with one row that gives a tenth of its largest entry to its least."""
    dense = np.asarray(rows).copy()
    row = dense[record]
    moved = row.max() // 10
    row[row.argmin()] += moved
    row[row.argmax()] -= moved
    return FlooredRows.of(dense, rows.floor)


@pytest.mark.parametrize("compiled", [True, False])
def test_audit_is_the_one_of_the_array(compiled: bool) -> None:
    domain = PROBLEM.domain
    for rows in [ROWS, *(shaken(ROWS, k) for k in (0, 70, 149))]:
        dense = audit_weights(domain, PROBLEM.outputs, np.asarray(rows), 6.0)
        value, x, x2 = floored_rate(domain, rows, compiled=compiled)
        assert value == pytest.approx(dense.epsilon, rel=1e-12)
        assert {x, x2} == set(dense.worst[:2])
        sparse = audit_weights(domain, PROBLEM.outputs, rows, 6.0)
        assert sparse.worst == dense.worst and sparse.holds == dense.holds


@pytest.mark.parametrize("compiled", [True, False])
def test_audit_sees_a_single_entry_over_the_floor(compiled: bool) -> None:
    # One stored entry in a column: the worst partner is a record that stores nothing there.
    domain = PROBLEM.domain
    dense = np.tile(np.full(150, TOTAL // 150), (150, 1))
    dense[:, 0] += TOTAL - dense[0].sum()
    floor = dense[0].copy()
    dense[40, 90] += 1 << 50
    dense[40, 0] -= 1 << 50
    rows = FlooredRows.of(dense, floor)
    value, x, x2 = floored_rate(domain, rows, compiled=compiled)
    near = np.delete(domain.distances([40])[0], 40).min()
    up = np.log(dense[40, 90] / floor[90])
    down = np.log(floor[0] / dense[40, 0])
    assert value == pytest.approx(max(up, down) / near, rel=1e-10)
    assert 40 in (x, x2)


def test_an_output_that_some_never_report_has_no_epsilon() -> None:
    dense = np.asarray(ROWS).copy()
    dense[5, dense[5].argmax()] += dense[5, 100]
    dense[5, 100] = 0
    rows = FlooredRows.of(dense, ROWS.floor)
    verdict = audit_weights(PROBLEM.domain, PROBLEM.outputs, rows, 6.0)
    assert verdict.epsilon == np.inf and verdict.worst[1:] == (5, 100)
    with pytest.raises(PrivacyError):
        Mechanism(PROBLEM, rows, "broken")


def test_a_column_of_zeros_tells_nothing() -> None:
    floor = np.array([TOTAL // 2, TOTAL // 2, 0])
    problem = pm.Problem(pm.Domain.from_vectors([[0.0], [1.0]]), [0, 1], [[0, 1], [1, 0]], 1.0)
    rows = FlooredRows.of(np.tile(floor, (2, 1)), floor)
    assert floored_rate(problem.domain, rows) == (0.0, 0, 1)


def test_a_sparse_mechanism_is_one() -> None:
    table = Mechanism(PROBLEM, ROWS, "floored")
    dense = Mechanism(PROBLEM, np.asarray(ROWS), "floored")
    assert table.audit == dense.audit
    assert table.loss == pytest.approx(dense.loss, rel=1e-13)
    assert table.identity == dense.identity
    assert np.array_equal(table.row(7), dense.row(7))
    assert np.array_equal(table.matrix, dense.matrix)
    assert np.array_equal(table.simulate(3).sample(9, 500), dense.simulate(3).sample(9, 500))
    everyone = np.arange(150)
    assert np.array_equal(table.simulate(3).sample(everyone), dense.simulate(3).sample(everyone))
    again = pickle.loads(pickle.dumps(table))
    assert again.audit == table.audit and isinstance(again.weights, FlooredRows)
    assert isinstance(table.with_details(more=1).weights, FlooredRows)


def test_what_is_not_private_or_no_table_is_refused() -> None:
    with pytest.raises(PrivacyError, match="not 6-mDP"):
        Mechanism(PROBLEM, shaken(ROWS, 3), "broken")
    assert not NoGuarantee(PROBLEM, shaken(ROWS, 3), "broken").audit.holds
    short = replace(ROWS, values=ROWS.values - np.eye(1, ROWS.stored, 9, dtype=np.int64)[0])
    with pytest.raises(PrivacyError, match="sum to 2"):
        Mechanism(PROBLEM, short, "broken")
    negative = replace(ROWS, floor=ROWS.floor - TOTAL)
    with pytest.raises(PrivacyError, match="negative"):
        Mechanism(PROBLEM, negative, "broken")


def test_file_holds_what_is_stored(tmp_path: Path) -> None:
    table = Mechanism(PROBLEM, ROWS, "floored", bound=0.01)
    table.save(tmp_path / "sparse.pmdp")
    again = pm.load(tmp_path / "sparse.pmdp")
    second = in_a_process(tmp_path / "sparse.pmdp")
    assert second.returncode == 0, second.stdout
    assert isinstance(again.weights, FlooredRows)
    for name in ("floor", "starts", "columns", "values"):
        assert np.array_equal(getattr(again.weights, name), getattr(ROWS, name))
    assert again.audit == table.audit and again.loss == table.loss
    assert np.array_equal(again.problem.loss, PROBLEM.loss)
    # Losses that are distances are not written; others are.
    other = Mechanism(replace(PROBLEM, loss=PROBLEM.loss**2), ROWS, "floored")
    other.save(tmp_path / "other.pmdp")
    assert np.array_equal(pm.load(tmp_path / "other.pmdp").problem.loss, PROBLEM.loss**2)
    assert (tmp_path / "other.pmdp").stat().st_size > (tmp_path / "sparse.pmdp").stat().st_size


def test_compact_file_stays_sparse(tmp_path: Path) -> None:
    table = Mechanism(PROBLEM, ROWS, "floored", bound=0.01)
    small = pm.compact(table)
    weights = small.weights
    assert isinstance(weights, FlooredRows) and weights.stored == ROWS.stored
    assert np.array_equal(weights.floor, ROWS.floor)
    assert small.audit.holds and small.loss == pytest.approx(table.loss, rel=1e-3)
    dense = Mechanism(PROBLEM, np.asarray(weights), "floored")
    assert dense.identity == small.identity
    back = pm.load(small.save(tmp_path / "sparse.pmdp"))
    assert isinstance(back.weights, FlooredRows)
    assert back.identity == small.identity
    long = table.save(tmp_path / "long.pmdp").stat().st_size
    assert (tmp_path / "sparse.pmdp").stat().st_size < 0.5 * long


def test_quantising_over_a_floor() -> None:
    problem, rows = floored_problem(60, seed=4)
    assert (rows.sums()[0] == TOTAL).all() and (rows.values >= rows.floor[rows.columns]).all()
    with pytest.raises(PrivacyError, match="sums to"):
        quantise_floored(np.zeros(2), np.array([0, 1]), np.array([0], np.int32), np.array([0.9]))
    with pytest.raises(PrivacyError, match="finite"):
        quantise_floored(np.zeros(2), np.array([0, 1]), np.array([0], np.int32), np.array([np.nan]))
    with pytest.raises(PrivacyError, match="at least one"):
        quantise_floored(np.full(2, 0.5), np.array([0, 0]), np.array([], np.int32), np.array([]))
    assert problem.size == 60
