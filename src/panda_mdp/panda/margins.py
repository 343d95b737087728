"""The paper's Phase II: safety margins of surrogates, and what they leave to spend.

For true records x, x' with surrogates a, a' the candidate margin is

    Delta(a, a') = [eps d(a, a') - L(a, a')] - [eps d(x, x') - L(x, x')],

L the leakage in nats. h(xi) is the probability, over two users' independent draws, of surrogates
within the radius with Delta <= xi; the margin is the smallest xi with h(xi) >= 1 - delta
(Proposition 4, Property 1). It is summed from the failure side, 1 - h(infinity) = q + q' - q q'
first, then the largest Delta down, so that delta = 1e-7 is compared with sums of that size and not
with 1 minus something.

Three conditions of that argument are necessary for every pair of records, and are evaluated exactly
over the whole domain before anything is computed for all pairs; none looks at a user's record:

- the cost of Phase I is within epsilon: eps_bar(x, x') <= epsilon;
- an anchor within the radius exists often enough: 1 - h(infinity) <= delta (Proposition 4);
- the records that the estimated margin covers hold the users' records often enough:
  coverage >= 1 - delta (Proposition 5).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from panda_mdp.base.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    RebuiltOnCopy,
    Stages,
    frozen,
    stopwatch,
)
from panda_mdp.base.threads import check_time
from panda_mdp.errors import (
    CoverageError,
    InfeasibleError,
    MethodError,
    PhaseOneCostError,
    ShortfallError,
)
from panda_mdp.panda.certificate import MOST_RECORDS, trim
from panda_mdp.panda.law import AnchorLaw
from panda_mdp.panda.leakage import WorstLeakage, cost_table, worst_leakage
from panda_mdp.panda.selection import (
    CENTRE_SHARE,
    POSITIVE,
    BudgetShares,
    budget_shares,
    check_delta,
)
from panda_mdp.problem import Problem, check_number
from panda_mdp.space.domain import Domain

REMEDY = (
    "calibrate(problem, delta) shows what fits; a sparse public candidate set and a smaller rate "
    "lower the cost; optimal(problem) needs no anchors at all; study_panda(...) computes it all "
    "the same, without a guarantee. This call works: "
    "panda(problem, users, BallAnchors({centre:g}))"
)


@dataclass(frozen=True)
class Feasibility:
    """The three conditions over a whole domain: the worst value of each, its limit and pair."""

    epsilon: float
    delta: float
    unit: str
    cost: WorstLeakage
    """Largest cost of Phase I per unit of distance."""
    shortfall: float
    """Largest probability that one of two records has no anchor within the radius."""
    shortfall_pair: tuple[int, int]
    uncovered: float
    """Largest probability that the covered records miss one of two users, given their anchors."""
    uncovered_pair: tuple[int, int]
    neighbours: int
    near: float
    """Candidates within the radius of a record, on average."""

    @property
    def problems(self) -> tuple[InfeasibleError, ...]:
        """Every condition that fails, as the error that says so; empty where all hold."""
        x, x2 = self.cost.pair
        cost = (
            f"Phase I costs {self.cost.rate:.4g} per {self.unit} between records {x} and {x2}, "
            f"{self.cost.distance:.4g} {self.unit} apart, and epsilon is {self.epsilon:g}: the "
            "choice of anchors alone tells more than the whole budget allows. The cost is a sum "
            f"over the candidates within the radius ({self.near:.1f} on average), so it grows "
            "with the density of the domain"
        )
        x, x2 = self.shortfall_pair
        shortfall = (
            f"with probability {self.shortfall:.4g} record {x} or {x2} selects no anchor within "
            f"the radius, and delta is {self.delta:g}: no safety margin suffices. An alpha nearer "
            "to 1 or a larger radius lowers it"
        )
        a, a2 = self.uncovered_pair
        coverage = (
            f"the {self.neighbours} records nearest to anchors {a} and {a2} miss the users' "
            f"records with probability {self.uncovered:.4g}, and delta is {self.delta:g}: the "
            "estimated margin does not cover them. A larger `neighbours` covers more"
        )
        conditions: tuple[tuple[type[InfeasibleError], str, float, float, tuple[int, int]], ...] = (
            (PhaseOneCostError, cost, self.cost.rate, self.epsilon, self.cost.pair),
            (ShortfallError, shortfall, self.shortfall, self.delta, self.shortfall_pair),
            (CoverageError, coverage, self.uncovered, self.delta, self.uncovered_pair),
        )
        return tuple(
            kind(text, value=value, limit=limit, pair=pair)
            for kind, text, value, limit, pair in conditions
            if value > limit
        )

    @property
    def fits(self) -> bool:
        """Whether all conditions hold."""
        return not self.problems

    @property
    def failure(self) -> InfeasibleError | None:
        """The first condition that fails, with the others and what to do; None where all hold."""
        if self.fits:
            return None
        first, *others = self.problems
        also = "".join(f" Also: {other}." for other in others)
        remedy = REMEDY.format(centre=CENTRE_SHARE * self.epsilon)
        msg = f"{first}.{also} What to do: {remedy}"
        return type(first)(msg, value=first.value, limit=first.limit, pair=first.pair)


def feasibility(
    law: AnchorLaw,
    epsilon: float,
    delta: float,
    prior: FloatArray,
    neighbours: int,
) -> Feasibility:
    """Evaluate the conditions over all records and all candidates of a domain."""
    rows = law.all_rows
    windows = nearest_records(law.domain, law.candidates, neighbours)
    missing = uncovered(law, law.candidates, windows, prior)
    shortfall, records = _either_of_two(rows.missed)
    unseen, anchors = _either_of_two(missing)
    return Feasibility(
        epsilon=epsilon,
        delta=delta,
        unit=law.domain.unit,
        cost=worst_leakage(law),
        shortfall=shortfall,
        shortfall_pair=records,
        uncovered=unseen,
        uncovered_pair=(int(law.candidates[anchors[0]]), int(law.candidates[anchors[1]])),
        neighbours=min(neighbours, law.domain.size),
        near=len(rows.anchor) / len(rows),
    )


def nearest_records(domain: Domain, anchors: IntArray, count: int) -> IntArray | None:
    """S_a: the `count` records nearest to each anchor, itself included, (n, count).

    None stands for all records.
    """
    if count >= domain.size:
        return None
    if count == 1:
        return anchors[:, None]
    others = domain.neighbours(count - 1)[0][anchors]
    return np.concatenate([anchors[:, None], others], axis=1)


def uncovered(
    law: AnchorLaw, anchors: IntArray, windows: IntArray | None, prior: FloatArray
) -> FloatArray:
    """1 - Pr[X in S_a | a selected] of each anchor, by Bayes (Eq. 38 and 39 of the paper).

    Summed over the records that are not covered, so that 1e-7 survives rounding.
    """
    if windows is None:
        return np.zeros(len(anchors))
    rows = law.all_rows
    size = law.domain.size
    near = scipy.sparse.csr_array((rows.probability, rows.anchor, rows.start), shape=(size, size))
    columns = near.tocsc()
    out = np.empty(len(anchors))
    for k, (anchor, window) in enumerate(zip(anchors, windows, strict=True)):
        check_time()
        entries = slice(columns.indptr[anchor], columns.indptr[anchor + 1])
        selected = np.full(len(prior), law.tail)
        selected[columns.indices[entries]] = columns.data[entries]
        total = prior @ selected
        selected[window] = 0.0
        # A prior that gives the anchor's selectors no weight at all covers nothing.
        out[k] = min(1.0, (prior @ selected) / total) if total > 0 else 1.0
    return out


def either(values: FloatArray) -> FloatArray:
    """1 - (1 - u)(1 - u') for all pairs."""
    return values[:, None] + values - values[:, None] * values


def _either_of_two(values: FloatArray) -> tuple[float, tuple[int, int]]:
    """The largest 1 - (1 - u)(1 - u') over two entries, and which they are, ascending."""
    pair = np.argsort(-values, kind="stable")[[0, min(1, len(values) - 1)]]
    return float(either(values[pair])[0, 1]), (int(pair.min()), int(pair.max()))


@dataclass(frozen=True, eq=False)
class CandidateValues:
    """Candidate margins of one pair of records, largest first, with their probabilities."""

    delta: FloatArray
    """Delta of each surrogate pair, descending, in nats."""
    mass: FloatArray
    """v v' of each surrogate pair."""
    shortfall: float
    """The probability that one of the two has no anchor within the radius."""

    def margin(self, delta: float) -> float:
        """The smallest xi with failure at most delta; infinite where the shortfall exceeds it.

        May be negative where surrogates are nearer than the records.
        """
        check_delta(delta)
        if self.shortfall > delta:
            return float("inf")
        failing = self.shortfall + np.cumsum(self.mass)
        needed = int(np.searchsorted(failing, delta, side="right"))
        return float(self.delta[min(needed, len(self.delta) - 1)])


def candidate_values(law: AnchorLaw, x: int, x2: int, epsilon: float) -> CandidateValues:
    """All candidate margins of a pair of records: n_gamma(x) n_gamma(x') of them."""
    check_number(epsilon, "epsilon", POSITIVE)
    pair = law.rows(np.array([x, x2]))
    anchors, v = pair.surrogates
    involved = np.union1d([x, x2], anchors)
    distance = law.domain.distances(involved, involved)
    np.fill_diagonal(distance, 0.0)
    budgets = epsilon * distance - cost_table(law, law.rows(involved), distance)
    place = np.searchsorted(involved, anchors)
    (left, right), (mine, other) = (np.split(each, pair.start[1:2]) for each in (place, v))
    i, j = np.searchsorted(involved, [x, x2])
    values = (budgets[np.ix_(left, right)] - budgets[i, j]).ravel()
    # Equal values: the order within them does not change the margin.
    order = np.argsort(-values, kind="stable")
    mass = np.asarray(np.outer(mine, other).ravel()[order], dtype=float)
    return CandidateValues(values[order], mass, float(either(pair.missed)[0, 1]))


@dataclass(frozen=True, eq=False, repr=False)
class MarginPlan(RebuiltOnCopy):
    """Leakage, margins and budgets between all anchors of a set (Eq. 37 and 41 of the paper).

        budget(a, a') = max(0, eps d(a, a') - L(a, a') - xi_hat(a, a')),

    L the cost of Phase I in nats, xi_hat the largest margin h^-1(1 - delta_aa') over the pairs of
    records nearest to a and to a', delta_aa' = (delta - U) / (1 - U) with U the probability that
    those records miss the users' (Bayes). The budgets do not depend on anybody's record, nor on
    which anchors were drawn.

    Where `feasibility.fits` is false the numbers are for study: a pair whose coverage is out of
    reach uses delta itself (as if coverage were 1), and a pair whose shortfall exceeds delta uses
    the largest candidate margin. How many is in `uncovered_pairs` and `unreached_pairs`.
    """

    problem: Problem
    delta: float
    anchors: IntArray
    distance: FloatArray
    """(n, n), in the domain's unit."""
    leakage: FloatArray
    """(n, n) cost of Phase I, nats."""
    margin: FloatArray
    """(n, n) estimated margins, nats, not negative."""
    feasibility: Feasibility
    uncovered_pairs: int
    unreached_pairs: int
    stages: Stages

    @classmethod
    def over(
        cls,
        problem: Problem,
        law: AnchorLaw,
        anchors: npt.ArrayLike,
        delta: float = 1e-7,
        *,
        neighbours: int,
    ) -> MarginPlan:
        """Plan for the anchors of all users together.

        `neighbours` is Gamma, 5 to 20 in the paper. Says in `feasibility` what does not fit, and
        raises nothing for it.
        """
        spent = stopwatch()
        domain = problem.domain
        chosen = law.check(anchors)
        fit = feasibility(law, problem.epsilon, delta, problem.prior, neighbours)
        windows = nearest_records(domain, chosen, neighbours)
        covered = _in_space(domain, np.arange(domain.size) if windows is None else windows)
        rows = law.rows(covered)
        near, v = rows.surrogates
        involved = _in_space(domain, np.union1d(covered, near))
        if len(involved) > MOST_RECORDS:
            raise MethodError(
                f"the margins of these anchors involve {len(involved):,} records, and pairwise "
                f"tables are kept to {MOST_RECORDS:,}: choose a smaller tail probability, a public "
                "candidate set, fewer neighbours or fewer users"
            )
        distance = domain.distances(involved, involved)
        np.fill_diagonal(distance, 0.0)
        cost = cost_table(law, law.rows(involved), distance)
        place, among = np.empty((2, domain.size), np.int64)
        place[involved] = np.arange(len(involved))
        among[covered] = np.arange(len(covered))
        stages = spent("leakage")
        spent = stopwatch()
        missing = either(uncovered(law, chosen, windows, problem.prior))
        out_of_reach = missing > delta
        # delta < 1, so what is within reach misses less than everything.
        left = (delta - missing) / (1.0 - np.minimum(missing, delta))
        budgets = problem.epsilon * distance - cost
        margin, unreached = estimated_margins(
            np.where(out_of_reach, delta, left),
            None if windows is None else among[windows],
            (rows.start, place[near], v, rows.missed, budgets, place[covered]),
        )
        square = np.ix_(place[chosen], place[chosen])
        return cls(
            problem=problem,
            delta=delta,
            anchors=frozen(chosen),
            distance=frozen(distance[square]),
            leakage=frozen(cost[square]),
            margin=frozen(margin),
            feasibility=fit,
            uncovered_pairs=int(np.triu(out_of_reach, k=1).sum()),
            unreached_pairs=int(np.triu(unreached, k=1).sum()),
            stages=stages + spent("margins"),
        )

    @property
    def pair_count(self) -> int:
        """Pairs of anchors."""
        return len(self.anchors) * (len(self.anchors) - 1) // 2

    @cached_property
    def budgets(self) -> FloatArray:
        """What the table may spend between two anchors, (n, n), in nats; not yet a metric."""
        whole = self.problem.epsilon * self.distance
        table = trim(whole - (self.leakage + self.margin), whole)
        np.fill_diagonal(table, 0.0)
        return frozen(table)

    @cached_property
    def clipped(self) -> int:
        """Pairs of anchors whose budget was negative and became 0: their rows are equal."""
        left = self.problem.epsilon * self.distance - self.leakage - self.margin
        return int((np.triu(left, k=1) < 0).sum())

    @cached_property
    def shares(self) -> BudgetShares:
        """Average shares of eps d over pairs of anchors (section 4.4 of the paper)."""
        return budget_shares(self.problem.epsilon * self.distance, self.leakage, self.margin)


def _in_space(domain: Domain, records: IntArray) -> IntArray:
    """Distinct records in the order of tiles: neighbours in space become neighbours in memory."""
    return domain.tiles.order[np.isin(domain.tiles.order, records)]


def estimated_margins(
    deltas: FloatArray, windows: IntArray | None, tables: tuple[npt.NDArray[Any], ...]
) -> tuple[FloatArray, BoolArray]:
    """xi_hat of every pair of anchors at its own delta, and where the shortfall exceeds it.

    `windows` are the rows that each anchor covers, None for all; `tables` are those rows as the
    compiled loops take them. Margins fall in steps as delta grows. They are computed for all rows
    at the least and the largest delta; a pair of anchors whose two agree is done, the others are
    computed at their own delta, where only rows whose margins differ have to be looked at.
    """
    from panda_mdp.compute.numba import margins

    start, _, _, missed, _, _ = tables
    widest = max(1, int(np.diff(start).max()))
    most = deltas.max()
    lower = margins.margin_matrix(*tables, most, widest)
    if windows is None:
        # Everything is covered, so all deltas are equal and all windows are everything.
        everything = np.full(len(deltas), missed.max())
        return np.full_like(deltas, lower.max()), either(everything) > deltas
    upper = margins.margin_matrix(*tables, deltas.min(), widest)
    above, estimate = (_largest(_largest(table, windows).T, windows) for table in (upper, lower))
    pairs = np.nonzero(np.triu((estimate < above) & (deltas < most)))
    estimate[pairs] = estimate[pairs[::-1]] = margins.refine(
        *pairs, windows, deltas[pairs], estimate[pairs], upper, *tables, widest
    )
    return estimate, either(missed[windows].max(axis=1)) > deltas


def _largest(table: FloatArray, windows: IntArray) -> FloatArray:
    """max of table[x] over x in windows[a], for all a; of the transposed again, it is the maximum
    over pairs of both windows."""
    return reduce(np.maximum, (table[some] for some in windows.T))
