"""Loops over pairs of blocks on accelerators, compiled by JAX, float64 unless said otherwise.

A block is a group of outputs times a tile of 64 records; what no block holds is at the group's
floor, which all records share. A dense table is one group with a block in every tile, over no
floor. Tables are (blocks, 64, width) arrays.

Tiles that are near each other are listed in pairs, P of them: number g P + p stands for the blocks
of group g in the tiles of pair p, and loops go through lists of such numbers in chunks. Rows that
are no records are infinitely far from all, and outputs that do not exist are 1 in every row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from panda_mdp.compute.closure import UNUSED
from panda_mdp.compute.jax import triton
from panda_mdp.compute.jax.device import Array
from panda_mdp.compute.pairs import LOG_ERROR
from panda_mdp.space.tiles import TILE

Kernels = Literal["xla", "triton", "interpret"]
"""What closes: XLA, kernels of our own (compute/jax/triton.py), or these step by step in tests."""
CHUNK = 512
"""Pairs of blocks that are gone through together."""
GAIN_UNITS = 2.0**40
"""Of a row's mass: gains are added up as whole numbers, in whatever order."""
REACHES_AT_ONCE = 1 << 17
"""Pairs of blocks whose reach is computed at once."""
AT_ONCE = 8
"""Outputs that loops over them take at once."""
STILL = 1e-12
"""A table that rises by no more than this share has come to rest along its links."""
MOST_SCALINGS = 40
"""They end as soon as all rows stand still: a row that is off moves when it is quantised."""


class Blocks(NamedTuple):
    """Which groups have a block in which tiles."""

    group: Array
    """Of every block; of padding the last one, which no output belongs to."""
    tile: Array
    number: Array
    """(groups + 1, T): the block of a group and a tile, -1 where there is none."""
    of_tile: Array
    """(T, most): the blocks of every tile, padded with the last block, which is padding then."""
    real: Array
    """(T, 64): whether a row is a record."""
    exists: Array
    """(groups + 1, width): whether a column is an output."""
    floors: Array | None
    """(groups + 1, width), 1 in columns that do not exist; None of a dense table."""

    @property
    def there(self) -> Array:
        """(blocks, 64, 1): whether a row is one of a record."""
        used = self.group < len(self.number) - 1
        return (self.real[self.tile] & used[:, None])[:, :, None]

    def spread(self, rows: Array) -> Array:
        """Rows of groups, for every block: (blocks, 1, width)."""
        return rows[self.group][:, None, :]

    def by_record(self, part: Array) -> Array:
        """Sums over all blocks of a tile and their columns, (T, 64)."""
        return jnp.sum(jnp.sum(part, axis=2)[self.of_tile], axis=1)

    def of_record(self, numbers: Array) -> Array:
        """Numbers of records (T, 64), for every block: (blocks, 64, 1)."""
        return numbers[self.tile][:, :, None]


class Near(NamedTuple):
    """Pairs of tiles that are near each other, sorted by the first one; padded."""

    first: Array
    second: Array
    between: Array
    """Lower bounds on the distance of their records; inf in padding."""
    table: Array | None
    """(pairs, 64, 64) distances, where they are kept."""
    measure: Callable[[Array, Array], Array]
    """Distances of tiles a (n,) and b (n,): (n, 64, 64)."""

    def apart(self, p: Array, real: Array) -> Array:
        """Distances of the records of pairs; inf where a row is no record."""
        if self.table is not None:
            return self.table[p]
        a = self.first[p]
        b = self.second[p]
        return jnp.where(real[a][:, :, None] & real[b][:, None, :], self.measure(a, b), jnp.inf)


