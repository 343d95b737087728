"""Ball anchors: all records within a radius of a centre that is drawn privately, and both phases.

What is released is the centre, which is eps_1-mDP by proof, and what a record reports from is a row
of one audited table that fades into the common row of everybody outside, which is eps_2-mDP by
proof: delta is 0 (`lattice`, docs/panda.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import Described, FloatArray, IntArray, frozen
from panda_mdp.errors import PhaseOneCostError
from panda_mdp.panda.anpo import AnchorTable
from panda_mdp.panda.lattice import BallLaw, Centre, radius_for
from panda_mdp.panda.selection import (
    DEFAULT_OPTIONS,
    POSITIVE,
    Account,
    BudgetShares,
    PandaOptions,
    Scheme,
    Selection,
)
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.privacy.quantise import TOTAL, BitSource, GivenBits, choose, choose_rows
from panda_mdp.problem import Problem, check_number
from panda_mdp.table.encode import Parts, weight_sections
from panda_mdp.table.mechanism import Mechanism

EDGE_SHARE = 0.05
"""What fading takes of what the centre leaves, where nothing else is said."""
MISSED = 1e-5
"""How often a ball leaves its record out, where no radius is given: a miss costs loss alone."""

HALF = 1 << 31
NUMBERED = np.array([2 * HALF, 1])
"""Centres times this are numbers, from which they can be told."""
SELDOM = 1e-8
"""Centres that every record draws less often are left out of what is seen."""


@dataclass(frozen=True, eq=False)
class BallAnchors(Selection):
    """Release the centre of a ball that is drawn privately; report from a row that fades.

    `epsilon` (eps_1, per unit of distance) is what the centre may tell, `radius` that of balls; by
    default one that leaves a record out once in a hundred thousand times. `edge` is what rows may
    tell more than the table's to fade at the edge: 5 % of what the centre leaves. For places on the
    earth and vectors with one or two entries.

    >>> from panda_mdp import Domain
    >>> line = Domain.from_vectors([[float(i)] for i in range(9)])
    >>> problem = Problem(line, [0, 8], line.distances(None, [0, 8]), epsilon=3.0)
    >>> scheme = BallAnchors(epsilon=1.0, radius=4.0).scheme(problem)
    >>> scheme.guarantee, scheme.law.ball((2, 0)).tolist()
    (Guarantee(epsilon 3 per unit, delta 0), [0, 1, 2, 3, 4, 5, 6])
    """

    epsilon: float
    radius: float | None = None
    edge: float | None = None

    def __repr__(self) -> str:
        given = {name: getattr(self, name) for name in ("epsilon", "radius", "edge")}
        return f"BallAnchors({', '.join(f'{k}={v:g}' for k, v in given.items() if v is not None)})"

    def __post_init__(self) -> None:
        for name in ("epsilon", "radius", "edge"):
            check_number(getattr(self, name), name, POSITIVE, needed=name == "epsilon")

    def scheme(
        self, problem: Problem, delta: float = 0.0, options: PandaOptions = DEFAULT_OPTIONS
    ) -> BallScheme:
        """Both phases of this selection on a problem; they need no delta."""
        del delta
        return BallScheme(problem, self, 0.0, options)


@dataclass(frozen=True, eq=False)
class BallScheme(Scheme):
    """One table serves every user and every ball; outside, one row for everybody.

    The table is audited over all pairs at what centre and edge leave of epsilon; that a centre
    tells eps_1 and that rows fade is proved (docs/panda.md). So (epsilon, 0), whatever the radius.
    """

    selection: BallAnchors
    row_words: ClassVar = "the own row, which fades at the ball's edge into one that all share"
    needs_losses: ClassVar = False

    @property
    def left(self) -> float:
        """What the centre leaves for the report, per unit of distance."""
        return self.problem.epsilon - self.selection.epsilon

    @property
    def edge(self) -> float:
        """What fading takes of that."""
        given = self.selection.edge
        return EDGE_SHARE * max(self.left, 0.0) if given is None else given

    @property
    def table_epsilon(self) -> float:
        """What is left for the table, a trifle less than the difference: sums of floats round."""
        return (self.left - self.edge) * (1 - 1e-12)

    @cached_property
    def law(self) -> BallLaw:
        """The law of centres, and how rows fade."""
        selection = self.selection
        radius = selection.radius or radius_for(selection.epsilon, MISSED)
        return BallLaw(self.problem.domain, selection.epsilon, radius, self.left, self.edge)

    @cached_property
    def mechanism(self) -> Mechanism:
        """The domain's table: public, the same for everyone, audited over all pairs."""
        return self.options.short_table(self.problem.with_epsilon(self.table_epsilon))

    @cached_property
    def account(self) -> Account:
        told = self.selection.epsilon + self.edge
        epsilon = self.problem.epsilon
        if told < epsilon:
            # What the proof asks of domain and numbers is checked by the law, the rest is audited.
            broken = self.law.second < self.law.edge + self.mechanism.audit.epsilon
            return Account(float(broken), (0, 1))
        msg = (
            f"centre and edge alone cost {told:g} per {self.problem.domain.unit} and epsilon is "
            f"{epsilon:g}: nothing is left for the report; give BallAnchors a smaller one"
        )
        return Account(1.0, (0, 1), PhaseOneCostError(msg, value=told, limit=epsilon))

    @property
    def selection_epsilon(self) -> float:
        return self.selection.epsilon

    @property
    def audited_epsilon(self) -> float:
        return self.selection_epsilon + self.mechanism.audit.epsilon + self.edge

    @property
    def further(self) -> Guarantee:
        """A centre is told once, and every report from its ball tells eps_2."""
        return Guarantee(self.left, 0.0, self.problem.domain.unit)

    @property
    def stated(self) -> Described:
        said = {"epsilon": self.selection.epsilon, "edge": self.edge, "radius": self.law.radius}
        return {"kind": "ball", **said}, {"weights": np.asarray(self.mechanism.weights)}

    @property
    def sections(self) -> Parts:
        return weight_sections(self.problem.domain, self.mechanism.weights)

    @cached_property
    def whole_table(self) -> AnchorTable:
        everyone = np.arange(self.problem.size)
        return AnchorTable(everyone, everyone, self.mechanism)

    def solve(self, sets: tuple[IntArray, ...]) -> AnchorTable:
        return self.whole_table

    def draw(self, record: int, bits: BitSource) -> IntArray:
        return np.array(self.law.draw(record, bits))

    def anchors(self, release: IntArray) -> IntArray:
        return self.law.ball(_centre(release))

    def releases(self) -> Iterator[tuple[Centre, FloatArray]]:
        return self.law.releases(SELDOM)

    def log_likelihoods(self, release: IntArray) -> FloatArray:
        return self.law.log_chances(np.array([_centre(release)]))[:, 0]

    def fading(self, centre: Centre) -> tuple[IntArray, IntArray]:
        """How often out of 2^62 each record reports from the common row of a ball, and that row."""
        depth = self.law.depths(centre)
        return self.law.fade(depth, np.asarray(self.mechanism.weights[np.flatnonzero(depth > 0)]))

    def rows(
        self, release: IntArray, table: AnchorTable, records: IntArray | None = None
    ) -> tuple[FloatArray, IntArray]:
        some = np.arange(self.problem.size) if records is None else records
        share, common = self.fading(_centre(release))
        part = share[some, None] / float(TOTAL)
        own = np.asarray(self.mechanism.weights[some]) / float(TOTAL)
        return part * (common / float(TOTAL)) + (1 - part) * own, np.arange(len(some))

    def report(self, release: IntArray, table: AnchorTable, record: int, bits: BitSource) -> int:
        at = np.array([_centre(release)]) @ NUMBERED
        return int(self.draw_reports(np.array([record]), at, bits)[0])

    def draw_selections(self, records: IntArray, bits: BitSource) -> IntArray:
        """The number of a centre for each record."""
        selected = np.empty(len(records), np.int64)
        different, which = np.unique(records, return_inverse=True)
        for k, record in enumerate(different.tolist()):
            mine = np.flatnonzero(which.reshape(-1) == k)
            drawn = self.law.draws(self.law.places[record], bits, len(mine))
            selected[mine] = np.array(drawn) @ NUMBERED
        return selected

    def draw_reports(self, records: IntArray, selected: IntArray, bits: BitSource) -> IntArray:
        """A word for each record, and a coin that says whether it is for the common row: the law
        of the mixture, in whole numbers of 2^-124."""
        words = bits.integers(len(records))
        coins = bits.integers(len(records))
        columns = np.empty(len(records), np.int64)
        own = np.ones(len(records), bool)
        for number in np.unique(selected).tolist():
            i, j = divmod(number + HALF, 2 * HALF)
            share, common = self.fading((i, j - HALF))
            mine = np.flatnonzero(selected == number)
            outside = mine[coins[mine] < share[records[mine]]]
            columns[outside] = choose(common, words[outside])
            own[outside] = False
        columns[own] = choose_rows(self.mechanism.weights, records[own], GivenBits(words[own]))
        return columns

    @cached_property
    def _sums(self) -> tuple[FloatArray, FloatArray]:
        """Over all centres: Pr[report | record], (K, m), and the size of a record's ball, (K,)."""
        size, outputs = self.problem.loss.shape
        weights = np.asarray(self.mechanism.weights)
        order, starts = self.law.tiles
        peaks = np.maximum.reduceat(weights[order], starts[:-1], axis=0)
        common = np.zeros((size, outputs))
        own = np.zeros(size)
        rest = np.ones(size)
        records = np.zeros(size)
        for tiles, some, chances, depths in self.law.balls():
            sizes = np.diff(starts)[tiles]
            firsts = np.cumsum(sizes) - sizes
            inside = depths > 0
            whole = np.logical_and.reduceat(inside, firsts, axis=0)
            cut = inside & ~np.repeat(whole, sizes, axis=0)
            # Only the largest entries of columns count, and those of whole tiles are known.
            rows = np.array(
                [
                    np.concatenate([peaks[tiles[full]], weights[some[part]]]).max(axis=0)
                    for full, part in zip(whole.T, cut.T, strict=True)
                ],
                dtype=float,
            ).reshape(-1, outputs)
            sums = rows.sum(axis=1)
            share = self.law.shares(depths, sums / float(TOTAL))
            faded = chances * share
            common[some] += faded @ (rows / sums[:, None])
            own[some] += (chances - faded).sum(axis=1)
            rest[some] -= chances.sum(axis=1)
            records[some] += chances @ inside.sum(axis=0)
        # Where nobody lies in a ball all outputs are as likely.
        common += np.maximum(rest, 0.0)[:, None] / outputs
        return frozen(common + own[:, None] * self.mechanism.matrix), records

    @property
    def marginal(self) -> FloatArray:
        return self._sums[0]

    @property
    def expected_anchors(self) -> float:
        return float(self.problem.prior @ self._sums[1])

    def shares(self, anchors: IntArray) -> BudgetShares:
        first, edge = (told / self.problem.epsilon for told in (self.selection.epsilon, self.edge))
        return BudgetShares(first, edge, 1 - first - edge)


def _centre(release: npt.ArrayLike) -> Centre:
    i, j = np.asarray(release).tolist()
    return i, j
