"""Loops over pairs of tiles on accelerators, compiled by JAX.

Tables are (T, 64, m) arrays, outputs split over the devices of a mesh; lists of tile pairs are
whole on each. Pairs come in turns, rows (turns, width) of targets and sources: the targets of a
turn differ, so that results are written without regard for each other.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from panda_mdp.compute.jax.device import AXIS, Array
from panda_mdp.compute.rate import LOG_ERROR
from panda_mdp.space.tiles import TILE

WHOLE = PartitionSpec()
TILES = PartitionSpec(None, None, AXIS)
EXTREMES = PartitionSpec(None, AXIS)
PAIRS_AT_ONCE = 1 << 14
"""Tile pairs whose reach is computed at once."""
LENDERS = 3
"""Sources of an entry that are remembered: the best each time that all were compared."""
OUTPUTS_AT_ONCE = 10
SOURCES_AT_ONCE = 8
KEY_BITS = 32
GAIN_UNITS = 2.0**30
"""A violated pair is one integer, its gain in these units before the partner's place: a maximum
over them finds both."""


@cache
def compiled_start(mesh: Mesh) -> Any:
    """Rows of a table in their tiles, summing to 1 over a floor; it alone where not `used`."""

    def start(
        table: Array, rows: Array, used: Array, outputs: Array, real: Array, floor: Array
    ) -> Array:
        z = jnp.where(used, jnp.maximum(table[rows].astype(jnp.float64), 0.0), 0.0)
        sums = jnp.sum(z, axis=2, keepdims=True)
        z = (1 - jnp.sum(floor)) * z / jnp.where(sums > 0, sums, 1.0) + floor
        z /= jnp.sum(z * outputs, axis=2, keepdims=True)
        return jnp.where(real[:, :, None] & outputs, z, 1.0)

    return jax.jit(start, out_shardings=NamedSharding(mesh, TILES))


@cache
def compiled_rows(mesh: Mesh) -> Any:
    """Tiles back as rows."""

    def rows(z: Array, slots: Array) -> Array:
        return z.reshape(-1, z.shape[2])[slots]

    return jax.jit(rows, out_shardings=NamedSharding(mesh, EXTREMES))


@cache
def compiled_spread(mesh: Mesh) -> Any:
    """Rows in their tiles as they are, padding 0."""

    def spread(table: Array, rows: Array, real: Array) -> Array:
        return jnp.where(real[:, :, None], table[rows], 0)

    return jax.jit(spread, out_shardings=NamedSharding(mesh, TILES))


@cache
def compiled_logs(mesh: Mesh) -> Any:
    """Logarithms in their tiles, padding 0: of integers, at least 1, or as they are given."""

    def logs(values: Array, rows: Array, real: Array, outputs: Array) -> Array:
        if jnp.issubdtype(values.dtype, jnp.integer):
            values = jnp.log(jnp.maximum(values, 1).astype(jnp.float64))
        return jnp.where(real[:, :, None] & outputs, values[rows], 0.0)

    return jax.jit(logs, out_shardings=NamedSharding(mesh, TILES))


@cache
def compiled_survey(mesh: Mesh) -> Any:
    """The largest entry of every column and the expected loss of the rows scaled to sum 1."""

    def survey(table: Array, rows: Array, real: Array, weighted: Array) -> Any:
        z = jnp.where(real[:, :, None], table[rows].astype(jnp.float64), 0.0)
        sums = jnp.sum(z, axis=2)
        loss = jnp.sum(z * weighted, axis=2) / jnp.where(sums > 0, sums, 1.0)
        return jnp.max(z, axis=(0, 1)), jnp.sum(loss)

    whole = NamedSharding(mesh, WHOLE)
    return jax.jit(survey, out_shardings=(whole, whole))


@cache
def compiled_expected(mesh: Mesh) -> Any:
    """sum p c z; the weights of padding are 0."""
    return jax.jit(lambda z, weighted: jnp.sum(z * weighted), out_shardings=_whole(mesh))


@cache
def compiled_excess(mesh: Mesh) -> Any:
    """The largest rate between a row's sum and those of the records near it."""

    return jax.jit(_excess, out_shardings=_whole(mesh))


