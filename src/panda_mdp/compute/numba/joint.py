"""How often two records of one user get surrogates that differ too much, compiled."""

from __future__ import annotations

import numpy as np
from numba import njit, prange


@njit(cache=True)
def _probability(start, anchor, probability, tail, row, a):
    """w(row, a): the row's own entry, or the tail's."""
    low = start[row]
    high = start[row + 1]
    while low < high:
        middle = (low + high) // 2
        if anchor[middle] < a:
            low = middle + 1
        else:
            high = middle
    if low < start[row + 1] and anchor[low] == a:
        return probability[low]
    return tail


@njit(cache=True)
def unsafe_mass(x, y, who, ranked, start, anchor, probability, tail, budgets, place, room, tiny):
    """Pr over sets drawn by record `who` that x and y get surrogates with budget above `room`.

    Enumerates the surrogates (a, b) of x and y in one set: a selected and nothing before it in
    x's order, b selected and nothing before it in y's. Sets whose surrogates lie beyond the lists
    in `ranked`, or that are rarer than `tiny`, count as unsafe: the result is an upper bound,
    exact (up to rounding) where the lists hold all candidates and `tiny` is 0.
    """
    width = ranked.shape[1]
    unsafe = 0.0
    none = 1.0
    for i in range(width):
        if none <= tiny:
            break
        a = ranked[x, i]
        p = _probability(start, anchor, probability, tail, who, a)
        rest = none * p
        none *= 1.0 - p
        for j in range(width):
            if rest <= tiny:
                break
            b = ranked[y, j]
            if b == a:
                # One and the same row for both records.
                rest = 0.0
                break
            before = False
            for k in range(i):
                if ranked[x, k] == b:
                    before = True
                    break
            if before:
                continue
            q = _probability(start, anchor, probability, tail, who, b)
            if budgets[place[a], place[b]] > room:
                unsafe += rest * q
            rest *= 1.0 - q
        unsafe += rest
    return unsafe + none


@njit(cache=True, parallel=True)
def unsafe_pairs(ranked, start, anchor, probability, tail, budgets, place, cost, whole, tiny):
    """For each record x the largest unsafe mass over x' < x and both hypotheses, and that x'.

    `cost` is Phase I's and `whole` eps d, (K, K); a pair whose cost exceeds eps d is unsafe.
    """
    size = len(ranked)
    worst = np.zeros(size)
    partner = np.zeros(size, np.int64)
    for x in prange(size):
        for y in range(x):
            room = whole[x, y] - cost[x, y]
            if room < 0.0:
                found = 1.0
            else:
                args = (ranked, start, anchor, probability, tail, budgets, place, room, tiny)
                found = max(unsafe_mass(x, y, x, *args), unsafe_mass(x, y, y, *args))
            if found > worst[x]:
                worst[x] = found
                partner[x] = y
    return worst, partner
