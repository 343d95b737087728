"""PAnDA as the published code runs it: for comparison with the paper's numbers, never for use.

Follows the artifact's choices where they differ from the paper's text (docs/fidelity.md):

- selection: its own constants, a radius gamma = d_max / 80 to / 300 by city and K, and beyond it a
  tail far below h(gamma), so that the probability jumps at gamma;
- leakage: of each of the two products of Proposition 1 only the last factor;
- margins: the probabilities of the anchors themselves, records within gamma / 2 of an anchor in
  place of Gamma nearest ones, coverage set to 1, and the second-largest candidate where 1 - delta
  is out of reach; budgets clipped at 0;
- constraints only between anchors nearer than 0.8 km, rows of boundary anchors at least 1e-4;
- losses averaged over the anchors, not over users' records; "seconds" of the LP alone.

The result is a `PublishedRun`, which is no mechanism: it can be neither sampled nor saved. What it
claims stands beside what an audit of the sets that were drawn finds: one user, anchors and report
together, all pairs of records, the same set for both (docs/panda.md), on right distances.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from scipy.cluster.vq import kmeans2
from scipy.sparse import csr_array, vstack
from scipy.sparse.csgraph import connected_components

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray, Stages, stopwatch
from panda_mdp.base.text import Facts
from panda_mdp.compute.highs import Lp, cost_scale, privacy_rows, sum_rows
from panda_mdp.errors import MethodError, SolverError
from panda_mdp.panda.audit import worst_pair
from panda_mdp.panda.coins import Decay
from panda_mdp.panda.law import AnchorLaw, nearest_law, surrogates
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain
from panda_paper.items import SWAPPED
from panda_paper.paper import PAPER
from panda_paper.study import Draw

ALPHA = 0.95
RATE = 0.5
NEAR_KM = 0.8
"""Anchors farther apart than this are not constrained."""
FLOOR = 1e-4
"""Least probability in the rows of boundary anchors."""
CLUSTERS = 25
LARGEST_TAIL = 1e-4
DIVISORS = PAPER["published code"]
"""gamma = d_max over this, by city."""


def near_probability(decay: Decay, distance: FloatArray) -> FloatArray:
    """The artifact's probability of selecting a record within gamma."""
    shapes = {
        "exponential": np.exp(-0.4 * RATE * distance),
        "power": 1 / (1 + 0.75 * distance**RATE),
        "logistic": 2 / (1 + np.exp(0.8 * RATE * distance)),
    }
    return ALPHA * shapes[decay]


def published_law(decay: Decay, domain: Domain, city: str) -> AnchorLaw:
    """The artifact's selection: alpha h(d) within gamma, a far smaller tail beyond.

    Its constants for a city and size; sizes between its own are interpolated, other cities are
    taken for Rome.
    """
    name = city if city in DIVISORS else "rome"
    parts = DIVISORS.get(f"{name} {decay}", DIVISORS[name])
    radius = domain.diameter / float(np.interp(domain.size, DIVISORS["sizes"], parts))
    far = {
        "exponential": np.exp(-40 * RATE * radius),
        "power": 1 / (1 + np.exp(10) * (radius + 1) ** (10 * RATE)),
        "logistic": 2 / (1 + np.exp(40 * RATE * radius)),
    }
    tail = ALPHA * min(float(far[decay]), LARGEST_TAIL)
    return AnchorLaw(domain, radius, partial(near_probability, decay), tail, None)


def exchanged(domain: Domain) -> Domain:
    """The domain as the artifact measures it: latitude and longitude exchanged."""
    return Domain.from_points(domain.lon, domain.lat)


def draw_sets(law: AnchorLaw, users: IntArray, seed: int) -> BoolArray:
    """Which records each user selects, one row per user."""
    generator = np.random.default_rng([seed, 3])
    return generator.random((len(users), law.domain.size)) < law.dense(users)


def audit_values(found: Sequence[tuple[float, float]]) -> Facts:
    """What audits of drawn sets found: one user, set and report together, over all pairs.

    For each set its largest loss per km, infinite where an output gives away, and the share of
    pairs of records whose loss exceeds epsilon d.
    """
    if not found:
        return {"audited_sets": 0}
    epsilons, shares = zip(*found, strict=True)
    return {
        "audited_sets": len(found),
        "audited_epsilon": float(max(epsilons)),
        "violated_pairs": float(np.mean(shares)),
    }


