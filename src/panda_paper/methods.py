"""The rows of the tables: each method on one draw, with its loss, certificate, audit and stages.

What the library's registry has under a name of the paper is run as it is; the text's variants of
PAnDA and of LP+CA and what the published code does (`published.py`) stand beside it. The published
code's baselines, LP+CA, LP+BD and EM on its distances, have no guarantee that this library would
state; each is audited over all pairs of records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from panda_mdp.base.arrays import FloatArray, IntArray, stopwatch
from panda_mdp.base.text import Facts
from panda_mdp.errors import InfeasibleError, SolverError
from panda_mdp.methods.adjust import remap
from panda_mdp.methods.closed_forms import exponential
from panda_mdp.methods.coarse import coarse_unsound
from panda_mdp.methods.optimal.lp import solve_lp
from panda_mdp.methods.optimal.optimal import optimal
from panda_mdp.panda.audit import audit_panda
from panda_mdp.panda.balls import BallAnchors
from panda_mdp.panda.coins import BernoulliAnchors
from panda_mdp.panda.margins import feasibility
from panda_mdp.panda.run import panda
from panda_mdp.panda.selection import PandaOptions
from panda_mdp.problem import Outputs, Problem
from panda_mdp.space.domain import Domain
from panda_mdp.survey.bench import Outcome
from panda_mdp.survey.registry import METHODS as LIBRARY
from panda_mdp.table.mechanism import NoGuarantee, Table
from panda_paper.items import COARSE, EXACT, OURS, PUBLISHED, SWAPPED
from panda_paper.published import clusters, exchanged, run_published, solve_near
from panda_paper.study import METRES, Draw

Run = Callable[[Draw], Outcome]
"""How a method of the tables is run on a draw."""
BALL_SHARE = 0.4
"""Share of epsilon that the centre of a ball may tell: 2 of 5 /km."""
AUDITED_SETS = {500: 50, 1000: 24, 2000: 12}
"""Sets that are audited over all pairs, by the largest K; fewer for larger domains."""
FEWEST_AUDITED = 4
ACCOUNTS = "published accounting: NO GUARANTEE; loss over the anchors"
GAP = 0.01
"""Gap to which the LPs of this library are solved."""
SIDE = 10
"""The artifact's grid; the paper's text has 8 x 8."""
SHARE = 0.1
"""The artifact's LP+CA has epsilon / 10 in its constraints."""
BENDERS_CLUSTERS = 50


def audited_values(table: Table) -> Facts:
    """A table's loss, what it claims and what the audit over all pairs of records finds."""
    return {
        "loss_m": METRES * table.loss,
        "claimed_epsilon": table.epsilon,
        "audited_epsilon": table.audit.epsilon,
        "holds": table.audit.holds,
    }


def table_outcome(table: Table, seconds: float, limit: float | None, note: str = "") -> Outcome:
    """What the tables show of a perturbation table over all records."""
    values = audited_values(table)
    details = table.details
    if table.lower_bound is not None:
        values |= {"lower_bound_m": METRES * table.lower_bound, "gap": table.gap}
    if "violated_pairs" in details:
        values["violated_pairs"] = details["violated_pairs"]
    rest = max(0.0, seconds - sum(spent for _, spent in table.stages))
    stages = (*table.stages, ("audit and the rest", rest))
    if limit is not None and details.get("stopped") == "time limit":
        values["best_loss_m"] = values.pop("loss_m")
        reason = f"not solved within {limit:g} s; the best found so far is best_loss_m"
        return Outcome(values, stages, "time limit", reason)
    if details.get("stopped") == "failed":
        note = f"the solver failed: this is the {details.get('table', 'best')} table"
    return Outcome(values, stages, "done", note)


def tabled(make: Callable[[Problem, float | None], Any], note: str = "") -> Run:
    """A method that gives one table over all records, from a problem and a limit in seconds."""

    def run(draw: Draw) -> Outcome:
        spent = stopwatch()
        table: Table = make(draw.problem, draw.limit)
        ((_, seconds),) = spent("all")
        return table_outcome(table, seconds, draw.limit, note)

    return run


