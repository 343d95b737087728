"""Accounts of anchor selection over many pairs of records, compiled: leakage, how often two records
of one user get surrogates that differ too much, and the composed mechanism's
privacy loss for one set of anchors.

Rows are compressed lists of anchors in ascending order with their probabilities; an anchor that a
row does not list has the tail's probability.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.threads import in_parts
from panda_mdp.compute.numba import njit
from panda_mdp.compute.numba.distance import fill

Coins = tuple[IntArray, IntArray, FloatArray, float]
"""Compressed rows: where each starts, its anchors, their probabilities, and the tail's."""
ROUNDED = 1e-15
"""Of one less a product of two probabilities."""


@njit(inline="always")
def _favour(w, other):
    """log of how much better w explains its likelier outcome than `other` does: at least 0.

    A difference of nearby floats is exact, so log1p keeps small terms accurate.
    """
    if w > other:
        return np.log1p((w - other) / other)
    if w < other:
        return np.log1p((other - w) / (1.0 - other))
    return 0.0


@njit()
def _leakage(coins, i, j):
    """The larger supremum over anchor sets of log P(A) / P'(A) and of log P'(A) / P(A).

    Merges the two rows: a candidate that neither lists tells nothing.
    """
    start, anchor, probability, tail = coins
    a = start[i]
    b = start[j]
    up = 0.0
    down = 0.0
    while a < start[i + 1] or b < start[j + 1]:
        left = b >= start[j + 1] or (a < start[i + 1] and anchor[a] <= anchor[b])
        right = a >= start[i + 1] or (b < start[j + 1] and anchor[b] <= anchor[a])
        w = probability[a] if left else tail
        other = probability[b] if right else tail
        up += _favour(w, other)
        down += _favour(other, w)
        a += left
        b += right
    return max(up, down)


@njit(nogil=True)
def _many_leakages(begin, end, coins, first, second, out):
    for k in range(begin, end):
        out[k] = _leakage(coins, first[k], second[k])


def many_leakages(coins: Coins, first: IntArray, second: IntArray) -> FloatArray:
    """The larger of the two suprema for each pair (first[k], second[k]) of rows."""
    out = np.empty(len(first))
    in_parts(_many_leakages, len(first), coins, first, second, out)
    return out


@njit()
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


@njit()
def _both_nearest(coins, who, near, near2):
    """How likely a record selects the nearest candidates of two, which then are the surrogates."""
    sure = _probability(coins, who, near)
    return sure if near2 == near else sure * _probability(coins, who, near2)


@njit()
def _note_ranks(ranked, x, place, rank):
    """The position of every candidate in x's list; the list's length where it is not in it."""
    rank[:] = ranked.shape[1]
    for i in range(ranked.shape[1]):
        rank[place[ranked[x, i]]] = i


@njit()
def _unsafe_surrogates(
    x, y, who, ranked, rank, coins, budgets, place, room, tiny, chances, pairs, masses
):
    """Surrogates (a, b) of x and y in one set drawn by record `who` with a budget above `room`.

    Enumerates: a selected and nothing before it in x's order, b selected and nothing before it in
    y's. Fills `pairs` with places in `budgets`, and `masses`; returns how many there are and the
    probability of what was not looked at: sets whose surrogates lie beyond the lists in `ranked`,
    or are rarer than `tiny`. `rank` has the positions in x's list, `chances` room for y's.
    """
    width = ranked.shape[1]
    count = 0
    known = 0
    unseen = 0.0
    none = 1.0
    for i in range(width):
        if none <= tiny:
            break
        a = place[ranked[x, i]]
        p = _probability(coins, who, ranked[x, i])
        rest = none * p
        none *= 1.0 - p
        for j in range(width):
            if rest <= tiny:
                break
            b = place[ranked[y, j]]
            if j == known:
                chances[j] = _probability(coins, who, ranked[y, j])
                known += 1
            if b == a:
                # One and the same row for both records.
                rest = 0.0
                break
            if rank[b] < i:
                continue
            if budgets[a, b] > room:
                pairs[count] = a, b
                masses[count] = rest * chances[j]
                count += 1
            rest *= 1.0 - chances[j]
        unseen += rest
    return count, unseen + none


