"""Deployments: made and changed by operators, read by everyone."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import TypeAdapter
from sqlalchemy import Connection
from starlette.concurrency import run_in_threadpool

from panda_mdp.protocol.messages.catalogue import TableRef
from panda_mdp.protocol.messages.deployments import (
    AnchorsDeploymentRequest,
    BallDeploymentRequest,
    Deployment,
    DeploymentList,
    DeploymentPatch,
    PandaDeploymentRequest,
    deployment_request,
)
from panda_mdp.protocol.server.bodies import read_message
from panda_mdp.protocol.server.context import Context
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.routes.common import (
    NamePath,
    Responses,
    accepts,
    answer,
    context,
    fails,
    gives,
    require,
)
from panda_mdp.protocol.server.solving import ball_facts
from panda_mdp.protocol.server.store import deployments as stored
from panda_mdp.protocol.server.store.actions import record_action
from panda_mdp.protocol.server.store.catalogue import (
    domain_row,
    is_everywhere,
    is_panda,
    promise_of_panda,
    table_info,
)
from panda_mdp.protocol.server.store.rounds import certify_request
from panda_mdp.protocol.server.store.statements import sign_deployment

router = APIRouter()
_PATCH = TypeAdapter(DeploymentPatch)
_GIVES: Responses = {
    200: {"model": Deployment, "description": "As asked."},
    201: {"model": Deployment, "description": "Made."},
}


@router.post(
    "/v1/deployments",
    openapi_extra=accepts("DeploymentRequest", deployment_request),
    responses=_GIVES | fails(401, 403, 404, 409, 413),
    status_code=201,
)
async def post_deployment(request: Request) -> Response:
    """Open a deployment of kind table, ball, panda or anchors.

    An anchors deployment for which no guarantee can be certified is refused, unless
    `accept_no_guarantee` says that this is known; every answer about it then says so too.
    """
    token = require(request, "admin")
    here = context(request)
    wanted = await read_message(request, here, deployment_request, here.settings.document_bytes)
    facts = await _facts(here, wanted)

    def store() -> tuple[stored.Described, bool]:
        with here.store.write() as connection:
            name, new = stored.store_deployment(connection, wanted, facts)
            row = stored.find(connection, name)
            sign_deployment(connection, here.key, row)
            if new:
                record_action(connection, token.id, "open deployment", name, wanted.kind)
            here.store.count_change(connection, "deployment_changes")
            return stored.describe(connection, row), new

    described, new = await run_in_threadpool(store)
    here.live.forget()
    return answer(described, 201 if new else 200)


async def _facts(here: Context, wanted: stored.Request) -> dict[str, Any]:
    """What the deployment can promise; raises where its parts do not exist or do not fit."""
    if isinstance(wanted, AnchorsDeploymentRequest):
        return await _anchors_facts(here, wanted)
    return await _table_facts(here, wanted, wanted.table)


async def _table_facts(here: Context, wanted: stored.Request, ref: TableRef) -> dict[str, Any]:
    def look() -> None:
        with here.store.read() as connection:
            info = table_info(connection, ref)
            if isinstance(wanted, BallDeploymentRequest):
                stored.domain_id_of(connection, info.domain)

    await run_in_threadpool(look)
    data = await run_in_threadpool(here.file, ref)
    phased = await run_in_threadpool(is_panda, data)
    if phased != isinstance(wanted, PandaDeploymentRequest):
        raise Failure(
            "invalid",
            "table: a table of PAnDA, whose rows belong to anchors or balls and not to records"
            if phased
            else "table: a plain table, which has no first phase",
            "use kind panda" if phased else "use kind table or ball, or publish PandaResult.save's",
        )
    if phased:
        return await run_in_threadpool(promise_of_panda, data)
    if not isinstance(wanted, BallDeploymentRequest):
        return {}
    if await run_in_threadpool(is_everywhere, data):
        raise Failure(
            "invalid",
            "table: one for every point of an area, which has no balls",
            "use kind table",
        )
    return await here.pool.run(ball_facts, data, wanted.epsilon_1, wanted.delta, wanted.candidates)


async def _anchors_facts(here: Context, wanted: AnchorsDeploymentRequest) -> dict[str, Any]:
    def look() -> tuple[dict[str, Any], bytes]:
        with here.store.read() as connection:
            row = domain_row(connection, wanted.domain)
            claims = {"kind": row.kind, "unit": row.unit, "fingerprint": row.fingerprint}
            return claims, bytes(row.arrays)

    claims, arrays = await run_in_threadpool(look)
    facts = await here.pool.run(certify_request, wanted.model_dump_json(), claims, arrays)
    if facts["guarantee"] is None and not wanted.accept_no_guarantee:
        raise Failure(
            "invalid",
            "selection: no guarantee can be certified for these anchors: "
            + " ".join(facts["reasons"])[:1_500],
            "choose parameters that fit (pm.calibrate), or kind ball or table, which always have a "
            "guarantee; accept_no_guarantee: true opens it without one",
        )
    return facts


@router.get("/v1/deployments", responses=gives(DeploymentList, 200) | fails())
def get_deployments(request: Request) -> Response:
    """All deployments."""
    with context(request).store.read() as connection:
        return answer(DeploymentList(deployments=stored.describe_all(connection)))


@router.get("/v1/deployments/{name}", responses=fails(404) | {200: _GIVES[200]})
def get_deployment(request: Request, name: NamePath) -> Response:
    """Everything that a client needs to draw, and to know what it costs."""
    with context(request).store.read() as connection:
        return answer(stored.describe(connection, stored.find(connection, name)))


@router.patch(
    "/v1/deployments/{name}",
    openapi_extra=accepts("DeploymentPatch", _PATCH),
    responses=fails(401, 403, 404, 409, 413) | {200: _GIVES[200]},
)
async def patch_deployment(request: Request, name: NamePath) -> Response:
    """Put another table or other limits into force, or stop and start taking reports."""
    token = require(request, "admin")
    here = context(request)
    patch = await read_message(request, here, _PATCH)

    def look() -> stored.Request:
        with here.store.read() as connection:
            return stored.request_of(stored.find(connection, name))

    wanted = await run_in_threadpool(look)
    facts: dict[str, Any] = {}
    if patch.table is not None:
        if isinstance(wanted, AnchorsDeploymentRequest):
            raise Failure(
                "invalid",
                "table: an anchors deployment has no table; its rounds make them",
                "POST .../rounds opens the next one",
            )
        facts = await _table_facts(here, wanted, patch.table)

    def change(connection: Connection) -> stored.Described:
        if patch.table is not None:
            _check_same_outputs(connection, name, patch.table)
            stored.set_table(connection, name, patch.table, facts)
        limits = patch.model_dump(include={"reports_per_period", "until"}, exclude_none=True)
        if limits:
            stored.set_limits(connection, name, limits)
        if patch.open is not None:
            stored.set_open(connection, name, patch.open)
        changes = patch.model_dump_json(exclude_none=True)
        record_action(connection, token.id, "change deployment", name, changes)
        row = stored.find(connection, name)
        sign_deployment(connection, here.key, row)
        here.store.count_change(connection, "deployment_changes")
        return stored.describe(connection, row)

    def store() -> stored.Described:
        with here.store.write() as connection:
            return change(connection)

    described = await run_in_threadpool(store)
    here.live.forget()
    return answer(described)


def _check_same_outputs(connection: Connection, name: str, ref: TableRef) -> None:
    """Another table of a deployment is about the same records, or counts would not add up."""
    before = table_info(connection, stored.current_table(connection, stored.find(connection, name)))
    if table_info(connection, ref).domain != before.domain:
        raise Failure(
            "conflict",
            "the table has other records than the one in force",
            "make a new deployment for other records",
        )