@dataclass(frozen=True, eq=False)
class PublishedRun:
    """A run under published accounting. No mechanism: nothing to sample, nothing to save."""

    problem: Problem
    law: AnchorLaw
    """Of its anchors, on the domain as it measures it."""
    users: IntArray
    anchor_sets: tuple[IntArray, ...]
    anchors: IntArray
    """Their union."""
    matrix: FloatArray
    """One row per anchor."""
    leakage: FloatArray
    """What it charges Phase I between anchors, nats; not symmetric."""
    margin: FloatArray
    """Its margins between anchors, nats; not symmetric."""
    distance: FloatArray
    """Between anchors, as it measures them."""
    anchor_loss: float
    """Its loss: the average over anchors."""
    stages: Stages
    """With the part that the published code reports as computation time, "LP"."""

    def __repr__(self) -> str:
        return (
            f"PublishedRun({len(self.anchors)} anchors, claimed epsilon "
            f"{self.problem.epsilon:g}; PUBLISHED ACCOUNTING, NO GUARANTEE)"
        )

    @property
    def shares(self) -> tuple[float, float, float]:
        """Its budget shares: Phase I, margin, rest; means over all entries, as in its Figure 13."""
        whole = self.problem.epsilon * (self.distance + np.eye(len(self.anchors)))
        first = float(np.minimum(1.0, self.leakage / whole).mean())
        second = float((self.margin / whole).mean())
        return first, second, 1 - first - second

    def rows(self, anchors: IntArray) -> FloatArray:
        """The rows of some of its anchors."""
        return self.matrix[np.searchsorted(self.anchors, anchors)]

    @property
    def true_loss(self) -> float:
        """The mean loss of the users' records, through their nearest anchors.

        Who has no anchor reports what is best blindly.
        """
        losses = []
        for user, anchors in zip(self.users, self.anchor_sets, strict=True):
            loss = self.problem.loss[user]
            if len(anchors):
                nearest = anchors[surrogates(self.law.domain, anchors, np.array([user]))]
                losses.append(self.rows(nearest)[0] @ loss)
            else:
                losses.append(loss[self.problem.best_single_output])
        return float(np.mean(losses))

    def audit(self, sets: Sequence[IntArray]) -> Facts:
        """Exact losses of anchor sets over all pairs of records, on right distances."""
        return audit_values(
            [self.scan(one, self.law.log_likelihoods(one)) for one in sets if len(one)]
        )

    def scan(self, anchor_set: IntArray, likelihood: FloatArray) -> tuple[float, float]:
        """The largest loss per km over all pairs of records and the share of pairs beyond epsilon.

        `likelihood` has the log-probability of the set by record; with zeros the report alone
        counts, as if the anchors had told nothing.
        """
        domain = self.problem.domain
        nearest = surrogates(self.law.domain, anchor_set)
        rows = self.rows(anchor_set)
        epsilon, _, beyond = worst_pair(domain, rows, nearest, likelihood, self.problem.epsilon)
        return epsilon, beyond / (domain.size * (domain.size - 1) / 2)


def run_published(draw: Draw) -> PublishedRun:
    """Both phases of a cell as the artifact runs them; methods on swapped coordinates measure
    distances with latitude and longitude exchanged, as the artifact does."""
    spent = stopwatch()
    problem = draw.problem
    swapped = draw.cell.method in SWAPPED
    measured = exchanged(problem.domain) if swapped else problem.domain
    law = published_law(draw.decay, measured, draw.study.name)
    drawn = draw_sets(law, draw.users, draw.seed)
    anchors = np.flatnonzero(drawn.any(axis=0))
    if len(anchors) == 0:
        raise MethodError(
            "no user drew any anchor, so there is no table to compute; use more users"
        )
    stages = spent("draw anchors")
    spent = stopwatch()
    leakage, margin = published_accounts(law, anchors, problem.epsilon, draw.delta)
    distance = measured.distances(anchors, anchors)
    stages += spent("leakage and margins")
    spent = stopwatch()
    share = np.ones(len(anchors))
    if draw.cell.setting.prior == "real":
        # The artifact weighs its anchors by the street counts of the first rows.
        share = draw.study.street_counts(problem.domain)[: len(anchors)].astype(float)
    cost = problem.loss[anchors] * (share / share.sum())[:, None]
    budget = np.maximum(0.0, np.maximum(0.0, problem.epsilon * distance - leakage) - margin)
    matrix = solve_near(cost, distance, budget, clusters(distance, draw.seed))
    stages += spent("LP")
    return PublishedRun(
        problem,
        law,
        draw.users,
        tuple(np.flatnonzero(row) for row in drawn),
        anchors,
        matrix,
        leakage,
        margin,
        distance,
        float((cost * matrix).sum()),
        stages,
    )


