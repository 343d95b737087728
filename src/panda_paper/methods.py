"""The rows of the tables: each method on one draw, with its loss, certificate, audit and stages.

What the library's registry has under a name of the paper is run as it is; the text's variants of
PAnDA and of LP+CA and what the published code does (`published.py`, `artifact.py`) stand beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from panda_mdp.errors import InfeasibleError
from panda_mdp.methods.coarse import coarse_unsound
from panda_mdp.methods.optimal.lp import solve_lp
from panda_mdp.panda.audit import audit_panda
from panda_mdp.panda.balls import BallAnchors
from panda_mdp.panda.coins import BernoulliAnchors
from panda_mdp.panda.margins import Feasibility, feasibility
from panda_mdp.panda.run import panda
from panda_mdp.panda.selection import PandaOptions
from panda_mdp.problem import Problem
from panda_mdp.survey.bench import Outcome
from panda_mdp.survey.registry import METHODS as LIBRARY
from panda_mdp.table.mechanism import Table
from panda_paper import artifact
from panda_paper.artifact import GAP, audited_values
from panda_paper.cell import COARSE, EXACT, OURS, PUBLISHED, SWAPPED, Values
from panda_paper.published import PublishedRun, published_run
from panda_paper.study import METRES, Draw

Run = Callable[[Draw], Outcome]
"""How a method of the tables is run on a draw."""
BALL_SHARE = 0.4
"""Share of epsilon that the centre of a ball may tell: 2 of 5 /km."""
BALL_MISSED = 0.2
"""Share of delta that a ball may miss its record with."""
AUDITED_SETS = {500: 50, 1000: 24, 2000: 12}
"""Sets that are audited over all pairs, by the largest K; fewer for larger domains."""
FEWEST_AUDITED = 4
ACCOUNTS = "published accounting: NO GUARANTEE; loss over the anchors"


def table_outcome(table: Table, seconds: float, limit: float | None, note: str = "") -> Outcome:
    """What the tables show of a perturbation table over all records."""
    values = audited_values(table)
    if table.lower_bound is not None:
        values |= {"lower_bound_m": METRES * table.lower_bound, "gap": table.gap}
    if "violated_pairs" in table.details:
        values["violated_pairs"] = table.details["violated_pairs"]
    rest = max(0.0, seconds - sum(spent for _, spent in table.stages))
    stages = (*table.stages, ("audit and the rest", rest))
    stopped = table.details.get("stopped")
    if limit is not None and stopped == "time limit":
        values["best_loss_m"] = values.pop("loss_m")
        reason = f"not solved within {limit:g} s; the best found so far is best_loss_m"
        return Outcome(values, stages, "time limit", reason)
    if stopped == "failed":
        note = f"the solver failed: this is the {table.details.get('table', 'best')} table"
    return Outcome(values, stages, "done", note)


def tabled(make: Callable[[Problem, float | None], Any], note: str = "") -> Run:
    """A method that gives one table over all records, from a problem and a limit in seconds."""

    def run(draw: Draw) -> Outcome:
        table: Table = make(draw.problem, draw.limit)
        ((_, seconds),) = draw.clock.lap("all")
        return table_outcome(table, seconds, draw.limit, note)

    return run


def exact(draw: Draw, selection: BernoulliAnchors | None = None) -> Outcome:
    """PAnDA with the text's parameters and everything accounted for, or which condition fails.

    All records are covered, so that a small Gamma is not what fails.
    """
    problem = draw.problem
    chosen = selection or BernoulliAnchors(
        draw.decay, alpha=0.95, rate=0.5, neighbours=problem.size
    )
    law = chosen.on(problem.domain)
    fit = feasibility(law, problem.epsilon, draw.delta, problem.prior, problem.size)
    values: Values = {
        "claimed_epsilon": problem.epsilon,
        "delta": draw.delta,
        "phase_one_epsilon": fit.cost.rate,
        "shortfall": fit.shortfall,
    }
    if not fit.fits:
        reasons = "; ".join(_reasons(fit))
        return Outcome(values, draw.clock.lap("feasibility"), "infeasible", reasons)
    options = PandaOptions(weights="prior", gap=GAP, time_limit=draw.limit)
    try:
        result = panda(problem, draw.users, chosen, draw.delta, options, seed=draw.seed)
    except InfeasibleError as error:
        # Its first sentence, without its remedy.
        note = str(error).split(". ")[0]
        stages = draw.clock.lap("feasibility and certificate")
        return Outcome(values, stages, "infeasible", note)
    verdict = audit_panda(result)
    values |= {
        "loss_m": METRES * result.loss,
        "anchors": len(result.anchors),
        "variables": len(result.anchors) * problem.outputs_count,
        "holds": verdict.holds,
        "violation": verdict.violation,
        "audited_epsilon": max(one.epsilon for one in verdict.sets),
    }
    return Outcome(values, result.stages)


def _reasons(fit: Feasibility) -> list[str]:
    """Each condition that fails, with its number."""
    rate, epsilon, delta = fit.cost.rate, fit.epsilon, fit.delta
    nobody = f"no anchor within gamma with probability {fit.shortfall:.3g}, delta is {delta:g}"
    conditions = {
        f"Phase I alone costs up to {rate:.4g} /km, epsilon is {epsilon:g}": rate > epsilon,
        nobody: fit.shortfall > delta,
        f"coverage misses {fit.uncovered:.3g}, delta is {delta:g}": fit.uncovered > delta,
    }
    return [reason for reason, fails in conditions.items() if fails]


def published(draw: Draw) -> Outcome:
    """PAnDA under published accounting, with the audit of what was drawn beside its claim."""
    result = published_run(draw)
    return Outcome(published_values(result), result.stages, "done", ACCOUNTS)


def published_values(run: PublishedRun) -> Values:
    """What the tables and figures show of a run under published accounting."""
    first, second, rest = run.shares
    size = run.problem.size
    count = next((sets for most, sets in AUDITED_SETS.items() if size <= most), FEWEST_AUDITED)
    return {
        "loss_m": METRES * run.anchor_loss,
        "true_loss_m": METRES * run.true_loss,
        "claimed_epsilon": run.problem.epsilon,
        "holds": False,
        "anchors": len(run.anchors),
        "variables": run.matrix.size,
        "lp_seconds": run.lp_seconds,
        "share_selection": first,
        "share_margin": second,
        "share_rest": rest,
        **run.audit(run.anchor_sets[:count]),
    }


def ball(draw: Draw) -> Outcome:
    """Ball anchors at (epsilon, delta): the centre tells 40 % of epsilon, the table the rest.

    A ball misses its record with at most a fifth of delta, since a miss costs kilometres.
    """
    problem, delta = draw.problem, draw.delta
    selection = BallAnchors(BALL_SHARE * problem.epsilon, BALL_MISSED * delta)
    options = PandaOptions(gap=GAP, time_limit=draw.limit)
    result = panda(problem, draw.users, selection, delta, options, seed=draw.seed)
    table = result.tables[0].mechanism
    violation = result.scheme.account.violation
    audited = result.scheme.selection_epsilon + table.audit.epsilon
    values = {
        "loss_m": METRES * result.scheme.expected_loss,
        "claimed_epsilon": problem.epsilon,
        "delta": delta,
        "audited_epsilon": audited,
        "audited_delta": violation,
        "holds": bool(audited <= problem.epsilon and violation <= delta),
        "anchors": len(result.anchors),
        "variables": problem.size * problem.outputs_count,
        "download": result.scheme.expected_anchors / problem.size,
    }
    return Outcome(values, result.stages)


METHODS: dict[str, Run] = {
    **{method.paper: tabled(method.run) for method in LIBRARY if method.paper is not None},
    **{method.label: tabled(method.run) for method in LIBRARY if method.label in OURS},
    "LP": tabled(lambda problem, limit: solve_lp(problem, pairs="all", time_limit=limit)),
    COARSE: tabled(
        lambda problem, limit: coarse_unsound(problem, 8, gap=GAP, time_limit=limit),
        "the paper's text: distances between cells' centres, no guarantee",
    ),
    "LP+CA published": artifact.coarse_published,
    "LP+BD published": artifact.benders_published,
    **dict.fromkeys(EXACT, exact),
    **dict.fromkeys(PUBLISHED, published),
    "ball": ball,
    # On the artifact's own distances, latitude and longitude exchanged.
    **dict.fromkeys(SWAPPED[:2], artifact.exponential_swapped),
    **dict.fromkeys(SWAPPED[2:], published),
}
"""The rows of the tables by name."""
