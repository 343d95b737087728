"""What PAnDA asks of a selection, and what all accounts of it are written in.

    Selection    parameters, by which anybody draws anchors on any domain
    └ law        the selection on one domain: `draw` and `check` sets, `log_likelihoods`, sizes
      └ Scheme   both phases on one problem: account, table, rows; the same for everybody

Two selections exist: `coins.BernoulliAnchors`, the paper's, and `balls.BallAnchors`. A scheme knows
no user's record. Whoever simulates users hands records to `law.draw` and `rows`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, get_args
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import Described, FloatArray, IntArray, RebuiltOnCopy, is_number
from panda_mdp.errors import InfeasibleError, MethodError
from panda_mdp.panda.anpo import AnchorTable, Solver, solver_of
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.privacy.sampler import BitSource, SeededBits, SystemBits
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain, check_indices, check_record
from panda_mdp.table.mechanism import Mechanism

CENTRE_SHARE = 0.3
"""Share of epsilon that the centre of a ball may tell, where nothing else is said."""
SLACK = 1e-12
"""Bounds the rounding of a loss, relative to eps d and in nats; on the safe side of each bound."""

"""Rows to begin with, for anchors."""
Budgets = Literal["certificate", "margin"]
Pairs = Literal["union", "public"]
Weights = Literal["surrogate", "prior"]


def check_rules(given: object, *rules: tuple[str, bool, str]) -> None:
    """Refuse the first field (name, whether it holds, its rule in words) that does not hold."""
    for name, holds, rule in rules:
        _check(name, getattr(given, name), holds, rule)


def check_choice(name: str, value: object, choices: Any) -> None:
    """A word is one of those of a `Literal`."""
    words = get_args(choices)
    _check(name, value, value in words, f"choose from {', '.join(map(repr, words))}")


def check_delta(delta: float) -> None:
    """delta is a probability below 1."""
    within = is_number(delta) and 0 <= delta < 1
    _check("delta", delta, within, "it must be a probability, at least 0 and below 1")


def check_epsilon(epsilon: float) -> None:
    """epsilon is positive and finite."""
    within = is_number(epsilon) and 0 < epsilon < np.inf
    _check("epsilon", epsilon, within, "it must be positive and finite")


def _check(name: str, value: object, holds: bool, rule: str) -> None:
    if not holds:
        raise MethodError(f"{name} is {value!r}; {rule}")


def check_users(users: npt.ArrayLike, size: int) -> IntArray:
    """Records of users as indices; the error never shows them."""
    try:
        records = check_indices(users, size, "users", MethodError)
    except (ValueError, TypeError):
        raise MethodError(f"users must be indices of the domain's records, 0..{size - 1}") from None
    if len(records) == 0:
        raise MethodError("users is empty; name the record of at least one user")
    return np.asarray(records)


@dataclass(frozen=True)
class PandaOptions:
    """How Phase II is set up and solved."""

    budgets: Budgets = "certificate"
    """What anchors may differ by: as much as the "certificate" allows, or what the paper's safety
    "margin" leaves."""
    pairs: Pairs = "union"
    """Constrain all pairs of all users' anchors, as the paper does; or all candidates, whoever
    uploads what: a "public" table that no upload can change."""
    weights: Weights = "surrogate"
    """Choose rows for the records behind the anchors, each as often as the anchor is its
    "surrogate": the loss over true records; or for the anchors under the "prior", as the paper
    does."""
    solver: Solver = "optimal"
    """The structured engine, Benders decomposition, or HiGHS."""
    gap: float = 0.01
    time_limit: float | None = None

    def __post_init__(self) -> None:
        words = {"budgets": Budgets, "pairs": Pairs, "weights": Weights, "solver": Solver}
        for name, choices in words.items():
            check_choice(name, getattr(self, name), choices)

    def table(self, problem: Problem) -> Mechanism:
        """The table of a problem by the solver."""
        return solver_of(self.solver, self.gap, self.time_limit)(problem)


DEFAULT_OPTIONS = PandaOptions()


@dataclass(frozen=True)
class Account:
    """An upper bound on the violation probability of every pair, and where it is largest."""

    violation: float
    pair: tuple[int, int]
    failure: InfeasibleError | None = None
    """Why there is no guarantee; None where there is one."""


@dataclass(frozen=True)
class BudgetShares:
    """How eps d is spent between anchors, on average over pairs; the three sum to 1."""

    selection: float
    """Phase I: the cost of choosing anchors."""
    margin: float
    """Phase II: the safety margin."""
    remaining: float
    """Phase II: what the table may use."""


def budget_shares(whole: FloatArray, leakage: FloatArray, margin: FloatArray) -> BudgetShares:
    """Average shares of eps d, `whole`, over pairs of anchors (section 4.4 of the paper)."""
    upper = np.triu_indices(len(whole), k=1)
    if not len(upper[0]):
        return BudgetShares(0.0, 0.0, 1.0)
    first = np.minimum(1.0, leakage[upper] / whole[upper])
    second = np.minimum(1.0 - first, margin[upper] / whole[upper])
    left = 1.0 - first - second
    return BudgetShares(float(first.mean()), float(second.mean()), float(left.mean()))


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


def sum_violation(
    scheme: Scheme,
    pair: IntArray,
    low: FloatArray,
    high: FloatArray,
    masses: FloatArray,
    method: str,
) -> Violation:
    """What lies beyond eps d, and the quantile at 1 - delta, given all releases of two records:
    bounds on the loss of each and its probability under each hypothesis, (1 or 2, n)."""
    distance = scheme.problem.domain.distance(int(pair[0]), int(pair[1]))
    limit = scheme.problem.epsilon * distance
    room = SLACK * (1 + limit)
    lower = float(masses[:, low > limit + room].sum(axis=1).max())
    upper = float(masses[:, high > limit - room].sum(axis=1).max())
    order = np.argsort(-high)
    over = (np.cumsum(masses[:, order], axis=1) > scheme.delta).any(axis=0)
    # The largest loss whose probability, with all larger ones, no longer fits into delta.
    effective = float(high[order[over.argmax()]]) / distance if over.any() else 0.0
    return Violation(lower, upper, effective, method)


def log_ratios(row: IntArray, others: IntArray) -> FloatArray:
    """log z / z' of one integer row against others; 0 where neither has an output."""
    with np.errstate(divide="ignore", invalid="ignore"):
        difference = np.log(row.astype(np.float64)) - np.log(others.astype(np.float64))
    return np.where(np.isnan(difference), 0.0, difference)


