"""A private table that is better than given ones by every measure at once.

    min t   s.t.   z epsilon-mDP,   loss(z) <= loss(ref),   error(z) >= error(ref),
                   v_k(z) <= t v_k(ref)  for every measure k

v_k(z) = sum_y max_g sum_x G^k_gx z_xy is what somebody who guesses gains: the right record, a place
within a radius (wherever the guess lies), each also for who knows the public district already. The
posterior gain is convex in the prior, so what holds for every district holds for all mixtures.

For rates l_k >= 0 with sum l_k v_k(ref) = 1, a price b >= 0 of the error and a price a >= 0 of the
loss, every table z within the limits has

    t  >=  sum_k l_k v_k(z) + a (loss(z) - loss(ref)) + b (error(ref) - error(z)),

whose right side `second_objective`'s machinery bounds from below. The rates follow the measures
that are worst.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.compute.highs import multipliers
from panda_mdp.errors import InfeasibleError, MethodError
from panda_mdp.methods.certify import Budget, Report, Standing, certify
from panda_mdp.methods.optimal.dual import dual_bound
from panda_mdp.methods.optimal.lp import OneLp
from panda_mdp.methods.second.limits import Descent, Limit, LimitSolver
from panda_mdp.methods.second.objectives import (
    Forms,
    Gain,
    Guesses,
    Objective,
    best_guesses,
    guess_gain,
)
from panda_mdp.methods.second.second import first_table
from panda_mdp.problem import Problem
from panda_mdp.space.guesses import metric_distances, refined_medians
from panda_mdp.table.mechanism import Mechanism, Table

SHORT = 10.0
"""What a share of the error that is missing counts, in shares of a measure."""
PACE = 30.0
"""How fast rates follow the measures, in shares of one; it falls as the root of the looks."""
ERROR_PACE = 30.0
"""How much slower the price of the error moves: the error follows the loss, which comes first."""
FAINTEST = 1e-3
"""Share that all measures have at least, together: what is out of sight could not come back."""
MARGIN = 1e-4
"""Of the error: by which it is aimed above what is asked, for rounding and repair."""
LEAST_WORK, WORK = 1200, 4.0
ERROR_ROUNDING = 1e-4
"""Share of the error that may be missing: of a reference whose reports are its own best guesses the
error is the loss, which integers meet from one side only."""
EXACT_ENTRIES = 2_000
"""Entries of a table up to which the LP goes to HiGHS: seconds."""


@dataclass(frozen=True)
class Measure:
    """One way to guess, and what it gains from the references at least."""

    name: str
    gain: scipy.sparse.csr_array
    """(guesses, K), with the prior in it."""
    reference: float

    def value(self, matrix: FloatArray) -> float:
        """What it gains from a table."""
        return float((self.gain @ matrix).max(axis=0).sum())


@dataclass(frozen=True)
class Combined(Forms):
    """sum_k rate_k v_k - price error(z), whose rates move towards the measures that are worst.

    Weights of the parts lie below each other, each part's on a simplex of its own.
    """

    problem: Problem
    measures: tuple[Measure, ...]
    parts: tuple[Forms, ...]
    """The gains, then the guesses of the error."""
    rates: FloatArray
    """Of the gains, then the price of the error."""
    least_error: float
    looks: int = 0
    work = 1.0

    @classmethod
    def about(
        cls, problem: Problem, measures: Sequence[Measure], least_error: float, table: FloatArray
    ) -> Combined:
        """All measures alike to begin with, and the error free."""
        references = np.array([measure.reference for measure in measures])
        parts = (*(Gain(2.0, m.gain) for m in measures), Guesses.around(problem, table))
        rates = np.append(1 / (references * len(references)), 0.0)
        return cls(2.0 + len(parts), None, problem, tuple(measures), parts, rates, least_error)

    @property
    def offset(self) -> float:
        """b error(ref): within the limits the error is no less than asked."""
        return float(self.rates[-1]) * self.least_error * (1 - 1e-12)

    @property
    def guesses(self) -> int:
        return sum(part.guesses for part in self.parts)

    def _split(self, weights: FloatArray) -> list[FloatArray]:
        return np.split(weights, np.cumsum([part.guesses for part in self.parts])[:-1])

    def forward(self, table: FloatArray) -> FloatArray:
        pairs = zip(self.rates, self.parts, strict=True)
        return np.concatenate([rate * part.forward(table) for rate, part in pairs])

    def _sum(self, tables: Iterable[FloatArray]) -> FloatArray:
        return np.asarray(sum(r * table for r, table in zip(self.rates, tables, strict=True)))

    def adjoint(self, weights: FloatArray) -> FloatArray:
        own = zip(self.parts, self._split(weights), strict=True)
        return self._sum(part.adjoint(w) for part, w in own)

    def below(self, weights: FloatArray) -> FloatArray:
        own = zip(self.parts, self._split(weights), strict=True)
        return self._sum(part.below(w) for part, w in own)

    def onto(self, weights: FloatArray) -> FloatArray:
        pairs = zip(self.parts, self._split(weights), strict=True)
        return np.concatenate([part.onto(own) for part, own in pairs])

    def heaviest(self, values: FloatArray) -> FloatArray:
        pairs = zip(self.parts, self._split(values), strict=True)
        return np.concatenate([part.heaviest(own) for part, own in pairs])

    def permuted(self, order: IntArray) -> Combined:
        return replace(self, parts=tuple(part.permuted(order) for part in self.parts))

    def shares(self) -> FloatArray:
        return np.asarray(np.max([part.shares() for part in self.parts], axis=0))

    def steepness(self, weight: FloatArray) -> FloatArray:
        # Steps of several parts add up: each has its share of them.
        rows = [
            np.tile(len(self.parts) * rate**2 * part.steepness(weight), (part.guesses, 1))
            for rate, part in zip(self.rates, self.parts, strict=True)
        ]
        return np.concatenate(rows)

    def ratios(self, table: FloatArray) -> FloatArray:
        """Every measure in shares of the references'."""
        return np.array([measure.value(table) / measure.reference for measure in self.measures])

    def value(self, table: FloatArray) -> float:
        """t, and what is missing of the error many times."""
        missing = 1.0 - place_error(self.problem, table) / (self.least_error or math.inf)
        return float(self.ratios(table).max()) + SHORT * max(0.0, missing)

    def moved(self, table: FloatArray, weights: FloatArray) -> Combined:
        """Rates that follow what is worst at a table, in the order of the parts' records."""
        values = np.array([part.forward(table).max(axis=0).sum() for part in self.parts])
        references = np.array([measure.reference for measure in self.measures])
        ratios, pace = values[:-1] / references, PACE / math.sqrt(1.0 + self.looks)
        shares = self.rates[:-1] * references * np.exp(pace * (ratios - ratios.max()))
        shares = np.maximum(shares / shares.sum(), FAINTEST / len(shares))
        rates = shares / shares.sum() / references * (1 - 1e-12)
        missing = self.least_error * (1 + MARGIN) + values[-1]
        step = pace / ERROR_PACE * missing / max(self.least_error, 1e-300) ** 2
        price = max(0.0, self.rates[-1] + step)
        split = self._split(weights)
        parts = tuple(part.moved(table, w) for part, w in zip(self.parts, split, strict=True))
        return replace(self, parts=parts, rates=np.append(rates, price), looks=self.looks + 1)


