"""Ball anchors: all records within a radius of a centre that is drawn privately, and both phases.

The centre c is drawn by a law that is eps_1-mDP by audit (`centres`). The anchors are all records
within r of c. The centre determines the anchors, so releasing them costs eps_1. One audited table
over the domain serves every user and every ball; what a record outside its ball does is the
scheme's: `CommonBalls` or `NearestBalls`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import scipy

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray, Rebuilt, frozen
from panda_mdp.errors import (
    InfeasibleError,
    MethodError,
    PhaseOneCostError,
    ShortfallError,
    SurrogateError,
)
from panda_mdp.panda.anpo import AnchorTable, solver_of
from panda_mdp.panda.candidates import spread_out
from panda_mdp.panda.centres import BallLaw, CentreLaw
from panda_mdp.panda.law import surrogates
from panda_mdp.panda.selection import (
    DEFAULT_OPTIONS,
    Account,
    BudgetShares,
    Enumeration,
    PandaOptions,
    Scheme,
    Selection,
    Start,
    Violation,
    check_choice,
    check_delta,
    check_epsilon,
    log_ratios,
)
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.privacy.quantise import TOTAL, quantise
from panda_mdp.privacy.sampler import BitSource, choose_rows
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain, check_indices
from panda_mdp.table.mechanism import Mechanism

Outside = Literal["common", "nearest"]
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
MARGINAL_ROWS = 4_096
"""Records whose reports are summed at a time."""


@dataclass(frozen=True, eq=False)
class BallAnchors(Rebuilt, Selection):
    """Release all records within a radius of a centre that is drawn privately.

    `epsilon` (eps_1, per unit of distance) is what the centre may tell, `delta` the largest
    probability that a user's own record is outside the ball; where it is None, the delta of the
    run. `candidates` are the public centres: by default all records, or 256 to 1,024 that are
    spread out where the domain is larger. `centre` is the law they are drawn by: the "tightest"
    that the audit allows at epsilon, whose balls are the smallest, or the "exponential" mechanism,
    its exponent raised until the audit meets epsilon.

    `outside` says what a record outside its ball does. "common": all report from one row of that
    ball, the table has eps - eps_1, and the account is kept for every pair. "nearest": the nearest
    record inside, which needs a table at (eps - eps_1) / 2.

    >>> domain = Domain.from_vectors([[float(i)] for i in range(9)])
    >>> anchors = BallAnchors(epsilon=2.0, delta=1e-3)
    >>> law = anchors.on(domain)
    >>> law.radius, law.mechanism.audit.epsilon <= 2.0, bool(law.missed.max() <= 1e-3)
    (3.0, True, True)
    """

    epsilon: float
    delta: float | None = None
    candidates: IntArray | None = None
    outside: Outside = "common"
    centre: CentreLaw = "tightest"
    _laws: WeakKeyDictionary[Domain, BallLaw] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False
    )

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if self.delta is not None:
            check_delta(self.delta)
        check_choice("outside", self.outside, Outside)
        check_choice("centre", self.centre, CentreLaw)
        if self.candidates is not None:
            chosen = np.unique(np.asarray(self.candidates, dtype=np.int64))
            if len(chosen) == 0:
                msg = "candidates is empty; name at least one centre, or None for a default"
                raise MethodError(msg)
            object.__setattr__(self, "candidates", frozen(chosen))

    def __repr__(self) -> str:
        centres = "" if self.candidates is None else f", {len(self.candidates)} centres"
        missed = "" if self.delta is None else f", delta={self.delta:g}"
        outside = "" if self.outside == "common" else f", outside={self.outside!r}"
        law = "" if self.centre == "tightest" else f", centre={self.centre!r}"
        return f"BallAnchors(epsilon={self.epsilon:g}{missed}{centres}{outside}{law})"

    def on(self, domain: Domain) -> BallLaw:
        """The law of centres on a domain, computed once."""
        if domain not in self._laws:
            if self.candidates is None:
                most = FEWEST_CENTRES
                if self.centre == "tightest":
                    work = int(CENTRE_WORK / domain.size**2)
                    most = min(max(FEWEST_CENTRES, work), MOST_CENTRES)
                centres = spread_out(domain, min(domain.size, most))
            else:
                centres = check_indices(self.candidates, domain.size, "candidates", MethodError)
            missed = DELTA if self.delta is None else self.delta
            self._laws[domain] = BallLaw.build(domain, centres, self.epsilon, missed, self.centre)
        return self._laws[domain]

    def scheme(
        self, problem: Problem, delta: float, options: PandaOptions = DEFAULT_OPTIONS
    ) -> BallScheme:
        """Both phases of this selection on a problem."""
        kind = CommonBalls if self.outside == "common" else NearestBalls
        return kind(problem, self, delta, options)


@dataclass(frozen=True, eq=False)
class BallScheme(Scheme):
    """One table serves every user and every ball; records outside their ball differ by kind."""

    selection: BallAnchors

    @cached_property
    def law(self) -> BallLaw:
        """The law of centres, and the least radius that misses records seldom enough."""
        return self.selection.on(self.problem.domain).missing(self.missed)

    @property
    def missed(self) -> float:
        """How often a record may be outside its ball: the selection's word, or delta."""
        return self.delta if self.selection.delta is None else self.selection.delta

    def missing(self, delta: float) -> BallScheme:
        """The same centres and table, with balls that miss their record at most so often."""
        selection = self.selection
        other = BallAnchors(
            selection.epsilon, delta, selection.candidates, selection.outside, selection.centre
        )
        other._laws[self.problem.domain] = selection.on(self.problem.domain)
        scheme = other.scheme(self.problem, self.delta, self.options)
        return scheme.holding(mechanism=self.mechanism)

    @property
    def left(self) -> float:
        """What the centre leaves for the report, per unit of distance."""
        return self.problem.epsilon - self.selection.epsilon

    @property
    @abstractmethod
    def mechanism(self) -> Mechanism:
        """The domain's table: public, the same for everyone, audited over all pairs."""

    @abstractmethod
    def row_of(self, records: IntArray, centres: IntArray) -> IntArray:
        """The row of `report_rows` that each record reports from when that centre was drawn."""

    @abstractmethod
    def edge_account(self) -> Account:
        """How often records are told apart because one of them is outside the ball."""

    @cached_property
    def account(self) -> Account:
        eps_1, epsilon = self.selection.epsilon, self.problem.epsilon
        if eps_1 < epsilon:
            return self.edge_account()
        msg = (
            f"the centre alone costs {eps_1:g} per {self.problem.domain.unit} and epsilon is "
            f"{epsilon:g}: nothing is left for the report; give BallAnchors a smaller one"
        )
        return Account(1.0, (0, 1), PhaseOneCostError(msg, value=eps_1, limit=epsilon))

    @property
    def selection_epsilon(self) -> float:
        return self.law.mechanism.audit.epsilon

    @property
    def description(self) -> dict[str, Any]:
        return {
            "kind": "ball",
            "epsilon": self.selection.epsilon,
            "table_epsilon": self.mechanism.epsilon,
            "radius": self.law.radius,
            "outside": self.selection.outside,
        }

    @property
    def sections(self) -> dict[str, npt.NDArray[Any]]:
        law = self.law
        return {
            "weights": np.asarray(self.mechanism.weights),
            "centres": law.centres,
            "centre_weights": np.asarray(law.mechanism.weights),
        }

    @property
    def row_words(self) -> str:
        return "the row of the nearest"

    @cached_property
    def whole_table(self) -> AnchorTable:
        everyone = np.arange(self.problem.size)
        return AnchorTable(everyone, everyone, self.mechanism)

    def solve(self, sets: tuple[IntArray, ...], start: Start | None) -> tuple[AnchorTable, ...]:
        return (self.whole_table,)

    def rows(
        self, anchors: IntArray, table: AnchorTable, records: IntArray | None = None
    ) -> tuple[IntArray, IntArray]:
        """The own row inside the ball; equal rows of records outside are one."""
        some = np.arange(self.problem.size) if records is None else records
        first = self.law.firsts[self.law.group_of(anchors)]
        used, row = np.unique(self.row_of(some, np.full(len(some), first)), return_inverse=True)
        return self.report_rows[used], row.reshape(-1)

    def draw_rows(self, records: IntArray, bits: BitSource) -> IntArray:
        return self.row_of(records, choose_rows(self.law.mechanism.weights, records, bits))

    @cached_property
    def marginal(self) -> FloatArray:
        size, rows = self.problem.size, self.report_rows / float(TOTAL)
        count = len(self.law.centres)
        out = np.empty((size, rows.shape[1]))
        for begin in range(0, size, MARGINAL_ROWS):
            records = np.arange(begin, min(begin + MARGINAL_ROWS, size))
            owner, centre = np.repeat(records, count), np.tile(np.arange(count), len(records))
            chances = self.law.mechanism.matrix[records].ravel()
            shares = scipy.sparse.coo_array(
                (chances, (owner - begin, self.row_of(owner, centre))),
                shape=(len(records), len(rows)),
            )
            out[records] = np.asarray(shares.tocsr() @ rows)
        return frozen(out)

    def shares(self, anchors: IntArray) -> BudgetShares:
        first = self.selection.epsilon / self.problem.epsilon
        last = self.mechanism.epsilon / self.problem.epsilon
        return BudgetShares(first, 1.0 - first - last, last)

    def settled(
        self, sets: tuple[IntArray, ...], tables: tuple[AnchorTable, ...]
    ) -> AnchorTable | None:
        return tables[0]

    def violation(self, table: AnchorTable | None, pair: IntArray) -> Violation:
        """All balls and all reports."""
        law, rows = self.law, self.report_rows
        values, masses = [], []
        for centres in law.groups:
            counts = law.mechanism.weights[pair][:, centres].sum(axis=1)
            leak = np.log(float(counts[0])) - np.log(float(counts[1]))
            reports = rows[self.row_of(pair, np.full(2, centres[0]))]
            values.append(np.abs(leak + log_ratios(reports[0], reports[1])))
            masses.append(counts[:, None] / float(TOTAL) * (reports / float(TOTAL)))
        losses = np.concatenate(values)
        distance = self.problem.domain.distance(int(pair[0]), int(pair[1]))
        releases = Enumeration(
            losses, losses, np.concatenate(masses, axis=1), "all balls and reports"
        )
        return releases.violation(self.problem.epsilon * distance, distance, self.delta)

    def _is_inside(self, records: IntArray, centres: IntArray) -> BoolArray:
        return np.asarray(self.law.distance[records, centres] <= self.law.radius)

    def _table(self, epsilon: float) -> Mechanism:
        slack = self.problem.domain.metric.triangle_slack
        part = self.problem.with_epsilon(epsilon * (1 - slack))
        options = self.options
        return solver_of(options.solver, options.gap, options.time_limit)(part, None)


