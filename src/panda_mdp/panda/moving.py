"""People who move: a ball is kept while its record stays inside it, and another drawn when it left.

That somebody left a ball tells where they are. So it is looked for by noisy tests of the sparse
vector kind, on how deep the record lies in the ball, which changes by no more than the record
does: a threshold is drawn with the ball, a coin decides at every look, and all looks that come out
as "stays" tell nothing together beyond the threshold. With D the largest distance between two ways
x_t and x'_t while a ball is kept, centre, moment of leaving and reports have a log-ratio of at most

    epsilon_1 d(x_0, x'_0)  +  leaving D  +  epsilon_2 sum_t d(x_t, x'_t),

t over the reports alone, however often one looks (docs/panda.md has the proof).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from panda_mdp.base.arrays import IntArray
from panda_mdp.errors import MethodError, sealed
from panda_mdp.panda.balls import BallScheme
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.panda.selection import POSITIVE
from panda_mdp.privacy.discrete_laplace import geometric, happens
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.privacy.quantise import SystemBits
from panda_mdp.problem import check_number
from panda_mdp.space.domain import check_record

LEVELS = 1024
"""Depths are whole numbers of the least distance between two records over this."""
THRESHOLD_SHARE = 1 / 3
"""What the threshold has of `leaving`; coins have the rest."""


@dataclass(frozen=True, eq=False)
class Moving:
    """Balls that people keep for as long as they stay inside.

    `leaving` is what the moment of leaving a ball may tell, per unit of distance; `most` balls are
    drawn in a day, the last of which is kept whatever happens; whoever is `depth` deep or less
    leaves for certain, but for the threshold. Everything is public, and the same for everybody.

    >>> from panda_mdp import BallAnchors, Domain, Problem
    >>> line = Domain.from_vectors([[float(i)] for i in range(9)])
    >>> problem = Problem(line, [0, 8], line.distances(None, [0, 8]), epsilon=3.0)
    >>> table = PandaTable(BallAnchors(epsilon=1.0, radius=4.0).scheme(problem))
    >>> Moving(table, leaving=0.5, most=3).guarantee(reports=2)
    Guarantee(epsilon 8 per unit, delta 0)
    """

    table: PandaTable
    leaving: float
    most: int = 8
    depth: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.table.scheme, BallScheme):
            raise MethodError(f"table is {self.table!r}; people keep balls (BallAnchors)")
        check_number(self.leaving, "leaving", POSITIVE)
        check_number(self.most, "most", "at least 1: a day has a ball", least=1, whole=True)
        check_number(self.depth, "depth", "finite", least=-sys.float_info.max)

    def guarantee(self, reports: int, balls: int | None = None) -> Guarantee:
        """What a day with so many reports tells of two ways that are at most so far from each
        other at all times: with all balls, or with those that were drawn."""
        drawn = self.most if balls is None else balls
        if not (reports >= 0 and 1 <= drawn <= self.most):
            raise MethodError(
                f"{reports} reports from {drawn} balls; a day has reports from 0 on and from 1 to "
                f"{self.most} balls"
            )
        first = self.table.selection_epsilon
        further = self.table.further
        left = min(drawn, self.most - 1) * self.leaving
        return Guarantee(drawn * first + left + reports * further.epsilon, 0.0, further.unit)

    @cached_property
    def step(self) -> float:
        """The unit of depths: rounding to it costs 2^-9 of `leaving`, which noise is wider by."""
        return float(self.table.problem.domain.neighbours(1)[1].min()) / LEVELS

    @property
    def rates(self) -> tuple[Fraction, Fraction]:
        """Nats per unit of depth: of the threshold, and of a coin."""
        nats = self.leaving * self.step * (1 - 2.0**-9)
        return Fraction(nats * THRESHOLD_SHARE), Fraction(nats * (1 - THRESHOLD_SHARE) / 2)

    def levels(self, centre: IntArray) -> IntArray:
        """How deep every record lies in a ball beyond `depth`, in whole units."""
        i, j = centre.tolist()
        deep = self.table.scheme.law.depths((i, j)) - self.depth
        return np.floor(deep / self.step).astype(np.int64)


class Way:
    """One person's day: looks wherever they are, reports where they want to. Shows nothing."""

    def __init__(self, moving: Moving) -> None:
        self._moving = moving
        self._centre: IntArray | None = None
        self._threshold = 0
        self.balls = self.reports = 0
        """What was told so far; public."""

    def __repr__(self) -> str:
        return f"Way({self.balls} balls, {self.reports} reports)"

    @property
    def guarantee(self) -> Guarantee:
        """What the day told so far."""
        return self._moving.guarantee(self.reports, max(self.balls, 1))

    @sealed
    def look(self, record: int) -> IntArray | None:
        """Where somebody is now: the centre of a new ball, which is to be sent, or None where the
        last one is kept."""
        moving = self._moving
        mine = int(check_record(record, moving.table.problem.size, MethodError))
        threshold, coin = moving.rates
        if self._centre is not None:
            above = int(moving.levels(self._centre)[mine]) + self._threshold
            stays = self.balls == moving.most or (above > 0 and not happens(above * coin))
            if stays:
                return None
        self._centre = self._moving.table.scheme.draw(mine, SystemBits())
        self._threshold = geometric(threshold)
        self.balls = self.balls + 1
        return self._centre

    @sealed
    def report(self, record: int) -> Any:
        """A report from the ball that was drawn last, wherever its owner is by now: an output as
        domain index, or its label."""
        if self._centre is None:
            raise MethodError("there is no ball yet; look(record) draws one")
        self.reports += 1
        return self._moving.table.report(record, self._centre)
