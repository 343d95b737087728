"""Phase II: the table over the anchors (AnPO, section 3.4 of the paper).

    min sum_a p_a sum_y c_ay z_ay   s.t.   sum_y z_ay = 1,  z_ay <= exp(budget(a, a')) z_a'y

over all pairs of anchors. Budgets are no metric, but the constraints only ever use their
shortest-path closure: z_a <= exp(b(a, u) + b(u, a')) z_a' follows anyway. The closure is a metric
once anchors at budget 0, whose rows are equal, are merged. So AnPO is an ordinary problem over the
merged anchors with distances in nats and epsilon 1, and every method and audit applies to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray, frozen
from panda_mdp.errors import MethodError, MissingDependencyError
from panda_mdp.outputs import Outputs
from panda_mdp.panda.options import Solver
from panda_mdp.problem import Problem, quiet_scale
from panda_mdp.space.domain import Domain
from panda_mdp.table.mechanism import Mechanism

MERGED = 1e-6
"""Budgets below this many nats become 0: the rows are then equal, which is stricter."""


SCALED = 1e-6
"""Budgets within this share of eps d are treated as eps d, shrunk by as much."""


class Solve(Protocol):
    """Anything that solves a problem to a gap, possibly from a start."""

    def __call__(
        self,
        problem: Problem,
        gap: float,
        *,
        time_limit: float | None,
        initial: FloatArray | None,
    ) -> Mechanism: ...


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
        return np.asarray(self.mechanism.matrix[self.row])

    def positions(self, anchors: IntArray) -> IntArray:
        """Positions of anchors in this table; refuses those that it does not hold."""
        position = np.searchsorted(self.anchors, anchors)
        position = np.minimum(position, len(self.anchors) - 1)
        if not np.array_equal(self.anchors[position], anchors):
            msg = "the table has no row for some of these anchors"
            raise MethodError(msg)
        return position

    def rows(self, anchors: IntArray) -> FloatArray:
        """Probabilities of some anchors, in their order."""
        return np.asarray(self.mechanism.matrix[self.row[self.positions(anchors)]])

    def spreads(self, anchor: int, others: IntArray) -> tuple[FloatArray, FloatArray]:
        """max_y log z / z' and max_y log z' / z between an anchor's row and others', at least 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(self.weights(np.concatenate([[anchor], others])).astype(np.float64))
            difference = logs[0] - logs[1:]
        # An output that neither row has tells nothing.
        difference = np.where(np.isnan(difference), 0.0, difference)
        up, down = difference.max(axis=1), -difference.min(axis=1)
        return np.maximum(0.0, up), np.maximum(0.0, down)

    def weights(self, anchors: IntArray) -> IntArray:
        """Integer weights of some anchors, in their order: what is sampled from."""
        return np.asarray(self.mechanism.weights[self.row[self.positions(anchors)]])


def merge(budgets: FloatArray) -> tuple[IntArray, FloatArray]:
    """Groups of anchors whose rows must be equal, and the closed budgets between groups.

    Returns the group of each anchor and a (groups, groups) metric in nats.
    """
    linked = (budgets < MERGED).astype(np.int8)
    count, group = scipy.sparse.csgraph.connected_components(linked, directed=False)
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(count))
    if count < len(budgets):
        least = np.minimum.reduceat(budgets[order][:, order], starts, axis=0)
        least = np.minimum.reduceat(least, starts, axis=1)
    else:
        least = budgets[order][:, order].copy()
    np.fill_diagonal(least, 0.0)
    return group.astype(np.int64), closure(least)


def closure(budgets: FloatArray) -> FloatArray:
    """Shortest paths: the largest metric below symmetric budgets."""
    table = np.array(budgets, dtype=np.float64)
    try:
        from panda_mdp.compute.numba.minplus import close
    except ImportError:
        for k in range(len(table)):
            np.minimum(table, table[:, k, None] + table[k], out=table)
        return table
    close(table)
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
    count, outputs = len(closed), problem.outputs_count
    size = max(count, 2)
    reach = float(closed.max()) if closed.max() > 0 else 1.0
    nats = np.full((size, size), reach)
    nats[:count, :count] = closed
    np.fill_diagonal(nats, 0.0)
    total = float(weights.sum())
    # Anchors without any weight count alike: something has to be minimised.
    share = weights / total if total > 0 else np.full(len(losses), 1.0 / len(losses))
    prior = np.zeros(size)
    np.add.at(prior, group, share)
    loss = np.zeros((size, outputs))
    np.add.at(loss, group, share[:, None] * losses)
    loss[:count] /= np.where(prior[:count] > 0, prior[:count], 1.0)[:, None]
    with quiet_scale():
        return Problem(
            Domain.from_matrix(nats, unit="nats"),
            Outputs.labels(range(outputs)),
            loss,
            1.0,
            prior=prior / prior.sum(),
            loss_unit=problem.loss_unit,
            prior_source="weights of the anchors",
        )


