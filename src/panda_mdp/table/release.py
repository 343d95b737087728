"""The one door through which methods hand out mechanisms.

Quantising moves an entry by up to 2^-62, which matters where entries are tiny or records very near.
Mixing in a row that is common to all records, z <- (1 - s) z + s u, keeps every inequality (they
are linear and u satisfies them with room to spare) and lifts the tiny entries. `release` takes the
smallest such share on a ladder for which the audit on the final integers holds, and gives up
beyond `MAX_SHARE`: what needs more than that was not private in the first place.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.errors import PrivacyError
from panda_mdp.privacy.audit import audit_weights
from panda_mdp.privacy.quantise import quantise
from panda_mdp.problem import Problem
from panda_mdp.table.mechanism import Mechanism

FLOOR_SHARE = 1e-8
MAX_SHARE = 1e-3
ROUNDING_NATS = 1e-11
"""Log ratios below this are within the reach of rounding: 1e-12 of the audit, and the method's."""
COMMON_NATS = 1e-6
"""Where the rows differ by less than this, one row for all records costs no more than this share of
the loss."""


def mix(matrix: FloatArray, share: float, common: FloatArray | None = None) -> FloatArray:
    """(1 - share) z + share u, with u uniform by default."""
    base: FloatArray | float = 1.0 / matrix.shape[1] if common is None else common
    return (1.0 - share) * matrix + share * base


def release(
    problem: Problem,
    matrix: FloatArray,
    *,
    method: str,
    lower_bound: float | None = None,
    stages: tuple[tuple[str, float], ...] = (),
    details: Mapping[str, Any] | None = None,
    floor: float = FLOOR_SHARE,
) -> Mechanism:
    """Quantise, audit and hand out a matrix that is epsilon-mDP up to rounding.

    Where all rows differ by less than 1e-6 and rounding breaks epsilon between near records, every
    record gets the rows' mean under the prior. A matrix that misses epsilon by more than
    rounding is refused with `PrivacyError`, and so are records too near for float64.
    """
    start = time.perf_counter()
    with np.errstate(invalid="ignore", divide="ignore"):
        rows = matrix / matrix.sum(axis=1, keepdims=True)
    for table, facts in _attempts(problem, rows, floor):
        try:
            weights = quantise(table)
        except PrivacyError as error:
            msg = f"{method} gave a matrix that is not private: {error}"
            raise PrivacyError(msg) from error
        result = audit_weights(problem.domain, problem.outputs, weights, problem.epsilon)
        if result.holds:
            return Mechanism(
                problem=problem,
                weights=weights,
                method=method,
                audit=result,
                lower_bound=lower_bound,
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


def _attempts(
    problem: Problem, rows: FloatArray, floor: float
) -> Iterator[tuple[FloatArray, dict[str, float | bool]]]:
    """What may be handed out for these rows, from the nearest to them on."""
    if rows.min() > 0:
        yield rows, {"uniform_share": 0.0}
    higher = [floor * 10.0**k for k in range(1, 16)]
    for share in [floor, *(share for share in higher if share <= MAX_SHARE)]:
        yield mix(rows, share), {"uniform_share": share}
    share = 0.0 if rows.min() > 0 else floor
    lifted = mix(rows, share)
    spread = np.log(lifted.max(axis=0) / lifted.min(axis=0)).max()
    # Rows that differ by more than any two records may are a leak, not rounding.
    nats = problem.epsilon * problem.domain.diameter
    if spread < COMMON_NATS and spread <= nats + ROUNDING_NATS:
        mean = problem.prior @ lifted
        yield np.tile(mean, (len(rows), 1)), {"uniform_share": share, "common_row": True}


def normalise(weights: FloatArray) -> FloatArray:
    """Rows divided by their sums."""
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
