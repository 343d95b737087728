"""Bordenabe's and Shokri's optima as special cases."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import displacement_problem, random_domain
from scipy.optimize import linprog

import panda_mdp as pm
from panda_mdp.errors import MethodError, NotForReleaseError
from panda_mdp.methods.literature import bordenabe, shokri


def shokri_by_scipy(problem, budget):
    """Their LP: a free variable per output, below the expected distance of every guess."""
    size, outputs, prior = problem.size, problem.outputs_count, problem.prior
    apart = problem.domain.distances()
    entries = size * outputs
    rows, most = [np.append(problem.weighted_loss.ravel(), np.zeros(outputs))], [budget]
    for y in range(outputs):
        for w in range(size):
            table = np.zeros((size, outputs))
            table[:, y] = -prior * apart[w]
            rows.append(np.append(table.ravel(), np.eye(outputs)[y]))
            most.append(0.0)
    sums = np.hstack([np.kron(np.eye(size), np.ones(outputs)), np.zeros((size, outputs))])
    cost = np.append(np.zeros(entries), -np.ones(outputs))
    return -linprog(cost, np.array(rows), most, sums, np.ones(size)).fun


@pytest.mark.parametrize("seed", [0, 1])
def test_shokris_optimum_is_their_lps_and_has_no_guarantee(seed):
    prior = np.random.default_rng(seed).dirichlet(np.ones(5))
    problem = displacement_problem(random_domain("euclidean", 5, seed), [0, 2, 4], 1.0, prior)
    budget = 0.6 * float((prior @ problem.loss).min()) + 0.4 * float(
        prior @ problem.loss.min(axis=1)
    )
    table = shokri(problem, budget)
    best = shokri_by_scipy(problem, budget)
    assert table.details["error"] == pytest.approx(best, rel=1e-5)
    assert table.details["bound"] >= best - 1e-9
    assert pm.attack(table).error == pytest.approx(table.details["error"])
    assert table.loss <= budget * (1 + 1e-6)
    with pytest.raises(NotForReleaseError):
        table.sample(0)
    with pytest.raises(MethodError, match="without any privacy"):
        shokri(problem, 0.0)


def test_bordenabes_optimum_errs_as_much_as_it_loses_where_all_places_are_outputs():
    problem = displacement_problem(random_domain("haversine", 8, seed=2), range(8), 0.3)
    table = bordenabe(problem)
    assert table.gap < 1e-3
    # No epsilon-mDP table has a smaller attacker's error: a remap of it would lose less.
    assert pm.attack(table).error == pytest.approx(table.loss, rel=1e-3)
    assert pm.attack(pm.exponential(problem)).error >= table.lower_bound * (1 - 1e-9)
