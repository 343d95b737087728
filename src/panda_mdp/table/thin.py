"""A table that takes little room: a common floor under every column, and rows in few digits.

The floor makes most entries equal in all rows; what is left is rounded as coarsely as the distance
to the nearest record allows. Both use up a share of epsilon, `slack`, that is taken first. Why the
result is private, by construction and not only by its audit, is in docs/format.md.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.base.floored import FlooredRows
from panda_mdp.errors import MethodError, NotForReleaseError, PrivacyError
from panda_mdp.privacy.quantise import TIGHTENING, TOTAL, closing, repair
from panda_mdp.problem import Problem
from panda_mdp.table.blocks import MOST_BITS, round_weights, shifts
from panda_mdp.table.mechanism import Mechanism, audited_table

SLACK = 1e-3
FLOOR_COST = 1e-3
COARSEST = 2.0**-7
"""Rounding stays four times finer than this where privacy would allow more."""
ATTEMPTS = 4
FILL_ROUNDS = 50


def compact(
    mechanism: Mechanism, *, slack: float = SLACK, floor_cost: float = FLOOR_COST
) -> Mechanism:
    """The nearest table whose file is short, epsilon-mDP over all pairs by audit.

    Entries below a floor are raised to it, the others are rounded to as few digits as the distance
    to the nearest record allows; `save` then writes rows as differences from near rows: about
    2.5 MB for 43,160 records x 100 outputs. The price is in the loss: at most the share
    `floor_cost` for the floor, and what it costs to keep the share `slack` of epsilon free for
    rounding, about as much; `details["compact"]` says what came of it. Where the table has no such
    slack it is closed again at epsilon (1 - slack). If rounding to 62-bit integers needs more, the
    slack is doubled. Raises `NotForReleaseError` for anything but a `Mechanism`.
    """
    if not isinstance(mechanism, Mechanism):
        raise NotForReleaseError(
            f"a {type(mechanism).__name__} is not for release; only a Mechanism can be saved"
        )
    for name, value in (("slack", slack), ("floor_cost", floor_cost)):
        if not 0 < value < 0.5:
            raise MethodError(f"{name} is {value!r}; it must lie between 0 and 0.5, such as 0.001")
    start = time.perf_counter()
    room = 1 - mechanism.audit.epsilon / mechanism.problem.epsilon
    if isinstance(mechanism.weights, FlooredRows) and room >= slack / 2:
        attempts = _shortened(mechanism.problem, mechanism.weights, room)
    else:
        attempts = thinned(mechanism, slack, floor_cost)
    for rows, share in attempts:
        answer = audited_table(
            mechanism.problem,
            rows,
            mechanism.method,
            bound=mechanism.bound_over_records,
            stages=(*mechanism.stages, ("thin", time.perf_counter() - start)),
        )
        if isinstance(answer, Mechanism):
            before = mechanism.loss
            facts = {
                "loss_before": before,
                "loss_cost": answer.loss / before - 1 if before > 0 else 0.0,
                "slack": share,
                "floor_share": float(rows.floor.sum()) / TOTAL,
                "raised_share": rows.stored / math.prod(rows.shape),
            }
            return answer.with_facts(details={**mechanism.details, "compact": facts})
    raise PrivacyError(
        f"the compact form misses epsilon: {answer.audit.shortfall}; allow more slack than "
        f"{slack:g}, merge records that are too near for it, or save the table as it is"
    )


def thinned(
    mechanism: Mechanism, slack: float, floor_cost: float
) -> Iterator[tuple[FlooredRows, float]]:
    """Rows raised to a floor and rounded, with more and more slack, and that slack."""
    used = np.asarray(mechanism.weights.any(axis=0))
    for attempt in range(ATTEMPTS):
        share = min(0.5, slack * 2**attempt)
        floor = _floor(mechanism, used, share, floor_cost)
        filled = fill(_with_slack(mechanism, used, share), floor)
        exact = np.rint(filled * TOTAL).astype(np.int64)
        rows = FlooredRows.of(exact, (floor * TOTAL).astype(np.int64))
        # The rest of a row is off by what all others are off by.
        yield _rounded(mechanism.problem, rows, share, lambda ratio: ratio), share


def _shortened(
    problem: Problem, rows: FlooredRows, slack: float
) -> Iterator[tuple[FlooredRows, float]]:
    """Rows over a floor, rounded as coarsely as the share of epsilon that they leave allows, and
    finer and finer then; as they are where nothing is stored."""
    if not rows.stored:
        yield rows, slack
    for attempt in range(ATTEMPTS if rows.stored else 0):
        # What others are off by goes in all directions.
        yield _rounded(problem, rows, slack, np.sqrt, 2 * attempt), slack


def _rounded(
    problem: Problem,
    rows: FlooredRows,
    slack: float,
    swing_of: Callable[[FloatArray], FloatArray],
    finer: int = 0,
) -> FlooredRows:
    """Rows at the precision that the distance to the nearest record allows each, and `finer` bits.

    The largest entry of a row is its rest, whose error is `swing_of` the ratio of the others to it.
    """
    nearest = problem.epsilon * problem.domain.neighbours(1)[1][:, 0]
    rest = rows.largest()
    highest = rows.values[rest] / float(TOTAL)
    swing = swing_of(np.maximum(1.0, (1 - highest) / highest))
    needed = np.ceil(np.log2(2 * swing / np.minimum(slack * nearest, COARSEST)))
    bits = np.minimum(needed + finer, MOST_BITS).astype(np.int64)
    # Equal rows stay equal: those of one key have the highest precision among them. Rows that only
    # share a key get more digits than they need.
    _, group = np.unique(rows.keys(), return_inverse=True)
    most = np.zeros(int(group.max()) + 1, dtype=np.int64)
    np.maximum.at(most, group, bits)
    digits = np.repeat(most[group], np.diff(rows.starts))
    values = _round_above(rows.values, digits, rows.floor[rows.columns])
    values[rest] = 0
    short = FlooredRows(rows.floor, rows.starts, rows.columns, values)
    values[rest] = TOTAL - short.sums()[0]
    return FlooredRows(rows.floor, rows.starts, rows.columns, values)


def _round_above(weights: IntArray, bits: IntArray, floors: IntArray) -> IntArray:
    """Weights in few digits, never below the floor, which has more: then up instead of down."""
    rounded = round_weights(weights, bits)
    step = np.int64(1) << shifts(weights, bits)
    return np.where((rounded < floors) & (weights >= floors), rounded + step, rounded)


def _with_slack(mechanism: Mechanism, used: BoolArray, slack: float) -> FloatArray:
    """The table, epsilon (1 - slack)-mDP; columns that are never used stay zero."""
    within = mechanism.problem.epsilon * (1 - slack)
    if mechanism.audit.epsilon <= within:
        return mechanism.matrix
    table = np.zeros_like(mechanism.matrix)
    closed = repair(
        closing(mechanism.problem.domain, int(used.sum())),
        np.ascontiguousarray(mechanism.matrix[:, used]),
        within,
        min(TIGHTENING, slack / 4),
    )
    if closed.common_share > slack:
        raise PrivacyError(
            f"at epsilon {within:g} the table could only be closed by giving all records the same "
            f"row with probability {closed.common_share:.3g}; merge records that are too near"
        )
    table[:, used] = closed.matrix
    return table


def _floor(mechanism: Mechanism, used: BoolArray, slack: float, cost: float) -> FloatArray:
    """Probabilities under which no entry of a used column falls, shape (m,).

    Raising a column to b costs at most b sum_x p_x c_xy, so these cost the same in every column
    and `cost` of the loss altogether. Their sum stays below slack / 4.
    """
    each = cost * mechanism.loss / int(used.sum())
    dearest = mechanism.problem.mean_loss
    with np.errstate(divide="ignore", invalid="ignore"):
        floor = np.where(dearest > 0, each / dearest, 0.0)
    floor[~used] = 0.0
    # Whole units of 2^-62, so that what is compared is what is written.
    floor = np.floor(floor * min(1.0, slack / 4 / max(floor.sum(), 1e-300)) * TOTAL)
    return np.asarray(floor / TOTAL)


def fill(table: FloatArray, floor: FloatArray) -> FloatArray:
    """max(s z, b) with one s <= 1 for each row such that it sums to 1.

    >>> fill(np.array([[0.5, 0.5, 0.0]]), np.array([0.0, 0.0, 0.1])).tolist()
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
    return np.where(above, table * scale, floor)
