"""PAnDA: both phases for given users, accounted for.

PandaRun                 both phases for some users
├── PandaResult          its guarantee is certified over all pairs of records
└── PandaNoGuarantee     for study: refuses to be sampled from or saved

A file holds `PandaResult.public`, a `PandaTable`, which knows none of the run's users.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import IntArray, RebuiltOnCopy, Stages, frozen, stopwatch
from panda_mdp.base.atomic import FilePath
from panda_mdp.errors import MethodError, NotForReleaseError, PrivacyError
from panda_mdp.panda.anpo import AnchorTable, relaxed_bound, solver_of
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.panda.selection import (
    DEFAULT_OPTIONS,
    BudgetShares,
    PandaOptions,
    Scheme,
    Selection,
    check_delta,
    check_users,
    mean_loss,
    source_of,
)
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.privacy.quantise import SystemBits
from panda_mdp.problem import Problem
from panda_mdp.space.domain import check_indices

R = TypeVar("R", bound="PandaRun")


@dataclass(frozen=True, eq=False)
class PandaRun(RebuiltOnCopy):
    """Both phases for some users. Its repr shows neither records, nor what was drawn for them."""

    scheme: Scheme
    """What is public and the same for everybody: budgets or ball law, and their account."""
    releases: tuple[IntArray, ...]
    """What each user uploads: anchors as domain indices, ascending, or the centre of a ball."""
    table: AnchorTable
    """What all users download from."""
    stages: Stages
    """What was done, and the seconds that it took."""
    seeded: bool
    _records: IntArray = field(repr=False)
    """The users' true records: for simulations, never shown."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "releases", tuple(frozen(some) for some in self.releases))
        object.__setattr__(self, "_records", frozen(self._records))

    @classmethod
    def over(
        cls,
        scheme: Scheme,
        records: IntArray,
        sets: tuple[IntArray, ...],
        *,
        seeded: bool,
        stages: Stages = (),
    ) -> Self:
        """Phase II for given anchor sets. The table depends on the sets, never on the records."""
        spent = stopwatch()
        table = scheme.solve(sets)
        stages += spent(f"AnPO ({scheme.options.solver})")
        return cls(scheme, sets, table, stages, seeded, records)

    @property
    def problem(self) -> Problem:
        """What both phases solve."""
        return self.scheme.problem

    @property
    def users(self) -> int:
        """Number of users."""
        return len(self.releases)

    @cached_property
    def anchor_sets(self) -> tuple[IntArray, ...]:
        """The anchors of each user, as domain indices, ascending."""
        return tuple(self.scheme.anchors(release) for release in self.releases)

    @property
    def anchors(self) -> IntArray:
        """The union of all users' anchors."""
        return np.unique(np.concatenate(self.anchor_sets))

    @property
    def loss(self) -> float:
        """Mean expected loss over the users' true records, through their surrogates."""
        losses = []
        for n, release in enumerate(self.releases):
            mine = self._records[n : n + 1]
            rows, row = self.scheme.rows(release, self.table, mine)
            losses.append(self.problem.loss[mine[0]] @ rows[row[0]])
        return float(np.mean(losses))

    @property
    def anchor_loss(self) -> float:
        """Expected loss over the anchors themselves, as the paper counts it (Eq. 42)."""
        # The table may hold rows that are nobody's anchors; the paper's loss is over the union.
        return mean_loss(self.problem, self.table, self.anchors)

    @cached_property
    def lower_bound(self) -> float | None:
        """A rigorous lower bound on the loss over the anchors, by relaxed AnPO (Proposition 6).

        Solved when it is asked for.
        """
        options = self.scheme.options
        solver = solver_of("optimal", options.gap, options.time_limit)
        return relaxed_bound(self.problem, self.anchors, self.problem.prior[self.anchors], solver)

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

    @property
    def seconds(self) -> float:
        """Time that all stages took."""
        return sum(seconds for _, seconds in self.stages)

    def _summary(self) -> str:
        return (
            f"{self.scheme.selection!r}: K={self.problem.size}, {self.users} users, "
            f"{len(self.anchors)} anchors in all, loss over anchors {self.anchor_loss:.6g} "
            f"{self.problem.loss_unit}, epsilon {self.problem.epsilon:g} per "
            f"{self.problem.domain.unit}, delta {self.scheme.delta:g}"
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
            raise PrivacyError(
                f"this run has no guarantee; keep it as PandaNoGuarantee: {self.scheme.failure}"
            )

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
        (at,) = check_indices([user], self.users, "users", MethodError).tolist()
        if self.seeded:
            raise NotForReleaseError(
                "the anchors were drawn with a seed; a report from them is not for release"
            )
        mine = int(self._records[at])
        column = self.scheme.report(self.releases[at], self.table, mine, SystemBits())
        return self.problem.reports.report(np.array([column]), single=True)

    @cached_property
    def public(self) -> PandaTable:
        """What others run both phases with, without these users: `PandaTable`.

        One table over all anchors that can be drawn; solved here where this run's has not all.
        """
        return PandaTable(self.scheme)

    def save(self, path: FilePath) -> Path:
        """Write `public` to a file for `panda_mdp.load`: nothing that any user drew is in it."""
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
        failure = self.scheme.failure
        return () if failure is None else (str(failure),)

    def sample(self, user: int) -> int:
        """Refused: a report would be released without a guarantee."""
        raise NotForReleaseError(
            "this run has no privacy guarantee; nothing may be reported from it"
        )

    def save(self, path: FilePath) -> Path:
        """Refused: files are for release."""
        raise NotForReleaseError(
            "this run has no privacy guarantee and cannot be saved for release"
        )


def panda(
    problem: Problem,
    users: npt.ArrayLike,
    selection: Selection,
    delta: float = 1e-7,
    options: PandaOptions = DEFAULT_OPTIONS,
    *,
    seed: int | None = None,
) -> PandaResult:
    """Run both phases for given users (domain indices of true records: simulation only).

    Phase I draws every user's anchors from `selection`. Phase II computes the budgets between
    anchors, solves AnPO over their union to a gap, and lets every user report from the row of the
    nearest own anchor. The server's part sees the anchors alone, never `users`.

    Guarantee: (epsilon, delta) for one user, anchors and report together, over all pairs of
    records (`Guarantee`); certified before anybody draws. What does not fit raises an
    `InfeasibleError` with the number and the pair; `study_panda` computes it all the same.

    `options` say how Phase II is set up: the budgets, the solver and its gap, which pairs are
    constrained and how anchors are weighed. A `seed` makes draws repeatable and the result not
    for release.

    >>> from panda_mdp import BallAnchors, Domain
    >>> domain = Domain.from_vectors([[0.0], [1.0], [2.0], [3.0]])
    >>> problem = Problem(domain, [0, 3], domain.distances(None, [0, 3]), epsilon=2.0)
    >>> result = panda(problem, [1, 2], BallAnchors(epsilon=0.5))
    >>> result.guarantee
    Guarantee(epsilon 2 per unit, delta 0)
    """
    return _simulate(PandaResult, problem, users, selection, delta, options, seed)


def study_panda(
    problem: Problem,
    users: npt.ArrayLike,
    selection: Selection,
    delta: float = 1e-7,
    options: PandaOptions = DEFAULT_OPTIONS,
    *,
    seed: int | None = None,
) -> PandaNoGuarantee:
    """What `panda` would do whether or not it fits: for study, never for release.

    `reasons` of the result says why there is no guarantee, where there is none.
    """
    return _simulate(PandaNoGuarantee, problem, users, selection, delta, options, seed)


def _simulate(
    kind: type[R],
    problem: Problem,
    users: npt.ArrayLike,
    selection: Selection,
    delta: float,
    options: PandaOptions,
    seed: int | None,
) -> R:
    """Phase I for every user, then Phase II; where a guarantee is asked for, its account first."""
    check_delta(delta)
    if not isinstance(selection, Selection):
        raise MethodError(
            f"selection is a {type(selection).__name__}; give BernoulliAnchors or BallAnchors"
        )
    records = check_users(users, problem.size)
    spent = stopwatch()
    scheme = selection.scheme(problem, delta, options)
    stages: Stages = ()
    if kind is PandaResult:
        if scheme.failure is not None:
            raise scheme.failure
        stages = spent("accounts")
    spent = stopwatch()
    bits = source_of(seed)
    sets = tuple(scheme.draw(int(record), bits) for record in records)
    stages += spent("draw anchors")
    return kind.over(scheme, records, sets, seeded=seed is not None, stages=stages)