class Dominance(Descent):
    """The first-order method, whose measures move while the loss stays within its limit."""

    # The loss follows the price of all measures together closely.
    least_step = 0.01

    def allowed(self, gap: float, bound: float) -> float:
        return gap * bound


class ExactDominance(LimitSolver, OneLp):
    """One LP, by HiGHS: columns are the table, what each measure gains from each output, the error
    of each output, and t."""

    tightening = 5e-6

    def __init__(self, limit: Limit, forms: Combined) -> None:
        super().__init__(limit)
        self.forms = forms
        # Guesses of the error: the records, and the best ones after the first table.
        domain, first = self.problem.domain, limit.first.matrix
        best, _ = best_guesses(self.problem, first)
        medians, _ = refined_medians(domain, self.problem.prior[:, None] * first, best)
        self._off = np.hstack([domain.distances(), metric_distances(domain.metric, medians)])

    def begin(self, standing: Standing) -> None:
        LimitSolver.begin(self, standing)
        OneLp.begin(self, standing)

    def allowed(self, gap: float, bound: float) -> float:
        return gap * bound

    def parts(self) -> tuple[FloatArray, scipy.sparse.csr_array, FloatArray, FloatArray]:
        cost, private, lower, upper = super().parts()
        forms, outputs = self.forms, self.problem.outputs_count
        each, count = scipy.sparse.eye_array(outputs), len(forms.measures)
        gains = [scipy.sparse.kron(measure.gain, each) for measure in forms.measures]
        tops = [np.ones((measure.gain.shape[0], 1)) for measure in forms.measures]
        references = np.array([[measure.reference] for measure in forms.measures])
        off = scipy.sparse.csr_array(self._off.T * self.problem.prior)
        every = scipy.sparse.csr_array(np.ones((1, outputs)))
        shared = scipy.sparse.kron(scipy.sparse.eye_array(count), every)
        blocks: Any = [
            [private, None, None, None],
            [
                scipy.sparse.vstack(gains),
                -scipy.sparse.kron(scipy.sparse.block_diag(tops), each),
                None,
                None,
            ],
            [None, shared, None, -references],
            [scipy.sparse.csr_array(cost[None]), None, None, None],
            [
                -scipy.sparse.kron(off, each),
                None,
                scipy.sparse.kron(np.ones((off.shape[0], 1)), each),
                None,
            ],
            [None, None, -every, None],
        ]
        rows = scipy.sparse.csr_array(scipy.sparse.block_array(blocks))
        more = np.zeros(rows.shape[0] - len(lower))
        more[-1] = -forms.least_error * (1 + MARGIN)
        more[sum(map(len, tops)) * outputs + count] = self.limit.most / self.scale
        objective = np.zeros(rows.shape[1])
        objective[-1] = 1.0
        return (
            objective,
            rows,
            np.append(lower, np.full(len(more), -np.inf)),
            np.append(upper, more),
        )

    def bound(self) -> float:
        """From weights of all guesses, prices of loss and error: the module's head."""
        if self.answer is None or self.answer.prices is None:
            return -math.inf
        problem, graph, forms = self.problem, self.graph, self.forms
        size, outputs = problem.loss.shape
        counts = [measure.gain.shape[0] for measure in forms.measures]
        lengths = (size, 2 * graph.count * outputs, sum(counts) * outputs, len(counts), 1)
        prices = -self.answer.prices
        _, edge, gain, rate, loss, guess = np.split(prices[:-1], np.cumsum(lengths))
        references = np.array([measure.reference for measure in forms.measures])
        rates = np.maximum(rate, 0.0)
        rates *= (1 - 1e-12) / float(rates @ references or 1.0)
        loss_price = max(0.0, float(loss[0])) / self.scale
        cost = loss_price * problem.weighted_loss
        split = np.split(np.maximum(gain, 0.0).reshape(-1, outputs), np.cumsum(counts)[:-1])
        for share, measure, own in zip(rates, forms.measures, split, strict=True):
            cost = cost + share * Gain(2.0, measure.gain).below(
                own / np.maximum(own.sum(axis=0), 1e-300)
            )
        weights = np.maximum(guess, 0.0).reshape(-1, outputs)
        error_price = float(weights.sum(axis=0).min()) * (1 - 1e-12)
        cost = cost - (self._off * problem.prior[:, None]) @ weights * (1 + 1e-11)
        edges = multipliers(-edge, self.exponent, outputs)
        least = dual_bound(problem, graph, edges, cost)
        given, back = loss_price * self.limit.most, error_price * forms.least_error
        return least - given + back - 1e-14 * (abs(least) + given + back)

    def table(self, values: FloatArray) -> FloatArray:
        return np.maximum(values[: self.problem.loss.size], 0.0).reshape(self.problem.loss.shape)


