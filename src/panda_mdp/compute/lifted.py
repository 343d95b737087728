"""Closing a table that is cut into groups of outputs over a floor, in the memory of its nodes.

A node is a record in a group of outputs; whatever is no node is at the floor f, which all records
share. Closing (compute/closure.py) goes group by group. A row is scaled so that it sums to 1 and
stays above the floor, z <- max(s z, f): a maximum with what all share breaks no constraint that
s z keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.base.floored import Int32Array
from panda_mdp.compute.closure import SETTLED, Closure
from panda_mdp.compute.rate import ARITHMETIC_ERROR, LOG_ERROR
from panda_mdp.space.domain import Domain

ROOM = 0.98
"""Nodes reach as far as they would at this share of epsilon: the closure may run below epsilon."""
SCALINGS = 8
PER_NODE = 4


@dataclass(frozen=True)
class Cut:
    """Groups of outputs and the nodes that each has."""

    columns: IntArray
    """(groups, width) outputs; -1 where a group has fewer."""
    groups: IntArray
    """(groups + 1,): nodes of group g from groups[g] on."""
    position: IntArray
    """Of every node along the domain's tiles, ascending within a group."""
    record: IntArray
    floor: FloatArray
    """(m,)."""

    @cached_property
    def group(self) -> IntArray:
        """The group of every node."""
        return np.repeat(np.arange(len(self.columns)), np.diff(self.groups))

    @cached_property
    def floors(self) -> FloatArray:
        """(groups, width); 1 in columns that do not exist, where every entry is 1 too."""
        return np.where(self.columns >= 0, self.floor[np.maximum(self.columns, 0)], 1.0)

    @cached_property
    def nodes(self) -> IntArray:
        """Nodes in the order of their positions."""
        return np.argsort(self.position, kind="stable")

    def by_position(self, size: int) -> tuple[IntArray, IntArray]:
        """The nodes of every position: offsets and nodes."""
        count = np.bincount(self.position, minlength=size)
        return np.concatenate([[0], np.cumsum(count)]), self.nodes


