"""Losses d(x, y)^power of all records and outputs, computed as they are used, compiled.

`table` holds the coordinates of the records and, behind them, of the outputs.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from panda_mdp.compute.numba.compiling import njit
from panda_mdp.compute.numba.distance import fill


@njit(cache=True, parallel=True)
def loss_pairs(kind, table, along, records, first, second, power, out):
    """out[n, k] = loss of record first[n] and output second[n, k]."""
    for n in prange(len(first)):
        one = np.empty(1)
        for k in range(second.shape[1]):
            at = records + second[n, k]
            fill(kind, table, along, first[n], at, at + 1, one)
            out[n, k] = one[0] if power == 1.0 else one[0] ** power


@njit(cache=True, parallel=True)
def loss_sums(kind, table, along, records, outputs, power, weights, out):
    """out[w, y] = sum_x weights[w, x] loss(x, y), record by record."""
    for y in prange(outputs):
        row = np.empty(records)
        fill(kind, table, along, records + y, 0, records, row)
        for w in range(len(weights)):
            total = 0.0
            for x in range(records):
                total += weights[w, x] * (row[x] if power == 1.0 else row[x] ** power)
            out[w, y] = total


@njit(cache=True, parallel=True)
def losses_above(kind, table, along, records, power, starts, columns, values, floor, out):
    """out[x] = sum over what row x stores of (value - floor) loss(x, column)."""
    for x in prange(records):
        one = np.empty(1)
        total = 0.0
        for k in range(starts[x], starts[x + 1]):
            at = records + columns[k]
            fill(kind, table, along, x, at, at + 1, one)
            loss = one[0] if power == 1.0 else one[0] ** power
            total += (values[k] - floor[columns[k]]) * loss
        out[x] = total


@njit(cache=True, parallel=True)
def least_losses(kind, table, along, first, last, records, starts, power, out):
    """out[x - first, g] = least loss of record x over the outputs starts[g] to starts[g + 1]."""
    count = starts[-1]
    for n in prange(last - first):
        row = np.empty(count)
        fill(kind, table, along, first + n, records, records + count, row)
        for g in range(len(starts) - 1):
            least = np.inf
            for y in range(starts[g], starts[g + 1]):
                least = min(least, row[y])
            out[n, g] = least if power == 1.0 else least**power