def published_accounts(
    law: AnchorLaw, anchors: IntArray, epsilon: float, delta: float
) -> tuple[FloatArray, FloatArray]:
    """Leakage and margins between the anchors as the artifact computes them, in nats.

    Leakage is known between anchors and the records within half a radius of one (`used`); the
    candidates of a margin are the records within a radius of these.
    """
    from panda_mdp.compute.numba.margins import last_factor_leakage, second_largest_margins

    rows = law.rows(anchors)
    inner = rows.distance < 0.5 * law.radius
    half = rows.anchor[inner]
    used = np.union1d(anchors, half)
    around = law.rows(used)
    involved = np.union1d(used, around.anchor)
    place = np.searchsorted(involved, used)
    # Lists for all that are involved; only those of `used` are ever read.
    sizes = np.zeros(len(involved), np.int64)
    sizes[place] = np.diff(around.start)
    distance = law.domain.distances(involved, involved)
    leaked = np.zeros_like(distance)
    leaked[np.ix_(place, place)] = last_factor_leakage(np.ascontiguousarray(law.dense(used)))
    margin = second_largest_margins(
        np.maximum(0.0, epsilon * distance - leaked),
        _surrogate_laws(law, anchors)[:, involved],
        np.append(0, np.cumsum(np.bincount(rows.owner[inner], minlength=len(anchors)))),
        np.searchsorted(involved, half),
        np.append(0, np.cumsum(sizes)),
        np.searchsorted(involved, around.anchor),
        1 - delta,
    )
    anchor_places = np.searchsorted(involved, anchors)
    return leaked[np.ix_(anchor_places, anchor_places)], margin


def _surrogate_laws(law: AnchorLaw, anchors: IntArray) -> FloatArray:
    """The probability that a record is the surrogate of an anchor's own place, (anchors, K)."""
    selected = law.dense(anchors)
    order = law.ranked(law.domain.size, anchors)
    chances = nearest_law(np.take_along_axis(selected, order, axis=1))
    np.put_along_axis(selected, order, chances, axis=1)
    return selected


def solve_near(
    cost: FloatArray,
    distance: FloatArray,
    budget: FloatArray,
    label: IntArray,
    *,
    algorithm: Literal["simplex", "ipm"] = "simplex",
    time_limit: float | None = None,
) -> FloatArray:
    """The artifact's LP over records: constraints within 0.8 km, a floor for boundary records.

        z_i <= exp(b_ij) z_j,   b_ij = max(0, max(0, eps - eps_bar_ij) d_ij - xi_ij)

    Records of one cluster (`label`) get the smaller of b_ij and b_ji both ways. Boundary records,
    those nearer than 0.8 km to another cluster, get entries of at least 1e-4. Solved to optimality,
    one component of the 0.8 km graph at a time; the artifact's Benders loop stops at a gap of 10 %.
    """
    begun = time.perf_counter()
    linked = (distance < NEAR_KM) & ~np.eye(len(cost), dtype=bool)
    i, j = np.nonzero(linked)
    across = label[i] != label[j]
    bound = np.where(across, budget[i, j], np.minimum(budget[i, j], budget[j, i]))
    floor = np.zeros(len(cost))
    floor[i[across]] = min(FLOOR, 1 / cost.shape[1])
    _, component = connected_components(linked.astype(np.int8), directed=False)
    matrix = np.eye(cost.shape[1])[cost.argmin(axis=1)]
    for part in np.flatnonzero(np.bincount(component) > 1):
        inside = np.flatnonzero(component == part)
        own_pairs = component[i] == part
        shape = (len(inside), cost.shape[1])
        ends = np.searchsorted(inside, np.stack([i[own_pairs], j[own_pairs]], axis=1))
        # Every direction is a pair of its own, with its own bound.
        both = privacy_rows(ends, bound[own_pairs], *shape)
        privacy = both[np.arange(both.shape[0]).reshape(len(ends), 2, -1)[:, 0].ravel()]
        upper = np.repeat([1.0, 0.0], [len(inside), privacy.shape[0]])
        lp = Lp(
            cost[inside].ravel() / cost_scale(cost[inside]),
            csr_array(vstack([sum_rows(*shape), privacy])),
            np.where(upper > 0, 1.0, -np.inf),
            upper,
            lower=floor[inside].repeat(shape[1]),
            algorithm=algorithm,
        )
        left = None if time_limit is None else max(0.01, begun + time_limit - time.perf_counter())
        answer = lp.solve(left)
        if answer.primal is None or not answer.optimal:
            raise SolverError(
                f"HiGHS ended with {answer.status!r} on the artifact's LP of {len(inside)} rows"
            )
        rows = np.maximum(answer.primal.reshape(shape), 0.0)
        matrix[inside] = rows / rows.sum(axis=1, keepdims=True)
    return matrix


def clusters(distance: FloatArray, seed: int, count: int = CLUSTERS) -> IntArray:
    """K-means of the rows of the distance matrix, as the artifact does."""
    if len(distance) <= count:
        return np.arange(len(distance))
    generator = np.random.default_rng([seed, 4])
    with warnings.catch_warnings():
        # An empty cluster is no trouble here.
        warnings.simplefilter("ignore", UserWarning)
        _, label = kmeans2(distance, count, minit="++", rng=generator)
    return np.asarray(label, dtype=np.int64)
