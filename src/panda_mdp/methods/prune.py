"""Fewer outputs, with proof of how little the optimum can rise."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import nnls

from panda_mdp._arrays import FloatArray, IntArray, frozen
from panda_mdp.engine.excess import Smoothing
from panda_mdp.errors import MethodError
from panda_mdp.mechanism import Mechanism
from panda_mdp.privacy.audit import audit_weights
from panda_mdp.problem import Problem

NEAR = 12
"""Kept outputs that may stand in for a dropped one."""
SHARE = 8
"""Of the outputs that cannot go yet, one in so many is kept before the others are tried again."""
CHUNK_ENTRIES = 1 << 23
"""Entries of the tables of differences that are formed at a time."""


@dataclass(frozen=True, eq=False)
class Pruned:
    """A problem with fewer outputs, whose optimum is at most `cost_bound` above the original's."""

    problem: Problem
    original: Problem
    kept: IntArray
    """Columns of the original's outputs that are left, ascending."""
    cost_bound: float
    """In the unit of the losses."""
    seconds: float

    def __repr__(self) -> str:
        return (
            f"Pruned({len(self.kept)} of {self.original.outputs_count} outputs, optimum at most "
            f"{self.cost_bound:.3g} {self.original.loss_unit} higher)"
        )

    def expand(self, mechanism: Mechanism) -> Mechanism:
        """A mechanism of the pruned problem as one of the original: the same reports.

        Dropped outputs get columns of zeros, the audit is taken again, and the lower bound is the
        pruned problem's less `cost_bound`, so it bounds the original's optimum and so does `gap`.
        """
        if mechanism.problem is not self.problem:
            msg = "the mechanism answers another problem; solve `pruned.problem` and expand that"
            raise MethodError(msg)
        problem = self.original
        weights = np.zeros((problem.size, problem.outputs_count), dtype=np.int64)
        weights[:, self.kept] = mechanism.weights
        bound = mechanism.lower_bound
        if bound is not None:
            # Rounded down; without any constraint each record takes its cheapest output.
            free = float(problem.prior @ problem.loss.min(axis=1)) * (1 - 1e-14)
            bound = max(free, (bound - self.cost_bound) - 1e-15 * abs(bound))
        return replace(
            mechanism,
            problem=problem,
            weights=weights,
            audit=audit_weights(problem.domain, problem.outputs, weights, problem.epsilon),
            lower_bound=bound,
            stages=(("prune", self.seconds), *mechanism.stages),
            details={
                **mechanism.details,
                "outputs_kept": len(self.kept),
                "prune_cost_bound": self.cost_bound,
            },
        )


def prune(problem: Problem, cost: float) -> Pruned:
    """Leave out outputs that others can stand in for, at no more than `cost` of expected loss.

    An output y may go if a mixture q of kept outputs is nearly as good wherever a private table
    could report y: for every f that is log-Lipschitz at epsilon, with sum_x p_x f_x = 1,

        sum_x p_x f_x (sum_s q_s c_xs - c_xy)  <=  r_y  <=  cost.

    Guarantee: the optimum of `pruned.problem` exceeds that of `problem` by at most
    `cost_bound` = max r_y. Proof: replace each report of y in an optimal table by a draw from its
    mixture; that is post-processing and keeps epsilon, and costs at most r_y times the probability
    of y, which sum to 1 over all y (docs/pruning.md).

    `cost` is in the unit of the losses; a hundredth of the loss that is expected is a good choice.
    Pays where outputs are much denser than 1 / epsilon; where each output serves its own
    neighbourhood nothing can be left out, and little time is lost in finding that.

    >>> from panda_mdp import Domain
    >>> domain = Domain.from_vectors(np.linspace(0, 1, 41))
    >>> problem = Problem(domain, np.arange(41), domain.distances(), epsilon=2.0)
    >>> pruned = prune(problem, cost=0.005)
    >>> len(pruned.kept) < 20, pruned.cost_bound <= 0.005
    (True, True)
    """
    if not (np.isfinite(cost) and cost > 0):
        msg = f"cost is {cost!r}; it must be positive, in the unit of the losses"
        raise MethodError(msg)
    start = time.perf_counter()
    choice = _Choice(problem, float(cost))
    kept, bound = choice.run()
    smaller = replace(
        problem,
        outputs=problem.outputs[kept],
        loss=np.ascontiguousarray(problem.loss[:, kept]),
    )
    return Pruned(smaller, problem, frozen(kept), bound, time.perf_counter() - start)