def dominate(
    problem: Problem,
    references: Table | Sequence[Table],
    *,
    radii: Sequence[float] = (0.1, 0.2, 0.5),
    districts: npt.ArrayLike | None = None,
    gap: float = 0.02,
    time_limit: float | None = None,
    progress: Report | None = None,
) -> Mechanism:
    """The table from which guessing gains least, in shares of what it gains from `references`.

        min t   s.t.   z epsilon-mDP,   loss <= theirs,   error >= theirs,   v_k <= t theirs

    References are tables over the problem's records, with or without a guarantee (what phones have
    today: `panda_mdp.methods.references`); of several, the least loss and gains and the largest
    error count, so that each is beaten. Measures are the right record, a place within each of
    `radii` in the domain's unit, and the same for who knows one's public district, (K,) numbers.

    Guarantee: epsilon-mDP by audit; loss at most that of every reference. `details["dominates"]`
    holds t (`factor`), a rigorous bound below the t of every private table within the limits
    (`bound`), every measure with its value and the references', error and loss, and whether all of
    them are at least as good (`holds`, the error to a ten-thousandth): the error is sought, and
    said where it is missed.
    An epsilon at which no table has so little loss is an `InfeasibleError`.
    """
    others = [references] if isinstance(references, Table) else list(references)
    check_references(problem, others)
    budget = Budget(gap, None if time_limit is None else time_limit / 2)
    first, trade_off = first_table(problem, "cpu", replace(budget, gap=0.01), progress)
    most = min(float(other.loss) for other in others)
    if not first.loss < most:
        least = first.lower_bound or 0.0
        raise InfeasibleError(
            f"at epsilon {problem.epsilon:g} the least loss lies between {least:.6g} and "
            f"{first.loss:.6g} {problem.loss_unit}, and the references' is {most:.6g}; raise "
            "epsilon, or compare with references that lose more"
        )
    measures = measures_of(problem, others, radii, districts)
    error = max(place_error(problem, other.matrix) for other in others)
    forms = Combined.about(problem, measures, error, first.matrix)
    limit = Limit(Objective("dominance", forms), first, most)
    work = max(LEAST_WORK, int(WORK * first.details.get("iterations", 0)))
    exact = problem.loss.size <= EXACT_ENTRIES
    solver = ExactDominance(limit, forms) if exact else Dominance(limit, trade_off)
    standing = certify(solver, replace(budget, iterations=work), progress)
    table = standing.certified
    values = {measure.name: measure.value(table.matrix) for measure in measures}
    reached = place_error(problem, table.matrix)
    factor = max(values[measure.name] / measure.reference for measure in measures)
    facts = {
        "factor": factor,
        "bound": standing.bound,
        "measures": {m.name: (values[m.name], m.reference) for m in measures},
        "error": (reached, error),
        "loss": (table.loss, most),
        "holds": bool(
            factor <= 1 and reached >= error * (1 - ERROR_ROUNDING) and table.loss <= most
        ),
        "stopped": standing.stopped,
    }
    return table.with_facts(
        bound=first.bound,
        stages=(*first.stages, ("dominance", sum(standing.seconds.values()))),
        details={**table.details, "dominates": facts},
    )


