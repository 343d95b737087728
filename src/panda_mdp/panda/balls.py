"""A run of PAnDA with ball anchors: one table over the domain, a ball for every user."""

from __future__ import annotations

import numpy as np

from panda_mdp.base.arrays import IntArray
from panda_mdp.errors import MethodError, PhaseOneCostError, ShortfallError
from panda_mdp.panda.anpo import AnchorTable, relaxed_bound, solver_of
from panda_mdp.panda.ball import BallAnchors, BallLaw, extend_rows
from panda_mdp.panda.options import Clock, Options
from panda_mdp.panda.result import PandaResult
from panda_mdp.panda.surrogate import surrogates
from panda_mdp.privacy.audit import audit_weights
from panda_mdp.privacy.guarantee import Guarantee, compose
from panda_mdp.privacy.quantise import quantise
from panda_mdp.privacy.sampler import BitSource
from panda_mdp.problem import Problem
from panda_mdp.table.mechanism import Mechanism

SHARES = (1.0, 0.9, 0.8, 0.75, 0.7, 0.6, 0.5)
"""Shares of eps - eps_1 that a table with extended rows is tried at; 0.5 is always enough."""
MOST_EXTENDED = 2_000
"""Every ball's extension is audited over all pairs, which is for domains of this size."""


def run_balls(
    problem: Problem,
    records: IntArray,
    selection: BallAnchors,
    delta: float,
    options: Options,
    bits: BitSource,
    clock: Clock,
    *,
    seeded: bool,
    sets: tuple[IntArray, ...] | None = None,
    table: Mechanism | None = None,
) -> PandaResult:
    """Both phases. The table is public and the same for everyone; only the ball is drawn.

    `sets` and `table` are those of a run before, where it goes on from one.
    """
    unit = problem.domain.unit
    if not selection.epsilon < problem.epsilon:
        msg = (
            f"the centre alone costs {selection.epsilon:g} per {unit} and epsilon is "
            f"{problem.epsilon:g}: nothing is left for the report; give BallAnchors a smaller one"
        )
        raise PhaseOneCostError(msg, value=selection.epsilon, limit=problem.epsilon)
    if selection.outside == "nearest" and selection.delta > delta:
        msg = (
            f"a ball misses its user's record with probability up to {selection.delta:g} and "
            f"delta is {delta:g}; give BallAnchors the smaller delta"
        )
        raise ShortfallError(msg, value=selection.delta, limit=delta)
    law = selection.on(problem.domain)
    clock.lap("centres and radius")
    nearest = selection.outside == "nearest"
    if table is None and nearest:
        table = ball_table(problem, selection.table_epsilon(problem.epsilon), options)
    elif table is None:
        table = extended_table(problem, law, selection.epsilon, options)
    left = problem.epsilon - selection.epsilon
    second = Guarantee(left, selection.delta if nearest else 0.0, unit)
    clock.lap(f"table over the domain ({options.solver})")
    if sets is None:
        sets = tuple(selection.draw(problem.domain, int(record), bits) for record in records)
    clock.lap("draw balls")
    weights = np.stack(
        [
            ball_row(problem, table, chosen, int(record), selection.outside)
            for record, chosen in zip(records, sets, strict=True)
        ]
    )
    everyone = np.arange(problem.size)
    union = np.unique(np.concatenate(sets))
    prior = problem.prior[union]
    prior = prior if prior.sum() > 0 else np.ones(len(union))
    losses = (problem.loss[union] * table.matrix[union]).sum(axis=1)
    bound = None
    if options.relaxed:
        bound = relaxed_bound(problem, union, prior, gap=options.gap, time_limit=options.time_limit)
        clock.lap("relaxed AnPO")
    first = Guarantee(selection.epsilon, 0.0, unit)
    return PandaResult(
        problem=problem,
        selection=selection,
        delta=delta,
        anchor_sets=sets,
        tables=(AnchorTable(everyone, everyone, table),),
        loss=float((problem.loss[records] * (weights / 2.0**62)).sum(axis=1).mean()),
        anchor_loss=float(prior @ losses / prior.sum()),
        lower_bound=bound,
        guarantee=compose(first, second),
        reasons=(),
        stages=tuple(clock.stages),
        seeded=seeded,
        options=options,
        ball=law,
        details={
            "radius": law.radius,
            "centre_epsilon": law.mechanism.audit.epsilon,
            "table_epsilon": table.epsilon,
            "missed": float(law.missed.max()),
            "expected_anchors": law.expected_size(problem.prior),
        },
        _weights=weights,
        _records=records,
    )


def ball_table(problem: Problem, epsilon: float, options: Options) -> Mechanism:
    """The domain's table at eps_2."""
    solve = solver_of(options.solver)
    # d(x, s(x')) <= 2 d(x, x') relies on the triangle inequality: up to rounding, or up to the
    # 1e-9 that a given matrix may break it by.
    slack = 4e-9 if problem.domain.metric.kind == "matrix" else 1e-12
    part = problem.with_epsilon(epsilon * (1 - slack))
    return solve(part, options.gap, time_limit=options.time_limit, initial=None)


def ball_row(
    problem: Problem, table: Mechanism, ball: IntArray, record: int, outside: str
) -> IntArray:
    """The integer row that a user reports from: own, nearest inside, or extended."""
    at = int(np.searchsorted(ball, record))
    if at < len(ball) and ball[at] == record:
        return np.asarray(table.weights[record])
    if outside == "nearest":
        nearest = ball[surrogates(problem.domain, ball, np.array([record]))[0]]
        return np.asarray(table.weights[nearest])
    rows = extend_rows(problem.domain, table.matrix, ball, table.epsilon)
    return np.asarray(quantise(rows[record : record + 1])[0])


def extended_table(problem: Problem, law: BallLaw, epsilon: float, options: Options) -> Mechanism:
    """The table at the largest share of eps - eps_1 for which every ball's extension passes.

    Audited over all pairs of records for every ball, so the report costs eps - eps_1 whatever
    ball was drawn and wherever the record lies: no delta.
    """
    if problem.size > MOST_EXTENDED:
        msg = (
            f"outside='extend' audits every ball over all pairs and takes at most "
            f"{MOST_EXTENDED:,} records, not {problem.size:,}; use outside='nearest'"
        )
        raise MethodError(msg)
    left = problem.epsilon - epsilon
    for share in SHARES:
        table = ball_table(problem, share * left, options)
        if extensions_pass(problem, table, law, left):
            return table
    msg = "no extension passed the audit, though half the budget always should; please report this"
    raise MethodError(msg)


def _balls(law: BallLaw) -> list[IntArray]:
    """All different balls that leave something outside."""
    seen: dict[bytes, IntArray] = {}
    for k in range(len(law.centres)):
        ball = law.ball(k)
        if len(ball) < law.domain.size:
            seen[ball.tobytes()] = ball
    return list(seen.values())


def extensions_pass(problem: Problem, table: Mechanism, law: BallLaw, limit: float) -> bool:
    """Whether the rows of every ball, extended to all records, are `limit`-mDP by audit."""
    for ball in _balls(law):
        weights = quantise(extend_rows(problem.domain, table.matrix, ball, table.epsilon))
        weights[ball] = table.weights[ball]
        if not audit_weights(problem.domain, problem.outputs, weights, limit).holds:
            return False
    return True
