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
from typing import Any, Literal

import numpy as np
from scipy.cluster.vq import kmeans2
from scipy.sparse import csr_array, vstack
from scipy.sparse.csgraph import connected_components

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.compute.highs import Lp, cost_scale, sum_rows
from panda_mdp.errors import MethodError, SolverError
from panda_mdp.panda.audit import PairScan
from panda_mdp.panda.coins import Decay
from panda_mdp.panda.law import AnchorLaw, surrogates
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain
from panda_paper.cell import DECAYS
from panda_paper.study import Stopwatch

ALPHA, RATE = 0.95, 0.5
NEAR_KM = 0.8
"""Anchors farther apart than this are not constrained."""
FLOOR = 1e-4
"""Least probability in the rows of boundary anchors."""
CLUSTERS = 25
LARGEST_TAIL = 1e-4
SIZES = (500, 1000, 2000, 3000, 4000, 5000)
_ROME = (80, 110, 140, 160, 180, 220)
_LONDON = (130, 170, 210, 250, 280, 300)
_NEW_YORK = (320, 360, 390, 420, 450, 490)
DIVISORS: dict[str, dict[Decay, tuple[int, ...]]] = {
    "rome": {"exponential": (80, 100, 140, 160, 190, 220), "power": _ROME, "logistic": _ROME},
    "london": {"exponential": _LONDON, "power": _LONDON, "logistic": _LONDON},
    "nyc": {"exponential": _NEW_YORK, "power": _NEW_YORK, "logistic": _NEW_YORK},
}
"""gamma = d_max over this, by city and decay, at the sizes above."""


@dataclass(frozen=True)
class PublishedSelection:
    """The artifact's selection: w = alpha h(d) nearer than `radius`, `tail` beyond."""

    decay: Decay
    radius: float
    tail: float

    @classmethod
    def of(cls, decay: Decay, domain: Domain, city: str) -> PublishedSelection:
        """Its constants for a city and size; sizes between its own are interpolated."""
        if decay not in DECAYS:
            msg = f"decay is {decay!r}; choose from {', '.join(DECAYS)}"
            raise MethodError(msg)
        parts = DIVISORS.get(city, DIVISORS["rome"])[decay]
        radius = domain.diameter / float(np.interp(domain.size, SIZES, parts))
        far = {
            "exponential": np.exp(-40 * RATE * radius),
            "power": 1 / (1 + np.exp(10) * (radius + 1) ** (10 * RATE)),
            "logistic": 2 / (1 + np.exp(40 * RATE * radius)),
        }[decay]
        return cls(decay, radius, ALPHA * min(float(far), LARGEST_TAIL))

    def near(self, distance: FloatArray) -> FloatArray:
        """Probabilities within the radius."""
        shapes = {
            "exponential": np.exp(-0.4 * RATE * distance),
            "power": 1 / (1 + 0.75 * distance**RATE),
            "logistic": 2 / (1 + np.exp(0.8 * RATE * distance)),
        }
        return np.asarray(ALPHA * shapes[self.decay])

    def on(self, domain: Domain) -> AnchorLaw:
        """The law of anchor sets on a domain."""
        return AnchorLaw(domain, self.radius, self.near, self.tail, None)


def exchanged(domain: Domain) -> Domain:
    """The domain as the artifact measures it: latitude and longitude exchanged."""
    return Domain.from_points(domain.lon, domain.lat)


def draw_sets(law: AnchorLaw, users: IntArray, seed: int) -> BoolArray:
    """Which records each user selects, one row per user."""
    generator = np.random.default_rng([seed, 3])
    return np.asarray(generator.random((len(users), law.domain.size)) < law.dense(users))


