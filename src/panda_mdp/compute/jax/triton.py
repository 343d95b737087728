"""The loop of compute/jax/blocks.py that a repair spends its time in, as a kernel of its own, and
the sums over edges of an iteration on nodes.

A block is raised by all its sources in registers and written once; chunks of pairs in XLA read and
write it for each of them. Sums over edges in XLA add every edge to memory. Nothing that is
certified rests on these: audits and bounds stay in XLA.
"""

from __future__ import annotations

import warnings
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from panda_mdp.base.text import Facts
from panda_mdp.compute.pairs import WIDTH
from panda_mdp.errors import SlowerWarning
from panda_mdp.space.tiles import TILE

ANYWHERE = pl.BlockSpec(memory_space=pl.ANY)
WARPS = 8
EDGES = 8
"""Edges whose rows are read at once."""


@cache
def available() -> bool:
    """Whether kernels compile for the device. One is tried: a process's first call waits for it."""
    if jax.default_backend() != "gpu":
        return False
    try:
        rows = np.ones((64, 32), np.float32)
        edges = np.zeros(65, np.int32)
        jax.block_until_ready(summed(rows, rows, edges, edges, edges[:64]))
    except Exception:
        # Another compiler, another card: XLA does the same.
        warn_slower()
        return False
    return True


@cache
def warn_slower() -> None:
    """Say, once in a process, that XLA does what a kernel of our own would do faster."""
    msg = "no kernel of this library compiles for the device; XLA does the same, a few times slower"
    warnings.warn(msg, SlowerWarning, stacklevel=3)


def _options(interpret: bool, warps: int = WARPS) -> Facts:
    if interpret:
        return {"interpret": True}
    from jax.experimental.pallas import triton

    return {"compiler_params": triton.CompilerParams(num_warps=warps, num_stages=2)}


@partial(jax.jit, static_argnames="interpret")
def summed(first, second, starts, later, at, interpret: bool = False):
    """For every node n the sum of the rows first[k], starts[n] <= k < starts[n + 1], and of
    second[at[k]], later[n] <= k < later[n + 1]."""
    nodes = len(starts) - 1
    width = first.shape[1]

    def kernel(
        first_ref,
        second_ref,
        starts_ref,
        later_ref,
        at_ref,
        out_ref,
    ) -> None:
        node = pl.program_id(0)
        lanes = jnp.arange(EDGES, dtype=jnp.int32)

        def over(low, high, rows, total):
            def some(step, total):
                k = low + step.astype(jnp.int32) * EDGES + lanes
                inside = k < high
                part = rows(jnp.where(inside, k, low))
                return total + jnp.sum(jnp.where(inside[:, None], part, 0), axis=0)

            return jax.lax.fori_loop(0, (high - low + EDGES - 1) // EDGES, some, total)

        total = jnp.zeros(width, first.dtype)
        begin = starts_ref[node]
        end = starts_ref[node + 1]
        total = over(begin, end, lambda k: first_ref[k, :], total)
        begin = later_ref[node]
        end = later_ref[node + 1]
        out_ref[0] = over(begin, end, lambda k: second_ref[at_ref[k], :], total)

    run = pl.pallas_call(
        kernel,
        grid=(nodes,),
        out_shape=jax.ShapeDtypeStruct((nodes, width), first.dtype),
        in_specs=[ANYWHERE] * 5,
        out_specs=pl.BlockSpec((1, width), lambda node: (node, 0)),
        **_options(interpret, 1),
    )
    return run(first, second, starts, later, at)


@partial(jax.jit, static_argnames="interpret")
def raised(
    z,
    factors,
    low,
    high,
    source,
    pair,
    active,
    interpret: bool = False,
):
    """max over k in [low[b], high[b]) and rows j of z[source[k], j] factors[pair[k], j, i], for
    every block b and its rows i that are `active` (blocks, 64); and of what they are. Each program
    has `WIDTH` outputs of a block."""
    (blocks, _, outputs), missing = z.shape, -z.shape[2] % WIDTH
    parts = jnp.pad(z, ((0, 0), (0, 0), (0, missing))).reshape(blocks, TILE, -1, WIDTH)
    parts = jnp.moveaxis(parts, 2, 0)

    def kernel(
        all_ref,
        factors_ref,
        low_ref,
        high_ref,
        source_ref,
        pair_ref,
        own_ref,
        active_ref,
        out_ref,
    ) -> None:
        block, part = pl.program_id(0), pl.program_id(1)

        def one(k, best):
            other = source_ref[k]
            which = pair_ref[k]

            def row(j, best):
                factor = factors_ref[which, j, :]
                entries = all_ref[part, other, j, :]
                return jnp.maximum(best, factor[:, None] * entries[None, :])

            return jax.lax.fori_loop(0, TILE, row, best)

        own = own_ref[0, 0]
        best = jax.lax.fori_loop(low_ref[block], high_ref[block], one, own)
        out_ref[0, 0] = jnp.where(active_ref[0][:, None], best, own)

    table = pl.BlockSpec((1, 1, TILE, WIDTH), lambda block, part: (part, block, 0, 0))
    rows = pl.BlockSpec((1, TILE), lambda block, part: (block, 0))
    run = pl.pallas_call(
        kernel,
        grid=(blocks, len(parts)),
        out_shape=jax.ShapeDtypeStruct(parts.shape, z.dtype),
        in_specs=[*[ANYWHERE] * 6, table, rows],
        out_specs=table,
        **_options(interpret),
    )
    out = run(parts, factors, low, high, source, pair, parts, active)
    return jnp.moveaxis(out, 0, 2).reshape(blocks, TILE, -1)[:, :, :outputs]
