"""What a wrong record costs: displacement. (Travel is in city/travel_loss.py.)"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.errors import ProblemError
from panda_mdp.space.domain import Domain, check_indices

BLOCK_ENTRIES = 1 << 22
"""Losses that are looked at together."""


def distance_loss(domain: Domain, outputs: npt.ArrayLike, power: float = 1) -> FloatArray:
    """Displacement d(x, y)^power, shape (K, m), in the domain's unit to that power.

    >>> distance_loss(Domain.from_vectors([[0.0], [1.0], [3.0]]), [0], power=2).ravel().tolist()
    [0.0, 1.0, 9.0]
    """
    if not (np.isfinite(power) and power > 0):
        msg = f"power is {power!r}; it must be positive and finite"
        raise ProblemError(msg)
    columns = check_indices(outputs, domain.size, "outputs", ProblemError)
    distance = domain.distances(None, columns)
    return distance if power == 1 else distance**power


def least_of_groups(
    loss: FloatArray, order: IntArray, starts: IntArray
) -> Iterator[tuple[slice, FloatArray]]:
    """For some records at a time their least loss over the outputs order[starts[g]:starts[g + 1]]
    of every group, (records, groups)."""
    size, count = loss.shape
    step = max(1, BLOCK_ENTRIES // count)
    for begin in range(0, size, step):
        rows = slice(begin, min(begin + step, size))
        yield rows, np.minimum.reduceat(loss[rows][:, order], starts[:-1], axis=1)
