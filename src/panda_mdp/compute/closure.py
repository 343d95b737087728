"""The log-Lipschitz closure of a table over all pairs, and what goes with it.

Closure, z_xy <- max_x' z_x'y exp(-eps d(x, x')), makes every column log-Lipschitz at eps; dividing
the rows by their sums may break that by the ratio of the sums. Alternating the two drives the sums
to 1. A floor under all entries keeps zeros out and makes the work local: within a column no log
ratio exceeds the spread, so far pairs hold by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.base.threads import by_slices
from panda_mdp.compute.rate import host_rate
from panda_mdp.space.domain import Domain
from panda_mdp.space.tiles import TilePairs

if TYPE_CHECKING:
    from panda_mdp.compute.numba.distance import Coordinates

FLOOR = 1e-8
UNUSED = 1e-100
"""Stands in all rows for an output that no record may report: it binds nothing and counts for
nothing, and the table is given out with 0 in its place."""
SMALL_RECORDS = 512
"""Up to this many NumPy is done before a compiler has started."""
NEAR = 8
NEAR_NATS = 8.0
"""Pairs within this many nats do nearly all that the closure does: a farther record lends a row
less than exp(-8) of an entry. Where an estimate will do only they are closed."""
LEAST_MARGIN = 2e-3
SOURCES = 320
"""Nats by which rows may fall before their lists of sources are made anew, at least, and the most
sources that are listed."""
AGREED, AROUND = 1e-4, 6
"""The share of epsilon at which sums of near records agree well enough, and how many times the
nearest records of those that do not agree are closed with them."""
WIDER = 1.05
"""Lists of near tiles are made for this much more than is asked: the next one asks for a little
more or less."""
SETTLED = 1e-7
"""A row whose sum exceeds 1 by no more than this is not closed again."""


class Closure:
    """Closes tables over all pairs of one domain; works along the domain's tiles."""

    patience: ClassVar[int] = 8
    """Rounds in a row that need not bring the excess below 0.9 of the least one so far."""
    rest: ClassVar[float] = 5e-5
    """A row of many is not closed again either where its sum exceeds 1 by no more than this share
    of epsilon times the distance of the nearest record: what it was divided by is all that it can
    be below any other's claim."""
    centres_near: ClassVar[bool] = False
    """Whether near pairs that do not come to rest from above are closed from both sides before all
    pairs are. Where rows remember their sources all pairs cost less."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.tiles = domain.tiles
        self.order = self.tiles.order
        self.place = np.argsort(self.order)
        self._near_tiles: list[tuple[float, TilePairs]] = []

    @cached_property
    def coordinates(self) -> Coordinates:
        """The metric as the compiled loops take it."""
        from panda_mdp.compute.numba.distance import coordinates

        return coordinates(self.domain.metric, self.order)

    def near_tiles(self, radius: float) -> TilePairs:
        """Pairs of tiles within a radius, or a little more; kept for the next one that asks."""
        known = self._known_tiles(radius)
        if known is None:
            known = self.tiles.pairs(WIDER * radius)
            self._near_tiles = [(WIDER * radius, known), *self._near_tiles[:2]]
        return known

    def later_tiles(self, radius: float) -> Iterator[tuple[IntArray, IntArray, FloatArray]]:
        """Pairs of tiles a < b within a radius, or a little more, and their distance at least."""
        known = self._known_tiles(radius)
        if known is None:
            yield from self.tiles.later(radius)
        else:
            later = known.first < known.second
            yield known.first[later], known.second[later], known.between[later]

    def _known_tiles(self, radius: float) -> TilePairs | None:
        fit = (p for far, p in self._near_tiles if radius <= far <= WIDER**2 * radius)
        return next(fit, None)

    @cached_property
    def near(self) -> tuple[IntArray, FloatArray]:
        """Positions of the nearest records of every position, and their distances."""
        near, distance = self.domain.neighbours(min(NEAR, self.domain.size - 1))
        return self.place[near[self.order]], distance[self.order]

    def start(self, matrix: FloatArray, floor: float | FloatArray = FLOOR) -> FloatArray:
        """The matrix along the tiles, rows summing to 1, over a floor of `floor / m`, or of
        `floor[y]` under output y; outputs whose floor is 0 are left out."""
        row = floor_row(floor, matrix.shape[1])
        z = np.where(row > UNUSED, np.maximum(matrix[self.order], 0), 0.0)
        sums = z.sum(axis=1, keepdims=True)
        z /= np.where(sums > 0, sums, 1.0)
        z = (1 - row.sum()) * z + row
        return np.ascontiguousarray(z / z.sum(axis=1, keepdims=True))

    def survey(self, matrix: FloatArray, weighted: FloatArray) -> tuple[FloatArray, float]:
        """The largest entry of every column, and sum p c z over the rows scaled to sum 1, from
        `weighted` = p c; both in the domain's order."""
        sums = matrix.sum(axis=1)
        loss = np.einsum("xy,xy->x", weighted, matrix) / np.where(sums > 0, sums, 1.0)
        return np.asarray(matrix.max(axis=0)), float(loss.sum())

    def expected(self, z: FloatArray, weighted: FloatArray) -> float:
        """sum p c z of a table along the tiles."""
        return float(np.einsum("xy,xy->", weighted, self.host(z)))

    def close(
        self,
        z: FloatArray,
        epsilon: float,
        active: BoolArray | None = None,
        nats: float = np.inf,
    ) -> FloatArray:
        """The least table above z whose columns are log-Lipschitz at epsilon (rows unscaled).

        Rows that are not `active` stay as they are. Of pairs with epsilon d beyond `nats` some are
        left out.
        """
        if len(z) <= SMALL_RECORDS:
            return self._close_small(z, epsilon, active, nats)
        if active is None:
            return self._close_compiled(z, epsilon, np.ones(len(z), dtype=np.bool_), nats)
        closed = self._close_compiled(z, epsilon, active, nats)
        closed[~active] = z[~active]
        return closed

    def _close_compiled(
        self,
        z: FloatArray,
        epsilon: float,
        active: BoolArray,
        nats: float,
        lists: Lists | None = None,
    ) -> FloatArray:
        """`close` by compiled loops, of which the active rows alone mean something; with `lists`
        the rows that have one go along it alone, and the others get theirs."""
        from panda_mdp.compute.numba.closure import close, tops

        out = np.empty_like(z)
        given = Lists(len(z), 0) if lists is None else lists
        starts = self.tiles.starts
        if (given.count[active] < 0).any():
            top = tops(z, given.above, starts, self._blocks.starts)
            high = np.maximum.reduceat(top, self._blocks.starts[:-1], axis=0)
            span = nats
            if np.isinf(nats):
                # No log ratio is larger, and none will be while the lists serve.
                span = float(np.log((high.max(axis=0) / z.min(axis=0)).max()) + given.margin.max())
            nearby = self.near_tiles(max(span, 0.0) / epsilon)
        else:
            high = top = np.empty((0, z.shape[1]))
            nearby = TilePairs.none(self.tiles.count)
        close(
            z, out, active, epsilon, nats, given.margin, given.above, high, top, self._turns,
            given.count, given.partner, given.exponent, *self._blocks.coordinates,
            self._blocks.starts, self._blocks.radius, self.domain.metric.triangle_slack, starts,
            nearby.starts, nearby.second, nearby.between,
        )  # fmt: skip
        return out

    @cached_property
    def _blocks(self) -> Blocks:
        """The tiles cut into blocks of a few records."""
        from panda_mdp.compute.numba.closure import BLOCK
        from panda_mdp.compute.numba.distance import coordinates

        sizes = np.diff(self.tiles.starts)
        starts = np.concatenate([[0], np.cumsum(-(-sizes // BLOCK))])
        home = np.repeat(np.arange(len(sizes)), np.diff(starts))
        begin = self.tiles.starts[home] + BLOCK * (np.arange(starts[-1]) - starts[home])
        size = np.diff(np.append(begin, len(self.order)))
        centres = self.order[begin + size // 2]
        metric = self.domain.metric
        away = metric.pairs(np.repeat(centres, size), self.order)
        places = coordinates(metric, np.concatenate([self.order, centres]))
        return Blocks(starts, places, np.maximum.reduceat(away, begin))

    @cached_property
    def _turns(self) -> IntArray:
        """The tiles so that each thread's share of them is spread over the domain."""
        return np.argsort(np.arange(self.tiles.count) % 16, kind="stable")

    @cached_property
    def _distances(self) -> FloatArray:
        return self.domain.distances(self.order, self.order)

    def _close_small(
        self, z: FloatArray, epsilon: float, active: BoolArray | None, nats: float
    ) -> FloatArray:
        """`close` in NumPy, over all pairs within `nats`."""
        rows = np.arange(len(z)) if active is None else np.flatnonzero(active)
        exponent = epsilon * self._distances[rows]
        factor = np.where(exponent < nats, np.exp(-exponent), 0.0)
        raised = z[rows]
        for j in range(len(z)):
            np.maximum(raised, factor[:, j, None] * z[j], out=raised)
        out = z.copy()
        out[rows] = raised
        return out

    def normalise(self, closed: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The rows divided by their sums, and the sums by position."""
        sums = closed.sum(axis=1)
        return closed / sums[:, None], sums

    def rounds(
        self, z: FloatArray, epsilon: float, nats: float = np.inf
    ) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Tables after closing (up to `nats`) and normalising once, twice, ..., with the rows' sums
        before.

        A row that was scaled down leaves the others closed; only itself has to be closed again.
        """
        if isinstance(z, np.ndarray) and len(z) > SMALL_RECORDS:
            yield from self._listed_rounds(z, epsilon, nats)
        active = np.ones(self.domain.size, dtype=np.bool_)
        while True:
            z, sums = self.normalise(self.close(z, epsilon, active, nats))
            active = sums > 1 + SETTLED
            yield z, sums

    def _listed_rounds(
        self, z: FloatArray, epsilon: float, nats: float
    ) -> Iterator[tuple[FloatArray, FloatArray]]:
        """`rounds` that remember which sources of a row may raise it again.

        After the first round no entry ever exceeds what it was closed to: C / s, s >= 1, is below
        C, whose closure is C. So x' can raise x only where C_x'y exp(-epsilon d) exceeds what C_xy
        has become, and a list of the sources that come within a margin of C_x serves until the
        row has fallen by that margin.
        """
        from panda_mdp.compute.numba.closure import replace

        active = np.ones(len(z), dtype=np.bool_)
        z, sums = self.normalise(self._close_compiled(z, epsilon, active, nats))
        lists = Lists(len(z), SOURCES)
        settled = 1 + np.maximum(SETTLED, self.rest * epsilon * self.near[1].min(axis=1))
        while True:
            yield z, sums
            active = sums > settled
            lists.before(sums)
            closed = self._close_compiled(z, epsilon, active, nats, lists)
            z, sums = replace(z, np.flatnonzero(active), closed)
            lists.after(sums)

    def centre(
        self,
        z: FloatArray,
        epsilon: float,
        nats: float = np.inf,
        active: BoolArray | None = None,
    ) -> FloatArray:
        """The table half way, in logarithms, between the least log-Lipschitz one above z and the
        greatest one below: log-Lipschitz too (rows unscaled). Rows that are not `active` stay."""
        above, below = (self.close(side, epsilon, active, nats) for side in (z, 1 / z))
        return np.asarray(np.sqrt(above / below))

    def centred_rounds(
        self,
        z: FloatArray,
        epsilon: float,
        nats: float = np.inf,
        sums: FloatArray | None = None,
    ) -> Iterator[tuple[FloatArray, FloatArray]]:
        """As `rounds`, closing from both sides.

        What is added to a row is taken from others, so rows whose neighbours force their sums above
        1, where `rounds` goes in circles, come to rest. Only for tables that are nearly closed:
        tiny entries that are not would pull all others down. Only rows whose sums do not agree with
        those of near ones are closed again, with those around them: of a table that was closed and
        divided by `sums` all others keep epsilon as they are. Without `sums` all rows are closed
        at first.
        """
        while True:
            active = None
            if sums is not None:
                active = self._around(self._excesses(sums) > AGREED * epsilon)
            z, sums = self._centred(z, epsilon, nats, active)
            yield z, sums

    def _centred(
        self, z: FloatArray, epsilon: float, nats: float, active: BoolArray | None
    ) -> tuple[FloatArray, FloatArray]:
        """`centre`, normalised, and the sums."""
        if active is None or len(z) <= SMALL_RECORDS:
            return self.normalise(self.centre(z, epsilon, nats, active))
        from panda_mdp.compute.numba.closure import replace

        above, below = (self._close_compiled(side, epsilon, active, nats) for side in (z, 1 / z))
        return replace(z, np.flatnonzero(active), above, below)

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
        return np.asarray((np.abs(logs[:, None] - logs[near]) / distance).max(axis=1))

    def rate(self, z: FloatArray) -> float:
        """The audited epsilon of a positive table along the tiles, before it is quantised."""
        matrix = np.ascontiguousarray(z[self.place])
        return host_rate(self.domain, np.log(matrix), matrix.view(np.int64))[0]

    def host(self, z: FloatArray) -> FloatArray:
        """A table along the tiles as a NumPy array in the domain's order."""
        return np.asarray(z)[self.place]

    def violated(
        self, z: FloatArray, epsilon: float, most: int, least_gain: float
    ) -> tuple[IntArray, FloatArray]:
        """For every position up to `most` partners (-1 for none) whose constraint it misses by the
        most mass, sum_y max(0, z_x'y exp(-epsilon d) - z_xy) > least_gain, and that mass.

        Of pairs beyond `NEAR_NATS`, which can miss little, some are not looked at.
        """
        if len(z) <= SMALL_RECORDS:
            return self._violated_small(z, epsilon, most, least_gain)
        from panda_mdp.compute.numba.bound import violated_pairs

        kind, table, along = self.coordinates
        nearby = self.near_tiles(NEAR_NATS / epsilon)
        partner, gain = violated_pairs(
            z.astype(np.float32),
            epsilon,
            kind,
            table,
            along,
            self.tiles.starts,
            nearby.starts,
            nearby.second,
            nearby.between,
            np.minimum(pair_reach(z, self.tiles.starts, nearby), NEAR_NATS),
            most,
            least_gain,
        )
        return partner, gain

    def _violated_small(
        self, z: FloatArray, epsilon: float, most: int, least_gain: float
    ) -> tuple[IntArray, FloatArray]:
        factor = np.exp(-epsilon * self._distances)
        partner = np.full((len(z), most), -1, dtype=np.int64)
        gain = np.zeros((len(z), most))
        for i in range(len(z)):
            value = np.maximum(factor[i, :, None] * z - z[i], 0.0).sum(axis=1)
            value[i] = 0.0
            best = np.argsort(-value, kind="stable")[:most]
            best = best[value[best] > least_gain]
            partner[i, : len(best)], gain[i, : len(best)] = best, value[best]
        return partner, gain


class Blocks(NamedTuple):
    """The tiles cut further."""

    starts: IntArray
    """Where the blocks of every tile begin."""
    coordinates: Coordinates
    """Of the records along the tiles, and behind them of a record in the middle of every block."""
    radius: FloatArray
    """How far from that one the records of a block are, at most."""


class Lists:
    """For every row the sources that may raise it."""

    def __init__(self, size: int, most: int) -> None:
        self.above = np.ones(size)
        """By which rows may lie above what they are now."""
        self.margin = np.zeros(size)
        """Nats by which a row may fall before sources are missing from its list."""
        self.count = np.full(size, -1)
        """Sources of a row; -1 where there is no list."""
        self.partner = np.empty((size, most), dtype=np.int32)
        self.exponent = np.empty((size, most), dtype=np.float32)

    def before(self, sums: FloatArray) -> None:
        """Rows were divided by `sums` and are to be closed."""
        self.above = sums
        new = self.count < 0
        self.margin[new] = LEAST_MARGIN + 0.5 * np.log(sums[new])

    def after(self, sums: FloatArray) -> None:
        """Rows were closed and divided by `sums`: lists that may be too short now are dropped."""
        self.margin -= np.log(sums)
        self.count[self.margin < 0] = -1


def floor_row(floor: float | FloatArray, outputs: int) -> FloatArray:
    """The floor of every output: an even share of a number, and `UNUSED` where it is 0."""
    even = np.full(outputs, floor / outputs) if isinstance(floor, float) else floor
    return np.asarray(np.maximum(even, UNUSED))


def pair_reach(z: FloatArray, starts: IntArray, pairs: TilePairs) -> FloatArray:
    """Upper bounds on log(z_x'y / z_xy) for x in the first tile of a pair and x' in the second."""
    high = np.log(np.maximum.reduceat(z, starts[:-1], axis=0).astype(np.float64))
    low = np.log(np.minimum.reduceat(z, starts[:-1], axis=0).astype(np.float64))
    reach = np.empty(len(pairs.second))

    def work(part: slice) -> None:
        reach[part] = (high[pairs.second[part]] - low[pairs.first[part]]).max(axis=1)

    by_slices(work, len(reach), 1 << 12)
    return reach
