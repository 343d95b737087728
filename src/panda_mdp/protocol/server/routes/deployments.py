"""Deployments: made and changed by operators, read by everyone."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi.responses import Response
from sqlalchemy.orm import Session

from panda_mdp.protocol.messages.catalogue import TableRef
from panda_mdp.protocol.messages.deployments import (
    AnchorsDeploymentRequest,
    AnyDeployment,
    AnyRequest,
    BallDeploymentRequest,
    Deployment,
    DeploymentList,
    DeploymentPatch,
    deployment_request,
)
from panda_mdp.protocol.server.context import Context
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.routes import Admin, NamePath, Routes, Shared, answer, body_of
from panda_mdp.protocol.server.solving import BallTable, anchors_facts
from panda_mdp.protocol.server.store import deployments as stored
from panda_mdp.protocol.server.store.catalogue import domain_parts, domain_row, table_row
from panda_mdp.protocol.server.store.log import record_action
from panda_mdp.protocol.server.store.schema import TableRow

router = Routes()


@router.serves("POST", "/v1/deployments", Deployment, 201, 200, also=404)
async def post_deployment(
    context: Shared,
    operator: Admin,
    request: Annotated[
        Any, body_of(deployment_request, "document_bytes", name="DeploymentRequest")
    ],
) -> Response:
    """Open a deployment of kind table, ball, panda or anchors.

    An anchors deployment for which no guarantee can be certified is refused, unless
    `accept_no_guarantee` says that this is known; every answer about it then says so too.
    """
    facts = await _facts(context, request)

    def store(session: Session) -> tuple[AnyDeployment, bool]:
        row, new = stored.store_deployment(session, request, facts)
        stored.sign_deployment(session, context.key, row)
        if new:
            record_action(session, operator.id, "open deployment", row.name, row.kind)
        context.store.count_change(session, "deployment_changes")
        return stored.describe(session, row), new

    described, new = await context.write(store)
    context.live.forget()
    return answer(described, 201 if new else 200)


async def _facts(context: Context, request: AnyRequest) -> dict[str, Any]:
    """What the deployment can promise; raises where its parts do not exist or do not fit."""
    if request.kind == "anchors":
        return await _anchors_facts(context, request)
    return await _table_facts(context, request, request.table)


async def _table_facts(context: Context, request: AnyRequest, ref: TableRef) -> dict[str, Any]:
    def look(session: Session) -> TableRow:
        row = table_row(session, ref)
        if request.kind == "ball":
            stored.domain_id_of(session, row.info.domain)
        return row

    table = await context.read(look)
    if (table.kind == "panda") != (request.kind == "panda"):
        raise Failure(
            "invalid",
            "table: a table of PAnDA, whose rows belong to anchors or balls and not to records"
            if table.kind == "panda"
            else "table: a plain table, which has no first phase",
            "use kind panda"
            if table.kind == "panda"
            else "use kind table or ball, or publish PandaResult.save's",
        )
    if request.kind != "ball":
        return table.promise
    if table.kind == "everywhere":
        msg = "table: one for every point of an area, which has no balls"
        raise Failure("invalid", msg, "use kind table")
    return await context.pool.run(BallTable.facts, await ball_table(context, request, ref))


async def ball_table(context: Context, request: BallDeploymentRequest, ref: TableRef) -> BallTable:
    """The table of a ball deployment."""
    candidates = None if request.candidates is None else tuple(request.candidates)
    return BallTable(await context.file(ref), request.epsilon_1, request.delta, candidates)


async def _anchors_facts(context: Context, request: AnchorsDeploymentRequest) -> dict[str, Any]:
    domain = await context.read(lambda session: domain_parts(domain_row(session, request.domain)))
    facts = await context.pool.run(anchors_facts, request, domain)
    if facts["guarantee"] is None and not request.accept_no_guarantee:
        raise Failure(
            "invalid",
            "selection: no guarantee can be certified for these anchors: "
            + " ".join(facts["reasons"])[:1_500],
            "choose parameters that fit (pm.calibrate), or kind ball or table, which always have a "
            "guarantee; accept_no_guarantee: true opens it without one",
        )
    return facts


@router.serves("GET", "/v1/deployments", DeploymentList)
def get_deployments(context: Shared) -> Response:
    """All deployments, in the order in which they were made."""
    with context.store.read() as session:
        rows = stored.all_deployments(session)
        described = [stored.describe(session, row) for row in rows]
    return answer(DeploymentList(deployments=described))


@router.serves("GET", "/v1/deployments/{name}", Deployment)
def get_deployment(context: Shared, name: NamePath) -> Response:
    """Everything that a client needs to draw, and to know what it costs."""
    with context.store.read() as session:
        return answer(stored.describe(session, stored.find(session, name)))


@router.serves("PATCH", "/v1/deployments/{name}", Deployment)
async def patch_deployment(
    context: Shared,
    operator: Admin,
    name: NamePath,
    patch: Annotated[DeploymentPatch, body_of(DeploymentPatch)],
) -> Response:
    """Put another table or other limits into force, or stop and start taking reports."""
    request = await context.read(lambda session: stored.find(session, name).request)
    facts: dict[str, Any] = {}
    if patch.table is not None:
        if request.kind == "anchors":
            raise Failure(
                "invalid",
                "table: an anchors deployment has no table; its rounds make them",
                "POST .../rounds opens the next one",
            )
        facts = await _table_facts(context, request, patch.table)

    def change(session: Session) -> AnyDeployment:
        row = stored.find(session, name)
        if patch.table is not None:
            _check_same_outputs(session, stored.current_table(session, row), patch.table)
            stored.set_table(session, row, patch.table, facts)
        limits = patch.model_dump(include={"reports_per_period", "until"}, exclude_none=True)
        if limits:
            stored.set_limits(session, row, limits)
        if patch.open is not None:
            row.open = patch.open
        changes = patch.model_dump_json(exclude_none=True)
        record_action(session, operator.id, "change deployment", name, changes)
        stored.sign_deployment(session, context.key, row)
        context.store.count_change(session, "deployment_changes")
        return stored.describe(session, row)

    described = await context.write(change)
    context.live.forget()
    return answer(described)


def _check_same_outputs(session: Session, before: TableRef, after: TableRef) -> None:
    """Another table of a deployment is about the same records, or counts would not add up."""
    if table_row(session, before).info.domain != table_row(session, after).info.domain:
        raise Failure(
            "conflict",
            "the table has other records than the one in force",
            "make a new deployment for other records",
        )
