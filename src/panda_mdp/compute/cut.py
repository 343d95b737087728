"""Where the rows of a table lie: groups of outputs times the records that each group holds.

A node is a record in a group of outputs; whatever is no node is at the floor, which all records
share. A dense table is the cut with one group that holds every record. Within a group nodes follow
the domain's tiles; those of one group and one tile are a part, and loops over all pairs go from
part to part of a group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from panda_mdp.base.arrays import (
    AnyArray,
    BoolArray,
    FloatArray,
    IntArray,
    incidence,
    offsets,
    owners,
)
from panda_mdp.space.domain import Domain
from panda_mdp.space.tiles import Pairs, TilePairs, joined

if TYPE_CHECKING:
    from panda_mdp.compute.numba.distance import Coordinates

TURNS = 16
Worst = tuple[float, int, int]
"""A rate and the two positions, or records, that attain it."""


class Links(NamedTuple):
    """The constrained pairs of every node: others[starts[i]:starts[i + 1]] of node i, -1 where the
    other record is no node of its group."""

    starts: IntArray
    others: IntArray
    lengths: FloatArray
    places: IntArray
    """Positions of the others, nodes or not."""

    @property
    def firsts(self) -> IntArray:
        """The node that every entry of `others` belongs to."""
        return owners(self.starts)


class Rows(NamedTuple):
    """A table on the nodes of a cut, as its scans take it."""

    logs: FloatArray
    weights: IntArray
    high: FloatArray
    """The highest logarithms of every part, (parts, width)."""
    low: FloatArray
    shrink: float
    """By which distances are multiplied, so that they are none too large."""


@dataclass(frozen=True, eq=False)
class Cut:
    """Groups of outputs and the nodes that each has."""

    domain: Domain
    columns: IntArray
    """(groups, width) outputs; -1 where a group has fewer."""
    groups: IntArray
    """(groups + 1,): nodes of group g from groups[g] on."""
    position: IntArray
    """Of every node along the domain's tiles, ascending within a group."""
    floor: AnyArray
    """(m,): what entries that are no nodes are; whole numbers where the table has such."""

    @classmethod
    def whole(cls, domain: Domain, outputs: int) -> Cut:
        """One group of all outputs that holds every record, over no floor."""
        position = np.arange(domain.size)
        groups = np.array([0, domain.size])
        return cls(domain, np.arange(outputs)[None], groups, position, np.zeros(outputs))

    @cached_property
    def dense(self) -> bool:
        """Whether this is one group that holds every record, over no floor."""
        one = len(self.columns) == 1 and len(self.position) == self.domain.size
        return one and not self.floor.any()

    @cached_property
    def group(self) -> IntArray:
        """The group of every node."""
        return owners(self.groups)

    @cached_property
    def record(self) -> IntArray:
        """The record of every node."""
        return self.domain.tiles.order[self.position]

    @cached_property
    def exists(self) -> BoolArray:
        """(groups, width): whether a column is an output."""
        return self.columns >= 0

    @cached_property
    def floors(self) -> AnyArray:
        """(groups, width); 1 in columns that do not exist, where every entry is 1 too."""
        one = self.floor.dtype.type(1)
        return np.where(self.exists, self.floor[np.maximum(self.columns, 0)], one)

    @cached_property
    def by_position(self) -> tuple[IntArray, IntArray]:
        """The nodes of every position: offsets and nodes."""
        return incidence(self.position, self.domain.size)

    @cached_property
    def tile(self) -> IntArray:
        """The tile of every node."""
        return np.searchsorted(self.domain.tiles.starts, self.position, side="right") - 1

    @cached_property
    def starts(self) -> IntArray:
        """Where the nodes of every part begin, and where the last ends."""
        number = self.group * self.domain.tiles.count + self.tile
        return np.append(np.flatnonzero(np.diff(number, prepend=-1)), len(number))

    @cached_property
    def runs(self) -> IntArray:
        """Where the parts of every group begin, and where the last ends."""
        return np.searchsorted(self.starts, self.groups)

    @property
    def leading(self) -> IntArray:
        """The first part of every group that has one."""
        return self.runs[:-1][np.diff(self.runs) > 0]

    @cached_property
    def parts(self) -> IntArray:
        """(groups, tiles): the part of a group and a tile, -1 where it has none."""
        first = self.starts[:-1]
        out = np.full((len(self.columns), self.domain.tiles.count), -1)
        out[self.group[first], self.tile[first]] = np.arange(len(first))
        return out

    def pairs_of(self, tiles: TilePairs) -> TilePairs:
        """Pairs of parts of one group whose tiles are paired."""
        if self.dense:
            return tiles
        pairs = self._paired(tiles.first, tiles.second, tiles.between)
        return TilePairs.over(len(self.starts) - 1, *pairs)

    def later_pairs(self, radius: float) -> Iterator[Pairs]:
        """Pairs of different parts of one group within a radius, each once, and their distance at
        least; sorted by the first."""
        for pairs in self.domain.tiles.later(radius):
            yield self._paired(*pairs)

    def _paired(self, first: IntArray, second: IntArray, between: FloatArray) -> Pairs:
        def of_group(parts: IntArray) -> Pairs:
            a = parts[first]
            b = parts[second]
            both = np.flatnonzero((a >= 0) & (b >= 0))
            return a[both], b[both], between[both]

        return joined(of_group(parts) for parts in self.parts)

    @cached_property
    def links(self) -> Links | None:
        """The pairs that imply all others, node by node; None for metrics that have none."""
        known = self.domain.tiles.links
        if known is None:
            return None
        starts = offsets(np.diff(known.indptr)[self.position])
        node = owners(starts)
        at = np.arange(len(node)) - starts[node] + known.indptr[self.position[node]]
        place = known.indices[at].astype(np.int64)
        if self.dense:
            return Links(starts, place, known.data[at], place)
        keys = self.group * self.domain.size + self.position
        wanted = self.group[node] * self.domain.size + place
        found = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return Links(starts, np.where(keys[found] == wanted, found, -1), known.data[at], place)

    @cached_property
    def places(self) -> Coordinates:
        """The metric as compiled loops take it, node by node."""
        from panda_mdp.compute.numba.distance import coordinates

        return coordinates(self.domain.metric, self.record)

    @cached_property
    def turns(self) -> IntArray:
        """The parts so that each thread's share of them is spread over the domain."""
        return np.argsort(np.arange(len(self.starts) - 1) % TURNS, kind="stable")
