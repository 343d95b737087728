"""How often two records of one user get surrogates that differ too much, compiled."""

from __future__ import annotations

import numpy as np
from numba import njit

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.parts import in_parts


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


@njit(cache=True, nogil=True)
def _unsafe_pairs(
    begin, end, first, ranked, start, anchor, probability, tail, budgets, place, room, tiny, worst,
    partner,
):  # fmt: skip
    for i in range(begin, end):
        x = first + i
        for y in range(x):
            if room[i, y] < 0.0:
                mass = 1.0
            else:
                args = (ranked, start, anchor, probability, tail, budgets, place, room[i, y], tiny)
                mass = max(unsafe_mass(x, y, x, *args), unsafe_mass(x, y, y, *args))
            if mass > worst[i]:
                worst[i] = mass
                partner[i] = y


def unsafe_pairs(
    first: int,
    ranked: IntArray,
    start: IntArray,
    anchor: IntArray,
    probability: FloatArray,
    tail: float,
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
    tables = (ranked, start, anchor, probability, tail, budgets, place, room, tiny)
    in_parts(_unsafe_pairs, len(room), first, *tables, worst, partner)
    return worst, partner


@njit(cache=True)
def _surrogate_pairs(
    x, y, who, ranked, start, anchor, probability, tail, tiny, first, second, mass
):
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
        p = _probability(start, anchor, probability, tail, who, a)
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
            q = 1.0 if b == a else _probability(start, anchor, probability, tail, who, b)
            first[count] = a
            second[count] = b
            mass[count] = rest * q
            count += 1
            rest *= 1.0 - q
    return count


@njit(cache=True)
def cap_budgets(
    begin, ranked, start, anchor, probability, tail, place, room, budgets, delta, tiny, limit
):
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
                sure = _probability(start, anchor, probability, tail, who, near)
                if near2 != near:
                    sure *= _probability(start, anchor, probability, tail, who, near2)
                if 1.0 - sure <= delta < sure:
                    a, b = place[near], place[near2]
                    if a != b and budgets[a, b] > room[i, y]:
                        budgets[a, b] = budgets[b, a] = room[i, y]
                    continue
                count = _surrogate_pairs(
                    x, y, who, ranked, start, anchor, probability, tail, tiny, first, second, mass
                )
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
