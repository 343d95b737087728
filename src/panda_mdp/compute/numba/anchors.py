"""Accounts of anchor selection over many pairs of records, compiled: leakage and its quantiles, how
often two records of one user get surrogates that differ too much, and the composed mechanism's
privacy loss for one set of anchors.

Rows are compressed lists of anchors in ascending order with their probabilities; an anchor that a
row does not list has the tail's probability.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.parts import in_parts
from panda_mdp.compute.numba import njit
from panda_mdp.compute.numba.distance import fill

Coins = tuple[IntArray, IntArray, FloatArray, float]
"""Compressed rows: where each starts, its anchors, their probabilities, and the tail's."""


@njit(cache=True, inline="always")
def _favour(w, other):
    """log of how much better w explains its likelier outcome than `other` does: at least 0.

    A difference of nearby floats is exact, so log1p keeps small terms accurate.
    """
    if w > other:
        return np.log1p((w - other) / other)
    if w < other:
        return np.log1p((other - w) / (1.0 - other))
    return 0.0


@njit(cache=True)
def _merge(coins, i, j, w, other):
    """Fill in both rows' probabilities of the candidates that either lists: how many there are."""
    start, anchor, probability, tail = coins
    a = start[i]
    b = start[j]
    count = 0
    while a < start[i + 1] or b < start[j + 1]:
        left = b >= start[j + 1] or (a < start[i + 1] and anchor[a] <= anchor[b])
        right = a >= start[i + 1] or (b < start[j + 1] and anchor[b] <= anchor[a])
        w[count] = probability[a] if left else tail
        other[count] = probability[b] if right else tail
        a += left
        b += right
        count += 1
    return count


@njit(cache=True)
def _leakage(w, other, count):
    """The larger supremum over anchor sets of log P(A) / P'(A) and of log P'(A) / P(A)."""
    up = 0.0
    down = 0.0
    for k in range(count):
        up += _favour(w[k], other[k])
        down += _favour(other[k], w[k])
    return max(up, down)


@njit(cache=True, nogil=True)
def _many_leakages(begin, end, coins, first, second, out):
    w, other = np.empty((2, 2 * np.diff(coins[0]).max()))
    for k in range(begin, end):
        count = _merge(coins, first[k], second[k], w, other)
        out[k] = _leakage(w, other, count)


def many_leakages(
    coins: Coins,
    first: IntArray,
    second: IntArray,
) -> FloatArray:
    """The larger of the two suprema for each pair (first[k], second[k]) of rows."""
    out = np.empty(len(first))
    in_parts(_many_leakages, len(first), coins, first, second, out)
    return out


@njit(cache=True, nogil=True)
def _leakage_matrix(begin, end, coins, up, down, distance, split, out):
    w, other = np.empty((2, 2 * np.diff(coins[0]).max()))
    for i in range(begin, end):
        for j in range(i):
            if distance[i, j] >= split:
                out[i, j] = max(up[i] + down[j], down[i] + up[j])
            else:
                count = _merge(coins, i, j, w, other)
                out[i, j] = _leakage(w, other, count)
            out[j, i] = out[i, j]


def leakage_matrix(
    coins: Coins,
    up: FloatArray,
    down: FloatArray,
    distance: FloatArray,
    split: float,
) -> FloatArray:
    """All leakages, symmetric; records at least `split` apart have no anchor in common."""
    out = np.zeros((len(up), len(up)))
    in_parts(_leakage_matrix, len(up), coins, up, down, distance, split, out)
    return out


@njit(cache=True)
def _add_moments(w, other, powers, out):
    """Add log E[exp(+-s l)] of one candidate, l its log-likelihood ratio, for every s.

    Sides 0 and 1: + and - under w; 2 and 3: + and - under `other`, for the reversed ratio.
    """
    if w == other:
        return
    for side in range(4):
        p, q = (w, other) if side < 2 else (other, w)
        sign = 1.0 - 2.0 * (side % 2)
        yes, no = np.log(p), np.log1p(-p)
        chosen, passed = sign * (yes - np.log(q)), sign * (no - np.log1p(-q))
        for k in range(len(powers)):
            out[side, k] += np.logaddexp(yes + powers[k] * chosen, no + powers[k] * passed)


