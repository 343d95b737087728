"""Independent coins: budgets between all candidates, certified for one user, and AnPO over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.errors import InfeasibleError
from panda_mdp.panda.accounts.budgets import BudgetShares, PandaPlan
from panda_mdp.panda.accounts.certificate import Certificate, certify, pair_bound
from panda_mdp.panda.accounts.coverage import Feasibility, feasibility
from panda_mdp.panda.accounts.leakage import log_likelihoods, log_ratio
from panda_mdp.panda.accounts.quantiles import leakage_quantile
from panda_mdp.panda.accounts.violation import SLACK, Account, Enumeration, Spreads, Violation
from panda_mdp.panda.anpo import AnchorTable, solve_anchors
from panda_mdp.panda.options import Options
from panda_mdp.panda.schemes.scheme import Scheme, Start
from panda_mdp.panda.selection.law import (
    AnchorLaw,
    check_anchors,
    likely_surrogates,
    members,
    near_laws,
    ranking,
    surrogate_law,
    surrogates,
)
from panda_mdp.privacy.quantise import quantise
from panda_mdp.privacy.sampler import BitSource
from panda_mdp.problem import Problem

if TYPE_CHECKING:
    from panda_mdp.panda.selection.bernoulli import BernoulliAnchors

ENUMERATED = 14
"""Up to this many candidates all sets are visited."""
NEGLIGIBLE = 1e-3
"""Surrogates that together are rarer than this share of delta are counted as failures."""


@dataclass(frozen=True, eq=False)
class CoinScheme(Scheme):
    """Anchors by independent coins, and a table that keeps the budgets between them.

    The guarantee rests on the certificate alone: the budgets are fixed before anybody draws, every
    table keeps them, and the certificate bounds how often the two surrogates of one set lie
    farther from each other than a pair of records allows.
    """

    problem: Problem
    selection: BernoulliAnchors
    delta: float
    options: Options

    @cached_property
    def law(self) -> AnchorLaw:
        """The law of the coins on the problem's domain."""
        return self.selection.on(self.problem.domain)

    @property
    def radius(self) -> float:
        return self.law.radius

    @property
    def neighbours(self) -> int:
        """Gamma: the option where it is given, else the selection's."""
        given = self.options.neighbours
        return self.selection.neighbours if given is None else given

    @cached_property
    def conditions(self) -> Feasibility:
        """What the paper's argument needs. Only the cost of Phase I is necessary for ours."""
        rest = self.delta - self.options.delta_selection
        return feasibility(
            self.law,
            self.problem.epsilon,
            rest,
            self.problem.prior,
            self.neighbours,
            self.options.delta_selection,
        )

    @cached_property
    def plan(self) -> PandaPlan:
        """Budgets between all candidates: whatever anybody uploads, tables keep them."""
        return self._plan(self.law.candidates)

    @cached_property
    def budgets(self) -> FloatArray:
        """What rows of candidates may differ by, in nats, (n, n): the plan's."""
        return self.plan.budgets

    @cached_property
    def certificate(self) -> Certificate:
        """The bound on every pair's violation probability that the guarantee rests on."""
        return certify(
            self.law,
            self.problem.epsilon,
            self.delta,
            self.budgets,
            self.options.delta_selection,
        )

    @property
    def affordable(self) -> bool:
        """Whether Phase I leaves something: where it does not, budgets mean nothing."""
        return self.conditions.cost.rate <= self.problem.epsilon

    @cached_property
    def failure(self) -> InfeasibleError | None:
        return self.certificate.failure if self.affordable else self.conditions.failure

    def draw(self, record: int, bits: BitSource) -> IntArray:
        return self.selection.draw(self.problem.domain, record, bits)

    def check_upload(self, anchors: Any) -> IntArray:
        return check_anchors(self.law, anchors)

    def plan_of(self, anchors: IntArray) -> PandaPlan:
        """Budgets between some anchors."""
        return self.plan.restricted(anchors) if self.affordable else self._plan(anchors)

    def _plan(self, anchors: IntArray) -> PandaPlan:
        if self.affordable and self.options.budgets == "certificate":
            return PandaPlan.certified(
                self.problem, self.selection, self.delta, self.options.delta_selection
            )
        return PandaPlan.over(
            self.problem,
            self.selection,
            anchors,
            self.delta,
            neighbours=self.neighbours,
            delta_selection=self.options.delta_selection,
        )

    def solve(self, sets: tuple[IntArray, ...], start: Start | None) -> tuple[AnchorTable, ...]:
        options = self.options
        union = np.unique(np.concatenate(sets))
        if options.pairs == "public":
            union = self.law.candidates
        budgets = self.plan_of(union).budgets
        importance, losses = self.objective(union)
        tables = []
        for chosen in sets if options.pairs == "own" else (union,):
            at = np.searchsorted(union, chosen if len(chosen) else union)
            table, _ = solve_anchors(
                self.problem,
                union[at],
                budgets[np.ix_(at, at)],
                importance[at],
                losses=losses[at],
                solver=options.solver,
                gap=options.gap,
                time_limit=options.time_limit,
                start=start,
            )
            tables.append(table)
        if len(tables) == 1 and len(union) == len(self.law.candidates):
            self.__dict__.setdefault("_whole", tables[0])
        return tuple(tables)

    @cached_property
    def _whole(self) -> AnchorTable:
        return replace(self, options=replace(self.options, pairs="union")).solve(
            (self.law.candidates,), None
        )[0]

    def whole_table(self) -> AnchorTable:
        return self._whole

    def objective(self, anchors: IntArray) -> tuple[FloatArray, FloatArray]:
        """AnPO's objective: weights and losses of anchors.

        The prior and the anchor's own loss, as in the paper; or how often the anchor is a surrogate
        and the mean loss of the records that it then stands for, sum_x p_x v(x, a) c_x over
        sum_x p_x v(x, a): the expected loss over true records itself. Both are public.
        """
        problem = self.problem
        if self.options.weights == "prior":
            return np.asarray(problem.prior[anchors]), problem.loss[anchors]
        rows = self.law.all_rows
        near, v = near_laws(rows)
        shares = scipy.sparse.coo_array(
            (v * problem.prior[rows.owner], (near, rows.owner)), shape=(problem.size, problem.size)
        ).tocsr()[anchors]
        weights: FloatArray = np.asarray(shares.sum(axis=1)).reshape(-1)
        losses: FloatArray = np.asarray(shares @ problem.loss)
        losses /= np.where(weights > 0, weights, 1.0)[:, None]
        return weights, np.where(weights[:, None] > 0, losses, problem.loss[anchors])

    def rows(
        self, anchors: IntArray, table: AnchorTable, records: IntArray | None = None
    ) -> tuple[IntArray, IntArray]:
        """The row of the nearest own anchor. An empty set reports what is best without a record."""
        count = self.problem.size if records is None else len(records)
        if len(anchors) == 0:
            blind = np.zeros((1, self.problem.outputs_count))
            blind[0, self.problem.best_single_output] = 1.0
            return quantise(blind), np.zeros(count, dtype=np.int64)
        nearest = surrogates(self.problem.domain, anchors, records)
        used, row = np.unique(table.row[table.positions(anchors)][nearest], return_inverse=True)
        return table.mechanism.weights[used], row.astype(np.int64)

    def log_likelihoods(self, anchors: IntArray) -> FloatArray:
        return log_likelihoods(self.law, self.law.all_rows, members(self.problem.size, anchors))

    def counted(self, anchors: IntArray) -> BoolArray:
        return np.ones(self.problem.size, dtype=bool)

    def account(self) -> Account | None:
        if not self.affordable:
            return None
        budgets, share = self.budgets, self.options.delta_selection
        certified = certify(self.law, self.problem.epsilon, self.delta, budgets, share)
        return Account(certified.violation, certified.pair)

    @property
    def accounted(self) -> Account | None:
        if not self.affordable:
            return None
        return Account(self.certificate.violation, self.certificate.pair)

    def settled(
        self, sets: tuple[IntArray, ...], tables: tuple[AnchorTable, ...]
    ) -> AnchorTable | None:
        """A public table, or one over all candidates, each in the sets of two users at least.

        Whatever one user draws instead, the union, and with it the table, stays as it is.
        """
        if self.options.pairs == "public":
            return tables[0]
        counts = np.bincount(np.concatenate(sets), minlength=self.problem.size)
        if len(tables) == 1 and counts[self.law.candidates].min() >= 2:
            return tables[0]
        return None

    def spreads(
        self, settled: AnchorTable | None, anchors: IntArray, record: int, others: IntArray
    ) -> Spreads:
        """Of surrogates. Whatever table AnPO gives for a fresh set keeps the budgets."""
        everyone = np.concatenate([[record], others])
        ends = anchors[surrogates(self.problem.domain, anchors, everyone)]
        same = ends[1:] == ends[0]
        if settled is not None:
            up, down = settled.spreads(int(ends[0]), ends[1:])
        elif self.affordable:
            at = np.searchsorted(self.plan.anchors, ends)
            up = down = self.plan.budgets[at[0], at[1:]]
        else:
            up = down = np.where(same, 0.0, np.inf)
        return Spreads(up, down, same | (settled is not None))

    def enumeration(self, settled: AnchorTable | None, pair: IntArray) -> Enumeration | None:
        """All anchor sets. An empty set has no surrogate: its loss is infinite."""
        candidates = self.law.candidates
        if len(candidates) > ENUMERATED:
            return None
        w = self.law.dense(pair)[:, candidates]
        orders = [ranking(self.law, int(record))[0] for record in pair]
        chosen, passed = log_ratio(w[0], w[1]), log_ratio(1.0 - w[0], 1.0 - w[1])
        count = 1 << len(candidates)
        low, high, masses = np.empty(count), np.empty(count), np.empty((2, count))
        low[0] = high[0] = np.inf
        masses[:, 0] = (1.0 - w).prod(axis=1)
        cache: dict[tuple[int, int], Spreads] = {}
        for code in range(1, count):
            member = (code >> np.arange(len(candidates)) & 1).astype(bool)
            masses[:, code] = np.where(member, w, 1.0 - w).prod(axis=1)
            a, b = (int(order[member[order].argmax()]) for order in orders)
            if (a, b) not in cache:
                ends = np.unique(candidates[[a, b]])
                cache[a, b] = self.spreads(settled, ends, int(pair[0]), pair[1:])
            leak = np.where(member, chosen, passed).sum(keepdims=True)
            low[code : code + 1], high[code : code + 1] = cache[a, b].losses(leak)
        return Enumeration(low, high, masses, "all anchor sets")

    def pair_bound(self, pair: IntArray) -> float:
        if not self.affordable:
            return 1.0
        x, x2 = int(pair[0]), int(pair[1])
        share = self.options.delta_selection
        cost = leakage_quantile(self.law, x, x2, share)
        bound = pair_bound(self.law, self.problem.epsilon, self.plan.budgets, cost, (x, x2))
        return min(1.0, bound + share)

    def paper_violation(self, settled: AnchorTable | None, pair: IntArray) -> Violation:
        """Two users, independent sets: surrogates (a, b) with v(x, a) v(x', b) (Proposition 4).

        Exact up to surrogates that are together rarer than delta / 1000.
        """
        domain = self.problem.domain
        leak = self.selection.leakage(domain, int(pair[0]), int(pair[1]))
        distance = domain.distance(int(pair[0]), int(pair[1]))
        limit = self.problem.epsilon * distance
        room = SLACK * (1 + limit)
        sides = []
        for record in pair:
            v = surrogate_law(self.law, int(record))
            order = np.argsort(-v, kind="stable")
            order = order[v[order] > 0]
            # What is left out is summed from its own terms, so that tiny rests stay accurate.
            tails = np.cumsum(v[order][::-1])[::-1]
            cut = int((tails > NEGLIGIBLE * max(self.delta, 1e-300)).sum())
            rest = float(tails[cut]) if cut < len(order) else 0.0
            sides.append((order[:cut], v[order[:cut]], rest))
        (first, v, rest), (second, v2, rest2) = sides
        masses = np.outer(v, v2).ravel()
        values, exact = np.empty((len(v), len(v2))), np.empty((len(v), len(v2)), dtype=bool)
        for k, a in enumerate(first):
            for j, b in enumerate(second):
                # Either set alone has the surrogate as its only member that matters.
                between = self.spreads(settled, np.unique([a, b]), int(a), np.array([b]))
                values[k, j] = leak + max(float(between.up[0]), float(between.down[0]))
                exact[k, j] = bool(between.exact[0])
        losses, known = values.ravel(), exact.ravel()
        empty = [float(np.prod(1.0 - w[self.law.candidates])) for w in self.law.dense(pair)]
        missing = empty[0] + empty[1] - empty[0] * empty[1]
        beyond = missing + rest + rest2
        order = np.argsort(-losses)
        over = beyond + np.cumsum(masses[order]) > self.delta
        effective = float(losses[order[over.argmax()]]) / distance if over.any() else 0.0
        if beyond > self.delta:
            effective = float("inf")
        low = float(masses[known & (losses > limit + room)].sum())
        high = float(masses[losses > limit - room].sum())
        return Violation(low + missing, high + beyond, effective, "surrogate pairs")

    def expected_loss(self) -> float:
        """sum_x p_x sum_a v(x, a) c_x z_a. An empty set reports what is best without a record."""
        problem, table = self.problem, self.whole_table().matrix
        total = 0.0
        for x in np.flatnonzero(problem.prior):
            chosen, v = likely_surrogates(self.law, int(x))
            empty = max(0.0, 1.0 - float(v.sum()))
            blind = float(problem.loss[x, problem.best_single_output])
            row = v @ table[chosen]
            total += float(problem.prior[x]) * (float(row @ problem.loss[x]) + empty * blind)
        return total

    @property
    def expected_anchors(self) -> float:
        rows, near = self.law.all_rows, np.zeros(self.problem.size)
        np.add.at(near, rows.owner, rows.probability - self.law.tail)
        return float(self.problem.prior @ near) + self.law.tail * len(self.law.candidates)

    def shares(self, anchors: IntArray) -> BudgetShares:
        return self.plan_of(anchors).shares

    def details(self, anchors: IntArray, table: AnchorTable) -> Mapping[str, Any]:
        plan = self.plan_of(anchors)
        return {"clipped_pairs": plan.clipped, "pairs": plan.pair_count}
