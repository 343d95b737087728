"""Deployments: which table or which rounds people report through, what that guarantees, and what
the operator has signed about it: one statement for each state, for everybody."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from panda_mdp.base.text import Facts, picked
from panda_mdp.protocol.messages.blind import new_issuer
from panda_mdp.protocol.messages.catalogue import Places, TableRef
from panda_mdp.protocol.messages.deployments import (
    AnchorsDeployment,
    AnchorsDeploymentRequest,
    AnyDeployment,
    AnyRequest,
    BallDeployment,
    PandaDeployment,
    Statement,
    TableDeployment,
)
from panda_mdp.protocol.messages.signing import SigningKey, signed_bytes, statement_bytes
from panda_mdp.protocol.messages.types import GuaranteeInfo
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.store.catalogue import domain_row, table_row
from panda_mdp.protocol.server.store.database import Store, found, latest
from panda_mdp.protocol.server.store.log import append, sign_head
from panda_mdp.protocol.server.store.schema import (
    DeploymentRow,
    IssuerRow,
    RoundRow,
    TableRow,
    now_ms,
)


def find(session: Session, name: str) -> DeploymentRow:
    """A stored deployment."""
    row = session.scalar(select(DeploymentRow).filter_by(name=name))
    return found(row, "deployment of this name", "GET /v1/deployments lists them")


def all_deployments(session: Session) -> list[DeploymentRow]:
    """Every stored deployment, in the order in which they were made."""
    return list(session.scalars(select(DeploymentRow).order_by(DeploymentRow.id)))


def anchors_request(row: DeploymentRow) -> AnchorsDeploymentRequest:
    """The request of a deployment, which must have rounds."""
    if row.request.kind != "anchors":
        msg = f"a deployment of kind {row.request.kind} has no rounds"
        raise Failure("not_found", msg, "fetch its table, or a ball")
    return row.request


def find_round(session: Session, name: str, number: int) -> RoundRow:
    """A round of a deployment: open, then solving, at last solved or failed."""
    row = session.get(RoundRow, (find(session, name).id, number))
    return found(row, "such round", "GET .../rounds lists them")


def store_deployment(
    session: Session, request: AnyRequest, facts: Facts
) -> tuple[DeploymentRow, bool]:
    """Keep a deployment; and whether it is new."""
    tables = [] if request.kind == "anchors" else [request.table]
    row = DeploymentRow(name=request.name, request=request, facts=facts, tables=tables)
    before = session.scalar(select(DeploymentRow).filter_by(name=request.name))
    if before is None:
        session.add(row)
        session.flush()
        return row, True
    if before.request != request:
        remedy = "choose another name, or PATCH the one that is there"
        raise Failure("conflict", "another deployment has this name", remedy)
    return before, False


def set_terms(row: DeploymentRow, table: TableRef, facts: Facts, limits: Facts) -> None:
    """Put another table or other limits into force, signed under the next version; earlier reports
    stay with their table."""
    request = row.request.model_copy(update=limits)
    if (table, request) != (row.tables[-1], row.request):
        row.version = row.version + 1
        row.tables = [*row.tables, table]
        row.request = request
        row.facts = facts


def current_table(session: Session, row: DeploymentRow) -> TableRow:
    """The table in force."""
    return table_row(session, row.tables[-1])


def solved_round(session: Session, deployment: int) -> int:
    """The latest round that has a table, which is the one in force; 0 where there is none."""
    row = latest(session, RoundRow, RoundRow.round, deployment=deployment, state="solved")
    return 0 if row is None else row.round


def make_issuers(session: Session, key: SigningKey, name: str, period: int) -> None:
    """The keys of a deployment's one-use tokens in a period and the one after, which witnesses can
    sign before it begins. In the log a period is followed by its key."""
    deployment = find(session, name).id
    for number in (period, period + 1):
        if session.get(IssuerRow, (deployment, number)) is None:
            modulus, exponent = new_issuer()
            made = {"deployment": deployment, "period": number}
            session.add(IssuerRow(**made, modulus=modulus, exponent=exponent))
            append(session, key, signed_bytes("issuer", name, number))
            append(session, key, signed_bytes("issuer", name, number, modulus))
    Store.count_change(session, "deployment_changes")


# What is said


_MODELS: dict[str, type[AnyDeployment]] = {
    "table": TableDeployment,
    "ball": BallDeployment,
    "panda": PandaDeployment,
    "anchors": AnchorsDeployment,
}


def describe(session: Session, row: DeploymentRow) -> AnyDeployment:
    """Everything that a client needs to draw, and to know what it costs."""
    said = _fields(session, row) | picked(row, "statement", "signature")
    return _MODELS[row.request.kind](**said)


def _fields(session: Session, row: DeploymentRow) -> Facts:
    """What a deployment says: what was asked for, what was computed, and what is in force."""
    request = row.request
    names = _MODELS[row.request.kind].model_fields.keys()
    said = picked(request, *names & type(request).model_fields.keys())
    said |= {name: row.facts[name] for name in names & row.facts.keys()}
    said |= picked(row, "version", "open", "created")
    if said["guarantee"] is not None:
        said["guarantee"] = GuaranteeInfo(**said["guarantee"])
    if request.kind == "ball":
        said["places"] = Places(**said["places"])
    if request.kind == "anchors":
        in_force = solved_round(session, row.id)
        is_open = select(RoundRow.round).filter_by(deployment=row.id, state="open")
        said["round"] = session.scalar(is_open)
        return said | {"version": max(1, in_force), "in_force": in_force or None}
    return said | {"table": current_table(session, row).info}


# What is signed


def sign_deployment(session: Session, key: SigningKey, row: DeploymentRow) -> None:
    """Sign what a deployment says now, unless it is signed already."""
    stated = _statement(session, row)
    before = row.statement
    if before and Statement.model_validate_json(before).content == stated.content:
        # Another key signs the same words.
        text = before
    else:
        text = stated.model_dump_json()
    signed = statement_bytes(row.name, text)
    if text != before or not key.signed(signed, row.signature):
        append(session, key, signed)
        row.statement = text
        row.signature = key.sign(signed)


def sign_all(session: Session, key: SigningKey) -> None:
    """Sign what this key has not signed, but one that it replaces."""
    for row in session.scalars(select(TableRow)):
        if not key.signed(row.info.signed, row.info.signature):
            again = {"signature": key.sign(row.info.signed), "key_id": key.id}
            row.info = row.info.model_copy(update=again)
    for deployment in all_deployments(session):
        sign_deployment(session, key, deployment)
    sign_head(session, key)


def _statement(session: Session, row: DeploymentRow) -> Statement:
    stated = _MODELS[row.request.kind].model_construct(**_fields(session, row)).stated()
    stated |= {"kind": row.request.kind, "issued": now_ms() // 1000}
    if row.request.kind == "anchors":
        domain = domain_row(session, row.request.domain).fingerprint
        stated |= {"metric": "haversine", "unit": "km", "domain": domain}
    elif row.request.kind != "ball":
        stated |= {"metric": current_table(session, row).metric}
    return Statement(**stated)
