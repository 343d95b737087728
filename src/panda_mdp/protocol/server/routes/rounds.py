"""Balls and rounds: what users fetch in the two deployments that have a first phase."""

from __future__ import annotations

import gzip
import math
from datetime import timedelta

import numpy as np
from fastapi import Request
from fastapi.responses import Response
from sqlalchemy import select
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from panda_mdp.base.text import picked
from panda_mdp.protocol.messages.catalogue import Places
from panda_mdp.protocol.messages.deployments import (
    AnchorsAccepted,
    AnchorsDeploymentRequest,
    AnchorsRequest,
    BallRequest,
    BallRows,
    RoundInfo,
    RoundList,
    RoundRequest,
    RoundRows,
)
from panda_mdp.protocol.messages.signing import rows_digest, signed_bytes
from panda_mdp.protocol.messages.types import Name, Version
from panda_mdp.protocol.server.failures import Failure, unavailable
from panda_mdp.protocol.server.routes import (
    Admin,
    Reading,
    Reporter,
    Routes,
    Shared,
    Writing,
    answer_packed,
)
from panda_mdp.protocol.server.solving import Solution, Tiles
from panda_mdp.protocol.server.store.catalogue import domain_row, table_row
from panda_mdp.protocol.server.store.database import latest
from panda_mdp.protocol.server.store.deployments import anchors_request, find, find_round
from panda_mdp.protocol.server.store.log import append, record_action
from panda_mdp.protocol.server.store.reports import Ball
from panda_mdp.protocol.server.store.schema import RoundRow, UploadRow, now

router = Routes()
PACKING = 3
"""How hard balls are compressed: more takes longer than it saves."""
ROUNDS = "/v1/deployments/{name}/rounds"


@router.serves("POST", "/v1/deployments/{name}/balls", BallRows)
async def post_ball(
    request: Request,
    context: Shared,
    reporter: Reporter,
    name: Name,
    message: BallRequest,
) -> Response:
    """The tiles that reach into the ball of a centre, which the client drew privately."""
    live = await run_in_threadpool(context.live.get, name)
    row = live.row
    terms = row.request
    if terms.kind != "ball":
        msg = f"a deployment of kind {row.request.kind} has no balls"
        raise Failure("not_found", msg, "fetch its table")
    if not row.open:
        raise Failure("round_closed", "this deployment is closed", "ask the operator")
    low, high = row.facts["box"]
    if not all(a <= at <= b for a, at, b in zip(low, message.centre, high, strict=True)):
        raise Failure(
            "invalid",
            "centre: not one that anybody draws in this deployment",
            "draw the centre by the deployment's law",
        )
    quota = live.quota_of(reporter)
    outcome = await context.writer.write(Ball(row.id, reporter.id, quota.period()), quota)
    if outcome != "new":
        raise quota.refusal()
    of = f"{row.id}/{row.version}"

    def read() -> Tiles:
        with context.store.read() as session:
            table = table_row(session, row.tables[-1])
            law = terms.law(Places(**row.facts["places"]).domain(), table.info.epsilon)
            return Tiles(table.tiles or b"", law)

    def cut() -> bytes:
        ball = context.files(f"tiles/{of}", read).ball(row.version, message.centre)
        return gzip.compress(ball.model_dump_json().encode(), PACKING, mtime=0)

    column, line = message.centre
    packed = await run_in_threadpool(context.files, f"ball/{of}/{column}/{line}", cut)
    return answer_packed(request, packed)


# Rounds


@router.serves("POST", ROUNDS, RoundInfo, 201)
def post_round(
    context: Shared,
    session: Writing,
    operator: Admin,
    name: Name,
    message: RoundRequest,
) -> RoundInfo:
    """Open the next round, one at a time, which closes by time, by users or by hand."""
    row = find(session, name)
    anchors_request(row)
    if not row.open:
        raise Failure("round_closed", "this deployment is closed", "PATCH it with open: true")
    previous = latest(session, RoundRow, RoundRow.round, deployment=row.id)
    if previous is not None and previous.state in ("open", "solving"):
        raise Failure(
            "conflict",
            f"round {previous.round} is not finished, and there is one at a time",
            "close it, or wait for its solve",
        )
    after = message.closes_after_s
    opened = now()
    made = RoundRow(
        deployment=row.id,
        round=1 if previous is None else previous.round + 1,
        opened=opened,
        closes_at=None if after is None else opened + timedelta(seconds=after),
        closes_at_users=message.closes_at_users,
    )
    session.add(made)
    session.flush()
    append(session, context.key, signed_bytes("round", name, made.round))
    record_action(session, operator.id, "open round", f"{name}/{made.round}")
    return RoundInfo.model_validate(made)


