"""One of loss and objective limited, the other made least: what solves that, for `certify`.

For any price, a bound L <= loss + price v of all private tables gives both

    v >= (L - B) / price   where loss <= B,        loss >= L - price q   where v <= q.

**HiGHS**, one variable per group. For any l >= 0 on the privacy constraints of any edges and any
w >= 0 every epsilon-mDP table has

    loss + price v  >=  sum_xy h_xy z_xy  >=  sum_x min_y h_xy,   h = p c + A^T w + (terms of l),

price = max_g sum_f w_fg, because price v(z) >= <w, A z>, l (z_i - g z_j) <= 0 and rows sum to 1.
Nothing is asked of where the multipliers come from.

**The first-order method** minimises loss + price v (or the loss with every form at a level) and
moves the price (the level) until the limited one meets its limit. The best table within the limit
and the best one beyond it are held. A mixture of the two meets the limit, and both loss and v are
at most what lies between theirs: the price need not be exact.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray
from panda_mdp.compute.closure import Closure
from panda_mdp.compute.highs import Lp, multipliers, privacy_rows, require_numba, sum_rows
from panda_mdp.compute.status import Stopped
from panda_mdp.errors import PrivacyError, SolverError
from panda_mdp.methods.certify import Solver, Standing, Tuning
from panda_mdp.methods.optimal.dual import UNIT_ROUNDOFF, growth, reduced_costs, total_from_below
from panda_mdp.methods.optimal.graph import Graph, constraint_graph
from panda_mdp.methods.optimal.starts import one_row
from panda_mdp.methods.second.objectives import Forms, Objective
from panda_mdp.privacy.repair import TIGHTENING, estimate, repair
from panda_mdp.problem import Problem
from panda_mdp.table.mechanism import Mechanism
from panda_mdp.table.release import release

if TYPE_CHECKING:
    from panda_mdp.methods.second.first_order import TradeOff


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
UNUSED = 1e-6
"""Of the room that a limit leaves: what is not used, so that quantising stays within it."""
FAINT_PRICE = 1e-9
"""Of the loss, in what it could cost altogether: its price where its limit binds nothing."""
EXACT_TIGHTENING = 5e-6
"""HiGHS's tables are accurate, so the closure needs little room for what normalising leaves."""
CHORDS = 4

Measure = Callable[[FloatArray], float]
T = TypeVar("T")


@dataclass(frozen=True)
class Point:
    """A nearly private table, and what a limit is about."""

    limited: float
    least: float
    """What is made least."""
    table: FloatArray


@dataclass(frozen=True)
class Limit(ABC):
    """What is limited, to how much, and a private table within that."""

    method: str
    goal: Objective
    first: Mechanism
    """The table of least loss."""
    most: float
    inside: Point

    @staticmethod
    @abstractmethod
    def pair(loss: T, objective: T) -> tuple[T, T]:
        """What is limited and what is made least, of the two."""

    def point(self, loss: float, value: float, table: FloatArray) -> Point:
        """A table as a point."""
        return Point(*self.pair(loss, value), table)

    def limited(self, table: FloatArray) -> float:
        """What is limited, exactly."""
        return self.pair(self.first.problem.expected_loss, self.goal.value)[0](table)

    def least(self, table: FloatArray) -> float:
        """What is made least, exactly."""
        return self.pair(self.first.problem.expected_loss, self.goal.value)[1](table)

    @abstractmethod
    def bound(self, least: float, price: float) -> float:
        """Below what is made least, from a bound below loss + price v."""

    @abstractmethod
    def allowed(self, gap: float, bound: float) -> float:
        """How far above its bound what is made least may lie at a gap."""

    @abstractmethod
    def pursuit(self) -> Pursuit:
        """How a price is looked for."""

    def score(self, inside: Point, outside: Point | None) -> float:
        """What is made least, at most, of the mixture of two tables that just meets the limit."""
        if outside is None or outside.limited <= self.most:
            return inside.least
        part = (self.most - inside.limited) / (outside.limited - inside.limited)
        return min(inside.least, (1 - part) * inside.least + part * outside.least)


@dataclass(frozen=True)
class Pursuit:
    """Where a price is first looked for, and how it is moved."""

    origin: float
    """Where what is limited begins, at a price of 0."""
    start: float
    """The first price, or level."""
    power: float
    """Of price or level, with which the limited moves away from its origin, before that was
    seen: a loss as the square, an objective as the root."""
    aim: float
    """Share of the way from the origin to the limit that is aimed at."""
    outside: Point | None = None
    """A private table beyond the limit."""
    rest: int = 1
    """Checks between two changes of the price: an objective follows it more slowly than a loss."""
    premixed: bool = False
    """Whether the two tables are mixed before the repair: one repair less, and where that costs too
    much the table inside is mixed in."""


