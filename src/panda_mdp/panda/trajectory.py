"""A user who reports a sequence of records: anchors redrawn, reused or extended, and the total.

Two sequences x, x' of records release the same sets and reports with a log-ratio of at most
sum_t epsilon_t d(x_t, x'_t), epsilon_t the cost of step t. Hence (sum of the epsilon_t) times the
largest distance, and (the largest epsilon_t) times the sum of the distances; deltas add.

Whether anchors are redrawn, reused or extended at a step must be fixed in advance: a user who
redraws because the record left the anchors' region tells just that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from panda_mdp.errors import MethodError
from panda_mdp.panda.anpo import AnchorTable, solve_anchors
from panda_mdp.panda.audit import report_epsilon
from panda_mdp.panda.options import source_of
from panda_mdp.panda.result import PandaResult
from panda_mdp.panda.run import check_users
from panda_mdp.privacy.guarantee import Guarantee

Policy = Literal["redraw", "reuse", "extend"]


@dataclass(frozen=True)
class Step:
    """One report: what was done about the anchors, how many there are now, and what it cost."""

    policy: Policy
    anchors: int
    cost: Guarantee


@dataclass(frozen=True)
class Trajectory:
    """The steps of a sequence and their total cost. Holds no record and no anchor set."""

    steps: tuple[Step, ...]

    @property
    def against_largest(self) -> Guarantee:
        """Per unit of the largest distance between the two sequences: costs add."""
        epsilon = sum(step.cost.epsilon for step in self.steps)
        return Guarantee(epsilon, self._delta, self.steps[0].cost.unit)

    @property
    def against_sum(self) -> Guarantee:
        """Per unit of the sum of distances along the sequences: the largest cost counts."""
        epsilon = max(step.cost.epsilon for step in self.steps)
        return Guarantee(epsilon, self._delta, self.steps[0].cost.unit)

    @property
    def _delta(self) -> float:
        return min(1.0, sum(step.cost.delta for step in self.steps))


def trajectory(
    run: PandaResult,
    records: npt.ArrayLike,
    policy: Policy | Sequence[Policy],
    *,
    seed: int | None = None,
) -> Trajectory:
    """Account for a sequence of records (simulation only) under a run's selection and table.

    `policy` is public: one word for all steps after the first, or one per step. "redraw" draws a
    new set for every record and costs the run's whole guarantee each time. "reuse" keeps the set:
    no cost for anchors, but records may be far from it, so the report's cost is the audited one
    of that set over all pairs of records, infinite in the worst case and then said. "extend" draws
    for the new record and adds to the set: the cost of a draw, and the audited report.
    """
    if run.guarantee is None:
        msg = "this run has no guarantee, so neither has a trajectory under it"
        raise MethodError(msg)
    sequence = check_users(run.problem, records)
    words: list[Policy]
    if isinstance(policy, str):
        words = ["redraw", *[policy] * (len(sequence) - 1)]
    else:
        words = list(policy)
    if len(words) != len(sequence) or words[0] != "redraw":
        msg = f"{len(sequence)} records need as many policies, the first 'redraw'; got {words}"
        raise MethodError(msg)
    bits = source_of(seed)
    table = full_table(run)
    unit = run.problem.domain.unit
    anchors = np.empty(0, dtype=np.int64)
    steps: list[Step] = []
    for record, word in zip(sequence, words, strict=True):
        if word == "redraw":
            anchors = run.selection.draw(run.problem.domain, int(record), bits)
            cost = run.guarantee
        elif word in ("reuse", "extend"):
            choice = 0.0
            if word == "extend":
                fresh = run.selection.draw(run.problem.domain, int(record), bits)
                anchors = np.union1d(anchors, fresh)
                choice = selection_epsilon(run)
            cost = Guarantee(choice + report_epsilon(run, anchors, table), 0.0, unit)
        else:
            msg = f"policy is {word!r}; choose 'redraw', 'reuse' or 'extend'"
            raise MethodError(msg)
        steps.append(Step(word, len(anchors), cost))
    return Trajectory(tuple(steps))


def full_table(run: PandaResult) -> AnchorTable:
    """A table with a row for every anchor that can be drawn."""
    if run.ball is not None or run.full_plan is None:
        return run.tables[0]
    plan = run.full_plan
    if len(run.tables) == 1 and len(run.tables[0].anchors) == len(plan.anchors):
        return run.tables[0]
    options = run.options
    table, _ = solve_anchors(
        run.problem,
        plan.anchors,
        plan.budgets,
        np.asarray(run.problem.prior[plan.anchors]),
        solver=options.solver,
        gap=options.gap,
        time_limit=options.time_limit,
    )
    return table


def selection_epsilon(run: PandaResult) -> float:
    """What one draw of anchors costs per unit of distance, at its supremum."""
    if run.ball is not None:
        return run.ball.mechanism.epsilon
    if run.full_plan is None:
        msg = "the cost of a draw is not known for this run"
        raise MethodError(msg)
    return run.full_plan.feasibility.cost.rate
