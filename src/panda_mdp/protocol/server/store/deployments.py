"""Deployments: which table or which rounds people report through, what that guarantees, and what
the operator has signed about it: one statement for each state, for everybody."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from panda_mdp.protocol.messages.catalogue import TableRef
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
from panda_mdp.protocol.messages.signing import SigningKey, statement_bytes
from panda_mdp.protocol.messages.types import GuaranteeInfo
from panda_mdp.protocol.server.failures import Failure, unavailable
from panda_mdp.protocol.server.store.catalogue import domain_row, table_row
from panda_mdp.protocol.server.store.database import found, latest
from panda_mdp.protocol.server.store.log import append, sign_head
from panda_mdp.protocol.server.store.schema import (
    DeploymentRow,
    DomainRow,
    RoundRow,
    StatementRow,
    TableRow,
    VersionRow,
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
        msg = f"a deployment of kind {row.kind} has no rounds"
        raise Failure("not_found", msg, "fetch its table, or a ball")
    return row.request


def domain_id_of(session: Session, fingerprint: str) -> str:
    """The id of the published domain with these records, which clients of a ball fetch."""
    query = select(DomainRow.id).filter_by(fingerprint=fingerprint)
    domain_id = session.scalar(query.order_by(DomainRow.created))
    if domain_id is None:
        raise Failure(
            "conflict",
            "the records of this table are not published as a domain, and clients need all of them "
            "to draw a centre",
            "POST /v1/domains with the table's records first",
        )
    return domain_id


def store_deployment(
    session: Session, request: AnyRequest, facts: dict[str, Any]
) -> tuple[DeploymentRow, bool]:
    """Keep a deployment; and whether it is new."""
    before = session.scalar(select(DeploymentRow).filter_by(name=request.name))
    if before is not None:
        if before.request == request:
            return before, False
        remedy = "choose another name, or PATCH the one that is there"
        raise Failure("conflict", "another deployment has this name", remedy)
    row = DeploymentRow(name=request.name, kind=request.kind, request=request, facts=facts)
    session.add(row)
    session.flush()
    if request.kind != "anchors":
        _store_version(session, row, request.table)
    return row, True


def set_table(session: Session, row: DeploymentRow, ref: TableRef, facts: dict[str, Any]) -> None:
    """Put another version of the table into force; earlier reports stay with theirs."""
    if current_table(session, row) == ref:
        return
    row.version, row.facts = row.version + 1, facts
    _store_version(session, row, ref)


def set_limits(session: Session, row: DeploymentRow, limits: dict[str, Any]) -> None:
    """Other limits of a deployment: signed anew, under another version, with the table in force."""
    if row.request.kind == "anchors":
        raise Failure(
            "invalid",
            "the limits of an anchors deployment are signed once and do not change",
            "close it, and make a new deployment",
        )
    changed = row.request.model_copy(update=limits)
    if changed == row.request:
        return
    ref = current_table(session, row)
    row.version, row.request = row.version + 1, changed
    _store_version(session, row, ref)


def _store_version(session: Session, row: DeploymentRow, ref: TableRef) -> None:
    session.add(
        VersionRow(
            deployment=row.id,
            version=row.version,
            table_name=ref.name,
            table_version=ref.version,
        )
    )
    session.flush()


def current_table(session: Session, row: DeploymentRow) -> TableRef:
    """The table in force."""
    return table_of_version(session, row.id, row.version)


def table_of_version(session: Session, key: int, version: int) -> TableRef:
    """The table that was in force in a version of a deployment."""
    return session.get_one(VersionRow, (key, version)).table


def solved_round(session: Session, deployment: int) -> int:
    """The latest round that has a table, which is the one in force; 0 where there is none."""
    row = latest(session, RoundRow, RoundRow.number, deployment=deployment, state="solved")
    return 0 if row is None else row.number


# What is said


_MODELS: dict[str, type[AnyDeployment]] = {
    "table": TableDeployment,
    "ball": BallDeployment,
    "panda": PandaDeployment,
    "anchors": AnchorsDeployment,
}


def describe(session: Session, row: DeploymentRow) -> AnyDeployment:
    """Everything that a client needs to draw, and to know what it costs."""
    signed = latest(session, StatementRow, StatementRow.seq, name=row.name)
    if signed is None:
        msg = "the operator has not signed this deployment yet"
        raise unavailable(msg, "ask again in a moment")
    said = _fields(session, row) | {"statement": signed.text, "signature": signed.signature}
    return _MODELS[row.kind](**said)


def _fields(session: Session, row: DeploymentRow) -> dict[str, Any]:
    """What a deployment says: what was asked for, what was computed, and what is in force."""
    request, names = row.request, _MODELS[row.kind].model_fields.keys()
    said = {name: getattr(request, name) for name in names & type(request).model_fields.keys()}
    said |= {name: row.facts[name] for name in names & row.facts.keys()}
    said |= {"version": row.version, "open": row.open, "created": row.created}
    if said["guarantee"] is not None:
        said["guarantee"] = GuaranteeInfo(**said["guarantee"])
    if request.kind == "anchors":
        in_force = solved_round(session, row.id)
        is_open = select(RoundRow.number).filter_by(deployment=row.id, state="open")
        said["round"] = session.scalar(is_open)
        return said | {"version": max(1, in_force), "in_force": in_force or None}
    said["table"] = table_row(session, current_table(session, row)).info
    if request.kind == "ball":
        said["domain"] = domain_id_of(session, said["table"].domain)
    return said


# What is signed


def sign_deployment(session: Session, key: SigningKey, row: DeploymentRow) -> None:
    """Sign what a deployment says now, unless the latest statement says the same."""
    stated = _statement(session, row)
    before = latest(session, StatementRow, StatementRow.seq, name=row.name)
    text = stated.model_dump_json()
    if before and Statement.model_validate_json(before.text).content == stated.content:
        if key.signed(statement_bytes(row.name, before.text), before.signature):
            return
        # Another key signs the same words.
        text = before.text
    signed = statement_bytes(row.name, text)
    append(session, key, signed)
    session.add(StatementRow(name=row.name, text=text, signature=key.sign(signed)))
    session.flush()


def sign_all(session: Session, key: SigningKey) -> None:
    """Sign what this key has not signed, but one that it replaces."""
    for row in session.scalars(select(TableRow)):
        info = row.info
        if not key.signed(info.signed, info.signature):
            again = {"signature": key.sign(info.signed), "key_id": key.id}
            row.info = info.model_copy(update=again)
    for deployment in all_deployments(session):
        sign_deployment(session, key, deployment)
    sign_head(session, key)


def _statement(session: Session, row: DeploymentRow) -> Statement:
    stated = _MODELS[row.kind].model_construct(**_fields(session, row)).stated()
    stated |= {"kind": row.kind, "issued": now_ms() // 1000}
    if row.request.kind == "anchors":
        domain = domain_row(session, row.request.domain)
        stated |= {"metric": domain.kind, "unit": domain.unit, "domain": domain.fingerprint}
    else:
        ref = current_table(session, row)
        stated |= {"metric": table_row(session, ref).metric, "table": ref}
    return Statement(**stated)
