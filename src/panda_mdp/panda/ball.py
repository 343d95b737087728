"""Ball anchors: all records within a radius of a centre that is drawn privately.

The centre c is drawn by the exponential mechanism, which is eps_1-mDP by audit. The anchors are all
records within r of c, with r so large that every record's own ball misses it with probability at
most delta. The centre determines the anchors, so releasing them costs eps_1.

Inside the ball a record is its own surrogate. A record x' outside uses the nearest record inside;
if x is inside, that record is at most d(x, x') from x', so at most 2 d(x, x') from x. With a table
that is eps_2-mDP over the whole domain, whenever the user's own record x is inside,

    |log ratio| <= eps_1 d + 2 eps_2 d   for every x',   and <= (eps_1 + eps_2) d for x' inside,

and x is inside with probability at least 1 - delta. So (eps_1 + 2 eps_2, delta). One table serves
every user and every ball.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray, IntArray, frozen
from panda_mdp.errors import MethodError
from panda_mdp.methods.exponential import exponential
from panda_mdp.panda.candidates import spread_out
from panda_mdp.panda.margin import check_delta, check_epsilon
from panda_mdp.panda.surrogate import surrogates
from panda_mdp.privacy.quantise import TOTAL
from panda_mdp.privacy.sampler import BitSource, SystemBits, choose
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain, check_indices
from panda_mdp.table.mechanism import Mechanism

MOST_CENTRES = 256
"""Larger domains use this many public centres, spread out, unless others are given."""


@dataclass(frozen=True, eq=False)
class BallAnchors:
    """Release all records within a radius of a centre drawn by the exponential mechanism.

    `epsilon` (eps_1, per unit of distance) is what the centre may tell, `delta` the largest
    probability that a user's own record is outside the ball. `candidates` are the public centres:
    by default all records, or 256 that are spread out where the domain is larger. The centres'
    exponent is raised until the audit meets epsilon.

    `outside` says what a record outside its ball does: "nearest" uses the nearest record inside,
    which needs a table at (eps - eps_1) / 2; "extend" extends the rows of the ball to all records
    and relies on an audit of every ball instead, with no delta.

    >>> domain = Domain.from_vectors([[float(i)] for i in range(9)])
    >>> anchors = BallAnchors(epsilon=2.0, delta=1e-3)
    >>> law = anchors.on(domain)
    >>> law.radius, law.mechanism.audit.epsilon <= 2.0, bool(law.missed.max() <= 1e-3)
    (3.0, True, True)
    """

    epsilon: float
    delta: float = 1e-7
    candidates: IntArray | None = None
    outside: Literal["nearest", "extend"] = "nearest"
    _laws: WeakKeyDictionary[Domain, BallLaw] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False
    )

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        if self.outside not in ("nearest", "extend"):
            msg = f"outside is {self.outside!r}; choose 'nearest' or 'extend'"
            raise MethodError(msg)
        if self.candidates is not None:
            chosen = np.unique(np.asarray(self.candidates, dtype=np.int64))
            if len(chosen) == 0:
                msg = "candidates is empty; name at least one centre, or None for a default"
                raise MethodError(msg)
            object.__setattr__(self, "candidates", frozen(chosen))

    def __repr__(self) -> str:
        centres = "" if self.candidates is None else f", {len(self.candidates)} centres"
        return f"BallAnchors(epsilon={self.epsilon:g}, delta={self.delta:g}{centres})"

    def on(self, domain: Domain) -> BallLaw:
        """The law of centres on a domain, computed once."""
        if domain not in self._laws:
            if self.candidates is None:
                centres = spread_out(domain, min(domain.size, MOST_CENTRES))
            else:
                centres = check_indices(self.candidates, domain.size, "candidates", MethodError)
            self._laws[domain] = BallLaw.build(domain, centres, self.epsilon, self.delta)
        return self._laws[domain]

    def probability(self, domain: Domain) -> FloatArray:
        """Pr[centre | record], one row per record, one column per centre."""
        return self.on(domain).mechanism.matrix

    def draw(self, domain: Domain, record: int, source: BitSource | None = None) -> IntArray:
        """The anchors of a record: all records of its ball, ascending."""
        law = self.on(domain)
        row = law.mechanism.weights[_record(domain, record)]
        bits = SystemBits() if source is None else source
        return law.ball(int(choose(row, bits.integers(1))[0]))

    def leakage(self, domain: Domain, x: int, x2: int) -> float:
        """sup over balls of |log P_x / P_x2|, in nats."""
        law = self.on(domain)
        pair = [_record(domain, x), _record(domain, x2)]
        logs = np.log(law.mechanism.weights[pair].astype(np.float64))
        return float(np.abs(logs[0] - logs[1]).max())

    def leakage_of(self, domain: Domain, anchors: npt.ArrayLike, x: int, x2: int) -> float:
        """log P_x(A) / P_x2(A) of a ball A, over all centres that have it, in nats, signed."""
        law = self.on(domain)
        chosen = np.unique(check_indices(anchors, domain.size, "anchors", MethodError))
        centres = law.centres_of(chosen)
        pair = [_record(domain, x), _record(domain, x2)]
        first, second = law.mechanism.weights[pair][:, centres].sum(axis=1)
        return float(np.log(float(first)) - np.log(float(second)))

    def surrogate_probability(self, domain: Domain, x: int) -> FloatArray:
        """The law of the nearest record of the ball, over all records; sums to 1."""
        law = self.on(domain)
        record = _record(domain, x)
        weights = law.mechanism.weights[record]
        counts = np.zeros(domain.size, dtype=np.int64)
        for k in range(len(law.centres)):
            ball = law.ball(k)
            counts[ball[surrogates(domain, ball, np.array([record]))[0]]] += weights[k]
        return np.asarray(counts / float(TOTAL))

    def table_epsilon(self, epsilon: float) -> float:
        """eps_2 of the table for a total epsilon: (eps - eps_1) / 2, for any domain."""
        if not epsilon > self.epsilon:
            msg = (
                f"the centre alone costs {self.epsilon:g} and epsilon is {epsilon:g}: nothing is "
                "left for the report; give BallAnchors a smaller epsilon"
            )
            raise MethodError(msg)
        return (epsilon - self.epsilon) / 2


@dataclass(frozen=True, eq=False)
class BallLaw:
    """The law of centres on a domain and the radius that goes with it."""

    domain: Domain
    centres: IntArray
    mechanism: Mechanism
    """Records to centres, eps_1-mDP by audit over all pairs."""
    radius: float
    missed: FloatArray
    """Per record, the exact probability that it is outside its own ball; at most delta."""

    @classmethod
    def build(cls, domain: Domain, centres: IntArray, epsilon: float, delta: float) -> BallLaw:
        """Raise the centres' exponent until the audit meets epsilon, and find the radius."""
        apart = _distances(domain, centres)
        problem = Problem(domain, centres, apart, epsilon)
        mechanism = exponential(problem, tight=True)
        radius, missed = radius_for(apart, mechanism.weights, delta)
        return cls(domain, frozen(centres), mechanism, radius, frozen(missed))

    def ball(self, centre: int) -> IntArray:
        """Records within the radius of a centre (by position), ascending."""
        everyone = np.arange(self.domain.size)
        at = np.full(self.domain.size, self.centres[centre])
        return np.flatnonzero(self.domain.metric.pairs(everyone, at) <= self.radius)

    @cached_property
    def sizes(self) -> IntArray:
        """Number of records in the ball of each centre."""
        return frozen(np.array([len(self.ball(k)) for k in range(len(self.centres))]))

    def expected_size(self, prior: FloatArray) -> float:
        """Records that a user downloads, on average under a prior."""
        return float(prior @ (self.mechanism.matrix @ self.sizes))

    def centres_of(self, anchors: IntArray) -> IntArray:
        """Positions of the centres whose ball is exactly this set."""
        likely = np.flatnonzero(self.sizes == len(anchors))
        found = [k for k in likely if np.array_equal(self.ball(int(k)), anchors)]
        if not found:
            msg = "these anchors are not the ball of any centre; no record releases them"
            raise MethodError(msg)
        return np.array(found, dtype=np.int64)


