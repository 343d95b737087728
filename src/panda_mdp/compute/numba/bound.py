"""The rigorous lower bound and the most violated pairs, compiled."""

from __future__ import annotations

import numpy as np
from numba import prange

from panda_mdp.compute.numba.compiling import njit
from panda_mdp.compute.numba.distance import fill
from panda_mdp.space.tiles import TILE

UNIT_ROUNDOFF = 2.0**-53


@njit(cache=True, inline="always")
def _multiplier(own, other, growth, scale):
    """A multiplier >= 0 of "own <= growth * other" read off the edge's dual pair.

    On the polar cone's ray own = l, other = -growth l. Off it, any value >= 0 gives a valid bound;
    the smaller of the two readings moves neither reduced cost further than the pair does.
    """
    return scale * max(0.0, min(own, -other / growth))


@njit(cache=True, parallel=True)
def least_reduced_costs(cost, u, inverse, ends, start, slot, growth, scale):
    """min_y of the reduced costs of every record, rounding errors subtracted.

    For any multipliers l >= 0 of the constraints z_i <= g z_j (g an upper bound on exp(eps d)),
    h_iy = cost_iy + sum over edges (l_ij - g l_ji) and every feasible z has
    sum cost z >= sum_i min_y h_iy, because rows sum to 1. `inverse` takes the multipliers u of
    the scaled problem back to the unscaled one.
    """
    records, outputs = cost.shape
    least = np.empty(records)
    for i in prange(records):
        h = np.empty(outputs)
        size = np.empty(outputs)
        for y in range(outputs):
            h[y] = cost[i, y]
            size[y] = abs(cost[i, y])
        for k in range(start[i], start[i + 1]):
            edge = slot[k] >> 1
            side = slot[k] & 1
            own = u[edge, side]
            other = u[edge, 1 - side]
            own_inverse = inverse[i]
            other_inverse = inverse[ends[edge, 1 - side]]
            g = growth[edge]
            for y in range(outputs):
                mine = np.float64(own[y]) * np.float64(own_inverse[y])
                theirs = np.float64(other[y]) * np.float64(other_inverse[y])
                up = _multiplier(mine, theirs, g, scale)
                down = g * _multiplier(theirs, mine, g, scale)
                h[y] += up - down
                size[y] += up + down
        terms = 2.0 * (start[i + 1] - start[i]) + 6.0
        low = np.inf
        for y in range(outputs):
            low = min(low, h[y] - terms * UNIT_ROUNDOFF * size[y])
        least[i] = low
    return least


@njit(cache=True, parallel=True, fastmath=True, error_model="numpy")
def violated_pairs(z, epsilon, kind, table, order, starts, between, reach, most, least_gain):
    """For every position the `most` partners whose constraint it misses by the most mass.

    gain_ij = sum_y max(0, z_jy exp(-epsilon d) - z_iy). Returns partners (K, most), -1 where
    none exceeds `least_gain`, and the gains.
    """
    records, outputs = z.shape
    count = len(starts) - 1
    partner = np.full((records, most), -1, np.int64)
    gain = np.zeros((records, most))
    for a in prange(count):
        distance = np.empty(TILE)
        for b in range(count):
            if reach[a, b] <= epsilon * between[a, b]:
                continue
            first = starts[b]
            last = starts[b + 1]
            for i in range(starts[a], starts[a + 1]):
                fill(kind, table, order, i, first, last, distance)
                row = z[i]
                for j in range(first, last):
                    exponent = epsilon * distance[j - first]
                    if j == i or exponent >= reach[a, b]:
                        continue
                    factor = np.float32(np.exp(-exponent))
                    source = z[j]
                    value = np.float32(0)
                    for y in range(outputs):
                        value += max(np.float32(0), factor * source[y] - row[y])
                    if value > least_gain and value > gain[i, most - 1]:
                        k = most - 1
                        while k > 0 and gain[i, k - 1] < value:
                            gain[i, k] = gain[i, k - 1]
                            partner[i, k] = partner[i, k - 1]
                            k -= 1
                        gain[i, k] = value
                        partner[i, k] = j
    return partner, gain
