"""A private table that is better than given ones by every measure at once.

    min t   s.t.   z epsilon-mDP,   loss(z) <= loss(ref),   error(z) >= error(ref),
                   v_k(z) <= t v_k(ref)  for every measure k

v_k(z) = sum_y max_g sum_x G^k_gx z_xy is what somebody who guesses gains: the right record, a place
within a radius (wherever the guess lies), each also for who knows the public district already, or
has another prior; and for the record of which that is largest, whether it is that one or one of its
neighbours. The posterior gain is convex in the prior: over the priors between given ones it is
largest at one of those.

For rates l_k >= 0 with sum l_k v_k(ref) = 1, a price b >= 0 of the error and a price a >= 0 of the
loss, every table z within the limits has

    t  >=  sum_k l_k v_k(z) + a (loss(z) - loss(ref)) + b (error(ref) - error(z)),

whose right side `second_objective`'s machinery bounds from below. The rates follow the measures
that are worst.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from panda_mdp.base.arrays import FloatArray
from panda_mdp.base.threads import current_clock, within
from panda_mdp.errors import InfeasibleError, MethodError
from panda_mdp.methods.certify import Budget, Report
from panda_mdp.methods.optimal.optimal import FirstOrder, Machine
from panda_mdp.methods.optimal.program import Program
from panda_mdp.methods.second.limits import Limit
from panda_mdp.methods.second.objectives import (
    Forms,
    Gain,
    Guesses,
    Losses,
    Measure,
    Tiled,
    guess_sets,
    place_error,
)
from panda_mdp.methods.second.second import (
    LEAST_LIMIT_WORK,
    LIMIT_WORK,
    bounded,
    concluded,
    first_table,
    second_solve,
)
from panda_mdp.problem import Problem
from panda_mdp.table.claims import Term
from panda_mdp.table.mechanism import Mechanism, Table

RADII = (0.1, 0.2, 0.5)
SHORT = 10.0
"""What a share of the error that is missing counts, in shares of a measure."""
PACE = 30.0
"""How fast rates follow the measures, in shares of one; it falls as the root of the looks."""
ERROR_PACE = 5.0
"""How much slower the price of the error moves: the error follows the loss, which comes first."""
FAINTEST = 1e-3
"""Share that all measures have at least, together: what is out of sight could not come back."""
MARGIN = 2e-3
"""Of the error: by which it is aimed above what is asked, for rounding and repair."""
ERROR_ROUNDING = 1e-4
"""Share of the error that may be missing: of a reference whose reports are its own best guesses the
error is the loss, which integers meet from one side only."""
UNDER = 1 - ERROR_ROUNDING / 4
ERROR_AT_REST = 1e-8
"""Precision of the guesses behind the errors that are compared."""
LEAST_SECONDS = 1e-3
"""Of a limit: what is left of it at least, for a table that takes no time."""
FIRST_GAP = 0.05
NEARER_GAP = 0.01
"""Of the table that is begun with, which need not lose the least; and where it loses too much."""
WORK = (LEAST_LIMIT_WORK, 4 * LIMIT_WORK)
"""Iterations, of those of the table that is begun with."""
EXACT_ENTRIES = 2_000
"""Entries of a table up to which the LP goes to HiGHS: seconds."""


@dataclass(frozen=True)
class Combined(Forms):
    """sum_k rate_k v_k + sum_j price_j w_j, whose rates move towards the measures that are worst
    and whose prices to where every w_j is what it may be.

    Weights of the parts lie below each other, each part's on a simplex of its own.
    """

    measures: tuple[Measure, ...]
    """The v_k, then the w_j, which are limited."""
    rates: FloatArray
    looks: int = 0
    name = "dominance"
    work = 1.0
    relative = True
    # The loss follows the price of all measures together closely, and the rates go on moving.
    least_step = 0.01
    faster = 1.2

    @classmethod
    def about(cls, measures: Sequence[Measure], limits: Sequence[Measure]) -> Combined:
        """All measures alike to begin with, and what is limited free."""
        references = np.array([measure.reference for measure in measures])
        rates = np.append(1 / (references * len(references)), np.zeros(len(limits)))
        return cls(2.0 + len(rates), None, (*measures, *limits), rates)

    @property
    def parts(self) -> list[Forms]:
        """Their forms."""
        return [measure.gain for measure in self.measures]

    @property
    def _fixed(self) -> FloatArray:
        """What the w_j may be."""
        return np.array([measure.fixed for measure in self.measures if not measure.shared])

    @property
    def offset(self) -> float:
        """Within the limits no w_j is more than it may be."""
        taken = self.rates[len(self.rates) - len(self._fixed) :] * self._fixed
        return float(-taken.sum() - 1e-12 * np.abs(taken).sum())

    @property
    def guesses(self) -> int:
        return sum(part.guesses for part in self.parts)

    def _split(self, weights: FloatArray) -> list[FloatArray]:
        return np.split(weights, np.cumsum([part.guesses for part in self.parts])[:-1])

    def _each(self, name: str, weights: FloatArray) -> list[FloatArray]:
        """What each part makes of its own weights."""
        own = zip(self.parts, self._split(weights), strict=True)
        return [getattr(part, name)(w) for part, w in own]

    def _sum(self, name: str, weights: FloatArray) -> Any:
        tables = zip(self.rates, self._each(name, weights), strict=True)
        return sum(rate * table for rate, table in tables)

    def forward(self, table: FloatArray) -> FloatArray:
        pairs = zip(self.rates, self.parts, strict=True)
        return np.concatenate([rate * part.forward(table) for rate, part in pairs])

    def adjoint(self, weights: FloatArray) -> FloatArray:
        return self._sum("adjoint", weights)

    def below(self, weights: FloatArray) -> FloatArray:
        return self._sum("below", weights)

    def onto(self, weights: FloatArray) -> FloatArray:
        return np.concatenate(self._each("onto", weights))

    def heaviest(self, values: FloatArray) -> FloatArray:
        return np.concatenate(self._each("heaviest", values))

    def shares(self) -> FloatArray:
        return np.max([part.shares() for part in self.parts], axis=0)

    def steepness(self, weight: FloatArray) -> FloatArray:
        # Steps of several parts add up: each has its share of them.
        rows = [
            np.tile(len(self.parts) * rate**2 * part.steepness(weight), (part.guesses, 1))
            for rate, part in zip(self.rates, self.parts, strict=True)
        ]
        return np.concatenate(rows)

    def _missing(self, table: FloatArray) -> float:
        """By which share, at most, what is limited lies beyond that."""
        limits = (measure for measure in self.measures if not measure.shared)
        beyond = ((m.gain.value(table) - m.fixed) / (abs(m.fixed) or math.inf) for m in limits)
        return max([0.0, *beyond])

    def value(self, table: FloatArray) -> float:
        """t, and what is missing many times."""
        values = np.array([m.gain.value(table) for m in self.measures if m.shared])
        return self.worth(values) + SHORT * self._missing(table)

    def worth(self, values: FloatArray) -> float:
        shared = [m.reference for m in self.measures if m.shared]
        return float((values[: len(shared)] / shared).max())

    def penalty(self, table: FloatArray) -> float:
        return float(self._missing(table) > ERROR_ROUNDING)

    def ceilings(self, most: float, on_loss: bool) -> list[Measure]:
        """For an LP: every measure at most t of the references', what is limited theirs."""
        return list(self.measures)

    def priced(self, ceilings: Sequence[Measure], prices: FloatArray) -> tuple[Forms, float]:
        total = sum(p * c.reference for p, c in zip(prices, ceilings, strict=True) if c.shared)
        rates = prices / total * (1 - 1e-12)
        return replace(self, measures=tuple(ceilings), rates=rates), float(total)

    def terms(self, weights: FloatArray, price: float, limit: float, grows: float) -> list[Term]:
        terms: list[Term] = []
        for own, rate, m in zip(self._split(weights), self.rates, self.measures, strict=True):
            at = (0.0, grows * m.reference) if m.shared else (m.fixed, 0.0)
            found = m.gain.terms(own, price * rate, *at)
            if not found:
                return []
            terms += found
        return terms

    def on(self, program: Program, tiled: bool) -> Forms:
        if tiled:
            return Tiled.over(program, self)
        own = tuple(replace(m, gain=m.gain.on(program, tiled)) for m in self.measures)
        return replace(self, measures=own)

    @property
    def gains(self) -> list[tuple[float, Forms]]:
        return list(zip(self.rates, self.parts, strict=True))

    def moved(self, table: FloatArray, weights: FloatArray) -> Combined:
        """Rates that follow what is worst at a table."""
        own = zip(self.measures, self._split(weights), strict=True)
        # With the guesses that are best now: those that were held err more.
        kept = tuple(replace(m, gain=m.gain.moved(table, w)) for m, w in own)
        values = np.array([m.gain.forward(table).max(axis=0).sum() for m in kept])
        return replace(self, measures=kept).paced(values)

    def paced(self, values: FloatArray) -> Combined:
        references = np.array([m.reference for m in self.measures if m.shared])
        (rates, prices), (gained, limited) = (
            np.split(both, [len(references)]) for both in (self.rates, values)
        )
        ratios = gained / references
        pace = PACE / math.sqrt(1.0 + self.looks)
        shares = rates * references * np.exp(pace * (ratios - ratios.max()))
        shares = np.maximum(shares / shares.sum(), FAINTEST / len(shares))
        rates = shares / shares.sum() / references * (1 - 1e-12)
        size = np.maximum(np.abs(self._fixed), 1e-150)
        prices = prices + pace / ERROR_PACE * (limited - self._fixed + MARGIN * size) / size**2
        rates = np.append(rates, np.maximum(prices, 0.0))
        return replace(self, rates=rates, looks=self.looks + 1)


