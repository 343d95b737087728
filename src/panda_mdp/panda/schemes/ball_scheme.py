"""Balls: one audited table over the domain, and a ball of it for every user."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.errors import (
    InfeasibleError,
    MethodError,
    PhaseOneCostError,
    ShortfallError,
    SurrogateError,
)
from panda_mdp.panda.accounts.budgets import BudgetShares
from panda_mdp.panda.accounts.compiled import coordinates_of, is_compiled, kernels
from panda_mdp.panda.accounts.violation import Account, Enumeration, Spreads
from panda_mdp.panda.anpo import AnchorTable, solver_of
from panda_mdp.panda.options import Options
from panda_mdp.panda.schemes.scheme import Scheme, Start
from panda_mdp.panda.selection.centres import BallLaw
from panda_mdp.panda.selection.law import members, surrogates
from panda_mdp.privacy.audit import audit_weights
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.privacy.quantise import TOTAL, quantise
from panda_mdp.privacy.sampler import BitSource
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain
from panda_mdp.table.mechanism import Mechanism

if TYPE_CHECKING:
    from panda_mdp.panda.selection.ball import BallAnchors

RADIUS_STEP = 0.02
"""How near the radius comes to the least one, relatively."""
BINS = 256
"""Log-ratios are rounded outward to so many steps."""
NEGLIGIBLE = 1e-3
"""Balls that together add at most this share of delta count in full for every pair."""
LOOKS = 64
"""Records that are compared with all others at a time."""
MOST_PAIRWISE = 9_000
"""Beyond this many records the account of balls is kept per record, not per pair."""
SHARES = (1.0, 0.9, 0.8, 0.75, 0.7, 0.6, 0.5)
"""Shares of eps - eps_1 that a table with extended rows is tried at; 0.5 is always enough."""
LOSS_ROWS = 4_096
"""Records whose loss is summed at a time."""
MOST_EXTENDED = 2_000
"""Every ball's extension is audited over all pairs, which is for domains of this size."""