class Pairs(NamedTuple):
    """Pairs of blocks of one group: their numbers, ascending and padded."""

    blocks: Blocks
    near: Near
    at: Array

    @property
    def end(self) -> int:
        """Behind the largest number; padding."""
        return (len(self.blocks.number) - 1) * len(self.near.first)

    def ends(self, at: Array) -> tuple[Array, Array, Array]:
        """The first and the second block of numbers, and the pairs of their tiles."""
        group = at // len(self.near.first)
        p = at % len(self.near.first)
        number = self.blocks.number
        return number[group, self.near.first[p]], number[group, self.near.second[p]], p

    def rows(self, at: Array, table: Array, under: Array | None) -> tuple[Array, Array]:
        """The rows of the two blocks in a table; `under` of the group where it has no block."""
        first, second, _ = self.ends(at)
        if under is None:
            return table[first], table[second]
        floor = under[at // len(self.near.first)][:, None, :]
        one, other = (
            jnp.where((block < 0)[:, None, None], floor, table[block]) for block in (first, second)
        )
        return one, other


# Dense tables in and out.


@jax.jit
def start(table, rows, c: Blocks, floor):
    """Rows of a table in their tiles, summing to 1 over a floor; it alone where it is `UNUSED`."""
    z = jnp.where(floor > UNUSED, jnp.maximum(table[rows].astype(jnp.float64), 0.0), 0.0)
    sums = jnp.sum(z, axis=2, keepdims=True)
    z = (1 - jnp.sum(floor)) * z / jnp.where(sums > 0, sums, 1.0) + floor
    z /= jnp.sum(z * c.exists[0], axis=2, keepdims=True)
    return jnp.where(c.there & c.exists[0], z, 1.0)


@jax.jit
def by_slot(z, slots):
    """Blocks back as rows."""
    return _flat(z)[slots]


@jax.jit
def tiled(table, rows, c: Blocks):
    """Rows in their tiles as they are, padding 0."""
    return jnp.where(c.there, table[rows], 0)


@jax.jit
def survey(table, rows, c: Blocks, weighted):
    """The largest entry of every column and the expected loss of the rows scaled to sum 1."""
    z = jnp.where(c.there, table[rows].astype(jnp.float64), 0.0)
    sums, loss = (jnp.sum(part, axis=2) for part in (z, z * weighted))
    return jnp.max(z, axis=(0, 1)), jnp.sum(loss / jnp.where(sums > 0, sums, 1.0))


@jax.jit
def expected(z, weighted):
    """sum p c z; the weights of padding are 0."""
    return jnp.sum(z * weighted)


def _flat(z):
    return z.reshape(-1, z.shape[2])


# Which pairs matter.


def _extremes(z, c: Blocks):
    """The largest and the least entry of every block and output: (blocks, 1, width)."""
    high = jnp.max(jnp.where(c.there, z, -jnp.inf), axis=1, keepdims=True)
    return high, jnp.min(jnp.where(c.there, z, jnp.inf), axis=1, keepdims=True)


@jax.jit
def span(logs, under: Array | None, c: Blocks):
    """The largest log ratio within an output."""
    groups = len(c.number) - 1
    high, low = (part[:, 0] for part in _extremes(logs, c))
    high = jax.ops.segment_max(high, c.group, groups)
    low = jax.ops.segment_min(low, c.group, groups)
    if under is not None:
        high = jnp.maximum(high, under[:groups])
        low = jnp.minimum(low, under[:groups])
    return jnp.max(high - low)


def _reach(high, low, under: Array | None, pairs: Pairs):
    """Upper bounds on what the second block's logarithms exceed the first one's by."""

    def part(at):
        least = pairs.rows(at, low, under)[0]
        largest = pairs.rows(at, high, under)[1]
        return jnp.max(largest - least, axis=(1, 2))

    parts = pairs.at.reshape(-1, min(len(pairs.at), REACHES_AT_ONCE))
    return jax.lax.map(part, parts).ravel()


def _acting(z, pairs: Pairs, epsilon, nats):
    """Which pairs may raise an entry, those within `nats`."""
    high, low = _extremes(z, pairs.blocks)
    gap = epsilon * pairs.near.between[pairs.ends(pairs.at)[2]]
    reach = _reach(jnp.log(high), jnp.log(low), None, pairs)
    return (reach > gap) & (gap < nats) & (pairs.at < pairs.end)


def fold(at, wanted, body, state):
    """Fold `body(numbers, fresh, state)` over what is wanted of a list, in chunks; behind the last
    of it, where it is not `fresh`, stands the first of the list again and again."""
    chunk = min(CHUNK, len(at))
    count = jnp.sum(wanted)
    size = len(at) + -len(at) % chunk
    chosen = at[jnp.nonzero(wanted, size=size, fill_value=0)[0]]

    def part(k, state):
        fresh = k * chunk + jnp.arange(chunk) < count
        return body(jax.lax.dynamic_slice_in_dim(chosen, k * chunk, chunk), fresh, state)

    return jax.lax.fori_loop(0, (count + chunk - 1) // chunk, part, state)


@partial(jax.jit, static_argnames="wanted")
def pair_mask(c: Blocks, near: Near, wanted: Literal["both", "later"]):
    """(groups, P): which groups have blocks in both tiles of a pair, or in one of a pair that is
    listed once; and how many that are."""
    first, second = (c.number[:-1, side] >= 0 for side in (near.first, near.second))
    mask = first & second if wanted == "both" else (first | second) & (near.first <= near.second)
    mask &= jnp.isfinite(near.between)
    return mask, jnp.sum(mask)


@partial(jax.jit, static_argnames="size")
def places(mask, size: int):
    """The places of a mask, and padding behind them."""
    return jnp.nonzero(mask.reshape(-1), size=size, fill_value=mask.size)[0]


@jax.jit
def distances(near: Near, real):
    """The table of all pairs."""
    every = jnp.arange(len(near.first))
    return jax.lax.map(lambda p: near.apart(p[None], real)[0], every, batch_size=CHUNK)


# Closing.


def _factors(distance, epsilon, nats):
    exponent = epsilon * distance
    return jnp.where(exponent < nats, jnp.exp(-exponent), 0.0)


@partial(jax.jit, static_argnames="kernels")
def close(z, pairs: Pairs, active, epsilon, nats, kernels: Kernels):
    """max over the blocks of a row's group of z_jy exp(-epsilon d(i, j)), for the rows of `active`
    (T, 64); of pairs of records within `nats`."""
    near = pairs.near
    rows = active[pairs.blocks.tile]
    first, second, p = pairs.ends(pairs.at)
    wanted = _acting(z, pairs, epsilon, nats) & jnp.any(active, axis=1)[near.first[p]]
    if kernels != "xla":
        # By the source's rows; the list is sorted by the blocks that are raised.
        factors = jnp.swapaxes(_factors(near.table, epsilon, nats), 1, 2)
        ranges = _ranges(first % len(z), wanted, len(z))
        at = jnp.nonzero(wanted, size=len(wanted), fill_value=0)[0]
        sources = second[at], p[at].astype(jnp.int32)
        return triton.raised(z, factors, *ranges, *sources, rows, kernels == "interpret")

    def body(at, _, out):
        a, b, p = pairs.ends(at)
        factor = _factors(near.apart(p, pairs.blocks.real), epsilon, nats)
        best = jnp.max(factor[:, :, :, None] * z[b][:, None, :, :], axis=2)
        return out.at[a].max(jnp.where(rows[a][:, :, None], best, 0.0))

    return fold(pairs.at, wanted, body, z)


def _ranges(sorted_, wanted, count: int):
    """From where to where the wanted of a list lie that have the number 0, 1, ... in `sorted_`,
    counting the wanted alone."""
    before = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(wanted, dtype=jnp.int32)])
    begin = before[jnp.searchsorted(sorted_, jnp.arange(count + 1))]
    return begin[:-1], begin[1:]


