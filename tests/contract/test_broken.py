"""Deliberately broken mechanisms. Brute force says that they are; the audit must say so too."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from forging import File
from helpers import KINDS, displacement_problem, is_private, random_domain

import panda_mdp as pm
from panda_mdp.errors import FileFormatError, PrivacyError
from panda_mdp.methods.closed_forms import softmax
from panda_mdp.privacy.audit import audit_weights
from panda_mdp.privacy.quantise import TOTAL, quantise

Table = tuple[pm.Problem, np.ndarray]


def tight(kind: str) -> pm.Mechanism:
    """A mechanism whose worst pair lies at its epsilon, to within the audit's rounding."""
    domain = random_domain(kind, 9, seed=31)
    loose = pm.exponential(displacement_problem(domain, [0, 4, 7], 1.0))
    problem = loose.problem.with_epsilon(loose.audit.epsilon)
    return pm.Mechanism(problem, loose.weights, "tight")


def moved(weights: np.ndarray, x: int, source: int, target: int, amount: int) -> np.ndarray:
    changed = weights.copy()
    changed[x, source] -= amount
    changed[x, target] += amount
    return changed


def one_entry_beyond(kind: str) -> Table:
    """The entry at the limit is raised by one part in 1e9."""
    mechanism = tight(kind)
    x, _, output = mechanism.audit.worst
    column = int(np.flatnonzero(mechanism.problem.outputs == output)[0])
    other = (column + 1) % 3
    amount = int(mechanism.weights[x, column]) // 10**9
    return mechanism.problem, moved(mechanism.weights, x, other, column, amount)


def one_entry_short(kind: str) -> Table:
    """The lower entry of the pair at the limit is lowered by one part in 1e9."""
    mechanism = tight(kind)
    _, x2, output = mechanism.audit.worst
    column = int(np.flatnonzero(mechanism.problem.outputs == output)[0])
    other = (column + 1) % 3
    amount = int(mechanism.weights[x2, column]) // 10**9
    return mechanism.problem, moved(mechanism.weights, x2, column, other, amount)


def a_zero_entry(kind: str) -> Table:
    mechanism = tight(kind)
    weights = mechanism.weights
    return mechanism.problem, moved(weights, 5, 1, 2, int(weights[5, 1]))


def two_swapped_rows(kind: str) -> Table:
    """The two records whose rows differ most."""
    mechanism = tight(kind)
    weights = mechanism.weights.copy()
    logs = np.log(mechanism.matrix)
    gaps = np.abs(logs[:, None] - logs).max(axis=2)
    x, x2 = np.unravel_index(gaps.argmax(), gaps.shape)
    weights[[x, x2]] = weights[[x2, x]]
    return mechanism.problem, weights


def exponent_of_epsilon(kind: str) -> Table:
    """exp(-epsilon d) as the paper's text has it; the normaliser spends as much again."""
    problem = tight(kind).problem
    distances = problem.domain.distances(None, problem.outputs)
    return problem, quantise(softmax(-problem.epsilon * distances))


BROKEN: dict[str, Callable[[str], Table]] = {
    "one entry 1e-9 beyond": one_entry_beyond,
    "one entry 1e-9 short": one_entry_short,
    "a zero entry": a_zero_entry,
    "two swapped rows": two_swapped_rows,
    "an exponent of epsilon": exponent_of_epsilon,
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_mechanism_before_it_is_broken_is_private(kind, backend):
    mechanism = tight(kind)
    assert is_private(mechanism.problem.domain, mechanism.weights, mechanism.epsilon)
    problem = mechanism.problem
    weights, epsilon = mechanism.weights, mechanism.epsilon
    assert audit_weights(problem.domain, problem.outputs, weights, epsilon, backend).holds


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(BROKEN))
def test_the_audit_rejects_it(name, kind, backend):
    problem, weights = BROKEN[name](kind)
    assert all(sum(map(int, row)) == TOTAL for row in weights)
    assert not is_private(problem.domain, weights, problem.epsilon)
    result = audit_weights(problem.domain, problem.outputs, weights, problem.epsilon, backend)
    assert not result.holds
    assert result.epsilon > problem.epsilon
    with pytest.raises(PrivacyError, match="-mDP: the audit finds"):
        pm.Mechanism(problem, weights, name)
    study = pm.NoGuarantee(problem, weights, name)
    assert not pm.audit(study).holds


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_file_that_holds_it_is_refused(name, tmp_path):
    _, weights = BROKEN[name]("haversine")
    path = tight("haversine").save(tmp_path / "x.pmdp")
    forged = File.of(path.read_bytes())
    forged.arrays["weights"] = np.asarray(weights)
    path.write_bytes(forged.bytes())
    with pytest.raises(FileFormatError, match="the audit finds"):
        pm.load(path)


def test_an_exponent_of_epsilon_is_private_where_the_normaliser_is_constant(backend):
    """On a ring every record sees the same distances: the audit accepts what brute force does."""
    angle = np.arange(12)
    steps = np.abs(np.subtract.outer(angle, angle))
    domain = pm.Domain.from_matrix(np.minimum(steps, 12 - steps).astype(float))
    problem = displacement_problem(domain, np.arange(12), 0.7)
    matrix = softmax(-(0.7 - 1e-11) * problem.loss)
    mechanism = pm.Mechanism.from_matrix(problem, matrix)
    assert is_private(domain, mechanism.weights, 0.7)
