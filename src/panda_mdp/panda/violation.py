"""How often the composed mechanism exceeds epsilon for one pair of records.

Standard definition: one user, one released set A; both surrogates lie in A; the loss of a set is
max over outputs of |l(x, x'; A) + log z(y|s) / z(y|s')|, and the violation probability the larger,
over the two hypotheses, of Pr_A[loss > eps d]. Paper's definition (PmDP as Proposition 4 uses it):
two users with independent sets, the leakage at its supremum, surrogates each from its own set.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.errors import MethodError
from panda_mdp.panda.ball import BallAnchors, BallLaw
from panda_mdp.panda.certify import pair_bound
from panda_mdp.panda.leakage import log_ratio
from panda_mdp.panda.result import PandaRun
from panda_mdp.panda.selection import BernoulliAnchors
from panda_mdp.panda.surrogate import ranking, surrogate_law, surrogates
from panda_mdp.panda.tails import leakage_quantile
from panda_mdp.privacy.sampler import BitSource, SystemBits
from panda_mdp.space.domain import check_indices

ENUMERATED = 14
"""Up to this many candidates all sets are visited."""
SLACK = 1e-12
"""Bounds the rounding of a loss, relative to eps d and in nats; on the safe side of each bound."""
NEGLIGIBLE = 1e-3
"""Surrogates that together are rarer than this share of delta are counted as failures."""


@dataclass(frozen=True)
class Violation:
    """Bounds on the probability that a pair's privacy loss exceeds epsilon times its distance.

    `lower == upper` where it is exact. `epsilon` is the smallest epsilon that holds with
    probability 1 - delta, infinite where that cannot be seen.
    """

    lower: float
    upper: float
    epsilon: float
    method: str

    def __repr__(self) -> str:
        if self.lower == self.upper:
            value = f"{self.upper:.6g} exactly"
        else:
            value = f"between {self.lower:.6g} and {self.upper:.6g}"
        return f"Violation({value}, by {self.method}; effective epsilon {self.epsilon:.6g})"


def violation(
    run: PandaRun,
    x: int,
    x2: int,
    *,
    definition: str = "standard",
    draws: int = 2_000,
    confidence: float = 0.99,
    source: BitSource | None = None,
) -> Violation:
    """The violation probability of a pair of records in a run of PAnDA.

    Standard: exact for balls (all centres) and for at most 14 candidates (all sets); otherwise
    `draws` sets of each hypothesis give confidence limits, which cannot see below about 5 / draws
    and never claim to, and the surrogates of one set are enumerated for an upper bound where the
    run has budgets for all candidates; the smaller counts. Paper's: exact up to surrogates that
    are together rarer than delta / 1000.
    """
    problem = run.problem
    pair = check_indices([x, x2], problem.size, "records", MethodError)
    if pair[0] == pair[1]:
        msg = "a record has no privacy loss against itself; give two different records"
        raise MethodError(msg)
    losses = Losses(run)
    apart = problem.domain.distance(int(pair[0]), int(pair[1]))
    if definition == "paper":
        return _paper(run, losses, pair, apart)
    if definition != "standard":
        msg = f"definition is {definition!r}; choose 'standard' or 'paper'"
        raise MethodError(msg)
    if run.ball is not None:
        values, masses = _centres(run, run.ball, losses, pair)
        return _exact(run, values, values, masses, apart, "all centres")
    if not isinstance(run.selection, BernoulliAnchors):
        msg = f"no audit for a {type(run.selection).__name__}"
        raise MethodError(msg)
    if len(run.selection.on(problem.domain).candidates) <= ENUMERATED:
        low, high, masses = _all_sets(run, losses, pair)
        return _exact(run, low, high, masses, apart, "all anchor sets")
    bits = SystemBits() if source is None else source
    sampled = _sampled(run, losses, pair, apart, draws, confidence, bits)
    bound = _enumerated_bound(run, pair)
    if bound < sampled.upper:
        effective = run.problem.epsilon if bound <= run.delta else float("inf")
        return Violation(min(sampled.lower, bound), bound, effective, "surrogates of one set")
    return sampled


def _enumerated_bound(run: PandaRun, pair: IntArray) -> float:
    """An upper bound from the budgets of all candidates, where the run has them."""
    plan, selection = run.full_plan, run.selection
    if plan is None or not isinstance(selection, BernoulliAnchors):
        return 1.0
    law = selection.on(run.problem.domain)
    x, x2 = int(pair[0]), int(pair[1])
    cost = leakage_quantile(law, x, x2, plan.delta_selection)
    found = pair_bound(law, run.problem.epsilon, plan.budgets, cost, (x, x2))
    return min(1.0, found + plan.delta_selection)


class Losses:
    """Log-ratios between rows of surrogates: exact where the rows are known, else bounded.

    A set that was not drawn has surrogates without rows in the run's table. Whatever table AnPO
    gives for it keeps the budgets, so those bound the ratio; without budgets nothing does.
    """

    def __init__(self, run: PandaRun) -> None:
        self.run = run
        self.table = run.tables[0] if len(run.tables) == 1 else None
        if self.table is not None:
            with np.errstate(divide="ignore"):
                self.logs = np.log(self.table.mechanism.weights.astype(np.float64))

    def between(self, a: int, b: int) -> tuple[float, float, bool]:
        """max_y log z_a / z_b, max_y log z_b / z_a, and whether they are exact."""
        if a == b:
            return 0.0, 0.0, True
        if self.table is not None:
            ends = np.array([a, b])
            if self.table.holds(ends).all():
                rows = self.table.row[self.table.positions(ends)]
                with np.errstate(invalid="ignore"):
                    difference = self.logs[rows[0]] - self.logs[rows[1]]
                # An output that neither row has tells nothing.
                difference = np.where(np.isnan(difference), 0.0, difference)
                return max(0.0, float(difference.max())), max(0.0, float(-difference.min())), True
        bound = self._budget(a, b)
        return bound, bound, False

    def _budget(self, a: int, b: int) -> float:
        plan = self.run.full_plan
        if plan is None:
            return float("inf")
        at = np.searchsorted(plan.anchors, [a, b])
        return float(plan.budgets[at[0], at[1]])


def _loss(leak: float, spreads: tuple[float, float, bool]) -> tuple[float, float]:
    """Lower and upper bound on max_y |l + log ratio|."""
    up, down, exact = spreads
    high = max(leak + up, down - leak)
    return (high, high) if exact else (abs(leak), high)


def _centres(
    run: PandaRun, law: BallLaw, losses: Losses, pair: IntArray
) -> tuple[FloatArray, FloatArray]:
    """The loss of every centre and its probability under both hypotheses, (2, centres)."""
    weights = law.mechanism.weights[pair]
    masses = weights / 2.0**62
    leaks = np.log(weights[0].astype(np.float64)) - np.log(weights[1].astype(np.float64))
    values = np.empty(len(law.centres))
    for k in range(len(law.centres)):
        ball = law.ball(k)
        if isinstance(run.selection, BallAnchors) and run.selection.outside == "extend":
            rows = _extended(run, ball, pair)
            difference = np.log(rows[0]) - np.log(rows[1])
            spreads = (float(difference.max()), float(-difference.min()), True)
        else:
            s = ball[surrogates(run.problem.domain, ball, pair)]
            spreads = losses.between(int(s[0]), int(s[1]))
        values[k] = _loss(float(leaks[k]), spreads)[1]
    return values, masses


def _extended(run: PandaRun, ball: IntArray, pair: IntArray) -> FloatArray:
    from panda_mdp.panda.ball import extend_rows

    mechanism = run.tables[0].mechanism
    return extend_rows(run.problem.domain, mechanism.matrix, ball, mechanism.epsilon)[pair]


def _all_sets(
    run: PandaRun, losses: Losses, pair: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Bounds on the loss of every anchor set, and probabilities, (2, sets).

    An empty set has no surrogate: its loss is infinite.
    """
    selection = run.selection
    if not isinstance(selection, BernoulliAnchors):
        raise TypeError(selection)
    law = selection.on(run.problem.domain)
    candidates = law.candidates
    w = law.dense(pair)[:, candidates]
    orders = [ranking(law, int(record))[0] for record in pair]
    chosen = log_ratio(w[0], w[1])
    passed = log_ratio(1.0 - w[0], 1.0 - w[1])
    count = 1 << len(candidates)
    low, high, masses = np.empty(count), np.empty(count), np.empty((2, count))
    low[0] = high[0] = np.inf
    masses[:, 0] = (1.0 - w).prod(axis=1)
    cache: dict[tuple[int, int], tuple[float, float, bool]] = {}
    for code in range(1, count):
        member = (code >> np.arange(len(candidates)) & 1).astype(bool)
        masses[:, code] = np.where(member, w, 1.0 - w).prod(axis=1)
        ends = tuple(int(candidates[order[member[order].argmax()]]) for order in orders)
        key = (ends[0], ends[1])
        if key not in cache:
            cache[key] = losses.between(*key)
        leak = float(np.where(member, chosen, passed).sum())
        low[code], high[code] = _loss(leak, cache[key])
    return low, high, masses


