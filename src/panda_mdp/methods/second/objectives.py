"""What else a table may be good for, as sums of largest linear forms.

Every objective here is

    v(z) = sum over groups g of  max over f of  (A z)_fg,

convex and piecewise linear in the table z, to be made small. For an attacker with gains g_wx the
forms are the guesses, the groups the outputs, and v is the g-vulnerability; v is linear after one
variable per group is added, so bounds by weak duality and audits stay what they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray
from panda_mdp.errors import MethodError
from panda_mdp.methods.second.forms import CityForms, Floors, Forms, Gain, LpForms, Records, Total
from panda_mdp.methods.second.guesses import Guesses, best_guesses
from panda_mdp.problem import Problem

Name = Literal["vulnerability", "located", "error", "least_protected", "true_place"]
NAMES = ("vulnerability", "located", "error", "least_protected", "true_place")
LARGE = ("error", "least_protected")
"""Those that are to be made large."""
OF_RECORDS = ("least_protected", "true_place")
LARGEST_GAIN = 40_000_000
"""Entries of a gain that are held."""


F_co = TypeVar("F_co", bound=Forms, covariant=True)


@dataclass(frozen=True)
class Objective(Generic[F_co]):
    """Something to be made small, and what it is in words that people use.

    `natural` = offset + sign v: an error that should be large is its largest value minus v.
    """

    name: Name
    forms: F_co
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


def objective(problem: Problem, name: Name, radius: float | None = None) -> Objective[LpForms]:
    """The objective of a name, with all its forms, none of them negative: for LPs.

    "vulnerability": how often the best guess of the record is right, sum_y max_x p_x z_xy.
    "located": how often the best guess lies within `radius` of the record.
    "error": the best guess's expected distance from the record, to be made large.
    "least_protected": the least, over the records, expected distance of the report from the
    record, to be made large. "true_place": how often the record itself is reported.
    """
    check_name(problem, name, radius)
    domain = problem.domain
    if name == "least_protected":
        distance = domain.distances(None, problem.outputs)
        most = float(distance.max())
        return Objective(name, Records(most - distance), most, -1.0, domain.unit)
    if name == "error":
        distance = domain.distances()
        most = float(distance.max())
        gain = scipy.sparse.csr_array((most - distance) * problem.prior)
        return Objective(name, Gain(gain), most, -1.0, domain.unit)
    return _plain(problem, name, radius)


def _plain(problem: Problem, name: Name, radius: float | None) -> Objective[Gain | Total]:
    """Those that are the same for both."""
    prior = problem.prior
    if name == "vulnerability":
        return Objective(name, Gain(scipy.sparse.csr_array(scipy.sparse.diags_array(prior))))
    if name == "located":
        # A record counts for many guesses, whose weights must move together.
        return Objective(name, Gain(_ball(problem, float(radius or 0.0)), stiffness=5.0))
    own = np.zeros((problem.size, problem.outputs_count))
    own[problem.outputs, np.arange(problem.outputs_count)] = prior[problem.outputs]
    return Objective(name, Total(own))


def city_objective(
    problem: Problem, name: Name, radius: float | None, table: FloatArray
) -> Objective[CityForms]:
    """The same for the first-order method: no offset that drowns an error, and of the guesses at
    an error those near the best ones of `table`."""
    check_name(problem, name, radius)
    if name == "error":
        return Objective(name, Guesses.around(problem, table), 0.0, -1.0, problem.domain.unit)
    if name == "least_protected":
        distance = problem.domain.distances(None, problem.outputs)
        return Objective(name, Floors(distance), 0.0, -1.0, problem.domain.unit)
    return _plain(problem, name, radius)


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
