"""Public subsets of a domain: records that are far apart, chosen without any user's data."""

from __future__ import annotations

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.errors import MethodError
from panda_mdp.space.domain import Domain


def spread_out(domain: Domain, count: int) -> IntArray:
    """`count` records that cover the domain, ascending: each is the farthest from those before.

    Starts at the record nearest to the middle. Deterministic, and within a factor 2 of the least
    covering radius that any `count` records have (Gonzalez 1985). Costs count x K distances.
    """
    if not 1 <= count <= domain.size:
        msg = f"count is {count}; a domain of {domain.size} has 1 to {domain.size} candidates"
        raise MethodError(msg)
    if count == domain.size:
        return np.arange(domain.size)
    points = domain.metric.embedding
    first = int(((points - points.mean(axis=0)) ** 2).sum(axis=1).argmin())
    chosen = [first]
    nearest = _column(domain, first)
    while len(chosen) < count:
        chosen.append(int(nearest.argmax()))
        np.minimum(nearest, _column(domain, chosen[-1]), out=nearest)
    return np.sort(np.array(chosen, dtype=np.int64))


def covering_radius(domain: Domain, chosen: IntArray) -> float:
    """The largest distance of a record from the nearest of the chosen ones."""
    nearest = _column(domain, int(chosen[0]))
    for record in chosen[1:]:
        np.minimum(nearest, _column(domain, int(record)), out=nearest)
    return float(nearest.max())


def _column(domain: Domain, record: int) -> FloatArray:
    return domain.metric.pairs(np.arange(domain.size), np.full(domain.size, record))
