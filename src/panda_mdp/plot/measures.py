"""What the pictures show, as numbers: per record, and per distance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray
from panda_mdp.errors import MethodError
from panda_mdp.table.mechanism import Table

CURVE_RECORDS = 1500


def expected_losses(table: Table) -> FloatArray:
    """sum_y c_xy z_xy of each record, shape (K,), in the unit of the losses."""
    return np.asarray(np.einsum("xy,xy->x", table.problem.loss, table.matrix))


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
    chosen = np.arange(domain.size)
    if domain.size > records:
        chosen = np.random.default_rng(0).choice(domain.size, records, replace=False)
    limit = domain.diameter / 3 if reach is None else reach
    weights = table.weights[chosen]
    with np.errstate(divide="ignore"):
        logs = np.log(weights[:, (weights > 0).any(axis=0)].astype(np.float64))
    found: list[FloatArray] = []
    for k in range(len(chosen) - 1):
        distance = domain.metric.block(chosen[k : k + 1], chosen[k + 1 :])[0]
        near = np.flatnonzero(distance <= limit)
        with np.errstate(invalid="ignore"):
            gap = np.abs(logs[k + 1 :][near] - logs[k])
        # Two impossible outcomes tell nothing apart.
        largest = np.nan_to_num(gap, posinf=np.inf).max(axis=1, initial=0.0)
        found.append(np.stack([distance[near], largest]))
    distance, gap = np.hstack(found)
    which = np.clip(np.ceil(distance / limit * bins) - 1, 0, bins - 1)
    inside = [gap[which == k] for k in range(bins)]
    largest, median = (
        np.array([reduce(one) if len(one) else np.nan for one in inside])
        for reduce in (np.max, np.median)
    )
    edges = np.linspace(0, limit, bins + 1)
    return LossCurve(edges[1:], largest, median, len(gap), sampled=domain.size > records)
