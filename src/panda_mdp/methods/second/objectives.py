"""What else a table may be good for, as sums of largest linear forms.

Every objective here is

    v(z) = sum over groups g of  max over f of  (A z)_fg,

convex and piecewise linear in the table z, to be made small. For an attacker with gains g_wx the
forms are the guesses, the groups the outputs, and v is the g-vulnerability; v is linear after one
variable per group is added, so bounds by weak duality and audits stay what they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
import scipy

from panda_mdp.base.arrays import Float32Array, FloatArray, IntArray
from panda_mdp.errors import MethodError
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain

ROUNDED = 1e-11
"""Relative, and more than sums of a few thousand float64 terms of one sign can err."""
FAINTEST = 1e-6
"""Records that count less than this, of the one that counts most, are taken to count so much."""

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


def admissible(weights: FloatArray) -> FloatArray:
    """The weights made >= 0 with sums of at most 1 in every group."""
    positive = np.maximum(weights, 0.0)
    sums = positive.sum(axis=0) * (1 + 1e-12)
    return np.asarray(positive / np.maximum(sums, 1.0))


class Forms(ABC):
    """The linear forms of an objective over tables of shape (K, m)."""

    @abstractmethod
    def forward(self, table: FloatArray) -> FloatArray:
        """The forms' values, (forms, groups)."""

    @abstractmethod
    def adjoint(self, weights: FloatArray) -> FloatArray:
        """sum_fg w_fg A_fg as a table, (K, m)."""

    def value(self, table: FloatArray) -> float:
        """v(z)."""
        return float(self.forward(table).max(axis=0).sum())

    levelled = False
    """One group whose forms are each kept below a level, which replaces the price of the largest.

    Weights are then any numbers >= 0, and their sum is the price."""

    together = 4
    """Iterations between two steps of the weights: a step costs about half as much as one."""
    stiffness: float = 2.0
    """What the forms add to a record's degree at most, which is a dozen edges or so: the more, the
    longer the steps of the weights and the shorter those of the table."""

    work = 0.5
    """Iterations, of those of the first solve, that take with checks and repair no longer than it
    did."""
    dear = 6.0
    """The price at which a slack is used up, near enough to begin with: so many slacks of loss for
    all that the objective could fall."""

    @abstractmethod
    def below(self, weights: FloatArray) -> FloatArray:
        """A table b, near A^T w, with <b, z> <= v(z) for every z >= 0, or <= sum(w) v(z) where
        the forms are levelled; roundings accounted for."""

    @abstractmethod
    def permuted(self, order: IntArray) -> Self:
        """The same forms of tables whose rows are in another order."""

    @abstractmethod
    def shares(self) -> FloatArray:
        """How much of the forms hangs on each record, (K,), positive, 1 at most."""

    @abstractmethod
    def steepness(self, weight: FloatArray) -> FloatArray:
        """For every group a bound on the largest eigenvalue of A diag(weight) A^T, (groups,); for
        every form, (forms, 1), where they are levelled and share no entry of the table."""

    def glance(self, table: FloatArray) -> float:
        """v(z), or nearly, where that is cheaper."""
        return self.value(table)

    def moved(self, table: FloatArray, weights: FloatArray) -> Self:
        """Forms that suit another table better, where only some are held; weights go with them."""
        return self


@dataclass(frozen=True)
class Gain(Forms):
    """Guesses by outputs: (A z)_wy = sum_x a_wx z_xy with a_wx = p_x g_wx >= 0."""

    coefficients: scipy.sparse.csr_array
    stiffness: float = 2.0

    def forward(self, table: FloatArray) -> FloatArray:
        return np.asarray(self.coefficients @ table)

    def adjoint(self, weights: FloatArray) -> FloatArray:
        return np.asarray(self.coefficients.T @ weights)

    def below(self, weights: FloatArray) -> FloatArray:
        return np.maximum(self.adjoint(admissible(weights)) * (1 - ROUNDED), 0.0)

    def permuted(self, order: IntArray) -> Gain:
        return replace(self, coefficients=scipy.sparse.csr_array(self.coefficients[:, order]))

    def shares(self) -> FloatArray:
        return relative(self._column_sums())

    def steepness(self, weight: FloatArray) -> FloatArray:
        # Entries are not negative, so no eigenvalue exceeds the largest row sum.
        sums = self.coefficients @ (weight * self._column_sums()[:, None])
        return np.asarray(sums.max(axis=0))

    def _column_sums(self) -> FloatArray:
        return np.asarray(self.coefficients.sum(axis=0), dtype=np.float64).ravel()


