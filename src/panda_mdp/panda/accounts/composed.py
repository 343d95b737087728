"""The privacy loss of one released set and a report, over all pairs of records."""

from __future__ import annotations

import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.panda.accounts.violation import SLACK
from panda_mdp.space.domain import Domain

IMPOSSIBLE = -1e6
"""Stands for the logarithm of 0 in sums: larger than any real loss, and finite."""


class PairScan:
    """Rows of all records for one released set; differences between rows are computed once."""

    def __init__(self, domain: Domain, row: IntArray, logs: FloatArray) -> None:
        # An output that no row has tells nothing; one that some rows lack tells everything.
        used = np.isfinite(logs).any(axis=0)
        self._logs = np.ascontiguousarray(np.maximum(logs[:, used], IMPOSSIBLE))
        self._domain, self._row = domain, row
        self._up: FloatArray | None = None

    def worst(
        self, likelihood: FloatArray, epsilon: float, counted: BoolArray | None = None
    ) -> tuple[float, tuple[int, int], int]:
        """Largest loss per distance, its pair, and the pairs beyond epsilon."""
        domain, row = self._domain, self._row
        covered = np.ones(domain.size, dtype=bool) if counted is None else counted
        limit = epsilon * (1 + SLACK)
        try:
            from panda_mdp.compute.numba.composed import composed_rates, row_spreads
            from panda_mdp.compute.numba.distance import coordinates
        except ImportError:
            worst, partner, beyond = _rates(domain, likelihood, row, self._logs, covered, limit)
        else:
            if self._up is None:
                self._up = row_spreads(self._logs)
            place = coordinates(domain.metric, np.arange(domain.size))
            worst, partner, beyond = composed_rates(
                *place, likelihood, row, self._up, covered, limit, SLACK
            )
        x = int(worst[1:].argmax()) + 1
        pair = (int(partner[x]), x)
        certain = worst[x] * domain.distance(*pair) > -IMPOSSIBLE / 2
        return float("inf") if certain else float(worst[x]), pair, int(beyond.sum())


def scan_pairs(
    domain: Domain,
    likelihood: FloatArray,
    row: IntArray,
    logs: FloatArray,
    epsilon: float,
    counted: BoolArray | None = None,
) -> tuple[float, tuple[int, int], int]:
    """Largest loss per distance, its pair, and the pairs beyond epsilon."""
    return PairScan(domain, row, logs).worst(likelihood, epsilon, counted)


def _rates(
    domain: Domain,
    likelihood: FloatArray,
    row: IntArray,
    logs: FloatArray,
    counted: BoolArray,
    limit: float,
) -> tuple[FloatArray, IntArray, IntArray]:
    """The compiled kernel's answer in NumPy, record by record."""
    worst = np.zeros(domain.size)
    partner = np.zeros(domain.size, dtype=np.int64)
    beyond = np.zeros(domain.size, dtype=np.int64)
    for x in range(1, domain.size):
        others = np.arange(x)
        distance = domain.metric.pairs(np.full(x, x), others)
        leak = likelihood[x] - likelihood[:x]
        difference = logs[row[x]] - logs[row[:x]]
        up = np.maximum(difference.max(axis=1), 0.0)
        down = np.maximum(-difference.min(axis=1), 0.0)
        loss = np.where(counted[x] | counted[:x], np.maximum(leak + up, down - leak), 0.0)
        beyond[x] = int((loss > limit * distance + SLACK).sum())
        rates = loss / distance
        partner[x] = int(rates.argmax())
        worst[x] = max(0.0, float(rates[partner[x]]))
    return worst, partner, beyond
