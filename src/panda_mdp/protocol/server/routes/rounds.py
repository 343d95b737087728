"""Balls and rounds: what users fetch in the two deployments that have a first phase."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Annotated

import numpy as np
from fastapi import Query
from fastapi.responses import Response
from sqlalchemy import select
from sqlalchemy.orm import Session

from panda_mdp.protocol.messages.deployments import (
    AnchorsAccepted,
    AnchorsDeploymentRequest,
    AnchorsRequest,
    BallDeploymentRequest,
    BallRequest,
    BallRows,
    RoundInfo,
    RoundList,
    RoundRequest,
    RoundRows,
    RoundUser,
)
from panda_mdp.protocol.messages.signing import rows_digest, signed_bytes
from panda_mdp.protocol.messages.types import GuaranteeInfo
from panda_mdp.protocol.server.failures import Failure, unavailable
from panda_mdp.protocol.server.routes import (
    Admin,
    NamePath,
    Reading,
    Reporter,
    Routes,
    Shared,
    VersionPath,
    Writing,
    answer,
    body_of,
)
from panda_mdp.protocol.server.routes.deployments import ball_table
from panda_mdp.protocol.server.store import rounds as stored
from panda_mdp.protocol.server.store.catalogue import domain_row
from panda_mdp.protocol.server.store.database import latest
from panda_mdp.protocol.server.store.deployments import anchors_request, find
from panda_mdp.protocol.server.store.log import append, record_action
from panda_mdp.protocol.server.store.schema import (
    BallRow,
    DeploymentRow,
    RoundRow,
    UploadRow,
    now,
)

router = Routes()
ROUNDS = "/v1/deployments/{name}/rounds"


@router.serves("POST", "/v1/deployments/{name}/balls", BallRows, 201, 200)
def post_ball(
    context: Shared,
    reporter: Reporter,
    name: NamePath,
    message: Annotated[BallRequest, body_of(BallRequest)],
) -> Response:
    """The rows of all records around a centre, which the client drew privately."""
    with context.store.write() as session:
        row = find(session, name)
        request, new = _keep_ball(session, row, reporter.id, message)

    def cut() -> bytes:
        table = ball_table(context, request, row.tables[-1])
        ball = context.pool.run(table.ball, message.centre)
        rows = BallRows(
            version=row.version,
            centre=message.centre,
            guarantee=GuaranteeInfo(**row.facts["guarantee"]),
            signature=context.key.sign(signed_bytes("rows", name, row.version, ball.pop("digest"))),
            key_id=context.key.id,
            **ball,
        )
        return rows.model_dump_json().encode()

    body = context.files.get(f"ball/{row.id}/{row.version}/{message.centre}", cut)
    return answer(body, 201 if new else 200)


def _keep_ball(
    session: Session, row: DeploymentRow, token: str, message: BallRequest
) -> tuple[BallDeploymentRequest, bool]:
    """Note that a ball was asked for; False where this very request was made before."""
    if row.request.kind != "ball":
        msg = f"a deployment of kind {row.kind} has no balls"
        raise Failure("not_found", msg, "fetch its table")
    if not row.open:
        raise Failure("round_closed", "this deployment is closed", "ask the operator")
    if message.centre not in row.facts["centres"]:
        raise Failure(
            "invalid",
            "centre: not one of the public centres of this deployment",
            "draw the centre with BallAnchors on the whole domain",
        )
    before = session.get(BallRow, (row.id, message.id))
    if before is None:
        asked = {"deployment": row.id, "version": row.version, "token": token}
        session.add(BallRow(**asked, id=message.id, centre=message.centre))
        return row.request, True
    if (before.token, before.centre) != (token, message.centre):
        raise Failure("conflict", "another request has this id", "make a new id for each")
    if row.tables[before.version - 1] != row.tables[-1]:
        raise Failure(
            "wrong_version",
            "another table has come into force since this ball was asked for",
            "fetch the deployment and ask again with a new id",
        )
    return row.request, False


# Rounds


@router.serves("POST", ROUNDS, RoundInfo, 201)
def post_round(
    context: Shared,
    session: Writing,
    operator: Admin,
    name: NamePath,
    message: Annotated[RoundRequest, body_of(RoundRequest)],
) -> RoundInfo:
    """Open the next round, one at a time, which closes by time, by users or by hand."""
    row = find(session, name)
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
    after, opened = message.closes_after_s, now()
    made = RoundRow(
        deployment=row.id,
        number=1 if previous is None else previous.number + 1,
        opened=opened,
        closes_at=None if after is None else opened + timedelta(seconds=after),
        closes_at_users=message.closes_at_users,
    )
    session.add(made)
    session.flush()
    append(session, context.key, signed_bytes("round", name, made.number))
    record_action(session, operator.id, "open round", f"{name}/{made.number}")
    return stored.round_infos(session, [made])[0]


@router.serves("GET", ROUNDS, RoundList)
def get_rounds(
    session: Reading,
    name: NamePath,
    before: Annotated[int, Query(ge=1, lt=2**31)] = 2**31 - 1,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> RoundList:
    """The latest rounds of a deployment, the oldest first; `before` pages back."""
    row = find(session, name)
    anchors_request(row)
    mine = select(RoundRow).filter_by(deployment=row.id).where(RoundRow.number < before)
    rows = session.scalars(mine.order_by(RoundRow.number.desc()).limit(limit)).all()
    return RoundList(rounds=stored.round_infos(session, rows[::-1]))


@router.serves("GET", f"{ROUNDS}/{{number}}", RoundInfo)
def get_round(session: Reading, name: NamePath, number: VersionPath) -> RoundInfo:
    """How a round stands."""
    row = stored.find_round(session, find(session, name).id, number)
    return stored.round_infos(session, [row])[0]


@router.serves("POST", f"{ROUNDS}/{{number}}/close", RoundInfo)
def post_close(session: Writing, operator: Admin, name: NamePath, number: VersionPath) -> RoundInfo:
    """Take no more anchors and solve. A round that is closed already stays as it is."""
    row = stored.find_round(session, find(session, name).id, number)
    stored.close_round(session, row)
    record_action(session, operator.id, "close round", f"{name}/{number}")
    return stored.round_infos(session, [row])[0]


@router.serves("POST", f"{ROUNDS}/{{number}}/anchors", AnchorsAccepted, 201, 200)
def post_anchors(
    session: Writing,
    reporter: Reporter,
    name: NamePath,
    number: VersionPath,
    upload: Annotated[AnchorsRequest, body_of(AnchorsRequest, "anchors_bytes")],
) -> tuple[AnchorsAccepted, bool]:
    """Upload the anchors that were drawn: one set per token and round."""
    row = find(session, name)
    request = anchors_request(row)
    _check_set(request, domain_row(session, request.domain).records, upload.anchors)
    new = _keep_upload(session, stored.find_round(session, row.id, number), reporter.id, upload)
    return AnchorsAccepted(id=upload.id, round=number), new


def _check_set(request: AnchorsDeploymentRequest, records: int, anchors: list[int]) -> None:
    """Refuse a set that no record selects. Nothing of it is shown."""
    if anchors and anchors[-1] >= records:
        raise Failure(
            "invalid",
            f"anchors: an anchor is not a record of the domain, 0..{records - 1}",
            "draw anchors from the deployment's domain",
        )
    allowed = request.selection.candidates
    if allowed is not None and not set(anchors) <= set(allowed):
        raise Failure(
            "invalid",
            "anchors: an anchor is not among the candidates of this deployment",
            "draw anchors with the deployment's selection",
        )


def _keep_upload(session: Session, row: RoundRow, token: str, upload: AnchorsRequest) -> bool:
    """Keep a user's anchors; False where these very ones are kept already."""
    data = np.array(upload.anchors, dtype="<i4").tobytes()
    before = session.get(UploadRow, (row.deployment, row.number, token))
    if before is not None:
        if (before.id, before.anchors) == (upload.id, data):
            return False
        raise Failure(
            "conflict",
            "this token has uploaded anchors in this round already, and a round takes one set",
            "keep the set that was drawn first; a second one costs privacy again",
        )
    same_id = select(UploadRow.token).filter_by(deployment=row.deployment, id=upload.id)
    if session.scalar(same_id):
        raise Failure("conflict", "another upload has this id", "make a new id for each upload")
    if row.state != "open" or (row.closes_at is not None and row.closes_at <= now()):
        msg = f"round {row.number} takes no more anchors"
        raise Failure("round_closed", msg, "take part in the next round")
    mine = {"deployment": row.deployment, "round": row.number}
    session.add(UploadRow(**mine, token=token, id=upload.id, anchors=data))
    session.flush()
    [info] = stored.round_infos(session, [row])
    if info.users >= (row.closes_at_users or math.inf):
        stored.close_round(session, row)
    return True


