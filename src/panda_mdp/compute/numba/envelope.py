"""The largest Lipschitz function below a loss, compiled."""

from __future__ import annotations

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.parts import in_parts
from panda_mdp.compute.numba.compiling import njit
from panda_mdp.compute.numba.distance import fill
from panda_mdp.space.tiles import TILE


@njit(cache=True, nogil=True)
def _envelope(
    begin, end, loss, lowest, kind, table, order, starts, between, visit, targets, homes, lipschitz,
    out,
):  # fmt: skip
    width = loss.shape[1]
    distance = np.empty(TILE)
    for t in range(begin, end):
        i = targets[t]
        home = homes[t]
        row = out[t]
        for y in range(width):
            row[y] = loss[i, y]
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


def envelope(
    loss: FloatArray,
    lowest: FloatArray,
    kind: int,
    table: FloatArray,
    order: IntArray,
    starts: IntArray,
    between: FloatArray,
    visit: IntArray,
    targets: IntArray,
    homes: IntArray,
    lipschitz: float,
) -> FloatArray:
    """out[t, y] = min over positions j of loss[j, y] + lipschitz d(targets[t], j).

    `loss` and `targets` follow `order`; `homes[t]` is the target's tile and `visit[a]` the tiles by
    their distance from tile a. `lowest[b]` is the columnwise minimum of tile b, so a tile, or one
    of its records, that cannot lower any entry is passed over.
    """
    out = np.empty((len(targets), loss.shape[1]))
    tables = (loss, lowest, kind, table, order, starts, between, visit, targets, homes, lipschitz)
    in_parts(_envelope, len(targets), *tables, out)
    return out
