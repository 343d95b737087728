"""What the pictures show, as numbers: per record."""

from __future__ import annotations

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray
from panda_mdp.meaning.attack import radii_holding
from panda_mdp.problem import check_number
from panda_mdp.table.mechanism import Table

UNBOUNDED = 1e6
"""Nats that no ratio of two integers has."""


def expected_losses(table: Table) -> FloatArray:
    """sum_y c_xy z_xy of each record, shape (K,), in the unit of the losses."""
    return np.einsum("xy,xy->x", table.problem.loss, table.matrix)


def local_epsilons(table: Table) -> FloatArray:
    """The smallest epsilon that holds for every pair with the record, shape (K,).

        max over x' and y of |log z_xy - log z_x'y| / d(x, x')

    Its maximum over the records is the audited epsilon (up to rounding). Infinite where an output
    is possible for the record and impossible for another, or the other way round.
    """
    numbers = np.asarray(table.weights, dtype=float)
    # Two impossible outcomes tell nothing apart, a possible and an impossible one everything.
    nothing = np.full(numbers.shape, -2 * UNBOUNDED)
    logs = np.log(numbers, out=nothing, where=numbers > 0)
    rates = np.empty(table.problem.size)
    for rows, distance in table.problem.domain.blocks():
        np.put_along_axis(distance, np.arange(len(rates))[rows, None], np.inf, axis=1)
        gaps = scipy.spatial.distance.cdist(logs[rows], logs, "chebyshev")
        rates[rows] = (np.where(gaps > UNBOUNDED, np.inf, gaps) / distance).max(axis=1)
    return rates


def radius_of_share(table: Table, record: int, share: float) -> float:
    """The radius around a record within which its report falls with probability `share`."""
    check_number(share, "share", "in (0, 1]", most=1)
    distance = table.problem.reports.distances(table.problem.domain, [record])[0]
    return radii_holding(distance, table.row(record), share)[0]
