"""Lower bounds: proved by multipliers, whoever computed them, or stated by somebody.

For multipliers l >= 0 of the constraints z_xy <= g z_x'y, g an upper bound on exp(epsilon d), every
table z that is epsilon-mDP has

    sum p_x c_xy z_xy  >=  sum_x min_y h_xy,
    h_xy = p_x c_xy + sum over pairs (x, .) of l_y - sum over pairs (., x) of g l_y,

because the products l (z_xy - g z_x'y) are not positive and rows sum to 1. It holds for every l, so
it does not matter which solver they come from or how far that solver got, and fewer or shorter ones
prove something as well.

Where all that binds are stars, from every record to one, the centre, of each output, K numbers do:
prices m of the rows. For output y with centre k and a_x = p_x c_xy - m_x, not negative but for k,

    sum_x a_x z_xy  >=  z_ky (a_k + sum over x other than k of a_x e_x),

e_x at most exp(-epsilon d(x, k)), because z_xy >= exp(-epsilon d(x, k)) z_ky. Where the bracket is
not negative for any y, no table loses less than sum_x m_x, since rows sum to 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy

from panda_mdp.base.arrays import (
    BLOCK_ENTRIES,
    CACHED_ENTRIES,
    FloatArray,
    IntArray,
    RebuiltOnCopy,
    frozen,
    offsets,
    owners,
)
from panda_mdp.base.threads import check_time
from panda_mdp.errors import PrivacyError, ProblemError
from panda_mdp.loss import DistanceLoss
from panda_mdp.problem import Problem, distance_power, loss_blocks
from panda_mdp.space.metrics import Metric

UNIT_ROUNDOFF = 2.0**-53
LIBRARY_ERROR = 1e-15
"""Of the exponential function: 4 ulp, and the roundings around it."""
SMALLEST = float(np.finfo(np.float64).smallest_subnormal)
PAIRS_PER_ENTRY = 16
"""About as many entries of a block of distances take as long as a pair by itself."""
ALLOWANCE = 2.0
"""Times what rounding takes: exponentials of other machines differ in their last digit."""
FAINTEST = 1e-6
"""Of the largest: multipliers below it are left out of a short proof."""
WIDER = 1 + 1e-9
"""Times distances that are compared with others: more than they err."""
LOST_BITS = 40
"""Of float64's 52, which a short proof does without: a number then takes three bytes."""


@dataclass(frozen=True, eq=False)
class Multipliers(RebuiltOnCopy):
    """Multipliers of z_xy <= exp(epsilon d(x, x')) z_x'y, all that are not 0: pair e has those from
    `starts[e]` to `starts[e + 1]`."""

    pairs: IntArray
    """(E, 2) records (x, x')."""
    starts: IntArray
    """(E + 1,)."""
    columns: IntArray
    """(n,) outputs y."""
    values: FloatArray
    """(n,), finite and not negative."""

    def __post_init__(self) -> None:
        for name in ("pairs", "starts", "columns", "values"):
            object.__setattr__(self, name, frozen(getattr(self, name)))
        starts = self.starts
        count = len(self.columns)
        fits = starts.shape == (len(self.pairs) + 1,) and self.values.shape == (count,)
        if not fits or starts[0] != 0 or starts[-1] != count or (np.diff(starts) < 0).any():
            raise ProblemError("the bound's multipliers do not fit its pairs")
        if not (np.isfinite(self.values).all() and (self.values >= 0).all()):
            raise ProblemError("the bound's multipliers are finite and not negative; these are not")

    @classmethod
    def of(cls, pairs: IntArray, dense: FloatArray) -> Multipliers:
        """Those of pairs (E, 2) that are told as an array (E, m)."""
        owner, columns = np.nonzero(dense)
        return cls.listed(pairs, owner, columns, dense[owner, columns])

    @classmethod
    def listed(
        cls, pairs: IntArray, owner: IntArray, columns: IntArray, values: FloatArray
    ) -> Multipliers:
        """Those of `pairs[owner]` with the outputs `columns`, in any order; other pairs go."""
        if (owner[1:] < owner[:-1]).any():
            along = np.argsort(owner, kind="stable")
            columns, values = columns[along], values[along]
        count = np.bincount(owner, minlength=len(pairs))
        used = np.flatnonzero(count)
        return cls(pairs[used], offsets(count[used]), columns, values)

    @property
    def owner(self) -> IntArray:
        """The pair of every multiplier."""
        return owners(self.starts)