@dataclass(frozen=True, eq=False)
class BallScheme(Scheme):
    """One table serves every user and every ball; records outside their ball differ by kind."""

    problem: Problem
    selection: BallAnchors
    delta: float
    options: Options

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
        self.selection.on(self.problem.domain)
        other = self.selection.missing(delta).scheme(self.problem, self.delta, self.options)
        other.__dict__["mechanism"] = self.mechanism
        return other

    @property
    def radius(self) -> float:
        return self.law.radius

    @property
    def left(self) -> float:
        """What the centre leaves for the report, per unit of distance."""
        return self.problem.epsilon - self.selection.epsilon

    @property
    def failure(self) -> InfeasibleError | None:
        eps_1, epsilon = self.selection.epsilon, self.problem.epsilon
        if eps_1 < epsilon:
            return None
        msg = (
            f"the centre alone costs {eps_1:g} per {self.problem.domain.unit} and epsilon is "
            f"{epsilon:g}: nothing is left for the report; give BallAnchors a smaller one"
        )
        return PhaseOneCostError(msg, value=eps_1, limit=epsilon)

    @cached_property
    @abstractmethod
    def mechanism(self) -> Mechanism:
        """The domain's table: public, the same for everyone, audited over all pairs."""

    @abstractmethod
    def outside(self, ball: IntArray, mechanism: Mechanism, records: IntArray) -> IntArray:
        """The integer rows of records outside a ball, (n, m)."""

    def draw(self, record: int, bits: BitSource) -> IntArray:
        return self.law.ball(self.law.draw(record, bits))

    def check_upload(self, anchors: Any) -> IntArray:
        msg = "a ball is one of a public list; there is nothing else that could be uploaded"
        raise MethodError(msg)

    def solve(self, sets: tuple[IntArray, ...], start: Start | None) -> tuple[AnchorTable, ...]:
        return (self.whole_table(),)

    def whole_table(self) -> AnchorTable:
        everyone = np.arange(self.problem.size)
        return AnchorTable(everyone, everyone, self.mechanism)

    def rows(
        self, anchors: IntArray, table: AnchorTable, records: IntArray | None = None
    ) -> tuple[IntArray, IntArray]:
        """The own row inside the ball; equal rows of records outside are one."""
        chosen = np.arange(self.problem.size) if records is None else records
        beyond = ~members(self.problem.size, anchors)[chosen]
        rows = np.asarray(table.mechanism.weights[chosen[~beyond]])
        row = np.cumsum(~beyond) - 1
        if beyond.any():
            others = self.outside(anchors, table.mechanism, chosen[beyond])
            others, which = np.unique(others, axis=0, return_inverse=True)
            row[beyond] = len(rows) + which.reshape(-1)
            rows = np.concatenate([rows, others])
        return rows, row

    def log_likelihoods(self, anchors: IntArray) -> FloatArray:
        counts = self.law.mechanism.weights[:, self.law.centres_of(anchors)].sum(axis=1)
        return np.asarray(np.log(counts.astype(np.float64)))

    def counted(self, anchors: IntArray) -> BoolArray:
        return members(self.problem.size, anchors)

    def settled(
        self, sets: tuple[IntArray, ...], tables: tuple[AnchorTable, ...]
    ) -> AnchorTable | None:
        return tables[0]

    def spreads(
        self, settled: AnchorTable | None, anchors: IntArray, record: int, others: IntArray
    ) -> Spreads:
        table = self.whole_table() if settled is None else settled
        rows, row = self.rows(anchors, table, np.concatenate([[record], others]))
        difference = log_ratios(rows[row[0]], rows[row[1:]])
        up, down = difference.max(axis=1), -difference.min(axis=1)
        return Spreads(up, down, np.ones(len(others), dtype=bool))

    def enumeration(self, settled: AnchorTable | None, pair: IntArray) -> Enumeration:
        """All balls and all reports."""
        table = self.whole_table() if settled is None else settled
        values, masses = [], []
        for centres in self.law.groups:
            counts = self.law.mechanism.weights[pair][:, centres].sum(axis=1)
            leak = np.log(float(counts[0])) - np.log(float(counts[1]))
            rows, row = self.rows(self.law.ball(centres[0]), table, pair)
            values.append(np.abs(leak + log_ratios(rows[row[0]], rows[row[1:]])[0]))
            masses.append(counts[:, None] / float(TOTAL) * (rows[row] / float(TOTAL)))
        losses = np.concatenate(values)
        return Enumeration(losses, losses, np.concatenate(masses, axis=1), "all balls and reports")

    def pair_bound(self, pair: IntArray) -> float:
        limit = self.problem.epsilon * self.problem.domain.distance(int(pair[0]), int(pair[1]))
        return self.enumeration(None, pair).violation(limit, 1.0, self.delta).upper

    def expected_loss(self) -> float:
        problem = self.problem
        own = (problem.loss * self.mechanism.matrix).sum(axis=1)
        total = float(problem.prior @ ((1.0 - self.law.missed) * own))
        for centres in self.law.groups:
            ball = self.law.ball(int(centres[0]))
            beyond = ~members(problem.size, ball)
            beyond &= problem.prior > 0
            if not beyond.any():
                continue
            records = np.flatnonzero(beyond)
            counts = self.law.mechanism.weights[np.ix_(records, centres)].sum(axis=1)
            rows = self.outside(ball, self.mechanism, records) / float(TOTAL)
            losses = (problem.loss[records] * rows).sum(axis=1)
            total += float((problem.prior[records] * (counts / float(TOTAL))) @ losses)
        return total

    @property
    def expected_anchors(self) -> float:
        return self.law.expected_size(self.problem.prior)

    def shares(self, anchors: IntArray) -> BudgetShares:
        first = self.selection.epsilon / self.problem.epsilon
        last = self.mechanism.epsilon / self.problem.epsilon
        return BudgetShares(first, 1.0 - first - last, last)

    def details(self, anchors: IntArray, table: AnchorTable) -> Mapping[str, Any]:
        return {
            "radius": self.law.radius,
            "centre_epsilon": self.law.mechanism.audit.epsilon,
            "table_epsilon": table.mechanism.epsilon,
            "missed": float(self.law.missed.max()),
            "expected_anchors": self.law.expected_size(self.problem.prior),
        }

    def _table(self, epsilon: float) -> Mechanism:
        slack = self.problem.domain.metric.triangle_slack
        part = self.problem.with_epsilon(epsilon * (1 - slack))
        solve = solver_of(self.options.solver)
        return solve(part, self.options.gap, time_limit=self.options.time_limit, initial=None)