class NearestBalls(BallScheme):
    """Outside, the nearest record inside: d(x, s(x')) <= 2 d(x, x'), so the table has half.

    If x is inside, the record s that x' uses is at most d(x, x') from x', so at most 2 d(x, x')
    from x. With a table that is eps_2-mDP, whenever the user's own record is inside, the loss is at
    most (eps_1 + 2 eps_2) d, and it is inside with probability at least 1 - delta.
    """

    @cached_property
    def mechanism(self) -> Mechanism:
        return self._table(self.left / 2)

    @property
    def guarantee(self) -> Guarantee:
        whole = super().guarantee
        return Guarantee(whole.epsilon, self.missed, whole.unit)

    @property
    def further(self) -> Guarantee:
        """A ball's centre is told once, and eps - eps_1 is left."""
        return Guarantee(self.left, 0.0, self.problem.domain.unit)

    @property
    def report_rows(self) -> IntArray:
        return np.asarray(self.mechanism.weights)

    def row_of(self, records: IntArray, centres: IntArray) -> IntArray:
        rows = np.array(records, dtype=np.int64)
        beyond = ~self._is_inside(records, centres)
        for centre in np.unique(centres[beyond]):
            ball, some = self.law.ball(int(centre)), beyond & (centres == centre)
            rows[some] = ball[surrogates(self.problem.domain, ball, records[some])]
        return rows

    def covered(self, anchors: IntArray) -> BoolArray:
        return np.isin(np.arange(self.problem.size), anchors)

    def edge_account(self) -> Account:
        centre, table = self.law.mechanism.audit.epsilon, self.mechanism.audit.epsilon
        slack = self.problem.domain.metric.triangle_slack
        within = centre + 2 * table * (1 + slack) <= self.problem.epsilon
        x = int(self.law.missed.argmax())
        pair = (x, int(self.problem.domain.neighbours(1)[0][x, 0]))
        violation, failure = float(self.law.missed.max()) if within else 1.0, None
        if self.missed > self.delta:
            msg = (
                f"a ball misses its user's record with probability up to {self.missed:g} and delta "
                f"is {self.delta:g}; give BallAnchors the smaller delta"
            )
            failure = ShortfallError(msg, value=self.missed, limit=self.delta)
        return Account(violation, pair, failure)