class LossLimit(Limit):
    """loss <= B; v is made least. The gap is a share of what can be gained at all."""

    @classmethod
    def of(cls, goal: Objective, first: Mechanism, budget: float) -> LossLimit:
        """A budget a little above the loss of `first`."""
        inside = Point(first.loss, goal.value(first.matrix), first.matrix)
        return cls(f"{first.method}, then {goal.name}", goal, first, budget, inside)

    @staticmethod
    def pair(loss: T, objective: T) -> tuple[T, T]:
        return loss, objective

    def bound(self, least: float, price: float) -> float:
        if price <= 0:
            return -math.inf
        exact = (least - self.most) / price
        return exact - 4 * ROUNDED * (abs(least) + self.most) / price

    def allowed(self, gap: float, bound: float) -> float:
        return gap * (self.inside.least - bound)

    def pursuit(self) -> Pursuit:
        goal, first, before = self.goal, self.first, self.inside.least
        safe = goal.value(one_row(first.problem))
        room = self.most - first.loss
        start = goal.forms.dear * room / (before - safe if before > safe else 1.0)
        power = 2.0
        if goal.forms.levelled:
            # Above what the least protected record has; a tenth of what most have, if that is 0.
            median = -float(np.median(goal.forms.forward(first.matrix)))
            start, power = max(1.2 * goal.natural(before), 0.1 * median), 3.0
        aim = AIM - REPAIR * first.loss / room
        return Pursuit(first.loss, start, power, aim, premixed=True)


class GainLimit(Limit):
    """v <= q; the loss is made least."""

    @classmethod
    def of(cls, goal: Objective, first: Mechanism, most: float, safe: FloatArray) -> GainLimit:
        """A limit below v of `first`; `safe` is a table within it."""
        inside = Point(goal.value(safe), first.problem.expected_loss(safe), safe)
        bound = "least" if goal.sign < 0 else "most"
        method = f"optimal, {goal.name} at {bound} {goal.natural(most):g}"
        return cls(method, goal, first, most, inside)

    @staticmethod
    def pair(loss: T, objective: T) -> tuple[T, T]:
        return objective, loss

    def bound(self, least: float, price: float) -> float:
        taken = price * self.most
        return least - taken - 4 * ROUNDED * (abs(least) + abs(taken))

    def allowed(self, gap: float, bound: float) -> float:
        return gap * bound

    def pursuit(self) -> Pursuit:
        goal, before = self.goal, self.limited(self.first.matrix)
        outside = Point(before, self.first.loss, self.first.matrix)
        if goal.forms.levelled:
            start = 1.01 * abs(goal.natural(self.most))
            return Pursuit(0.0, start, 1.0, 1.002, outside)
        start = 0.25 * goal.forms.dear * self.first.loss * (before - self.most)
        start /= (before - self.inside.limited) ** 2
        return Pursuit(before, start, 0.5, 1.02, outside, rest=2)


class LimitSolver(Solver):
    """Makes one private table within a limit of a table within and one beyond it."""

    tightening = TIGHTENING
    work = 0.0
    """Iterations, of those of the first solve, that take about as long."""

    def __init__(self, limit: Limit) -> None:
        self.limit, self.goal, self.method = limit, limit.goal, limit.method
        self.problem = limit.first.problem
        self.closure = Closure(self.problem.domain)

    def value(self, mechanism: Mechanism) -> float:
        return self.limit.least(mechanism.matrix)

    def allowed(self, gap: float, bound: float) -> float:
        return self.limit.allowed(gap, bound)

    def certified(
        self, candidate: tuple[FloatArray, FloatArray | None], standing: Standing
    ) -> Mechanism:
        """Both tables repaired over all pairs and mixed, as mixtures of private tables are private:
        with the safe one until the limit holds, and with as much of the one beyond the limit as
        there is room for, where that makes smaller what is to be."""
        limit, (table, beyond) = self.limit, candidate
        safe = limit.inside.table
        within = limit.most - UNUSED * (limit.most - limit.inside.limited)
        with standing.stage("repair"):
            mixed = self._mixture(self._repaired(table), safe, within)
            if beyond is not None:
                both = self._mixture(self._repaired(beyond), mixed, within)
                mixed = min(mixed, both, key=limit.least)
        with standing.stage("audit"):
            mechanism = release(self.problem, mixed, method=self.method)
        if limit.limited(mechanism.matrix) > limit.most:
            msg = f"rounding to integers took {self.method} beyond its limit"
            raise PrivacyError(msg)
        return mechanism

    def _repaired(self, table: FloatArray) -> FloatArray:
        if table is self.limit.inside.table:
            return table
        require_numba("the exact repair of a solver's table")
        return repair(self.closure, table, self.problem.epsilon, self.tightening).matrix

    def _mixture(self, table: FloatArray, safe: FloatArray, most: float) -> FloatArray:
        return mixture(table, safe, self.limit.limited, most)


