"""The law of centres on a domain, and the balls around them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray, frozen
from panda_mdp.errors import MethodError
from panda_mdp.panda.selection.centre_laws import CentreLaw, draw_law, radius_for
from panda_mdp.privacy.quantise import TOTAL
from panda_mdp.privacy.sampler import BitSource, choose
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain
from panda_mdp.table.mechanism import Mechanism


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
    def build(
        cls,
        domain: Domain,
        centres: IntArray,
        epsilon: float,
        delta: float,
        kind: CentreLaw = "tightest",
    ) -> BallLaw:
        """The law of centres that the audit allows at epsilon, and the radius that delta asks."""
        problem = Problem(domain, centres, distances_to(domain, centres), epsilon)
        mechanism = draw_law(problem, delta, kind)
        radius, missed = radius_for(mechanism.problem.loss, np.asarray(mechanism.weights), delta)
        return cls(domain, frozen(mechanism.problem.outputs), mechanism, radius, frozen(missed))

    def missing(self, delta: float) -> BallLaw:
        """The same centres with the least radius that misses every record with at most delta."""
        weights = np.asarray(self.mechanism.weights)
        return self.with_radius(radius_for(self.distance, weights, delta)[0])

    def with_radius(self, radius: float) -> BallLaw:
        """The same centres with balls of another radius."""
        beyond = np.where(self.distance > radius, self.mechanism.weights, 0).sum(axis=1)
        return replace(self, radius=radius, missed=frozen(beyond / float(TOTAL)))

    @property
    def distance(self) -> FloatArray:
        """Distances of all records to the centres, (K, centres)."""
        return self.mechanism.problem.loss

    def draw(self, record: int, bits: BitSource) -> int:
        """The position of a centre for a record."""
        return int(choose(self.mechanism.weights[record], bits.integers(1))[0])

    @cached_property
    def groups(self) -> tuple[IntArray, ...]:
        """Positions of centres with equal balls: who sees the ball cannot tell them apart."""
        inside = np.packbits(self.distance <= self.radius, axis=0)
        _, group = np.unique(inside, axis=1, return_inverse=True)
        return tuple(np.flatnonzero(group == g) for g in range(int(group.max()) + 1))

    def chances(self, records: slice) -> FloatArray:
        """Pr[ball | record] for some records and every group of equal balls, (n, groups)."""
        order = np.concatenate(self.groups)
        starts = np.cumsum([0, *(len(some) for some in self.groups[:-1])])
        weights = np.asarray(self.mechanism.weights)[records]
        counts = np.add.reduceat(weights[:, order], starts, axis=1)
        return np.asarray(counts / float(TOTAL))

    def ball(self, centre: int) -> IntArray:
        """Records within the radius of a centre (by position), ascending."""
        everyone = np.arange(self.domain.size)
        at = np.full(self.domain.size, self.centres[centre])
        return np.flatnonzero(self.domain.metric.pairs(everyone, at) <= self.radius)

    @cached_property
    def sizes(self) -> IntArray:
        """Number of records in the ball of each centre."""
        return frozen((self.distance <= self.radius).sum(axis=0))

    def expected_size(self, prior: FloatArray) -> float:
        """Records that a user downloads, on average under a prior."""
        return float(prior @ (self.mechanism.matrix @ self.sizes))

    def group_of(self, anchors: IntArray) -> int:
        """The group of equal balls that this set is."""
        for group, centres in enumerate(self.groups):
            first = int(centres[0])
            if self.sizes[first] == len(anchors) and np.array_equal(self.ball(first), anchors):
                return group
        msg = "these anchors are not the ball of any centre; no record releases them"
        raise MethodError(msg)

    def centres_of(self, anchors: IntArray) -> IntArray:
        """Positions of the centres whose ball is exactly this set."""
        return self.groups[self.group_of(anchors)]


def distances_to(domain: Domain, centres: IntArray) -> FloatArray:
    """Distances of all records to the centres, by the function that balls use."""
    out = np.empty((domain.size, len(centres)))
    everyone = np.arange(domain.size)
    for k, centre in enumerate(centres):
        out[:, k] = domain.metric.pairs(everyone, np.full(domain.size, centre))
    return out
