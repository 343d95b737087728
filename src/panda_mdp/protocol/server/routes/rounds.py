"""Balls and rounds: what users fetch in the two deployments that have a first phase."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, TypeVar

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import TypeAdapter
from sqlalchemy import Connection, insert, select
from starlette.concurrency import run_in_threadpool

from panda_mdp.protocol.messages.balls import CompactBallRows
from panda_mdp.protocol.messages.catalogue import TableRef
from panda_mdp.protocol.messages.deployments import (
    AnchorsAccepted,
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
from panda_mdp.protocol.messages.signing import round_entry, rows_bytes, rows_bytes_of
from panda_mdp.protocol.messages.types import GuaranteeInfo
from panda_mdp.protocol.server.bodies import read_message
from panda_mdp.protocol.server.context import Context
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.routes.common import (
    JSON,
    NamePath,
    VersionPath,
    accepts,
    answer,
    context,
    fails,
    gives,
    require,
)
from panda_mdp.protocol.server.solving import ball_rows, compact_ball, decimal_rows
from panda_mdp.protocol.server.store import rounds as stored
from panda_mdp.protocol.server.store.actions import record_action
from panda_mdp.protocol.server.store.catalogue import domain_row
from panda_mdp.protocol.server.store.database import now_ms
from panda_mdp.protocol.server.store.deployments import (
    anchors_request,
    current_table,
    find,
    request_of,
    table_of_version,
)
from panda_mdp.protocol.server.store.log import append
from panda_mdp.protocol.server.store.schema import balls

router = APIRouter()
_BALL = TypeAdapter(BallRequest)
_ROUND = TypeAdapter(RoundRequest)
_ANCHORS = TypeAdapter(AnchorsRequest)
T = TypeVar("T")


async def _write(here: Context, change: Callable[[Connection], T]) -> T:
    def run() -> T:
        with here.store.write() as connection:
            return change(connection)

    return await run_in_threadpool(run)


async def _read(here: Context, look: Callable[[Connection], T]) -> T:
    def run() -> T:
        with here.store.read() as connection:
            return look(connection)

    return await run_in_threadpool(run)


# Balls


@router.post(
    "/v1/deployments/{name}/balls",
    openapi_extra=accepts("BallRequest", _BALL),
    responses=gives(BallRows, 200, 201) | fails(401, 403, 404, 409, 413),
    status_code=201,
)
async def post_ball(request: Request, name: NamePath) -> Response:
    """The rows of all records around a centre, which the client drew privately."""
    token = require(request, "reporter")
    here = context(request)
    wanted = await read_message(request, here, _BALL)

    def look(connection: Connection) -> tuple[int, int, TableRef, BallDeploymentRequest, str]:
        row = find(connection, name)
        asked = request_of(row)
        if not isinstance(asked, BallDeploymentRequest):
            raise Failure(
                "not_found", f"a deployment of kind {row.kind} has no balls", "fetch its table"
            )
        if not row.open:
            raise Failure("round_closed", "this deployment is closed", "ask the operator")
        return row.id, row.version, current_table(connection, row), asked, row.facts

    deployment, version, table, asked, text = await _read(here, look)
    facts = json.loads(text)
    if wanted.centre not in facts["centres"]:
        raise Failure(
            "invalid",
            "centre: not one of the public centres of this deployment",
            "draw the centre with BallAnchors on the whole domain",
        )

    def keep(connection: Connection) -> bool:
        mine = (balls.c.deployment == deployment) & (balls.c.id == wanted.id)
        before = connection.execute(select(balls).where(mine)).first()
        if before is not None:
            if before.token == token.id and before.centre == wanted.centre:
                if table_of_version(connection, deployment, before.version) == table:
                    return False
                raise Failure(
                    "wrong_version",
                    "another table has come into force since this ball was asked for",
                    "fetch the deployment and ask again with a new id",
                )
            raise Failure("conflict", "another request has this id", "make a new id for each")
        connection.execute(
            insert(balls).values(
                deployment=deployment,
                id=wanted.id,
                token=token.id,
                version=version,
                centre=wanted.centre,
                at=now_ms(),
            )
        )
        return True

    new = await _write(here, keep)
    key = f"ball/{deployment}/{version}/{wanted.centre}/{wanted.compact}"
    body = here.files.peek(key)
    if body is None and wanted.compact:
        body = here.files.put(
            key, await _compact(here, name, version, table, asked, wanted.centre, facts)
        )
    elif body is None:
        made = await _ball(here, name, version, table, asked, wanted.centre, facts)
        body = here.files.put(key, made.model_dump_json().encode())
    return Response(body, 201 if new else 200, {"cache-control": "no-store"}, JSON)


async def _compact(
    here: Context,
    name: str,
    version: int,
    table: TableRef,
    asked: BallDeploymentRequest,
    centre: int,
    facts: dict[str, float],
) -> bytes:
    data = await run_in_threadpool(here.file, table)
    cut = await here.pool.run(
        compact_ball, data, asked.epsilon_1, asked.delta, asked.candidates, centre
    )
    signed = rows_bytes_of(name, version, cut.pop("digest"))
    ball = CompactBallRows(
        version=version,
        centre=centre,
        guarantee=_promised(facts),
        signature=here.key.sign(signed),
        key_id=here.key.id,
        **cut,
    )
    return ball.model_dump_json().encode()


def _promised(facts: dict[str, float]) -> GuaranteeInfo:
    return GuaranteeInfo(epsilon=facts["epsilon"], delta=facts["delta"], unit=str(facts["unit"]))


async def _ball(
    here: Context,
    name: str,
    version: int,
    table: TableRef,
    asked: BallDeploymentRequest,
    centre: int,
    facts: dict[str, float],
) -> BallRows:
    data = await run_in_threadpool(here.file, table)
    records, outputs, weights = await here.pool.run(
        ball_rows, data, asked.epsilon_1, asked.delta, asked.candidates, centre
    )
    signed = rows_bytes(name, version, "records", records, outputs, weights)
    return BallRows(
        version=version,
        centre=centre,
        records=records,
        outputs=outputs,
        weights=weights,
        guarantee=_promised(facts),
        signature=here.key.sign(signed),
        key_id=here.key.id,
    )


# Rounds


@router.post(
    "/v1/deployments/{name}/rounds",
    openapi_extra=accepts("RoundRequest", _ROUND),
    responses=gives(RoundInfo, 201) | fails(401, 403, 404, 409, 413),
    status_code=201,
)
async def post_round(request: Request, name: NamePath) -> Response:
    """Open the next round, which closes by time, by users or by hand."""
    token = require(request, "admin")
    here = context(request)
    wanted = await read_message(request, here, _ROUND)

    def store(connection: Connection) -> RoundInfo:
        made = stored.open_round(connection, find(connection, name), wanted)
        append(connection, here.key, round_entry(name, made.round))
        record_action(connection, token.id, "open round", f"{name}/{made.round}")
        return made

    return answer(await _write(here, store), 201)


@router.get("/v1/deployments/{name}/rounds", responses=gives(RoundList, 200) | fails(404))
async def get_rounds(
    request: Request,
    name: NamePath,
    before: Annotated[int, Query(ge=1, lt=2**31)] = 2**31 - 1,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> Response:
    """The latest rounds of a deployment, the oldest first; `before` pages back."""

    def look(connection: Connection) -> RoundList:
        row = find(connection, name)
        anchors_request(row)
        return RoundList(rounds=stored.list_rounds(connection, row.id, before, limit))

    return answer(await _read(context(request), look))


@router.get("/v1/deployments/{name}/rounds/{number}", responses=gives(RoundInfo, 200) | fails(404))
async def get_round(request: Request, name: NamePath, number: VersionPath) -> Response:
    """How a round stands."""

    def look(connection: Connection) -> RoundInfo:
        row = stored.find_round(connection, find(connection, name).id, number)
        return stored.round_info(connection, row)

    return answer(await _read(context(request), look))


@router.post(
    "/v1/deployments/{name}/rounds/{number}/close",
    responses=gives(RoundInfo, 200) | fails(401, 403, 404, 409, 413),
)
async def post_close(request: Request, name: NamePath, number: VersionPath) -> Response:
    """Take no more anchors and solve. A round that is closed already stays as it is."""
    token = require(request, "admin")
    here = context(request)

    def store(connection: Connection) -> RoundInfo:
        record_action(connection, token.id, "close round", f"{name}/{number}")
        return stored.close_by_hand(connection, find(connection, name).id, number)

    info = await _write(here, store)
    here.supervisor.wake()
    return answer(info)


@router.post(
    "/v1/deployments/{name}/rounds/{number}/anchors",
    openapi_extra=accepts("AnchorsRequest", _ANCHORS),
    responses=gives(AnchorsAccepted, 200, 201) | fails(401, 403, 404, 409, 413),
    status_code=201,
)
async def post_anchors(request: Request, name: NamePath, number: VersionPath) -> Response:
    """Upload the anchors that were drawn: one set per token and round."""
    token = require(request, "reporter")
    here = context(request)
    upload = await read_message(request, here, _ANCHORS, here.settings.anchors_bytes)

    def keep(connection: Connection) -> bool:
        row = find(connection, name)
        asked = anchors_request(row)
        records = int(domain_row(connection, asked.domain).records)
        stored.check_upload(asked, records, upload)
        return stored.store_upload(connection, row.id, number, token.id, upload)

    new = await _write(here, keep)
    here.supervisor.wake()
    return answer(AnchorsAccepted(id=upload.id, round=number), 201 if new else 200)


@router.get(
    "/v1/deployments/{name}/rounds/{number}/me",
    responses=gives(RoundUser, 200) | fails(401, 403, 404),
)
async def get_me(request: Request, name: NamePath, number: VersionPath) -> Response:
    """What became of the own upload: silent, uploaded, served or filtered."""
    token = require(request, "reporter")

    def look(connection: Connection) -> RoundUser:
        deployment = find(connection, name).id
        state = stored.user_state(connection, deployment, number, token.id)
        return RoundUser(round=number, state=state)

    return answer(await _read(context(request), look))


@router.get(
    "/v1/deployments/{name}/rounds/{number}/rows",
    responses=gives(RoundRows, 200) | fails(401, 403, 404, 409),
)
async def get_rows(request: Request, name: NamePath, number: VersionPath) -> Response:
    """The rows of the anchors that this token uploaded, and what the audit found."""
    token = require(request, "reporter")
    here = context(request)

    def make() -> bytes:
        with here.store.read() as connection:
            own = stored.own_rows(connection, find(connection, name).id, number, token.id)
        weights = decimal_rows(own.weights)
        signed = rows_bytes(name, number, "anchors", own.anchors, own.outputs, weights)
        return (
            RoundRows(
                round=number,
                anchors=own.anchors,
                outputs=own.outputs,
                weights=weights,
                plan=own.plan,
                signature=here.key.sign(signed),
                key_id=here.key.id,
            )
            .model_dump_json()
            .encode()
        )

    return Response(await run_in_threadpool(make), 200, {"cache-control": "no-store"}, JSON)
