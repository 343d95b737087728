"""The loop around the solver: what it keeps, when it ends, what it reports."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from helpers import displacement_problem, random_domain

from panda_mdp import Mechanism
from panda_mdp.methods.optimal import solve as loop
from panda_mdp.methods.optimal.backends import choose
from panda_mdp.methods.optimal.cpu_solver import CpuSolver
from panda_mdp.methods.optimal.graph import Graph, constraint_graph
from panda_mdp.methods.optimal.progress import Progress
from panda_mdp.methods.optimal.solve import Solve, next_check
from panda_mdp.methods.optimal.starts import one_row, warm_start

CPU = choose("cpu", None)


def town(size: int = 60):
    domain = random_domain("haversine", size, seed=6)
    near = float(np.median(domain.neighbours(1)[1]))
    return displacement_problem(domain, np.arange(0, size, 10), 1.0 / near)


def test_one_row_is_the_best_single_output():
    problem = town()
    matrix = one_row(problem)
    assert (matrix == matrix[0]).all()
    assert problem.expected_loss(matrix) == pytest.approx(
        float((problem.prior @ problem.loss).min())
    )


def test_warm_start_is_a_table_that_favours_cheap_outputs():
    problem = town()
    table = warm_start(problem, constraint_graph(problem.domain, problem.epsilon))
    np.testing.assert_allclose(table.sum(axis=1), 1)
    np.testing.assert_array_equal(table.argmax(axis=1), problem.loss.argmin(axis=1))


def test_warm_start_without_edges_or_slope_ignores_the_record():
    problem = town()
    none = Graph(np.empty((0, 2), dtype=np.int64), np.empty(0))
    np.testing.assert_array_equal(warm_start(problem, none), one_row(problem))
    flat = replace(problem, loss=np.ones_like(problem.loss))
    graph = constraint_graph(problem.domain, problem.epsilon)
    np.testing.assert_array_equal(warm_start(flat, graph), one_row(flat))


def test_what_was_certified_is_never_lost(monkeypatch):
    # A solver that gets worse after a while: the best table stays, and the loop gives up in time.
    advance = CpuSolver.advance

    def spoil(self, iterations):
        if self.iterations < 800:
            advance(self, iterations)
        else:
            self.iterations += iterations
            self._x[:] = 1 / self._scale / self._x.shape[1]

    problem = town()
    losses = []
    monkeypatch.setattr(CpuSolver, "advance", spoil)
    # Whether tables on the way are certified is otherwise decided by the clock.
    monkeypatch.setattr(Solve, "_due", lambda *_: True)
    mechanism = Solve(problem, 1e-6, CPU, progress=lambda now: losses.append(now.loss)).run()
    assert losses == sorted(losses, reverse=True)
    assert mechanism.loss == losses[-1] < float((problem.prior @ problem.loss).min())
    assert mechanism.details["stopped"] == "precision reached"
    assert mechanism.audit.holds


def test_a_bound_that_is_no_number_is_not_taken(monkeypatch):
    monkeypatch.setattr(CpuSolver, "bound", lambda self: math.nan)
    problem = town()
    mechanism = Solve(problem, 0.01, CPU, time_limit=1).run()
    trivial = float(problem.prior @ problem.loss.min(axis=1))
    assert mechanism.lower_bound == pytest.approx(trivial, rel=1e-9)


def test_a_problem_that_needs_no_record_needs_no_solver(monkeypatch):
    def refuse(*_: object) -> None:
        msg = "the solver was started"
        raise AssertionError(msg)

    monkeypatch.setattr(CpuSolver, "__init__", refuse)
    problem = town()
    loss = np.tile(np.arange(1.0, 7.0), (60, 1))
    mechanism = Solve(replace(problem, loss=loss), 0.01, CPU).run()
    assert mechanism.loss == pytest.approx(1.0, rel=1e-6)
    assert mechanism.details["stopped"] == "gap reached"
    assert mechanism.details["iterations"] == 0


def test_pairs_are_added_while_it_runs(monkeypatch):
    problem = town()
    sparse = constraint_graph(problem.domain, problem.epsilon, cones=4)
    few = Graph(sparse.ends[::3], sparse.length[::3])
    monkeypatch.setattr(loop, "constraint_graph", lambda *_: few)
    mechanism = Solve(problem, 0.01, CPU).run()
    assert mechanism.details["stopped"] == "gap reached"
    assert mechanism.details["edges"] > few.count


def test_the_next_check_is_where_the_gap_should_be_reached():
    halving = [(200, 0.04), (400, 0.02)]
    assert next_check([*halving, (800, 0.01)], 0.008) == (int(1.03 * 1000), True)
    assert next_check(halving, 0.001) == (560, False)
    assert next_check(halving[:1], 0.039) == (280, False)
    assert next_check([(200, 0.02), (400, 0.02)], 0.01) == (560, False)
    assert next_check([(200, math.inf), (400, 0.02)], 0.01) == (560, False)
    assert next_check([(200, 0.04), (240, 0.02)], 0.0199) == (280, True)
    assert next_check([(400, 0.04), (400, 0.02)], 0.01) == (560, False)
    # Just missed: whatever the last two checks say, not far beyond.
    assert next_check([(700, 0.0206), (1000, 0.0204)], 0.02) == (int(1030 * 1.02**2), False)
    assert next_check([(700, 0.02), (1000, 0.0204)], 0.02) == (int(1030 * 1.02**2), False)


def test_seconds_of_a_stage_add_up():
    run = Solve(town(), 0.01, CPU)
    for _ in range(3):
        with loop._Stage(run, "wait"):
            pass
    assert list(run.seconds) == ["wait"]
    mechanism = run.run()
    assert isinstance(mechanism, Mechanism)
    assert sum(dict(mechanism.stages).values()) == pytest.approx(mechanism.seconds)


@pytest.mark.parametrize("compiles", [False, True])
def test_compiling_is_not_taken_for_the_time_of_a_repair(compiles, monkeypatch):
    # The first round takes 0.2 s here: twelve of them would not fit the limit.
    estimate, calls = loop.estimated_loss, []

    def slow_at_first(*arguments):
        if not calls:
            time.sleep(0.2)
        calls.append(1)
        return estimate(*arguments)

    engine = choose("cpu", None)
    monkeypatch.setattr(engine, "compiles", compiles, raising=False)
    monkeypatch.setattr(loop, "estimated_loss", slow_at_first)
    mechanism = Solve(town(), 1e-9, engine, time_limit=2.0).run()
    assert mechanism.audit.holds
    assert (len(calls) > 1) == compiles


def test_progress_knows_its_gap():
    assert Progress(1.0, 10, 1.02, 1.0, 5).gap == pytest.approx(0.02)
    assert Progress(1.0, 10, 1.02, 0.0, 5).gap == math.inf


def test_one_costly_repair_does_not_keep_later_tables_from_being_certified(monkeypatch):
    problem, calls = town(), []
    plain = Solve(problem, 0.01, CPU).run().details["iterations"]

    def costly_at_first(closure, matrix, epsilon, floor):
        calls.append(1)
        return repair(
            closure, one_row(problem) if len(calls) == 1 else matrix, epsilon, floor=floor
        )

    repair = loop.repair
    monkeypatch.setattr(loop, "repair", costly_at_first)
    # Once on the way, at the first check, and then only where the estimate says so.
    monkeypatch.setattr(Solve, "_due", lambda *_: not calls)
    mechanism = Solve(problem, 0.01, CPU).run()
    assert mechanism.details["stopped"] == "gap reached"
    assert mechanism.details["iterations"] <= 3 * plain
    assert len(calls) < 6