@jax.jit
def scale(z, c: Blocks, total):
    """max(s z, floor) with one s for every record such that its row sums to 1, and what the rows
    summed to before, (T, 64); `total` is the sum of the floor."""
    floor = c.spread(c.floors)
    used = c.spread(c.exists)
    sums = c.by_record(jnp.where(used, z - floor, 0.0)) + total

    def body(state):
        factor, _, count = state
        stays = used & (z * c.of_record(factor) > floor)
        mass, freed = (c.by_record(jnp.where(stays, part, 0.0)) for part in (z, floor))
        new = (1 - total + freed) / jnp.where(mass > 0, mass, 1.0)
        still = jnp.all(jnp.where(c.real, jnp.abs(new / factor - 1), 0.0) < 1e-14)
        return new, still, count + 1

    factor, _, _ = jax.lax.while_loop(
        lambda state: ~state[1] & (state[2] < MOST_SCALINGS),
        body,
        (jnp.ones(c.real.shape), jnp.bool_(False), 0),
    )
    out = jnp.where(used & c.there, jnp.maximum(z * c.of_record(factor), floor), floor)
    return out, jnp.where(c.real, sums, 1.0)


@jax.jit
def divide(z, c: Blocks):
    """A dense table with its rows divided by their sums; and these, (T, 64)."""
    return _divided(z, c)


