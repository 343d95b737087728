"""The audit of a run of PAnDA: the composed mechanism, standard definition, one user.

One user releases a set and a report; the loss of a release R is log P_x(R) / P_x'(R), and the
violation probability the larger, over the two hypotheses, of Pr[|loss| > eps d]. Where reports are
not told apart, the largest loss over outputs counts for the set. The paper's definition
(Proposition 4) is about two users with independent sets, and does not imply this one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.panda.anpo import AnchorTable
from panda_mdp.panda.run import PandaNoGuarantee, PandaResult
from panda_mdp.panda.selection import SLACK, Scheme
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.space.domain import Domain
from panda_mdp.space.tiles import coordinates

Run = PandaResult | PandaNoGuarantee
IMPOSSIBLE = -1e6
"""Stands for the logarithm of 0 in sums: larger than any real loss, and finite."""


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


@dataclass(frozen=True)
class PandaAudit:
    """What a run of PAnDA really guarantees."""

    holds: bool
    """Whether the run claims a guarantee and the audit confirms it over all pairs of records."""
    claimed: Guarantee | None
    epsilon: float
    delta: float
    unit: str
    violation: float
    """An upper bound on the violation probability of every pair; 1 where none is known."""
    worst: tuple[int, int]
    """The pair of records with the largest bound."""
    sets: tuple[SetAudit, ...]
    """One for each user's anchor set, exact over all pairs."""

    def __repr__(self) -> str:
        verdict = "holds" if self.holds else "NO GUARANTEE HOLDS"
        bound = "unknown" if self.violation >= 1 else f"at most {self.violation:.4g}"
        broken = sum(audited.violations > 0 for audited in self.sets)
        worst = max((audited.epsilon for audited in self.sets), default=0.0)
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


def audit_panda(run: Run) -> PandaAudit:
    """Audit a run: one user, anchors and report together, the same released set for both records.

    For every anchor set that was drawn the loss max_y |l(x, x'; A) + log z(y|s) / z(y|s')| is
    exact over all pairs x, x' of the domain. The claim is checked over the drawing of sets by the
    account of the scheme.
    """
    seen: dict[bytes, SetAudit] = {}
    drawn = [release for release in run.releases if len(release)]
    for release in drawn:
        if release.tobytes() not in seen:
            seen[release.tobytes()] = audit_set(run.scheme, release, run.table)
    account = run.scheme.account
    claimed = run.guarantee
    return PandaAudit(
        holds=claimed is not None and account.violation <= claimed.delta,
        claimed=claimed,
        epsilon=run.problem.epsilon,
        delta=run.scheme.delta,
        unit=run.problem.domain.unit,
        violation=account.violation,
        worst=account.pair,
        sets=tuple(seen[release.tobytes()] for release in drawn),
    )


def audit_set(scheme: Scheme, release: IntArray, table: AnchorTable) -> SetAudit:
    """The composed mechanism's loss for one release, over all pairs of records."""
    domain = scheme.problem.domain
    epsilon = scheme.problem.epsilon
    rows, row = scheme.rows(release, table)
    likelihood = scheme.log_likelihoods(release)
    largest, pair, violations = worst_pair(domain, rows, row, likelihood, epsilon)
    alike = np.ones((1, 1)), np.zeros(domain.size, np.int64)
    return SetAudit(
        epsilon=largest,
        worst=pair,
        violations=violations,
        pairs=domain.size * (domain.size - 1) // 2,
        selection_epsilon=worst_pair(domain, *alike, likelihood, epsilon)[0],
    )


def worst_pair(
    domain: Domain, rows: FloatArray, row: IntArray, likelihood: FloatArray, epsilon: float
) -> tuple[float, tuple[int, int], int]:
    """Largest loss per distance of one released set, its pair, and the pairs beyond epsilon, from
    rows, which of them is each record's, and how likely each draws the set."""
    from panda_mdp.compute.numba import anchors

    # An output that no row has tells nothing; one that some rows lack tells everything.
    with np.errstate(divide="ignore"):
        logs = np.maximum(np.log(rows[:, rows.any(axis=0)]), IMPOSSIBLE)
    places = coordinates(domain.metric, np.arange(domain.size))
    spreads = anchors.row_spreads(np.ascontiguousarray(logs))
    limit = epsilon * (1 + SLACK)
    worst, partner, beyond = anchors.composed_rates(places, likelihood, row, spreads, limit, SLACK)
    x = int(worst[1:].argmax()) + 1
    pair = (int(partner[x]), x)
    certain = worst[x] * domain.distance(*pair) > -IMPOSSIBLE / 2
    return float("inf") if certain else float(worst[x]), pair, int(beyond.sum())
