"""Distances inside compiled loops: of records, for every metric of `panda_mdp.space.metrics`, and
of rows of logarithms. Losses d(x, y)^power are computed from them as they are used; `places` hold
the records then and, behind them, the outputs."""

from __future__ import annotations

import numpy as np

from panda_mdp.compute.numba import njit
from panda_mdp.space.metrics import EARTH_RADIUS_KM, SUM_TERMS
from panda_mdp.space.tiles import ANGULAR, EUCLIDEAN, HAVERSINE, LOCAL_HAVERSINE

RADIANS = np.pi / 180
FINITE = {"nnan", "nsz"}
"""Logarithms are numbers, and of zeros the sign does not matter: a maximum over outputs is then
taken several at a time. Nothing is rounded otherwise."""


@njit(inline="always")
def _sin_small(x):
    """sin on |x| <= 0.07 to an ulp or two: the Taylor polynomial, which vectorises."""
    s = x * x
    return x * (1 - s / 6 * (1 - s / 20 * (1 - s / 42 * (1 - s / 72 * (1 - s / 110)))))


@njit(inline="always")
def _asin_small(h):
    """arcsin on [0, 0.1]: nine terms, the first one left out is below 1e-19 relative."""
    s = h * h
    p = 6435.0 / 557056
    p = p * s + 143.0 / 10240
    p = p * s + 231.0 / 13312
    p = p * s + 63.0 / 2816
    p = p * s + 35.0 / 1152
    p = p * s + 5.0 / 112
    p = p * s + 3.0 / 40
    p = p * s + 1.0 / 6
    return h + h * (s * p)


@njit()
def _squares(table, i, j, sign):
    """|u + sign v|^2 with compensated summation beyond the first terms."""
    total = 0.0
    excess = 0.0
    for first in range(0, table.shape[1], SUM_TERMS):
        s = 0.0
        for p in range(first, min(first + SUM_TERMS, table.shape[1])):
            t = table[i, p] + sign * table[j, p]
            s += t * t
        corrected = s - excess
        raised = total + corrected
        excess = (raised - total) - corrected
        total = raised
    return total


@njit()
def fill(places, i, start, stop, out):
    """out[j - start] = distance of positions i and j, for start <= j < stop."""
    kind, table, order = places
    if kind == LOCAL_HAVERSINE:
        lat = table[0, i]
        lon = table[1, i]
        cosine = table[2, i]
        for j in range(start, stop):
            a = _sin_small((lat - table[0, j]) * (RADIANS / 2))
            b = _sin_small((lon - table[1, j]) * (RADIANS / 2))
            out[j - start] = (2 * EARTH_RADIUS_KM) * _asin_small(
                np.sqrt(a * a + cosine * table[2, j] * (b * b))
            )
    elif kind == HAVERSINE:
        for j in range(start, stop):
            cosines = table[2, i] * table[2, j]
            a = np.sin((table[0, i] - table[0, j]) * (RADIANS / 2)) ** 2
            gap = abs(table[1, i] - table[1, j])
            if gap > 180.0:
                east = max(table[1, i], table[1, j])
                west = min(table[1, i], table[1, j])
                gap = (180.0 - east) + (180.0 + west)
            half = gap * (RADIANS / 2)
            a += cosines * np.sin(half) ** 2
            if a <= 0.5:
                out[j - start] = (2 * EARTH_RADIUS_KM) * np.arcsin(np.sqrt(a))
            else:
                b = np.sin((table[0, i] + table[0, j]) * (RADIANS / 2)) ** 2
                b += cosines * np.cos(half) ** 2
                out[j - start] = EARTH_RADIUS_KM * (np.pi - 2 * np.arcsin(np.sqrt(min(b, 1.0))))
    elif kind == EUCLIDEAN:
        for j in range(start, stop):
            out[j - start] = np.sqrt(_squares(table, i, j, -1.0))
    elif kind == ANGULAR:
        for j in range(start, stop):
            out[j - start] = 2 * np.arctan2(
                np.sqrt(_squares(table, i, j, -1.0)), np.sqrt(_squares(table, i, j, 1.0))
            )
    else:
        row = order[i]
        for j in range(start, stop):
            out[j - start] = table[row, order[j]]


@njit(fastmath=FINITE)
def largest_gap(first, second):
    """max_y |first_y - second_y|."""
    most = 0.0
    for y in range(len(first)):
        most = max(most, abs(first[y] - second[y]))
    return most


@njit(fastmath=FINITE)
def largest_step(row, high, low):
    """A bound on `largest_gap` of a row and all that lie between `low` and `high`."""
    most = 0.0
    for y in range(len(row)):
        most = max(most, high[y] - row[y], row[y] - low[y])
    return most


@njit(nogil=True)
def loss_pairs(begin, end, places, records, first, second, power, out):
    """out[n] = loss of record first[n] and output second[n]."""
    for n in range(begin, end):
        at = records + second[n]
        one = out[n : n + 1]
        fill(places, first[n], at, at + 1, one)
        if power != 1.0:
            one[0] **= power


@njit(nogil=True)
def loss_rows(begin, end, places, first, records, power, out):
    """out[n, y] = loss of record first + n and output y."""
    for n in range(begin, end):
        fill(places, first + n, records, records + out.shape[1], out[n])
        if power != 1.0:
            out[n] **= power
