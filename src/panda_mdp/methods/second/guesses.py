"""The attacker's error at the scale of a city: for every output the guesses that may be best.

The best attacker's error is sum_y min_w sum_x p_x z_xy d(w, x) over all records w. Held are some
guesses near the best one of every output, and moved with the table. An attacker who has only those
errs no less, so with v = -error

    v(z) >= sum_y max over the held w of (-sum_x p_x z_xy d(w, x)):

what bounds the right side from below bounds v. Values are taken over all guesses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from panda_mdp.base.arrays import Float32Array, FloatArray, IntArray
from panda_mdp.errors import MethodError
from panda_mdp.methods.second.forms import CityForms, relative
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain

HELD = 16
"""Guesses of an output: half of them its nearest records, the others ever farther ones."""
FARTHEST_RANK = 0.1
"""Of all records: how far the farthest of them reaches."""
STORED = 2e-7
"""More than storing a distance in float32 and summing in float64 can err, relatively."""
SUMMED_AT_ONCE = 512
SUMMED = 1e-4
"""More than twice what float32 sums of so many terms of one sign can err, relatively."""
ROWS_AT_ONCE = 256
LARGEST = 1 << 26
"""Distances between records that are held, in float32, for a quick look at all guesses."""


@dataclass(frozen=True)
class Guesses(CityForms):
    """(A z)_gy = -sum_x p_x d(w_gy, x) z_xy for the guesses w (G, m) that are held."""

    problem: Problem
    held: IntArray
    coefficients: Float32Array
    """-p_x d(w_gy, x) by output, guess and record, (m, G, K), in `order`."""
    order: IntArray
    distances: Float32Array | None
    """All distances, (K, K), where they can be held."""
    stiffness = 16.0
    work = 0.4
    dear = 10.0

    @classmethod
    def around(cls, problem: Problem, table: FloatArray) -> Guesses:
        """Guesses round the best one of each output of a table."""
        size = problem.size
        count = min(HELD, size)
        near = np.arange(count - count // 2)
        far = np.geomspace(len(near) + 1, max(len(near) + 1, FARTHEST_RANK * size), count // 2)
        ranks = np.unique(np.concatenate([near, np.minimum(far.astype(np.int64), size - 1)]))
        every = _every(problem.domain) if size * size <= LARGEST else None
        order = np.arange(size)
        none = np.empty((0, 0), dtype=np.int64), np.empty((0, 0, 0), dtype=np.float32)
        best = cls(problem, *none, order, every).look(table)[0]
        held = np.argsort(problem.domain.distances(best, None), axis=1, kind="stable")[:, ranks].T
        return cls(problem, held, _costs(problem, held, order, every), order, every)

    def forward(self, table: FloatArray) -> FloatArray:
        columns = np.ascontiguousarray(table.T, dtype=np.float32)[:, :, None]
        return np.asarray((self.coefficients @ columns)[:, :, 0].T, dtype=np.float64)

    def adjoint(self, weights: FloatArray) -> FloatArray:
        rows = np.ascontiguousarray(weights.T, dtype=np.float32)[:, None, :]
        return np.asarray((rows @ self.coefficients)[:, 0, :].T)

    def below(self, weights: FloatArray) -> FloatArray:
        # A sum of 1 or a rounding more: values are not positive, so that is from below.
        sums = weights.sum(axis=0) * (1 - 1e-12)
        inside = np.maximum(weights, 0.0) / sums
        below = np.empty((len(self.order), inside.shape[1]))
        for y, forms in enumerate(self.coefficients):
            below[:, y] = inside[:, y] @ forms.astype(np.float64)
        return below * (1 + STORED)

    def permuted(self, order: IntArray) -> Guesses:
        return replace(
            self,
            coefficients=np.ascontiguousarray(self.coefficients[:, :, order]),
            order=self.order[order],
        )

    def shares(self) -> FloatArray:
        return relative(self.problem.prior[self.order])

    def steepness(self, weight: FloatArray) -> FloatArray:
        # What all guesses of an output share moves no weights on a simplex: it is left out.
        steep = np.empty(len(self.coefficients))
        for y, forms in enumerate(self.coefficients):
            own = forms - forms.mean(axis=0)
            steep[y] = np.linalg.eigvalsh((own * weight[:, y].astype(np.float32)) @ own.T)[-1]
        return steep * 1.01

    def value(self, table: FloatArray) -> float:
        if self.distances is None:
            return -float(best_guesses(self.problem, table)[1].sum())
        # In float64 for those guesses alone that may be best.
        errors = self._errors(table)
        near = np.flatnonzero((errors <= errors.min(axis=0) * (1 + SUMMED)).any(axis=1))
        exact = self.problem.domain.distances(near, None) @ (self.problem.prior[:, None] * table)
        return -float(exact.min(axis=0).sum())

    def glance(self, table: FloatArray) -> float:
        return -float(self.look(table)[1].sum())

    def moved(self, table: FloatArray, weights: FloatArray) -> Guesses:
        """The best guesses of `table` (in `order`) take the places of the least used ones, and
        their weights, so that sums stay 1."""
        unsorted = np.empty_like(table)
        unsorted[self.order] = table
        best = self.look(unsorted)[0]
        missing = np.flatnonzero(~(self.held == best).any(axis=0))
        if len(missing) == 0:
            return self
        held, coefficients = self.held.copy(), self.coefficients.copy()
        out = weights[:, missing].argmin(axis=0)
        held[out, missing] = best[missing]
        costs = _costs(self.problem, best[None, missing], self.order, self.distances)
        coefficients[missing, out] = costs[:, 0]
        return replace(self, held=held, coefficients=coefficients)

    def look(self, table: FloatArray) -> tuple[IntArray, FloatArray]:
        """`best_guesses` in float32 where all distances can be held."""
        if self.distances is None:
            return best_guesses(self.problem, table)
        errors = self._errors(table)
        best = errors.argmin(axis=0)
        return best, errors[best, np.arange(len(best))]

    def _errors(self, table: FloatArray) -> FloatArray:
        """p(y) times every guess's expected distance, nearly, (K, m)."""
        if self.distances is None:
            msg = "the distances are not held"
            raise MethodError(msg)
        joint = (self.problem.prior[:, None] * table).astype(np.float32)
        errors = np.zeros(table.shape)
        for begin in range(0, len(joint), SUMMED_AT_ONCE):
            some = slice(begin, begin + SUMMED_AT_ONCE)
            errors += self.distances[:, some] @ joint[some]
        return errors


