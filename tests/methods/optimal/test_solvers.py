"""The first-order method on every machine: the graph's optimum, and bounds that hold on the way.

One suite for the CPU and for JAX; a dense table is one tile, and tiles end where it does.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import KINDS, displacement_problem, random_domain

from panda_mdp import Domain, Problem, optimal, solve_lp
from panda_mdp.base.floored import FlooredRows
from panda_mdp.compute.jax import pdhg, triton
from panda_mdp.compute.jax.device import precise, require_memory
from panda_mdp.errors import MethodError, Stopped
from panda_mdp.loss import DistanceLoss
from panda_mdp.methods.optimal.graph_solver import (
    BLOCK_ENTRIES,
    LEAST_BLOCK,
    LEAST_BLOCKS,
    CpuSolver,
    block_size,
)
from panda_mdp.methods.optimal.halpern import CHECK, squared_distance
from panda_mdp.methods.optimal.jax_solver import JaxSolver, bytes_needed
from panda_mdp.methods.optimal.optimal import CpuEngine, JaxEngine
from panda_mdp.methods.optimal.program import (
    TILING,
    WIDTH,
    Graph,
    Program,
    Tiling,
    TilingTuning,
    all_pairs,
    constraint_graph,
    least_outside,
    tiling_for,
    warm_start,
)
from panda_mdp.privacy.audit import audit, audit_weights
from panda_mdp.table.bound import Proved

MACHINES = ["cpu", "jax"]
TILES = TilingTuning(least_outputs=32, host_outputs=32, worthwhile=1.0)


def make(machine, problem, graph, start, tiling=None, tuning=TILING):
    if machine == "cpu":
        return CpuSolver(problem, graph, start, tiling, tuning)
    return JaxSolver(problem, graph, start, tiling, tuning)


def engine(machine, tuning):
    return {"cpu": CpuEngine, "jax": JaxEngine}[machine](tiling=tuning)


def uniform(problem) -> np.ndarray:
    return np.full((problem.size, problem.outputs_count), 1 / problem.outputs_count)


@cache
def dense_town(kind: str, size: int = 45):
    """Records close enough, measured by epsilon, for neighbours to constrain each other."""
    domain = random_domain(kind, size, seed=8)
    near = float(np.median(domain.neighbours(1)[1]))
    return displacement_problem(domain, np.arange(0, size, 9), 1.0 / near)


class Given(CpuSolver):
    """With other least reduced costs than its own."""

    given: np.ndarray

    def least(self, added=None) -> np.ndarray:
        return self.given


def test_the_bound_is_below_the_exact_sum_of_what_records_cost_at_least() -> None:
    """Sums of float64 round up half of the time."""
    problem = dense_town("euclidean")
    solver = Given(problem, constraint_graph(problem.domain, problem.epsilon), None)
    above = 0
    for seed in range(40):
        solver.given = np.random.default_rng(seed).uniform(0, 1e3, problem.size)
        exact = sum(map(Fraction, np.minimum(solver.given, solver.tiling.outside).tolist()))
        above += float(np.minimum(solver.given, solver.tiling.outside).sum()) > exact
        assert exact * (1 - Fraction(1, 2**50)) <= Fraction(solver.bound()) <= exact
    assert above > 10


def halves(graph: Graph) -> tuple[Graph, Graph]:
    return tuple(Graph(graph.ends[k::2], graph.length[k::2]) for k in range(2))


def optimum(problem, pairs="graph") -> float:
    return solve_lp(problem, pairs=pairs, algorithm="simplex").details["highs_objective"]


# One tile.


@pytest.mark.parametrize(
    ("machine", "kind"), [*(("cpu", kind) for kind in KINDS), ("jax", "haversine")]
)
@pytest.mark.parametrize("start", ["uniform", "warm"])
def test_kkt_on_the_graph(machine, kind, start):
    """A solver sees lengths and no metric; that JAX does as the CPU on each kind is asked below."""
    problem = dense_town(kind)
    graph = constraint_graph(problem.domain, problem.epsilon)
    best = optimum(problem)
    table = uniform(problem) if start == "uniform" else warm_start(problem, graph)
    solver = make(machine, problem, graph, table)
    solver.advance(6000)
    z = solver.matrix()
    # Primal: rows on the simplex, every edge and output near its cone.
    assert z.min() >= 0
    np.testing.assert_allclose(z.sum(axis=1), 1, atol=2e-3)
    first, second = z[graph.ends[:, 0]], z[graph.ends[:, 1]]
    growth = np.exp(problem.epsilon * graph.length)[:, None]
    beyond = np.maximum(first - growth * second, second - growth * first)
    assert (beyond / np.hypot(1, growth)).max() < 1e-3
    # Dual and duality gap: the bound is rigorous, and nothing is left between the two.
    assert best * (1 - 2e-3) <= solver.bound() <= best * (1 + 1e-7)
    assert problem.expected_loss(z) == pytest.approx(best, rel=2e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_machines_iterate_alike(kind):
    problem = dense_town(kind, 60)
    graph = constraint_graph(problem.domain, problem.epsilon)
    solvers = [make(m, problem, graph, warm_start(problem, graph)) for m in MACHINES]
    # A restart with a new scale lies between the two looks.
    for _ in range(2):
        for solver in solvers:
            solver.advance(CHECK)
        here, there = solvers
        np.testing.assert_allclose(there.matrix(), here.matrix(), atol=1e-4)
        assert there.bound() == pytest.approx(here.bound(), rel=1e-4)
        assert there.residual == pytest.approx(here.residual, rel=1e-2)


def test_the_bound_rises_to_the_optimum_and_the_residual_falls():
    problem = dense_town("haversine")
    graph = constraint_graph(problem.domain, problem.epsilon)
    solver = CpuSolver(problem, graph, uniform(problem))
    residuals, bounds = [], []
    for _ in range(3):
        solver.advance(800)
        residuals.append(solver.residual)
        bounds.append(solver.bound())
    assert residuals[0] > residuals[1] > residuals[2]
    assert bounds[0] < bounds[2]
    assert solver.iterations == 2400


def test_what_was_reached_is_not_lost_to_rounding():
    # Here the table comes to rest early and the weight, unless held, runs away from it.
    problem = dense_town("haversine")
    graph = constraint_graph(problem.domain, problem.epsilon)
    solver = CpuSolver(problem, graph, uniform(problem))
    bounds = []
    for _ in range(6):
        solver.advance(2000)
        bounds.append(solver.bound())
    assert min(bounds) >= bounds[0] * (1 - 1e-4)
    assert bounds[-1] == pytest.approx(problem.expected_loss(solver.matrix()), rel=2e-4)


@pytest.mark.parametrize("machine", MACHINES)
def test_extending_keeps_what_was_reached(machine):
    problem = dense_town("euclidean")
    some, more = halves(all_pairs(problem.domain, problem.epsilon))
    solver = make(machine, problem, some, uniform(problem))
    solver.advance(1000)
    table, before = solver.matrix(), solver.bound()
    solver.extend(more)
    assert solver.graph.count == some.count + more.count
    np.testing.assert_array_equal(solver.matrix(), table)
    assert solver.bound() == pytest.approx(before, rel=1e-12)
    solver.advance(4000)
    best = optimum(problem, "all")
    assert best * (1 - 5e-3) <= solver.bound() <= best * (1 + 1e-7)


def test_a_scale_that_follows_the_table_reaches_a_bound_sooner():
    problem = dense_town("euclidean", 120)
    graph = constraint_graph(problem.domain, problem.epsilon)

    class Fixed(CpuSolver):
        def _rescale(self) -> None:
            """The first scale stays."""

    bounds = []
    for solver in (CpuSolver, Fixed):
        made = solver(problem, graph, uniform(problem))
        made.advance(280)
        bounds.append(made.bound())
    assert bounds[0] > bounds[1]


def test_blocks_change_no_more_than_the_order_of_sums():
    problem = dense_town("euclidean", 300)
    graph = constraint_graph(problem.domain, problem.epsilon)
    found = []
    for size in (1, 7, 64, 1000):
        solver = type("Blocks", (CpuSolver,), {"block": size})(
            problem, graph, warm_start(problem, graph)
        )
        solver.advance(80)
        found.append((solver.matrix(), solver.bound(), solver.residual))
    for matrix, bound, residual in found[1:]:
        np.testing.assert_allclose(matrix, found[0][0], atol=2e-6)
        assert bound == pytest.approx(found[0][1], rel=1e-6)
        assert residual == pytest.approx(found[0][2], rel=1e-5)


def test_a_block_fits_the_cache_and_leaves_work_for_all():
    assert block_size(500, 100) == LEAST_BLOCK
    assert block_size(10**6, 100) == BLOCK_ENTRIES // 100
    assert block_size(10**6, 10**6) == LEAST_BLOCK
    assert block_size(8000, 20) == 8000 // LEAST_BLOCKS


@pytest.mark.parametrize("machine", MACHINES)
def test_units_of_the_loss_do_not_matter(machine):
    problem = dense_town("haversine")
    scaled = replace(problem, loss=problem.loss * 1e9)
    graph = constraint_graph(problem.domain, problem.epsilon)
    solvers = [make(machine, p, graph, uniform(problem)) for p in (problem, scaled)]
    for solver in solvers:
        solver.advance(80)
    np.testing.assert_allclose(solvers[0].matrix(), solvers[1].matrix(), atol=1e-3)
    assert solvers[1].bound() == pytest.approx(1e9 * solvers[0].bound(), rel=1e-2)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_loss_of_zero_is_solved(machine):
    problem = dense_town("matrix")
    free = replace(problem, loss=np.zeros_like(problem.loss))
    graph = constraint_graph(free.domain, free.epsilon)
    solver = make(machine, free, graph, uniform(free))
    solver.advance(40)
    assert solver.bound() == 0.0
    assert np.isfinite(solver.matrix()).all()


def test_squared_distance_of_large_arrays():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 50, 2, 7)).astype(np.float32)
    expected = float(((first.astype(float) - second.astype(float)) ** 2).sum())
    assert squared_distance(first, second) == pytest.approx(expected, rel=1e-6)


# Bounds hold whatever the multipliers are.


def give(solver, u: np.ndarray) -> None:
    """Replace the multipliers, (edges, 2, outputs)."""
    if isinstance(solver, CpuSolver):
        solver._u = u
        return
    full = np.zeros((solver.room, *u.shape[1:]), np.float32)
    full[: len(u)] = u
    with precise():
        sides = tuple(jnp.asarray(full[:, side]) for side in range(2))
        solver._point = (*solver._point[:2], sides)


@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_holds_for_garbage_and_is_the_same_on_all_machines(kind):
    problem = dense_town(kind)
    graph = constraint_graph(problem.domain, problem.epsilon)
    # A private table's loss is above every bound.
    private = optimal(problem, gap=0.05, backend="cpu").loss
    solvers = [make(m, problem, graph, uniform(problem)) for m in MACHINES]
    rng = np.random.default_rng(0)
    for size in (1e-3, 1.0, 1e3, 1e30):
        for _ in range(5):
            shape = (graph.count, 2, problem.outputs_count)
            garbage = rng.uniform(-size, size, shape).astype(np.float32)
            bounds = []
            for solver in solvers:
                give(solver, garbage)
                bounds.append(solver.bound())
            assert max(bounds) <= private
            assert bounds[1] == pytest.approx(bounds[0], rel=1e-9)


def test_multipliers_that_are_no_numbers_give_no_bound_above():
    problem = dense_town("haversine")
    graph = constraint_graph(problem.domain, problem.epsilon)
    solver = make("jax", problem, graph, uniform(problem))
    give(solver, np.full((graph.count, 2, problem.outputs_count), np.nan, np.float32))
    trivial = float(problem.prior @ problem.loss.min(axis=1))
    # What the loop keeps: the larger of the two, and nan is not larger.
    assert max(trivial, solver.bound()) == trivial


# Many tiles.


@pytest.fixture(scope="module")
def town():
    """Any of a hundred places may be reported, and few are worth it."""
    domain = random_domain("haversine", 100, seed=4)
    near = float(np.median(domain.neighbours(1)[1]))
    return displacement_problem(domain, np.arange(100), 1.5 / near)


@pytest.fixture(scope="module")
def graph(town):
    return constraint_graph(town.domain, town.epsilon)


@pytest.fixture(scope="module")
def dense(town):
    return optimal(town, 0.02, backend="cpu")


def test_tiles_hold_every_output_and_their_outside_is_outside(town, graph):
    tiling = Tiling.reaching(town, graph, 6.0)
    assert tiling.tiles.shape == (4, WIDTH)
    assert sorted(set(tiling.tiles.ravel().tolist())) == list(range(100))
    assert 0.05 < tiling.share < 0.9
    for x in range(100):
        inside = set(tiling.tiles[tiling.sees[:, x]].ravel().tolist())
        outside = [town.weighted_loss[x, y] for y in range(100) if y not in inside]
        assert tiling.outside[x] == pytest.approx(min(outside, default=np.inf))
        assert int(town.loss[x].argmin()) in inside


def test_what_lies_outside_is_the_least_cost_that_no_tile_sees(town, graph):
    tiling = Tiling.reaching(town, graph, 6.0)
    sees = tiling.sees | (np.random.default_rng(0).random(tiling.sees.shape) < 0.3)
    sees[:, 7] = True
    least = least_outside(town, tiling.tiles, sees, np.arange(100))
    for x in range(100):
        inside = set(tiling.tiles[sees[:, x]].ravel().tolist())
        outside = [town.weighted_loss[x, y] for y in range(100) if y not in inside]
        assert least[x] == pytest.approx(min(outside, default=np.inf))


@pytest.mark.parametrize("nats", [None, 6.0])
def test_edges_are_lifted_into_every_tile_that_sees_both_ends(town, graph, nats):
    tiling = Tiling.whole(town) if nats is None else Tiling.reaching(town, graph, nats)
    program = Program(town, tiling)
    up = program.node_graph(graph)
    both = tiling.sees[:, graph.ends[:, 0]] & tiling.sees[:, graph.ends[:, 1]]
    assert up.count == both.sum()
    assert (program.tile[up.ends[:, 0]] == program.tile[up.ends[:, 1]]).all()
    first, second = program.record[up.ends[:, 0]], program.record[up.ends[:, 1]]
    np.testing.assert_allclose(up.length, town.domain.metric.pairs(first, second))
    assert (np.diff(up.ends[:, 0] * program.count + up.ends[:, 1]) > 0).all()


@pytest.mark.parametrize("stored", [True, False])
def test_tiles_on_a_device_are_those_of_the_host(stored):
    domain = random_domain("haversine", 300, seed=4)
    near = float(np.median(domain.neighbours(1)[1]))
    problem = displacement_problem(domain, np.arange(300), 1.5 / near)
    if not stored:
        problem = replace(problem, loss=DistanceLoss(domain, problem.outputs))
    whole = constraint_graph(domain, problem.epsilon)
    some, more = halves(whole)
    tiling = Tiling.reaching(problem, whole, 8.0)
    solvers = [make(m, problem, some, None, tiling) for m in MACHINES]
    here, there = solvers
    for then in (lambda solver: solver.extend(more), None):
        for solver in solvers:
            solver.advance(80)
        assert there.bound() == pytest.approx(here.bound(), rel=1e-5)
        np.testing.assert_allclose(there.matrix(), here.matrix(), atol=1e-4)
        if then is not None:
            then(here)
            then(there)
    assert there.graph.count == here.graph.count == whole.count


@pytest.mark.parametrize("machine", MACHINES)
def test_the_bound_is_no_more_than_what_lies_outside_costs(machine):
    """Each record sees the output that costs it 10 alone; the other one costs it 1."""
    domain = Domain.from_vectors([[0.0], [1.0]])
    problem = Problem(domain, [0, 1], np.array([[10.0, 1.0], [1.0, 10.0]]), 1.0)
    tiles = np.repeat([[0], [1]], WIDTH, axis=1)
    tiling = Tiling(tiles, np.eye(2, dtype=np.bool_), 0.5 * np.ones(2))
    fixed = TilingTuning(most_nats=0.0)
    graph = constraint_graph(domain, 1.0)
    solver = make(machine, problem, graph, uniform(problem), tiling, fixed)
    assert solver.bound() == pytest.approx(1.0, rel=1e-14)
    assert solver.bound() <= 1.0


def test_reduced_costs_that_are_no_numbers_are_worth_nothing():
    problem = dense_town("haversine")
    program = Program(problem, Tiling.whole(problem))
    costs = np.ones(program.count)
    costs[[0, 7]] = np.nan
    least = program.least_of_records(costs)
    assert (least[program.record[[0, 7]]] == -np.inf).all()
    assert (np.delete(least, program.record[[0, 7]]) == 1.0).all()


# At 40 nats all is seen: the dense problem, which JAX has solved above.
@pytest.mark.parametrize(
    ("machine", "nats"), [("cpu", 0.5), ("cpu", 6.0), ("cpu", 40.0), ("jax", 0.5), ("jax", 6.0)]
)
def test_the_bound_holds_whatever_tiles_see(machine, town, graph, dense, nats):
    fixed = TilingTuning(most_nats=0.0)
    tiling = Tiling.reaching(town, graph, nats)
    solver = make(machine, town, graph, warm_start(town, graph), tiling, fixed)
    free = float((town.prior * town.loss.min(axis=1)).sum())
    for _ in range(3):
        solver.advance(200)
        assert solver.bound() <= dense.loss
    table = solver.matrix()
    assert table.min() >= 0
    np.testing.assert_allclose(table.sum(axis=1), 1, atol=0.05)
    if nats >= 6.0:
        assert solver.bound() > max(free, 0.9 * dense.lower_bound)


@pytest.mark.parametrize("machine", MACHINES)
def test_tiles_that_see_more_go_on_from_where_it_was(machine, town, graph, dense):
    at_once = TilingTuning(limited=-1.0, most_nats=8.0)
    tiling = Tiling.reaching(town, graph, 2.0)
    solver = make(machine, town, graph, None, tiling, at_once)
    before = solver.tiling.share
    for _ in range(6):
        solver.advance(200)
        assert solver.bound() <= dense.loss
    assert solver.tiling.share > before
    assert solver.iterations == 1200
    assert solver.bound() > 0.9 * dense.lower_bound


def test_nodes_that_closing_gives_mass_join_and_the_iteration_goes_on(town, graph, dense):
    """From tiles that see far too little to the dense one's bound, with the multipliers kept."""
    solver = CpuSolver(town, graph, None, Tiling.reaching(town, graph, 1.0))
    few = solver.tiling.share
    for _ in range(6):
        solver.advance(200)
        table = solver.matrix()
        sees, bound, count = solver.tiling.sees.copy(), solver.bound(), solver.iterations
        solver.grow(None)
        np.testing.assert_allclose(solver.matrix(), table, rtol=1e-5, atol=1e-9)
        assert solver.iterations == count
        assert solver.bound() >= bound * (1 - 1e-6) and bound <= dense.loss
        assert (solver.tiling.sees | ~sees).all()
    assert few < 0.6 * solver.tiling.share
    assert solver.bound() > 0.97 * dense.lower_bound
    candidate = solver.finish.candidate(solver)
    solver.finish.estimate(candidate)
    left = solver.finish.raised(candidate, solver.tiling.sees)[0]
    assert len(left) <= 0.02 * solver.program.count


