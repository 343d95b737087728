"""Among the tables of nearly least loss, one from which an attacker gains little; or a limit on
what an attacker gains, at the least loss. Certified for both."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.compute.closure import Closure
from panda_mdp.compute.highs import require_numba
from panda_mdp.errors import MethodError, PrivacyError
from panda_mdp.methods.optimal.graph import constraint_graph
from panda_mdp.methods.optimal.starts import one_row
from panda_mdp.methods.second.descent import descend
from panda_mdp.methods.second.exact import Solved, solve_limit, solve_objective
from panda_mdp.methods.second.first_order import TradeOff
from panda_mdp.methods.second.objectives import Name, Objective, objective
from panda_mdp.privacy.repair import TIGHTENING, repair
from panda_mdp.problem import Problem
from panda_mdp.table.mechanism import Mechanism
from panda_mdp.table.release import release

EXACT_ENTRIES = 1_000
"""Entries of a table up to which the LP goes to HiGHS: a second or so."""
LIMIT_ENTRIES = 6_400
"""The same for what has no other way, limits on an attacker and `EXACT_ONLY`: a minute or so."""
EXACT_ONLY = ("error", "least_protected")
"""One record or many distances decide these: the first-order method's bounds on them are poor."""
EXACT_TIGHTENING = 5e-6
"""HiGHS's tables are accurate, so the closure needs little room for what normalising leaves."""
SHY = 1e-6
"""Of the room that the budget leaves: what is not used, so that quantising stays within it."""


def lower_objective(
    first: Mechanism,
    then: Name,
    slack: float,
    *,
    radius: float | None = None,
    gap: float = 0.05,
    solver: TradeOff | None = None,
    time_limit: float | None = None,
) -> Mechanism:
    """A table of loss at most (1 + slack) that of `first`, of least second objective `then`.

        min v(z)   s.t.   z epsilon-mDP,   sum p c z <= B = (1 + slack) loss(first)

    For up to `EXACT_ENTRIES` entries, and for "error" and "least_protected" always, by HiGHS with
    one variable per group; for larger tables by the first-order method, from where `solver` ended
    or else from `first`, until the objective is within `gap` of its bound, for about as many
    iterations as the first solve or `time_limit` seconds at most. The table is then closed over all
    pairs, mixed with `first` where that has spent more than the budget (a mixture of private tables
    is private), and audited.

    Guarantee: epsilon-mDP by audit; loss at most B; `details["second"]` holds the objective's name,
    its value, its rigorous bound over all private tables of loss at most B (below, or above where
    the objective is to be large), the value before, slack and budget. `lower_bound` of the loss is
    that of `first`. Where nothing better than `first` is certified, `first` is returned with that
    said. An interrupt returns `first`'s table or the best of those certified.
    """
    start = time.perf_counter()
    problem = first.problem
    goal = check_objective(problem, then, slack, radius)
    budget = (1 + slack) * first.loss
    if then in EXACT_ONLY or problem.size * problem.outputs_count <= EXACT_ENTRIES:
        graph = constraint_graph(problem.domain, problem.epsilon)
        solved = solve_objective(problem, goal, graph, budget)
        tightening = EXACT_TIGHTENING
    else:
        solved = descend(first, goal, budget, gap, solver, time_limit)
        tightening = TIGHTENING
    room = budget - first.loss
    table = _private(problem, solved, tightening)
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
        "stopped": solved.status,
    }
    return best.with_facts(
        lower_bound=first.lower_bound,
        stages=stages,
        details={**first.details, **best.details, "second": facts},
    )


def check_objective(
    problem: Problem, then: Name, slack: float, radius: float | None = None
) -> Objective:
    """The objective of a name, where slack and size allow it; else an error, before any solve."""
    if not (np.isfinite(slack) and slack > 0):
        msg = f"slack is {slack!r}; it must be positive, such as 0.01 for one per cent of the loss"
        raise MethodError(msg)
    entries = problem.size * problem.outputs_count
    if then in EXACT_ONLY and entries > LIMIT_ENTRIES:
        msg = (
            f"{then!r} is solved exactly, for up to {LIMIT_ENTRIES:,} entries, and this problem "
            f"has {entries:,}; use 'vulnerability', 'located' or 'true_place'"
        )
        raise MethodError(msg)
    return objective(problem, then, radius)


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
    entries = problem.size * problem.outputs_count
    if entries > LIMIT_ENTRIES:
        msg = (
            f"a limit on an attacker is solved exactly, for up to {LIMIT_ENTRIES:,} entries, and "
            f"this problem has {entries:,}; use then={attacker!r} with a slack"
        )
        raise MethodError(msg)
    graph = constraint_graph(problem.domain, problem.epsilon)
    solved = solve_limit(problem, goal, graph, limit)
    table = _private(problem, solved, EXACT_TIGHTENING)
    mixed = _mixed(table, common, goal.value, limit - SHY * (limit - least))
    best = _certified(problem, mixed, f"optimal, {attacker} at most {limit:g}")
    if best is None or goal.value(best.matrix) > limit:
        best = release(problem, common, method=f"optimal, {attacker} at most {limit:g}")
    value = goal.value(best.matrix)
    facts = {"objective": attacker, "radius": radius, "value": value, "limit": limit}
    return best.with_facts(
        lower_bound=max(solved.bound, 0.0),
        stages=(("solve, repair and audit", time.perf_counter() - start),),
        details={**best.details, "limited": facts, "highs_status": solved.status},
    )


def _private(problem: Problem, solved: Solved, tightening: float) -> FloatArray:
    require_numba("the exact repair of a solver's table")
    closure = Closure(problem.domain)
    return repair(closure, solved.matrix, problem.epsilon, tightening).matrix


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
