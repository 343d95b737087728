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
from dataclasses import dataclass

import numpy as np
from scipy.cluster.vq import kmeans2
from scipy.sparse import csr_array, vstack
from scipy.sparse.csgraph import connected_components

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.errors import MethodError, SolverError
from panda_mdp.panda.accounts.composed import scan_pairs
from panda_mdp.panda.accounts.leakage import log_likelihoods
from panda_mdp.panda.selection.law import AnchorLaw, members, surrogates
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain
from panda_paper.settings.method_names import DECAYS, Decay

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
        if decay == "exponential":
            far = np.exp(-40 * RATE * radius)
        elif decay == "power":
            far = 1 / (1 + np.exp(10) * (radius + 1) ** (10 * RATE))
        else:
            far = 2 / (1 + np.exp(40 * RATE * radius))
        return cls(decay, radius, ALPHA * min(float(far), LARGEST_TAIL))

    def near(self, distance: FloatArray) -> FloatArray:
        """Probabilities within the radius."""
        if self.decay == "exponential":
            return np.asarray(ALPHA * np.exp(-0.4 * RATE * distance))
        if self.decay == "power":
            return np.asarray(ALPHA / (1 + 0.75 * distance**RATE))
        return np.asarray(2 * ALPHA / (1 + np.exp(0.8 * RATE * distance)))

    def on(self, domain: Domain) -> AnchorLaw:
        """The law of anchor sets on a domain."""
        return AnchorLaw(domain, self.radius, self.near, self.tail, None)


@dataclass(frozen=True)
class SetAudits:
    """What audits of drawn sets found: one user, set and report together, over all pairs."""

    sets: int
    epsilon: float
    """The largest loss per km over the sets and all pairs; infinite where an output gives away."""
    median_epsilon: float
    """The median over sets of each set's largest."""
    selection_epsilon: float
    """The largest loss per km of a set alone, before any report."""
    violated: float
    """Mean share of pairs of records whose loss exceeds epsilon d."""


@dataclass(frozen=True, eq=False)
class PublishedRun:
    """A run under published accounting. No mechanism: nothing to sample, nothing to save."""

    problem: Problem
    selection: PublishedSelection
    swapped: bool
    anchors: IntArray
    anchor_sets: tuple[IntArray, ...]
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
    true_loss: float
    """The average over the users' true records, through their nearest anchors."""
    constrained: int
    """Pairs of anchors that it constrains."""
    audits: SetAudits | None
    stages: tuple[tuple[str, float], ...]

    def __repr__(self) -> str:
        verdict = "not audited" if self.audits is None else f"audited {self.audits.epsilon:.4g}"
        return (
            f"PublishedRun({self.selection.decay}: {len(self.anchors)} anchors, claimed epsilon "
            f"{self.problem.epsilon:g}, {verdict}; PUBLISHED ACCOUNTING, NO GUARANTEE)"
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
    audited_sets: int = 8,
) -> PublishedRun:
    """Both phases as the artifact runs them, for given users (domain indices).

    `swapped` measures distances with latitude and longitude exchanged, as the artifact does.
    `weights` are those of its anchors' losses by position, uniform where None. `audited_sets` is
    the number of users whose set is audited over all pairs of records.
    """
    clock = _Clock()
    measured = problem.domain
    if swapped:
        measured = Domain.from_points(problem.domain.lon, problem.domain.lat)
    selection = PublishedSelection.of(decay, measured, city)
    law = selection.on(measured)
    generator = np.random.default_rng([seed, 3])
    drawn = generator.random((len(users), problem.size)) < law.dense(users)
    sets = tuple(np.flatnonzero(row) for row in drawn)
    anchors = np.flatnonzero(drawn.any(axis=0))
    if len(anchors) == 0:
        msg = "no user drew any anchor, so there is no table to compute; use more users"
        raise MethodError(msg)
    clock.lap("draw anchors")
    near = _Neighbours.of(law, anchors)
    leakage, margin = near.accounts(problem.epsilon, delta)
    distance = measured.distances(anchors, anchors)
    np.fill_diagonal(distance, 0.0)
    clock.lap("leakage and margins")
    share = np.full(len(anchors), 1 / len(anchors)) if weights is None else weights[: len(anchors)]
    share = share / share.sum()
    matrix, constrained = solve_near(
        problem.loss[anchors] * share[:, None], distance, leakage, margin, problem.epsilon, seed
    )
    clock.lap("LP")
    true_loss = _true_loss(problem, measured, users, sets, anchors, matrix)
    audits = None
    if audited_sets > 0:
        audits = audit_sets(problem, measured, law, sets[:audited_sets], anchors, matrix)
        clock.lap("audit")
    return PublishedRun(
        problem=problem,
        selection=selection,
        swapped=swapped,
        anchors=anchors,
        anchor_sets=sets,
        matrix=matrix,
        leakage=leakage,
        margin=margin,
        distance=distance,
        anchor_loss=float((problem.loss[anchors] * share[:, None] * matrix).sum()),
        true_loss=true_loss,
        constrained=constrained,
        audits=audits,
        stages=tuple(clock.stages),
    )


