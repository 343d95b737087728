"""Losses d(x, y)^power of all records and outputs on an accelerator, computed as they are used.

One place of a table stands for one record, `laid_out` one by one: any pair of them can be asked.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.base.floored import FlooredRows
from panda_mdp.compute.jax.device import Array, laid_out, precise
from panda_mdp.space.domain import Domain
from panda_mdp.space.tiles import TILE

Distances = Callable[[Any, Array, Array], Array]
BATCH = 8
"""Tiles of outputs that are gone through together, each against all records."""


@lru_cache(maxsize=1)
def tables_of(domain: Domain) -> tuple[Distances, Any, Any]:
    """What computes the distances of a domain's records; what it reads for records one by one, and
    for tiles of 64 of them as they are numbered, the last record filling up the last tile."""
    last = domain.size - 1
    tiles = np.minimum(np.arange(-(-domain.size // TILE) * TILE), last).reshape(-1, TILE)
    with precise():
        distances, single = laid_out(domain.metric, np.arange(domain.size)[:, None])
        _, wide = laid_out(domain.metric, tiles)
        put = partial(jax.device_put, device=jax.local_devices()[0])
        return distances, jax.tree.map(put, single), jax.tree.map(put, wide)


def weighted_sums(
    domain: Domain, outputs: IntArray, power: float, weights: FloatArray
) -> FloatArray:
    """sum_x weights[w, x] loss(x, y), (w, m)."""
    distances, _, wide = tables_of(domain)
    pad = -domain.size % TILE
    given = np.pad(weights, ((0, 0), (0, pad))).reshape(len(weights), -1, TILE)
    with precise():
        sums = _compiled_sums(distances, power)(wide, jnp.asarray(given))
        # Of all records, in tiles; outputs are some of these.
        return np.asarray(sums).transpose(1, 0, 2).reshape(len(weights), -1)[:, outputs]


@cache
def _compiled_sums(distances: Distances, power: float) -> Any:
    def sums(wide: Any, weights: Array) -> Array:
        every = jnp.arange(weights.shape[1])

        def of_tile(tile: Array) -> Array:
            loss = distances(wide, every, jnp.full_like(every, tile)) ** power
            return jnp.sum(weights[:, :, :, None] * loss, axis=(1, 2))

        return jax.lax.map(of_tile, every, batch_size=BATCH)

    return jax.jit(sums)


def seen_by_groups(
    domain: Domain, groups: IntArray, power: float, margin: float
) -> tuple[BoolArray, FloatArray]:
    """Whether some output of a group costs a record at most `margin` more than its cheapest one,
    (groups, K), and the least loss of every record over the groups where none does.

    `groups` (n, width) are the records that outputs are, all of them."""
    distances, single, _ = tables_of(domain)
    with precise():
        least = _compiled_least(distances, power)(single, jnp.asarray(groups), domain.size)
        sees, outside = _seen(least, np.float64(margin))
        return np.asarray(sees), np.asarray(outside)


def least_losses(domain: Domain, outputs: IntArray, power: float) -> FloatArray:
    """The least loss of every record over all outputs."""
    groups = np.resize(outputs, (-(-len(outputs) // TILE), TILE))
    distances, single, _ = tables_of(domain)
    with precise():
        least = _compiled_least(distances, power)(single, jnp.asarray(groups), domain.size)
        return np.asarray(jnp.min(least, axis=0))


@cache
def _compiled_least(distances: Distances, power: float) -> Any:
    def least(single: Any, groups: Array, size: int) -> Array:
        records = jnp.arange(size)

        def of_group(group: Array) -> Array:
            def of_output(output: Array) -> Array:
                return distances(single, records, jnp.full_like(records, output))[:, 0, 0]

            return jnp.min(jax.lax.map(of_output, group, batch_size=len(group)), axis=0) ** power

        return jax.lax.map(of_group, groups, batch_size=BATCH)

    return jax.jit(least, static_argnames="size")


@jax.jit
def _seen(least: Array, margin: Array) -> tuple[Array, Array]:
    inside = least <= jnp.min(least, axis=0) + margin
    return inside, jnp.min(jnp.where(inside, jnp.inf, least), axis=0)


def losses(domain: Domain, outputs: Array, power: float, records: Array, columns: Array) -> Array:
    """Of records (n,) and columns (n, width), on the device."""
    distances, single, _ = tables_of(domain)
    return _compiled_losses(distances, power)(single, outputs, records, columns)


@cache
def _compiled_losses(distances: Distances, power: float) -> Any:
    def losses(single: Any, outputs: Array, records: Array, columns: Array) -> Array:
        first = jnp.broadcast_to(records[:, None], columns.shape).reshape(-1)
        second = outputs[columns].reshape(-1)
        return distances(single, first, second)[:, 0, 0].reshape(columns.shape) ** power

    return jax.jit(losses)


def losses_above(domain: Domain, outputs: IntArray, power: float, rows: FlooredRows) -> FloatArray:
    """sum over what row x stores of (value - floor) loss(x, column), of every record."""
    distances, single, _ = tables_of(domain)
    with precise():
        put = partial(jax.device_put, device=jax.local_devices()[0])
        listed = (outputs, rows.floor, np.diff(rows.starts), rows.columns, rows.values)
        return np.asarray(_compiled_above(distances, power)(single, *map(put, listed)))


@cache
def _compiled_above(distances: Distances, power: float) -> Any:
    def above(
        single: Any, outputs: Array, floor: Array, count: Array, columns: Array, values: Array
    ) -> Array:
        own = jnp.repeat(jnp.arange(len(count)), count, total_repeat_length=len(columns))
        loss = distances(single, own, outputs[columns])[:, 0, 0] ** power
        part = (values - floor[columns]).astype(jnp.float64) * loss
        return jax.ops.segment_sum(part, own, num_segments=len(count), indices_are_sorted=True)

    return jax.jit(above)