def radius_for(apart: FloatArray, weights: IntArray, delta: float) -> tuple[float, FloatArray]:
    """The least radius with Pr[d(x, c) > radius] <= delta for every record, and that probability.

    Exact: the probabilities are integers over 2^62, summed as integers from the far side.
    """
    allowed = int(Fraction(delta) * TOTAL)
    order = np.argsort(-apart, axis=1, kind="stable")
    beyond = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1)
    # The first centre, from the far side, that must stay inside.
    first = (beyond > allowed).argmax(axis=1)
    ranked = np.take_along_axis(apart, order, axis=1)
    radius = float(ranked[np.arange(len(apart)), first].max())
    missed = np.where(apart > radius, weights, 0).sum(axis=1)
    return radius, np.asarray(missed / float(TOTAL))


def extend_rows(domain: Domain, matrix: FloatArray, ball: IntArray, epsilon: float) -> FloatArray:
    """Rows for all records from those of a ball, half-way between two log-Lipschitz extensions.

        log z(y|x') = (max_a [log z(y|a) - eps_2 d] + min_a [log z(y|a) + eps_2 d]) / 2 + const

    over the records a of the ball, d = d(a, x'). Rows of the ball stay as they are. Both extensions
    are eps_2-Lipschitz over all records, and so is the logarithm of the sum that normalises, so the
    result is at most 2 eps_2. Half-way the sums stay nearer to 1 than for either extension alone:
    audits find 1.2 to 1.75 eps_2.
    """
    out = np.array(matrix)
    inside = np.zeros(domain.size, dtype=bool)
    inside[ball] = True
    with np.errstate(divide="ignore"):
        logs = np.log(matrix[ball])
    for x in np.flatnonzero(~inside):
        reach = epsilon * domain.metric.pairs(ball, np.full(len(ball), x))[:, None]
        row = np.exp(((logs - reach).max(axis=0) + (logs + reach).min(axis=0)) / 2)
        out[x] = row / row.sum()
    return out


def _distances(domain: Domain, centres: IntArray) -> FloatArray:
    """Distances of all records to the centres, by the function that balls use."""
    out = np.empty((domain.size, len(centres)))
    everyone = np.arange(domain.size)
    for k, centre in enumerate(centres):
        out[:, k] = domain.metric.pairs(everyone, np.full(domain.size, centre))
    return out


def _record(domain: Domain, record: int) -> int:
    """A record as an index; the error never shows it, for it may be a user's."""
    try:
        return int(check_indices([record], domain.size, "record", MethodError)[0])
    except (ValueError, TypeError):
        msg = f"a record is not an index of this domain; records are 0..{domain.size - 1}"
        raise MethodError(msg) from None