def _divided(z, c: Blocks):
    sums = jnp.where(c.real, jnp.sum(z * c.exists[0], axis=2), 1.0)
    return jnp.where(c.exists[0] & c.there, z / sums[:, :, None], z), sums


@partial(jax.jit, static_argnames="centred")
def raise_and_divide(z, nearest, c: Blocks, limits, centred: bool):
    """Rounds that raise every entry of a dense table to what the nearest records lend it, or to the
    middle between that and what they allow it where `centred`, and `divide`; until their excess is
    small enough. `limits` are epsilon, the most rounds and the excess that is enough."""
    (near, distance), (epsilon, most, enough) = nearest, limits
    factor = jnp.exp(-epsilon * distance)

    def raised(z):
        flat = out = _flat(z)
        for k in range(near.shape[1]):
            out = jnp.maximum(out, factor[:, k, None] * flat[near[:, k]])
        return out.reshape(z.shape)

    def body(state):
        z, _, _, count = state
        closed = jnp.sqrt(raised(z) / raised(1 / z)) if centred else raised(z)
        z, sums = _divided(closed, c)
        return z, sums, excess(sums, nearest), count + 1

    return jax.lax.while_loop(
        lambda state: (state[3] < most) & (state[2] > enough),
        body,
        (z, jnp.ones(c.real.shape), jnp.float64(jnp.inf), jnp.int32(0)),
    )[:2]


@jax.jit
def relax(z, links, epsilon):
    """A dense table raised along links until nothing changes."""
    others, away = links
    lent = jnp.exp(-epsilon * away)[:, :, None]

    def sweep(state):
        before, _ = state
        after = jax.lax.fori_loop(
            0, len(others), lambda k, rows: jnp.maximum(rows, lent[k] * rows[others[k]]), before
        )
        return after, jnp.any(after > before * (1 + STILL))

    rows, _ = jax.lax.while_loop(lambda state: state[1], sweep, (_flat(z), jnp.bool_(True)))
    return rows.reshape(z.shape)


@jax.jit
def excess(sums, nearest):
    """The largest rate between a row's sum and those of the records near it."""
    logs, (near, distance) = jnp.log(sums).ravel(), nearest
    return jnp.max(jnp.abs(logs[:, None] - logs[near]) / distance)


# What a table is worth.


