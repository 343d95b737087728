"""Balls: a centre on a lattice by a law in closed form, and rows that fade at the edge.

    P(c|x) = max(exp(-a s(c - p(x))), exp(-a s_0)) / N(x),   s(v) = sqrt(|v|^2 + h^2)

over the points c of a square lattice of spacing 1 / a around the domain's plane. The projection p
onto the plane never lengthens a distance, s is 1-Lipschitz, and N, a sum over all lattice points,
repeats from cell to cell and is nearly level: by Poisson's formula |grad log N| <= LEVEL a. So the
law is a (1 + LEVEL)-mDP for all places at once, by proof and without a table (docs/panda.md).

Whoever lies within a radius of the centre then reports from an own row, but with a probability that
rises to 1 at the edge from the one row of everybody outside. Rows that are (epsilon_2 - edge)-mDP
become epsilon_2-mDP over all records, whatever the centre, by proof. So both together are
(epsilon_1 + epsilon_2)-mDP with delta 0, and who has the rows of one ball has all that the
guarantee of that ball rests on. All that is drawn from are whole numbers of 2^-62.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
import scipy
from numpy.typing import ArrayLike

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.errors import MethodError
from panda_mdp.panda.selection import POSITIVE
from panda_mdp.privacy.quantise import BITS, TOTAL, BitSource
from panda_mdp.problem import check_number
from panda_mdp.space.domain import Domain
from panda_mdp.space.metrics import EARTH_RADIUS_KM, Haversine, sphere_points
from panda_mdp.space.tiles import order_in_space

ROUNDING = 1.25
"""h, in units of 1 / a, as everything about the lattice is."""
REACH = 40.0
"""Beyond, all points of the box have the same chance (s_0 = REACH): in all about 1e-13."""
RESERVE = 1e-5
"""Share of epsilon_1 that pays for the rounding of coordinates and weights."""
FADING_RESERVE = 1e-3
"""Share of epsilon_2 and edge that pays for the rounding of depths and shares of the common row."""
ROUNDED = 1e-14
"""Bounds that rounding: of a coordinate relative to the largest, and of a weight per nat."""
SHARE_ROUNDED = 1e-9
"""Bounds the rounding of both shares of a pair: `FADED_OUT` is 2^32 units of 2^-62."""
SCALE_BITS = 110
"""Weights times 2^110 are whole numbers: float64 has them to 2^-52 from exp(-REACH) on."""
WORDS = 3
"""Random words of 62 bits for a centre; another draw is needed with probability 2^-70."""
FADED_OUT = 1e-9
"""The share of the common row never falls below this."""
UNLIKELY = 1e-15
"""Centres that no record draws more often are left out of sums over all centres."""
SQUARE = 16
"""Sums over all centres take so many by so many at once,"""
LEAF = 16
"""and records in parts of at most so many."""
GRID = 10_000
"""Devices round their places to so many parts of a degree: two of them are equal, or"""
APART_KM = 9e-4
"""at least so far apart, since places beyond"""
POLAR = 85
"""degrees are moved there."""


def _frequencies() -> tuple[FloatArray, FloatArray]:
    """By Poisson's formula N, over all of the lattice, is the sum over pairs n of whole numbers of
    2 pi (1 + h k) exp(-h k) / k^3 cos(2 pi n p(x)), k = sqrt(1 + |2 pi n|^2): n (2, 289), and what
    stands before the cosine. Frequencies that are left out are below 1e-12 together."""
    n = np.mgrid[-8:9, -8:9].reshape(2, -1)
    k = np.hypot(1, 2 * np.pi * np.hypot(*n))
    return n, 2 * np.pi * (1 + ROUNDING * k) * np.exp(-ROUNDING * k) / k**3


def unevenness() -> float:
    """LEVEL: bounds |grad log N| / a."""
    n, part = _frequencies()
    away = np.hypot(*n)
    others = away > 0
    slope = 2 * np.pi * (away * part)[others].sum()
    # Frequencies left out, and points beyond REACH, are below 1e-12 together.
    return float(slope / (part[~others].sum() - part[others].sum())) + 1e-12


LEVEL = unevenness()
Centre = tuple[int, int]


@dataclass(frozen=True, eq=False)
class BallLaw:
    """Balls on a domain that lies on the earth or in a plane.

    `epsilon` (eps_1, per unit of distance) is what a centre tells, `second` (eps_2) what a report
    tells whose row fades, `edge` of it the fading: rows that fade are (second - edge)-mDP. Centres
    are pairs of whole numbers.

    >>> line = Domain.from_vectors([[float(i), 0.0] for i in range(9)])
    >>> law = BallLaw(line, epsilon=2.0, radius=radius_for(2.0, 1e-3), second=3.0, edge=0.2)
    >>> round(law.exponent, 3), round(law.radius, 2), law.ball((8, 0)).tolist()
    (1.999, 4.82, [0, 1, 2, 3, 4, 5, 6, 7, 8])
    """

    domain: Domain
    epsilon: float
    radius: float
    second: float
    edge: float

    def __post_init__(self) -> None:
        for name in ("epsilon", "radius", "second"):
            check_number(getattr(self, name), name, POSITIVE, needed=True)
        less = float(np.nextafter(self.second, 0.0))
        check_number(self.edge, "edge", "a part of what reports tell", most=less, needed=True)
        least = self.least
        if len(self.places[0]) != 2 or not float(self.domain.neighbours(1)[1].min()) >= least:
            raise MethodError(
                "the centre of a ball is drawn in a plane: give places with distances on the "
                f"earth, or vectors with two entries, at least {least:.2g} from each other; coins "
                "(BernoulliAnchors) select anchors over any distances"
            )

    @property
    def least(self) -> float:
        """How far apart two places have to be for the reserves to pay for rounding."""
        metric = self.domain.metric
        on_earth = isinstance(metric, Haversine)
        largest = EARTH_RADIUS_KM if on_earth else float(np.abs(metric.embedding).max())
        rounded = ROUNDED * (largest + REACH / self.epsilon)
        fading = (4 * self.second * rounded + SHARE_ROUNDED) / (FADING_RESERVE * self.edge)
        return max(rounded / RESERVE, fading)

    @property
    def exponent(self) -> float:
        """a, per unit of distance: epsilon less what N and rounding may tell."""
        return exponent_of(self.epsilon)

    @cached_property
    def places(self) -> FloatArray:
        """Records in the plane, (K, 2): a projection of the embedding, so no distance grows."""
        domain = self.domain
        # Shortest paths may have places for maps, and are no distances on the earth.
        if isinstance(domain.metric, Haversine):
            return self.flat(domain.lat, domain.lon)
        points = domain.metric.embedding
        return np.pad(points, ((0, 0), (0, max(0, 2 - points.shape[1]))))

    @cached_property
    def ends(self) -> FloatArray:
        """The least and largest coordinates of records in the plane, (2, 2)."""
        return np.stack([self.places.min(axis=0), self.places.max(axis=0)])

    @property
    def corners(self) -> IntArray:
        """Up to eight records that have the same plane and box as all of them."""
        sides = (self.domain.lat, self.domain.lon, *self.places.T)
        return np.unique([(side.argmin(), side.argmax()) for side in sides])

    def flat(self, lat: ArrayLike, lon: ArrayLike) -> FloatArray:
        """Places on the earth in the plane, (..., 2); no distance grows."""
        points = EARTH_RADIUS_KM * sphere_points(np.asarray(lat), np.asarray(lon))
        return np.asarray(points @ _tangent(self.domain.lat, self.domain.lon))

    def among(self, lat: float, lon: float) -> FloatArray:
        """A place on the earth in the plane, (2,); one beyond all records is the nearest point of
        the rectangle around them, which lengthens no distance either."""
        return np.clip(self.flat(lat, lon), *self.ends)

    @cached_property
    def tiles(self) -> tuple[IntArray, IntArray]:
        """Records in an order in which near ones are near, and where its parts of a few begin."""
        return order_in_space(self.places, LEAF)

    @cached_property
    def box(self) -> tuple[IntArray, IntArray]:
        """The least and largest centre, each (2,): all that any record draws lie between."""
        low, high = self.ends * self.exponent
        low = np.floor(low - REACH)
        high = np.ceil(high + REACH)
        return low.astype(np.int64), high.astype(np.int64)

    def weights(self, place: FloatArray) -> tuple[IntArray, list[int], int]:
        """Centres near a place of the plane, (n, 2), and their whole weights beyond that of every
        centre of the box, which comes last."""
        place = place * self.exponent
        side = np.arange(-int(REACH) - 1, int(REACH) + 2)
        near = np.rint(place).astype(np.int64) + np.stack(np.meshgrid(side, side), -1).reshape(
            -1, 2
        )
        apart = np.hypot(np.hypot(*(near - place).T), ROUNDING)
        least = np.exp(-REACH)
        inside = apart < REACH
        extra = np.ldexp(np.exp(-apart[inside]) - least, SCALE_BITS)
        return near[inside], [int(weight) for weight in extra], int(np.ldexp(least, SCALE_BITS))

    def draw(self, record: int, bits: BitSource) -> Centre:
        """A centre for a record: exact, on whole numbers."""
        return self.draws(self.places[record], bits, 1)[0]

    def draws(self, place: FloatArray, bits: BitSource, count: int) -> list[Centre]:
        """Centres for a place of the plane among records, independent of each other."""
        near, extra, least = self.weights(place)
        low, high = self.box
        wide, tall = (int(side) for side in high - low + 1)
        sums = list(accumulate(extra, initial=least * wide * tall))
        most = 1 << (BITS * WORDS)
        drawn = []
        for _ in range(count):
            # Uniform below the sum, exactly: the high part of a product, its low part not too small
            # (Lemire 2019).
            rest = -1
            while rest < most % sums[-1]:
                word = 0
                for part in bits.integers(WORDS):
                    word = (word << BITS) | int(part)
                word, rest = divmod(word * sums[-1], most)
            if word < sums[0]:
                column, row = divmod(word // least, tall)
                drawn.append((int(low[0]) + column, int(low[1]) + row))
            else:
                i, j = near[bisect_right(sums, word) - 1].tolist()
                drawn.append((i, j))
        return drawn

    def _blocks(self) -> Iterator[IntArray]:
        """All centres of the box, (n, 2), square by square."""
        low, high = self.box
        side = np.arange(SQUARE)
        square = np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)
        for i in range(int(low[0]), int(high[0]) + 1, SQUARE):
            for j in range(int(low[1]), int(high[1]) + 1, SQUARE):
                some = square + np.array([i, j])
                yield some[(some <= high).all(axis=1)]

    @cached_property
    def _log_sums(self) -> FloatArray:
        """log N(x), (K,): the sum over the whole lattice, and what points beyond REACH have more
        in the box, and less outside."""
        n, part = _frequencies()
        low, high = self.box
        beyond = np.prod((high - low + 1).astype(float)) - np.pi * REACH * (REACH + 2) - 2 * np.pi
        turns = 2 * np.pi * self.places * self.exponent
        waves = sum(size * np.cos(turns @ wave) for wave, size in zip(n.T, part, strict=True))
        return np.asarray(np.log(waves + beyond * np.exp(-REACH)))

    def log_chances(self, centres: IntArray) -> FloatArray:
        """log P(c|x) of every record for some centres (n, 2), (K, n)."""
        gaps = self.places[:, None] * self.exponent - centres
        apart = np.hypot(np.hypot(gaps[..., 0], gaps[..., 1]), ROUNDING)
        return -np.minimum(apart, REACH) - self._log_sums[:, None]

    def releases(self, unlikely: float = UNLIKELY) -> Iterator[tuple[Centre, FloatArray]]:
        """Every centre that some record draws more often than that, and how likely each record
        does, (K,)."""
        for some in self._blocks():
            chances = np.exp(self.log_chances(some))
            for k in np.flatnonzero(chances.max(axis=0) > unlikely).tolist():
                yield (int(some[k, 0]), int(some[k, 1])), chances[:, k]

    def balls(self) -> Iterator[tuple[IntArray, IntArray, FloatArray, FloatArray]]:
        """All n centres in whose balls records lie, some at a time: parts of `tiles`, their k
        records, how likely each draws these centres and how deep it lies in their balls, (k, n).
        No other record lies in them or draws one more often than 1e-15."""
        order, starts = self.tiles
        at = self.places[order]
        low, high = (f.reduceat(at, starts[:-1], axis=0) for f in (np.minimum, np.maximum))
        far = max(-float(np.log(UNLIKELY)) / self.exponent, self.radius)
        for some in self._blocks():
            corner, last = some[0] / self.exponent, some[-1] / self.exponent
            gap = np.hypot(*np.maximum(0, np.maximum(low - last, corner - high)).T)
            if not gap.min() < self.radius:
                continue
            near = gap < far
            mine = order[np.repeat(near, np.diff(starts))]
            east, north = (
                axis[:, None] - line
                for axis, line in zip(self.places[mine].T, some.T / self.exponent, strict=True)
            )
            squared = east * east
            squared += north * north
            held = (squared < self.radius**2).any(axis=0)
            squared = squared[:, held]
            scores = np.sqrt(squared * self.exponent**2 + ROUNDING**2)
            np.minimum(scores, REACH, out=scores)
            chances = np.exp(-scores - self._log_sums[mine, None])
            yield np.flatnonzero(near), mine, chances, self.radius - np.sqrt(squared)

    def depths(self, centre: Centre, places: FloatArray | None = None) -> FloatArray:
        """How deep places of the plane, or all records, lie in a ball; negative outside."""
        at = np.array(centre) / self.exponent
        return np.asarray(
            self.radius - np.hypot(*((self.places if places is None else places) - at).T)
        )

    def ball(self, centre: Centre) -> IntArray:
        """Records within the radius of a centre, ascending."""
        return np.flatnonzero(self.depths(centre) > 0)

    def fade(self, depth: FloatArray, weights: IntArray) -> tuple[IntArray, IntArray]:
        """Given the ball's rows: out of 2^62, how often records of some depths report from the
        common row instead of their own, and that row."""
        common, spread = common_row(weights)
        return np.rint(self.shares(depth, spread) * float(TOTAL)).astype(np.int64), common

    def shares(self, depth: FloatArray, spread: FloatArray | float) -> FloatArray:
        """The share of the common row at depths of balls with these spreads."""
        return common_share(np.maximum(depth, 0.0), spread, self.second, self.edge)


def to_grid(lat: float, lon: float) -> tuple[int, int]:
    """A place on the grid that devices round to, in units of 1 / GRID degrees.

    >>> to_grid(41.90004, 372.5), to_grid(-89.0, -0.00012)
    ((419000, 125000), (-850000, 3599999))
    """
    row = round(max(-POLAR, min(POLAR, lat)) * GRID)
    return row, round(lon * GRID) % (360 * GRID)


def exponent_of(epsilon: float) -> float:
    """a for an epsilon_1."""
    return epsilon * (1 - RESERVE) / (1 + LEVEL)


def radius_for(epsilon: float, missed: float) -> float:
    """A radius that leaves a record out about so often, for whoever chooses one."""
    level = missed * (1 + ROUNDING) * np.exp(-ROUNDING - 1)
    reach = -1 - float(scipy.special.lambertw(-level, -1).real)
    return float(np.sqrt(max(0.0, reach**2 - ROUNDING**2)) / exponent_of(epsilon))


def _tangent(lat: FloatArray, lon: FloatArray) -> FloatArray:
    """East and north at the middle of places, (3, 2): the plane that they are projected onto."""
    middle = [np.array([(some.min() + some.max()) / 2]) for some in (lat, lon)]
    east = sphere_points(np.zeros(1), middle[1] + 90)
    return np.concatenate([east, np.cross(sphere_points(*middle), east)]).T


def common_row(weights: IntArray) -> tuple[IntArray, float]:
    """What everybody outside a ball with these rows reports from, (m,), in whole numbers of 2^-62:
    as the largest entry of each column; and M, at most so many times which every row is.

    Computed in whole numbers, so that it is the same everywhere.
    """
    peaks = (weights.max(axis=0) if len(weights) else np.ones(weights.shape[1], int)).tolist()
    total = sum(peaks)
    common = [max(peak * TOTAL // total, int(peak > 0)) for peak in peaks]
    common[common.index(max(common))] += TOTAL - sum(common)
    spread = max(peak / part for peak, part in zip(peaks, common, strict=True) if part)
    return np.array(common), spread * (1 + 1e-12) if len(weights) else 1.0


def common_share(
    depth: FloatArray, spread: FloatArray | float, epsilon: float, edge: float
) -> FloatArray:
    """The share w of the common row at a depth: 1 at the edge, and as steep as rows allow that are
    (epsilon - edge)-mDP and at most `spread` M times the common row:

        -(M - 1) w' = edge M (1 - w) + epsilon w,   and   -w' = epsilon w  where that is less.
    """
    epsilon = epsilon * (1 - FADING_RESERVE)
    edge = edge * (1 - FADING_RESERVE)
    last = np.minimum(edge * spread / (np.maximum(spread - 2, 0.0) * epsilon + edge * spread), 1.0)
    bend = epsilon - edge * spread
    # The limit where the two rates are the same.
    bend = np.where(np.abs(bend) > 1e-9 * epsilon, bend, 1e-9 * epsilon)
    steep = np.maximum(spread - 1, 1e-12)
    until = -steep / bend * np.log1p((last - 1) * bend / epsilon)
    first = 1 + epsilon / bend * np.expm1(-bend * np.minimum(depth, until) / steep)
    later = np.exp(-epsilon * np.maximum(depth - until, 0.0))
    return np.maximum(first * later, FADED_OUT)
