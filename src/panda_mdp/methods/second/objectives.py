"""What else a table may be good for, as sums of largest linear forms.

Every objective here is

    v(z) = sum over groups g of  max over f of  (A z)_fg,

convex and piecewise linear in the table z, to be made small. For an attacker with gains g_wx the
forms are the guesses, the groups the outputs, and v is the g-vulnerability; v is linear after one
variable per group is added, so bounds by weak duality and audits stay what they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import sparse

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.errors import MethodError
from panda_mdp.problem import Problem

Name = Literal["vulnerability", "located", "error", "least_protected", "true_place"]
NAMES = ("vulnerability", "located", "error", "least_protected", "true_place")
LARGEST_GAIN = 40_000_000
"""Entries of a gain that are held."""


class Forms(ABC):
    """The linear forms of an objective over tables of shape (K, m)."""

    @abstractmethod
    def forward(self, table: FloatArray) -> FloatArray:
        """The forms' values, (forms, groups)."""

    @abstractmethod
    def adjoint(self, weights: FloatArray) -> FloatArray:
        """sum_fg w_fg A_fg as a table, (K, m)."""

    @abstractmethod
    def permuted(self, order: IntArray) -> Forms:
        """The same forms of tables whose rows are in another order."""

    @abstractmethod
    def rows(self, size: int, outputs: int) -> sparse.csr_array:
        """The forms as rows over the flat table, forms by groups."""

    @abstractmethod
    def sums(self) -> tuple[FloatArray, float]:
        """For every record the largest sum of coefficients of an entry over the forms, (K,), and
        the largest sum of a form over the records."""


@dataclass(frozen=True)
class Gain(Forms):
    """Guesses by outputs: (A z)_wy = sum_x a_wx z_xy with a_wx = p_x g_wx."""

    coefficients: sparse.csr_array

    def forward(self, table: FloatArray) -> FloatArray:
        return np.asarray(self.coefficients @ table)

    def adjoint(self, weights: FloatArray) -> FloatArray:
        return np.asarray(self.coefficients.T @ weights)

    def permuted(self, order: IntArray) -> Gain:
        return Gain(sparse.csr_array(self.coefficients[:, order]))

    def rows(self, size: int, outputs: int) -> sparse.csr_array:
        return sparse.csr_array(sparse.kron(self.coefficients, sparse.eye_array(outputs)))

    def sums(self) -> tuple[FloatArray, float]:
        per_record = np.asarray(self.coefficients.sum(axis=0), dtype=np.float64).ravel()
        return per_record, float(self.coefficients.sum(axis=1).max())


@dataclass(frozen=True)
class Records(Forms):
    """One form per record, in one group: (A z)_x = sum_y b_xy z_xy."""

    coefficients: FloatArray

    def forward(self, table: FloatArray) -> FloatArray:
        return np.asarray(np.einsum("xy,xy->x", self.coefficients, table)[:, None])

    def adjoint(self, weights: FloatArray) -> FloatArray:
        return np.asarray(self.coefficients * weights)

    def permuted(self, order: IntArray) -> Records:
        return Records(np.ascontiguousarray(self.coefficients[order]))

    def rows(self, size: int, outputs: int) -> sparse.csr_array:
        return sparse.csr_array(
            sparse.block_diag([sparse.coo_array(row[None, :]) for row in self.coefficients])
        )

    def sums(self) -> tuple[FloatArray, float]:
        return self.coefficients.max(axis=1), float(self.coefficients.sum(axis=1).max())


@dataclass(frozen=True)
class Total(Forms):
    """One form: sum_xy b_xy z_xy."""

    coefficients: FloatArray

    def forward(self, table: FloatArray) -> FloatArray:
        return np.array([[np.einsum("xy,xy->", self.coefficients, table)]])

    def adjoint(self, weights: FloatArray) -> FloatArray:
        return np.asarray(self.coefficients * weights)

    def permuted(self, order: IntArray) -> Total:
        return Total(np.ascontiguousarray(self.coefficients[order]))

    def rows(self, size: int, outputs: int) -> sparse.csr_array:
        return sparse.csr_array(self.coefficients.reshape(1, -1))

    def sums(self) -> tuple[FloatArray, float]:
        return self.coefficients.max(axis=1), float(self.coefficients.sum())


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
        return float(self.forms.forward(table).max(axis=0).sum())

    def natural(self, value: float) -> float:
        """v as the quantity that the name says."""
        return self.offset + self.sign * value


def objective(problem: Problem, name: Name, radius: float | None = None) -> Objective:
    """The objective of a name.

    "vulnerability": how often the best guess of the record is right, sum_y max_x p_x z_xy.
    "located": how often the best guess lies within `radius` of the record.
    "error": the best guess's expected distance from the record, to be made large.
    "least_protected": the least, over the records, expected distance of the report from the
    record, to be made large. "true_place": how often the record itself is reported.
    """
    if name not in NAMES:
        msg = f"{name!r} is no objective; choose one of {', '.join(NAMES)}"
        raise MethodError(msg)
    if (name == "located") != (radius is not None):
        msg = "radius belongs to 'located', and 'located' needs one, in the domain's unit"
        raise MethodError(msg)
    prior, domain = problem.prior, problem.domain
    if name == "vulnerability":
        return Objective(name, Gain(sparse.csr_array(sparse.diags_array(prior))))
    if name == "true_place":
        own = np.zeros((problem.size, problem.outputs_count))
        own[problem.outputs, np.arange(problem.outputs_count)] = prior[problem.outputs]
        return Objective(name, Total(own))
    if name == "least_protected":
        distance = domain.distances(None, problem.outputs)
        most = float(distance.max())
        return Objective(name, Records(most - distance), most, -1.0, domain.unit)
    if problem.size**2 > LARGEST_GAIN and name == "error":
        msg = (
            f"'error' holds {problem.size:,} x {problem.size:,} distances and at most "
            f"{LARGEST_GAIN:,} are held; use 'located' or 'vulnerability' for so many records"
        )
        raise MethodError(msg)
    if name == "located":
        return Objective(name, Gain(_ball(problem, float(radius or 0.0))))
    distance = domain.distances()
    most = float(distance.max())
    return Objective(
        name, Gain(sparse.csr_array((most - distance) * prior)), most, -1.0, domain.unit
    )


def _ball(problem: Problem, radius: float) -> sparse.csr_array:
    if not (np.isfinite(radius) and radius >= 0):
        msg = f"radius is {radius!r}; it must be a finite distance >= 0"
        raise MethodError(msg)
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
    return sparse.csr_array((problem.prior[columns], (rows, columns)), shape=shape)
