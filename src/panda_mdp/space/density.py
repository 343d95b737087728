"""Lengths that follow the density of people: as many of them within a nat everywhere.

With r(x) the radius at which the ball around x holds enough people and R >= r such that
|R(x) - R(x')| <= d(x, x') / 2, an edge (u, v) of length l becomes l / max(R(u), R(v)). Within r(x)
of x the integral of 1 / R along a path is at most that of 1 / (r(x) - t / 2), 2 log 2 = 1.39: balls
of this radius hold enough already. Radii are corrected by what balls turn out to need, and in the
end all lengths are divided by the largest radius that any ball needs, found by a search from every
record: then balls of radius 1 hold enough, which is checked on the final lengths.
"""

from __future__ import annotations

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray, adjacency
from panda_mdp.errors import DomainError
from panda_mdp.space.paths import STEP, PathMetric, contracted

SLOWNESS = 0.5
"""By which radii may change along a unit of length."""
ROUNDS = 2
"""How often radii are corrected, place by place, by what balls still need."""


ROUNDING = 1e-6
"""By which lengths are shortened for what rounding does to them."""


def by_density(metric: PathMetric, weights: FloatArray, people: float) -> PathMetric:
    """The same edges, of lengths at which every ball of radius 1 holds `people` of `weights`."""
    if weights.shape != (metric.size,) or not (np.isfinite(weights) & (weights >= 0)).all():
        raise DomainError(
            f"weights has shape {weights.shape}; give a number of people for each of the "
            f"{metric.size} records, finite and not negative"
        )
    if not 0 < people <= weights.sum():
        raise DomainError(
            f"people is {people!r}, and the weights sum to {weights.sum():g}; balls can hold more "
            "than nobody and at most everybody"
        )
    radius = slow(metric, np.maximum(metric.balls(weights, people)[0], STEP))
    for _ in range(ROUNDS):
        needed = measured_by(metric, radius).balls(weights, people)[0]
        radius = slow(metric, radius * np.maximum(needed, SLOWNESS))
    needed = measured_by(metric, radius).balls(weights, people)[0]
    found = measured_by(metric, radius * max(needed.max(), STEP) * (1 + ROUNDING))
    if not found.balls(weights, people)[0].max() <= 1:
        raise DomainError(
            f"records lie too near for {people:g} people in multiples of 2^-30; merge some of them"
        )
    return found


def measured_by(metric: PathMetric, radius: FloatArray) -> PathMetric:
    """The metric whose edges are as long as before over the larger radius of their ends, rounded
    down: balls hold no less."""
    steps = np.floor(metric.steps / radius[metric.edges].max(axis=1)).astype(np.int64)
    within = contracted(metric.edges, np.maximum(steps, 1), np.arange(metric.size))
    return PathMetric(*within, "nat", metric.lat, metric.lon)


def slow(metric: PathMetric, radius: FloatArray) -> FloatArray:
    """The least radii above these that change by no more than `SLOWNESS` along a unit.

    They are max over x' of r(x') - d(x, x') / 2, by one search from a node that lies max r - r(x')
    and 1 away from every x'.
    """
    size, around, away = metric.size, metric.around.tocoo(), radius.max() + 1 - radius
    first: IntArray = np.append(around.row, np.full(size, size))
    second: IntArray = np.append(around.col, np.arange(size))
    lengths = np.append(SLOWNESS * STEP * around.data, away)
    graph = adjacency(first, second, size + 1, lengths)
    found = scipy.sparse.csgraph.dijkstra(graph, directed=True, indices=np.array([size]))
    return np.maximum(radius.max() + 1 - found[0, :size], radius)