def dominate(
    problem: Problem,
    references: Table | Sequence[Table],
    *,
    radii: Sequence[float] = RADII,
    districts: npt.ArrayLike | None = None,
    neighbours: int = 0,
    gap: float = 0.02,
    time_limit: float | None = None,
    progress: Report | None = None,
) -> Mechanism:
    """The table from which guessing gains least, in shares of what it gains from `references`.

        min t   s.t.   z epsilon-mDP,   loss <= theirs,   error >= theirs,   v_k <= t theirs

    References are tables over the problem's records, with or without a guarantee (what phones have
    today: `panda_mdp.methods.references`); of several, the least loss and gains and the largest
    error count, so that each is beaten. Measures are the right record, a place within each of
    `radii` in the domain's unit, and the same for who knows one's public district, (K,) numbers,
    or has one of several priors, (J, K), the corners of all that people may have: there loss and
    error are theirs too, to a ten-thousandth. With `neighbours`
    also how often it is seen whether somebody is at a record or at one of so many nearest ones,
    thought equally likely, for the record at which that is seen best.

    Guarantee: epsilon-mDP by audit; loss at most that of every reference. `details["dominates"]`
    holds t (`factor`), a rigorous bound below the t of every private table within the limits
    (`bound`), every measure with its value and the references', error and loss, ours and theirs
    under each prior in `corners`, and whether all of them are at least as good (`holds`, the error
    to a ten-thousandth): the error is sought, and said where it is missed.
    An epsilon at which no table has so little loss is an `InfeasibleError`.
    """
    others = checked_references(problem, references)
    clock = current_clock()
    start = clock()
    with within(time_limit, clock):
        measures = measures_of(problem, others, radii, districts, neighbours)
    if time_limit is not None:
        time_limit = max(time_limit - (clock() - start), LEAST_SECONDS)
    given = np.atleast_1d(() if districts is None else np.asarray(districts))
    corners = [prior / prior.sum() for prior in given if prior.any()] if given.ndim == 2 else []
    budget = Budget(gap, time_limit)
    return least_factor(problem, others, measures, budget, progress, corners=corners)