@pytest.mark.parametrize("machine", MACHINES)
def test_a_proof_is_that_of_the_best_bound(machine, town, graph):
    """Whatever iterations come after it."""
    solver = make(machine, town, graph, None, Tiling.reaching(town, graph, 6.0), TilingTuning())
    solver.advance(200)
    best = solver.bound()
    solver.advance(400)
    assert solver.proof().value == pytest.approx(best, rel=1e-6)
    later = solver.bound()
    assert later > 1.001 * best
    assert solver.proof().value == pytest.approx(later, rel=1e-6)


def test_problems_are_cut_where_that_pays(town, graph):
    """Where the multipliers are many; otherwise the graph stays whole."""
    tuning = TilingTuning(host_outputs=64, worthwhile=1.0)
    assert tiling_for(town, graph, tuning, host=True).one
    many = replace(tuning, host_multipliers=0)
    assert not tiling_for(town, graph, many, host=True).one
    assert tiling_for(town, graph, many).one, "accelerators take more outputs as they are"
    assert tiling_for(town, graph, replace(many, worthwhile=0.01), host=True).one
    assert not tiling_for(town, graph, replace(tuning, least_outputs=64)).one


def test_fewer_outputs_iterate_on_tiles_and_give_dense_tables(town, dense):
    tuning = TilingTuning(host_outputs=64, worthwhile=1.0, host_multipliers=0)
    mechanism = optimal(town, 0.03, backend=CpuEngine(tuning))
    assert isinstance(mechanism.weights, np.ndarray)
    assert mechanism.details["stopped"] is Stopped.GAP_REACHED and mechanism.audit.holds
    assert mechanism.lower_bound <= dense.loss
    assert dense.lower_bound <= mechanism.loss <= 1.03 * dense.loss


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("stored", [True, False])
def test_a_whole_solve_on_tiles_agrees_with_the_dense_one(machine, town, dense, stored):
    loss = town.loss if stored else DistanceLoss(town.domain, town.outputs)
    problem = replace(town, loss=loss)
    mechanism = optimal(problem, 0.03, backend=engine(machine, TILES))
    assert isinstance(mechanism.weights, FlooredRows)
    assert audit(mechanism).epsilon == pytest.approx(mechanism.audit.epsilon, rel=1e-9)
    assert mechanism.details["stopped"] is Stopped.GAP_REACHED
    assert mechanism.audit.holds
    assert mechanism.lower_bound <= dense.loss
    assert dense.lower_bound <= mechanism.loss <= 1.03 * dense.loss