def _excess(sums: Array, near: Array, distance: Array) -> Array:
    logs = jnp.log(sums).ravel()
    return jnp.max(jnp.abs(logs[:, None] - logs[near]) / distance)


def _flat(z: Array) -> Array:
    return z.reshape(-1, z.shape[2])


@cache
def compiled_extremes(mesh: Mesh) -> Any:
    """The largest and the least logarithm of every tile and output."""

    def extremes(logs: Array, real: Array) -> Any:
        there = real[:, :, None]
        high = jnp.max(jnp.where(there, logs, -jnp.inf), axis=1)
        return high, jnp.min(jnp.where(there, logs, jnp.inf), axis=1)

    return _mapped(mesh, extremes, (TILES, WHOLE), (EXTREMES, EXTREMES))


@cache
def compiled_span(mesh: Mesh) -> Any:
    """The largest log ratio within an output."""

    def span(high: Array, low: Array) -> Array:
        return jax.lax.pmax(jnp.max(jnp.max(high, axis=0) - jnp.min(low, axis=0)), AXIS)

    return _mapped(mesh, span, (EXTREMES, EXTREMES), WHOLE)


@cache
def compiled_reach(mesh: Mesh) -> Any:
    """Upper bounds on log z_x'y - log z_xy, x in the first tile of a pair and x' in the second."""

    def reach(high: Array, low: Array, first: Array, second: Array) -> Array:
        def part(pairs: Any) -> Array:
            return jnp.max(high[pairs[1]] - low[pairs[0]], axis=1)

        grouped = (first.reshape(-1, PAIRS_AT_ONCE), second.reshape(-1, PAIRS_AT_ONCE))
        return jax.lax.pmax(jax.lax.map(part, grouped).ravel(), AXIS)

    return _mapped(mesh, reach, (EXTREMES, EXTREMES, WHOLE, WHOLE), WHOLE)


@cache
def compiled_sources(mesh: Mesh, rough: Any) -> Any:
    """For every entry the slot of the record that lends it most, and what share of its own entry
    that is: exp(-epsilon d), to single precision. Where nobody lends more, itself."""

    def sources(
        z: Array,
        tables: Any,
        real: Array,
        target: Array,
        source: Array,
        count: Array,
        epsilon: Any,
        nats: Any,
    ) -> Any:
        there = real[:, :, None]
        # Over their largest, entries of any column are in the range of single precision.
        peaks = jnp.max(jnp.where(there, z, 0.0), axis=(0, 1))
        own = jnp.where(there, z / peaks, 0.0).astype(jnp.float32)
        slots = jnp.arange(real.size, dtype=jnp.int32).reshape(*real.shape, 1)

        def body(k: Array, state: Any) -> Any:
            best, slot = state
            a, b = target[k], source[k]
            exponent = (epsilon * rough(tables, a, b)).astype(jnp.float32)
            factor = jnp.where(real[b][:, None, :] & (exponent < nats), jnp.exp(-exponent), 0)
            lent, which = _best_of(factor, own[b])
            more = lent > best[a]
            at = b[:, None, None] * TILE + which
            settings = {"mode": "drop", "unique_indices": True}
            return (
                best.at[a].set(jnp.where(more, lent, best[a]), **settings),
                slot.at[a].set(jnp.where(more, at, slot[a]), **settings),
            )

        nothing = (own, jnp.broadcast_to(slots, own.shape))
        best, slot = jax.lax.fori_loop(0, count, body, nothing)
        lender = jnp.take_along_axis(_flat(own), _flat(slot), axis=0)
        share = jnp.where(_flat(best) > 0, _flat(best) / lender, 1)
        return slot, share.reshape(slot.shape)

    specs = (TILES, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE)
    return _mapped(mesh, sources, specs, (TILES, TILES))


