"""A table that takes little room: a common floor under every column, and rows in few digits.

The floor makes most entries equal in all rows; what is left is rounded as coarsely as the distance
to the nearest record allows. Both use up a share of epsilon, `slack`, that is taken first. Why the
result is private, by construction and not only by its audit, is in docs/format.md.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.base.floored import FlooredRows
from panda_mdp.compute.closure import Closure
from panda_mdp.compute.highs import require_numba
from panda_mdp.errors import MethodError, PrivacyError
from panda_mdp.privacy.quantise import TOTAL
from panda_mdp.privacy.repair import TIGHTENING, repair
from panda_mdp.table.mechanism import Mechanism, judged
from panda_mdp.table.pmdc.codec import MOST_BITS, Rows, round_weights, shifts

COARSEST = 2.0**-7
"""Rounding stays four times finer than this where privacy would allow more."""
ATTEMPTS = 4
FILL_ROUNDS = 50


@dataclass(frozen=True)
class ShortRows:
    """`Rows` that are stored over their floor."""

    weights: FlooredRows
    bits: IntArray
    rest: IntArray

    def take(self, positions: IntArray) -> Rows:
        """Some of the rows, written out."""
        raised = np.zeros((len(positions), self.weights.shape[1]), dtype=np.bool_)
        for place, record in enumerate(positions.tolist()):
            part = slice(self.weights.starts[record], self.weights.starts[record + 1])
            raised[place, self.weights.columns[part]] = True
        return Rows(self.weights[positions], raised, self.bits[positions], self.rest[positions])

    @property
    def raised_share(self) -> float:
        """Part of the table that is not at the floor."""
        return self.weights.stored / (self.weights.shape[0] * self.weights.shape[1])


@dataclass(frozen=True)
class Thin:
    """A mechanism of which each row is a floor and some short numbers."""

    mechanism: Mechanism
    floors: IntArray
    """(m,): the weight of each output in every row that does not raise it."""
    rows: Rows | ShortRows
    slack: float
    """The share of epsilon that went into rounding, at least 0."""


def thin(mechanism: Mechanism, slack: float, floor_cost: float) -> Thin:
    """The nearest table that takes little room, epsilon-mDP over all pairs by audit.

    `slack` is the share of epsilon that rounding may use, `floor_cost` the share of the loss that
    the floor may cost. Where the table has no such slack it is closed again at
    epsilon (1 - slack). If rounding to 62-bit integers needs more, the slack is doubled.
    """
    _check_share(slack, "slack")
    _check_share(floor_cost, "floor_cost")
    start = time.perf_counter()
    problem = mechanism.problem
    if isinstance(mechanism.weights, FlooredRows):
        room = 1 - mechanism.audit.epsilon / problem.epsilon
        if room >= slack / 2:
            return _thin_floored(mechanism, mechanism.weights, room)
    used = np.asarray(mechanism.weights.any(axis=0))
    nearest = problem.epsilon * problem.domain.neighbours(1)[1][:, 0]
    for attempt in range(ATTEMPTS):
        share = min(0.5, slack * 2**attempt)
        table = _with_slack(mechanism, used, share)
        floor = _floor(mechanism, used, share, floor_cost)
        rows = _round(nearest, table, floor, share)
        answer = judged(
            problem,
            rows.weights,
            mechanism.method,
            lower_bound=mechanism.lower_bound,
            stages=(*mechanism.stages, ("thin", time.perf_counter() - start)),
            details=mechanism.details,
        )
        if isinstance(answer, Mechanism):
            break
    else:
        msg = (
            f"the compact form misses epsilon: {answer.audit.shortfall}; allow more slack than "
            f"{slack:g} or merge records that are too near for it"
        )
        raise PrivacyError(msg)
    return Thin(answer, (floor * TOTAL).astype(np.int64), rows, share)


def _thin_floored(mechanism: Mechanism, rows: FlooredRows, slack: float) -> Thin:
    """Rows over a floor, rounded as coarsely as the share of epsilon that they leave allows."""
    start = time.perf_counter()
    problem = mechanism.problem
    nearest = problem.epsilon * problem.domain.neighbours(1)[1][:, 0]
    rest = rows.largest()
    highest = rows.values[rest] / float(TOTAL)
    # The rest of a row is off by the sum of what all others are off by, in all directions.
    swing = np.sqrt(np.maximum(1.0, (1 - highest) / highest))
    needed = np.ceil(np.log2(2 * swing / np.minimum(slack * nearest, COARSEST)))
    for attempt in range(ATTEMPTS):
        bits = np.minimum(needed + 2 * attempt, MOST_BITS).astype(np.int64)
        bits = _highest_of_equal(bits, rows.keys())
        digits = np.repeat(bits, np.diff(rows.starts))
        values = round_weights(rows.values, digits)
        # Never below the floor, which has more digits: then up instead of down.
        low = values < rows.floor[rows.columns]
        values[low] += np.int64(1) << shifts(rows.values[low], digits[low])
        values[rest] = 0
        short = FlooredRows(rows.floor, rows.starts, rows.columns, values)
        values[rest] = TOTAL - short.sums()[0]
        short = FlooredRows(rows.floor, rows.starts, rows.columns, values)
        answer = judged(
            problem,
            short,
            mechanism.method,
            lower_bound=mechanism.lower_bound,
            stages=(*mechanism.stages, ("thin", time.perf_counter() - start)),
            details=mechanism.details,
        )
        if isinstance(answer, Mechanism):
            columns = rows.columns[rest].astype(np.int64)
            return Thin(answer, rows.floor, ShortRows(short, bits, columns), slack)
    msg = f"the compact form misses epsilon: {answer.audit.shortfall}; use mechanism.save(path)"
    raise PrivacyError(msg)


def _check_share(value: float, name: str) -> None:
    if not 0 < value < 0.5:
        msg = f"{name} is {value!r}; it must lie between 0 and 0.5, such as 0.001"
        raise MethodError(msg)


def _with_slack(mechanism: Mechanism, used: BoolArray, slack: float) -> FloatArray:
    """The table, epsilon (1 - slack)-mDP; columns that are never used stay zero."""
    problem = mechanism.problem
    within = problem.epsilon * (1 - slack)
    if mechanism.audit.epsilon <= within:
        return mechanism.matrix
    require_numba("closing the table at a smaller epsilon")
    table = np.zeros_like(mechanism.matrix)
    closed = repair(
        Closure(problem.domain),
        np.ascontiguousarray(mechanism.matrix[:, used]),
        within,
        min(TIGHTENING, slack / 4),
    )
    if closed.common_share > slack:
        msg = (
            f"at epsilon {within:g} the table could only be closed by giving all records the same "
            f"row with probability {closed.common_share:.3g}; merge records that are too near"
        )
        raise PrivacyError(msg)
    table[:, used] = closed.matrix
    return table


def _floor(mechanism: Mechanism, used: BoolArray, slack: float, cost: float) -> FloatArray:
    """Probabilities under which no entry of a used column falls, shape (m,).

    Raising a column to b costs at most b sum_x p_x c_xy, so these cost the same in every column
    and `cost` of the loss altogether. Their sum stays below slack / 4.
    """
    problem = mechanism.problem
    each = cost * mechanism.loss / int(used.sum())
    dearest = problem.mean_loss
    with np.errstate(divide="ignore", invalid="ignore"):
        floor = np.where(dearest > 0, each / dearest, 0.0)
    floor[~used] = 0.0
    # Whole units of 2^-62, so that what is compared is what is written.
    floor = np.floor(floor * min(1.0, slack / 4 / max(floor.sum(), 1e-300)) * TOTAL)
    return np.asarray(floor / TOTAL)


def _round(nearest: FloatArray, table: FloatArray, floor: FloatArray, slack: float) -> Rows:
    """The table raised to the floor, at the precision that `nearest` (nats) allows each row."""
    filled, raised = fill(table, floor)
    highest = filled.max(axis=1)
    # The rest of a row is off by what all others are off by.
    swing = np.maximum(1.0, (1 - highest) / highest)
    bits = np.ceil(np.log2(2 * swing / np.minimum(slack * nearest, COARSEST)))
    bits = _same_for_equal_rows(np.minimum(bits, MOST_BITS).astype(np.int64), filled)
    floors = (floor * TOTAL).astype(np.int64)
    exact = np.rint(filled * TOTAL).astype(np.int64)
    weights = np.where(raised, round_weights(exact, bits[:, None]), floors)
    rows, rest = np.arange(len(table)), filled.argmax(axis=1)
    weights[rows, rest] = 0
    weights[rows, rest] = TOTAL - weights.sum(axis=1)
    raised[rows, rest] = True
    return Rows(weights, raised, bits, rest)


def fill(table: FloatArray, floor: FloatArray) -> tuple[FloatArray, BoolArray]:
    """max(s z, b) with one s <= 1 for each row such that it sums to 1, and where s z > b.

    >>> fill(np.array([[0.5, 0.5, 0.0]]), np.array([0.0, 0.0, 0.1]))[0].tolist()
    [[0.45, 0.45, 0.1]]
    """
    scale = np.ones((len(table), 1))
    above = table > floor
    for _ in range(FILL_ROUNDS):
        left = 1 - np.where(above, 0.0, floor).sum(axis=1, keepdims=True)
        scale = left / np.where(above, table, 0.0).sum(axis=1, keepdims=True)
        still = above & (table * scale > floor)
        if np.array_equal(still, above):
            break
        above = still
    return np.where(above, table * scale, floor), above


def _same_for_equal_rows(bits: IntArray, table: FloatArray) -> IntArray:
    """The highest precision among the rows that are equal to each, so that they stay equal."""
    odd = np.random.default_rng(0).integers(1, 1 << 62, table.shape[1]) | 1
    return _highest_of_equal(bits, table.view(np.int64) @ odd)


def _highest_of_equal(bits: IntArray, keys: IntArray) -> IntArray:
    """The highest precision among rows of equal keys: rows that are not equal only get more digits
    than they need."""
    _, group = np.unique(keys, return_inverse=True)
    highest = np.zeros(int(group.max()) + 1, dtype=np.int64)
    np.maximum.at(highest, group, bits)
    return np.asarray(highest[group])