class _Choice:
    """Chooses outputs far apart until all others can be stood in for.

    Columns are compared by sum_x p_x (c_xy - c_xs)^2, which mixtures of near columns make small.
    """

    def __init__(self, problem: Problem, cost: float) -> None:
        self.problem, self.cost = problem, cost
        self.smoothing = Smoothing(problem)
        self.gram = problem.loss.T @ problem.weighted_loss
        squares = self.gram.diagonal()
        self.apart = np.maximum(squares[:, None] + squares - 2 * self.gram, 0.0)

    def run(self) -> tuple[IntArray, float]:
        """The columns to keep, and the largest bound among those that go."""
        count = self.problem.outputs_count
        kept = [self.problem.best_single_output]
        bound = 0.0
        open_ = np.setdiff1d(np.arange(count), kept)
        while len(open_):
            excess = self._excess(open_, np.array(kept))
            gone = excess <= self.cost
            bound = max(bound, float(excess[gone].max(initial=0.0)))
            # What can go stays gone: its mixture is of outputs that are kept.
            open_ = open_[~gone]
            kept += self._far_apart(open_, kept, -(-len(open_) // SHARE))
            open_ = np.setdiff1d(open_, kept)
        return np.sort(np.array(kept)), bound

    def _far_apart(self, columns: IntArray, kept: list[int], count: int) -> list[int]:
        """`count` of the columns, each as far as can be from those kept and chosen before."""
        chosen: list[int] = []
        nearest = self.apart[np.ix_(columns, np.array(kept))].min(axis=1)
        while len(chosen) < min(count, len(columns)):
            at = int(nearest.argmax())
            chosen.append(int(columns[at]))
            nearest = np.minimum(nearest, self.apart[columns, columns[at]])
            nearest[at] = -1.0
        return chosen

    def _excess(self, columns: IntArray, kept: IntArray) -> FloatArray:
        """r_y of each column with the best mixture of kept columns that was found."""
        parts = [self.smoothing.excess(part) for part in self._differences(columns, kept)]
        return np.concatenate(parts)

    def _differences(self, columns: IntArray, kept: IntArray) -> Iterator[FloatArray]:
        """sum_s q_s c_xs - c_xy for some columns y at a time, shape (K, columns)."""
        loss = self.problem.loss
        step = max(1, CHUNK_ENTRIES // self.problem.size)
        for start in range(0, len(columns), step):
            part = columns[start : start + step]
            out = np.empty((self.problem.size, len(part)))
            for k, y in enumerate(part):
                near, shares = self._mixture(int(y), kept)
                out[:, k] = loss[:, near] @ shares - loss[:, y]
            yield out

    def _mixture(self, column: int, kept: IntArray) -> tuple[IntArray, FloatArray]:
        """The mixture of the nearest kept columns that comes nearest to a column."""
        count = min(NEAR, len(kept))
        near = kept[np.argpartition(self.apart[column, kept], count - 1)[:count]]
        # Gram matrix of the differences c_s - c_y, so that the shares only have to sum to 1.
        cross = self.gram[near, column]
        gram = self.gram[np.ix_(near, near)] - cross[:, None] - cross
        gram += self.gram[column, column]
        size = float(np.trace(gram))
        if size <= 0:
            return near[:1], np.ones(1)
        root = np.linalg.cholesky(gram + 1e-9 * size * np.eye(count)).T
        heavy = 1e3 * np.sqrt(size)
        shares, _ = nnls(
            np.vstack([root, np.full(count, heavy)]), np.append(np.zeros(count), heavy)
        )
        return near, np.asarray(shares / shares.sum())