class NearestBalls(BallScheme):
    """Outside, the nearest record inside: d(x, s(x')) <= 2 d(x, x'), so the table has half.

    If x is inside, the record s that x' uses is at most d(x, x') from x', so at most 2 d(x, x')
    from x. With a table that is eps_2-mDP, whenever the user's own record is inside, the loss is at
    most (eps_1 + 2 eps_2) d, and it is inside with probability at least 1 - delta.
    """

    @property
    def failure(self) -> InfeasibleError | None:
        if self.missed > self.delta:
            msg = (
                f"a ball misses its user's record with probability up to {self.missed:g} and delta "
                f"is {self.delta:g}; give BallAnchors the smaller delta"
            )
            return ShortfallError(msg, value=self.missed, limit=self.delta)
        return super().failure

    @property
    def guarantee(self) -> Guarantee:
        whole = super().guarantee
        return Guarantee(whole.epsilon, self.missed, whole.unit)

    @cached_property
    def mechanism(self) -> Mechanism:
        return self._table(self.left / 2)

    def outside(self, ball: IntArray, mechanism: Mechanism, records: IntArray) -> IntArray:
        nearest = ball[surrogates(self.problem.domain, ball, records)]
        return np.asarray(mechanism.weights[nearest])

    def account(self) -> Account:
        centre, table = self.law.mechanism.audit.epsilon, self.mechanism.audit.epsilon
        slack = self.problem.domain.metric.triangle_slack
        within = centre + 2 * table * (1 + slack) <= self.problem.epsilon
        x = int(self.law.missed.argmax())
        x2 = int(self.problem.domain.neighbours(1)[0][x, 0])
        return Account(float(self.law.missed.max()) if within else 1.0, (x, x2))


