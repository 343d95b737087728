"""The one door: rounding is repaired, leaks are not."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from helpers import displacement_problem, random_domain

from panda_mdp import Domain, Mechanism, Problem
from panda_mdp.errors import PrivacyError
from panda_mdp.table.mechanism import FLOOR_SHARE, MAX_SHARE, mix, normalise, release

DOMAIN = Domain.from_vectors([[0.0], [1.0], [30.0]])
PROBLEM = Problem(DOMAIN, [0, 2], np.zeros((3, 2)), epsilon=1.0)


def test_a_private_matrix_passes_as_it_is():
    matrix = np.array([[0.6, 0.4], [0.5, 0.5], [0.4, 0.6]])
    mechanism = release(PROBLEM, matrix, method="m", stages=(("a", 1.0),), details={"n": 1})
    assert isinstance(mechanism, Mechanism)
    assert mechanism.details["uniform_share"] == 0.0
    assert mechanism.details["n"] == 1
    assert [name for name, _ in mechanism.stages] == ["a", "quantise and audit"]
    assert mechanism.seconds > 1.0
    np.testing.assert_allclose(mechanism.matrix, matrix, rtol=1e-15)


def test_rows_need_not_be_normalised():
    matrix = np.array([[6.0, 4.0], [0.05, 0.05], [40.0, 60.0]])
    mechanism = release(PROBLEM, matrix, method="m")
    np.testing.assert_allclose(mechanism.matrix[:, 0], [0.6, 0.5, 0.4], rtol=1e-15)


def test_zeros_are_lifted_by_a_floor():
    matrix = np.array([[1.0, 0.0], [1.0, 0.0], [1e-4, 1 - 1e-4]])
    mechanism = release(PROBLEM, matrix, method="m")
    assert mechanism.details["uniform_share"] == pytest.approx(FLOOR_SHARE)
    assert mechanism.matrix.min() == pytest.approx(FLOOR_SHARE / 2, rel=1e-9)
    assert mechanism.audit.holds


def test_tiny_entries_that_rounding_breaks_are_lifted():
    """Entries of a few units of 2^-62 cannot keep a ratio; a small floor mends it."""
    tail = 1e-17
    matrix = np.array(
        [[1 - tail, tail], [1 - tail * np.exp(0.999), tail * np.exp(0.999)], [0.5] * 2]
    )
    mechanism = release(PROBLEM, matrix, method="m")
    assert 0 < mechanism.details["uniform_share"] <= MAX_SHARE


def test_the_smallest_share_of_the_ladder_is_taken():
    matrix = np.array([[0.6, 0.4], [0.6 / np.e * (1 - 2e-6), 0.0], [0.5, 0.5]])
    matrix[1, 1] = 1 - matrix[1, 0]
    mechanism = release(PROBLEM, matrix, method="m")
    share = mechanism.details["uniform_share"]
    assert share == pytest.approx(FLOOR_SHARE * 10.0 ** round(np.log10(share / FLOOR_SHARE)))
    with pytest.raises(PrivacyError):
        Mechanism.from_matrix(PROBLEM, mix(matrix, share / 10))


@pytest.mark.parametrize(
    "matrix",
    [
        [[0.9, 0.1], [0.1, 0.9], [0.5, 0.5]],
        [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]],
        [[0.5, 0.5], [np.nan, 0.5], [0.5, 0.5]],
        [[0.5, 0.5], [0.0, 0.0], [0.5, 0.5]],
        [[0.5, 0.5], [1.5, -0.5], [0.5, 0.5]],
        # One percent beyond: a floor of 0.7 % would hide it.
        [[0.6, 0.4], [0.6 / np.e * 0.99, 1 - 0.6 / np.e * 0.99], [0.5, 0.5]],
    ],
)
def test_what_is_not_private_is_refused(matrix):
    with pytest.raises(PrivacyError, match="the method gave a matrix that is not private"):
        release(PROBLEM, np.array(matrix), method="the method")


def test_mixing_never_raises_the_audited_epsilon():
    problem = displacement_problem(random_domain("haversine", 30), [0, 10, 20], 3.0)
    matrix = normalise(np.exp(-1.5 * problem.loss))
    rates = [
        Mechanism.from_matrix(problem, mix(matrix, share)).audit.epsilon
        for share in (0.0, 1e-6, 1e-3, 0.1, 0.5, 1.0)
    ]
    assert all(a >= b - 1e-12 for a, b in itertools.pairwise(rates))
    assert rates[-1] == 0.0


def test_mix_with_a_given_row():
    got = mix(np.array([[1.0, 0.0]]), 0.5, np.array([0.25, 0.75]))
    np.testing.assert_allclose(got, [[0.625, 0.375]])


@pytest.mark.parametrize("epsilon", [1e-12, 1e-15, 1e-300])
def test_epsilon_below_rounding_gives_one_row_for_all(epsilon):
    problem = displacement_problem(random_domain("euclidean", 9), [0, 3, 6], epsilon)
    matrix = normalise(np.exp(-epsilon / 2 * problem.loss) * np.array([1.0, 2.0, 3.0]))
    matrix[0, :2] += [1e-15, -1e-15]
    mechanism = release(problem, matrix, method="m")
    assert mechanism.audit.epsilon <= epsilon
    assert mechanism.details.get("common_row") or epsilon == 1e-12
    np.testing.assert_allclose(mechanism.matrix, matrix, rtol=1e-11)


def test_one_row_for_all_may_have_impossible_outputs():
    problem = displacement_problem(random_domain("euclidean", 9), [0, 3, 6], 1e-15)
    matrix = np.tile([0.0, 0.25, 0.75], (9, 1))
    matrix[0, 1:] += [1e-15, -1e-15]
    mechanism = release(problem, matrix, method="m")
    assert mechanism.details["common_row"]
    assert (mechanism.matrix[:, 0] == 0).all(), "no floor where no record reports"


@pytest.mark.parametrize("row", [[0.3, 0.3, 0.4], [0.0, 0.5, 0.5], [1 / 3 + 1e-10, 1 / 3, 1 / 3]])
def test_a_leak_is_never_averaged_away(row):
    """Rows that differ by more than rounding are refused, however small epsilon is."""
    problem = displacement_problem(random_domain("euclidean", 9), [0, 3, 6], 1e-15)
    matrix = np.full((9, 3), 1 / 3)
    matrix[4] = row
    with pytest.raises(PrivacyError, match="not 1e-15-mDP"):
        release(problem, matrix, method="m")


def test_records_too_near_for_rounding_are_named():
    domain = Domain.from_points([41.9, 41.9 + 1e-14, 42.0], [12.4, 12.4, 12.5])
    problem = Problem(domain, [0, 2], np.zeros((3, 2)), epsilon=1e-3)
    matrix = np.array([[0.5, 0.5], [0.5 + 1e-15, 0.5 - 1e-15], [0.501, 0.499]])
    with pytest.raises(PrivacyError, match=r"records [01] and [01].*merge records this near"):
        release(problem, matrix, method="m")


def test_a_floor_above_the_ladder_is_still_tried():
    matrix = np.array([[1.0, 0.0], [1.0, 0.0], [0.9, 0.1]])
    mechanism = release(PROBLEM, matrix, method="m", floor=0.01)
    assert mechanism.details["uniform_share"] == 0.01
