"""What Phase II may spend between any two anchors: leakage, estimated margins, budgets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray, Rebuilt, frozen
from panda_mdp.errors import MethodError
from panda_mdp.panda.accounts.certificate import MOST_CANDIDATES, MOST_RECORDS, cap
from panda_mdp.panda.accounts.compiled import kernels
from panda_mdp.panda.accounts.coverage import Feasibility, feasibility, nearest_records, uncovered
from panda_mdp.panda.accounts.quantiles import cost_table
from panda_mdp.panda.options import check_delta
from panda_mdp.panda.selection.law import AnchorLaw, Independent, check_anchors, near_laws
from panda_mdp.problem import Problem
from panda_mdp.space.metrics import BLOCK_ENTRIES

TRIM = 1e-11
LEVEL_WORK = 20_000_000
"""Pairs of records times levels of delta, at which margins are computed for all pairs."""


@dataclass(frozen=True)
class BudgetShares:
    """How eps d is spent between anchors, on average over pairs; the three sum to 1."""

    selection: float
    """Phase I: the cost of choosing anchors."""
    margin: float
    """Phase II: the safety margin."""
    remaining: float
    """Phase II: what the table may use."""


@dataclass(frozen=True, eq=False)
class PandaPlan(Rebuilt):
    """Leakage, margins and budgets between all anchors of a set (Eq. 37 and 41 of the paper).

        budget(a, a') = max(0, eps d(a, a') - L(a, a') - xi_hat(a, a')),

    L the cost of Phase I in nats, xi_hat the largest margin h^-1(1 - delta_aa') over the pairs of
    records nearest to a and to a', delta_aa' = (delta - U) / (1 - U) with U the probability that
    those records miss the users' (Bayes). The budgets do not depend on anybody's record, nor on
    which anchors were drawn.

    Where `feasibility.fits` is false the numbers are for study: a pair whose coverage is out of
    reach uses delta itself (as if coverage were 1), and a pair whose shortfall exceeds delta uses
    the largest candidate margin. How many is in `uncovered_pairs` and `unreached_pairs`.
    """

    problem: Problem
    selection: Independent
    delta: float
    delta_selection: float
    neighbours: int
    anchors: IntArray
    distance: FloatArray
    """(n, n), in the domain's unit."""
    leakage: FloatArray
    """(n, n) cost of Phase I, nats."""
    margin: FloatArray
    """(n, n) estimated margins, nats, not negative."""
    feasibility: Feasibility
    uncovered_pairs: int
    unreached_pairs: int
    stages: tuple[tuple[str, float], ...]

    @classmethod
    def over(
        cls,
        problem: Problem,
        selection: Independent,
        anchors: npt.ArrayLike,
        delta: float = 1e-7,
        *,
        neighbours: int | None = None,
        delta_selection: float = 0.0,
    ) -> PandaPlan:
        """Plan for the anchors of all users together.

        `neighbours` (Gamma, 5 to 20 in the paper) is the selection's own where it is None.
        `delta_selection` is the share of delta that Phase I may use (delta_1); the margins then
        use the rest. Says in `feasibility` what does not fit, and raises nothing for it.
        """
        check_delta(delta)
        if not 0 <= delta_selection <= delta:
            msg = f"delta_selection is {delta_selection!r}; it is a share of delta, {delta:g}"
            raise MethodError(msg)
        neighbours = selection.neighbours if neighbours is None else neighbours
        if neighbours < 1:
            msg = f"neighbours is {neighbours}; the margin must cover at least the anchor itself"
            raise MethodError(msg)
        clock = time.perf_counter()
        law = selection.on(problem.domain)
        chosen = check_anchors(law, anchors)
        rest = delta - delta_selection
        fit = feasibility(law, problem.epsilon, rest, problem.prior, neighbours, delta_selection)
        stages = [("feasibility", time.perf_counter() - clock)]
        clock = time.perf_counter()
        windows = nearest_records(problem.domain, chosen, neighbours)
        pairs = _Pairs.build(law, chosen, windows, problem.epsilon, delta_selection)
        stages.append(("leakage", time.perf_counter() - clock))
        clock = time.perf_counter()
        missing = _either(uncovered(law, chosen, windows, problem.prior))
        out_of_reach = missing > rest
        # rest < 1, so what is within reach misses less than everything.
        deltas = np.where(out_of_reach, rest, (rest - missing) / (1.0 - np.minimum(missing, rest)))
        margin, unreached = pairs.estimated_margins(deltas)
        stages.append(("margins", time.perf_counter() - clock))
        off = np.triu(np.ones_like(out_of_reach), k=1)
        return cls(
            problem=problem,
            selection=selection,
            delta=delta,
            delta_selection=delta_selection,
            neighbours=neighbours,
            anchors=frozen(chosen),
            distance=frozen(pairs.distance[np.ix_(pairs.own, pairs.own)]),
            leakage=frozen(pairs.cost[np.ix_(pairs.own, pairs.own)]),
            margin=frozen(margin),
            feasibility=fit,
            uncovered_pairs=int((out_of_reach & off).sum()),
            unreached_pairs=int((unreached & off).sum()),
            stages=tuple(stages),
        )

    @classmethod
    def certified(
        cls, problem: Problem, selection: Independent, delta: float, delta_selection: float = 0.0
    ) -> PandaPlan:
        """Budgets between all candidates, as large as the certificate allows (ours).

        A pair of records x, x' with surrogates a, a' of one set is safe where
        b(a, a') <= eps d(x, x') - L(x, x'). So b(a, a') is the least of those over the records
        that a and a' stand in for, save surrogates that together are rarer than delta. Where every
        record has its nearest candidate almost surely this is the least eps d(x, x') over the
        records behind a and a'. The `margin` is what remains to eps d(a, a') - L(a, a').
        """
        check_delta(delta)
        law = selection.on(problem.domain)
        anchors, epsilon = law.candidates, problem.epsilon
        most = MOST_CANDIDATES if law.indifferent else MOST_RECORDS
        if len(anchors) > most:
            alike = "" if law.indifferent else f" ({MOST_CANDIDATES:,} selected alike by everybody)"
            msg = (
                f"budgets are kept for at most {most:,} candidates{alike}, not {len(anchors):,}: "
                "name a public candidate set, or use BallAnchors"
            )
            raise MethodError(msg)
        fit = feasibility(law, epsilon, delta, problem.prior, problem.size, delta_selection)
        clock = time.perf_counter()
        distance = problem.domain.distances(anchors, anchors)
        np.fill_diagonal(distance, 0.0)
        if law.indifferent:
            cost = np.broadcast_to(np.zeros(()), distance.shape)
        else:
            cost = cost_table(law, law.rows(anchors), distance, delta_selection)
        margin = epsilon * distance
        margin -= cost
        np.maximum(0.0, margin, out=margin)
        # First the budgets, then in the same memory what they fall short of eps d - L.
        cap(law, epsilon, margin, delta - delta_selection, delta_selection)
        for part in _blocks(len(anchors)):
            margin[part] = np.maximum(0.0, epsilon * distance[part] - cost[part] - margin[part])
        stages = (("budgets", time.perf_counter() - clock),)
        return cls(
            problem=problem,
            selection=selection,
            delta=delta,
            delta_selection=delta_selection,
            neighbours=problem.size,
            anchors=anchors,
            distance=frozen(distance),
            leakage=cost if law.indifferent else frozen(cost),
            margin=frozen(margin),
            feasibility=fit,
            uncovered_pairs=0,
            unreached_pairs=0,
            stages=stages,
        )

    def __repr__(self) -> str:
        state = "fits" if self.feasibility.fits else "DOES NOT FIT, for study only"
        return (
            f"PandaPlan({len(self.anchors)} anchors, epsilon {self.problem.epsilon:g} per "
            f"{self.problem.domain.unit}, delta {self.delta:g}: {state}; {self.clipped:,} of "
            f"{self.pair_count:,} pairs have nothing left to spend)"
        )

    def restricted(self, anchors: IntArray) -> PandaPlan:
        """The same plan for some of its anchors."""
        at = np.searchsorted(self.anchors, anchors)
        if not np.array_equal(self.anchors[np.minimum(at, len(self.anchors) - 1)], anchors):
            msg = "some anchors are not part of this plan"
            raise MethodError(msg)
        if len(anchors) == len(self.anchors):
            return self
        square = np.ix_(at, at)
        return replace(
            self,
            anchors=frozen(anchors),
            distance=frozen(self.distance[square]),
            leakage=frozen(self.leakage[square]),
            margin=frozen(self.margin[square]),
        )

    @property
    def pair_count(self) -> int:
        """Pairs of anchors."""
        return len(self.anchors) * (len(self.anchors) - 1) // 2

    @property
    def unclipped(self) -> FloatArray:
        """eps d - L - xi_hat, possibly negative."""
        return frozen(self.problem.epsilon * self.distance - self.leakage - self.margin)

    @cached_property
    def budgets(self) -> FloatArray:
        """What the table may spend between two anchors, (n, n), in nats; not yet a metric.

        Less a trifle (1e-11 relative and absolute) that covers the rounding of distances, leakage
        and margins, so that what is proved about budgets holds for the numbers in use.
        """
        epsilon, table = self.problem.epsilon, np.empty(self.distance.shape)
        for part in _blocks(len(table)):
            whole, spent = epsilon * self.distance[part], self.leakage[part] + self.margin[part]
            table[part] = np.maximum(0.0, whole - spent - TRIM * (1.0 + whole + spent))
        np.fill_diagonal(table, 0.0)
        return frozen(table)

    @cached_property
    def clipped(self) -> int:
        """Pairs of anchors whose budget was negative and became 0: their rows are equal."""
        return int((np.triu(self.unclipped, k=1) < 0).sum())

    @cached_property
    def shares(self) -> BudgetShares:
        """Average shares of eps d over pairs of anchors (section 4.4 of the paper)."""
        upper = np.triu_indices(len(self.anchors), k=1)
        whole = self.problem.epsilon * self.distance[upper]
        if not len(whole):
            return BudgetShares(0.0, 0.0, 1.0)
        first = np.minimum(1.0, self.leakage[upper] / whole)
        second = np.minimum(1.0 - first, self.margin[upper] / whole)
        left = 1.0 - first - second
        return BudgetShares(float(first.mean()), float(second.mean()), float(left.mean()))


def _blocks(size: int) -> Iterator[slice]:
    """Rows of a square table, a few million entries at a time."""
    step = max(1, BLOCK_ENTRIES // size)
    return (slice(begin, begin + step) for begin in range(0, size, step))


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Pairwise tables over the anchors, the records that they cover and those records' anchors."""

    places: IntArray
    """Positions of the covered records in the tables."""
    own: IntArray
    """Positions of the anchors in the tables."""
    windows: IntArray | None
    """S_a as positions among the covered records."""
    start: IntArray
    near: IntArray
    """Near candidates of each covered record, as positions in the tables."""
    law: FloatArray
    missed: FloatArray
    distance: FloatArray
    cost: FloatArray
    budgets: FloatArray
    """eps d - L between all of them, before margins."""

    @classmethod
    def build(
        cls,
        law: AnchorLaw,
        anchors: IntArray,
        windows: IntArray | None,
        epsilon: float,
        delta_selection: float,
    ) -> _Pairs:
        domain = law.domain
        covered = np.arange(domain.size) if windows is None else np.unique(windows)
        # Neighbours in space become neighbours in memory.
        rank = np.empty(domain.size, dtype=np.int64)
        rank[domain.tiles.order] = np.arange(domain.size)
        covered = covered[np.argsort(rank[covered])]
        rows = law.rows(covered)
        involved = np.union1d(covered, rows.anchor)
        if len(involved) > MOST_RECORDS:
            msg = (
                f"the margins of these anchors involve {len(involved):,} records, and pairwise "
                f"tables are kept to {MOST_RECORDS:,}: choose a smaller tail probability, a public "
                "candidate set, fewer neighbours or fewer users"
            )
            raise MethodError(msg)
        involved = involved[np.argsort(rank[involved])]
        place = np.full(domain.size, -1, dtype=np.int64)
        place[involved] = np.arange(len(involved))
        among = np.full(domain.size, -1, dtype=np.int64)
        among[covered] = np.arange(len(covered))
        distance = domain.distances(involved, involved)
        np.fill_diagonal(distance, 0.0)
        cost = cost_table(law, law.rows(involved), distance, delta_selection)
        anchors_near, v = near_laws(rows)
        return cls(
            places=place[covered],
            own=place[anchors],
            windows=None if windows is None else among[windows],
            start=rows.start,
            near=place[anchors_near],
            law=v,
            missed=rows.missed,
            distance=distance,
            cost=cost,
            budgets=epsilon * distance - cost,
        )

    def margins(self, delta: float) -> FloatArray:
        """Margins between all covered records at one delta, at least 0."""
        compute = kernels("margins").margin_matrix
        return np.asarray(compute(*self._tables(), delta, self._widest))

    def estimated_margins(self, deltas: FloatArray) -> tuple[FloatArray, BoolArray]:
        """xi_hat of every pair of anchors at its own delta, and where the shortfall exceeds it.

        Margins fall in steps as delta grows. They are computed for all records at a few levels of
        delta; a pair of anchors whose two levels agree is done, the others are computed at their
        own delta, where only records whose levels differ have to be looked at.
        """
        count = len(self.own)
        if self.windows is None:
            # Everything is covered, so all deltas are equal and all windows are everything.
            missed = np.full(count, self.missed.max())
            largest = float(self.margins(float(deltas.max())).max())
            return np.full((count, count), largest), _either(missed) > deltas
        window_max, refine = kernels("margins").window_max, kernels("margins").refine
        missed = self.missed[self.windows].max(axis=1)
        steps = int(np.clip(LEVEL_WORK // len(self.places) ** 2, 1, 16))
        levels = np.unique(np.quantile(deltas, np.linspace(0, 1, steps + 1)))
        upper = self.margins(float(levels[0]))
        above = np.asarray(window_max(upper, self.windows))
        estimate = above.copy()
        for low, high in pairwise(levels):
            lower = self.margins(float(high))
            below = np.asarray(window_max(lower, self.windows))
            here = (deltas > low) & (deltas <= high)
            estimate[here] = below[here]
            first, second = np.nonzero(np.triu(here & (below < above) & (deltas < high)))
            refined = refine(
                first,
                second,
                self.windows,
                deltas[first, second],
                below[first, second],
                upper,
                *self._tables(),
                self._widest,
            )
            estimate[first, second] = estimate[second, first] = refined
            upper, above = lower, below
        return estimate, _either(missed) > deltas

    def _tables(self) -> tuple[IntArray, IntArray, FloatArray, FloatArray, FloatArray, IntArray]:
        return self.start, self.near, self.law, self.missed, self.budgets, self.places

    @property
    def _widest(self) -> int:
        return max(1, int(np.diff(self.start).max()))


def _either(values: FloatArray) -> FloatArray:
    """1 - (1 - u)(1 - u') for all pairs."""
    return np.asarray(values[:, None] + values - values[:, None] * values)
