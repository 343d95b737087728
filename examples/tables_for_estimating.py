"""Tables made for estimating: least variance of named statistics at an epsilon.

    python examples/tables_for_estimating.py [FOLDER]

Makes one for the zones of a grid of places, prints the variance of a report beside those of other
tables, and draws them (tables_for_estimating.png). `least_variance` takes any domain and zones.

From n reports of a table Z (K x m) the shares a_g^T f of people spread like f, near a prior p, are
estimated without bias with a variance of a_g^T I^-1 a_g / n at best, a_g less its mean under p and

    I(Z) = sum_y z_y z_y^T / p^T z_y

what a report tells. V = sum_g a_g^T I^-1 a_g is convex in I, and I adds up over columns: this is
the method of Frank and Wolfe, with all steps corrected. Each round sets the shares of all columns
anew (Newton's method with a barrier) and adds columns that tell most, sum_y |B z_y|^2 / p^T z_y,
B = A^T I^-1. Where report y is read as w_y that is a linear problem, which `optimal` solves with a
bound: least sum_xy p_x z_xy |B_x / p_x - w_y|^2. It is asked with what the columns at hand are read
as, w_y = B z_y / p^T z_y. New readings come from rays exp(-epsilon d(., S)) for sets S of records
that a score puts first, which are subset selection's where all records are equally far.

No table whose reports are read as one of its readings, without bias, has less than V less the gap
of such a step (`read_so`): for any B, sum_y p^T z_y |w_y|^2 = 2 tr B A - sum_xy z_xy (2 B_x . w_y -
p_x |w_y|^2), and `optimal` bounds the last sum.

No table at all has less than `least_possible`: for every B, V >= (tr B A)^2 / max tr B I B^T, and
tr B I B^T is at most sum lambda where |B v|^2 <= (lambda.v) (p.v) on the cone. That is shown by
multipliers of v_x^2 + v_y^2 <= 2 cosh(epsilon d(x, y)) v_x v_y, for pairs of records, and for each
record and one place z more: where f(x) + f(y) >= d(x, y) for all, v has a value at z within
e^(+- epsilon f(x)) of every v_x. The least sum lambda is a semidefinite program: Newton's method
with a barrier.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve

import panda_mdp as pm
from panda_mdp import plot
from panda_mdp.base.threads import check_time, within
from panda_mdp.errors import InvalidInputError, MethodError, TimeLimitError
from panda_mdp.meaning.estimate import Zones, zone_matrix
from panda_mdp.plot.style import BLUE, ORANGE, chart_figure
from panda_mdp.problem import check_probabilities, quiet_scale

FloatArray = npt.NDArray[np.float64]

MOST_RECORDS = 400
LEAST_SPREAD, MOST_SPREAD, SAME = 1e-30, 1e30, 1e-24
"""Variances of the statistics over the records that float64 numbers take; SAME: of the largest
one's square, below which they are taken to be the same for all."""
RAYS = 6
"""New columns of a round, for each record."""
KEPT, SINGULAR = 3e-3, 1e12
"""A column whose share is smaller, beside the largest, is left out, unless what the others tell has
a larger condition number."""
ROUNDS, SETTLED = 20, 0.001
"""Rounds end where one makes the variance smaller by less than this share."""
NEWTON_STEPS, FIRST_BARRIER, ACCURACY = 20, 0.03, 0.003
"""ACCURACY: of the variance, what the barrier may cost."""
STEP, FAINT, TINY, ALIKE = 1e-3, 1e-9, 1e-300, 2
"""The gap of `optimal`; columns that it hardly reports; decimals of a column's logarithms."""
MOST_PAIRS, HUB_STEPS, BARRIER_STEP, BOUND_STEPS, RIDGE = 1000, 60, 8.0, 150, 1e-12
LIGHT = 1e-3
"""Pairs of a bound: where there are more the nearest, and then often none is found.
LIGHT: what a multiplier costs beside a price, so that none grows without end."""