@dataclass(frozen=True, eq=False)
class Prices(RebuiltOnCopy):
    """Prices of the rows, (K,), of any sign: the multipliers of stars follow from them."""

    values: FloatArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", frozen(self.values))
        if not np.isfinite(self.values).all():
            raise ProblemError("the bound's prices are finite numbers; these are not")


@dataclass(frozen=True, eq=False)
class Proved(RebuiltOnCopy):
    """A lower bound with its proof: the value is computed from the multipliers, never taken."""

    problem: Problem
    multipliers: Multipliers | Prices

    def __post_init__(self) -> None:
        problem = self.problem
        given = self.multipliers
        if isinstance(given, Prices):
            if given.values.shape != (problem.size,):
                raise ProblemError(
                    f"the bound has prices of shape {given.values.shape}; one for each of "
                    f"{problem.size} records is due"
                )
            return
        both = (
            (given.pairs, problem.size, "records"),
            (given.columns, len(problem.outputs), "outputs"),
        )
        for found, count, what in both:
            if found.size and not (found.min() >= 0 and found.max() < count):
                raise ProblemError(f"the bound's multipliers name {what} outside 0..{count - 1}")

    def __repr__(self) -> str:
        count = len(self.multipliers.values)
        kind = type(self.multipliers).__name__.lower()
        return f"{type(self).__name__}({self.value:.6g}, {count:,} {kind})"

    @cached_property
    def value(self) -> float:
        """No epsilon-mDP table of the problem loses less: what a reader must come to at least."""
        problem = self.problem
        given = self.multipliers
        if isinstance(given, Prices):
            total = total_from_below(star_prices(problem, given.values))
            return total - problem.loss_error * abs(total)
        return dual_bound(problem, given)

    def bounds(self, problem: Problem) -> bool:
        """Whether it is one of the loss of that problem's tables."""
        return self.problem is problem

    @property
    def words(self) -> str:
        """How sure it is."""
        return "proved"

    def shortened(self) -> Self:
        """The proof without its faintest multipliers, the others rounded down to 12 bits."""
        given = self.multipliers
        if isinstance(given, Prices):
            return self
        kept = given.values > FAINTEST * given.values.max(initial=0.0)
        digits = given.values[kept].view(np.int64) >> LOST_BITS << LOST_BITS
        parts = given.owner[kept], given.columns[kept], digits.view(np.float64)
        return replace(self, multipliers=Multipliers.listed(given.pairs, *parts))


