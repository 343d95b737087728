"""Linear forms of a table, in groups of which the largest counts: v(z) = sum_g max_f (A z)_fg."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray

ROUNDED = 1e-11
"""Relative, and more than sums of a few thousand float64 terms of one sign can err."""
FAINTEST = 1e-6
"""Records that count less than this, of the one that counts most, are taken to count so much."""


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


class LpForms(Forms):
    """Forms that are all held, none of them negative: the rows of an LP."""

    @abstractmethod
    def rows(self, size: int, outputs: int) -> scipy.sparse.csr_array:
        """The forms as rows over the flat table, forms by groups."""


class CityForms(Forms):
    """Forms that the first-order method follows (first_order.py)."""

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
class Gain(LpForms, CityForms):
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

    def rows(self, size: int, outputs: int) -> scipy.sparse.csr_array:
        return scipy.sparse.csr_array(
            scipy.sparse.kron(self.coefficients, scipy.sparse.eye_array(outputs))
        )

    def shares(self) -> FloatArray:
        return relative(self._column_sums())

    def steepness(self, weight: FloatArray) -> FloatArray:
        # Entries are not negative, so no eigenvalue exceeds the largest row sum.
        sums = self.coefficients @ (weight * self._column_sums()[:, None])
        return np.asarray(sums.max(axis=0))

    def _column_sums(self) -> FloatArray:
        return np.asarray(self.coefficients.sum(axis=0), dtype=np.float64).ravel()


@dataclass(frozen=True)
class Total(LpForms, CityForms):
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

    def rows(self, size: int, outputs: int) -> scipy.sparse.csr_array:
        return scipy.sparse.csr_array(self.coefficients.reshape(1, -1))

    def shares(self) -> FloatArray:
        return relative(self.coefficients.max(axis=1))

    def steepness(self, weight: FloatArray) -> FloatArray:
        return np.array([np.einsum("xy,xy,xy->", self.coefficients, self.coefficients, weight)])


@dataclass(frozen=True)
class Records(LpForms):
    """One form per record, in one group: (A z)_x = sum_y b_xy z_xy with b >= 0."""

    coefficients: FloatArray

    def forward(self, table: FloatArray) -> FloatArray:
        return np.asarray(np.einsum("xy,xy->x", self.coefficients, table)[:, None])

    def adjoint(self, weights: FloatArray) -> FloatArray:
        return np.asarray(self.coefficients * weights)

    def rows(self, size: int, outputs: int) -> scipy.sparse.csr_array:
        return scipy.sparse.csr_array(
            scipy.sparse.block_diag(
                [scipy.sparse.coo_array(row[None, :]) for row in self.coefficients]
            )
        )


@dataclass(frozen=True)
class Floors(CityForms):
    """The same with b = -d <= 0: every record's expected distance, sum_y d_xy z_xy, from below."""

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
