"""Calibration: what it finds runs and is confirmed; what does not fit is explained."""

from __future__ import annotations

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.errors import MethodError
from panda_mdp.panda.calibrate import expected_loss

SIZE = 40


@pytest.fixture(scope="module")
def problem() -> pm.Problem:
    rng = np.random.default_rng(8)
    domain = pm.Domain.from_vectors(rng.normal(size=(SIZE, 2)) * 2, unit="km")
    outputs = rng.choice(SIZE, 5, replace=False)
    return pm.Problem(domain, outputs, domain.distances(None, outputs), 2.0)


@pytest.mark.parametrize("delta", [1e-7, 0.01])
def test_what_is_found_runs_and_is_confirmed(problem, delta) -> None:
    found = pm.calibrate(problem, delta, decays=("exponential",))
    assert found.selection is not None
    assert found.degenerate
    assert "degenerate" in repr(found)
    run = pm.panda(problem, range(6), found.selection, delta, delta_selection=found.delta_selection)
    assert isinstance(run, pm.PandaResult)
    assert pm.audit_panda(run).holds
    assert found.loss <= pm.optimal(problem).loss * 1.03


def test_a_selection_that_looks_at_the_record_can_fit(problem) -> None:
    """A gentle decay and a generous delta: not degenerate, and confirmed by the audit."""
    found = pm.calibrate(
        problem, 0.05, decays=("logistic",), alphas=(0.9875,), rates=(0.01, 0.003), radii=(0.15,)
    )
    looking = [trial for trial in found.tried if trial.fits and trial.selection.rate > 0]
    assert looking
    selection = looking[0].selection
    assert selection.leakage(problem.domain, 0, 1) > 0
    run = pm.panda(problem, range(6), selection, 0.05, delta_selection=looking[0].delta_selection)
    audit = pm.audit_panda(run, draws=100, seed=2)
    assert audit.holds
    assert audit.violation <= 0.05


def test_a_limit_on_anchors_binds_and_is_said(problem) -> None:
    small = pm.calibrate(problem, 1e-7, decays=("exponential",), most_anchors=12)
    assert small.selection is not None
    assert small.anchors <= 12
    none = pm.calibrate(problem, 1e-7, decays=("power",), most_anchors=1.0)
    assert none.selection is None
    assert "nothing of" in repr(none)
    assert "most_anchors" in none.binding
    assert "Nearest" in none.binding


def test_balls_are_a_family(problem) -> None:
    found = pm.calibrate(problem, 1e-3, families=("ball",))
    assert isinstance(found.selection, pm.BallAnchors)
    assert not found.degenerate
    run = pm.panda(problem, range(3), found.selection, 1e-3, relaxed=False)
    assert pm.audit_panda(run).holds


def test_why_nothing_fits_names_the_condition(problem) -> None:
    none = pm.calibrate(
        problem, 1e-7, decays=("power",), alphas=(0.95,), candidate_counts=(SIZE,), most_anchors=30
    )
    assert none.selection is None
    assert "Phase I costs more than epsilon" in none.binding
    with pytest.raises(MethodError, match="delta is 0"):
        pm.calibrate(problem, 0.0)


def test_expected_loss_is_exact_over_sets_and_reports(brute_force) -> None:
    domain = pm.Domain.from_vectors(np.random.default_rng(1).normal(size=(7, 2)))
    problem = pm.Problem(domain, [0, 3, 5], domain.distances(None, [0, 3, 5]), 1.0)
    selection = pm.BernoulliAnchors("power", alpha=0.7, radius=1.0)
    brute = brute_force(domain, selection)
    table = pm.optimal(problem).matrix
    total = 0.0
    for x in range(7):
        for k in range(len(brute.sets)):
            s = brute.surrogate[x, k]
            blind = problem.loss[x, problem.best_single_output]
            loss = blind if s < 0 else table[s] @ problem.loss[x]
            total += problem.prior[x] * float(brute.probabilities[x, k]) * loss
    assert expected_loss(problem, selection, table) == pytest.approx(total, rel=1e-12)


@pytest.mark.data
def test_calibration_on_rome_is_confirmed(road_maps) -> None:
    domain = road_maps("rome").domain(200, seed=0)
    outputs = np.arange(20)
    problem = pm.Problem(domain, outputs, domain.distances(None, outputs), 5.0)
    found = pm.calibrate(problem, 1e-7, decays=("logistic",), candidate_counts=(200,))
    run = pm.panda(problem, range(10), found.selection, 1e-7, relaxed=False)
    assert pm.audit_panda(run).holds
