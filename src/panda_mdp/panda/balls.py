"""Ball anchors: all records within a radius of a centre that is drawn privately, and both phases.

The centre c is drawn by a law that is eps_1-mDP by audit (`centres`). The anchors are all records
within r of c. The centre determines the anchors, so releasing them costs eps_1. One audited table
over the domain serves every user and every ball; all records outside a ball report from one row of
that ball.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from panda_mdp.base.arrays import Described, FloatArray, IntArray, frozen
from panda_mdp.errors import MethodError, PhaseOneCostError, SurrogateError
from panda_mdp.panda.anpo import AnchorTable
from panda_mdp.panda.candidates import spread_out
from panda_mdp.panda.centres import BallLaw
from panda_mdp.panda.selection import (
    DEFAULT_OPTIONS,
    Account,
    BudgetShares,
    PandaOptions,
    Scheme,
    Selection,
    Violation,
    check_delta,
    check_epsilon,
    log_ratios,
    sum_violation,
)
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.privacy.quantise import TOTAL, quantise
from panda_mdp.privacy.sampler import BitSource, choose_rows
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain, check_indices
from panda_mdp.table.mechanism import Mechanism

FEWEST_CENTRES, MOST_CENTRES = 256, 1_024
"""Larger domains use this many public centres, spread out, unless others are given."""
CENTRE_WORK = 5e9
"""Pairs of records times centres that an audit of the centres should look at."""
DELTA = 1e-7
"""How often a ball may miss its record where nothing says otherwise."""
RADIUS_STEP = 0.02
"""How near the radius comes to the least one, relatively."""
BINS = 256
"""Log-ratios are rounded outward to so many steps."""
NEGLIGIBLE = 1e-3
"""Balls that together add at most this share of delta count in full for every pair."""
RECORDS_AT_ONCE = 64
"""Records that are compared with all others at a time."""
MOST_PAIRWISE = 9_000
"""Beyond this many records the account of balls is kept per record, not per pair."""


@dataclass(frozen=True, eq=False)
class BallAnchors(Selection):
    """Release all records within a radius of a centre that is drawn privately.

    `epsilon` (eps_1, per unit of distance) is what the centre may tell, `delta` the largest
    probability that a user's own record is outside the ball; where it is None, the delta of the
    run. `candidates` are the public centres: by default all records, or 256 to 1,024 that are
    spread out where the domain is larger. They are drawn by the law
    with the smallest balls that the audit allows at epsilon.

    >>> domain = Domain.from_vectors([[float(i)] for i in range(9)])
    >>> anchors = BallAnchors(epsilon=2.0, delta=1e-3)
    >>> law = anchors.on(domain)
    >>> law.radius, law.mechanism.audit.epsilon <= 2.0, bool(law.missed.max() <= 1e-3)
    (3.0, True, True)
    """

    epsilon: float
    delta: float | None = None
    candidates: IntArray | None = None

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if self.delta is not None:
            check_delta(self.delta)
        if self.candidates is not None:
            chosen = np.unique(np.asarray(self.candidates, dtype=np.int64))
            if len(chosen) == 0:
                raise MethodError(
                    "candidates is empty; name at least one centre, or None for a default"
                )
            object.__setattr__(self, "candidates", frozen(chosen))

    def __repr__(self) -> str:
        centres = "" if self.candidates is None else f", {len(self.candidates)} centres"
        missed = "" if self.delta is None else f", delta={self.delta:g}"
        return f"BallAnchors(epsilon={self.epsilon:g}{missed}{centres})"

    def on(self, domain: Domain) -> BallLaw:
        """The law of centres on a domain, computed once."""
        law: BallLaw = super().on(domain)
        return law

    def _law(self, domain: Domain) -> BallLaw:
        centres = self.candidates
        if centres is None:
            most = min(max(FEWEST_CENTRES, int(CENTRE_WORK / domain.size**2)), MOST_CENTRES)
            centres = spread_out(domain, min(domain.size, most))
        centres = check_indices(centres, domain.size, "candidates", MethodError)
        missed = DELTA if self.delta is None else self.delta
        return BallLaw.build(domain, centres, self.epsilon, missed)

    def scheme(
        self, problem: Problem, delta: float, options: PandaOptions = DEFAULT_OPTIONS
    ) -> BallScheme:
        """Both phases of this selection on a problem."""
        return BallScheme(problem, self, delta, options)


@dataclass(frozen=True, eq=False)
class BallScheme(Scheme):
    """One table serves every user and every ball; outside, one row for everybody.

    Two records inside differ by at most (eps_1 + eps_2) d, two records outside have the same row,
    the mean of the ball's rows. Where x is inside and x' outside, the report's log-ratio to the
    common row may exceed eps_2 d. How often it does is summed for every pair, and the radius is the
    least for which no pair exceeds delta (docs/panda.md has the proof). So (eps_1 + eps_2, delta).
    """

    selection: BallAnchors
    row_words: ClassVar = "the own row, or outside the ball from one row that is the same for all"

    @cached_property
    def centres(self) -> BallLaw:
        """The law of centres."""
        return self.selection.on(self.problem.domain)

    @cached_property
    def law(self) -> BallLaw:
        """Centres, and the least radius that keeps delta, from the one on that misses records
        seldom enough: as the selection says, or delta."""
        missed = self.selection.delta
        law = self.centres.missing(self.delta if missed is None else missed)
        low, high, most = law.radius, law.radius, float(law.distance.max())
        while high < most and not self._keeps(law.with_radius(high)):
            low, high = high, min(most, 1.1 * high)
        while high - low > RADIUS_STEP * high:
            middle = (low + high) / 2
            keeps = self._keeps(law.with_radius(middle))
            low, high = (low, middle) if keeps else (middle, high)
        return law.with_radius(high)

    def _keeps(self, law: BallLaw) -> bool:
        """Whether balls of a radius keep delta."""
        common = common_rows(self.problem, law, self.mechanism)
        found = boundary(self.problem, law, self.mechanism, common, self.delta, enough=self.delta)
        return found.violation <= self.delta

    def missing(self, missed: float, delta: float) -> BallScheme:
        """The same centres and table, with balls that miss their record at most so often."""
        selection = replace(self.selection, delta=missed).holding(self.centres)
        other = replace(self, selection=selection, delta=delta)
        return other.holding(mechanism=self.mechanism)

    @property
    def left(self) -> float:
        """What the centre leaves for the report, per unit of distance."""
        return self.problem.epsilon - self.selection.epsilon

    @cached_property
    def mechanism(self) -> Mechanism:
        """The domain's table: public, the same for everyone, audited over all pairs."""
        slack = self.problem.domain.metric.triangle_slack
        return self.options.table(self.problem.with_epsilon(self.left * (1 - slack)))

    @cached_property
    def account(self) -> Account:
        eps_1, epsilon = self.selection.epsilon, self.problem.epsilon
        if eps_1 >= epsilon:
            msg = (
                f"the centre alone costs {eps_1:g} per {self.problem.domain.unit} and epsilon is "
                f"{epsilon:g}: nothing is left for the report; give BallAnchors a smaller one"
            )
            return Account(1.0, (0, 1), PhaseOneCostError(msg, value=eps_1, limit=epsilon))
        common = self.outside_rows[self.law.firsts]
        found = boundary(self.problem, self.law, self.mechanism, common, self.delta)
        if found.violation <= self.delta:
            return found
        msg = (
            f"records {found.pair[0]} and {found.pair[1]} may be told apart by the edge of a "
            f"ball with probability {found.violation:.4g}, and delta is {self.delta:g}"
        )
        failure = SurrogateError(msg, value=found.violation, limit=self.delta, pair=found.pair)
        return replace(found, failure=failure)

    @property
    def selection_epsilon(self) -> float:
        return self.law.mechanism.audit.epsilon

    @property
    def audited_epsilon(self) -> float:
        return self.selection_epsilon + self.mechanism.audit.epsilon

    @property
    def further(self) -> Guarantee:
        """A ball's centre is told once, eps - eps_1 is left, and another report may be at the
        edge of the ball again."""
        return Guarantee(self.left, self.delta, self.problem.domain.unit)

    @property
    def stated(self) -> Described:
        said = {
            "kind": "ball",
            "epsilon": self.selection.epsilon,
            "table_epsilon": self.mechanism.epsilon,
            "radius": self.law.radius,
            "outside": "common",
        }
        return said, {
            "weights": np.asarray(self.mechanism.weights),
            "centres": self.law.centres,
            "centre_weights": np.asarray(self.law.mechanism.weights),
            "outside_weights": self.outside_rows,
        }

    @cached_property
    def whole_table(self) -> AnchorTable:
        everyone = np.arange(self.problem.size)
        return AnchorTable(everyone, everyone, self.mechanism)

    def solve(self, sets: tuple[IntArray, ...]) -> AnchorTable:
        return self.whole_table

    @cached_property
    def outside_rows(self) -> IntArray:
        """The integer row of everybody outside the ball of each centre, (centres, m)."""
        return frozen(common_rows(self.problem, self.law, self.mechanism)[self.law.group])

    @cached_property
    def report_rows(self) -> IntArray:
        """Rows of all records, then one for everybody outside the ball of each centre."""
        return frozen(np.concatenate([np.asarray(self.mechanism.weights), self.outside_rows]))

    def row_of(self, records: IntArray, centres: IntArray) -> IntArray:
        """The row of `report_rows` that each record reports from when that centre was drawn."""
        inside = self.law.distance[records, centres] <= self.law.radius
        return np.where(inside, records, self.problem.size + centres)

    def rows(
        self, anchors: IntArray, table: AnchorTable, records: IntArray | None = None
    ) -> tuple[IntArray, IntArray]:
        """The own row inside the ball; records outside have one."""
        some = np.arange(self.problem.size) if records is None else records
        centre = self.law.firsts[self.law.group_of(anchors)]
        used, row = np.unique(self.row_of(some, centre), return_inverse=True)
        return self.report_rows[used], row.reshape(-1)

    def draw_rows(self, records: IntArray, bits: BitSource) -> IntArray:
        return self.row_of(records, choose_rows(self.law.mechanism.weights, records, bits))

    @cached_property
    def marginal(self) -> FloatArray:
        inside, chances = self.law.distance <= self.law.radius, self.law.mechanism.matrix
        own = np.where(inside, chances, 0.0).sum(axis=1)[:, None] * self.mechanism.matrix
        outside = np.where(inside, 0.0, chances)
        return frozen(own + outside @ (self.outside_rows / float(TOTAL)))

    def shares(self, anchors: IntArray) -> BudgetShares:
        first = self.selection.epsilon / self.problem.epsilon
        last = self.mechanism.epsilon / self.problem.epsilon
        return BudgetShares(first, 1.0 - first - last, last)

    def settled(self, sets: tuple[IntArray, ...], table: AnchorTable) -> AnchorTable | None:
        return table

    def violation(self, table: AnchorTable | None, pair: IntArray) -> Violation:
        """All balls and all reports."""
        law = self.law
        counts = np.asarray(law.mechanism.weights)[pair] @ law.members
        leaks = np.log(counts[0].astype(np.float64)) - np.log(counts[1].astype(np.float64))
        reports = self.report_rows[self.row_of(pair[:, None], law.firsts)]
        losses = np.abs(leaks[:, None] + log_ratios(reports[0], reports[1])).ravel()
        masses = (counts[:, :, None] / float(TOTAL) * (reports / float(TOTAL))).reshape(2, -1)
        return sum_violation(self, pair, losses, losses, masses, "all balls and reports")


