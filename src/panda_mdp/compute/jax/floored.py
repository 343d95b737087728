"""compute/floored.py on an accelerator: the audit of rows over a floor, block by block.

The blocks are made from the stored integers alone. Distances and logarithms are float64 with the
errors that docs/audit.md allows for, on the safe side.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from panda_mdp.base.floored import FlooredRows
from panda_mdp.compute.backend import MEMORY_FULL
from panda_mdp.compute.floored import WIDTH
from panda_mdp.compute.jax.blocks import Layout
from panda_mdp.compute.jax.device import Array, ladder, make_mesh, measures, precise
from panda_mdp.compute.jax.lifted import JaxLiftedClosure
from panda_mdp.errors import MethodError
from panda_mdp.space.domain import Domain
from panda_mdp.space.tiles import TILE


@lru_cache(maxsize=1)
def _closure_for(domain: Domain) -> JaxLiftedClosure:
    """Kept: audits of one domain follow each other. This process's own device: others may have
    nothing to audit."""
    return JaxLiftedClosure(domain, 1.0, make_mesh(jax.local_devices()[:1]))


def device_rate(domain: Domain, rows: FlooredRows) -> tuple[float, int, int] | None:
    """`floored_rate`, with records by number; None where the host has to do it: the metric is not
    measured here, the pairs or the device's memory do not suffice, or all rows are alike."""
    if not measures(domain.metric) or rows.stored == 0:
        return None
    closure = _closure_for(domain)
    try:
        with precise():
            layout, weights, floors = _blocks(closure, rows)
            logs, under = (_logarithm(closure, part) for part in (weights, floors))
            lifts = _lifts(weights, floors, logs, under, layout.arrays)
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
    groups = -(-outputs // WIDTH)
    put = closure._put
    slot = np.empty(rows.shape[0], dtype=np.int32)
    slot[closure.order] = closure.slot
    size = ladder(rows.stored)
    record = _repeated(put(slot), put(np.diff(rows.starts)), size)
    # Padded here: on the device every number of entries would be compiled for.
    column, value = (put(_padded(part, size)) for part in (rows.columns, rows.values))
    # Outputs whose largest weights lie near each other go together.
    place = np.empty(outputs, dtype=np.int32)
    place[np.argsort(np.asarray(_peaks(record, column, value, outputs)), kind="stable")] = (
        np.arange(outputs)
    )
    floors = np.ones((groups + 1) * WIDTH, dtype=np.int64)
    floors[place] = np.maximum(rows.floor, 1)
    under = put(floors.reshape(-1, WIDTH))
    at = put(place)
    mask = np.asarray(_used(record, column, at, groups, len(closure.grid.members)))
    layout = Layout.build(mask, closure.device)
    weights = _filled(record, column, value, at, under, layout.arrays)
    return layout, weights, under


@partial(jax.jit, static_argnames="size")
def _repeated(slot: Array, count: Array, size: int) -> Array:
    """The slot of every entry; padding says the last one again."""
    return jnp.repeat(slot, count, total_repeat_length=size)


def _padded(entries: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """The last one again and again behind them."""
    out = np.empty(size, dtype=entries.dtype)
    out[: len(entries)] = entries
    out[len(entries) :] = entries[-1]
    return out


@partial(jax.jit, static_argnames="outputs")
def _peaks(slot: Array, column: Array, value: Array, outputs: int) -> Array:
    """Where the largest weight of every output lies, the first of equals."""
    highest = jnp.zeros(outputs, jnp.int64).at[column].max(value)
    first = jnp.where(value == highest[column], slot, jnp.iinfo(jnp.int32).max)
    return jnp.full(outputs, jnp.iinfo(jnp.int32).max, jnp.int32).at[column].min(first)


@partial(jax.jit, static_argnames=("groups", "tiles"))
def _used(slot: Array, column: Array, place: Array, groups: int, tiles: int) -> Array:
    return jnp.zeros((groups, tiles), bool).at[place[column] // WIDTH, slot // TILE].set(True)


@jax.jit
def _filled(slot: Array, column: Array, value: Array, place: Array, floors: Array, c: Any) -> Array:
    begun = jnp.broadcast_to(floors[c["group"]][:, None, :], (len(c["group"]), TILE, WIDTH))
    group, k = place[column] // WIDTH, place[column] % WIDTH
    block = c["number"][group, slot // TILE]
    # A column that is 0 in all rows tells nothing.
    return begun.at[block, slot % TILE, k].set(jnp.maximum(value, 1))


def _logarithm(closure: JaxLiftedClosure, whole: Array) -> Array:
    """The device's own logarithm errs by 1 ulp on CUDA; elsewhere the host's is known."""
    if closure.device.platform == "gpu":
        return _log(whole)
    return closure._put(np.log(np.asarray(whole).astype(np.float64)))


@jax.jit
def _log(whole: Array) -> Array:
    return jnp.log(whole.astype(jnp.float64))


@jax.jit
def _lifts(weights: Array, floors: Array, logs: Array, under: Array, c: Any) -> Array:
    """By how much a row of a block lies off the floor, in nats; -1 where it is the floor."""
    lifts = jnp.max(jnp.abs(logs - under[c["group"]][:, None, :]), axis=2)
    same = jnp.all(weights == floors[c["group"]][:, None, :], axis=2)
    return jnp.where(same, -1.0, lifts)
