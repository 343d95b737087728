"""Which machine solves, and that it does not matter: one device or eight."""

from __future__ import annotations

import sys

import jax
import numpy as np
import pytest
from helpers import displacement_problem, random_domain

from panda_mdp import Domain, Mechanism, Problem, audit, exponential, optimal
from panda_mdp.compute.closure import Closure, closure_of
from panda_mdp.compute.jax.closure import JaxClosure
from panda_mdp.compute.pairs import chosen_backend
from panda_mdp.errors import MissingDependencyError, PrivacyError
from panda_mdp.methods.optimal.graph_solver import CpuSolver
from panda_mdp.methods.optimal.jax_solver import JaxSolver
from panda_mdp.methods.optimal.optimal import CpuEngine, JaxEngine, accelerator, choose
from panda_mdp.methods.optimal.program import Graph, TilingTuning


def town(kind: str = "haversine", size: int = 60):
    domain = random_domain(kind, size, seed=2)
    near = float(np.median(domain.neighbours(1)[1]))
    return displacement_problem(domain, np.arange(0, size, 5), 1.0 / near)


def block_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes JAX impossible to import."""
    for name in ("compute.jax.device", "compute.jax.closure", "methods.optimal.jax_solver"):
        monkeypatch.delitem(sys.modules, f"panda_mdp.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "jax", None)


# Which engine.


def test_names_choose_engines():
    assert isinstance(choose("cpu"), CpuEngine)
    assert isinstance(choose("jax"), JaxEngine)
    engine = JaxEngine()
    assert choose(engine) is engine


def test_auto_takes_the_cpu_where_jax_sees_nothing_faster(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert not accelerator()
    assert isinstance(choose("auto"), CpuEngine)


def test_auto_takes_an_accelerator(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert accelerator()
    assert isinstance(choose("auto"), JaxEngine)
    assert isinstance(choose("cpu"), CpuEngine)


def test_without_jax_auto_takes_the_cpu(monkeypatch):
    block_jax(monkeypatch)
    assert not accelerator()
    assert isinstance(choose("auto"), CpuEngine)


@pytest.mark.parametrize("start", [JaxEngine, lambda: optimal(town(), backend="jax")])
def test_jax_missing_says_what_to_install(start, monkeypatch):
    block_jax(monkeypatch)
    with pytest.raises(MissingDependencyError, match=r"pip install 'panda-mdp\[gpu\]'"):
        start()


def test_numba_missing_names_the_other_backend(without_numba):
    with pytest.raises(MissingDependencyError, match=r"or use backend='jax'"):
        choose("cpu")


def a_line(count: int = 600) -> Problem:
    edges = [(i, i + 1) for i in range(count - 1)]
    outputs = list(range(0, count, 60))
    return displacement_problem(Domain.from_graph(edges, np.full(count - 1, 0.1)), outputs, 1.0)


@pytest.mark.parametrize("problem", [lambda: town("matrix"), a_line], ids=["matrix", "paths"])
def test_jax_solves_without_numba(problem, without_numba):
    """As a machine with an accelerator may be."""
    mechanism = optimal(problem(), 0.05, backend="jax")
    assert mechanism.audit.holds and mechanism.gap <= 0.05
    assert mechanism.details["backend"] == "jax"
    assert audit(mechanism).epsilon == pytest.approx(mechanism.audit.epsilon, rel=1e-12)


def test_edges_are_relaxed_alike_with_and_without_numba(request):
    problem, rng = a_line(), np.random.default_rng(3)
    table = np.exp(rng.normal(size=problem.loss.shape))
    active = rng.random(len(table)) < 0.7
    compiled = [closure_of(problem.domain).close(table, 1.0, some) for some in (None, active)]
    request.getfixturevalue("without_numba")
    plain = [closure_of(problem.domain).close(table, 1.0, some) for some in (None, active)]
    np.testing.assert_allclose(plain, compiled, rtol=1e-13)


def test_audits_without_numba_go_to_an_accelerator(monkeypatch, request):
    problem = displacement_problem(random_domain("haversine", 900), [0, 50, 100], 1.0)
    mechanism = exponential(problem)
    compiled = mechanism.audit
    request.getfixturevalue("without_numba")
    assert chosen_backend(0) == "numpy"
    assert audit(mechanism).epsilon == pytest.approx(compiled.epsilon, rel=1e-12)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert chosen_backend(0) == "jax"
    there = audit(mechanism)
    assert there.epsilon == pytest.approx(compiled.epsilon, rel=1e-12)
    assert (there.holds, there.worst) == (compiled.holds, compiled.worst)


def test_engines_make_their_own_parts():
    problem = town()
    graph = Graph(np.array([[0, 1]]), problem.domain.metric.pairs([0], [1]))
    start = np.full((60, 12), 1 / 12)
    cpu, accelerated = choose("cpu"), choose("jax")
    assert type(cpu.closure(problem)) is Closure
    assert type(accelerated.closure(problem)) is JaxClosure
    assert isinstance(cpu.solver(problem, graph, start), CpuSolver)
    assert isinstance(accelerated.solver(problem, graph, start), JaxSolver)


# Whole solves.


def test_a_whole_solve_in_jax_is_the_cpus():
    problem = town()
    here, there = (optimal(problem, 0.05, backend=backend) for backend in ("cpu", "jax"))
    assert isinstance(there, Mechanism)
    assert there.audit.holds
    assert there.details["stopped"] == "gap reached"
    assert (here.details["backend"], there.details["backend"]) == ("cpu", "jax")
    assert there.loss == pytest.approx(here.loss, rel=1e-4)
    assert here.bound.words == there.bound.words == "proved"
    assert here.gap <= 0.05 and there.gap <= 0.05
    # The bounds of the two loops: what a file proves comes from shorter multipliers.
    bounds = [one.details["trace"][-1][3] for one in (here, there)]
    assert bounds[1] == pytest.approx(bounds[0], rel=1e-4)
    assert not jax.config.jax_enable_x64


WORDS = np.random.default_rng(4).normal(size=(48, 20))
TILED = TilingTuning(least_outputs=32, host_outputs=32, worthwhile=1.0)


@pytest.mark.filterwarnings("ignore::panda_mdp.errors.GapWarning")
@pytest.mark.parametrize("nats", [29.0, 35.0, 5000.0])
@pytest.mark.parametrize("tiling", [None, TILED], ids=["dense", "tiles"])
@pytest.mark.parametrize("engine", [CpuEngine, JaxEngine])
def test_an_epsilon_that_hides_nothing_reports_the_record(engine, tiling, nats):
    """Between the nearest two words, all others farther apart; tiles used to end at a floor of 0,
    where an output is possible for one record alone."""
    domain = Domain.from_vectors(WORDS)
    nearest = float(domain.neighbours(1)[1].min())
    problem = displacement_problem(domain, range(48), nats / nearest)
    table = optimal(problem, backend=engine(tiling=tiling))
    assert (table.audit.holds, table.audit.pairs) == (True, 48 * 47 // 2)
    assert np.asarray(table.weights).min() >= 1
    assert (table.matrix.argmax(axis=1) == np.arange(48)).all()
    lost = 47 * domain.diameter
    if nats > 30:
        # As little as epsilon lets anybody leave out, or a floor that rounding leaves alone.
        assert table.loss <= lost * max(np.exp(-nats * (1 - 1e-5)), 2.0**-49)
        assert table.details["iterations"] == 0
    else:
        assert table.loss <= lost * (np.exp(-nats) + 2.0**-49)
    assert table.lower_bound <= table.loss


def test_an_output_of_one_record_alone_is_never_private():
    domain = Domain.from_vectors(WORDS)
    problem = displacement_problem(domain, range(48), 1e9)
    with pytest.raises(PrivacyError, match="inf"):
        Mechanism.from_matrix(problem, np.eye(48))
