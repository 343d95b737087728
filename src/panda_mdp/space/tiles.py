"""Records ordered in space and cut into compact tiles.

Work over all pairs (audit, closure, diameter) goes tile by tile. The triangle inequality bounds the
distance between any two records of two tiles from the distance of their centres,

    d(x, x') >= d(c, c') - radius - radius',

so whole tile pairs are passed over with one comparison, in any metric space.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.space.metrics import Metric

TILE = 64


@dataclass(frozen=True)
class Tiles:
    """`order[starts[t]:starts[t + 1]]` are the records of tile t."""

    order: IntArray
    starts: IntArray
    centres: IntArray
    radii: FloatArray
    between: FloatArray
    """Lower bounds on the distance between records of two tiles, shape (T, T)."""
    across: FloatArray
    """Upper bounds on the distance between records of two tiles, shape (T, T)."""

    @property
    def count(self) -> int:
        return len(self.centres)


def order_in_space(coordinates: FloatArray, leaf: int = TILE) -> tuple[IntArray, IntArray]:
    """An order in which near records are near, by halving the widest side until `leaf` remain.

    Returns the order and the offsets of its leaves.
    """
    order = np.arange(len(coordinates))
    pending = [(0, len(coordinates))]
    leaves = []
    while pending:
        start, stop = pending.pop()
        if stop - start <= leaf:
            leaves.append(start)
            continue
        part = order[start:stop]
        points = coordinates[part]
        axis = int(np.argmax(np.ptp(points, axis=0)))
        # Whole leaves on the left keep all tiles but the last of each branch full.
        middle = leaf * max(1, round((stop - start) / (2 * leaf)))
        middle = min(middle, stop - start - 1)
        order[start:stop] = part[np.argsort(points[:, axis], kind="stable")]
        pending.append((start + middle, stop))
        pending.append((start, start + middle))
    return order, np.array([*sorted(leaves), len(coordinates)], dtype=np.int64)


def tile(metric: Metric, leaf: int = TILE) -> Tiles:
    """Cut the records of a metric into tiles of at most `leaf` records."""
    order, starts = order_in_space(metric.embedding, leaf)
    count = len(starts) - 1
    centres = np.empty(count, dtype=np.int64)
    radii = np.empty(count)
    for t in range(count):
        members = order[starts[t] : starts[t + 1]]
        middle = metric.embedding[members].mean(axis=0)
        offset = ((metric.embedding[members] - middle) ** 2).sum(axis=1)
        centres[t] = members[int(offset.argmin())]
        radii[t] = metric.block(centres[t : t + 1], members).max()
    distance = np.empty((count, count))
    for start in range(0, count, 1024):
        distance[start : start + 1024] = metric.block(centres[start : start + 1024], centres)
    spread = radii[:, None] + radii
    slack = metric.triangle_slack
    between = np.maximum(0.0, distance - spread - slack * (distance + spread))
    across = (distance + spread) * (1 + slack)
    return Tiles(order, starts, centres, radii, between, across)