class ExactLimit(LimitSolver):
    """One LP, by HiGHS: columns are the table and one variable t_g per group; rows are sums, edges,
    A z <= t, and what is limited."""

    backend = "highs"
    tightening = EXACT_TIGHTENING

    def __init__(self, limit: Limit) -> None:
        super().__init__(limit)
        self.graph = constraint_graph(self.problem.domain, self.problem.epsilon)
        self.edges = self.graph.count

    def begin(self, standing: Standing) -> None:
        """Nothing is to be prepared."""

    def advance(self, target: int, standing: Standing) -> None:
        """All that HiGHS does; the target is its own."""
        problem, limit, forms = self.problem, self.limit, self.goal.forms
        size, outputs = problem.loss.shape
        exponent = problem.epsilon * self.graph.length
        edges = privacy_rows(self.graph.ends, exponent, size, outputs)
        shape = count, groups = forms.forward(np.zeros(problem.loss.shape)).shape
        units = np.eye(count * groups).reshape(-1, *shape)
        values = scipy.sparse.csr_array(np.array([forms.adjoint(w).ravel() for w in units]))
        names = scipy.sparse.kron(np.ones((count, 1)), scipy.sparse.eye_array(groups))
        scale = float(problem.weighted_loss.mean()) or 1.0
        limited, least = limit.pair(
            np.concatenate([problem.weighted_loss.ravel() / scale, np.zeros(groups)]),
            np.concatenate([np.zeros(problem.loss.size), np.ones(groups)]),
        )
        unit, least_unit = limit.pair(scale, 1.0)
        columns = scipy.sparse.vstack([sum_rows(size, outputs), edges, values])
        beside = scipy.sparse.vstack(
            [scipy.sparse.csr_array((size + edges.shape[0], groups)), -names]
        )
        rows = scipy.sparse.hstack([columns, beside])
        free = edges.shape[0] + values.shape[0]
        answer = Lp(
            least,
            scipy.sparse.csr_array(
                scipy.sparse.vstack([rows, scipy.sparse.csr_array(limited.reshape(1, -1))])
            ),
            np.concatenate([np.ones(size), np.full(free + 1, -np.inf)]),
            np.concatenate([np.ones(size), np.zeros(free), [limit.most / unit]]),
            algorithm="ipm",
        ).solve()
        if answer.primal is None or answer.prices is None:
            msg = f"HiGHS ended the second objective with {answer.status!r} and no table"
            raise SolverError(msg)
        self.iterations, self.ended = answer.iterations, Stopped.SOLVED
        self._table = np.maximum(answer.primal[: problem.loss.size], 0.0).reshape(size, outputs)
        edge, form, last = np.split(-least_unit * answer.prices[size:], [edges.shape[0], free])
        # Loss + price v, with the loss at a price of 1: where it is limited HiGHS says at which.
        theta = max(float(last[0]) / unit, FAINT_PRICE / (limit.most or 1.0))
        loss_price, _ = limit.pair(theta, 1.0)
        self._multipliers = multipliers(-edge / loss_price, exponent, outputs)
        self._weights = np.maximum(form, 0.0).reshape(-1, groups) / loss_price

    def bound(self) -> float:
        least, price = trade_bound(
            self.problem, self.goal.forms, self.graph, self._multipliers, self._weights
        )
        return self.limit.bound(least, price)

    def candidate(self) -> tuple[FloatArray, None]:
        return self._table, None


def trade_bound(
    problem: Problem, forms: Forms, graph: Graph, multipliers: FloatArray, weights: FloatArray
) -> tuple[float, float]:
    """L and a price with loss + price v >= L for every private table, from any numbers >= 0."""
    price = float(weights.sum(axis=0).max(initial=0.0)) * (1 + 1e-12)
    cost = problem.weighted_loss + forms.adjoint(weights)
    reduced, size = reduced_costs(cost, graph.ends, growth(problem, graph), multipliers)
    # The adjoint sums up so many non-negative terms before the edges' are added.
    terms = 2.0 * np.bincount(graph.ends.ravel(), minlength=problem.size) + 12.0 + len(weights)
    least = (reduced - UNIT_ROUNDOFF * terms[:, None] * size).min(axis=1)
    return total_from_below(least), price


