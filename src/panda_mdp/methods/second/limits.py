"""One of loss and objective limited, the other made least: what solves that, for `certify`.

For any price, a bound L <= loss + price v of all private tables gives both

    v >= (L - B) / price   where loss <= B,        loss >= L - price q   where v <= q.

**HiGHS**, one variable per output and sum of largest forms v_k. For any l >= 0 on the privacy
constraints of any edges, any weights w_k on the forms that sum to 1 for every output and any rates
r_k >= 0 every epsilon-mDP table has

    a loss + sum_k r_k v_k  >=  sum_xy h_xy z_xy  >=  sum_x min_y h_xy,
    h = a p c + sum_k r_k A_k^T w_k + (terms of l),

because v_k(z) >= <w_k, A_k z>, l (z_i - g z_j) <= 0 and rows sum to 1. What is limited is taken
from both sides at its limit. Nothing is asked of where the multipliers come from.

**The first-order method** minimises loss + price v and moves the price until the limited one meets
its limit. The best table within the limit and the best one beyond it are held. A mixture of the two
meets the limit, and both loss and v are at most what lies between theirs: the price need not be
exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, offsets
from panda_mdp.base.floored import FlooredRows
from panda_mdp.base.threads import check_time
from panda_mdp.compute.highs import Answer, multipliers, sum_rows
from panda_mdp.errors import PrivacyError, Stopped
from panda_mdp.methods.adjust import best_response
from panda_mdp.methods.certify import Standing, TableSolver, Tuning
from panda_mdp.methods.optimal.finish import Candidate
from panda_mdp.methods.optimal.graph_solver import GraphSolver
from panda_mdp.methods.optimal.lp import (
    INFLATED,
    LARGEST_EXPONENT,
    OneLp,
    Parts,
    boxed_rows,
    entry_bounds,
)
from panda_mdp.methods.optimal.optimal import CpuEngine, Engine, JaxEngine, choose
from panda_mdp.methods.optimal.program import (
    ALL_PAIRS_RECORDS,
    all_pairs,
    boxed_bound,
    constraint_graph,
    edge_multipliers,
    free_bound,
    one_row,
)
from panda_mdp.methods.second.objectives import Forms
from panda_mdp.privacy.quantise import TOTAL, estimate, quantise_floored, repair
from panda_mdp.problem import Problem
from panda_mdp.table.bound import Multipliers
from panda_mdp.table.claims import LOSS, Term, Terms, Traded
from panda_mdp.table.mechanism import Mechanism, audited_table, floor_row, normalise, release

if TYPE_CHECKING:
    from panda_mdp.methods.optimal.program import Lent


CHECK = 80
FAINTEST = 0.02
"""The least share of the way that is believed: less is what a table has not followed yet."""
FARTHEST = 2.0
"""In logarithms: the longest step of a price; half of the last one after every turn, because what
is seen lags behind the price."""
PRICES = (1e-30, 1e30)
"""In mean costs of an entry: within which a price is looked for."""
REPAIRED = 0.85
"""Of the gap under a limit: what is left for the repair."""
ROUNDED = 1e-15
UNUSED = (1e-6, 1e-3, 0.1)
"""Of the room that a limit leaves: what is not used, so that quantising stays within it; more
where that was not enough."""
TINY = 1e-300
NOTHING = 1e-6
"""Of a floor: what lies above it by less is left out of sparse tables."""
MOST_STORED_MULTIPLIERS = 1 << 21
"""Losses of a problem of which the multipliers of the best bound are kept."""
GUESSED_AGAIN = 4
"""LPs at most: each tries the guesses that were best after the one before."""
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
class Trade:
    """A price of the objective's forms, and a rate of the loss, of which one is limited."""

    on_loss: bool
    """Whether the loss is at most `most`, or else the objective is."""
    most: float
    forms: Forms
    weights: FloatArray
    """Of the forms, (guesses, m)."""
    price: float
    rate: float = 1.0

    def cost(self, problem: Problem) -> FloatArray:
        """What every table pays at most for rate loss + price v, (K, m)."""
        # What rounds the products and the sum is within what `below` leaves.
        return self.rate * problem.weighted_loss + self.price * self.forms.below(self.weights)

    def proof(self, problem: Problem, multipliers: Multipliers) -> Traded | None:
        """What multipliers at that cost prove, as files hold it, where they can."""
        forms = (0.0, 1.0) if self.on_loss else (self.most, 0.0)
        loss = (self.most, 0.0) if self.on_loss else (0.0, 1.0)
        terms = self.forms.terms(self.weights, self.price, *forms)
        if not terms:
            return None
        terms.append(Term(LOSS, problem.prior, self.rate, *loss))
        return Traded(problem, multipliers, Terms.of(problem, terms))

    def bound(self, least: float) -> float:
        """Below what is made least, from a bound below rate loss + price v."""
        limited, free = (self.rate, self.price) if self.on_loss else (self.price, self.rate)
        taken = limited * self.most
        left = least - taken - 4 * ROUNDED * (abs(least) + abs(taken))
        return left / free + self.forms.offset if free > 0 else -math.inf


