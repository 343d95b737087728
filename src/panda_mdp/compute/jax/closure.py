"""Closure, audit and broken pairs on an accelerator: all pairs of blocks within reach, in JAX.

Tables stay on the device, in the blocks of compute/jax/blocks.py; a dense one has one group of all
outputs. A cut over a floor holds whole tiles: rows of theirs that nothing raises stay at the floor.
The host lists the pairs of tiles that are near each other (space/tiles.py): pairs out of reach cost
nothing, and no object grows with the square of the records.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray, offsets
from panda_mdp.base.floored import FlooredRows, Int32Array
from panda_mdp.compute.closure import (
    AGREED,
    FLOOR,
    ROOM,
    SETTLED,
    Closure,
    LinkClosure,
    Rounds,
    floor_row,
)
from panda_mdp.compute.jax import blocks, floored, triton
from panda_mdp.compute.jax.blocks import Blocks, Kernels, Near, Pairs
from panda_mdp.compute.jax.device import (
    Array,
    distance_error,
    ladder,
    laid_out,
    measures,
    members_of,
    memory,
    precise,
    prepare,
    put,
)
from panda_mdp.compute.pairs import ARITHMETIC_ERROR, LOG_ERROR, MEMORY_FULL, WIDTH, host_rate
from panda_mdp.space.domain import Domain
from panda_mdp.space.tiles import TILE

SPARE = 1.02
"""Of the reach: pairs are listed a little farther than they are asked for, and not again."""
DISTANCES = 3 * 8 * TILE**2
"""Bytes of the distances of a pair of tiles, and of what they come to while a table is closed."""
HELD = 1 / 3
"""Of what is free of a device's memory: what distances may take; of more pairs they are computed as
needed."""
MOST_HELD = 1 << 19
"""Pairs of which they are held where the memory is not known."""
BETWEEN_ROUNDS = 40
"""Most rounds between two over all sources."""
TOUCHING = float(np.finfo(np.float64).tiny)
"""A reach within which only tiles are that may touch."""
NOWHERE = np.iinfo(np.int32).max


@dataclass(frozen=True)
class BlockCut:
    """Groups of outputs and the blocks that each has."""

    columns: IntArray
    """(groups, width) outputs; -1 where a group has fewer."""
    floor: FloatArray
    """(m,), 0 of a dense table."""
    blocks: Blocks
    reach: float = np.inf
    """Beyond which nothing raises anything above the floor."""


class JaxClosure(Closure):
    """`Closure` on a device. Tables are (blocks, 64, width) arrays there, padded; sums of rows are
    (T, 64)."""

    cut: Any
    # Forty rounds that are not counted follow each that is: the more records they go through, the
    # fewer are counted.
    patience = 2
    nearest = 32
    rest = 0.0

    def __init__(self, domain: Domain, outputs: int = WIDTH) -> None:
        super().__init__(domain)
        prepare()
        self.outputs = outputs
        with precise():
            members = self.members = members_of(self.tiles)
            self.slot = np.flatnonzero(members.ravel() >= 0)
            """Of every position: its place among the rows of all tiles."""
            positions = np.maximum(members, 0)
            records = self.order[positions]
            self._positions = put(positions.astype(np.int32))
            self.records = put(records.astype(np.int32))
            """Of every row of every tile; of what is none any."""
            self._real = put(members >= 0)
            self._measure: Any = None
            """Of distances, which are known along pairs that imply all others."""
            if domain.metric.generating_pairs is None:
                self._measure = laid_out(domain.metric, records)
            self.kernels: Kernels = "triton" if triton.available() else "xla"
            tiles = np.ones((1, self.tiles.count), bool)
            dense = self._blocks(tiles, np.arange(outputs)[None], None)
        self.cut = BlockCut(np.arange(outputs)[None], np.zeros(outputs), dense)
        self._shrink = 1 - (distance_error(domain.metric) + ARITHMETIC_ERROR)
        self._lists: list[tuple[float, Near]] = []
        self._pairs: Pairs | None = None
        self._weighted: tuple[FloatArray, Array] | None = None
        self._seen: tuple[BoolArray, BoolArray, tuple[Array, Array]] | None = None

    def over(self, cut: Any) -> Self:
        """The same for tables on the blocks of a cut."""
        self._nearest  # noqa: B018 - computed once for all cuts
        other = super().over(cut)
        other._pairs = None
        other.patience = Closure.patience
        return other

    def _blocks(self, mask: BoolArray, columns: IntArray, floor: FloatArray | None) -> Blocks:
        """Blocks where `mask` (groups, T) is true, group by group; over a floor padded."""
        (groups, tiles), (group, tile) = mask.shape, np.nonzero(mask)
        count = len(group)
        pad = (0, 0 if floor is None else ladder(count + 1) - count)
        number = np.full((groups + 1, tiles), -1, dtype=np.int32)
        number[group, tile] = np.arange(count)
        lists = lists_of(tile, np.arange(count), tiles, count + pad[1] - 1)
        # The group that no output belongs to is the last one.
        exists = np.concatenate([columns >= 0, np.zeros((1, columns.shape[1]), bool)])
        floors = None
        if floor is not None:
            floors = np.ones(exists.shape, floor.dtype)
            floors[exists] = floor[columns[columns >= 0]]
            floors = put(floors)
        return Blocks(
            put(np.pad(group, pad, constant_values=groups).astype(np.int32)),
            put(np.pad(tile, pad).astype(np.int32)),
            put(number),
            put(lists),
            self._real,
            put(exists),
            floors,
        )

    # Pairs.

    def _near(self, reach: float) -> Near:
        """Pairs of tiles within `reach` of each other, at least.

        The shortest and the longest list are kept: a later call asks for the same, of lengths that
        are compiled for. As one list where tables have many groups; with their distances there and
        for kernels of our own.
        """
        many = self.cut.blocks.floors is not None
        place = next((k for k, (far, _) in enumerate(self._lists) if far >= reach), None)
        if place is None:
            # The old ones make room first.
            del self._lists[0 if many else 1 :]
            pairs = self.tiles.pairs(SPARE * reach)
            pad = 0, ladder(len(pairs.second)) - len(pairs.second)
            near = Near(
                put(np.pad(pairs.first, pad).astype(np.int32)),
                put(np.pad(pairs.second, pad).astype(np.int32)),
                put(np.pad(pairs.between, pad, constant_values=np.inf)),
                None,
                self._measure,
            )
            place = len(self._lists)
            self._lists.append((SPARE * reach, near))
        reach, near = self._lists[place]
        reads = many or self.kernels != "xla"
        has, used = memory()
        most = int(HELD * (has - used) / DISTANCES) if has else MOST_HELD
        if reads and near.table is None and len(near.first) <= most:
            near = near._replace(table=blocks.distances(near, self._real))
            self._lists[place] = (reach, near)
        return near

    def _numbered(self, c: Blocks, near: Near, mask: Array, count: Array) -> Pairs:
        return Pairs(c, near, blocks.places(mask, power(int(count))))

    def _acting(self, z: Array, epsilon: float, nats: float) -> Pairs:
        """Pairs of blocks that may raise each other: those within `nats`, and within what log
        ratios allow."""
        reach = self.cut.reach
        if np.isinf(reach):
            reach = float(blocks.span(jnp.log(z), None, self.cut.blocks)) / epsilon
        near = self._near(max(TOUCHING, min(reach, nats / epsilon)))
        if self._pairs is None or self._pairs.near is not near:
            c = self.cut.blocks
            self._pairs = self._numbered(c, near, *blocks.pair_mask(c, near, "both"))
        return self._pairs

    # Tables in and out.

    def start(self, matrix: FloatArray, floor: float | FloatArray = FLOOR) -> Any:
        """The table on the device; `matrix` may lie there already, along the order in space."""
        with precise():
            row = put(floor_row(floor, self.outputs))
            return blocks.start(*self._rows(matrix), self.cut.blocks, row)

    def _rows(self, matrix: Any) -> tuple[Array, Array]:
        """A table on the device and where it has the rows of the tiles."""
        if isinstance(matrix, np.ndarray):
            return put(matrix), self.records
        return matrix, self._positions

    def _tiled(self, matrix: Any) -> Array:
        return blocks.tiled(*self._rows(matrix), self.cut.blocks)

    def host(self, z: Any) -> FloatArray:
        with precise():
            return np.asarray(blocks.by_slot(z, self.slot[self.place]))

    def survey(self, matrix: FloatArray, weighted: FloatArray) -> tuple[FloatArray, float]:
        with precise():
            peaks, loss = blocks.survey(
                *self._rows(matrix), self.cut.blocks, self._weights(weighted)
            )
            return np.asarray(peaks), float(loss)

    def expected(self, z: Any, weighted: FloatArray) -> float:
        with precise():
            return float(blocks.expected(z, self._weights(weighted)))

    def _weights(self, weighted: FloatArray) -> Array:
        if self._weighted is None or self._weighted[0] is not weighted:
            self._weighted = (weighted, self._tiled(weighted))
        return self._weighted[1]

    def cut_for(
        self, columns: IntArray, sees: BoolArray, z: Any, floor: FloatArray, epsilon: float
    ) -> tuple[Closure, Any]:
        """As `Closure.cut_for`, of whole tiles; `z` may be longer than there are nodes."""
        with precise():
            mask, at = self._nodes(sees)
            first = self._blocks(mask, columns, floor)
            rows = floored.gathered(z, at, blocks=len(first.group))
            lifts, highest = floored.lifts(rows, first)
            room = ROOM * epsilon
            reach = float(highest) / room * (1 + 1e-9)
            near = self.over(BlockCut(columns, floor, first, reach))._near(reach)
            pairs = self._numbered(first, near, *floored.cover_mask(lifts, first, near, room))
            # A block that nothing rises from is not needed.
            c = self._blocks(np.asarray(floored.covered(lifts, pairs, room)), columns, floor)
            closure = self.over(BlockCut(columns, floor, c, reach))
            place = np.full(len(first.group), -1, dtype=np.int32)
            place[: mask.sum()] = np.asarray(c.number)[:-1][mask]
            begun = floored.raised(rows, place, c)
        return closure, closure.scaled(begun)[0]

    def _nodes(self, sees: BoolArray) -> tuple[BoolArray, tuple[Array, Array]]:
        """Which blocks hold the nodes `sees` (groups, K, by position), and the nodes' blocks and
        rows, padded as the table of a solver; what is no node lies in no block."""
        if self._seen is None or self._seen[0] is not sees:
            group, position = np.nonzero(sees)
            tile, row = np.divmod(self.slot[position], TILE)
            mask = np.zeros((len(sees), self.tiles.count), dtype=bool)
            mask[group, tile] = True
            number = np.cumsum(mask.ravel()).reshape(mask.shape) - 1
            pad = (0, ladder(len(group) + 1) - len(group))
            block, row = (
                put(np.pad(part.astype(np.int32), pad, constant_values=NOWHERE))
                for part in (number[group, tile], row)
            )
            self._seen = (sees, mask, (block, row))
        return self._seen[1:]

    def rows(self, z: Array) -> tuple[IntArray, Int32Array, FloatArray]:
        with precise():
            return self._entries(z, *floored.stored(z, self.cut.blocks))

    def whole_rows(self, z: Array, total: int, slack: float) -> tuple[Any, ...]:
        """Whole numbers in place of probabilities, every row summing to `total`: the floor, starts,
        columns and numbers. As `quantise_floored` rounds."""
        cut = self.cut
        least = np.floor(cut.floor * total).astype(np.int64)
        listed = np.where(cut.columns >= 0, least[cut.columns], 0)
        with precise():
            stored, count = floored.stored(z, cut.blocks)
            room = np.int64(total - int(least.sum()))
            whole = floored.whole(
                z, stored, np.pad(listed, ((0, 1), (0, 0))), cut.blocks, room, slack
            )
            return least, *self._entries(whole, stored, count)

    def _entries(self, z: Array, stored: Array, count: Array) -> tuple[IntArray, Int32Array, Any]:
        """The entries that are stored, by record: starts, columns and values."""
        names = (self.records, np.pad(self.cut.columns, ((0, 1), (0, 0))))
        shape = (self.domain.size, len(self.cut.floor))
        starts, *listed = floored.entries(
            z, stored, self.cut.blocks, names, shape, ladder(int(count))
        )
        column, value = (np.asarray(part)[: int(count)] for part in listed)
        return np.asarray(starts), column, value

    # Closing and scaling.

    def scaled(self, closed: Array, active: Any = None) -> tuple[Array, Array]:
        """Rows scaled to sum to 1 over the floor, and their sums before."""
        total, c = np.float64(self.cut.floor.sum()), self.cut.blocks
        with precise():
            if c.floors is None:
                return blocks.divide(closed, c)
            return blocks.scale(closed, c, total)

    def close(
        self,
        z: Array,
        epsilon: float,
        active: Any = None,
        nats: float = np.inf,
    ) -> Array:
        """`Closure.close` block by block; `active` (T, 64)."""
        with precise():
            pairs = self._acting(z, epsilon, nats)
            rows = self._every if active is None else active
            run = partial(
                blocks.close, z, pairs, rows, np.float64(epsilon), np.float64(nats),
            )  # fmt: skip
            if self.kernels != "xla" and pairs.near.table is not None:
                try:
                    return run(kernels=self.kernels)
                except Exception:
                    # Not for this size.
                    self.kernels = "xla"
                    triton.warn_slower()
            return run(kernels="xla")

    def rounds(self, z: Any, epsilon: float, nats: float = np.inf) -> Rounds:
        """As `Closure.rounds`, though each of a dense table is followed by a few that it does not
        count: entries are raised by the nearest records alone."""
        if self.near_first and self.cut.blocks.floors is None:
            yield from self._dense_rounds(z, epsilon, nats, centred=False)
        active = None
        while True:
            z, sums = self.scaled(self.close(z, epsilon, active, nats))
            with precise():
                active = sums > 1 + SETTLED
            yield z, sums

    def centred_rounds(
        self, z: Any, epsilon: float, nats: float = np.inf, sums: Any = None
    ) -> Rounds:
        """As `Closure.centred_rounds` for all rows, of dense tables in the way of `rounds`."""
        if self.near_first and self.cut.blocks.floors is None:
            yield from self._dense_rounds(z, epsilon, nats, centred=True)
        for side in itertools.cycle((self.lowered, self.close)):
            with precise():
                z, sums = self.scaled(side(z, epsilon, None, nats))
            yield z, sums

    def _dense_rounds(self, z: Any, epsilon: float, nats: float, centred: bool) -> Rounds:
        """Rounds over all sources, of z and of 1 / z where `centred`, each followed by some over
        the nearest records."""
        limits = np.float64(epsilon), np.int32(BETWEEN_ROUNDS), np.float64(AGREED * epsilon)
        while True:
            closed = self.close(z, epsilon, None, nats)
            if centred:
                with precise():
                    closed = jnp.sqrt(closed * self.lowered(z, epsilon, None, nats))
            z, sums = self.scaled(closed)
            yield z, sums
            with precise():
                z, sums = blocks.raise_and_divide(
                    z, self._nearest, self.cut.blocks, limits, centred=centred
                )

    def excess(self, sums: Any) -> float:
        with precise():
            return float(blocks.excess(sums, self._nearest))

    @cached_property
    def _every(self) -> Array:
        return put(np.ones(self.members.shape, bool))

    @cached_property
    def _nearest(self) -> tuple[Array, Array]:
        """`near` by slots of the tiles; what is padding has itself, infinitely far."""
        near, distance = self.near
        size = self.members.size
        slots = np.repeat(np.arange(size, dtype=np.int32)[:, None], near.shape[1], axis=1)
        away = np.full(slots.shape, np.inf)
        slots[self.slot] = self.slot[near]
        away[self.slot] = distance
        with precise():
            return put(slots), put(away)

    def mixed(self, z: Any, share: float) -> tuple[Closure, Any]:
        c = self.cut.blocks
        total = float(self.cut.floor.sum())
        with precise():
            if c.floors is None:
                return self, (1 - share) * z + share / z.shape[-1]
            rise = (1 - share) + share / total
            table = (1 - share) * z + share / total * c.spread(c.floors)
            table = jnp.where(c.spread(c.exists), table, 1.0)
            c = c._replace(floors=jnp.where(c.exists, rise * c.floors, 1.0))
        return self.over(replace(self.cut, floor=self.cut.floor * rise, blocks=c)), table

    # What a table is worth.

    def rate(self, z: Any) -> float:
        floors = self.cut.blocks.floors
        with precise():
            return self._largest(jnp.log(z), None if floors is None else jnp.log(floors))[0]

    def _largest(self, logs: Array, under: Array | None) -> tuple[float, int, int]:
        """The largest rate over all pairs of records, and the positions of the pair; `under` are
        the logarithms of the floors.

        Equal rows count as well here, with the error of their logarithms.
        """
        c = self.cut.blocks
        members = self.members
        best, where, reach = 0.0, (0, 1), TOUCHING
        widest = float(blocks.span(logs, under, c)) + LOG_ERROR
        # Tiles that touch give a rate that far ones must exceed to be looked at.
        for far in (False, True):
            near = self._near(reach)
            pairs = self._numbered(c, near, *blocks.pair_mask(c, near, "later"))
            limits = (np.float64(self._shrink), np.float64(best), np.bool_(far))
            value, pair, rows = blocks.worst(logs, under, pairs, limits)
            if int(pair) >= 0:
                best = float(value)
                p = int(pair) % len(near.first)
                i, j = divmod(int(rows), TILE)
                first, second = (np.asarray(side)[p] for side in near[:2])
                where = (int(members[first, i]), int(members[second, j]))
            reach = widest / (best * self._shrink) * (1 + 1e-9) if best > 0 else np.inf
        return best, *where

    def largest(
        self, rows: IntArray | FlooredRows, logs: FloatArray | None = None
    ) -> tuple[float, int, int]:
        """The audit's value and pair of records for whole numbers in the domain's order; `logs` are
        their logarithms where they are given."""
        with precise():
            if isinstance(rows, FlooredRows):
                closure, values = self._filled(rows)
            else:
                closure, values = self, (self._tiled(rows if logs is None else logs), None)
            if logs is None and jax.default_backend() == "gpu":
                values = floored.logs_of(values)
            elif logs is None:
                # A device's own logarithm is known to err by 1 ulp on CUDA alone.
                host = jax.tree.map(np.asarray, values)
                values = jax.tree.map(lambda w: np.log(np.maximum(w, 1).astype(float)), host)
            value, i, j = closure._largest(*values)
        return value, int(self.order[i]), int(self.order[j])

    def _filled(self, rows: FlooredRows) -> tuple[Self, tuple[Array, Any]]:
        """The closure over the blocks that hold all stored entries, the weights in them and the
        floors under them."""
        size, outputs = rows.shape
        slot = np.empty(size, np.int32)
        slot[self.order] = self.slot
        pad = (0, ladder(rows.stored) - rows.stored)
        # Padded here: on the device every number of entries would be compiled for.
        listed = tuple(put(np.pad(a, pad, mode="edge")) for a in (rows.columns, rows.values))
        slots, place, mask = floored.places_of_entries(
            put(slot), put(np.diff(rows.starts)), listed, outputs, self.tiles.count, WIDTH
        )
        columns = np.full((len(mask), WIDTH), -1)
        columns.ravel()[np.asarray(place)] = np.arange(outputs)
        floor = np.maximum(rows.floor, 1)
        c = self._blocks(np.asarray(mask), columns, floor)
        closure = self.over(BlockCut(columns, floor, c))
        return closure, (floored.filled(slots, place, listed, c), c.floors)

    def broken(
        self, z: Any, epsilon: float, nats: float, gains: tuple[float, float], most: int
    ) -> tuple[IntArray, FloatArray]:
        limits = tuple(map(np.float64, (epsilon, nats, gains[0])))
        with precise():
            pairs = self._acting(z, epsilon, nats)
            first, second, between = (np.asarray(part) for part in pairs.near[:3])
            within = np.flatnonzero((epsilon * between < nats) & np.isfinite(between))
            rank = np.zeros(len(first), np.int32)
            rank[within] = np.arange(len(within))
            lists = lists_of(first[within], np.arange(len(within)), self.tiles.count, -1)
            units = blocks.gains(z, pairs, rank, limits, size=ladder(len(within)))
            found = blocks.largest_of_rows(units, lists, most)
            units, column = (np.asarray(part) for part in found)
        mass = units / blocks.GAIN_UNITS
        tile, row, k = np.nonzero(mass > gains[1])
        at = column[tile, row, k]
        starts = self.tiles.starts
        other = second[within[lists[tile, at // TILE]]]
        return np.stack([starts[tile] + row, starts[other] + at % TILE], axis=1), mass[tile, row, k]


class JaxLinkClosure(LinkClosure, JaxClosure):
    """Closes along the pairs that imply all others, all rows together."""

    patience = Closure.patience

    @cached_property
    def _links(self) -> tuple[Array, Array]:
        """The k-th neighbour of every row of the tiles, (most, rows), and how far it is; where
        there is none the row itself, infinitely far."""
        links = self._whole
        count = np.diff(links.starts)
        shape = (int(count.max()), self.members.size)
        others = np.tile(np.arange(shape[1], dtype=np.int32), (shape[0], 1))
        away = np.full(shape, np.inf)
        place = np.arange(len(links.others)) - links.starts[links.firsts], self.slot[links.firsts]
        others[place] = self.slot[links.others]
        away[place] = links.lengths
        return put(others), put(away)

    def close(self, z: Any, epsilon: float, active: Any = None, nats: float = np.inf) -> Any:
        with precise():
            return blocks.relax(z, self._links, np.float64(epsilon))

    def excess(self, sums: Any) -> float:
        return float(self._excesses(np.asarray(sums).ravel()[self.slot]).max())

    def rate(self, z: Any) -> float:
        whole = self.host(z)
        return host_rate(self.domain, np.log(whole), whole.view(np.int64))[0]


def lists_of(owner: IntArray, what: IntArray, owners: int, fill: int) -> Int32Array:
    """What belongs to every owner, in order, padded to a common length."""
    counts = np.bincount(owner, minlength=owners)
    along = np.argsort(owner, kind="stable")
    place = np.arange(len(owner)) - offsets(counts)[owner[along]]
    lists: Int32Array = np.full((owners, ladder(int(counts.max()))), fill, dtype=np.int32)
    lists[owner[along], place] = what[along]
    return lists


def power(count: int) -> int:
    """The next power of two: lists are long or short, and few lengths are compiled for."""
    return 1 << max(3, (max(1, count) - 1).bit_length())


@lru_cache(maxsize=2)
def closure_for(domain: Domain, outputs: int = WIDTH) -> JaxClosure:
    """The closure of a domain, kept: audits of one domain follow each other."""
    links = domain.metric.generating_pairs is not None
    return (JaxLinkClosure if links else JaxClosure)(domain, outputs)


def device_rate(
    domain: Domain,
    rows: IntArray | FlooredRows,
    logs: FloatArray | None = None,
    closure: Any = None,
) -> tuple[float, int, int] | None:
    """The largest rate and its pair of records; None where the host has to do it: the metric is not
    measured here, the device's memory does not suffice, or the rows of the pair are alike."""
    sparse = isinstance(rows, FlooredRows)
    if not measures(domain.metric) or (isinstance(rows, FlooredRows) and rows.stored == 0):
        return None
    try:
        if closure is None:
            closure = closure_for(domain, WIDTH if sparse else rows.shape[1])
        value, i, j = closure.largest(rows, logs)
    except RuntimeError as error:
        if MEMORY_FULL not in str(error):
            raise
        return None
    # Equal rows count as 0 on the host; here they have the error of the logarithms.
    return None if np.array_equal(rows[i], rows[j]) else (value, i, j)
