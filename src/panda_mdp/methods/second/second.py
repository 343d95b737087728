"""Among the tables of nearly least loss, one from which an attacker gains little; or a limit on
what an attacker gains, at the least loss. Certified for both."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.compute.closure import Closure
from panda_mdp.compute.highs import require_numba
from panda_mdp.errors import MethodError, PrivacyError
from panda_mdp.methods.optimal.graph import constraint_graph
from panda_mdp.methods.optimal.progress import Progress
from panda_mdp.methods.optimal.solve import Solve
from panda_mdp.methods.optimal.starts import one_row
from panda_mdp.methods.second.descent import Budget, Ceiling, Point, descend
from panda_mdp.methods.second.exact import Solved, solve_limit, solve_objective
from panda_mdp.methods.second.first_order import Recorder, TradeOff
from panda_mdp.methods.second.forms import Forms
from panda_mdp.methods.second.objectives import (
    LARGE,
    Name,
    Objective,
    check_name,
    city_objective,
    objective,
    quantity,
)
from panda_mdp.privacy.repair import TIGHTENING, repair
from panda_mdp.problem import Problem
from panda_mdp.table.mechanism import Mechanism
from panda_mdp.table.release import release

EXACT_ENTRIES = 1_000
"""Entries of a table up to which the LP goes to HiGHS: a second or so."""
EXACT_TIGHTENING = 5e-6
"""HiGHS's tables are accurate, so the closure needs little room for what normalising leaves."""
SHY = 1e-6
"""Of the room that the budget leaves: what is not used, so that quantising stays within it."""
LEAST_WORK, MOST_SMALL_WORK = 200, 2000
SECONDS_WORTH = 25_000_000
"""Entries times iterations that take seconds: small tables have so many, within those limits, for
a price may have to be met exactly there."""
LIMIT_WORK = 3.0
"""Iterations of a limit, of those of the first solve: it ends by itself when the gap is reached."""
LEAST_LIMIT_WORK = 1200
CHORDS = 4

Measure = Callable[[FloatArray], float]


