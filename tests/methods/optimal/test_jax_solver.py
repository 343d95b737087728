"""The iteration in JAX is the CPU's: same iterates, same bound, whatever the padding."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import KINDS, displacement_problem, random_domain

from panda_mdp import optimal
from panda_mdp.compute.jax import triton
from panda_mdp.compute.jax.device import make_mesh, precise, require_memory
from panda_mdp.errors import MethodError
from panda_mdp.methods.optimal import jax_solver as pdhg_jax
from panda_mdp.methods.optimal import lifted_solver
from panda_mdp.methods.optimal.cpu_solver import CpuSolver
from panda_mdp.methods.optimal.graph import Graph, constraint_graph
from panda_mdp.methods.optimal.halpern import CHECK
from panda_mdp.methods.optimal.jax_solver import JaxSolver, bytes_needed
from panda_mdp.methods.optimal.starts import warm_start

SIZE, OUTPUTS, EDGES = 60, 12, 320
"""One number of edges for all: compiling takes longer than anything else here."""


@pytest.fixture(scope="module")
def mesh():
    return make_mesh(jax.devices()[:1])


def case(kind: str):
    """A problem, a part of its graph and the solver's usual start."""
    domain = random_domain(kind, SIZE, seed=8)
    near = float(np.median(domain.neighbours(1)[1]))
    problem = displacement_problem(domain, np.arange(0, SIZE, SIZE // OUTPUTS), 1.0 / near)
    graph = constraint_graph(domain, problem.epsilon)
    kept = np.linspace(0, graph.count - 1, EDGES).astype(int)
    graph = Graph(graph.ends[kept], graph.length[kept])
    return problem, graph, warm_start(problem, graph)


def arrays(solver: CpuSolver | JaxSolver) -> list[np.ndarray]:
    """x, mu and u without padding."""
    return [
        np.asarray(solver._x)[:SIZE],
        np.asarray(solver._mu)[:SIZE],
        multipliers(solver)[: solver.graph.count],
    ]


def multipliers(solver: CpuSolver | JaxSolver) -> np.ndarray:
    """u with both sides of an edge next to each other, padding included."""
    return np.asarray(solver._u) if isinstance(solver, CpuSolver) else np.stack(solver._u, axis=1)


def give(solver: JaxSolver, u: np.ndarray) -> None:
    """Replace the multipliers."""
    full = np.zeros(multipliers(solver).shape, np.float32)
    full[: len(u)] = u
    with precise():
        solver._u = tuple(solver._on.sharded(full[:, side], 0.0) for side in range(2))


@pytest.mark.parametrize("kind", KINDS)
def test_one_block_is_the_cpus(kind, mesh):
    problem, graph, start = case(kind)
    here, there = CpuSolver(problem, graph, start), JaxSolver(problem, graph, start, mesh)
    # From a point in the middle: multipliers that are all 0 would hide mistakes.
    here._scale_anew = 10 * CHECK
    here.advance(3 * CHECK)
    give(there, here._u)
    with precise():
        pad = ((0, there._records - SIZE), (0, 0))
        there._x = there._on.sharded(np.pad(here._x, pad), 0.0)
        there._mu = there._on.whole(np.pad(here._mu, pad[0]))
    there.weight, there.iterations = here.weight, here.iterations
    here._restart()
    there._restart()
    assert there.bound() == pytest.approx(here.bound(), rel=1e-13)
    np.testing.assert_array_equal(there.matrix(), here.matrix())
    moved = [solver._iterate(CHECK, 3) for solver in (here, there)]
    # 40 iterations, each rounding to 6e-8.
    for ours, theirs in zip(arrays(here), arrays(there), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=2e-5, atol=2e-5 * np.abs(ours).max())
    assert moved[1] == pytest.approx(moved[0], rel=1e-2)
    np.testing.assert_allclose(there._travel(), here._travel(), rtol=1e-3)
    assert there.bound() == pytest.approx(here.bound(), rel=1e-4)


def test_a_new_scale_is_the_cpus(mesh):
    problem, graph, start = case("haversine")
    here, there = CpuSolver(problem, graph, start), JaxSolver(problem, graph, start, mesh)
    before = there._scale
    for solver in (here, there):
        solver.advance(2 * CHECK)
    assert float(np.abs(np.asarray(there._scale - before)).max()) > 0.1
    close = {"rtol": 1e-3, "atol": 1e-4}
    np.testing.assert_allclose(np.asarray(there._scale)[:SIZE, :OUTPUTS], here._scale, **close)
    np.testing.assert_allclose(there.scale_sums, here.scale_sums, **close)
    np.testing.assert_allclose(there._row_share[:SIZE], 1 / here._row_sums, **close)
    # Rows that do not exist keep a scale of 1.
    np.testing.assert_array_equal(np.asarray(there._scale)[SIZE:], 1)
    assert there.bound() == pytest.approx(here.bound(), rel=1e-4)


def test_many_blocks_end_where_the_cpu_does(mesh):
    problem, graph, start = case("haversine")
    here, there = CpuSolver(problem, graph, start), JaxSolver(problem, graph, start, mesh)
    for solver in (here, there):
        solver.advance(2000)
        assert solver.iterations == 2000
        # Both have converged: nothing is left between the bound and the table.
        assert problem.expected_loss(solver.matrix()) == pytest.approx(solver.bound(), rel=2e-3)
    assert there.bound() == pytest.approx(here.bound(), rel=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_holds_for_garbage_and_is_the_cpus(kind, mesh):
    problem, graph, start = case(kind)
    # A private table's loss is above every bound.
    private = optimal(problem, gap=0.05, backend="cpu").loss
    here, there = CpuSolver(problem, graph, start), JaxSolver(problem, graph, start, mesh)
    rng = np.random.default_rng(0)
    for size in (1e-3, 1.0, 1e3, 1e30):
        for _ in range(5):
            garbage = rng.uniform(-size, size, here._u.shape).astype(np.float32)
            here._u = garbage
            give(there, garbage)
            assert there.bound() <= private
            assert there.bound() == pytest.approx(here.bound(), rel=1e-9)


def test_multipliers_that_are_no_numbers_give_no_bound_above(mesh):
    problem, graph, start = case("haversine")
    solver = JaxSolver(problem, graph, start, mesh)
    give(solver, np.full((graph.count, 2, OUTPUTS), np.nan, np.float32))
    trivial = float(problem.prior @ problem.loss.min(axis=1))
    # What the loop keeps: the larger of the two, and nan is not larger.
    assert max(trivial, solver.bound()) == trivial


def test_padding_of_records_and_edges_changes_nothing(mesh, monkeypatch):
    problem, graph, start = case("euclidean")
    tight = JaxSolver(problem, graph, start, mesh)
    monkeypatch.setattr(pdhg_jax, "ladder", lambda size, fine=True: 2 * size + 7)
    loose = JaxSolver(problem, graph, start, mesh)
    assert loose._records > tight._records
    assert len(loose._u[0]) > len(tight._u[0])
    for solver in (tight, loose):
        solver.advance(2 * CHECK)
    for first, second in zip(arrays(tight), arrays(loose), strict=True):
        np.testing.assert_allclose(second, first, rtol=1e-5, atol=1e-5 * np.abs(first).max())
    assert not multipliers(loose)[graph.count :].any()
    assert not np.asarray(loose._x)[SIZE:].any()
    assert loose.bound() == pytest.approx(tight.bound(), rel=1e-5)
    assert loose.residual == pytest.approx(tight.residual, rel=1e-3)


def test_extending_keeps_what_was_reached(mesh):
    problem, graph, start = case("euclidean")
    kept = np.arange(graph.count) % 16 > 0
    solver = JaxSolver(problem, Graph(graph.ends[kept], graph.length[kept]), start, mesh)
    solver.advance(2 * CHECK)
    table, before = solver.matrix(), solver.bound()
    solver.extend(Graph(graph.ends[~kept], graph.length[~kept]))
    assert solver.graph.count == graph.count
    np.testing.assert_array_equal(solver.matrix(), table)
    assert solver.bound() == pytest.approx(before, rel=1e-12)


@pytest.mark.parametrize("few", [True, False])
def test_lists_of_edges_have_room_from_the_beginning_where_they_are_short(mesh, monkeypatch, few):
    """Every length is compiled for; a long list with room would take its time and memory."""
    if not few:
        monkeypatch.setattr(pdhg_jax, "FEW_MULTIPLIERS", 0)
    problem, graph, start = case("euclidean")
    kept = np.arange(graph.count) % 4 > 0
    solver = JaxSolver(problem, Graph(graph.ends[kept], graph.length[kept]), start, mesh)
    before, first = len(solver._u[0]), int(kept.sum())
    assert (before >= 1.5 * first) == few
    solver.extend(Graph(graph.ends[~kept], graph.length[~kept]))
    assert (len(solver._u[0]) == before) == few
    assert graph.count <= len(solver._u[0]) <= (1.9 if few else 1.25) * graph.count


def test_memory_is_asked_for_before_anything_is_placed(mesh, monkeypatch):
    problem, graph, start = case("haversine")
    monkeypatch.setattr(pdhg_jax, "require_memory", partial(require_memory, available=10_000))
    with pytest.raises(MethodError, match=r"GiB over 1 device\(s\)"):
        JaxSolver(problem, graph, start, mesh)


def test_memory_grows_with_edges_and_records_times_outputs():
    assert bytes_needed(10, 20, 30) * 6 == bytes_needed(10, 20, 180) == bytes_needed(60, 120, 30)
    # Rome: 43,160 records, some 400,000 edges and 100 outputs fit one large device.
    assert 1e9 < bytes_needed(43_160, 400_000, 100) < 60e9


def test_what_is_needed_is_not_understated(mesh):
    problem, graph, start = case("haversine")
    solver = JaxSolver(problem, graph, start, mesh)
    solver.advance(CHECK)
    held = [solver._x, solver._x0, *solver._u, *solver._u0, solver._cost, solver._cost64]
    held += [solver._scale, solver._inverse]
    needed = bytes_needed(solver._records, len(solver._u[0]), solver._on.width)
    assert sum(array.nbytes for array in held) < needed


def test_settings_do_not_leak(mesh):
    problem, graph, start = case("haversine")
    solver = JaxSolver(problem, graph, start, mesh)
    solver.advance(CHECK)
    solver.bound()
    assert not jax.config.jax_enable_x64
    assert jnp.ones(2).dtype == np.float32
    # Nor do settings outside reach in.
    with jax.enable_x64(True):
        again = JaxSolver(problem, graph, start, mesh)
        again.advance(CHECK)
        assert again._x.dtype == again._u[0].dtype == np.float32
        assert again.bound() == solver.bound()


def test_sums_over_edges_in_a_kernel_are_those_of_xla():
    rng = np.random.default_rng(0)
    records, count, padded = 40, 300, 320
    ends = np.sort(rng.integers(0, records - 1, (count, 2)), axis=1)
    ends = np.concatenate([ends, np.full((padded - count, 2), records - 1)]).astype(np.int32)
    ends = ends[np.lexsort((ends[:, 1], ends[:, 0]))]
    first, second = jnp.asarray(ends[:, 0]), jnp.asarray(ends[:, 1])
    by_second, sorted_second = pdhg_jax._sorted(second)
    graph = {"first": first, "by_second": by_second, "sorted_second": sorted_second}
    u = [rng.normal(size=(padded, 32)).astype(np.float32) for _ in range(2)]
    for side in u:
        side[count:] = 0
    starts, later = (
        lifted_solver._starts(graph[name], records) for name in ("first", "sorted_second")
    )
    sums = triton.summed(*u, starts, later, by_second, interpret=True)
    np.testing.assert_allclose(sums, pdhg_jax._by_record(*u, graph, records), atol=1e-5)
