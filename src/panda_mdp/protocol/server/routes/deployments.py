"""Deployments: made and changed by operators, read by everyone."""

from __future__ import annotations

from typing import Annotated, Any

from sqlalchemy.orm import Session

from panda_mdp.base.text import Facts
from panda_mdp.protocol.messages.catalogue import TableRef
from panda_mdp.protocol.messages.deployments import (
    AnchorsDeploymentRequest,
    AnyDeployment,
    AnyRequest,
    Deployment,
    DeploymentList,
    DeploymentPatch,
    DeploymentRequest,
)
from panda_mdp.protocol.messages.types import Name
from panda_mdp.protocol.server.context import Context
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.routes import Admin, Reading, Routes, Shared, body_of
from panda_mdp.protocol.server.solving import anchors_facts, ball_facts
from panda_mdp.protocol.server.store import deployments as stored
from panda_mdp.protocol.server.store.catalogue import domain_row, table_row
from panda_mdp.protocol.server.store.log import record_action
from panda_mdp.protocol.server.store.schema import DeploymentRow

router = Routes()
_USES = {"plain": ("table", "ball"), "everywhere": ("table",), "panda": ("panda",)}
"""Which deployments a file of each kind is for."""


@router.serves("POST", "/v1/deployments", Deployment, 201, 200)
def post_deployment(
    context: Shared,
    operator: Admin,
    request: Annotated[Any, body_of(DeploymentRequest, "DeploymentRequest")],
) -> tuple[AnyDeployment, bool]:
    """Open a deployment of kind table, ball, panda or anchors.

    An anchors deployment for which no guarantee can be certified is refused, unless
    `accept_no_guarantee` says that this is known; every answer about it then says so too.
    """
    if request.kind == "anchors":
        facts = _anchors_facts(context, request)
    else:
        facts = _table_facts(context, request, request.table)
    with context.store.write() as session:
        row, new = stored.store_deployment(session, request, facts)
        if new:
            record_action(session, operator.id, "open deployment", row.name, row.request.kind)
        return _signed(context, session, row), new


def _signed(context: Context, session: Session, row: DeploymentRow) -> AnyDeployment:
    """What is said about a deployment that was changed."""
    stored.sign_deployment(session, context.key, row)
    context.store.count_change(session, "deployment_changes")
    return stored.describe(session, row)


def _table_facts(context: Context, request: AnyRequest, ref: TableRef) -> Facts:
    """What the deployment can promise; raises where its parts do not exist or do not fit."""
    with context.store.read() as session:
        table = table_row(session, ref)
    if request.kind not in _USES[table.kind]:
        kinds = " or ".join(_USES[table.kind])
        msg = f"table: a file of kind {table.kind}, which a deployment of this kind has no use for"
        raise Failure("invalid", msg, f"use kind {kinds}, or publish another file")
    if request.kind != "ball":
        return table.promise
    facts, tiles = context.pool.run(ball_facts, context.file(ref), request)
    with context.store.write() as session:
        table_row(session, ref).tiles = tiles
    return facts


def _anchors_facts(context: Context, request: AnchorsDeploymentRequest) -> Facts:
    with context.store.read() as session:
        places = domain_row(session, request.domain).places
    facts = context.pool.run(anchors_facts, request, places)
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
def get_deployments(session: Reading) -> DeploymentList:
    """All deployments, in the order in which they were made."""
    rows = stored.all_deployments(session)
    return DeploymentList(deployments=[stored.describe(session, row) for row in rows])


@router.serves("GET", "/v1/deployments/{name}", Deployment)
def get_deployment(session: Reading, name: Name) -> AnyDeployment:
    """Everything that a client needs to draw, and to know what it costs."""
    return stored.describe(session, stored.find(session, name))


@router.serves("PATCH", "/v1/deployments/{name}", Deployment)
def patch_deployment(
    context: Shared,
    operator: Admin,
    name: Name,
    patch: DeploymentPatch,
) -> AnyDeployment:
    """Put another table or other limits into force, or stop and start taking reports."""
    with context.store.read() as session:
        request = stored.find(session, name).request
    limits = patch.model_dump(include={"reports_per_period", "until"}, exclude_none=True)
    if request.kind == "anchors" and (patch.table or limits):
        raise Failure(
            "invalid",
            "an anchors deployment has no table, its rounds make them; and its limits are signed "
            "once and do not change",
            "POST .../rounds opens the next round; for other limits make a new deployment",
        )
    facts = None if patch.table is None else _table_facts(context, request, patch.table)
    with context.store.write() as session:
        row = stored.find(session, name)
        if patch.table or limits:
            table = patch.table or row.tables[-1]
            before = stored.current_table(session, row)
            if before.info.domain != table_row(session, table).info.domain:
                # Counts of one deployment are about the same records, or would not add up.
                raise Failure(
                    "conflict",
                    "the table has other records than the one in force",
                    "make a new deployment for other records",
                )
            stored.set_terms(row, table, facts or row.facts, limits)
        if patch.open is not None:
            row.open = patch.open
        changes = patch.model_dump_json(exclude_none=True)
        record_action(session, operator.id, "change deployment", name, changes)
        return _signed(context, session, row)
