"""Phase I of the paper: every user selects anchors by independent coins (section 3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray, frozen
from panda_mdp.errors import MethodError
from panda_mdp.panda.accounts import leakage as leaks
from panda_mdp.panda.accounts import quantiles
from panda_mdp.panda.options import Options, check_delta
from panda_mdp.panda.schemes.coin_scheme import CoinScheme
from panda_mdp.panda.selection.candidates import MOST_LINKED, central, covering_radius, serving
from panda_mdp.panda.selection.draws import binomial, flip, subset
from panda_mdp.panda.selection.law import AnchorLaw, check_anchors, surrogate_law
from panda_mdp.privacy.sampler import BitSource, SystemBits
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain, check_indices

Decay = Literal["power", "exponential", "logistic"]
RADIUS_SHARE = 50
"""The paper's radius is the domain's diameter over this."""


@dataclass(frozen=True, eq=False)
class BernoulliAnchors:
    """Select each candidate a with probability w(x, a) = h(min(d(x, a), radius)), independently.

    h is one of Table 1 of the paper, with alpha in (0, 1) and rate lambda:

        exponential   alpha exp(-lambda d)          lambda per unit of distance
        power         alpha / (1 + d^lambda)        d in the domain's unit, lambda a number
        logistic      2 alpha / (1 + exp(lambda d)) lambda per unit of distance

    `radius` (gamma) defaults to the domain's diameter over 50. Beyond it the probability is
    h(radius) with `tail="clip"`, the paper's text, or the `tail` that is given, which makes a jump.
    `candidates` is a public subset of the domain's records that may become anchors; by default all.
    Probabilities are multiples of 2^-62, and draws, leakage and margins all use those.

    alpha must be below 1 and the tail above 0: an outcome that is certain for one record and not
    for another gives the record away (Proposition 2). The smallest and largest probabilities are
    2^-62 and 1 - 2^-53.

    >>> domain = Domain.from_vectors([[0.0], [1.0], [4.0]])
    >>> anchors = BernoulliAnchors("exponential", alpha=0.9, rate=1.0, radius=2.0)
    >>> anchors.probability(domain).round(3)
    array([[0.9  , 0.331, 0.122],
           [0.331, 0.9  , 0.122],
           [0.122, 0.122, 0.9  ]])
    >>> round(anchors.leakage(domain, 0, 1), 3)
    2.9
    """

    decay: Decay = "power"
    alpha: float = 0.95
    rate: float = 0.5
    radius: float | None = None
    tail: float | Literal["clip"] = "clip"
    candidates: IntArray | None = None
    neighbours: int = 20
    """Gamma: how many records nearest to an anchor its estimated margin covers."""

    def __post_init__(self) -> None:
        if self.decay not in ("power", "exponential", "logistic"):
            msg = f"decay is {self.decay!r}; choose 'power', 'exponential' or 'logistic'"
            raise MethodError(msg)
        if not 0 < self.alpha < 1:
            msg = (
                f"alpha is {self.alpha!r}; it must lie strictly between 0 and 1: an anchor that is "
                "selected for certain by one record gives that record away (Proposition 2)"
            )
            raise MethodError(msg)
        if not (np.isfinite(self.rate) and self.rate >= 0):
            msg = f"rate is {self.rate!r}; it must be finite and not negative"
            raise MethodError(msg)
        if self.decay == "power" and self.rate == 0:
            msg = "rate is 0 and d^0 is not continuous at 0; use a positive rate or another decay"
            raise MethodError(msg)
        if self.radius is not None and not (np.isfinite(self.radius) and self.radius > 0):
            msg = f"radius is {self.radius!r}; it must be positive and finite, or None"
            raise MethodError(msg)
        if self.tail != "clip" and not (isinstance(self.tail, float | int) and 0 < self.tail < 1):
            msg = (
                f"tail is {self.tail!r}; it must be 'clip' or a probability strictly between 0 and "
                "1: an anchor that far records never select gives near ones away"
            )
            raise MethodError(msg)
        if not (isinstance(self.neighbours, int | np.integer) and self.neighbours >= 1):
            msg = f"neighbours is {self.neighbours!r}; the margin must cover at least the anchor"
            raise MethodError(msg)
        if self.candidates is not None:
            chosen = np.asarray(self.candidates)
            if chosen.ndim != 1 or len(chosen) == 0 or len(np.unique(chosen)) != len(chosen):
                msg = "candidates must be a flat list of distinct records, at least one"
                raise MethodError(msg)
            object.__setattr__(self, "candidates", frozen(np.sort(chosen)))

    @classmethod
    def alike(
        cls, domain: Domain, count: int, delta: float, problem: Problem | None = None
    ) -> BernoulliAnchors:
        """`count` public records that stand for the others, selected almost surely by everybody.

        The set then tells nothing, and the nearest candidate is missing with at most delta / 4.
        With all records this is the whole table for everybody. Where the `problem` is given,
        candidates stand for records that are near them and that their rows serve well.
        """
        if not (isinstance(count, int | np.integer) and count <= domain.size):
            msg = f"count is {count}; a domain of {domain.size} has 1 to {domain.size} candidates"
            raise MethodError(msg)
        chosen = None
        if count < domain.size and problem is not None and domain.size <= MOST_LINKED:
            chosen = serving(problem, count)
        elif count < domain.size:
            chosen = central(domain, count)
        reach = domain.diameter / 1_000
        if chosen is not None:
            reach = max(reach, 1.001 * covering_radius(domain, chosen))
        return cls("exponential", 1 - delta / 4, 0.0, reach, candidates=chosen)

    def __repr__(self) -> str:
        parts = [repr(self.decay), f"alpha={self.alpha:.12g}", f"rate={self.rate:.6g}"]
        if self.radius is not None:
            parts.append(f"radius={self.radius:.6g}")
        if self.tail != "clip":
            parts.append(f"tail={self.tail:.6g}")
        if self.candidates is not None:
            parts.append(f"{len(self.candidates)} candidates")
        if self.neighbours != 20:
            parts.append(f"neighbours={self.neighbours}")
        return f"BernoulliAnchors({', '.join(parts)})"

    def h(self, distance: npt.ArrayLike) -> FloatArray:
        """The decay of Table 1, before clipping and quantising."""
        separation = np.asarray(distance, dtype=np.float64)
        if self.decay == "exponential":
            return np.asarray(self.alpha * np.exp(-self.rate * separation))
        if self.decay == "power":
            return np.asarray(self.alpha / (1.0 + separation**self.rate))
        return np.asarray(2.0 * self.alpha * scipy.special.expit(-self.rate * separation))

    def on(self, domain: Domain) -> AnchorLaw:
        """The selection's law on a domain: what all vectorised forms work on."""
        radius = domain.diameter / RADIUS_SHARE if self.radius is None else float(self.radius)
        tail = float(self.h(radius)) if self.tail == "clip" else float(self.tail)
        chosen = self.candidates
        if chosen is not None:
            chosen = check_indices(chosen, domain.size, "candidates", MethodError)
        return AnchorLaw(domain, radius, self.h, tail, chosen)

    def scheme(self, problem: Problem, delta: float, options: Options) -> CoinScheme:
        """How this selection runs on a problem, is audited and is accounted for."""
        return CoinScheme(problem, self, delta, options)

    def probability(self, domain: Domain, records: npt.ArrayLike | None = None) -> FloatArray:
        """w(x, a), one row per record (all by default), one column per record of the domain."""
        chosen = np.arange(domain.size) if records is None else _records(domain, records)
        return self.on(domain).dense(chosen)

    def draw(self, domain: Domain, record: int, source: BitSource | None = None) -> IntArray:
        """An anchor set for a record: indices into the domain, ascending, possibly empty.

        Exact: integers and the operating system's generator. Near candidates have a coin each; of
        the far ones the number is drawn, then which. `source` is for simulations (`SeededBits`).
        """
        bits = SystemBits() if source is None else source
        law = self.on(domain)
        near, _, probability = law.rows(_records(domain, [record])).row(0)
        selected = near[flip(probability, bits)]
        far = np.delete(law.candidates, np.searchsorted(law.candidates, near))
        count = binomial(len(far), law.tail, bits)
        return np.sort(np.concatenate([selected, far[subset(len(far), count, bits)]]))

    def leakage(self, domain: Domain, x: int, x2: int) -> float:
        """sup over anchor sets A of |log P_x(A) / P_x2(A)|, in nats (Proposition 1)."""
        first, second = _records(domain, [x, x2])
        return max(leaks.suprema(self.on(domain), int(first), int(second)))

    def leakage_quantile(self, domain: Domain, x: int, x2: int, delta: float) -> float:
        """An upper bound on the leakage that a drawn set exceeds with probability at most delta.

        Two-sided and for both hypotheses, in nats; never above `leakage` (see `quantiles`).
        """
        check_delta(delta)
        first, second = _records(domain, [x, x2])
        return quantiles.leakage_quantile(self.on(domain), int(first), int(second), delta)

    def leakage_of(self, domain: Domain, anchors: npt.ArrayLike, x: int, x2: int) -> float:
        """log P_x(A) / P_x2(A) of a set A that was drawn, in nats, signed."""
        law = self.on(domain)
        chosen = check_anchors(law, anchors)
        rows = law.rows(_records(domain, [x, x2]))
        either, w, w2 = leaks.aligned(law, rows, 0, 1)
        inside = np.isin(either, chosen)
        mine, other = np.where(inside, w, 1.0 - w), np.where(inside, w2, 1.0 - w2)
        return float(leaks.log_ratio(mine, other).sum())

    def surrogate_probability(self, domain: Domain, x: int) -> FloatArray:
        """v(x, a) of Proposition 4 for all records a: that a is the nearest anchor of x.

        Ties go to the lowest index; the sum is 1 less the probability of an empty set.
        """
        return surrogate_law(self.on(domain), int(_records(domain, [x])[0]))

    def shortfall(self, domain: Domain, x: int, x2: int) -> float:
        """1 - h(infinity) = 1 - (1 - q)(1 - q'): that x or x2 has no anchor within the radius."""
        q, q2 = self.on(domain).rows(_records(domain, [x, x2])).missed
        return float(q + q2 - q * q2)

    def success(self, domain: Domain, x: int, x2: int, xi: float, epsilon: float) -> float:
        """h of Proposition 4: the probability that surrogates within the radius of x and of x2,
        drawn independently, satisfy (eps - eps_bar) d <= (eps - eps_bar(x, x2)) d(x, x2) + xi."""
        first, second = _records(domain, [x, x2])
        values = quantiles.candidate_values(self.on(domain), int(first), int(second), epsilon)
        return values.success(xi)

    def failure(self, domain: Domain, x: int, x2: int, xi: float, epsilon: float) -> float:
        """1 - success, summed from the failure side: accurate where it is tiny."""
        first, second = _records(domain, [x, x2])
        values = quantiles.candidate_values(self.on(domain), int(first), int(second), epsilon)
        return values.failure(xi)

    def margin(self, domain: Domain, x: int, x2: int, epsilon: float, delta: float) -> float:
        """The smallest xi with success >= 1 - delta (Property 1), in nats.

        May be negative where surrogates are nearer than the records. Infinite where no margin
        suffices, because `shortfall` exceeds delta.
        """
        check_delta(delta)
        first, second = _records(domain, [x, x2])
        values = quantiles.candidate_values(self.on(domain), int(first), int(second), epsilon)
        return values.margin(delta)


def _records(domain: Domain, records: npt.ArrayLike) -> IntArray:
    """Records as indices; the error never shows them, for they may be users'."""
    try:
        return check_indices(records, domain.size, "records", MethodError)
    except (ValueError, TypeError):
        msg = f"a record is not an index of this domain; records are 0..{domain.size - 1}"
        raise MethodError(msg) from None
