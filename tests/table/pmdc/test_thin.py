"""Floors and rounding: what they cost, and that they keep what docs/format.md proves."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import displacement_problem, domains, random_domain
from hypothesis import given
from hypothesis import strategies as st

from panda_mdp import Domain, Mechanism, NoGuarantee, Problem, exponential, optimal, remap
from panda_mdp.errors import MethodError, MissingDependencyError, PrivacyError
from panda_mdp.methods.exponential import softmax
from panda_mdp.privacy.quantise import TOTAL
from panda_mdp.table.mechanism import judged
from panda_mdp.table.pmdc.thin import fill, thin


@pytest.fixture(scope="module")
def tight() -> Mechanism:
    """A table that uses its whole epsilon."""
    domain = random_domain("haversine", 80)
    return optimal(displacement_problem(domain, np.arange(0, 80, 4), 0.5), gap=0.02)


@given(st.integers(0, 10**6), st.sampled_from([1e-6, 1e-3, 0.1]))
def test_fill_is_the_table_raised_to_the_floor(seed, share):
    rng = np.random.default_rng(seed)
    table = rng.dirichlet(np.full(5, 0.2), size=4)
    floor = share * rng.dirichlet(np.ones(5))
    filled, above = fill(table, floor)
    assert filled.sum(axis=1) == pytest.approx(1, abs=1e-14)
    assert (filled >= floor).all()
    assert np.array_equal(filled == floor, ~above)
    scale = np.where(above, filled / table, np.nan)
    assert (np.nanmax(scale, axis=1) <= 1 + 1e-15).all()
    assert np.nanmax(scale, axis=1) == pytest.approx(np.nanmin(scale, axis=1), rel=1e-14)


@given(domains(smallest=3), st.integers(0, 10**6), st.sampled_from([1e-4, 1e-2]))
def test_the_floor_takes_no_more_than_its_share_of_epsilon(domain, seed, share):
    rng = np.random.default_rng(seed)
    between = domain.distances()
    table = softmax(-between / between.max() * rng.uniform(0.1, 20.0))
    floor = share * rng.dirichlet(np.ones(domain.size))
    pairs = np.triu_indices(domain.size, 1)

    def rate(z):
        logs = np.log(z)
        return (np.abs(logs[:, None] - logs).max(axis=2)[pairs] / between[pairs]).max()

    beta = floor.sum()
    limit = rate(table) * (1 + beta / (1 - beta))
    assert rate(fill(table, floor)[0]) <= limit + 1e-12 / between[pairs].min()


def test_rows_are_floors_short_numbers_and_a_rest(tight):
    result = thin(tight, 1e-3, 1e-2)
    rows, weights = result.rows, result.mechanism.weights
    assert result.mechanism.audit.holds
    assert (weights.sum(axis=1) == TOTAL).all()
    assert np.array_equal(
        weights[~rows.raised], np.broadcast_to(result.floors, weights.shape)[~rows.raised]
    )
    assert rows.raised[np.arange(80), rows.rest].all()
    for x in range(80):
        for y in np.flatnonzero(rows.raised[x]):
            digits = int(weights[x, y]).bit_length()
            zeros = (int(weights[x, y]) & -int(weights[x, y])).bit_length() - 1
            assert y == rows.rest[x] or digits - zeros <= rows.bits[x] + 1


@pytest.mark.parametrize("cost", [1e-4, 1e-3, 1e-2])
def test_the_floor_costs_no_more_than_it_may(tight, cost):
    # At a larger epsilon the table has slack, so the floor is all that it pays for.
    loose = Mechanism.from_matrix(tight.problem.with_epsilon(0.6), tight.matrix)
    result = thin(loose, 1e-2, cost)
    assert result.slack == 1e-2
    assert result.mechanism.loss <= loose.loss * (1 + cost + 1e-4)
    assert result.floors.sum() / TOTAL <= 1e-2 / 4


def test_a_tight_table_pays_for_slack(tight):
    result = thin(tight, 1e-3, 1e-3)
    assert tight.audit.epsilon > 0.5 * (1 - 1e-3)
    assert tight.lower_bound <= result.mechanism.loss <= tight.loss * 1.005
    assert result.mechanism.lower_bound == tight.lower_bound
    assert dict(result.mechanism.stages)["thin"] > 0


def test_higher_floors_leave_fewer_entries(tight):
    shares = [thin(tight, 1e-2, cost).rows.raised.mean() for cost in (1e-5, 1e-3, 1e-1)]
    assert shares[0] > shares[1] > shares[2]


def test_equal_rows_stay_equal():
    domain = Domain.from_vectors([[0.0], [0.001], [1.0], [3.0]])
    problem = displacement_problem(domain, [0, 2, 3], 1.0)
    matrix = np.array([[0.6, 0.3, 0.1], [0.6, 0.3, 0.1], [0.5, 0.4, 0.1], [0.5, 0.3, 0.2]])
    result = thin(Mechanism.from_matrix(problem, matrix), 1e-2, 1e-3)
    assert np.array_equal(result.mechanism.weights[0], result.mechanism.weights[1])
    assert result.rows.bits[0] == result.rows.bits[1] >= result.rows.bits[2]


def test_outputs_that_are_never_used_stay_at_zero():
    domain = random_domain("euclidean", 30)
    mechanism = remap(exponential(displacement_problem(domain, np.arange(30), 1.0)))
    unused = ~mechanism.weights.any(axis=0)
    assert unused.any()
    result = thin(mechanism, 1e-3, 1e-3)
    assert not result.mechanism.weights[:, unused].any()
    assert not result.floors[unused].any()


@pytest.mark.parametrize("apart", [1e-3, 1e-6, 1e-8])
def test_near_duplicates_keep_their_guarantee(apart):
    rng = np.random.default_rng(0)
    points = rng.uniform(0, 3, (20, 2))
    domain = Domain.from_vectors(np.concatenate([points, points + np.array([apart, 0])]))
    problem = displacement_problem(domain, np.arange(0, 20, 2), 2.0)
    result = thin(optimal(problem, gap=0.05, time_limit=3), 1e-3, 1e-3)
    assert result.mechanism.audit.holds


def test_far_records_are_not_rounded_away():
    domain = Domain.from_vectors([[0.0], [1e6], [2e6]])
    problem = displacement_problem(domain, [0, 1, 2], 1.0)
    mechanism = Mechanism.from_matrix(problem, [[0.5, 0.3, 0.2], [0.2, 0.6, 0.2], [0.1, 0.1, 0.8]])
    result = thin(mechanism, 0.4, 1e-6)
    assert np.abs(result.mechanism.matrix - mechanism.matrix).max() < 2**-8


def test_a_loss_of_nothing_has_no_floor():
    domain = Domain.from_vectors([[0.0], [1.0]])
    problem = Problem(domain, [0, 1], np.zeros((2, 2)), 1.0)
    result = thin(Mechanism.from_matrix(problem, [[0.6, 0.4], [0.5, 0.5]]), 1e-3, 1e-3)
    assert not result.floors.any()
    assert result.mechanism.loss == 0


@pytest.mark.parametrize(("slack", "cost"), [(0, 1e-3), (0.5, 1e-3), (1e-3, -1), (1e-3, np.nan)])
def test_shares_out_of_range_are_refused(tight, slack, cost):
    with pytest.raises(MethodError, match=r"between 0 and 0\.5"):
        thin(tight, slack, cost)


def test_records_too_near_for_rounding_need_equal_rows():
    # At 1e-13 nats even the audit's own rounding decides: only equal rows pass.
    domain = Domain.from_vectors([[0.0], [1e-13], [1.0]])
    problem = displacement_problem(domain, [0, 2], 1.0)
    loose = Mechanism.from_matrix(problem, [[0.5, 0.5], [0.5, 0.5], [0.3, 0.7]])
    assert thin(loose, 1e-3, 1e-3).mechanism.audit.holds
    most = 0.1 * np.exp(1 - 1e-6)
    tight = Mechanism.from_matrix(problem, [[0.1, 0.9], [0.1, 0.9], [most, 1 - most]])
    with pytest.raises(PrivacyError, match="merge records"):
        thin(tight, 1e-3, 1e-3)


def test_slack_is_doubled_until_the_audit_holds(tight, monkeypatch):
    refusals = [2]

    def strict(problem, weights, method, **facts):
        refusals[0] -= 1
        if refusals[0] < 0:
            return judged(problem, weights, method, **facts)
        facts.pop("lower_bound")
        return NoGuarantee(problem, weights, method, **facts)

    monkeypatch.setattr("panda_mdp.table.pmdc.thin.judged", strict)
    assert thin(tight, 1e-3, 1e-3).slack == 4e-3
    refusals[0] = 9
    with pytest.raises(PrivacyError, match=r"allow more slack than 0\.001"):
        thin(tight, 1e-3, 1e-3)


def test_without_numba_a_tight_table_says_what_is_missing(tight, without_numba):
    with pytest.raises(MissingDependencyError, match="numba"):
        thin(tight, 1e-3, 1e-3)
