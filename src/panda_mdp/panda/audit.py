"""The audit of a run of PAnDA: the composed mechanism, standard definition, one user."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.errors import MethodError
from panda_mdp.panda.anpo import AnchorTable
from panda_mdp.panda.ball import BallAnchors, extend_rows
from panda_mdp.panda.balls import extensions_pass
from panda_mdp.panda.certify import certify
from panda_mdp.panda.leakage import log_likelihoods
from panda_mdp.panda.options import source_of
from panda_mdp.panda.result import PandaRun
from panda_mdp.panda.selection import BernoulliAnchors
from panda_mdp.panda.surrogate import members, surrogates
from panda_mdp.panda.violation import SLACK, Losses, interval
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.privacy.quantise import quantise
from panda_mdp.space.domain import Domain

IMPOSSIBLE = -1e6
"""Stands for the logarithm of 0 in sums: larger than any real loss, and finite."""


@dataclass(frozen=True)
class SetAudit:
    """One anchor set that was drawn: the privacy loss of set and report over all pairs."""

    epsilon: float
    """The largest loss per unit of distance, over all pairs of records."""
    worst: tuple[int, int]
    violations: int
    """Pairs whose loss exceeds epsilon times their distance."""
    pairs: int
    selection_epsilon: float
    """The set alone, without a report."""
    report_epsilon: float
    """The report alone, as if the set told nothing."""
    covered_epsilon: float
    """`epsilon` over pairs with a record in the ball: a user whose own record is outside, which
    happens with probability at most delta, is not covered. All pairs for other selections."""
    covered_violations: int
    """`violations` among those pairs."""


@dataclass(frozen=True)
class DrawAudit:
    """Fresh sets: how often some pair with the true record exceeds epsilon, with confidence."""

    draws: int
    certain: int
    """Sets for which some loss certainly exceeds it."""
    possible: int
    """Sets for which it may: rows that were never computed count by their budgets."""
    low: float
    high: float
    confidence: float


@dataclass(frozen=True)
class PandaAudit:
    """What a run of PAnDA really guarantees."""

    holds: bool
    """Whether the run claims a guarantee and the audit confirms it over all pairs of records."""
    claimed: Guarantee | None
    epsilon: float
    delta: float
    unit: str
    violation: float | None
    """An upper bound on the violation probability of every pair; None where none is known."""
    worst: tuple[int, int] | None
    """The pair of records with the largest bound."""
    sets: tuple[SetAudit, ...]
    """One for each user's anchor set, exact over all pairs."""
    drawn: DrawAudit | None

    def __repr__(self) -> str:
        verdict = "holds" if self.holds else "NO GUARANTEE HOLDS"
        bound = "unknown" if self.violation is None else f"at most {self.violation:.4g}"
        broken = sum(1 for found in self.sets if found.covered_violations)
        worst = max((found.covered_epsilon for found in self.sets), default=0.0)
        return (
            f"PandaAudit({verdict}: epsilon {self.epsilon:g} per {self.unit}, delta "
            f"{self.delta:g}; violation probability {bound}; of {len(self.sets)} sets drawn "
            f"{broken} exceed epsilon for some covered pair, largest {worst:.4g})"
        )


def audit_panda(
    run: PandaRun,
    *,
    draws: int = 0,
    confidence: float = 0.99,
    seed: int | None = None,
) -> PandaAudit:
    """Audit a run: one user, anchors and report together, the same released set for both records.

    For every anchor set that was drawn the loss max_y |l(x, x'; A) + log z(y|s) / z(y|s')| is
    exact over all pairs x, x' of the domain. The claim is checked over the drawing of sets: for
    independent selection by enumerating the surrogates of all pairs (`certify`), for balls from
    the audits of centres and table and the exact probability of missing the own record. With
    `draws`, as many fresh sets are drawn for records from the prior, with confidence limits.
    """
    if draws < 0 or not 0 < confidence < 1:
        msg = f"draws is {draws} and confidence {confidence}; give a count and a probability"
        raise MethodError(msg)
    sets = tuple(
        audit_set(run, chosen, run.table_of(n))
        for n, chosen in enumerate(run.anchor_sets)
        if len(chosen)
    )
    violation, worst = _bound(run)
    confirmed = run.guarantee is not None and violation is not None and violation <= run.delta
    return PandaAudit(
        holds=confirmed,
        claimed=run.guarantee,
        epsilon=run.problem.epsilon,
        delta=run.delta,
        unit=run.problem.domain.unit,
        violation=violation,
        worst=worst,
        sets=sets,
        drawn=_drawn(run, draws, confidence, seed) if draws else None,
    )


