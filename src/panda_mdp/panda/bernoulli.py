"""A run of PAnDA with independent selection: plan, certificate, AnPO, reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.errors import EmptyAnchorsError, InfeasibleError, SurrogateError
from panda_mdp.panda.anpo import AnchorTable, relaxed_bound, solve_anchors
from panda_mdp.panda.certify import Certificate, certify
from panda_mdp.panda.clustering import clustering_coefficient
from panda_mdp.panda.law import AnchorLaw
from panda_mdp.panda.options import Clock, Options
from panda_mdp.panda.plan import PandaPlan
from panda_mdp.panda.result import Clustering, PandaNoGuarantee, PandaResult
from panda_mdp.panda.selection import BernoulliAnchors
from panda_mdp.panda.surrogate import near_laws, surrogates
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.privacy.quantise import quantise
from panda_mdp.problem import Problem


@dataclass(frozen=True, eq=False)
class Promise:
    """What could be proved before anybody drew: a plan over all candidates, or why not."""

    plan: PandaPlan | None
    certificate: Certificate | None
    reasons: tuple[str, ...]


def promise(
    problem: Problem,
    selection: BernoulliAnchors,
    delta: float,
    options: Options,
    enforce: bool,
) -> Promise:
    """Check feasibility, plan over all candidates and certify the standard definition.

    With `enforce`, raises what does not fit; without it, the reasons are kept.
    """
    law = selection.on(problem.domain)
    try:
        plan = PandaPlan.over(
            problem,
            selection,
            law.candidates,
            delta,
            neighbours=options.neighbours,
            delta_selection=options.delta_selection,
        )
    except InfeasibleError as error:
        if enforce:
            raise
        return Promise(None, None, (str(error),))
    certificate = certify(law, problem.epsilon, delta, plan.budgets, options.delta_selection)
    try:
        certificate.check()
    except SurrogateError as error:
        if enforce:
            raise
        return Promise(plan, certificate, (str(error),))
    return Promise(plan, certificate, ())


def run_bernoulli(
    problem: Problem,
    records: IntArray,
    sets: tuple[IntArray, ...],
    selection: BernoulliAnchors,
    delta: float,
    options: Options,
    proved: Promise,
    clock: Clock,
    *,
    enforce: bool,
    seeded: bool,
    start: Callable[[IntArray], FloatArray] | None = None,
) -> PandaResult | PandaNoGuarantee:
    """Phase II for given anchor sets. The table depends on the sets, never on the records."""
    reasons = list(proved.reasons)
    empty = [n for n, chosen in enumerate(sets) if len(chosen) == 0]
    if empty:
        msg = (
            f"{len(empty)} of {len(sets)} users drew no anchor (the first is user {empty[0]}) and "
            "have no row to report from: use a larger alpha, radius or candidate set"
        )
        if enforce:
            raise EmptyAnchorsError(msg, value=float(len(empty)), limit=0.0)
        reasons.append(msg)
    if len(empty) == len(sets):
        msg = "no user drew any anchor, so there is no table to compute"
        raise EmptyAnchorsError(msg, value=float(len(empty)), limit=0.0)
    union = np.unique(np.concatenate(sets))
    if proved.plan is not None:
        plan = proved.plan.restricted(union)
    else:
        plan = PandaPlan.over(
            problem,
            selection,
            union,
            delta,
            neighbours=options.neighbours,
            delta_selection=options.delta_selection,
            enforce=False,
        )
    clock.lap("leakage and margins")
    law = selection.on(problem.domain)
    importance = anchor_weights(problem, law, union, options)
    tables: list[AnchorTable] = []
    groups = (union,) if options.pairs == "union" else sets
    for chosen in groups:
        at = np.searchsorted(union, chosen if len(chosen) else union)
        table, _ = solve_anchors(
            problem,
            union[at],
            plan.budgets[np.ix_(at, at)],
            importance[at],
            solver=options.solver,
            gap=options.gap,
            time_limit=options.time_limit,
            start=start,
        )
        tables.append(table)
    clock.lap(f"AnPO ({options.solver})")
    weights = report_weights(problem, records, sets, tuple(tables))
    losses = [mean_loss(problem, table) for table in tables]
    bound = None
    if options.relaxed:
        bounds = [
            relaxed_bound(
                problem,
                table.anchors,
                problem.prior[table.anchors],
                gap=options.gap,
                time_limit=options.time_limit,
            )
            for table in tables
        ]
        known = [value for value in bounds if value is not None]
        bound = float(np.mean(known)) if len(known) == len(bounds) else None
        clock.lap("relaxed AnPO")
    clustering = Clustering(
        clustering_coefficient(problem.domain, law.radius),
        clustering_coefficient(problem.domain, law.radius, union),
    )
    clock.lap("clustering")
    details = {"clipped_pairs": plan.clipped, "pairs": plan.pair_count}
    kind = PandaNoGuarantee if reasons else PandaResult
    guarantee = None if reasons else Guarantee(problem.epsilon, delta, problem.domain.unit)
    return kind(
        problem=problem,
        selection=selection,
        delta=delta,
        anchor_sets=sets,
        tables=tuple(tables),
        loss=float((problem.loss[records] * (weights / 2.0**62)).sum(axis=1).mean()),
        anchor_loss=float(np.mean(losses)),
        lower_bound=bound,
        guarantee=guarantee,
        reasons=tuple(reasons),
        stages=tuple(clock.stages),
        seeded=seeded,
        plan=plan,
        options=options,
        full_plan=proved.plan,
        certificate=proved.certificate,
        clustering=clustering,
        details=details,
        _weights=weights,
        _records=records,
    )


def anchor_weights(
    problem: Problem, law: AnchorLaw, anchors: IntArray, options: Options
) -> FloatArray:
    """Weights of anchors in AnPO's objective: the prior, or the law of surrogates under it."""
    if options.weights == "prior":
        return np.asarray(problem.prior[anchors])
    rows = law.all_rows
    near, v = near_laws(rows)
    total = np.zeros(problem.size)
    np.add.at(total, near, v * problem.prior[rows.owner])
    return np.asarray(total[anchors])


def mean_loss(problem: Problem, table: AnchorTable) -> float:
    """Expected loss over the anchors of a table, weighted by the prior (Eq. 42)."""
    prior = problem.prior[table.anchors]
    if prior.sum() <= 0:
        prior = np.ones(len(table.anchors))
    losses = (problem.loss[table.anchors] * table.matrix).sum(axis=1)
    return float(prior @ losses / prior.sum())


def report_weights(
    problem: Problem,
    records: IntArray,
    sets: tuple[IntArray, ...],
    tables: tuple[AnchorTable, ...],
) -> IntArray:
    """The integer row of each user: that of the nearest own anchor (on the user's side).

    A user without anchors reports the output that is best without any record.
    """
    out = np.empty((len(records), problem.outputs_count), dtype=np.int64)
    blind = np.zeros((1, problem.outputs_count))
    blind[0, problem.best_single_output] = 1.0
    for n, (record, chosen) in enumerate(zip(records, sets, strict=True)):
        if len(chosen) == 0:
            out[n] = quantise(blind)[0]
            continue
        nearest = chosen[surrogates(problem.domain, chosen, np.array([record]))]
        table = tables[0] if len(tables) == 1 else tables[n]
        out[n] = table.weights(nearest)[0]
    return out
