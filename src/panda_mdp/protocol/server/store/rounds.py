"""Rounds of an anchors deployment.

    open -> solving -> solved | failed

Users upload anchors while a round is open, each token once. It closes by time, by the number of
users or by hand; then AnPO is solved over the union. A solved round is in force until the next one
is. Whoever was late, silent or left out takes part in the next.

    silent -> uploaded -> served | filtered
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import Session

from panda_mdp.base.arrays import IntArray
from panda_mdp.protocol.messages.deployments import RoundInfo
from panda_mdp.protocol.server.solving import Solution
from panda_mdp.protocol.server.store.catalogue import queue_job, unpack
from panda_mdp.protocol.server.store.database import found
from panda_mdp.protocol.server.store.schema import JobRow, RoundRow, UploadRow


def find_round(session: Session, deployment: int, number: int) -> RoundRow:
    """A stored round."""
    row = session.get(RoundRow, (deployment, number))
    return found(row, "such round", "GET .../rounds lists them")


def close_round(session: Session, row: RoundRow) -> None:
    """Take no more uploads and solve, where the round is open."""
    if row.state == "open":
        row.state = "solving"
        name = f"round-{row.deployment}-{row.number}"
        job = JobRow(id=name, kind="round", deployment=row.deployment, round=row.number)
        queue_job(session, job)


def round_infos(session: Session, rows: Sequence[RoundRow]) -> list[RoundInfo]:
    """What everybody may know about rounds: how many took part, not who."""
    keys = [(row.deployment, row.number) for row in rows]
    columns = (UploadRow.deployment, UploadRow.round, UploadRow.state)
    mine = select(*columns, func.count()).where(tuple_(*columns[:2]).in_(keys)).group_by(*columns)
    users: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    for deployment, number, state, count in session.execute(mine):
        users[deployment, number][state] = count
    return [
        RoundInfo(
            round=row.number,
            state=row.state,
            users=users[key].total(),
            filtered=users[key]["filtered"],
            opened=row.opened,
            closes_at=row.closes_at,
            closes_at_users=row.closes_at_users,
            error=row.error,
        )
        for row, key in zip(rows, keys, strict=True)
    ]


def anchors_of(upload: UploadRow) -> IntArray:
    """The anchors that were uploaded, ascending."""
    return np.frombuffer(upload.anchors, dtype="<i4").astype(np.int64)


def uploads_of(session: Session, deployment: int, number: int) -> list[UploadRow]:
    """What was uploaded in a round, in order."""
    mine = select(UploadRow).filter_by(deployment=deployment, round=number)
    return list(session.scalars(mine.order_by(UploadRow.at, UploadRow.token)))


def solution_of(row: RoundRow) -> Solution:
    """The table of a round that is solved."""
    return Solution(**unpack(row.solution or b""))
