"""Balls around a centre: its law, which draw that is eps_1-mDP stays nearest to its record, and
the radius.

    p(c|x) = mu_c exp(-a s(x, c)) / Z(x),   s = sqrt(d(x, c)^2 + h^2),   Z(x) = sum_c mu_c exp(-a s)

The score s is 1-Lipschitz in x, so a weight moves by at most a d(x, x') nats and the row's sum Z
by at most as much again: a = eps_1 / 2 always holds. Where Z is level the whole of eps_1 is a's,
and the tail is half as wide. The plain exponential mechanism has mu = 1, and its Z follows the
density of centres and the borders of the map. Here mu >= 0 is fitted so that Z is 1 at the records
(where that is exact and h is 0 this is the tight-constraints mechanism), and h rounds off the kink
that a centre makes in Z where centres are few.

Whatever mu, h and a are, the audit over all pairs on the integers decides; the fit only decides how
good the law is. In the plane no law can do better than Z level everywhere (docs/panda.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray, frozen
from panda_mdp.errors import MethodError
from panda_mdp.methods.closed_forms import exponential, floored, softmax
from panda_mdp.panda.candidates import distances_from
from panda_mdp.privacy.quantise import TOTAL, quantise
from panda_mdp.privacy.sampler import BitSource, choose
from panda_mdp.problem import Problem, quiet_scale
from panda_mdp.space.domain import Domain
from panda_mdp.table.mechanism import Mechanism, audited_table

PILOT = 1_024
"""Laws are fitted and compared on so many records, evenly spaced, and their neighbours; the one
that is taken is audited over all pairs."""
NEIGHBOURS = 6
BISECTIONS = 6
"""Halvings of the exponent's bracket."""
BACK_OFF = 0.995
"""Where pairs beyond the pilot ask for it, the exponent is lowered by this factor at least."""
TRIES = 12
ROUNDINGS = (0.0, 1.25)
"""h, in covering radii of the centres, or in distances to the next centre where all are centres."""
NEGATIVES = 25
"""How often weights that come out negative are dropped and the rest fitted again."""


@dataclass(frozen=True, eq=False)
class BallLaw:
    """The law of centres on a domain and the radius that goes with it."""

    mechanism: Mechanism
    """Records to centres, eps_1-mDP by audit over all pairs; the loss is the distance."""
    radius: float

    @classmethod
    def build(cls, domain: Domain, centres: IntArray, epsilon: float, delta: float) -> BallLaw:
        """The law of centres that the audit allows at epsilon, and the radius that delta asks."""
        return cls(draw_law(centre_problem(domain, centres, epsilon), delta), 0.0).missing(delta)

    def missing(self, delta: float) -> BallLaw:
        """The same centres with the least radius that misses every record with at most delta."""
        weights = np.asarray(self.mechanism.weights)
        return self.with_radius(radius_for(self.distance, weights, delta))

    def with_radius(self, radius: float) -> BallLaw:
        """The same centres with balls of another radius."""
        return BallLaw(self.mechanism, radius)

    @property
    def domain(self) -> Domain:
        """The records."""
        return self.mechanism.problem.domain

    @property
    def centres(self) -> IntArray:
        """The public centres, as records."""
        return self.mechanism.problem.outputs

    @property
    def distance(self) -> FloatArray:
        """Distances of all records to the centres, (K, centres)."""
        return self.mechanism.problem.loss

    @cached_property
    def missed(self) -> FloatArray:
        """Per record, the exact probability that it is outside its own ball."""
        beyond = np.where(self.distance > self.radius, self.mechanism.weights, 0).sum(axis=1)
        return frozen(beyond / float(TOTAL))

    def draw(self, record: int, bits: BitSource) -> IntArray:
        """All records of the ball around a centre that is drawn for a record, ascending."""
        return self.ball(int(choose(self.mechanism.weights[record], bits.integers(1))[0]))

    def check(self, anchors: npt.ArrayLike) -> IntArray:
        """Refuses: nobody has a choice of what to upload."""
        raise MethodError(
            "a ball is one of a public list; there is nothing else that could be uploaded"
        )

    @cached_property
    def group(self) -> IntArray:
        """A number for the ball of each centre: who sees the ball cannot tell equal ones apart."""
        inside = np.packbits(self.distance <= self.radius, axis=0)
        return np.asarray(np.unique(inside, axis=1, return_inverse=True)[1]).reshape(-1)

    @cached_property
    def firsts(self) -> IntArray:
        """The position of one centre of every group of equal balls."""
        return np.asarray(np.unique(self.group, return_index=True)[1])

    @property
    def members(self) -> IntArray:
        """1 where a centre has the ball of a group, (centres, groups)."""
        return np.equal.outer(self.group, np.arange(len(self.firsts))).astype(np.int64)

    def releases(self) -> Iterator[tuple[IntArray, FloatArray]]:
        """Every ball that can be released, and how likely each record releases it, (K,)."""
        chances = self.mechanism.matrix @ self.members
        for k, first in enumerate(self.firsts):
            yield self.ball(int(first)), chances[:, k]

    def ball(self, centre: int) -> IntArray:
        """Records within the radius of a centre (by position), ascending."""
        return np.flatnonzero(self.distance[:, centre] <= self.radius)

    def expected_size(self, prior: FloatArray) -> float:
        """Records that a user downloads, on average under a prior."""
        sizes = (self.distance <= self.radius).sum(axis=0)
        return float(prior @ (self.mechanism.matrix @ sizes))

    def group_of(self, anchors: IntArray) -> int:
        """The group of equal balls that this set is."""
        inside = np.isin(np.arange(self.domain.size), anchors)
        same = ((self.distance[:, self.firsts] <= self.radius) == inside[:, None]).all(axis=0)
        if not same.any():
            raise MethodError(
                "these anchors are not the ball of any centre; no record releases them"
            )
        return int(same.argmax())

    def log_likelihoods(self, anchors: IntArray) -> FloatArray:
        """log P_x(A) of every record, over all centres whose ball is exactly this set."""
        centres = self.group == self.group_of(anchors)
        counts = np.asarray(self.mechanism.weights)[:, centres].sum(axis=1)
        return np.asarray(np.log(counts.astype(np.float64)))