class Descent(LimitSolver):
    """The first-order method at a price that is moved until the limit is met."""

    def __init__(self, limit: Limit, solver: TradeOff | None = None) -> None:
        super().__init__(limit)
        self._given = solver
        # Without a solver that has solved for the loss, multipliers are worked out again.
        self.work = self.goal.forms.work * (2 if solver is None else 1)

    def begin(self, standing: Standing) -> None:
        from panda_mdp.methods.second.first_order import TradeOff

        problem, first = self.problem, self.limit.first
        self.solver = self._given or TradeOff(
            problem, constraint_graph(problem.domain, problem.epsilon), first.matrix
        )
        self.pursuit = pursuit = self.limit.pursuit()
        markup = 0.0 if pursuit.premixed else 1 / REPAIRED - 1
        # Certified when the estimate says so or work is over; a price at rest may still move.
        self.tuning = Tuning(
            markup=markup, certify_iterations=math.inf, patience=1 << 30, negligible=0.0
        )
        self.price, self.power = pursuit.start, pursuit.power
        self.inside, self.outside = self.limit.inside, pursuit.outside
        self._began = self.solver.iterations
        self._moved_at: tuple[float, float] | None = None
        self._last_step, self._farthest, self._rested = 0.0, FARTHEST, 0
        self.solver.aim(self.goal, self.price)

    def advance(self, target: int, standing: Standing) -> None:
        left = standing.budget.iterations - self.iterations
        self.solver.advance(min(CHECK, left))
        self.iterations = self.solver.iterations - self._began
        self.edges = self.solver.graph.count
        table = self.solver.matrix()
        nearly = estimate(self.closure, table, self.problem.epsilon)
        self.loss = self.problem.expected_loss(nearly)
        self.objective = self.goal.forms.glance(nearly)
        self.point = point = self.limit.point(self.loss, self.objective, table)
        limit, score = self.limit, self.limit.score(self.inside, self.outside)
        if point.limited > limit.most:
            if limit.score(self.inside, point) <= score:
                self.outside = point
        elif limit.score(point, self.outside) <= score:
            self.inside = point

    def bound(self) -> float:
        least, price, self.weighed = self.solver.least_trade()
        return self.limit.bound(least, price)

    def candidate(self) -> tuple[FloatArray, FloatArray | None]:
        inside, outside, limit = self.inside, self.outside, self.limit
        if not self.pursuit.premixed:
            return inside.table, None if outside is None else outside.table
        if outside is None or limit.score(inside, outside) >= inside.least:
            return inside.table, None
        aimed = self.pursuit.origin + self.pursuit.aim * (limit.most - self.pursuit.origin)
        part = max(0.0, aimed - inside.limited) / (outside.limited - inside.limited)
        return np.asarray((1 - part) * inside.table + part * outside.table), None

    def estimate(self, candidate: object) -> float:
        return self.limit.score(self.inside, self.outside)

    def extend(self, candidate: object, standing: Standing) -> None:
        """Move the price towards the one at which the limit is met."""
        pursuit, limit = self.pursuit, self.limit
        # Early on v has hardly followed the price, and the weights run ahead.
        early = self.iterations < EARLY * standing.budget.iterations
        ahead = self.point
        if early and not self.goal.forms.levelled:
            ahead = limit.point(self.loss, 0.5 * (self.objective + self.weighed), ahead.table)
        share = (ahead.limited - pursuit.origin) / (limit.most - pursuit.origin)
        moved = max(share / pursuit.aim, FAINTEST)
        if self._moved_at is not None and abs(math.log(self.price / self._moved_at[0])) > 0.05:
            seen = math.log(moved / self._moved_at[1]) / math.log(self.price / self._moved_at[0])
            self.power = min(max(seen / pursuit.power, 0.5), 2.0) * pursuit.power
        self.solver.follow()
        self._rested += 1
        step = min(max(-math.log(moved) / self.power, -self._farthest), self._farthest)
        if abs(step) <= NEAR or self._rested < pursuit.rest:
            return
        self._rested = 0
        self._moved_at = (self.price, moved)
        if step * self._last_step < 0:
            self._farthest = max(0.5 * abs(self._last_step), NEAR)
            step = min(max(step, -self._farthest), self._farthest)
        self._last_step = step
        self.price *= math.exp(step)
        self.solver.aim(self.goal, self.price)

    def note(self) -> str:
        return f"{self.goal.name} {self.goal.natural(self.objective):.4g}, loss {self.loss:.4g}"


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
