"""Several reports of one place: drawn anew each time, or drawn once and repeated."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.errors import MethodError
from panda_mdp.meaning.attack import checked_prior
from panda_mdp.prior import Prior
from panda_mdp.table.mechanism import Table

EXACT_OUTCOMES = 20_000
"""Outcomes of several reports up to which all of them are summed over."""
DRAWS = 2_000
BLOCK = 200


@dataclass(frozen=True)
class Repeated:
    """What the best attacker gains from `count` reports of one record."""

    count: int
    vulnerability: float
    """How often the best guess of the record is right."""
    error: float
    """The best guess's expected distance from the record, in the domain's unit."""
    vulnerability_se: float
    error_se: float
    """Standard errors; 0 where every outcome was summed over."""
    exact: bool


def repeated(
    mechanism: Table,
    count: int,
    *,
    memoised: bool = False,
    prior: Prior | npt.ArrayLike | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Repeated:
    """What somebody gains who sees `count` reports of the same record and knows that it is one.

    Independent reports are exchangeable, so the attacker sees how often each output came: up to
    `EXACT_OUTCOMES` such counts are all summed over. Beyond that, records and reports are drawn
    with `seed` and the posterior of each draw is exact: its largest entry and its least expected
    distance are averaged, with their standard errors. Memoised reports (one draw, repeated) tell no
    more than one: the table itself.

    Guarantee of the mechanism over count independent reports: count * epsilon; memoised: epsilon.

    >>> from panda_mdp import Domain, Problem, exponential
    >>> domain = Domain.from_vectors([[0.0], [1.0]])
    >>> table = exponential(Problem(domain, [0, 1], domain.distances(), epsilon=2.0))
    >>> [round(repeated(table, n).vulnerability, 3) for n in (1, 3, 9)]
    [0.731, 0.822, 0.935]
    """
    for name, number, least in (("count", count, 1), ("draws", draws, 2)):
        if not isinstance(number, int | np.integer) or number < least:
            msg = f"{name} is {number!r}; give a whole number, at least {least}"
            raise MethodError(msg)
    problem = mechanism.problem
    weights, _ = checked_prior(problem, prior)
    matrix = mechanism.matrix
    times = 1 if memoised else count
    outcomes = math.comb(times + matrix.shape[1] - 1, times)
    distance = problem.domain.distances()
    if outcomes <= EXACT_OUTCOMES:
        both = weights[:, None] * outcome_channel(matrix, times)
        sums = both.max(axis=0).sum(), (distance @ both).min(axis=0).sum()
        return Repeated(count, float(sums[0]), float(sums[1]), 0.0, 0.0, exact=True)
    right, off = _drawn(weights, matrix, distance, times, draws, seed)
    right_se, off_se = (float(v.std(ddof=1) / math.sqrt(len(v))) for v in (right, off))
    return Repeated(count, float(right.mean()), float(off.mean()), right_se, off_se, exact=False)


def blurred_distance(epsilon: float, reports: int = 1, guess: float = 0.75) -> float:
    """The distance within which a guess between two records is right at most `guess` of the time
    after so many independent reports, in the unit that epsilon is per: what an allowance of
    reports * epsilon in a ledger means in metres. log(guess / (1 - guess)) / (reports epsilon).

    >>> round(1000 * blurred_distance(5.0)), round(1000 * blurred_distance(5.0, reports=30))
    (220, 7)
    """
    if not 0.5 < guess < 1 or not epsilon > 0 or not reports >= 1:
        msg = (
            f"guess is {guess!r}, epsilon {epsilon!r}, reports {reports!r}; a guess between two "
            "lies between 0.5 and 1, epsilon is positive and there is at least 1 report"
        )
        raise MethodError(msg)
    return math.log(guess / (1 - guess)) / (reports * epsilon)


def outcome_channel(matrix: FloatArray, times: int) -> FloatArray:
    """Probabilities of how often each output comes in `times` reports, (K, outcomes)."""
    columns = []
    with np.errstate(divide="ignore"):
        logs = np.log(matrix)
    for counts in _counts(times, matrix.shape[1]):
        used = np.flatnonzero(counts)
        ways = math.lgamma(times + 1) - sum(math.lgamma(counts[y] + 1) for y in used)
        columns.append(np.exp(ways + logs[:, used] @ counts[used]))
    return np.stack(columns, axis=1)


def _counts(times: int, outputs: int) -> Iterator[IntArray]:
    for drawn in itertools.combinations_with_replacement(range(outputs), times):
        yield np.bincount(drawn, minlength=outputs)


def _drawn(
    prior: FloatArray, matrix: FloatArray, distance: FloatArray, times: int, draws: int, seed: int
) -> tuple[FloatArray, FloatArray]:
    generator = np.random.default_rng(seed)
    records = generator.choice(len(prior), size=draws, p=prior)
    counts = generator.multinomial(times, matrix[records] / matrix[records].sum(1, keepdims=True))
    with np.errstate(divide="ignore"):
        logs = np.log(matrix)
        start = np.log(prior)
    right, off = np.empty(draws), np.empty(draws)
    for first in range(0, draws, BLOCK):
        some = counts[first : first + BLOCK]
        with np.errstate(invalid="ignore"):
            terms = np.where(some[:, None, :] > 0, some[:, None, :] * logs, 0.0).sum(axis=2)
        belief = np.exp(start + terms - (start + terms).max(axis=1, keepdims=True))
        belief /= belief.sum(axis=1, keepdims=True)
        right[first : first + BLOCK] = belief.max(axis=1)
        off[first : first + BLOCK] = (belief @ distance).min(axis=1)
    return right, off