def centre_problem(domain: Domain, centres: IntArray, epsilon: float) -> Problem:
    """Records to public centres, the loss being the distance: what a centre is drawn for."""
    distance = np.column_stack([distances_from(domain, int(centre)) for centre in centres])
    with quiet_scale():
        return Problem(domain, centres, distance, epsilon)


def draw_law(problem: Problem, delta: float) -> Mechanism:
    """Records to centres, which are outputs of the problem, epsilon-mDP by audit over all pairs.

    The problem's loss is the distance to the centres. Of the exponential law and levelled ones, the
    one whose least radius at delta is the smallest; centres without a share are left out.

    >>> from panda_mdp import Domain
    >>> line = Domain.from_vectors([[float(i)] for i in range(9)])
    >>> problem = Problem(line, np.arange(9), line.distances(), epsilon=1.0)
    >>> laws = exponential(problem, tight=True), draw_law(problem, 1e-2)
    >>> [radius_for(problem.loss, law.weights, 1e-2) for law in laws]
    [5.0, 4.0]
    """
    if problem.size < 2 or problem.outputs_count < 2:
        return exponential(problem, tight=True)
    best = min(_laws(problem), key=lambda law: law.radius(delta))
    return best.on(problem) or exponential(problem, tight=True)


def radius_for(distance: FloatArray, weights: IntArray, delta: float) -> float:
    """The least radius with Pr[d(x, c) > radius] <= delta for every record.

    Exact: the probabilities are integers over 2^62, summed as integers from the far side.
    """
    allowed = int(Fraction(delta) * TOTAL)
    order = np.argsort(-distance, axis=1, kind="stable")
    beyond = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1)
    # The first centre, from the far side, that must stay inside.
    first = (beyond > allowed).argmax(axis=1)
    ranked = np.take_along_axis(distance, order, axis=1)
    return float(ranked[np.arange(len(distance)), first].max())


@dataclass(frozen=True, eq=False)
class _Pilot:
    """Some records and their neighbours, on which laws are fitted and compared."""

    to_centres: FloatArray
    """Distances to the centres, (P, n)."""
    first: IntArray
    second: IntArray
    """Pairs of neighbours, as rows of `to_centres`: a law breaks epsilon there first."""
    distance: FloatArray

    @classmethod
    def of(cls, problem: Problem) -> _Pilot:
        domain = problem.domain
        some = np.unique(np.linspace(0, domain.size - 1, PILOT).astype(np.int64))
        near, distance = domain.neighbours(min(NEIGHBOURS, domain.size - 1))
        pairs = np.stack([np.repeat(some, near.shape[1]), near[some].ravel()])
        apart = distance[some].ravel()
        records, at = np.unique(pairs[:, apart > 0], return_inverse=True)
        first, second = at.reshape(2, -1)
        return cls(problem.loss[records], first, second, apart[apart > 0])

    def rate(self, rows: FloatArray) -> float:
        """The largest log-ratio over distance between neighbours."""
        logs = np.log(rows)
        gaps = [
            np.abs(logs[self.first[k : k + PILOT]] - logs[self.second[k : k + PILOT]]).max(axis=1)
            for k in range(0, len(self.first), PILOT)
        ]
        return float((np.concatenate(gaps) / self.distance).max())


