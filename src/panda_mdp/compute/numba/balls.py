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
def common_tails(rows, log_rows, common, log_common, inside, step, bins):
    """Per record: the largest mass of a common row, over the balls that the record is in, whose
    log-ratio to the record's row is at least b steps; (K, bins)."""
    size = len(rows)
    out = np.zeros((size, bins))
    for x in prange(size):
        tails = np.empty(bins)
        for c in range(len(common)):
            if inside[c, x]:
                _tail_masses(rows[x], common[c], log_rows[x], log_common[c], common[c], step, tails)
                for b in range(bins):
                    out[x, b] = max(out[x, b], tails[b])
    return out


@njit(cache=True, parallel=True)
def boundary_masses(
    kind,
    table,
    order,
    chance,
    inside,
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

    `chance[c, x]` is the probability of ball c for record x, `room` what a report may tell per unit
    of distance, `outer` the result of `common_tails`. A pair is violated where exactly one of the
    two is in the ball and the output's log-ratio to the common row exceeds the room of their
    distance, which is rounded down to a step of the log-ratio.
    """
    size = rows.shape[0]
    bins = outer.shape[1]
    worst = np.zeros(len(chosen))
    partner = np.zeros(len(chosen), np.int64)
    for n in prange(len(chosen)):
        x = chosen[n]
        apart = np.empty(size)
        fill(kind, table, order, x, 0, size, apart)
        level = np.empty(size, np.int64)
        for y in range(size):
            steps = apart[y] * room / step
            level[y] = bins if steps >= bins else np.int64(steps)
        total = np.zeros(size)
        tails = np.empty(bins + 1)
        rest = 0.0
        for c in range(len(common)):
            p = chance[c, x]
            if p <= tiny:
                rest += p
            elif inside[c, x]:
                _tail_masses(
                    rows[x], common[c], log_rows[x], log_common[c], rows[x], step, tails[:bins]
                )
                tails[bins] = 0.0
                for y in range(size):
                    if not inside[c, y]:
                        total[y] += p * tails[level[y]]
            else:
                for y in range(size):
                    if inside[c, y] and level[y] < bins:
                        total[y] += p * outer[y, level[y]]
        for y in range(size):
            if y != x and total[y] + rest > worst[n]:
                worst[n] = total[y] + rest
                partner[n] = y
    return worst, partner


@njit(cache=True, parallel=True)
def ring_masses(
    chance, apart, radius, slack, rows, log_rows, common, log_common, room, step, bins, tiny
):
    """Per record an upper bound on `boundary_masses` that looks at no second record.

    A record at most d from x is outside a ball that x is in only where the centre, `apart[c, x]`
    from x, is farther than radius - d; `slack` covers what the triangle inequality is off by.
    """
    size = rows.shape[0]
    worst = np.zeros(size)
    for x in prange(size):
        tails = np.empty(bins)
        total = np.zeros(bins)
        beyond = 0.0
        for c in range(len(common)):
            p = chance[c, x]
            if p <= tiny or apart[c, x] > radius:
                beyond += p
                continue
            # The nearest that a record outside can be, in steps.
            least = np.int64(max(0.0, radius * (1 - slack) - apart[c, x]) * room / step)
            if least >= bins:
                continue
            _tail_masses(rows[x], common[c], log_rows[x], log_common[c], rows[x], step, tails)
            for b in range(least, bins):
                total[b] += p * tails[b]
        for b in range(bins):
            worst[x] = max(worst[x], total[b] + beyond)
    return worst
