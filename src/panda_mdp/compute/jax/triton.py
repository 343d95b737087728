"""The two loops of compute/jax/blocks.py that a repair spends its time in, as kernels of their own.

A block is raised by all its sources in registers and written once; chunks of pairs in XLA read and
write it for each of them. Nothing that is certified rests on these: audits stay in XLA.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from panda_mdp.compute.jax.device import Array
from panda_mdp.space.tiles import TILE

WARPS = 8


@cache
def available(device: Any) -> bool:
    """Whether kernels compile for a device."""
    if device.platform != "gpu":
        return False
    try:
        with jax.default_device(device):
            z, factors = jnp.ones((1, TILE, 32)), jnp.ones((1, TILE, TILE))
            one, none = jnp.ones(1, jnp.int32), jnp.zeros(1, jnp.int32)
            active = jnp.ones((1, TILE), bool)
            jax.block_until_ready(raised(z, factors, none, one, none, none, active))
            across = jnp.swapaxes(z, 1, 2)
            jax.block_until_ready(missed(across, factors, none, one, none, none, 0.0))
    except Exception:
        # Another compiler, another card: XLA does the same, slower.
        return False
    return True


def _options(interpret: bool) -> dict[str, Any]:
    if interpret:
        return {"interpret": True}
    from jax.experimental.pallas import triton

    return {"compiler_params": triton.CompilerParams(num_warps=WARPS, num_stages=2)}


@partial(jax.jit, static_argnames="interpret")
def raised(
    z: Array,
    factors: Array,
    low: Array,
    high: Array,
    source: Array,
    pair: Array,
    active: Array,
    interpret: bool = False,
) -> Array:
    """max over k in [low[b], high[b]) and rows j of z[source[k], j] factors[pair[k], j, i], for
    every block b and its rows i that are `active` (blocks, 64); and of what they are."""
    blocks, _, width = z.shape

    def kernel(
        all_ref: Any,
        factors_ref: Any,
        low_ref: Any,
        high_ref: Any,
        source_ref: Any,
        pair_ref: Any,
        own_ref: Any,
        active_ref: Any,
        out_ref: Any,
    ) -> None:
        block = pl.program_id(0)

        def one(k: Array, best: Array) -> Array:
            other, which = source_ref[k], pair_ref[k]

            def row(j: Array, best: Array) -> Array:
                factor, entries = factors_ref[which, j, :], all_ref[other, j, :]
                return jnp.maximum(best, factor[:, None] * entries[None, :])

            return jax.lax.fori_loop(0, TILE, row, best)

        own = own_ref[0]
        best = jax.lax.fori_loop(low_ref[block], high_ref[block], one, own)
        out_ref[0] = jnp.where(active_ref[0][:, None], best, own)

    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    table = pl.BlockSpec((1, TILE, width), lambda block: (block, 0, 0))
    run = pl.pallas_call(
        kernel,
        grid=(blocks,),
        out_shape=jax.ShapeDtypeStruct(z.shape, z.dtype),
        in_specs=[*[anywhere] * 6, table, pl.BlockSpec((1, TILE), lambda block: (block, 0))],
        out_specs=table,
        **_options(interpret),
    )
    return run(z, factors, low, high, source, pair, z, active)


@partial(jax.jit, static_argnames="interpret")
def missed(
    across: Array,
    factors: Array,
    low: Array,
    high: Array,
    first: Array,
    second: Array,
    least: Any,
    interpret: bool = False,
) -> Array:
    """For every pair p of tiles, the sum over k in [low[p], high[p]) of

        sum_y max(0, factors[p, i, j] z[second[k], j, y] - z[first[k], i, y])

    where that exceeds `least`; `across` is z with outputs before rows."""
    width = across.shape[1]

    def kernel(
        all_ref: Any,
        factors_ref: Any,
        low_ref: Any,
        high_ref: Any,
        first_ref: Any,
        second_ref: Any,
        least_ref: Any,
        out_ref: Any,
    ) -> None:
        pair = pl.program_id(0)
        factor = factors_ref[0]

        def one(k: Array, total: Array) -> Array:
            a, b = first_ref[k], second_ref[k]

            def output(y: Array, gain: Array) -> Array:
                own, other = all_ref[a, y, :], all_ref[b, y, :]
                return gain + jnp.maximum(factor * other[None, :] - own[:, None], 0.0)

            gain = jax.lax.fori_loop(0, width, output, jnp.zeros_like(factor))
            return total + jnp.where(gain > least_ref[0], gain, 0.0)

        nothing = jnp.zeros_like(factor)
        out_ref[0] = jax.lax.fori_loop(low_ref[pair], high_ref[pair], one, nothing)

    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    square = pl.BlockSpec((1, TILE, TILE), lambda pair: (pair, 0, 0))
    run = pl.pallas_call(
        kernel,
        grid=(len(factors),),
        out_shape=jax.ShapeDtypeStruct(factors.shape, factors.dtype),
        in_specs=[anywhere, square, *[anywhere] * 5],
        out_specs=square,
        **_options(interpret),
    )
    return run(across, factors, low, high, first, second, jnp.full(1, least))
