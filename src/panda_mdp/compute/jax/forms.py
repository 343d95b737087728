"""Sums of largest linear forms over the nodes of tiles, on an accelerator.

`methods.second.objectives.Tiled` says what they are. Coefficients are lists of guesses and nodes,
padded with a guess of a group of its own, of rate 0, and with the last node, which is none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from panda_mdp.base.arrays import AnyArray, FloatArray, owners
from panda_mdp.compute.jax.device import Array, Placement, ladder, precise

STORED = 2e-7
"""More than storing a coefficient in float32 and summing in float64 can err, relatively."""
PASSES = 60
"""Of a projection, at most: far fewer as a rule."""


class Lists(NamedTuple):
    """Coefficients by guess, the same times what `steep` has, and the former by node."""

    row: Array
    node: Array
    value: Array
    steep: Array
    by_node: Array
    """Their places sorted by node."""
    group: Array
    """Of every guess."""


@jax.jit
def _forward(table, lists: Lists, rate):
    return rate * _over_nodes(lists.value, table, lists)


def _over_nodes(value, table, lists: Lists):
    return jax.ops.segment_sum(
        value[:, None] * table[lists.node],
        lists.row,
        num_segments=len(lists.group),
        indices_are_sorted=True,
    )


@partial(jax.jit, static_argnames="size")
def _adjoint(weights, lists: Lists, rate, size: int):
    at = lists.by_node
    return jax.ops.segment_sum(
        lists.value[at, None] * (rate * weights)[lists.row[at]],
        lists.node[at],
        num_segments=size,
        indices_are_sorted=True,
    )


def _of_groups(kind, values, lists: Lists, groups: int):
    return kind(values, lists.group, num_segments=groups, indices_are_sorted=True)


@partial(jax.jit, static_argnames="groups")
def _onto(weights, lists: Lists, groups: int):
    """`onto_simplex` of every group."""
    top = _of_groups(jax.ops.segment_max, weights, lists, groups)
    weights = weights - top[lists.group]

    def go_on(state):
        shift, before, passes = state
        return (passes < PASSES) & jnp.any(shift != before)

    def step(state):
        shift, _, passes = state
        held = weights > shift[lists.group]
        count = _of_groups(jax.ops.segment_sum, held.astype(weights.dtype), lists, groups)
        total = _of_groups(jax.ops.segment_sum, jnp.where(held, weights, 0), lists, groups)
        return (total - 1) / count, shift, passes + 1

    low = jnp.full(top.shape, -jnp.inf, weights.dtype)
    first = step((low, low, 0))
    shift, *_ = jax.lax.while_loop(go_on, step, first)
    return jnp.maximum(weights - shift[lists.group], 0)


@partial(jax.jit, static_argnames="groups")
def _heaviest(values, lists: Lists, groups: int):
    best = _of_groups(jax.ops.segment_max, values, lists, groups)[lists.group]
    return (values >= best).astype(jnp.float32)


@partial(jax.jit, static_argnames="groups")
def _largest(value, table, lists: Lists, groups: int):
    return _of_groups(jax.ops.segment_max, _over_nodes(value, table, lists), lists, groups)


@partial(jax.jit, static_argnames=("groups", "size"))
def _below(weights, lists: Lists, rate, groups: int, size: int):
    positive = jnp.maximum(weights.astype(jnp.float64), 0)
    sums = _of_groups(jax.ops.segment_sum, positive, lists, groups)[lists.group]
    count = _of_groups(jax.ops.segment_sum, jnp.ones(len(positive)), lists, groups)[lists.group]
    shares = jnp.where(sums > 0, positive / jnp.where(sums > 0, sums, 1), 1 / count[:, None])
    return _adjoint(shares, lists._replace(value=lists.value.astype(jnp.float64)), rate, size)


@dataclass(frozen=True)
class DeviceForms:
    """`Tiled` where the nodes are."""

    host: Any
    lists: Lists
    rates: Array
    """(guesses, 1)."""
    size: int
    groups: int
    on: Placement
    offset = 0.0

    @classmethod
    def stored(cls, forms: Any, on: Placement, size: int) -> Self:
        """The forms over `size` nodes, those that pad them among them."""
        count = forms.guesses
        rows = ladder(count + 1)
        listed, steep = forms.coefficients.tocoo(), forms.steep.tocoo()
        pad = (0, ladder(listed.nnz + 1) - listed.nnz)
        row = np.pad(listed.row, pad, constant_values=rows - 1).astype(np.int32)
        node = np.pad(listed.col, pad, constant_values=size - 1).astype(np.int32)
        groups = ladder(len(forms.starts))
        group = np.pad(owners(forms.starts), (0, rows - count), constant_values=groups - 1)
        parts = (row, node, np.pad(listed.data, pad), np.pad(steep.data, pad))
        by_node = np.argsort(node, kind="stable").astype(np.int32)
        with precise():
            lists = Lists(*map(on.whole, (*parts, by_node, group.astype(np.int32))))
        return cls(forms, lists, None, size, groups, on)._rated(forms.rates)

    @property
    def stiffness(self) -> float:
        """As the host says."""
        return float(self.host.stiffness)

    def at(self, forms: Any) -> Self:
        """The same gains at the rates of forms."""
        return self._rated(np.array([rate for rate, _ in forms.gains]))

    def _rated(self, rates: FloatArray) -> Self:
        each = np.pad(rates[self.host.gain], (0, len(self.lists.group) - self.host.guesses))
        with precise():
            return replace(self, rates=self.on.whole(each[:, None]))

    @property
    def _single(self) -> Array:
        with precise():
            return self.rates.astype(jnp.float32)

    def shares(self) -> Array:
        """Of every node; 1 of what pads them."""
        share = self.host.share
        return self.on.whole(np.pad(share, (0, self.size - len(share)), constant_values=1.0))

    def forward(self, table: Array) -> Array:
        """The forms' values, (guesses, width)."""
        return _forward(table, self.lists, self._single)

    def adjoint(self, weights: Array) -> Array:
        """sum_g w_gy A_gy on the nodes."""
        return _adjoint(weights, self.lists, self._single, size=self.size)

    def below(self, weights: Array) -> Array:
        """`Tiled.below`."""
        with precise():
            made = _below(weights, self.lists, self.rates, groups=self.groups, size=self.size)
            return made * (1 - STORED)

    def steepness(self, weight: Array) -> Array:
        """`Tiled.steepness`."""
        single = weight.astype(jnp.float32)
        best = _largest(self.lists.steep, single, self.lists, groups=self.groups)
        return len(self.host.rates) * best[self.lists.group] * self._single**2

    def values(self, table: Array) -> AnyArray:
        """What every gain is worth, without its rate."""
        best = _largest(self.lists.value, table, self.lists, groups=self.groups)
        sums = np.asarray(best, dtype=float).sum(axis=1)[: len(self.host.starts) - 1]
        return np.bincount(self.host.gain[self.host.starts[:-1]], sums)

    def onto(self, weights: Array) -> Array:
        """The nearest weights on the simplexes."""
        return _onto(weights, self.lists, groups=self.groups)

    def heaviest(self, values: Array) -> Array:
        """Weights on the largest forms alone."""
        return _heaviest(values, self.lists, groups=self.groups)

    def taken_over(self, before: DeviceForms, weights: Array) -> Array:
        """Weights of these forms on other nodes."""
        known = before.host.guesses
        own = self.host.taken_over(before.host, np.asarray(weights)[:known])
        return self.on.whole(np.pad(own, ((0, len(self.lists.group) - len(own)), (0, 0))))
