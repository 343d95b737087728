"""Between peaks and a floor: columns that prices call for, and flows that prove prices.

Every column of a private table lies in the cone z_x >= E_xx' z_x', E = exp(-epsilon d), and so does
max over s of u_s E_xs. With prices m of the rows a column z of output y is worth
sum_x (p_x c_xy - m_x) z_x; where that is negative for none the loss is at least sum m. For an
output y those are *paid*, m_s > p_s c_sy, whom others, x, must bear: z_s <= z_x / E_xs. Where each
x divides its spare p_x c_xy - m_x among the paid so that everyone receives its due m_s - p_s c_sy,
the prices are proved; lowered to what is received they always are. Weights

    w_s <- w_s due_s / received_s,      shares of x in proportion to w_s E_xs^q,

find both: shares where there are any, and where there are none u = w^(1/q) makes a column that
costs less than is paid for it: nearly the one that costs least where q is large, and flows end
sooner where it is small, so q rises. Where more than is due can be received prices rise. New ones
lie on the way to the centre of what the known columns allow (a logarithmic barrier), whose
multipliers are weights of the columns: a table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.threads import check_time
from panda_mdp.problem import Problem
from panda_mdp.table.bound import Multipliers, Proved


@dataclass(frozen=True)
class ColumnTuning:
    """How columns are chosen."""

    sharpness: tuple[int, ...] = (16, 32)
    """q, one after the other, powers of two."""
    steps: int = 20
    """Most steps of the weights of an output at each."""
    relaxed: float = 1.4
    """Power by which a step goes farther than to what is due."""
    sweeps: int = 2
    """Most rounds of raising prices for each of columns."""
    rise: float = 0.3
    """Of what a price alone could rise by."""
    barrier: float = 0.3
    """Of the gap between table and bound: what the barrier may cost. Nearer to the edge prices are
    those of the few columns that are known."""
    back: float = 0.97
    """Columns are called for at prices that lie so far on the way to those that are proved."""
    kept: int = 3
    """Columns for each record that are kept."""
    newton: int = 4
    settled: int = 20
    """Most steps to a centre, on the way and for a table."""


def powered(near: FloatArray, q: int) -> FloatArray:
    """near^q by squares, q a power of two."""
    return near if q == 1 else powered(near, q // 2) ** 2


PLAIN = ColumnTuning()
FAINT = 0.005
"""Shares below it are left out of a proof, and given to the others."""
TINY = 1e-300
FAINTEST = 1e-200
"""That sums of what far records give are divided by at least; the least weight."""
DUE, SPARE = 1e-50, 1e5
"""What is due is taken for at least the one, what is spare for at most the other: a flow is less
than it might be then, and finite."""
LEAST = 1e-10
"""Of the floor's loss, that a column is worth."""


