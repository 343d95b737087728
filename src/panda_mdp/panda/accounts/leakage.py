"""What the choice of anchors tells about the record: Proposition 1, summed over all records.

For independent selection with probabilities w (record x) and w' (record x') the log-likelihood
ratio of an anchor set A is

    l(x, x'; A) = sum_{a in A} log w_a / w'_a  +  sum_{a not in A} log (1 - w_a) / (1 - w'_a).

Its supremum over A takes the larger of the two terms for every candidate, and the leakage is the
larger of the suprema for (x, x') and (x', x). Only candidates within the radius of x or of x' have
w != w'. For records at least two radii apart no candidate is near both, and the supremum splits
into one sum per record. All values are in nats; eps_bar is leakage over distance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.panda.selection.law import AnchorLaw, Rows
from panda_mdp.space.checks import TRIANGLE_TOLERANCE

SPLIT_SLACK = 1 + 4 * TRIANGLE_TOLERANCE
"""The triangle inequality holds up to a tolerance, so a little more than two radii."""


def favour(w: FloatArray, other: FloatArray) -> FloatArray:
    """max(log w / w', log (1 - w) / (1 - w')) elementwise, accurate where w is near w'."""
    # One of w / w' and (1 - w) / (1 - w') is at least 1, so the larger term is not negative.
    up = w > other
    return np.log1p(np.where(up, w - other, other - w) / np.where(up, other, 1.0 - other))


def log_ratio(p: FloatArray, q: FloatArray) -> FloatArray:
    """log p / q elementwise for positive p, q, accurate where they are near each other."""
    up = p >= q
    size = np.log1p(np.where(up, p - q, q - p) / np.where(up, q, p))
    return np.where(up, size, -size)


def aligned(law: AnchorLaw, rows: Rows, i: int, j: int) -> tuple[IntArray, FloatArray, FloatArray]:
    """Candidates near either record of two rows, and both probabilities of each."""
    first, _, w = rows.row(i)
    second, _, w2 = rows.row(j)
    either = np.union1d(first, second)
    mine, other = np.full(len(either), law.tail), np.full(len(either), law.tail)
    mine[np.searchsorted(either, first)] = w
    other[np.searchsorted(either, second)] = w2
    return either, mine, other


def suprema(law: AnchorLaw, x: int, x2: int) -> tuple[float, float]:
    """sup_A l(x, x'; A) and sup_A l(x', x; A)."""
    rows = law.rows(np.array([x, x2]))
    _, w, w2 = aligned(law, rows, 0, 1)
    return float(favour(w, w2).sum()), float(favour(w2, w).sum())


def leakages(law: AnchorLaw, rows: Rows, first: IntArray, second: IntArray) -> FloatArray:
    """Leakage of each pair (first[k], second[k]) of rows, in nats."""
    try:
        from panda_mdp.compute.numba.anchors import many_leakages
    except ImportError:
        out = np.empty(len(first))
        for k, (i, j) in enumerate(zip(first, second, strict=True)):
            _, w, w2 = aligned(law, rows, int(i), int(j))
            out[k] = max(favour(w, w2).sum(), favour(w2, w).sum())
        return out
    return np.asarray(
        many_leakages(rows.start, rows.anchor, rows.probability, law.tail, first, second)
    )


def leakage_table(law: AnchorLaw, rows: Rows, distance: FloatArray) -> FloatArray:
    """Leakage between all rows, (n, n), given their distances."""
    split = 2 * law.radius * SPLIT_SLACK
    up, down = one_sided(law, rows)
    try:
        from panda_mdp.compute.numba.anchors import leakage_matrix
    except ImportError:
        table = np.maximum(up[:, None] + down, down[:, None] + up)
        i, j = np.nonzero(np.triu(distance < split, k=1))
        table[i, j] = table[j, i] = leakages(law, rows, i, j)
        np.fill_diagonal(table, 0.0)
        return table
    return np.asarray(
        leakage_matrix(
            rows.start, rows.anchor, rows.probability, law.tail, up, down, distance, split
        )
    )


def one_sided(law: AnchorLaw, rows: Rows) -> tuple[FloatArray, FloatArray]:
    """Suprema against a record that shares no near candidate: row over it, and it over row."""
    tail = np.full(len(rows.probability), law.tail)
    up, down = np.zeros(len(rows)), np.zeros(len(rows))
    np.add.at(up, rows.owner, favour(rows.probability, tail))
    np.add.at(down, rows.owner, favour(tail, rows.probability))
    return up, down


def log_likelihoods(law: AnchorLaw, rows: Rows, member: BoolArray) -> FloatArray:
    """log P_x(A) of each row, less the log-likelihood of A when every candidate has the tail's
    probability: differences between rows are l(x, x'; A)."""
    w = rows.probability
    inside = member[rows.anchor]
    tail = np.full(len(w), law.tail)
    terms = log_ratio(np.where(inside, w, 1.0 - w), np.where(inside, tail, 1.0 - tail))
    sums = np.zeros(len(rows))
    np.add.at(sums, rows.owner, terms)
    return sums


@dataclass(frozen=True)
class WorstLeakage:
    """The largest eps_bar over all pairs of records of the domain, and where it is attained."""

    rate: float
    pair: tuple[int, int]
    distance: float


def worst_leakage(law: AnchorLaw) -> WorstLeakage:
    """max over all pairs of leakage / distance, exactly, without visiting all pairs.

    Pairs within two radii are visited. A farther pair cannot exceed the sum of the two largest
    one-sided suprema over two radii; only where that bound is larger are far pairs visited too.
    """
    rows = law.all_rows
    split = 2 * law.radius * SPLIT_SLACK
    best, pair, length = 0.0, (0, 1), law.domain.distance(0, 1)
    for first, second, distance in law.domain.pairs_within(split):
        if not len(first):
            continue
        rates = leakages(law, rows, first, second) / distance
        k = int(rates.argmax())
        if rates[k] > best:
            best, pair = float(rates[k]), (int(first[k]), int(second[k]))
            length = float(distance[k])
    up, down = one_sided(law, rows)
    if up.max() + down.max() > best * split:
        everyone = np.arange(law.domain.size)
        for block, distance in law.domain.blocks():
            mine = everyone[block]
            totals = np.maximum(up[mine, None] + down, down[mine, None] + up)
            rates = np.where(distance >= split, totals / np.maximum(distance, split), 0.0)
            k = int(rates.argmax())
            i, j = divmod(k, rates.shape[1])
            if rates[i, j] > best:
                best, pair = float(rates[i, j]), (int(mine[i]), j)
                length = float(distance[i, j])
    return WorstLeakage(best, (min(pair), max(pair)), length)
