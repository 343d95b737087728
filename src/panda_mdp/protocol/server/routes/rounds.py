"""Balls and rounds: what users fetch in the two deployments that have a first phase."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from fastapi.responses import Response
from sqlalchemy.orm import Session

from panda_mdp.protocol.messages.deployments import (
    AnchorsAccepted,
    AnchorsRequest,
    BallRequest,
    BallRows,
    RoundInfo,
    RoundList,
    RoundRequest,
    RoundRows,
    RoundUser,
)
from panda_mdp.protocol.messages.signing import signed_bytes
from panda_mdp.protocol.messages.types import GuaranteeInfo
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.routes import (
    Admin,
    NamePath,
    Reporter,
    Routes,
    Shared,
    VersionPath,
    answer,
    body_of,
)
from panda_mdp.protocol.server.routes.deployments import ball_table
from panda_mdp.protocol.server.solving import BallTable
from panda_mdp.protocol.server.store import rounds as stored
from panda_mdp.protocol.server.store.catalogue import domain_row
from panda_mdp.protocol.server.store.deployments import (
    anchors_request,
    current_table,
    find,
    table_of_version,
)
from panda_mdp.protocol.server.store.log import append, record_action
from panda_mdp.protocol.server.store.schema import BallRow, DeploymentRow

router = Routes()
ROUNDS = "/v1/deployments/{name}/rounds"


@router.serves("POST", "/v1/deployments/{name}/balls", BallRows, 201, 200)
async def post_ball(
    context: Shared,
    reporter: Reporter,
    name: NamePath,
    message: Annotated[BallRequest, body_of(BallRequest)],
) -> Response:
    """The rows of all records around a centre, which the client drew privately."""
    row = await context.read(lambda session: find(session, name))
    request = row.request
    if request.kind != "ball":
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
    new = await context.write(lambda session: _keep_ball(session, row, reporter.id, message))
    key = f"ball/{row.id}/{row.version}/{message.centre}"
    body = context.files.peek(key)
    if body is None:
        ref = await context.read(lambda session: current_table(session, row))
        table = await ball_table(context, request, ref)
        cut = await context.pool.run(BallTable.ball, table, message.centre)
        rows = BallRows(
            version=row.version,
            centre=message.centre,
            guarantee=GuaranteeInfo(**row.facts["guarantee"]),
            signature=context.key.sign(signed_bytes("rows", name, row.version, cut.pop("digest"))),
            key_id=context.key.id,
            **cut,
        )
        body = context.files.put(key, rows.model_dump_json().encode())
    return answer(body, 201 if new else 200)


def _keep_ball(session: Session, row: DeploymentRow, token: str, message: BallRequest) -> bool:
    """Note that a ball was asked for; False where this very request was made before."""
    before = session.get(BallRow, (row.id, message.id))
    if before is None:
        session.add(
            BallRow(
                deployment=row.id,
                id=message.id,
                token=token,
                version=row.version,
                centre=message.centre,
            )
        )
        return True
    if (before.token, before.centre) != (token, message.centre):
        raise Failure("conflict", "another request has this id", "make a new id for each")
    if table_of_version(session, row.id, before.version) != current_table(session, row):
        raise Failure(
            "wrong_version",
            "another table has come into force since this ball was asked for",
            "fetch the deployment and ask again with a new id",
        )
    return False


# Rounds


@router.serves("POST", ROUNDS, RoundInfo, 201)
def post_round(
    context: Shared,
    operator: Admin,
    name: NamePath,
    message: Annotated[RoundRequest, body_of(RoundRequest)],
) -> Response:
    """Open the next round, which closes by time, by users or by hand."""
    with context.store.write() as session:
        made = stored.open_round(session, find(session, name), message)
        append(session, context.key, signed_bytes("round", name, made.round))
        record_action(session, operator.id, "open round", f"{name}/{made.round}")
    return answer(made, 201)


@router.serves("GET", ROUNDS, RoundList)
def get_rounds(
    context: Shared,
    name: NamePath,
    before: Annotated[int, Query(ge=1, lt=2**31)] = 2**31 - 1,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> Response:
    """The latest rounds of a deployment, the oldest first; `before` pages back."""
    with context.store.read() as session:
        row = find(session, name)
        anchors_request(row)
        return answer(RoundList(rounds=stored.list_rounds(session, row.id, before, limit)))


@router.serves("GET", f"{ROUNDS}/{{number}}", RoundInfo)
def get_round(context: Shared, name: NamePath, number: VersionPath) -> Response:
    """How a round stands."""
    with context.store.read() as session:
        row = stored.find_round(session, find(session, name).id, number)
        return answer(stored.round_info(session, row))


@router.serves("POST", f"{ROUNDS}/{{number}}/close", RoundInfo)
def post_close(context: Shared, operator: Admin, name: NamePath, number: VersionPath) -> Response:
    """Take no more anchors and solve. A round that is closed already stays as it is."""
    with context.store.write() as session:
        row = stored.find_round(session, find(session, name).id, number)
        stored.close_round(session, row)
        record_action(session, operator.id, "close round", f"{name}/{number}")
        info = stored.round_info(session, row)
    context.supervisor.wake()
    return answer(info)


@router.serves("POST", f"{ROUNDS}/{{number}}/anchors", AnchorsAccepted, 201, 200)
def post_anchors(
    context: Shared,
    reporter: Reporter,
    name: NamePath,
    number: VersionPath,
    upload: Annotated[AnchorsRequest, body_of(AnchorsRequest, "anchors_bytes")],
) -> Response:
    """Upload the anchors that were drawn: one set per token and round."""
    with context.store.write() as session:
        row = find(session, name)
        request = anchors_request(row)
        stored.check_upload(request, domain_row(session, request.domain).records, upload)
        new = stored.store_upload(session, row.id, number, reporter.id, upload)
    context.supervisor.wake()
    return answer(AnchorsAccepted(id=upload.id, round=number), 201 if new else 200)


@router.serves("GET", f"{ROUNDS}/{{number}}/me", RoundUser)
def get_me(context: Shared, reporter: Reporter, name: NamePath, number: VersionPath) -> Response:
    """What became of the own upload: silent, uploaded, served or filtered."""
    with context.store.read() as session:
        state = stored.user_state(session, find(session, name).id, number, reporter.id)
    return answer(RoundUser(round=number, state=state))


@router.serves("GET", f"{ROUNDS}/{{number}}/rows", RoundRows, also=409)
def get_rows(context: Shared, reporter: Reporter, name: NamePath, number: VersionPath) -> Response:
    """The rows of the anchors that this token uploaded, and what the audit found."""
    with context.store.read() as session:
        deployment = find(session, name)
        return answer(stored.rows_for(session, context.key, deployment, number, reporter.id))
