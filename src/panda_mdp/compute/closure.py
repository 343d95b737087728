"""The log-Lipschitz closure of a table over all pairs, and what goes with it.

Closure, z_xy <- max_x' z_x'y exp(-eps d(x, x')), makes every column log-Lipschitz at eps; scaling
the rows to sum to 1 may break that by the ratio of the sums. Alternating the two drives the sums to
1. A floor under all entries keeps zeros out and makes the work local: within a column no log ratio
exceeds the spread, so far pairs hold by themselves.

Tables lie on the nodes of a cut (compute/pairs.py). A dense table is one group of all outputs over
no floor. Otherwise rows are scaled as z <- max(s z, f), f the floor that all records share: a
maximum with what all share breaks no constraint that s z keeps.

Under path metrics it goes along edges, which imply all pairs (space/paths.py).

z_x <- max(z_x, e^(-eps len) z_x') along the edges until nothing changes: a maximum over paths is
the maximum over all records x' of e^(-eps d(x, x')) z_x'. Values only rise and no cycle raises
them, so it ends, at a table in which no product of an edge, as rounded, exceeds the entry that it
is compared with. It costs edges times outputs whenever rows are raised, which is a few times.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from copy import copy
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray, offsets
from panda_mdp.base.floored import Int32Array
from panda_mdp.base.threads import in_parts
from panda_mdp.compute.pairs import Cut, Links, has_numba, host_rate, largest_rate, lifts_of
from panda_mdp.space.domain import Domain
from panda_mdp.space.tiles import TilePairs, coordinates

FLOOR = 1e-8
UNUSED = 1e-100
"""Stands in all rows for an output that no record may report: it binds nothing and counts for
nothing, and the table is given out with 0 in its place."""
NEAR_NATS = 8.0
"""Pairs within this many nats do nearly all that the closure does: a farther record lends a row
less than exp(-8) of an entry. Where an estimate will do only they are closed."""
AGREED = 1e-4
AROUND = 6
"""The share of epsilon at which sums of near records agree well enough, and how many times the
nearest records of those that do not agree are closed with them."""
WIDER = 1.05
"""Lists of near parts are made for this much more than is asked: the next one asks for a little
more or less."""
SETTLED = 1e-7
"""A row whose sum exceeds 1 by no more than this is not closed again."""
ROOM = 0.98
"""Nodes reach as far as they would at this share of epsilon: the closure may run below epsilon."""
PER_NODE = 4
"""Partners that a node of many groups names."""


SMALL_RECORDS = 512
"""Up to this many NumPy is done with a dense table before a compiler has started."""
Rounds = Iterator[tuple[Any, Any]]
"""Tables, and what their rows summed to before they were scaled."""


class Closure:
    """Closes tables over all pairs of one domain, of dense ones or of those on a cut."""

    patience: int = 8
    """Rounds in which the excess need not fall by a tenth."""
    nearest: int = 8
    """Records by whose sums a row's is judged, and that lend first."""
    near_first: bool = True
    """Whether near pairs, or some rows, cost far less to close than all pairs of all rows."""
    rest: float = 5e-5
    """A row is not closed again either where its sum exceeds 1 by no more than this share of
    epsilon times the distance of the nearest record: what it was divided by is all that it can be
    below any other's claim."""

    def __init__(self, domain: Domain, small_records: int = SMALL_RECORDS) -> None:
        self.domain = domain
        self.small_records = small_records
        self.tiles = domain.tiles
        self.order = self.tiles.order
        self.place = np.argsort(self.order)
        self.cut: Cut | None = None
        self._listed: tuple[float, TilePairs] | None = None

    def over(self, cut: Any) -> Self:
        """The same for tables on the nodes of a cut."""
        self.near  # noqa: B018 - computed once for all cuts
        other = copy(self)
        other.cut = cut
        other._listed = None
        return other

    def _cut_for(self, z: FloatArray) -> Cut:
        """Where a table lies; dense ones may have any number of outputs."""
        if self.cut is None or (self.cut.dense and self.cut.columns.shape[1] != z.shape[1]):
            self.cut = Cut.whole(self.domain, z.shape[1])
        return self.cut

    def _near_parts(self, cut: Cut, radius: float) -> TilePairs:
        """Pairs of parts within a radius, or a little more; kept for the next one that asks."""
        if self._listed is None or not radius <= self._listed[0] <= WIDER**2 * radius:
            far = WIDER * radius
            self._listed = far, cut.pairs_of(self.tiles.pairs(far))
        return self._listed[1]

    @cached_property
    def near(self) -> tuple[IntArray, FloatArray]:
        """Positions of the nearest records of every position, and their distances."""
        near, distance = self.domain.neighbours(min(self.nearest, self.domain.size - 1))
        return self.place[near[self.order]], distance[self.order]

    # Tables in and out.

    def start(self, matrix: FloatArray, floor: float | FloatArray = FLOOR) -> FloatArray:
        """The matrix along the tiles, rows summing to 1, over a floor of `floor / m`, or of
        `floor[y]` under output y; outputs whose floor is 0 are left out."""
        row = floor_row(floor, matrix.shape[1])
        z = np.where(row > UNUSED, np.maximum(matrix[self.order], 0), 0.0)
        sums = z.sum(axis=1, keepdims=True)
        z /= np.where(sums > 0, sums, 1.0)
        z = (1 - row.sum()) * z + row
        return np.ascontiguousarray(z / z.sum(axis=1, keepdims=True))

    def cut_for(
        self,
        columns: IntArray,
        sees: BoolArray,
        z: FloatArray,
        floor: FloatArray,
        epsilon: float,
    ) -> tuple[Closure, FloatArray]:
        """The closure over the nodes that a table needs, and the table on them: above the floor,
        rows summing to 1.

        The table is given for the nodes `sees` (groups, K, by position); it needs all records that
        closing at `epsilon`, or a little less, raises above the floor.
        """
        given = _cut_of(self.domain, columns, sees, floor)
        with np.errstate(divide="ignore"):
            lifts = np.log(z) - np.log(given.floors[given.group])
        lifts[~given.exists[given.group]] = -np.inf
        reached = self._reached(lifts.max(axis=1), given, ROOM * epsilon)
        cut = _cut_of(self.domain, columns, reached, floor)
        out = np.ascontiguousarray(cut.floors[cut.group])
        # Nodes of both follow each other by group and position; the table has more than are needed.
        known = reached[sees]
        again = sees[reached]
        out[again] = np.maximum(out[again], z[known])
        out[~cut.exists[cut.group]] = 1.0
        from panda_mdp.compute.numba.closure import scale

        scale(out, cut, np.arange(self.domain.size))
        return self.over(cut), out

    def _reached(self, lifts: FloatArray, cut: Cut, epsilon: float) -> BoolArray:
        """Which positions some node of a group raises above the floor, (groups, K): those within
        `lifts` nats of it."""
        from panda_mdp.compute.numba.closure import cover

        inside = np.zeros((len(cut.columns), self.domain.size), bool)
        tiles = self.tiles
        nodes = (lifts, cut.groups, cut.position, cut.tile, epsilon)
        places = coordinates(self.domain.metric, tiles.order)
        near = tiles.pairs(float(lifts.max(initial=0.0)) / epsilon)
        in_parts(cover, len(inside), *nodes, places, tiles.starts, near, inside)
        return inside

    def host(self, z: FloatArray) -> FloatArray:
        """A dense table along the tiles as a NumPy array in the domain's order."""
        return np.asarray(z)[self.place]

    def rows(self, z: FloatArray) -> tuple[IntArray, Int32Array, FloatArray]:
        """What lies above the floor, by record: starts, columns and values."""
        cut = self._cut_for(z)
        node, k = np.nonzero(cut.exists[cut.group] & (z > cut.floors[cut.group]))
        places = cut.record[node], cut.columns[cut.group[node], k]
        shape = self.domain.size, len(cut.floor)
        table = scipy.sparse.coo_array((z[node, k], places), shape).tocsr()
        table.sort_indices()
        return table.indptr.astype(np.int64), table.indices.astype(np.int32), table.data

    def survey(self, matrix: FloatArray, weighted: FloatArray) -> tuple[FloatArray, float]:
        """The largest entry of every column, and sum p c z over the rows scaled to sum 1, from
        `weighted` = p c; both in the domain's order."""
        sums = matrix.sum(axis=1)
        loss = np.einsum("xy,xy->x", weighted, matrix) / np.where(sums > 0, sums, 1.0)
        return matrix.max(axis=0), float(loss.sum())

    def expected(self, z: FloatArray, weighted: FloatArray) -> float:
        """sum p c z of a dense table along the tiles."""
        return float(np.einsum("xy,xy->", weighted, self.host(z)))

    # Closing and scaling.

    def close(
        self,
        z: FloatArray,
        epsilon: float,
        active: BoolArray | None = None,
        nats: float = np.inf,
    ) -> FloatArray:
        """The least table above z whose columns are log-Lipschitz at epsilon (rows unscaled).

        Rows that are not `active`, by position, stay as they are. Of pairs with epsilon d beyond
        `nats` some are left out.
        """
        if self._small(z):
            return self._close_small(z, epsilon, active, nats)
        from panda_mdp.compute.numba.closure import close

        cut = self._cut_for(z)
        span = nats
        rows = np.ones(len(z), bool) if active is None else active[cut.position]
        high = np.maximum.reduceat(z, cut.starts[:-1], axis=0)
        if np.isinf(nats):
            # No log ratio within an output is larger.
            low = np.minimum.reduceat(z, cut.starts[cut.leading], axis=0)
            span = np.log((np.maximum.reduceat(high, cut.leading, axis=0) / low).max())
        near = self._near_parts(cut, max(span, 0.0) / epsilon)
        out = z.copy()
        shared = (z, out, rows, epsilon, nats, high, cut.starts, cut.places, cut.turns, near)
        in_parts(close, len(cut.turns), *shared)
        return out

    def _small(self, z: FloatArray) -> bool:
        """Whether NumPy does it."""
        few = len(z) <= self.small_records or not has_numba()
        return few and self._cut_for(z).dense

    @cached_property
    def _distances(self) -> FloatArray:
        return self.domain.distances(self.order, self.order)

    def _close_small(
        self, z: FloatArray, epsilon: float, active: BoolArray | None, nats: float
    ) -> FloatArray:
        """`close` in NumPy, over all pairs within `nats`."""
        out = z.copy()
        for i in range(len(z)) if active is None else np.flatnonzero(active):
            exponent = epsilon * self._distances[i]
            lent = np.where(exponent < nats, np.exp(-exponent), 0.0)
            out[i] = (lent[:, None] * z).max(axis=0)
        return out

    def scaled(
        self, closed: FloatArray, active: BoolArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """The active rows scaled to sum to 1, in place where they are compiled; what the rows
        summed to before, by position."""
        rows = np.arange(self.domain.size) if active is None else np.flatnonzero(active)
        if self._small(closed):
            sums = np.ones(len(closed))
            sums[rows] = closed[rows].sum(axis=1)
            return closed / sums[:, None], sums
        from panda_mdp.compute.numba.closure import scale

        return closed, scale(closed, self._cut_for(closed), rows)

    def rounds(self, z: FloatArray, epsilon: float, nats: float = np.inf) -> Rounds:
        """Tables after closing (up to `nats`) and scaling once, twice, ..., with the rows' sums
        before.

        A row that was scaled down leaves the others closed; only itself has to be closed again.
        """
        z, sums = self.scaled(self.close(z, epsilon, None, nats))
        settled = 1 + np.maximum(SETTLED, self.rest * epsilon * self.near[1].min(axis=1))
        while True:
            yield z, sums
            active = sums > settled
            z, sums = self.scaled(self.close(z, epsilon, active, nats), active)

    def lowered(
        self,
        z: FloatArray,
        epsilon: float,
        active: BoolArray | None = None,
        nats: float = np.inf,
    ) -> FloatArray:
        """`close` from below: the greatest table below z whose columns are log-Lipschitz."""
        return 1 / self.close(1 / z, epsilon, active, nats)

    def centred_rounds(
        self,
        z: FloatArray,
        epsilon: float,
        nats: float = np.inf,
        sums: FloatArray | None = None,
    ) -> Rounds:
        """As `rounds`, closing from below and from above in turn.

        What one side adds to a row the other takes from those that force it, so rows whose
        neighbours force their sums above 1, where `rounds` goes in circles, come to rest. Only for
        tables that are nearly closed: tiny entries that are not would pull all others down. Only
        rows whose sums do not agree with those of near ones are closed again, with those around
        them: of a table that was closed and divided by `sums` all others keep epsilon as they are.
        Without `sums` all rows are closed at first.
        """
        for side in itertools.cycle((self.lowered, self.close)):
            active = None
            if sums is not None:
                active = self._around(self._excesses(sums) > AGREED * epsilon)
            z, sums = self.scaled(side(z, epsilon, active, nats), active)
            yield z, sums

    def _around(self, chosen: BoolArray) -> BoolArray:
        """The chosen positions, their nearest records, the nearest records of those, and so on."""
        near, _ = self.near
        for _ in range(AROUND):
            chosen = chosen | chosen[near].any(axis=1)
        return chosen

    def excess(self, sums: FloatArray) -> float:
        """The largest rate by which dividing near records by `sums` may have raised epsilon."""
        return float(self._excesses(sums).max())

    def _excesses(self, sums: FloatArray) -> FloatArray:
        logs = np.log(sums)
        near, distance = self.near
        return (np.abs(logs[:, None] - logs[near]) / distance).max(axis=1)

    def mixed(self, z: FloatArray, share: float) -> tuple[Closure, FloatArray]:
        """The table with the share of a row that is common to all records: all outputs alike where
        it is dense, the floor, scaled, otherwise; and its closure."""
        cut = self._cut_for(z)
        total = float(cut.floor.sum())
        if total == 0.0:
            return self, (1 - share) * z + share / z.shape[1]
        common = share / total * cut.floors[cut.group]
        mixed = np.where(cut.exists[cut.group], (1 - share) * z + common, 1.0)
        floor = cut.floor * ((1 - share) + share / total)
        raised = Cut(self.domain, cut.columns, cut.groups, cut.position, floor)
        return self.over(raised), mixed

    # What a table is worth.

    def rate(self, z: FloatArray) -> float:
        """The audited epsilon of a positive table over all pairs and outputs, before it is
        quantised."""
        cut = self._cut_for(z)
        if cut.dense:
            whole = self.host(z)
            compiled = not self._small(z)
            return host_rate(self.domain, np.log(whole), whole.view(np.int64), compiled)[0]
        logs = np.log(z)
        lifts = lifts_of(cut, z, logs, np.log(cut.floors))
        return largest_rate(cut, logs, z.view(np.int64), lifts)[0]

    def broken(
        self, z: FloatArray, epsilon: float, nats: float, gains: tuple[float, float], most: int
    ) -> tuple[IntArray, FloatArray]:
        """Pairs of positions, (n, 2), within `nats`, and the mass by which the first misses the
        constraint of the second, sum_y max(0, z_x'y exp(-epsilon d) - z_xy), over all groups: where
        it exceeds the first of `gains` in a group, the second in all; the `most` worst of every
        position."""
        from panda_mdp.compute.numba.closure import miss

        cut = self._cut_for(z)
        size = self.domain.size
        each, least = gains
        named = most if cut.dense else PER_NODE
        partner = np.full((len(z), named), -1)
        gain = np.zeros((len(z), named))
        high, low = (f.reduceat(z, cut.starts[:-1], axis=0) for f in (np.maximum, np.minimum))
        pairs = (cut.starts, cut.places, self._near_parts(cut, nats / epsilon))
        shared = (z.astype(np.float32), epsilon, nats, high, 1 / low, *pairs, each, partner, gain)
        in_parts(miss, len(high), *shared)
        node, k = np.nonzero(partner >= 0)
        places = cut.position[node], cut.position[partner[node, k]]
        # Groups are added up on the way to rows.
        missed = scipy.sparse.coo_array((gain[node, k], places), (size, size)).tocsr().tocoo()
        large = np.flatnonzero(missed.data > least)
        along = large[np.lexsort((-missed.data[large], missed.row[large]))]
        row = missed.row[along]
        worst = along[np.arange(len(along)) - np.searchsorted(row, row) < most]
        ends = np.stack([missed.row[worst], missed.col[worst]], axis=1)
        return ends.astype(np.int64), missed.data[worst]


def _cut_of(domain: Domain, columns: IntArray, sees: BoolArray, floor: FloatArray) -> Cut:
    return Cut(domain, columns, offsets(sees.sum(axis=1)), np.nonzero(sees)[1], floor)


def floor_row(floor: float | FloatArray, outputs: int) -> FloatArray:
    """The floor of every output: an even share of a number, and `UNUSED` where it is 0."""
    even = np.full(outputs, floor / outputs) if isinstance(floor, float) else floor
    return np.maximum(even, UNUSED)


def closure_of(domain: Domain) -> Closure:
    """What closes tables of a domain on the host."""
    links = domain.metric.generating_pairs is not None
    return (LinkClosure if links else Closure)(domain)


class LinkClosure(Closure):
    """Closes along the pairs that imply all others."""

    rest = 0.0
    near_first = False

    @cached_property
    def near(self) -> tuple[IntArray, FloatArray]:
        """The nearest record of every position, which is the end of its shortest link."""
        links = self._whole
        order = np.lexsort((links.lengths, links.firsts))[links.starts[:-1]]
        return links.others[order, None], links.lengths[order, None]

    @cached_property
    def _whole(self) -> Links:
        """The links of all positions."""
        return _links(Cut.whole(self.domain, 1))

    def close(
        self,
        z: FloatArray,
        epsilon: float,
        active: BoolArray | None = None,
        nats: float = np.inf,
    ) -> FloatArray:
        cut = self._cut_for(z)
        out = z.copy()
        raise_along(out, _links(cut), epsilon, None if active is None else active[cut.position])
        return out

    def _reached(self, lifts: FloatArray, cut: Cut, epsilon: float) -> BoolArray:
        # Of e^lift the closure has the logarithm of what is reached, node by node.
        whole = np.zeros((self.domain.size, len(cut.columns)))
        whole[cut.position, cut.group] = np.exp(lifts)
        raise_along(whole, self._whole, epsilon)
        return np.ascontiguousarray(whole.T > 1)

    def _around(self, chosen: BoolArray) -> BoolArray:
        # All: it costs next to nothing, and a few alone are held where they are by the others.
        return np.ones_like(chosen)

    def _excesses(self, sums: FloatArray) -> FloatArray:
        links = self._whole
        logs = np.log(sums)
        rate = np.abs(logs[links.firsts] - logs[links.others]) / links.lengths
        return np.maximum.reduceat(rate, links.starts[:-1])

    def broken(
        self, z: FloatArray, epsilon: float, nats: float, gains: tuple[float, float], most: int
    ) -> tuple[IntArray, FloatArray]:
        """None: pairs that are not constrained follow from those that are."""
        return np.empty((0, 2), np.int64), np.empty(0)


def _links(cut: Cut) -> Links:
    links = cut.links
    if links is None:
        raise NotImplementedError("this metric has no pairs that imply all others")
    return links


def raise_along(
    z: FloatArray, links: Links, epsilon: float, active: BoolArray | None = None
) -> None:
    """z_i <- max(z_i, exp(-epsilon length) z_j) along the links until nothing changes, for the
    active nodes i."""
    lent = np.where(links.others >= 0, np.exp(-epsilon * links.lengths), 0.0)
    if not has_numba():
        raised = np.ones(len(z), bool) if active is None else active
        inside = (lent > 0) & raised[links.firsts]
        other = links.others[inside]
        factor = lent[inside, None]
        node, begin = np.unique(links.firsts[inside], return_index=True)
        changed = len(node) > 0
        while changed:
            above = np.maximum.reduceat(factor * z[other], begin)
            changed = bool((above > z[node]).any())
            z[node] = np.maximum(z[node], above)
        return
    from panda_mdp.compute.numba.closure import WIDTH, relax

    if active is not None:
        # A node raises its others.
        lent = np.where(active[links.others], lent, 0.0)
    in_parts(relax, -(-z.shape[1] // WIDTH), z, links.starts, links.others, lent)
