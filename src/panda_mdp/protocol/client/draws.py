"""Where records are opened: memos and draws, and nothing else. The only users of `Record.unseal`.

Every function here returns what may be released (an output, a centre, anchors) or a keyed hash that
stays on the device. Draws are exact, on integers, from the operating system's generator. Errors
come back without the frames that saw the record.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from panda_mdp.base.arrays import IntArray
from panda_mdp.errors import EmptyAnchorsError
from panda_mdp.panda.selection.law import surrogates
from panda_mdp.privacy.sampler import SystemBits, choose
from panda_mdp.protocol.client.plans import AnchorsPlan, BallPlan, PandaPlan, Plan, TablePlan
from panda_mdp.protocol.client.record import Record
from panda_mdp.protocol.ledger.books import Books
from panda_mdp.space.domain import Domain


def memo_of(record: Record, plan: Plan, books: Books) -> bytes:
    """The keyed hash under which the answer of a record is kept for the running period."""
    context: dict[str, Any] = {
        "server": plan.server,
        "deployment": plan.name,
        "domain": plan.domain.fingerprint,
    }
    return record.unseal(plan.domain.fingerprint, lambda index: books.memo(index, context))


def draw_output(record: Record, plan: TablePlan) -> int:
    """An output from the record's row of the whole table."""
    column = record.unseal(plan.domain.fingerprint, lambda index: _column(plan.weights[index]))
    return int(plan.outputs[column])


def draw_both_phases(record: Record, plan: PandaPlan) -> int:
    """An output by Phase I and Phase II of PAnDA, neither of which leaves this function."""
    return int(record.unseal(plan.domain.fingerprint, plan.table.sample))


def draw_centre(record: Record, plan: BallPlan) -> int:
    """A centre by the audited exponential mechanism; costs epsilon_1."""
    weights = plan.law.mechanism.weights
    column = record.unseal(plan.domain.fingerprint, lambda index: _column(weights[index]))
    return int(plan.law.centres[column])


def draw_anchors(record: Record, plan: AnchorsPlan) -> list[int]:
    """An anchor set by independent coins (Phase I of the paper)."""
    drawn = record.unseal(
        plan.domain.fingerprint,
        lambda index: plan.selection.draw(plan.domain, index, SystemBits()),
    )
    return [int(anchor) for anchor in drawn]


def draw_from_rows(
    record: Record, domain: Domain, members: IntArray, weights: IntArray, outputs: IntArray
) -> int:
    """An output from the row of the member nearest to the record, ties to the lowest index.

    For a ball a member is its own nearest; for anchors this is the surrogate.
    """
    if len(members) == 0:
        msg = "no anchor was drawn, so there is no row to report from; take part in a later round"
        raise EmptyAnchorsError(msg)

    def draw(index: int) -> int:
        nearest = surrogates(domain, members, np.array([index]))[0]
        return _column(weights[nearest])

    return int(outputs[record.unseal(domain.fingerprint, draw)])


def _column(row: IntArray) -> int:
    return int(choose(row, SystemBits().integers(1))[0])
