"""Sparse matrices of guesses and nodes on an accelerator, and what groups of guesses come to."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from panda_mdp.compute.jax.device import Array, ladder, put

PASSES = 60
"""Of a projection, at most: far fewer as a rule."""
FARTHEST = -1.000001
"""Below the largest weight of a group: others that end above 0 are nearer."""


class Matrix(NamedTuple):
    """A sparse matrix, by its rows."""

    rows: int
    row: Array
    column: Array
    value: Array

    @classmethod
    def of(cls, given: Any, shape: tuple[int, int]) -> Matrix:
        """Those of SciPy, padded to a shape with zeros in the last row and column."""
        listed = scipy.sparse.csr_array(given).tocoo()
        pad = (0, ladder(listed.nnz + 1) - listed.nnz)
        rows, columns = shape
        row = np.pad(listed.row, pad, constant_values=rows - 1).astype(np.int32)
        column = np.pad(listed.col, pad, constant_values=columns - 1).astype(np.int32)
        return cls(rows, *map(put, (row, column, np.pad(listed.data, pad))))

    def __matmul__(self, table: Array) -> Array:
        return _product(*self[1:], table, rows=self.rows)


@partial(jax.jit, static_argnames="rows")
def _product(row, column, value, table, rows: int):
    part = value[:, None] * table[column]
    return jax.ops.segment_sum(part, row, num_segments=rows, indices_are_sorted=True)


class Turnable(NamedTuple):
    """A matrix and its transpose."""

    own: Matrix
    T: Matrix

    def __matmul__(self, table: Array) -> Array:
        return self.own @ table

    def astype(self, kind: Any) -> Turnable:
        """In another precision."""
        return Turnable(*(m._replace(value=m.value.astype(kind)) for m in self))


@partial(jax.jit, static_argnames=("kind", "groups"))
def over_groups(values, group, kind: str, groups: int):
    sums = {"add": jax.ops.segment_sum, "maximum": jax.ops.segment_max}[kind]
    return sums(values, group, num_segments=groups, indices_are_sorted=True)


@partial(jax.jit, static_argnames="groups")
def onto(weights, group, groups: int):
    """`onto_simplex` of every group."""
    weights = weights - over_groups(weights, group, "maximum", groups)[group]
    ends = jnp.searchsorted(group, jnp.arange(groups), side="right") - 1

    def over(values):
        # Ten times as fast as adding up by group, and as precise in float64.
        return jnp.diff(jnp.cumsum(values, axis=0, dtype=jnp.float64)[ends], axis=0, prepend=0)

    def go_on(state):
        shift, before, passes = state
        return (passes < PASSES) & jnp.any(shift != before)

    def step(state):
        shift, _, passes = state
        held = weights > shift[group]
        return (over(jnp.where(held, weights, 0)) - 1) / over(held), shift, passes + 1

    # The largest alone would be moved by 1: what lies farther below it ends at 0.
    low = jnp.full((groups, weights.shape[1]), FARTHEST)
    first = step((low, low, 0))
    shift, *_ = jax.lax.while_loop(go_on, step, first)
    return jnp.maximum(weights - shift[group], 0).astype(weights.dtype)
