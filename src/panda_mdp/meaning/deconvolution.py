"""Undoing a table's noise: a penalised likelihood, and weights whose bounds hold for every truth.

People are at records with shares f; n reports fall into p groups of outputs with the probabilities
q = Z^T f, Z the K x p channel. Two convex programs over p numbers, one per group, and a barrier for
the K records: the shares by Newton's method, the weights by projected gradients. Neither depends
on how many people reported.

*Shares.* f maximises sum_y c_y log (Z^T f)_y + weight sum_x pi_x log f_x, c the shares of the
reports and pi uniform: `weight` n reports are added that are spread evenly. The dual over
nu_y = c_y / q_y is smooth, f_x = weight pi_x / (1 + weight - (Z nu)_x), and the weight is the one
that predicts held-out reports best. Where a table has fewer outputs than records, shares that
explain the same reports are many; so f may also be a mixture of bumps of one width, which is fitted
alike with the bumps' rows for Z's, if held-out reports are predicted better that way.

*Limits.* For a zone's indicator a, weights w with Z w <= a have sum_y q_y w_y = f^T Z w <= a^T f
for **every** f: their mean over the reports lies, but for chance, below the zone's share, and that
of weights with Z w >= a above it. They are chosen by the table, the zones and n alone, never by
the reports, so nothing is optimised on the data that it is then tested with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, reduce
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import ndtr

from panda_mdp.base.arrays import BoolArray, FloatArray
from panda_mdp.space.domain import Domain

CONFIDENCE = 0.95
CHANCE = 0.5
"""What a standard deviation weighs against slack: little, so that slack stays far below chance."""
STRONGEST = 10.0
RATIO = 10**-0.5
PATIENCE = 3
"""Penalties that are tried: from this weight down, until so many in a row predicted worse."""
MOST_NEWTON = 60
BUMP_ENTRIES = 1 << 21
"""Of the bumps of one width: fewer centres where there are many records."""
RIDGES = 10.0 ** np.arange(-4.0, 8.0)
PENALTIES, PROGRAM_STEPS = (2.0, 6.0, 20.0), 300
NEGLIGIBLE = 0.1
"""Slack, in standard deviations, that is not worth a program."""
ROUNDING = 1e-12
LARGEST_RATIO = 4.0
"""Standard deviations from an end of 0 to 1 beyond which the end does not matter."""


def _penalised(
    channel: FloatArray, seen: FloatArray, weight: float, prices: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Shares of records at one weight, and the prices nu that lead to them, from given ones."""
    even = weight / len(channel)
    count = len(seen)
    prices = prices * min(1.0, (1 + 0.5 * weight) / float((channel @ prices).max()))
    # Newton's method on minus the sum of logarithms of prices and of what they leave of 1 + weight.
    parts = np.concatenate([seen, np.full(len(channel), even)])
    for _ in range(MOST_NEWTON):
        slack = 1 + weight - channel @ prices
        shares = even / slack
        hessian = (channel * (shares / slack)[:, None]).T @ channel
        hessian[np.diag_indices(count)] += seen / prices**2 + 1e-13 * np.trace(hessian) / count
        gradient = shares @ channel - seen / prices
        step = -cho_solve(cho_factor(hessian, check_finite=False), gradient, check_finite=False)
        promised = float(-gradient @ step)
        if promised < 1e-10:
            break
        values = np.concatenate([prices, slack])
        change = np.concatenate([step, -channel @ step])
        falling = change < 0
        length = min(1.0, 0.98 * float((values[falling] / -change[falling]).min(initial=np.inf)))
        while length > 1e-10 and not (
            parts @ np.log1p(length * change / values) >= 0.1 * length * promised
        ):
            length /= 2
        prices = prices + length * step
    return shares / shares.sum(), prices


def _path(
    channel: FloatArray, counts: FloatArray, least: float
) -> Iterator[tuple[FloatArray, float]]:
    """Shares along falling weights, down to the least one."""
    occurs = counts > 0
    seen = counts[occurs] / counts.sum()
    part = np.ascontiguousarray(channel[:, occurs])
    prices = np.ones(len(seen))
    weight = max(STRONGEST, least)
    while True:
        shares, prices = _penalised(part, seen, weight, prices)
        yield shares, weight
        if weight <= least:
            return
        weight = max(least, weight * RATIO)


def fit_shares(
    channel: FloatArray,
    counts: FloatArray,
    weight: float | None = None,
    bumps: Sequence[FloatArray] = (),
) -> FloatArray:
    """Shares of K records from the reports of p groups.

    Without `weight` a half of the reports, drawn with a fixed seed, is predicted from the other, by
    records alone and by mixtures of the rows of each of the `bumps`, (centres, K) each.
    """
    # What no record can have reported tells nothing about records: it was made up.
    counts = np.where(channel.max(axis=0) > 0, counts, 0.0)
    if not counts.any():
        return np.full(len(channel), 1.0 / len(channel))
    bump = None
    if weight is None:
        weight, bump = _best_predictor(channel, counts, bumps)
    *_, (shares, _) = _path(channel if bump is None else bump @ channel, counts, weight)
    return shares if bump is None else shares @ bump


