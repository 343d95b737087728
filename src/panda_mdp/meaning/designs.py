"""Tables made for estimating: least variance of named statistics at an epsilon.

From n reports of a table Z (K x m) the shares a_g^T f of people spread like f, near a prior p, are
estimated without bias with a variance of a_g^T I^-1 a_g / n at best, a_g less its mean under p and

    I(Z) = sum_y z_y z_y^T / p^T z_y

what a report tells. Reporting from one of two tables, by a public chance, tells the mean of both,
so over all tables V(I) = sum_g a_g^T I^-1 a_g is convex in what they tell. With B = A^T I^-1

    V(I') >= 2 V(I) - tr B I' B^T,
    tr B I(Z) B^T = sum_x |B_x|^2 / p_x - min over r of sum_xy p_x z_xy |r_y - B_x / p_x|^2 :

Frank and Wolfe's step is a loss of squared distances between records and scores r of outputs, which
`optimal` makes least, and its lower bound bounds the variance of every table whose outputs have
these scores. Between two steps the shares of all columns so far are set anew (Newton's method with
a barrier). Columns are rays of the cone v_x <= e^(epsilon d) v_x': those of the step's table, and
exp(-epsilon d(., S)) for sets S of records that a score puts first, which are subset selection's
where all records are equally far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve

from panda_mdp.base.arrays import FloatArray
from panda_mdp.base.deadline import check_time
from panda_mdp.base.text import Facts
from panda_mdp.compute.status import Stopped
from panda_mdp.errors import InvalidInputError, MethodError
from panda_mdp.meaning.estimate import Zones, zone_matrix
from panda_mdp.methods.certify import Budget, Report, Standing, TableSolver, Tuning, certify
from panda_mdp.methods.optimal.solve import solver_for
from panda_mdp.outputs import Outputs
from panda_mdp.problem import Problem, check_probabilities, quiet_scale
from panda_mdp.space.domain import Domain
from panda_mdp.table.mechanism import Mechanism

MOST_RECORDS = 400
LEAST_SPREAD, MOST_SPREAD, SAME = 1e-30, 1e30, 1e-24
"""Variances of the statistics over the records that float64 numbers take; SAME: of the largest
one's square, below which they are taken to be the same for all."""
RAYS = 6
"""New columns of a round, for each record."""
KEPT, FAINT, SINGULAR = 3e-3, 1e-9, 1e12
"""A column whose share is smaller, beside the largest, is left out, unless what the others tell has
a larger condition number; so are outputs that faint."""
ROUNDS = 20
NEWTON_STEPS, FIRST_BARRIER, ACCURACY = 20, 0.03, 0.1
"""ACCURACY: of the gap that is asked for, what the barrier may cost."""


def least_variance(
    domain: Domain,
    statistics: Zones | FloatArray,
    epsilon: float,
    *,
    prior: npt.ArrayLike | None = None,
    gap: float = 0.1,
    time_limit: float | None = None,
    progress: Report | None = None,
) -> Mechanism:
    """The table from whose reports shares of zones are estimated with the least variance.

    `statistics` are zones as `estimate` takes them, or a (K, G) array of numbers whose means are
    wanted; variances add up, under `prior` (uniform where None). Outputs are labels, to be read by
    `pm.estimate`. The loss of the table is the squared distance of a record's statistics and the
    weights of its report: what a report adds to the variance of the truth, but for what closing the
    table over all pairs moves (a hundredth).

    Guarantee: epsilon-mDP by audit. `details` holds the `variance` of one report and a `bound` that
    no table of the columns that were tried is below, nor one whose outputs have the scores of the
    columns at hand; others are not ruled out. Ends at the `gap` between the two, or after some
    rounds. Where time is over before there is such a table, it is one row for all: its `variance`
    is infinite, since nothing can be estimated from it, and a `note` says so.

    >>> line = Domain.from_vectors([[0.0], [1.0], [2.0]])
    >>> table = least_variance(line, [0, 0, 1], 2.0)
    >>> table.details["bound"] <= table.details["variance"] <= 1.1 * table.details["bound"]
    True
    """
    if isinstance(statistics, np.ndarray) and statistics.ndim == 2:
        wanted = np.asarray(statistics, dtype=np.float64)
    else:
        _, wanted = zone_matrix(statistics, domain)  # type: ignore[arg-type]
    solver = LeastVariance(domain, wanted, epsilon, prior, gap)
    with quiet_scale():
        standing = certify(solver, Budget(gap, time_limit, ROUNDS), progress)
    best = standing.certified
    told: Facts = {"variance": standing.value, "bound": max(standing.bound, solver.spread)}
    if math.isinf(standing.value):
        if not standing.stopped.by_request:
            raise solver.too_little()
        told["note"] = "nothing can be estimated from its reports; give more time"
    return best.with_facts(details={**best.details, **told, "stopped": standing.stopped})