def least_factor(
    problem: Problem,
    references: Sequence[Table],
    measures: Sequence[Measure],
    budget: Budget,
    progress: Report | None = None,
    decide: bool = False,
    corners: Sequence[FloatArray] = (),
    backend: Machine = "auto",
) -> Mechanism:
    """`dominate` with measures of any kind; to `decide`, it ends as soon as it is known whether t
    is at most 1. Under the priors of `corners` loss and error are limited too."""
    most = min(float(other.loss) for other in references)
    begin, seconds = budget.clock(), budget.time_limit

    def begun(gap: float, seconds: float | None) -> tuple[Mechanism, FirstOrder | None]:
        asked = replace(budget, gap=gap, time_limit=seconds)
        return first_table(problem, backend, asked, progress, not corners, EXACT_ENTRIES)

    first, before = begun(FIRST_GAP, seconds)
    left = None if seconds is None else seconds - 2 * (budget.clock() - begin)
    if not first.loss < most and (left is None or left > LEAST_SECONDS):
        first, before = begun(NEARER_GAP, left)
    if not first.loss < most:
        least = first.lower_bound or 0.0
        raise InfeasibleError(
            f"at epsilon {problem.epsilon:g} the least loss lies between {least:.6g} and "
            f"{first.loss:.6g} {problem.loss_unit}, and the references' is {most:.6g}; raise "
            "epsilon, or compare with references that lose more",
            value=least,
            limit=most,
        )
    priors = [problem.prior, *corners]
    theirs = [under(references, prior) for prior in priors]
    limits: list[Measure] = []
    # On tiles and accelerators the error is not followed: of a loss that is the displacement, and
    # of reports that are their own best guesses, as those are that are handed out, it is the loss.
    iterates = before and before.iterates
    if corners or not (iterates and iterates.tiled):
        table = None if before is None else first.matrix
        for prior, (loss, error) in zip(priors, theirs, strict=True):
            limits += _limits(replace(problem, prior=prior), loss, error, table)
    # The first loss is limited exactly.
    forms = Combined.about(measures, [*limits[:1], *limits[2:]])
    limit = Limit(forms, first, most, enough=1.0 if decide else None)
    standing = second_solve(limit, before, budget, progress, WORK)
    best = standing.certified
    gained = sorted((m.gain.value(best.matrix), m.reference, m.name) for m in measures)
    factor = max(value / reference for value, reference, _ in gained)
    ours = [under([best], prior) for prior in priors]
    both = list(zip(ours, theirs, strict=True))
    facts = {
        "factor": factor,
        **bounded(standing),
        "measures": {name: (value, reference) for value, reference, name in gained},
        "error": (ours[0][1], theirs[0][1]),
        "loss": (best.loss, most),
        "corners": both[1:],
        "holds": max(factor, best.loss / most) <= 1
        and all(
            loss <= less * (1 + ERROR_ROUNDING) and off >= more * (1 - ERROR_ROUNDING)
            for (loss, off), (less, more) in both
        ),
    }
    return concluded(standing, first, "dominates", facts)


