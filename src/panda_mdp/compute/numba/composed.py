"""The composed mechanism's privacy loss over all pairs of records for one anchor set, compiled."""

from __future__ import annotations

import numpy as np
from numba import prange

from panda_mdp.compute.numba.compiling import njit
from panda_mdp.compute.numba.distance import fill


@njit(cache=True, parallel=True)
def row_spreads(logs):
    """up[a, b] = max over outputs of log z_a - log z_b."""
    count = len(logs)
    up = np.zeros((count, count))
    for a in prange(count):
        for b in range(count):
            best = 0.0
            for y in range(logs.shape[1]):
                best = max(best, logs[a, y] - logs[b, y])
            up[a, b] = best
    return up


@njit(cache=True, parallel=True)
def composed_rates(kind, table, order, likelihood, row, up, counted, epsilon, slack):
    """Per record x: the largest loss per distance over x' < x, that x', and the pairs over epsilon.

    Pairs of two records that are not `counted` are left out.
    The loss of a pair is max over outputs of |l + log z_s / z_s'|, l the difference of the
    log-likelihoods of the set, s and s' the rows of the two records' surrogates.
    """
    size = len(likelihood)
    worst = np.zeros(size)
    partner = np.zeros(size, np.int64)
    beyond = np.zeros(size, np.int64)
    for x in prange(size):
        distance = np.empty(x)
        fill(kind, table, order, x, np.int64(0), x, distance)
        for y in range(x):
            if not (counted[x] or counted[y]):
                continue
            l = likelihood[x] - likelihood[y]
            loss = max(l + up[row[x], row[y]], up[row[y], row[x]] - l)
            d = distance[y]
            if loss > epsilon * d + slack:
                beyond[x] += 1
            if loss > worst[x] * d:
                worst[x] = loss / d if d > 0.0 else np.inf
                partner[x] = y
    return worst, partner, beyond