@pytest.mark.parametrize("machine", MACHINES)
def test_computed_losses_of_a_single_tile_are_solved_as_stored_ones(machine, town):
    """A million records with a hundred outputs: more losses than are stored, and a dense table."""
    few = np.arange(0, town.size, 15)
    stored = Problem(town.domain, few, town.domain.distances(None, few), town.epsilon)
    computed = replace(stored, loss=DistanceLoss(town.domain, few))
    tables = [optimal(problem, 0.03, backend=machine) for problem in (stored, computed)]
    assert tables[1].loss == pytest.approx(tables[0].loss, rel=1e-9)
    assert isinstance(tables[1].bound, Proved) and tables[1].bound.problem is computed
    assert tables[1].lower_bound == pytest.approx(tables[0].lower_bound, rel=1e-9)


@pytest.mark.parametrize("loss", ["distance", "squares", "shuffled"])
def test_on_the_cpu_the_table_is_sparse_and_agrees_with_highs(town, loss):
    """Any loss: outputs that are alike need not be near on the map."""
    domain = town.domain.take(np.arange(40))
    table = domain.distances()
    if loss == "squares":
        table = table**2
    if loss == "shuffled":
        table = table[:, np.random.default_rng(0).permutation(40)]
    prior = np.random.default_rng(1).dirichlet(np.ones(40))
    problem = replace(displacement_problem(domain, np.arange(40), town.epsilon, prior), loss=table)
    exact = solve_lp(problem, pairs="all")
    mechanism = optimal(problem, 0.03, backend=CpuEngine(TILES))
    assert isinstance(mechanism.weights, FlooredRows)
    assert mechanism.details["stopped"] is Stopped.GAP_REACHED and mechanism.audit.holds
    assert mechanism.audit == audit_weights(
        domain, problem.outputs, np.asarray(mechanism.weights), problem.epsilon
    )
    assert mechanism.lower_bound <= exact.loss * (1 + 1e-9)
    assert exact.lower_bound * (1 - 1e-9) <= mechanism.loss <= 1.03 * exact.loss
    assert mechanism.details["stored"] < 40 * 40


