"""The chosen epsilon meets the wish and its neighbours do not."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import displacement_problem, random_domain

import panda_mdp as pm
from panda_mdp.errors import MethodError


@pytest.fixture(scope="module")
def problem():
    return displacement_problem(random_domain("haversine", 16, seed=9), range(16), 1.0)


def test_odds_are_a_promise_for_every_pair(problem):
    choice = pm.choose_epsilon(problem, within=0.2, odds=4)
    assert choice.epsilon == pytest.approx(np.log(4) / 0.2)
    assert [point.epsilon / choice.epsilon for point in choice.curve] == [0.25, 0.5, 1, 2, 4]
    for point in choice.curve:
        assert point.lower_bound <= point.loss <= choice.constant_loss * (1 + 1e-9)
        at = problem.with_epsilon(point.epsilon)
        assert point.loss <= pm.exponential(at, tight=True).loss * 1.02
        assert f"{point.loss:.4g}  {point.lower_bound:12.4g}" in choice.text
        assert point.error <= choice.prior_error * (1 + 1e-9)
    assert "4 to 1" in choice.text


def test_a_loss_is_met_and_a_smaller_epsilon_could_not(problem):
    choice = pm.choose_epsilon(problem, loss=2.0)
    at = choice.curve[2]
    assert at.loss <= 2.0
    # Within the gap of the solver and the width of the last bracket.
    below = pm.optimal(problem.with_epsilon(0.9 * choice.epsilon), gap=0.02)
    assert below.loss > 2.0


def test_an_error_is_met_and_a_larger_epsilon_could_not(problem):
    choice = pm.choose_epsilon(problem, error=2.0)
    assert choice.curve[2].error >= 2.0 * (1 - 1e-9)
    assert pm.attack(pm.optimal(problem.with_epsilon(1.1 * choice.epsilon), gap=0.02)).error < 2.0


def test_the_ends_are_named(problem):
    tiny = pm.choose_epsilon(problem, within=100.0, odds=1.01)
    assert "worthless" in tiny.verdict
    bare = pm.choose_epsilon(problem, within=0.01, odds=20)
    assert "protects nothing" in bare.verdict


def test_wishes_that_cannot_be_or_are_not_one(problem):
    with pytest.raises(MethodError, match="no epsilon meets this error"):
        pm.choose_epsilon(problem, error=1000.0)
    with pytest.raises(MethodError, match="0 wishes"):
        pm.choose_epsilon(problem)
    with pytest.raises(MethodError, match="2 wishes"):
        pm.choose_epsilon(problem, loss=1.0, error=1.0)
    with pytest.raises(MethodError, match="belong together"):
        pm.choose_epsilon(problem, odds=4)
    with pytest.raises(MethodError, match="odds is 1"):
        pm.choose_epsilon(problem, within=1.0, odds=1)
    with pytest.raises(MethodError, match="loss is -1"):
        pm.choose_epsilon(problem, loss=-1)