def best_guesses(problem: Problem, table: FloatArray) -> tuple[IntArray, FloatArray]:
    """For every output the guess of least expected distance, and p(y) times that distance."""
    outputs = problem.outputs_count
    best, least = np.zeros(outputs, dtype=np.int64), np.full(outputs, np.inf)
    joint = problem.prior[:, None] * table
    for rows, distance in problem.domain.blocks():
        errors = distance @ joint
        at = errors.argmin(axis=0)
        errors = errors[at, np.arange(outputs)]
        better = errors < least
        best[better], least[better] = at[better] + rows.start, errors[better]
    return best, least


def _every(domain: Domain) -> Float32Array:
    """All distances, each computed once."""
    every = np.empty((domain.size, domain.size), dtype=np.float32)
    for begin in range(0, domain.size, ROWS_AT_ONCE):
        rows, rest = slice(begin, begin + ROWS_AT_ONCE), slice(begin, None)
        index = np.arange(domain.size)
        every[rows, rest] = domain.distances(index[rows], index[rest])
        every[rest, rows] = every[rows, rest].T
    return every


def _costs(
    problem: Problem, held: IntArray, order: IntArray, every: Float32Array | None
) -> Float32Array:
    count, outputs = held.shape
    costs = np.empty((outputs, count, len(order)), dtype=np.float32)
    for y in range(outputs):
        if every is None:
            distance = problem.domain.distances(held[:, y], order)
        else:
            distance = every[np.ix_(held[:, y], order)].astype(np.float64)
        costs[y] = -problem.prior[order] * distance
    return costs
