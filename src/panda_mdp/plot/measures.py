"""What the pictures show, as numbers: per record, and per distance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray
from panda_mdp.errors import MethodError
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
    weights = np.asarray(table.weights)
    zero = weights == 0
    used = ~zero.all(axis=0)
    if zero[:, used].any():
        # In such a column every record has one of the other kind.
        return np.full(table.problem.size, np.inf)
    logs = np.log(weights[:, used].astype(np.float64))
    rates = np.empty(table.problem.size)
    for rows, distance in table.problem.domain.blocks():
        np.put_along_axis(distance, np.arange(len(rates))[rows, None], np.inf, axis=1)
        gaps = scipy.spatial.distance.cdist(logs[rows], logs, "chebyshev")
        rates[rows] = (gaps / distance).max(axis=1)
    return rates


def radius_of_share(table: Table, record: int, share: float) -> float:
    """The radius around a record within which its report falls with probability `share`."""
    if not 0 < share <= 1:
        raise MethodError(f"share is {share!r}; it must lie in (0, 1]")
    distance = table.problem.reports.distances(table.problem.domain, [record])[0]
    order = np.argsort(distance, kind="stable")
    reached = np.cumsum(table.row(record)[order])
    return float(distance[order][np.argmax(reached >= share * (1 - 1e-12))])


@dataclass(frozen=True)
class LossCurve:
    """Privacy loss against distance: bins of distance, and the loss over the pairs in each."""

    distance: FloatArray
    """Upper end of each bin."""
    largest: FloatArray
    """Largest max_y |log z_xy / z_x'y| over the pairs of the bin, in nats; NaN for empty bins."""
    median: FloatArray
    pairs: int
    sampled: bool
    """Whether the pairs are those of a sample of the records."""


def privacy_loss_curve(
    table: Table, *, bins: int = 40, reach: float | None = None, records: int = CURVE_RECORDS
) -> LossCurve:
    """How much two records at a distance can be told apart, beside what epsilon allows.

    Takes all pairs of up to `records` records (drawn where there are more) within `reach`, a third
    of the diameter by default. For a statement over all pairs use the audit.
    """
    domain = table.problem.domain
    sampled = domain.size > records
    generator, count = np.random.default_rng(0), min(records, domain.size)
    some = np.sort(generator.choice(domain.size, count, replace=False))
    limit = domain.diameter / 3 if reach is None else reach
    weights = np.asarray(table.weights[some], dtype=np.float64)
    # Two impossible outcomes tell nothing apart, a possible and an impossible one everything.
    logs = np.log(weights, out=np.full(weights.shape, -2 * UNBOUNDED), where=weights > 0)
    distance = domain.distances(some, some)[np.triu_indices(count, 1)]
    near_pairs, gap = distance <= limit, scipy.spatial.distance.pdist(logs, "chebyshev")
    found = (
        scipy.stats.binned_statistic(
            distance[near_pairs], gap[near_pairs], how, bins, (0, limit)
        ).statistic
        for how in ("max", "median")
    )
    largest, median = np.stack([*found]).astype(np.float64)
    largest[largest > UNBOUNDED] = median[median > UNBOUNDED] = np.inf
    edges = np.linspace(0, limit, bins + 1)
    return LossCurve(edges[1:], largest, median, int(near_pairs.sum()), sampled)
