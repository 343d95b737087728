"""Phase II: the table over the anchors (AnPO, section 3.4 of the paper).

    min sum_a p_a sum_y c_ay z_ay   s.t.   sum_y z_ay = 1,  z_ay <= exp(budget(a, a')) z_a'y

over all pairs of anchors. Budgets are no metric, but the constraints only ever use their
shortest-path closure: z_a <= exp(b(a, u) + b(u, a')) z_a' follows anyway. The closure is a metric
once anchors at budget 0, whose rows are equal, are merged. So AnPO is an ordinary problem over the
merged anchors with distances in nats and epsilon 1, and every method and audit applies to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray, frozen
from panda_mdp.errors import MethodError
from panda_mdp.problem import Outputs, Problem, quiet_scale
from panda_mdp.space.domain import Domain
from panda_mdp.table.mechanism import Mechanism

MERGED = 1e-6
"""Budgets below this many nats become 0: the rows are then equal, which is stricter."""

Solver = Literal["optimal", "benders", "highs"]
"""The structured engine, Benders decomposition, or HiGHS."""


@dataclass(frozen=True, eq=False)
class AnchorTable:
    """Rows for anchors, audited: |log z_a / z_a'| <= closed budget for all pairs and outputs."""

    anchors: IntArray
    """Anchors as domain indices, ascending."""
    row: IntArray
    """The mechanism's row of each anchor; merged anchors share one."""
    mechanism: Mechanism
    """Over merged anchors, in nats; rows beyond the anchors only carry outputs."""

    @property
    def matrix(self) -> FloatArray:
        """Probabilities, one row per anchor."""
        return self.mechanism.matrix[self.row]

    def positions(self, anchors: IntArray) -> IntArray:
        """Positions of anchors in this table; refuses those that it does not hold."""
        position = np.searchsorted(self.anchors, anchors)
        position = np.minimum(position, len(self.anchors) - 1)
        if not np.array_equal(self.anchors[position], anchors):
            raise MethodError("the table has no row for some of these anchors")
        return position

    def rows(self, anchors: IntArray) -> FloatArray:
        """Probabilities of some anchors, in their order."""
        return self.matrix[self.positions(anchors)]


def merge(budgets: FloatArray) -> tuple[IntArray, FloatArray]:
    """Groups of anchors whose rows must be equal, and the closed budgets between groups.

    Returns the group of each anchor and a (groups, groups) metric in nats.
    """
    linked = (budgets < MERGED).astype(np.int8)
    count, group = scipy.sparse.csgraph.connected_components(linked, directed=False)
    order = np.argsort(group, kind="stable")
    least = budgets[np.ix_(order, order)]
    if count < len(budgets):
        starts = np.searchsorted(group[order], np.arange(count))
        least = np.minimum.reduceat(np.minimum.reduceat(least, starts, axis=0), starts, axis=1)
    np.fill_diagonal(least, 0.0)
    return group.astype(np.int64), closure(least)


def closure(budgets: FloatArray) -> FloatArray:
    """Shortest paths: the largest metric below symmetric budgets."""
    from panda_mdp.compute.numba import margins

    table = np.array(budgets, dtype=float)
    margins.close(table)
    return table


def anchor_problem(
    problem: Problem,
    losses: FloatArray,
    weights: FloatArray,
    group: IntArray,
    closed: FloatArray,
) -> Problem:
    """AnPO as a problem: merged anchors, budgets as distances in nats, epsilon 1.

    `losses` and `weights` are those of the anchors.

    A single group is joined by a row without weight, since a domain has two records; it may equal
    the other, so it binds nothing and changes neither optimum nor bound.
    """
    count = len(closed)
    size = max(count, 2)
    nats = np.full((size, size), float(closed.max()) or 1.0)
    nats[:count, :count] = closed
    np.fill_diagonal(nats, 0.0)
    total = float(weights.sum())
    # Anchors without any weight count alike: something has to be minimised.
    share = weights / total if total > 0 else np.full(len(losses), 1.0 / len(losses))
    prior = np.zeros(size)
    np.add.at(prior, group, share)
    loss = np.zeros((size, problem.outputs_count))
    np.add.at(loss, group, share[:, None] * losses)
    loss /= np.where(prior > 0, prior, 1.0)[:, None]
    with quiet_scale():
        return Problem(
            Domain.from_matrix(nats, unit="nats"),
            Outputs.labels(range(problem.outputs_count)),
            loss,
            epsilon=1.0,
            prior=prior / prior.sum(),
            loss_unit=problem.loss_unit,
            prior_source="weights of the anchors",
        )


def solve_anchors(
    problem: Problem,
    anchors: IntArray,
    budgets: FloatArray,
    weights: FloatArray,
    *,
    losses: FloatArray | None = None,
    solver: Callable[[Problem], Mechanism],
) -> AnchorTable:
    """Solve AnPO for given budgets.

    `losses` are what the rows of anchors are chosen for, (n, m); the anchors' own by default.
    `solver` is one of `solver_of`.
    """
    own = problem.loss[anchors] if losses is None else losses
    group, closed = merge(budgets)
    anpo = anchor_problem(problem, own, weights, group, closed)
    return AnchorTable(frozen(anchors), frozen(group), solver(anpo))


def solver_of(
    name: Solver = "optimal", gap: float = 0.01, time_limit: float | None = None
) -> Callable[[Problem], Mechanism]:
    """The solver behind a name."""
    from panda_mdp.methods.benders import benders
    from panda_mdp.methods.optimal.lp import solve_lp
    from panda_mdp.methods.optimal.optimal import optimal

    def solve(problem: Problem) -> Mechanism:
        if name == "benders":
            return benders(problem, gap=gap, time_limit=time_limit)
        if name == "highs":
            return solve_lp(problem, "all", time_limit=time_limit)
        return optimal(problem, gap, time_limit=time_limit)

    return solve


def relaxed_bound(
    problem: Problem,
    anchors: IntArray,
    weights: FloatArray,
    solver: Callable[[Problem], Mechanism] | None = None,
) -> float | None:
    """A rigorous lower bound on the loss over anchors, by relaxed AnPO (Eq. 44, Proposition 6).

    Between anchors the whole eps d may be spent, with nothing for Phase I or margins: every table
    of AnPO, and the restriction of every eps-mDP table of the domain, is feasible for it.
    """
    nats = problem.epsilon * problem.domain.distances(anchors, anchors) * (1 + 2e-12)
    np.fill_diagonal(nats, 0.0)
    nats = np.maximum(nats, nats.T)
    some = weights if weights.sum() > 0 else np.ones(len(anchors))
    table = solve_anchors(problem, anchors, nats, some, solver=solver or solver_of())
    return table.mechanism.lower_bound