def lower_objective(
    first: Mechanism,
    then: Name,
    slack: float,
    *,
    radius: float | None = None,
    gap: float = 0.05,
    solver: TradeOff | None = None,
    time_limit: float | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Mechanism:
    """A table of loss at most (1 + slack) that of `first`, of least second objective `then`.

        min v(z)   s.t.   z epsilon-mDP,   sum p c z <= B = (1 + slack) loss(first)

    For up to `EXACT_ENTRIES` entries by HiGHS with one variable per group; for larger tables by the
    first-order method, from where `solver` ended or else from `first`, until the objective is
    within `gap` of its bound, for about as long as the first solve or `time_limit` seconds at most.
    The table is then closed over all pairs, mixed with `first` where that has spent more than the
    budget (a mixture of private tables is private), and audited.

    Guarantee: epsilon-mDP by audit; loss at most B; `details["second"]` holds the objective's name,
    its value, its rigorous bound over all private tables of loss at most B (below, or above where
    the objective is to be large), the value before, slack and budget. `lower_bound` of the loss is
    that of `first`. Where nothing better than `first` is certified, `first` is returned with that
    said. An interrupt returns `first`'s table or the best of those certified.
    """
    start = time.perf_counter()
    problem = first.problem
    check_objective(problem, then, slack, radius)
    budget = (1 + slack) * first.loss
    closure = Closure(problem.domain)
    goal: Objective[Forms]
    if problem.size * problem.outputs_count <= EXACT_ENTRIES:
        goal = forms = objective(problem, then, radius)
        before = goal.value(first.matrix)
        graph = constraint_graph(problem.domain, problem.epsilon)
        solved = solve_objective(problem, forms, graph, budget)
        tightening = EXACT_TIGHTENING
    else:
        if not budget > first.loss:
            msg = (
                f"the loss of the first table is {first.loss:g}, of which a slack of {slack:g} "
                "leaves no room; ask for a limit instead (attacker and limit)"
            )
            raise MethodError(msg)
        goal = followed = city_objective(problem, then, radius, first.matrix)
        before = goal.value(first.matrix)
        limit = Budget.of(followed, first, budget, gap, before, goal.value(one_row(problem)))
        fewest = max(LEAST_WORK, min(SECONDS_WORTH // problem.loss.size, MOST_SMALL_WORK))
        granted = max(fewest, int(followed.forms.work * first.details.get("iterations", 0)))
        solved = descend(first, followed, limit, granted, solver, closure, time_limit, progress)
        tightening = TIGHTENING
    within = budget - SHY * (budget - first.loss)
    private = Private(closure, problem, tightening, first.matrix)
    mixed = private.within(solved, problem.expected_loss, goal.value, within)
    best = _certified(problem, mixed, f"{first.method}, then {then}")
    value = math.inf
    if best is not None and best.loss <= budget:
        value = goal.value(best.matrix)
    if best is None or value > before:
        best, value = first, before
    stages = (*first.stages, ("second objective", time.perf_counter() - start))
    facts = {
        "objective": then,
        "radius": radius,
        "value": goal.natural(value),
        "bound": goal.natural(solved.bound),
        "before": goal.natural(before),
        "unit": goal.unit,
        "slack": slack,
        "budget": budget,
        "improved": best is not first,
        "stopped": solved.status,
        "iterations": solved.iterations,
    }
    return best.with_facts(
        lower_bound=first.lower_bound,
        stages=stages,
        details={**first.details, **best.details, "second": facts},
    )


def check_objective(
    problem: Problem, then: Name, slack: float, radius: float | None = None
) -> None:
    """Refuse a slack or an objective that makes no sense here, before any solve."""
    if not (np.isfinite(slack) and slack > 0):
        msg = f"slack is {slack!r}; it must be positive, such as 0.01 for one per cent of the loss"
        raise MethodError(msg)
    check_name(problem, then, radius)


def check_limit(
    problem: Problem, attacker: Name, limit: float, radius: float | None = None
) -> FloatArray:
    """A private table, of one row, that respects a limit; an error where there is none."""
    check_name(problem, attacker, radius)
    sign = -1.0 if attacker in LARGE else 1.0
    rows = [one_row(problem), np.full_like(problem.loss, 1 / problem.outputs_count)]
    gains = [sign * quantity(problem, attacker, radius, row) for row in rows]
    least = min(gains)
    if not (np.isfinite(limit) and sign * limit > least):
        unit = f" {problem.domain.unit}" if attacker in LARGE else ""
        msg = (
            f"the limit is {limit!r}{unit}, and a report that ignores the record already gives "
            f"{sign * least:.6g}{unit}; set the limit {'above' if sign > 0 else 'below'} that"
        )
        raise MethodError(msg)
    return rows[gains.index(least)]


def limited(
    problem: Problem,
    attacker: Name,
    limit: float,
    *,
    radius: float | None = None,
    gap: float = 0.01,
    first: Callable[[], tuple[Mechanism, TradeOff | None]] | None = None,
    time_limit: float | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Mechanism:
    """The table of least loss from which `attacker` gains at most `limit`.

        min sum p c z   s.t.   z epsilon-mDP,   v(z) <= limit

    for "vulnerability" (the true record guessed with at most q), "located" (within `radius` with at
    most q), "true_place" (the record itself reported with at most q), "error" (the best guess at
    least e off on average) or "least_protected" (every record's report at least e off).

    Up to `EXACT_ENTRIES` entries by HiGHS; larger ones by the first-order method, on from the table
    of least loss without the limit and the solver that made it (`first`, called when needed), until
    the loss is within `gap` of its bound. Closed over all pairs, mixed with a row common to all
    records until the limit holds on the integers that are drawn from, and audited.

    Guarantee: epsilon-mDP by audit and v at most `limit`. `details["limited"]` has the value, in
    `bound` a rigorous bound below the loss of every private table that respects the limit, and loss
    and bound without it: the price of the limit is certified. `lower_bound` stays that of all
    private tables. A limit that no report which ignores the record respects is refused.
    """
    safe = check_limit(problem, attacker, limit, radius)
    method = f"optimal, {attacker} at {'least' if attacker in LARGE else 'most'} {limit:g}"
    facts: dict[str, object] = {"objective": attacker, "radius": radius, "limit": limit}
    closure = Closure(problem.domain)
    free, solver = _first(problem, gap, progress) if first is None else first()
    start, stages, least = time.perf_counter(), free.stages, free.lower_bound or 0.0
    facts |= {"loss_without": free.loss, "bound_without": free.lower_bound, "bound": least}
    goal: Objective[Forms]
    if problem.loss.size <= EXACT_ENTRIES:
        goal = forms = objective(problem, attacker, radius)
    else:
        goal = followed = city_objective(problem, attacker, radius, free.matrix)
    most, value = goal.of_natural(limit), goal.value(free.matrix)
    if value <= most:
        facts |= {"value": goal.natural(value), "unit": goal.unit, "stopped": "met without it"}
        return free.with_facts(details={**free.details, "limited": facts})
    if problem.loss.size <= EXACT_ENTRIES:
        graph = constraint_graph(problem.domain, problem.epsilon)
        solved = solve_limit(problem, forms, graph, most)
        tightening = EXACT_TIGHTENING
    else:
        far = Point(goal.value(safe), problem.expected_loss(safe), safe)
        rule = Ceiling.of(followed, free, most, gap, far)
        work = max(LEAST_LIMIT_WORK, int(LIMIT_WORK * free.details.get("iterations", 0)))
        solved = descend(free, followed, rule, work, solver, closure, time_limit, progress)
        tightening = TIGHTENING
    within = most - SHY * (most - goal.value(safe))
    private = Private(closure, problem, tightening, safe)
    mixed = private.within(solved, goal.value, problem.expected_loss, within)
    best = _certified(problem, mixed, method)
    value = math.inf if best is None else goal.value(best.matrix)
    if best is None or value > most:
        best = release(problem, safe, method=method)
        value = goal.value(best.matrix)
    bound = max(solved.bound, least)
    missed = solved.status == "gap reached" and best.loss > (1 + gap) * bound
    facts |= {
        "value": goal.natural(value),
        "bound": bound,
        "unit": goal.unit,
        "stopped": "gap missed by the repair" if missed else solved.status,
        "iterations": solved.iterations,
    }
    return best.with_facts(
        lower_bound=free.lower_bound,
        proof=free.proof,
        stages=(*stages, ("solve, repair and audit", time.perf_counter() - start)),
        details={**best.details, "limited": facts},
    )


def _first(
    problem: Problem, gap: float, progress: Callable[[Progress], None] | None
) -> tuple[Mechanism, TradeOff | None]:
    engine = Recorder()
    return Solve(problem, gap, engine, progress=progress).run(), engine.made


@dataclass(frozen=True)
class Private:
    """Makes one private table of what a solve leaves, within its limit."""

    closure: Closure
    problem: Problem
    tightening: float
    safe: FloatArray
    """A private table within the limit."""

    def within(self, solved: Solved, limited: Measure, least: Measure, most: float) -> FloatArray:
        """Both tables of `solved` repaired over all pairs and mixed, as mixtures of private tables
        are private: with `safe` until `limited` is at most `most`, and with as much of the one
        beyond the limit as there is room for, where that makes `least` smaller."""
        inside = mixture(self._repaired(solved.matrix), self.safe, limited, most)
        if solved.beyond is None:
            return inside
        both = mixture(self._repaired(solved.beyond), inside, limited, most)
        return both if least(both) < least(inside) else inside

    def _repaired(self, table: FloatArray) -> FloatArray:
        if table is self.safe:
            return table
        require_numba("the exact repair of a solver's table")
        return repair(self.closure, table, self.problem.epsilon, self.tightening).matrix


def mixture(table: FloatArray, safe: FloatArray, measure: Measure, most: float) -> FloatArray:
    """table + t (safe - table) with nearly the least t for which a convex `measure` is at most
    `most`: below its chords, so every crossing of one is within."""
    value = measure(table)
    if value <= most:
        return table
    share, mixed, reached = 1.0, safe, measure(safe)
    for _ in range(CHORDS):
        if not reached < most:
            break
        share *= (value - most) / (value - reached)
        mixed = np.asarray((1 - share) * table + share * safe)
        reached = measure(mixed)
    return mixed


def _certified(problem: Problem, matrix: FloatArray, method: str) -> Mechanism | None:
    try:
        return release(problem, matrix, method=method)
    except PrivacyError:
        return None