class Limit:
    """What is limited, to how much, and a private table within that.

    Without `safe` the loss is limited, to a little above that of `first`, the table of least loss;
    with it the objective is, and `safe` is a table within that. A value of what is made least that
    is `enough` need not be fallen below, and where it is out of reach nothing is sought.
    """

    def __init__(
        self,
        goal: Forms,
        first: Mechanism,
        most: float,
        safe: FloatArray | None = None,
        enough: float | None = None,
    ) -> None:
        self.enough = enough
        self.goal, self.first, self.most, self.on_loss = goal, first, most, safe is None
        self.limited, self.least = self.pair(first.problem.expected_loss, goal.value)
        table = first.matrix if safe is None else safe
        self.inside = Point(self.limited(table), self.least(table), table)

    def pair(self, loss: T, objective: T) -> tuple[T, T]:
        """What is limited and what is made least, of the two."""
        return (loss, objective) if self.on_loss else (objective, loss)

    @property
    def method(self) -> str:
        """In words."""
        goal = self.goal
        if self.on_loss:
            return f"{self.first.method}, then {goal.name}"
        side = "least" if goal.sign < 0 else "most"
        return f"optimal, {goal.name} at {side} {goal.sign * self.most:g}"

    def score(self, inside: Point, outside: Point | None) -> float:
        """What is made least, at most, of the mixture of two tables that just meets the limit."""
        if outside is None or outside.limited <= self.most:
            return inside.least
        part = (self.most - inside.limited) / (outside.limited - inside.limited)
        return min(inside.least, (1 - part) * inside.least + part * outside.least)