class LeastVariance(TableSolver):
    """Rounds of new columns and new shares of all; what is made least is the variance."""

    method = "least_variance"
    tuning = Tuning(step=1, first_check=1, patience=3, certify_iterations=1)

    def __init__(
        self, domain: Domain, wanted: FloatArray, epsilon: float, prior: Any, gap: float
    ) -> None:
        size = domain.size
        self.prior = check_probabilities(prior, size)
        if not 2 <= size <= MOST_RECORDS or wanted.shape[0] != size or not self.prior.all():
            raise InvalidInputError(
                f"{size} records with statistics of {wanted.shape} and a prior from "
                f"{self.prior.min():g} on: give 2 to {MOST_RECORDS} records (zones, or some of "
                "them), a row of statistics for each, and a prior above 0 everywhere"
            )
        self.domain, self.epsilon, self.gap = domain, epsilon, gap
        with np.errstate(over="ignore", invalid="ignore"):
            least = max(LEAST_SPREAD, SAME * float(np.square(wanted).max(initial=0)))
            self.target = wanted - self.prior @ wanted
            self.spread = float(self.prior @ np.square(self.target).sum(axis=1))
            """The variance of a report that is the record itself."""
        if not least <= self.spread <= MOST_SPREAD:
            raise InvalidInputError(
                f"the statistics' variance over the records is {self.spread:g}: it is to be from "
                f"{least:g} to {MOST_SPREAD:g}; give finite statistics in another unit, not the "
                "same for all records (of zones, at least two)"
            )
        self.problem = self._problem(np.zeros((size, 1)))
        self.apart = domain.distances()
        self._rng, self._bound = np.random.default_rng(0), -math.inf

    def too_little(self) -> MethodError:
        return MethodError(
            f"at epsilon={self.epsilon:g}, over distances up to {self.apart.max():g}, a report "
            "tells so little that its information is no regular matrix of float64 numbers; raise "
            "epsilon"
        )

    def _problem(self, loss: FloatArray) -> Problem:
        outputs = Outputs.labels(range(loss.shape[1]))
        return Problem(self.domain, outputs, loss, self.epsilon, self.prior, "variance")

    def begin(self, standing: Standing) -> None:
        self._columns, self._shares = np.empty((len(self.prior), 0)), np.empty(0)
        scores = self.target @ self._directions(RAYS * len(self.prior))
        self._offer([np.exp(-self.epsilon * self.apart), self._rays(scores)])

    def _directions(self, count: int) -> FloatArray:
        return self._rng.normal(size=(self.target.shape[1], count))

    def _rays(self, scores: FloatArray) -> FloatArray:
        """exp(-epsilon d(., S)) for the records S that each of the scores, (K, n), puts first."""
        size = len(scores)
        counts = np.exp(self._rng.uniform(0, math.log(size), scores.shape[1])).astype(int)
        first = np.argsort(np.argsort(-scores, axis=0), axis=0) < np.minimum(counts, size - 1)
        near = [self.apart[:, chosen].min(axis=1) for chosen in first.T]
        return np.exp(-self.epsilon * np.stack(near, axis=1))

    def _offer(self, rays: Sequence[FloatArray]) -> None:
        """Columns to begin the next round with, a tenth of all for new ones, and one that makes
        them a table: so near to a constant that it is private too."""
        new = np.hstack(rays)
        new = new / (self.prior @ new)
        columns = np.hstack([self._columns, new])
        shares = np.append(self._shares, np.full(new.shape[1], 0.1 / new.shape[1]))
        total = columns @ shares
        far = ~np.eye(len(total), dtype=np.bool_)
        rise = np.expm1(self.epsilon * self.apart)
        needed = ((rise + 1) * total - total[:, None])[far] / rise[far]
        rest = 1.001 * max(float(needed.max()), float(total.max())) - total
        part = float(self.prior @ rest)
        scale = float(total[0] + rest[0])
        self._columns = np.column_stack([columns, rest / part])
        self._shares = np.append(shares, part) / scale

    def advance(self, target: int, standing: Standing) -> None:
        try:
            self._round(standing)
        except np.linalg.LinAlgError as error:
            if standing.best is None:
                raise self.too_little() from error
            self.ended = Stopped.PRECISION_REACHED

    def _round(self, standing: Standing) -> None:
        prior, wanted = self.prior, self.target
        shares, prices = reweighted(self._columns, self._shares, wanted, ACCURACY * self.gap)
        for least in (KEPT, KEPT**2, 0.0):
            kept = shares > least * shares.max()
            told = information(self._columns[:, kept], shares[kept])
            # The best tables may have so few outputs that nothing but the statistics is told.
            if np.linalg.cond(told) < SINGULAR:
                break
        self._columns, self._shares = self._columns[:, kept], shares[kept]
        slope, variance = np.linalg.solve(told, wanted).T, _variance(told, wanted)
        scores, points = slope @ self._columns, (slope / prior).T
        self._made = self._columns * self._shares
        self.iterations += 1
        if standing.late():
            return
        # What would do better than the columns at hand, at the prices of rows.
        best = np.argsort(-self._shares)[: RAYS * len(prior)]
        around = 2 * slope.T @ scores[:, best] / prior[:, None]
        around = around - np.square(scores[:, best]).sum(axis=0) - (prices / prior)[:, None]
        rays = self._rays(np.hstack([around, around, points @ self._directions(len(best))]))
        rays = rays / (prior @ rays)
        worth = np.square(slope @ rays).sum(axis=0) - prices @ rays
        chosen = np.argsort(-worth)[: RAYS * len(prior) // 2]
        step, least = self._step(points, scores.T, variance, standing)
        if step.stopped is Stopped.INTERRUPTED:
            self.ended = step.stopped
            return
        table = step.certified.matrix
        # A table of these rays tells the prices of rows, and at most this beside them.
        own = np.square(scores).sum(axis=0) - prices @ self._columns
        least = min(least, -float(prices.sum() + max(worth.max(), own.max())))
        self._bound = max(self._bound, 2 * variance + least)
        self._offer([table[:, table.max(axis=0) > FAINT], rays[:, chosen[worth[chosen] > 0]]])

    def _step(
        self, points: FloatArray, scores: FloatArray, variance: float, standing: Standing
    ) -> tuple[Standing, float]:
        """Frank and Wolfe's: a table that tells nearly the most about the points of records, to be
        read by these scores, and the negative of what none of them tells more than."""
        loss = np.square(points[:, None] - scores).sum(axis=-1)
        # Rows sum to 1: what every output costs a record decides nothing.
        common = loss.min(axis=1, keepdims=True)
        whole = float(self.prior @ (np.square(points).sum(axis=1) - common[:, 0]))
        accuracy = 0.2 * self.gap * variance / max(whole - variance, 1e-9 * whole)
        left = standing.left()
        budget = Budget(min(max(accuracy, 1e-3), 0.05), None if left is None else max(left, 1.0))
        step = certify(solver_for(self._problem(loss - common)), budget)
        return step, step.bound - whole

    def bound(self) -> float:
        return self._bound

    def candidate(self) -> FloatArray:
        """The table, whose problem has the weights of its reports for the loss."""
        matrix = np.asarray(self._made / self._made.sum(axis=1, keepdims=True))
        told, columns = self._told(matrix)
        weights = np.linalg.solve(told, self.target).T @ columns
        self.problem = self._problem(np.square(self.target[:, None] - weights.T).sum(axis=-1))
        return matrix

    def _told(self, matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
        chance = self.prior @ matrix
        columns = np.asarray(matrix[:, chance > 0] / chance[chance > 0], dtype=np.float64)
        return information(columns, chance[chance > 0]), columns

    def value(self, mechanism: Mechanism) -> float:
        told, _ = self._told(mechanism.matrix)
        # From one row for all, which is at hand where time is over, nothing can be estimated.
        regular = np.linalg.matrix_rank(told, hermitian=True) == len(told)
        return _variance(told, self.target) if regular else math.inf


def information(columns: FloatArray, shares: FloatArray) -> FloatArray:
    """What a report tells: sum_j share_j u_j u_j^T over columns u_j with p^T u_j = 1."""
    return np.asarray((columns * shares) @ columns.T)


def _variance(told: FloatArray, wanted: FloatArray) -> float:
    return float(np.trace(wanted.T @ np.linalg.solve(told, wanted)))


def reweighted(
    columns: FloatArray, shares: FloatArray, wanted: FloatArray, accuracy: float
) -> tuple[FloatArray, FloatArray]:
    """Shares with columns @ shares = 1 of nearly least variance, from others, and prices of rows.

    Newton's method on the variance less a barrier times the sum of logarithms.
    """
    count, variance = len(shares), _variance(information(columns, shares), wanted)
    barrier = FIRST_BARRIER * variance / count

    def value(shares: FloatArray) -> float:
        told = _variance(information(columns, shares), wanted)
        return told - barrier * float(np.log(shares).sum())

    while True:
        for _ in range(NEWTON_STEPS):
            check_time()
            both = np.column_stack([columns, wanted])
            both = cho_solve(cho_factor(information(columns, shares)), both)
            inverse, slope = both[:, :count], both[:, count:].T @ columns
            gradient = -np.square(slope).sum(axis=0) - barrier / shares
            hessian = 2 * (slope.T @ slope) * (columns.T @ inverse)
            hessian[np.diag_indices(count)] += barrier / shares**2
            solved = cho_solve(
                cho_factor(hessian, overwrite_a=True), np.column_stack([gradient, columns.T])
            )
            prices = np.linalg.solve(columns @ solved[:, 1:], -(columns @ solved[:, 0]))
            step = -solved[:, 0] - solved[:, 1:] @ prices
            promised = -float(gradient @ step)
            if promised < 1e-3 * barrier * count:
                break
            falling = step < 0
            length = min(1.0, 0.95 * float((-shares[falling] / step[falling]).min(initial=np.inf)))
            now = value(shares)
            while length > 1e-10 and value(shares + length * step) > now - 0.1 * length * promised:
                length /= 2
            shares = shares + length * step
        variance = _variance(information(columns, shares), wanted)
        if barrier * count < accuracy * variance:
            return shares, np.asarray(prices, dtype=np.float64)
        barrier *= 0.1
