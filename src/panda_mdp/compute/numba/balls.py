"""How often a pair of records is told apart because one of them is outside the ball, compiled."""

from __future__ import annotations

import numpy as np
from numba import prange

from panda_mdp.compute.numba.compiling import njit
from panda_mdp.compute.numba.distance import fill


@njit(cache=True)
def _tail_masses(own, common, log_own, log_common, masses, step, out):
    """out[b]: the mass of outputs whose log-ratio to the common row is at least b steps."""
    last = len(out) - 1
    out[:] = 0.0
    for y in range(len(log_own)):
        if own[y] == 0.0 and common[y] == 0.0:
            continue
        # Rounded against the claim.
        level = (np.abs(log_own[y] - log_common[y]) + 1e-12) / step
        out[last if level >= last else np.int64(level)] += masses[y]
    for b in range(last - 1, -1, -1):
        out[b] += out[b + 1]


@njit(cache=True, parallel=True)
def common_tails(rows, log_rows, common, log_common, to_centre, radius, step, bins):
    """Per record: the largest mass of a common row, over the balls that the record is in, whose
    log-ratio to the record's row is at least b steps; (K, bins)."""
    size = len(rows)
    out = np.zeros((size, bins))
    for x in prange(size):
        tails = np.empty(bins)
        for c in range(len(common)):
            if to_centre[c, x] <= radius:
                _tail_masses(rows[x], common[c], log_rows[x], log_common[c], common[c], step, tails)
                for b in range(bins):
                    out[x, b] = max(out[x, b], tails[b])
    return out


@njit(cache=True, inline="always")
def _least_level(distance, radius, slack, scale):
    """The nearest that a record on the other side of a ball's edge can be, in steps.

    The triangle inequality for a record at `distance` from the centre, which may be off by `slack`.
    """
    return np.int64(max(0.0, abs(radius - distance) - slack * (radius + distance)) * scale)


@njit(cache=True, parallel=True)
def boundary_masses(
    kind,
    table,
    order,
    chance,
    to_centre,
    radius,
    slack,
    rows,
    log_rows,
    common,
    log_common,
    outer,
    room,
    step,
    tiny,
    chosen,
):
    """For chosen records x the largest violation probability over x', and that x'.

    `chance[c, x]` is the probability of ball c for record x, `to_centre[c, x]` the distance of its
    centre, `room` what a report may tell per unit of distance, `outer` the result of
    `common_tails`. A pair is violated where exactly one of the two is in the ball and the output's
    log-ratio to the common row exceeds the room of their distance, which is rounded down to a step
    of the log-ratio. A ball that can add at most `tiny` to any pair adds as much to all of them.
    """
    size = rows.shape[0]
    bins = outer.shape[1]
    worst = np.zeros(len(chosen))
    partner = np.zeros(len(chosen), np.int64)
    most = np.zeros(bins + 1)
    for y in range(size):
        for b in range(bins):
            most[b] = max(most[b], outer[y, b])
    for n in prange(len(chosen)):
        x = chosen[n]
        distance = np.empty(size)
        fill(kind, table, order, x, 0, size, distance)
        near = np.empty(size, np.int64)
        level = np.empty(size, np.int64)
        count = 0
        for y in range(size):
            steps = distance[y] * room / step
            if y != x and steps < bins:
                near[count] = y
                level[count] = np.int64(steps)
                count += 1
        total = np.zeros(count)
        tails = np.empty(bins)
        rest = 0.0
        for c in range(len(common)):
            p = chance[c, x]
            if p <= tiny:
                rest += p
                continue
            least = _least_level(to_centre[c, x], radius, slack, room / step)
            if least >= bins:
                continue
            if to_centre[c, x] <= radius:
                _tail_masses(rows[x], common[c], log_rows[x], log_common[c], rows[x], step, tails)
                if p * tails[least] <= tiny:
                    rest += p * tails[least]
                    continue
                for k in range(count):
                    if to_centre[c, near[k]] > radius:
                        total[k] += p * tails[level[k]]
            elif p * most[least] <= tiny:
                rest += p * most[least]
            else:
                for k in range(count):
                    y = near[k]
                    if to_centre[c, y] <= radius:
                        total[k] += p * outer[y, level[k]]
        worst[n] = rest
        partner[n] = near[0] if count else (1 if x == 0 else 0)
        for k in range(count):
            if total[k] + rest > worst[n]:
                worst[n] = total[k] + rest
                partner[n] = near[k]
    return worst, partner


@njit(cache=True, parallel=True)
def ring_masses(
    chance, to_centre, radius, slack, rows, log_rows, common, log_common, outer, room, step, tiny
):
    """Per record an upper bound on `boundary_masses` that looks at no second record.

    A record at most d from x is on the other side of a ball's edge only where the centre is
    farther than radius - d from x and nearer than radius + d.
    """
    size, bins = outer.shape
    worst = np.zeros(size)
    most = np.zeros(bins)
    for y in range(size):
        for b in range(bins):
            most[b] = max(most[b], outer[y, b])
    for x in prange(size):
        tails = np.empty(bins)
        total = np.zeros(bins)
        rest = 0.0
        for c in range(len(common)):
            p = chance[c, x]
            if p <= tiny:
                rest += p
                continue
            least = _least_level(to_centre[c, x], radius, slack, room / step)
            if least >= bins:
                continue
            if to_centre[c, x] <= radius:
                _tail_masses(rows[x], common[c], log_rows[x], log_common[c], rows[x], step, tails)
                for b in range(least, bins):
                    total[b] += p * tails[b]
            else:
                for b in range(least, bins):
                    total[b] += p * most[b]
        for b in range(bins):
            worst[x] = max(worst[x], total[b] + rest)
    return worst
