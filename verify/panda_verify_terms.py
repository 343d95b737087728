"""What a limit costs, and what a second objective must give away at least, for panda_verify.py.

Terms v_k of a table z are its loss, or what somebody gains who guesses,

    v_k(z) = sum_y max_g sum_x p_x a_gx z_xy,

a_gx = 1 where guess g is record x, or lies within a radius of it (to one part in 10^9), or minus
their distance. Shares s_gy of the guesses that sum to 1 for every y give v_k >= <b_k, z> with b_k
= p_x sum_g s_gy a_gx. Multipliers prove <sum_k price_k b_k, z> >= L for all private tables; so of
those with v_k <= limit_k + grows_k t for all k

    t  >=  (L - sum_k price_k limit_k) / sum_k price_k grows_k.
"""

import math
from collections import defaultdict
from fractions import Fraction
from types import SimpleNamespace

from panda_verify import METRICS, UP, Q, Euclidean, Sphere, losses, lower_bound, need, read_proof
from panda_verify import rows, shown

LOSS, VULNERABILITY, LOCATED, ERROR = range(4)
CLOSED = 1 + Fraction(1, 10**9)
NAMES = "the loss", "the right record", "the record within", "minus the distance"

def adapt(table, k, m):
    """Takes the sections of the terms; returns what proves the table, and then what they say."""
    need("selection" not in table.claims, "terms beside two phases")
    kinds = rows(table.take("term_kinds", None, 2), 2)
    numbers = rows(table.take("term_numbers", len(kinds), 4), 4)
    guesses = rows(table.take("term_guesses", None, 3), 3)
    weights = table.take("term_weights", len(guesses))
    priors, places = [], []
    if "term_priors" in table.parts:
        priors = rows(table.take("term_priors", None, k), k)
    if "term_places" in table.parts:
        places = read_places(table, k)
    read_proof(table, range(k), range(m), "term")
    signed = [v for a, _, b, c in numbers for v in (a, b, c)]
    good = min([*signed, *weights, *(v for p in priors for v in p)], default=0) >= 0
    good &= all(LOSS <= a <= ERROR and 0 <= b <= len(priors) for a, b in kinds)
    named, sums = {*range(k + len(places))}, defaultdict(Fraction)
    for (term, y, g), weight in zip(guesses, weights):
        good &= 0 <= term < len(kinds) and 0 <= y < m and g in named
        good = good and kinds[term][0] != LOSS and (g < k or kinds[term][0] != VULNERABILITY)
        sums[term, y] += Fraction(weight)
    due = ((i, y) for i, (kind, _) in enumerate(kinds) if kind != LOSS for y in range(m))
    good = good and all(sums[each] > 0 for each in due) and any(a * c > 0 for a, _, c, _ in numbers)
    need(good, "terms that name what is not there, or are out of range")
    terms = [SimpleNamespace(kind=a, prior=b, guesses=[]) for a, b in kinds]
    for (term, y, g), weight in zip(guesses, weights):
        terms[term].guesses.append((y, g, Fraction(weight) / sums[term, y]))
    before = table.prove
    def prove_terms(table):
        before(table)
        print("terms:", stated(table, terms, numbers, priors, places, m))
    return prove_terms

def read_places(table, k):  # guesses that are no records
    width = 2 if table.kind == "haversine" else len(table.values.get("vectors", ())) // k
    need(table.kind == "haversine" or (table.kind == "euclidean" and width <= 2), "no such places")
    flat = table.take("term_places", None, width)
    if table.kind == "haversine":
        good = all(-90 <= v <= 90 for v in flat[::2]) and all(-180 <= v < 180 for v in flat[1::2])
    else:
        good = all(v == 0 or 1e-120 <= abs(v) <= 1e140 for v in flat)
    need(good, "a guess is at no place")
    return rows(flat, width)

def stated(table, terms, numbers, priors, places, m):
    """What is proved, in words."""
    metric, k = METRICS[table.kind](table), table.size
    loss, far = losses(table, metric, True), distances(table, metric, places)
    if loss is None:
        return "not computed, no losses in the file that are summed here"
    costs = [[Fraction(0)] * m for _ in range(k)]
    for term, (price, _, _, radius) in zip(terms, numbers):
        prior = priors[term.prior - 1] if term.prior else table.prior
        each = [Fraction(price) * Fraction(p) for p in prior]
        if term.kind == LOSS:
            for x, (p, row) in enumerate(zip(each, costs)):
                row[:] = [a + p * Fraction(c) for a, c in zip(row, loss[x * m : x * m + m])]
        for y, g, share in term.guesses:
            for x in [g] if term.kind == VULNERABILITY else range(k):
                gain = 1 if term.kind == VULNERABILITY else -far(g, x)
                if term.kind == LOCATED:
                    gain = -gain <= Fraction(radius) * CLOSED
                costs[x][y] += each[x] * share * gain
    least = lower_bound(table, metric, costs, "term")
    prices = [[*map(Fraction, each)] for each in numbers]
    taken = sum(price * limit for price, limit, _, _ in prices)
    found = (least - taken) / sum(price * grows for price, _, grows, _ in prices)
    limits, growing = [], []
    for term, (_, limit, grows, radius) in zip(terms, numbers):
        name = NAMES[term.kind] + (f" {radius!r}" if term.kind == LOCATED else "")
        name += f" by prior {term.prior}" if term.prior else ""
        limits += [] if grows else [f"{name} at most {limit!r}"]
        growing += [(name, limit, grows)] if grows else []
    said = ", ".join(limits) or "anything"
    if len(growing) == 1:
        name, limit, grows = growing[0]
        most = Fraction(limit) + Fraction(grows) * found
        return f"with {said}, no private table has {name} below {shown(most)}, proved"
    all_of = ", ".join(f"{name} at most {limit!r} + {grows!r} t" for name, limit, grows in growing)
    return f"with {said}, no private table has all of {all_of} for t below {shown(found)}, proved"

def distances(table, metric, places):
    """Of a guess and a record, raised by UP as losses are; those of a guess are kept together."""
    k, kept, points = table.size, {}, []
    if places:
        own = dict(table.values)
        if table.kind == "haversine":
            for i, name in enumerate(("lat", "lon")):
                own[name] = (*own[name], *(place[i] for place in places))
            points = [*zip(own["lat"], own["lon"])]
            metric = Sphere(SimpleNamespace(kind="haversine", values=own))
        else:
            own["vectors"] = (*own["vectors"], *(v for place in places for v in place))
            points = rows(own["vectors"], len(places[0]))
            metric = Euclidean(SimpleNamespace(values=own, size=k + len(places)))
    def far(g, x):
        if (g, x) not in kept:
            same = g == x or (g >= k and points[g] == points[x])
            away = 0 if same else metric.exponent(x, g, 1, 0, above=True)
            kept[g, x] = UP * Fraction(away, 1 << Q)
        return kept[g, x]
    return far
