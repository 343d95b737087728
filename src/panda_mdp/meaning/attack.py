"""The best attacker against a table: all measures at once, for every record and on average."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray, IntArray, Rebuilt, frozen
from panda_mdp.errors import MethodError
from panda_mdp.meaning import leakage
from panda_mdp.prior import Prior
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain
from panda_mdp.table.mechanism import Table

RADII_KM = (0.1, 0.2, 0.5, 1.0)
BLOCK_ENTRIES = 1 << 24


@dataclass(frozen=True, eq=False)
class Attack(Rebuilt):
    """What somebody who knows the table and the prior, and nothing else, learns from one report.

    All numbers are exact sums over the table that is sampled. `by_record` arrays have one entry
    per record of the domain; they are functions of the table alone and as public as it is.
    Where two guesses are equally good the attacker takes the first in the order of the domain.
    """

    method: str
    unit: str
    prior_source: str
    guess: IntArray
    """The record that the attacker of `vulnerability` names after each output, (m,)."""
    place: IntArray
    """The record that the attacker of `error` names after each output, (m,)."""
    vulnerability: float
    """How often the best guess of the record is right (Bayes vulnerability)."""
    prior_vulnerability: float
    """The same without any report."""
    worst_posterior: float
    """The largest belief that any output gives in any record."""
    error: float
    """Expected distance between the record and the best guess of its place, in `unit`."""
    prior_error: float
    """The same without any report."""
    error_by_record: FloatArray
    """Expected distance of that attacker's guess for each record, (K,)."""
    hit_by_record: FloatArray
    """How often each record is guessed right by the attacker of `vulnerability`, (K,)."""
    located: Mapping[float, float]
    """For each radius, how often the best guess lies within it of the record."""
    prior_located: Mapping[float, float]
    located_by_record: Mapping[float, FloatArray]
    min_entropy_leakage: float
    """Bits."""
    shannon_leakage: float
    """Mutual information of record and report, bits."""
    prior_entropy: float
    """Bits."""
    capacity: float
    """By which factor a report helps any attacker with any prior, at most."""

    def __repr__(self) -> str:
        return (
            f"Attack({self.method}: right {self.vulnerability:.4g} of the time "
            f"(before {self.prior_vulnerability:.4g}), off by {self.error:.4g} {self.unit} "
            f"(before {self.prior_error:.4g}), least protected record {self.least_error:.4g} "
            f"{self.unit}; prior {self.prior_source})"
        )

    @property
    def risk(self) -> float:
        """Bayes risk: how often the best guess of the record is wrong."""
        return 1.0 - self.vulnerability

    @property
    def least_error(self) -> float:
        """Expected error of the attacker's guess for the record that is protected least."""
        return float(self.error_by_record.min())

    @property
    def least_protected(self) -> int:
        """The record whose place the attacker of `error` guesses best."""
        return int(self.error_by_record.argmin())

    @property
    def most_hit(self) -> float:
        """How often the record that is guessed best is guessed right."""
        return float(self.hit_by_record.max())

    def numbers(self) -> dict[str, float | str | dict[str, float]]:
        """The numbers that are not arrays, for JSON."""
        return {
            "method": self.method,
            "prior": self.prior_source,
            "unit": self.unit,
            "vulnerability": self.vulnerability,
            "prior_vulnerability": self.prior_vulnerability,
            "risk": self.risk,
            "worst_posterior": self.worst_posterior,
            "most_hit": self.most_hit,
            "error": self.error,
            "prior_error": self.prior_error,
            "least_error": self.least_error,
            "located": {f"{radius:g}": share for radius, share in self.located.items()},
            "prior_located": {f"{radius:g}": share for radius, share in self.prior_located.items()},
            "min_entropy_leakage_bits": self.min_entropy_leakage,
            "shannon_leakage_bits": self.shannon_leakage,
            "prior_entropy_bits": self.prior_entropy,
            "capacity": self.capacity,
        }


def attack(
    mechanism: Table,
    prior: Prior | npt.ArrayLike | None = None,
    *,
    radii: Sequence[float] | None = None,
) -> Attack:
    """What the best attacker gains from one report of `mechanism`, exactly.

    The attacker knows the table and `prior` (the problem's own where None: the table may have been
    optimised for one prior and be attacked with another). Guesses are records of the domain;
    distances are the domain's. `radii` are in its unit; by default 100 m to 1 km, or a tenth of
    the diameter where the unit is not km. Works on any table, one without a guarantee included.

    What it does not say: what an attacker gains who sees several reports, or knows more of the
    person than the prior (`panda_mdp.meaning.several`). Epsilon bounds what
    one report adds for every prior; these numbers are for one.

    >>> from panda_mdp import Domain, Problem, exponential
    >>> domain = Domain.from_vectors([[0.0], [1.0], [2.0]])
    >>> problem = Problem(domain, [0, 1, 2], domain.distances(), epsilon=2.0)
    >>> one = attack(exponential(problem))
    >>> round(one.vulnerability, 3), round(one.error, 3), round(one.prior_error, 3)
    (0.636, 0.424, 0.667)
    """
    problem = mechanism.problem
    weights, source = checked_prior(problem, prior)
    matrix = mechanism.matrix
    chosen = _radii(problem.domain, radii)
    both = leakage.joint(weights, matrix)
    search = _search(problem.domain, both, weights, chosen)
    guess = both.argmax(axis=0)
    belief = leakage.posterior(weights, matrix)
    columns = np.arange(problem.outputs_count)
    hits = np.zeros(problem.size)
    np.add.at(hits, guess, matrix[guess, columns])
    return Attack(
        method=mechanism.method,
        unit=problem.domain.unit,
        prior_source=source,
        guess=frozen(guess),
        place=frozen(search.place),
        vulnerability=leakage.bayes_vulnerability(weights, matrix),
        prior_vulnerability=leakage.prior_vulnerability(weights),
        worst_posterior=float(belief.max()),
        error=search.error,
        prior_error=search.prior_error,
        error_by_record=frozen(_expected(problem.domain, matrix, search.place)),
        hit_by_record=frozen(hits),
        located=search.located,
        prior_located=search.prior_located,
        located_by_record={
            radius: frozen(_expected(problem.domain, matrix, best, radius))
            for radius, best in search.finders.items()
        },
        min_entropy_leakage=leakage.min_entropy_leakage(weights, matrix),
        shannon_leakage=leakage.shannon_leakage(weights, matrix),
        prior_entropy=leakage.entropy(weights),
        capacity=leakage.multiplicative_capacity(matrix),
    )


