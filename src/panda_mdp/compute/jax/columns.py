"""Flows and centres between peaks and a floor (methods/optimal/columns.py) on an accelerator.

Lists of columns are filled up with zeros to one length, so that nothing is compiled again while
they grow.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.base.threads import check_time
from panda_mdp.compute.jax.device import precise, put


def until(steps: int, step: Callable[[Any], Any], state: Any) -> Any:
    """So many steps, or until the first of the state is above 1."""

    def more(now: Any) -> Any:
        return (now[0] < steps) & ~(now[1][0] > 1).all()

    return jax.lax.while_loop(more, lambda now: (now[0] + 1, step(now[1])), (0, state))[1]


class Device:
    """What computes flows and centres, by functions that are given a module of arrays."""

    most_entries = 1 << 26
    """Of a block of flows: half a GiB in each of three arrays."""

    def __init__(self, block: Callable[..., Any], newton: Callable[..., Any]) -> None:
        solve = partial(jax.scipy.linalg.solve, assume_a="pos")
        self._block = jax.jit(partial(block, machine=(jnp, until)))
        self._newton = jax.jit(partial(newton, solve, xp=jnp))

    def put(self, array: FloatArray, rows: int = 0) -> Any:
        """An array on the first device, filled up with zeros to so many rows."""
        more = max(0, rows - len(array))
        with precise():
            return put(np.pad(array, ((0, more), (0, 0))))

    def block(self, *given: Any) -> Any:
        """Flows of some outputs."""
        check_time()
        with precise():
            return jax.tree.map(np.asarray, self._block(*given))

    def newton(self, known: Any, worth: FloatArray, *given: Any) -> Any:
        """A step towards the centre; columns that are 0 are worth anything."""
        worth = np.pad(worth, (0, len(known) - len(worth)), constant_values=1.0)
        with precise():
            return jax.tree.map(np.asarray, self._newton(known, worth, *given))
