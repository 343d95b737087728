"""What every method owes its users, on every kind of domain that it takes."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from contract_methods import METHODS, Method
from helpers import random_domain

import panda_mdp as pm
from panda_mdp.privacy.quantise import TOTAL

EPSILON = 1.0


def build(kind: str, epsilon: float = EPSILON) -> pm.Problem:
    """A small problem whose loss is not a function of the distance alone."""
    rng = np.random.default_rng(20)
    if kind == "plane":
        domain = random_domain("haversine", 24, seed=21)
    elif kind == "space":
        domain = random_domain("euclidean", 16, seed=22)
    else:
        domain = random_domain("matrix", 14, seed=23)
    outputs = rng.choice(domain.size, 6, replace=False)
    loss = domain.distances(None, outputs) * rng.uniform(0.5, 1.5, 6)
    prior = rng.dirichlet(np.full(domain.size, 2.0))
    return pm.Problem(domain, outputs, loss, epsilon, prior=prior)


CASES = [
    pytest.param(method, kind, id=f"{method.name} on {kind}")
    for method in METHODS
    for kind in (("plane",) if method.planar_only else ("plane", "space", "matrix"))
]
OPTIMAL = [
    pytest.param(method, kind, id=f"{method.name} on {kind}")
    for method in METHODS
    if method.optimal
    for kind in ("plane", "matrix")
]


def unconstrained_minimum(problem: pm.Problem) -> float:
    """The loss of a table that may depend on the record in any way."""
    return float(problem.prior @ problem.loss.min(axis=1))


def test_names_are_distinct():
    assert len({method.name for method in METHODS}) == len(METHODS)


@pytest.mark.parametrize(("method", "kind"), CASES)
def test_hands_out_a_private_table(method: Method, kind: str, tmp_path):
    problem = build(kind)
    mechanism = method.make(problem)
    assert isinstance(mechanism, pm.Mechanism)
    assert mechanism.problem is problem
    assert mechanism.epsilon == EPSILON

    assert mechanism.matrix.min() >= 0
    np.testing.assert_allclose(mechanism.matrix.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    assert all(sum(map(int, row)) == TOTAL for row in mechanism.weights)

    result = pm.audit(mechanism)
    assert result.holds
    assert result == mechanism.audit
    used = mechanism.weights.any(axis=0)
    logs = np.log(mechanism.weights[:, used].astype(float))
    apart = problem.domain.distances() + np.diag(np.full(problem.size, np.inf))
    rates = np.abs(logs[:, None] - logs).max(axis=2) / apart
    assert rates.max() <= EPSILON * (1 + 1e-12)
    assert result.epsilon == pytest.approx(rates.max(), rel=1e-9, abs=1e-11)

    assert mechanism.loss == pytest.approx(
        float(np.sum(problem.prior[:, None] * problem.loss * mechanism.matrix)), rel=1e-12
    )
    assert mechanism.loss >= unconstrained_minimum(problem)
    if mechanism.lower_bound is not None:
        assert mechanism.lower_bound <= mechanism.loss * (1 + 1e-9)
    assert mechanism.stages
    assert mechanism.seconds > 0
    assert mechanism.sample(3) in problem.outputs
    assert pm.load(mechanism.save(tmp_path / "table.pmdp")).loss == mechanism.loss


@pytest.mark.parametrize(("method", "kind"), CASES)
def test_relabelling_the_records_leaves_the_loss(method: Method, kind: str):
    problem = build(kind)
    order = np.random.default_rng(1).permutation(problem.size)
    place = np.argsort(order)
    relabelled = pm.Problem(
        problem.domain.take(order),
        place[problem.outputs],
        problem.loss[order],
        problem.epsilon,
        prior=problem.prior[order],
    )
    first, second = method.make(problem), method.make(relabelled)
    assert second.loss == pytest.approx(first.loss, rel=method.tolerance)
    if method.tolerance <= 1e-9:
        np.testing.assert_allclose(second.matrix, first.matrix[order], rtol=1e-6, atol=1e-15)


@pytest.mark.parametrize(("method", "kind"), CASES)
@pytest.mark.parametrize("nats", [1e-3, 1e-7, 1e-11])
def test_epsilon_near_zero_gives_equal_rows(method: Method, kind: str, nats: float):
    """With epsilon times the diameter at `nats`, entries differ by at most that share."""
    problem = build(kind)
    mechanism = method.make(problem.with_epsilon(nats / problem.domain.diameter))
    matrix = mechanism.matrix
    spread = matrix.max(axis=0) - matrix.min(axis=0)
    assert (spread <= matrix.min(axis=0) * np.expm1(nats) * (1 + 1e-6) + 1e-15).all()
    assert (matrix.sum(axis=1) > 0.5).all()


@pytest.mark.parametrize(("method", "kind"), CASES)
def test_remap_never_raises_the_loss(method: Method, kind: str):
    mechanism = method.make(build(kind))
    better = pm.remap(mechanism)
    assert isinstance(better, pm.Mechanism)
    assert better.loss <= mechanism.loss * (1 + 1e-12)
    assert pm.audit(better).holds
    assert better.lower_bound == mechanism.lower_bound


@pytest.mark.parametrize(("method", "kind"), OPTIMAL)
def test_loss_of_an_optimum_falls_with_epsilon(method: Method, kind: str):
    losses, bounds = [], []
    for epsilon in (0.1, 0.5, 2.0, 8.0):
        mechanism = method.make(build(kind, epsilon))
        assert mechanism.lower_bound is not None
        assert mechanism.gap <= method.gap
        losses.append(mechanism.loss)
        bounds.append(mechanism.lower_bound)
    for before, after in itertools.pairwise(losses):
        assert after <= before * (1 + method.gap)
    for before, after in zip(losses, bounds[1:], strict=False):
        assert after <= before * (1 + 1e-9)


@pytest.mark.parametrize(("method", "kind"), OPTIMAL)
def test_a_huge_epsilon_gives_the_unconstrained_minimum(method: Method, kind: str):
    problem = build(kind)
    nearest = problem.domain.neighbours(1)[1].min()
    mechanism = method.make(problem.with_epsilon(float(60 / nearest)))
    least = unconstrained_minimum(problem)
    assert least <= mechanism.loss <= least * (1 + max(method.gap, 1e-6))


@pytest.mark.parametrize(("method", "kind"), OPTIMAL)
def test_a_tiny_epsilon_gives_the_best_single_output(method: Method, kind: str):
    problem = build(kind)
    mechanism = method.make(problem.with_epsilon(1e-7 / problem.domain.diameter))
    single = float((problem.prior @ problem.loss).min())
    assert mechanism.loss == pytest.approx(single, rel=max(method.gap, 1e-6))


@pytest.mark.parametrize(("method", "kind"), OPTIMAL)
def test_an_optimum_beats_every_other_method(method: Method, kind: str):
    problem = build(kind)
    best = method.make(problem)
    for other in METHODS:
        if kind == "plane" or not other.planar_only:
            mechanism = other.make(problem)
            assert best.loss <= mechanism.loss * (1 + method.gap)
            assert best.lower_bound <= mechanism.loss * (1 + 1e-9)


@pytest.mark.parametrize("method", [pytest.param(m, id=m.name) for m in METHODS])
def test_units_of_the_loss_do_not_matter(method: Method):
    """Losses in metres give the table that losses in kilometres give."""
    problem = build("plane")
    metres = replace(problem, loss=1000 * problem.loss, loss_unit="m")
    assert method.make(metres).loss == pytest.approx(
        1000 * method.make(problem).loss, rel=max(method.tolerance, 1e-9)
    )
