"""The loop around the first-order method: iterate, bound, and move the price to the budget."""

from __future__ import annotations

import time

import numpy as np

from panda_mdp.compute.closure import Closure
from panda_mdp.methods.optimal.graph import constraint_graph
from panda_mdp.methods.second.exact import Solved
from panda_mdp.methods.second.first_order import TradeOff
from panda_mdp.methods.second.objectives import Objective
from panda_mdp.privacy.repair import estimate
from panda_mdp.table.mechanism import Mechanism

CHECK = 120
LEAST_ITERATIONS = 480
START = 6.0
"""The first price, in slacks of the loss per objective: what many cities end near."""
AIM = 0.1
"""Share of the room below the budget that is aimed at: the whole repair costs more than one round
of it, by which the loss is estimated."""
NEAR = 0.15
"""A loss within this share of the room of what is aimed at leaves the price alone."""
SLOPE = 0.8
"""By how much of the room the loss moves per unit of the price's logarithm, before it was seen."""
FARTHEST = 1.2


def descend(
    first: Mechanism,
    goal: Objective,
    budget: float,
    gap: float,
    solver: TradeOff | None = None,
    time_limit: float | None = None,
) -> Solved:
    """A nearly private table of about the budget's loss and small v, and a bound below v."""
    began = time.perf_counter()
    problem = first.problem
    closure = Closure(problem.domain)
    granted = max(LEAST_ITERATIONS, int(first.details.get("iterations", 0)))
    if solver is None:
        graph = constraint_graph(problem.domain, problem.epsilon)
        solver = TradeOff(problem, graph, first.matrix)
        # Without the first solve's multipliers they have to be worked out again.
        granted *= 2
    room = budget - first.loss
    price = START * room / goal.natural(goal.value(first.matrix))
    solver.aim(goal, price)
    most = solver.iterations + granted
    bound, slope = 0.0, SLOPE
    before: tuple[float, float] | None = None
    matrix = first.matrix
    try:
        while True:
            solver.advance(CHECK)
            matrix = solver.matrix()
            nearly = estimate(closure, matrix, problem.epsilon)
            loss, value = problem.expected_loss(nearly), goal.value(nearly)
            bound = max(bound, solver.objective_bound(budget))
            over = (loss - budget) / room
            if over <= 0 and value - bound <= gap * abs(goal.natural(bound)):
                return Solved(matrix, bound, "gap reached")
            if solver.iterations >= most:
                return Solved(matrix, bound, "iterations")
            if time_limit is not None and time.perf_counter() - began > time_limit:
                return Solved(matrix, bound, "time limit")
            missing = -AIM - over
            if before is not None and abs(np.log(price / before[0])) > 0.05:
                seen = (over - before[1]) / np.log(price / before[0])
                slope = float(np.clip(seen, SLOPE / 4, 4 * SLOPE))
            if abs(missing) > NEAR:
                before = (price, over)
                price *= float(np.exp(np.clip(missing / slope, -FARTHEST, FARTHEST)))
                solver.aim(goal, price)
    except KeyboardInterrupt:
        return Solved(matrix, bound, "interrupted")