@dataclass(frozen=True)
class Stated:
    """A lower bound that somebody states: nothing here proves it."""

    value: float
    by: str
    """Who: a method that keeps no multipliers, a file, a caller."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise PrivacyError(
                f"the lower bound is {self.value}; it must be a number, or None where there is none"
            )

    @property
    def words(self) -> str:
        """How sure it is."""
        return f"stated by {self.by}, not proved"


Bound = Proved | Stated


def star_centres(problem: Problem) -> IntArray:
    """The centre of every output: the record that it is, or one that it costs least; (m,)."""
    records = problem.reports.records
    return np.asarray(problem.loss).argmin(axis=0) if records is None else records


def star_prices(problem: Problem, prices: FloatArray) -> FloatArray:
    """Prices for which the stars of the module's head prove sum m, from any prices: (K,).

    First m_x is lowered to the least p_x c_xy of the outputs of which x is not the centre, rounded
    down. Then m_k is lowered to p_k c_ky + sum over x other than k of a_x e_x of every output y
    with centre k: lowering others later only raises that. Sums of n terms that are not negative
    err by (n + 8) 2^-53 of themselves, of which `ALLOWANCE` times as much is taken off.
    """
    metric = problem.domain.metric
    centres = star_centres(problem)
    slope = -problem.epsilon * (1 + metric.relative_error + 3 * LIBRARY_ERROR)
    # Of losses that are distances 0: a record is at none from itself.
    nearest = np.zeros(problem.outputs_count)
    placed = getattr(problem.loss, "placed", None)
    if placed and centres is problem.reports.records:
        from panda_mdp.compute.jax.peaks import star_sums

        least, sums = star_sums(placed, problem.prior, prices, slope, _star_block)
    else:
        least = np.empty(problem.size)
        sums = np.zeros(problem.outputs_count)
        step = max(1, CACHED_ENTRIES // problem.outputs_count)
        alike = centres is problem.reports.records and distance_power(problem) == 1
        for rows, losses in loss_blocks(problem.loss):
            every = np.arange(problem.size)[rows]
            far = losses if alike else metric.block(every, centres)
            for begin in range(0, len(every), step):
                part = slice(begin, begin + step)
                records = every[part]
                costs = problem.prior[records, None] * losses[part]
                own = centres == records[:, None]
                x, y = np.nonzero(own)
                nearest[y] = costs[x, y]
                some = _star_block(costs, far[part], own, prices[records], slope)
                least[records], lent = some
                sums += lent.sum(axis=0)
    shrink = 1 - ALLOWANCE * (problem.size + 8.0) * UNIT_ROUNDOFF
    most = np.full(problem.size, np.inf)
    given = (nearest + sums * (1 - LIBRARY_ERROR)) * shrink
    np.minimum.at(most, centres, given - ALLOWANCE * problem.size * SMALLEST)
    return np.asarray(np.minimum(least, most))


def _star_block(
    costs: Any, far: Any, own: Any, prices: Any, slope: float, xp: Any = np
) -> tuple[Any, Any]:
    """Of some records, by their costs and distances to the centres, of which some are their `own`:
    prices that are lowered to the least cost, and a e of every output. In NumPy or in JAX."""
    cheapest = xp.where(own, np.inf, costs).min(axis=1) * (1 - 4 * UNIT_ROUNDOFF) - SMALLEST
    least = xp.minimum(prices, cheapest)
    # A difference errs by a roundoff of itself; costs by one of theirs.
    spare = costs - least[:, None] - 2 * UNIT_ROUNDOFF * costs
    return least, xp.where(own, 0.0, xp.maximum(spare, 0.0) * xp.exp(far * slope))


def dual_bound(problem: Problem, multipliers: Multipliers, cost: FloatArray | None = None) -> float:
    """A lower bound on the loss of every mechanism of `problem`, or on what another `cost` than
    p c comes to: that of the module's head; -inf where numbers leave the range of float64."""
    blocks = reduced_blocks(problem, multipliers, cost)
    return total_from_below(np.concatenate([block.min(axis=1) for block in blocks]))


def growth(epsilon: float, length: FloatArray, relative_error: float) -> FloatArray:
    """Upper bounds on exp(epsilon d): a looser constraint keeps bounds rigorous."""
    error = relative_error + 3 * LIBRARY_ERROR
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(epsilon * length * (1 + error)) * (1 + LIBRARY_ERROR))


