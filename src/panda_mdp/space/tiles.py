"""Records ordered in space and cut into compact tiles, and tiles into regions.

Work over all pairs (audit, closure, diameter) goes tile by tile. The triangle inequality bounds the
distance between any two records of two tiles from the distance of their centres,

    d(x, x') >= d(c, c') - radius - radius',

so whole tile pairs are passed over with one comparison, in any metric space. Regions of tiles do
the same for pairs of tiles: lists of the near ones take memory and time as there are near ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.space.metrics import Metric

TILE = 64
REGION = 32
"""Tiles in a region; they follow each other in the order in space."""
LISTED_PAIRS = 1 << 20
"""Tile pairs that work over all pairs lists at a time."""
PARTITIONED = 4096
"""Parts larger than this are split by partition: sorting all of them takes longer."""


@dataclass(frozen=True, eq=False)
class TilePairs:
    """Pairs of tiles by their first tile: tile a is paired with second[starts[a]:starts[a + 1]],
    ascending."""

    starts: IntArray
    second: IntArray
    between: FloatArray
    """A lower bound on the distance between records of the two tiles."""

    @classmethod
    def none(cls, tiles: int) -> TilePairs:
        """No pairs at all."""
        nothing = np.empty(0, dtype=np.int64)
        return cls(np.zeros(tiles + 1, dtype=np.int64), nothing, np.empty(0))

    @cached_property
    def first(self) -> IntArray:
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))


@dataclass(frozen=True, eq=False)
class Tiles:
    """`order[starts[t]:starts[t + 1]]` are the records of tile t."""

    metric: Metric
    order: IntArray
    starts: IntArray
    centres: IntArray
    radii: FloatArray

    @property
    def count(self) -> int:
        return len(self.centres)

    @cached_property
    def regions(self) -> Tiles:
        """Regions of at most `REGION` tiles, in the same form: `order` are tiles then, `centres`
        records, and the radii hold for all records."""
        starts = np.append(np.arange(0, self.count, REGION), self.count)
        middle = REGION // 2
        # Any record will do as the centre; the tile in the middle tends to lie there.
        centres = self.centres[np.minimum(starts[:-1] + middle, starts[1:] - 1)]
        away = self.metric.pairs(np.repeat(centres, np.diff(starts)), self.centres)
        radii = np.maximum.reduceat((away + self.radii) * (1 + self._slack), starts[:-1])
        return Tiles(self.metric, np.arange(self.count), starts, centres, radii)

    @property
    def _slack(self) -> float:
        return self.metric.triangle_slack

    @cached_property
    def between(self) -> FloatArray:
        """Lower bounds on the distance between records of two tiles, all of them: (T, T)."""
        return self._between(self._centre_distances, self.radii[:, None], self.radii)

    @cached_property
    def across(self) -> FloatArray:
        """Upper bounds on the distance between records of two tiles, all of them: (T, T)."""
        return np.asarray(
            (self._centre_distances + (self.radii[:, None] + self.radii)) * (1 + self._slack)
        )

    @property
    def _centre_distances(self) -> FloatArray:
        distance = np.empty((self.count, self.count))
        for start in range(0, self.count, 1024):
            part = self.centres[start : start + 1024]
            distance[start : start + 1024] = self.metric.block(part, self.centres)
        return distance

    def _between(
        self, distance: FloatArray, own: FloatArray, others: FloatArray, slack: float = 1.0
    ) -> FloatArray:
        spread = own + others
        lost = slack * self._slack * (distance + spread)
        return np.asarray(np.maximum(0.0, distance - spread - lost))

    def by_region(
        self, radius: float, rows: IntArray | None = None
    ) -> Iterator[tuple[IntArray, IntArray, FloatArray]]:
        """The pairs (a, b) of tiles with `between` < `radius`, a among `rows` (ascending; all by
        default), in parts: a, b and `between`, ascending by a and then b."""
        regions = self.regions
        tiles = np.arange(self.count) if rows is None else rows
        home = tiles // REGION
        ends = np.flatnonzero(np.append(home[1:] != home[:-1], True)) + 1 if len(home) else home
        begin = 0
        for end in ends.tolist():
            own, region = tiles[begin:end], home[begin]
            begin = end
            away = self.metric.block(regions.centres[region : region + 1], regions.centres)[0]
            # Twice the slack: no region is passed over for rounding that its tiles do not have.
            near = regions._between(away, regions.radii[region], regions.radii, 4.0) < radius
            others = np.flatnonzero(np.repeat(near, np.diff(regions.starts)))
            distance = self.metric.block(self.centres[own], self.centres[others])
            between = self._between(distance, self.radii[own][:, None], self.radii[others])
            row, column = np.nonzero(between < radius)
            yield own[row], others[column], between[row, column]

    def later(
        self, radius: float, most: int = LISTED_PAIRS
    ) -> Iterator[tuple[IntArray, IntArray, FloatArray]]:
        """The pairs of `by_region` with a < b in few parts, each of about `most` where there are so
        many."""
        gathered: list[tuple[IntArray, IntArray, FloatArray]] = []
        for first, second, between in self.by_region(radius):
            later = first < second
            if later.any():
                gathered.append((first[later], second[later], between[later]))
            if sum(len(part[0]) for part in gathered) >= most:
                yield _joined(gathered)
                gathered = []
        if gathered:
            yield _joined(gathered)

    def pairs(self, radius: float) -> TilePairs:
        """All pairs of tiles with `between` < `radius`, a tile and itself among them."""
        first, second, between = _joined(list(self.by_region(radius)))
        starts = np.searchsorted(first, np.arange(self.count + 1))
        return TilePairs(starts.astype(np.int64), second.astype(np.int64), between)


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
        along = points[:, axis]
        if stop - start > PARTITIONED:
            order[start:stop] = part[np.argpartition(along, middle)]
        else:
            order[start:stop] = part[np.argsort(along, kind="stable")]
        pending.append((start + middle, stop))
        pending.append((start, start + middle))
    return order, np.array([*sorted(leaves), len(coordinates)], dtype=np.int64)


def tile(metric: Metric, leaf: int = TILE) -> Tiles:
    """Cut the records of a metric into tiles of at most `leaf` records."""
    order, starts = order_in_space(metric.embedding, leaf)
    order = _compact(metric.embedding, order, starts)
    sizes = np.diff(starts)
    points = metric.embedding[order]
    middle = np.add.reduceat(points, starts[:-1], axis=0) / sizes[:, None]
    offset = ((points - np.repeat(middle, sizes, axis=0)) ** 2).sum(axis=1)
    least = np.repeat(np.minimum.reduceat(offset, starts[:-1]), sizes)
    nearest = np.flatnonzero(offset == least)
    # Of several nearest records of a tile the first.
    home = np.searchsorted(starts, nearest, side="right") - 1
    centres = order[nearest[np.flatnonzero(np.append(True, home[1:] != home[:-1]))]]
    away = metric.pairs(np.repeat(centres, sizes), order)
    return Tiles(metric, order, starts, centres, np.maximum.reduceat(away, starts[:-1]))


def _compact(coordinates: FloatArray, order: IntArray, starts: IntArray) -> IntArray:
    """The order with each half of a tile sorted along the tile's widest side, so that a few records
    that follow each other are near; they came sorted along the side that was halved last."""
    if len(starts) == 2:
        return order
    points, sizes = coordinates[order], np.diff(starts)
    home = np.repeat(np.arange(len(sizes)), sizes)
    widest = np.argmax(
        np.maximum.reduceat(points, starts[:-1], axis=0)
        - np.minimum.reduceat(points, starts[:-1], axis=0),
        axis=1,
    )
    along = np.take_along_axis(points, widest[home, None], axis=1)[:, 0]
    second = 2 * (np.arange(len(order)) - starts[home]) >= sizes[home]
    return np.asarray(order[np.lexsort((along, second, home))])


def _joined(
    parts: list[tuple[IntArray, IntArray, FloatArray]],
) -> tuple[IntArray, IntArray, FloatArray]:
    first, second, between = zip(*parts, strict=True)
    return np.concatenate(first), np.concatenate(second), np.concatenate(between)