def _exact(
    run: PandaRun,
    low: FloatArray,
    high: FloatArray,
    masses: FloatArray,
    apart: float,
    method: str,
) -> Violation:
    """Sum the probabilities of losses beyond eps d, and find the quantile at 1 - delta."""
    limit = run.problem.epsilon * apart
    room = SLACK * (1 + limit)
    lower = float(masses[:, low > limit + room].sum(axis=1).max())
    upper = float(masses[:, high > limit - room].sum(axis=1).max())
    order = np.argsort(-high)
    over = (np.cumsum(masses[:, order], axis=1) > run.delta).any(axis=0)
    # The largest loss whose probability, with all larger ones, no longer fits into delta.
    effective = float(high[order[over.argmax()]]) / apart if over.any() else 0.0
    return Violation(lower, upper, effective, method)


def _sampled(
    run: PandaRun,
    losses: Losses,
    pair: IntArray,
    apart: float,
    draws: int,
    confidence: float,
    bits: BitSource,
) -> Violation:
    """Confidence limits from sets drawn under each hypothesis."""
    selection, domain = run.selection, run.problem.domain
    limit = run.problem.epsilon * apart
    room = SLACK * (1 + limit)
    lower, upper = 0.0, 0.0
    for record in pair:
        certain = possible = 0
        for _ in range(draws):
            anchors = selection.draw(domain, int(record), bits)
            if len(anchors) == 0:
                certain, possible = certain + 1, possible + 1
                continue
            s = anchors[surrogates(domain, anchors, pair)]
            leak = selection.leakage_of(domain, anchors, int(pair[0]), int(pair[1]))
            low, high = _loss(leak, losses.between(int(s[0]), int(s[1])))
            certain += low > limit + room
            possible += high > limit - room
        lower = max(lower, interval(certain, draws, confidence)[0])
        upper = max(upper, interval(possible, draws, confidence)[1])
    return Violation(lower, upper, float("inf"), f"{draws:,} sets, {confidence:.0%} confidence")


