"""Files with a selection, for panda_verify.py: a user draws anchors (Phase I), then reports (Phase II).

The claim: for all records x, x' what one user releases of x, anchors and report together, has a
log-ratio to x' beyond epsilon d(x, x') with probability at most delta.

Balls. A centre is drawn on a lattice by a law that tells epsilon_1 at every place, and a record
reports from its row of the table or, the likelier the nearer it lies to the ball's edge, from the
row of everybody outside, which together tell what the rows do and `edge`: both by theorems
(docs/panda.md, proofs/Balls.v) that need no delta. What they ask is looked at here: records in a
plane, far enough from each other for float64, and rows that keep what is left of epsilon.

Coins. Candidate a is selected with w(x, a), a multiple of 2^-62 that float64 computed from the
distance, so it is known within a few units; a record reports from the row of its nearest anchor.
With L = sum_a max(log w/w', log (1-w)/(1-w')) and b(a, a') what two rows differ by at most, a set
whose nearest anchors to x and x' are a and a' is within L + b(a, a'). The probability of the sets
for which that exceeds epsilon d is summed over the joint law of the two nearest anchors of ONE set.

Which anchor is nearest float64 decides on the device. Distances that agree to EDGE bits count as
equal here: the lowest index first.
"""

from fractions import Fraction
from itertools import combinations

from panda_verify import METRICS, Q, TOTAL, check_loss, check_pairs, check_rows, dyadic, exponential
from panda_verify import losses, need, number, read_rows, rows, shift

REAL = (int, float)
ONE = 1 << Q
EDGE = 46  # bits: distances that agree to so many are equal

BALL = {"kind", "delta", "epsilon", "edge", "radius"}
EARTH = Fraction("6371.0088")
COINS = {"kind", "delta", "decay", "alpha", "rate", "radius", "tail"}

def adapt(table, k, m):
    """Takes the sections of such a file; returns what proves it."""
    chosen = table.claims["selection"]
    need("mesh" not in table.claims and type(chosen) is dict, "a mesh has no selection")
    need(number(chosen["delta"], 0, REAL) < 1, "delta is no probability below 1")
    if chosen["kind"] == "ball":
        need({*chosen} == BALL and "factored" not in table.claims, "another selection")
        need(chosen["delta"] == 0, "balls need no delta")
        table.rows = read_rows(table, k, m)
        return prove_balls
    need(chosen["kind"] == "coins" and {*chosen} == COINS | {"neighbours"}, "another selection")
    need(number(chosen["neighbours"], 1) < 1 << 53, "too many neighbours")
    table.take("anchor_rows", len(table.take("candidates", None)))
    table.rows = rows(table.take("weights", None, m), m)
    return prove_coins

def prove_balls(table):
    check_rows(table)
    chosen, k = table.claims["selection"], table.size
    first, edge, radius = (
        Fraction(number(chosen[a], 5e-324, REAL)) for a in ("epsilon", "edge", "radius")
    )
    second, metric = Fraction(table.epsilon) - first, METRICS[table.kind](table)
    need(second > edge and radius > 0, "centre and edge leave nothing for the rows")
    print(f"rows: {k:,} records, {len(table.rows):,} rows; every row sums to 2^62")
    vectors = table.values.get("vectors", ())
    need(table.kind == "haversine" or table.kind == "euclidean" and len(vectors) <= 2 * k, "no plane")
    largest = EARTH if table.kind == "haversine" else max(map(abs, map(Fraction, vectors)))
    rounded = (largest + 40 / first) / 10**14
    least = max(rounded * 10**5, (4 * second * rounded + Fraction(1, 10**9)) * 1000 / edge)
    near = min(metric.exponent(x, y, 1, 0) for x, y in combinations(range(k), 2))
    need(Fraction(near, ONE) >= least, "two records are too near each other for balls")
    print(f"metric: {table.kind}, {table.unit}; records lie in a plane, {float(near / ONE)!r} apart")
    check_pairs(table.rows, metric, second - edge)
    left = float(second - edge)
    print(f"pairs: all {k * (k - 1) // 2:,}; rows keep {left!r}, centre and fading by theorem")
    print("loss: a sum over all centres, which is not computed here")
    table.holds = f"epsilon {table.epsilon!r} per {table.unit} over all pairs, centre and report"

