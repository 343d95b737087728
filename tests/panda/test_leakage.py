"""Quantiles of the leakage against enumeration of all sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import panda_mdp as pm
from panda_mdp.panda.leakage import cost_table, leakage

LEAN = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def failure(brute, x: int, x2: int, level: float) -> float:
    """The larger, over the two hypotheses, of Pr[|l| > level], by enumeration."""
    beyond = np.abs(brute.ratio(x, x2)) > level
    return float(max(brute.probabilities[x][beyond].sum(), brute.probabilities[x2][beyond].sum()))


@given(data=st.data())
@LEAN
def test_quantiles_hold_and_do_not_exceed_the_supremum(data, small_cases, brute_force) -> None:
    domain, selection = data.draw(small_cases)
    brute = brute_force(domain, selection)
    law = selection.on(domain)
    delta = data.draw(st.sampled_from([1e-7, 1e-3, 0.1, 0.4]))
    table = cost_table(law, law.all_rows, domain.distances(), delta)
    for x in range(domain.size):
        for x2 in range(x):
            found = leakage(law, x, x2, delta)
            assert failure(brute, x, x2, found + 1e-9) <= delta * (1 + 1e-9)
            assert found <= brute.leakage(x, x2) * (1 + 1e-12)
            assert table[x, x2] == pytest.approx(found, rel=1e-12)


def test_a_bound_on_the_quantile_is_no_more_than_twice_it() -> None:
    """A hundred independent coins: the quantile is about three standard deviations."""
    domain = pm.Domain.from_vectors(np.random.default_rng(0).normal(size=(100, 2)))
    law = pm.BernoulliAnchors("exponential", alpha=0.9, rate=0.5, radius=9.0).on(domain)
    w, w2 = law.dense(np.array([0, 1]))
    coins = np.random.default_rng(1).random((200_000, 100)) < w
    ratios = np.where(coins, np.log(w / w2), np.log((1 - w) / (1 - w2))).sum(axis=1)
    assert np.quantile(np.abs(ratios), 0.99) <= leakage(law, 0, 1, 1e-2)
    assert leakage(law, 0, 1, 1e-2) <= 2 * np.quantile(np.abs(ratios), 0.99)


def test_a_larger_share_of_delta_costs_less() -> None:
    domain = pm.Domain.from_vectors(np.random.default_rng(0).normal(size=(60, 2)))
    law = pm.BernoulliAnchors("exponential", alpha=0.9, rate=0.5, radius=1.5).on(domain)
    found = [leakage(law, 0, 1, delta) for delta in (0.0, 1e-9, 1e-5, 1e-2, 0.2)]
    assert np.all(np.diff(found) < 0)
