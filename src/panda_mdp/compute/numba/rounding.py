"""Rows of probabilities over a floor as whole numbers with a given sum, compiled."""

from __future__ import annotations

import numpy as np
from numba import njit, prange


@njit(cache=True, parallel=True)
def rest_of_rows(floor, starts, columns, values):
    """What every row stores less the floor under it."""
    sums = np.empty(len(starts) - 1)
    for r in prange(len(starts) - 1):
        total = 0.0
        for k in range(starts[r], starts[r + 1]):
            total += values[k] - floor[columns[k]]
        sums[r] = total
    return sums


@njit(cache=True, parallel=True)
def whole_rows(least, total, starts, columns, values, slack):
    """Whole numbers of at least `least[column]`, in proportion to the values, so that every row
    sums to `total` over the floor; what is left goes to its largest entry."""
    weights = np.zeros(len(values), np.int64)
    under = least.sum()
    for r in prange(len(starts) - 1):
        part = slice(starts[r], starts[r + 1])
        mass = 0.0
        room = total - under
        for k in range(starts[r], starts[r + 1]):
            mass += values[k]
            room += least[columns[k]]
        missing = room
        for _ in range(2):
            some = float(missing) * (1 - slack)
            for k in range(starts[r], starts[r + 1]):
                more = np.int64(np.floor(values[k] / mass * some))
                weights[k] += more
                missing -= more
        top = part.start
        missing = room
        for k in range(starts[r], starts[r + 1]):
            weights[k] = max(weights[k], least[columns[k]])
            missing -= weights[k]
            if weights[k] > weights[top]:
                top = k
        weights[top] += missing
    return weights