@dataclass(frozen=True)
class Total(Forms):
    """One form: sum_xy b_xy z_xy with b >= 0."""

    coefficients: FloatArray

    def forward(self, table: FloatArray) -> FloatArray:
        return np.array([[np.einsum("xy,xy->", self.coefficients, table)]])

    def adjoint(self, weights: FloatArray) -> FloatArray:
        return np.asarray(self.coefficients * weights)

    def below(self, weights: FloatArray) -> FloatArray:
        return np.maximum(self.adjoint(admissible(weights)) * (1 - ROUNDED), 0.0)

    def permuted(self, order: IntArray) -> Total:
        return Total(np.ascontiguousarray(self.coefficients[order]))

    def shares(self) -> FloatArray:
        return relative(self.coefficients.max(axis=1))

    def steepness(self, weight: FloatArray) -> FloatArray:
        return np.array([np.einsum("xy,xy,xy->", self.coefficients, self.coefficients, weight)])


@dataclass(frozen=True)
class Floors(Forms):
    """One form per record, in one group: minus its expected distance, -sum_y d_xy z_xy."""

    distances: FloatArray
    levelled = True
    together = 1
    stiffness = 20.0
    work = 1 / 3

    def forward(self, table: FloatArray) -> FloatArray:
        return np.asarray(-np.einsum("xy,xy->x", self.distances, table)[:, None])

    def adjoint(self, weights: FloatArray) -> FloatArray:
        return np.asarray(-self.distances * weights)

    def below(self, weights: FloatArray) -> FloatArray:
        return self.adjoint(np.maximum(weights, 0.0)) * (1 + ROUNDED)

    def permuted(self, order: IntArray) -> Floors:
        return Floors(np.ascontiguousarray(self.distances[order]))

    def shares(self) -> FloatArray:
        return np.ones(len(self.distances))

    def steepness(self, weight: FloatArray) -> FloatArray:
        squares = np.einsum("xy,xy,xy->x", self.distances, self.distances, weight)
        return np.asarray(squares[:, None])


def relative(sums: FloatArray) -> FloatArray:
    """Shares of the largest sum."""
    return np.asarray(np.maximum(sums / (sums.max() or 1.0), FAINTEST))


@dataclass(frozen=True)
class Guesses(Forms):
    """The attacker's error at the scale of a city: for every output the guesses that may be best.

    (A z)_gy = -sum_x p_x d(w_gy, x) z_xy for the guesses w (G, m) that are held. The best
    attacker's error is sum_y min_w sum_x p_x z_xy d(w, x) over all records w. Held are some guesses
    near the best one of every output, and moved with the table. An attacker who has only those errs
    no less, so with v = -error

        v(z) >= sum_y max over the held w of (-sum_x p_x z_xy d(w, x)):

    what bounds the right side from below bounds v. Values are taken over all guesses.
    """

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


Name = Literal["vulnerability", "located", "error", "least_protected", "true_place"]
NAMES = ("vulnerability", "located", "error", "least_protected", "true_place")
LARGE = ("error", "least_protected")
"""Those that are to be made large."""
OF_RECORDS = ("least_protected", "true_place")
LARGEST_GAIN = 40_000_000
"""Entries of a gain that are held."""