def exact(draw: Draw, selection: BernoulliAnchors | None = None) -> Outcome:
    """PAnDA with the text's parameters and everything accounted for, or which condition fails.

    All records are covered, so that a small Gamma is not what fails.
    """
    problem = draw.problem
    coins = selection or BernoulliAnchors(draw.decay, alpha=0.95, rate=0.5, neighbours=problem.size)
    law = coins.on(problem.domain)
    fit = feasibility(law, problem.epsilon, draw.delta, problem.prior, problem.size)
    values: Facts = {
        "claimed_epsilon": problem.epsilon,
        "delta": draw.delta,
        "phase_one_epsilon": fit.cost.rate,
        "shortfall": fit.shortfall,
    }
    if not fit.fits:
        # What each condition says before its reasons.
        reasons = "; ".join(str(error).partition(":")[0] for error in fit.problems)
        return Outcome(values, (), "infeasible", reasons)
    options = PandaOptions(weights="prior", gap=GAP, time_limit=draw.limit)
    try:
        result = panda(problem, draw.users, coins, draw.delta, options, seed=draw.seed)
    except InfeasibleError as error:
        # Its first sentence, without its remedy.
        return Outcome(values, (), "infeasible", str(error).split(". ")[0])
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


def published(draw: Draw) -> Outcome:
    """PAnDA under published accounting, with the audit of what was drawn beside its claim."""
    run = run_published(draw)
    selection, margin, rest = run.shares
    size = run.problem.size
    count = next((sets for most, sets in AUDITED_SETS.items() if size <= most), FEWEST_AUDITED)
    values = {
        "loss_m": METRES * run.anchor_loss,
        "true_loss_m": METRES * run.true_loss,
        "claimed_epsilon": run.problem.epsilon,
        "holds": False,
        "anchors": len(run.anchors),
        "variables": run.matrix.size,
        "lp_seconds": dict(run.stages)["LP"],
        "share_selection": selection,
        "share_margin": margin,
        "share_rest": rest,
        **run.audit(run.anchor_sets[:count]),
    }
    return Outcome(values, run.stages, "done", ACCOUNTS)


def ball(draw: Draw) -> Outcome:
    """Ball anchors at epsilon, without a delta: the centre tells 40 % of epsilon."""
    problem = draw.problem
    selection = BallAnchors(BALL_SHARE * draw.problem.epsilon)
    options = PandaOptions(gap=GAP, time_limit=draw.limit)
    result = panda(problem, draw.users, selection, options=options, seed=draw.seed)
    audited = result.scheme.audited_epsilon
    violation = result.scheme.account.violation
    values = {
        "loss_m": METRES * result.scheme.expected_loss,
        "claimed_epsilon": problem.epsilon,
        "delta": draw.delta,
        "audited_epsilon": audited,
        "audited_delta": violation,
        "holds": bool(audited <= problem.epsilon and violation == 0),
        "anchors": len(result.anchors),
        "variables": problem.size * problem.outputs_count,
        "ball_share": result.scheme.expected_anchors / problem.size,
    }
    return Outcome(values, result.stages)


def coarse_published(draw: Draw) -> Outcome:
    """LP+CA of the artifact: a 10 x 10 grid over the whole city, epsilon / 10.

    A cell is represented by the city's node nearest to its centre (in degrees); its loss in the LP
    is that of the record nearest to the representative; a record takes the row of the nearest one.
    """
    spent = stopwatch()
    problem = draw.problem
    city = draw.study.city
    nodes = representatives(city.lat, city.lon)
    spots = np.stack([city.lat[nodes], city.lon[nodes]], axis=1)
    places = np.stack([problem.domain.lat, problem.domain.lon], axis=1)
    squares = cdist(places, spots, "sqeuclidean")
    cell = squares.argmin(axis=1)
    distance = Domain.from_points(*spots.T).distances()
    cells = representative_problem(problem, distance, squares.argmin(axis=0))
    stages = spent("cells")
    solved = optimal(cells, GAP, time_limit=draw.limit)
    stages += tuple((f"cells: {name}", seconds) for name, seconds in solved.stages)
    table = NoGuarantee.from_matrix(problem, solved.matrix[cell], method="LP+CA, published")
    counted = problem.domain.distances() < distance[np.ix_(cell, cell)]
    values = {**audited_values(table), "violation_as_published": float(counted.mean())}
    return Outcome(values, stages, "done", "published variant: 10 x 10, epsilon / 10")


