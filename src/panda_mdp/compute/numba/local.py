"""How private each record is by itself: its largest privacy loss per unit of distance."""

from __future__ import annotations

import numpy as np
from numba import prange

from panda_mdp.compute.numba.compiling import njit
from panda_mdp.compute.numba.distance import fill

CHUNK = 256


@njit(cache=True, parallel=True)
def local_rates(logs, spread, kind, table, order):
    """For every position i the maximum over j of max_y |log z_iy - log z_jy| / d(i, j).

    `spread` bounds every log ratio, so pairs too far apart to matter are passed over.
    """
    size, outputs = logs.shape
    rates = np.zeros(size)
    for i in prange(size):
        distance = np.empty(CHUNK)
        best = 0.0
        for start in range(0, size, CHUNK):
            stop = min(start + CHUNK, size)
            fill(kind, table, order, i, start, stop, distance)
            for j in range(start, stop):
                d = distance[j - start]
                if j == i or spread <= best * d:
                    continue
                worst = 0.0
                for y in range(outputs):
                    worst = max(worst, abs(logs[i, y] - logs[j, y]))
                if worst > best * d:
                    best = worst / d
        rates[i] = best
    return rates
