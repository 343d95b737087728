"""Quantiles of the leakage against enumeration of all sets."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import panda_mdp as pm
from panda_mdp.panda.leakage import cost_table, leakage, quantile

LEAN = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def failure(brute, x: int, x2: int, level: float) -> float:
    """The larger, over the two hypotheses, of Pr[|l| > level], by enumeration."""
    beyond = np.abs(brute.ratio(x, x2)) > level
    return float(max(brute.probabilities[x][beyond].sum(), brute.probabilities[x2][beyond].sum()))


@given(data=st.data())
@LEAN
def test_quantiles_hold_and_are_the_least_that_do(data, small_cases, brute_force) -> None:
    domain, selection = data.draw(small_cases)
    brute = brute_force(domain, selection)
    law = selection.on(domain)
    delta = data.draw(st.sampled_from([1e-7, 1e-3, 0.1, 0.4]))
    table = cost_table(law, law.all_rows, domain.distances(), delta)
    for x in range(domain.size):
        for x2 in range(x):
            found = leakage(law, x, x2, delta)
            assert failure(brute, x, x2, found + 1e-9) <= delta * (1 + 1e-9)
            if found > 1e-6:
                assert failure(brute, x, x2, found - 1e-7) > delta * (1 - 1e-9)
            # Chernoff's bound over all pairs is above the quantile and below the supremum.
            assert found - 1e-9 <= table[x, x2] <= brute.leakage(x, x2) * (1 + 1e-12)


@given(data=st.data())
@LEAN
def test_a_grid_gives_an_upper_bound_and_a_close_one(data, small_cases) -> None:
    domain, selection = data.draw(small_cases)
    law = selection.on(domain)
    w = law.dense(np.arange(domain.size))[:, law.candidates]
    x, x2 = 0, domain.size - 1
    differ = w[x] != w[x2]
    if not differ.any():
        return
    mine, other = w[x][differ], w[x2][differ]
    grid = 64
    jumps = np.abs(np.log(mine / other) - np.log((1 - mine) / (1 - other))).sum()
    room = len(mine) * jumps / grid
    for delta in (1e-7, 1e-2, 0.3):
        exact = quantile(mine, other, delta)
        bound = quantile(mine, other, delta, grid)
        # The grid may also move a set across delta's step, hence the next value above.
        assert bound >= exact - 1e-9
        assert bound <= quantile(mine, other, delta * (1 - 1e-9)) + room + 1e-9


def test_many_candidates_go_through_the_grid() -> None:
    domain = pm.Domain.from_vectors(np.random.default_rng(0).normal(size=(60, 2)))
    law = pm.BernoulliAnchors("exponential", alpha=0.9, rate=0.5, radius=1.5).on(domain)
    found = [leakage(law, 0, 1, delta) for delta in (0.0, 1e-9, 1e-5, 1e-2, 0.2)]
    assert np.all(np.diff(found) < 0)
