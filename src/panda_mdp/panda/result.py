"""What a run of PAnDA returns: with a guarantee, or saying in its type that there is none.

PandaRun                 both phases for some users
├── PandaResult          its guarantee is certified over all pairs of records
└── PandaNoGuarantee     for study: refuses to be sampled from or saved

A file holds `PandaResult.public`, a `PandaTable`, which knows none of the run's users.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray, Rebuilt, frozen
from panda_mdp.errors import EmptyAnchorsError, MethodError, NotForReleaseError, PrivacyError
from panda_mdp.panda.accounts.budgets import BudgetShares
from panda_mdp.panda.anpo import AnchorTable
from panda_mdp.panda.options import Clock, Options
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.panda.schemes.scheme import Scheme, Selection, Start, mean_loss
from panda_mdp.panda.simulate.clustering import clustering_coefficient
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.privacy.sampler import SystemBits, choose
from panda_mdp.problem import Problem


@dataclass(frozen=True)
class Clustering:
    """Clustering coefficients at the selection's radius."""

    domain: float
    anchors: float


@dataclass(frozen=True, eq=False)
class PandaRun(Rebuilt):
    """Both phases for some users. Its repr shows neither records, nor what was drawn for them."""

    scheme: Scheme
    """What is public and the same for everybody: budgets or ball law, and their account."""
    anchor_sets: tuple[IntArray, ...]
    """What each user uploads: anchors as domain indices, ascending."""
    tables: tuple[AnchorTable, ...]
    """One table for all users, or one for each."""
    loss: float
    """Mean expected loss over the users' true records, through their surrogates."""
    anchor_loss: float
    """Expected loss over the anchors themselves, as the paper counts it (Eq. 42)."""
    lower_bound: float | None
    """A rigorous lower bound on the loss over the anchors, by relaxed AnPO (Proposition 6)."""
    stages: tuple[tuple[str, float], ...]
    seeded: bool
    _weights: IntArray = field(repr=False)
    """The integer row that each user reports from: derived from true records, so never shown."""
    _records: IntArray = field(repr=False)
    """The users' true records: for simulations, never shown."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "anchor_sets", tuple(frozen(some) for some in self.anchor_sets))
        object.__setattr__(self, "_weights", frozen(self._weights))
        object.__setattr__(self, "_records", frozen(self._records))

    @classmethod
    def over(
        cls,
        scheme: Scheme,
        records: IntArray,
        sets: tuple[IntArray, ...],
        clock: Clock,
        *,
        seeded: bool,
        start: Start | None = None,
    ) -> Self:
        """Phase II for given anchor sets. The table depends on the sets, never on the records."""
        problem, options = scheme.problem, scheme.options
        union = np.unique(np.concatenate(sets))
        if len(union) == 0:
            msg = "no user drew any anchor, so there is no table to compute"
            raise EmptyAnchorsError(msg, value=float(len(sets)), limit=0.0)
        tables = scheme.solve(sets, start)
        clock.lap(f"AnPO ({options.solver})")
        weights = np.empty((len(records), problem.outputs_count), dtype=np.int64)
        for n, chosen in enumerate(sets):
            rows, row = scheme.rows(chosen, tables[n % len(tables)], records[n : n + 1])
            weights[n] = rows[row[0]]
        # One table may hold rows that are nobody's anchors; the paper's loss is over the union.
        over = [union] if len(tables) == 1 else [table.anchors for table in tables]
        losses = [mean_loss(problem, t, some) for t, some in zip(tables, over, strict=True)]
        bound = None
        if options.relaxed:
            bound = scheme.lower_bound(tables, union)
            clock.lap("relaxed AnPO")
        return cls(
            scheme=scheme,
            anchor_sets=sets,
            tables=tables,
            loss=float((problem.loss[records] * (weights / 2.0**62)).sum(axis=1).mean()),
            anchor_loss=float(np.mean(losses)),
            lower_bound=bound,
            stages=tuple(clock.stages),
            seeded=seeded,
            _weights=weights,
            _records=records,
        )

    @property
    def problem(self) -> Problem:
        """What both phases solve."""
        return self.scheme.problem

    @property
    def selection(self) -> Selection:
        """How anchors are selected."""
        return self.scheme.selection

    @property
    def delta(self) -> float:
        """The failure probability that was asked for."""
        return self.scheme.delta

    @property
    def options(self) -> Options:
        """How Phase II was set up."""
        return self.scheme.options

    @property
    def users(self) -> int:
        """Number of users."""
        return len(self.anchor_sets)

    @property
    def anchors(self) -> IntArray:
        """The union of all users' anchors."""
        return np.unique(np.concatenate(self.anchor_sets))

    @property
    def ratio(self) -> float | None:
        """Loss over the anchors against its lower bound, at least 1 (Proposition 6)."""
        if self.lower_bound is None:
            return None
        if self.lower_bound <= 0:
            return 1.0 if self.anchor_loss <= 0 else float("inf")
        return self.anchor_loss / self.lower_bound

    @property
    def shares(self) -> BudgetShares:
        """Average budget shares over pairs of anchors."""
        return self.scheme.shares(self.anchors)

    @cached_property
    def details(self) -> Mapping[str, Any]:
        """More about the run, for tables and reports."""
        return self.scheme.details(self.anchors, self.tables[0])

    @cached_property
    def clustering(self) -> Clustering:
        """Clustering coefficients of records and of anchors (appendix of the paper)."""
        domain, radius = self.problem.domain, self.scheme.radius
        return Clustering(
            clustering_coefficient(domain, radius),
            clustering_coefficient(domain, radius, self.anchors),
        )

    @property
    def seconds(self) -> float:
        """Time that all stages took."""
        return sum(seconds for _, seconds in self.stages)

    def table_of(self, user: int) -> AnchorTable:
        """The table that a user (by position) downloads from."""
        self._check_user(user)
        return self.tables[0] if len(self.tables) == 1 else self.tables[user]

    def download(self, user: int) -> FloatArray:
        """The rows that a user (by position) downloads, one per own anchor."""
        return self.table_of(user).rows(self.anchor_sets[user])

    @property
    def _empty(self) -> EmptyAnchorsError | None:
        """An error where some users have no anchor to report from."""
        empty = [n for n, chosen in enumerate(self.anchor_sets) if len(chosen) == 0]
        if not empty:
            return None
        msg = (
            f"{len(empty)} of {self.users} users drew no anchor (the first is user {empty[0]}) and "
            "have no row to report from: use a larger alpha, radius or candidate set"
        )
        return EmptyAnchorsError(msg, value=float(len(empty)), limit=0.0)

    def _check_user(self, user: int) -> None:
        if not 0 <= user < self.users:
            msg = f"there is no user {user}; users are the positions 0..{self.users - 1}"
            raise MethodError(msg)

    def _summary(self) -> str:
        unit = self.problem.loss_unit
        bound = "" if self.lower_bound is None else f", lower bound {self.lower_bound:.6g}"
        return (
            f"{self.selection!r}: K={self.problem.size}, {self.users} users, "
            f"{len(self.anchors)} anchors in all, loss over anchors {self.anchor_loss:.6g} "
            f"{unit}{bound}, epsilon {self.problem.epsilon:g} per {self.problem.domain.unit}, "
            f"delta {self.delta:g}"
        )