def main(out: Path = Path("out/examples"), side: int = 6, epsilon: float = 3.0) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    xy = 0.3 * np.stack(np.meshgrid(range(side), range(side)), axis=-1).reshape(-1, 2)
    zones = np.minimum(3 * xy // (xy.max() + 1e-9), 2).astype(int) @ [3, 1]
    domain, wanted = pm.Domain.from_vectors(xy), np.eye(9)[zones]
    problem = pm.Problem(domain, range(len(xy)), domain.distances(), epsilon)
    even = np.full(len(xy), 1 / len(xy))
    found: dict[str, float] = {}
    for table in (pm.exponential(problem), pm.tight_constraints(problem)):
        told, _ = _told(table.matrix, even)
        found[table.method] = _variance(told, wanted - even @ wanted)
    made = least_variance(domain, zones.tolist(), epsilon)
    found["least_variance"] = made.details["variance"]
    for name, variance in found.items():
        print(f"{name:<20}{variance:8.3g}")
    print(f"{'none so read has less':<22}{made.details['read_so']:6.3g}")
    print(f"{'no table has less':<22}{made.details['at_least']:6.3g}")
    figure, axes = chart_figure(6.4, 2.6, f"Variance of a report: {side} x {side} places, 9 zones")
    bars = axes.barh(list(found), list(found.values()), color=[BLUE, BLUE, ORANGE])
    axes.bar_label(bars, [f"{value:.3g}" for value in found.values()], padding=4)
    axes.set(
        xlim=(0, 1.15 * max(found.values())), xlabel="variance of all zones' shares, per report"
    )
    return plot.save_figure(figure, out / "tables_for_estimating.png")


def least_variance(
    domain: pm.Domain,
    statistics: Zones | FloatArray,
    epsilon: float,
    *,
    prior: npt.ArrayLike | None = None,
    time_limit: float | None = None,
    progress: Callable[[int, float], None] = lambda number, variance: None,
) -> pm.Mechanism:
    """A table from whose reports shares of zones are estimated with little variance.

    `statistics` are zones as `estimate` takes them, or a (K, G) array of numbers whose means are
    wanted; variances add up, under `prior` (uniform where None). Outputs are labels, to be read by
    `pm.estimate`. The loss of the table is the squared distance of a record's statistics and the
    weights of its report: what a report adds to the variance of the truth. `progress` hears of each
    round's number and variance. An interrupt, or the end of the time, leaves the best so far.

    Guarantee: epsilon-mDP by audit. `details["variance"]` is that of one report of the integers
    that are sampled from. No table has less than `details["at_least"]` (0 where none was found;
    near where all are equally far, loose on a map), and none whose reports are read as this one's
    less than `details["read_so"]`; both in float64.

    >>> line = pm.Domain.from_vectors([[0.0], [1.0], [2.0]])
    >>> round(least_variance(line, [0, 0, 1], 2.0).details["variance"], 2)
    1.08
    """
    if isinstance(statistics, np.ndarray) and statistics.ndim == 2:
        wanted = np.asarray(statistics, dtype=np.float64)
    else:
        _, wanted = zone_matrix(statistics, domain)  # type: ignore[arg-type]
    weights, size = check_probabilities(prior, domain.size), domain.size
    if not 2 <= size <= MOST_RECORDS or wanted.shape[0] != size or not weights.all():
        raise InvalidInputError(
            f"{size} records with statistics of {wanted.shape} and a prior from "
            f"{weights.min():g} on: give 2 to {MOST_RECORDS} records (zones, or some of "
            "them), a row of statistics for each, and a prior above 0 everywhere"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        least = max(LEAST_SPREAD, SAME * float(np.square(wanted).max(initial=0)))
        target = wanted - weights @ wanted
        spread = float(weights @ np.square(target).sum(axis=1))
    if not least <= spread <= MOST_SPREAD:
        raise InvalidInputError(
            f"the statistics' variance over the records is {spread:g}: it is to be from "
            f"{least:g} to {MOST_SPREAD:g}; give finite statistics in another unit, not the "
            "same for all records (of zones, at least two)"
        )
    rounds = _rounds(domain, target, epsilon, weights)
    made: FloatArray | None = None
    try:
        with within(time_limit):
            for number, (matrix, variance) in enumerate(rounds, 1):
                made = matrix
                progress(number, variance)
    except (TimeLimitError, KeyboardInterrupt):
        if made is None:
            raise
    except np.linalg.LinAlgError as error:
        if made is None:
            raise MethodError(
                f"at epsilon={epsilon:g}, over distances up to {domain.diameter:g}, a report tells "
                "so little that its information is no regular matrix of float64 numbers; raise "
                "epsilon"
            ) from error
    matrix = np.asarray(made) / np.asarray(made).sum(axis=1, keepdims=True)
    told, columns = _told(matrix, weights)
    read = np.linalg.solve(told, target).T @ columns
    loss = np.square(target[:, None] - read.T).sum(axis=-1)
    with quiet_scale():
        labels = pm.Outputs.labels(range(matrix.shape[1]))
        problem = pm.Problem(domain, labels, loss, epsilon, weights, "variance")
        # Columns of little share were left out: rows sum to 1 again, and pairs are closed.
        table = pm.repair(problem, matrix)
    told, columns = _told(table.matrix, weights)
    slope, variance = np.linalg.solve(told, target).T, _variance(told, target)
    _, most = told_most(domain, slope, slope @ columns, epsilon, weights)
    least = least_possible(epsilon * domain.distances(), target, weights, told)
    details = {**table.details, "variance": variance, "at_least": least}
    details["read_so"] = max(least, 2 * variance - most)
    return table.with_facts(method="least_variance", details=details)


def _rounds(
    domain: pm.Domain, target: FloatArray, epsilon: float, prior: FloatArray
) -> Iterator[tuple[FloatArray, float]]:
    """Tables of less and less variance, with it; rows sum to 1 but for rounding."""
    rng, size, before, apart = np.random.default_rng(0), len(prior), math.inf, domain.distances()

    def rays(scores: FloatArray) -> FloatArray:
        """exp(-epsilon d(., S)) for the records S that each of the scores, (K, n), puts first."""
        counts = np.exp(rng.uniform(0, math.log(size), scores.shape[1])).astype(int)
        first = np.argsort(np.argsort(-scores, axis=0), axis=0) < np.minimum(counts, size - 1)
        near = [apart[:, chosen].min(axis=1) for chosen in first.T]
        return np.exp(-epsilon * np.stack(near, axis=1))

    directions = rng.normal(size=(target.shape[1], RAYS * size))
    columns, shares = np.empty((size, 0)), np.empty(0)
    new = np.hstack([np.exp(-epsilon * apart), rays(target @ directions)])
    for _ in range(ROUNDS):
        columns, shares = _with(columns, shares, new / (prior @ new), (epsilon * apart, prior))
        shares, prices = reweighted(columns, shares, target)
        for least in (KEPT, KEPT**2, 0.0):
            kept = shares > least * shares.max()
            told = information(columns[:, kept], shares[kept])
            # The best tables may have so few outputs that nothing but the statistics is told.
            if np.linalg.cond(told) < SINGULAR:
                break
        columns, shares = columns[:, kept], shares[kept]
        variance = _variance(told, target)
        yield columns * shares, variance
        if variance > before * (1 - SETTLED):
            return
        before = variance
        # What would do better than the columns at hand, at the prices of rows.
        slope = np.linalg.solve(told, target).T
        scores = slope @ columns[:, np.argsort(-shares)[: RAYS * size]]
        around = 2 * slope.T @ scores / prior[:, None]
        around = around - np.square(scores).sum(axis=0) - (prices / prior)[:, None]
        blind = (slope / prior).T @ rng.normal(size=scores.shape)
        new = rays(np.hstack([around, around, blind]))
        new = new / (prior @ new)
        worth = np.square(slope @ new).sum(axis=0) - prices @ new
        best = np.argsort(-worth)[: RAYS * size // 2]
        asked, _ = told_most(domain, slope, slope @ columns, epsilon, prior)
        new = np.hstack([new[:, best[worth[best] > 0]], asked])
        # Of columns that are nearly the same one is enough.
        every = np.round(np.log(np.maximum(np.hstack([columns, new]), TINY)), ALIKE)
        first = np.unique(every, axis=1, return_index=True)[1] - len(shares)
        new = new[:, first[first >= 0]]
        if not new.size:
            return


def told_most(
    domain: pm.Domain, slope: FloatArray, readings: FloatArray, epsilon: float, prior: FloatArray
) -> tuple[FloatArray, float]:
    """Columns z_y / p^T z_y of the table that tells most of `slope` where report y is read as
    readings[:, y], and what none tells more than: the largest sum of |w_y|^2 p^T z_y less that of
    |B_x / p_x - w_y|^2 p_x z_xy."""
    wanted = slope / prior
    loss = np.square(wanted[:, :, None] - readings[:, None, :]).sum(axis=0)
    labels = pm.Outputs.labels(range(readings.shape[1]))
    with quiet_scale():
        table = pm.optimal(pm.Problem(domain, labels, loss, epsilon, prior, "variance"), gap=STEP)
    chance = prior @ table.matrix
    kept = chance > FAINT
    most = float(prior @ np.square(wanted).sum(axis=0)) - table.lower_bound
    return table.matrix[:, kept] / chance[kept], most


def _with(
    columns: FloatArray, shares: FloatArray, new: FloatArray, space: tuple[FloatArray, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Columns to begin the next round with: a tenth of all for new ones, and one that makes them a
    table, so near to a constant that it is private too."""
    nats, prior = space
    columns = np.hstack([columns, new])
    shares = np.append(shares, np.full(new.shape[1], 0.1 / new.shape[1]))
    total, far = columns @ shares, ~np.eye(len(columns), dtype=np.bool_)
    rise = np.expm1(nats)
    needed = ((rise + 1) * total - total[:, None])[far] / rise[far]
    rest = 1.001 * max(float(needed.max()), float(total.max())) - total
    part = float(prior @ rest)
    return np.column_stack([columns, rest / part]), np.append(shares, part) / (total[0] + rest[0])


def _told(matrix: FloatArray, prior: FloatArray) -> tuple[FloatArray, FloatArray]:
    chance = prior @ matrix
    columns = np.divide(matrix, chance, out=np.zeros_like(matrix), where=chance > 0)
    return information(columns, chance), columns


def information(columns: FloatArray, shares: FloatArray) -> FloatArray:
    """What a report tells: sum_j share_j u_j u_j^T over columns u_j with p^T u_j = 1."""
    return np.asarray((columns * shares) @ columns.T)


def _variance(told: FloatArray, wanted: FloatArray) -> float:
    return float(np.trace(wanted.T @ np.linalg.solve(told, wanted)))


def reweighted(
    columns: FloatArray, shares: FloatArray, wanted: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Shares with columns @ shares = 1 of nearly least variance, from others, and prices of rows.

    Newton's method on the variance less a barrier times the sum of logarithms.
    """
    count, variance = len(shares), _variance(information(columns, shares), wanted)
    barrier = FIRST_BARRIER * variance / count

    def value(shares: FloatArray) -> float:
        told = _variance(information(columns, shares), wanted)
        return told - barrier * float(np.log(shares).sum())

    while True:
        for _ in range(NEWTON_STEPS):
            check_time()
            both = np.column_stack([columns, wanted])
            both = cho_solve(cho_factor(information(columns, shares)), both)
            inverse, slope = both[:, :count], both[:, count:].T @ columns
            gradient = -np.square(slope).sum(axis=0) - barrier / shares
            hessian = 2 * (slope.T @ slope) * (columns.T @ inverse)
            hessian[np.diag_indices(count)] += barrier / shares**2
            solved = cho_solve(
                cho_factor(hessian, overwrite_a=True), np.column_stack([gradient, columns.T])
            )
            prices = np.linalg.solve(columns @ solved[:, 1:], -(columns @ solved[:, 0]))
            step = -solved[:, 0] - solved[:, 1:] @ prices
            promised = -float(gradient @ step)
            if promised < 1e-3 * barrier * count:
                break
            falling = step < 0
            length = min(1.0, 0.95 * float((-shares[falling] / step[falling]).min(initial=np.inf)))
            now = value(shares)
            while length > 1e-10 and value(shares + length * step) > now - 0.1 * length * promised:
                length /= 2
            shares = shares + length * step
        variance = _variance(information(columns, shares), wanted)
        if barrier * count < ACCURACY * variance:
            return shares, np.asarray(prices, dtype=np.float64)
        barrier *= 0.1


def least_possible(
    nats: FloatArray, target: FloatArray, prior: FloatArray, told: FloatArray
) -> float:
    """A variance that no table goes below, from what one of them tells; 0 where none was found."""
    size = len(prior)
    slope = np.linalg.solve(told, target).T
    first, second = np.triu_indices(size, 1)
    nearest = np.argsort(nats[first, second], kind="stable")[:MOST_PAIRS]
    first, second = (np.append(part[nearest], more) for part, more in (
        (first, np.arange(size)), (second, np.full(size, size))
    ))  # fmt: skip
    hub = nats.mean(axis=0)
    for _ in range(HUB_STEPS):
        hub = (hub + np.maximum((nats - hub).max(axis=1), 0.0)) / 2
    slack = np.cosh(np.column_stack([nats, hub])[first, second])
    # Every multiplier's matrix is a difference of two squares.
    chance, unit = np.append(prior, 0.0), np.eye(size + 1)
    plus = np.hstack([unit[:, :size] + chance[:, None], unit[:, first] + unit[:, second]])
    minus = np.hstack([unit[:, :size] - chance[:, None], unit[:, first] - unit[:, second]])
    weights = np.append(np.full(size, 0.25), (1 - slack) / 2)
    others = np.append(np.full(size, -0.25), (1 + slack) / 2)
    worth = np.zeros((size + 1, size + 1))
    worth[:size, :size] = slope.T @ slope
    unit_of_worth = float(np.linalg.eigvalsh(worth)[-1])
    signed = np.arange(len(weights)) >= size
    costs = np.where(signed, LIGHT, 1.0)

    def left(found: FloatArray) -> FloatArray:
        both = (plus * (weights * found)) @ plus.T + (minus * (others * found)) @ minus.T
        return np.asarray(both - worth / unit_of_worth)

    def value(found: FloatArray, rate: float) -> float:
        if (found[signed] <= 0).any():
            return math.inf
        try:
            factor = np.linalg.cholesky(left(found))
        except np.linalg.LinAlgError:
            return math.inf
        logarithms = 2 * np.log(np.diag(factor)).sum() + np.log(found[signed]).sum()
        return float(rate * (costs @ found) - logarithms)

    def curved(a: FloatArray, b: FloatArray, inverse: FloatArray) -> FloatArray:
        return np.asarray(np.square(a.T @ inverse @ b))

    begun = (chance[first] + chance[second]) / slack
    tried = [np.append(2.0**more * prior, 2.0**scale * begun) for scale, more in np.ndindex(24, 24)]
    rates = [len(each) / float(costs @ each) for each in tried]
    now, rate, found = min(
        zip(map(value, tried, rates), rates, tried, strict=True), key=lambda each: each[0]
    )
    if now == math.inf:
        return 0.0
    for _ in range(BOUND_STEPS):
        check_time()
        try:
            inverse = cho_solve(cho_factor(left(found)), unit)
        except np.linalg.LinAlgError:
            break
        mixed = (weights[:, None] * others) * curved(plus, minus, inverse)
        hessian = (weights[:, None] * weights) * curved(plus, plus, inverse) + mixed + mixed.T
        hessian += (others[:, None] * others) * curved(minus, minus, inverse)
        squares = [np.einsum("ij,ij->j", part, inverse @ part) for part in (plus, minus)]
        gradient = rate * costs - weights * squares[0] - others * squares[1]
        gradient[signed] -= 1 / found[signed]
        hessian[np.diag_indices(len(found))] += np.where(signed, 1 / np.square(found), 0.0)
        scale = 1 / np.sqrt(np.diag(hessian))
        even = hessian * scale[:, None] * scale + RIDGE * np.eye(len(found))
        try:
            step = -scale * cho_solve(cho_factor(even, overwrite_a=True), scale * gradient)
        except np.linalg.LinAlgError:
            break
        promised = -float(gradient @ step)
        length, now = 1.0, value(found, rate)
        while length > 1e-9 and value(found + length * step, rate) > now - 0.1 * length * promised:
            length /= 2
        if length <= 1e-9:
            break
        found = found + length * step
        if promised < 1:
            if len(found) / rate < ACCURACY * float(costs @ found):
                break
            rate *= BARRIER_STEP
    return float(np.trace(slope @ target)) ** 2 / (float(found[:size].sum()) * unit_of_worth)


if __name__ == "__main__":
    print("drawn to", main(*map(Path, sys.argv[1:2])))
