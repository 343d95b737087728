"""Rounds of an anchors deployment.

    open -> solving -> solved | failed

Users upload anchors while a round is open, each token once. It closes by time, by the number of
users or by hand; then AnPO is solved over the union. A solved round is in force until the next one
is. Whoever was late, silent or left out takes part in the next.

    silent -> uploaded -> served | filtered
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta

import numpy as np
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from panda_mdp.base.arrays import IntArray
from panda_mdp.protocol.messages.deployments import (
    AnchorsDeploymentRequest,
    AnchorsRequest,
    PlanInfo,
    RoundInfo,
    RoundRequest,
    RoundRows,
    UserState,
)
from panda_mdp.protocol.messages.signing import SigningKey, rows_digest, signed_bytes
from panda_mdp.protocol.server.failures import LONGEST, Failure, unavailable
from panda_mdp.protocol.server.solving import AnchorsTask, Solution, Solved
from panda_mdp.protocol.server.store.catalogue import (
    domain_of,
    domain_parts,
    domain_row,
    pack,
    queue_job,
    unpack,
)
from panda_mdp.protocol.server.store.database import found, latest
from panda_mdp.protocol.server.store.deployments import anchors_request
from panda_mdp.protocol.server.store.schema import DeploymentRow, JobRow, RoundRow, UploadRow, now


def open_round(session: Session, row: DeploymentRow, request: RoundRequest) -> RoundInfo:
    """Open the next round; one at a time."""
    anchors_request(row)
    if not row.open:
        raise Failure("round_closed", "this deployment is closed", "PATCH it with open: true")
    previous = latest(session, RoundRow, RoundRow.number, deployment=row.id)
    if previous is not None and previous.state in ("open", "solving"):
        raise Failure(
            "conflict",
            f"round {previous.number} is not finished, and there is one at a time",
            "close it, or wait for its solve",
        )
    after, opened = request.closes_after_s, now()
    made = RoundRow(
        deployment=row.id,
        number=1 if previous is None else previous.number + 1,
        opened=opened,
        closes_at=None if after is None else opened + timedelta(seconds=after),
        closes_at_users=request.closes_at_users,
    )
    session.add(made)
    session.flush()
    return round_info(session, made)


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


def due_rounds(session: Session) -> list[RoundRow]:
    """The rounds whose time is over."""
    still_open = select(RoundRow).filter_by(state="open")
    return list(session.scalars(still_open.where(RoundRow.closes_at <= now())))


def fail_round(session: Session, job: JobRow, error: str) -> None:
    """A round that has no table; its users may take part in the next one."""
    if job.kind == "round":
        row = session.get_one(RoundRow, (job.deployment, job.round))
        row.state, row.error = "failed", error[:LONGEST]


def round_info(session: Session, row: RoundRow) -> RoundInfo:
    """What everybody may know about a round: how many took part, not who."""
    return _info(row, _users(session, row.deployment, row.number, row.number))


def _users(session: Session, deployment: int, first: int, last: int) -> dict[tuple[int, str], int]:
    """Users of some rounds by state, counted by the database."""
    rows = session.execute(
        select(UploadRow.round, UploadRow.state, func.count())
        .filter_by(deployment=deployment)
        .where(UploadRow.round.between(first, last))
        .group_by(UploadRow.round, UploadRow.state)
    )
    return {(number, state): count for number, state, count in rows}


def _info(row: RoundRow, users: Mapping[tuple[int, str], int]) -> RoundInfo:
    return RoundInfo(
        round=row.number,
        state=row.state,
        users=sum(count for (number, _), count in users.items() if number == row.number),
        filtered=users.get((row.number, "filtered"), 0),
        opened=row.opened,
        closes_at=row.closes_at,
        closes_at_users=row.closes_at_users,
        error=row.error,
    )


def list_rounds(session: Session, deployment: int, before: int, limit: int) -> list[RoundInfo]:
    """The latest rounds of a deployment that have a lower number, the oldest of them first."""
    mine = select(RoundRow).filter_by(deployment=deployment).where(RoundRow.number < before)
    rows = list(session.scalars(mine.order_by(RoundRow.number.desc()).limit(limit)))
    users = _users(session, deployment, rows[-1].number, rows[0].number) if rows else {}
    return [_info(row, users) for row in reversed(rows)]


# Users


def check_upload(request: AnchorsDeploymentRequest, records: int, upload: AnchorsRequest) -> None:
    """Refuse a set that no record selects. Nothing of it is shown."""
    if upload.anchors and upload.anchors[-1] >= records:
        raise Failure(
            "invalid",
            f"anchors: an anchor is not a record of the domain, 0..{records - 1}",
            "draw anchors from the deployment's domain",
        )
    allowed = request.selection.candidates
    if allowed is not None and not set(upload.anchors) <= set(allowed):
        raise Failure(
            "invalid",
            "anchors: an anchor is not among the candidates of this deployment",
            "draw anchors with the deployment's selection",
        )


def store_upload(
    session: Session, deployment: int, number: int, token: str, upload: AnchorsRequest
) -> bool:
    """Keep a user's anchors; False where these very ones are kept already."""
    row = find_round(session, deployment, number)
    data = np.array(upload.anchors, dtype="<i4").tobytes()
    before = find_upload(session, deployment, number, token)
    if before is not None:
        if (before.id, before.anchors) == (upload.id, data):
            return False
        raise Failure(
            "conflict",
            "this token has uploaded anchors in this round already, and a round takes one set",
            "keep the set that was drawn first; a second one costs privacy again",
        )
    if session.scalar(select(UploadRow.token).filter_by(deployment=deployment, id=upload.id)):
        raise Failure("conflict", "another upload has this id", "make a new id for each upload")
    if row.state != "open" or (row.closes_at is not None and row.closes_at <= now()):
        raise Failure(
            "round_closed", f"round {number} takes no more anchors", "take part in the next round"
        )
    session.add(
        UploadRow(deployment=deployment, round=number, token=token, id=upload.id, anchors=data)
    )
    session.flush()
    if round_info(session, row).users >= (row.closes_at_users or math.inf):
        close_round(session, row)
    return True