class _Law:
    """One choice of mu and h, with the largest exponent that the pilot allows."""

    def __init__(self, pilot: _Pilot, epsilon: float, rounding: float, level: bool) -> None:
        self.rounding, self.level, self._pilot = rounding, level, pilot
        self._scores = np.hypot(pilot.to_centres, rounding)
        low, high = epsilon / 2, epsilon * (1 - 1e-6)
        if pilot.rate(self._rows(pilot.to_centres, high)[1]) <= epsilon:
            low = high
        for _ in range(BISECTIONS if low < high else 0):
            middle = (low + high) / 2
            within = pilot.rate(self._rows(pilot.to_centres, middle)[1]) <= epsilon
            low, high = (middle, high) if within else (low, middle)
        self.exponent = low

    def _rows(self, distance: FloatArray, exponent: float) -> tuple[BoolArray, FloatArray]:
        """Centres with a share mu, and the rows mu exp(-a s) over their sums of some records,
        given their distances to all centres."""
        shares = np.ones(distance.shape[1])
        if self.level:
            shares = level_shares(np.exp(-exponent * (self._scores - self._scores.min())))
        used = shares > 0
        scores = np.hypot(distance[:, used], self.rounding)
        return used, floored(softmax(np.log(shares[used]) - exponent * scores))

    def radius(self, delta: float) -> float:
        used, rows = self._rows(self._pilot.to_centres, self.exponent)
        return radius_for(self._pilot.to_centres[:, used], quantise(rows), delta)

    def on(self, problem: Problem) -> Mechanism | None:
        """The law over all records, its exponent lowered until the audit over all pairs holds."""
        exponent = self.exponent
        for _ in range(TRIES):
            used, rows = self._rows(problem.loss, exponent)
            outputs, distance = problem.outputs[used], problem.loss[:, used]
            part = Problem(problem.domain, outputs, distance, problem.epsilon)
            answer = audited_table(part, quantise(rows), "levelled centres")
            if isinstance(answer, Mechanism):
                facts = {"exponent": exponent, "rounding": self.rounding, "levelled": self.level}
                return answer.with_facts(details=facts)
            # What the audit finds is nearly linear in the exponent.
            over = problem.epsilon / answer.audit.epsilon
            exponent *= min(BACK_OFF, max(0.5, over * (1 - 1e-3)))
        return None


def _laws(problem: Problem) -> Iterator[_Law]:
    pilot = _Pilot.of(problem)
    yield _Law(pilot, problem.epsilon, 0.0, level=False)
    # Where all records are centres, how far the next one is.
    gap = float(problem.loss.min(axis=1).max()) or float(np.median(pilot.distance))
    for rounding in ROUNDINGS:
        yield _Law(pilot, problem.epsilon, rounding * gap, level=True)


def level_shares(decay: FloatArray) -> FloatArray:
    """mu >= 0 with decay @ mu near 1 everywhere, by least squares; (n,) for decay (K, n).

    Weights that come out negative are dropped and the others fitted again: not the least of all
    fits, but a good one after a few factorisations.
    """
    square, right = decay.T @ decay, decay.sum(axis=0)
    square[np.diag_indices_from(square)] *= 1 + 1e-9
    used = np.ones(len(right), dtype=bool)
    shares = np.ones(len(right))
    for _ in range(NEGATIVES):
        chosen = np.flatnonzero(used)
        try:
            part = scipy.linalg.cho_solve(
                scipy.linalg.cho_factor(square[np.ix_(chosen, chosen)]), right[chosen]
            )
        except scipy.linalg.LinAlgError:
            break
        shares = np.zeros(len(right))
        shares[chosen] = np.maximum(part, 0.0)
        if part.min() >= 0:
            break
        used = shares > 0
    return shares if shares.max() > 0 else np.ones(len(right))
