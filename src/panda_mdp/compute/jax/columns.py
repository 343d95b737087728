"""Flows and centres between peaks and a floor (methods/optimal/columns.py) on an accelerator.

Outputs with about as many that are paid are taken together, so many that their blocks of
(outputs, paid, records) fit. Lists of columns are filled up with zeros to one length, so that
nothing is compiled again while they grow.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.threads import check_time
from panda_mdp.compute.jax.device import precise

MOST_ENTRIES = 1 << 26
"""Of a block, half a GiB in each of three arrays."""
FEWEST = 4


class Device:
    """What `Host` does, an array of outputs at a time."""

    def __init__(self, tuning: Any, laws: Any) -> None:
        self.tuning = tuning
        self.laws = laws
        """Steps of flows and of centres, limits of floats, and the form of an answer."""

    def put(self, array: FloatArray) -> Any:
        """An array on the first device."""
        with precise():
            return jax.device_put(np.asarray(array), jax.local_devices()[0])

    def times(self, known: Any, prices: FloatArray) -> FloatArray:
        """known @ prices."""
        with precise():
            return np.asarray(_times(known, prices))

    def ends(self, known: Any) -> tuple[FloatArray, FloatArray]:
        """The least and the largest of each column."""
        with precise():
            return np.asarray(known.min(axis=1)), np.asarray(known.max(axis=1))

    def worth(self, columns: Any, cost: Any) -> FloatArray:
        """Of a column for each output, in their order."""
        with precise():
            return np.asarray(_worth(columns, cost))

    def rows(self, known: Any, called: Any, index: IntArray) -> Any:
        """Some columns of two lists; those of the second are counted from its end."""
        size = known.shape[1]
        count = len(known) + len(called)
        filled = np.full((self.tuning.kept + 1) * size, count)
        filled[: len(index)] = np.where(index < 0, index + count, index)
        with precise():
            return _rows(known, called, filled)

    def newton(
        self, known: Any, worth: FloatArray, prices: FloatArray, box: FloatArray, barrier: float
    ) -> tuple[Any, Any, Any]:
        """A step towards the centre."""
        full = np.ones(len(known))
        full[: len(worth)] = worth
        with precise():
            found = _centring(self.laws.newton)(known, full, prices, box, barrier)
            return tuple(map(np.asarray, found))  # type: ignore[return-value]

    def flows(self, decay: Any, cost: Any, heights: Any, asked: FloatArray) -> Any:
        """Flows of all outputs at prices that are asked."""
        size = len(decay)
        with precise():
            counts = np.asarray(_paid(cost, asked))
            given = jnp.asarray(asked)
            ones = jnp.ones(size)
            state = heights, heights, ones.astype(int), ones * jnp.inf, jnp.zeros_like(heights)
            order = np.argsort(counts, kind="stable")
            begin = int(np.searchsorted(counts[order], 1))
            while begin < size:
                check_time()
                width = FEWEST
                while width < counts[order[begin]]:
                    width *= 2
                width = min(width, size)
                step = max(1, min(size, MOST_ENTRIES // (width * size)))
                fits = np.searchsorted(counts[order], width, side="right")
                some = order[begin : min(begin + step, int(fits))]
                begin += len(some)
                # The last of a block is repeated, so that all have one length.
                some = np.pad(some, (0, step - len(some)), mode="edge")
                block = partial(_block, self.laws, self.tuning, width)
                state = block(decay, cost, given, some, state)
            heights, best, sharpest, most, called = state
            return self.laws.flows(heights, best, np.asarray(sharpest), np.asarray(most), called)


_times = jax.jit(jnp.matmul)
_worth = jax.jit(partial(jnp.einsum, "yx,xy->y"))


@jax.jit
def _paid(cost, asked):
    return (cost < asked[:, None]).sum(axis=0)


@jax.jit
def _rows(known, called, index):
    zero = jnp.zeros((1, known.shape[1]))
    return jnp.concatenate([known, called, zero])[index]


@cache
def _centring(newton):
    solve = partial(jax.scipy.linalg.solve, assume_a="pos")
    return jax.jit(partial(newton, solve=solve, xp=jnp))


@partial(jax.jit, static_argnums=(0, 1, 2))
def _block(laws, tuning, width, decay, cost, asked, some, state):
    """What flows of some outputs, of which at most `width` are paid, make of all."""
    heights, best, sharpest, most, called = state
    spare = cost[:, some].T - asked
    due, paid = jax.lax.top_k(-spare, width)
    real = due > 0
    near = jnp.where(real[:, :, None], decay[paid], 0.0)
    given = jnp.clip(spare, 0, laws.spare)
    # Who is not paid weighs nothing beside the largest.
    own = jnp.where(real, jnp.take_along_axis(heights[some], paid, axis=1), 0.0)
    flow = jax.vmap(partial(_flow, laws, tuning))
    after, held, q, received = flow(near, jnp.maximum(due, laws.due), real, given, own)
    rows = some[:, None]
    fits = cost[:, some].T
    gains = jnp.where(real, received * due, 0.0)
    fits = fits.at[jnp.arange(len(some))[:, None], paid].add(gains)
    columns = jnp.where(real[:, :, None], near * after[:, :, None], 0.0).max(axis=1)
    return (
        heights.at[rows, paid].set(jnp.where(real, after, heights[rows, paid])),
        best.at[rows, paid].set(jnp.where(real, held, heights[rows, paid])),
        sharpest.at[some].set(q),
        jnp.minimum(most, fits.min(axis=0)),
        called.at[some].set(columns),
    )


def _flow(laws, tuning, near, due, real, given, heights):
    """`Host._flow` of one output, of which only some that are paid are `real`."""
    best = heights
    received = jnp.where(real, 0.0, jnp.inf)
    sharpest = jnp.array(1)
    for q in tuning.sharpness:
        sharp = laws.powered(near, q)
        lent = sharp * near / due[:, None]

        def on(state):
            return (state[0] < tuning.steps) & (state[3].min() <= 1)

        def step(state, sharp=sharp, lent=lent, q=q):
            count, weights, best, received, sharpest = state
            got, after = laws.step(sharp, lent, given, weights, tuning.relaxed, jnp)
            got = jnp.where(real, got, jnp.inf)
            better = got.min() > received.min()
            received = jnp.where(better, got, received)
            best = jnp.where(better, weights ** (1 / q), best)
            sharpest = jnp.where(better, q, sharpest)
            weights = jnp.where(received.min() > 1, weights, after)
            return count + 1, weights, best, received, sharpest

        begin = jnp.array(0), heights**q, best, received, sharpest
        steps, weights, best, received, sharpest = jax.lax.while_loop(on, step, begin)
        heights = jnp.where(steps > 0, weights ** (1 / q), heights)
    return heights, best, sharpest, received
