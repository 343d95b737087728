"""Users over time, in simulations: joining, leaving, manipulating, moving (section 3.1).

Nobody's guarantee depends on what others upload: budgets are fixed before anybody draws, every
table keeps them, and the certificate asks for no more. The loss may. Let H be the anchors of the
honest users, M what the others add, p the weights of anchors, c_a the losses of anchor a, z* the
public table over all candidates. AnPO minimises the sum over H + M of p_a c_a z_a, and z* is
feasible for it, because all candidates constrain it. A table within a gap g of the least then has

    sum_H p_a c_a z_a  <=  (1 + g) sum_{H + M} p_a c_a z*_a  -  sum_M p_a min_y c_a(y),

and every term of M adds to the right-hand side, so M = all other candidates bounds every adversary.
With a public table, tables for each user, or balls, no upload changes anybody's row at all.

Two sequences x, x' of records release the same sets and reports with a log-ratio of at most
sum_t epsilon_t d(x_t, x'_t), epsilon_t the cost of step t. Hence (sum of the epsilon_t) times the
largest distance, and (the largest epsilon_t) times the sum of the distances; deltas add. Redrawing
has a guarantee beforehand. A set that is reused or extended was drawn for another record, so
nothing is promised beforehand: what can be said is what the sets at hand cost, and that is another
type, `ObservedTrajectory`, which is no guarantee. Whether anchors are redrawn, reused or extended
at a step must be fixed in advance: a user who redraws because the record left the anchors' region
tells just that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.errors import MethodError
from panda_mdp.panda.audit import audit_set
from panda_mdp.panda.law import surrogates
from panda_mdp.panda.run import PandaResult, PandaRun
from panda_mdp.panda.selection import Start, check_choice, check_users, mean_loss, source_of
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.space.domain import Domain

R = TypeVar("R", bound=PandaRun)
Screen = Callable[[Domain, tuple[IntArray, ...]], BoolArray]
Policy = Literal["redraw", "reuse", "extend"]


def reoptimise(
    run: R,
    *,
    join: npt.ArrayLike = (),
    leave: npt.ArrayLike = (),
    upload: Mapping[int, npt.ArrayLike] | None = None,
    screen: Screen | None = None,
    seed: int | None = None,
) -> R:
    """The run after some users left or fell silent and others joined.

    `join` are true records of new users (simulation only), who draw anchors; `leave` are positions
    of users who are gone or did not answer. Those who stay keep their anchors, so Phase I costs
    them nothing more. The table is optimised again over the new union, from the old one as a start;
    with balls it stays as it is, since it serves everyone.

    `upload` replaces what users (by position) upload, as a manipulating user would; `screen` is
    the server's filter, which decides from the uploads alone whose anchors enter the union
    (`median_screen`, `distance_screen`). Whoever is screened out is treated as not answering.
    Neither changes anybody else's guarantee: budgets depend on no upload. What it may cost the
    others is at most `manipulation_bound`.
    """
    law, bits, sets = run.scheme.law, source_of(seed), dict(enumerate(run.anchor_sets))
    for position, anchors in (upload or {}).items():
        run.table_of(position)
        sets[position] = law.check(anchors)
    for departed in np.asarray(leave, dtype=np.int64).ravel():
        run.table_of(int(departed))
        sets.pop(int(departed), None)
    fresh = np.asarray(join)
    fresh = check_users(fresh, run.problem.size) if fresh.size else np.empty(0, np.int64)
    staying = [*sets.values(), *(law.draw(int(record), bits) for record in fresh)]
    records = np.concatenate([run._records[list(sets)], fresh])
    if screen is not None:
        passed = screen(run.problem.domain, tuple(staying))
        staying, records = [*compress(staying, passed)], records[passed]
    if not staying:
        raise MethodError("nobody is left; a run needs at least one user")
    seeded = run.seeded or seed is not None
    return type(run).over(run.scheme, records, tuple(staying), seeded=seeded, start=_rows_from(run))


def _rows_from(run: PandaRun) -> Start | None:
    """Rows of the old table for its anchors, of the nearest of them for new ones."""
    if len(run.tables) != 1:
        return None
    table, domain = run.tables[0], run.problem.domain
    return lambda anchors: table.matrix[surrogates(domain, table.anchors, anchors)]


def median_screen(factor: float = 5.0) -> Screen:
    """Keep users whose set is about as wide as others' (median-based filtering).

    The width of a set is its anchors' mean distance from its middle one; it may differ from the
    median over users by at most `factor` times the median difference (or a tenth of the median).
    """

    def screen(domain: Domain, sets: tuple[IntArray, ...]) -> BoolArray:
        widths = np.array([_distances_from_middle(domain, chosen).mean() for chosen in sets])
        middle = float(np.median(widths))
        usual = max(float(np.median(np.abs(widths - middle))), middle / 10)
        return np.asarray(np.abs(widths - middle) <= factor * usual)

    return screen


def distance_screen(limit: float, share: float = 0.0) -> Screen:
    """Keep users of whose anchors at most `share` lie beyond `limit` from their middle one.

    Distance-based outlier detection: independent selection with a small tail puts nearly all
    anchors within the radius of one record.
    """

    def screen(domain: Domain, sets: tuple[IntArray, ...]) -> BoolArray:
        beyond = [(_distances_from_middle(domain, chosen) > limit).mean() for chosen in sets]
        return np.asarray(np.array(beyond) <= share)

    return screen


def _distances_from_middle(domain: Domain, chosen: IntArray) -> FloatArray:
    """Distances of a set's anchors from the one with the least median distance to the others."""
    if len(chosen) == 0:
        return np.zeros(1)
    # A few hundred anchors are enough to find a middle.
    some = chosen[:: max(1, len(chosen) // 256)]
    distance = domain.distances(some, chosen)
    return np.asarray(distance[np.median(distance, axis=1).argmin()])


def manipulation_bound(run: PandaRun, honest: Sequence[int]) -> float:
    """The largest mean loss over honest users' anchors, whatever anybody else uploads.

    `honest` are positions of users. The mean is over the union of their anchors, weights and losses
    being AnPO's: those of Eq. 42, or of the records behind them (`weights="surrogate"`). Holds
    for runs whose table reached the gap that was asked for; where uploads have no influence it is
    the loss itself.

    >>> import panda_mdp as pm
    >>> domain = pm.Domain.from_vectors([[0.0], [1.0], [2.0], [3.0]])
    >>> problem = pm.Problem(domain, [0, 3], domain.distances(None, [0, 3]), epsilon=2.0)
    >>> alike = pm.BernoulliAnchors("exponential", 1 - 1e-3, 0.0, 1.0)
    >>> run = pm.panda(problem, [1, 2], alike, 0.01, pm.PandaOptions(pairs="public"), seed=1)
    >>> bool(manipulation_bound(run, [0]) < 2.0)
    True
    """
    if len(honest) == 0:
        raise MethodError("honest is empty; name the position of at least one honest user")
    own = np.unique(np.concatenate([run.anchor_sets[n] for n in honest]))
    scheme, problem = run.scheme, run.problem
    if scheme.options.pairs == "public" or scheme.objective(own) is None:
        return mean_loss(problem, run.tables[0], own)
    if scheme.options.pairs == "own":
        each = [mean_loss(problem, run.tables[n], run.anchor_sets[n]) for n in honest]
        return float(np.mean(each))
    public = scheme.whole_table
    weights, losses = scheme.objective(public.anchors)
    spent = (losses * public.matrix).sum(axis=1)
    others = ~np.isin(public.anchors, own)
    worst = weights @ ((1 + scheme.options.gap) * spent - losses.min(axis=1) * others)
    total = float(weights[~others].sum())
    return float(worst) / total if total > 0 else float(losses.max())


@dataclass(frozen=True)
class Trajectory:
    """A sequence whose anchors are redrawn at every step, and what is promised for it."""

    steps: int
    step: Guarantee
    """Of one step: anchors and report."""

    @property
    def against_largest(self) -> Guarantee:
        """Per unit of the largest distance between the two sequences: costs add."""
        return Guarantee(self.steps * self.step.epsilon, self._delta, self.step.unit)

    @property
    def against_sum(self) -> Guarantee:
        """Per unit of the sum of distances along the sequences: the largest cost counts."""
        return Guarantee(self.step.epsilon, self._delta, self.step.unit)

    @property
    def _delta(self) -> float:
        return min(1.0, self.steps * self.step.delta)


@dataclass(frozen=True)
class ObservedStep:
    """What one step cost with the set at hand: known after the draw, NOT a guarantee."""

    policy: Policy
    anchors: int
    epsilon: float
    """The largest loss per unit of distance over all pairs of records, whatever the report."""


@dataclass(frozen=True)
class ObservedTrajectory:
    """What the steps of a sequence cost with the sets at hand. Holds no record and no set."""

    steps: tuple[ObservedStep, ...]
    unit: str

    def __repr__(self) -> str:
        return (
            f"ObservedTrajectory({len(self.steps)} steps, observed epsilon "
            f"{self.against_largest:.6g} per {self.unit} of the largest distance; NO GUARANTEE)"
        )

    @property
    def against_largest(self) -> float:
        """Observed epsilon per unit of the largest distance: costs add."""
        return sum(step.epsilon for step in self.steps)

    @property
    def against_sum(self) -> float:
        """Observed epsilon per unit of the sum of distances: the largest cost counts."""
        return max(step.epsilon for step in self.steps)


def trajectory(run: PandaResult, records: npt.ArrayLike) -> Trajectory:
    """What is promised to a user who draws anew for each of a sequence of records.

    Every step costs the whole guarantee of the run. Other policies have no guarantee beforehand:
    `observed_trajectory` says what they cost once sets are drawn.
    """
    return Trajectory(len(check_users(records, run.problem.size)), run.guarantee)


def observed_trajectory(
    run: PandaRun,
    records: npt.ArrayLike,
    policy: Policy | Sequence[Policy],
    *,
    seed: int | None = None,
) -> ObservedTrajectory:
    """What a sequence of records (simulation only) costs with the sets that are drawn for it.

    `policy` is public: one word for all steps after the first, or one per step. "redraw" draws a
    new set, "reuse" stays with the last, "extend" draws and adds. Each step is the exact loss over
    all pairs of records: of set and report where the set is new, of the report where it is reused,
    of the new draw and the report where it is extended. Infinite where a record is outside.
    """
    sequence = check_users(records, run.problem.size)
    words = ["redraw", *[policy] * (len(sequence) - 1)] if isinstance(policy, str) else [*policy]
    if len(words) != len(sequence) or words[0] != "redraw":
        raise MethodError(
            f"{len(sequence)} records need as many policies, the first 'redraw'; got {words}"
        )
    for word in words:
        check_choice("policy", word, Policy)
    bits, scheme = source_of(seed), run.scheme
    table = scheme.whole_table
    anchors = np.empty(0, dtype=np.int64)
    steps: list[ObservedStep] = []
    for record, word in zip(sequence, words, strict=True):
        told = 0.0
        if word != "reuse":
            fresh = scheme.law.draw(int(record), bits)
            anchors = fresh if word == "redraw" else np.union1d(anchors, fresh)
            told = audit_set(scheme, fresh, table).selection_epsilon
        found = audit_set(scheme, anchors, table)
        epsilon = found.epsilon if word == "redraw" else told + found.report_epsilon
        steps.append(ObservedStep(word, len(anchors), epsilon))
    return ObservedTrajectory(tuple(steps), run.problem.domain.unit)