def _best_predictor(
    channel: FloatArray, counts: FloatArray, bumps: Sequence[FloatArray]
) -> tuple[float, FloatArray | None]:
    """The weight, and the bumps if any, that tell one half of the reports best from the other."""
    half = np.random.default_rng(0).binomial(np.round(counts).astype(np.int64), 0.5).astype(float)
    rest = np.maximum(counts - half, 0.0)
    told = rest > 0
    best: tuple[float, float, FloatArray | None] = (-np.inf, STRONGEST, None)
    for bump in (None, *bumps) if half.any() and told.any() else ():
        blurred = channel if bump is None else bump @ channel
        scores: list[float] = []
        for shares, weight in _path(blurred, half, 0.01 / float(counts.sum())):
            scores.append(float(rest[told] @ np.log(shares @ blurred[:, told])))
            if scores[-1] > best[0]:
                best = scores[-1], weight, bump
            if len(scores) > PATIENCE + int(np.argmax(scores)):
                break
    return best[1:]


def bumps_of(domain: Domain) -> list[FloatArray]:
    """Spreads exp(-d^2 / (2 width^2)) around some records, (centres, K), of widths from what
    neighbours are apart to half of the domain."""
    count = min(domain.size, max(2, BUMP_ENTRIES // domain.size))
    centres = np.sort(np.random.default_rng(0).choice(domain.size, count, replace=False))
    apart = domain.distances(centres, None)
    found = []
    width = 0.5 * float(np.median(np.sort(apart[:, centres], axis=1)[:, 1]))
    while width < 0.5 * apart.max():
        near = np.exp(-np.square(apart / width) / 2)
        found.append(near / near.sum(axis=1, keepdims=True))
        width *= 2**0.5
    return found


class Bounds(NamedTuple):
    """Weights of p groups for G zones, (p, G) each: Z lower <= zones <= Z upper, exactly."""

    lower: FloatArray
    upper: FloatArray


def bounding_weights(channel: FloatArray, zones: FloatArray, reports: float) -> Bounds:
    """Weights whose means over reports lie below and above the shares of zones, for every truth.

    Candidates w come close to Z w = zone; where Z w is above the zone by r_x > 0,

        u_y = max_x r_x z_xy / sum_y' z_xy'^2   has   (Z u)_x >= r_x at every record x,

    so w - u is a lower weight, and u is not 0 only where records with r_x > 0 report. Each zone and
    side takes the candidate with the least slack and `CHANCE` standard deviations of a mean over so
    many reports, both for people that are evenly spread.
    """
    mean = channel.mean(axis=0)
    covariance = (np.diag(mean) - np.outer(mean, mean)) / max(reports, 1.0)
    # An upper weight of a zone is a lower one of its negative.
    targets = np.concatenate([zones, -zones], axis=1)
    reach = channel / np.square(channel).sum(axis=1)[:, None]

    def covered(weights: FloatArray) -> FloatArray:
        return weights - _cover(channel, reach, channel @ weights - targets)

    def judged(bound: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Slack, and a standard deviation of the mean."""
        variance = (bound * (covariance @ bound)).sum(axis=0)
        return targets.mean(axis=0) - mean @ bound, np.sqrt(np.maximum(variance, 0.0))

    def better(kept: FloatArray, other: FloatArray) -> FloatArray:
        least, cost = (slack + CHANCE * chance for slack, chance in map(judged, (kept, other)))
        return np.where(cost < least, other, kept)

    kept = reduce(better, map(covered, _ridges(channel, targets, covariance)))
    slack, chance = judged(kept)
    # Where records can be told apart, what is there now has next to no slack.
    if (slack > NEGLIGIBLE * chance).any():
        costs = (penalty * CHANCE / np.sqrt(max(reports, 1.0)) for penalty in PENALTIES)
        tried = (_programs(channel, targets, cost) for cost in costs)
        kept = reduce(better, map(covered, tried), kept)
    count = zones.shape[1]
    return Bounds(kept[:, :count], -kept[:, count:])


def _ridges(
    channel: FloatArray, targets: FloatArray, covariance: FloatArray
) -> Iterator[FloatArray]:
    """Weights that minimise |Z w - target|^2 / K + ridge times the variance."""
    gram = channel.T @ channel / len(channel)
    side = channel.T @ targets / len(channel)
    covariance = covariance + 1e-12 * np.trace(gram) / len(gram) * np.eye(len(gram))
    for ridge in RIDGES:
        yield np.asarray(cho_solve(cho_factor(gram + ridge * covariance), side))


def _programs(channel: FloatArray, targets: FloatArray, penalty: float) -> FloatArray:
    """Weights near the maximum of mean.w - penalty / 2 sum_y mean_y w_y^2 over Z w <= target.

    The dual is least squares over measures Y >= 0 of records, w = (mean - Z^T Y) / (penalty mean):
    accelerated projected gradients for all zones at once, restarted where they overshoot.
    """
    mean = channel.mean(axis=0)
    root = np.sqrt(np.maximum(mean, 1e-300))
    scaled = channel / root
    step = penalty / float(np.linalg.norm(scaled.T @ scaled, 2))
    measures = np.full(targets.shape, 1.0 / len(channel))
    ahead = measures
    momentum = 1.0
    for _ in range(PROGRAM_STEPS):
        left = root[:, None] - scaled.T @ ahead
        moved = np.maximum(ahead - step * (targets - scaled @ left / penalty), 0.0)
        faster = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        if np.vdot(ahead - moved, moved - measures) > 0:
            faster = 1.0
            ahead = moved
        else:
            ahead = moved + (momentum - 1) / faster * (moved - measures)
        measures = moved
        momentum = faster
    return (root[:, None] - scaled.T @ measures) / (penalty * root[:, None])


def _cover(channel: FloatArray, reach: FloatArray, excess: FloatArray) -> FloatArray:
    """Weights u >= 0 of groups, (p, G), with Z u >= excess."""
    cover = np.zeros((channel.shape[1], excess.shape[1]))
    for g, above in enumerate(excess.T):
        broken = np.flatnonzero(above > 0)
        if len(broken):
            most = (reach[broken] * above[broken, None]).max(axis=0)
            cover[:, g] = most * float((above[broken] / (channel[broken] @ most)).max())
    # What rounding may leave: rows sum to 1.
    return cover + ROUNDING


class Moments(NamedTuple):
    """First and second moments of weights over the reports of people in a zone and outside it."""

    inside: FloatArray
    outside: FloatArray
    inside_squares: FloatArray
    outside_squares: FloatArray

    def deviation(self, share: FloatArray, reports: float) -> FloatArray:
        """Of the mean of so many reports, where a share of the people is inside."""
        mean = share * self.inside + (1 - share) * self.outside
        squares = share * self.inside_squares + (1 - share) * self.outside_squares
        return np.sqrt(np.maximum(squares - mean**2, 0.0) / max(reports, 1.0))


def _far_cut(distance: FloatArray, radius: FloatArray) -> FloatArray:
    """The cut on the side of the end: what cannot be there is not asked for."""
    with np.errstate(divide="ignore"):
        beyond = (distance**2 + radius**2) / (2 * distance)
    return np.where(distance >= radius, radius, beyond)


@cache
def _radii() -> tuple[FloatArray, FloatArray]:
    """Cuts on the side of the interior where an end of 0 to 1 is so many deviations away."""
    distances = np.linspace(0.0, LARGEST_RATIO, 201)
    radii = np.linspace(1.0, 3.0, 10_001)
    held = ndtr(radii) - ndtr(-_far_cut(distances[:, None], radii))
    return distances, radii[np.argmax(held >= CONFIDENCE, axis=1)]


def _cut_above(share: FloatArray, deviation: FloatArray) -> FloatArray:
    """How far a mean may lie above a share at the confidence level.

    By likelihood ratio among shares from 0 to 1 (Feldman and Cousins): 1.96 deviations in the
    middle, 1.64 near 0 and no limit near 1. The chances of both sides add up to 5 %.
    """
    low = share <= 0.5
    with np.errstate(over="ignore"):
        distance = np.where(low, share, 1 - share) / np.maximum(deviation, 1e-300)
    distance = np.minimum(distance, LARGEST_RATIO)
    radius = np.interp(distance, *_radii())
    cut = np.where(low, radius, _far_cut(distance, radius))
    # An infinite cut stays infinite where nothing deviates.
    return np.multiply(cut, deviation, out=np.full_like(cut, np.inf), where=np.isfinite(cut))


def limits(
    means: Sequence[FloatArray], moments: Sequence[Moments], reports: float
) -> tuple[FloatArray, FloatArray]:
    """The shares that means of lower and upper weights do not contradict.

    A share is ruled out where the first lies too far above it or the second too far below it, by
    the standard deviations that reports would have if it were true. Where chance rules out all, the
    limits are the two ends that contradict each other.
    """
    (below, above), (lower, upper) = means, moments
    others = Moments(upper.outside, upper.inside, upper.outside_squares, upper.inside_squares)
    ends = _least(below, lower, reports), 1 - _least(1 - above, others, reports)
    return np.minimum(*ends), np.maximum(*ends)


def _least(below: FloatArray, moments: Moments, reports: float) -> FloatArray:
    """The least shares that means of weights below them do not contradict, by bisection."""

    def ruled_out(share: FloatArray) -> BoolArray:
        cut = _cut_above(share, moments.deviation(share, reports))
        return share + cut < below

    low = np.zeros_like(below)
    high = np.ones_like(below)
    some = ruled_out(low)
    for _ in range(50):
        middle = (low + high) / 2
        ruled = ruled_out(middle)
        low = np.where(ruled, middle, low)
        high = np.where(ruled, high, middle)
    return np.where(some, low, 0.0)