class CommonBalls(BallScheme):
    """Outside, one row for everybody: the mean of the ball's rows. The table has eps - eps_1.

    Two records inside differ by at most (eps_1 + eps_2) d, two records outside have the same row.
    Where x is inside and x' outside, the report's log-ratio to the common row may exceed eps_2 d.
    How often it does is summed for every pair, and the radius is the least for which no pair
    exceeds delta (docs/panda.md has the proof). So (eps_1 + eps_2, delta).
    """

    @cached_property
    def law(self) -> BallLaw:
        """Centres, and the least radius that keeps delta, from the one of `missed` on."""
        law = self.selection.on(self.problem.domain).missing(self.missed)
        low, high, most = law.radius, law.radius, float(law.distance.max())
        while high < most and not self._keeps(law.with_radius(high)):
            low, high = high, min(most, 1.1 * high)
        while high - low > RADIUS_STEP * high:
            middle = (low + high) / 2
            if self._keeps(law.with_radius(middle)):
                high = middle
            else:
                low = middle
        return law.with_radius(high)

    def _keeps(self, law: BallLaw) -> bool:
        """Whether balls of a radius keep delta."""
        common = common_rows(self.problem, law, self.mechanism)
        found = boundary(self.problem, law, self.mechanism, common, self.delta, enough=self.delta)
        return found.violation <= self.delta

    @cached_property
    def mechanism(self) -> Mechanism:
        return self._table(self.left)

    @property
    def further(self) -> Guarantee:
        """A ball's centre is told once, eps - eps_1 is left, and another report may be at the
        edge of the ball again."""
        return Guarantee(self.left, self.delta, self.problem.domain.unit)

    @property
    def sections(self) -> dict[str, npt.NDArray[Any]]:
        return super().sections | {"outside_weights": self.outside_rows}

    @property
    def row_words(self) -> str:
        return "the own row, or outside the ball from one row that is the same for all"

    @property
    def audited_epsilon(self) -> float:
        return self.selection_epsilon + self.mechanism.audit.epsilon

    @cached_property
    def outside_rows(self) -> IntArray:
        """The integer row of everybody outside the ball of each centre, (centres, m)."""
        rows = np.empty((len(self.law.centres), self.problem.outputs_count), dtype=np.int64)
        common = common_rows(self.problem, self.law, self.mechanism)
        for row, centres in zip(common, self.law.groups, strict=True):
            rows[centres] = row
        return frozen(rows)

    @cached_property
    def report_rows(self) -> IntArray:
        """Rows of all records, then one for everybody outside the ball of each centre."""
        return frozen(np.concatenate([np.asarray(self.mechanism.weights), self.outside_rows]))

    def row_of(self, records: IntArray, centres: IntArray) -> IntArray:
        inside = self._is_inside(records, centres)
        return np.where(inside, records, self.problem.size + centres)

    def edge_account(self) -> Account:
        common = self.outside_rows[self.law.firsts]
        found = boundary(self.problem, self.law, self.mechanism, common, self.delta)
        failure: InfeasibleError | None = None
        if not found.violation <= self.delta:
            msg = (
                f"records {found.pair[0]} and {found.pair[1]} may be told apart by the edge of a "
                f"ball with probability {found.violation:.4g}, and delta is {self.delta:g}"
            )
            failure = SurrogateError(msg, value=found.violation, limit=self.delta, pair=found.pair)
        return Account(found.violation, found.pair, failure)


