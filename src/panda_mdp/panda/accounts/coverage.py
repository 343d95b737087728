"""Whether parameters fit (epsilon, delta), found out before anything is computed for all pairs.

Three conditions of the paper's argument are necessary for every pair of records:

- the cost of Phase I is within epsilon: eps_bar(x, x') <= epsilon;
- an anchor within the radius exists often enough: 1 - h(infinity) <= delta (Proposition 4);
- the records that the estimated margin covers hold the users' records often enough:
  coverage >= 1 - delta (Proposition 5).

Each is evaluated exactly over the whole domain; none looks at a user's record.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.errors import CoverageError, InfeasibleError, PhaseOneCostError, ShortfallError
from panda_mdp.panda.accounts.leakage import WorstLeakage, worst_leakage
from panda_mdp.panda.accounts.quantiles import cost_table
from panda_mdp.panda.selection.law import AnchorLaw
from panda_mdp.space.domain import Domain

REMEDY = (
    "calibrate(problem, delta) shows what fits; a sparse public candidate set and a smaller rate "
    "lower the cost; optimal(problem) needs no anchors at all; study_panda(...) computes it all "
    "the same, without a guarantee. This call works: "
    "panda(problem, users, BallAnchors({centre:g}), delta={delta:g})"
)
CENTRE_SHARE = 0.3
"""Share of epsilon for the centre in the call that the refusal ends with."""


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
        errors: list[InfeasibleError] = []
        if self.cost.rate > self.epsilon:
            errors.append(self._cost_error())
        if self.shortfall > self.delta:
            errors.append(self._shortfall_error())
        if self.uncovered > self.delta:
            errors.append(self._coverage_error())
        return tuple(errors)

    @property
    def fits(self) -> bool:
        """Whether all conditions hold."""
        return not self.problems

    @property
    def failure(self) -> InfeasibleError | None:
        """The first condition that fails, with the others and what to do; None where all hold."""
        problems = self.problems
        if not problems:
            return None
        first = problems[0]
        also = "".join(f" Also: {other}." for other in problems[1:])
        remedy = REMEDY.format(centre=CENTRE_SHARE * self.epsilon, delta=self.delta)
        msg = f"{first}.{also} What to do: {remedy}"
        return type(first)(msg, value=first.value, limit=first.limit, pair=first.pair)

    def _cost_error(self) -> PhaseOneCostError:
        x, x2 = self.cost.pair
        msg = (
            f"Phase I costs {self.cost.rate:.4g} per {self.unit} between records {x} and {x2}, "
            f"{self.cost.distance:.4g} {self.unit} apart, and epsilon is {self.epsilon:g}: the "
            "choice of anchors alone tells more than the whole budget allows. The cost is a sum "
            f"over the candidates within the radius ({self.near:.1f} on average), so it grows "
            "with the density of the domain"
        )
        return PhaseOneCostError(msg, value=self.cost.rate, limit=self.epsilon, pair=self.cost.pair)

    def _shortfall_error(self) -> ShortfallError:
        x, x2 = self.shortfall_pair
        msg = (
            f"with probability {self.shortfall:.4g} record {x} or {x2} selects no anchor within "
            f"the radius, and delta is {self.delta:g}: no safety margin suffices. An alpha nearer "
            "to 1 or a larger radius lowers it"
        )
        return ShortfallError(msg, value=self.shortfall, limit=self.delta, pair=self.shortfall_pair)

    def _coverage_error(self) -> CoverageError:
        a, a2 = self.uncovered_pair
        msg = (
            f"the {self.neighbours} records nearest to anchors {a} and {a2} miss the users' "
            f"records with probability {self.uncovered:.4g}, and delta is {self.delta:g}: the "
            "estimated margin does not cover them. A larger `neighbours` covers more"
        )
        return CoverageError(msg, value=self.uncovered, limit=self.delta, pair=self.uncovered_pair)


def feasibility(
    law: AnchorLaw,
    epsilon: float,
    delta: float,
    prior: FloatArray,
    neighbours: int,
    delta_selection: float = 0.0,
) -> Feasibility:
    """Evaluate the conditions over all records and all candidates of a domain."""
    cost = _worst_quantile(law, delta_selection) if delta_selection > 0 else worst_leakage(law)
    rows = law.all_rows
    x, x2 = _two_largest(rows.missed)
    q, q2 = float(rows.missed[x]), float(rows.missed[x2])
    windows = nearest_records(law.domain, law.candidates, neighbours)
    missing = uncovered(law, law.candidates, windows, prior)
    a, a2 = _two_largest(missing) if len(missing) > 1 else (0, 0)
    u, u2 = float(missing[a]), float(missing[a2])
    return Feasibility(
        epsilon=epsilon,
        delta=delta,
        unit=law.domain.unit,
        cost=cost,
        shortfall=q + q2 - q * q2,
        shortfall_pair=(min(x, x2), max(x, x2)),
        uncovered=u + u2 - u * u2,
        uncovered_pair=(int(law.candidates[min(a, a2)]), int(law.candidates[max(a, a2)])),
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
    order = np.argsort(rows.anchor, kind="stable")
    begin = np.searchsorted(rows.anchor[order], anchors, side="left")
    end = np.searchsorted(rows.anchor[order], anchors, side="right")
    owner = rows.owner
    out = np.empty(len(anchors))
    covered = np.zeros(law.domain.size, dtype=bool)
    for k, window in enumerate(windows):
        entries = order[begin[k] : end[k]]
        near = owner[entries]
        weights = prior[near] * rows.probability[entries]
        covered[window] = True
        outside = float(weights[~covered[near]].sum())
        covered[window] = False
        known = np.union1d(near, window)
        far = max(0.0, 1.0 - float(prior[known].sum())) if len(known) < len(prior) else 0.0
        total = float(weights.sum()) + law.tail * max(0.0, 1.0 - float(prior[near].sum()))
        # A prior that gives the anchor's selectors no weight at all covers nothing.
        out[k] = min(1.0, (outside + law.tail * far) / total) if total > 0 else 1.0
    return out


def _worst_quantile(law: AnchorLaw, delta: float) -> WorstLeakage:
    distance = law.domain.distances()
    rates = cost_table(law, law.all_rows, distance, delta)
    np.fill_diagonal(distance, np.inf)
    rates /= distance
    i, j = divmod(int(rates.argmax()), len(rates))
    return WorstLeakage(float(rates[i, j]), (min(i, j), max(i, j)), float(distance[i, j]))


def _two_largest(values: FloatArray) -> tuple[int, int]:
    order = np.argsort(-values, kind="stable")[:2]
    return int(order[0]), int(order[1])
