"""The one door through which methods hand out mechanisms.

Quantising moves an entry by up to 2^-62, which matters where entries are tiny or records very near.
Mixing in a row that is common to all records, z <- (1 - s) z + f with s = sum_y f_y, keeps every
inequality (they are linear and f satisfies them with room to spare) and lifts the tiny entries. The
floor f follows the loss: outputs that no record uses get none, and those that cost much get less.
`release` takes the lowest floor on a ladder for which the audit on the final integers holds, and
gives up beyond `MAX_SHARE`: what needs more than that was not private in the first place.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray, Stages
from panda_mdp.base.threads import check_time
from panda_mdp.compute.backend import Backend
from panda_mdp.errors import PrivacyError
from panda_mdp.privacy.quantise import quantise
from panda_mdp.problem import Problem
from panda_mdp.table.bound import Bound
from panda_mdp.table.mechanism import Mechanism, audited_table

FLOOR_SHARE = 1e-8
MAX_SHARE = 1e-3
FLOOR_WORTH = 1e-6
"""Of the loss: what a floor may cost before the audit asks for a higher one."""
LEAST_ENTRY = 2.0**-57
"""An entry of 32 units of the integers: below it rounding is most of the entry."""
ROUNDING_NATS = 1e-11
"""Log ratios below this are within the reach of rounding: 1e-12 of the audit, and the method's."""
LADDER = 16
"""Floors that are tried, each ten times the one before."""
COMMON_NATS = 1e-6
"""Where the rows differ by less than this, one row for all records costs no more than this share of
the loss."""


def mix(matrix: FloatArray, share: float, common: FloatArray | None = None) -> FloatArray:
    """(1 - share) z + share u, with u uniform by default."""
    return (1.0 - share) * matrix + share * (1.0 / matrix.shape[1] if common is None else common)


def floor_row(problem: Problem, rows: FloatArray, share: float = FLOOR_SHARE) -> FloatArray:
    """A floor f (m,) under all rows: share / m for each output, but 0 where no record uses it, and
    so little where it is expensive that all of f costs at most `FLOOR_WORTH` of the loss."""
    return floor_under(problem, rows.max(axis=0) > 0, problem.expected_loss(rows), share)


def floor_under(
    problem: Problem,
    used: BoolArray,
    loss: float,
    share: float = FLOOR_SHARE,
    worth: float = FLOOR_WORTH,
) -> FloatArray:
    """`floor_row` of a table of which only the outputs `used` and the expected loss are known."""
    outputs, cost = problem.outputs_count, problem.mean_loss
    each = worth * loss / outputs
    affordable = np.divide(each, cost, out=np.full(outputs, np.inf), where=cost > 0)
    floor = np.minimum(share / outputs, np.maximum(affordable, LEAST_ENTRY))
    return np.where(used, floor, 0.0)


def release(
    problem: Problem,
    matrix: FloatArray,
    *,
    method: str,
    bound: Bound | float | None = None,
    stages: Stages = (),
    details: Mapping[str, Any] | None = None,
    floor: float = FLOOR_SHARE,
    backend: Backend | None = None,
) -> Mechanism:
    """Quantise, audit and hand out a matrix that is epsilon-mDP up to rounding.

    Where all rows differ by less than 1e-6 and rounding breaks epsilon between near records, every
    record gets the rows' mean under the prior. A matrix that misses epsilon by more than
    rounding is refused with `PrivacyError`, and so are records too near for float64.
    """
    start = time.perf_counter()
    with np.errstate(invalid="ignore", divide="ignore"):
        rows = matrix / matrix.sum(axis=1, keepdims=True)
    for table, facts in attempts(problem, rows, floor):
        check_time()
        try:
            weights = quantise(table)
        except PrivacyError as error:
            raise PrivacyError(f"{method} gave a matrix that is not private: {error}") from error
        answer = audited_table(problem, weights, method, bound=bound, backend=backend)
        result = answer.audit
        if isinstance(answer, Mechanism):
            return answer.with_facts(
                stages=(*stages, ("quantise and audit", time.perf_counter() - start)),
                details={**(details or {}), **facts},
            )
    msg = f"{method} gave a matrix that is not private: {result.shortfall}"
    if problem.epsilon * result.distance < ROUNDING_NATS:
        msg += (
            f"; at {result.distance:.3g} {result.unit} and epsilon {problem.epsilon:g} these two "
            "may differ by less than rounding does: merge records this near, or raise epsilon"
        )
    raise PrivacyError(msg)


def attempts(
    problem: Problem, rows: FloatArray, floor: float = FLOOR_SHARE
) -> Iterator[tuple[FloatArray, dict[str, float | bool]]]:
    """What may be handed out for these rows, from the nearest to them on."""
    # An output that no record uses may stay impossible; one that some use may not.
    even = not ((rows == 0).any(axis=0) & (rows > 0).any(axis=0)).any()
    if even:
        yield rows, {"uniform_share": 0.0}
    lowest = floor_row(problem, rows, floor)
    for k in range(LADDER):
        row = lowest * 10.0**k
        share = float(row.sum())
        if k > 0 and not 0 < share <= MAX_SHARE * (1 + 1e-9):
            break
        yield rows * (1 - share) + row, {"uniform_share": share}
    row = 0.0 * lowest if even else lowest
    lifted = rows * (1 - row.sum()) + row
    used = lifted.max(axis=0) > 0
    spread = np.log(lifted[:, used].max(axis=0) / lifted[:, used].min(axis=0)).max()
    # Rows that differ by more than any two records may are a leak, not rounding.
    nats = problem.epsilon * problem.domain.diameter
    if spread < COMMON_NATS and spread <= nats + ROUNDING_NATS:
        mean = problem.prior @ lifted
        facts = {"uniform_share": float(row.sum()), "common_row": True}
        yield np.tile(mean, (len(rows), 1)), facts


def normalise(weights: FloatArray) -> FloatArray:
    """Rows divided by their sums."""
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