def interval(count: int, draws: int, confidence: float) -> tuple[float, float]:
    """Clopper and Pearson's confidence limits, each one-sided at `confidence`.

    >>> [round(limit, 4) for limit in interval(0, 1000, 0.99)]
    [0.0, 0.0046]
    """
    from scipy.stats import beta  # slow to import, and needed only here

    low = 0.0 if count == 0 else float(beta.ppf(1 - confidence, count, draws - count + 1))
    high = 1.0 if count == draws else float(beta.ppf(confidence, count + 1, draws - count))
    return low, high


def _paper(run: PandaRun, losses: Losses, pair: IntArray, apart: float) -> Violation:
    """Two users, independent sets: surrogates (a, b) with v(x, a) v(x', b)."""
    selection = run.selection
    if not isinstance(selection, BernoulliAnchors):
        msg = "the paper's definition is about independent selection; balls use the standard one"
        raise MethodError(msg)
    law = selection.on(run.problem.domain)
    leak = selection.leakage(run.problem.domain, int(pair[0]), int(pair[1]))
    limit = run.problem.epsilon * apart
    room = SLACK * (1 + limit)
    sides = []
    for record in pair:
        v = surrogate_law(law, int(record))
        order = np.argsort(-v, kind="stable")
        kept = order[v[order] > 0]
        # What is left out is summed from its own terms, so that tiny rests stay accurate.
        tails = np.cumsum(v[kept][::-1])[::-1]
        cut = int((tails > NEGLIGIBLE * max(run.delta, 1e-300)).sum())
        sides.append((kept[:cut], v[kept[:cut]], float(tails[cut]) if cut < len(kept) else 0.0))
    low = high = 0.0
    values, masses = [], []
    for a, v in zip(*sides[0][:2], strict=True):
        for b, v2 in zip(*sides[1][:2], strict=True):
            up, down, exact = losses.between(int(a), int(b))
            spread = max(up, down)
            masses.append(v * v2)
            values.append(leak + spread)
            low += v * v2 if exact and leak + spread > limit + room else 0.0
            high += v * v2 if leak + spread > limit - room else 0.0
    empty = [float(np.prod(1.0 - law.dense(pair[k : k + 1])[0][law.candidates])) for k in (0, 1)]
    missing = empty[0] + empty[1] - empty[0] * empty[1]
    rest = sides[0][2] + sides[1][2]
    order = np.argsort(-np.array(values))
    beyond = missing + rest + np.cumsum(np.array(masses)[order])
    over = beyond > run.delta
    effective = float(np.array(values)[order[over.argmax()]]) / apart if over.any() else 0.0
    if missing + rest > run.delta:
        effective = float("inf")
    return Violation(
        float(low + missing), float(high + missing + rest), effective, "surrogate pairs"
    )
