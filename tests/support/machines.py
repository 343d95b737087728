"""The machines that the agreement suite compares, and tables for them: dense, and over a floor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from helpers import random_domain

from panda_mdp import Domain
from panda_mdp.compute.closure import Closure
from panda_mdp.compute.jax.closure import JaxClosure
from panda_mdp.space.tiles import TILE

SIZE, OUTPUTS, WIDTH = 150, 12, 32
FLOOR = 1e-5


def dense(machine: str, domain: Domain, outputs: int = OUTPUTS, **tuning: Any) -> Closure:
    """The closure of dense tables on a machine, whatever the size."""
    if machine == "jax":
        return JaxClosure(domain, outputs)
    small = {"numpy": 1 << 20, "numba": 0}[machine]
    closure = Closure(domain, small_records=small)
    vars(closure).update(tuning)
    return closure


def table(size: int = SIZE, outputs: int = OUTPUTS, seed: int = 0) -> np.ndarray:
    """Rows that sum to 1, with entries over several orders of magnitude."""
    return np.random.default_rng(seed).dirichlet(np.full(outputs, 0.3), size)


@cache
def town(kind: str = "haversine", size: int = SIZE) -> tuple[Domain, float]:
    """Records, and an epsilon at which neighbours bind."""
    domain = random_domain(kind, size)
    return domain, 1.0 / float(np.median(domain.neighbours(1)[1]))


@dataclass(frozen=True)
class Tiled:
    """A table over a floor on a machine, groups of 32 outputs of which the last has fewer."""

    closure: Any
    z: Any
    whole: Callable[[Any], np.ndarray]
    """All of a table, records along the tiles."""
    sums: Callable[[Any], np.ndarray]
    """Of rows, by position."""
    rows: Callable[[int], Any]
    """The first positions as `active` rows."""


def tiled(machine: str, seed: int, epsilon: float = 6.0, size: int = 300, **tuning: Any) -> Tiled:
    """A table of any place that is nearly private, cut by what is above nothing."""
    rng = np.random.default_rng(seed)
    domain = Domain.from_points(41.9 + 0.07 * rng.random(size), 12.4 + 0.09 * rng.random(size))
    rough = np.exp(-4 * domain.distances() + rng.normal(0, 0.2, (size, size)))
    rough[rough < 1e-3] = 0.0
    rough /= rough.sum(axis=1, keepdims=True)
    order = domain.tiles.order
    columns = np.full((-(-size // WIDTH), WIDTH), -1)
    columns.ravel()[:size] = order
    along = rough[order]
    parts = np.where(columns >= 0, along[:, np.maximum(columns, 0)], 0.0).transpose(1, 0, 2)
    sees = parts.max(axis=2) > 0
    floor = np.full(size, FLOOR)
    if machine == "numba":
        bare = Closure(domain)
        vars(bare).update(tuning)
        return _on_host(*bare.cut_for(columns, sees, parts[sees], floor, epsilon))
    bare = JaxClosure(domain)
    return _on_device(*bare.cut_for(columns, sees, parts[sees], floor, epsilon))


def _on_host(closure: Closure, z: np.ndarray) -> Tiled:
    cut, size = closure.cut, closure.domain.size

    def whole(z: np.ndarray) -> np.ndarray:
        out = np.tile(cut.floor, (size, 1))
        columns = cut.columns[cut.group]
        node, k = np.nonzero(columns >= 0)
        out[cut.position[node], columns[node, k]] = z[node, k]
        return out

    return Tiled(closure, z, whole, np.asarray, lambda count: np.arange(size) < count)


def _on_device(closure: JaxClosure, z: Any) -> Tiled:
    cut, starts = closure.cut, closure.tiles.starts

    def whole(z: Any) -> np.ndarray:
        out, rows = np.tile(cut.floor, (closure.domain.size, 1)), np.asarray(z)
        number = np.asarray(cut.blocks.number)
        group, tile = np.nonzero(number >= 0)
        for g, t in zip(group.tolist(), tile.tolist(), strict=True):
            used = cut.columns[g] >= 0
            block = rows[number[g, t], : starts[t + 1] - starts[t]]
            out[starts[t] : starts[t + 1], cut.columns[g][used]] = block[:, used]
        return out

    def first(count: int) -> np.ndarray:
        rows = np.zeros(len(starts[:-1]) * TILE, dtype=np.bool_)
        rows[closure.slot[:count]] = True
        return rows.reshape(-1, TILE)

    return Tiled(closure, z, whole, lambda sums: np.asarray(sums).ravel()[closure.slot], first)
