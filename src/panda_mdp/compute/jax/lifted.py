"""Tables over a floor on an accelerator, closed and audited block by block.

Groups of outputs and tiles of records are the blocks of compute/jax/blocks.py. A cut holds whole
tiles: rows of theirs that nothing raises stay at the floor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.base.floored import FlooredRows, Int32Array
from panda_mdp.compute.backend import MEMORY_FULL
from panda_mdp.compute.closure import ROOM, SETTLED, Closure
from panda_mdp.compute.jax import blocks, triton
from panda_mdp.compute.jax.blocks import Distances, Kernels, Layout, Pairs
from panda_mdp.compute.jax.device import (
    Array,
    Placement,
    TileGrid,
    distance_error,
    ladder,
    make_mesh,
    measures,
    precise,
)
from panda_mdp.compute.rate import ARITHMETIC_ERROR, LOG_ERROR, WIDTH
from panda_mdp.errors import MethodError
from panda_mdp.space.domain import Domain
from panda_mdp.space.tiles import TILE

NOWHERE = np.iinfo(np.int32).max
MOST_SCALINGS = 40
"""They end as soon as all rows stand still: a row that is off moves when it is quantised."""
SPARE = 1.02
"""Of the reach: distances are computed a little farther than they are asked for, and not again."""


@dataclass(frozen=True)
class BlockCut:
    """Groups of outputs and the blocks that each has."""

    columns: IntArray
    """(groups, width) outputs; -1 where a group has fewer."""
    floor: FloatArray
    """(m,)."""
    layout: Layout
    floors: Array
    """(groups + 1, width) on the device; 1 in columns that do not exist."""
    exists: Array
    pairs: Pairs
    """All pairs of blocks of one group within reach of each other."""


@dataclass(frozen=True)
class Seen:
    """The blocks that the nodes of a solver lie in."""

    mask: BoolArray
    """(groups, T)."""
    block: Array
    """Of every node, counted where the mask is true."""
    row: Array
    group: Array


@dataclass
class Measured:
    """Distances on a device that closures and audits of one domain share."""

    near: Distances | None = None


@lru_cache(maxsize=1)
def _measured(domain: Domain, device: Any) -> Measured:
    return Measured()


class JaxLiftedClosure(Closure):
    """`Closure` of tables over a floor on one accelerator; they are (blocks, 64, width) there, sums
    of rows (T, 64)."""

    cut: Any
    rest = 0.0

    def __init__(self, domain: Domain, device: Any, chunk: int = blocks.CHUNK) -> None:
        super().__init__(domain)
        self.device, self._chunk = device, chunk
        with precise():
            place = Placement(make_mesh([self.device]), TILE)
            self.grid = TileGrid.build(domain.metric, self.tiles, place)
            self._between = self._put(self.tiles.between)
            self.kernels: Kernels = "triton" if triton.available(self.device) else "xla"
        self._measured = _measured(domain, self.device)
        self._shrink = 1 - (distance_error(domain.metric) + ARITHMETIC_ERROR)
        tile = np.searchsorted(self.tiles.starts, np.arange(domain.size), side="right") - 1
        self.tile = tile
        self.slot = tile * TILE + np.arange(domain.size) - self.tiles.starts[tile]
        """Of every position: its place among the rows of all tiles."""

    def _put(self, array: Any) -> Array:
        return jax.device_put(array, self.device)

    def near_distances(self, reach: float) -> Distances:
        """Distances of all tiles within `reach` of each other, at least."""
        known = self._measured.near
        if known is None or known.reach < reach:
            # The old ones make room first.
            self._measured.near = known = None
            known = Distances.build(self.grid, self.tiles, SPARE * reach, self.device, self._chunk)
            self._measured.near = known
        return known

    def cut_for(
        self,
        columns: IntArray,
        seen: BoolArray,
        rows: Array,
        floor: FloatArray,
        epsilon: float,
    ) -> tuple[Closure, Array]:
        """The closure over the blocks that a table needs, all that closing at `epsilon` raises
        above the floor, and the table on them: above the floor, rows summing to 1. The table is
        given as `rows`, blocks where `seen` (groups, T) is true, in that order."""
        with precise():
            under = np.where(columns >= 0, floor[np.maximum(columns, 0)], 1.0)
            floors = self._put(np.concatenate([under, np.ones((1, columns.shape[1]))]))
            exists = self._put(
                np.concatenate([columns >= 0, np.zeros((1, columns.shape[1]), bool)])
            )
            first = Layout.build(seen, self.device)
            lifts, highest = _lifts(rows, floors, exists, first.arrays, self.grid.real)
            room = ROOM * epsilon
            near = self.near_distances(float(highest) / room * (1 + 1e-9))
            mask = self._covered(first, lifts, near, room, seen)
            layout = Layout.build(mask, self.device)
            pairs = Pairs.build(layout, near, self._between, both=True, most=self._chunk)
            closure = self.over(BlockCut(columns, floor, layout, floors, exists, pairs))
            at = np.full(first.size, layout.size - 1, dtype=np.int32)
            at[: first.count] = layout.number[np.nonzero(seen)]
            begun = _raised(rows, floors, exists, layout.arrays, self._put(at))
        return closure, closure.scaled(begun)[0]

    def gathered(self, seen: Seen, z: Array, fold: IntArray) -> Array:
        """A table of nodes (nodes, width) as the blocks that `seen` lists; column k of group g
        counts as column `fold[g, k]`."""
        # Whole on every device of every process: this one's own is enough.
        z = z.addressable_data(0) if isinstance(z, jax.Array) else z
        with precise():
            shape = (ladder(int(seen.mask.sum()) + 1), TILE, z.shape[1])
            at = (seen.block, seen.row, seen.group)
            return _gathered(self._put(z), *at, self._put(fold), shape)

    def seen(self, sees: BoolArray) -> Seen:
        """Where the nodes `sees` (groups, K, by position) lie, group by group."""
        group, position = np.nonzero(sees)
        tile = self.tile[position]
        mask = np.zeros((len(sees), len(self.tiles.starts) - 1), dtype=np.bool_)
        mask[group, tile] = True
        number = np.cumsum(mask.ravel()).reshape(mask.shape) - 1
        listed = (number[group, tile], self.slot[position] % TILE, group)
        # As long as the table of a solver; what is no node lies in no block.
        pad = (0, ladder(len(group) + 1) - len(group))
        block, row, own = (
            self._put(np.pad(part.astype(np.int32), pad, constant_values=fill))
            for part, fill in zip(listed, (NOWHERE, 0, 0), strict=True)
        )
        return Seen(mask, block, row, own)

    def _covered(
        self, first: Layout, lifts: Array, near: Distances, room: float, seen: BoolArray
    ) -> BoolArray:
        wanted, count = blocks.cover_mask(lifts, first.arrays, near.pair, self._between, room)
        chunk, size = blocks.chunks_for(int(count), self._chunk)
        listed = blocks.nonzero(wanted, size)
        mask = np.zeros((len(seen) + 1, seen.shape[1]), dtype=np.bool_)
        chunks = np.int64(size // chunk)
        inside = blocks.covered(
            lifts, first.arrays, near.table, near.pair, listed, chunks, room, mask, chunk
        )
        # A block that nothing rises from is not needed.
        return np.asarray(inside)[:-1]

    def scaled(self, closed: Array, active: Any = None) -> tuple[Array, Array, Any]:
        """Rows scaled to sum to 1 over the floor, and their sums before."""
        cut = self.cut
        with precise():
            z, sums = blocks.scale(
                closed, cut.layout.arrays, self.grid.real, cut.floors, cut.exists,
                float(cut.floor.sum()), MOST_SCALINGS,
            )  # fmt: skip
        return z, sums, None

    def close(
        self,
        z: Array,
        epsilon: float,
        active: Any = None,
        nats: float = np.inf,
        sources: Any = None,
    ) -> Array:
        """`Closure.close` block by block; `active` (T, 64)."""
        pairs = self.cut.pairs
        with precise():
            return self._run(
                blocks.close, z, self.cut.layout.arrays, self.grid.real, pairs.near.table,
                pairs.lists, self._every if active is None else active, np.float64(epsilon),
                np.float64(nats), pairs.chunk,
            )  # fmt: skip

    def _run(self, loop: Callable[..., Array], *args: Any) -> Array:
        """A loop of `blocks` by kernels where they compile, for this size too, else by XLA."""
        if self.kernels == "triton":
            try:
                return loop(*args, self.kernels)
            except Exception:
                self.kernels = "xla"
        return loop(*args, self.kernels)

    def rounds(
        self, z: Array, epsilon: float, nats: float = np.inf
    ) -> Iterator[tuple[Array, Array]]:
        """Tables after closing and scaling once, twice, ..., with the rows' sums before."""
        active = None
        while True:
            z, sums, _ = self.scaled(self.close(z, epsilon, active, nats))
            with precise():
                active = sums > 1 + SETTLED
            yield z, sums

    def centre(self, z: Array, epsilon: float, nats: float = np.inf, active: Any = None) -> Array:
        """`Closure.centre` in blocks: for rows that records next to them hold above 1."""
        with precise():
            inverse = 1 / z
        above, below = (self.close(side, epsilon, active, nats) for side in (z, inverse))
        with precise():
            return jnp.sqrt(above / below)

    def centred_rounds(
        self, z: Array, epsilon: float, nats: float = np.inf, sums: Any = None
    ) -> Iterator[tuple[Array, Array]]:
        """`Closure.centred_rounds`, of all rows."""
        while True:
            z, sums, _ = self.scaled(self.centre(z, epsilon, nats))
            yield z, sums

    def excess(self, sums: Array) -> float:
        with precise():
            return float(_excess(sums, *self._neighbours))

    @cached_property
    def _every(self) -> Array:
        return self._put(np.ones(self.grid.members.shape, dtype=np.bool_))

    @cached_property
    def _neighbours(self) -> tuple[Array, Array, Array]:
        near, distance = self.near
        return self._put(self.slot), self._put(self.slot[near]), self._put(distance)

    def rate(self, z: Array) -> float:
        cut = self.cut
        with precise():
            logs, lifts = _logs(z, cut.floors, cut.exists, cut.layout.arrays)
        return self.largest(cut.layout, logs, lifts)[0]

    def largest(self, layout: Layout, logs: Array, lifts: Array) -> tuple[float, int, int]:
        """The largest rate over all pairs of records, and the positions of the pair; `lifts` are
        the largest log ratios of rows to the floor, -1 of those that are equal to it."""
        with precise():
            return self._largest(layout, logs, lifts)

    def _largest(self, layout: Layout, logs: Array, lifts: Array) -> tuple[float, int, int]:
        c, real = layout.arrays, self.grid.real
        best, where = 0.0, (0, 1)
        span = float(_span(logs, c, real))
        # Tiles that touch give a rate that far ones must exceed to be looked at.
        reach = float(np.finfo(np.float64).tiny)
        while True:
            near = self.near_distances(reach)
            pairs = Pairs.build(layout, near, self._between, both=False, most=self._chunk)
            value, first, second, rows = blocks.worst(
                logs, c, real, near.table, pairs.lists, self._shrink, best, pairs.chunk
            )
            if int(rows) >= 0:
                best = float(value)
                a, b = int(first), int(second)
                i, j = divmod(int(rows), TILE)
                where = (self._position(c, a, i), self._position(c, b, j))
            if best == 0.0:
                reach = np.inf
            else:
                reach = (span + LOG_ERROR) / (best * self._shrink) * (1 + 1e-9)
            if near.reach >= reach:
                break
        mask, some = blocks.fringe_mask(lifts, c, real, self._between, self._shrink, best)
        count = int(some)
        if count:
            chunk, size = blocks.chunks_for(count, self._chunk)
            at = blocks.nonzero(mask, size)
            run = blocks.compiled_fringe(self.grid.distances, chunk)
            value, pair, rows = run(
                lifts, c, self.grid.tables, real, at, np.int64(-(-count // chunk)), self._shrink,
                best,
            )  # fmt: skip
            if int(pair) >= 0:
                best = float(value)
                a, t = divmod(int(pair), len(self.tiles.starts) - 1)
                i, j = divmod(int(rows), TILE)
                where = (self._position(c, a, i), int(self.tiles.starts[t]) + j)
        return best, *where

    def _position(self, c: Any, block: int, row: int) -> int:
        return int(self.tiles.starts[np.asarray(c["tile"])[block]]) + row

    def broken(
        self, z: Array, epsilon: float, nats: float, gains: tuple[float, float], most: int
    ) -> tuple[IntArray, FloatArray]:
        pairs, (each, least) = self.cut.pairs, gains
        first, second = np.nonzero(np.asarray(pairs.near.pair) >= 0)
        near = np.flatnonzero(epsilon * self.tiles.between[first, second] < nats)
        lists = blocks.lists_of(first[near], near, len(self.grid.members), -1)
        with precise():
            units = self._run(
                blocks.gains, z, self.cut.layout.arrays, self.grid.real, pairs.near.table,
                pairs.lists, np.float64(epsilon), np.float64(nats), np.float64(each), pairs.chunk,
            )  # fmt: skip
            ranked = blocks.largest_of_rows(units, self._put(lists), most)
            units, column = (np.asarray(part) for part in ranked)
        tile, row, k = np.nonzero(units > least * blocks.GAIN_UNITS)
        at = column[tile, row, k]
        other = second[lists[tile, at // TILE]]
        starts = self.tiles.starts
        ends = np.stack([starts[tile] + row, starts[other] + at % TILE], axis=1)
        return ends, units[tile, row, k] / blocks.GAIN_UNITS

    def rows(self, z: Array) -> tuple[IntArray, Int32Array, FloatArray]:
        cut = self.cut
        with precise():
            stored, count = _stored(z, cut.floors, cut.exists, cut.layout.arrays, self.grid.real)
            return self._listed(z, stored, int(count))

    def whole_rows(self, z: Array, total: int, slack: float) -> tuple[Any, ...]:
        """Whole numbers in place of probabilities, every row summing to `total`: the floor, starts,
        columns and numbers. As `quantise_floored` rounds."""
        cut = self.cut
        least = np.floor(cut.floor * total).astype(np.int64)
        listed = np.where(cut.columns >= 0, least[np.maximum(cut.columns, 0)], 0)
        under = np.concatenate([listed, np.zeros_like(listed[:1])])
        with precise():
            arrays, real = cut.layout.arrays, self.grid.real
            stored, count = _stored(z, cut.floors, cut.exists, arrays, real)
            room = np.int64(total - int(least.sum()))
            whole = _whole(z, stored, self._put(under), arrays, room, slack)
            return least, *self._listed(whole, stored, int(count))

    def _listed(self, z: Array, stored: Array, count: int) -> tuple[IntArray, Int32Array, Any]:
        """The entries that are stored, by record: starts, columns and values."""
        cut = self.cut
        records = np.full(len(self.grid.members) * TILE, -1, dtype=np.int64)
        records[self.slot] = self.order
        listed = np.concatenate([cut.columns, np.zeros((1, cut.columns.shape[1]), np.int64)])
        starts, column, value = _entries(
            z, stored, cut.layout.arrays, self._put(records), self._put(listed),
            self.domain.size, len(cut.floor), ladder(count),
        )  # fmt: skip
        return np.asarray(starts), np.asarray(column)[:count], np.asarray(value)[:count]

    def mixed(self, z: Array, share: float) -> tuple[Closure, Array]:
        cut = self.cut
        whole = float(cut.floor.sum())
        rise = (1 - share) + share / whole
        with precise():
            floors = jnp.where(cut.exists, cut.floors * rise, 1.0)
            common = share / whole * cut.floors[cut.layout.arrays["group"]][:, None, :]
            there = cut.exists[cut.layout.arrays["group"]][:, None, :]
            table = jnp.where(there, (1 - share) * z + common, 1.0)
        return self.over(replace(cut, floor=cut.floor * rise, floors=floors)), table


@jax.jit
def _lifts(rows: Array, floors: Array, exists: Array, c: Any, real: Array) -> tuple[Array, Array]:
    """`blocks.row_lifts` of records, and the highest."""
    lifts = jnp.where(real[c["tile"]], blocks.row_lifts(rows, floors, exists, c), -jnp.inf)
    return lifts, jnp.max(lifts)


@partial(jax.jit, static_argnames="shape")
def _gathered(
    z: Array, block: Array, row: Array, group: Array, fold: Array, shape: tuple[int, int, int]
) -> Array:
    nodes = min(len(z), len(block))
    at = (block[:nodes, None], row[:nodes, None], fold[group[:nodes]])
    return jnp.zeros(shape).at[at].add(z[:nodes].astype(jnp.float64), mode="drop")


@jax.jit
def _raised(rows: Array, floors: Array, exists: Array, c: Any, at: Array) -> Array:
    """The floor of every block, raised to the rows of the blocks at `at`."""
    begun = jnp.broadcast_to(floors[c["group"]][:, None, :], (len(c["group"]), *rows.shape[1:]))
    begun = begun.at[at].max(rows)
    return jnp.where(exists[c["group"]][:, None, :], begun, 1.0)


@jax.jit
def _excess(sums: Array, own: Array, near: Array, distance: Array) -> Array:
    logs = jnp.log(sums).reshape(-1)
    return jnp.max(jnp.abs(logs[own][:, None] - logs[near]) / distance)


@jax.jit
def _logs(z: Array, floors: Array, exists: Array, c: Any) -> tuple[Array, Array]:
    floor = floors[c["group"]][:, None, :]
    logs = jnp.log(z)
    there = exists[c["group"]][:, None, :]
    lifts = jnp.max(jnp.where(there, jnp.abs(logs - jnp.log(floor)), 0.0), axis=2)
    return logs, jnp.where(jnp.all((z == floor) | ~there, axis=2), -1.0, lifts)


@jax.jit
def _span(logs: Array, c: Any, real: Array) -> Array:
    used = c["group"] < len(c["of_group"]) - 1
    there = (real[c["tile"]] & used[:, None])[:, :, None]
    high = jnp.max(jnp.where(there, logs, -jnp.inf), axis=1)[c["of_group"]]
    low = jnp.min(jnp.where(there, logs, jnp.inf), axis=1)[c["of_group"]]
    return jnp.max(jnp.max(high, axis=1) - jnp.min(low, axis=1))


@jax.jit
def _stored(z: Array, floors: Array, exists: Array, c: Any, real: Array) -> tuple[Array, Array]:
    """What lies above the floor, and how many that is."""
    group = c["group"]
    above = exists[group][:, None, :] & (z > floors[group][:, None, :])
    above &= real[c["tile"]][:, :, None]
    return above, jnp.sum(above)


@partial(jax.jit, static_argnames=("records_count", "outputs", "size"))
def _entries(
    z: Array, stored: Array, c: Any, records: Array, columns: Array, records_count: int,
    outputs: int, size: int,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """What is stored, by record and column: where the records' entries start, columns and values;
    behind it what is not."""
    width = z.shape[2]
    at = jnp.nonzero(stored.reshape(-1), size=size, fill_value=-1)[0]
    lost = at < 0
    at = jnp.maximum(at, 0)
    slot, k = at // width, at % width
    block = slot // TILE
    record = records[c["tile"][block] * TILE + slot % TILE]
    key = record * outputs + columns[c["group"][block], k]
    key = jnp.where(lost, jnp.iinfo(jnp.int64).max, key)
    key, value = jax.lax.sort((key, z.reshape(-1)[at]), num_keys=1)
    starts = jnp.searchsorted(key, jnp.arange(records_count + 1) * outputs)
    return starts, (key % outputs).astype(jnp.int32), value


@jax.jit
def _whole(z: Array, stored: Array, under: Array, c: Any, room: Array, slack: Any) -> Array:
    """Whole numbers of at least `under` for what is stored, in proportion to z, so that a row fills
    `room` and what lies under its entries; what is left goes to its largest entry."""

    def by_record(part: Array) -> Array:
        return jnp.sum(jnp.sum(part, axis=2)[c["of_tile"]], axis=1)

    z = jnp.where(stored, z, 0.0)
    least = jnp.where(stored, under[c["group"]][:, None, :], 0)
    mass = by_record(z)
    share = z / jnp.where(mass > 0, mass, 1.0)[c["tile"]][:, :, None]
    room = room + by_record(least)
    whole = jnp.zeros(z.shape, jnp.int64)
    for _ in range(2):
        # Twice a little less than the whole, so that what is missing is never negative.
        missing = ((room - by_record(whole)) * (1 - slack))[c["tile"]][:, :, None]
        whole += jnp.floor(share * missing).astype(jnp.int64)
    whole = jnp.maximum(whole, least)
    missing = room - by_record(whole)
    highest = jnp.max(whole, axis=2)[c["of_tile"]]
    block = jnp.take_along_axis(c["of_tile"], jnp.argmax(highest, axis=1), axis=1)
    row = jnp.broadcast_to(jnp.arange(TILE), block.shape)
    column = jnp.argmax(whole[block, row], axis=2)
    return whole.at[block, row, column].add(missing)


@lru_cache(maxsize=1)
def _closure_for(domain: Domain) -> JaxLiftedClosure:
    """Kept: audits of one domain follow each other. This process's own device: others may have
    nothing to audit."""
    return JaxLiftedClosure(domain, jax.local_devices()[0])


def device_rate(
    domain: Domain, rows: FlooredRows, closure: Any = None
) -> tuple[float, int, int] | None:
    """`floored_rate`, with records by number; None where the host has to do it: the metric is not
    measured here, the pairs or the device's memory do not suffice, or all rows are alike."""
    if not measures(domain.metric) or rows.stored == 0:
        return None
    closure = _closure_for(domain) if closure is None else closure
    try:
        with precise():
            layout, weights, floors = _blocks(closure, rows)
            logs = None
            if closure.device.platform != "gpu":
                # A device's own logarithm is known to err by 1 ulp on CUDA alone.
                host = (np.log(np.asarray(part).astype(np.float64)) for part in (weights, floors))
                logs = tuple(closure._put(part) for part in host)
            logs, lifts = _weight_lifts(weights, floors, logs, layout.arrays)
        value, i, j = closure.largest(layout, logs, lifts)
    except MethodError:
        return None
    except RuntimeError as error:
        if MEMORY_FULL not in str(error):
            raise
        return None
    first, second = int(closure.order[i]), int(closure.order[j])
    # Equal rows count as 0 on the host; here they have the error of the logarithms.
    return None if np.array_equal(rows[first], rows[second]) else (value, first, second)


def _blocks(closure: JaxLiftedClosure, rows: FlooredRows) -> tuple[Layout, Array, Array]:
    """The blocks that hold all stored entries, the weights in them, and the floors of groups."""
    outputs = rows.shape[1]
    put = closure._put
    slot = np.empty(rows.shape[0], dtype=np.int32)
    slot[closure.order] = closure.slot
    size = ladder(rows.stored)
    # Padded here: on the device every number of entries would be compiled for.
    column, value = (put(_padded(part, size)) for part in (rows.columns, rows.values))
    record, place, mask = _spread(
        put(slot), put(np.diff(rows.starts)), column, value, outputs, len(closure.grid.members)
    )
    floors = np.ones((-(-outputs // WIDTH) + 1) * WIDTH, dtype=np.int64)
    floors[np.asarray(place)] = np.maximum(rows.floor, 1)
    under = put(floors.reshape(-1, WIDTH))
    layout = Layout.build(np.asarray(mask), closure.device)
    weights = _filled(record, column, value, place, under, layout.arrays)
    return layout, weights, under


def _padded(entries: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """The last one again and again behind them."""
    out = np.empty(size, dtype=entries.dtype)
    out[: len(entries)] = entries
    out[len(entries) :] = entries[-1]
    return out


@partial(jax.jit, static_argnames=("outputs", "tiles"))
def _spread(
    slot: Array, count: Array, column: Array, value: Array, outputs: int, tiles: int
) -> Any:
    """The slot of every entry, of padding the last one again; the place of every output, such that
    those whose largest weights lie near each other go together; and which groups of places have an
    entry in which tiles."""
    slot = jnp.repeat(slot, count, total_repeat_length=len(column))
    highest = jnp.zeros(outputs, jnp.int64).at[column].max(value)
    none = jnp.iinfo(jnp.int32).max
    first = jnp.where(value == highest[column], slot, none)
    peaks = jnp.full(outputs, none, jnp.int32).at[column].min(first)
    ranks = jnp.arange(outputs, dtype=jnp.int32)
    place = jnp.zeros_like(ranks).at[jnp.argsort(peaks, stable=True)].set(ranks)
    mask = jnp.zeros((-(-outputs // WIDTH), tiles), bool)
    return slot, place, mask.at[place[column] // WIDTH, slot // TILE].set(True)


@jax.jit
def _filled(slot: Array, column: Array, value: Array, place: Array, floors: Array, c: Any) -> Array:
    begun = jnp.broadcast_to(floors[c["group"]][:, None, :], (len(c["group"]), TILE, WIDTH))
    group, k = place[column] // WIDTH, place[column] % WIDTH
    block = c["number"][group, slot // TILE]
    # A column that is 0 in all rows tells nothing.
    return begun.at[block, slot % TILE, k].set(jnp.maximum(value, 1))


@jax.jit
def _weight_lifts(weights: Array, floors: Array, logs: Any, c: Any) -> tuple[Array, Array]:
    """Logarithms, given with those of the floors or computed here, and by how much a row of a block
    lies off the floor, in nats; -1 where it is the floor."""
    if logs is None:
        logs = (jnp.log(part.astype(jnp.float64)) for part in (weights, floors))
    logs, under = logs
    lifts = jnp.max(jnp.abs(logs - under[c["group"]][:, None, :]), axis=2)
    same = jnp.all(weights == floors[c["group"]][:, None, :], axis=2)
    return logs, jnp.where(same, -1.0, lifts)