@router.serves("GET", f"{ROUNDS}/{{number}}/me", RoundUser)
def get_me(session: Reading, reporter: Reporter, name: NamePath, number: VersionPath) -> RoundUser:
    """What became of the own upload: silent, uploaded, served or filtered."""
    row = stored.find_round(session, find(session, name).id, number)
    upload = session.get(UploadRow, (row.deployment, number, reporter.id))
    return RoundUser(round=number, state="silent" if upload is None else upload.state)


@router.serves("GET", f"{ROUNDS}/{{number}}/rows", RoundRows)
def get_rows(
    context: Shared, session: Reading, reporter: Reporter, name: NamePath, number: VersionPath
) -> RoundRows:
    """The rows of the anchors that this token uploaded, and what the audit found: nothing in the
    request says which."""
    row = stored.find_round(session, find(session, name).id, number)
    upload = session.get(UploadRow, (row.deployment, number, reporter.id))
    following = "take part in the next round"
    if upload is None:
        msg = f"this token uploaded no anchors in round {number}"
        raise Failure("not_found", msg, following)
    if row.state in ("open", "solving"):
        raise unavailable(
            f"round {number} is {row.state}; its rows do not exist yet", "ask again later", 2
        )
    if row.plan is None:
        raise Failure("round_closed", f"round {number} ended without a table", following)
    if upload.state == "filtered":
        msg = f"the anchors of this token were left out of round {number} by its outlier filter"
        raise Failure("conflict", msg, following)
    solution, anchors = stored.solution_of(row), stored.anchors_of(upload)
    members, outputs = anchors.tolist(), solution.outputs.tolist()
    weights = [[str(weight) for weight in each] for each in solution.rows(anchors).tolist()]
    digest = rows_digest("anchors", members, outputs, weights)
    return RoundRows(
        round=number,
        anchors=members,
        outputs=outputs,
        weights=weights,
        plan=row.plan,
        signature=context.key.sign(signed_bytes("rows", name, number, digest)),
        key_id=context.key.id,
    )
