"""How often a pair of records is told apart because one of them is outside the ball, compiled."""

from __future__ import annotations

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.parts import in_parts
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


@njit(cache=True, nogil=True)
def _common_tails(begin, end, rows, log_rows, common, log_common, to_centre, radius, step, out):
    bins = out.shape[1]
    tails = np.empty(bins)
    for x in range(begin, end):
        for c in range(len(common)):
            if to_centre[c, x] <= radius:
                _tail_masses(rows[x], common[c], log_rows[x], log_common[c], common[c], step, tails)
                for b in range(bins):
                    out[x, b] = max(out[x, b], tails[b])


def common_tails(
    rows: FloatArray,
    log_rows: FloatArray,
    common: FloatArray,
    log_common: FloatArray,
    to_centre: FloatArray,
    radius: float,
    step: float,
    bins: int,
) -> FloatArray:
    """Per record: the largest mass of a common row, over the balls that the record is in, whose
    log-ratio to the record's row is at least b steps; (K, bins)."""
    out = np.zeros((len(rows), bins))
    tables = (rows, log_rows, common, log_common, to_centre, radius, step)
    in_parts(_common_tails, len(rows), *tables, out)
    return out


@njit(cache=True, inline="always")
def _least_level(distance, radius, slack, scale):
    """The nearest that a record on the other side of a ball's edge can be, in steps.

    The triangle inequality for a record at `distance` from the centre, which may be off by `slack`.
    """
    return np.int64(max(0.0, abs(radius - distance) - slack * (radius + distance)) * scale)


@njit(cache=True, nogil=True)
def _boundary_masses(
    begin, end, kind, table, order, chance, to_centre, radius, slack, rows, log_rows, common,
    log_common, outer, most, room, step, tiny, chosen, worst, partner,
):  # fmt: skip
    size = rows.shape[0]
    bins = outer.shape[1]
    distance = np.empty(size)
    near = np.empty(size, np.int64)
    level = np.empty(size, np.int64)
    total = np.empty(size)
    tails = np.empty(bins)
    for n in range(begin, end):
        x = chosen[n]
        fill(kind, table, order, x, np.int64(0), size, distance)
        count = 0
        for y in range(size):
            steps = distance[y] * room / step
            if y != x and steps < bins:
                near[count] = y
                level[count] = np.int64(steps)
                total[count] = 0.0
                count += 1
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


def boundary_masses(
    kind: int,
    table: FloatArray,
    order: IntArray,
    chance: FloatArray,
    to_centre: FloatArray,
    radius: float,
    slack: float,
    rows: FloatArray,
    log_rows: FloatArray,
    common: FloatArray,
    log_common: FloatArray,
    outer: FloatArray,
    room: float,
    step: float,
    tiny: float,
    chosen: IntArray,
) -> tuple[FloatArray, IntArray]:
    """For chosen records x the largest violation probability over x', and that x'.

    `chance[c, x]` is the probability of ball c for record x, `to_centre[c, x]` the distance of its
    centre, `room` what a report may tell per unit of distance, `outer` the result of
    `common_tails`. A pair is violated where exactly one of the two is in the ball and the output's
    log-ratio to the common row exceeds the room of their distance, which is rounded down to a step
    of the log-ratio. A ball that can add at most `tiny` to any pair adds as much to all of them.
    """
    worst = np.zeros(len(chosen))
    partner = np.zeros(len(chosen), np.int64)
    balls = (chance, to_centre, radius, slack, rows, log_rows, common, log_common, outer)
    scale = (outer.max(axis=0), room, step, tiny)
    where = (kind, table, order)
    in_parts(_boundary_masses, len(chosen), *where, *balls, *scale, chosen, worst, partner)
    return worst, partner


@njit(cache=True, nogil=True)
def _ring_masses(
    begin, end, chance, to_centre, radius, slack, rows, log_rows, common, log_common, most, room,
    step, tiny, worst,
):  # fmt: skip
    bins = len(most)
    tails = np.empty(bins)
    total = np.empty(bins)
    for x in range(begin, end):
        total[:] = 0.0
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


def ring_masses(
    chance: FloatArray,
    to_centre: FloatArray,
    radius: float,
    slack: float,
    rows: FloatArray,
    log_rows: FloatArray,
    common: FloatArray,
    log_common: FloatArray,
    outer: FloatArray,
    room: float,
    step: float,
    tiny: float,
) -> FloatArray:
    """Per record an upper bound on `boundary_masses` that looks at no second record.

    A record at most d from x is on the other side of a ball's edge only where the centre is
    farther than radius - d from x and nearer than radius + d.
    """
    worst = np.zeros(len(outer))
    balls = (chance, to_centre, radius, slack, rows, log_rows, common, log_common)
    in_parts(_ring_masses, len(outer), *balls, outer.max(axis=0), room, step, tiny, worst)
    return worst
