"""The rigorous lower bound and the most violated pairs, compiled."""

from __future__ import annotations

import numpy as np

from panda_mdp.base.arrays import Float32Array, FloatArray, IntArray
from panda_mdp.base.parts import in_parts
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


@njit(cache=True, nogil=True)
def _least_reduced_costs(begin, end, cost, u, inverse, ends, start, slot, growth, scale, least):
    outputs = cost.shape[1]
    h = np.empty(outputs)
    size = np.empty(outputs)
    for i in range(begin, end):
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


def least_reduced_costs(
    cost: FloatArray,
    u: Float32Array,
    inverse: FloatArray | Float32Array,
    ends: IntArray,
    start: IntArray,
    slot: IntArray,
    growth: FloatArray,
    scale: float,
) -> FloatArray:
    """min_y of the reduced costs of every record, rounding errors subtracted.

    For any multipliers l >= 0 of the constraints z_i <= g z_j (g an upper bound on exp(eps d)),
    h_iy = cost_iy + sum over edges (l_ij - g l_ji) and every feasible z has
    sum cost z >= sum_i min_y h_iy, because rows sum to 1. `inverse` takes the multipliers u of
    the scaled problem back to the unscaled one.
    """
    least = np.empty(len(cost))
    tables = (cost, u, inverse, ends, start, slot, growth, scale)
    in_parts(_least_reduced_costs, len(cost), *tables, least)
    return least


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
def _violated_pairs(
    begin, end, z, epsilon, kind, table, order, starts, nearby, others, between, reach, most,
    least_gain, partner, gain,
):  # fmt: skip
    outputs = z.shape[1]
    distance = np.empty(TILE)
    for a in range(begin, end):
        for near in range(nearby[a], nearby[a + 1]):
            b = others[near]
            if reach[near] <= epsilon * between[near]:
                continue
            first = starts[b]
            last = starts[b + 1]
            for i in range(starts[a], starts[a + 1]):
                fill(kind, table, order, i, first, last, distance)
                row = z[i]
                for j in range(first, last):
                    exponent = epsilon * distance[j - first]
                    if j == i or exponent >= reach[near]:
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


def violated_pairs(
    z: Float32Array,
    epsilon: float,
    kind: int,
    table: FloatArray,
    order: IntArray,
    starts: IntArray,
    nearby: IntArray,
    others: IntArray,
    between: FloatArray,
    reach: FloatArray,
    most: int,
    least_gain: float,
) -> tuple[IntArray, FloatArray]:
    """For every position the `most` partners whose constraint it misses by the most mass.

    gain_ij = sum_y max(0, z_jy exp(-epsilon d) - z_iy). Tile a is compared with the tiles
    others[nearby[a]:nearby[a + 1]], at `between` at least and with log ratios up to `reach`.
    Returns partners (K, most), -1 where none exceeds `least_gain`, and the gains.
    """
    partner = np.full((len(z), most), -1, np.int64)
    gain = np.zeros((len(z), most))
    near = (nearby, others, between, reach)
    tables = (z, epsilon, kind, table, order, starts, *near, most, least_gain)
    in_parts(_violated_pairs, len(starts) - 1, *tables, partner, gain)
    return partner, gain
