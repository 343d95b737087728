"""Ball anchors: all records within a radius of a centre that is drawn privately.

The centre c is drawn by a law that is eps_1-mDP by audit (`centre_laws`). The anchors are all
records within r of c. The centre determines the anchors, so releasing them costs eps_1. One table
serves every user and every ball; what a record outside its ball does is the scheme's
(`panda.schemes.ball_scheme`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray, IntArray, Rebuilt, frozen
from panda_mdp.errors import MethodError
from panda_mdp.panda.options import Options, check_delta, check_epsilon
from panda_mdp.panda.schemes.ball_scheme import (
    BallScheme,
    CommonBalls,
    ExtendedBalls,
    NearestBalls,
)
from panda_mdp.panda.selection.candidates import spread_out
from panda_mdp.panda.selection.centre_laws import CentreLaw
from panda_mdp.panda.selection.centres import BallLaw
from panda_mdp.panda.selection.law import surrogates
from panda_mdp.privacy.quantise import TOTAL
from panda_mdp.privacy.sampler import BitSource, SystemBits
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain, check_indices

FEWEST_CENTRES, MOST_CENTRES = 256, 1_024
"""Larger domains use this many public centres, spread out, unless others are given."""
CENTRE_WORK = 5e9
"""Pairs of records times centres that an audit of the centres should look at."""

DELTA = 1e-7
"""How often a ball may miss its record where nothing says otherwise."""
_SCHEMES: dict[str, type[BallScheme]] = {
    "common": CommonBalls,
    "nearest": NearestBalls,
    "extend": ExtendedBalls,
}


@dataclass(frozen=True, eq=False)
class BallAnchors(Rebuilt):
    """Release all records within a radius of a centre that is drawn privately.

    `epsilon` (eps_1, per unit of distance) is what the centre may tell, `delta` the largest
    probability that a user's own record is outside the ball; where it is None, the delta of the
    run. `candidates` are the public centres: by default all records, or 256 to 1,024 that are
    spread out where the domain is larger. `centre` is the law they are drawn by: the "tightest"
    that the audit allows at epsilon, whose balls are the smallest, or the "exponential" mechanism,
    its exponent raised until the audit meets epsilon.

    `outside` says what a record outside its ball does. "common": all report from one row of that
    ball, the table has eps - eps_1, and the account is kept for every pair. "nearest": the nearest
    record inside, which needs a table at (eps - eps_1) / 2. "extend": rows extended from those of
    the ball, every ball audited, no delta; for small domains.

    >>> domain = Domain.from_vectors([[float(i)] for i in range(9)])
    >>> anchors = BallAnchors(epsilon=2.0, delta=1e-3)
    >>> law = anchors.on(domain)
    >>> law.radius, law.mechanism.audit.epsilon <= 2.0, bool(law.missed.max() <= 1e-3)
    (3.0, True, True)
    """

    epsilon: float
    delta: float | None = None
    candidates: IntArray | None = None
    outside: Literal["common", "nearest", "extend"] = "common"
    centre: CentreLaw = "tightest"
    _laws: WeakKeyDictionary[Domain, BallLaw] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False
    )

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if self.delta is not None:
            check_delta(self.delta)
        if self.outside not in _SCHEMES:
            msg = f"outside is {self.outside!r}; choose from {', '.join(_SCHEMES)}"
            raise MethodError(msg)
        if self.centre not in get_args(CentreLaw):
            msg = f"centre is {self.centre!r}; choose from {', '.join(get_args(CentreLaw))}"
            raise MethodError(msg)
        if self.candidates is not None:
            chosen = np.unique(np.asarray(self.candidates, dtype=np.int64))
            if len(chosen) == 0:
                msg = "candidates is empty; name at least one centre, or None for a default"
                raise MethodError(msg)
            object.__setattr__(self, "candidates", frozen(chosen))

    def __repr__(self) -> str:
        centres = "" if self.candidates is None else f", {len(self.candidates)} centres"
        missed = "" if self.delta is None else f", delta={self.delta:g}"
        outside = "" if self.outside == "common" else f", outside={self.outside!r}"
        law = "" if self.centre == "tightest" else f", centre={self.centre!r}"
        return f"BallAnchors(epsilon={self.epsilon:g}{missed}{centres}{outside}{law})"

    def on(self, domain: Domain) -> BallLaw:
        """The law of centres on a domain, computed once."""
        if domain not in self._laws:
            if self.candidates is None:
                most = FEWEST_CENTRES
                if self.centre == "tightest":
                    work = int(CENTRE_WORK / domain.size**2)
                    most = min(max(FEWEST_CENTRES, work), MOST_CENTRES)
                centres = spread_out(domain, min(domain.size, most))
            else:
                centres = check_indices(self.candidates, domain.size, "candidates", MethodError)
            missed = DELTA if self.delta is None else self.delta
            self._laws[domain] = BallLaw.build(domain, centres, self.epsilon, missed, self.centre)
        return self._laws[domain]

    def missing(self, delta: float) -> BallAnchors:
        """The same centres and their law, with balls that miss their record at most so often."""
        other = BallAnchors(self.epsilon, delta, self.candidates, self.outside, self.centre)
        other._laws.update(self._laws)
        return other

    def scheme(self, problem: Problem, delta: float, options: Options) -> BallScheme:
        """How this selection runs on a problem, is audited and is accounted for."""
        return _SCHEMES[self.outside](problem, self, delta, options)

    def probability(self, domain: Domain) -> FloatArray:
        """Pr[centre | record], one row per record, one column per centre."""
        return self.on(domain).mechanism.matrix

    def draw(self, domain: Domain, record: int, source: BitSource | None = None) -> IntArray:
        """The anchors of a record: all records of its ball, ascending."""
        law = self.on(domain)
        bits = SystemBits() if source is None else source
        return law.ball(law.draw(_record(domain, record), bits))

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


def _record(domain: Domain, record: int) -> int:
    """A record as an index; the error never shows it, for it may be a user's."""
    try:
        return int(check_indices([record], domain.size, "record", MethodError)[0])
    except (ValueError, TypeError):
        msg = f"a record is not an index of this domain; records are 0..{domain.size - 1}"
        raise MethodError(msg) from None