@cache
def compiled_rounds(mesh: Mesh, centred: bool) -> Any:
    """Rounds that raise every entry to what its source and the nearest records lend it, from below
    and from above where `centred`, and divide rows by their sums; until the excess is `enough`.

    `lenders` are pairs of slots and shares for z, and as many for 1 / z where `centred`. Only rows
    of `active` (T, 64) move. Returns the table, the sums of the last round, 1 of rows that stay,
    and their excess.
    """

    def rounds(
        z: Array,
        lenders: Any,
        near: Array,
        distance: Array,
        outputs: Array,
        real: Array,
        active: Array,
        epsilon: Any,
        most: Array,
        enough: Any,
    ) -> Any:
        moves = real & active
        factor = jnp.exp(-epsilon * distance)

        def raised(z: Array, known: Any) -> Array:
            flat = out = _flat(z)
            for slot, share in known:
                lent = _flat(share) * jnp.take_along_axis(flat, _flat(slot), axis=0)
                out = jnp.maximum(out, lent)
            for k in range(near.shape[1]):
                out = jnp.maximum(out, factor[:, k, None] * flat[near[:, k]])
            return out.reshape(z.shape)

        def body(state: Any) -> Any:
            z, _, _, count = state
            closed = raised(z, lenders[0])
            if centred:
                closed = jnp.sqrt(closed / raised(1 / z, lenders[1]))
            sums = jax.lax.psum(jnp.sum(closed * outputs, axis=2), AXIS)
            sums = jnp.where(moves, sums, 1.0)
            z = jnp.where(outputs & moves[:, :, None], closed / sums[:, :, None], z)
            return z, sums, _excess(sums, near, distance), count + 1

        def unfinished(state: Any) -> Array:
            return (state[3] < most) & (state[2] > enough)

        nothing = (z, jnp.ones(real.shape), jnp.float64(jnp.inf), jnp.int32(0))
        return jax.lax.while_loop(unfinished, body, nothing)[:3]

    lenders = (((TILES, TILES),) * LENDERS,) * (2 if centred else 1)
    columns = PartitionSpec(AXIS)
    specs = (TILES, lenders, WHOLE, WHOLE, columns, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE)
    return _mapped(mesh, rounds, specs, (TILES, WHOLE, WHOLE))


@cache
def compiled_worst(mesh: Mesh, distances: Any, width: int) -> Any:
    """max over listed tile pairs of (max_y |log ratio| + error) / (shrunk distance)."""

    def worst(
        logs: Array,
        tables: Any,
        real: Array,
        first: Array,
        second: Array,
        chunks: Array,
        shrink: Any,
    ) -> Any:
        later = jnp.arange(TILE)[:, None] < jnp.arange(TILE)

        def body(k: Array, state: Any) -> Any:
            best, pair, at = state
            a = jax.lax.dynamic_slice_in_dim(first, k * width, width)
            b = jax.lax.dynamic_slice_in_dim(second, k * width, width)
            gap = _over_outputs(
                lambda widest, own, other: jnp.maximum(widest, jnp.abs(own - other)),
                logs[a],
                logs[b],
            )
            gap = jax.lax.pmax(gap, AXIS)
            counts = real[a][:, :, None] & real[b][:, None, :]
            counts &= (a != b)[:, None, None] | later
            rate = (gap + LOG_ERROR) / (distances(tables, a, b) * shrink)
            rate = jnp.where(counts, rate, 0.0).reshape(width, -1)
            top = jnp.max(rate, axis=1)
            which = jnp.argmax(top)
            better = top[which] > best
            return (
                jnp.where(better, top[which], best),
                jnp.where(better, k * width + which, pair),
                jnp.where(better, jnp.argmax(rate[which]), at),
            )

        nothing = (jnp.float64(0), jnp.int64(0), jnp.int64(0))
        return jax.lax.fori_loop(0, chunks.astype(jnp.int64), body, nothing)

    specs = (TILES, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE)
    return _mapped(mesh, worst, specs, (WHOLE, WHOLE, WHOLE))


