"""Tiles of outputs: the same optimum as the dense iteration, and bounds that hold at any reach."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest
from helpers import displacement_problem, random_domain

from panda_mdp import optimal
from panda_mdp.base.floored import FlooredRows
from panda_mdp.compute.status import Stopped
from panda_mdp.loss import DistanceLoss
from panda_mdp.methods.optimal import backends, lifted
from panda_mdp.methods.optimal.backends import CpuEngine, JaxEngine
from panda_mdp.methods.optimal.graph import constraint_graph
from panda_mdp.methods.optimal.host_lifted import HostLifted, least_outside
from panda_mdp.methods.optimal.lifted import WIDTH, Lifted, Nodes, reach
from panda_mdp.methods.optimal.starts import warm_start
from panda_mdp.privacy.audit import audit, audit_weights


@pytest.fixture(scope="module")
def town():
    """Any of a hundred places may be reported, and few are worth it."""
    domain = random_domain("haversine", 100, seed=4)
    near = float(np.median(domain.neighbours(1)[1]))
    return displacement_problem(domain, np.arange(100), 1.5 / near)


@pytest.fixture(scope="module")
def dense(town):
    return optimal(town, 0.02, "cpu")


def test_tiles_hold_every_output_and_their_outside_is_outside(town):
    graph = constraint_graph(town.domain, town.epsilon)
    reached = reach(town, graph, 6.0)
    assert reached.tiles.shape == (4, WIDTH)
    assert sorted(set(reached.tiles.ravel().tolist())) == list(range(100))
    assert 0.05 < reached.share < 0.9
    for x in range(100):
        inside = set(reached.tiles[reached.sees[:, x]].ravel().tolist())
        outside = [town.weighted_loss[x, y] for y in range(100) if y not in inside]
        assert reached.outside[x] == pytest.approx(min(outside, default=np.inf))
        assert int(town.loss[x].argmin()) in inside


def test_edges_are_lifted_into_every_tile_that_sees_both_ends(town):
    graph = constraint_graph(town.domain, town.epsilon)
    reached = reach(town, graph, 6.0)
    nodes = Nodes(town, reached)
    up = nodes.lift(graph)
    both = reached.sees[:, graph.ends[:, 0]] & reached.sees[:, graph.ends[:, 1]]
    assert up.count == both.sum()
    assert (nodes.tile[up.ends[:, 0]] == nodes.tile[up.ends[:, 1]]).all()
    first, second = nodes.record[up.ends[:, 0]], nodes.record[up.ends[:, 1]]
    np.testing.assert_allclose(up.length, town.domain.metric.pairs(first, second))


@pytest.mark.parametrize("nats", [0.5, 6.0, 40.0])
def test_the_bound_holds_at_any_reach(town, dense, nats, monkeypatch):
    monkeypatch.setattr(lifted, "MOST_NATS", 0.0)
    monkeypatch.setattr(backends, "localised", _reach_of(nats))
    graph = constraint_graph(town.domain, town.epsilon)
    solver = JaxEngine().solver(town, graph, warm_start(town, graph))
    assert isinstance(solver, Lifted)
    free = float((town.prior * town.loss.min(axis=1)).sum())
    for _ in range(3):
        solver.advance(200)
        assert solver.bound() <= dense.loss
    table = solver.matrix()
    assert table.min() >= 0
    np.testing.assert_allclose(table.sum(axis=1), 1, atol=0.05)
    if nats >= 6.0:
        assert solver.bound() > max(free, 0.9 * dense.lower_bound)


@pytest.mark.parametrize("stored", [True, False])
def test_a_whole_solve_agrees_with_the_dense_one(town, dense, monkeypatch, stored):
    monkeypatch.setattr(lifted, "LEAST_OUTPUTS", 64)
    monkeypatch.setattr(lifted, "WORTHWHILE", 1.0)
    loss = town.loss if stored else DistanceLoss(town.domain, town.outputs)
    mechanism = optimal(replace(town, loss=loss), 0.03, "jax")
    assert isinstance(mechanism.weights, FlooredRows)
    assert audit(mechanism).epsilon == pytest.approx(mechanism.audit.epsilon, rel=1e-9)
    assert mechanism.details["stopped"] is Stopped.GAP_REACHED
    assert mechanism.audit.holds
    assert mechanism.lower_bound <= dense.loss
    assert dense.lower_bound <= mechanism.loss <= 1.03 * dense.loss


def test_programs_are_few_and_serve_the_next_problem_of_the_size(town, monkeypatch):
    """A first call waits for each of them to be traced, compiled or loaded."""
    monkeypatch.setattr(lifted, "LEAST_OUTPUTS", 64)
    monkeypatch.setattr(lifted, "WORTHWHILE", 1.0)
    names: list[str] = []

    def listen(event: str, _: float, **about: str) -> None:
        if event.endswith("backend_compile_duration"):
            names.append(about.get("fun_name", "?"))

    jax.clear_caches()
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        optimal(town, 0.03, "jax")
        assert 20 < len(names) <= 46, sorted(names)
        # The second one's list of edges is a step of the ladder shorter.
        for seed, most in ((8, 4), (5, 12)):
            names.clear()
            domain = random_domain("haversine", 100, seed=seed)
            optimal(displacement_problem(domain, np.arange(100), town.epsilon), 0.03, "jax")
            assert len(names) <= most, sorted(names)
    finally:
        jax.monitoring.clear_event_listeners()


@pytest.mark.parametrize("loss", ["distance", "squares", "shuffled"])
def test_on_the_cpu_the_table_is_sparse_and_agrees_with_highs(town, monkeypatch, loss):
    """Any loss: outputs that are alike need not be near on the map."""
    monkeypatch.setattr(lifted, "LEAST_OUTPUTS", 32)
    monkeypatch.setattr(lifted, "WORTHWHILE", 1.0)
    domain = town.domain.take(np.arange(40))
    table = domain.distances()
    if loss == "squares":
        table = table**2
    if loss == "shuffled":
        table = table[:, np.random.default_rng(0).permutation(40)]
    prior = np.random.default_rng(1).dirichlet(np.ones(40))
    problem = replace(displacement_problem(domain, np.arange(40), town.epsilon, prior), loss=table)
    exact = optimal(problem, backend="highs", pairs="all")
    mechanism = optimal(problem, 0.03, "cpu")
    assert isinstance(mechanism.weights, FlooredRows)
    assert mechanism.details["stopped"] is Stopped.GAP_REACHED and mechanism.audit.holds
    assert mechanism.audit == audit_weights(
        domain, problem.outputs, np.asarray(mechanism.weights), problem.epsilon
    )
    assert mechanism.lower_bound <= exact.loss * (1 + 1e-9)
    assert exact.lower_bound * (1 - 1e-9) <= mechanism.loss <= 1.03 * exact.loss
    assert mechanism.details["stored"] < 40 * 40


def test_fewer_outputs_iterate_on_tiles_and_give_dense_tables(town, dense, monkeypatch):
    """Where the multipliers are too many for a proof; otherwise the graph stays whole."""
    graph = constraint_graph(town.domain, town.epsilon)
    monkeypatch.setattr(lifted, "HOST_OUTPUTS", 64)
    monkeypatch.setattr(lifted, "WORTHWHILE", 1.0)
    assert not isinstance(CpuEngine().solver(town, graph, None), Lifted)
    monkeypatch.setattr("panda_mdp.methods.optimal.cpu_solver.READ_MULTIPLIERS", 0)
    assert isinstance(CpuEngine().solver(town, graph, None), Lifted)
    mechanism = optimal(town, 0.03, "cpu")
    assert isinstance(mechanism.weights, np.ndarray)
    assert mechanism.details["stopped"] is Stopped.GAP_REACHED and mechanism.audit.holds
    assert mechanism.lower_bound <= dense.loss
    assert dense.lower_bound <= mechanism.loss <= 1.03 * dense.loss


def test_nodes_that_closing_gives_mass_join_and_the_iteration_goes_on(town, dense):
    """From far too small a reach to a bound that is the dense one's, with the multipliers kept."""
    graph = constraint_graph(town.domain, town.epsilon)
    solver = HostLifted(town, graph, None, reach(town, graph, 1.0))
    few = solver.reached.share
    for _ in range(6):
        solver.advance(200)
        table = solver.matrix()
        sees, bound, count = solver.reached.sees.copy(), solver.bound(), solver.iterations
        solver.grow(None)
        np.testing.assert_allclose(solver.matrix(), table, rtol=1e-5, atol=1e-9)
        assert solver.iterations == count
        assert solver.bound() >= bound * (1 - 1e-6) and bound <= dense.loss
        assert (solver.reached.sees | ~sees).all()
    assert few < 0.6 * solver.reached.share
    assert solver.bound() > 0.97 * dense.lower_bound
    candidate = solver.finish.candidate(solver)
    solver.finish.estimate(candidate)
    left = solver.finish.raised(candidate, solver.reached.sees)[0]
    assert len(left) <= 0.02 * solver._nodes.count