@jax.jit
def worst(logs, under: Array | None, pairs: Pairs, limits):
    """max over pairs of records and outputs of (|log ratio| + error) / (shrink d), where it exceeds
    `least`: the value, the number of the pair, -1 where none does, and its rows. `under` are the
    logarithms of floors; `limits` are `shrink`, `least` and whether tiles that touch are passed
    over, and not all others."""
    near, (shrink, least, far) = pairs.near, limits
    gap = near.between[pairs.ends(pairs.at)[2]]
    high, low = _extremes(logs, pairs.blocks)
    reach = jnp.maximum(
        _reach(high, low, under, pairs),
        _reach(-low, -high, jax.tree.map(jnp.negative, under), pairs),
    )
    beyond = (gap > 0) & (reach + LOG_ERROR > least * gap * shrink)
    wanted = (pairs.at < pairs.end) & jnp.where(far, beyond, gap == 0)
    later = jnp.arange(TILE)[:, None] < jnp.arange(TILE)

    def body(at, _, state):
        p = pairs.ends(at)[2]
        ratio = _fold_outputs(
            lambda widest, own, other: jnp.maximum(widest, jnp.abs(own - other)),
            *pairs.rows(at, logs, under),
        )
        rate = (ratio + LOG_ERROR) / (near.apart(p, pairs.blocks.real) * shrink)
        counts = (near.first[p] != near.second[p])[:, None, None] | later
        rate = jnp.where(counts, rate, 0.0).reshape(len(at), -1)
        top = jnp.max(rate, axis=1)
        which = jnp.argmax(top)
        new = (top[which], at[which], jnp.argmax(rate[which]))
        return jax.tree.map(partial(jnp.where, top[which] > state[0]), new, state)

    return fold(pairs.at, wanted, body, (least, jnp.int64(-1), jnp.int64(0)))


def _fold_outputs(combine, first, second):
    """Fold `combine(found, first[p, i, y], second[p, j, y])` over y into found (P, 64, 64).

    A few outputs at a time: one reduction over all of them takes compilers minutes.
    """
    own = jnp.moveaxis(first, 2, 0)
    other = jnp.moveaxis(second, 2, 0)

    def body(y, found):
        return combine(found, own[y][:, :, None], other[y][:, None, :])

    return jax.lax.fori_loop(0, len(own), body, jnp.zeros((len(first), TILE, TILE)), unroll=AT_ONCE)


@partial(jax.jit, static_argnames="size")
def gains(z, pairs: Pairs, rank, limits, size: int):
    """For every pair of records the mass by which the first misses the constraint of the second,
    sum_y max(0, z_jy exp(-epsilon d) - z_iy), over the groups where that exceeds `least`, in whole
    units: (size, 64, 64), pairs of tiles by their `rank` (P,) among those within `nats`. `limits`
    are epsilon, nats and `least`."""
    epsilon, nats, least = limits

    def body(at, fresh, sums):
        a, b, p = pairs.ends(at)
        factor = _factors(pairs.near.apart(p, pairs.blocks.real), epsilon, nats)
        gain = _fold_outputs(
            lambda sum_, own, other: sum_ + jnp.maximum(factor * other - own, 0.0), z[a], z[b]
        )
        units = jnp.where((gain > least) & fresh[:, None, None], gain * GAIN_UNITS, 0.0)
        return sums.at[rank[p]].add(units.astype(jnp.int64))

    nothing = jnp.zeros((size, TILE, TILE), jnp.int64)
    return fold(pairs.at, _acting(z, pairs, epsilon, nats), body, nothing)


@partial(jax.jit, static_argnames="most")
def largest_of_rows(numbers, lists, most: int):
    """The `most` largest numbers of every row of every tile, (T, 64, most), and their columns.

    `numbers` (pairs, 64, 64) are of pairs of tiles, `lists` (T, n) the pairs that a tile is the
    first of, -1 for none; column n counts 64 of each pair.
    """

    def of_tile(pairs):
        block = jnp.where((pairs >= 0)[:, None, None], numbers[pairs], 0)
        rows = jnp.moveaxis(block, 0, 1).reshape(TILE, -1)

        def largest(rows, _: None):
            column = jnp.argmax(rows, axis=1)
            value = jnp.take_along_axis(rows, column[:, None], 1)[:, 0]
            return rows.at[jnp.arange(TILE), column].set(-1), (value, column)

        # A few times the largest: sorting whole rows takes longer than all the rest.
        _, (values, columns) = jax.lax.scan(largest, rows, None, length=most)
        return values.T, columns.T

    return jax.lax.map(of_tile, lists, batch_size=16)
