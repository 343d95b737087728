"""Chernoff bounds on the leakage of a drawn anchor set, over many pairs, compiled."""

from __future__ import annotations

import numpy as np
from numba import njit, prange


@njit(cache=True)
def _add_moments(w, other, powers, out):
    """Add log E[exp(+-s l)] of one candidate, l its log-likelihood ratio, for every s.

    out[0]: + under w; out[1]: - under w; out[2]: + under `other` for the reversed ratio;
    out[3]: - under `other` for the reversed ratio.
    """
    if w == other:
        return
    chosen = np.log(w) - np.log(other)
    passed = np.log1p(-w) - np.log1p(-other)
    log_w = np.log(w)
    log_not = np.log1p(-w)
    log_other = np.log(other)
    log_not_other = np.log1p(-other)
    for k in range(len(powers)):
        s = powers[k]
        out[0, k] += np.logaddexp(log_w + s * chosen, log_not + s * passed)
        out[1, k] += np.logaddexp(log_w - s * chosen, log_not - s * passed)
        out[2, k] += np.logaddexp(log_other - s * chosen, log_not_other - s * passed)
        out[3, k] += np.logaddexp(log_other + s * chosen, log_not_other + s * passed)


@njit(cache=True)
def _bound(moments, powers, surprise):
    """The largest of the four Chernoff quantiles: min over s of (log E + surprise) / s."""
    worst = 0.0
    for side in range(4):
        best = np.inf
        for k in range(len(powers)):
            best = min(best, (moments[side, k] + surprise) / powers[k])
        worst = max(worst, best)
    return worst


@njit(cache=True, parallel=True)
def lone_moments(start, probability, tail, powers):
    """Moments of each row against a record that shares no near candidate, (rows, 4, powers)."""
    rows = len(start) - 1
    out = np.zeros((rows, 4, len(powers)))
    for i in prange(rows):
        for k in range(start[i], start[i + 1]):
            _add_moments(probability[k], tail, powers, out[i])
    return out


@njit(cache=True, parallel=True)
def quantile_matrix(start, anchor, probability, tail, lone, distance, split, powers, surprise):
    """Upper bounds on the two-sided quantile of the leakage between all rows, symmetric."""
    rows = len(start) - 1
    out = np.zeros((rows, rows))
    for i in prange(rows):
        moments = np.empty((4, len(powers)))
        for j in range(i):
            if distance[i, j] >= split:
                # The second record's near candidates are seen from its own side.
                moments[0] = lone[i, 0] + lone[j, 2]
                moments[1] = lone[i, 1] + lone[j, 3]
                moments[2] = lone[i, 2] + lone[j, 0]
                moments[3] = lone[i, 3] + lone[j, 1]
            else:
                moments[:] = 0.0
                a = start[i]
                b = start[j]
                while a < start[i + 1] or b < start[j + 1]:
                    w = tail
                    other = tail
                    left = b >= start[j + 1] or (a < start[i + 1] and anchor[a] <= anchor[b])
                    right = a >= start[i + 1] or (b < start[j + 1] and anchor[b] <= anchor[a])
                    if left:
                        w = probability[a]
                    if right:
                        other = probability[b]
                    if left:
                        a += 1
                    if right:
                        b += 1
                    _add_moments(w, other, powers, moments)
            out[i, j] = _bound(moments, powers, surprise)
    for i in prange(rows):
        for j in range(i + 1, rows):
            out[i, j] = out[j, i]
    return out