def common_rows(problem: Problem, law: BallLaw, mechanism: Mechanism) -> IntArray:
    """The integer row of everybody outside, for every group of equal balls, (groups, m).

    The mean of the ball's rows under the prior, each times exp(-eps_2 t), eps_2 what the centre
    leaves and t how deep the record lies in the ball: a record at depth t is compared with records
    that are at least t away.
    """
    left = problem.epsilon - law.mechanism.epsilon
    depth = law.radius - law.distance[:, law.firsts]
    inside = np.where(depth >= 0, depth, np.inf)
    # From the least depth of each ball on: all of a wide one may lie deeper than exp reaches.
    weights = np.exp(-left * (inside - inside.min(axis=0)))
    likely = weights * problem.prior[:, None]
    weights = np.where(likely.sum(axis=0) > 0, likely, weights)
    return quantise((weights / weights.sum(axis=0)).T @ mechanism.matrix)


def boundary(
    problem: Problem,
    law: BallLaw,
    mechanism: Mechanism,
    common: IntArray,
    delta: float,
    *,
    enough: float = 0.0,
    most_pairwise: int = MOST_PAIRWISE,
) -> Account:
    """The largest violation probability over all pairs, for balls with one row for all outside.

    `common` has that row for every group of equal balls. First a bound per record, by the triangle
    inequality. Then per pair, from the record with the largest bound down, until no bound that is
    left exceeds what was summed, or `enough`. Beyond `most_pairwise` records the bounds are the
    answer. All are upper bounds: distances are rounded down to a grid, and what the centre tells
    counts with its audited epsilon.
    """
    from panda_mdp.panda.kernels import balls as kernels
    from panda_mdp.panda.kernels import distance as metrics

    domain, rows = problem.domain, np.asarray(mechanism.weights)
    room = problem.epsilon - law.mechanism.audit.epsilon
    impossible = ((common == 0) & rows.any(axis=0)).any()
    if mechanism.audit.epsilon > room or room <= 0 or impossible:
        return Account(1.0, (0, 1))
    # Columns that nobody uses are passed over.
    logs, common_logs = (np.log(np.maximum(some, 1).astype(np.float64)) for some in (rows, common))
    ends = np.stack([logs.max(axis=0), logs.min(axis=0)])
    largest = float(np.abs(ends[:, None] - common_logs).max())
    step = largest * (1 + 1e-9) / (BINS - 1) + 1e-9
    balls = kernels.Balls(
        np.ascontiguousarray((law.mechanism.matrix @ law.members).T),
        np.ascontiguousarray(law.distance[:, law.firsts].T),
        law.radius,
        domain.metric.triangle_slack,
        mechanism.matrix,
        logs,
        common / float(TOTAL),
        common_logs,
        room * (1 - 1e-11),
        step,
        delta * NEGLIGIBLE / len(common),
    )
    outer = kernels.common_tails(balls, BINS)
    bounds = kernels.ring_masses(balls, outer)
    order = np.argsort(-bounds, kind="stable")
    if problem.size > most_pairwise:
        x = int(order[0])
        return Account(float(bounds[x]), (x, int(domain.neighbours(1)[0][x, 0])))
    places = metrics.coordinates(domain.metric, np.arange(domain.size))
    worst = Account(0.0, (0, 1))
    for begin in range(0, problem.size, RECORDS_AT_ONCE):
        some = order[begin : begin + RECORDS_AT_ONCE]
        left = float(bounds[some[0]])
        if left <= worst.violation or worst.violation > enough > 0:
            break
        if left <= enough:
            return Account(left, worst.pair)
        masses, partner = kernels.boundary_masses(places, balls, outer, some)
        k = int(masses.argmax())
        if masses[k] > worst.violation:
            worst = Account(float(masses[k]), (int(some[k]), int(partner[k])))
    return Account(worst.violation * (1 + 1e-12), worst.pair)