@dataclass(frozen=True, eq=False)
class _Neighbours:
    """Anchors, the records within half a radius of them, and those within a radius of these."""

    law: AnchorLaw
    anchors: IntArray
    involved: IntArray
    half_start: IntArray
    half: IntArray
    """Records within half a radius of each anchor, as positions in `involved`."""
    near_start: IntArray
    near: IntArray
    """Records within a radius of each of them, as positions in `involved`."""
    used: IntArray
    """Positions of anchors and of records within half a radius: leakage is known between these."""

    @classmethod
    def of(cls, law: AnchorLaw, anchors: IntArray) -> _Neighbours:
        rows = law.rows(anchors)
        inner = rows.distance < 0.5 * law.radius
        counts = np.bincount(rows.owner[inner], minlength=len(anchors))
        half = rows.anchor[inner]
        used = np.union1d(anchors, half)
        around = law.rows(used)
        involved = np.union1d(used, around.anchor)
        place = np.full(law.domain.size, -1, dtype=np.int64)
        place[involved] = np.arange(len(involved))
        # Lists for all that are involved; only those of `used` are ever read.
        sizes = np.zeros(len(involved), dtype=np.int64)
        sizes[place[used]] = np.diff(around.start)
        order = np.argsort(place[around.records[around.owner]], kind="stable")
        return cls(
            law,
            anchors,
            involved,
            np.concatenate([[0], np.cumsum(counts)]),
            place[half],
            np.concatenate([[0], np.cumsum(sizes)]),
            place[around.anchor][order],
            place[used],
        )

    def accounts(self, epsilon: float, delta: float) -> tuple[FloatArray, FloatArray]:
        """Leakage and margins between the anchors as the artifact computes them, in nats."""
        from panda_mdp.compute.numba.published import last_factor_leakage, second_largest_margins

        domain, used = self.law.domain, self.used
        dense = self.law.dense(self.involved[used])
        known = last_factor_leakage(np.ascontiguousarray(dense))
        distance = domain.distances(self.involved, self.involved)
        np.fill_diagonal(distance, 0.0)
        leaked = np.zeros_like(distance)
        leaked[np.ix_(used, used)] = known
        base = np.maximum(0.0, epsilon * distance - leaked)
        own = np.searchsorted(self.involved, self.anchors)
        surrogate = self._surrogate_law()
        margin = second_largest_margins(
            base, surrogate, self.half_start, self.half, self.near_start, self.near, 1 - delta
        )
        return leaked[np.ix_(own, own)], margin

    def _surrogate_law(self) -> FloatArray:
        """B: the probability that an involved record is the surrogate of an anchor's own place."""
        domain = self.law.domain
        everyone = np.arange(domain.size)
        table = np.empty((len(self.anchors), len(self.involved)))
        for n, anchor in enumerate(self.anchors):
            distance = domain.metric.pairs(np.full(domain.size, anchor), everyone)
            order = np.argsort(distance, kind="stable")
            w = self.law.dense(np.array([anchor]))[0]
            none_before = np.concatenate([[1.0], np.cumprod(1 - w[order])[:-1]])
            law = np.empty(domain.size)
            law[order] = w[order] * none_before
            table[n] = law[self.involved]
        return table


def solve_near(
    cost: FloatArray,
    distance: FloatArray,
    leakage: FloatArray,
    margin: FloatArray,
    epsilon: float,
    seed: int,
) -> tuple[FloatArray, int]:
    """The artifact's LP over anchors: constraints within 0.8 km, a floor for boundary anchors.

        z_i <= exp(b_ij) z_j,   b_ij = max(0, max(0, eps - eps_bar_ij) d_ij - xi_ij)

    Anchors of one of 25 clusters (k-means on rows of distances) get the smaller of b_ij and b_ji
    both ways. Boundary anchors, those nearer than 0.8 km to another cluster, get entries of at
    least 1e-4. Solved to optimality, one component of the 0.8 km graph at a time; the artifact's
    Benders loop stops at a gap of 10 %. Returns the table and the number of constrained pairs.
    """
    count, outputs = cost.shape
    budget = np.maximum(0.0, np.maximum(0.0, epsilon * distance - leakage) - margin)
    linked = (distance < NEAR_KM) & ~np.eye(count, dtype=bool)
    label = clusters(distance, seed)
    same = label[:, None] == label
    budget = np.where(same, np.minimum(budget, budget.T), budget)
    boundary = (linked & ~same).any(axis=1)
    parts, component = connected_components(linked.astype(np.int8), directed=False)
    matrix = np.empty((count, outputs))
    for part in range(parts):
        chosen = np.flatnonzero(component == part)
        square = np.ix_(chosen, chosen)
        matrix[chosen] = _solve_component(
            cost[chosen], linked[square], budget[square], boundary[chosen]
        )
    return matrix, int(linked.sum()) // 2


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


