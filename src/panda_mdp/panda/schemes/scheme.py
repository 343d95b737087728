"""Both phases for one selection on one problem: what is public, the same for everybody.

Scheme                  draws, tables, rows, likelihoods, and the account of one user
├── CoinScheme          independent coins: budgets between candidates, certified
└── BallScheme          a centre and all records around it: one audited table

A scheme knows no user's record. Whoever simulates users hands records to `draw` and `rows`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.errors import InfeasibleError, MethodError
from panda_mdp.panda.accounts.budgets import BudgetShares
from panda_mdp.panda.accounts.violation import Account, Enumeration, Spreads, Violation
from panda_mdp.panda.anpo import AnchorTable, relaxed_bound
from panda_mdp.panda.options import Options
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.privacy.sampler import BitSource
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain

Start = Callable[[IntArray], FloatArray]
"""Rows to begin with, for anchors."""


class Selection(Protocol):
    """How users select anchors; knows the scheme that runs, audits and accounts for it."""

    def scheme(self, problem: Problem, delta: float, options: Options) -> Scheme: ...

    def draw(self, domain: Domain, record: int, source: BitSource | None = None) -> IntArray: ...


class Scheme(ABC):
    """The public part of a run: it is computed before anybody draws."""

    problem: Problem
    selection: Selection
    delta: float
    options: Options

    @property
    @abstractmethod
    def radius(self) -> float:
        """How far anchors are from their record, mostly; in the domain's unit."""

    @property
    @abstractmethod
    def failure(self) -> InfeasibleError | None:
        """Why the guarantee does not hold; None where it does."""

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta) for one user, anchors and report together; raises where there is none.

        Certified over all pairs of records.
        """
        if self.failure is not None:
            raise self.failure
        return Guarantee(self.problem.epsilon, self.delta, self.problem.domain.unit)

    @abstractmethod
    def draw(self, record: int, bits: BitSource) -> IntArray:
        """The anchors of a record: domain indices, ascending."""

    @abstractmethod
    def check_upload(self, anchors: Any) -> IntArray:
        """A set that somebody uploads, as anchors that can be drawn; raises otherwise."""

    @abstractmethod
    def solve(self, sets: tuple[IntArray, ...], start: Start | None) -> tuple[AnchorTable, ...]:
        """Phase II for the sets of all users: one table for all, or one for each."""

    @abstractmethod
    def whole_table(self) -> AnchorTable:
        """A table with a row for every anchor that can be drawn."""

    @abstractmethod
    def rows(
        self, anchors: IntArray, table: AnchorTable, records: IntArray | None = None
    ) -> tuple[IntArray, IntArray]:
        """What records (all by default) report from when this set was released.

        Integer rows summing to 2^62, (n, m), and which of them is each record's.
        """

    @abstractmethod
    def log_likelihoods(self, anchors: IntArray) -> FloatArray:
        """log P_x(A) of every record, up to a constant."""

    @abstractmethod
    def counted(self, anchors: IntArray) -> BoolArray:
        """Records whose pairs the guarantee covers for this set; others cost delta."""

    @abstractmethod
    def account(self) -> Account | None:
        """The account that the guarantee rests on, computed again; None where there is none."""

    @property
    def accounted(self) -> Account | None:
        """The account that `failure` was judged by, or a new one where it looks at none."""
        return self.account()

    @abstractmethod
    def spreads(
        self, settled: AnchorTable | None, anchors: IntArray, record: int, others: IntArray
    ) -> Spreads:
        """How rows of a fresh set differ between a record and others.

        Exact in the table that is settled whatever the set is, else bounds that any table keeps.
        """

    @abstractmethod
    def settled(
        self, sets: tuple[IntArray, ...], tables: tuple[AnchorTable, ...]
    ) -> AnchorTable | None:
        """The table of a run that stays the same whatever any one of its users draws, if any."""

    @abstractmethod
    def enumeration(self, settled: AnchorTable | None, pair: IntArray) -> Enumeration | None:
        """Every release of two records with its loss; None where they are too many."""

    @abstractmethod
    def pair_bound(self, pair: IntArray) -> float:
        """An upper bound on the violation probability of one pair of records."""

    @abstractmethod
    def expected_loss(self) -> float:
        """Expected loss over the prior, the draws and the reports, summed exactly.

        With the table of all anchors that can be drawn.
        """

    @property
    @abstractmethod
    def expected_anchors(self) -> float:
        """Rows that a user downloads, on average under the prior."""

    @abstractmethod
    def shares(self, anchors: IntArray) -> BudgetShares:
        """Average shares of eps d over pairs of anchors (section 4.4 of the paper)."""

    @abstractmethod
    def details(self, anchors: IntArray, table: AnchorTable) -> Mapping[str, Any]:
        """More about a run, for tables and reports."""

    def paper_violation(self, settled: AnchorTable | None, pair: IntArray) -> Violation:
        """The violation probability as Proposition 4 defines it, for two users."""
        msg = "the paper's definition is about independent selection; balls use the standard one"
        raise MethodError(msg)

    def lower_bound(self, tables: tuple[AnchorTable, ...], anchors: IntArray) -> float | None:
        """A rigorous lower bound on the loss over anchors: Proposition 6."""
        options = self.options
        bounds = [
            relaxed_bound(
                self.problem,
                chosen,
                self.problem.prior[chosen],
                gap=options.gap,
                time_limit=options.time_limit,
            )
            for chosen in ([anchors] if len(tables) == 1 else [t.anchors for t in tables])
        ]
        known = [bound for bound in bounds if bound is not None]
        return float(np.mean(known)) if len(known) == len(bounds) else None


def mean_loss(problem: Problem, table: AnchorTable, anchors: IntArray) -> float:
    """Expected loss over anchors of a table, weighted by the prior (Eq. 42)."""
    prior = problem.prior[anchors]
    if prior.sum() <= 0:
        prior = np.ones(len(anchors))
    losses = (problem.loss[anchors] * table.rows(anchors)).sum(axis=1)
    return float(prior @ losses / prior.sum())
