"""Tables over a floor on an accelerator: from nodes or stored numbers to blocks, and back."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from panda_mdp.compute.jax.blocks import Blocks, Near, Pairs, fold
from panda_mdp.space.tiles import TILE


@jax.jit
def lifts(z, c: Blocks):
    """The largest log z / floor of every row of every block, (blocks, 64), of what is no record or
    output -inf; and the largest of them, or 0."""
    ratio = jnp.log(z / c.spread(c.floors))
    lifts = jnp.max(jnp.where(c.there & c.spread(c.exists), ratio, -jnp.inf), axis=2)
    return lifts, jnp.maximum(jnp.max(lifts), 0.0)


@jax.jit
def cover_mask(lifts, c: Blocks, near: Near, epsilon):
    """(groups, P): whether the first tile's block may raise a record of the second above the floor,
    and how many that are."""
    number = c.number[:-1, near.first]
    mask = (number >= 0) & (jnp.max(lifts, axis=1)[number] > epsilon * near.between)
    return mask, jnp.sum(mask)


@jax.jit
def covered(lifts, pairs: Pairs, epsilon):
    """(groups, T): the tiles of which some record is raised above the floor by a row of the first
    of a pair of blocks: one within its `lifts` nats."""
    number = pairs.blocks.number
    near = pairs.near

    def body(at, _, mask):
        a, _, p = pairs.ends(at)
        exponent = epsilon * near.apart(p, pairs.blocks.real)
        raised = jnp.any(exponent < lifts[a][:, :, None], axis=(1, 2))
        return mask.at[at // len(near.first), near.second[p]].max(raised)

    nothing = jnp.zeros((len(number) - 1, number.shape[1]), bool)
    return fold(pairs.at, pairs.at < pairs.end, body, nothing)


@partial(jax.jit, static_argnames="blocks")
def gathered(z, at, blocks: int):
    """Nodes (n, width) in blocks of 0; `at` are their blocks and rows."""
    block, row = (part[: len(z)] for part in at)
    out = jnp.zeros((blocks, TILE, z.shape[1]))
    return out.at[block, row].set(z[: len(block)].astype(jnp.float64), mode="drop")


@jax.jit
def raised(rows, at, c: Blocks):
    """The floor of every block, raised to the rows of the blocks at `at`."""
    begun = jnp.broadcast_to(c.spread(c.floors), (len(c.group), *rows.shape[1:]))
    return jnp.where(c.spread(c.exists), begun.at[at].max(rows), 1.0)


@jax.jit
def stored(z, c: Blocks):
    """What lies above the floor, and how many that are."""
    above = c.there & c.spread(c.exists) & (z > c.spread(c.floors))
    return above, jnp.sum(above)


@partial(jax.jit, static_argnames=("shape", "size"))
def entries(z, stored, c: Blocks, names, shape: tuple[int, int], size: int):
    """What is stored, by record and column: where the records' entries start, columns and values;
    behind it what is not. `names` are the records of (T, 64) and the outputs of groups, `shape`
    says how many there are."""
    records, columns = names
    at = jnp.nonzero(stored.reshape(-1), size=size, fill_value=-1)[0]
    block, row, k = jnp.unravel_index(at, z.shape)
    key = records[c.tile[block], row].astype(jnp.int64) * shape[1] + columns[c.group[block], k]
    key = jnp.where(at < 0, jnp.iinfo(jnp.int64).max, key)
    key, value = jax.lax.sort((key, z.reshape(-1)[at]), num_keys=1)
    starts = jnp.searchsorted(key, jnp.arange(shape[0] + 1) * shape[1])
    return starts, (key % shape[1]).astype(jnp.int32), value


@jax.jit
def whole(z, stored, under, c: Blocks, room, slack):
    """Whole numbers of at least `under` for what is stored, in proportion to z, so that a row fills
    `room` and what lies under its entries; what is left goes to its largest entry."""
    z = jnp.where(stored, z, 0.0)
    least = jnp.where(stored, c.spread(under), 0)
    mass = c.by_record(z)
    share = z / c.of_record(jnp.where(mass > 0, mass, 1.0))
    room = room + c.by_record(least)
    whole = jnp.zeros(z.shape, jnp.int64)
    for _ in range(2):
        # Twice a little less than the whole, so that what is missing is never negative.
        missing = c.of_record((room - c.by_record(whole)) * (1 - slack))
        whole += jnp.floor(share * missing).astype(jnp.int64)
    whole = jnp.maximum(whole, least)
    missing = room - c.by_record(whole)
    highest = jnp.max(whole, axis=2)[c.of_tile]
    block = jnp.take_along_axis(c.of_tile, jnp.argmax(highest, axis=1), axis=1)
    row = jnp.broadcast_to(jnp.arange(TILE), block.shape)
    return whole.at[block, row, jnp.argmax(whole[block, row], axis=2)].add(missing)


@partial(jax.jit, static_argnames=("outputs", "tiles", "width"))
def places_of_entries(slot, count, entries, outputs: int, tiles: int, width: int):
    """The slot of every entry, of padding the last one again; the place of every output, such that
    those whose largest weights lie near each other go together; and which groups of places have an
    entry in which tiles. `slot` and `count` are of records, `entries` columns and values."""
    column, value = entries
    slot = jnp.repeat(slot, count, total_repeat_length=len(column))
    highest = jnp.zeros(outputs, jnp.int64).at[column].max(value)
    none = jnp.iinfo(jnp.int32).max
    first = jnp.where(value == highest[column], slot, none)
    peaks = jnp.full(outputs, none, jnp.int32).at[column].min(first)
    ranks = jnp.arange(outputs, dtype=jnp.int32)
    place = jnp.zeros_like(ranks).at[jnp.argsort(peaks, stable=True)].set(ranks)
    mask = jnp.zeros((-(-outputs // width), tiles), bool)
    return slot, place, mask.at[place[column] // width, slot // TILE].set(True)


@jax.jit
def filled(slot, place, entries, c: Blocks):
    """Blocks of weights: the floor, and entries where they are stored."""
    (column, value), width = entries, c.exists.shape[1]
    begun = jnp.broadcast_to(c.spread(c.floors), (len(c.group), TILE, width))
    group = place[column] // width
    k = place[column] % width
    # A column that is 0 in all rows tells nothing.
    return begun.at[c.number[group, slot // TILE], slot % TILE, k].set(jnp.maximum(value, 1))


@jax.jit
def names(c: Blocks, records, columns):
    """The record of every row of every block, (n,), and its outputs (n, width); given are those of
    the tiles and of the groups."""
    return records[c.tile].reshape(-1), jnp.repeat(columns[c.group], TILE, axis=0)


@jax.jit
def loss_above(z, c: Blocks, costs):
    """The loss of what lies above the floor; `costs` are p c of all rows."""
    part = (z - c.spread(c.floors)) * costs.reshape(z.shape)
    return jnp.sum(jnp.where(c.spread(c.exists), part, 0.0))


@jax.jit
def logs_of(weights):
    """Logarithms of arrays of whole numbers, of at least 1."""
    return jax.tree.map(lambda w: jnp.log(jnp.maximum(w, 1).astype(jnp.float64)), weights)
