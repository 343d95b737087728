"""Anchors by independent coins, the paper's Phase I (section 3.2), and both phases with them."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import scipy

from panda_mdp.base.arrays import Described, FloatArray, IntArray, frozen
from panda_mdp.base.threads import current_clock, within
from panda_mdp.errors import EmptyAnchorsError, MethodError, SurrogateError
from panda_mdp.panda.anpo import AnchorTable, solve_anchors
from panda_mdp.panda.candidates import (
    MOST_LINKED,
    central,
    covering_radius,
    serving,
)
from panda_mdp.panda.certificate import certified_budgets, certify
from panda_mdp.panda.law import AnchorLaw, numerators, surrogates
from panda_mdp.panda.leakage import cost_table
from panda_mdp.panda.margins import Feasibility, MarginPlan, feasibility
from panda_mdp.panda.selection import (
    BELOW_1,
    DEFAULT_OPTIONS,
    POSITIVE,
    Account,
    BudgetShares,
    PandaOptions,
    Scheme,
    Selection,
    budget_shares,
    check_choice,
)
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.privacy.quantise import TOTAL, BitSource, SystemBits, choose_rows, quantise
from panda_mdp.problem import Problem, check_number
from panda_mdp.space.domain import Domain, check_indices, check_record

Decay = Literal["power", "exponential", "logistic"]
RADIUS_SHARE = 50
"""The paper's radius is the domain's diameter over this."""
AT_ONCE = 256
"""Records whose surrogates are looked at together."""


@dataclass(frozen=True, eq=False)
class BernoulliAnchors(Selection):
    """Select each candidate a with probability w(x, a) = h(min(d(x, a), radius)), independently.

    h is one of Table 1 of the paper, with alpha in (0, 1) and rate lambda:

        exponential   alpha exp(-lambda d)          lambda per unit of distance
        power         alpha / (1 + d^lambda)        d in the domain's unit, lambda a number
        logistic      2 alpha / (1 + exp(lambda d)) lambda per unit of distance

    `radius` (gamma) defaults to the domain's diameter over 50. Beyond it the probability is
    h(radius) with `tail="clip"`, the paper's text, or the `tail` that is given, which makes a jump.
    `candidates` is a public subset of the domain's records that may become anchors; by default all.
    Probabilities are multiples of 2^-62, and draws, leakage and margins all use those.

    alpha must be below 1 and the tail above 0: an outcome that is certain for one record and not
    for another gives the record away (Proposition 2). The smallest and largest probabilities are
    2^-62 and 1 - 2^-53.

    >>> from panda_mdp.panda.leakage import leakage
    >>> domain = Domain.from_vectors([[0.0], [1.0], [4.0]])
    >>> law = BernoulliAnchors("exponential", alpha=0.9, rate=1.0, radius=2.0).on(domain)
    >>> law.dense(np.arange(3)).round(3)
    array([[0.9  , 0.331, 0.122],
           [0.331, 0.9  , 0.122],
           [0.122, 0.122, 0.9  ]])
    >>> round(leakage(law, 0, 1), 3)
    2.9
    """

    decay: Decay = "power"
    alpha: float = 0.95
    rate: float = 0.5
    radius: float | None = None
    tail: float | Literal["clip"] = "clip"
    candidates: IntArray | None = None
    neighbours: int = 20
    """Gamma: how many records nearest to an anchor its estimated margin covers."""

    def __post_init__(self) -> None:
        check_choice("decay", self.decay, Decay)
        rule = (
            "strictly between 0 and 1: an anchor that is selected for certain by one record gives "
            "that record away (Proposition 2)"
        )
        check_number(self.alpha, "alpha", rule, most=BELOW_1)
        least = sys.float_info.min if self.decay == "power" else 0.0
        rule = "at most 1e6 and not negative, of the power law positive: d^0 jumps at 0"
        check_number(self.rate, "rate", rule, least=least, most=1e6)
        check_number(self.radius, "radius", POSITIVE)
        rule = (
            "'clip' or a probability strictly between 0 and 1: an anchor that far records never "
            "select gives near ones away"
        )
        check_number(None if self.tail == "clip" else self.tail, "tail", rule, most=BELOW_1)
        rule = "at least 1: the margin must cover the anchor"
        check_number(self.neighbours, "neighbours", rule, least=1, whole=True)
        if self.candidates is not None:
            chosen = np.asarray(self.candidates)
            if chosen.ndim != 1 or len(chosen) == 0 or len(np.unique(chosen)) != len(chosen):
                raise MethodError(
                    "candidates must be a flat list of distinct records, at least one"
                )
            object.__setattr__(self, "candidates", frozen(np.sort(chosen)))

    @classmethod
    def alike(
        cls, domain: Domain, count: int, delta: float, problem: Problem | None = None
    ) -> BernoulliAnchors:
        """`count` public records that stand for the others, selected almost surely by everybody.

        The set then tells nothing, and the nearest candidate is missing with at most delta / 4.
        With all records this is the whole table for everybody. Where the `problem` is given,
        candidates stand for records that are near them and that their rows serve well.
        """
        chosen = None
        if count < domain.size and problem is not None and domain.size <= MOST_LINKED:
            chosen = serving(problem, count)
        elif count != domain.size:
            chosen = central(domain, count)
        reach = domain.diameter / 1_000
        if chosen is not None:
            reach = max(reach, 1.001 * covering_radius(domain, chosen))
        return cls("exponential", 1 - delta / 4, 0.0, reach, candidates=chosen)

    def __repr__(self) -> str:
        parts = [repr(self.decay), f"alpha={self.alpha:.12g}", f"rate={self.rate:.6g}"]
        parts += [
            f"{name}={getattr(self, name):.6g}"
            for name, usual in (("radius", None), ("tail", "clip"), ("neighbours", 20))
            if getattr(self, name) != usual
        ]
        if self.candidates is not None:
            parts.append(f"{len(self.candidates)} candidates")
        return f"BernoulliAnchors({', '.join(parts)})"

    def h(self, distance: npt.ArrayLike) -> FloatArray:
        """The decay of Table 1, before clipping and quantising."""
        separation = np.asarray(distance, dtype=float)
        if self.decay == "exponential":
            return self.alpha * np.exp(-self.rate * separation)
        if self.decay == "power":
            return self.alpha / (1.0 + separation**self.rate)
        return 2.0 * self.alpha * scipy.special.expit(-self.rate * separation)

    def on(self, domain: Domain) -> AnchorLaw:
        """The law of the coins on a domain, computed once: draws, likelihoods, surrogates."""
        laws: WeakKeyDictionary[Domain, AnchorLaw]
        laws = vars(self).setdefault("_laws", WeakKeyDictionary())
        if domain not in laws:
            laws[domain] = self._law(domain)
        return laws[domain]

    def draw(self, domain: Domain, record: int, source: BitSource | None = None) -> IntArray:
        """The anchors of a record: indices into the domain, ascending.

        Exact: integers and the operating system's generator. `source` is for simulations
        (`SeededBits`).
        """
        mine = int(check_record(record, domain.size, MethodError))
        return self.on(domain).draw(mine, SystemBits() if source is None else source)

    def _law(self, domain: Domain) -> AnchorLaw:
        radius = domain.diameter / RADIUS_SHARE if self.radius is None else float(self.radius)
        tail = float(self.h(radius)) if self.tail == "clip" else float(self.tail)
        chosen = self.candidates
        if chosen is not None:
            check_indices(chosen, domain.size, "candidates", MethodError)
        return AnchorLaw(domain, radius, self.h, tail, chosen)

    def scheme(
        self, problem: Problem, delta: float, options: PandaOptions = DEFAULT_OPTIONS
    ) -> CoinScheme:
        """Both phases of this selection on a problem."""
        return CoinScheme(problem, self, delta, options)


@dataclass(frozen=True, eq=False)
class CoinScheme(Scheme):
    """Anchors by independent coins, and a table that keeps the budgets between them.

    The guarantee rests on the certificate alone: the budgets are fixed before anybody draws, every
    table keeps them, and the certificate bounds how often the two surrogates of one set lie
    farther from each other than a pair of records allows.
    """

    selection: BernoulliAnchors
    row_words: ClassVar = "the row of the nearest"
    needs_losses: ClassVar = True

    @cached_property
    def law(self) -> AnchorLaw:
        """The law of the coins on the problem's domain."""
        return self.selection.on(self.problem.domain)

    def _limited(self) -> AbstractContextManager[None]:
        """The time of what is accounted for inside."""
        return within(self.options.time_limit, current_clock())

    @cached_property
    def conditions(self) -> Feasibility:
        """What the paper's argument needs. Only the cost of Phase I is necessary for ours."""
        epsilon = self.problem.epsilon
        prior = self.problem.prior
        with self._limited():
            return feasibility(self.law, epsilon, self.delta, prior, self.selection.neighbours)

    @property
    def selection_epsilon(self) -> float:
        return self.conditions.cost.rate

    @property
    def affordable(self) -> bool:
        """Whether Phase I leaves something: where it does not, budgets mean nothing."""
        return self.selection_epsilon <= self.problem.epsilon

    @cached_property
    def budgets(self) -> FloatArray:
        """What rows of candidates may differ by, in nats, (n, n), whatever anybody uploads."""
        if self.options.budgets == "margin":
            return self.margins(self.law.candidates).budgets
        with self._limited():
            return certified_budgets(self.law, self.problem.epsilon, self.delta)

    def margins(self, anchors: IntArray) -> MarginPlan:
        """The paper's margins and budgets between some anchors."""
        neighbours = self.selection.neighbours
        return MarginPlan.over(self.problem, self.law, anchors, self.delta, neighbours=neighbours)

    def budgets_of(self, anchors: IntArray) -> FloatArray:
        """What rows of some anchors may differ by: for study the paper's, where Phase I alone
        costs more than epsilon."""
        if not self.affordable:
            return self.margins(anchors).budgets
        at = self.law.place[anchors]
        return self.budgets if len(at) == len(self.budgets) else self.budgets[np.ix_(at, at)]

    @cached_property
    def account(self) -> Account:
        if not self.affordable:
            return Account(1.0, self.conditions.cost.pair, self.conditions.failure)
        budgets = self.budgets
        with self._limited():
            found = certify(self.law, self.problem.epsilon, self.delta, budgets)
        if found.violation <= self.delta:
            return found
        x, x2 = found.pair
        msg = (
            f"for one anchor set the surrogates of records {x} and {x2} differ by more than the "
            f"budget with probability {found.violation:.4g}, and delta is {self.delta:g}: the "
            "margin of the paper, which compares two users' independent sets, does not protect "
            "one user's neighbouring records. An alpha nearer to 1, a larger `neighbours`, or "
            "BallAnchors does"
        )
        failure = SurrogateError(msg, value=found.violation, limit=self.delta, pair=found.pair)
        return replace(found, failure=failure)

    @property
    def stated(self) -> Described:
        coins = self.selection
        table = self.whole_table
        said = {
            "kind": "coins",
            "decay": coins.decay,
            "alpha": coins.alpha,
            "rate": coins.rate,
            "radius": self.law.radius,
            "tail": coins.tail,
            "neighbours": int(coins.neighbours),
        }
        weights = np.asarray(table.mechanism.weights)
        return said, {"weights": weights, "candidates": table.anchors, "anchor_rows": table.row}

    @property
    def further(self) -> Guarantee:
        """k reports cost at most L + k (eps d - L) <= k eps d, and the sets for which that fails
        are the same."""
        return Guarantee(self.problem.epsilon, 0.0, self.problem.domain.unit)

    def solve(self, sets: tuple[IntArray, ...]) -> AnchorTable:
        candidates = self.law.candidates
        public = self.options.pairs == "public"
        if not any(map(len, sets)):
            raise EmptyAnchorsError(
                "no user drew any anchor, so there is no table to compute",
                value=float(len(sets)),
                limit=0.0,
            )
        anchors = candidates if public else np.unique(np.concatenate(sets))
        weights, losses = self.objective(anchors)
        table = solve_anchors(
            self.problem,
            anchors,
            self.budgets_of(anchors),
            weights,
            losses=losses,
            solver=self.options.table,
        )
        if len(anchors) == len(candidates):
            vars(self).setdefault("whole_table", table)
        return table

    @cached_property
    def whole_table(self) -> AnchorTable:
        return self.solve((self.law.candidates,))

    def objective(self, anchors: IntArray) -> tuple[FloatArray, FloatArray]:
        """AnPO's objective: weights and losses of anchors.

        The prior and the anchor's own loss, as in the paper; or how often the anchor is a surrogate
        and the mean loss of the records that it then stands for, sum_x p_x v(x, a) c_x over
        sum_x p_x v(x, a): the expected loss over true records itself. Both are public.
        """
        problem = self.problem
        if self.options.weights == "prior":
            return problem.prior[anchors], problem.loss[anchors]
        rows = self.law.all_rows
        near, v = rows.surrogates
        shares = scipy.sparse.coo_array(
            (v * problem.prior[rows.owner], (near, rows.owner)), shape=(problem.size, problem.size)
        ).tocsr()[anchors]
        weights: FloatArray = np.asarray(shares.sum(axis=1)).reshape(-1)
        losses: FloatArray = np.asarray(shares @ problem.loss)
        losses /= np.where(weights > 0, weights, 1.0)[:, None]
        return weights, np.where(weights[:, None] > 0, losses, problem.loss[anchors])

    @cached_property
    def _blind(self) -> IntArray:
        """The integer row of an empty set, (1, m): what is best without a record."""
        return quantise(np.eye(self.problem.outputs_count)[[self.problem.best_single_output]])

    def draw(self, record: int, bits: BitSource) -> IntArray:
        return self.law.draw(record, bits)

    def log_likelihoods(self, release: IntArray) -> FloatArray:
        return self.law.log_likelihoods(release)

    @property
    def expected_anchors(self) -> float:
        law = self.law
        near = law.all_rows.sums(law.all_rows.probability - law.tail)
        return float(self.problem.prior @ near) + law.tail * len(law.candidates)

    def _rows(
        self, anchors: IntArray, table: AnchorTable, records: IntArray | None = None
    ) -> tuple[IntArray, IntArray]:
        """The integer row of the nearest own anchor. An empty set reports what is best without a
        record."""
        if len(anchors) == 0:
            count = self.problem.size if records is None else len(records)
            return self._blind, np.zeros(count, np.int64)
        nearest = surrogates(self.problem.domain, anchors, records)
        used, row = np.unique(table.row[table.positions(anchors)][nearest], return_inverse=True)
        return np.asarray(table.mechanism.weights[used]), row.astype(np.int64)

    def rows(
        self, release: IntArray, table: AnchorTable, records: IntArray | None = None
    ) -> tuple[FloatArray, IntArray]:
        weights, row = self._rows(release, table, records)
        return weights / TOTAL, row

    def report(self, release: IntArray, table: AnchorTable, record: int, bits: BitSource) -> int:
        weights, row = self._rows(release, table, np.array([record]))
        return int(choose_rows(weights, row, bits)[0])

    def draw_reports(self, records: IntArray, selected: IntArray, bits: BitSource) -> IntArray:
        weights = self.whole_table.mechanism.weights
        return choose_rows(np.concatenate([np.asarray(weights), self._blind]), selected, bits)

    def draw_selections(self, records: IntArray, bits: BitSource) -> IntArray:
        """The row of the table, or the one behind its last for an empty set.

        Coins are flipped from the nearest candidate on, and no further than the first success: what
        is beyond does not change the report, and the set itself is not released here.
        """
        law = self.law
        table = self.whole_table
        rows = np.full(len(records), len(table.mechanism.weights), dtype=np.int64)
        different, which = np.unique(records, return_inverse=True)
        for k, record in enumerate(different):
            ranked = law.ranked(len(law.candidates), np.array([record]))[0]
            units = numerators(law.dense(np.array([record]))[0, ranked])
            waiting = np.flatnonzero(which == k)
            for row, unit in zip(table.row[law.place[ranked]], units, strict=True):
                selected = bits.integers(len(waiting)) < unit
                rows[waiting[selected]] = row
                waiting = waiting[~selected]
                if len(waiting) == 0:
                    break
        return rows

    @cached_property
    def marginal(self) -> FloatArray:
        """sum_a v(x, a) z_a, and what an empty set reports."""
        law = self.law
        rows = self.whole_table.rows(law.candidates)
        blind = self._blind[0] / TOTAL
        parts = []
        for begin in range(0, self.problem.size, AT_ONCE):
            some = np.arange(begin, min(begin + AT_ONCE, self.problem.size))
            anchors, v = law.surrogate_law(some)
            shares = np.zeros((len(some), len(rows)))
            np.put_along_axis(shares, law.place[anchors], v, axis=1)
            rest = np.maximum(0.0, 1.0 - v.sum(axis=1, keepdims=True))
            parts.append(shares @ rows + rest * blind)
        return frozen(np.concatenate(parts))

    def shares(self, anchors: IntArray) -> BudgetShares:
        distance = self.problem.domain.distances(anchors, anchors)
        np.fill_diagonal(distance, 0.0)
        cost = cost_table(self.law, self.law.rows(anchors), distance)
        whole = self.problem.epsilon * distance
        margin = np.maximum(0.0, whole - cost - self.budgets_of(anchors))
        return budget_shares(whole, cost, margin)
