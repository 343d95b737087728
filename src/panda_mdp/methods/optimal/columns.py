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

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.threads import by_slices, check_time
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


def powered(near: Any, q: int) -> Any:
    """near^q by squares, q a power of two."""
    return near if q == 1 else powered(near, q // 2) ** 2


PLAIN = ColumnTuning()
FAINT = (0.005, 0.05)
MOST_EXACT = 2_000
"""Shares below the first are left out of a proof, and given to the others; of more records those
below the second."""
MOST_NAMED = 1 << 26
ROUNDED = 1e-8
"""Most multipliers of a proof. Where there are more a bound is stated, less so much of all prices:
sums of some thousand floats err by far less."""
OUTPUTS_EACH = 16
"""Whose flows a thread makes before it takes others."""
TINY = 1e-300
FAINTEST = 1e-200
"""That sums of what far records give are divided by at least; the least weight."""
DUE, SPARE = 1e-50, 1e5
"""What is due is taken for at least the one, what is spare for at most the other: a flow is less
than it might be then, and finite."""
LEAST = 1e-10
"""Of the floor's loss, that a column is worth."""


def flow_step(
    sharp: Any, lent: Any, given: Any, weights: Any, relaxed: float, xp: Any = np
) -> tuple[Any, Any]:
    """What each that is paid receives of its due by its weight, and the weights after it. In NumPy
    or, by `xp`, in JAX, as what follows."""
    got = weights * (lent @ (given / xp.maximum(weights @ sharp, TINY)))
    weights = weights / xp.clip(got**relaxed, 0.02, 50)
    return got, xp.maximum(weights / weights.max(), FAINTEST)


def newton_step(
    known: Any, worth: Any, prices: Any, box: Any, barrier: Any, solve: Any, xp: Any = np
) -> tuple[Any, Any, Any]:
    """A step of Newton's method towards the centre of known @ prices <= worth in a box, how much of
    it leads to an edge, and by how much it rises."""
    below = prices - box[0]
    above = box[1] - prices
    weights = barrier / (worth - known @ prices)
    slope = 1 - weights @ known + barrier / below - barrier / above
    root = known * (weights / xp.sqrt(barrier))[:, None]
    curve = root.T @ root + xp.diag(barrier / below**2 + barrier / above**2)
    step = solve(curve, slope)
    ends = (known @ step * weights / barrier).max(), (-step / below).max(), (step / above).max()
    return step, xp.stack(ends).max(), slope @ step


@dataclass(frozen=True)
class Flows:
    """Of every output, how others bear what is paid: where flows stand and what they prove."""

    heights: Any
    """(outputs, records): by which the next ones begin."""
    best: Any
    """(outputs, records): w^(1/q) of those that receive most."""
    sharpest: IntArray
    """(outputs,): their q."""
    most: FloatArray
    """(records,): prices that could be received."""
    called: Any
    """(outputs, records): columns by the heights; 0 where nobody is paid."""


class Host:
    """Flows and centres in NumPy, an output at a time."""

    put = staticmethod(np.array)

    def __init__(self, tuning: ColumnTuning) -> None:
        self.tuning = tuning

    def times(self, known: FloatArray, prices: FloatArray) -> FloatArray:
        """known @ prices."""
        return known @ prices

    def ends(self, known: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The least and the largest of each column."""
        return known.min(axis=1), known.max(axis=1)

    def worth(self, columns: FloatArray, cost: FloatArray) -> FloatArray:
        """Of a column for each output, in their order."""
        return np.asarray(np.einsum("yx,xy->y", columns, cost))

    def rows(self, known: FloatArray, called: FloatArray, index: IntArray) -> FloatArray:
        """Some columns of two lists; those of the second are counted from its end."""
        return np.concatenate([known, called])[index]

    def newton(
        self, known: FloatArray, worth: FloatArray, prices: FloatArray, box: Any, barrier: float
    ) -> tuple[Any, Any, Any]:
        """`newton_step`."""
        with np.errstate(over="ignore", invalid="ignore"):
            return newton_step(known, worth, prices, box, barrier, _solved)

    def flows(self, decay: Any, cost: Any, heights: Any, asked: FloatArray) -> Flows:
        """Flows at prices that are asked, from heights on, which change."""
        size = len(decay)
        best = heights.copy()
        sharpest = np.ones(size, np.int64)
        called = np.zeros_like(heights)
        found: list[FloatArray] = []

        def work(part: slice) -> None:
            most = np.full(size, np.inf)
            for y in range(size)[part]:
                check_time()
                fits = cost[:, y].copy()
                paid = np.flatnonzero(fits < asked)
                due = (asked - fits)[paid]
                given = np.clip(fits - asked, 0, SPARE)
                near = decay[paid]
                state = self._flow(near, np.maximum(due, DUE), given, heights[y, paid])
                heights[y, paid], best[y, paid], sharpest[y], received = state
                called[y] = (near * heights[y, paid, None]).max(axis=0, initial=0.0)
                fits[paid] += received * due
                np.minimum(most, fits, out=most)
            found.append(most)

        by_slices(work, size, OUTPUTS_EACH)
        return Flows(heights, best, sharpest, np.min(found, axis=0), called)

    def _flow(
        self, near: FloatArray, due: FloatArray, given: FloatArray, heights: FloatArray
    ) -> tuple[FloatArray, FloatArray, int, FloatArray]:
        """Heights, the best ones, their q, and what each that is paid receives of its due."""
        tuning = self.tuning
        best = heights
        received = np.zeros(len(due))
        sharpest = 1
        for q in tuning.sharpness if len(due) else ():
            sharp = powered(near, q)
            weights = heights**q
            lent = sharp * near / due[:, None]
            for _ in range(tuning.steps):
                got, after = flow_step(sharp, lent, given, weights, tuning.relaxed)
                if got.min() > received.min():
                    best, received, sharpest = weights ** (1 / q), got, q
                if received.min() > 1:
                    return weights ** (1 / q), best, sharpest, received
                weights = after
            heights = weights ** (1 / q)
        return heights, best, sharpest, received


def _solved(curve: FloatArray, slope: FloatArray) -> FloatArray:
    if not np.isfinite(curve).all():
        raise scipy.linalg.LinAlgError("costs lie too far apart for a centre")
    return np.asarray(scipy.linalg.solve(curve, slope, assume_a="pos"))


class Laws(NamedTuple):
    """What an accelerator computes by."""

    step: Any = flow_step
    newton: Any = newton_step
    powered: Any = powered
    flows: Any = Flows
    due: float = DUE
    spare: float = SPARE


def accelerated(tuning: ColumnTuning) -> Any:
    """The same on an accelerator."""
    from panda_mdp.compute.jax.columns import Device

    return Device(tuning, Laws())


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
        machine: Callable[[ColumnTuning], Any] = Host,
    ) -> None:
        self.problem = problem
        self.places = places
        self.tuning = tuning
        self.machine = machine(tuning)
        self.unit = float(cost.sum(axis=0).min())
        size = len(decay)
        mean = cost.mean(axis=1) / self.unit
        self.most = 2 * np.maximum(mean, 0.01 * mean.mean())
        self.least = -self.most / 4
        self.decay = decay
        self.cost = cost / self.unit
        self.here = self.machine.put(decay), self.machine.put(self.cost)
        """Both, where flows are made."""
        floor = np.ones((1, size))
        self.known = self.machine.rows(self.here[0], floor, np.arange(size + 1))
        """(J, K), perhaps with more that are 0."""
        self.outputs = np.append(np.arange(size), cost.sum(axis=0).argmin())
        self.worth = np.append(self.machine.worth(*self.here), 1.0) + LEAST
        self.proved = self.asked = self.raised = start / self.unit
        """Prices that are proved, those whose flows prove them, and those to be tried next."""
        self.heights = self.machine.put(np.ones((size, size)))
        """u of every output, by which flows begin."""
        self.flows: Flows | None = None
        """Of what is proved; None where stars prove it."""
        self.value = 1.0
        """About the loss of a table of the known columns."""
        self.prices = self.proved
        self.raise_prices()
        self.prices = self._inside(self.proved)

    @property
    def gap(self) -> float:
        """About that of `table` to what prices prove."""
        return self.value / max(float(self.proved.sum()), LEAST) - 1

    def _earned(self, prices: FloatArray) -> FloatArray:
        """By every known column."""
        return np.asarray(self.machine.times(self.known, prices)[: len(self.worth)])

    def _inside(self, prices: FloatArray) -> FloatArray:
        """From proved prices on towards others, while known columns and the box leave room."""
        held = np.clip(0.9 * self.proved, self.least / 2, self.most / 2)
        while (self.worth <= self._earned(held)).any():
            held = 0.9 * held + 0.1 * self.least / 2
        step = np.clip(prices, 0.95 * self.least, 0.95 * self.most) - held
        steepest = (self._earned(step) / (self.worth - self._earned(held))).max()
        return held + step * min(1.0, 0.9 / max(steepest, 0.9))

    def centre(self, steps: int) -> FloatArray:
        """Prices at the centre, by so many steps of Newton's method; the weights of the columns,
        (J,)."""
        prices = self.prices
        count = len(self.worth) + 2 * len(self.prices)
        barrier = self.tuning.barrier * max(self.value - float(self.proved.sum()), 1e-6) / count
        box = np.stack([self.least, self.most])
        for _ in range(steps):
            check_time()
            step, end, rise = self.machine.newton(self.known, self.worth, prices, box, barrier)
            if not (np.isfinite(rise) and np.isfinite(end)):
                raise scipy.linalg.LinAlgError("prices lie too far apart for a centre")
            near = rise < 0.25 * barrier
            prices = prices + step * (1.0 if near else min(1.0, 0.9 / end))
            if near:
                break
        self.prices = prices
        self.value = float(prices.sum()) + barrier * count
        return np.asarray(barrier / (self.worth - self._earned(prices)))

    def advance(self) -> None:
        """A centre, the columns that prices near it call for, and what prices then prove."""
        tuning = self.tuning
        weights = self.centre(tuning.newton)
        size = len(self.prices)
        called = self._prove(tuning.back * self.proved + (1 - tuning.back) * self.prices).called
        worth = self.machine.worth(called, self.here[1]) + LEAST
        cuts = np.flatnonzero(self.machine.times(called, self.prices) > worth)
        lowest, highest = (ends[: len(weights)] for ends in self.machine.ends(self.known))
        # The floor, wherever it stands now: without it there may be no table.
        used = np.where(lowest == 1, np.inf, weights * highest)
        kept = np.sort(np.argsort(-used)[: tuning.kept * size])
        self.known = self.machine.rows(self.known, called, np.append(kept, cuts - size))
        self.outputs = np.append(self.outputs[kept], cuts)
        self.worth = np.append(self.worth[kept], worth[cuts])
        self.raise_prices()
        self.prices = self._inside(self.prices)

    def raise_prices(self) -> None:
        """As far as a few rounds go."""
        for _ in range(self.tuning.sweeps):
            before = self.asked
            self._prove(self.raised)
            if self.asked is before:
                self.raised = (self.raised + self.proved) / 2

    def _prove(self, asked: FloatArray) -> Flows:
        """Flows at prices that are asked. Where these, lowered to what is received, prove more than
        those before, they are kept, and higher ones are tried next where more is received than is
        due."""
        flows: Flows = self.machine.flows(*self.here, self.heights, asked)
        self.heights = flows.heights
        lowered = np.minimum(asked, flows.most)
        if lowered.sum() >= self.proved.sum():
            self.proved = lowered
            self.asked = asked
            self.flows = flows
            self.raised = lowered + self.tuning.rise * (flows.most - lowered)
        return flows

    def table(self) -> FloatArray:
        """The known columns by the centre's weights, (K, K): nearly private, rows sum nearly to
        1."""
        z = np.zeros_like(self.decay)
        weights = self.centre(self.tuning.settled)
        known = np.asarray(self.known)[: len(weights)]
        np.add.at(z, self.outputs, weights[:, None] * known)
        return z.T

    def proof(self) -> Proved | float:
        """The flows of what is proved, as multipliers; a bound alone where they are too many."""
        if self.flows is None:
            return -np.inf
        best = np.asarray(self.flows.best)
        size = len(best)
        parts: list[tuple[IntArray, IntArray, FloatArray]] = []

        def work(part: slice) -> None:
            for y in range(size)[part]:
                check_time()
                if sum(len(named) for named, *_ in parts) <= MOST_NAMED:
                    parts.append(self._shares(y, best[y]))

        by_slices(work, size, OUTPUTS_EACH)
        named, columns, values = (np.concatenate(part) for part in zip(*parts, strict=True))
        if len(named) > MOST_NAMED:
            worth, size_of = float(self.proved.sum()), float(np.abs(self.asked).sum())
            return (worth - ROUNDED * size_of) * self.unit
        known, owner = np.unique(named, return_inverse=True)
        pairs = np.stack(np.divmod(known, size), axis=1)
        return Proved(self.problem, Multipliers.listed(pairs, owner.ravel(), columns, values))

    def _shares(self, y: int, best: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
        """Multipliers of an output: pairs by their number, columns, values."""
        paid = np.flatnonzero(self.cost[:, y] < self.asked)
        near = self.decay[:, paid]
        q = int(self.flows.sharpest[y]) if self.flows else 1
        spare = np.maximum(self.cost[:, y] - self.asked, 0)
        shares = powered(near, q) * best[paid] ** q
        shares /= np.maximum(shares.sum(axis=1, keepdims=True), TINY)
        faint = FAINT[len(best) > MOST_EXACT]
        shares[shares < faint] = 0.0
        shares *= (spare / np.maximum(shares.sum(axis=1), faint))[:, None] * near
        x, s = np.nonzero(shares)
        named = paid[s] * len(best) + x
        return named, np.full(len(x), self.places[y]), shares[x, s] * self.unit
