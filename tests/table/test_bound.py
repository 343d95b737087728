"""Multipliers prove a bound to whoever reads them, and a table never states more than that."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction

import numpy as np
import pytest
from forging import proof
from helpers import KINDS, displacement_problem, random_domain
from second_checker import checker

import panda_mdp as pm
from panda_mdp.errors import PrivacyError, ProblemError
from panda_mdp.methods.optimal.dual import centre_bound, centre_proof, free_bound, free_proof
from panda_mdp.table.bound import MOST_MULTIPLIERS, BoundProof, dual_bound, growth

NONE = np.empty((0, 2), dtype=np.int64)


@pytest.fixture(scope="module", params=KINDS)
def problem(request):
    return displacement_problem(random_domain(request.param, 12, seed=5), [7, 2, 9, 4], 1.5)


def exactly(problem: pm.Problem, pairs: np.ndarray, multipliers: np.ndarray) -> Fraction:
    """The bound in fractions, by the second checker's exponentials from above."""
    from types import SimpleNamespace

    verify = checker()
    values = {name: tuple(a.ravel()) for name, a in problem.domain.metric.arrays().items()}
    values |= {"bound_pairs": tuple(pairs.ravel().tolist())}
    values |= {"bound_multipliers": tuple(multipliers.ravel().tolist())}
    kind = problem.domain.metric.kind
    table = SimpleNamespace(kind=kind, size=problem.size, values=values, epsilon=problem.epsilon)
    costs = [
        [Fraction(float(p)) * Fraction(float(c)) for c in row]
        for p, row in zip(problem.prior, problem.loss, strict=True)
    ]
    return verify.lower_bound(table, verify.METRICS[kind](table), costs)


@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 1e6])
def test_is_below_what_the_second_checker_proves_and_near_it(problem, size):
    rng = np.random.default_rng(2)
    pairs = rng.integers(0, problem.size, (40, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    multipliers = size * rng.random((len(pairs), 4)) ** 3
    exact = exactly(problem, pairs, multipliers)
    found = dual_bound(problem, pairs, multipliers)
    made = BoundProof(problem, pairs, multipliers)
    assert Fraction(made.value) <= Fraction(found) <= exact
    metric = problem.domain.metric
    length = metric.pairs(pairs[:, 0], pairs[:, 1])
    top = growth(problem.epsilon, length, metric.relative_error).max() * size * 40
    assert Fraction(made.value) >= exact - Fraction(1e-12 * (top + problem.loss.max()))


def test_bounds_without_a_solver_have_proofs(problem):
    assert free_proof(problem).value <= free_bound(problem) * (1 + 1e-14)
    assert free_proof(problem).value >= free_bound(problem) * (1 - 1e-13)
    for x in (0, 5):
        made = centre_proof(problem, x)
        assert abs(made.value - centre_bound(problem, x)) <= 1e-12 * centre_bound(problem, x)
        assert Fraction(made.value) <= exactly(problem, made.pairs, made.multipliers)


def test_a_table_states_no_more_than_its_proof(problem):
    table = pm.optimal(problem, gap=0.05)
    assert table.proof is not None
    assert table.lower_bound <= table.proof.value
    with pytest.raises(PrivacyError, match="its multipliers prove"):
        table.with_facts(lower_bound=table.proof.value * (1 + 1e-9), proof=table.proof)
    with pytest.raises(PrivacyError, match="another problem"):
        other = displacement_problem(problem.domain, [7, 2, 9, 4], 1.5)
        table.with_facts(lower_bound=0.0, proof=free_proof(other))
    # Another bound does not inherit it; other words leave it as it is.
    assert table.with_facts(lower_bound=0.0).proof is None
    assert table.with_details(note="x").proof is table.proof
    for twin in (pickle.loads(pickle.dumps(table)), copy.deepcopy(table)):
        assert twin.proof.value == table.proof.value
        assert twin.proof.problem is twin.problem


def test_pairs_that_prove_nothing_are_left_out(problem):
    pairs = np.array([[0, 1], [1, 0], [2, 3]])
    multipliers = np.array([[0.0] * 4, [1e-3, 0, 0, 0], [0.0] * 4])
    made = BoundProof.made(problem, pairs, multipliers)
    assert made.pairs.tolist() == [[1, 0]]
    assert made.value >= BoundProof(problem, pairs, multipliers).value
    many = np.zeros((MOST_MULTIPLIERS // 4 + 1, 2), dtype=np.int64)
    many[:, 1] = 1
    assert BoundProof.made(problem, many, np.ones((len(many), 4))) is None


@pytest.mark.parametrize(
    ("pairs", "value", "reason"),
    [
        ([[0, 12]], 1.0, "outside 0..11"),
        ([[-1, 2]], 1.0, "outside 0..11"),
        ([[0, 1]], -1e-9, "not negative"),
        ([[0, 1]], np.nan, "finite"),
        ([[0, 1]], np.inf, "finite"),
    ],
)
def test_what_is_no_proof_is_refused(problem, pairs, value, reason):
    with pytest.raises(ProblemError, match=reason):
        BoundProof(problem, np.array(pairs), np.full((1, 4), value))


def test_numbers_beyond_floats_prove_nothing():
    domain = pm.Domain.from_vectors([[0.0], [1e4]])
    problem = pm.Problem(domain, [0], [[1.0], [1.0]], 1.0)
    assert dual_bound(problem, np.array([[0, 1]]), np.ones((1, 1))) == -np.inf
    assert dual_bound(problem, NONE, np.empty((0, 1))) > 0.999


def test_a_proof_that_would_double_the_file_stays_out(problem, tmp_path):
    table = pm.optimal(problem, gap=0.05)
    assert b"bound_pairs" in table.save(tmp_path / "with.pmdp").read_bytes()
    rng = np.random.default_rng(0)
    pairs = np.stack([rng.integers(0, 6, 4000), rng.integers(6, 12, 4000)], axis=1)
    long = BoundProof(problem, pairs, 1e-12 * rng.random((4000, 4)))
    short = table.with_facts(lower_bound=long.value, proof=long).save(tmp_path / "without.pmdp")
    assert b"bound_pairs" not in short.read_bytes()
    loaded = pm.load(short)
    assert loaded.proof is None
    assert loaded.lower_bound == long.value
    assert loaded.details["bound_source"] == "stated in the file, not proved there"


def test_a_solver_from_elsewhere_proves_it_too():
    """SciPy's multipliers, not ours: the bound does not ask where they come from."""
    pairs, multipliers = proof("euclidean")
    from forging import mechanism

    table = mechanism("euclidean")
    made = BoundProof(table.problem, pairs, multipliers)
    assert table.lower_bound * 0.99 <= made.value <= table.loss


def test_a_proof_does_without_its_faintest_multipliers_where_that_costs_next_to_nothing(problem):
    full = pm.optimal(problem, gap=0.05).proof
    assert full is not None
    noisy = BoundProof(problem, full.pairs, full.multipliers + 1e-9 * full.multipliers.max())
    short = noisy.shortened()
    assert short is not None
    assert np.count_nonzero(short.multipliers) < np.count_nonzero(noisy.multipliers)
    assert 0.9999 * noisy.value <= short.value <= noisy.value * 1.0001
