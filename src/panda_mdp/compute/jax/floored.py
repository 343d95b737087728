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
            logs = None
            if closure.device.platform != "gpu":
                # A device's own logarithm is known to err by 1 ulp on CUDA alone.
                host = (np.log(np.asarray(part).astype(np.float64)) for part in (weights, floors))
                logs = tuple(closure._put(part) for part in host)
            logs, lifts = _lifts(weights, floors, logs, layout.arrays)
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
def _lifts(weights: Array, floors: Array, logs: Any, c: Any) -> tuple[Array, Array]:
    """Logarithms, given with those of the floors or computed here, and by how much a row of a block
    lies off the floor, in nats; -1 where it is the floor."""
    if logs is None:
        logs = (jnp.log(part.astype(jnp.float64)) for part in (weights, floors))
    logs, under = logs
    lifts = jnp.max(jnp.abs(logs - under[c["group"]][:, None, :]), axis=2)
    same = jnp.all(weights == floors[c["group"]][:, None, :], axis=2)
    return logs, jnp.where(same, -1.0, lifts)
