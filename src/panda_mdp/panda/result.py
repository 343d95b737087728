"""What a run of PAnDA returns: with a guarantee, or saying in its type that there is none.

PandaRun                 both phases for some users
├── PandaResult          its guarantee is certified over all pairs of records; can be saved
└── PandaNoGuarantee     for study: refuses to be sampled from or saved
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.errors import MethodError, NotForReleaseError, PrivacyError
from panda_mdp.panda.anpo import AnchorTable
from panda_mdp.panda.certify import Certificate
from panda_mdp.panda.options import Options
from panda_mdp.panda.plan import BudgetShares, PandaPlan
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.privacy.sampler import SystemBits, choose
from panda_mdp.problem import Problem

if TYPE_CHECKING:
    from panda_mdp.panda.ball import BallAnchors, BallLaw
    from panda_mdp.panda.selection import BernoulliAnchors


@dataclass(frozen=True)
class Clustering:
    """Clustering coefficients at the selection's radius."""

    domain: float
    anchors: float


@dataclass(frozen=True, eq=False)
class PandaRun:
    """Both phases for some users. Its repr shows neither records, nor what was drawn for them."""

    problem: Problem
    selection: BernoulliAnchors | BallAnchors
    delta: float
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
    guarantee: Guarantee | None
    reasons: tuple[str, ...]
    """Why there is no guarantee; empty where there is one."""
    stages: tuple[tuple[str, float], ...]
    seeded: bool
    options: Options = field(default_factory=Options)
    plan: PandaPlan | None = None
    """Budgets between the anchors of all users."""
    full_plan: PandaPlan | None = field(default=None, repr=False)
    """Budgets between all candidates, where they were computed: they bound every set's table."""
    certificate: Certificate | None = None
    """The bound on every pair's violation probability that the guarantee rests on."""
    ball: BallLaw | None = None
    clustering: Clustering | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    _weights: IntArray = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64), repr=False)
    """The integer row that each user reports from: derived from true records, so never shown."""
    _records: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64), repr=False)
    """The users' true records: kept for simulations, never shown."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "details", MappingProxyType(dict(self.details)))

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
    def shares(self) -> BudgetShares | None:
        """Average budget shares over pairs of anchors (independent selection only)."""
        return None if self.plan is None else self.plan.shares

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

    The constructor refuses a run without one. `guarantee` is (epsilon, delta) for one user and all
    pairs of records: the anchors that are uploaded and one report, together.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.guarantee is None or self.reasons:
            msg = "this run has no guarantee; keep it as PandaNoGuarantee"
            raise PrivacyError(msg)

    def __repr__(self) -> str:
        seeded = "; SEEDED DRAWS, NOT FOR RELEASE" if self.seeded else ""
        return f"PandaResult({self._summary()}; {self.guarantee}{seeded})"

    def sample(self, user: int) -> int:
        """One report of a user (by position): an output as domain index.

        Drawn with the operating system's generator from the row of the user's surrogate. Every
        further report spends Phase II's part of the budget again.
        """
        self._check_user(user)
        if self.seeded:
            msg = "the anchors were drawn with a seed; a report from them is not for release"
            raise NotForReleaseError(msg)
        column = choose(self._weights[user], SystemBits().integers(1))[0]
        return int(self.problem.outputs[column])

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the table of all anchors with its claim to one file, atomically.

        The file holds what the server hands out: rows, anchors, budgets and the claim; no user and
        no anchor set of a user. `panda_mdp.load` reads it and audits the rows again.
        """
        if self.seeded:
            msg = "the anchors were drawn with a seed; this run is not for release"
            raise NotForReleaseError(msg)
        if len(self.tables) != 1:
            msg = "tables of single users tell their anchors; save a run with pairs='union'"
            raise NotForReleaseError(msg)
        table, guarantee = self.tables[0], self.guarantee
        if guarantee is None:
            msg = "this run has no guarantee and cannot be saved for release"
            raise NotForReleaseError(msg)
        claim = {
            "selection": repr(self.selection),
            "anchors": table.anchors,
            "rows": table.row,
            "outputs": self.problem.outputs,
            "epsilon": guarantee.epsilon,
            "delta": guarantee.delta,
            "unit": guarantee.unit,
            "domain": self.problem.domain.fingerprint,
        }
        return table.mechanism.with_details(panda=claim).save(path)


class PandaNoGuarantee(PandaRun):
    """A run without a privacy guarantee, for study. It can be neither sampled nor saved."""

    def __repr__(self) -> str:
        return f"PandaNoGuarantee({self._summary()}; NO PRIVACY GUARANTEE)"

    def sample(self, user: int) -> int:
        """Refused: a report would be released without a guarantee."""
        msg = "this run has no privacy guarantee; nothing may be reported from it"
        raise NotForReleaseError(msg)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Refused: files are for release."""
        msg = "this run has no privacy guarantee and cannot be saved for release"
        raise NotForReleaseError(msg)