def _solve_component(
    cost: FloatArray, linked: BoolArray, budget: FloatArray, boundary: BoolArray
) -> FloatArray:
    count, outputs = cost.shape
    if count == 1:
        row = np.zeros((1, outputs))
        row[0, int(cost[0].argmin())] = 1.0
        return row
    from panda_mdp.compute.highs import Lp, cost_scale, sum_rows

    i, j = np.nonzero(linked)
    place = np.arange(outputs)
    own = (i[:, None] * outputs + place).ravel()
    other = (j[:, None] * outputs + place).ravel()
    limit = np.exp(budget[i, j])[:, None].repeat(outputs, axis=1).ravel()
    scale = 1 / np.sqrt(limit)
    rows = np.arange(len(own))
    shape = (len(own), count * outputs)
    privacy = csr_array(
        (
            np.concatenate([scale, -limit * scale]),
            (np.concatenate([rows, rows]), np.concatenate([own, other])),
        ),
        shape=shape,
    )
    lp = Lp(
        cost.ravel() / cost_scale(cost),
        csr_array(vstack([sum_rows(count, outputs), privacy])),
        np.concatenate([np.ones(count), np.full(len(own), -np.inf)]),
        np.concatenate([np.ones(count), np.zeros(len(own))]),
        lower=np.repeat(np.where(boundary, min(FLOOR, 1 / outputs), 0.0), outputs),
    )
    answer = lp.solve()
    if answer.primal is None or not answer.optimal:
        msg = f"HiGHS ended with {answer.status!r} on the artifact's LP of {count} anchors"
        raise SolverError(msg)
    table = np.maximum(answer.primal.reshape(count, outputs), 0.0)
    return np.asarray(table / table.sum(axis=1, keepdims=True))


def audit_sets(
    problem: Problem,
    measured: Domain,
    law: AnchorLaw,
    sets: tuple[IntArray, ...],
    anchors: IntArray,
    matrix: FloatArray,
) -> SetAudits:
    """Exact losses of drawn sets over all pairs of records, on right distances."""
    epsilons, alone, broken = [], [], []
    domain, epsilon = problem.domain, problem.epsilon
    pairs = domain.size * (domain.size - 1) / 2
    with np.errstate(divide="ignore"):
        logs = np.log(matrix)
    for chosen in (some for some in sets if len(some)):
        likelihood = log_likelihoods(law, law.all_rows, members(domain.size, chosen))
        row = np.searchsorted(anchors, chosen)[surrogates(measured, chosen)]
        used, row = np.unique(row, return_inverse=True)
        total = scan_pairs(domain, likelihood, row.astype(np.int64), logs[used], epsilon)
        nothing = np.zeros_like(logs[:1])
        first = scan_pairs(domain, likelihood, np.zeros_like(row), nothing, epsilon)
        epsilons.append(total[0])
        alone.append(first[0])
        broken.append(total[2] / pairs)
    if not epsilons:
        return SetAudits(0, float("nan"), float("nan"), float("nan"), float("nan"))
    return SetAudits(
        len(epsilons),
        float(max(epsilons)),
        float(np.median(epsilons)),
        float(max(alone)),
        float(np.mean(broken)),
    )


def _true_loss(
    problem: Problem,
    measured: Domain,
    users: IntArray,
    sets: tuple[IntArray, ...],
    anchors: IntArray,
    matrix: FloatArray,
) -> float:
    """The mean loss of the users' records; who has no anchor reports what is best blindly."""
    total = 0.0
    for user, chosen in zip(users, sets, strict=True):
        if len(chosen) == 0:
            total += float(problem.loss[user, problem.best_single_output])
            continue
        nearest = chosen[surrogates(measured, chosen, np.array([user]))[0]]
        row = matrix[np.searchsorted(anchors, nearest)]
        total += float(row @ problem.loss[user])
    return total / len(users)


class _Clock:
    def __init__(self) -> None:
        self.stages: list[tuple[str, float]] = []
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.stages.append((name, now - self._last))
        self._last = now
