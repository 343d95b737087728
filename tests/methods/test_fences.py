"""Public fences: rows of a zone are one, the guarantee is the domain's, the shape names nobody."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from helpers import KINDS, displacement_problem, is_private, random_domain

import panda_mdp as pm
from panda_mdp.errors import DomainError, InvalidInputError
from panda_mdp.meaning.several import repeated
from panda_mdp.methods.coarse import Fences


@pytest.mark.parametrize("kind", KINDS)
def test_the_quotient_is_the_shortest_way_with_free_steps_inside(kind):
    domain = random_domain(kind, 7, seed=4)
    zones = np.array([0, 0, -1, 1, 1, 1, -1])
    fences = Fences(domain, zones)
    plain = domain.distances()
    steps = np.where((zones[:, None] == zones) & (zones >= 0), 0.0, plain)
    # All ways over up to five records between the two.
    for x, other in itertools.combinations(range(7), 2):
        between = [k for k in range(7) if k not in (x, other)]
        ways = [
            sum(steps[a, b] for a, b in itertools.pairwise((x, *way, other)))
            for count in range(6)
            for way in itertools.permutations(between, count)
        ]
        a, b = fences.group[[x, other]]
        length = fences.quotient.distances()[a, b]
        assert length == pytest.approx(min(ways), rel=1e-9, abs=1e-12)
        assert length <= plain[x, other]


def test_a_fenced_table_is_private_for_the_domain_and_one_row_per_zone():
    domain = random_domain("euclidean", 12, seed=1)
    prior = np.random.default_rng(0).dirichlet(np.ones(12))
    problem = displacement_problem(domain, range(12), 1.0, prior)
    fences = Fences(domain, np.array([0] * 4 + [1] * 5 + [-1] * 3))
    folded = fences.fold(problem)
    assert folded.prior == pytest.approx([prior[:4].sum(), prior[4:9].sum(), *prior[9:]])
    inner = pm.optimal(folded, gap=1e-3)
    table = fences.unfold(inner, problem)
    assert table.loss == pytest.approx(inner.loss)
    assert is_private(domain, table.weights, problem.epsilon)
    for zone in (slice(0, 4), slice(4, 9)):
        assert (table.weights[zone] == table.weights[zone][0]).all()
    # Any number of reports from inside tells the zone and never a place in it.
    many = repeated(table, 500, draws=300)
    most = prior[:4].max() + prior[4:9].max() + prior[9:].sum()
    assert many.vulnerability <= most + 4 * many.vulnerability_se + 1e-9
    # A plain table of the same epsilon gives places away by then.
    assert repeated(pm.optimal(problem, gap=1e-3), 500, draws=300).vulnerability > most + 0.05
    assert table.loss >= pm.optimal(problem, gap=1e-3).lower_bound


def test_zones_nobody_is_expected_in_weigh_their_records_alike():
    domain = random_domain("euclidean", 4)
    problem = pm.Problem(domain, [0], [[0.0], [1.0], [2.0], [4.0]], 1.0, [0.5, 0.5, 0.0, 0.0])
    folded = Fences(domain, [0, 0, 1, 1]).fold(problem)
    assert folded.loss[:, 0].tolist() == [0.5, 3.0]


def test_bad_fences_are_named():
    domain = random_domain("euclidean", 4)
    with pytest.raises(DomainError, match="one whole number per record"):
        Fences(domain, [0, 1])
    with pytest.raises(DomainError, match="one whole number per record"):
        Fences(domain, [0.5, 0, 0, 0])
    with pytest.raises(DomainError, match="zone -2 is negative"):
        Fences(domain, [-2, 0, 0, 0])
    with pytest.raises(DomainError, match="more than one"):
        Fences(domain, [0, 0, 0, 0])
    with pytest.raises(InvalidInputError, match="side of a cell is -1"):
        Fences.cells(domain, -1.0)
    with pytest.raises(InvalidInputError, match="domain in a plane"):
        Fences.cells(pm.Domain.from_matrix(domain.distances()), 1.0)
    for size in (4, 5):
        with pytest.raises(DomainError, match="another domain"):
            Fences(domain, [0, 0, 1, 1]).fold(
                displacement_problem(random_domain("euclidean", size, seed=9), range(4), 1.0)
            )


def test_only_the_table_of_the_folded_problem_unfolds():
    """A bound of one problem said of another would be false."""
    domain = random_domain("euclidean", 6, seed=2)
    problem = displacement_problem(domain, range(6), 1.0)
    fences = Fences(domain, [0, 0, 0, 1, 1, -1])
    folded = pm.optimal(fences.fold(problem))
    table = fences.unfold(folded, problem)
    # Tables without fences have less loss than those with them.
    assert table.lower_bound is None
    assert table.details["fenced_bound"] == folded.lower_bound
    assert pm.optimal(problem).loss < folded.lower_bound
    others = (
        displacement_problem(domain, range(6), 2.0),
        displacement_problem(domain, range(6), 1.0, [0.5, 0.1, 0.1, 0.1, 0.1, 0.1]),
        pm.Problem(domain, range(6), 2 * problem.loss, 1.0),
    )
    for other in others:
        with pytest.raises(DomainError, match="not one of fold"):
            fences.unfold(folded, other)
    with pytest.raises(DomainError, match="not one of fold"):
        fences.unfold(pm.exponential(problem), problem)
