"""The loop around the first-order method: iterate, bound, and move the price to the limit.

Of the loss and the objective v one is limited and the other made least, by minimising
loss + price v (or the loss with every form at a level) and moving the price (the level) until the
limited one meets its limit. For any price the solver's bound L <= loss + price v of all private
tables gives both

    v >= (L - B) / price   where loss <= B,        loss >= L - price q   where v <= q.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from panda_mdp.compute.closure import Closure
from panda_mdp.methods.optimal.graph import constraint_graph
from panda_mdp.methods.second.exact import Solved
from panda_mdp.methods.second.first_order import TradeOff
from panda_mdp.methods.second.forms import CityForms
from panda_mdp.methods.second.objectives import Objective
from panda_mdp.privacy.repair import estimate
from panda_mdp.table.mechanism import Mechanism

CHECK = 120
NEAR = 0.15
"""What is limited within this share of the room of what is aimed at leaves the price alone."""
SLOPE = 0.8
"""By how many rooms it moves per unit of the price's logarithm, before that was seen."""
FARTHEST = 1.2
"""In logarithms: the longest step of a price; half of the last one after every turn, because what
is seen lags behind the price."""
ROUNDED = 1e-15


@dataclass(frozen=True)
class Limit(ABC):
    """What is limited, to how much, and where a price is first looked for."""

    most: float
    room: float
    """How far from the limit is near and how far is far, in its own unit."""
    start: float
    """The first price, or level."""
    slope: float
    """By how many rooms the limited moves per unit of the logarithm of price or level."""
    gap: float
    aim: float = 0.1
    """Share of the room below the limit that is aimed at: the whole repair costs more than one
    round of it, by which tables are judged on the way."""

    rest: int = 1
    """Checks between two changes of the price: an objective follows it more slowly than a loss."""

    @abstractmethod
    def over(self, loss: float, value: float) -> float:
        """By how many rooms the limit is exceeded."""

    @abstractmethod
    def bound(self, least: float, price: float) -> float:
        """Below what is made least, from a bound below loss + price v."""

    @abstractmethod
    def reached(self, loss: float, value: float, bound: float) -> bool:
        """Whether what is made least is within the gap of its bound."""

    @abstractmethod
    def score(self, loss: float, value: float) -> float:
        """What is made least, of a table that was mixed with the fallback to meet the limit."""


@dataclass(frozen=True)
class Budget(Limit):
    """loss <= B; v is made least. `goal` says in what unit the gap of v is taken."""

    goal: Objective[CityForms] | None = None
    before: float = 0.0
    """v of the fallback."""

    @classmethod
    def of(cls, goal: Objective[CityForms], first: Mechanism, budget: float, gap: float) -> Budget:
        """Within a budget a little above the loss of `first`."""
        before = goal.value(first.matrix)
        room = budget - first.loss
        # Six slacks of the loss per objective are what many cities end near.
        start = 6 * room / (goal.natural(before) or 1.0)
        if goal.forms.levelled:
            # Above what the least protected record has; a tenth of what most have, if that is 0.
            median = -float(np.median(goal.forms.forward(first.matrix)))
            has, start = 1.2 * goal.natural(before), 0.1 * median
            if has > start:
                return cls(budget, room, has, 2 * SLOPE, gap, goal=goal, before=before)
        return cls(budget, room, start, SLOPE, gap, goal=goal, before=before)

    def over(self, loss: float, value: float) -> float:
        return (loss - self.most) / self.room

    def bound(self, least: float, price: float) -> float:
        if price <= 0:
            return -math.inf
        exact = (least - self.most) / price
        return exact - 4 * ROUNDED * (abs(least) + self.most) / price

    def reached(self, loss: float, value: float, bound: float) -> bool:
        size = 1.0 if self.goal is None else abs(self.goal.natural(bound))
        return loss <= self.most and value - bound <= self.gap * size

    def score(self, loss: float, value: float) -> float:
        over = max(0.0, self.over(loss, value))
        return (value + over * self.before) / (1 + over)


