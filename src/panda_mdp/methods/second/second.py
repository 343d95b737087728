"""Among the tables of nearly least loss, one from which an attacker gains little; or a limit on
what an attacker gains, at the least loss. Certified for both."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.compute.closure import Closure
from panda_mdp.compute.highs import require_numba
from panda_mdp.errors import MethodError, PrivacyError
from panda_mdp.methods.optimal.graph import constraint_graph
from panda_mdp.methods.optimal.solve import one_row
from panda_mdp.methods.second.exact import Solved, solve_limit, solve_objective
from panda_mdp.methods.second.objectives import Name, objective
from panda_mdp.privacy.repair import repair
from panda_mdp.problem import Problem
from panda_mdp.table.mechanism import Mechanism
from panda_mdp.table.release import release

TIGHTENING = 5e-6
SHY = 1e-6
"""Of the room that the budget leaves: what is not used, so that quantising stays within it."""


def lower_objective(
    first: Mechanism, then: Name, slack: float, *, radius: float | None = None
) -> Mechanism:
    """A table of loss at most (1 + slack) that of `first`, of least second objective `then`.

        min v(z)   s.t.   z epsilon-mDP,   sum p c z <= B = (1 + slack) loss(first)

    by HiGHS with one variable per group, then closed over all pairs, mixed with `first` where the
    closure has spent more than the budget (a mixture of private tables is private), and audited.

    Guarantee: epsilon-mDP by audit; loss at most B; `details["second"]` holds the objective's name,
    its value, its rigorous bound over all private tables of loss at most B (below, or above where
    the objective is to be large), the value before, slack and budget. `lower_bound` of the loss is
    that of `first`. Where nothing better than `first` is certified, `first` is returned with that
    said.
    """
    start = time.perf_counter()
    if not (np.isfinite(slack) and slack > 0):
        msg = f"slack is {slack!r}; it must be positive, such as 0.01 for one per cent of the loss"
        raise MethodError(msg)
    problem = first.problem
    goal = objective(problem, then, radius)
    budget = (1 + slack) * first.loss
    graph = constraint_graph(problem.domain, problem.epsilon)
    solved = solve_objective(problem, goal, graph, budget)
    room = budget - first.loss
    table = _private(problem, solved)
    mixed = _mixed(table, first.matrix, problem.expected_loss, budget - SHY * room)
    best = _certified(problem, mixed, f"{first.method}, then {then}")
    before = goal.value(first.matrix)
    if best is None or best.loss > budget or goal.value(best.matrix) > before:
        best = first
    stages = (*first.stages, ("second objective", time.perf_counter() - start))
    facts = {
        "objective": then,
        "radius": radius,
        "value": goal.natural(goal.value(best.matrix)),
        "bound": goal.natural(solved.bound),
        "before": goal.natural(before),
        "unit": goal.unit,
        "slack": slack,
        "budget": budget,
        "improved": best is not first,
    }
    return replace(
        best,
        lower_bound=first.lower_bound,
        stages=stages,
        details={**first.details, **best.details, "second": facts},
    )


def limited(
    problem: Problem, attacker: Name, limit: float, *, radius: float | None = None
) -> Mechanism:
    """The table of least loss from which `attacker` gains at most `limit`.

        min sum p c z   s.t.   z epsilon-mDP,   v(z) <= limit

    for "vulnerability" (the true record guessed with at most q), "located" (within `radius` with at
    most q) or "true_place" (the record itself reported with at most q). By HiGHS, closed over all
    pairs, mixed with a row common to all records until the limit holds on the table, audited.

    Guarantee: epsilon-mDP by audit, v at most `limit`, and `lower_bound` is a rigorous bound below
    the loss of every private table that respects the limit: the price of the limit is certified.
    A limit below what the attacker knows without any report is refused.
    """
    start = time.perf_counter()
    if attacker not in ("vulnerability", "located", "true_place"):
        msg = f"{attacker!r} takes no limit; use 'vulnerability', 'located' or 'true_place'"
        raise MethodError(msg)
    goal = objective(problem, attacker, radius)
    common = one_row(problem)
    least = goal.value(common)
    if not limit > least:
        msg = (
            f"the limit is {limit!r}, and a report that ignores the record already gives "
            f"{least:.6g}; raise the limit above that"
        )
        raise MethodError(msg)
    graph = constraint_graph(problem.domain, problem.epsilon)
    solved = solve_limit(problem, goal, graph, limit)
    table = _private(problem, solved)
    mixed = _mixed(table, common, goal.value, limit - SHY * (limit - least))
    best = _certified(problem, mixed, f"optimal, {attacker} at most {limit:g}")
    if best is None or goal.value(best.matrix) > limit:
        best = release(problem, common, method=f"optimal, {attacker} at most {limit:g}")
    value = goal.value(best.matrix)
    facts = {"objective": attacker, "radius": radius, "value": value, "limit": limit}
    return replace(
        best,
        lower_bound=max(solved.bound, 0.0),
        stages=(("solve, repair and audit", time.perf_counter() - start),),
        details={**best.details, "limited": facts, "highs_status": solved.status},
    )


def _private(problem: Problem, solved: Solved) -> FloatArray:
    require_numba("the exact repair of HiGHS's table")
    closure = Closure(problem.domain)
    return repair(closure, solved.matrix, problem.epsilon, TIGHTENING).matrix


def _mixed(
    table: FloatArray, safe: FloatArray, measure: Callable[[FloatArray], float], most: float
) -> FloatArray:
    """table + t (safe - table) with the least t for which a convex `measure` is at most `most`."""
    value, floor = measure(table), measure(safe)
    if value <= most:
        return table
    share = min(1.0, (value - most) / (value - floor)) if value > floor else 1.0
    return np.asarray((1 - share) * table + share * safe)


def _certified(problem: Problem, matrix: FloatArray, method: str) -> Mechanism | None:
    try:
        return release(problem, matrix, method=method)
    except PrivacyError:
        return None
