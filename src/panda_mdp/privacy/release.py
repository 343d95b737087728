"""The one door through which methods hand out mechanisms.

Quantising moves an entry by up to 2^-62, which matters where entries are tiny or records very near.
Mixing in a row that is common to all records, z <- (1 - s) z + s u, keeps every inequality (they
are linear and u satisfies them with room to spare) and lifts the tiny entries. `release` takes the
smallest such share on a ladder for which the audit on the final integers holds, and gives up
beyond `MAX_SHARE`: what needs more than that was not private in the first place.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from panda_mdp._arrays import FloatArray
from panda_mdp.errors import PrivacyError
from panda_mdp.mechanism import Mechanism
from panda_mdp.problem import Problem

FLOOR_SHARE = 1e-8
MAX_SHARE = 1e-3


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
    """Quantise, audit and hand out a matrix that is epsilon-mDP up to rounding."""
    start = time.perf_counter()
    shares = [0.0, floor] if matrix.min() > 0 else [floor]
    shares += [floor * 10.0**k for k in range(1, 16) if floor * 10.0**k <= MAX_SHARE]
    with np.errstate(invalid="ignore", divide="ignore"):
        rows = matrix / matrix.sum(axis=1, keepdims=True)  # what is no number is refused below
    for share in shares:
        try:
            mechanism = Mechanism.from_matrix(
                problem,
                mix(rows, share) if share else rows,
                method=method,
                lower_bound=lower_bound,
                details={**(details or {}), "uniform_share": share},
            )
        except PrivacyError as error:
            failure = error
            continue
        seconds = time.perf_counter() - start
        return replace(mechanism, stages=(*stages, ("quantise and audit", seconds)))
    msg = f"{method} gave a matrix that is not private: {failure}"
    raise PrivacyError(msg)


def normalise(weights: FloatArray) -> FloatArray:
    """Rows divided by their sums."""
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
