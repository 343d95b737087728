"""The nearest point of the simplex of every column, compiled."""

from __future__ import annotations

import numpy as np
from numba import njit

PASSES = 60


@njit(cache=True, error_model="numpy")
def onto_simplex(weights):
    """max(weights - t, 0) with the t of every column for which it sums to 1 (Michelot 1986).

    t lies above the largest weight less 1, so no weight below that is in the first active set; the
    set shrinks until it is that of the answer.
    """
    rows, columns = weights.shape
    shift = np.full(columns, -np.inf)
    for i in range(rows):
        for y in range(columns):
            shift[y] = max(shift[y], weights[i, y] - 1.0)
    before = np.full(columns, -1)
    for _ in range(PASSES):
        count = np.zeros(columns, np.int64)
        total = np.zeros(columns)
        for i in range(rows):
            for y in range(columns):
                if weights[i, y] > shift[y]:
                    count[y] += 1
                    total[y] += weights[i, y]
        settled = True
        for y in range(columns):
            if count[y] != before[y]:
                settled = False
                before[y] = count[y]
                shift[y] = (total[y] - 1.0) / max(1, count[y])
        if settled:
            break
    near = np.empty_like(weights)
    for i in range(rows):
        for y in range(columns):
            near[i, y] = max(weights[i, y] - shift[y], 0.0)
    return near