def common_rows(problem: Problem, law: BallLaw, mechanism: Mechanism) -> IntArray:
    """The integer row of everybody outside, for every group of equal balls, (groups, m).

    The mean of the ball's rows under the prior, each times exp(-eps_2 t), eps_2 what the centre
    leaves and t how deep the record lies in the ball: a record at depth t is compared with records
    that are at least t away.
    """
    left = problem.epsilon - law.mechanism.epsilon
    distance = law.distance[:, law.firsts]
    weights = np.exp(-left * np.maximum(0.0, law.radius - distance)) * (distance <= law.radius)
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
    if mechanism.audit.epsilon > room or room <= 0:
        return Account(1.0, (0, 1))
    if ((common == 0) & rows.any(axis=0)).any():
        return Account(1.0, (0, 1))
    logs, common_logs = _logs(rows), _logs(common)
    largest = max(
        float(np.abs(logs.max(axis=0) - common_logs).max()),
        float(np.abs(logs.min(axis=0) - common_logs).max()),
    )
    step = largest * (1 + 1e-9) / (BINS - 1) + 1e-9
    balls = kernels.Balls(
        np.ascontiguousarray(law.chances(slice(None)).T),
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


def _logs(weights: IntArray) -> FloatArray:
    """Logarithms of weights; of columns that nobody uses it is 0, and they are passed over."""
    return np.log(np.maximum(weights, 1).astype(np.float64))