def audit_set(run: PandaRun, anchors: IntArray, table: AnchorTable) -> SetAudit:
    """The composed mechanism's loss for one anchor set, over all pairs of records."""
    domain, epsilon = run.problem.domain, run.problem.epsilon
    likelihood = set_likelihoods(run, anchors)
    row, logs = _rows(run, anchors, table)
    total = scan_pairs(domain, likelihood, row, logs, epsilon)
    alone = scan_pairs(domain, likelihood, np.zeros_like(row), np.zeros_like(logs[:1]), epsilon)
    report = scan_pairs(domain, np.zeros_like(likelihood), row, logs, epsilon)
    covered = total
    if isinstance(run.selection, BallAnchors) and run.selection.outside == "nearest":
        inside = members(domain.size, anchors)
        covered = scan_pairs(domain, likelihood, row, logs, epsilon, inside)
    return SetAudit(
        epsilon=total[0],
        worst=total[1],
        violations=total[2],
        pairs=domain.size * (domain.size - 1) // 2,
        selection_epsilon=alone[0],
        report_epsilon=report[0],
        covered_epsilon=covered[0],
        covered_violations=covered[2],
    )


def report_epsilon(run: PandaRun, anchors: IntArray, table: AnchorTable) -> float:
    """What a report from a given set costs per unit of distance, over all pairs of records."""
    row, logs = _rows(run, anchors, table)
    domain = run.problem.domain
    return scan_pairs(domain, np.zeros(domain.size), row, logs, run.problem.epsilon)[0]


def set_likelihoods(run: PandaRun, anchors: IntArray) -> FloatArray:
    """log P_x(A) of every record, up to a constant."""
    domain = run.problem.domain
    if run.ball is not None:
        centres = run.ball.centres_of(anchors)
        counts = run.ball.mechanism.weights[:, centres].sum(axis=1)
        return np.asarray(np.log(counts.astype(np.float64)))
    if not isinstance(run.selection, BernoulliAnchors):
        msg = f"no audit for a {type(run.selection).__name__}"
        raise MethodError(msg)
    law = run.selection.on(domain)
    return log_likelihoods(law, law.all_rows, members(domain.size, anchors))


def _rows(run: PandaRun, anchors: IntArray, table: AnchorTable) -> tuple[IntArray, FloatArray]:
    """The row of every record for this set, and the logarithms of those rows."""
    domain = run.problem.domain
    if isinstance(run.selection, BallAnchors) and run.selection.outside == "extend":
        mechanism = table.mechanism
        weights = quantise(extend_rows(domain, mechanism.matrix, anchors, mechanism.epsilon))
        weights[anchors] = mechanism.weights[anchors]
        return np.arange(domain.size), np.log(weights.astype(np.float64))
    nearest = surrogates(domain, anchors)
    used, row = np.unique(table.row[table.positions(anchors)][nearest], return_inverse=True)
    with np.errstate(divide="ignore"):
        logs = np.log(table.mechanism.weights[used].astype(np.float64))
    return row.astype(np.int64), logs


def scan_pairs(
    domain: Domain,
    likelihood: FloatArray,
    row: IntArray,
    logs: FloatArray,
    epsilon: float,
    counted: BoolArray | None = None,
) -> tuple[float, tuple[int, int], int]:
    """Largest loss per distance, its pair, and the pairs beyond epsilon."""
    # An output that no row has tells nothing; one that some rows lack tells everything.
    used = np.isfinite(logs).any(axis=0)
    finite = np.ascontiguousarray(np.maximum(logs[:, used], IMPOSSIBLE))
    covered = np.ones(domain.size, dtype=bool) if counted is None else counted
    limit = epsilon * (1 + SLACK)
    try:
        from panda_mdp.compute.numba.composed import composed_rates, row_spreads
        from panda_mdp.compute.numba.distance import coordinates
    except ImportError:
        worst, partner, beyond = _rates(domain, likelihood, row, finite, covered, limit)
    else:
        worst, partner, beyond = composed_rates(
            *coordinates(domain.metric, np.arange(domain.size)),
            likelihood,
            row,
            row_spreads(finite),
            covered,
            limit,
            SLACK,
        )
    x = int(worst[1:].argmax()) + 1
    pair = (int(partner[x]), x)
    certain = worst[x] * domain.distance(*pair) > -IMPOSSIBLE / 2
    return float("inf") if certain else float(worst[x]), pair, int(beyond.sum())