def find_upload(session: Session, deployment: int, number: int, token: str) -> UploadRow | None:
    """What a token uploaded in a round."""
    return session.get(UploadRow, (deployment, number, token))


def user_state(session: Session, deployment: int, number: int, token: str) -> UserState:
    """Where a user stands in a round."""
    find_round(session, deployment, number)
    row = find_upload(session, deployment, number, token)
    return "silent" if row is None else row.state


def rows_for(
    session: Session, key: SigningKey, deployment: DeploymentRow, number: int, token: str
) -> RoundRows:
    """The rows of the anchors that a token uploaded: nothing in the request says which."""
    row = find_round(session, deployment.id, number)
    upload = find_upload(session, deployment.id, number, token)
    following = "take part in the next round"
    if upload is None:
        msg = f"this token uploaded no anchors in round {number}"
        raise Failure("not_found", msg, following)
    if row.state in ("open", "solving"):
        msg = f"round {number} is {row.state}; its rows do not exist yet"
        raise unavailable(msg, "ask again later", 2)
    if row.solution is None or row.plan is None:
        raise Failure("round_closed", f"round {number} ended without a table", following)
    if upload.state == "filtered":
        msg = f"the anchors of this token were left out of round {number} by its outlier filter"
        raise Failure("conflict", msg, following)
    solution, anchors = solution_of(row), _anchors(upload)
    members, outputs = anchors.tolist(), solution.outputs.tolist()
    weights = [[str(weight) for weight in each] for each in solution.rows(anchors).tolist()]
    signed = signed_bytes(
        "rows", deployment.name, number, rows_digest("anchors", members, outputs, weights)
    )
    return RoundRows(
        round=number,
        anchors=members,
        outputs=outputs,
        weights=weights,
        plan=row.plan,
        signature=key.sign(signed),
        key_id=key.id,
    )


def _anchors(upload: UploadRow) -> IntArray:
    return np.frombuffer(upload.anchors, dtype="<i4").astype(np.int64)


def uploads_of(session: Session, deployment: int, number: int) -> list[UploadRow]:
    """What was uploaded in a round, in order."""
    mine = select(UploadRow).filter_by(deployment=deployment, round=number)
    return list(session.scalars(mine.order_by(UploadRow.at, UploadRow.token)))


def served_users(session: Session, deployment: int, number: int) -> list[str]:
    """The users who have rows in a round."""
    served = {"deployment": deployment, "round": number, "state": "served"}
    return list(session.scalars(select(UploadRow.token).filter_by(**served)))


def served_sets(session: Session, deployment: int, number: int) -> list[tuple[str, IntArray]]:
    """The users who have rows in a round, with their anchors."""
    rows = uploads_of(session, deployment, number)
    return [(row.token, _anchors(row)) for row in rows if row.state == "served"]


# Solving


@dataclass(frozen=True, eq=False)
class RoundWork:
    """Everything that solving a round takes."""

    task: AnchorsTask
    sets: tuple[IntArray, ...]
    previous: Solution | None


def task_of_round(session: Session, deployment: int, number: int) -> RoundWork:
    """The problem, the sets that were uploaded, and the solution of the round before."""
    request = anchors_request(session.get_one(DeploymentRow, deployment))
    solved = {"deployment": deployment, "state": "solved"}
    before = latest(session, RoundRow, RoundRow.number, **solved)
    return RoundWork(
        task=AnchorsTask.of(request, domain_of(domain_parts(domain_row(session, request.domain)))),
        sets=tuple(_anchors(row) for row in uploads_of(session, deployment, number)),
        previous=None if before is None else solution_of(before),
    )


def store_solution(session: Session, deployment: int, number: int, solved: Solved) -> None:
    """Put a round into force."""
    row = find_round(session, deployment, number)
    row.state, row.plan = "solved", PlanInfo(**solved.plan)
    row.solution = pack(asdict(solved.solution))
    uploads = uploads_of(session, deployment, number)
    for upload, admitted in zip(uploads, solved.admitted, strict=True):
        upload.state = "served" if admitted else "filtered"


def solution_of(row: RoundRow) -> Solution:
    """The table of a round that is solved."""
    return Solution(**unpack(row.solution or b""))
