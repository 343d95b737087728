"""Lower bounds on a second objective, and on the loss under a limit, by weak duality.

For any l >= 0 on the privacy constraints of any edges, any theta >= 0 and any w >= 0 with
sum_f w_fg <= 1 in every group, every epsilon-mDP table of loss at most B has

    v(z)  >=  sum_xy h_xy z_xy - theta B  >=  sum_x min_y h_xy - theta B,
    h = theta p c + A^T w + (edge terms of l),

because v(z) >= <w, A z>, theta (loss - B) <= 0, l (z_i - g z_j) <= 0 and rows sum to 1. With the
loss as objective and v(z) <= q as the limit, h = p c + A^T w + ..., and nu = max_g sum_f w_fg takes
the place of theta. Nothing is asked of where the multipliers come from.
"""

from __future__ import annotations

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.methods.optimal.dual import (
    UNIT_ROUNDOFF,
    growth,
    reduced_costs,
    total_from_below,
)
from panda_mdp.methods.optimal.graph import Graph
from panda_mdp.methods.second.forms import LpForms, admissible
from panda_mdp.methods.second.objectives import Objective
from panda_mdp.problem import Problem


def objective_bound(
    problem: Problem,
    goal: Objective[LpForms],
    graph: Graph,
    multipliers: FloatArray,
    weights: FloatArray,
    theta: float,
    budget: float,
) -> float:
    """A bound below v(z) of every epsilon-mDP table whose loss is at most `budget`."""
    theta = max(theta, 0.0)
    cost = theta * problem.weighted_loss + goal.forms.adjoint(admissible(weights))
    least = _least(problem, cost, graph, multipliers, len(weights))
    return least - theta * budget * (1 + 4 * UNIT_ROUNDOFF)


def loss_bound(
    problem: Problem,
    goal: Objective[LpForms],
    graph: Graph,
    multipliers: FloatArray,
    weights: FloatArray,
    limit: float,
) -> float:
    """A bound below the loss of every epsilon-mDP table with v(z) <= `limit`."""
    positive = np.maximum(weights, 0.0)
    share = float(positive.sum(axis=0).max(initial=0.0)) * (1 + 1e-12)
    cost = problem.weighted_loss + goal.forms.adjoint(positive)
    least = _least(problem, cost, graph, multipliers, len(weights))
    return least - share * limit * (1 + 4 * UNIT_ROUNDOFF)


def _least(
    problem: Problem, cost: FloatArray, graph: Graph, multipliers: FloatArray, forms: int
) -> float:
    reduced, size = reduced_costs(cost, graph.ends, growth(problem, graph), multipliers)
    # The adjoint sums up to `forms` non-negative terms before the edges' are added.
    terms = 2.0 * np.bincount(graph.ends.ravel(), minlength=problem.size) + 12.0 + forms
    return total_from_below((reduced - UNIT_ROUNDOFF * terms[:, None] * size).min(axis=1))
