"""The audit of a run of PAnDA: the composed mechanism, standard definition, one user."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from panda_mdp.base.arrays import IntArray
from panda_mdp.errors import MethodError
from panda_mdp.panda.accounts.composed import PairScan, scan_pairs
from panda_mdp.panda.accounts.violation import SLACK, Definition, Violation, interval
from panda_mdp.panda.anpo import AnchorTable
from panda_mdp.panda.options import source_of
from panda_mdp.panda.result import PandaNoGuarantee, PandaResult
from panda_mdp.panda.schemes.scheme import Scheme
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.privacy.quantise import quantise
from panda_mdp.privacy.sampler import BitSource, SystemBits
from panda_mdp.space.domain import check_indices

Run = PandaResult | PandaNoGuarantee


@dataclass(frozen=True)
class SetAudit:
    """One anchor set that was drawn: the privacy loss of set and report over all pairs.

    Of all pairs, also those for which the set is most unlikely, and with whichever report tells
    the most: how seldom that happens is `PandaAudit.violation`'s to say, and delta's to cover.
    """

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
        broken = sum(1 for audited in self.sets if audited.covered_violations)
        worst = max((audited.covered_epsilon for audited in self.sets), default=0.0)
        said = f"no pair exceeds epsilon in any of {len(self.sets)} sets drawn"
        if broken:
            covered = "which that probability covers" if self.holds else "which nothing covers"
            said = (
                f"in {broken} of {len(self.sets)} sets drawn some pair would, if this set and the "
                f"rarest report came out for it, {covered}; largest {worst:.4g} per {self.unit}"
            )
        return (
            f"PandaAudit({verdict}: epsilon {self.epsilon:g} per {self.unit}, delta "
            f"{self.delta:g}; any one pair exceeds epsilon with probability {bound}; {said})"
        )


def audit_panda(
    run: Run,
    *,
    draws: int = 0,
    confidence: float = 0.99,
    seed: int | None = None,
) -> PandaAudit:
    """Audit a run: one user, anchors and report together, the same released set for both records.

    For every anchor set that was drawn the loss max_y |l(x, x'; A) + log z(y|s) / z(y|s')| is
    exact over all pairs x, x' of the domain. The claim is checked over the drawing of sets by the
    account of the scheme, computed again. With `draws`, as many fresh sets are drawn for records
    from the prior, with confidence limits; their tables are not the run's, so their rows count by
    the budgets that any table keeps, unless the table is the same whatever anybody draws.
    """
    if draws < 0 or not 0 < confidence < 1:
        msg = f"draws is {draws} and confidence {confidence}; give a count and a probability"
        raise MethodError(msg)
    seen: dict[tuple[bytes, int], SetAudit] = {}
    sets = []
    for n, chosen in enumerate(run.anchor_sets):
        table = run.table_of(n)
        key = (chosen.tobytes(), id(table))
        if len(chosen) and key not in seen:
            seen[key] = audit_set(run.scheme, chosen, table)
        if len(chosen):
            sets.append(seen[key])
    account = run.scheme.account()
    claimed = run.guarantee
    confirmed = claimed is not None and account is not None and account.violation <= claimed.delta
    return PandaAudit(
        holds=confirmed,
        claimed=claimed,
        epsilon=run.problem.epsilon,
        delta=run.delta,
        unit=run.problem.domain.unit,
        violation=None if account is None else account.violation,
        worst=None if account is None else account.pair,
        sets=tuple(sets),
        drawn=_drawn(run, draws, confidence, seed) if draws else None,
    )


def audit_set(scheme: Scheme, anchors: IntArray, table: AnchorTable) -> SetAudit:
    """The composed mechanism's loss for one anchor set, over all pairs of records."""
    domain, epsilon = scheme.problem.domain, scheme.problem.epsilon
    likelihood, scan = scheme.log_likelihoods(anchors), _scan(scheme, anchors, table)
    total = scan.worst(likelihood, epsilon)
    counted = scheme.counted(anchors)
    covered = total if counted.all() else scan.worst(likelihood, epsilon, counted)
    return SetAudit(
        epsilon=total[0],
        worst=total[1],
        violations=total[2],
        pairs=domain.size * (domain.size - 1) // 2,
        selection_epsilon=set_epsilon(scheme, anchors),
        report_epsilon=scan.worst(np.zeros(domain.size), epsilon)[0],
        covered_epsilon=covered[0],
        covered_violations=covered[2],
    )


def set_epsilon(scheme: Scheme, anchors: IntArray) -> float:
    """What a released set alone costs per unit of distance, over all pairs of records."""
    domain = scheme.problem.domain
    none = np.zeros(domain.size, dtype=np.int64)
    likelihood = scheme.log_likelihoods(anchors)
    return scan_pairs(domain, likelihood, none, np.zeros((1, 1)), scheme.problem.epsilon)[0]