def reduced_blocks(
    problem: Problem, multipliers: Multipliers, cost: FloatArray | None
) -> Iterator[FloatArray]:
    """h of the module's head at some `cost`, less what rounding may have added, in blocks of
    records. Without a cost it is p c, and where losses are distances a block has the outputs of
    which one is the least, and its records lie together.

    `ALLOWANCE` is how many times the error of rounding is subtracted: a sum of n terms of
    sizes s_k errs by (n + 8) 2^-53 sum s_k, products and `cost` included, and where they nearly
    vanish by a smallest float for each. Losses that are computed err by a share of their own.
    """
    pairs = multipliers.pairs
    owner = multipliers.owner
    size = problem.size
    metric = problem.domain.metric
    length = _lengths(metric, pairs)
    growths = growth(problem.epsilon, length, metric.relative_error)
    first, second = pairs[owner].T
    shape, values = (size, problem.outputs_count), multipliers.values
    up = scipy.sparse.csr_array((values, (first, multipliers.columns)), shape=shape)
    with np.errstate(invalid="ignore", over="ignore"):
        lent = growths[owner] * values
    down = scipy.sparse.csr_array((lent, (second, multipliers.columns)), shape=shape)
    both = up + down, up - down
    terms = ALLOWANCE * (np.bincount(pairs.ravel(), minlength=size) + 8.0)
    step = max(1, BLOCK_ENTRIES // problem.outputs_count)
    parts: Iterator[Any] = (np.s_[a : a + step, :] for a in range(0, size, step))
    if cost is None and isinstance(problem.loss, DistanceLoss):
        parts = _where_least(problem.loss, both[0])
    for some in parts:
        check_time()
        prior, count = (part[some[0]].reshape(-1, 1) for part in (problem.prior, terms))
        own = prior * problem.loss[some] if cost is None else cost[some]
        with np.errstate(invalid="ignore", over="ignore"):
            sizes, moved = (part[some].toarray() for part in both)
            error = count * (UNIT_ROUNDOFF * (np.abs(own) + sizes) + SMALLEST)
            yield own - problem.loss_error * np.abs(own) + moved - error


def _lengths(metric: Metric, pairs: IntArray) -> FloatArray:
    """Distances of pairs: of some records to all at a time where they are many of all pairs."""
    size = metric.size
    if PAIRS_PER_ENTRY * len(pairs) < size**2:
        return metric.pairs(pairs[:, 0], pairs[:, 1])
    out = np.empty(len(pairs))
    every = np.arange(size)
    for rows in np.array_split(every, -(-(size**2) // BLOCK_ENTRIES)):
        check_time()
        some = np.flatnonzero((pairs[:, 0] >= rows[0]) & (pairs[:, 0] <= rows[-1]))
        out[some] = metric.block(rows, every)[pairs[some, 0] - rows[0], pairs[some, 1]]
    return out


def _where_least(
    loss: DistanceLoss, named: scipy.sparse.csr_array
) -> Iterator[tuple[IntArray, ...]]:
    """Tiles of records, and outputs of which one costs each of them least once `named` multipliers
    are counted.

    Those are the named ones and those at most 2 r + s from the tile's centre, r its radius and s
    such that some output within it is not named: any record is at most r + s from that one, and
    farther from all that are left out, to which nothing is added and nothing lent.
    """
    metric, tiles = loss.domain.metric, loss.domain.tiles
    for t, radius in enumerate(tiles.radii):
        rows = tiles.records(t)
        kept = np.zeros(len(loss.outputs), bool)
        kept[named[rows].indices] = True
        if not kept.all():
            far = metric.block(tiles.centres[t : t + 1], loss.outputs)[0]
            reach = 2 * radius + far[~kept].min()
            kept |= far <= reach * (WIDER + 4 * metric.triangle_slack)
        yield np.ix_(rows, kept)


def total_from_below(values: FloatArray) -> float:
    """The sum of some numbers, rounded down; no bound where they are no numbers.

    `math.fsum` is the exact sum rounded once.
    """
    if not np.isfinite(values).all():
        return -math.inf
    try:
        total = math.fsum(values)
    except OverflowError:
        return -math.inf
    return total - 2 * UNIT_ROUNDOFF * abs(total)
