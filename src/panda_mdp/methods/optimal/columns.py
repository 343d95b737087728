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

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy

from panda_mdp.base.arrays import CACHED_ENTRIES, FloatArray, IntArray
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
    most_named: int = 1 << 26
    """Multipliers of a proof; where there are more a bound is stated."""
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
ROUNDED = 1e-8
"""Of all prices, by which a bound that is stated lies lower: sums of some thousand floats err by
far less."""
TINY = 1e-300
FAINTEST = 1e-200
"""That sums of what far records give are divided by at least; the least weight."""
DUE, SPARE = 1e-50, 1e5
"""What is due is taken for at least the one, what is spare for at most the other: a flow is less
than it might be then, and finite."""
LEAST = 1e-10
"""Of the floor's loss, that a column is worth."""


def until(steps: int, step: Callable[[Any], Any], state: Any) -> Any:
    """So many steps, or until the first of the state is above 1."""
    while steps and not (state[0] > 1).all():
        state = step(state)
        steps -= 1
    return state


def flow_block(
    decay: Any,
    paid: Any,
    due: Any,
    given: Any,
    heights: Any,
    tuning: ColumnTuning,
    machine: tuple[Any, Any] = (np, until),
) -> tuple[Any, ...]:
    """Flows of some outputs to those that are `paid`, (outputs, paid), of what is `due` to them, 0
    for nobody, out of what others have, `given`, (outputs, records): heights, the best ones, their
    q, what is received of what is due, and columns. In NumPy or, by another `machine`, in JAX."""
    xp, loop = machine
    real = due > 0
    near = xp.where(real[:, :, None], decay[paid], 0.0)
    due = xp.maximum(due, DUE)[:, :, None]
    best = heights
    received = xp.where(real, 0.0, xp.inf)
    least = received.min(axis=1, keepdims=True)
    sharpest = 1 + 0 * paid[:, :1]
    for q in tuning.sharpness:
        before = least > 1
        weights = heights**q
        sharp = powered(near, q)
        lent = sharp * near / due

        def step(state: Any, q: int = q, sharp: Any = sharp, lent: Any = lent) -> Any:
            least, weights, best, received, sharpest = state
            shares = given / xp.maximum((weights[:, None] @ sharp)[:, 0], TINY)
            got = xp.where(real, weights * (lent @ shares[:, :, None])[:, :, 0], xp.inf)
            most = got.min(axis=1, keepdims=True)
            better = (most > least) & (least <= 1)
            best = xp.where(better, weights ** (1 / q), best)
            received = xp.where(better, got, received)
            least = xp.where(better, most, least)
            sharpest = xp.where(better, q, sharpest)
            # Who is not paid weighs nothing, and stays so.
            after = weights / xp.clip(xp.where(real, got, 1.0) ** tuning.relaxed, 0.02, 50)
            after = xp.maximum(after / after.max(axis=1, keepdims=True, initial=TINY), FAINTEST)
            return least, xp.where(least > 1, weights, after), best, received, sharpest

        state = least, weights, best, received, sharpest
        least, weights, best, received, sharpest = loop(tuning.steps, step, state)
        heights = xp.where(before, heights, weights ** (1 / q))
    return heights, best, sharpest[:, 0], received, (near * heights[:, :, None]).max(axis=1)


def newton_step(
    solve: Any, known: Any, worth: Any, prices: Any, box: Any, barrier: Any, xp: Any = np
) -> tuple[Any, Any, Any]:
    """A step of Newton's method towards the centre of known @ prices <= worth in a box, how much of
    it leads to an edge, and by how much it rises. In NumPy or, by `xp`, in JAX."""
    below = prices - box[0]
    above = box[1] - prices
    weights = barrier / (worth - known @ prices)
    slope = 1 - weights @ known + barrier / below - barrier / above
    root = known * (weights / xp.sqrt(barrier))[:, None]
    curve = root.T @ root + xp.diag(barrier / below**2 + barrier / above**2)
    step = solve(curve, slope)
    ends = (known @ step * weights / barrier).max(), (-step / below).max(), (step / above).max()
    return step, xp.stack(ends).max(), slope @ step


