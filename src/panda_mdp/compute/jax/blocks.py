"""Tables in blocks on one accelerator: a group of outputs times a tile of records.

A block holds the rows of one tile (64 records) in one group of outputs; what no block holds is at
the group's floor. Pairs of blocks of one group are listed on the device, those out of reach left
out, and gone through in chunks; distances of tile pairs are computed once. float64 throughout.

Arrays are padded to a ladder of sizes: the last block is of no tile, its group of no output. Rows
that are no records are infinitely far from all, and outputs that do not exist are 1 in every row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.base.floored import Int32Array
from panda_mdp.compute.jax import triton
from panda_mdp.compute.jax.device import Array, TileGrid, ladder
from panda_mdp.compute.rate import LOG_ERROR
from panda_mdp.errors import MethodError
from panda_mdp.space.tiles import TILE, Tiles

Kernels = Literal["xla", "triton", "interpret"]
"""What closes: XLA, kernels of our own (compute/jax/triton.py), or these step by step in tests."""
CHUNK = 8192
"""Pairs of blocks that are gone through together."""
GAIN_UNITS = 2.0**40
"""Of a row's mass: gains are added up as whole numbers, in whatever order."""
MOST_DISTANCES = 1 << 20
"""Pairs of tiles whose distances are held, 32 KB for each."""