class Columns:
    """The columns that are known of one problem, their prices, and prices that are proved.

    `decay` is E, (K, K), `cost` p_x c_xy with column y that of record y, `start` prices that are
    proved, `places` the problem's column of every record. Prices are in units of the floor's loss.
    """

    def __init__(
        self,
        problem: Problem,
        decay: FloatArray,
        cost: FloatArray,
        start: FloatArray,
        places: IntArray,
        tuning: ColumnTuning = PLAIN,
    ) -> None:
        self.problem = problem
        self.decay = decay
        self.places = places
        self.tuning = tuning
        self.unit = float(cost.sum(axis=0).min())
        size = len(decay)
        self.cost = cost / self.unit
        self.known = np.concatenate([decay, np.ones((1, size))])
        self.outputs = np.append(np.arange(size), cost.sum(axis=0).argmin())
        self.worth = self._worth(self.known, self.outputs)
        mean = self.cost.mean(axis=1)
        self.most = 2 * np.maximum(mean, 0.01 * mean.mean())
        self.least = -self.most / 4
        self.proved = self.asked = self.raised = start / self.unit
        """Prices that are proved, those whose flows prove them, and those to be tried next."""
        self.heights = np.ones((size, size))
        """u of every output, by which flows begin."""
        self.value = 1.0
        """About the loss of a table of the known columns."""
        self.prices = self.proved
        self.raise_prices()
        self.prices = self._inside(self.proved)

    @property
    def gap(self) -> float:
        """About that of `table` to what prices prove."""
        return self.value / max(float(self.proved.sum()), LEAST) - 1

    def _worth(self, known: FloatArray, outputs: IntArray) -> FloatArray:
        return np.einsum("jx,xj->j", known, self.cost[:, outputs]) + LEAST

    def _inside(self, prices: FloatArray) -> FloatArray:
        """From proved prices on towards others, while known columns and the box leave room."""
        held = np.clip(0.9 * self.proved, self.least / 2, self.most / 2)
        while (self.worth <= self.known @ held).any():
            held = 0.9 * held + 0.1 * self.least / 2
        step = np.clip(prices, 0.95 * self.least, 0.95 * self.most) - held
        steepest = (self.known @ step / (self.worth - self.known @ held)).max()
        return held + step * min(1.0, 0.9 / max(steepest, 0.9))

    def centre(self, steps: int) -> FloatArray:
        """Prices at the centre, by so many steps of Newton's method; the weights of the columns,
        (J,)."""
        prices = self.prices
        count = len(self.known) + 2 * len(self.prices)
        barrier = self.tuning.barrier * max(self.value - float(self.proved.sum()), 1e-6) / count
        for _ in range(steps):
            check_time()
            below = prices - self.least
            above = self.most - prices
            weights = barrier / (self.worth - self.known @ prices)
            slope = 1 - weights @ self.known + barrier / below - barrier / above
            root = self.known * (weights / math.sqrt(barrier))[:, None]
            with np.errstate(over="ignore"):
                curve = root.T @ root + np.diag(barrier / below**2 + barrier / above**2)
            if not np.isfinite(curve).all():
                raise scipy.linalg.LinAlgError("costs lie too far apart for a centre")
            step = scipy.linalg.solve(curve, slope, assume_a="pos")
            with np.errstate(over="ignore", invalid="ignore"):
                ends = self.known @ step * weights / barrier, -step / below, step / above
                rise = slope @ step
            if not (np.isfinite(rise) and all(np.isfinite(end).all() for end in ends)):
                raise scipy.linalg.LinAlgError("prices lie too far apart for a centre")
            near = rise < 0.25 * barrier
            prices = prices + step * (1.0 if near else min(1.0, 0.9 / max(map(np.max, ends))))
            if near:
                break
        self.prices = prices
        self.value = float(prices.sum()) + barrier * count
        return np.asarray(barrier / (self.worth - self.known @ prices))

    def advance(self) -> None:
        """A centre, the columns that prices near it call for, and what prices then prove."""
        tuning = self.tuning
        weights = self.centre(tuning.newton)
        size = len(self.prices)
        asked = tuning.back * self.proved + (1 - tuning.back) * self.prices
        known = np.stack([self._called(y, asked) for y in range(size)])
        outputs = np.arange(size)
        worth = self._worth(known, outputs)
        cuts = known @ self.prices > worth
        used = weights * self.known.max(axis=1)
        kept = used >= np.sort(used)[-min(len(used), tuning.kept * size)]
        # The floor, wherever it stands now: without it there may be no table.
        kept |= self.known.min(axis=1) == 1
        self.known = np.concatenate([self.known[kept], known[cuts]])
        self.outputs = np.append(self.outputs[kept], outputs[cuts])
        self.worth = np.append(self.worth[kept], worth[cuts])
        self._prove(asked)
        self.raise_prices()
        self.prices = self._inside(self.prices)

    def raise_prices(self) -> None:
        """As far as a few rounds go."""
        for _ in range(self.tuning.sweeps):
            if not self._prove(self.raised):
                self.raised = (self.raised + self.proved) / 2

    def _called(self, y: int, prices: FloatArray) -> FloatArray:
        """A column of output y by the heights of its flow; 0 where nobody is paid."""
        paid, *_ = self._flow(y, prices)
        heights = self.heights[y, paid]
        return np.asarray((self.decay[paid] * heights[:, None]).max(axis=0, initial=0.0))

    def _flow(self, y: int, prices: FloatArray) -> tuple[IntArray, int, FloatArray, FloatArray]:
        """Who is paid for an output, q and the weights of who bears it, and what each receives of
        its due."""
        check_time()
        tuning = self.tuning
        spare = self.cost[:, y] - prices
        paid = np.flatnonzero(spare < 0)
        given = np.clip(spare, 0, SPARE)
        near = self.decay[paid]
        best = self.heights[y, paid]
        received = np.zeros(len(paid))
        sharpest = 1
        for q in tuning.sharpness if len(paid) else ():
            sharp = powered(near, q)
            weights = self.heights[y, paid] ** q
            lent = sharp * near / np.maximum(-spare[paid, None], DUE)
            for _ in range(tuning.steps):
                got = weights * (lent @ (given / np.maximum(weights @ sharp, TINY)))
                if got.min() > received.min():
                    best = weights
                    received = got
                    sharpest = q
                if received.min() > 1:
                    break
                weights = weights / np.clip(got**tuning.relaxed, 0.02, 50)
                weights = np.maximum(weights / weights.max(), FAINTEST)
            self.heights[y, paid] = weights ** (1 / q)
            if received.min() > 1:
                break
        return paid, sharpest, best, received

    def _prove(self, asked: FloatArray) -> bool:
        """Whether some prices, lowered to what is received, prove more than those before; then
        higher ones are tried next where more is received than is due."""
        most = np.full(len(asked), np.inf)
        for y, cost in enumerate(self.cost.T):
            paid, *_, received = self._flow(y, asked)
            fits = cost.copy()
            fits[paid] += received * (asked - cost)[paid]
            most = np.minimum(most, fits)
        lowered = np.minimum(asked, most)
        if lowered.sum() < self.proved.sum():
            return False
        self.proved = lowered
        self.asked = asked
        self.raised = lowered + self.tuning.rise * (most - lowered)
        return True

    def table(self) -> FloatArray:
        """The known columns by the centre's weights, (K, K): nearly private, rows sum nearly to
        1."""
        z = np.zeros_like(self.decay)
        np.add.at(z, self.outputs, self.centre(self.tuning.settled)[:, None] * self.known)
        return z.T

    def proof(self) -> Proved:
        """The flows of what is proved, as multipliers."""
        parts = []
        for y, cost in enumerate(self.cost.T):
            paid, sharpest, weights, _ = self._flow(y, self.asked)
            near = self.decay[:, paid]
            spare = np.maximum(cost - self.asked, 0)
            shares = powered(near, sharpest) * weights
            shares /= np.maximum(shares.sum(axis=1, keepdims=True), TINY)
            shares[shares < FAINT] = 0.0
            shares *= (spare / np.maximum(shares.sum(axis=1), FAINT))[:, None] * near
            x, s = np.nonzero(shares)
            parts.append((paid[s], x, np.full(len(x), self.places[y]), shares[x, s] * self.unit))
        paid, lenders, columns, values = (np.concatenate(part) for part in zip(*parts, strict=True))
        known, owner = np.unique(paid * len(self.decay) + lenders, return_inverse=True)
        pairs = np.stack(np.divmod(known, len(self.decay)), axis=1)
        return Proved(self.problem, Multipliers.listed(pairs, owner.ravel(), columns, values))
