"""What the published code computes for its leakage and margins, as it computes it.

Compiled because its loops run over pairs of anchors, pairs of their neighbours and pairs of those
records' candidates. See `panda_paper.published`, the only user.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from panda_mdp.compute.numba.compiling import njit


@njit(cache=True, parallel=True)
def last_factor_leakage(w):
    """log of the last factors of the two products between all rows of w (n, K), in nats.

    The first product runs over records with w_i > w_j, the second over those with w_i <= w_j;
    only the record with the largest index of each enters.
    """
    count, size = w.shape
    out = np.zeros((count, count))
    for i in prange(count):
        for j in range(count):
            if i == j:
                continue
            above, below = -1, -1
            for k in range(size - 1, -1, -1):
                if w[i, k] > w[j, k]:
                    if above < 0:
                        above = k
                elif below < 0:
                    below = k
                if above >= 0 and below >= 0:
                    break
            total = 0.0
            if above >= 0:
                total += np.log(w[i, above] / w[j, above])
            if below >= 0:
                total += np.log((1.0 - w[i, below]) / (1.0 - w[j, below]))
            out[i, j] = total
    return out


@njit(cache=True, parallel=True)
def second_largest_margins(base, law, half_start, half, near_start, near, target):
    """Margins between all anchors, (n, n), in nats, at least 0.

    `base` holds max(0, eps - eps_bar) d between the records involved, `law[n]` the probability
    of each of them to be the surrogate of anchor n. For every pair of records within half a radius
    of the two anchors (`half`), candidate margins are those of records within a radius (`near`) of
    them; the search goes up until the mass reaches `target`, and ends at the second largest at the
    latest. Candidates that are exactly 0 are passed over.
    """
    count = len(half_start) - 1
    out = np.zeros((count, count))
    for n in prange(count):
        for m in range(count):
            if n == m:
                continue
            largest = 0.0
            for p in range(half_start[n], half_start[n + 1]):
                x = half[p]
                for q in range(half_start[m], half_start[m + 1]):
                    y = half[q]
                    rows = near_start[x + 1] - near_start[x]
                    columns = near_start[y + 1] - near_start[y]
                    values = np.empty(rows * columns)
                    masses = np.empty(rows * columns)
                    nonzero = 0
                    # The order of equal values: by column, then by row.
                    for c in range(near_start[y], near_start[y + 1]):
                        for r in range(near_start[x], near_start[x + 1]):
                            value = base[near[r], near[c]] - base[x, y]
                            if value != 0.0:
                                values[nonzero] = value
                                masses[nonzero] = law[n, near[r]] * law[m, near[c]]
                                nonzero += 1
                    if nonzero < 2:
                        continue
                    order = np.argsort(values[:nonzero], kind="mergesort")
                    before = masses[order[0]]
                    for k in range(1, nonzero):
                        after = before + masses[order[k]]
                        reached = after >= target and before <= target
                        if reached or nonzero - k == 2:
                            largest = max(largest, values[order[k]])
                            break
                        before = after
            out[n, m] = largest
    return out
