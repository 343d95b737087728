"""Closure, audit and violated pairs on accelerators: all pairs of tiles within reach, in JAX.

float64 throughout. The lists of tile pairs are made on the host from bounds that come back from the
devices, so pairs out of reach cost nothing and no K x K object exists anywhere.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.compute.closure import FLOOR, NEAR_NATS, UNUSED, Closure, floor_row
from panda_mdp.compute.jax.device import (
    AXIS,
    Array,
    Placement,
    TileGrid,
    distance_error,
    ladder,
    precise,
)
from panda_mdp.compute.rate import ARITHMETIC_ERROR, LOG_ERROR
from panda_mdp.space.domain import Domain
from panda_mdp.space.tiles import TILE

WHOLE = PartitionSpec()
TILES = PartitionSpec(None, None, AXIS)
CHUNK_BYTES = 1 << 28
"""Temporaries of one chunk of tile pairs."""
OUTPUTS_AT_ONCE = 10
SOURCES_AT_ONCE = 8
KEY_BITS = 32
GAIN_UNITS = 2.0**30
"""A violated pair is one integer, its gain in these units before the partner's place: a maximum
over them finds both. Passes that each stay below the last find the worst, the next, ..."""
NO_KEY = np.iinfo(np.int64).max


class JaxClosure(Closure):
    """`Closure` on the devices of a mesh. Tables are (T, 64, m) arrays there, padded."""

    def __init__(self, domain: Domain, mesh: Mesh, outputs: int) -> None:
        super().__init__(domain)
        self._on = Placement(mesh, outputs)
        with precise():
            self._grid = TileGrid.build(domain.metric, self.tiles, self._on)
            self._outputs = self._on.whole(np.arange(self._on.width) < outputs)
            members = self._grid.members
            slots = np.empty(domain.size, dtype=np.int32)
            slots[self.order[members[members >= 0]]] = np.flatnonzero(members.ravel() >= 0)
            self._records = self._on.whole(self.order[np.maximum(members, 0)].astype(np.int32))
            self._slots = self._on.whole(slots)
        self._shrink = 1 - (distance_error(domain.metric) + ARITHMETIC_ERROR)
        # A chunk holds (64, 64) factors and (64, m) results for each of its pairs.
        each = 8 * TILE * (2 * TILE + 2 * self._on.width)
        # No more of them than there are pairs: what a chunk does not need it computes all the same.
        pairs = 1 << (self.tiles.count**2 - 1).bit_length()
        self._chunk = min(pairs, max(8, min(1024, CHUNK_BYTES // each)))

    def start(self, matrix: FloatArray, floor: float | FloatArray = FLOOR) -> Any:
        row = floor_row(floor, matrix.shape[1])
        with precise():
            table = np.where(row > UNUSED, np.asarray(matrix, dtype=np.float64), 0.0)
            return _compiled_start(self._on.mesh)(
                self._on.sharded(table, 0.0),
                self._records,
                self._outputs,
                self._grid.real,
                self._on.sharded(row, 0.0),
            )

    def host(self, z: Any) -> FloatArray:
        with precise():
            return self._on.host(_compiled_rows(self._on.mesh)(z, self._slots))

    def reach(self, z: Any) -> FloatArray:
        with precise():
            return self._spans(jnp.log(z))

    def _spans(self, logs: Any) -> FloatArray:
        return np.asarray(_compiled_spans(self._on.mesh)(logs, self._grid.real))

    def close(
        self,
        z: Any,
        epsilon: float,
        active: BoolArray | None = None,
        reach: FloatArray | None = None,
        slack: float = 0.0,
        nats: float = np.inf,
    ) -> Any:
        if reach is None:
            reach = self.reach(z)
        tiles = np.arange(self.tiles.count)
        if active is not None:
            tiles = np.flatnonzero(np.maximum.reduceat(active, self.tiles.starts[:-1]))
            reach = reach[tiles]
        between = epsilon * self.tiles.between[tiles]
        wanted = (reach > between - slack) & (between < nats)
        # A tile reaches itself.
        wanted[np.arange(len(tiles)), tiles] = True
        row, second = np.nonzero(wanted)
        first = tiles[row]
        if not len(first):
            return z
        with precise():
            run = _compiled_close(self._on.mesh, self._grid.distances, self._chunk)
            pairs = self._list(first, second)
            return run(z, self._grid.tables, self._grid.real, *pairs, epsilon, np.float64(nats))

    def centre(self, z: Any, epsilon: float) -> Any:
        above = self.close(z, epsilon)
        with precise():
            inverse = 1 / z
        below = self.close(inverse, epsilon)
        with precise():
            return jnp.sqrt(above / below)

    def normalise(self, closed: Any) -> tuple[Any, FloatArray]:
        with precise():
            run = _compiled_normalise(self._on.mesh)
            z, sums = run(closed, self._outputs, self._grid.real)
            real = self._grid.members >= 0
            rows = np.empty(self.domain.size)
            rows[self._grid.members[real]] = np.asarray(sums)[real]
        return z, rows

    def rate(self, z: Any) -> float:
        with precise():
            return self._largest(jnp.log(z), self._on.whole(self._grid.members))[0]

    def largest(self, logs: FloatArray, weights: IntArray) -> tuple[float, int, int]:
        """The audit's value and pair (positions) for a table along the tiles."""
        with precise():
            spread = self._on.sharded(self._grid.spread(logs, 0.0), 0.0)
            same = equal_rows(weights)[np.maximum(self._grid.members, 0)]
            return self._largest(spread, self._on.whole(same))

    def _largest(self, logs: Any, same: Any) -> tuple[float, int, int]:
        tiles = self.tiles
        run = _compiled_worst(self._on.mesh, self._grid.distances, self._chunk)
        best, where = 0.0, (0, 0)

        def scan(first: IntArray, second: IntArray) -> None:
            nonlocal best, where
            if not len(first):
                return
            pairs = self._list(first, second)
            value, pair, at = run(
                logs, same, self._grid.tables, self._grid.real, *pairs, self._shrink
            )
            if float(value) > best:
                best = float(value)
                i, j = divmod(int(at), TILE)
                members = self._grid.members
                a, b = (int(tile[int(pair)]) for tile in (first, second))
                where = (int(members[a, i]), int(members[b, j]))

        scan(np.arange(tiles.count), np.arange(tiles.count))
        reach = self._spans(logs)
        first, second = np.triu_indices(tiles.count, k=1)
        open_ = (
            np.maximum(reach, reach.T)[first, second] + LOG_ERROR
            > best * tiles.between[first, second] * self._shrink
        )
        scan(first[open_], second[open_])
        return best, *where

    def violated(
        self, z: Any, epsilon: float, most: int, least_gain: float
    ) -> tuple[IntArray, FloatArray]:
        partners = np.full((self.domain.size, most), -1, dtype=np.int64)
        best = np.zeros((self.domain.size, most))
        between = epsilon * self.tiles.between
        first, second = np.nonzero((self.reach(z) > between) & (between < NEAR_NATS))
        if not len(first):
            return partners, best
        with precise():
            run = _compiled_violated(self._on.mesh, self._grid.distances, self._chunk)
            pairs = self._list(first, second)
            below = self._on.whole(np.full(self._grid.members.shape, NO_KEY))
            keys = []
            for _ in range(most):
                below = run(z, self._grid.tables, self._grid.real, below, *pairs, epsilon)
                keys.append(np.asarray(below))
        members = self._grid.members
        there = members >= 0
        ranked = np.stack(keys, axis=-1)[there]
        gain, slot = (ranked >> KEY_BITS) / GAIN_UNITS, ranked & ((1 << KEY_BITS) - 1)
        hit = gain > least_gain
        partners[members[there]] = np.where(hit, members.ravel()[slot], -1)
        best[members[there]] = np.where(hit, gain, 0.0)
        return partners, best

    def _list(self, first: IntArray, second: IntArray) -> tuple[Array, Array, Any]:
        """Tile pairs padded to whole chunks on the ladder, and the number of chunks in use."""
        chunks = -(-len(first) // self._chunk)
        pad = ladder(chunks) * self._chunk - len(first)
        # Padding repeats the last pair: nothing that it finds is new.
        return (
            self._on.whole(np.pad(first, (0, pad), mode="edge").astype(np.int32)),
            self._on.whole(np.pad(second, (0, pad), mode="edge").astype(np.int32)),
            np.int32(chunks),
        )


@lru_cache(maxsize=2)
def closure_for(domain: Domain, mesh: Mesh, outputs: int) -> JaxClosure:
    """The closure of a domain, kept: audits of one domain follow each other."""
    return JaxClosure(domain, mesh, outputs)


def equal_rows(weights: IntArray) -> IntArray:
    """A number for every row; equal rows, and only those, get equal numbers."""
    rows = np.ascontiguousarray(weights)
    factors = np.random.default_rng(0).integers(2**63, size=rows.shape[1], dtype=np.uint64)
    _, first, same = np.unique(
        (rows.view(np.uint64) * (2 * factors + 1)).sum(axis=1, dtype=np.uint64),
        return_index=True,
        return_inverse=True,
    )
    if np.array_equal(rows[first[same]], rows):
        return same.reshape(-1)
    keys = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
    return np.unique(keys, return_inverse=True)[1].reshape(-1)


@cache
def _compiled_start(mesh: Mesh) -> Any:
    def start(table: Array, records: Array, outputs: Array, real: Array, floor: Array) -> Array:
        z = jnp.maximum(table[records], 0.0)
        sums = jnp.sum(z, axis=2, keepdims=True)
        z = (1 - jnp.sum(floor)) * z / jnp.where(sums > 0, sums, 1.0) + floor
        z /= jnp.sum(z * outputs, axis=2, keepdims=True)
        return jnp.where(real[:, :, None] & outputs, z, 1.0)

    return jax.jit(start, out_shardings=NamedSharding(mesh, TILES))


@cache
def _compiled_rows(mesh: Mesh) -> Any:
    def rows(z: Array, slots: Array) -> Array:
        return z.reshape(-1, z.shape[2])[slots]

    return jax.jit(rows, out_shardings=NamedSharding(mesh, PartitionSpec(None, AXIS)))


@cache
def _compiled_normalise(mesh: Mesh) -> Any:
    def normalise(closed: Array, outputs: Array, real: Array) -> Any:
        sums = jnp.sum(closed * outputs, axis=2)
        sums = jnp.where(real, sums, 1.0)
        return jnp.where(outputs, closed / sums[:, :, None], closed), sums

    return jax.jit(
        normalise, out_shardings=(NamedSharding(mesh, TILES), NamedSharding(mesh, WHOLE))
    )


@cache
def _compiled_spans(mesh: Mesh) -> Any:
    """Upper bounds on log z_x'y - log z_xy, x in tile a and x' in tile b, from the logarithms."""

    def spans(logs: Array, real: Array) -> Array:
        there = real[:, :, None]
        high = jnp.max(jnp.where(there, logs, -jnp.inf), axis=1).T
        low = jnp.min(jnp.where(there, logs, jnp.inf), axis=1).T

        def body(widest: Array, output: Any) -> Any:
            above, below = output
            return jnp.maximum(widest, above - below[:, None]), None

        nothing = jnp.full((len(real), len(real)), -jnp.inf)
        return jax.lax.pmax(jax.lax.scan(body, nothing, (high, low), unroll=10)[0], AXIS)

    return _mapped(mesh, spans, (TILES, WHOLE), WHOLE)


@cache
def _compiled_close(mesh: Mesh, distances: Any, chunk: int) -> Any:
    def close(
        z: Array,
        tables: Any,
        real: Array,
        first: Array,
        second: Array,
        chunks: Array,
        epsilon: Any,
        nats: Any,
    ) -> Array:
        def body(k: Array, out: Array) -> Array:
            a = jax.lax.dynamic_slice_in_dim(first, k * chunk, chunk)
            b = jax.lax.dynamic_slice_in_dim(second, k * chunk, chunk)
            exponent = epsilon * distances(tables, a, b)
            counts = real[b][:, None, :] & (exponent < nats)
            return out.at[a].max(_best_source(jnp.exp(-exponent) * counts, z[b]))

        return jax.lax.fori_loop(0, chunks, body, z)

    specs = (TILES, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE)
    return _mapped(mesh, close, specs, TILES)


@cache
def _compiled_worst(mesh: Mesh, distances: Any, chunk: int) -> Any:
    """max over listed tile pairs of (max_y |log ratio| + error) / (shrunk distance)."""

    def worst(
        logs: Array,
        same: Array,
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
            a = jax.lax.dynamic_slice_in_dim(first, k * chunk, chunk)
            b = jax.lax.dynamic_slice_in_dim(second, k * chunk, chunk)
            gap = _over_outputs(
                lambda widest, own, other: jnp.maximum(widest, jnp.abs(own - other)),
                logs[a],
                logs[b],
            )
            gap = jax.lax.pmax(gap, AXIS)
            differ = same[a][:, :, None] != same[b][:, None, :]
            counts = real[a][:, :, None] & real[b][:, None, :] & differ
            counts &= (a != b)[:, None, None] | later
            rate = (gap + LOG_ERROR) / (distances(tables, a, b) * shrink)
            rate = jnp.where(counts, rate, 0.0).reshape(chunk, -1)
            top = jnp.max(rate, axis=1)
            which = jnp.argmax(top)
            better = top[which] > best
            return (
                jnp.where(better, top[which], best),
                jnp.where(better, k * chunk + which, pair),
                jnp.where(better, jnp.argmax(rate[which]), at),
            )

        nothing = (jnp.float64(0), jnp.int64(0), jnp.int64(0))
        return jax.lax.fori_loop(0, chunks.astype(jnp.int64), body, nothing)

    specs = (TILES, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE)
    return _mapped(mesh, worst, specs, (WHOLE, WHOLE, WHOLE))


@cache
def _compiled_violated(mesh: Mesh, distances: Any, chunk: int) -> Any:
    """For every row the largest key of a violated pair below `below`: gain, then partner's slot."""

    def violated(
        z: Array,
        tables: Any,
        real: Array,
        below: Array,
        first: Array,
        second: Array,
        chunks: Array,
        epsilon: Any,
    ) -> Array:
        itself = jnp.eye(TILE, dtype=bool)
        across = jnp.arange(TILE)

        def body(k: Array, keys: Array) -> Array:
            a = jax.lax.dynamic_slice_in_dim(first, k * chunk, chunk)
            b = jax.lax.dynamic_slice_in_dim(second, k * chunk, chunk)
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
            counts = real[b][:, None, :] & ~own & (key < below[a][:, :, None])
            return keys.at[a].max(jnp.max(jnp.where(counts, key, 0), axis=2))

        return jax.lax.fori_loop(0, chunks, body, jnp.zeros_like(below))

    specs = (TILES, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE)
    return _mapped(mesh, violated, specs, WHOLE)


def _best_source(factor: Array, source: Array) -> Array:
    """max_j factor[p, i, j] source[p, j, y], a few sources at a time."""

    def grouped(table: Array, axis: int) -> Array:
        return jnp.moveaxis(table, axis, 0).reshape(-1, SOURCES_AT_ONCE, *_but(table, axis))

    def body(best: Array, group: Any) -> Any:
        weight, row = group
        for k in range(SOURCES_AT_ONCE):
            best = jnp.maximum(best, weight[k][:, :, None] * row[k][:, None, :])
        return best, None

    nothing = jnp.zeros((len(factor), TILE, source.shape[2]))
    return jax.lax.scan(body, nothing, (grouped(factor, 2), grouped(source, 1)))[0]


def _but(table: Array, axis: int) -> tuple[int, ...]:
    return tuple(size for k, size in enumerate(table.shape) if k != axis)


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
