"""How Phase II is set up and solved, and the clock that runs beside it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from numbers import Real
from typing import Literal, TypedDict

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import IntArray
from panda_mdp.errors import MethodError
from panda_mdp.privacy.sampler import BitSource, SeededBits, SystemBits
from panda_mdp.space.domain import check_indices

Solver = Literal["optimal", "benders", "highs"]
Pairs = Literal["union", "own", "public"]
Budgets = Literal["certificate", "margin"]
Weights = Literal["prior", "surrogate"]


class Settings(TypedDict, total=False):
    """The fields of `Options`, as `panda` and `study_panda` take them."""

    budgets: Budgets
    neighbours: int | None
    delta_selection: float
    pairs: Pairs
    weights: Weights
    solver: Solver
    gap: float
    time_limit: float | None
    relaxed: bool


@dataclass(frozen=True)
class Options:
    """How Phase II is set up and solved."""

    budgets: Budgets = "certificate"
    """What anchors may differ by: as much as the "certificate" allows, or what the paper's safety
    "margin" leaves."""
    neighbours: int | None = None
    """Gamma: how many records nearest to an anchor its margin covers; the selection's own where
    None."""
    delta_selection: float = 0.0
    """The part of delta for Phase I (delta_1), 0 in the paper."""
    pairs: Pairs = "union"
    """Constrain all pairs of all users' anchors with one table, as the paper does; only pairs
    within a user's "own" set, one table each; or all candidates, whoever uploads what: a "public"
    table that no upload can change."""
    weights: Weights = "surrogate"
    """Choose rows for the records behind the anchors, each as often as the anchor is its
    "surrogate": the loss over true records; or for the anchors under the "prior", as the paper
    does."""
    solver: Solver = "optimal"
    """The structured engine, Benders decomposition, or HiGHS."""
    gap: float = 0.01
    time_limit: float | None = None
    relaxed: bool = True
    """Whether the lower bound of Proposition 6 is computed too."""

    def __post_init__(self) -> None:
        if self.budgets not in ("certificate", "margin"):
            msg = f"budgets is {self.budgets!r}; choose 'certificate' or 'margin'"
            raise MethodError(msg)
        if self.pairs not in ("union", "own", "public"):
            msg = f"pairs is {self.pairs!r}; choose 'union', 'own' or 'public'"
            raise MethodError(msg)
        if self.weights not in ("prior", "surrogate"):
            msg = f"weights is {self.weights!r}; choose 'prior' or 'surrogate'"
            raise MethodError(msg)
        if self.solver not in ("optimal", "benders", "highs"):
            msg = f"solver is {self.solver!r}; choose 'optimal', 'benders' or 'highs'"
            raise MethodError(msg)
        if self.neighbours is not None and self.neighbours < 1:
            msg = f"neighbours is {self.neighbours}; the margin must cover at least the anchor"
            raise MethodError(msg)
        if not 0 <= self.delta_selection < 1:
            msg = f"delta_selection is {self.delta_selection!r}; it is a share of delta"
            raise MethodError(msg)


def source_of(seed: int | None) -> BitSource:
    """The operating system's generator, or a seeded one; errors never show the seed."""
    if seed is None:
        return SystemBits()
    try:
        return SeededBits(seed)
    except (TypeError, ValueError):
        msg = "the seed must be a whole number that is not negative, or None for safe draws"
        raise MethodError(msg) from None


@dataclass
class Clock:
    """Seconds per stage, in order."""

    stages: list[tuple[str, float]] = field(default_factory=list)
    _last: float = field(default_factory=time.perf_counter)

    def lap(self, name: str) -> None:
        """End a stage."""
        now = time.perf_counter()
        self.stages.append((name, now - self._last))
        self._last = now


def check_delta(delta: float) -> None:
    """delta is a probability below 1."""
    if not (isinstance(delta, Real) and 0 <= delta < 1):
        msg = f"delta is {delta!r}; it must be a probability, at least 0 and below 1"
        raise MethodError(msg)


def check_epsilon(epsilon: float) -> None:
    """epsilon is positive and finite."""
    if not (isinstance(epsilon, Real) and 0 < epsilon < np.inf):
        msg = f"epsilon is {epsilon!r}; it must be positive and finite"
        raise MethodError(msg)


def check_users(users: npt.ArrayLike, size: int) -> IntArray:
    """Records of users as indices; the error never shows them."""
    try:
        records = check_indices(users, size, "users", MethodError)
    except (ValueError, TypeError):
        msg = f"users must be indices of the domain's records, 0..{size - 1}"
        raise MethodError(msg) from None
    if len(records) == 0:
        msg = "users is empty; name the record of at least one user"
        raise MethodError(msg)
    return np.asarray(records)