@njit(cache=True, nogil=True)
def _lone_moments(begin, end, coins, powers, out):
    start, _, probability, tail = coins
    for i in range(begin, end):
        for k in range(start[i], start[i + 1]):
            _add_moments(probability[k], tail, powers, out[i])


@njit(cache=True, nogil=True)
def _quantile_matrix(begin, end, coins, lone, distance, split, powers, surprise, out):
    moments = np.empty((4, len(powers)))
    w, other = np.empty((2, 2 * np.diff(coins[0]).max()))
    for i in range(begin, end):
        for j in range(i):
            if distance[i, j] >= split:
                for side in range(4):
                    # The second record's near candidates are seen from its own side.
                    moments[side] = lone[i, side] + lone[j, side - 2]
            else:
                moments[:] = 0.0
                for k in range(_merge(coins, i, j, w, other)):
                    _add_moments(w[k], other[k], powers, moments)
            for side in range(4):
                out[i, j] = max(out[i, j], ((moments[side] + surprise) / powers).min())
            out[j, i] = out[i, j]


def quantile_matrix(
    coins: Coins,
    distance: FloatArray,
    split: float,
    powers: FloatArray,
    surprise: float,
) -> FloatArray:
    """Upper bounds on the two-sided quantile of the leakage between all rows, symmetric.

    Chernoff's: the largest over both hypotheses and signs of min over s of (log E + surprise) / s.
    """
    size = len(distance)
    lone = np.zeros((size, 4, len(powers)))
    in_parts(_lone_moments, size, coins, powers, lone)
    out = np.zeros((size, size))
    in_parts(_quantile_matrix, size, coins, lone, distance, split, powers, surprise, out)
    return out


@njit(cache=True)
def _probability(coins, row, a):
    """w(row, a): the row's own entry, or the tail's."""
    start, anchor, probability, tail = coins
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
def unsafe_mass(x, y, who, ranked, coins, budgets, place, room, tiny):
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
        p = _probability(coins, who, a)
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
            q = _probability(coins, who, b)
            if budgets[place[a], place[b]] > room:
                unsafe += rest * q
            rest *= 1.0 - q
        unsafe += rest
    return unsafe + none


@njit(cache=True, nogil=True)
def _unsafe_pairs(
    begin, end, first, ranked, coins, budgets, place, room, tiny, worst,
    partner,
):  # fmt: skip
    for i in range(begin, end):
        x = first + i
        for y in range(x):
            if room[i, y] < 0.0:
                mass = 1.0
            else:
                args = (ranked, coins, budgets, place, room[i, y], tiny)
                mass = max(unsafe_mass(x, y, x, *args), unsafe_mass(x, y, y, *args))
            if mass > worst[i]:
                worst[i] = mass
                partner[i] = y


def unsafe_pairs(
    first: int,
    ranked: IntArray,
    coins: Coins,
    budgets: FloatArray,
    place: IntArray,
    room: FloatArray,
    tiny: float,
) -> tuple[FloatArray, IntArray]:
    """For records x = first + i the largest unsafe mass over x' < x and both hypotheses, and x'.

    `room` is what Phase I leaves of eps d, (rows, K); a pair for which it is negative is unsafe.
    """
    worst = np.zeros(len(room))
    partner = np.zeros(len(room), np.int64)
    tables = (ranked, coins, budgets, place, room, tiny)
    in_parts(_unsafe_pairs, len(room), first, *tables, worst, partner)
    return worst, partner