def test_a_limit_leaves_a_certified_sparse_table(town):
    mechanism = optimal(town, 1e-9, backend=CpuEngine(TILES), time_limit=1.0)
    assert mechanism.audit.holds and mechanism.details["stopped"] is Stopped.TIME_LIMIT


# Accelerators: programs, padding, memory.


def test_programs_are_few_and_serve_the_next_problem_of_the_size(town):
    """A first call waits for each of them to be traced, compiled or loaded."""
    names: list[str] = []

    def listen(event: str, _: float, **about: str) -> None:
        if event.endswith("backend_compile_duration"):
            names.append(about.get("fun_name", "?"))

    jax.clear_caches()
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        optimal(town, 0.03, backend=JaxEngine(tiling=TILES))
        assert 20 < len(names) <= 46, sorted(names)
        # The second one's list of edges is a step of the ladder longer.
        for seed, most in ((5, 4), (8, 12)):
            names.clear()
            domain = random_domain("haversine", 100, seed=seed)
            problem = displacement_problem(domain, np.arange(100), town.epsilon)
            optimal(problem, 0.03, backend=JaxEngine(tiling=TILES))
            assert len(names) <= most, sorted(names)
    finally:
        jax.monitoring.clear_event_listeners()


@pytest.mark.parametrize("few", [True, False])
def test_lists_of_edges_have_room_from_the_beginning_where_they_are_short(few):
    """Every length is compiled for; a long list with room would take its time and memory."""
    problem = dense_town("euclidean", 120)
    whole = constraint_graph(problem.domain, problem.epsilon)
    kept = np.arange(whole.count) % 4 > 0
    made = JaxSolver if few else type("Many", (JaxSolver,), {"few_multipliers": 0})
    some = Graph(whole.ends[kept], whole.length[kept])
    solver = made(problem, some, uniform(problem))
    before, first = solver.room, int(kept.sum())
    assert (before >= 1.5 * first) == few
    solver.extend(Graph(whole.ends[~kept], whole.length[~kept]))
    assert (solver.room == before) == few
    assert whole.count <= solver.room <= (1.9 if few else 1.25) * whole.count