@dataclass(frozen=True)
class Objective:
    """Something to be made small, and what it is in words that people use.

    `natural` = offset + sign v: an error that should be large is its largest value minus v.
    """

    name: Name
    forms: Forms
    offset: float = 0.0
    sign: float = 1.0
    unit: str = ""

    def value(self, table: FloatArray) -> float:
        """v(z)."""
        return self.forms.value(table)

    def natural(self, value: float) -> float:
        """v as the quantity that the name says."""
        return self.offset + self.sign * value

    def of_natural(self, quantity: float) -> float:
        """The v of a quantity that the name says."""
        return (quantity - self.offset) / self.sign


def check_name(problem: Problem, name: Name, radius: float | None) -> None:
    """Refuse what is no objective of the problem, before anything is computed."""
    if name not in NAMES:
        msg = f"{name!r} is no objective; choose one of {', '.join(NAMES)}"
        raise MethodError(msg)
    if (name == "located") != (radius is not None):
        msg = "radius belongs to 'located', and 'located' needs one, in the domain's unit"
        raise MethodError(msg)
    if radius is not None and not (np.isfinite(radius) and radius >= 0):
        msg = f"radius is {radius!r}; it must be a finite distance >= 0"
        raise MethodError(msg)
    if name in OF_RECORDS and problem.reports.kind != "records":
        msg = (
            f"{name!r} compares a report with the record, and here reports are "
            f"{problem.reports.kind}; use 'vulnerability', 'located' or 'error'"
        )
        raise MethodError(msg)


def objective(
    problem: Problem, name: Name, radius: float | None = None, table: FloatArray | None = None
) -> Objective:
    """The objective of a name, with all its forms, none of them negative, as LPs need them; for the
    first-order method without an offset that drowns an error, and of the guesses at an error those
    near the best ones of `table`.

    "vulnerability": how often the best guess of the record is right, sum_y max_x p_x z_xy.
    "located": how often the best guess lies within `radius` of the record.
    "error": the best guess's expected distance from the record, to be made large.
    "least_protected": the least, over the records, expected distance of the report from the
    record, to be made large. "true_place": how often the record itself is reported.
    """
    check_name(problem, name, radius)
    domain, prior = problem.domain, problem.prior
    if name == "vulnerability":
        return Objective(name, Gain(scipy.sparse.csr_array(scipy.sparse.diags_array(prior))))
    if name == "located":
        # A record counts for many guesses, whose weights must move together.
        return Objective(name, Gain(_ball(problem, float(radius or 0.0)), stiffness=5.0))
    if name == "true_place":
        own = np.zeros((problem.size, problem.outputs_count))
        own[problem.outputs, np.arange(problem.outputs_count)] = prior[problem.outputs]
        return Objective(name, Total(own))
    if name == "error" and table is not None:
        return Objective(name, Guesses.around(problem, table), 0.0, -1.0, domain.unit)
    distance = domain.distances(None, None if name == "error" else problem.outputs)
    most = float(distance.max()) if table is None else 0.0
    forms: Forms = Floors(distance - most)
    if name == "error":
        forms = Gain(scipy.sparse.csr_array((most - distance) * prior))
    return Objective(name, forms, most, -1.0, domain.unit)


def quantity(problem: Problem, name: Name, radius: float | None, table: FloatArray) -> float:
    """What the name says of one table, exactly."""
    if name == "error":
        return float(best_guesses(problem, table)[1].sum())
    goal = objective(problem, name, radius)
    return goal.natural(goal.value(table))


def _ball(problem: Problem, radius: float) -> scipy.sparse.csr_array:
    everyone = np.arange(problem.size)
    first, second = [everyone], [everyone]
    for i, j, _ in problem.domain.pairs_within(radius):
        first += [i, j]
        second += [j, i]
    rows, columns = np.concatenate(first), np.concatenate(second)
    if len(rows) > LARGEST_GAIN:
        msg = f"{len(rows):,} pairs lie within {radius:g}; at most {LARGEST_GAIN:,} are held"
        raise MethodError(msg)
    shape = (problem.size, problem.size)
    return scipy.sparse.csr_array((problem.prior[columns], (rows, columns)), shape=shape)
