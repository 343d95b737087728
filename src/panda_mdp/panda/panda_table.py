"""PAnDA as something to run: the law of Phase I, the rows of Phase II, and what both guarantee."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray, IntArray, frozen
from panda_mdp.base.sealing import sealed
from panda_mdp.errors import MethodError, PrivacyError
from panda_mdp.panda.accounts.certificate import ranked_candidates
from panda_mdp.panda.accounts.violation import Account
from panda_mdp.panda.anpo import AnchorTable
from panda_mdp.panda.file.encode import encode
from panda_mdp.panda.schemes.ball_scheme import BallScheme, CommonBalls, NearestBalls
from panda_mdp.panda.schemes.coin_scheme import CoinScheme
from panda_mdp.panda.schemes.scheme import Scheme
from panda_mdp.panda.selection.draws import numerators
from panda_mdp.panda.selection.law import AnchorLaw, surrogates
from panda_mdp.privacy.guarantee import Guarantee, compose
from panda_mdp.privacy.quantise import quantise
from panda_mdp.privacy.sampler import BitSource, SystemBits, choose_rows
from panda_mdp.problem import Problem
from panda_mdp.space.domain import check_record, check_records
from panda_mdp.table.pmdp.encode import write

BLOCK = 1024
"""Records whose candidates are ranked at a time."""


@dataclass(frozen=True, eq=False)
class PandaTable:
    """Everything that a person needs to take part alone: draw, look up, report.

    Holds what is public and the same for everybody, and nothing of the users of a run: the law of
    Phase I, one table with a row for every anchor that can be drawn, and the account of both. Made
    by `PandaTable.of(scheme)` and `load_panda`; the constructor computes the account on the
    integers that it holds and refuses where the guarantee does not hold.

    `sample(record)` runs both phases: (epsilon, delta) for all pairs of records, anchors and report
    together, and again for each further call. `select` once and `report` from it costs `further`
    for each report after the first.
    """

    scheme: Scheme
    table: AnchorTable

    def __post_init__(self) -> None:
        if not isinstance(self.scheme, CommonBalls | NearestBalls | CoinScheme):
            msg = (
                f"{type(self.scheme).__name__} makes rows for each ball, so no table holds them: "
                "use outside='common'"
            )
            raise MethodError(msg)
        if self.scheme.failure is not None:
            raise self.scheme.failure
        if self.account.violation > self.guarantee.delta:
            x, x2 = self.account.pair
            msg = (
                f"records {x} and {x2} exceed epsilon {self.problem.epsilon:g} with probability "
                f"{self.account.violation:.4g}, and delta is {self.guarantee.delta:g}"
            )
            raise PrivacyError(msg)

    @classmethod
    def of(cls, scheme: Scheme) -> Self:
        """The table over all anchors that anybody can draw."""
        return cls(scheme, scheme.whole_table())

    def __repr__(self) -> str:
        return (
            f"PandaTable({self.scheme.selection!r}: K={self.problem.size}, "
            f"m={self.problem.outputs_count}, {self.guarantee}; a user downloads "
            f"{self.download:.1%} of the records' rows)"
        )

    @property
    def problem(self) -> Problem:
        """Records, outputs, losses and epsilon."""
        return self.scheme.problem

    @property
    def epsilon(self) -> float:
        """What anchors and report tell together, per unit of distance, save with `delta`."""
        return self.problem.epsilon

    @property
    def delta(self) -> float:
        """The probability of more."""
        return self.guarantee.delta

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta) of one selection and one report."""
        return self.scheme.guarantee

    @property
    def selection_epsilon(self) -> float:
        """What the anchors alone tell, per unit of distance."""
        if isinstance(self.scheme, BallScheme):
            return self.scheme.law.mechanism.audit.epsilon
        return float(self.scheme.conditions.cost.rate) if isinstance(self.scheme, CoinScheme) else 0

    @property
    def further(self) -> Guarantee:
        """What each further report from the same anchors costs.

        A ball's centre is told once, eps - eps_1 is left, and another report may be at the edge of
        the ball again. Coins: k reports cost at most L + k (eps d - L) <= k eps d, and the sets for
        which that fails are the same.
        """
        unit = self.problem.domain.unit
        if isinstance(self.scheme, CommonBalls):
            return Guarantee(self.scheme.left, self.delta, unit)
        if isinstance(self.scheme, BallScheme):
            return Guarantee(self.scheme.left, 0.0, unit)
        return Guarantee(self.epsilon, 0.0, unit)

    def cost(self, reports: int) -> Guarantee:
        """What one selection and so many reports from it cost together."""
        if reports < 1:
            msg = f"reports is {reports}; one selection serves at least one report"
            raise MethodError(msg)
        return compose(self.guarantee, *([self.further] * (reports - 1)))

    @cached_property
    def account(self) -> Account:
        """The largest violation probability over all pairs, computed from these integers."""
        return self.scheme.accounted or Account(1.0, (0, 1))

    @cached_property
    def loss(self) -> float:
        """Expected loss over prior, draws and reports: an exact sum over true records."""
        return self.scheme.expected_loss()

    @property
    def download(self) -> float:
        """Rows that a user needs, on average, as a share of one row for every record."""
        return self.scheme.expected_anchors / self.problem.size

    @cached_property
    def weights(self) -> IntArray:
        """All integer rows that a report may be drawn from.

        The table's; then for balls one for everybody outside the ball of each centre, for coins the
        one of an empty set, which reports what is best without a record.
        """
        rows = np.asarray(self.table.mechanism.weights)
        if isinstance(self.scheme, CommonBalls):
            return frozen(np.concatenate([rows, self.scheme.outside_rows]))
        if isinstance(self.scheme, CoinScheme):
            blind = np.zeros((1, self.problem.outputs_count))
            blind[0, self.problem.best_single_output] = 1.0
            return frozen(np.concatenate([rows, quantise(blind)]))
        return rows

    def draw_rows(self, records: IntArray, bits: BitSource) -> IntArray:
        """Phase I for each record: the row of `weights` that it then reports from."""
        scheme = self.scheme
        if not isinstance(scheme, BallScheme | CoinScheme):
            msg = f"{type(scheme).__name__} has no rows"
            raise MethodError(msg)
        if isinstance(scheme, BallScheme):
            law = scheme.law
            centre = choose_rows(law.mechanism.weights, records, bits)
            rows = np.array(records, dtype=np.int64)
            beyond = np.flatnonzero(law.distance[records, centre] > law.radius)
            if isinstance(scheme, CommonBalls):
                rows[beyond] = self.problem.size + centre[beyond]
                return rows
            for k in beyond:
                ball = law.ball(int(centre[k]))
                rows[k] = ball[surrogates(self.problem.domain, ball, records[k : k + 1])[0]]
            return rows
        rows = np.empty(len(records), dtype=np.int64)
        for begin in range(0, len(records), BLOCK):
            part = records[begin : begin + BLOCK]
            rows[begin : begin + BLOCK] = self._surrogate_rows(scheme.law, part, bits)
        return rows

    def _surrogate_rows(self, law: AnchorLaw, records: IntArray, bits: BitSource) -> IntArray:
        """Rows of the nearest anchor of a set that is drawn for each record.

        Coins are flipped from the nearest candidate on, and no further than the first success:
        what is beyond does not change the report, and the set itself is not released here.
        """
        different, which = np.unique(records, return_inverse=True)
        ranked = ranked_candidates(law, len(law.candidates), different)
        units = numerators(np.take_along_axis(law.dense(different), ranked, axis=1))
        rows = np.full(len(records), len(self.table.mechanism.weights), dtype=np.int64)
        waiting = np.arange(len(records))
        for rank in range(ranked.shape[1]):
            if len(waiting) == 0:
                break
            mine = which.reshape(-1)[waiting]
            selected = bits.integers(len(waiting)) < units[mine, rank]
            anchors = ranked[mine[selected], rank]
            rows[waiting[selected]] = self.table.row[self.table.positions(anchors)]
            waiting = waiting[~selected]
        return rows

    @cached_property
    def marginal(self) -> FloatArray:
        """Pr[report | record] with Phase I summed out, K x m: what an analyst of reports needs."""
        problem, scheme = self.problem, self.scheme
        rows = self.weights / 2.0**62
        if isinstance(scheme, CommonBalls):
            law = scheme.law
            away = np.where(law.distance > law.radius, law.mechanism.matrix, 0.0)
            own = (1.0 - away.sum(axis=1))[:, None] * rows[: problem.size]
            return np.asarray(own + away @ rows[problem.size :])
        out = np.zeros((problem.size, problem.outputs_count))
        if isinstance(scheme, CoinScheme):
            for x in range(problem.size):
                v = scheme.selection.surrogate_probability(problem.domain, x)[self.table.anchors]
                out[x] = v @ rows[self.table.row] + max(0.0, 1.0 - v.sum()) * rows[-1]
            return out
        if isinstance(scheme, BallScheme):
            chance = scheme.law.mechanism.matrix
            for k in range(len(scheme.law.centres)):
                used, row = scheme.rows(scheme.law.ball(k), self.table)
                out += chance[:, k, None] * (used / 2.0**62)[row]
        return out

    @sealed
    def sample(self, records: npt.ArrayLike, size: int | None = None) -> Any:
        """Both phases, for a record or one time for each of many; what is reported comes back.

        Indices into the domain, or labels where outputs are no records. All draws are of the
        operating system's generator. Every draw runs Phase I anew and costs `guarantee` again.
        """
        bits, one = SystemBits(), np.ndim(records) == 0
        if one:
            chosen = np.array([check_record(records, self.problem.size, MethodError)])
            if size is not None:
                if size < 0:
                    msg = f"size is {size}; it must not be negative"
                    raise MethodError(msg)
                chosen = np.repeat(chosen, size)
        elif size is not None:
            msg = "size is for draws of one record; many records get one draw each"
            raise MethodError(msg)
        else:
            chosen = check_records(records, self.problem.size, MethodError)
        columns = choose_rows(self.weights, self.draw_rows(chosen, bits), bits)
        return self._reported(columns, single=one and size is None)

    @sealed
    def select(self, record: int) -> IntArray:
        """Phase I: the anchors of a record, domain indices, ascending. Costs eps_1 when released.

        Keep it for as long as the record stays the same: another selection costs eps_1 again, and
        a selection of one record promises nothing for another.
        """
        return self.scheme.draw(
            int(check_record(record, self.problem.size, MethodError)), SystemBits()
        )

    @sealed
    def report(self, record: int, anchors: npt.ArrayLike) -> Any:
        """Phase II: a report of a record from anchors that were selected for it."""
        chosen = np.asarray(anchors, dtype=np.int64).reshape(-1)
        mine = np.array([check_record(record, self.problem.size, MethodError)])
        rows, row = self.scheme.rows(chosen, self.table, mine)
        return self._reported(choose_rows(rows, row, SystemBits()), single=True)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write law, table, problem and account to one file, atomically; `load_panda` reads it."""
        target = Path(path)
        write(target, encode(self))
        return target

    def _reported(self, columns: IntArray, single: bool) -> Any:
        reported = self.problem.reports.report(columns)
        if not single:
            return reported
        first: Any = reported[0]
        return int(first) if isinstance(first, np.integer) else first