class Selection(RebuiltOnCopy, ABC):
    """How users select anchors; knows the scheme that runs, audits and accounts for it."""

    def on(self, domain: Domain) -> Any:
        """The law of anchors on a domain, computed once."""
        laws: WeakKeyDictionary[Domain, Any] = vars(self).setdefault("_laws", WeakKeyDictionary())
        if domain not in laws:
            laws[domain] = self._law(domain)
        return laws[domain]

    def holding(self, law: Any) -> Self:
        """The same selection with a law that it would compute when asked."""
        laws: WeakKeyDictionary[Domain, Any] = vars(self).setdefault("_laws", WeakKeyDictionary())
        laws[law.domain] = law
        return self

    @abstractmethod
    def _law(self, domain: Domain) -> Any:
        """The law of anchors on a domain."""

    @abstractmethod
    def scheme(
        self, problem: Problem, delta: float, options: PandaOptions = DEFAULT_OPTIONS
    ) -> Scheme:
        """Both phases on a problem."""

    def draw(self, domain: Domain, record: int, source: BitSource | None = None) -> IntArray:
        """The anchors of a record: indices into the domain, ascending.

        Exact: integers and the operating system's generator. `source` is for simulations
        (`SeededBits`).
        """
        bits = SystemBits() if source is None else source
        mine = int(check_record(record, domain.size, MethodError))
        return np.asarray(self.on(domain).draw(mine, bits))


