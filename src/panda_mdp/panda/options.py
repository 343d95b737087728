"""How Phase II is set up and solved, and the clock that runs beside it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Literal

from panda_mdp.errors import MethodError
from panda_mdp.panda.anpo import Solver
from panda_mdp.privacy.sampler import BitSource, SeededBits, SystemBits

Pairs = Literal["union", "own"]
Weights = Literal["prior", "surrogate"]


@dataclass(frozen=True)
class Options:
    """Options of Phase II; `panda` explains them."""

    neighbours: int | None = None
    delta_selection: float = 0.0
    pairs: Pairs = "union"
    weights: Weights = "prior"
    solver: Solver = "optimal"
    gap: float = 0.01
    time_limit: float | None = None
    relaxed: bool = True

    def __post_init__(self) -> None:
        if self.pairs not in ("union", "own"):
            msg = f"pairs is {self.pairs!r}; choose 'union' or 'own'"
            raise MethodError(msg)
        if self.weights not in ("prior", "surrogate"):
            msg = f"weights is {self.weights!r}; choose 'prior' or 'surrogate'"
            raise MethodError(msg)
        if self.solver not in ("optimal", "benders", "highs"):
            msg = f"solver is {self.solver!r}; choose 'optimal', 'benders' or 'highs'"
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