class LimitSolver(TableSolver):
    """Makes one private table within a limit of a table within and one beyond it."""

    finish: Any = None
    """What makes sparse tables, where there are many tiles."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.goal = limit.goal
        self.method = limit.method
        self.problem = limit.first.problem

    def begin(self, standing: Standing) -> None:
        """At hand, whatever follows: the table within the limit that there is."""
        limit = self.limit
        safe = limit.first
        if not limit.on_loss:
            safe = release(self.problem, limit.inside.table, method=self.method)
        standing.offer(safe)

    def value(self, mechanism: Mechanism) -> float:
        return self.limit.least(mechanism.matrix) + self.goal.penalty(mechanism.matrix)

    def allowed(self, gap: float, bound: float) -> float:
        """A share of the loss, or of what the objective can gain at all."""
        limit = self.limit
        share = self.limit.on_loss and not self.goal.relative
        room = gap * (limit.inside.least - bound if share else bound)
        if limit.enough is None:
            return room
        return max(room, limit.enough - bound) if bound <= limit.enough else math.inf

    def certified(self, candidate: Any, standing: Standing) -> Mechanism:
        """A table, or one within the limit and one beyond it, repaired over all pairs and mixed, as
        mixtures of private tables are private: with the safe one until the limit holds, and with as
        much of the one beyond the limit as there is room for, where that makes smaller what is to
        be. Reporting what is best after each output costs nothing of either; what of a loss is left
        then goes to a row that ignores the record.
        """
        limit = self.limit
        measures = (limit.limited, limit.least, self.goal.penalty)
        limited, least, misses = map(self._of_rows, measures)
        tables = candidate if isinstance(candidate, tuple) else (candidate, None)
        with standing.stage("repair"):
            table, *others = [self._repaired(t) for t in tables if t is not None]
            safe = self._safe(table)
            if limit.on_loss:
                others.append(np.broadcast_to(one_row(self.problem)[0], safe.shape))
        for unused in UNUSED:
            within = limit.most - unused * (limit.most - limit.inside.limited)
            with standing.stage("repair"):
                mixed = mixture(table, safe, limited, within)
                remapped = self._remapped(mixed)
                if misses(remapped) <= misses(mixed):
                    mixed = remapped
                for other in others:
                    both = mixture(other, mixed, limited, within)
                    mixed = min(mixed, both, key=lambda t: least(t) + misses(t))
            with standing.stage("audit"):
                mechanism = self._released(mixed)
            if limit.limited(mechanism.matrix) <= limit.most:
                return mechanism
        raise PrivacyError(f"rounding to integers took {self.method} beyond its limit")

    def _of_rows(self, measure: Measure) -> Measure:
        """The measure of a table that may have its floor as one more row."""
        return lambda table: measure(table[: self.problem.size])

    def _remapped(self, table: FloatArray) -> FloatArray:
        target = best_response(self.problem, table[: self.problem.size])
        count = len(target)
        moves = scipy.sparse.csr_array((np.ones(count), (target, np.arange(count))), (count, count))
        return np.asarray((moves @ table.T).T)

    def _safe(self, table: FloatArray) -> FloatArray:
        """The safe table in the form of another: with its floor, if that has one."""
        safe = self.limit.inside.table
        if len(table) == len(safe):
            return safe
        floor = FlooredRows.over(self.limit.first.weights).floor / TOTAL
        return np.concatenate([safe, floor[None]])

    def _released(self, table: FloatArray) -> Mechanism:
        rows = table[: self.problem.size]
        if len(table) == len(rows):
            return release(self.problem, rows, method=self.method, backend=self.audit)
        floor = table[-1]
        above = rows > floor * (1 + NOTHING)
        starts = offsets(above.sum(axis=1))
        whole = quantise_floored(floor, starts, np.nonzero(above)[1].astype(np.int32), rows[above])
        answer = audited_table(self.problem, whole, self.method, backend=self.audit)
        if isinstance(answer, Mechanism):
            return answer
        raise PrivacyError(f"{self.method} is not private: {answer.audit.shortfall}")

    def floor(self, candidate: FloatArray) -> FloatArray:
        # An iterate's row may be all zeros: it counts as one that reports anything.
        return floor_row(self.problem, normalise(np.maximum(candidate, TINY)))

    def _repaired(self, table: Any) -> FloatArray:
        """Private over all pairs; with its floor as one more row where tables lie over one."""
        if table is self.limit.inside.table:
            return table
        if isinstance(table, Candidate):
            return self.finish.closed(table)
        floor = self.floor(table)
        return repair(self.closure, table, self.problem.epsilon, self.tightening, floor).matrix


class ExactLimit(LimitSolver, OneLp):
    """One LP, by HiGHS: columns are the table, one variable per ceiling and output, and t.

        min t   s.t.   A_k z <= u_k,   sum_y u_ky <= aim_k + unit_k t,   loss <= most or t

    with t in the ceilings that grow with what is made least. An error is solved for again with the
    guesses that are best after the LP's own table.
    """

    # HiGHS's tables are accurate, so the closure needs little room for what normalising leaves.
    tightening = 5e-6
    attempts = (("ipm", None), ("simplex", None), ("ipm", 1e-6))
    _bound = -math.inf
    _table = None
    trades: tuple[Traded, ...] = ()

    def begin(self, standing: Standing) -> None:
        """All in range of HiGHS's tolerances, as in lp.py: tables within the limit on the loss, or
        no worse than the one that keeps the other limit, lie in the box of their excess."""
        LimitSolver.begin(self, standing)
        problem = self.problem
        limit = self.limit
        self._free = free_bound(problem)
        largest = limit.most if limit.on_loss else limit.inside.least
        self.scale, excess, self._most = entry_bounds(problem, largest, self._free)
        self._cost = (excess * self._most).ravel() / self.scale
        few = problem.size <= ALL_PAIRS_RECORDS
        build = partial(all_pairs, most=LARGEST_EXPONENT) if few else constraint_graph
        self.over(build(problem.domain, problem.epsilon))
        self._ceilings = self.goal.ceilings(limit.most, limit.on_loss)

    def advance(self, target: int, standing: Standing) -> None:
        for _ in range(GUESSED_AGAIN):
            self.answer = Answer()
            super().advance(target, standing)
            self._bound = max(self._bound, self._trade())
            table = super().candidate()
            if table is None or not table.sum(axis=1).all():
                return
            self._table = table
            held = self._ceilings
            now = normalise(table)
            # In place of the guesses that are worth least there.
            self._ceilings = [replace(c, gain=c.gain.moved(now, c.gain.forward(now))) for c in held]
            if all(new.gain is old.gain for new, old in zip(self._ceilings, held, strict=True)):
                return

    def candidate(self) -> FloatArray | None:
        return self._table

    def bound(self) -> float:
        return self._bound

    def proof(self) -> Traded | None:
        return max(self.trades, key=lambda trade: trade.value, default=None)

    def parts(self) -> Parts:
        limit = self.limit
        most = self._most
        ceilings = self._ceilings
        outputs = most.shape[1]
        private, lower, upper, self._factors = boxed_rows(self.graph.ends, self.exponent, most)
        values = scipy.sparse.vstack([c.gain.rows(outputs) / c.reference for c in ceilings])
        tops: Any = scipy.sparse.block_diag(
            [np.ones((ceiling.gain.guesses, 1)) for ceiling in ceilings]
        )
        self._shared = np.array([*(c.shared for c in ceilings), not limit.on_loss])
        blocks: Any = [
            [private, None, None],
            [
                values @ scipy.sparse.diags_array(most.ravel()),
                -scipy.sparse.kron(tops, scipy.sparse.eye_array(outputs)),
                None,
            ],
            [
                None,
                sum_rows(len(ceilings), outputs),
                -1.0 * self._shared[:-1, None],
            ],
            [scipy.sparse.csr_array(self._cost[None]), None, -1.0 * self._shared[-1:, None]],
        ]
        rows = scipy.sparse.csr_array(scipy.sparse.block_array(blocks))
        rows.eliminate_zeros()
        # What is not of the table may be of any sign.
        self.lower = np.where(np.arange(rows.shape[1]) < most.size, 0.0, -np.inf)
        room = [ceiling.aim / ceiling.reference for ceiling in ceilings]
        room.append((limit.most - self._free) / self.scale if limit.on_loss else 0.0)
        free = np.full(rows.shape[0] - len(lower), -np.inf)
        upper = np.concatenate([upper, np.zeros(len(free) - len(room)), room])
        return np.eye(1, rows.shape[1], rows.shape[1] - 1)[0], rows, np.append(lower, free), upper

    def _trade(self) -> float:
        """The bound of the module's head, with the prices of the LP; its proof needs no box."""
        problem, graph, limit, ceilings = self.problem, self.graph, self.limit, self._ceilings
        if self.answer.prices is None:
            return -math.inf
        size, outputs = problem.loss.shape
        counts = [ceiling.gain.guesses * outputs for ceiling in ceilings]
        ends = np.cumsum([size, 2 * graph.count * outputs, *counts])
        _, edge, *weights, rates = np.split(self.answer.prices, ends)
        rates = np.maximum(-rates, 0.0)
        if not rates[self._shared].any():
            return -math.inf
        prices = rates / [*(ceiling.reference for ceiling in ceilings), self.scale]
        forms, price = self.goal.priced(ceilings, prices[:-1])
        shares = -np.concatenate(weights).reshape(-1, outputs)
        trade = Trade(limit.on_loss, limit.most, forms, shares, price, float(prices[-1]))
        found = multipliers(edge * self._factors, self.exponent, outputs)
        edges = edge_multipliers(graph, found)
        proof = trade.proof(problem, edges)
        self.trades += () if proof is None else (proof,)
        most = self._most * INFLATED
        return trade.bound(boxed_bound(problem, edges, most, trade.cost(problem)))

    def table(self, values: FloatArray) -> FloatArray:
        shares = np.maximum(values[: self.problem.loss.size], 0.0)
        return shares.reshape(self.problem.loss.shape) * self._most


