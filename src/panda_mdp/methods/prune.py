"""Fewer outputs, with proof of how little the optimum can rise.

A column f of an epsilon-mDP table is log-Lipschitz, f_x <= exp(epsilon d(x, x')) f_x', so it cannot
gather on the few records where a loss d_x is large. For any kernel h(x, x') >= 0 with h(x, x) > 0,
f_x Z_x <= sum_x' p_x' h(x, x') f_x' with Z_x = sum_x' p_x' h(x, x') exp(-epsilon d(x, x')), hence

    sum_x p_x f_x d_x  <=  sum_x p_x f_x b_x,
    b_x = min(d_x, 0) + sum_x' h(x', x) p_x' max(d_x', 0) / Z_x'.

`Smoothing` takes tents h = max(0, 1 - d / R) of several radii, or b = d, the limit R -> 0,
whichever makes the positive part of b smallest. The proof and its use are in docs/pruning.md.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray, Rebuilt, frozen
from panda_mdp.errors import MethodError
from panda_mdp.methods.optimal.dual import UNIT_ROUNDOFF, free_bound, total_from_below
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain
from panda_mdp.table.mechanism import Mechanism

ROUNDING = 1e-11
"""Of the largest loss: bounds what float64 takes away in sums over all records."""
SAMPLE = 64
SPARSE_SHARE = 0.1
"""Losses of which fewer are positive are worth multiplying one by one."""

Kernel: TypeAlias = "FloatArray | scipy.sparse.csr_array"


@dataclass(frozen=True)
class Tents:
    """Which kernels are tried."""

    count: int = 4
    """Each has half the radius of the one before."""
    widest_nats: float = 16.0
    """epsilon R of the widest."""
    dense_records: int = 2048
    """Up to this many records all pairs are kept in one array."""
    most_pairs: int = 1 << 21
    """Otherwise about so many at the most."""

    def radii(self, widest: float) -> list[float]:
        """From the widest on."""
        return [widest / 2**k for k in range(self.count)]


USUAL_TENTS = Tents()


class Smoothing:
    """Spreads losses over the records of one problem."""

    def __init__(self, problem: Problem, tents: Tents = USUAL_TENTS) -> None:
        self.prior = problem.prior
        self.kernels = list(_kernels(problem, tents))

    def spread(self, losses: FloatArray) -> FloatArray:
        """b of the module's head for each column d of `losses`, shape (K, n); not negative.

        For every f that is log-Lipschitz at epsilon, sum p f d <= sum p f b.
        """
        raised, base = np.maximum(losses, 0), np.minimum(losses, 0)
        best, least = raised, self._size(raised)
        for kernel in self.kernels:
            smoothed = np.maximum(base + _product(kernel, raised), 0)
            size = self._size(smoothed)
            best = np.where(size < least, smoothed, best)
            least = np.minimum(least, size)
        return np.asarray(best + ROUNDING * np.abs(losses).max(initial=0))

    def _size(self, columns: FloatArray) -> FloatArray:
        # In units of the largest, so that squares stay in range.
        top = float(np.abs(columns).max(initial=0.0)) or 1.0
        return np.asarray(np.sqrt(self.prior @ (columns / top) ** 2) * top)


def _product(kernel: Kernel, columns: FloatArray) -> FloatArray:
    few = np.count_nonzero(columns) < SPARSE_SHARE * columns.size
    if few and not isinstance(kernel, np.ndarray):
        return np.asarray((kernel @ scipy.sparse.csc_array(columns)).toarray())
    return np.asarray(kernel @ columns)


def _kernels(problem: Problem, tents: Tents) -> Iterator[Kernel]:
    """Matrices h(x', x) p_x' / Z_x' with x down and x' across, one for each tent."""
    domain, epsilon, prior = problem.domain, problem.epsilon, problem.prior
    if domain.size <= tents.dense_records:
        between = domain.distances()
        for radius in tents.radii(tents.widest_nats / epsilon):
            tent = np.maximum(0.0, 1 - between / radius)
            yield tent * _share(prior, (tent * np.exp(-epsilon * between)) @ prior)
        return
    widest = _affordable(domain, tents.widest_nats / epsilon, tents.most_pairs)
    near = _near(domain, widest)
    fade = np.exp(-epsilon * near.data)
    for radius in tents.radii(widest):
        height = np.maximum(0.0, 1 - near.data / radius)
        share = _share(prior, np.asarray(_like(near, height * fade) @ prior))
        yield _like(near, height * share[near.indices])


def _share(prior: FloatArray, reach: FloatArray) -> FloatArray:
    """p_x / Z_x; 0 for records without weight, whose losses count for nothing."""
    return np.divide(prior, reach, out=np.zeros_like(prior), where=prior > 0)


def _affordable(domain: Domain, radius: float, most_pairs: int) -> float:
    """The radius, halved until about so many pairs lie within it."""
    some = np.linspace(0, domain.size - 1, SAMPLE).astype(np.int64)
    distance = domain.distances(some)
    while np.count_nonzero(distance <= radius) * domain.size / SAMPLE > 2 * most_pairs:
        radius /= 2
    return radius


def _like(pattern: scipy.sparse.csr_array, data: FloatArray) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array((data, pattern.indices, pattern.indptr), shape=pattern.shape)


def _near(domain: Domain, radius: float) -> scipy.sparse.csr_array:
    """Distances of all pairs within a radius, both ways, and of every record to itself (0)."""
    chunks = list(domain.pairs_within(radius))
    own = np.arange(domain.size)
    first = np.concatenate([own, *(i for i, _, _ in chunks), *(j for _, j, _ in chunks)])
    second = np.concatenate([own, *(j for _, j, _ in chunks), *(i for i, _, _ in chunks)])
    distance = np.concatenate(
        [np.zeros(domain.size), *(d for _, _, d in chunks), *(d for _, _, d in chunks)]
    )
    return scipy.sparse.csr_array((distance, (first, second)), shape=(domain.size, domain.size))


NEAR = 12
"""Kept outputs that may stand in for a dropped one."""
FIRST = 50
"""One output in so many is kept unseen, far apart, before anything is measured."""
STRIDES = ((4.0, 1), (1.5, 4), (0.0, 16))
"""Where the bound is above this multiple of the cost, one output is added for so many kept."""
LARGEST_STEP = 8
"""But never more than one in so many of the others."""
CHUNK_ENTRIES = 1 << 23
"""Entries of the tables of differences that are formed at a time."""


@dataclass(frozen=True, eq=False)
class Pruned(Rebuilt):
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
            # A difference of two floats errs by half an ulp of itself.
            less = bound - self.cost_bound
            bound = max(free_bound(problem), less - 2 * UNIT_ROUNDOFF * abs(less))
        return replace(
            mechanism,
            problem=problem,
            weights=weights,
            lower_bound=bound,
            proof=None,
            stages=(("prune", self.seconds), *mechanism.stages),
            details={
                **mechanism.details,
                "outputs_kept": len(self.kept),
                "prune_cost_bound": self.cost_bound,
            },
        )


def prune(problem: Problem, cost: float, *, tents: Tents = USUAL_TENTS) -> Pruned:
    """Leave out outputs that others can stand in for, at no more than `cost` of expected loss.

    Each output y that goes has a mixture q of kept ones to stand in for it, and numbers b_xy >= 0
    such that for every f that is log-Lipschitz at epsilon, as columns of private tables are,

        sum_x p_x f_x (sum_s q_s c_xs - c_xy)  <=  sum_x p_x f_x b_xy.

    Guarantee: the optimum of `pruned.problem` exceeds that of `problem` by at most
    `cost_bound` = sum_x p_x max_y b_xy <= cost. Proof: replace each report of y in an optimal table
    by a draw from its mixture. That is post-processing and keeps epsilon; it adds at most
    sum_x p_x sum_y z_xy b_xy, and rows sum to 1 (docs/pruning.md).

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
    choice = _Choice(problem, float(cost), Smoothing(problem, tents))
    retained, bound = choice.run()
    smaller = Problem(
        problem.domain,
        problem.reports.take(retained),
        problem.loss[:, retained],
        problem.epsilon,
        prior=problem.prior,
        loss_unit=problem.loss_unit,
        prior_source=problem.prior_source,
    )
    return Pruned(smaller, problem, frozen(retained), bound, time.perf_counter() - start)


class _Choice:
    """Keeps outputs until mixtures of them can stand in for all others.

    Columns are compared by sum_x p_x (c_xy - c_xs)^2, which mixtures of near columns make small.
    """

    def __init__(self, problem: Problem, cost: float, smoothing: Smoothing) -> None:
        self.problem, self.cost, self.smoothing = problem, cost, smoothing
        # In units of the largest loss, so that squares stay in range.
        scaled = problem.loss / (float(problem.loss.max()) or 1.0)
        self.gram = scaled.T @ (problem.prior[:, None] * scaled)
        squares = self.gram.diagonal()
        self.squared = np.maximum(squares[:, None] + squares - 2 * self.gram, 0.0)

    def run(self) -> tuple[IntArray, float]:
        """The columns to keep, and the bound on what that costs."""
        everything = np.arange(self.problem.outputs_count)
        retained = np.array([self.problem.best_single_output])
        retained = self._spread_out(retained, len(everything) // FIRST)
        while len(retained) < len(everything):
            others = np.setdiff1d(everything, retained)
            worst, blame = self._worst(others, retained)
            bound = -total_from_below(-self.problem.prior * worst * (1 + 2 * UNIT_ROUNDOFF))
            if bound <= self.cost:
                return np.sort(retained), bound
            stride = next(stride for above, stride in STRIDES if bound > above * self.cost)
            guilt = np.zeros(len(others))
            np.add.at(guilt, blame, self.problem.prior * worst)
            most = min(-(-len(retained) // stride), -(-len(others) // LARGEST_STEP))
            retained = self._add(retained, others, guilt, most)
        return everything, 0.0

    def _add(self, retained: IntArray, others: IntArray, guilt: FloatArray, most: int) -> IntArray:
        """The kept columns and those that cost most, none near another that is added with it."""
        before = self.squared[np.ix_(others, retained)].min(axis=1)
        nearest, added = before.copy(), [int(others[guilt.argmax()])]
        for at in np.argsort(-guilt)[: 4 * most]:
            if guilt[at] > 0 and len(added) < most and nearest[at] > before[at] / 4:
                added.append(int(others[at]))
            nearest = np.minimum(nearest, self.squared[others, added[-1]])
        return np.union1d(retained, added)

    def _spread_out(self, retained: IntArray, count: int) -> IntArray:
        """The kept columns and `count` more, each as far as can be from those before."""
        chosen = retained.tolist()
        nearest = self.squared[:, retained].min(axis=1)
        for _ in range(count):
            chosen.append(int(nearest.argmax()))
            nearest = np.minimum(nearest, self.squared[:, chosen[-1]])
        return np.unique(chosen)

    def _worst(self, columns: IntArray, retained: IntArray) -> tuple[FloatArray, IntArray]:
        """max_y b_xy over some columns y for every record x, and which of them attains it."""
        worst = np.zeros(self.problem.size)
        blame = np.zeros(self.problem.size, dtype=np.int64)
        seen = 0
        for part in self._differences(columns, retained):
            spread = self.smoothing.spread(part)
            at = spread.argmax(axis=1)
            most = np.take_along_axis(spread, at[:, None], 1)[:, 0]
            blame = np.where(most > worst, at + seen, blame)
            worst = np.maximum(worst, most)
            seen += part.shape[1]
        return worst, blame

    def _differences(self, columns: IntArray, retained: IntArray) -> Iterator[FloatArray]:
        """sum_s q_s c_xs - c_xy for some columns y at a time, shape (K, columns)."""
        loss = self.problem.loss
        step = max(1, CHUNK_ENTRIES // self.problem.size)
        for start in range(0, len(columns), step):
            part = columns[start : start + step]
            out = np.empty((self.problem.size, len(part)))
            for k, y in enumerate(part):
                near, shares = self._mixture(int(y), retained)
                out[:, k] = loss[:, near] @ shares - loss[:, y]
            yield out

    def _mixture(self, column: int, retained: IntArray) -> tuple[IntArray, FloatArray]:
        """The mixture of the nearest kept columns that comes nearest to a column."""
        count = min(NEAR, len(retained))
        near = retained[np.argpartition(self.squared[column, retained], count - 1)[:count]]
        # Gram matrix of the differences c_s - c_y, so that the shares only have to sum to 1.
        cross = self.gram[near, column]
        gram = self.gram[np.ix_(near, near)] - cross[:, None] - cross
        gram += self.gram[column, column]
        size = float(np.trace(gram))
        if size <= 0:
            return near[:1], np.ones(1)
        root = np.linalg.cholesky(gram + 1e-9 * size * np.eye(count)).T
        heavy = 1e3 * np.sqrt(size)
        shares, _ = scipy.optimize.nnls(
            np.vstack([root, np.full(count, heavy)]), np.append(np.zeros(count), heavy)
        )
        return near, np.asarray(shares / shares.sum())