def test_memory_is_asked_for_with_the_size_that_is_needed():
    assert bytes_needed(10, 20, 30) * 6 == bytes_needed(10, 20, 180) == bytes_needed(60, 120, 30)
    # Rome: 43,160 records, some 400,000 edges and 100 outputs fit one large device.
    assert 1e9 < bytes_needed(43_160, 400_000, 100) < 60e9
    asked = partial(require_memory, bytes_needed(43_160, 400_000, 100))
    with pytest.raises(MethodError, match="GiB, and the device has"):
        asked(available=10_000)


def test_what_is_needed_is_not_understated():
    problem = dense_town("haversine")
    graph = constraint_graph(problem.domain, problem.epsilon)
    solver = make("jax", problem, graph, uniform(problem))
    solver.advance(CHECK)
    held = jax.tree.leaves([solver._point, solver._anchored, solver._costs, solver._scale])
    needed = bytes_needed(solver.program.size, solver.room, problem.outputs_count)
    assert sum(array.nbytes for array in held) < needed


def test_settings_do_not_leak():
    problem = dense_town("haversine")
    graph = constraint_graph(problem.domain, problem.epsilon)
    solver = make("jax", problem, graph, uniform(problem))
    solver.advance(CHECK)
    solver.bound()
    assert not jax.config.jax_enable_x64
    assert jnp.ones(2).dtype == np.float32
    # Nor do settings outside reach in.
    with jax.enable_x64(True):
        again = make("jax", problem, graph, uniform(problem))
        again.advance(CHECK)
        assert again.table().dtype == np.float32
        assert again.bound() == solver.bound()


def test_sums_over_edges_in_a_kernel_are_those_of_xla():
    rng = np.random.default_rng(0)
    nodes, count, padded = 40, 300, 320
    ends = np.sort(rng.integers(0, nodes - 1, (count, 2)), axis=1)
    ends = np.concatenate([ends, np.full((padded - count, 2), nodes - 1)]).astype(np.int32)
    ends = ends[np.lexsort((ends[:, 1], ends[:, 0]))]
    by_second = np.argsort(ends[:, 1], kind="stable")
    starts, later = (
        np.searchsorted(side, np.append(np.arange(nodes), nodes - 1)).astype(np.int32)
        for side in (ends[:, 0], ends[by_second, 1])
    )
    first, second, by_second = (jnp.asarray(part) for part in (*ends.T, by_second))
    lists = pdhg.Edges(first, second, None, by_second, None, None, None, starts, later)
    u = [rng.normal(size=(padded, 32)).astype(np.float32) for _ in range(2)]
    for side in u:
        side[count:] = 0
    sums = triton.summed(*u, starts, later, by_second, interpret=True)
    np.testing.assert_allclose(sums, pdhg.by_node(*u, lists, nodes), atol=1e-5)