def check_references(problem: Problem, references: Sequence[Table]) -> None:
    """Refuse what is not over the records and the prior of the problem."""
    if not references:
        raise MethodError("references is empty; give at least one table to be better than")
    for k, other in enumerate(references):
        same = other.problem.domain.fingerprint == problem.domain.fingerprint
        if not (same and np.array_equal(other.problem.prior, problem.prior)):
            raise MethodError(
                f"references[{k}] has other records or another prior than the problem; make it "
                "over problem.domain with the problem's prior"
            )


def measures_of(
    problem: Problem,
    references: Sequence[Table],
    radii: Sequence[float],
    districts: npt.ArrayLike | None,
) -> list[Measure]:
    """The ways to guess, with what each gains from the references at least."""
    names = {None: "right place"} | {radius: f"within {radius:g}" for radius in radii}
    places = {"": np.ones(problem.size, dtype=bool)}
    if districts is not None:
        district = np.asarray(districts)
        if district.shape != (problem.size,):
            raise MethodError(
                f"districts has shape {district.shape}; give one number per record, "
                f"({problem.size},)"
            )
        places |= {f", district {k}": district == k for k in np.unique(district)}
    measures = []
    for radius, name in names.items():
        gain = guess_gain(problem, radius)
        for where, inside in places.items():
            known = float(problem.prior[inside].sum())
            if known > 0:
                own = scipy.sparse.csr_array(gain * (inside / known))
                own = scipy.sparse.csr_array(own[np.flatnonzero(own.sum(axis=1))])
                made = Measure(name + where, own, math.inf)
                least = min(made.value(other.matrix) for other in references)
                measures.append(replace(made, reference=least))
    return measures


def place_error(problem: Problem, matrix: FloatArray) -> float:
    """How far off the best guess of the place is, wherever it lies."""
    best, _ = best_guesses(problem, matrix)
    joint = problem.prior[:, None] * matrix
    return float(refined_medians(problem.domain, joint, best)[1].sum())
