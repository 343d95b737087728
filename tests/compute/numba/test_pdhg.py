"""One iteration of the solver against its definition, and that optima are its fixed points."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import displacement_problem, random_domain
from scipy.optimize import nnls
from scipy.sparse import csr_array, vstack

from panda_mdp.compute.highs import Lp, cost_scale, privacy_rows, sum_rows
from panda_mdp.methods.optimal.graph_solver import ROW_PULL, CpuSolver, growths
from panda_mdp.methods.optimal.program import all_pairs


def small(kind: str = "euclidean", size: int = 7):
    problem = displacement_problem(random_domain(kind, size, seed=3), [0, 2, 5], 1.2)
    return problem, all_pairs(problem.domain, problem.epsilon)


def polar(point: np.ndarray, g: float, h: float) -> np.ndarray:
    """The projection on the cone spanned by (1, -g) and (-h, 1)."""
    rays = np.array([[1.0, -h], [-g, 1.0]])
    weights, _ = nnls(rays / np.linalg.norm(rays, axis=0), point)
    return rays / np.linalg.norm(rays, axis=0) @ weights


def reference_step(solver: CpuSolver, keep: float):
    """A reflected Halpern step in float64, loop by loop from the definition."""
    x, u, mu = (a.astype(float) for a in (solver._x, solver._u, solver._mu))
    x0, u0, mu0 = (a.astype(float) for a in (solver._x0, solver._u0, solver._mu0))
    scale, cost = solver._scale.astype(float), solver._cost.astype(float)
    weight = solver.weight
    mid, new_mu, new_u = np.empty_like(x), np.empty_like(mu), np.empty_like(u)
    for i in range(len(x)):
        gradient = scale[i] * (cost[i] - mu[i])
        for e, ends in enumerate(solver.ends):
            for side in range(2):
                if ends[side] == i:
                    gradient = gradient + u[e, side]
        tau = 1 / (weight * (solver.degree[i] + ROW_PULL * scale[i]))
        mid[i] = 2 * np.maximum(0, x[i] - tau * gradient) - x[i]
        missing = 1 - scale[i] @ mid[i]
        new_mu[i] = mu[i] + weight * ROW_PULL / solver._row_sums[i] * missing
    for e, (i, j) in enumerate(solver.ends):
        for y in range(x.shape[1]):
            ratio = scale[j, y] / scale[i, y]
            v = u[e, :, y] + weight * np.array([mid[i, y], mid[j, y]])
            new_u[e, :, y] = polar(v, solver.growth[e] * ratio, solver.growth[e] / ratio)
    return (
        keep * mid + (1 - keep) * x0,
        keep * (2 * new_mu - mu) + (1 - keep) * mu0,
        keep * (2 * new_u - u) + (1 - keep) * u0,
    )


@pytest.mark.parametrize("done", [0, 5])
def test_one_iteration_is_what_its_definition_says(done):
    problem, graph = small()
    rng = np.random.default_rng(1)
    solver = CpuSolver(problem, graph, rng.dirichlet(np.ones(3), 7))
    solver._u += rng.normal(scale=0.3, size=solver._u.shape).astype(np.float32)
    solver._mu += rng.normal(size=7).astype(np.float32)
    solver._anchor()
    solver._x *= rng.uniform(0.5, 1.5, solver._x.shape).astype(np.float32)
    solver.weight = 0.7
    expected = reference_step(solver, (done + 1) / (done + 2))
    solver._iterate(1, done)
    for found, right in zip((solver._x, solver._mu, solver._u), expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-4)


def solved(problem, graph):
    """Primal, row prices and edge multipliers of the graph's LP, by simplex."""
    size, outputs = problem.size, problem.outputs_count
    rows = privacy_rows(graph.ends, problem.epsilon * graph.length, size, outputs)
    scale = cost_scale(problem.weighted_loss)
    answer = Lp(
        problem.weighted_loss.ravel() / scale,
        csr_array(vstack([sum_rows(size, outputs), rows])),
        np.concatenate([np.ones(size), np.full(rows.shape[0], -np.inf)]),
        np.concatenate([np.ones(size), np.zeros(rows.shape[0])]),
    ).solve()
    edges = -answer.prices[size:].reshape(graph.count, 2, outputs).swapaxes(0, 1)
    edges = edges * np.exp(-0.5 * problem.epsilon * graph.length)[None, :, None]
    return answer.primal.reshape(size, outputs), answer.prices[:size], edges


@pytest.mark.parametrize("kind", ["haversine", "euclidean", "matrix"])
def test_an_optimum_is_a_fixed_point(kind):
    problem, graph = small(kind, 12)
    z, mu, edges = solved(problem, graph)
    solver = CpuSolver(problem, graph, z)
    place = {tuple(sorted(pair)): e for e, pair in enumerate(graph.ends.tolist())}
    g = growths(problem, graph.length)[1]
    # Multipliers of z_i <= g z_j enter an edge's dual pair as (l, -g l), in the scale of x.
    for k, (i, j) in enumerate(solver.program.record[solver.ends].tolist()):
        e = place[tuple(sorted((i, j)))]
        first, second = (edges[0, e], edges[1, e]) if i < j else (edges[1, e], edges[0, e])
        a, b = solver.ends[k]
        solver._u[k, 0] = (first - g[e] * second) * solver._scale[a]
        solver._u[k, 1] = (second - g[e] * first) * solver._scale[b]
    solver._mu[:] = mu[solver.program.record]
    solver._restart()
    before = solver.bound()
    assert before == pytest.approx(problem.expected_loss(z), rel=1e-5)
    solver.advance(40)
    assert solver.residual < 1e-4
    np.testing.assert_allclose(solver.matrix(), z, atol=1e-4)
    assert solver.bound() == pytest.approx(before, rel=1e-4)
    # And a point that is no optimum moves.
    other = CpuSolver(problem, graph, np.full_like(z, 1 / 3))
    other.advance(40)
    assert other.residual > 1e-3