@dataclass(frozen=True, eq=False)
class Scheme(ABC):
    """The public part of a run: it is computed, when asked for, before anybody draws."""

    problem: Problem
    selection: Any
    delta: float
    options: PandaOptions
    row_words: ClassVar[str]
    """Which row a report is drawn from."""

    @property
    @abstractmethod
    def law(self) -> Any:
        """The selection on the problem's domain."""

    @property
    @abstractmethod
    def account(self) -> Account:
        """What the guarantee rests on, certified over all pairs of records."""

    @property
    @abstractmethod
    def whole_table(self) -> AnchorTable:
        """A table with a row for every anchor that can be drawn."""

    @abstractmethod
    def solve(self, sets: tuple[IntArray, ...]) -> AnchorTable:
        """Phase II for the sets of all users: one table for all."""

    @abstractmethod
    def rows(
        self, anchors: IntArray, table: AnchorTable, records: IntArray | None = None
    ) -> tuple[IntArray, IntArray]:
        """What records (all by default) report from when this set was released.

        Integer rows summing to 2^62, (n, m), and which of them is each record's.
        """

    @property
    @abstractmethod
    def report_rows(self) -> IntArray:
        """All integer rows that anybody may report from, those of `whole_table` first."""

    @abstractmethod
    def draw_rows(self, records: IntArray, bits: BitSource) -> IntArray:
        """Phase I for each record: the row of `report_rows` that it then reports from."""

    @property
    @abstractmethod
    def marginal(self) -> FloatArray:
        """Pr[report | record] with Phase I summed out, K x m."""

    @property
    @abstractmethod
    def selection_epsilon(self) -> float:
        """What the anchors alone tell, per unit of distance."""

    @property
    @abstractmethod
    def further(self) -> Guarantee:
        """What each further report from the same anchors costs."""

    @property
    @abstractmethod
    def stated(self) -> Described:
        """What a file holds: the law of Phase I in plain values, and the arrays of both phases."""

    @abstractmethod
    def shares(self, anchors: IntArray) -> BudgetShares:
        """Average shares of eps d over pairs of anchors (section 4.4 of the paper)."""

    @abstractmethod
    def settled(self, sets: tuple[IntArray, ...], table: AnchorTable) -> AnchorTable | None:
        """The table of a run where it stays the same whatever any one of its users draws."""

    @abstractmethod
    def violation(self, table: AnchorTable | None, pair: IntArray) -> Violation:
        """How often the loss of two records exceeds eps d; exact for a settled table, by every
        release, where those are not too many."""

    @property
    def failure(self) -> InfeasibleError | None:
        """Why the guarantee does not hold; None where it does."""
        return self.account.failure

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta) for one user, anchors and report together; raises where there is none.

        Certified over all pairs of records.
        """
        if self.failure is not None:
            raise self.failure
        return Guarantee(self.problem.epsilon, self.delta, self.problem.domain.unit)

    @property
    def audited_epsilon(self) -> float:
        """What both phases tell by their audits, save with delta."""
        return self.problem.epsilon

    @property
    def expected_loss(self) -> float:
        """Expected loss over the prior, the draws and the reports, summed exactly.

        With the table of all anchors that can be drawn.
        """
        losses = (self.problem.loss * self.marginal).sum(axis=1)
        return float(self.problem.prior @ losses)

    @property
    def expected_anchors(self) -> float:
        """Rows that a user downloads, on average under the prior."""
        return float(self.law.expected_size(self.problem.prior))

    def objective(self, anchors: IntArray) -> Any:
        """AnPO's weights and losses of anchors; None where no upload changes the table."""
        return None

    def holding(self, **parts: Any) -> Self:
        """The same scheme with parts that it would compute when asked: a file's, or shared ones.

        The account is then of these.
        """
        other = replace(self)
        vars(other).update(parts)
        return other


def mean_loss(problem: Problem, table: AnchorTable, anchors: IntArray) -> float:
    """Expected loss over anchors of a table, weighted by the prior (Eq. 42)."""
    prior = problem.prior[anchors]
    if prior.sum() <= 0:
        prior = np.ones(len(anchors))
    losses = (problem.loss[anchors] * table.rows(anchors)).sum(axis=1)
    return float(prior @ losses / prior.sum())


def source_of(seed: int | None) -> BitSource:
    """The operating system's generator, or a seeded one; errors never show the seed."""
    if seed is None:
        return SystemBits()
    try:
        return SeededBits(seed)
    except (TypeError, ValueError):
        raise MethodError(
            "the seed must be a whole number that is not negative, or None for safe draws"
        ) from None
