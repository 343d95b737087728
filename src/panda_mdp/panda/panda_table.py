"""PAnDA as something to run: the law of Phase I, the rows of Phase II, and what both guarantee."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import Described, FloatArray, IntArray, frozen, identify
from panda_mdp.base.atomic import FilePath, write_whole
from panda_mdp.base.text import per
from panda_mdp.errors import MethodError, PrivacyError, sealed
from panda_mdp.loss import UnknownLoss
from panda_mdp.panda.anpo import AnchorTable
from panda_mdp.panda.selection import Account, Scheme
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.privacy.quantise import SystemBits, quantise
from panda_mdp.problem import Problem, describe_problem
from panda_mdp.space.domain import check_record
from panda_mdp.table.container import pack
from panda_mdp.table.encode import describe_notes
from panda_mdp.table.mechanism import Mechanism, NoGuarantee, audited_table, requested_records

MOST_SEEN = 1 << 26
NEAR_KM = (0.1, 0.5, 1.0)
"""Distances that `explain` speaks of."""


@dataclass(frozen=True, eq=False)
class Seen:
    """What somebody sees of a record, for `panda_mdp.attack`: Pr[seen | record]."""

    problem: Problem
    matrix: FloatArray
    """(K, everything that can be seen)."""
    method: str


@dataclass(frozen=True, eq=False)
class PandaTable:
    """Everything that a person needs to take part alone: draw, look up, report.

    Holds what is public and the same for everybody, and nothing of the users of a run: the law of
    Phase I, one table with a row for every anchor that can be drawn, and the account of both. Made
    of a scheme, or by `pm.load`; the constructor computes the account on the integers that it
    holds and refuses where the guarantee does not hold.

    `sample(record)` runs both phases: (epsilon, delta) for all pairs of records, anchors and report
    together, and again for each further call. `select` once and `report` from it costs `further`
    for each report after the first.
    """

    scheme: Scheme

    def __post_init__(self) -> None:
        # An account that is no number proves nothing.
        if not self.account.violation <= self.guarantee.delta:
            x, x2 = self.account.pair
            raise PrivacyError(
                f"records {x} and {x2} exceed epsilon {self.problem.epsilon:g} with probability "
                f"{self.account.violation:.4g}, and delta is {self.guarantee.delta:g}"
            )

    def __repr__(self) -> str:
        return (
            f"PandaTable({self.scheme.selection!r}: K={self.problem.size}, "
            f"m={self.problem.outputs_count}, {self.guarantee}; a user fetches "
            f"{self.download:,} bytes)"
        )

    @property
    def problem(self) -> Problem:
        """Records, outputs, losses and epsilon."""
        return self.scheme.problem

    @property
    def table(self) -> AnchorTable:
        """A row for every anchor that can be drawn."""
        return self.scheme.whole_table

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
        return self.scheme.selection_epsilon

    @property
    def further(self) -> Guarantee:
        """What each further report from the same anchors costs."""
        return self.scheme.further

    @property
    def account(self) -> Account:
        """The largest violation probability over all pairs, computed from these integers."""
        return self.scheme.account

    @property
    def loss(self) -> float:
        """Expected loss over prior, draws and reports: an exact sum over true records."""
        return self.scheme.expected_loss

    @cached_property
    def download(self) -> int:
        """Bytes that a user fetches: the file with the law of Phase I and all rows, and without
        losses where nobody draws by them."""
        return len(self.wire)

    @property
    def wire(self) -> bytes:
        """The file as clients need it."""
        return self.encode(losses=self.scheme.needs_losses)

    @property
    def matrix(self) -> FloatArray:
        """Pr[report | record] with Phase I summed out, K x m: what an analyst of reports needs."""
        return self.scheme.marginal

    @property
    def summed(self) -> Mechanism | NoGuarantee:
        """A table of the reports alone, for whoever looks at them: rounded, and audited anew."""
        return audited_table(self.problem, quantise(self.matrix), "PAnDA, both phases summed")

    @cached_property
    def seen(self) -> Seen:
        """What a server is sent that both phases talk to, anchors or centre and report together:
        by every release, where those are not too many; of balls all but one in a million."""
        columns = []
        size = 0
        for release, chances in self.scheme.releases():
            rows, row = self.scheme.rows(np.array(release), self.table)
            columns.append(chances[:, None] * rows[row])
            size += columns[-1].size
            if size > MOST_SEEN:
                raise MethodError(
                    f"records, anchors and outputs are more than {MOST_SEEN:,} together, and all "
                    "are visited; take fewer records or outputs"
                )
        matrix = frozen(np.concatenate(columns, axis=1))
        return Seen(self.problem, matrix, f"PAnDA, {self.scheme.selection!r}, anchors sent")

    @sealed
    def row(self, record: int) -> FloatArray:
        """Pr[report | record] with Phase I summed out, m of them."""
        return frozen(self.matrix[check_record(record, self.problem.size, MethodError)])

    @sealed
    def sample(self, records: npt.ArrayLike, size: int | None = None) -> Any:
        """Both phases, for a record or one time for each of many; what is reported comes back.

        Indices into the domain, or labels where outputs are no records. All draws are of the
        operating system's generator. Every draw runs Phase I anew and costs `guarantee` again.
        """
        bits = SystemBits()
        chosen, single = requested_records(records, size, self.problem.size)
        selected = self.scheme.draw_selections(chosen, bits)
        columns = self.scheme.draw_reports(chosen, selected, bits)
        return self.problem.reports.report(columns, single=single)

    @sealed
    def select(self, record: int) -> IntArray:
        """Phase I: the anchors of a record, domain indices, ascending; of balls the centre. Costs
        eps_1 when released.

        Keep it for as long as the record stays the same: another selection costs eps_1 again, and
        a selection of one record promises nothing for another.
        """
        mine = check_record(record, self.problem.size, MethodError)
        return self.scheme.draw(int(mine), SystemBits())

    @sealed
    def report(self, record: int, anchors: npt.ArrayLike) -> Any:
        """Phase II: a report of a record from anchors that were selected for it."""
        chosen = np.asarray(anchors, dtype=np.int64).reshape(-1)
        mine = int(check_record(record, self.problem.size, MethodError))
        column = self.scheme.report(chosen, self.table, mine, SystemBits())
        return self.problem.reports.report(np.array([column]), single=True)

    def explain(self) -> list[str]:
        """What both phases mean for a person, in plain language."""
        unit = self.problem.domain.unit
        total = self.guarantee
        more = self.further
        known = not isinstance(self.problem.loss, UnknownLoss)
        lost = f"{self.loss:.4g} {self.problem.loss_unit}" if known else "left out of the file"
        lines = [
            f"Two phases: a selection of anchors is released first ({self.scheme.selection!r}), "
            f"then one report from {self.scheme.row_words}.",
            f"Together they tell at most epsilon {total.epsilon:g} {per(unit)} about two places, "
            "whatever was known before"
            + (f", except with probability {total.delta:g}." if total.delta else "."),
        ]
        for distance in NEAR_KM if unit == "km" else ():
            factor = math.exp(min(total.epsilon * distance, 700))
            said = f"{factor:.3g}" if factor < 1e6 else "more than a million: nothing is hidden"
            lines.append(f"  {distance:g} km from each other: odds change by at most {said}")
        return [
            *lines,
            f"The anchors alone tell at most {self.selection_epsilon:.3g} {per(unit)}; a user "
            f"fetches {self.download:,} bytes.",
            f"Expected loss {lost}, over places, draws and reports.",
            f"Another report from the same anchors costs epsilon {more.epsilon:g} and delta "
            f"{more.delta:g} more; anchors that are drawn again cost everything again.",
            "A selection is of one place: whoever moves draws another.",
        ]

    def save(self, path: FilePath) -> Path:
        """Write law, table and problem to one file, atomically; `panda_mdp.load` reads it."""
        return write_whole(Path(path), self.encode())

    def encode(self, *, losses: bool = True) -> bytes:
        """The bytes of the file: the problem, the rows, and the law of the selection. Nothing that
        any user drew is in it. Without `losses` those that are not distances are left out."""
        header, sections = describe_problem(self.problem, given=losses)
        said = self._law[0]
        kind = said["selection"]["kind"]
        header["notes"] = describe_notes(f"PAnDA, {kind}", self.problem.prior_source)
        return pack(header | said, {**sections, **self.scheme.sections})

    @property
    def _law(self) -> Described:
        """What a file says of the selection, and the integers."""
        stated, arrays = self.scheme.stated
        return {"selection": {"delta": self.delta, **stated}}, arrays

    @cached_property
    def identity(self) -> str:
        """SHA-256 over everything that has a meaning: the problem's identity, the law of the
        selection and the integers."""
        said, arrays = self._law
        return identify({"problem": self.problem.identity, **said}, arrays)
