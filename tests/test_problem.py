"""Problems: everything is checked once, and every refusal names value, rule and remedy."""

from __future__ import annotations

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp import Domain, Problem
from panda_mdp.errors import DomainError, PandaError, ProblemError, ScaleWarning

DOMAIN = Domain.from_vectors([[0.0], [1.0], [2.0]], unit="m")
LOSS = [[0.0, 2.0], [1.0, 1.0], [2.0, 0.0]]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"domain": [0, 1, 2]}, ["list", "panda_mdp.Domain"]),
        ({"outputs": []}, ["empty", "at least one"]),
        ({"outputs": [0, 3]}, ["outputs[1] is 3", "0..2"]),
        ({"outputs": [0, -1]}, ["outputs[1] is -1", "0..2"]),
        ({"outputs": [0, 0]}, ["output 0 is named 2 times", "once"]),
        ({"outputs": [0.5, 1]}, ["whole numbers"]),
        ({"loss_unit": "m\nhas no loss"}, ["control characters", "leave them out"]),
        ({"loss": np.transpose(LOSS)}, ["(2, 3)", "(3, 2)", "transpose"]),
        ({"loss": [[0.0, 1.0]]}, ["(1, 2)", "(3, 2)"]),
        ({"loss": [[0, 2], [1, -1], [2, 0]]}, ["loss[1, 1] is -1.0", "not negative"]),
        ({"loss": [[0, 2], [1, 1], [np.inf, 0]]}, ["loss[2, 0] is inf", "large finite loss"]),
        ({"loss": [[0, np.nan], [1, 1], [2, 0]]}, ["loss[0, 1] is nan", "finite"]),
        ({"epsilon": 0.0}, ["epsilon is 0.0", "positive"]),
        ({"epsilon": -1}, ["epsilon is -1", "positive"]),
        ({"epsilon": np.nan}, ["epsilon is nan", "positive"]),
        ({"epsilon": np.inf}, ["epsilon is inf", "finite"]),
        ({"epsilon": "five"}, ["epsilon is 'five'", "per unit of distance"]),
        ({"epsilon": None}, ["epsilon is None"]),
        ({"prior": [0.5, 0.5]}, ["(2,)", "(3,)"]),
        ({"prior": [0.7, 0.5, -0.2]}, ["prior[2] is -0.2", "not negative"]),
        ({"prior": [0.5, np.nan, 0.5]}, ["prior[1] is nan", "finite"]),
        ({"prior": [0.5, 0.5, 0.5]}, ["sums to 1.5", "divide it by its sum"]),
    ],
)
def test_refusals(changes, words):
    given = {"domain": DOMAIN, "outputs": [0, 2], "loss": LOSS, "epsilon": 1.0, **changes}
    with pytest.raises(ProblemError) as caught:
        Problem(**given)
    for word in words:
        assert word in str(caught.value)


def test_defaults_and_units():
    problem = Problem(DOMAIN, [0, 2], LOSS, 1)
    assert problem.prior.tolist() == [1 / 3] * 3
    assert problem.prior_source == "uniform"
    assert problem.loss_unit == "m"
    assert (problem.size, problem.outputs_count, problem.epsilon) == (3, 2, 1.0)
    assert repr(problem) == "Problem(K=3, m=2, epsilon=1 per m)"
    other = Problem(DOMAIN, [0, 2], LOSS, 1, prior=[0.2, 0.3, 0.5], loss_unit="minutes")
    assert (other.prior_source, other.loss_unit) == ("given", "minutes")


def test_expected_loss_and_single_output():
    problem = Problem(DOMAIN, [0, 2], LOSS, 1.0, prior=[0.5, 0.25, 0.25])
    matrix = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    assert problem.expected_loss(matrix) == 0.25
    np.testing.assert_array_equal(problem.weighted_loss, [[0, 1], [0.25, 0.25], [0.5, 0]])
    assert problem.best_single_output == 0


def test_inputs_are_copied_and_frozen():
    loss = np.array(LOSS)
    problem = Problem(DOMAIN, [0, 2], loss, 1.0)
    loss[0, 0] = 9.0
    assert problem.loss[0, 0] == 0.0
    for array in (problem.loss, problem.prior, problem.outputs, problem.weighted_loss):
        assert not array.flags.writeable


def test_with_epsilon_keeps_the_rest():
    problem = Problem(DOMAIN, [0, 2], LOSS, 1.0, prior=[0.2, 0.3, 0.5], prior_source="survey")
    other = problem.with_epsilon(3.0)
    assert (other.epsilon, other.prior_source) == (3.0, "survey")
    np.testing.assert_array_equal(other.prior, problem.prior)
    with pytest.raises(ProblemError, match="epsilon is -3"):
        problem.with_epsilon(-3)


def test_prior_is_normalised_once():
    rough = Problem(DOMAIN, [0, 2], LOSS, 1.0, prior=np.array([0.2, 0.3, 0.5]) * (1 + 5e-10)).prior
    assert abs(rough.sum() - 1) < 1e-15
    again = Problem(DOMAIN, [0, 2], LOSS, 1.0, prior=rough).prior
    np.testing.assert_array_equal(rough, again)


