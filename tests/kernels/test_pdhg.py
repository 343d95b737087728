"""One iteration of the solver: its projection, and that optima are exactly its fixed points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from helpers import displacement_problem, random_domain
from panda_mdp.engine.dual import growth
from panda_mdp.engine.graph import all_pairs
from panda_mdp.engine.highs import Lp, cost_scale, privacy_rows, sum_rows
from panda_mdp.engine.pdhg_cpu import CpuSolver
from panda_mdp.kernels.pdhg import _polar


@given(
    v=st.floats(-10, 10, width=32),
    other=st.floats(-10, 10, width=32),
    exponent=st.floats(1e-3, 12),
)
def test_polar_is_the_projection_on_the_polar_cone(v, other, exponent):
    a = np.float32(1 / np.sqrt(1 + np.exp(2 * exponent)))
    b = np.float32(1 / np.sqrt(1 + np.exp(-2 * exponent)))
    point = np.float32([v, other])
    found = np.array([_polar(point[0], point[1], a, b), _polar(point[1], point[0], a, b)])
    # The cone is spanned by (a, -b) and (-b, a).
    rays = np.array([[a, -b], [-b, a]], dtype=np.float64)
    weights, _ = nnls(rays, point.astype(np.float64))
    np.testing.assert_allclose(found, rays @ weights, atol=2e-4 * max(1, abs(v), abs(other)))


def solved(problem, graph):
    """Primal, row prices and edge multipliers of the graph's LP, by simplex."""
    from scipy.sparse import csr_array, vstack

    size, outputs = problem.size, problem.outputs_count
    rows = privacy_rows(graph.ends, problem.epsilon * graph.length, size, outputs)
    scale = cost_scale(problem.weighted_loss)
    answer = Lp(
        problem.weighted_loss.ravel() / scale,
        csr_array(vstack([sum_rows(size, outputs), rows])),
        np.concatenate([np.ones(size), np.full(rows.shape[0], -np.inf)]),
        np.concatenate([np.ones(size), np.zeros(rows.shape[0])]),
    ).solve()
    edges = -answer.prices[size:].reshape(2, graph.count, outputs)
    edges *= np.exp(-0.5 * problem.epsilon * graph.length)[None, :, None]
    return answer.primal.reshape(size, outputs), answer.prices[:size], edges


@pytest.mark.parametrize("kind", ["haversine", "euclidean", "matrix"])
def test_an_optimum_is_a_fixed_point(kind):
    problem = displacement_problem(random_domain(kind, 12, seed=3), [0, 4, 8, 11], 1.2)
    graph = all_pairs(problem.domain, problem.epsilon)
    z, mu, edges = solved(problem, graph)
    solver = CpuSolver(problem, graph, z)
    # Multipliers of z_i <= g z_j enter an edge's dual pair as (l, -g l).
    g = growth(problem, graph)[:, None]
    pair = np.stack([edges[0] - g * edges[1], edges[1] - g * edges[0]], axis=1)
    ends = np.sort(solver.place[graph.ends], axis=1)
    turned = solver.place[graph.ends[:, 0]] > solver.place[graph.ends[:, 1]]
    pair[turned] = pair[turned][:, ::-1]
    along = np.lexsort((ends[:, 1], ends[:, 0]))
    solver._u = np.ascontiguousarray(pair[along], dtype=np.float32)
    solver._mu = mu[solver.order].astype(np.float32)
    solver._restart()
    before = solver.bound()
    solver.advance(40)
    assert solver.residual < 1e-4
    np.testing.assert_allclose(solver.matrix(), z, atol=1e-4)
    assert solver.bound() == pytest.approx(before, rel=1e-4)
    assert before == pytest.approx(problem.expected_loss(z), rel=1e-5)
    # And a point that is no optimum moves.
    other = CpuSolver(problem, graph, np.full_like(z, 0.25))
    other.advance(40)
    assert other.residual > 1e-2
