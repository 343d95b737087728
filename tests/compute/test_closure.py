"""Closing from both sides: where closing from above alone goes in circles."""

from __future__ import annotations

import numpy as np
import pytest

from panda_mdp import Domain, Problem, synthetic_city, travel_loss
from panda_mdp.compute.closure import AGREED, AROUND, Closure
from panda_mdp.methods.optimal.backends import CpuEngine
from panda_mdp.methods.optimal.graph import constraint_graph
from panda_mdp.methods.optimal.starts import warm_start
from panda_mdp.privacy.repair import repair


@pytest.fixture(scope="module")
def problem() -> Problem:
    city = synthetic_city(600, seed=7)
    domain = Domain.from_graph(city, 200, seed=0)
    rng = np.random.default_rng(1)
    outputs, tasks = rng.choice(200, 20, replace=False), rng.choice(200, 1)
    return Problem(domain, outputs, travel_loss(city, domain, outputs, tasks), 5.0)


@pytest.fixture(scope="module")
def solved(problem: Problem) -> np.ndarray:
    graph = constraint_graph(problem.domain, problem.epsilon)
    solver = CpuEngine().solver(problem, graph, warm_start(problem, graph))
    while solver.iterations < 2000:
        solver.advance(40)
    return solver.matrix()


def test_centre_is_log_lipschitz_and_half_way(problem: Problem) -> None:
    closure = Closure(problem.domain)
    rng = np.random.default_rng(0)
    z = closure.start(rng.dirichlet(np.ones(20), size=200))
    middle = closure.host(closure.centre(z, 3.0))
    apart = problem.domain.distances()
    logs = np.log(closure.host(z))
    above = (logs[None] - 3.0 * apart[:, :, None]).max(axis=1)
    below = (logs[None] + 3.0 * apart[:, :, None]).min(axis=1)
    np.testing.assert_allclose(np.log(middle), (above + below) / 2, rtol=1e-9, atol=1e-9)
    gaps = np.abs(np.log(middle)[:, None] - np.log(middle)).max(axis=2)
    assert (gaps <= 3.0 * apart + 1e-9).all()


def test_centred_rounds_come_to_rest(problem: Problem, solved: np.ndarray) -> None:
    closure = Closure(problem.domain)
    epsilon = problem.epsilon * (1 - 3e-4)
    rounds = closure.rounds(closure.start(solved), epsilon)
    for _ in range(10):
        z, _ = next(rounds)
    centred = closure.centred_rounds(z, epsilon)
    spans = []
    for _ in range(60):
        z, sums = next(centred)
        spans.append(np.ptp(np.log(sums)))
    assert spans[-1] < 1e-3 * spans[0]
    assert closure.rate(z) <= problem.epsilon


def test_repair_costs_next_to_nothing(problem: Problem, solved: np.ndarray) -> None:
    closure = Closure(problem.domain)
    repaired = repair(closure, solved, problem.epsilon)
    assert repaired.common_share == 0
    estimate = problem.expected_loss(closure.host(closure.start(solved)))
    assert problem.expected_loss(repaired.matrix) <= 1.02 * estimate


def test_later_centred_rounds_leave_rows_that_agree_where_they_are() -> None:
    lat = np.linspace(41.8, 42.0, 700)
    lat[1] = lat[0] + 1e-6
    closure = Closure(Domain.from_points(lat, np.full(700, 12.5)))
    z = np.full((700, 6), 1 / 6)
    z[closure.place[0]] *= np.linspace(1, 1 + 1e-3, 6)
    rounds = closure.centred_rounds(z, 5.0)
    before, sums = next(rounds)
    logs, (near, distance) = np.log(sums), closure.near
    worst = (np.abs(logs[:, None] - logs[near]) / distance).max(axis=1)
    chosen = worst > AGREED * 5.0
    for _ in range(AROUND):
        chosen |= chosen[near].any(axis=1)
    after, _ = next(rounds)
    assert 0 < chosen.sum() < 700
    np.testing.assert_allclose(after[~chosen], before[~chosen], rtol=1e-14)
    assert np.abs(after - before)[chosen].max() > 0