def _limits(problem: Problem, loss: float, error: float, table: FloatArray | None) -> list[Measure]:
    """The error is at least, and the loss at most, what it is of the references."""
    # No table has more than the loss where reports are their own best guesses, nor than a guess
    # without a report.
    most_error = min(loss, place_error(problem, np.ones((problem.size, 1))))
    aim = max(min(error * (1 + MARGIN / 20), most_error * UNDER), error * UNDER)
    off = Measure("error", Guesses.around(problem, table), error or 1.0, False, -error, -aim)
    unit = loss or 1.0
    lost = Losses.under(problem, unit)
    return [off, Measure("loss", lost, 1.0, False, loss / unit, loss / unit * UNDER)]


def under(tables: Sequence[Table], prior: FloatArray) -> tuple[float, float]:
    """The least of their losses and the largest of the best guess's errors under a prior, to far
    less than `ERROR_ROUNDING`."""
    seen = [(replace(table.problem, prior=prior), table.matrix) for table in tables]
    loss = min(problem.expected_loss(matrix) for problem, matrix in seen)
    off = (place_error(problem, matrix, ERROR_AT_REST) for problem, matrix in seen)
    return float(loss), max(off)


def checked_references(problem: Problem, references: Table | Sequence[Table]) -> list[Table]:
    """All of them, over the records and the prior of the problem."""
    others = [references] if isinstance(references, Table) else list(references)
    if not others:
        raise MethodError("references is empty; give at least one table to be better than")
    for k, other in enumerate(others):
        same = other.problem.domain.fingerprint == problem.domain.fingerprint
        if not (same and np.array_equal(other.problem.prior, problem.prior)):
            raise MethodError(
                f"references[{k}] has other records or another prior than the problem; make it "
                "over problem.domain with the problem's prior"
            )
    return others


def measures_of(
    problem: Problem,
    references: Sequence[Table],
    radii: Sequence[float],
    districts: npt.ArrayLike | None = None,
    neighbours: int = 0,
) -> list[Measure]:
    """The ways to guess, with what each gains from the references at least."""
    names = {None: "right place"} | {radius: f"within {radius:g}" for radius in radii}
    priors = {"": problem.prior}
    if districts is not None:
        given = np.asarray(districts)
        if given.shape[-1:] != (problem.size,) or given.ndim > 2 or not (given >= 0).all():
            raise MethodError(
                f"districts has shape {given.shape}; give one number >= 0 per record, "
                f"({problem.size},), or priors, (J, {problem.size}), not negative"
            )
        kinds = list(range(len(given)))
        kind = "prior"
        if given.ndim == 1:
            kinds = np.unique(given).tolist()
            kind = "district"
            given = problem.prior * (given == np.array(kinds)[:, None])
        known = zip(kinds, given, strict=True)
        priors |= {f", {kind} {k}": prior / prior.sum() for k, prior in known if prior.any()}
    groups: list[list[Measure]] = []
    for radius, name in names.items():
        guesses = guess_sets(problem, radius)
        for where, prior in priors.items():
            own = Gain.within(radius, guesses, prior)
            groups.append([Measure(name + where, own, math.inf)])
    if neighbours:
        # One measure for each record; what counts is the largest of them.
        each = np.arange(problem.size)
        near = problem.domain.neighbours(neighbours)[0]
        pairs = np.zeros((problem.size, 2, problem.size))
        pairs[each, 0, each] = 0.5
        pairs[each[:, None], 1, near] = 0.5 / neighbours
        gains = [Gain(2.0, scipy.sparse.csr_array(pair)) for pair in pairs]
        groups.append([Measure("told from its neighbours", gain, math.inf) for gain in gains])
    return [
        replace(measure, reference=least)
        for group in groups
        for least in [min(max(m.gain.value(o.matrix) for m in group) for o in references)]
        for measure in group
    ]
