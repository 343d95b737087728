"""What a batch of reports tells when their order is lost: (epsilon, delta) from the table itself.

Somebody trusted to shuffle takes one report of each of n people, from the same table, and hands on
the multiset alone (counts of outputs are one). Whoever sees that, and knows everybody else's
record, tells one person's record x from x' no better than (epsilon, delta). The shuffler sees each
report as it is, with the table's own epsilon; so does anybody who sees when or by whom one came.

With the blanket w_y = min_x z_xy and g = sum_y w_y, every report is one of w / g with chance g,
whatever its record (Balle, Bell, Gascon and Nissim, 2019). Were the others' remaining reports told
as well, the batch would have, exactly,

    delta(epsilon) = E [L_1 + ... + L_M]_+ / (g n),   M binomial (n, g),
    L = (z_xY - e^epsilon z_x'Y) / (w_Y / g),         Y drawn from w / g;

not telling them can only help. The law of the sum is one power of a Fourier transform. Every
rounding on the way goes up: values of L are spread over their two neighbours on a grid, one law
stands for all pairs (the largest E [L - t]_+ at every t, which is again that of a law), and what
lies beyond the transform's window is bounded by its moments.
"""

from __future__ import annotations

import math

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.errors import InvalidInputError
from panda_mdp.table.mechanism import Release

MOST_ENTRIES = 1 << 26
"""Pairs of records times outputs that are looked at."""
GRID = 256
DEVIATIONS = 18
"""Width of the window, in standard deviations of the sum."""
LONGEST = 1 << 24
ROUNDING = 64 * 2.0**-52
BISECTIONS = 12
LEAST = 1e-5
LARGEST_EXPONENT = 700.0


class ShuffledReports:
    """One report of each of `reports` people, in an order that nobody knows."""

    def __init__(self, release: Release, reports: int) -> None:
        rows = np.unique([release.row(x) for x in range(release.problem.size)], axis=0)
        rows = rows[:, rows.any(axis=0)]
        if not 2 <= reports <= 10**9:
            raise InvalidInputError(f"a batch of {reports!r} hides nobody; give 2 to 10^9 reports")
        if len(rows) ** 2 * rows.shape[1] > MOST_ENTRIES:
            raise InvalidInputError(
                f"{len(rows):,} different rows of {rows.shape[1]:,} outputs are too many pairs to "
                "look at; make a table of fewer records, such as zones"
            )
        if not rows.all():
            raise InvalidInputError("some record never makes a report that others make; no blanket")
        self.reports = reports
        self.rows: FloatArray = rows
        least = rows.min(axis=0)
        self.blanket = float(least.sum())
        """The part of the reports that say nothing about their record."""
        self._law = least / self.blanket
        self.local = float(np.log(rows.max(axis=0) / least).max())
        """Epsilon of a report that is seen alone, between any two records."""

    def delta(self, epsilon: float) -> float:
        """The delta that goes with an epsilon between any two records: at most 1, never low."""
        if not epsilon >= 0:
            raise InvalidInputError(f"epsilon is {epsilon!r}; give a number from 0 on")
        step, first, law = self._dominating(epsilon)
        steps = step * np.arange(first, first + len(law), dtype=float)
        base = self.blanket * law
        base[-first] += 1 - self.blanket
        mean = self.reports * float(base @ steps)
        deviation = math.sqrt(self.reports * max(float(base @ steps**2), step**2))
        wide = DEVIATIONS * deviation / step + 2 * len(law)
        length = min(LONGEST, 1 << math.ceil(math.log2(wide)))
        top = max(0, round(mean / step) + length // 2)
        folded = np.zeros(length)
        np.add.at(folded, np.arange(first, first + len(law)) % length, base)
        expected = 0.0
        if top:
            total = np.fft.irfft(np.fft.rfft(folded) ** self.reports, length)
            values = np.arange(1, top + 1)
            expected = step * float(values @ np.maximum(total[values % length], 0))
        rounding = ROUNDING * self.reports * step * top * math.sqrt(length)
        beyond = self._beyond(base, steps, step * top, deviation)
        return min(1.0, (expected + rounding + beyond) / (self.blanket * self.reports))

    def epsilon(self, delta: float) -> float:
        """The least epsilon between any two records that goes with a delta, to 0.3 %."""
        if not 0 < delta < 1:
            raise InvalidInputError(f"delta is {delta!r}; give a number between 0 and 1")
        low = LEAST * self.local
        high = self.local
        for _ in range(BISECTIONS):
            middle = math.sqrt(low * high)
            low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
        return high

    def _dominating(self, epsilon: float) -> tuple[float, int, FloatArray]:
        """Step, first multiple and law on a grid, above that of L of every pair of records."""
        scaled = self.rows / self._law
        lowest = float((scaled.min(axis=0) - math.exp(epsilon) * scaled.max(axis=0)).min())
        highest = float((scaled.max(axis=0) - math.exp(epsilon) * scaled.min(axis=0)).max())
        step = (max(highest, 0.0) - lowest) / GRID
        first = math.floor(lowest / step) - 1
        count = math.ceil(max(highest, 0.0) / step) - first + 2
        grid = np.arange(count)
        best = np.zeros(count)
        for row in scaled:
            place = (row - math.exp(epsilon) * scaled) / step - first
            below = np.floor(place).astype(np.int64)
            part = (place - below) * self._law
            flat = below + count * np.arange(len(scaled))[:, None]
            size = count * len(scaled)
            mass = np.bincount(flat.reshape(-1), (self._law - part).reshape(-1), size)
            mass += np.bincount(flat.reshape(-1) + 1, part.reshape(-1), size)
            mass = mass.reshape(-1, count)
            # E [L - t]_+ at the grid, in steps: sums of the tails.
            tails = np.cumsum(mass[:, ::-1], axis=1)[:, ::-1]
            excess = np.cumsum(tails[:, ::-1], axis=1)[:, ::-1] - tails
            best = np.maximum(best, excess.max(axis=0))
        slopes = np.diff(best, prepend=best[0] + 1, append=0.0)
        law = np.maximum(np.diff(slopes), 0.0)
        return step, first, law[grid] / law.sum()

    def _beyond(self, base: FloatArray, steps: FloatArray, top: float, deviation: float) -> float:
        """The most that sums above the window add to the mean of what is positive (Chernoff)."""
        found = np.inf
        rates = np.geomspace(0.01, 100.0, 60) / deviation
        for rate in rates[rates * steps.max() < LARGEST_EXPONENT]:
            exponent = self.reports * math.log(base @ np.exp(rate * steps))
            # The largest s exp(-rate s) from the top on.
            most = max(top, 1 / rate)
            found = min(found, most * math.exp(min(exponent - rate * most, LARGEST_EXPONENT)))
        return found