def test_a_wider_reach_keeps_the_multipliers(town, dense):
    graph = constraint_graph(town.domain, town.epsilon)
    solver = HostLifted(town, graph, None, reach(town, graph, 6.0))
    solver.advance(400)
    bound, nodes = solver.bound(), solver._nodes.count
    solver._widen()
    assert solver._nodes.count > nodes
    assert bound * (1 - 1e-6) <= solver.bound() <= dense.loss
    assert solver.iterations == 400


def test_what_lies_outside_is_the_least_cost_that_no_tile_sees(town):
    graph = constraint_graph(town.domain, town.epsilon)
    reached = reach(town, graph, 6.0)
    sees = reached.sees | (np.random.default_rng(0).random(reached.sees.shape) < 0.3)
    sees[:, 7] = True
    least = least_outside(town, reached.tiles, sees, np.arange(100))
    for x in range(100):
        inside = set(reached.tiles[sees[:, x]].ravel().tolist())
        outside = [town.weighted_loss[x, y] for y in range(100) if y not in inside]
        assert least[x] == pytest.approx(min(outside, default=np.inf))


def test_an_interrupt_or_a_limit_leaves_a_certified_sparse_table(town, monkeypatch):
    monkeypatch.setattr(lifted, "LEAST_OUTPUTS", 64)
    monkeypatch.setattr(lifted, "WORTHWHILE", 1.0)
    mechanism = optimal(town, 1e-9, "cpu", time_limit=1.0)
    assert mechanism.audit.holds and mechanism.details["stopped"] is Stopped.TIME_LIMIT


def _reach_of(nats):
    return lambda problem, graph, **_: reach(problem, graph, nats)