def audit_values(
    epsilons: Sequence[float], alone: Sequence[float], shares: Sequence[float]
) -> dict[str, Any]:
    """What audits of drawn sets found: one user, set and report together, over all pairs.

    For each set its largest loss per km, infinite where an output gives away, that of the set
    alone, before any report, and the share of pairs of records whose loss exceeds epsilon d.
    """
    if not epsilons:
        return {"audited_sets": 0}
    return {
        "audited_sets": len(epsilons),
        "audited_epsilon": float(max(epsilons)),
        "median_epsilon": float(np.median(epsilons)),
        "selection_epsilon": float(max(alone)),
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
    constrained: int
    """Pairs of anchors that it constrains."""
    stages: tuple[tuple[str, float], ...]

    def __repr__(self) -> str:
        return (
            f"PublishedRun({len(self.anchors)} anchors, claimed epsilon "
            f"{self.problem.epsilon:g}; PUBLISHED ACCOUNTING, NO GUARANTEE)"
        )

    @property
    def lp_seconds(self) -> float:
        """The part that the published code reports as computation time."""
        return dict(self.stages)["LP"]

    @property
    def shares(self) -> tuple[float, float, float]:
        """Its budget shares: Phase I, margin, rest; means over all entries, as in its Figure 13."""
        epsilon = self.problem.epsilon
        distance = self.distance + np.eye(len(self.anchors))
        first = float(np.minimum(epsilon, self.leakage / distance).mean()) / epsilon
        second = float((self.margin / distance).mean()) / epsilon
        return first, second, 1 - first - second

    @property
    def true_loss(self) -> float:
        """The mean loss of the users' records, through their nearest anchors.

        Who has no anchor reports what is best blindly.
        """
        losses = []
        for user, anchor_set in zip(self.users, self.anchor_sets, strict=True):
            if len(anchor_set) == 0:
                losses.append(self.problem.loss[user, self.problem.best_single_output])
            else:
                nearest = anchor_set[surrogates(self.law.domain, anchor_set, np.array([user]))[0]]
                row = self.matrix[np.searchsorted(self.anchors, nearest)]
                losses.append(row @ self.problem.loss[user])
        return float(np.mean(losses))

    def audit(self, sets: Sequence[IntArray]) -> dict[str, Any]:
        """Exact losses of anchor sets over all pairs of records, on right distances."""
        drawn = [one for one in sets if len(one)]
        likelihoods = [self.law.log_likelihoods(one) for one in drawn]
        both = [
            self.scan(one, likelihood) for one, likelihood in zip(drawn, likelihoods, strict=True)
        ]
        one_row = np.zeros(self.problem.size, dtype=np.int64)
        nothing = np.zeros((1, self.problem.outputs_count))
        alone = [self._pairs(one, one_row, nothing)[0] for one in likelihoods]
        return audit_values([one for one, _ in both], alone, [share for _, share in both])

    def scan(self, anchor_set: IntArray, likelihood: FloatArray) -> tuple[float, float]:
        """The largest loss per km over all pairs of records and the share of pairs beyond epsilon.

        `likelihood` has the log-probability of the set by record; with zeros the report alone
        counts, as if the anchors had told nothing.
        """
        with np.errstate(divide="ignore"):
            logs = np.log(self.matrix)
        nearest = surrogates(self.law.domain, anchor_set)
        rows = np.searchsorted(self.anchors, anchor_set)[nearest]
        used, row = np.unique(rows, return_inverse=True)
        return self._pairs(likelihood, row.astype(np.int64), logs[used])

    def _pairs(
        self, likelihood: FloatArray, row: IntArray, logs: FloatArray
    ) -> tuple[float, float]:
        domain = self.problem.domain
        found = PairScan(domain, row, logs).worst(likelihood, self.problem.epsilon)
        return found[0], found[2] / (domain.size * (domain.size - 1) / 2)


def run_published(
    problem: Problem,
    users: IntArray,
    decay: Decay,
    *,
    city: str = "rome",
    delta: float = 1e-7,
    seed: int = 0,
    swapped: bool = False,
    weights: FloatArray | None = None,
) -> PublishedRun:
    """Both phases as the artifact runs them, for given users (domain indices).

    `swapped` measures distances with latitude and longitude exchanged, as the artifact does.
    `weights` are those of its anchors' losses by position, uniform where None.
    """
    clock = Stopwatch()
    measured = exchanged(problem.domain) if swapped else problem.domain
    law = PublishedSelection.of(decay, measured, city).on(measured)
    drawn = draw_sets(law, users, seed)
    anchors = np.flatnonzero(drawn.any(axis=0))
    if len(anchors) == 0:
        msg = "no user drew any anchor, so there is no table to compute; use more users"
        raise MethodError(msg)
    clock.lap("draw anchors")
    leakage, margin = published_accounts(law, anchors, problem.epsilon, delta)
    distance = _distances_between(measured, anchors)
    clock.lap("leakage and margins")
    share = np.full(len(anchors), 1 / len(anchors)) if weights is None else weights[: len(anchors)]
    cost = problem.loss[anchors] * (share / share.sum())[:, None]
    budget = np.maximum(0.0, np.maximum(0.0, problem.epsilon * distance - leakage) - margin)
    matrix, constrained, _ = solve_near(cost, distance, budget, clusters(distance, seed))
    clock.lap("LP")
    return PublishedRun(
        problem=problem,
        law=law,
        users=users,
        anchor_sets=tuple(np.flatnonzero(row) for row in drawn),
        anchors=anchors,
        matrix=matrix,
        leakage=leakage,
        margin=margin,
        distance=distance,
        anchor_loss=float((cost * matrix).sum()),
        constrained=constrained,
        stages=clock.stages,
    )


def _distances_between(domain: Domain, records: IntArray) -> FloatArray:
    distance = domain.distances(records, records)
    np.fill_diagonal(distance, 0.0)
    return distance


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
    sizes = np.zeros(len(involved), dtype=np.int64)
    sizes[place] = np.diff(around.start)
    distance = _distances_between(law.domain, involved)
    leaked = np.zeros_like(distance)
    leaked[np.ix_(place, place)] = last_factor_leakage(np.ascontiguousarray(law.dense(used)))
    margin = second_largest_margins(
        np.maximum(0.0, epsilon * distance - leaked),
        _surrogate_laws(law, anchors)[:, involved],
        _starts(np.bincount(rows.owner[inner], minlength=len(anchors))),
        np.searchsorted(involved, half),
        _starts(sizes),
        np.searchsorted(involved, around.anchor),
        1 - delta,
    )
    own = np.searchsorted(involved, anchors)
    return leaked[np.ix_(own, own)], margin


def _starts(counts: IntArray) -> IntArray:
    return np.concatenate([[0], np.cumsum(counts)])


def _surrogate_laws(law: AnchorLaw, anchors: IntArray) -> FloatArray:
    """The probability that a record is the surrogate of an anchor's own place, (anchors, K)."""
    selected = law.dense(anchors)
    order = np.argsort(law.domain.distances(anchors), axis=1, kind="stable")
    ranked = np.take_along_axis(selected, order, axis=1)
    none_before = np.cumprod(1 - ranked[:, :-1], axis=1)
    ranked[:, 1:] *= none_before
    laws = np.empty_like(selected)
    np.put_along_axis(laws, order, ranked, axis=1)
    return laws


def solve_near(
    cost: FloatArray,
    distance: FloatArray,
    budget: FloatArray,
    label: IntArray,
    *,
    algorithm: Literal["simplex", "ipm"] = "simplex",
    time_limit: float | None = None,
) -> tuple[FloatArray, int, int]:
    """The artifact's LP over records: constraints within 0.8 km, a floor for boundary records.

        z_i <= exp(b_ij) z_j,   b_ij = max(0, max(0, eps - eps_bar_ij) d_ij - xi_ij)

    Records of one cluster (`label`) get the smaller of b_ij and b_ji both ways. Boundary records,
    those nearer than 0.8 km to another cluster, get entries of at least 1e-4. Solved to optimality,
    one component of the 0.8 km graph at a time; the artifact's Benders loop stops at a gap of 10 %.
    Returns the table, the number of constrained pairs and that of components.
    """
    begun = time.perf_counter()
    linked = (distance < NEAR_KM) & ~np.eye(len(cost), dtype=bool)
    i, j = np.nonzero(linked)
    across = label[i] != label[j]
    bound = np.where(across, budget[i, j], np.minimum(budget[i, j], budget[j, i]))
    boundary = np.isin(np.arange(len(cost)), i[across])
    floor = np.where(boundary, min(FLOOR, 1 / cost.shape[1]), 0.0)
    parts, component = connected_components(linked.astype(np.int8), directed=False)
    matrix = np.zeros(cost.shape)
    matrix[np.arange(len(cost)), cost.argmin(axis=1)] = 1.0
    for part in np.flatnonzero(np.bincount(component) > 1):
        inside = np.flatnonzero(component == part)
        own = component[i] == part
        ends = np.searchsorted(inside, np.stack([i[own], j[own]]))
        lp = _component_lp(cost[inside], ends, bound[own], floor[inside], algorithm)
        spent = time.perf_counter() - begun
        answer = lp.solve(None if time_limit is None else max(0.01, time_limit - spent))
        if answer.primal is None or not answer.optimal:
            msg = f"HiGHS ended with {answer.status!r} on the artifact's LP of {len(inside)} rows"
            raise SolverError(msg)
        rows = np.maximum(answer.primal.reshape(len(inside), -1), 0.0)
        matrix[inside] = rows / rows.sum(axis=1, keepdims=True)
    return matrix, len(i) // 2, int(parts)


def _component_lp(
    cost: FloatArray,
    ends: IntArray,
    bound: FloatArray,
    floor: FloatArray,
    algorithm: Literal["simplex", "ipm"],
) -> Lp:
    """z_i <= exp(b) z_j for every directed pair (i, j) and output, rows that sum to 1."""
    count, outputs = cost.shape
    rows = len(bound) * outputs
    own, other = (ends[:, :, None] * outputs + np.arange(outputs)).reshape(2, -1)
    scale = np.exp(-0.5 * bound).repeat(outputs)
    place = np.arange(rows)
    privacy = csr_array(
        (
            np.concatenate([scale, -1 / scale]),
            (np.concatenate([place, place]), np.concatenate([own, other])),
        ),
        shape=(rows, cost.size),
    )
    return Lp(
        cost.ravel() / cost_scale(cost),
        csr_array(vstack([sum_rows(count, outputs), privacy])),
        np.concatenate([np.ones(count), np.full(rows, -np.inf)]),
        np.concatenate([np.ones(count), np.zeros(rows)]),
        lower=floor.repeat(outputs),
        algorithm=algorithm,
    )


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
