"""Among the tables of nearly least loss, one from which an attacker gains little; or a limit on
what an attacker gains, at the least loss. Certified for both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.errors import MethodError
from panda_mdp.methods.certify import WORTH, Budget, Report, Standing, certify, shortest
from panda_mdp.methods.optimal.optimal import FirstOrder, Machine, choose, solver_for
from panda_mdp.methods.optimal.program import one_row
from panda_mdp.methods.second.limits import Descent, ExactLimit, Limit, LimitSolver, engine_with
from panda_mdp.methods.second.objectives import Name, check_name, objective, quantity
from panda_mdp.problem import Problem, check_number
from panda_mdp.table.bound import Proved
from panda_mdp.table.mechanism import Mechanism

EXACT_ENTRIES = 1_000
"""Entries of a table up to which the LP goes to HiGHS: a second or so."""
LEAST_WORK = 200
MOST_SMALL_WORK = 2000
SECONDS_WORTH = 25_000_000
"""Entries times iterations that take seconds: small tables have so many, within those limits, for
a price may have to be met exactly there."""
LIMIT_WORK = 4.0
LEAST_LIMIT_WORK = 1200
"""Iterations of a limit, of those of the first solve, and at least: it ends by itself when the gap
is reached."""
OBJECTIVE_GAP = 0.05
"""Of what a second objective could gain at all: within which it is brought of its bound."""


def second_objective(
    first: Problem | Mechanism,
    name: Name,
    slack: float = 0.01,
    *,
    radius: float | None = None,
    gap: float = 0.01,
    backend: Machine = "auto",
    time_limit: float | None = None,
    progress: Report | None = None,
) -> Mechanism:
    """A table of loss at most (1 + slack) that of the best one, of least second objective.

        min v(z)   s.t.   z epsilon-mDP,   sum p c z <= B = (1 + slack) loss(first)

    `first` is a mechanism, or the problem whose table of least loss, to `gap` on `backend`, is made
    before. `name` is "vulnerability" (the best guess of the record is right) or "located" (it is
    within `radius`), to be small, or "error" (the best guess's distance), to be large.

    Where `backend` is "auto" HiGHS solves the LP of up to 1,000 entries, with one variable per
    output; others go to the first-order method on the CPU's cores, on from where the first solve
    ended on them or else from its table, until the objective is within 5 % of what could be gained
    of its bound, for about as long. The table is then closed over all pairs, mixed with the first
    where that has spent more than the budget (a mixture of private tables is private), and audited.
    Each of the two solves has half of `time_limit`.

    Guarantee: epsilon-mDP by audit; loss at most B; `details["second"]` holds the objective's name,
    its value, its rigorous bound over all private tables of loss at most B (below, or above where
    the objective is to be large), the value before, slack and budget. `lower_bound` of the loss is
    that of the first table. Where nothing better is certified that one is returned with that said.
    """
    problem = first if isinstance(first, Problem) else first.problem
    check_number(slack, "slack", "positive, such as 0.01 for one per cent of the loss")
    check_name(name, radius)
    budget = Budget(gap, time_limit)
    best, before = first_table(first, backend, budget, progress, name != "error")
    most = (1 + slack) * best.loss
    exact = is_exact(problem, backend)
    goal = objective(problem, name, radius, None if exact else best.matrix)
    limit = Limit(goal, best, most)
    fewest = max(LEAST_WORK, min(SECONDS_WORTH // problem.loss.size, MOST_SMALL_WORK))
    work, budget = (fewest, goal.work), replace(budget, gap=OBJECTIVE_GAP)
    standing = second_solve(limit, before, budget, progress, work)
    facts = {
        "objective": name,
        "radius": radius,
        "value": goal.sign * standing.value,
        **bounded(standing, goal.sign),
        "before": goal.sign * limit.inside.least,
        "unit": goal.unit,
        "slack": slack,
        "budget": most,
        "improved": standing.certified is not best,
    }
    return concluded(standing, best, "second", facts)


def limit_attacker(
    problem: Problem,
    attacker: Name,
    limit: float,
    *,
    radius: float | None = None,
    gap: float = 0.01,
    backend: Machine = "auto",
    time_limit: float | None = None,
    progress: Report | None = None,
) -> Mechanism:
    """The table of least loss from which `attacker` gains at most `limit`.

        min sum p c z   s.t.   z epsilon-mDP,   v(z) <= limit

    for "vulnerability" (the true record guessed with at most q), "located" (within `radius` with at
    most q) or "error" (the best guess at least e off on average).

    Where `backend` is "auto" up to 1,000 entries by HiGHS; others by the first-order method on the
    CPU's cores, on from the table of least loss without the limit, until the loss is within `gap`
    of its bound. Closed over all pairs, mixed with a row common to all records until the limit
    holds on the integers that are drawn from, and audited. Each of the two solves has half of
    `time_limit`.

    Guarantee: epsilon-mDP by audit and v at most `limit`. `details["limited"]` has the value, in
    `bound` a rigorous bound below the loss of every private table that respects the limit, and loss
    and bound without it: the price of the limit is certified. `lower_bound` stays that of all
    private tables. A limit that no report which ignores the record respects is refused.
    """
    safe = check_limit(problem, attacker, limit, radius)
    budget = Budget(gap, time_limit)
    free, before = first_table(problem, backend, budget, progress, attacker != "error")
    exact = is_exact(problem, backend)
    goal = objective(problem, attacker, radius, None if exact else free.matrix)
    asked = Limit(goal, free, goal.sign * limit, safe)
    least = free.lower_bound or 0.0
    value = asked.limited(free.matrix)
    facts: dict[str, Any] = {
        "objective": attacker,
        "radius": radius,
        "limit": limit,
        "loss_without": free.loss,
        "bound_without": free.lower_bound,
        "bound": least,
        "proof": free.bound if isinstance(free.bound, Proved) else None,
        "unit": goal.unit,
        "value": goal.sign * value,
        "stopped": "met without it",
    }
    if value <= asked.most:
        return free.with_facts(details={**free.details, "limited": facts})
    standing = second_solve(asked, before, budget, progress)
    found = bounded(standing)
    facts |= {"value": goal.sign * asked.limited(standing.certified.matrix)}
    if found["bound"] > least:
        facts |= found
    return concluded(standing, free, "limited", facts)


def second_solve(
    limit: Limit,
    before: FirstOrder | None,
    budget: Budget,
    progress: Report | None,
    work: tuple[int, float] = (LEAST_LIMIT_WORK, LIMIT_WORK),
) -> Standing:
    """What follows the first table, by the LP or else from where iterating on it ended: in half of
    the time, for at least so many iterations and such a share of the first ones."""
    solver: LimitSolver = ExactLimit(limit)
    if before is not None:
        solver = Descent(limit, before.iterates, before.engine)
    # Without a solver that has solved for the loss, multipliers are worked out again.
    again = 2 if before is None or before.iterates is None else 1
    most = max(work[0], int(again * work[1] * limit.first.details.get("iterations", 0)))
    return certify(solver, replace(halved(budget), iterations=most), progress)


def halved(budget: Budget) -> Budget:
    """Half of the time."""
    return replace(budget, time_limit=None if budget.time_limit is None else budget.time_limit / 2)


def bounded(standing: Standing, sign: float = 1.0) -> dict[str, Any]:
    """The bound of what was made least, and its proof where that gives next to nothing away."""
    bound = standing.bound
    least = bound - WORTH * (standing.budget.gap or 0.0) * abs(bound)
    proof = shortest(standing.solver.proof(), least)
    return {"bound": sign * (proof.value if proof else bound), "proof": proof}


def concluded(standing: Standing, first: Mechanism, name: str, facts: dict[str, Any]) -> Mechanism:
    """The best table of a second solve with what is known of it, beside what is of the first."""
    told = {name: facts | {"stopped": standing.stopped, "iterations": standing.solver.iterations}}
    return standing.certified.with_facts(
        bound=first.bound_over_records,
        stages=(*first.stages, (name, sum(standing.seconds.values()))),
        details={**first.details, **standing.certified.details, **told},
    )


def check_limit(
    problem: Problem, attacker: Name, limit: float, radius: float | None = None
) -> FloatArray:
    """A private table, of one row, that respects a limit; an error where there is none."""
    check_name(attacker, radius)
    sign, unit = (-1.0, f" {problem.domain.unit}") if attacker == "error" else (1.0, "")
    # What ignores the record tells nothing, whatever it is: no table gives less.
    row = one_row(problem)
    least = sign * quantity(problem, attacker, radius, row)
    if not (np.isfinite(limit) and sign * limit > least):
        raise MethodError(
            f"the limit is {limit!r}{unit}, and a report that ignores the record already gives "
            f"{sign * least:.6g}{unit}; set the limit {'above' if sign > 0 else 'below'} that"
        )
    return row


def first_table(
    first: Problem | Mechanism,
    backend: Machine,
    budget: Budget,
    progress: Report | None = None,
    gains: bool = True,
    most_exact: int = EXACT_ENTRIES,
) -> tuple[Mechanism, FirstOrder | None]:
    """The table of least loss in half of the time, and what iterated on it or would; None where the
    LP is small. What follows is on tiles, and on accelerators, where it is about `gains` alone."""
    problem = first if isinstance(first, Problem) else first.problem
    table = first if isinstance(first, Mechanism) else None
    if is_exact(problem, backend, most_exact):
        solver = solver_for(problem, backend)
        return table or certify(solver, halved(budget), progress).mechanism(), None
    engine = choose(backend)
    host = engine.name == "cpu"
    before = FirstOrder(problem, engine_with(engine, gains) if gains or host else engine)
    table = table or certify(before, halved(budget), progress).mechanism()
    if not (gains or host):
        # An error is followed on the cores of this machine.
        before = FirstOrder(problem, engine_with(choose("cpu"), gains))
    return table, before


def is_exact(problem: Problem, backend: Machine, most: int = EXACT_ENTRIES) -> bool:
    """Whether HiGHS solves the LP: for small tables, where the choice is free."""
    return problem.loss.size <= most and backend == "auto"