def prove_coins(table):
    check_rows(table)
    chosen, epsilon, k = table.claims["selection"], table.epsilon, table.size
    delta = chosen["delta"]
    print(f"rows: {k:,} records, {len(table.rows):,} rows; every row sums to 2^62")
    metric = METRICS[table.kind](table)
    scheme = Coins(table, metric)
    print(f"metric: {table.kind}, {table.unit}; symmetric, distinct records, triangles to 1e-9")
    violation = max(scheme.violation(i, j, *dyadic(epsilon)) for i, j in combinations(range(k), 2))
    need(violation <= Fraction(delta), f"epsilon is exceeded with probability {float(violation)!r}")
    print(f"pairs: all {k * (k - 1) // 2:,}; epsilon is exceeded with at most {float(violation)!r}")
    size = sum(Fraction(p) * scheme.download(x) for x, p in enumerate(table.prior))
    print(f"download: {float(size)!r} rows on average")
    table.rows = [scheme.reports(x) for x in range(k)]
    check_loss(table, metric)
    table.holds = f"epsilon {epsilon!r} per {table.unit} with delta {delta!r} over all pairs"

def distances(metric, records, ends):  # at Q bits, from below
    return [[x != y and metric.exponent(x, y, 1, 0) for y in ends] for x in records]