@pytest.mark.filterwarnings("error::panda_mdp.errors.ScaleWarning")
def test_metres_taken_for_kilometres_are_said():
    metres = Domain.from_vectors(1000.0 * np.arange(5), unit="m")
    with pytest.warns(ScaleWarning, match=r"hides nothing.*unit right"):
        Problem(metres, [0, 4], np.zeros((5, 2)), 5.0)
    with pytest.warns(ScaleWarning, match=r"odds of e\^1e\+303\."):
        Problem(metres, [0, 4], np.zeros((5, 2)), 1e300)
    km = Domain.from_vectors(np.arange(5.0), unit="km")
    assert Problem(km, [0, 4], np.zeros((5, 2)), 5.0).scale_warning == ""
    assert Problem(metres, [0, 4], np.zeros((5, 2)), 0.005).scale_warning == ""


LINE = pm.Domain.from_vectors([[0.0], [1.0], [2.0]])
PLAIN = pm.Problem(LINE, [0, 1, 2], LINE.distances(), 1.0)
NUMBERS = {
    "epsilon": lambda x: pm.Problem(LINE, [0], [[0], [1], [2]], x),
    "gap": lambda x: pm.optimal(PLAIN, x),
    "time_limit": lambda x: pm.optimal(PLAIN, time_limit=x),
    "slack": lambda x: pm.second_objective(PLAIN, "error", x),
    "radius": lambda x: pm.constopt(PLAIN, x),
    "tolerance": lambda x: pm.solve_lp(PLAIN, tolerance=x),
    "lipschitz": lambda x: pm.loss_exponential(PLAIN, x),
    "cells": lambda x: pm.coarse(PLAIN, x),
    "clusters": lambda x: pm.benders(PLAIN, x),
    "iterations": lambda x: pm.benders(PLAIN, iterations=x),
    "delta": lambda x: pm.panda(PLAIN, [0], pm.BallAnchors(0.5), x),
    "epsilon of balls": pm.BallAnchors,
    "epsilon of a guarantee": lambda x: pm.Guarantee(x, 0.0, "km"),
    "epsilon of a prior": lambda x: pm.Prior.private(
        LINE, [1, 2, 3], epsilon=x, contribution=1, source="visits", cell_km=None
    ),
}
ARRAYS = {
    "loss": lambda x: pm.Problem(LINE, [0], x.reshape(3, 1), 1.0),
    "prior": lambda x: pm.Problem(LINE, [0], [[0], [1], [2]], 1.0, prior=x / 6),
    "vectors": pm.Domain.from_vectors,
    "values": pm.Domain.from_values,
    "distances": lambda x: pm.Domain.from_matrix(0 * x + [[0, 1, 2], [1, 0, 1], [2, 1, 0]]),
    "coordinates": lambda x: pm.Domain.from_points(x, [0.0, 1.0, 2.0]),
    "places of outputs": lambda x: pm.Outputs.at([0.0, 1.0, 2.0], x),
    "counts": lambda x: pm.Prior.public(x, source="census"),
    "outputs": lambda x: pm.Problem(LINE, x - 1, LINE.distances(), 1.0),
    "a table": lambda x: pm.repair(PLAIN, np.stack([x, x, x])),
    "a matrix": lambda x: pm.Mechanism.from_matrix(PLAIN, np.stack([x, x, x]) / 6),
    "initial": lambda x: pm.optimal(PLAIN, initial=np.stack([x, x, x])),
}


@pytest.mark.parametrize("value", ["5", True, 1 + 0j, float("nan"), [1.0], b"1", np.bool_(True)])
@pytest.mark.parametrize("name", NUMBERS)
def test_what_is_no_real_number_is_refused_by_name(name, value):
    with pytest.raises(PandaError) as refused:
        NUMBERS[name](value)
    assert repr(value) in str(refused.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.astype(complex),
        lambda x: x.astype(str).astype(object),
        lambda x: np.ma.masked_array(x, [False, True, False]),
        lambda x: np.array([1.0, np.nan, 3.0]),
    ],
    ids=["complex", "text", "masked", "nan"],
)
@pytest.mark.parametrize("name", ARRAYS)
def test_what_are_no_real_numbers_are_refused(name, change):
    given = np.array([1.0, 2.0, 3.0])
    ARRAYS[name](given)
    try:
        changed = change(given)
        ARRAYS[name](changed)
    except PandaError:
        return
    except TypeError:
        # NumPy's own: text cannot be divided before it is handed over.
        assert changed.dtype == object
        return
    pytest.fail(f"{name} takes them")


def test_truth_values_and_mixed_text_are_no_numbers():
    for values in ([True, False], [[False], [True]], ["1", "2"], [1, "2"], [1.0, None]):
        with pytest.raises(DomainError):
            pm.Domain.from_vectors(values)
    # What is a number in a column of objects is one.
    mixed = np.array([1, 2.5, np.float32(4)], dtype=object)
    assert pm.Domain.from_vectors(mixed).distance(0, 1) == 1.5


@pytest.mark.parametrize("make", [pm.permute_and_flip, pm.tight_constraints, pm.exponential])
def test_labels_that_are_numbers_are_no_records(make):
    labelled = pm.Problem(LINE, pm.Outputs.labels([0, 1, 2]), LINE.distances(), 1.0)
    with pytest.raises(ProblemError, match="have no distance to the records"):
        make(labelled)