@cache
def compiled_violated(mesh: Mesh, distances: Any, most: int) -> Any:
    """For every row the `most` largest keys of violated pairs: gain, then the partner's slot."""

    def violated(
        z: Array,
        tables: Any,
        real: Array,
        target: Array,
        source: Array,
        count: Array,
        epsilon: Any,
    ) -> Array:
        itself = jnp.eye(TILE, dtype=bool)
        across = jnp.arange(TILE)

        def body(k: Array, keys: Array) -> Array:
            a, b = target[k], source[k]
            factor = jnp.exp(-epsilon * distances(tables, a, b))
            gain = _over_outputs(
                lambda sum_, own, other: sum_ + jnp.maximum(factor * other - own, 0.0),
                z[a],
                z[b],
            )
            gain = jax.lax.psum(gain, AXIS)
            own = (a == b)[:, None, None] & itself
            slot = b[:, None].astype(jnp.int64) * TILE + across
            key = (gain * GAIN_UNITS).astype(jnp.int64) * (1 << KEY_BITS) + slot[:, None, :]
            new = _top(jnp.where(real[b][:, None, :] & ~own, key, 0), most)
            both = jnp.concatenate([keys[a], new], axis=2)
            return keys.at[a].set(_top(both, most), mode="drop", unique_indices=True)

        return jax.lax.fori_loop(0, count, body, jnp.zeros((*real.shape, most), dtype=jnp.int64))

    specs = (TILES, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE)
    return _mapped(mesh, violated, specs, WHOLE)


def _top(keys: Array, most: int) -> Array:
    """The `most` largest of different keys along the last axis, the largest first."""
    tops = []
    for _ in range(most):
        top = jnp.max(keys, axis=2)
        keys = jnp.where(keys == top[:, :, None], 0, keys)
        tops.append(top)
    return jnp.stack(tops, axis=2)


def _best_of(factor: Array, source: Array) -> tuple[Array, Array]:
    """max_j factor[p, i, j] source[p, j, y] and its j, a few sources at a time."""

    def body(state: Any, group: Any) -> Any:
        best, which = state
        weight, row, first = group
        for k in range(SOURCES_AT_ONCE):
            lent = weight[k][:, :, None] * row[k][:, None, :]
            more = lent > best
            best, which = jnp.where(more, lent, best), jnp.where(more, first + k, which)
        return (best, which), None

    shape = (len(factor), TILE, source.shape[2])
    nothing = (jnp.zeros(shape, dtype=factor.dtype), jnp.zeros(shape, dtype=jnp.int32))
    firsts = jnp.arange(0, TILE, SOURCES_AT_ONCE, dtype=jnp.int32)
    return jax.lax.scan(body, nothing, (_grouped(factor, 2), _grouped(source, 1), firsts))[0]


def _grouped(table: Array, axis: int) -> Array:
    """Sources in groups that are taken at once, along the first axis."""
    rest = tuple(size for k, size in enumerate(table.shape) if k != axis)
    return jnp.moveaxis(table, axis, 0).reshape(-1, SOURCES_AT_ONCE, *rest)


def _over_outputs(combine: Any, first: Array, second: Array) -> Array:
    """Fold `combine(found, first[p, i, y], second[p, j, y])` over y into found (P, 64, 64).

    A few outputs at a time: one reduction over all of them takes compilers minutes.
    """
    pad = -first.shape[2] % OUTPUTS_AT_ONCE

    def grouped(table: Array) -> Array:
        wide = jnp.pad(table, ((0, 0), (0, 0), (0, pad)))
        return jnp.moveaxis(wide, 2, 0).reshape(-1, OUTPUTS_AT_ONCE, *table.shape[:2])

    def body(combined: Array, group: Any) -> Any:
        own, other = group
        for k in range(OUTPUTS_AT_ONCE):
            combined = combine(combined, own[k][:, :, None], other[k][:, None, :])
        return combined, None

    nothing = jnp.zeros((len(first), TILE, TILE))
    return jax.lax.scan(body, nothing, (grouped(first), grouped(second)))[0]


def _mapped(mesh: Mesh, function: Any, inputs: Any, outputs: Any) -> Any:
    mapped = jax.shard_map(function, mesh=mesh, in_specs=inputs, out_specs=outputs, check_vma=False)
    return jax.jit(mapped)


def _whole(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, WHOLE)
