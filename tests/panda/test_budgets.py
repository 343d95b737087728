"""Coverage, estimated margins and budgets against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import panda_mdp as pm
from panda_mdp.errors import (
    CoverageError,
    MethodError,
    PhaseOneCostError,
    ShortfallError,
)
from panda_mdp.panda.leakage import leakage
from panda_mdp.panda.margins import MarginPlan, candidate_values, nearest_records, uncovered

LEAN = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def problem_on(domain: pm.Domain, epsilon: float = 2.0, prior=None) -> pm.Problem:
    return pm.Problem(domain, [0], np.zeros((domain.size, 1)), epsilon, prior=prior)


def plan_over(problem, selection, anchors, delta=1e-7, **options) -> MarginPlan:
    options = {"neighbours": selection.neighbours} | options
    return MarginPlan.over(problem, selection.on(problem.domain), anchors, delta, **options)


@given(data=st.data())
@LEAN
def test_coverage_is_bayes(data, small_cases) -> None:
    domain, selection = data.draw(small_cases)
    law = selection.on(domain)
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    prior = rng.dirichlet(np.ones(domain.size))
    count = data.draw(st.integers(1, domain.size))
    windows = nearest_records(domain, law.candidates, count)
    found = uncovered(law, law.candidates, windows, prior)
    w = law.dense(np.arange(domain.size))
    for k, a in enumerate(law.candidates):
        inside = range(domain.size) if windows is None else windows[k]
        expected = sum(prior[x] * w[x, a] for x in inside) / (prior @ w[:, a])
        assert 1 - found[k] == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(data=st.data())
@settings(LEAN, max_examples=20)
def test_estimated_margins_are_suprema_over_the_nearest_records(data, tiny_cases) -> None:
    domain, selection = data.draw(tiny_cases)
    law = selection.on(domain)
    delta = data.draw(st.sampled_from([1e-7, 0.05, 0.4, 0.9]))
    count = data.draw(st.integers(1, domain.size))
    problem = problem_on(domain)
    plan = plan_over(problem, selection, law.candidates, delta, neighbours=count)
    windows = nearest_records(domain, plan.anchors, count)
    missing = uncovered(law, plan.anchors, windows, problem.prior)
    everyone = np.arange(domain.size)
    for i in range(len(plan.anchors)):
        for j in range(len(plan.anchors)):
            u = missing[i] + missing[j] - missing[i] * missing[j]
            own = (delta - u) / (1 - u) if u < delta else delta
            if 0 < abs(u - delta) < 1e-9:
                continue
            expected = 0.0
            for x in everyone if windows is None else windows[i]:
                for x2 in everyone if windows is None else windows[j]:
                    found = candidate_values(law, x, x2, problem.epsilon).margin(own)
                    if found == np.inf:
                        # Not reached: the largest candidate, as the plan's text says.
                        values = [
                            problem.epsilon * domain.distance(c, c2) - leakage(law, c, c2)
                            for c in law.candidates
                            if domain.distance(x, c) < law.radius
                            for c2 in law.candidates
                            if domain.distance(x2, c2) < law.radius
                        ]
                        own_value = problem.epsilon * domain.distance(x, x2) - leakage(law, x, x2)
                        found = max(values, default=own_value) - own_value
                    expected = max(expected, found)
            assert plan.margin[i, j] == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(data=st.data())
@LEAN
def test_budgets_follow_from_distance_leakage_and_margin(data, small_cases) -> None:
    domain, selection = data.draw(small_cases)
    law = selection.on(domain)
    plan = plan_over(problem_on(domain), selection, law.candidates, 0.3)
    for i, a in enumerate(plan.anchors):
        for j, b in enumerate(plan.anchors):
            leak = leakage(law, a, b)
            expected = max(0.0, 2.0 * domain.distance(a, b) - leak - plan.margin[i, j])
            expected = 0.0 if i == j else expected
            assert plan.budgets[i, j] == pytest.approx(expected, rel=1e-9, abs=1e-9)
    shares = plan.shares
    assert shares.selection + shares.margin + shares.remaining == pytest.approx(1.0)


def test_what_does_not_fit_is_named_with_number_and_pair() -> None:
    rng = np.random.default_rng(0)
    domain = pm.Domain.from_vectors(rng.normal(size=(60, 2)), unit="km")
    selection = pm.BernoulliAnchors("exponential", radius=0.5)
    error = plan_over(problem_on(domain), selection, [0, 1]).feasibility.failure
    assert isinstance(error, PhaseOneCostError)
    assert isinstance(error, ValueError)
    assert error.value > error.limit == 2.0
    x, x2 = error.pair
    rate = leakage(selection.on(domain), x, x2) / domain.distance(x, x2)
    assert error.value == pytest.approx(rate, rel=1e-12)
    for word in ("Phase I costs", f"records {x} and {x2}", "per km", "calibrate", "optimal("):
        assert word in str(error)
    # With a budget for Phase I the shortfall binds, then the coverage.
    generous = problem_on(domain, epsilon=1e6)
    short = plan_over(generous, selection, [0, 1]).feasibility.failure
    assert isinstance(short, ShortfallError)
    assert "no safety margin suffices" in str(short)
    wide = pm.BernoulliAnchors("exponential", alpha=0.999999, rate=0.01, radius=9.0)
    bare = plan_over(generous, wide, [0, 1], 1e-5).feasibility.failure
    assert isinstance(bare, CoverageError)
    assert "records nearest to anchors" in str(bare)
    # Everything covered: it fits.
    assert plan_over(generous, wide, [0, 1], 1e-5, neighbours=60).feasibility.fits


def test_infeasible_plans_are_refused_before_pairs_are_computed() -> None:
    rng = np.random.default_rng(0)
    domain = pm.Domain.from_vectors(rng.random((4_000, 2)) * 18)
    scheme = pm.BernoulliAnchors(radius=0.4).scheme(problem_on(domain), 1e-7)
    assert isinstance(scheme.failure, PhaseOneCostError)
    assert "budgets" not in vars(scheme)


def test_too_many_anchors_are_refused_with_a_remedy() -> None:
    rng = np.random.default_rng(0)
    domain = pm.Domain.from_vectors(rng.random((9_500, 2)) * 40)
    with pytest.raises(MethodError, match="smaller tail probability"):
        plan_over(problem_on(domain), pm.BernoulliAnchors(), np.arange(9_500))


def test_options_are_checked() -> None:
    with pytest.raises(MethodError, match="neighbours"):
        pm.BernoulliAnchors(neighbours=0)