class LiftedClosure(Closure):
    """Closes tables over the nodes of a cut; tables are (nodes, width)."""

    def __init__(self, domain: Domain, epsilon: float) -> None:
        super().__init__(domain)
        self.epsilon = epsilon

    def cut(self, columns: IntArray, sees: BoolArray, z: FloatArray, floor: FloatArray) -> Cut:
        """The nodes that a table needs, given for the nodes `sees` (groups, K, by position): all
        records that the closure raises above the floor."""
        from panda_mdp.compute.numba.lifted import covered

        group, position = np.nonzero(sees)
        exists = columns[group] >= 0
        under = floor[np.maximum(columns[group], 0)]
        with np.errstate(divide="ignore"):
            lifts = np.where(exists, np.log(z) - np.log(under), -np.inf).max(axis=1)
        inside = covered(
            lifts,
            position,
            self._tile(position),
            np.concatenate([[0], np.cumsum(sees.sum(axis=1))]),
            ROOM * self.epsilon,
            *self.coordinates,
            self.tiles.starts,
            self.tiles.between,
        )
        position = np.nonzero(inside)[1]
        groups = np.concatenate([[0], np.cumsum(inside.sum(axis=1))])
        return Cut(columns, groups, position, self.order[position], floor)

    def _tile(self, position: IntArray) -> IntArray:
        return np.asarray(np.searchsorted(self.tiles.starts, position, side="right") - 1)

    def begin(self, cut: Cut, sees: BoolArray, z: FloatArray) -> FloatArray:
        """A table of the nodes `sees` on the nodes of a cut: above the floor, rows summing to 1."""
        place = np.full(sees.shape, -1, dtype=np.int64)
        place[cut.group, cut.position] = np.arange(len(cut.position))
        target = place[np.nonzero(sees)]
        out = np.ascontiguousarray(cut.floors[cut.group])
        known = target >= 0
        out[target[known]] = np.maximum(out[target[known]], z[known])
        out[cut.columns[cut.group] < 0] = 1.0
        return self.scaled(cut, out)[0]

    def scaled(self, cut: Cut, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Rows scaled to sum to 1 over the floor, and their sums before, by position."""
        from panda_mdp.compute.numba.lifted import scale_rows

        out, sums = np.empty_like(z), np.empty(self.domain.size)
        start, part = cut.by_position(self.domain.size)
        exists = cut.columns >= 0
        scale_rows(z, out, sums, cut.floors, exists, cut.group, start, part, SCALINGS)
        return out, sums

    def closed(
        self, cut: Cut, z: FloatArray, epsilon: float, active: BoolArray, nats: float = np.inf
    ) -> FloatArray:
        """`Closure.close` group by group; `active` by position."""
        from panda_mdp.compute.numba.lifted import close_groups

        out = np.empty_like(z)
        nothing = np.empty((0, 0))
        close_groups(
            z, out, cut.groups, active[cut.position], cut.floors, epsilon, nats, 0, 0.0,
            np.empty((0, 0), dtype=np.int64), nothing, cut.position, self._tile(cut.position),
            *self.coordinates, self.tiles.starts, self.tiles.between,
        )  # fmt: skip
        return out

    def settling(
        self, cut: Cut, z: FloatArray, epsilon: float, nats: float = np.inf
    ) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Tables after closing and scaling once, twice, ..., with the rows' sums before."""
        active = np.ones(self.domain.size, dtype=np.bool_)
        while True:
            z, sums = self.scaled(cut, self.closed(cut, z, epsilon, active, nats))
            active = sums > 1 + SETTLED
            yield z, sums

    def audited(self, cut: Cut, z: FloatArray) -> float:
        """The audited epsilon of a table over all pairs and outputs, before it is quantised."""
        from panda_mdp.compute.numba.floored import worst_of_groups

        logs = np.log(z)
        lifts = np.abs(logs - np.log(cut.floors)[cut.group]).max(axis=1)
        lifts[(z == cut.floors[cut.group]).all(axis=1)] = -1.0
        value, _, _ = worst_of_groups(
            logs, z.view(np.int64), lifts, cut.position, self._tile(cut.position), cut.groups,
            *self.coordinates, self.tiles.starts, self.tiles.between, LOG_ERROR,
            1 - (self.domain.metric.relative_error + ARITHMETIC_ERROR), 0.0,
        )  # fmt: skip
        return float(value)

    def broken(
        self,
        cut: Cut,
        z: FloatArray,
        nats: float,
        least_gain: float,
        least_mass: float = 0.0,
        most: int | None = None,
    ) -> tuple[IntArray, FloatArray]:
        """Pairs of positions, (n, 2), and the mass, over `least_mass`, by which the first misses
        the constraint of the second, over all groups where it exceeds `least_gain`; the `most`
        worst of every position, or all."""
        from panda_mdp.compute.numba.lifted import close_groups

        partner = np.full((len(z), PER_NODE), -1, dtype=np.int64)
        gain = np.zeros((len(z), PER_NODE))
        close_groups(
            z, z, cut.groups, np.ones(len(z), dtype=np.bool_), cut.floors, self.epsilon, nats,
            PER_NODE, least_gain, partner, gain, cut.position, self._tile(cut.position),
            *self.coordinates, self.tiles.starts, self.tiles.between,
        )  # fmt: skip
        node, k = np.nonzero(partner >= 0)
        keys = cut.position[node] * self.domain.size + partner[node, k]
        pairs, inverse = np.unique(keys, return_inverse=True)
        mass = np.bincount(inverse.reshape(-1), gain[node, k], len(pairs))
        large = mass > least_mass
        ends = np.stack(np.divmod(pairs[large], self.domain.size), axis=1)
        mass = mass[large]
        along = np.lexsort((-mass, ends[:, 0]))
        first = np.searchsorted(ends[:, 0][along], np.arange(self.domain.size))
        rank = np.arange(len(along)) - first[ends[:, 0][along]]
        worst = along if most is None else along[rank < most]
        return ends[worst], np.asarray(mass[worst], np.float64)

    def mixed(self, cut: Cut, z: FloatArray, share: float) -> tuple[Cut, FloatArray]:
        """The table with the share of a row that is common to all records: the floor, scaled."""
        exists = (cut.columns >= 0)[cut.group]
        floor = cut.floor * ((1 - share) + share / float(cut.floor.sum()))
        common = share / float(cut.floor.sum()) * cut.floors[cut.group]
        raised = Cut(cut.columns, cut.groups, cut.position, cut.record, floor)
        return raised, np.where(exists, (1 - share) * z + common, 1.0)

    def rows(self, cut: Cut, z: FloatArray) -> tuple[IntArray, Int32Array, FloatArray]:
        """What lies above the floor, by record: starts, columns and values."""
        columns = cut.columns[cut.group]
        stored = (columns >= 0) & (z > cut.floors[cut.group])
        node, k = np.nonzero(stored)
        record, column = cut.record[node], columns[node, k]
        along = np.argsort(record * len(cut.floor) + column, kind="stable")
        count = np.bincount(record, minlength=self.domain.size)
        starts = np.concatenate([[0], np.cumsum(count)])
        return starts, column[along].astype(np.int32), z[node, k][along]