def _rates(
    domain: Domain,
    likelihood: FloatArray,
    row: IntArray,
    logs: FloatArray,
    counted: BoolArray,
    limit: float,
) -> tuple[FloatArray, IntArray, IntArray]:
    """The compiled kernel's answer in NumPy, record by record."""
    worst = np.zeros(domain.size)
    partner = np.zeros(domain.size, dtype=np.int64)
    beyond = np.zeros(domain.size, dtype=np.int64)
    for x in range(1, domain.size):
        others = np.arange(x)
        apart = domain.metric.pairs(np.full(x, x), others)
        leak = likelihood[x] - likelihood[:x]
        difference = logs[row[x]] - logs[row[:x]]
        up = np.maximum(difference.max(axis=1), 0.0)
        down = np.maximum(-difference.min(axis=1), 0.0)
        loss = np.where(counted[x] | counted[:x], np.maximum(leak + up, down - leak), 0.0)
        beyond[x] = int((loss > limit * apart + SLACK).sum())
        rates = loss / apart
        partner[x] = int(rates.argmax())
        worst[x] = max(0.0, float(rates[partner[x]]))
    return worst, partner, beyond


def _bound(run: PandaRun) -> tuple[float | None, tuple[int, int] | None]:
    """An upper bound on every pair's violation probability, and where it is largest."""
    if run.ball is not None:
        law, table = run.ball, run.tables[0].mechanism
        if not isinstance(run.selection, BallAnchors):
            return None, None
        x = int(law.missed.argmax())
        x2 = int(law.domain.neighbours(1)[0][x, 0])
        centre = law.mechanism.audit.epsilon
        if run.selection.outside == "extend":
            within = centre <= run.selection.epsilon and extensions_pass(
                run.problem, table, law, run.problem.epsilon - run.selection.epsilon
            )
            return (0.0 if within else 1.0), (x, x2)
        within = centre + 2 * table.audit.epsilon <= run.problem.epsilon
        return (float(law.missed.max()) if within else 1.0), (x, x2)
    plan = run.full_plan
    if plan is None or not isinstance(run.selection, BernoulliAnchors):
        return None, None
    law_ = run.selection.on(run.problem.domain)
    found = certify(law_, run.problem.epsilon, run.delta, plan.budgets, plan.delta_selection)
    return found.violation, found.pair


def _drawn(run: PandaRun, draws: int, confidence: float, seed: int | None) -> DrawAudit:
    """Draw records from the prior and sets from them; look at all pairs with that record."""
    problem, domain = run.problem, run.problem.domain
    bits = source_of(seed)
    row = quantise(problem.prior[None, :])[0]
    records = np.searchsorted(np.cumsum(row), bits.integers(draws), side="right")
    known = Losses(run)
    certain = possible = 0
    for record in records:
        anchors = run.selection.draw(domain, int(record), bits)
        if len(anchors) == 0:
            certain, possible = certain + 1, possible + 1
            continue
        low, high = _losses(run, known, anchors, int(record))
        limit = problem.epsilon * domain.metric.pairs(
            np.full(domain.size, record), np.arange(domain.size)
        )
        room = SLACK * (1 + limit)
        others = np.arange(domain.size) != record
        certain += bool((low > limit + room)[others].any())
        possible += bool((high > limit - room)[others].any())
    low_limit = interval(certain, draws, confidence)[0]
    high_limit = interval(possible, draws, confidence)[1]
    return DrawAudit(draws, certain, possible, low_limit, high_limit, confidence)


def _losses(
    run: PandaRun, known: Losses, anchors: IntArray, record: int
) -> tuple[FloatArray, FloatArray]:
    """Bounds on the loss of a set between one record and all others."""
    likelihood = set_likelihoods(run, anchors)
    leaks = likelihood[record] - likelihood
    if run.ball is not None:
        row, logs = _rows(run, anchors, run.tables[0])
        difference = logs[row[record]] - logs
        up, down = difference.max(axis=1)[row], -difference.min(axis=1)[row]
        high = np.maximum(leaks + up, down - leaks)
        return high, high
    ends = anchors[surrogates(run.problem.domain, anchors)]
    used, at = np.unique(ends, return_inverse=True)
    spreads = [known.between(int(ends[record]), int(other)) for other in used]
    up, down = np.array([s[0] for s in spreads])[at], np.array([s[1] for s in spreads])[at]
    exact = np.array([s[2] for s in spreads])[at]
    high = np.maximum(leaks + up, down - leaks)
    return np.where(exact, high, np.abs(leaks)), high