def representatives(lat: FloatArray, lon: FloatArray, side: int = SIDE) -> IntArray:
    """The node nearest to the centre of each cell of a grid over the city that has nodes."""
    places = np.stack([lat, lon], axis=1)
    low = places.min(axis=0)
    step = np.where(np.ptp(places, axis=0) > 0, np.ptp(places, axis=0), 1.0) / side
    index = np.minimum(((places - low) / step).astype(np.int64), side - 1)
    offset = ((places - low - (index + 0.5) * step) ** 2).sum(axis=1)
    # The nearest first: of each cell the first node that is met.
    order = np.argsort(offset, kind="stable")
    _, first = np.unique(index[order], axis=0, return_index=True)
    return order[first]


def representative_problem(problem: Problem, distance: FloatArray, stand_in: IntArray) -> Problem:
    """The LP over representatives at epsilon / 10."""
    return Problem(
        Domain.from_matrix(distance, unit=problem.domain.unit),
        Outputs.labels(range(problem.outputs_count)),
        problem.loss[stand_in],
        SHARE * problem.epsilon,
        loss_unit=problem.loss_unit,
    )


def benders_published(draw: Draw) -> Outcome:
    """LP+BD of the artifact: the LP over pairs nearer than 0.8 km alone, rows of at least 1e-4 on
    the borders of 50 clusters.

    All other pairs of records are unconstrained, so its optimum is below that of the true LP. The
    artifact stops at a gap of 10 %; this solves every component of the 0.8 km graph with HiGHS.
    """
    spent = stopwatch()
    problem = draw.problem
    distance = problem.domain.distances()
    label = clusters(distance, draw.seed, BENDERS_CLUSTERS)
    try:
        matrix = solve_near(
            problem.weighted_loss,
            distance,
            problem.epsilon * distance,
            label,
            algorithm="ipm",
            time_limit=draw.limit,
        )
    except SolverError as error:
        return Outcome({}, spent("distances, clusters and LP"), "time limit", str(error))
    stages = spent("distances, clusters and LP")
    table = NoGuarantee.from_matrix(problem, matrix, method="LP+BD, published")
    note = "published variant: only pairs nearer than 0.8 km are constrained"
    return Outcome(audited_values(table), stages, "done", note)


def exponential_swapped(draw: Draw) -> Outcome:
    """EM, or EM+BR as the cell says, on the artifact's distances (latitude and longitude
    exchanged); audited on right ones."""
    spent = stopwatch()
    problem = draw.problem
    # The artifact's EM and EM+BR know only the uniform prior.
    uniform = np.full(problem.size, 1 / problem.size)
    table: Table = exponential(replace(problem, domain=exchanged(problem.domain), prior=uniform))
    if draw.cell.method.startswith("EM+BR"):
        table = remap(table)
    stages = spent("weights")
    seen = NoGuarantee.from_matrix(problem, table.matrix, method="published distances")
    values = audited_values(seen) | {"loss_m": METRES * table.loss}
    return Outcome(values, stages, "done", "published variant: latitude and longitude exchanged")


METHODS: dict[str, Run] = {
    **{method.paper: tabled(method.run) for method in LIBRARY if method.paper is not None},
    **{method.label: tabled(method.run) for method in LIBRARY if method.label in OURS},
    "LP": tabled(lambda problem, limit: solve_lp(problem, pairs="all", time_limit=limit)),
    COARSE: tabled(
        lambda problem, limit: coarse_unsound(problem, 8, gap=GAP, time_limit=limit),
        "the paper's text: distances between cells' centres, no guarantee",
    ),
    "LP+CA published": coarse_published,
    "LP+BD published": benders_published,
    **dict.fromkeys(EXACT, exact),
    **dict.fromkeys(PUBLISHED, published),
    "ball": ball,
    # On the artifact's own distances, latitude and longitude exchanged.
    **dict.fromkeys(SWAPPED[:2], exponential_swapped),
    **dict.fromkeys(SWAPPED[2:], published),
}
"""The rows of the tables by name."""
