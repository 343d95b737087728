"""Safety margins over many pairs of records and the closure of budgets, compiled; and what the
published code computes in their place, as it computes it, for `panda_paper.published` alone."""

from __future__ import annotations

import numpy as np
from numba import prange

from panda_mdp.base.arrays import FloatArray
from panda_mdp.base.threads import in_parts
from panda_mdp.compute.numba import njit

BLOCK = 64
"""Budgets between so many anchors stay in the cache."""


@njit()
def upper_quantile(values, mass, count, slack):
    """The largest value v with mass{values >= v} > slack; the smallest value if there is none.

    Summed from the largest value down, so that a slack of 1e-7 is compared with sums of that size.
    """
    order = np.argsort(-values[:count])
    above = 0.0
    for k in order:
        above += mass[k]
        if above > slack:
            return values[k]
    return values[order[-1]]


@njit()
def pack(i, start, near, budgets, block, largest):
    """block[k, a] = budget of near candidate a of row i against k, candidates contiguous;
    largest[k] its maximum over a."""
    begin = start[i]
    largest[:] = -np.inf
    for a in range(start[i + 1] - begin):
        place = near[begin + a]
        for k in range(budgets.shape[1]):
            value = budgets[place, k]
            block[k, a] = value
            largest[k] = max(largest[k], value)


@njit(fastmath={"reassoc", "nsz", "contract", "nnan", "ninf"})
def _above(i, j, start, line, law, block, largest, level):
    """Mass of the candidates of rows i and j whose value exceeds a level.

    All values are finite and the sum is over positive terms, so its order may be the machine's.
    """
    total = 0.0
    for b in range(start[j], start[j + 1]):
        place = line[b]
        if largest[place] > level:
            part = 0.0
            for a in range(start[i + 1] - start[i]):
                part += law[start[i] + a] if block[place, a] > level else 0.0
            total += law[b] * part
    return total


@njit(fastmath={"reassoc", "nsz", "contract", "nnan", "ninf"})
def _heavy(block, width, place, least, law, begin):
    """The largest value of row i's candidates against `place` whose mass exceeds `least`."""
    top = -1e300
    for a in range(width):
        value = block[place, a] if law[begin + a] > least else -1e300
        top = value if value > top else top
    return top


@njit()
def pair_margin(i, j, start, line, law, missed, own, floor, delta, block, largest, values, mass):
    """The margin of two rows, or `floor` (at least 0) where it is not above that.

    `own` is the budget of the rows' own records; block[line[b], a] the budget of row j's
    candidate b against row i's candidate a, largest[line[b]] its maximum over a. Where the
    shortfall exceeds delta the largest candidate value stands in.
    """
    slack = delta - (missed[i] + missed[j] - missed[i] * missed[j])
    begin = start[i]
    width = start[i + 1] - begin
    level = own + floor
    if slack < 0.0:
        top = level
        for b in range(start[j], start[j + 1]):
            top = max(top, largest[line[b]])
        return top - own
    if _above(i, j, start, line, law, block, largest, level) <= slack:
        return floor
    # A value that alone outweighs the slack is a lower bound, and mostly the answer.
    for b in range(start[j], start[j + 1]):
        if law[b] > slack:
            level = max(level, _heavy(block, width, line[b], slack / law[b], law, begin))
    if _above(i, j, start, line, law, block, largest, level) <= slack:
        return level - own
    count = 0
    for b in range(start[j], start[j + 1]):
        place = line[b]
        for a in range(width):
            value = block[place, a]
            if value > level:
                values[count] = value
                mass[count] = law[begin + a] * law[b]
                count += 1
    return upper_quantile(values, mass, count, slack) - own


