"""The largest Lipschitz function below a loss, compiled."""

from __future__ import annotations

import numpy as np
from numba import prange

from panda_mdp.compute.numba.compiling import njit
from panda_mdp.compute.numba.distance import fill
from panda_mdp.space.tiles import TILE


@njit(cache=True, parallel=True)
def envelope(loss, lowest, kind, table, order, starts, between, visit, targets, homes, lipschitz):
    """out[t, y] = min over positions j of loss[j, y] + lipschitz d(targets[t], j).

    `loss` and `targets` follow `order`; `homes[t]` is the target's tile and `visit[a]` the tiles by
    their distance from tile a. `lowest[b]` is the columnwise minimum of tile b, so a tile, or one
    of its records, that cannot lower any entry is passed over.
    """
    width = loss.shape[1]
    out = np.empty((len(targets), width))
    for t in prange(len(targets)):
        i = targets[t]
        home = homes[t]
        row = out[t]
        for y in range(width):
            row[y] = loss[i, y]
        distance = np.empty(TILE)
        for b in visit[home]:
            room = 0.0
            for y in range(width):
                room = max(room, row[y] - lowest[b, y])
            if room <= lipschitz * between[home, b]:
                continue
            first = starts[b]
            fill(kind, table, order, i, first, starts[b + 1], distance)
            for j in range(first, starts[b + 1]):
                step = lipschitz * distance[j - first]
                if step >= room:
                    continue
                for y in range(width):
                    row[y] = min(row[y], loss[j, y] + step)
    return out