@dataclass(frozen=True)
class _Search:
    place: IntArray
    error: float
    prior_error: float
    finders: dict[float, IntArray]
    located: dict[float, float]
    prior_located: dict[float, float]


def _search(
    domain: Domain, both: FloatArray, prior: FloatArray, radii: tuple[float, ...]
) -> _Search:
    """The best guess after each output among all records, by distance and by each radius.

    The prior is one more column. Guesses are taken block by block: K x K distances are never held.
    """
    columns = np.column_stack([both, prior])
    count = columns.shape[1]
    least, place = np.full(count, np.inf), np.zeros(count, dtype=np.int64)
    most = {radius: np.full(count, -np.inf) for radius in radii}
    finder = {radius: np.zeros(count, dtype=np.int64) for radius in radii}
    step = max(1, BLOCK_ENTRIES // domain.size)
    for first in range(0, domain.size, step):
        guesses = np.arange(first, min(first + step, domain.size))
        distance = domain.distances(guesses, None)
        cost = distance @ columns
        _take(least, place, cost.min(axis=0), guesses[cost.argmin(axis=0)], smaller=True)
        for radius in radii:
            mass = (distance <= radius) @ columns
            _take(
                most[radius], finder[radius], mass.max(axis=0), guesses[mass.argmax(axis=0)],
                smaller=False,
            )  # fmt: skip
    return _Search(
        place[:-1],
        float(least[:-1].sum()),
        float(least[-1]),
        {radius: finder[radius][:-1] for radius in radii},
        {radius: float(most[radius][:-1].sum()) for radius in radii},
        {radius: float(most[radius][-1]) for radius in radii},
    )


def _take(
    best: FloatArray, where: IntArray, value: FloatArray, guess: IntArray, *, smaller: bool
) -> None:
    better = value < best if smaller else value > best
    best[better], where[better] = value[better], guess[better]


def _expected(
    domain: Domain, matrix: FloatArray, guess: IntArray, radius: float | None = None
) -> FloatArray:
    """Per record, the expected distance of the guess, or how often it lies within `radius`."""
    names, column = np.unique(guess, return_inverse=True)
    result = np.empty(domain.size)
    for rows, distance in domain.blocks(names):
        measured = distance if radius is None else (distance <= radius).astype(np.float64)
        result[rows] = np.einsum("xy,xy->x", matrix[rows], measured[:, column])
    return result


def checked_prior(problem: Problem, prior: Prior | npt.ArrayLike | None) -> tuple[FloatArray, str]:
    """The attacker's prior, (K,), and its source: the problem's own where None."""
    if prior is None:
        return problem.prior, problem.prior_source
    if isinstance(prior, Prior):
        return prior.on(problem).prior, prior.source
    return replace(problem, prior=np.asarray(prior), prior_source="given").prior, "given"


def columns_of(problem: Problem, reports: npt.ArrayLike) -> IntArray:
    """The columns of some reports, given as `problem.outputs` names them; at least one."""
    named = np.asarray(reports)
    if named.ndim != 1 or len(named) == 0 or named.dtype.kind not in "iu":
        msg = (
            f"reports have shape {named.shape} and type {named.dtype}; give a list of outputs of "
            "the table as whole numbers, at least one"
        )
        raise MethodError(msg)
    column = {int(output): y for y, output in enumerate(problem.outputs)}
    columns = np.array([column.get(int(report), -1) for report in named])
    if columns.min() < 0:
        msg = f"reports[{columns.argmin()}] is no output of the table; reports must be outputs"
        raise MethodError(msg)
    return columns


def _radii(domain: Domain, radii: Sequence[float] | None) -> tuple[float, ...]:
    if radii is None:
        return RADII_KM if domain.unit == "km" else (domain.diameter / 10,)
    try:
        chosen = tuple(float(radius) for radius in radii)
    except (TypeError, ValueError) as error:
        msg = f"radii are {radii!r}; give a list of distances in {domain.unit}"
        raise MethodError(msg) from error
    for radius in chosen:
        if not (np.isfinite(radius) and radius >= 0):
            msg = f"radius {radius!r} is no distance; give finite numbers >= 0 in {domain.unit}"
            raise MethodError(msg)
    return chosen
