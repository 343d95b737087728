"""The loop around the first-order method: iterate, bound, and move the price to the limit.

Of the loss and the objective v one is limited and the other made least, by minimising
loss + price v (or the loss with every form at a level) and moving the price (the level) until the
limited one meets its limit. For any price the solver's bound L <= loss + price v of all private
tables gives both

    v >= (L - B) / price   where loss <= B,        loss >= L - price q   where v <= q.

The best table within the limit and the best one beyond it are held. A mixture of the two meets the
limit, and both loss and v are at most what lies between theirs: the price need not be exact.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.compute.closure import Closure
from panda_mdp.methods.optimal.graph import constraint_graph
from panda_mdp.methods.optimal.progress import Progress
from panda_mdp.methods.second.exact import Solved
from panda_mdp.methods.second.first_order import TradeOff
from panda_mdp.methods.second.forms import CityForms
from panda_mdp.methods.second.objectives import Objective
from panda_mdp.privacy.repair import estimate
from panda_mdp.table.mechanism import Mechanism

CHECK = 80
NEAR = 0.1
"""In logarithms: prices are not moved by less."""
FAINTEST = 0.02
"""The least share of the way that is believed: less is what a table has not followed yet."""
FARTHEST = 2.0
"""In logarithms: the longest step of a price; half of the last one after every turn, because what
is seen lags behind the price."""
AIM, REPAIR = 0.98, 2e-4
"""The whole repair costs more than one round of it, by which tables are judged on the way: so much
of the loss."""
REPAIRED = 0.85
"""Of the gap under a limit: what is left for the repair."""
EARLY = 0.6
"""Of the work that is granted."""
ROUNDED = 1e-15


@dataclass(frozen=True)
class Point:
    """A nearly private table, and what a limit is about."""

    limited: float
    least: float
    """What is made least."""
    table: FloatArray


@dataclass(frozen=True)
class Limit(ABC):
    """What is limited, to how much, and where a price is first looked for."""

    most: float
    origin: float
    """Where what is limited begins, at a price of 0."""
    start: float
    """The first price, or level."""
    power: float
    """Of price or level, with which the limited moves away from its origin, before that was
    seen: a loss as the square, an objective as the root."""
    gap: float
    inside: Point
    """A private table within the limit."""
    outside: Point | None = None
    """A private table beyond it."""
    aim: float = 1.0
    """Share of the way from the origin to the limit that is aimed at."""
    rest: int = 1
    """Checks between two changes of the price: an objective follows it more slowly than a loss."""

    @abstractmethod
    def point(self, loss: float, value: float, table: FloatArray) -> Point:
        """A table as a point, what is limited first."""

    @abstractmethod
    def bound(self, least: float, price: float) -> float:
        """Below what is made least, from a bound below loss + price v."""

    @abstractmethod
    def reached(self, least: float, bound: float) -> bool:
        """Whether what is made least is within the gap of its bound."""

    def share(self, point: Point) -> float:
        """The share of the way from the origin to the limit that a table has moved."""
        return (point.limited - self.origin) / (self.most - self.origin)

    def tables(self, inside: Point, outside: Point | None) -> tuple[FloatArray, FloatArray | None]:
        """What is to be repaired, and mixed then."""
        return inside.table, None if outside is None else outside.table

    def score(self, inside: Point, outside: Point | None) -> float:
        """What is made least, at most, of the mixture of two tables that just meets the limit."""
        if outside is None or outside.limited <= self.most:
            return inside.least
        part = (self.most - inside.limited) / (outside.limited - inside.limited)
        return min(inside.least, (1 - part) * inside.least + part * outside.least)


@dataclass(frozen=True)
class Budget(Limit):
    """loss <= B; v is made least. The gap is a share of what can be gained at all."""

    before: float = 0.0
    """v of the first table."""

    @classmethod
    def of(
        cls,
        goal: Objective[CityForms],
        first: Mechanism,
        budget: float,
        gap: float,
        before: float,
        safe: float,
    ) -> Budget:
        """Within a budget a little above the loss of `first`, whose v is `before`; without a budget
        v would be `safe`."""
        room = budget - first.loss
        start = goal.forms.dear * room / (before - safe if before > safe else 1.0)
        power = 2.0
        if goal.forms.levelled:
            # Above what the least protected record has; a tenth of what most have, if that is 0.
            median = -float(np.median(goal.forms.forward(first.matrix)))
            start, power = max(1.2 * goal.natural(before), 0.1 * median), 3.0
        within = Point(first.loss, before, first.matrix)
        aim = AIM - REPAIR * first.loss / room
        return cls(budget, first.loss, start, power, gap, within, aim=aim, before=before)

    def point(self, loss: float, value: float, table: FloatArray) -> Point:
        return Point(loss, value, table)

    def bound(self, least: float, price: float) -> float:
        if price <= 0:
            return -math.inf
        exact = (least - self.most) / price
        return exact - 4 * ROUNDED * (abs(least) + self.most) / price

    def reached(self, least: float, bound: float) -> bool:
        return least - bound <= self.gap * (self.before - bound)

    def tables(self, inside: Point, outside: Point | None) -> tuple[FloatArray, FloatArray | None]:
        """Their mixture: one repair less, and where that costs too much `first` is mixed in."""
        if outside is None or self.score(inside, outside) >= inside.least:
            return inside.table, None
        aimed = self.origin + self.aim * (self.most - self.origin)
        part = max(0.0, aimed - inside.limited) / (outside.limited - inside.limited)
        return np.asarray((1 - part) * inside.table + part * outside.table), None


@dataclass(frozen=True)
class Ceiling(Limit):
    """v <= q; the loss is made least."""

    @classmethod
    def of(
        cls,
        goal: Objective[CityForms],
        first: Mechanism,
        most: float,
        gap: float,
        safe: Point,
    ) -> Ceiling:
        """Under a limit below v of `first`; `safe` is a table within it."""
        before = goal.value(first.matrix)
        beyond = Point(before, first.loss, first.matrix)
        if goal.forms.levelled:
            start = 1.01 * abs(goal.natural(most))
            return cls(most, 0.0, start, 1.0, gap, safe, beyond, aim=1.002)
        start = 0.25 * goal.forms.dear * first.loss * (before - most)
        start /= (before - safe.limited) ** 2
        return cls(most, before, start, 0.5, gap, safe, beyond, aim=1.02, rest=2)

    def point(self, loss: float, value: float, table: FloatArray) -> Point:
        return Point(value, loss, table)

    def bound(self, least: float, price: float) -> float:
        taken = price * self.most
        return least - taken - 4 * ROUNDED * (abs(least) + abs(taken))

    def reached(self, least: float, bound: float) -> bool:
        return least - bound <= REPAIRED * self.gap * bound


def descend(
    first: Mechanism,
    goal: Objective[CityForms],
    limit: Limit,
    granted: int,
    solver: TradeOff | None = None,
    closure: Closure | None = None,
    time_limit: float | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Solved:
    """Nearly private tables on both sides of the limit, and a bound below what is made least.

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
    at, power = limit.start, limit.power
    solver.aim(goal, at)
    began_at = solver.iterations
    most = began_at + granted
    bound = -math.inf
    inside, outside = limit.inside, limit.outside
    before: tuple[float, float] | None = None
    last, farthest, rested = 0.0, FARTHEST, 0
    stopped = "interrupted"
    try:
        while True:
            solver.advance(min(CHECK, most - solver.iterations))
            table = solver.matrix()
            nearly = estimate(closure, table, problem.epsilon)
            loss, value = problem.expected_loss(nearly), goal.forms.glance(nearly)
            least, price, weighed = solver.least_trade()
            bound = max(bound, limit.bound(least, price))
            point = limit.point(loss, value, table)
            if point.limited > limit.most:
                if limit.score(inside, point) <= limit.score(inside, outside):
                    outside = point
            elif limit.score(point, outside) <= limit.score(inside, outside):
                inside = point
            spent = time.perf_counter() - began
            if progress is not None:
                here = f"{goal.name} {goal.natural(value):.4g}, loss {loss:.4g}"
                done = solver.iterations - began_at
                progress(Progress(spent, done, loss, bound, solver.graph.count, here))
            if limit.reached(limit.score(inside, outside), bound):
                stopped = "gap reached"
            elif solver.iterations >= most:
                stopped = "iterations"
            elif time_limit is not None and spent > time_limit:
                stopped = "time limit"
            if stopped != "interrupted":
                break
            # Early on v has hardly followed the price, and the weights run ahead.
            early = not goal.forms.levelled and solver.iterations < began_at + EARLY * granted
            ahead = limit.point(loss, 0.5 * (value + weighed), table) if early else point
            moved = max(limit.share(ahead) / limit.aim, FAINTEST)
            if before is not None and abs(math.log(at / before[0])) > 0.05:
                seen = math.log(moved / before[1]) / math.log(at / before[0])
                power = min(max(seen / limit.power, 0.5), 2.0) * limit.power
            solver.follow()
            rested += 1
            step = min(max(-math.log(moved) / power, -farthest), farthest)
            if abs(step) > NEAR and rested >= limit.rest:
                rested = 0
                before = (at, moved)
                if step * last < 0:
                    farthest = max(0.5 * abs(last), NEAR)
                    step = min(max(step, -farthest), farthest)
                last = step
                at *= math.exp(step)
                solver.aim(goal, at)
    except KeyboardInterrupt:
        pass
    table, beyond = limit.tables(inside, outside)
    return Solved(table, bound, stopped, solver.iterations - began_at, beyond)
