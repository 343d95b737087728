"""The second objective by HiGHS: one variable per group, for small and middling problems."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray
from panda_mdp.compute.highs import Lp, multipliers, privacy_rows, sum_rows
from panda_mdp.errors import SolverError
from panda_mdp.methods.optimal.graph import Graph
from panda_mdp.methods.second.bound import loss_bound, objective_bound
from panda_mdp.methods.second.forms import LpForms
from panda_mdp.methods.second.objectives import Objective
from panda_mdp.problem import Problem


@dataclass(frozen=True)
class Solved:
    """A table that is private up to the solver's tolerance, and a rigorous bound."""

    matrix: FloatArray
    bound: float
    """Below v(z) of every private table within the budget, or below the loss under the limit."""
    status: str
    iterations: int = 0
    beyond: FloatArray | None = None
    """A table beyond the limit, to mix `matrix` with, where that is within it."""


def solve_objective(
    problem: Problem, goal: Objective[LpForms], graph: Graph, budget: float
) -> Solved:
    """min v(z) over epsilon-mDP tables of loss at most `budget`, edges of `graph` alone.

    Columns are the table and one variable t_g per group; rows are sums, edges, A z <= t, the loss.
    """
    lp = _Lp(problem, goal, graph)
    cost = np.concatenate([np.zeros(lp.entries), np.ones(lp.groups)])
    scale = float(problem.weighted_loss.sum()) or 1.0
    last = np.concatenate([problem.weighted_loss.ravel() / scale, np.zeros(lp.groups)])
    matrix, edge, weights, price, status = lp.solve(cost, last, budget / scale)
    bound = objective_bound(problem, goal, graph, edge, weights, price / scale, budget)
    return Solved(matrix, bound, status)


def solve_limit(problem: Problem, goal: Objective[LpForms], graph: Graph, limit: float) -> Solved:
    """min loss over epsilon-mDP tables with v(z) <= `limit`, edges of `graph` alone."""
    lp = _Lp(problem, goal, graph)
    scale = float(problem.weighted_loss.mean()) or 1.0
    cost = np.concatenate([problem.weighted_loss.ravel() / scale, np.zeros(lp.groups)])
    last = np.concatenate([np.zeros(lp.entries), np.ones(lp.groups)])
    matrix, edge, weights, _, status = lp.solve(cost, last, limit)
    bound = loss_bound(problem, goal, graph, scale * edge, scale * weights, limit)
    return Solved(matrix, bound, status)


class _Lp:
    def __init__(self, problem: Problem, goal: Objective[LpForms], graph: Graph) -> None:
        size, outputs = problem.size, problem.outputs_count
        self.shape = (size, outputs)
        self.entries = size * outputs
        self.exponent = problem.epsilon * graph.length
        forms = goal.forms.rows(size, outputs)
        self.groups = goal.forms.forward(np.zeros(self.shape)).shape[1]
        names = scipy.sparse.kron(
            np.ones((forms.shape[0] // self.groups, 1)), scipy.sparse.eye_array(self.groups)
        )
        self.edges = privacy_rows(graph.ends, self.exponent, size, outputs)
        table = scipy.sparse.vstack([sum_rows(size, outputs), self.edges, forms])
        beside = scipy.sparse.vstack(
            [scipy.sparse.csr_array((size + self.edges.shape[0], self.groups)), -names]
        )
        self.rows = scipy.sparse.hstack([table, beside])
        self.free = self.edges.shape[0] + forms.shape[0]

    def solve(
        self, cost: FloatArray, last: FloatArray, most: float
    ) -> tuple[FloatArray, FloatArray, FloatArray, float, str]:
        """Table, multipliers of the edges, weights of the forms, price of the last row."""
        size, outputs = self.shape
        lp = Lp(
            cost,
            scipy.sparse.csr_array(
                scipy.sparse.vstack([self.rows, scipy.sparse.csr_array(last.reshape(1, -1))])
            ),
            np.concatenate([np.ones(size), np.full(self.free + 1, -np.inf)]),
            np.concatenate([np.ones(size), np.zeros(self.free), [most]]),
            algorithm="ipm",
        )
        answer = lp.solve()
        if answer.primal is None or answer.prices is None:
            msg = f"HiGHS ended the second objective with {answer.status!r} and no table"
            raise SolverError(msg)
        table = np.maximum(answer.primal[: self.entries].reshape(self.shape), 0.0)
        prices = answer.prices[size:]
        count = self.edges.shape[0]
        edge = multipliers(prices[:count], self.exponent, outputs)
        weights = np.maximum(-prices[count:-1], 0.0).reshape(-1, self.groups)
        return table, edge, weights, max(-float(prices[-1]), 0.0), answer.status
