"""The log-Lipschitz closure of a table over all pairs, compiled."""

from __future__ import annotations

import numpy as np
from numba import prange

from panda_mdp.compute.numba.compiling import njit
from panda_mdp.compute.numba.distance import fill
from panda_mdp.space.tiles import TILE


@njit(cache=True, parallel=True, fastmath=True, error_model="numpy")
def close(z, out, active, epsilon, kind, table, order, starts, between, reach):
    """out_xy = max over all x' of z_x'y exp(-epsilon d(x, x')), for the active records x; the rows
    of the others are copied.

    `reach[a, b]` bounds log(z_x'y / z_xy) for x in tile a and x' in tile b: where it does not
    exceed epsilon times the tiles' distance, b cannot raise anything in a.
    """
    outputs = z.shape[1]
    count = len(starts) - 1
    for a in prange(count):
        distance = np.empty(TILE)
        some = False
        for i in range(starts[a], starts[a + 1]):
            some = some or active[i]
            row = out[i]
            source = z[i]
            for y in range(outputs):
                row[y] = source[y]
        if not some:
            continue
        for b in range(count):
            if reach[a, b] <= epsilon * between[a, b]:
                continue
            first = starts[b]
            last = starts[b + 1]
            for i in range(starts[a], starts[a + 1]):
                if not active[i]:
                    continue
                fill(kind, table, order, i, first, last, distance)
                row = out[i]
                for j in range(first, last):
                    exponent = epsilon * distance[j - first]
                    if exponent >= reach[a, b]:
                        continue
                    factor = z.dtype.type(np.exp(-exponent))
                    source = z[j]
                    for y in range(outputs):
                        row[y] = max(row[y], factor * source[y])