class Host:
    """What computes flows and centres: here NumPy."""

    most_entries = CACHED_ENTRIES
    """Of a block of flows."""

    def __init__(self, tuning: ColumnTuning) -> None:
        self.block = partial(flow_block, tuning=tuning)

    def put(self, array: FloatArray, rows: int = 0) -> Any:
        """An array where it is used; on an accelerator filled up with zeros to so many rows."""
        return array

    def newton(self, *given: Any) -> tuple[Any, Any, Any]:
        """`newton_step`."""
        with np.errstate(over="ignore", invalid="ignore"):
            return newton_step(_solved, *given)


def _solved(curve: FloatArray, slope: FloatArray) -> FloatArray:
    if not np.isfinite(curve).all():
        raise scipy.linalg.LinAlgError("costs lie too far apart for a centre")
    return np.asarray(scipy.linalg.solve(curve, slope, assume_a="pos"))


def accelerated(tuning: ColumnTuning) -> Any:
    """The same on an accelerator."""
    from panda_mdp.compute.jax.columns import Device

    return Device(partial(flow_block, tuning=tuning), newton_step)


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
        self.cost = np.ascontiguousarray(cost.T / self.unit)
        """(outputs, records)."""
        self.placed = self.machine.put(decay)
        self.known = np.concatenate([decay, np.ones((1, size))])
        self.outputs = np.append(np.arange(size), cost.sum(axis=0).argmin())
        self.worth = self._worth(self.known, self.outputs)
        self.proved = self.asked = self.raised = start / self.unit
        """Prices that are proved, those whose flows prove them, and those to be tried next."""
        self.heights = np.ones((size, size))
        """u of every output, by which flows begin."""
        self.best = self.heights, np.ones(size, np.int64)
        """w^(1/q) and q of the flows that prove `proved`."""
        self.value = 1.0
        """About the loss of a table of the known columns."""
        self.prices = self.proved
        self.raise_prices()
        self.prices = self._inside(self.proved)

    @property
    def gap(self) -> float:
        """About that of `table` to what prices prove."""
        return self.value / max(self.proved.sum(), LEAST) - 1

    def _worth(self, known: FloatArray, outputs: IntArray) -> FloatArray:
        return np.einsum("jx,jx->j", known, self.cost[outputs]) + LEAST

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
        count = len(self.worth) + 2 * len(self.prices)
        barrier = float(self.tuning.barrier * max(self.value - self.proved.sum(), 1e-6) / count)
        rows = (self.tuning.kept + 1) * len(prices) + 1
        known = self.machine.put(self.known, rows)
        box = np.stack([self.least, self.most])
        for _ in range(steps):
            check_time()
            step, end, rise = self.machine.newton(known, self.worth, prices, box, barrier)
            if not (np.isfinite(rise) and np.isfinite(end)):
                raise scipy.linalg.LinAlgError("prices lie too far apart for a centre")
            near = rise < 0.25 * barrier
            prices = prices + step * (1.0 if near else min(1.0, 0.9 / end))
            if near:
                break
        self.prices = prices
        self.value = float(prices.sum()) + barrier * count
        return barrier / (self.worth - self.known @ prices)

    def advance(self) -> None:
        """A centre, the columns that prices near it call for, and what prices then prove."""
        tuning = self.tuning
        weights = self.centre(tuning.newton)
        size = len(self.prices)
        called = self._prove(tuning.back * self.proved + (1 - tuning.back) * self.prices)
        worth = self._worth(called, np.arange(size))
        cuts = np.flatnonzero(called @ self.prices > worth)
        # The floor, wherever it stands now: without it there may be no table.
        used = np.where(self.known.min(axis=1) == 1, np.inf, weights * self.known.max(axis=1))
        kept = np.sort(np.argsort(-used)[: tuning.kept * size])
        self.known = np.concatenate([self.known[kept], called[cuts]])
        self.outputs = np.append(self.outputs[kept], cuts)
        self.worth = np.append(self.worth[kept], worth[cuts])
        self.raise_prices()
        self.prices = self._inside(self.prices)

    def raise_prices(self) -> None:
        """As far as a few rounds go."""
        for _ in range(self.tuning.sweeps):
            asked = self.raised
            self._prove(asked)
            if self.asked is not asked:
                self.raised = (asked + self.proved) / 2

    def _prove(self, asked: FloatArray) -> FloatArray:
        """Columns by flows at prices that are asked. Where these, lowered to what is received,
        prove more than those before, they are kept, and higher ones are tried next where more is
        received than is due."""
        spare = self.cost - asked
        size = len(asked)
        most = np.where(spare >= 0, self.cost, np.inf).min(axis=0)
        called = np.zeros_like(spare)
        best = self.heights.copy()
        sharpest = np.ones(size, np.int64)
        blocks = list(self._blocks((spare < 0).sum(axis=1)))

        def work(part: slice) -> None:
            for rows, width in blocks[part]:
                paid = np.argpartition(spare[rows], width - 1, axis=1)[:, :width]
                at = rows[:, None], paid
                due = np.maximum(-spare[at], 0)
                real = due > 0
                own = np.where(real, self.heights[at], 0.0)
                given = np.clip(spare[rows], 0, SPARE)
                found = self.machine.block(self.placed, paid, due, given, own)
                after, held, sharpest[rows], received, called[rows] = found
                self.heights[at] = np.where(real, after, self.heights[at])
                best[at] = np.where(real, held, best[at])
                fits[at] = self.cost[at] + np.where(real, received, np.inf) * np.maximum(due, DUE)

        fits = np.full_like(spare, np.inf)
        by_slices(work, len(blocks), 1)
        most = np.minimum(most, fits.min(axis=0))
        lowered = np.minimum(asked, most)
        if lowered.sum() >= self.proved.sum():
            self.proved = lowered
            self.asked = asked
            self.best = best, sharpest
            self.raised = lowered + self.tuning.rise * (most - lowered)
        return called

    def _blocks(self, counts: IntArray) -> Iterator[tuple[IntArray, int]]:
        """Outputs of about as many that are paid, and at most how many these are."""
        size = len(counts)
        order = np.argsort(counts, kind="stable")
        begin = int(np.searchsorted(counts[order], 1))
        while begin < size:
            width = min(size, 1 << (int(counts[order[begin]]) - 1).bit_length())
            step = max(1, min(size, self.machine.most_entries // (width * size)))
            some = order[begin : begin + step]
            some = some[counts[some] <= width]
            begin += len(some)
            # The last of a block is repeated: all blocks have one length.
            yield np.pad(some, (0, step - len(some)), mode="edge"), width

    def table(self) -> FloatArray:
        """The known columns by the centre's weights, (K, K): nearly private, rows sum nearly to
        1."""
        z = np.zeros_like(self.decay)
        weights = self.centre(self.tuning.settled)
        np.add.at(z, self.outputs, weights[:, None] * self.known)
        return z.T

    def proof(self) -> Proved | float:
        """The flows of what is proved, as multipliers; a bound alone where they are too many."""
        size = len(self.cost)
        parts = []
        count = 0
        for y in range(size):
            check_time()
            parts.append(self._shares(y))
            count += len(parts[-1][0])
            if count > self.tuning.most_named:
                rounded = ROUNDED * np.abs(self.asked).sum()
                return (float(self.proved.sum()) - rounded) * self.unit
        named, columns, values = (np.concatenate(part) for part in zip(*parts, strict=True))
        known, owner = np.unique(named, return_inverse=True)
        pairs = np.stack(np.divmod(known, size), axis=1)
        return Proved(self.problem, Multipliers.listed(pairs, owner.ravel(), columns, values))

    def _shares(self, y: int) -> tuple[IntArray, IntArray, FloatArray]:
        """Multipliers of an output: pairs by their number, columns, values."""
        paid = np.flatnonzero(self.cost[y] < self.asked)
        near = self.decay[:, paid]
        best, sharpest = self.best[0][y, paid], int(self.best[1][y])
        spare = np.maximum(self.cost[y] - self.asked, 0)
        shares = powered(near, sharpest) * best**sharpest
        shares /= np.maximum(shares.sum(axis=1, keepdims=True), TINY)
        faint = FAINT[len(near) > MOST_EXACT]
        shares[shares < faint] = 0.0
        shares *= (spare / np.maximum(shares.sum(axis=1), faint))[:, None] * near
        x, s = np.nonzero(shares)
        named = paid[s] * len(near) + x
        return named, np.full(len(x), self.places[y]), shares[x, s] * self.unit
