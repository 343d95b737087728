"""Baselines of the literature against brute force, their own theorems and libqif."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from helpers import displacement_problem, random_domain
from scipy.stats import geom

import panda_mdp as pm
from panda_mdp.errors import MethodError
from panda_mdp.methods.closed_forms import (
    flip_probabilities,
    permute_and_flip,
    tight_constraints,
)


def grid(side: int) -> pm.Domain:
    return pm.Domain.from_vectors(
        [[float(i), float(j)] for i in range(side) for j in range(side)], unit="km"
    )


def line(size: int, step: float = 1.0) -> pm.Domain:
    return pm.Domain.from_vectors(step * np.arange(size, dtype=float)[:, None])


def test_tight_constraints_are_tight_and_beat_the_exponential():
    problem = displacement_problem(grid(5), range(25), 1.0)
    table = tight_constraints(problem)
    assert table.audit.holds
    ratio = table.matrix / np.diag(table.matrix)
    # A share of 1e-8 of the uniform row pays for rounding.
    assert ratio == pytest.approx(np.exp(-problem.domain.distances()), abs=1e-8)
    assert table.loss == pytest.approx(1.2459, abs=1e-4)
    assert pm.exponential(problem, tight=True).loss == pytest.approx(1.5875, abs=1e-4)


def test_tight_constraints_agree_with_libqif():
    qif = pytest.importorskip("qif", reason="libqif is not installed: pip install 'panda-mdp[qif]'")
    domain = grid(3)
    apart = domain.distances()
    theirs = qif.mechanism.d_privacy.tight_constraints(9, lambda x, y: 1.5 * apart[x, y])
    ours = tight_constraints(displacement_problem(domain, range(9), 1.5))
    assert ours.matrix == pytest.approx(np.asarray(theirs), abs=1e-8)


def test_tight_constraints_say_where_they_do_not_exist():
    # A hub with many leaves: at small epsilon the hub's share would have to be negative.
    apart = np.full((8, 8), 2.0)
    apart[0, :] = apart[:, 0] = 1.0
    np.fill_diagonal(apart, 0.0)
    domain = pm.Domain.from_matrix(apart)
    with pytest.raises(MethodError, match=r"does not exist at epsilon 0\.1"):
        tight_constraints(displacement_problem(domain, range(8), 0.1))
    assert tight_constraints(displacement_problem(domain, range(8), 3.0)).audit.holds
    with pytest.raises(MethodError, match="2 outputs for 8 records"):
        tight_constraints(displacement_problem(domain, [0, 1], 3.0))


def exact_flip(chance):
    """Permute-and-flip by all orders."""
    size = len(chance)
    total = np.zeros(size)
    orders = list(itertools.permutations(range(size)))
    for order in orders:
        left = 1.0
        for y in order:
            total[y] += left * chance[y]
            left *= 1 - chance[y]
    return total / len(orders)


def test_permute_and_flip_is_its_definition():
    rng = np.random.default_rng(0)
    chance = rng.random((4, 6))
    chance[:, 2] = 1.0
    rows = flip_probabilities(chance)
    for row, given in zip(rows, chance, strict=True):
        assert row == pytest.approx(exact_flip(given), abs=1e-14)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
def test_permute_and_flip_never_loses_to_the_exponential(epsilon):
    domain = random_domain("haversine", 30, seed=2)
    problem = displacement_problem(domain, range(0, 30, 2), epsilon)
    table = permute_and_flip(problem)
    assert table.audit.holds
    assert table.loss <= pm.exponential(problem).loss * (1 + 1e-9)


def test_tight_constraints_on_a_line_are_clamped_geometric_noise():
    size, epsilon = 7, 0.8
    problem = displacement_problem(line(size), range(size), epsilon)
    table = tight_constraints(problem)
    assert table.audit.holds
    share = 1 - np.exp(-epsilon)
    law = {
        j: sum(geom.pmf(i + 1, share) * geom.pmf(i - j + 1, share) for i in range(max(0, j), 200))
        for j in range(-40, 41)
    }
    row = np.zeros(size)
    for j, chance in law.items():
        row[min(max(2 + j, 0), size - 1)] += chance
    assert table.matrix[2] == pytest.approx(row, abs=1e-8)


def test_tight_constraints_on_a_line_agree_with_libqif():
    qif = pytest.importorskip("qif", reason="libqif is not installed: pip install 'panda-mdp[qif]'")
    theirs = np.asarray(qif.mechanism.d_privacy.geometric(5, 0.7))
    ours = tight_constraints(displacement_problem(line(5), range(5), 0.7))
    assert ours.matrix == pytest.approx(theirs, abs=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_tight_constraints_with_a_remap_are_optimal_on_a_line(seed):
    prior = np.random.default_rng(seed).dirichlet(np.ones(6))
    problem = displacement_problem(line(6, 0.5), range(6), 1.3, prior)
    best = pm.solve_lp(problem, "all", "simplex")
    assert pm.remap(tight_constraints(problem)).loss == pytest.approx(best.loss, rel=1e-4)
    assert pm.remap(tight_constraints(problem)).loss >= best.lower_bound