class PandaResult(PandaRun):
    """A run whose composed mechanism has the guarantee that it states.

    `guarantee` is (epsilon, delta) for one user and all pairs of records: the anchors that are
    uploaded and one report, together. The constructor asks the scheme for it, which raises where
    its own account does not confirm it.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scheme.failure is not None:
            msg = f"this run has no guarantee; keep it as PandaNoGuarantee: {self.scheme.failure}"
            raise PrivacyError(msg)
        if self._empty is not None:
            raise self._empty

    def __repr__(self) -> str:
        seeded = "; SEEDED DRAWS, NOT FOR RELEASE" if self.seeded else ""
        return f"PandaResult({self._summary()}; {self.guarantee}{seeded})"

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta) for one user, certified over all pairs of records."""
        return self.scheme.guarantee

    def sample(self, user: int) -> Any:
        """One report of a user (by position): an output as domain index, or its label.

        Drawn with the operating system's generator from the row of the user's surrogate. Every
        further report spends Phase II's part of the budget again.
        """
        self._check_user(user)
        if self.seeded:
            msg = "the anchors were drawn with a seed; a report from them is not for release"
            raise NotForReleaseError(msg)
        column = choose(self._weights[user], SystemBits().integers(1))
        reported: Any = self.problem.reports.report(column)[0]
        return int(reported) if isinstance(reported, np.integer) else reported

    @cached_property
    def public(self) -> PandaTable:
        """What others run both phases with, without these users: `PandaTable`.

        One table over all anchors that can be drawn; solved here where this run's has not all.
        """
        return PandaTable.of(self.scheme)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write `public` to a file for `load_panda`: nothing that any user drew is in it."""
        return self.public.save(path)


class PandaNoGuarantee(PandaRun):
    """A run without a privacy guarantee, for study. It can be neither sampled nor saved."""

    def __repr__(self) -> str:
        return f"PandaNoGuarantee({self._summary()}; NO PRIVACY GUARANTEE)"

    @property
    def guarantee(self) -> None:
        """None: whatever the account says, a study promises nothing."""
        return

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why there can be no guarantee; empty where `panda` would give one."""
        return tuple(str(error) for error in (self.scheme.failure, self._empty) if error)

    def sample(self, user: int) -> int:
        """Refused: a report would be released without a guarantee."""
        msg = "this run has no privacy guarantee; nothing may be reported from it"
        raise NotForReleaseError(msg)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Refused: files are for release."""
        msg = "this run has no privacy guarantee and cannot be saved for release"
        raise NotForReleaseError(msg)
