"""A user who reports a sequence of records: anchors redrawn, reused or extended, and the total.

Two sequences x, x' of records release the same sets and reports with a log-ratio of at most
sum_t epsilon_t d(x_t, x'_t), epsilon_t the cost of step t. Hence (sum of the epsilon_t) times the
largest distance, and (the largest epsilon_t) times the sum of the distances; deltas add.

Redrawing has a guarantee beforehand. A set that is reused or extended was drawn for another
record, so nothing is promised beforehand: what can be said is what the sets at hand cost, and that
is another type, `Observed`, which is no guarantee. Whether anchors are redrawn, reused or extended
at a step must be fixed in advance: a user who redraws because the record left the anchors' region
tells just that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from panda_mdp.errors import MethodError
from panda_mdp.panda.audit import audit_set, report_epsilon, set_epsilon
from panda_mdp.panda.options import check_users, source_of
from panda_mdp.panda.result import PandaResult, PandaRun
from panda_mdp.privacy.guarantee import Guarantee

Policy = Literal["redraw", "reuse", "extend"]


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
class Observed:
    """What one step cost with the set at hand: known after the draw, NOT a guarantee."""

    policy: Policy
    anchors: int
    epsilon: float
    """The largest loss per unit of distance over all pairs of records, whatever the report."""


@dataclass(frozen=True)
class ObservedTrajectory:
    """What the steps of a sequence cost with the sets at hand. Holds no record and no set."""

    steps: tuple[Observed, ...]
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


def trajectory(run: PandaResult, records: npt.ArrayLike, policy: Policy = "redraw") -> Trajectory:
    """What is promised to a user who draws anew for each of a sequence of records.

    Every step costs the whole guarantee of the run. Other policies have no guarantee beforehand:
    `observed_trajectory` says what they cost once sets are drawn.
    """
    if policy != "redraw":
        msg = (
            f"policy is {policy!r}, and a set that was drawn for another record promises nothing; "
            "observed_trajectory says what it costs once it is drawn"
        )
        raise MethodError(msg)
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
        msg = f"{len(sequence)} records need as many policies, the first 'redraw'; got {words}"
        raise MethodError(msg)
    if not set(words) <= {"redraw", "reuse", "extend"}:
        msg = f"policies are {words}; choose 'redraw', 'reuse' or 'extend'"
        raise MethodError(msg)
    bits, scheme = source_of(seed), run.scheme
    table = scheme.whole_table()
    anchors = np.empty(0, dtype=np.int64)
    steps: list[Observed] = []
    for record, word in zip(sequence, words, strict=True):
        choice = 0.0
        if word != "reuse":
            fresh = scheme.draw(int(record), bits)
            anchors = fresh if word == "redraw" else np.union1d(anchors, fresh)
            choice = set_epsilon(scheme, fresh)
        if word == "redraw":
            epsilon = audit_set(scheme, anchors, table).epsilon
        else:
            epsilon = choice + report_epsilon(scheme, anchors, table)
        steps.append(Observed(word, len(anchors), epsilon))
    return ObservedTrajectory(tuple(steps), run.problem.domain.unit)