@njit(parallel=True)
def margin_matrix(start, near, law, missed, budgets, places, delta, widest):
    """Margins between all rows, (n, n), symmetric, at least 0.

    `near` are positions in `budgets` of the near candidates of each row, `law` their surrogate
    probabilities v, `places` the positions of the rows themselves.
    """
    rows = len(start) - 1
    out = np.empty((rows, rows))
    for half in prange((rows + 1) // 2):
        largest = np.empty(budgets.shape[1])
        values = np.empty(widest * widest)
        mass = np.empty(widest * widest)
        # A short row of the triangle and a long one together, so that threads share evenly.
        short = np.int64(half)
        for i in (short, rows - 1 - short):
            block = np.empty((budgets.shape[1], start[i + 1] - start[i]))
            pack(i, start, near, budgets, block, largest)
            for j in range(i + 1):
                own = budgets[places[i], places[j]]
                out[i, j] = pair_margin(
                    i, j, start, near, law, missed, own, 0.0, delta, block, largest, values, mass
                )
    for i in prange(rows):
        for j in range(i + 1, rows):
            out[i, j] = out[j, i]
    return out


@njit(parallel=True)
def refine(
    first, second, windows, deltas, least, upper, start, near, law, missed, budgets, places, widest
):
    """Window maxima at a delta of their own for the pairs (first[k], second[k]) of windows.

    `least` bounds each result from below, `upper` the margins of all pairs of rows from above: a
    pair of rows whose bound does not beat the best value so far is passed over.
    """
    line = np.empty(len(near), np.int64)
    for i in prange(len(start) - 1):
        for b in range(start[i], start[i + 1]):
            line[b] = b - start[i]
    out = np.empty(len(first))
    for k in prange(len(first)):
        block = np.empty((widest, widest))
        largest = np.empty(widest)
        values = np.empty(widest * widest)
        mass = np.empty(widest * widest)
        best = least[k]
        for x in windows[first[k]]:
            for y in windows[second[k]]:
                if upper[x, y] <= best:
                    continue
                for b in range(start[y], start[y + 1]):
                    top = -np.inf
                    for a in range(start[x], start[x + 1]):
                        value = budgets[near[b], near[a]]
                        block[line[b], line[a]] = value
                        top = max(top, value)
                    largest[line[b]] = top
                own = budgets[places[x], places[y]]
                best = pair_margin(
                    x,
                    y,
                    start,
                    line,
                    law,
                    missed,
                    own,
                    best,
                    deltas[k],
                    block,
                    largest,
                    values,
                    mass,
                )
        out[k] = best
    return out


@njit(nogil=True, fastmath={"nnan"})
def _relax(begin, end, out, left, right, triangle):
    """out[i, j] = min(out[i, j], left[k, i] + right[k, j]) over all k, for some rows of blocks; of
    a triangle on and above the diagonal.

    Four k at a time, of which there are a multiple of four. There are no NaN, so minima become
    single instructions.
    """
    count = -(-len(out) // BLOCK)
    for turn in range(begin, end):
        # Long rows and short ones in turn, so that parts take alike.
        row = turn // 2 if turn % 2 == 0 else count - 1 - turn // 2
        for j0 in range(row * BLOCK * triangle, out.shape[1], BLOCK):
            j1 = min(out.shape[1], j0 + BLOCK)
            for i in range(row * BLOCK, min(len(out), (row + 1) * BLOCK)):
                near = out[i, j0:j1]
                for k in range(0, len(left), 4):
                    a, b, c, d = left[k, i], left[k + 1, i], left[k + 2, i], left[k + 3, i]
                    first = right[k, j0:j1]
                    second = right[k + 1, j0:j1]
                    third = right[k + 2, j0:j1]
                    fourth = right[k + 3, j0:j1]
                    for j in range(len(near)):
                        through = min(a + first[j], b + second[j], c + third[j], d + fourth[j])
                        near[j] = min(near[j], through)


def close(table: FloatArray) -> None:
    """Floyd and Warshall's shortest paths, in place, for a symmetric non-negative table.

    Half of the table is computed, and the result is symmetric to the last bit.
    """
    size = len(table)
    for begin in range(0, size, BLOCK):
        block = slice(begin, begin + BLOCK)
        middle = table[block, block].copy()
        wide = len(middle)
        # Only one side of the diagonal is kept up to date; rows beyond it lead nowhere.
        direct = np.full((-(-wide // 4) * 4, size), np.inf)
        direct[:wide] = np.concatenate([table[:begin, block].T, table[block, begin:]], axis=1)
        for k in range(wide):
            np.minimum(middle, middle[:, k, None] + middle[k], out=middle)
        panel = direct.copy()
        rest = (0, len(panel) - wide)
        _relax(0, 1, panel, np.pad(middle, rest, constant_values=np.inf), direct, False)
        in_parts(_relax, -(-size // BLOCK), table, panel, panel, True)
    for begin in range(BLOCK, size, BLOCK):
        block = slice(begin, begin + BLOCK)
        table[block, :begin] = table[:begin, block].T


def last_factor_leakage(w: FloatArray) -> FloatArray:
    """log of the last factors of the two products between all rows of w (n, K), in nats.

    The first product runs over records with w_i > w_j, the second over those with w_i <= w_j;
    only the record with the largest index of each enters.
    """
    count, size = w.shape
    everyone = np.arange(count)
    out = np.zeros((count, count))
    for i in everyone:
        above = w[i] > w
        for chosen, values in ((above, w), (~above, 1.0 - w)):
            last = size - 1 - chosen[:, ::-1].argmax(axis=1)
            factors = np.log(values[i, last] / values[everyone, last])
            out[i] += np.where(chosen[everyone, last], factors, 0.0)
    np.fill_diagonal(out, 0.0)
    return out


@njit(parallel=True)
def second_largest_margins(base, law, half_start, half, near_start, near, target):
    """Margins between all anchors, (n, n), in nats, at least 0.

    `base` holds max(0, eps - eps_bar) d between the records involved, `law[n]` the probability
    of each of them to be the surrogate of anchor n. For every pair of records within half a radius
    of the two anchors (`half`), candidate margins are those of records within a radius (`near`) of
    them; the search goes up until the mass reaches `target`, and ends at the second largest at the
    latest. Candidates that are exactly 0 are passed over.
    """
    count = len(half_start) - 1
    out = np.zeros((count, count))
    for n in prange(count):
        for m in range(count):
            if n == m:
                continue
            largest = 0.0
            for x in half[half_start[n] : half_start[n + 1]]:
                for y in half[half_start[m] : half_start[m + 1]]:
                    rows = near[near_start[x] : near_start[x + 1]]
                    columns = near[near_start[y] : near_start[y + 1]]
                    # The order of equal values: by column, then by row.
                    every = (base[rows].T[columns] - base[x, y]).ravel()
                    kept = np.flatnonzero(every)
                    values = every[kept]
                    masses = np.outer(law[m][columns], law[n][rows]).ravel()[kept]
                    order = np.argsort(values, kind="mergesort")
                    mass = np.cumsum(masses[order])
                    for k in range(1, len(values)):
                        reached = mass[k] >= target and mass[k - 1] <= target
                        if reached or len(values) - k == 2:
                            largest = max(largest, values[order[k]])
                            break
            out[n, m] = largest
    return out