@dataclass(frozen=True)
class Distances:
    """Distances between the records of tiles that are near each other, on the device."""

    reach: float
    """Tiles that are this far from each other, or farther, are left out."""
    pair: Array
    """(T, T): the number of a pair of tiles in `table`; -1 where it is left out."""
    table: Array
    """(pairs, 64, 64); inf where a row is no record."""

    @classmethod
    def build(cls, grid: TileGrid, tiles: Tiles, reach: float, device: Any, most: int) -> Distances:
        """Of all pairs of tiles that may hold records nearer than `reach`."""
        first, second = np.nonzero(tiles.between < reach)
        if len(first) > MOST_DISTANCES:
            msg = (
                f"{len(first):,} pairs of tiles within reach do not fit the accelerator; "
                "use fewer records, a larger epsilon or backend='cpu'"
            )
            raise MethodError(msg)
        number = np.full(tiles.between.shape, -1, dtype=np.int32)
        number[first, second] = np.arange(len(first))
        chunk, size = chunks_for(len(first), most)
        if size > chunk:
            # Distances take room: whole chunks of them, four to eight sizes to a doubling.
            chunks = -(-len(first) // chunk)
            step = 1 << max(0, chunks.bit_length() - 3)
            size = -(-chunks // step) * step * chunk
        pad = size - len(first)
        listed = [np.pad(side, (0, pad), mode="edge").astype(np.int32) for side in (first, second)]
        run = _compiled_distances(grid.distances, chunk)
        table = run(grid.tables, grid.real, *(jax.device_put(side, device) for side in listed))
        return cls(reach, jax.device_put(number, device), table)


@cache
def _compiled_distances(distances: Any, chunk: int) -> Any:
    def fill(tables: Any, real: Array, first: Array, second: Array) -> Array:
        def body(pair: Any) -> Array:
            a, b = pair
            there = real[a][:, :, None] & real[b][:, None, :]
            return jnp.where(there, distances(tables, a, b), jnp.inf)

        parts = (first.reshape(-1, chunk), second.reshape(-1, chunk))
        return jax.lax.map(body, parts).reshape(-1, TILE, TILE)

    return jax.jit(fill)


@dataclass(frozen=True)
class Layout:
    """Which groups have a block in which tiles."""

    count: int
    number: Int32Array
    """(groups, T): the block of a group and a tile; the last one, which is empty, where none is."""
    arrays: dict[str, Array]
    """On the device: `group` and `tile` of every block, `of_group` (groups + 1, most) and `of_tile`
    (T, most) their blocks, padded with the last one."""

    @classmethod
    def build(cls, mask: BoolArray, device: Any) -> Layout:
        """Blocks where `mask` (groups, T) is true, group by group."""
        group, tile = np.nonzero(mask)
        count = len(group)
        size = ladder(count + 1)
        number: Int32Array = np.full(mask.shape, size - 1, dtype=np.int32)
        number[group, tile] = np.arange(count)
        # The group that no output belongs to is the last one.
        padded = np.full(size, len(mask), dtype=np.int32)
        padded[:count] = group
        tiles = np.zeros(size, dtype=np.int32)
        tiles[:count] = tile
        arrays = {
            "group": padded,
            "tile": tiles,
            "of_group": lists_of(group, np.arange(count), len(mask) + 1, size - 1),
            "of_tile": lists_of(tile, np.arange(count), mask.shape[1], size - 1),
            "number": np.concatenate([number, np.full((1, mask.shape[1]), size - 1, np.int32)]),
        }
        return cls(count, number, {name: jax.device_put(a, device) for name, a in arrays.items()})

    @property
    def size(self) -> int:
        """Blocks with their padding."""
        return int(self.arrays["group"].shape[0])


def lists_of(owner: IntArray, what: IntArray, owners: int, fill: int) -> Int32Array:
    """What belongs to every owner, in order, padded to a common length."""
    counts = np.bincount(owner, minlength=owners)
    along = np.argsort(owner, kind="stable")
    place = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    lists = np.full((owners, _width(int(counts.max(initial=1)))), fill, dtype=np.int32)
    lists[owner[along], place] = what[along]
    return lists


def _width(most: int) -> int:
    return ladder(most) if most > TILE else 1 << max(2, (most - 1).bit_length())


@dataclass(frozen=True)
class Pairs:
    """Pairs of blocks of one group, by number, and of their tiles; padded with the last block."""

    near: Distances
    first: Array
    second: Array
    tiles: Array
    """The number of their tiles' distances."""
    gap: Array
    """Lower bounds on the distance of their records; inf in padding."""
    chunk: int

    @classmethod
    def build(cls, layout: Layout, near: Distances, between: Array, both: bool, most: int) -> Pairs:
        """All pairs whose tiles have distances, in both orders or with first <= second."""
        wanted, count = _pair_mask(layout.arrays, near.pair, both)
        chunk, size = chunks_for(int(count), most)
        first, second, tiles, gap = _pair_lists(layout.arrays, near.pair, between, wanted, size)
        return cls(near, first, second, tiles, gap, chunk)

    @property
    def lists(self) -> tuple[Array, Array, Array, Array]:
        """As the compiled loops take them."""
        return self.first, self.second, self.tiles, self.gap


def chunks_for(count: int, most: int) -> tuple[int, int]:
    """The length of a chunk, `most` or less, of a list of so many, and of the padded list."""
    size = power(count)
    return min(size, most), size


def power(count: int) -> int:
    """The next power of two: lists are long or short, and few lengths are compiled for."""
    return 1 << max(3, (max(1, count) - 1).bit_length())


@partial(jax.jit, static_argnames="both")
def _pair_mask(c: Any, pair: Array, both: bool) -> Any:
    a, b = c["of_group"][:, :, None], c["of_group"][:, None, :]
    last = len(c["group"]) - 1
    wanted = (a != last) & (b != last) & (pair[c["tile"][a], c["tile"][b]] >= 0)
    if not both:
        wanted &= a <= b
    return wanted, jnp.sum(wanted)


@partial(jax.jit, static_argnames="size")
def _pair_lists(c: Any, pair: Array, between: Array, wanted: Array, size: int) -> Any:
    most = wanted.shape[1]
    at = jnp.nonzero(wanted.reshape(-1), size=size, fill_value=-1)[0]
    lost = at < 0
    at = jnp.maximum(at, 0)
    group, row = at // (most * most), at % (most * most)
    first = c["of_group"][group, row // most]
    second = c["of_group"][group, row % most]
    a, b = c["tile"][first], c["tile"][second]
    last = len(c["group"]) - 1
    return (
        jnp.where(lost, last, first),
        jnp.where(lost, last, second),
        jnp.where(lost, 0, pair[a, b]),
        jnp.where(lost, jnp.inf, between[a, b]),
    )


def _extremes(z: Array, c: Any, real: Array) -> tuple[Array, Array]:
    """The highest and lowest entry of every block and output, over records."""
    there = real[c["tile"]][:, :, None]
    high = jnp.max(jnp.where(there, z, -jnp.inf), axis=1)
    return high, jnp.min(jnp.where(there, z, jnp.inf), axis=1)


def _chosen(wanted: Array, chunk: int) -> tuple[Array, Array, Array]:
    """The numbers of what is wanted of a list, in order, how many these are and how many chunks
    they take; behind them stands the last of the list again and again."""
    count = jnp.sum(wanted)
    at = jnp.nonzero(wanted, size=len(wanted), fill_value=len(wanted) - 1)[0]
    return at, count, (count + chunk - 1) // chunk


def _ranges(sorted_: Array, wanted: Array, count: int) -> tuple[Array, Array]:
    """From where to where the wanted of a list lie that have the number 0, 1, ... in `sorted_`,
    counting the wanted alone."""
    before = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(wanted, dtype=jnp.int32)])
    begin = before[jnp.searchsorted(sorted_, jnp.arange(count + 1))]
    return begin[:-1], begin[1:]


def _factors(distance: Array, epsilon: Any, nats: Any) -> Array:
    exponent = epsilon * distance
    return jnp.where(exponent < nats, jnp.exp(-exponent), 0.0)


def _slice(array: Array, k: Array, chunk: int) -> Array:
    return jax.lax.dynamic_slice_in_dim(array, k * chunk, chunk)


@partial(jax.jit, static_argnames=("chunk", "kernels"))
def close(
    z: Array, c: Any, real: Array, table: Array, pairs: Any, active: Array, epsilon: Any, nats: Any,
    chunk: int, kernels: Kernels,
) -> Array:  # fmt: skip
    """max over the blocks of a row's group of z_jy exp(-epsilon d(i, j)), for the rows of `active`
    (T, 64); of pairs of records within `nats`."""
    first, second, tiles, gap = pairs
    high, low = _extremes(z, c, real)
    reach = jnp.log(jnp.max(high[second] / low[first], axis=1))
    wanted = (reach > epsilon * gap) & (epsilon * gap < nats)
    wanted &= jnp.any(active, axis=1)[c["tile"][first]]
    at, _, chunks = _chosen(wanted, chunk)
    if kernels != "xla":
        # By the source's rows; the list is sorted by the blocks that are raised.
        factors = jnp.swapaxes(_factors(table, epsilon, nats), 1, 2)
        low, high = _ranges(first, wanted, len(z))
        rows = active[c["tile"]]
        return triton.raised(
            z, factors, low, high, second[at], tiles[at], rows, kernels == "interpret"
        )

    def body(k: Array, out: Array) -> Array:
        here = _slice(at, k, chunk)
        a, b = first[here], second[here]
        factor = _factors(table[tiles[here]], epsilon, nats)
        best = jnp.max(factor[:, :, :, None] * z[b][:, None, :, :], axis=2)
        return out.at[a].max(jnp.where(active[c["tile"][a]][:, :, None], best, 0.0))

    return jax.lax.fori_loop(0, chunks, body, z)


@partial(jax.jit, static_argnames="scalings")
def scale(
    z: Array, c: Any, real: Array, floors: Array, exists: Array, total: Any, scalings: int
) -> tuple[Array, Array]:
    """max(s z, floor) with one s for every record such that its row sums to 1, and what the rows
    summed to before, (T, 64)."""
    floor = floors[c["group"]][:, None, :]
    there = exists[c["group"]][:, None, :]

    def by_record(part: Array) -> Array:
        # The last block, of no output, stands for padding.
        return jnp.sum(part[c["of_tile"]], axis=1)

    sums = by_record(jnp.sum(jnp.where(there, z - floor, 0.0), axis=2)) + total

    def body(state: Any) -> Any:
        factor, _, count = state
        stays = there & (z * factor[c["tile"]][:, :, None] > floor)
        mass = by_record(jnp.sum(jnp.where(stays, z, 0.0), axis=2))
        freed = by_record(jnp.sum(jnp.where(stays, floor, 0.0), axis=2))
        new = (1 - total + freed) / jnp.where(mass > 0, mass, 1.0)
        still = jnp.all(jnp.where(real, jnp.abs(new / factor - 1), 0.0) < 1e-14)
        return new, still, count + 1

    factor, _, _ = jax.lax.while_loop(
        lambda state: ~state[1] & (state[2] < scalings),
        body,
        (jnp.ones(real.shape), jnp.bool_(False), 0),
    )
    out = jnp.maximum(z * factor[c["tile"]][:, :, None], floor)
    out = jnp.where(there & real[c["tile"]][:, :, None], out, floor)
    return out, jnp.where(real, sums, 1.0)


@partial(jax.jit, static_argnames=("chunk", "kernels"))
def gains(
    z: Array, c: Any, real: Array, table: Array, pairs: Any, epsilon: Any, nats: Any, least: Any,
    chunk: int, kernels: Kernels,
) -> Array:  # fmt: skip
    """For every pair of records of near tiles the mass by which the first misses the constraint of
    the second, sum_y max(0, z_jy exp(-epsilon d) - z_iy), over the groups where that exceeds
    `least`; in whole units."""
    first, second, tiles, gap = pairs
    high, low = _extremes(z, c, real)
    reach = jnp.log(jnp.max(high[second] / low[first], axis=1))
    wanted = (reach > epsilon * gap) & (epsilon * gap < nats)
    # Outputs first: reductions over the last axis are slow.
    across = jnp.swapaxes(z, 1, 2)
    if kernels != "xla":
        number = jnp.where(wanted, tiles, len(table))
        order = jnp.argsort(number, stable=True)
        low, high = _ranges(number[order], wanted[order], len(table))
        sums = triton.missed(
            across, _factors(table, epsilon, nats), low, high, first[order], second[order], least,
            kernels == "interpret",
        )  # fmt: skip
        return (sums * GAIN_UNITS).astype(jnp.int64)
    at, count, chunks = _chosen(wanted, chunk)
    itself = jnp.eye(TILE, dtype=bool)

    def body(k: Array, sums: Array) -> Array:
        here = _slice(at, k, chunk)
        fresh = k * chunk + jnp.arange(chunk) < count
        a, b = first[here], second[here]
        factor = _factors(table[tiles[here]], epsilon, nats)
        own, other = across[a][:, :, :, None], across[b][:, :, None, :]
        gain = jnp.sum(jnp.maximum(factor[:, None, :, :] * other - own, 0.0), axis=1)
        counts = (gain > least) & fresh[:, None, None] & ~((a == b)[:, None, None] & itself)
        units = jnp.where(counts, gain * GAIN_UNITS, 0.0).astype(jnp.int64)
        return sums.at[tiles[here]].add(units)

    return jax.lax.fori_loop(0, chunks, body, jnp.zeros(table.shape, jnp.int64))


@partial(jax.jit, static_argnames="chunk")
def worst(
    logs: Array, c: Any, real: Array, table: Array, pairs: Any, shrink: Any, least: Any, chunk: int
) -> Any:
    """max over pairs of records and outputs of (|log ratio| + error) / (shrink d), where it exceeds
    `least`: the value, the two blocks, and their two rows, -1 where none does."""
    first, second, tiles, gap = pairs
    high, low = _extremes(logs, c, real)
    up = jnp.max(high[first] - low[second], axis=1)
    reach = jnp.maximum(up, jnp.max(high[second] - low[first], axis=1))
    later = jnp.arange(TILE)[:, None] < jnp.arange(TILE)
    across = jnp.swapaxes(logs, 1, 2)

    def scan(turn: Array, state: Any) -> Any:
        # Near blocks hold the worst pair as a rule, and then spare the far ones.
        far = (gap > 0) & (reach + LOG_ERROR > state[0] * gap * shrink)
        at, _, chunks = _chosen(jnp.where(turn == 0, gap == 0, far), chunk)

        def body(k: Array, state: Any) -> Any:
            best, one, other, rows = state
            here = _slice(at, k, chunk)
            a, b = first[here], second[here]
            ratio = jnp.max(jnp.abs(across[a][:, :, :, None] - across[b][:, :, None, :]), axis=1)
            rate = (ratio + LOG_ERROR) / (table[tiles[here]] * shrink)
            counts = (a != b)[:, None, None] | later
            rate = jnp.where(counts, rate, 0.0).reshape(chunk, -1)
            top = jnp.max(rate, axis=1)
            which = jnp.argmax(top)
            better = top[which] > best
            return (
                jnp.where(better, top[which], best),
                jnp.where(better, a[which], one),
                jnp.where(better, b[which], other),
                jnp.where(better, jnp.argmax(rate[which]), rows),
            )

        return jax.lax.fori_loop(0, chunks, body, state)

    none = jnp.zeros((), first.dtype)
    state = (jnp.float64(least), none, none, jnp.int64(-1))
    return jax.lax.fori_loop(0, 2, scan, state)


@cache
def compiled_fringe(distances: Any, chunk: int) -> Any:
    """The same between rows of blocks, by their log ratio to the floor, and the records of tiles
    that have no block in their group; rows at the floor have a ratio of -1."""

    def fringe(
        lifts: Array, c: Any, tables: Any, real: Array, at: Array, chunks: Array, shrink: Any,
        least: Any,
    ) -> Any:  # fmt: skip
        tiles = len(real)

        def body(k: Array, state: Any) -> Any:
            best, pair, rows = state
            here = _slice(at, k, chunk)
            a, t = here // tiles, here % tiles
            away = distances(tables, c["tile"][a], t)
            lift = lifts[a][:, :, None]
            counts = (lift >= 0) & real[c["tile"][a]][:, :, None] & real[t][:, None, :]
            rate = jnp.where(counts, (lift + LOG_ERROR) / (away * shrink), 0.0).reshape(chunk, -1)
            top = jnp.max(rate, axis=1)
            which = jnp.argmax(top)
            better = top[which] > best
            return (
                jnp.where(better, top[which], best),
                jnp.where(better, here[which], pair),
                jnp.where(better, jnp.argmax(rate[which]), rows),
            )

        return jax.lax.fori_loop(0, chunks, body, (jnp.float64(least), jnp.int64(-1), jnp.int64(0)))

    return jax.jit(fringe)


@jax.jit
def fringe_mask(
    lifts: Array, c: Any, real: Array, between: Array, shrink: Any, least: Any
) -> tuple[Array, Array]:
    """Which rows of blocks (size, T) may have a larger rate than `least` to a tile without one, and
    how many these are."""
    highest = jnp.max(jnp.where(real[c["tile"]], lifts, -1.0), axis=1)[:, None]
    none = c["number"][c["group"]] == len(c["group"]) - 1
    near = highest + LOG_ERROR > least * between[c["tile"]] * shrink
    exists = jnp.arange(len(c["group"])) < len(c["group"]) - 1
    mask = none & near & (highest >= 0) & exists[:, None]
    return mask, jnp.sum(mask)


@partial(jax.jit, static_argnames="most")
def largest_of_rows(numbers: Array, lists: Array, most: int) -> tuple[Array, Array]:
    """The `most` largest numbers of every row of every tile, (T, 64, most), and their columns.

    `numbers` (pairs, 64, 64) are of pairs of tiles, `lists` (T, n) the pairs that a tile is the
    first of, -1 for none; column n counts 64 of each pair.
    """

    def of_tile(pairs: Array) -> Any:
        block = jnp.where((pairs >= 0)[:, None, None], numbers[jnp.maximum(pairs, 0)], 0)
        rows = jnp.moveaxis(block, 0, 1).reshape(TILE, -1)

        def largest(rows: Array, _: None) -> Any:
            column = jnp.argmax(rows, axis=1)
            value = jnp.take_along_axis(rows, column[:, None], 1)[:, 0]
            return rows.at[jnp.arange(TILE), column].set(-1), (value, column)

        # A few times the largest: sorting whole rows takes longer than all the rest.
        _, (values, columns) = jax.lax.scan(largest, rows, None, length=most)
        return values.T, columns.T

    return jax.lax.map(of_tile, lists, batch_size=16)


@partial(jax.jit, static_argnames="size")
def nonzero(mask: Array, size: int) -> Array:
    """The places of a mask, the last one again and again behind them."""
    return jnp.nonzero(mask.reshape(-1), size=size, fill_value=mask.size - 1)[0]


@partial(jax.jit, static_argnames="chunk")
def covered(
    lifts: Array, c: Any, table: Array, pair: Array, listed: Array, chunks: Array, epsilon: Any,
    mask: Array, chunk: int,
) -> Array:  # fmt: skip
    """`mask` (groups + 1, T) and the tiles of which some record is raised above the floor by a row
    of a listed block: one within its `lifts` (size, 64) nats. The list numbers (block, tile)."""
    tiles = len(pair)

    def body(k: Array, mask: Array) -> Array:
        here = _slice(listed, k, chunk)
        a, t = here // tiles, here % tiles
        exponent = epsilon * table[pair[c["tile"][a], t]]
        raised = jnp.any(exponent < lifts[a][:, :, None], axis=(1, 2))
        return mask.at[c["group"][a], t].max(raised)

    return jax.lax.fori_loop(0, chunks, body, mask)


@jax.jit
def cover_mask(
    lifts: Array, c: Any, pair: Array, between: Array, epsilon: Any
) -> tuple[Array, Array]:
    """Which tiles (size, T) may hold a record that a block raises above the floor, and how many."""
    highest = jnp.max(lifts, axis=1)[:, None]
    mask = (highest > epsilon * between[c["tile"]]) & (pair[c["tile"]] >= 0)
    return mask, jnp.sum(mask)


def row_lifts(z: Array, floors: FloatArray | Array, exists: Array, c: Any) -> Array:
    """The largest log z / floor of every row of every block, over outputs that exist."""
    there = exists[c["group"]][:, None, :]
    return jnp.max(jnp.where(there, jnp.log(z / floors[c["group"]][:, None, :]), -jnp.inf), axis=2)