class CommonBalls(BallScheme):
    """Outside, one row for everybody: the mean of the ball's rows. The table has eps - eps_1.

    Two records inside differ by at most (eps_1 + eps_2) d, two records outside have the same row.
    Where x is inside and x' outside, the report's log-ratio to the common row may exceed eps_2 d.
    How often it does is summed for every pair, and the radius is the least for which no pair
    exceeds delta (docs/panda.md has the proof). So (eps_1 + eps_2, delta).
    """

    @cached_property
    def failure(self) -> InfeasibleError | None:
        spent = super().failure
        if spent is not None:
            return spent
        account = self.accounted
        if account.violation <= self.delta:
            return None
        msg = (
            f"records {account.pair[0]} and {account.pair[1]} may be told apart by the edge of a "
            f"ball with probability {account.violation:.4g}, and delta is {self.delta:g}"
        )
        return SurrogateError(msg, value=account.violation, limit=self.delta, pair=account.pair)

    @cached_property
    def law(self) -> BallLaw:
        """Centres, and the least radius that keeps delta, from the one of `missed` on."""
        law = super().law
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
        return self._boundary(law, enough=self.delta).violation <= self.delta

    @cached_property
    def mechanism(self) -> Mechanism:
        return self._table(self.left)

    def common(self, law: BallLaw) -> IntArray:
        """The integer row of everybody outside, for every group of equal balls, (groups, m).

        The mean of the ball's rows under the prior, each times exp(-eps_2 t), t how deep it lies in
        the ball: a record at depth t is compared with records that are at least t away.
        """
        at = [int(centres[0]) for centres in law.groups]
        distance = law.distance[:, at]
        weights = np.exp(-self.left * np.maximum(0.0, law.radius - distance)) * (
            distance <= law.radius
        )
        likely = weights * self.problem.prior[:, None]
        weights = np.where(likely.sum(axis=0) > 0, likely, weights)
        return quantise((weights / weights.sum(axis=0)).T @ self.mechanism.matrix)

    @cached_property
    def _common(self) -> IntArray:
        return self.common(self.law)

    @property
    def outside_rows(self) -> IntArray:
        """The integer row of everybody outside the ball of each centre, (centres, m)."""
        rows = np.empty((len(self.law.centres), self.problem.outputs_count), dtype=np.int64)
        for group, centres in enumerate(self.law.groups):
            rows[centres] = self._common[group]
        return rows

    def outside(self, ball: IntArray, mechanism: Mechanism, records: IntArray) -> IntArray:
        return np.tile(self._common[self.law.group_of(ball)], (len(records), 1))

    def counted(self, anchors: IntArray) -> BoolArray:
        return np.ones(self.problem.size, dtype=bool)

    @cached_property
    def accounted(self) -> Account:
        return self.account()

    def expected_loss(self) -> float:
        problem, law, common = self.problem, self.law, self._common / float(TOTAL)
        first = [int(centres[0]) for centres in law.groups]
        total = 0.0
        for begin in range(0, problem.size, LOSS_ROWS):
            part = slice(begin, begin + LOSS_ROWS)
            beyond = np.where(law.distance[part][:, first] > law.radius, law.chances(part), 0.0)
            own = (1.0 - law.missed[part])[:, None] * self.mechanism.matrix[part]
            losses = (problem.loss[part] * (own + beyond @ common)).sum(axis=1)
            total += float(problem.prior[part] @ losses)
        return total

    def account(self) -> Account:
        return self._boundary(self.law, self._common)

    def _boundary(
        self, law: BallLaw, common: IntArray | None = None, enough: float = 0.0
    ) -> Account:
        """The largest violation probability over all pairs, for balls of a radius.

        First a bound per record, by the triangle inequality. Then per pair, from the record with
        the largest bound down, until no bound that is left exceeds what was summed, or `enough`.
        Beyond `MOST_PAIRWISE` records the bounds are the answer. All are upper bounds: distances
        are rounded down to a grid, and what the centre tells counts with its audited epsilon.
        """
        mechanism, domain = self.mechanism, self.problem.domain
        room = self.problem.epsilon - law.mechanism.audit.epsilon
        if mechanism.audit.epsilon > room or room <= 0:
            return Account(1.0, (0, 1))
        if self.problem.size > MOST_PAIRWISE:
            plain = self._plain(law, room, common)
            if plain.violation <= self.delta or not is_compiled("balls"):
                return plain
        compiled = kernels("balls")
        common = self.common(law) if common is None else common
        if ((common == 0) & mechanism.weights.any(axis=0)).any():
            return Account(1.0, (0, 1))
        logs, shared_logs = _logs(np.asarray(mechanism.weights)), _logs(common)
        largest = max(
            float(np.abs(logs.max(axis=0) - shared_logs).max()),
            float(np.abs(logs.min(axis=0) - shared_logs).max()),
        )
        step = largest * (1 + 1e-9) / (BINS - 1) + 1e-9
        first = [int(centres[0]) for centres in law.groups]
        balls = (np.ascontiguousarray(law.distance[:, first].T), law.radius)
        tables = (mechanism.matrix, logs, common / float(TOTAL), shared_logs)
        chance = np.ascontiguousarray(law.chances(slice(None)).T)
        outer = compiled.common_tails(*tables, *balls, step, BINS)
        slack = 4e-9 if domain.metric.kind == "matrix" else 1e-9
        scale = (room * (1 - 1e-11), step, self.delta * NEGLIGIBLE / len(first))
        bounds = compiled.ring_masses(chance, *balls, slack, *tables, outer, *scale)
        order = np.argsort(-bounds, kind="stable")
        if self.problem.size > MOST_PAIRWISE:
            x = int(order[0])
            return Account(float(bounds[x]), (x, int(domain.neighbours(1)[0][x, 0])))
        worst = Account(0.0, (0, 1))
        for begin in range(0, self.problem.size, LOOKS):
            chosen = order[begin : begin + LOOKS]
            left = float(bounds[chosen[0]])
            if left <= worst.violation or worst.violation > enough > 0:
                break
            if left <= enough:
                return Account(left, worst.pair)
            masses, partner = compiled.boundary_masses(
                *coordinates_of(domain), chance, *balls, slack, *tables, outer, *scale, chosen
            )
            k = int(masses.argmax())
            if masses[k] > worst.violation:
                worst = Account(float(masses[k]), (int(chosen[k]), int(partner[k])))
        return Account(worst.violation * (1 + 1e-12), worst.pair)

    def _plain(self, law: BallLaw, room: float, common: IntArray | None) -> Account:
        """A bound that needs only the largest log-ratio S within a column, any row to any other.

        The common row is a mean of rows (one that was given is compared with them), so it differs
        from any by at most S, and a pair farther than S / room is never violated. A nearer one is
        violated only where x is outside the ball or within S / room of its edge.
        """
        least, most = self._columns
        if common is not None:
            least, most = (
                np.minimum(least, common.min(axis=0)),
                np.maximum(most, common.max(axis=0)),
            )
        used = most > 0
        # Rounding a mean to integers moves it by a few units.
        low, high = least[used].astype(np.float64) - 4, most[used].astype(np.float64) + 4
        if low.min() < 4:
            return Account(1.0, (0, 1))
        spread = (float(np.log(high / low).max()) + 1e-9) / room * (1 + 1e-9)
        beyond = law.with_radius(law.radius * (1 - 4e-9) - spread).missed
        x = int(beyond.argmax())
        y = x - 1 if x else 1
        return Account(float(beyond[x]) * (1 + 1e-12), (x, y))

    @cached_property
    def _columns(self) -> tuple[IntArray, IntArray]:
        """The least and the largest weight of every column."""
        weights = np.asarray(self.mechanism.weights)
        return weights.min(axis=0), weights.max(axis=0)