def scaled_problem(
    problem: Problem,
    anchors: IntArray,
    losses: FloatArray,
    budgets: FloatArray,
    weights: FloatArray,
) -> Problem | None:
    """AnPO over the domain's own geometry, where budgets are all but eps d; else None.

    Then eps is shrunk to the least budget per distance, at most 1e-6 below, and no closure is
    needed.
    """
    if len(anchors) < 2 or weights.sum() <= 0:
        return None
    distance = problem.domain.distances(anchors, anchors)
    np.fill_diagonal(distance, 1.0)
    rates = budgets / distance
    np.fill_diagonal(rates, np.inf)
    least = float(rates.min())
    if least < (1 - SCALED) * problem.epsilon:
        return None
    return _over_anchors(problem, anchors, losses, weights, least * (1 - 1e-12))


def _over_anchors(
    problem: Problem, anchors: IntArray, losses: FloatArray, weights: FloatArray, epsilon: float
) -> Problem:
    """The problem restricted to anchors, at another epsilon; outputs go by their columns."""
    with quiet_scale():
        return Problem(
            problem.domain.take(anchors),
            Outputs.labels(range(problem.outputs_count)),
            losses,
            epsilon,
            prior=weights / weights.sum(),
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
    solver: Solver = "optimal",
    gap: float = 0.01,
    time_limit: float | None = None,
    start: Callable[[IntArray], FloatArray] | None = None,
) -> tuple[AnchorTable, tuple[tuple[str, float], ...]]:
    """Solve AnPO for given budgets; returns the table and what took how long.

    `losses` are what the rows of anchors are chosen for, (n, m); the anchors' own by default.
    `start` gives rows to begin with for anchors (a previous solution), one row per anchor.
    """
    clock = time.perf_counter()
    own = problem.loss[anchors] if losses is None else losses
    anpo = scaled_problem(problem, anchors, own, budgets, weights)
    if anpo is not None:
        group, count = np.arange(len(anchors)), len(anchors)
    else:
        group, closed = merge(budgets)
        anpo, count = anchor_problem(problem, own, weights, group, closed), len(closed)
    stages = [("close budgets", time.perf_counter() - clock)]
    initial = None
    if start is not None:
        rows = start(anchors)
        initial = np.full((anpo.size, anpo.outputs_count), 1.0 / anpo.outputs_count)
        members = np.bincount(group, minlength=count)
        initial[:count] = 0.0
        np.add.at(initial, group, rows / members[group][:, None])
    clock = time.perf_counter()
    mechanism = solver_of(solver)(anpo, gap, time_limit=time_limit, initial=initial)
    stages.append((f"AnPO ({solver})", time.perf_counter() - clock))
    return AnchorTable(frozen(anchors), frozen(group), mechanism), tuple(stages)


def solver_of(name: Solver) -> Solve:
    """The function behind a solver's name."""
    if name == "optimal":
        return _optimal
    if name == "highs":
        return _highs
    if name == "benders":
        return _benders
    msg = f"solver is {name!r}; choose 'optimal', 'benders' or 'highs'"
    raise MethodError(msg)


def _optimal(
    problem: Problem, gap: float, *, time_limit: float | None, initial: FloatArray | None
) -> Mechanism:
    from panda_mdp.methods.optimal.optimal import optimal

    return optimal(problem, gap, time_limit=time_limit, initial=initial)


def _highs(
    problem: Problem, gap: float, *, time_limit: float | None, initial: FloatArray | None
) -> Mechanism:
    from panda_mdp.methods.optimal.optimal import optimal

    return optimal(problem, gap, "highs", time_limit=time_limit, pairs="all")


def _benders(
    problem: Problem, gap: float, *, time_limit: float | None, initial: FloatArray | None
) -> Mechanism:
    try:
        from panda_mdp.methods.benders.benders import benders
    except ImportError as error:
        msg = "Benders decomposition is not part of this installation; use solver='optimal'"
        raise MissingDependencyError(msg) from error
    return benders(problem, gap=gap, time_limit=time_limit)


def relaxed_bound(
    problem: Problem,
    anchors: IntArray,
    weights: FloatArray,
    *,
    solver: Solver = "optimal",
    gap: float = 0.01,
    time_limit: float | None = None,
) -> float | None:
    """A rigorous lower bound on the loss over anchors, by relaxed AnPO (Eq. 44, Proposition 6).

    Between anchors the whole eps d may be spent, with nothing for Phase I or margins: every table
    of AnPO, and the restriction of every eps-mDP table of the domain, is feasible for it.
    """
    if len(anchors) >= 2 and weights.sum() > 0:
        # The domain's own geometry makes for a sparser constraint graph than a matrix does.
        own = problem.loss[anchors]
        relaxed = _over_anchors(problem, anchors, own, weights, problem.epsilon)
    else:
        nats = problem.epsilon * problem.domain.distances(anchors, anchors)
        np.fill_diagonal(nats, 0.0)
        nats = np.minimum(nats, nats.T)
        group = np.arange(len(anchors))
        relaxed = anchor_problem(problem, problem.loss[anchors], weights, group, nats)
    return solver_of(solver)(relaxed, gap, time_limit=time_limit, initial=None).lower_bound
