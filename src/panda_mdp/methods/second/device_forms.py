"""Sums of largest linear forms over the nodes of tiles, on an accelerator.

`Tiled` (objectives.py) says what they are, and is what they are made of. Lists are padded
with a guess of a group of its own, of rate 0, and with the last node, which is none.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np

from panda_mdp.compute.jax.device import Array, ladder, precise, put
from panda_mdp.compute.jax.forms import Matrix, Turnable, onto, over_groups
from panda_mdp.methods.second.objectives import Tiled


@dataclass(frozen=True)
class DeviceForms(Tiled):
    """`Tiled` where the nodes are."""

    xp = jnp

    @property
    def _groups(self) -> int:
        return ladder(len(self.starts))

    @cached_property
    def rate(self) -> Array:
        each = np.pad(self.rates[self.gain], (0, len(self.group) - len(self.gain)))
        return put(each[:, None])

    def over_groups(self, kind: str, values: Array) -> Array:
        return over_groups(values, self.group, kind=kind, groups=self._groups)

    def onto(self, weights: Array) -> Array:
        with precise():
            return onto(weights, self.group, groups=self._groups)

    def taken_over(self, before: Any, weights: Array) -> Array:
        own = super().taken_over(before, weights)
        return put(np.pad(own, ((0, len(self.group) - len(own)), (0, 0))))


def stored(forms: Tiled, size: int) -> DeviceForms:
    """The forms over `size` nodes, those that pad them among them."""
    count = len(forms.gain)
    rows = ladder(count + 1)
    group = np.pad(forms.group, (0, rows - count), constant_values=ladder(len(forms.starts)) - 1)
    share = np.pad(forms.share, (0, size - len(forms.share)), constant_values=1.0)
    held = forms.coefficients
    made = {
        "coefficients": Turnable(Matrix.of(held, (rows, size)), Matrix.of(held.T, (size, rows))),
        "steep": Matrix.of(forms.steep, (rows, size)),
        "group": put(group.astype(np.int32)),
        "share": put(share),
    }
    own = {part.name: getattr(forms, part.name) for part in fields(forms)}
    return DeviceForms(**(own | made))