def in_order(far, order):  # positions from near to far; what is equal to EDGE bits as it is given
    step = max(1, max(far) >> EDGE)
    return sorted(order, key=lambda y: (far[y] // step, y))

class Coins:
    """Coins of candidates in units of 2^-62: from, to, and whether it is that of far candidates."""
    def __init__(self, table, metric):
        self.table, self.metric, self.chosen = table, metric, table.claims["selection"]
        self.ends, row = table.values["candidates"], table.values["anchor_rows"]
        good = list(self.ends) == sorted({*self.ends} & {*range(table.size)})
        need(good and {*row} <= {*range(len(table.rows))}, "candidates or their rows are none")
        self.read_decay()
        apart = distances(metric, range(table.size), self.ends)
        self.order = [in_order(far, range(len(self.ends))) for far in apart]
        self.rank = [{a: n for n, a in enumerate(order)} for order in self.order]
        self.coins = [[self.coin(d) for d in far] for far in apart]
        self.near = [{a for a, (*_, far) in enumerate(coins) if not far} for coins in self.coins]
        used = {r: table.rows[r] for r in {*row}}
        between = {(r, s): spread(used[r], used[s]) for r in used for s in used}
        self.spread = [[between[r, s] for s in row] for r in row]
        self.own, self.blind = [used[r] for r in row], best_output(table, metric)
    def read_decay(self):
        chosen, tail = self.chosen, self.chosen["tail"]
        self.alpha, self.rate, radius = (
            Fraction(number(chosen[a], 0, REAL)) for a in ("alpha", "rate", "radius")
        )
        need(0 < self.alpha < 1 and chosen["decay"] in DECAYS, "coins of an unknown kind")
        need(self.rate > 0 or chosen["decay"] != "power", "a power law of rate 0")
        need(self.rate < 10**6, "a rate of a million or more")
        need(tail == "clip" or 0 < number(tail, 0, REAL) < 1, "a tail that is no probability")
        need(radius > 0, "a radius of 0")
        self.radius = int(radius * ONE)
        self.tail = units(*(self.decay(self.radius) if tail == "clip" else [Fraction(tail)] * 2))
    def coin(self, d):
        slack = (self.radius >> EDGE) + 1
        if d > self.radius + slack:
            return (*self.tail, True)
        low, high = units(*self.decay(d))
        if d >= self.radius - slack:
            low, high = min(low, self.tail[0]), max(high, self.tail[1])
        return low, high, False
    def decay(self, d):
        """alpha c / (p + G) with G = exp(rate d) or d^rate, from below and from above.

        d may be off by 2^-46 of itself, and what float64 makes of it by 2^-48. Both are exact where
        the distance is 0 or plays no part."""
        c, p = DECAYS[self.chosen["decay"]]
        if d == 0 or self.rate == 0:
            return self.alpha, self.alpha
        slack, off = (d >> EDGE) + 1, Fraction(1, 1 << 48)
        low, high = self.grown(max(0, d - slack), False), self.grown(d + slack, True)
        ends = (self.alpha * c / (p + Fraction(g, ONE)) for g in (high, low))
        return tuple(end * (1 + sign * off) for end, sign in zip(ends, (-1, 1)))
    def grown(self, d, above):
        power = self.chosen["decay"] == "power"
        if power and d == 0:
            return 0
        exact = self.rate * (logarithm(d, above) if power else d)
        t = -(-exact.numerator // exact.denominator) if above else int(exact // 1)
        need(abs(t) < 1 << (Q + 10), "a decay beyond all numbers")
        if t < 0:
            return ONE * ONE // exponential(-t, not above) + above
        return exponential(t, above)
    def leak(self, i, j):
        """exp(L) for two records at Q bits, from above: the larger of both directions."""
        products = [ONE, ONE]
        for a in self.near[i] | self.near[j]:
            if self.coins[i][a] != self.coins[j][a] or self.coins[i][a][0] < self.coins[i][a][1]:
                for side, (x, x2) in enumerate(((i, j), (j, i))):
                    (low, high, _), (low2, high2, _) = self.coins[x][a], self.coins[x2][a]
                    up, down = max((high, low2), (TOTAL - low, TOTAL - high2), key=ratio)
                    products[side] = -(-products[side] * up // down)
        return max(products)
    def violation(self, i, j, n, e):
        t, leak = min(self.metric.exponent(i, j, n, e), 1000 << Q), self.leak(i, j)
        room = (exponential(t, False) << 64) // leak
        if room < 1 << 64:
            return Fraction(1)
        return Fraction(max(self.unsafe(i, j, who, room) for who in (i, j)), ONE)
    def unsafe(self, i, j, who, room):
        """The probability, from above, that the nearest anchors a of i and b of j in one set that
        `who` draws have rows farther from each other than `room`; what is very rare counts too."""
        coins, tiny = self.coins[who], int(Fraction(self.table.claims["selection"]["delta"]) * ONE) >> 20
        none, total = ONE, 0
        for n, a in enumerate(self.order[i]):
            if none <= tiny:
                break
            rest = (none * coins[a][1] >> 62) + 1
            none = (none * (TOTAL - coins[a][0]) >> 62) + 1
            for b in self.order[j]:
                if rest <= tiny:
                    break
                if a == b:  # one row for both
                    rest = 0
                    break
                if self.rank[i][b] > n:
                    if self.spread[a][b] > room:
                        total += (rest * coins[b][1] >> 62) + 1
                    rest = (rest * (TOTAL - coins[b][0]) >> 62) + 1
            total += rest
        return min(ONE, total + none)
    def download(self, x):
        return Fraction(sum(low + high for low, high, _ in self.coins[x]), 2 * TOTAL)
    def reports(self, x):
        none, sums = ONE, [0] * len(self.own[0])
        for a in self.order[x]:
            low, high, _ = self.coins[x][a]
            chance = none * (low + high) >> 63
            none -= chance
            sums = [s + chance * w for s, w in zip(sums, self.own[a])]
        sums[self.blind] += none * TOTAL
        return [Fraction(s, ONE) for s in sums]

DECAYS = {"exponential": (1, 0), "logistic": (2, 1), "power": (1, 1)}

def ratio(pair):
    return Fraction(*pair)

def best_output(table, metric):  # without a record
    loss = losses(table, metric, False)
    need(loss is not None, "rows of nobody's anchors need losses")
    costs = rows(loss, len(table.rows[0]))
    mean = [sum(Fraction(p) * Fraction(c) for p, c in zip(table.prior, cs)) for cs in zip(*costs)]
    return mean.index(min(mean))

def units(low, high):
    """Multiples of 2^-62 between which a probability is rounded; neither 0 nor 1 is one."""
    if low == high:
        low = high = Fraction(round(low * TOTAL), TOTAL)
    low, high = -int((Fraction(1, 2) - low * TOTAL) // 1), int((high * TOTAL + Fraction(1, 2)) // 1)
    return tuple(min(max(v, 1), TOTAL - (1 << 9)) for v in (low, high))

def spread(row, other):  # the largest ratio of two rows at 64 bits, from above
    most = 1 << 64
    for v, w in zip(row, other):
        if v != w:
            least = min(v, w)
            most = max(most, 1 << 200 if least == 0 else -(-(max(v, w) << 64) // least))
    return most

def logarithm(v, above):
    """log of v > 0, both at Q bits. v = 2^k m, log m = 2 (z + z^3 / 3 + ..), z = (m - 1) / (m + 1);
    z <= 1/3, fewer than 90 terms; each is off by less than 2 units, and k by as many."""
    def series(m):
        z, total, n = (m - ONE) * ONE // (m + ONE), 0, 1
        square, term = z * z >> Q, z
        while term:
            total, term, n = total + term // n, term * square >> Q, n + 2
        return 2 * total
    k = v.bit_length() - 1 - Q
    value = k * series(2 * ONE) + series(shift(v, -k))
    return value + ((abs(k) + 2) << 9) * (1 if above else -1)