def engine_with(engine: Engine, tiles: bool = True) -> Engine:
    """The same machine where an objective is followed: one accelerator."""
    tuning = replace(engine.tiling, rescales=False)
    if isinstance(engine, JaxEngine):
        return JaxEngine(tuning)
    # Losses outside of tables that are closed as a whole are worked out anew at every look.
    least = tuning.least_outputs if tiles else 1 << 62
    return CpuEngine(replace(tuning, least_outputs=least, host_outputs=least))


class Descent(LimitSolver):
    """The first-order method at a price that is moved until the limit is met."""

    def __init__(
        self, limit: Limit, solver: GraphSolver | None = None, engine: Engine | None = None
    ) -> None:
        super().__init__(limit)
        self.engine = engine or engine_with(choose("cpu"), tiles=False)
        self.audit = self.engine.audit
        self._given = solver
        self._best = -math.inf
        self._best_trade: tuple[Trade, Lent] | None = None

    def begin(self, standing: Standing) -> None:
        super().begin(standing)
        problem = self.problem
        first = self.limit.first
        limit = self.limit
        # Before it was timed: what all attempts took of the first table, perhaps elsewhere.
        stages = dict(first.stages)
        spent = stages.get("repair", 0.0) + stages.get("audit", 0.0)
        standing.certify_seconds = min(spent, (standing.budget.time_limit or 0.0) / 3)
        graph = constraint_graph(problem.domain, problem.epsilon)
        self.solver: Any = self._given or self.engine.solver(problem, graph, first.matrix)
        if self.solver.tiling.one:
            self.closure = self.engine.closure(problem)
        else:
            self.finish = self.solver.finish
        self.inside: Point = limit.inside
        self.outside: Point | None = None
        self._origin = limit.limited(first.matrix)
        price_factor = self.goal.price_factor
        self._room = room = abs(limit.most - self._origin)
        # With the price a loss moves from its origin as the square, an objective as the root, which
        # follows more slowly; the aim is the share of the way to the limit that is aimed at.
        if limit.on_loss:
            gain = limit.inside.least - limit.least(one_row(problem))
            self.price = price_factor * room / (gain if gain > 0 else 1.0)
            self._power = 2.0
            self._aim = 0.97
            self._rest = 1
        else:
            whole = self._origin - limit.inside.limited
            self.price = 0.25 * price_factor * first.loss * room / whole**2
            self._power = 0.5
            self._aim = 1.02
            self._rest = 2
            self.outside = Point(self._origin, first.loss, first.matrix)
        # Certified when the estimate says so or work is over; a price at rest may still move.
        self.tuning = Tuning(
            markup=1 / REPAIRED - 1,
            certify_iterations=math.inf,
            patience=1 << 30,
            negligible=0.0,
        )
        self._began = self.solver.iterations
        self._last_step = 0.0
        self._farthest = FARTHEST
        self._rested = 0
        if room > 0:
            self._aim_at(self.price)

    def _aim_at(self, price: float) -> None:
        """Minimise loss + `price` v, at a price in the range of the steps' numbers."""
        low, high = (self.solver.unit * end for end in PRICES)
        self.price = min(max(price, low), high)
        self.solver.aim(self.goal, self.price)

    def advance(self, target: int, standing: Standing) -> None:
        if not self._room > 0:
            # A loss of nothing, of which a share is nothing.
            self.ended = Stopped.NEGLIGIBLE
            return
        check_time()
        self.solver.advance(min(CHECK, standing.budget.iterations - self.iterations))
        self.iterations = self.solver.iterations - self._began
        self.edges = self.solver.graph.count
        table = self._seen()
        limit = self.limit
        score = self.limit.score(self.inside, self.outside)
        point = Point(*limit.pair(self.loss, self.objective), table)
        if point.limited > limit.most:
            if limit.score(self.inside, point) <= score:
                self.outside = point
        elif limit.score(point, self.outside) <= score:
            self.inside = point

    def _seen(self) -> Any:
        """The present table; `loss` and `objective` are about those of what it will be repaired
        to."""
        solver = self.solver
        if self.finish:
            sparse = self.finish.candidate(solver)
            self.loss = self.finish.estimate(sparse)
            self.objective = self.goal.worth(solver.on.values(solver.entries()))
            return sparse
        table = solver.matrix()
        nearly = estimate(self.closure, table, self.problem.epsilon)
        self.loss = self.problem.expected_loss(nearly)
        self.objective = self.goal.value(nearly)
        return table

    def bound(self) -> float:
        if self.ended is not None:
            return -math.inf
        solver, limit = self.solver, self.limit
        trade = Trade(limit.on_loss, limit.most, solver.on, solver.weights, self.price)
        bound = trade.bound(solver.least_trade())
        if bound > self._best:
            kept = solver.on_host and self.problem.loss.size <= MOST_STORED_MULTIPLIERS
            self._best, self._best_trade = bound, (trade, solver.lent()) if kept else None
        return bound

    def proof(self) -> Traded | None:
        if self._best_trade is None:
            return None
        trade, lent = self._best_trade
        return trade.proof(self.problem, lent.multipliers)

    def candidate(self) -> tuple[FloatArray, FloatArray | None]:
        return self.inside.table, None if self.outside is None else self.outside.table

    def estimate(self, candidate: object) -> float:
        return self.limit.score(self.inside, self.outside)

    def extend(self, candidate: object, standing: Standing) -> None:
        """Move the price towards the one at which the limit is met."""
        limit, (limited, _) = self.limit, self.limit.pair(self.loss, self.objective)
        share = (limited - self._origin) / (limit.most - self._origin)
        moved = max(share / self._aim, FAINTEST)
        self.solver.follow()
        self._rested += 1
        forms = self.goal
        step = -math.log(moved) / self._power
        reach = forms.faster * self._farthest
        if min(abs(step), reach) <= forms.least_step or self._rested < self._rest:
            return
        self._rested = 0
        if step * self._last_step < 0:
            reach = 0.5 * abs(self._last_step)
        self._farthest = min(max(reach, forms.least_step), FARTHEST)
        self._last_step = min(max(step, -self._farthest), self._farthest)
        self._aim_at(self.price * math.exp(self._last_step))

    def note(self) -> str:
        if self.ended is not None:
            return ""
        return f"{self.goal.name} {self.goal.sign * self.objective:.4g}, loss {self.loss:.4g}"


def mixture(table: FloatArray, safe: FloatArray, measure: Measure, most: float) -> FloatArray:
    """table + t (safe - table) with nearly the least t for which a convex `measure` is at most
    `most`: below its chords, so every crossing of one is within."""
    value = measure(table)
    if value <= most:
        return table
    share = 1.0
    mixed = safe
    reached = measure(safe)
    for _ in range(CHORDS):
        if not reached < most:
            break
        share *= (value - most) / (value - reached)
        mixed = (1 - share) * table + share * safe
        reached = measure(mixed)
    return mixed
