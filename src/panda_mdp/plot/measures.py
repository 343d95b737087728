"""What the pictures show, as numbers: per record, and per distance."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from panda_mdp.base.arrays import FloatArray
from panda_mdp.meaning.attack import radii_holding
from panda_mdp.problem import check_number
from panda_mdp.table.mechanism import Table

CURVE_RECORDS = 1500
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
    logs = _logarithms(table.weights)
    rates = np.empty(table.problem.size)
    for rows, distance in table.problem.domain.blocks():
        np.put_along_axis(distance, np.arange(len(rates))[rows, None], np.inf, axis=1)
        gaps = _known_gaps(scipy.spatial.distance.cdist(logs[rows], logs, "chebyshev"))
        rates[rows] = (gaps / distance).max(axis=1)
    return rates


def _logarithms(weights: npt.ArrayLike) -> FloatArray:
    """Of integer weights: two impossible outcomes tell nothing apart, a possible and an impossible
    one everything."""
    numbers = np.asarray(weights, dtype=float)
    return np.log(numbers, out=np.full(numbers.shape, -2 * UNBOUNDED), where=numbers > 0)


def _known_gaps(gaps: npt.NDArray[Any]) -> FloatArray:
    return np.where(gaps > UNBOUNDED, np.inf, gaps)


def radius_of_share(table: Table, record: int, share: float) -> float:
    """The radius around a record within which its report falls with probability `share`."""
    check_number(share, "share", "in (0, 1]", most=1)
    distance = table.problem.reports.distances(table.problem.domain, [record])[0]
    return radii_holding(distance, table.row(record), share)[0]


def privacy_losses(table: Table, reach: float, bins: int = 40) -> tuple[FloatArray, FloatArray]:
    """How much two records at a distance can be told apart: upper ends of bins of distance up to
    `reach`, and the largest max_y |log z_xy / z_x'y| of the pairs in each, in nats.

    Takes all pairs of up to 1,500 records, drawn where there are more. For a statement over all
    pairs use the audit.
    """
    domain = table.problem.domain
    generator = np.random.default_rng(0)
    count = min(CURVE_RECORDS, domain.size)
    some = np.sort(generator.choice(domain.size, count, replace=False))
    logs = _logarithms(table.weights[some])
    distance = domain.distances(some, some)[np.triu_indices(count, 1)]
    near_pairs = distance <= reach
    gap = scipy.spatial.distance.pdist(logs, "chebyshev")
    found = scipy.stats.binned_statistic(
        distance[near_pairs], gap[near_pairs], "max", bins, (0, reach)
    )
    # Distances of ages are whole years: bins between them are empty.
    seen = np.isfinite(found.statistic)
    return found.bin_edges[1:][seen], _known_gaps(found.statistic[seen])
