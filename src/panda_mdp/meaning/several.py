"""Several reports of one person: of one place, along a way, of a home at night.

Reports of a place are drawn anew each time or drawn once and repeated; an attacker may know how
people move (a Markov model, forward-backward) and when they are at home.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray, frozen
from panda_mdp.errors import MethodError
from panda_mdp.meaning.attack import columns_of, radii_holding
from panda_mdp.problem import check_number
from panda_mdp.space.domain import check_indices
from panda_mdp.space.guesses import best_guesses, best_records
from panda_mdp.table.mechanism import Table

Draws = Literal["anew", "stay", "keyed"]
MOST_WAYS = 500_000
"""Ways of a trace that are summed over."""
EXACT_OUTCOMES = 20_000
"""Outcomes of several reports up to which all of them are summed over."""
DRAWS = 2_000
HELD = 0.9
"""Share of the belief that the zone of an anchor holds."""
AWAY = 0.2
"""How often a report at the hours of an anchor is of another place."""


@dataclass(frozen=True)
class Repeated:
    """What the best attacker gains from `count` reports of one record."""

    count: int
    vulnerability: float
    """How often the best guess of the record is right."""
    error: float
    """The best guess's expected distance from the record, in the domain's unit; a guess is any
    place where there are places between records."""
    vulnerability_se: float
    error_se: float
    """Standard errors; 0 where every outcome was summed over."""
    exact: bool


def repeated(
    mechanism: Table,
    count: int,
    *,
    draws: int = DRAWS,
    exact: int = EXACT_OUTCOMES,
    seed: int = 0,
) -> Repeated:
    """What somebody gains who sees `count` reports of the same record and knows that it is one.

    Independent reports are exchangeable, so the attacker sees how often each output came: up to
    `exact` such counts are all summed over. Beyond that, records and reports are drawn
    with `seed` and the posterior of each draw is exact: its largest entry and its least expected
    distance are averaged, with their standard errors. Reports that are drawn once and repeated tell
    no more than one.

    Guarantee of the mechanism over count independent reports: count * epsilon.

    >>> from panda_mdp import Domain, Problem, exponential
    >>> domain = Domain.from_vectors([[0.0], [1.0]])
    >>> table = exponential(Problem(domain, [0, 1], domain.distances(), epsilon=2.0))
    >>> [round(repeated(table, n).vulnerability, 3) for n in (1, 3, 9)]
    [0.731, 0.822, 0.935]
    """
    check_number(count, "count", "a whole number, at least 1", least=1, whole=True)
    check_number(draws, "draws", "a whole number, at least 2", least=2, whole=True)
    problem = mechanism.problem
    matrix = mechanism.matrix
    weights = problem.prior
    outputs = problem.outputs_count
    summed = math.comb(count + outputs - 1, count) <= exact
    if summed:
        lists = itertools.combinations_with_replacement(range(outputs), count)
        counts = np.stack([np.bincount(drawn, minlength=outputs) for drawn in lists])
        orders = scipy.special.gammaln(count + 1) - scipy.special.gammaln(counts + 1).sum(axis=1)
        belief = weights * np.exp(_log_likelihoods(counts, matrix) + orders[:, None])
    else:
        generator = np.random.default_rng(seed)
        rows = matrix[generator.choice(len(weights), size=draws, p=weights)]
        counts = generator.multinomial(count, rows / rows.sum(axis=1, keepdims=True))
        belief = _posterior(weights, _log_likelihoods(counts, matrix))
    measured = np.stack([belief.max(axis=1), best_guesses(problem.domain, belief.T)[1]])
    if summed:
        gains = measured.sum(axis=1)
        errors = np.zeros(2)
    else:
        gains = measured.mean(axis=1)
        errors = measured.std(axis=1, ddof=1) / math.sqrt(draws)
    return Repeated(count, *[*gains.tolist(), *errors.tolist(), summed])


def _log_likelihoods(counts: IntArray, matrix: FloatArray) -> FloatArray:
    """log of the product over outputs of z(y|x)^count for every record, (lists of counts, K)."""
    never = matrix <= 0
    impossible = counts @ never.T.astype(float) > 0
    return np.where(impossible, -np.inf, counts @ np.log(np.where(never, 1.0, matrix)).T)


def _posterior(prior: FloatArray, logs: FloatArray) -> FloatArray:
    """Beliefs in the records, (..., K), from the prior and logarithms of likelihoods."""
    with np.errstate(divide="ignore"):
        both = np.log(prior) + logs
    most = both.max(axis=-1, keepdims=True)
    if not np.isfinite(most).all():
        raise MethodError(
            "no record that the prior knows gives these reports; give the prior more support"
        )
    belief = np.exp(both - most)
    return belief / belief.sum(axis=-1, keepdims=True)


@dataclass(frozen=True, eq=False)
class Movement:
    """A Markov chain over records: where a trace starts, (K,), and where it goes, (K, K)."""

    start: FloatArray
    steps: FloatArray

    def __post_init__(self) -> None:
        start, steps = (np.asarray(part, dtype=float) for part in (self.start, self.steps))
        fits = start.ndim == 1 and start.size > 0 and steps.shape == (start.size, start.size)
        rows = np.vstack([start, steps]) if fits else -np.ones((1, 1))
        if not ((rows >= 0).all() and np.allclose(rows.sum(axis=1), 1.0, rtol=0, atol=1e-9)):
            raise MethodError(
                f"start has shape {start.shape} and steps {steps.shape}; give one probability per "
                "record, (K,), and one row of them per record, (K, K), not negative, with sum 1"
            )
        vars(self).update(start=frozen(start), steps=frozen(steps))

    def __repr__(self) -> str:
        return f"Movement({len(self.start)} records)"

    @classmethod
    def learn(cls, traces: Iterable[ArrayLike], size: int, *, smoothing: float = 0.05) -> Movement:
        """The chain of some traces (records in time), what an attacker learns from past data.

        Each row mixes the counts of the traces with a share `smoothing` of their visits (and of
        the uniform distribution where a record has no successor), so no step is impossible.
        """
        check_number(smoothing, "smoothing", "a share in (0, 1]", most=1)
        # Traces start in the last row, which is no record's.
        moves = np.zeros((size + 1, size))
        for trace in traces:
            records = check_indices(trace, size, "records")
            if len(records):
                np.add.at(moves, (np.append(size, records[:-1]), records), 1.0)
        visits = moves.sum(axis=0)
        if not visits.any():
            raise MethodError("there are no records in the traces; give at least one")
        common = 0.5 * visits / visits.sum() + 0.5 / size
        seen = moves.sum(axis=1, keepdims=True)
        learnt = np.where(seen > 0, moves / np.maximum(seen, 1), common)
        chances = (1 - smoothing) * learnt + smoothing * common
        return cls(chances[-1], chances[:-1])


def likelihoods(table: Table, reports: ArrayLike) -> FloatArray:
    """z(report | record) for every report, (T, K), of reports as output indices into the domain."""
    return table.matrix.T[columns_of(table.problem.outputs.tolist(), reports)]


def track(
    movement: Movement, table: Table, reports: ArrayLike, draws: Draws | int = "anew"
) -> FloatArray:
    """p(record at t | all reports), (T, K), for who knows how people move and how draws are made.

    "anew": every report is a new draw. "stay": a draw is repeated while somebody stays, and made
    anew after each move. A number n: at every n-th fix a draw is made, and repeated until the next,
    whatever happens: a public clock, so that what is repeated tells nothing. "keyed": each record
    has one draw for ever, so a way that comes back says the same again; exact as a sum over all
    ways, for few records and steps.

    >>> from panda_mdp import Domain, Problem, exponential
    >>> line = Domain.from_vectors([[0.0], [1.0]])
    >>> table = exponential(Problem(line, [0, 1], line.distances(), epsilon=2.0))
    >>> still = Movement([0.5, 0.5], [[1, 0], [0, 1]])
    >>> for draws in ("anew", "stay", "keyed"):
    ...     print(draws, track(still, table, [0, 0, 0], draws)[0].round(3))
    anew [0.953 0.047]
    stay [0.731 0.269]
    keyed [0.731 0.269]
    """
    seen = likelihoods(table, reports)
    named = np.asarray(reports)
    if isinstance(draws, int):
        check_number(draws, "draws", "the n of every n-th fix, from 1", least=1)
        fresh = np.arange(len(seen)) % draws == 0
        return forward_backward(movement, np.where(fresh[:, None], seen, 1.0))
    if draws != "keyed":
        again = np.append(False, named[1:] == named[:-1])
        return forward_backward(movement, seen, again if draws == "stay" else None)
    size = seen.shape[1]
    steps = movement.steps
    ways = np.zeros((1, 0), np.int64)
    chance = np.ones(1)
    for t, likely in enumerate(seen):
        here = np.tile(np.arange(size), len(ways))
        ways = np.repeat(ways, size, axis=0)
        chance = np.repeat(chance, size)
        chance = chance * (movement.start[here] if t == 0 else steps[ways[:, -1], here])
        back = ways == here[:, None]
        fits = (~back | (named[:t] == named[t])).all(axis=1)
        chance *= np.where(back.any(axis=1), fits, likely[here])
        kept = chance > 0
        ways = np.column_stack([ways, here])[kept]
        chance = chance[kept]
        if len(ways) * size > MOST_WAYS:
            raise MethodError(
                f"{len(ways):,} ways of {t + 1} steps give these reports; at most "
                f"{MOST_WAYS // size:,} are summed over: give fewer records or reports"
            )
    shares = _normalised(chance)
    return np.stack([np.bincount(at, shares, size) for at in ways.T])


def forward_backward(
    movement: Movement, seen: FloatArray, again: BoolArray | None = None
) -> FloatArray:
    """p(record at t | all that is seen), (T, K), from the likelihood of what is seen at t for every
    record, (T, K): a report (`likelihoods`), an exact place, or nothing (a row of ones).

    With `again`, (T,), whether a report is the one before, who stays is known to repeat it. The
    smoothing recursions of hidden Markov models (Rabiner 1989; for locations Shokri et al., S&P
    2011), scaled at every step.
    """
    likely = np.asarray(seen, dtype=float)
    size = len(movement.start)
    fits = likely.ndim == 2 and len(likely) > 0 and likely.shape[1] == size
    if not (fits and (np.isfinite(likely) & (likely >= 0)).all()):
        raise MethodError(
            f"the likelihoods have shape {likely.shape}; give one row of {size} per report, one "
            "finite number >= 0 for each record of the movement, and at least one report"
        )

    def step_to(t: int) -> FloatArray:
        steps = movement.steps * likely[t]
        if again is not None:
            np.fill_diagonal(steps, movement.steps.diagonal() * again[t])
        return steps

    both = np.empty_like(likely)
    ahead = np.ones(size)
    both[0] = _normalised(movement.start * likely[0])
    for t in range(1, len(likely)):
        both[t] = _normalised(both[t - 1] @ step_to(t))
    for t in range(len(likely) - 1, 0, -1):
        ahead = _normalised(step_to(t) @ ahead)
        both[t - 1] *= ahead
    return both / both.sum(axis=1, keepdims=True)


def moment_leakage(
    movement: Movement | Sequence[Movement], nats: FloatArray, length: int
) -> FloatArray:
    """What all reports of a trace tell of each moment, at most, in nats: (length, K, K), of people
    who move in one way, or each in one of a public class, known to the attacker or not.

    Each report alone tells records a and b from each other by at most `nats`, (K, K): epsilon d(a,
    b). Of the reports after a moment only what is said of where one goes next tells more, so with
    P_a the step from a

        after_n(a, b) = log max (P_a w) / (P_b w)
                        over w with  w_x <= exp(nats + after_(n-1))(x, x') w_x',

    one linear-fractional program for each pair; of those before it alike, with steps back in time.
    The sum with the moment's own report bounds log p(reports | a) / p(reports | b) for every table
    and all reports. Composition says length times `nats`, which is reached where nobody moves.
    Several ways are one over pairs of a way and a record, of which a report tells the record alone:
    any mixture of them lies between the largest and the least. Certified by the programs'
    multipliers, their rounding included.
    """
    ways = [movement] if isinstance(movement, Movement) else list(movement)
    shape = np.shape(nats)
    if not (ways and all(way.steps.shape == shape for way in ways)):
        raise MethodError(
            f"nats have shape {shape}; give (K, K) of them and ways to move over as many records"
        )
    nats = np.tile(np.asarray(nats, dtype=float), (len(ways), len(ways)))
    bounds = np.tile(nats, (length, 1, 1))
    after = before = np.zeros_like(nats)
    steps = scipy.linalg.block_diag(*(way.steps for way in ways))
    seen_at = np.concatenate([way.start for way in ways]) / len(ways)
    for t in range(1, length):
        joint = seen_at[:, None] * steps
        before_at = seen_at
        seen_at = joint.sum(axis=0)
        # Where nobody can be, it does not matter where they come from.
        from_where = np.where(seen_at > 0, joint, before_at[:, None])
        back = (from_where / np.where(seen_at > 0, seen_at, 1.0)).T
        after = _carried(steps, nats + after)
        before = _carried(back, nats + before)
        bounds[-1 - t] += after
        bounds[t] += before
    each = (len(ways), shape[0])
    return bounds.reshape(length, *each, *each).max(axis=(1, 3))


def _carried(steps: FloatArray, nats: FloatArray) -> FloatArray:
    """log of the largest (P_a w) / (P_b w) over the w whose entries differ by at most `nats`."""
    size = len(steps)
    first, second = np.nonzero(~np.eye(size, dtype=bool))
    cone = np.zeros((len(first), size))
    rows = np.arange(len(first))
    cone[rows, first] = 1.0
    cone[rows, second] = -np.exp(nats[first, second]) * (1 + 1e-14)
    # No w has more at x, where P_b w = 1.
    most = 1 / (np.exp(-nats) @ steps.T)
    carried = np.zeros((size, size))
    for a, b in zip(first, second, strict=True):
        found: Any = scipy.optimize.linprog(
            -steps[a], cone, np.zeros(len(cone)), steps[b, None], [1.0], method="highs"
        )
        ratio = 1.0
        prices = np.zeros(len(cone))
        if found.status == 0:
            ratio = -found.fun
            prices = np.maximum(-found.ineqlin.marginals, 0.0)
        left = steps[a] - prices @ cone - ratio * steps[b]
        missed = np.maximum(left + 1e-14 * (1 + prices.sum()), 0.0)
        carried[a, b] = math.log((ratio + missed @ most[:, b]) * (1 + 1e-12))
    return carried


def _normalised(joint: FloatArray) -> FloatArray:
    if not joint.sum() > 0:
        raise MethodError(
            "these reports are impossible under this table and movement; raise the smoothing"
        )
    return joint / joint.sum()


@dataclass(frozen=True, eq=False)
class Zone:
    """What an attacker believes of an anchor place. For a real person this is as secret as it is.

    `belief` is the posterior over the records, (K,); `share` of it lies within `radius` of `place`.
    """

    belief: FloatArray
    place: int
    radius: float
    share: float

    def __repr__(self) -> str:
        return "Zone(<hidden>)"


def locate_anchor(
    table: Table,
    reports: ArrayLike,
    *,
    away: float = AWAY,
    keyed: bool = False,
) -> Zone:
    """Where an anchor (home, work) lies, from reports at the hours that somebody is there.

    Each report is of the anchor with probability 1 - `away`, else of a record drawn from the prior:

        p(a | reports)  proportional to  p_a product over reports of
                        ((1 - away) z(y|a) + away sum_x p_x z(y|x)).

    Independent reports let it sharpen without end. Where the anchor has one draw for ever (`keyed`)
    it is one of the outputs, and all other reports are of elsewhere:

        p(a | reports)  proportional to  p_a sum_y z(y|a) (1 - away + away q_y)^n_y product over
                        the others of (away q_y')^n_y',     q = sum_x p_x z_x.

    The zone is the disc round the record of least expected distance that holds 90 % of belief;
    `panda_mdp.space.guesses.best_guesses` has the best guess of the place from `belief`.
    """
    if not (0 <= away < 1 and np.size(reports)):
        raise MethodError(f"away is {away!r}; give a share in [0, 1), and at least one report")
    problem = table.problem
    matrix = table.matrix
    elsewhere = away * (problem.prior @ matrix)
    columns = columns_of(problem.outputs.tolist(), reports)
    counts = np.bincount(columns, minlength=problem.outputs_count)
    logs = _log_likelihoods(counts, (1 - away) * matrix + elsewhere)
    if keyed:
        # Row y: the anchor's draw is y.
        drawn = np.eye(len(counts)) * (1 - away) + elsewhere
        logs = scipy.special.logsumexp(_log_likelihoods(counts, drawn), b=matrix, axis=1)
    belief = _posterior(problem.prior, logs)
    place = int(best_records(problem.domain, belief[:, None])[1][0])
    distance = problem.domain.distances([place], None)[0]
    (radius,) = radii_holding(distance, belief, HELD)
    return Zone(belief, place, radius, float(belief[distance <= radius].sum()))