@njit(cache=True)
def _surrogate_pairs(x, y, who, ranked, coins, tiny, first, second, mass):
    """All surrogates (a, b) of two rows of `ranked` in one set drawn by `who`: how many there are.

    Fills the three arrays; the sum of the masses falls short of 1 by what lies beyond the lists.
    """
    width = ranked.shape[1]
    count = 0
    none = 1.0
    for i in range(width):
        if none <= tiny:
            break
        a = ranked[x, i]
        p = _probability(coins, who, a)
        rest = none * p
        none *= 1.0 - p
        for j in range(width):
            if rest <= tiny:
                break
            b = ranked[y, j]
            before = False
            for k in range(i):
                if ranked[x, k] == b:
                    before = True
                    break
            if before:
                continue
            q = 1.0 if b == a else _probability(coins, who, b)
            first[count] = a
            second[count] = b
            mass[count] = rest * q
            count += 1
            rest *= 1.0 - q
    return count


@njit(cache=True)
def cap_budgets(begin, ranked, coins, place, room, budgets, delta, tiny, limit):
    """Lower budgets until surrogates of one set differ by more than `room` at most with delta.

    For records x = begin + i and all x' < x. Of the surrogates whose budget exceeds the room of the
    pair, from the largest budget down, each stays whose mass still fits into delta under the
    hypothesis; the others are lowered to the room. `limit` is the largest number of surrogates.
    Where all but the two nearest candidates together fit into delta, only their budget is looked
    at: it cannot stay, and everything else does.
    """
    first = np.empty(limit, np.int64)
    second = np.empty(limit, np.int64)
    mass = np.empty(limit)
    for i in range(len(room)):
        x = begin + i
        for y in range(x):
            if room[i, y] < 0.0:
                continue
            near, near2 = ranked[x, 0], ranked[y, 0]
            for who in (x, y):
                sure = _probability(coins, who, near)
                if near2 != near:
                    sure *= _probability(coins, who, near2)
                if 1.0 - sure <= delta < sure:
                    a, b = place[near], place[near2]
                    if a != b and budgets[a, b] > room[i, y]:
                        budgets[a, b] = budgets[b, a] = room[i, y]
                    continue
                count = _surrogate_pairs(x, y, who, ranked, coins, tiny, first, second, mass)
                seen = 0.0
                over = 0
                for k in range(count):
                    seen += mass[k]
                    a = place[first[k]]
                    b = place[second[k]]
                    if a != b and budgets[a, b] > room[i, y]:
                        first[over] = a
                        second[over] = b
                        mass[over] = mass[k]
                        over += 1
                # What is not seen is unsafe already, whatever the budgets are.
                left = delta - max(0.0, 1.0 - seen)
                for _ in range(over):
                    largest = -1
                    for k in range(over):
                        if mass[k] >= 0.0 and (
                            largest < 0
                            or budgets[first[k], second[k]]
                            > budgets[first[largest], second[largest]]
                        ):
                            largest = k
                    if mass[largest] <= left:
                        left -= mass[largest]
                    else:
                        a = first[largest]
                        b = second[largest]
                        budgets[a, b] = min(budgets[a, b], room[i, y])
                        budgets[b, a] = budgets[a, b]
                    mass[largest] = -1.0


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
def composed_rates(places, likelihood, row, up, epsilon, slack):
    """Per record x: the largest loss per distance over x' < x, that x', and the pairs over epsilon.

    The loss of a pair is max over outputs of |l + log z_s / z_s'|, l the difference of the
    log-likelihoods of the set, s and s' the rows of the two records' surrogates.
    """
    size = len(likelihood)
    worst = np.zeros(size)
    partner = np.zeros(size, np.int64)
    beyond = np.zeros(size, np.int64)
    for x in prange(size):
        distance = np.empty(x)
        fill(places, x, np.int64(0), x, distance)
        for y in range(x):
            l = likelihood[x] - likelihood[y]
            loss = max(l + up[row[x], row[y]], up[row[y], row[x]] - l)
            d = distance[y]
            if loss > epsilon * d + slack:
                beyond[x] += 1
            if loss > worst[x] * d:
                worst[x] = loss / d if d > 0.0 else np.inf
                partner[x] = y
    return worst, partner, beyond
