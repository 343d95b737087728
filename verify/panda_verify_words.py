"""Rows that are computed from vectors, and bounds by stars, for panda_verify.py (docs/words.md).

A row has v M / 2^e rounded down for each output, M / 2^(31 + e) nearly 2^(-rate t / 2^40), t the
whole, cut off distance on a lattice to its centre. All of it is whole numbers here, and all pairs
of rows are compared as those of any other table: no argument about peaks is relied on.

A bound by stars is sum_x m_x for prices m of the rows. With a_x = cost_xy - m_x, not negative but
for the centre k of output y, and e_x at most exp(-epsilon d(x, k)), every private table has
sum_x a_x z_xy >= z_ky (a_k + sum over x other than k of a_x e_x), as z_xy >= e_x z_ky. Where the
bracket is not negative for any y, no table loses less, since rows sum to 1.
"""

import math
from fractions import Fraction
from operator import mul, sub

from panda_verify import Q, TOTAL, dyadic, exponential, need, number, rows

def adapt(table, k, m):
    if "factored" in table.claims and table.rows is None:
        table.rows = [*peaked(table, k, m)]
    if "bound_prices" in table.parts and "selection" not in table.claims:
        table.take("bound_prices", k)
        table.bound = star_bound
    return table.prove  # of a mesh, where there is one

def powers(count, digits):  # floor(2^31 2^(-i / 2^digits)) for all i < count, by 120 bits
    root, power = 1 << 119, 1 << 120
    for _ in range(digits):
        root = math.isqrt(root << 120)
    for _ in range(count):
        yield power >> 89
        power = power * root >> 120

def peaked(table, k, m):
    """Rows of peaks over a lattice: v M / 2^e of every output, rounded down; the largest entry of a
    row takes what is missing to 2^62. docs/format.md has the law."""
    need(table.kind == "euclidean", "peaks over a lattice need vectors")
    law = table.claims["factored"]
    need({*law} == {"unit_bits", "rate"}, "another law of peaks")
    bits, rate = (number(law[a], -400) for a in ("unit_bits", "rate"))
    centres, peaks = table.take("centres", m), table.take("peaks", m)
    good = 1 <= rate <= 34 << 40 and abs(bits) <= 400
    good = good and {*centres} <= {*range(k)} and all(1 <= v <= 1 << 31 for v in peaks)
    need(good, "the peaks do not fit together")
    vectors, scale, reach = table.values["vectors"], Fraction(2) ** bits, (34 << 40) // rate
    need(max(map(abs, vectors)) < 2.0**400, "a vector is too long for a lattice")
    points, width = [round(Fraction(v) * scale) for v in vectors], len(vectors) // k
    need(width * max(map(abs, points)) ** 2 < 1 << 50, "points too far apart for a lattice")
    points = rows(points, width)
    first, second, third = [*powers(1 << 14, 14)], [*powers(1 << 13, 27)], [*powers(1 << 13, 40)]
    for point in points:
        row = []
        for c, v in zip(centres, peaks):
            apart = [*map(sub, point, points[c])]
            square = sum(map(mul, apart, apart))
            root = math.isqrt(square)
            steps = rate * min(reach, root + (root * root < square))
            part = steps & ((1 << 40) - 1)
            factor = first[part >> 26] * second[part >> 13 & 8191] >> 31
            row.append(v * (factor * third[part & 8191] >> 31) >> (steps >> 40))
        need(max(row) > 0 and sum(row) <= TOTAL, "a row exceeds the whole, or is empty")
        row[row.index(max(row))] += TOTAL - sum(row)
        yield row

def star_bound(table, metric, costs):
    """sum_x m_x of prices m, lowered until the stars prove it: no m_x exceeds a cost_xy but of the
    outputs whose centre x is, and no m_k what it may by the module's head."""
    (n, e), size, m = dyadic(table.epsilon), table.size, len(costs[0])
    centres = table.values.get("outputs")
    if centres is None:
        need(table.loss is not None, "stars of outputs that are no records need losses")
        centres = [min(range(size), key=lambda x: table.loss[x * m + y]) for y in range(m)]
    least = []
    for x, price in enumerate(map(Fraction, table.values["bound_prices"])):
        least.append(min([price, *(c for c, k in zip(costs[x], centres) if k != x)]))
    most = [*least]
    for y, k in enumerate(centres):
        total = costs[k][y]
        for x in (x for x in range(size) if x != k):
            t = metric.exponent(x, k, n, e, above=True)
            lent = (1 << 2 * Q) // exponential(t, True) if t < 1 << (Q + 10) else 0
            total += (costs[x][y] - least[x]) * Fraction(lent, 1 << Q)
        most[k] = min(most[k], total)
    return sum(most)
