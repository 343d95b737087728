"""How often a pair of records is told apart because one of them is outside the ball, compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.threads import in_parts
from panda_mdp.compute.numba import njit
from panda_mdp.compute.numba.distance import Coordinates, fill


class Balls(NamedTuple):
    """Balls with one row for all outside, and what a report may tell."""

    chance: FloatArray
    """(balls, K): the probability of a ball for a record."""
    to_centre: FloatArray
    """(balls, K): the distance of a record to a ball's centre."""
    radius: float
    slack: float
    """By which distances may be off, as a share."""
    rows: FloatArray
    log_rows: FloatArray
    common: FloatArray
    """(balls, m): the row of all that are outside."""
    log_common: FloatArray
    room: float
    """What a report may tell per unit of distance."""
    step: float
    """Log-ratios are rounded to multiples of it."""
    tiny: float
    """A ball that can add at most this to any pair adds as much to all of them."""


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
def _common_tails(begin, end, balls, out):
    _, to_centre, radius, _, rows, log_rows, common, log_common, _, step, _ = balls
    bins = out.shape[1]
    tails = np.empty(bins)
    for x in range(begin, end):
        for c in range(len(common)):
            if to_centre[c, x] <= radius:
                _tail_masses(rows[x], common[c], log_rows[x], log_common[c], common[c], step, tails)
                for b in range(bins):
                    out[x, b] = max(out[x, b], tails[b])


def common_tails(balls: Balls, bins: int) -> FloatArray:
    """Per record: the largest mass of a common row, over the balls that the record is in, whose
    log-ratio to the record's row is at least b steps; (K, bins)."""
    out = np.zeros((len(balls.rows), bins))
    in_parts(_common_tails, len(out), balls, out)
    return out


@njit(cache=True, inline="always")
def _least_level(distance, radius, slack, scale):
    """The nearest that a record on the other side of a ball's edge can be, in steps.

    The triangle inequality for a record at `distance` from the centre, which may be off by `slack`.
    """
    return np.int64(max(0.0, abs(radius - distance) - slack * (radius + distance)) * scale)


@njit(cache=True, nogil=True)
def _boundary_masses(begin, end, places, balls, outer, most, chosen, worst, partner):
    chance, to_centre, radius, slack, rows, log_rows, common, log_common, room, step, tiny = balls
    size = rows.shape[0]
    bins = outer.shape[1]
    distance = np.empty(size)
    near = np.empty(size, np.int64)
    level = np.empty(size, np.int64)
    total = np.empty(size)
    tails = np.empty(bins)
    for n in range(begin, end):
        x = chosen[n]
        fill(places, x, np.int64(0), size, distance)
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
    places: Coordinates, balls: Balls, outer: FloatArray, chosen: IntArray
) -> tuple[FloatArray, IntArray]:
    """For chosen records x the largest violation probability over x', and that x'.

    `outer` is the result of `common_tails`. A pair is violated where exactly one of the two is in
    the ball and the output's log-ratio to the common row exceeds the room of their distance, which
    is rounded down to a step of the log-ratio.
    """
    worst = np.zeros(len(chosen))
    partner = np.zeros(len(chosen), np.int64)
    tails = (outer, outer.max(axis=0))
    in_parts(_boundary_masses, len(chosen), places, balls, *tails, chosen, worst, partner)
    return worst, partner


@njit(cache=True, nogil=True)
def _ring_masses(begin, end, balls, most, worst):
    chance, to_centre, radius, slack, rows, log_rows, common, log_common, room, step, tiny = balls
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


def ring_masses(balls: Balls, outer: FloatArray) -> FloatArray:
    """Per record an upper bound on `boundary_masses` that looks at no second record.

    A record at most d from x is on the other side of a ball's edge only where the centre is
    farther than radius - d from x and nearer than radius + d.
    """
    worst = np.zeros(len(outer))
    in_parts(_ring_masses, len(outer), balls, outer.max(axis=0), worst)
    return worst