@router.serves("GET", ROUNDS, RoundList)
def get_rounds(session: Reading, name: Name) -> RoundList:
    """The latest hundred rounds of a deployment, the oldest first."""
    row = find(session, name)
    anchors_request(row)
    mine = select(RoundRow).filter_by(deployment=row.id).order_by(RoundRow.round.desc())
    rows = session.scalars(mine.limit(100)).all()
    return RoundList(rounds=[RoundInfo.model_validate(each) for each in rows[::-1]])


@router.serves("GET", f"{ROUNDS}/{{number}}", RoundInfo)
def get_round(session: Reading, name: Name, number: Version) -> RoundInfo:
    """How a round stands."""
    return RoundInfo.model_validate(find_round(session, name, number))


@router.serves("POST", f"{ROUNDS}/{{number}}/close", RoundInfo)
def post_close(session: Writing, operator: Admin, name: Name, number: Version) -> RoundInfo:
    """Take no more anchors and solve. A round that is closed already stays as it is."""
    row = find_round(session, name, number)
    if row.state == "open":
        row.state = "solving"
    record_action(session, operator.id, "close round", f"{name}/{number}")
    return RoundInfo.model_validate(row)


@router.serves("POST", f"{ROUNDS}/{{number}}/anchors", AnchorsAccepted, 201, 200)
def post_anchors(
    session: Writing,
    reporter: Reporter,
    name: Name,
    number: Version,
    upload: AnchorsRequest,
) -> tuple[AnchorsAccepted, bool]:
    """Upload the anchors that were drawn: one set per token and round."""
    request = anchors_request(find(session, name))
    _check_set(request, domain_row(session, request.domain).records, upload.anchors)
    new = _keep_upload(session, find_round(session, name, number), reporter.id, upload)
    return AnchorsAccepted(round=number), new


def _check_set(request: AnchorsDeploymentRequest, records: int, anchors: list[int]) -> None:
    """Refuse a set that no record selects. Nothing of it is shown."""
    allowed = request.selection.candidates
    if not set(anchors) <= set(range(records) if allowed is None else allowed):
        raise Failure(
            "invalid",
            "anchors: an anchor is not among the records that this deployment selects from",
            "draw anchors from the deployment's domain, with its selection",
        )


def _keep_upload(session: Session, row: RoundRow, token: str, upload: AnchorsRequest) -> bool:
    """Keep a user's anchors; False where these very ones are kept already."""
    before = session.get(UploadRow, (row.deployment, row.round, token))
    if before is not None:
        if before.anchors == upload.anchors:
            return False
        raise Failure(
            "conflict",
            "this token has uploaded anchors in this round already, and a round takes one set",
            "keep the set that was drawn first; a second one costs privacy again",
        )
    if row.state != "open" or (row.closes_at is not None and row.closes_at <= now()):
        msg = f"round {row.round} takes no more anchors"
        raise Failure("round_closed", msg, "take part in the next round")
    mine = picked(row, "deployment", "round")
    session.add(UploadRow(**mine, token=token, anchors=upload.anchors))
    session.flush()
    session.refresh(row)
    if row.users >= (row.closes_at_users or math.inf):
        row.state = "solving"
    return True


@router.serves("GET", f"{ROUNDS}/{{number}}/rows", RoundRows)
def get_rows(
    context: Shared, session: Reading, reporter: Reporter, name: Name, number: Version
) -> RoundRows:
    """The rows of the anchors that this token uploaded, and what the audit found: nothing in the
    request says which."""
    row = find_round(session, name, number)
    upload = session.get(UploadRow, (row.deployment, number, reporter.id))
    following = "take part in the next round"
    if upload is None:
        msg = f"this token uploaded no anchors in round {number}"
        raise Failure("not_found", msg, following)
    if row.state in ("open", "solving"):
        raise unavailable(
            f"round {number} is {row.state}; its rows do not exist yet", "ask again later", 2
        )
    if row.state == "failed":
        raise Failure("round_closed", f"round {number} ended without a table", following)
    solution = Solution.of(row)
    members = upload.anchors
    outputs = solution.outputs.tolist()
    own = solution.rows(np.array(members, dtype=np.int64))
    weights = [[str(weight) for weight in each] for each in own.tolist()]
    signed = signed_bytes("rows", name, number, rows_digest(members, outputs, weights))
    return RoundRows(
        round=number,
        anchors=members,
        outputs=outputs,
        weights=weights,
        signature=context.key.sign(signed),
    )