@dataclass(frozen=True)
class Ceiling(Limit):
    """v <= q; the loss is made least."""

    fallback: tuple[float, float] = (math.inf, -math.inf)
    """Loss and v of a table that respects the limit."""

    @classmethod
    def of(
        cls,
        goal: Objective[CityForms],
        first: Mechanism,
        most: float,
        gap: float,
        safe: tuple[float, float],
    ) -> Ceiling:
        """Under a limit below v of `first`; `safe` are loss and v of a table within it."""
        size = abs(goal.natural(most))
        if goal.forms.levelled:
            return cls(most, 0.1 * size, 1.01 * size, -10.0, gap, fallback=safe)
        return cls(most, 0.1 * size, 0.1 * first.loss / size, -SLOPE, gap, rest=2, fallback=safe)

    def over(self, loss: float, value: float) -> float:
        return (value - self.most) / self.room

    def bound(self, least: float, price: float) -> float:
        taken = price * self.most
        return least - taken - 4 * ROUNDED * (abs(least) + abs(taken))

    def reached(self, loss: float, value: float, bound: float) -> bool:
        return value <= self.most and loss - bound <= self.gap * bound

    def score(self, loss: float, value: float) -> float:
        safe_loss, safe = self.fallback
        share = max(0.0, (value - self.most) / (value - safe)) if value > safe else 0.0
        return (1 - share) * loss + share * safe_loss


def descend(
    first: Mechanism,
    goal: Objective[CityForms],
    limit: Limit,
    granted: int,
    solver: TradeOff | None = None,
    closure: Closure | None = None,
    time_limit: float | None = None,
) -> Solved:
    """A nearly private table that about meets the limit, and a bound below what is made least.

    Goes on with `solver` where it ended, for `granted` iterations at most; where there is none its
    multipliers are worked out again, from the table of `first`, in as many again.
    """
    began = time.perf_counter()
    problem = first.problem
    closure = Closure(problem.domain) if closure is None else closure
    if solver is None:
        graph = constraint_graph(problem.domain, problem.epsilon)
        solver = TradeOff(problem, graph, first.matrix)
        granted *= 2
    at = limit.start
    solver.aim(goal, at)
    began_at = solver.iterations
    most = began_at + granted
    bound, slope = -math.inf, limit.slope
    before: tuple[float, float] | None = None
    best, matrix = math.inf, first.matrix
    last, farthest, rested = 0.0, FARTHEST, 0
    try:
        while True:
            solver.advance(min(CHECK, most - solver.iterations))
            table = solver.matrix()
            nearly = estimate(closure, table, problem.epsilon)
            loss, value = problem.expected_loss(nearly), goal.forms.glance(nearly)
            bound = max(bound, limit.bound(*solver.least_trade()))
            over = limit.over(loss, value)
            score = limit.score(loss, value)
            if score <= best:
                best, matrix = score, table
            if limit.reached(loss, value, bound):
                return Solved(table, bound, "gap reached", solver.iterations - began_at)
            if solver.iterations >= most:
                return Solved(matrix, bound, "iterations", solver.iterations - began_at)
            if time_limit is not None and time.perf_counter() - began > time_limit:
                return Solved(matrix, bound, "time limit", solver.iterations - began_at)
            missing = -limit.aim - over
            if before is not None and abs(math.log(at / before[0])) > 0.05:
                seen = (over - before[1]) / math.log(at / before[0])
                slope = min(max(seen / limit.slope, 0.25), 4.0) * limit.slope
            solver.follow()
            rested += 1
            if abs(missing) > NEAR and rested >= limit.rest:
                rested = 0
                before = (at, over)
                step = min(max(missing / slope, -farthest), farthest)
                if step * last < 0:
                    farthest = max(0.5 * abs(last), NEAR)
                    step = min(max(step, -farthest), farthest)
                last = step
                at *= math.exp(step)
                solver.aim(goal, at)
    except KeyboardInterrupt:
        return Solved(matrix, bound, "interrupted", solver.iterations - began_at)