def report_epsilon(scheme: Scheme, anchors: IntArray, table: AnchorTable) -> float:
    """What a report from a set costs per unit of distance, as if the set told nothing."""
    nothing = np.zeros(scheme.problem.size)
    return _scan(scheme, anchors, table).worst(nothing, scheme.problem.epsilon)[0]


def _scan(scheme: Scheme, anchors: IntArray, table: AnchorTable) -> PairScan:
    rows, row = scheme.rows(anchors, table)
    with np.errstate(divide="ignore"):
        logs = np.log(rows.astype(np.float64))
    return PairScan(scheme.problem.domain, row, logs)


def violation(
    run: Run,
    x: int,
    x2: int,
    *,
    definition: Definition = "standard",
    draws: int = 2_000,
    confidence: float = 0.99,
    source: BitSource | None = None,
) -> Violation:
    """The violation probability of a pair of records in a run of PAnDA.

    Standard: all releases are enumerated for balls, all sets for at most 14 candidates; otherwise
    `draws` sets of each hypothesis give confidence limits, which cannot see below about 5 / draws
    and never claim to, and the surrogates of one set are enumerated for an upper bound; the
    smaller counts. Exact only where the table is the same whatever the user draws. Paper's: two
    users, exact up to surrogates that are together rarer than delta / 1000.
    """
    scheme = run.scheme
    domain = scheme.problem.domain
    pair = check_indices([x, x2], domain.size, "records", MethodError)
    if pair[0] == pair[1]:
        msg = "a record has no privacy loss against itself; give two different records"
        raise MethodError(msg)
    settled = scheme.settled(run.anchor_sets, run.tables)
    if definition == "paper":
        return scheme.paper_violation(settled, pair)
    if definition != "standard":
        msg = f"definition is {definition!r}; choose 'standard' or 'paper'"
        raise MethodError(msg)
    distance = domain.distance(int(pair[0]), int(pair[1]))
    limit = scheme.problem.epsilon * distance
    everything = scheme.enumeration(settled, pair)
    if everything is not None:
        return everything.violation(limit, distance, run.delta)
    lower, upper = 0.0, 0.0
    bits = SystemBits() if source is None else source
    for k in (0, 1):
        record, other = int(pair[k]), pair[1 - k : 2 - k]
        certain = possible = 0
        for _ in range(draws):
            low, high = _beyond(scheme, settled, record, other, bits)
            certain, possible = certain + low, possible + high
        lower = max(lower, interval(certain, draws, confidence)[0])
        upper = max(upper, interval(possible, draws, confidence)[1])
    bound = scheme.pair_bound(pair)
    if bound < upper:
        effective = scheme.problem.epsilon if bound <= run.delta else float("inf")
        return Violation(min(lower, bound), bound, effective, "surrogates of one set")
    method = f"{draws:,} sets, {confidence:.0%} confidence"
    return Violation(lower, upper, float("inf"), method)


def _drawn(run: Run, draws: int, confidence: float, seed: int | None) -> DrawAudit:
    """Draw records from the prior and sets from them; look at all pairs with that record."""
    scheme = run.scheme
    bits = source_of(seed)
    row = quantise(scheme.problem.prior[None, :])[0]
    records = np.searchsorted(np.cumsum(row), bits.integers(draws), side="right")
    settled = scheme.settled(run.anchor_sets, run.tables)
    certain = possible = 0
    for record in records:
        others = np.delete(np.arange(scheme.problem.size), record)
        low, high = _beyond(scheme, settled, int(record), others, bits)
        certain, possible = certain + low, possible + high
    low_limit = interval(certain, draws, confidence)[0]
    high_limit = interval(possible, draws, confidence)[1]
    return DrawAudit(draws, certain, possible, low_limit, high_limit, confidence)


def _beyond(
    scheme: Scheme, settled: AnchorTable | None, record: int, others: IntArray, bits: BitSource
) -> tuple[bool, bool]:
    """Whether a fresh set of a record certainly, or possibly, exceeds eps d for one of others."""
    anchors = scheme.draw(record, bits)
    if len(anchors) == 0:
        return True, True
    domain = scheme.problem.domain
    likelihood = scheme.log_likelihoods(anchors)
    spreads = scheme.spreads(settled, anchors, record, others)
    low, high = spreads.losses(likelihood[record] - likelihood[others])
    limit = scheme.problem.epsilon * domain.metric.pairs(np.full(len(others), record), others)
    room = SLACK * (1 + limit)
    return bool((low > limit + room).any()), bool((high > limit - room).any())
