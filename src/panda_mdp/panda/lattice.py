"""Balls without tables: a centre on a lattice by a law in closed form, and rows that fade.

    P(c|x) = max(exp(-a s(c - p(x))), exp(-a s_0)) / N(x),   s(v) = sqrt(|v|^2 + h^2)

over the points c of a square lattice of spacing 1 / a around the domain's plane. The projection p
onto the plane never lengthens a distance, s is 1-Lipschitz, and N, a sum over all lattice points,
repeats from cell to cell and is nearly level: by Poisson's formula |grad log N| <= LEVEL a. So the
law is a (1 + LEVEL)-mDP for all places at once, by proof and without a table (docs/panda.md).

Whoever lies within a radius of the centre then reports from an own row, which fades into the one
row of everybody outside as the edge comes near (`faded`): epsilon_2-mDP over all records, whatever
the centre. So both together are (epsilon_1 + epsilon_2)-mDP with delta 0, and who has the rows of
one ball has all that the guarantee of that ball rests on.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.errors import MethodError
from panda_mdp.panda.selection import check_epsilon
from panda_mdp.privacy.quantise import BITS, TOTAL, quantise
from panda_mdp.privacy.sampler import BitSource
from panda_mdp.space.domain import Domain
from panda_mdp.space.metrics import Haversine, sphere_points

ROUNDING = 1.25
"""h, in units of 1 / a, as everything about the lattice is."""
REACH = 40.0
"""Beyond, all points of the box have the same chance (s_0 = REACH): in all about 1e-13."""
RESERVE = 1e-5
"""Share of epsilon that pays for the rounding of coordinates and weights."""
ROUNDED = 1e-14
"""Bounds that rounding: of a coordinate relative to the largest, and of a weight per nat."""
SCALE_BITS = 110
"""Weights times 2^110 are whole numbers: float64 has them to 2^-52 from exp(-REACH) on."""
WORDS = 3
"""Random words of 62 bits for a centre; another draw is needed with probability 2^-70."""
NARROW_KM = 1e-3
"""Records that are no deeper in a ball count as outside, in units of distance; up to twice as deep
they have the very row of those outside, whom they may be as near as they like."""
FADED_OUT = 1e-9
"""The share of the common row never falls below this."""


def unevenness() -> float:
    """LEVEL: bounds |grad log N| / a. By Poisson's formula the frequency 2 pi n, n a pair of whole
    numbers, is in N with (1 + h k) exp(-h k) / k^3, k = sqrt(1 + |2 pi n|^2)."""
    n = np.hypot(*np.mgrid[-8:9, -8:9]).ravel()
    k = np.sqrt(1 + (2 * np.pi * n) ** 2)
    part = (1 + ROUNDING * k) * np.exp(-ROUNDING * k) / k**3
    others = n > 0
    slope = (2 * np.pi * n * part)[others].sum()
    # Frequencies left out, and points beyond REACH, are below 1e-12 together.
    return float(slope / (part[~others].sum() - part[others].sum())) + 1e-12


LEVEL = unevenness()


@dataclass(frozen=True, eq=False)
class Lattice:
    """The law of a ball's centre on a domain that lies on the earth or in a plane.

    `epsilon` (eps_1, per unit of distance) is what a centre tells. Centres are pairs of whole
    numbers.

    >>> law = Lattice(Domain.from_vectors([[float(i), 0.0] for i in range(9)]), epsilon=2.0)
    >>> round(law.exponent, 3), round(law.radius(1e-3), 2)
    (1.999, 4.82)
    """

    domain: Domain
    epsilon: float

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        largest = float(np.abs(self.domain.metric.embedding).max())
        rounded = ROUNDED * (largest + REACH / self.epsilon)
        nearest = float(self.domain.neighbours(1)[1].min())
        if len(self.places[0]) != 2 or RESERVE * nearest < rounded:
            raise MethodError(
                "the centre of a ball is drawn in a plane: give places with distances on the "
                "earth, or vectors with two entries, at least "
                f"{rounded / RESERVE:.2g} from each other"
            )

    @property
    def exponent(self) -> float:
        """a, per unit of distance: epsilon less what N and rounding may tell."""
        return self.epsilon * (1 - RESERVE) / (1 + LEVEL)

    @cached_property
    def places(self) -> FloatArray:
        """Records in the plane, (K, 2): a projection of the embedding, so no distance grows."""
        domain = self.domain
        points = domain.metric.embedding
        # Shortest paths may have places for maps, and are no distances on the earth.
        if not isinstance(domain.metric, Haversine):
            return np.pad(points, ((0, 0), (0, max(0, 2 - points.shape[1]))))
        return np.asarray(points @ _tangent(domain.lat, domain.lon))

    @cached_property
    def box(self) -> tuple[IntArray, IntArray]:
        """The least and largest centre, each (2,): all that any record draws lie between."""
        at = self.places * self.exponent
        low, high = np.floor(at.min(axis=0) - REACH), np.ceil(at.max(axis=0) + REACH)
        return low.astype(np.int64), high.astype(np.int64)

    def holds(self, centre: tuple[int, int]) -> bool:
        """Whether this is a point of the lattice that records draw."""
        low, high = self.box
        return bool((low <= centre).all() and (high >= centre).all())

    def weights(self, record: int) -> tuple[IntArray, list[int], int]:
        """Centres near a record, (n, 2), and their whole weights beyond that of every centre of
        the box, which comes last."""
        place = self.places[record] * self.exponent
        side = np.arange(-int(REACH) - 1, int(REACH) + 2)
        near = np.rint(place).astype(np.int64) + np.stack(np.meshgrid(side, side), -1).reshape(
            -1, 2
        )
        apart = np.hypot(np.hypot(*(near - place).T), ROUNDING)
        least = np.exp(-REACH)
        inside = apart < REACH
        extra = np.ldexp(np.exp(-apart[inside]) - least, SCALE_BITS)
        return near[inside], [int(weight) for weight in extra], int(np.ldexp(least, SCALE_BITS))

    def draw(self, record: int, bits: BitSource) -> tuple[int, int]:
        """A centre for a record: exact, on whole numbers."""
        near, extra, least = self.weights(record)
        low, high = self.box
        wide, tall = (int(side) for side in high - low + 1)
        sums = list(accumulate(extra, initial=least * wide * tall))
        most, rest = 1 << (BITS * WORDS), -1
        # Uniform below the sum, exactly: the high part of a product, its low part not too small
        # (Lemire 2019).
        while rest < most % sums[-1]:
            word = 0
            for part in bits.integers(WORDS):
                word = (word << BITS) | int(part)
            word, rest = divmod(word * sums[-1], most)
        if word < sums[0]:
            column, row = divmod(word // least, tall)
            return int(low[0]) + column, int(low[1]) + row
        i, j = near[bisect_right(sums, word) - 1].tolist()
        return i, j

    def depths(self, centre: tuple[int, int], radius: float) -> FloatArray:
        """How deep every record lies in a ball, in units of distance; negative outside."""
        at = np.array(centre) / self.exponent
        return np.asarray(radius - np.hypot(*(self.places - at).T))

    def ball(self, centre: tuple[int, int], radius: float) -> IntArray:
        """Records within a radius of a centre, ascending."""
        return np.flatnonzero(self.depths(centre, radius) > NARROW_KM)

    def radius(self, missed: float) -> float:
        """A radius that leaves a record out about so often, for whoever chooses one."""
        level = missed * (1 + ROUNDING) * np.exp(-ROUNDING - 1)
        reach = -1 - float(scipy.special.lambertw(-level, -1).real)
        return float(np.sqrt(max(0.0, reach**2 - ROUNDING**2)) / self.exponent)


def _tangent(lat: FloatArray, lon: FloatArray) -> FloatArray:
    """East and north at the middle of places, (3, 2): the plane that they are projected onto."""
    middle = [np.array([(some.min() + some.max()) / 2]) for some in (lat, lon)]
    east = sphere_points(np.zeros(1), middle[1] + 90)
    return np.concatenate([east, np.cross(sphere_points(*middle), east)]).T


def common_share(depth: FloatArray, spread: float, epsilon: float, edge: float) -> FloatArray:
    """The share w of the common row at a depth: 1 at the edge, and as steep as rows allow that are
    (epsilon - edge)-mDP and at most `spread` M times the common row:

        -(M - 1) w' = edge M (1 - w) + epsilon w,   and   -w' = epsilon w  where that is less.
    """
    epsilon, edge = epsilon * (1 - 1e-6), edge * (1 - 1e-6)
    last = edge * spread / (max(spread - 2, 0.0) * epsilon + edge * spread)
    if last >= 1:
        return np.maximum(np.exp(-epsilon * depth), FADED_OUT)
    bend = epsilon - edge * spread
    # The limit where the two rates are the same.
    bend = bend if abs(bend) > 1e-9 * epsilon else 1e-9 * epsilon
    until = -(spread - 1) / bend * np.log1p((last - 1) * bend / epsilon)
    first = 1 + epsilon / bend * np.expm1(-bend * np.minimum(depth, until) / (spread - 1))
    later = np.exp(-epsilon * np.maximum(depth - until, 0.0))
    return np.maximum(first * later, FADED_OUT)


def faded(weights: IntArray, depth: FloatArray, epsilon: float, edge: float) -> IntArray:
    """What the records of a ball report from, and last everybody outside, (n + 1, m).

    The common row u is as the largest entry of each column, over their sum M; rows z, which are
    (epsilon - edge)-mDP, become w u + (1 - w) z. Together that is epsilon-mDP for all records of
    the domain, those outside having the row u (docs/panda.md; `edge_epsilon` has the integers).
    """
    rows = weights / float(TOTAL)
    peaks = rows.max(axis=0) if len(rows) else np.ones(weights.shape[1])
    spread = float(peaks.sum())
    common = peaks / spread
    inside = np.maximum(depth - 2 * NARROW_KM, 0.0)
    share = common_share(inside, spread, epsilon, edge)[:, None]
    return quantise(np.concatenate([share * common + (1 - share) * rows, common[None]]))


def edge_epsilon(reports: IntArray, depth: FloatArray) -> float:
    """What the edge of a ball tells per unit of distance: the largest log-ratio of a row inside to
    the common one, over how near somebody outside may be: those are up to `NARROW_KM` deep."""
    used = reports.any(axis=0)
    if (reports[:, used] == 0).any():
        return float("inf")
    logs = np.log(reports[:, used].astype(np.float64))
    gaps = np.abs(logs[:-1] - logs[-1]).max(axis=1, initial=0.0)
    near = (depth - NARROW_KM) * (1 - 1e-9)
    rates = np.divide(gaps, near, out=np.where(gaps == 0, 0.0, np.inf), where=near > 0)
    return float(rates.max(initial=0.0))