@njit(nogil=True)
def _unsafe_pairs(begin, end, first, ranked, coins, budgets, place, room, tiny, worst, partner):
    pairs = np.empty((ranked.shape[1] ** 2, 2), np.int64)
    masses, chances = np.empty(len(pairs)), np.empty(ranked.shape[1])
    rank = np.empty(len(budgets), np.int64)
    for i in range(begin, end):
        x = first + i
        _note_ranks(ranked, x, place, rank)
        for y in range(x):
            safe = budgets[place[ranked[x, 0]], place[ranked[y, 0]]] <= room[i, y]
            for who in (x, y):
                mass = 1.0
                if room[i, y] >= 0.0:
                    mass = 1.0 - _both_nearest(coins, who, ranked[x, 0], ranked[y, 0])
                    # What is at most as much as the worst is not counted further.
                    if not (safe and mass <= worst[i] + ROUNDED):
                        count, unseen = _unsafe_surrogates(
                            x, y, who, ranked, rank, coins, budgets, place, room[i, y], tiny,
                            chances, pairs, masses,
                        )  # fmt: skip
                        mass = masses[:count].sum() + unseen
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

    The mass is the probability of surrogates whose budget exceeds the room of the pair. What was
    not looked at counts as unsafe: an upper bound, exact (up to rounding) where the lists hold all
    candidates and `tiny` is 0. `room` is what Phase I leaves of eps d, (rows, K); a pair for which
    it is negative is unsafe.
    """
    worst = np.zeros(len(room))
    partner = np.zeros(len(room), np.int64)
    tables = (ranked, coins, budgets, place, room, tiny)
    in_parts(_unsafe_pairs, len(room), first, *tables, worst, partner)
    return worst, partner


@njit()
def cap_budgets(begin, ranked, coins, place, room, budgets, delta, tiny):
    """Lower budgets until surrogates of one set differ by more than `room` at most with delta.

    For records x = begin + i and all x' < x. Of the surrogates whose budget exceeds the room of the
    pair, from the largest budget down, each stays whose mass still fits into delta under the
    hypothesis; the others are lowered to the room. Where all but the two nearest candidates
    together fit into delta, only their budget is looked at: it cannot stay, and everything else
    does.
    """
    pairs = np.empty((ranked.shape[1] ** 2, 2), np.int64)
    masses, chances = np.empty(len(pairs)), np.empty(ranked.shape[1])
    rank = np.empty(len(budgets), np.int64)
    for i in range(len(room)):
        x = begin + i
        _note_ranks(ranked, x, place, rank)
        for y in range(x):
            most = room[i, y]
            if most < 0.0:
                continue
            for who in (x, y):
                sure = _both_nearest(coins, who, ranked[x, 0], ranked[y, 0])
                if 1.0 - sure <= delta < sure:
                    a = place[ranked[x, 0]]
                    b = place[ranked[y, 0]]
                    budgets[a, b] = budgets[b, a] = min(budgets[a, b], most)
                    continue
                count, unseen = _unsafe_surrogates(
                    x, y, who, ranked, rank, coins, budgets, place, most, tiny, chances, pairs,
                    masses,
                )  # fmt: skip
                # What is not seen is unsafe already, whatever the budgets are.
                left = delta - unseen
                levels = np.empty(count)
                for k in range(count):
                    levels[k] = -budgets[pairs[k, 0], pairs[k, 1]]
                for k in np.argsort(levels):
                    a, b = pairs[k]
                    if masses[k] <= left and budgets[a, b] > most:
                        left -= masses[k]
                    else:
                        budgets[a, b] = budgets[b, a] = min(budgets[a, b], most)


@njit(parallel=True)
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


@njit(parallel=True)
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