class ExtendedBalls(BallScheme):
    """Outside, rows extended from those of the ball: every ball is audited, and no delta."""

    @property
    def guarantee(self) -> Guarantee:
        whole = super().guarantee
        return Guarantee(whole.epsilon, 0.0, whole.unit)

    @cached_property
    def mechanism(self) -> Mechanism:
        """The table at the largest share of eps - eps_1 for which every ball's extension passes.

        Audited over all pairs of records for every ball, so the report costs eps - eps_1 whatever
        ball was drawn and wherever the record lies.
        """
        if self.problem.size > MOST_EXTENDED:
            msg = (
                f"outside='extend' audits every ball over all pairs and takes at most "
                f"{MOST_EXTENDED:,} records, not {self.problem.size:,}; use another `outside`"
            )
            raise MethodError(msg)
        for share in SHARES:
            table = self._table(share * self.left)
            if self._passes(table):
                return table
        msg = "no extension passed the audit, though half the budget always should"
        raise MethodError(msg)

    def outside(self, ball: IntArray, mechanism: Mechanism, records: IntArray) -> IntArray:
        rows = extend_rows(self.problem.domain, mechanism.matrix, ball, mechanism.epsilon, records)
        return quantise(rows)

    def counted(self, anchors: IntArray) -> BoolArray:
        return np.ones(self.problem.size, dtype=bool)

    def account(self) -> Account:
        within = self.law.mechanism.audit.epsilon <= self.selection.epsilon
        x = int(self.law.missed.argmax())
        x2 = int(self.problem.domain.neighbours(1)[0][x, 0])
        return Account(0.0 if within and self._passes(self.mechanism) else 1.0, (x, x2))

    def _passes(self, table: Mechanism) -> bool:
        """Whether the rows of every ball, extended to all records, are private by audit."""
        everyone = np.arange(self.problem.size)
        whole = AnchorTable(everyone, everyone, table)
        for centres in self.law.groups:
            ball = self.law.ball(centres[0])
            if len(ball) < self.problem.size:
                rows, row = self.rows(ball, whole)
                outputs = self.problem.outputs
                if not audit_weights(self.problem.domain, outputs, rows[row], self.left).holds:
                    return False
        return True


def extend_rows(
    domain: Domain, matrix: FloatArray, ball: IntArray, epsilon: float, records: IntArray
) -> FloatArray:
    """Rows of records outside a ball, half-way between two log-Lipschitz extensions of its rows.

        log z(y|x') = (max_a [log z(y|a) - eps_2 d] + min_a [log z(y|a) + eps_2 d]) / 2 + const

    over the records a of the ball, d = d(a, x'). Both extensions are eps_2-Lipschitz over all
    records, and so is the logarithm of the sum that normalises, so the result is at most 2 eps_2.
    Half-way the sums stay nearer to 1 than for either extension alone: audits show 1.2 to 1.75
    eps_2.
    """
    out = np.empty((len(records), matrix.shape[1]))
    with np.errstate(divide="ignore"):
        logs = np.log(matrix[ball])
    for k, x in enumerate(records):
        reach = epsilon * domain.metric.pairs(ball, np.full(len(ball), x))[:, None]
        row = np.exp(((logs - reach).max(axis=0) + (logs + reach).min(axis=0)) / 2)
        out[k] = row / row.sum()
    return out


def _logs(weights: IntArray) -> FloatArray:
    """Logarithms of weights; of columns that nobody uses it is 0, and they are passed over."""
    return np.log(np.maximum(weights, 1).astype(np.float64))


def log_ratios(row: IntArray, others: IntArray) -> FloatArray:
    """log z / z' of one integer row against others; 0 where neither has an output."""
    with np.errstate(divide="ignore", invalid="ignore"):
        difference = np.log(row.astype(np.float64)) - np.log(others.astype(np.float64))
    return np.where(np.isnan(difference), 0.0, difference)
