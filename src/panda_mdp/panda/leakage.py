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

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.threads import check_time
from panda_mdp.panda.law import AnchorLaw, Rows
from panda_mdp.space.metrics import TRIANGLE_TOLERANCE

SPLIT_SLACK = 1 + 4 * TRIANGLE_TOLERANCE
"""The triangle inequality holds up to a tolerance, so a little more than two radii."""


def favour(w: FloatArray, other: FloatArray) -> FloatArray:
    """max(log w / w', log (1 - w) / (1 - w')) elementwise, accurate where w is near w'."""
    # One of w / w' and (1 - w) / (1 - w') is at least 1, so the larger term is not negative.
    up = w > other
    return np.log1p(np.where(up, w - other, other - w) / np.where(up, other, 1.0 - other))


def leakage(law: AnchorLaw, x: int, x2: int) -> float:
    """sup over anchor sets of |log P_x(A) / P_x2(A)|, in nats (Proposition 1)."""
    return float(leakages(law, law.all_rows, np.array([x]), np.array([x2]))[0])


def leakages(law: AnchorLaw, rows: Rows, first: IntArray, second: IntArray) -> FloatArray:
    """Leakage of each pair (first[k], second[k]) of rows, in nats."""
    from panda_mdp.compute.numba import anchors

    return anchors.many_leakages(law.coins(rows), first, second)


def cost_table(law: AnchorLaw, rows: Rows, distance: FloatArray) -> FloatArray:
    """The cost of Phase I between all rows in nats, (n, n), given their distances."""
    split = 2 * law.radius * SPLIT_SLACK
    table = np.add.outer(*one_sided(law, rows))
    np.maximum(table, table.T, out=table)
    np.fill_diagonal(table, 0.0)
    first, second = np.nonzero(np.triu(distance < split, k=1))
    table[first, second] = table[second, first] = leakages(law, rows, first, second)
    return table


def one_sided(law: AnchorLaw, rows: Rows) -> tuple[FloatArray, FloatArray]:
    """Suprema against a record that shares no near candidate: row over it, and it over row."""
    tail = np.full_like(rows.probability, law.tail)
    return rows.sums(favour(rows.probability, tail)), rows.sums(favour(tail, rows.probability))


@dataclass(frozen=True)
class WorstLeakage:
    """The largest eps_bar over all pairs of records of the domain, and where it is attained."""

    rate: float
    pair: tuple[int, int]
    distance: float

    def or_larger(self, cost: FloatArray, *where: FloatArray | IntArray) -> WorstLeakage:
        """This, or the pair with the largest cost over distance of some, where that is larger.

        `where` are their distances and the records of both, in arrays that fit that of the costs.
        """
        distance, first, second = np.broadcast_arrays(*where)
        rates = np.divide(cost, distance, out=np.zeros_like(cost), where=distance > 0)
        k = np.unravel_index(rates.argmax(), rates.shape)
        if rates[k] <= self.rate:
            return self
        pair = sorted((int(first[k]), int(second[k])))
        return WorstLeakage(float(rates[k]), (pair[0], pair[1]), float(distance[k]))


def worst_leakage(law: AnchorLaw) -> WorstLeakage:
    """max over all pairs of leakage / distance, without visiting all pairs.

    Pairs within two radii are visited. A farther pair cannot exceed the sum of the two largest
    one-sided suprema over two radii; only where that bound is larger are far pairs visited too.
    """
    rows = law.all_rows
    domain = law.domain
    everyone = np.arange(law.domain.size)
    worst = WorstLeakage(0.0, (0, 1), domain.distance(0, 1))
    split = 2 * law.radius * SPLIT_SLACK
    for first, second, distance in domain.pairs_within(split):
        check_time()
        if len(first):
            worst = worst.or_larger(leakages(law, rows, first, second), distance, first, second)
    up, down = one_sided(law, rows)
    if up.max() + down.max() > worst.rate * split:
        for block, distance in domain.blocks():
            check_time()
            mine = everyone[block, None]
            totals = np.maximum(up[mine] + down, down[mine] + up) * (distance >= split)
            worst = worst.or_larger(totals, distance, mine, everyone)
    return worst
