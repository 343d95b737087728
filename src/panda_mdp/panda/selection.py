"""What PAnDA asks of a selection, and what all accounts of it are written in.

    Selection    parameters, by which anybody draws anchors on any domain
    └ Scheme     both phases on one problem: law, account, table, rows; the same for everybody

Two selections exist: `coins.BernoulliAnchors`, the paper's, and `balls.BallAnchors`. What a user
releases in Phase I is a set of anchors, or the centre of the ball that they are. A scheme knows no
user's record. Whoever simulates users hands records to `draw` and `rows`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import Described, FloatArray, IntArray, RebuiltOnCopy
from panda_mdp.errors import InfeasibleError, MethodError, PrivacyError
from panda_mdp.panda.anpo import AnchorTable, Solver, solver_of
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.privacy.quantise import BitSource, SeededBits, SystemBits
from panda_mdp.problem import Problem, check_number
from panda_mdp.space.domain import check_indices
from panda_mdp.table.encode import Parts
from panda_mdp.table.mechanism import Mechanism
from panda_mdp.table.thin import compact

CENTRE_SHARE = 0.2
"""Share of epsilon that the centre of a ball may tell, where nothing else is said."""
SLACK = 1e-12
"""Bounds the rounding of a loss, relative to eps d and in nats; on the safe side of each bound."""
BELOW_1 = float(np.nextafter(1.0, 0.0))
POSITIVE = "positive and finite"
Budgets = Literal["certificate", "margin"]
Pairs = Literal["union", "public"]
Weights = Literal["surrogate", "prior"]


def check_choice(name: str, value: object, choices: Any) -> None:
    """A word is one of those of a `Literal`."""
    words = get_args(choices)
    if value not in words:
        raise MethodError(f"{name} is {value!r}; choose from {', '.join(map(repr, words))}")


def check_delta(delta: float) -> None:
    """delta is a probability below 1."""
    rule = "a probability, at least 0 and below 1"
    check_number(delta, "delta", rule, least=0.0, most=BELOW_1, needed=True)


def check_users(users: npt.ArrayLike, size: int) -> IntArray:
    """Records of users as indices; the error never shows them."""
    try:
        records = check_indices(users, size, "users", MethodError)
    except (ValueError, TypeError):
        raise MethodError(f"users must be indices of the domain's records, 0..{size - 1}") from None
    if len(records) == 0:
        raise MethodError("users is empty; name the record of at least one user")
    return records


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
    """Seconds: of the solver, and of each part of an account of coins, which is all of it or
    nothing (`TimeLimitError`)."""

    def __post_init__(self) -> None:
        words = {"budgets": Budgets, "pairs": Pairs, "weights": Weights, "solver": Solver}
        for name, choices in words.items():
            check_choice(name, getattr(self, name), choices)

    def table(self, problem: Problem) -> Mechanism:
        """The table of a problem by the solver."""
        return solver_of(self.solver, self.gap, self.time_limit)(problem)

    def short_table(self, problem: Problem) -> Mechanism:
        """That table in its compact form; as it is where it cannot be shortened."""
        table = self.table(problem)
        with suppress(PrivacyError):
            table = compact(table)
        return table


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


class Selection(RebuiltOnCopy, ABC):
    """How users select anchors; knows the scheme that runs, audits and accounts for it."""

    @abstractmethod
    def scheme(
        self, problem: Problem, delta: float, options: PandaOptions = DEFAULT_OPTIONS
    ) -> Scheme:
        """Both phases on a problem."""


@dataclass(frozen=True, eq=False)
class Scheme(ABC):
    """The public part of a run: it is computed, when asked for, before anybody draws."""

    problem: Problem
    selection: Any
    delta: float
    options: PandaOptions
    row_words: ClassVar[str]
    """Which row a report is drawn from."""
    needs_losses: ClassVar[bool]
    """Whether draws depend on the losses."""

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
    def draw(self, record: int, bits: BitSource) -> IntArray:
        """Phase I: what a record releases."""

    def anchors(self, release: IntArray) -> IntArray:
        """The anchors that were released, as domain indices, ascending."""
        return release

    def releases(self) -> Iterator[tuple[npt.ArrayLike, FloatArray]]:
        """Everything that can be released, and how likely each record releases it, (K,)."""
        return iter(self.law.releases())

    @abstractmethod
    def log_likelihoods(self, release: IntArray) -> FloatArray:
        """log P_x(release) of every record, but for what all have in common."""

    @abstractmethod
    def rows(
        self, release: IntArray, table: AnchorTable, records: IntArray | None = None
    ) -> tuple[FloatArray, IntArray]:
        """What records (all by default) report from when this was released: probabilities (n, m),
        and which of these rows is each record's."""

    @abstractmethod
    def report(self, release: IntArray, table: AnchorTable, record: int, bits: BitSource) -> int:
        """Phase II: the column that a record reports, drawn from integers."""

    @abstractmethod
    def draw_selections(self, records: IntArray, bits: BitSource) -> IntArray:
        """Phase I for each record: a number for what decides how it reports."""

    @abstractmethod
    def draw_reports(self, records: IntArray, selected: IntArray, bits: BitSource) -> IntArray:
        """Phase II for each record and its number: columns. `bits` are asked for a word for each of
        them, and by balls for a coin too."""

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
        """What identifies it: the law of Phase I in plain values, and the arrays of both phases."""

    @property
    def sections(self) -> Parts:
        """These arrays as a file holds them."""
        return dict(self.stated[1])

    @abstractmethod
    def shares(self, anchors: IntArray) -> BudgetShares:
        """Average shares of eps d over pairs of anchors (section 4.4 of the paper)."""

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
    @abstractmethod
    def expected_anchors(self) -> float:
        """Anchors of a user, on average under the prior."""

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
