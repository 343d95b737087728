"""Records ordered in space and cut into compact tiles, and tiles into regions.

Work over all pairs (audit, closure, diameter) goes tile by tile. The triangle inequality bounds the
distance between any two records of two tiles from the distance of their centres,

    d(x, x') >= d(c, c') - radius - radius',

so whole tile pairs are passed over with one comparison, in any metric space. Regions of tiles do
the same for pairs of tiles: lists of the near ones take memory and time as there are near ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray, both_ways, owners
from panda_mdp.space.metrics import Metric, latitude_cosine

TILE = 64
REGION = 32
"""Tiles in a region; they follow each other in the order in space."""
LISTED_PAIRS = 1 << 20
"""Tile pairs that work over all pairs lists at a time."""
HAVERSINE, LOCAL_HAVERSINE, EUCLIDEAN, MATRIX, ANGULAR = 0, 1, 2, 3, 4
VECTORS = {"euclidean": EUCLIDEAN, "angular": ANGULAR}
LOCAL_DEGREES = 8.0
Pairs = tuple[IntArray, IntArray, FloatArray]
"""Pairs of tiles, or of parts of them, and a lower bound on the distance of their records."""


class TilePairs(NamedTuple):
    """Pairs of tiles by their first tile: tile a is paired with second[starts[a]:starts[a + 1]],
    ascending."""

    starts: IntArray
    second: IntArray
    between: FloatArray
    """A lower bound on the distance between records of the two tiles."""

    @classmethod
    def over(cls, count: int, first: IntArray, second: IntArray, between: FloatArray) -> TilePairs:
        """Pairs of `count` tiles, ascending by the first."""
        return cls(np.searchsorted(first, np.arange(count + 1)), second, between)

    @property
    def first(self) -> IntArray:
        return owners(self.starts)


@dataclass(frozen=True, eq=False)
class Tiles:
    """`order[starts[t]:starts[t + 1]]` are the records of tile t."""

    metric: Metric
    order: IntArray
    starts: IntArray
    centres: IntArray
    known_radii: FloatArray | None = None

    @cached_property
    def radii(self) -> FloatArray:
        """How far from its centre the records of a tile are, at most; path metrics can do without,
        and it costs them a search for every tile."""
        if self.known_radii is not None:
            return self.known_radii
        away = self.metric.pairs(np.repeat(self.centres, np.diff(self.starts)), self.order)
        return np.maximum.reduceat(away, self.starts[:-1])

    @cached_property
    def links(self) -> scipy.sparse.csr_array | None:
        """The pairs that imply all others, by place in the order, with their distances; None for
        metrics that have none."""
        pairs = self.metric.generating_pairs
        if pairs is None:
            return None
        length = self.metric.pairs(pairs[:, 0], pairs[:, 1])
        return both_ways(np.argsort(self.order)[pairs], length, len(self.order))

    @property
    def count(self) -> int:
        return len(self.centres)

    def records(self, t: int) -> IntArray:
        """The records of a tile."""
        return self.order[self.starts[t] : self.starts[t + 1]]

    @cached_property
    def regions(self) -> Tiles:
        """Regions of at most `REGION` tiles, in the same form: `order` are tiles then, `centres`
        records, and the radii hold for all records."""
        starts = np.append(np.arange(0, self.count, REGION), self.count)
        # Any record will do as the centre; the tile in the middle tends to lie there.
        centres = self.centres[np.minimum(starts[:-1] + REGION // 2, starts[1:] - 1)]
        away = self.metric.pairs(np.repeat(centres, np.diff(starts)), self.centres)
        wide = (away + self.radii) * (1 + self.metric.triangle_slack)
        radii = np.maximum.reduceat(wide, starts[:-1])
        return Tiles(self.metric, np.arange(self.count), starts, centres, radii)

    @cached_property
    def across(self) -> FloatArray:
        """Upper bounds on the distance between records of two tiles, all of them: (T, T)."""
        distance = self.metric.block(self.centres, self.centres)
        return (distance + self.radii[:, None] + self.radii) * (1 + self.metric.triangle_slack)

    def _between(self, own: IntArray, others: IntArray, slack: float = 1.0) -> FloatArray:
        distance = self.metric.block(self.centres[own], self.centres[others])
        spread = self.radii[own][:, None] + self.radii[others]
        lost = slack * self.metric.triangle_slack * (distance + spread)
        return np.maximum(0.0, distance - spread - lost)

    def by_region(self, radius: float) -> Iterator[Pairs]:
        """The pairs (a, b) of tiles with `between` < `radius` in parts: a, b and `between`,
        ascending by a and then b."""
        regions = self.regions
        sizes = np.diff(regions.starts)
        for region in range(regions.count):
            # Four times the slack: no region is passed over for rounding that its tiles lack.
            away = regions._between(np.array([region]), regions.order[: regions.count], 4.0)[0]
            own = regions.records(region)
            others = np.flatnonzero(np.repeat(away < radius, sizes))
            between = self._between(own, others)
            row, column = np.nonzero(between < radius)
            yield own[row], others[column], between[row, column]

    def later(self, radius: float, most: int = LISTED_PAIRS) -> Iterator[Pairs]:
        """The pairs of `by_region` with a < b in few parts, each of about `most` where there are so
        many."""
        gathered: list[Pairs] = []
        for first, second, between in self.by_region(radius):
            later = first < second
            gathered.append((first[later], second[later], between[later]))
            if sum(len(part[0]) for part in gathered) >= most:
                yield joined(gathered)
                gathered = []
        if gathered:
            yield joined(gathered)

    def pairs(self, radius: float) -> TilePairs:
        """All pairs of tiles with `between` < `radius`, a tile and itself among them."""
        return TilePairs.over(self.count, *joined(self.by_region(radius)))


def joined(parts: Iterable[Pairs]) -> Pairs:
    """Lists of pairs as one."""
    first, second, between = zip(*parts, strict=True)
    return np.concatenate(first), np.concatenate(second), np.concatenate(between)


def order_in_space(coordinates: FloatArray, leaf: int = TILE) -> tuple[IntArray, IntArray]:
    """An order in which near records are near, by halving the widest side until `leaf` remain.

    Returns the order and the offsets of its leaves.
    """
    order = np.arange(len(coordinates))
    starts = np.array([0, len(coordinates)])
    while (sizes := np.diff(starts)).max() > leaf:
        order = _along_widest(coordinates, order, starts)
        # Whole leaves on the left keep all tiles but the last of each branch full.
        left = np.minimum(leaf * np.maximum(1, np.rint(sizes / (2 * leaf))), sizes - 1)
        middles = (starts[:-1] + left.astype(np.int64))[sizes > leaf]
        starts = np.sort(np.concatenate([starts, middles]))
    return order, starts


def _along_widest(coordinates: FloatArray, order: IntArray, starts: IntArray) -> IntArray:
    """The order with every part sorted along its widest side."""
    points = coordinates[order]
    home = owners(starts)
    high, low = (f.reduceat(points, starts[:-1], axis=0) for f in (np.maximum, np.minimum))
    along = points[np.arange(len(order)), (high - low).argmax(axis=1)[home]]
    return order[np.lexsort((along, home))]


def tile(metric: Metric, leaf: int = TILE) -> Tiles:
    """Cut the records of a metric into tiles of at most `leaf` records."""
    order, starts = order_in_space(metric.embedding, leaf)
    sizes = np.diff(starts)
    if len(sizes) > 1:
        # Halves of tiles are sorted once more: a few records that follow each other are near.
        order = _along_widest(metric.embedding, order, starts)
        halves = np.unique(np.concatenate([starts, starts[:-1] + sizes // 2]))
        order = _along_widest(metric.embedding, order, halves)
    points = metric.embedding[order]
    home = np.repeat(np.arange(len(sizes)), sizes)
    middle = np.add.reduceat(points, starts[:-1], axis=0) / sizes[:, None]
    centres = order[np.lexsort((((points - middle[home]) ** 2).sum(axis=1), home))[starts[:-1]]]
    return Tiles(metric, order, starts, centres)


class Coordinates(NamedTuple):
    """A metric in the form that the kernels take; records in the order of `order`."""

    kind: int
    table: FloatArray
    order: IntArray


def coordinates(metric: Any, order: IntArray) -> Coordinates:
    """The metric's numbers, laid out along `order`."""
    if metric.kind == "haversine":
        lat = metric.lat[order]
        lon = metric.lon[order]
        local = np.ptp(lat) < LOCAL_DEGREES and np.ptp(lon) < LOCAL_DEGREES
        table = np.stack([lat, lon, latitude_cosine(lat)])
        return Coordinates(LOCAL_HAVERSINE if local else HAVERSINE, table, order)
    if metric.kind in ("matrix", "graph"):
        return Coordinates(MATRIX, np.asarray(metric.distances), order)
    return Coordinates(VECTORS[metric.kind], np.ascontiguousarray(metric.vectors[order]), order)
