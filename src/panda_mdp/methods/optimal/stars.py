"""Peaks at the records: the optimum in closed form, or a bound and a start.

Where every record may be reported, and with E_xy = exp(-epsilon d(x, y)), the table z_xy = s_y E_xy
is epsilon-mDP for every s >= 0 by the triangle inequality, and its rows sum to 1 where E s = 1.
Prices m of the rows with (E^T m)_y <= r_y, r_y = sum_x p_x c_xy E_xy, and m_x <= u_x, the least
p_x c_xy of an output other than x, bound every table from below by sum m (`Prices`). With
equality in the first both are r^T E^-1 1: the table is optimal. In between columns.py goes on from
these prices.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy

from panda_mdp.base.arrays import CACHED_ENTRIES, FloatArray, IntArray, stopwatch
from panda_mdp.base.factored import (
    RATE_BITS,
    WEIGHT_BITS,
    FactoredRows,
    falls,
    lattice,
)
from panda_mdp.base.threads import by_slices
from panda_mdp.compute.closure import Closure, closure_of
from panda_mdp.compute.pairs import Backend
from panda_mdp.errors import PrivacyError
from panda_mdp.loss import DistanceLoss
from panda_mdp.methods.certify import Standing
from panda_mdp.methods.closed_forms import exponential, softmax
from panda_mdp.methods.optimal.columns import Columns, Host, accelerated
from panda_mdp.privacy.audit import lattice_facts
from panda_mdp.privacy.quantise import repair
from panda_mdp.problem import Problem, loss_blocks
from panda_mdp.space.metrics import Euclidean
from panda_mdp.table.bound import Prices, Proved, star_prices
from panda_mdp.table.mechanism import Mechanism, release

MOST_DENSE = 12_000
"""Records of which a K x K matrix is held in memory; the system of more is solved in blocks, which
takes vectors."""
LEAST_FACTORED = 1 << 20
"""Entries from which a table is held in factors where it can be."""
NATS = (2e-6, 6e-5, 2e-3)
"""What rounding may cost two records, in nats, in the order in which it is tried."""
SOLVED = 1e-7
MOST_STEPS = 60
"""Residual, relative, at which conjugate gradients end, and their most steps."""
MOST_GROWN = 6_000
"""Records of which columns are chosen on a host."""
MOST_CLOSED = 2_000
"""Records of which a host closes a table on the way."""
MOST_ROUNDS = 80
"""Of columns."""
MARGIN = 1e-8
"""Of epsilon, that a table leaves which is not closed: it is private as whole numbers too."""
PATIENCE = 8
WORTH = 0.98
"""Rounds after which a table is made, and what of the gap they may leave."""
LEAST_SHARE = 2.0**-14
"""Peaks below it are raised to it: rounding to whole numbers would be too much of them."""


class Stars:
    """Peaks and prices of one problem in closed form."""

    def __init__(
        self,
        problem: Problem,
        most_closed: int = MOST_CLOSED,
        closing: Callable[[Problem], Closure] | None = None,
    ) -> None:
        self.problem = problem
        self.device: Backend | None = None if closing is None else "jax"
        """An accelerator, which closes tables and audits them."""
        self.closing = closing or (lambda problem: closure_of(problem.domain))
        self.most_closed = MOST_DENSE if self.device else most_closed
        order = np.argsort(np.asarray(problem.reports.records))
        self.columns = order
        """The column of every record."""
        far = problem.domain.distances()
        self.decay = np.exp(-problem.epsilon * far)
        self.cost = problem.weighted_loss[:, order]
        worth = np.einsum("xy,xy->y", self.cost, self.decay)
        both = np.stack([np.ones(problem.size), worth], axis=1)
        try:
            found = scipy.linalg.solve(self.decay, both, assume_a="pos")
        except scipy.linalg.LinAlgError:
            found = np.linalg.lstsq(self.decay, both, rcond=None)[0]
        self.shares, self.prices = found.T
        """(K,) s and m."""
        plain = np.einsum("xy,xy", self.cost, softmax(-problem.epsilon / 2 * far))
        self.helpless = self.shares.min() < 0 and plain >= problem.mean_loss.min()
        """Whether one row for all loses less than what is at hand."""

    def released(self) -> Mechanism:
        """The table of peaks; where some are negative, or rounding costs too much, the exponential
        mechanism."""
        problem = self.problem
        made = None
        if self.shares.min() >= 0:
            if isinstance(problem.domain.metric, Euclidean) and problem.loss.size >= LEAST_FACTORED:
                made = factored(problem, bool(self.device))[0]
            with contextlib.suppress(PrivacyError):
                return made or self.near(self.decay * self.shares, private=True)
        return exponential(problem)

    def near(self, table: FloatArray, private: bool = False) -> Mechanism:
        """A table with column y that of record y, its rows scaled to 1, closed over all pairs where
        it is not `private`; of many records, whose closing takes too long, `completed`."""
        problem = self.problem
        rows = np.empty_like(table)
        if not private and problem.size > self.most_closed:
            table = self.completed(table ** (1 - MARGIN))
        rows[:, self.columns] = table / table.sum(axis=1, keepdims=True)
        if not private and problem.size <= self.most_closed:
            rows = repair(self.closing(problem), rows, problem.epsilon).matrix
        return release(problem, rows, method="optimal", backend=self.device)

    def completed(self, table: FloatArray) -> FloatArray:
        """A table whose columns are private, and its rows need not sum to 1, with what each row is
        short of a whole c given to the output that is best alone.

        With g its column less the rows' sums, that column is then c + g. It is private where
        c + g_x >= E_xx' (c + g_x') for all pairs, of which the least c follows.
        """
        one = int(np.flatnonzero(self.columns == self.problem.best_single_output)[0])
        room = table[:, one] - table.sum(axis=1)
        decay = self.decay ** (1 - MARGIN)
        apart = 1 - decay
        np.fill_diagonal(apart, np.inf)
        whole = max(-room.min(), ((decay * room - room[:, None]) / apart).max()) * (1 + 1e-9)
        out = table.copy()
        out[:, one] = whole + room
        return out


def factored(problem: Problem, device: bool = False) -> tuple[Mechanism | None, FloatArray | None]:
    """Peaks that fill all rows, as integers in factors, and prices; None where they do not fill, or
    where rounding costs too much.

    They fall at a rate so much below epsilon that what rounding costs fits in between, by the
    audit.
    """
    spent = stopwatch()
    records = np.asarray(problem.reports.records)
    prices = None
    points, bits = lattice(problem.domain.metric.embedding)
    every = np.arange(len(points))
    bare = FactoredRows(points, bits, 1, every, np.ones_like(every))
    there = None
    if device:
        from panda_mdp.compute.jax.peaks import placed

        there = placed(points)
    least = least_square(bare, there)
    for nats in NATS if problem.size <= MOST_DENSE else NATS[1:]:
        rate = lattice_rate(problem, points, bits, nats, least)
        if rate < 1:
            break
        bare = replace(bare, rate=rate)
        shares, prices, most = filled(problem, bare, there)
        if shares.min() < -LEAST_SHARE:
            break
        raised = np.maximum(shares, LEAST_SHARE)
        if (raised > shares).any():
            most = falls_times(bare, raised[:, None], there).max()
        # Rounding of integers is down, so that no row exceeds the whole.
        weights = np.floor(raised * ((1 - 1e-12) / most * (1 << WEIGHT_BITS))).astype(np.int64)
        with contextlib.suppress(PrivacyError):
            rows = replace(bare, centres=records, peaks=weights[records])
            made = Mechanism(problem, rows, "optimal", backend="jax" if device else None)
            return made.with_facts(stages=spent("factors")), prices
    return None, prices


def filled(
    problem: Problem, rows: FactoredRows, there: Any
) -> tuple[FloatArray, FloatArray, float]:
    """Shares of peaks that fill all rows, prices of the rows, and at least what any row sums to: by
    conjugate gradients over blocks, on a host in single precision and then corrected where there
    are many records."""
    size = len(rows)
    order = np.argsort(np.asarray(problem.reports.records))
    if isinstance(problem.loss, DistanceLoss):
        power = problem.loss.power
        worth = falls_times(rows, problem.prior[:, None], there, power=power)[:, 0]
    else:
        worth = np.zeros(size)
        for part, losses in loss_blocks(problem.loss):
            some = np.arange(size)[part]
            costs = problem.prior[some, None] * losses[:, order]
            worth += np.einsum("xy,xy->y", costs, falls(rows.squares(some), rows.law))
    right = np.concatenate([np.ones(size), worth / worth.max()])

    def times(both: FloatArray, dtype: Any = np.float64) -> FloatArray:
        return falls_times(rows, both.reshape(2, -1).T, there, dtype).T.ravel()

    fast = partial(times, dtype=np.float32) if size > MOST_DENSE else times
    matrix = scipy.sparse.linalg.LinearOperator((2 * size, 2 * size), matvec=fast, dtype=float)
    found, _ = scipy.sparse.linalg.cg(matrix, right, rtol=SOLVED, maxiter=MOST_STEPS)
    # Off the diagonal little is left: the error itself is nearly what corrects it.
    error = right - times(found)
    shares, prices = (found + error).reshape(2, -1)
    return shares, prices * worth.max(), 1 + 2 * np.abs(error[:size]).max()


def falls_times(
    rows: FactoredRows,
    vectors: FloatArray,
    there: Any = None,
    dtype: Any = np.float64,
    power: float = 0.0,
) -> FloatArray:
    """The matrix of `falls`, which is symmetric, times some vectors, (K, n); by an accelerator,
    always in double precision, where the points are `there`."""
    if there is not None:
        from panda_mdp.compute.jax import peaks

        return peaks.falls_times(there, vectors, rows.law, power)
    given = vectors.astype(dtype)
    out = np.zeros_like(vectors)
    for some, block in rows.halves(dtype):

        def fill(part: slice, block: FloatArray = block) -> None:
            block[part] = falls(block[part], rows.law, power)

        by_slices(fill, len(block), max(1, CACHED_ENTRIES // block.shape[1]))
        out[some] += block @ given[some.start :]
        out[some.stop :] += block[:, len(block) :].T @ given[some]
    return out


def least_square(rows: FactoredRows, there: Any = None) -> float:
    """About the least squared distance of two records, in units of the lattice."""
    if there is not None:
        from panda_mdp.compute.jax import peaks

        return peaks.least_square(there)
    least = math.inf
    for _, squares in rows.halves(np.float32):
        np.fill_diagonal(squares, np.inf)
        least = min(least, squares.min())
    return least


def lattice_rate(problem: Problem, points: IntArray, bits: int, nats: float, least: float) -> int:
    """The largest rate, in 2^-40 halvings per unit of the lattice, that leaves `nats` of what the
    nearest two records, of squared distance `least`, may differ by."""
    unit, (nearest, astray) = 2.0**-bits, lattice_facts(problem.domain, points, bits, least)
    room = (problem.epsilon * nearest - nats) / (nearest + 2 * astray + unit)
    return int(room * unit / math.log(2) * (1 << RATE_BITS))


def open_with_stars(
    problem: Problem, standing: Standing, closing: Callable[[Problem], Closure] | None = None
) -> FloatArray | None:
    """Raise the bound and offer the closed form, where there is one; a table to start from where
    that is not the end. An accelerator, which has a `closing` of its own, does what takes long."""
    if problem.size > MOST_DENSE:
        with standing.stage("stars"):
            made, prices = factored(problem, closing is not None)
            if prices is not None:
                standing.raise_bound(Proved(problem, Prices(prices)))
            if made is not None:
                standing.offer(made)
        return None
    with standing.stage("stars"):
        stars = Stars(problem, closing=closing)
        standing.raise_bound(Proved(problem, Prices(stars.prices)))
        if stars.helpless:
            standing.offer(standing.solver.last_resort(standing))
        else:
            standing.offer_start(stars.released)
    most = MOST_GROWN if closing is None else MOST_DENSE
    if problem.size > most or standing.missing(standing.value) <= 0:
        return None
    with standing.stage("columns"):
        least = star_prices(problem, stars.prices)
        machine = Host if closing is None else accelerated
        given = stars.decay, stars.cost, least, stars.columns
        columns = Columns(problem, *given, machine=machine)

    def certify() -> None:
        with contextlib.suppress(PrivacyError, scipy.linalg.LinAlgError):
            standing.offer_start(lambda: stars.near(columns.table()), columns.proof)

    gaps = [math.inf]
    ends = False
    if problem.size > MOST_CLOSED:
        # Rounds take long there, and a table that is not closed next to nothing.
        certify()
    else:
        standing.raise_bound(columns.proof())
    clock = standing.budget.clock
    while standing.missing(standing.value) > 0 and not ends:
        start = clock()
        with standing.stage("columns"), contextlib.suppress(scipy.linalg.LinAlgError):
            columns.advance()
        gaps.append(columns.gap)
        idle = len(gaps) > PATIENCE and gaps[-1] > WORTH * gaps[-PATIENCE]
        # One more round would take as long as this one.
        ends = idle or standing.late(clock() - start) or len(gaps) > MOST_ROUNDS
        if ends or len(gaps) % PATIENCE == 4 or gaps[-1] <= (standing.budget.gap or 0.0):
            certify()
            standing.report()
    return None if standing.best is None else standing.best.matrix
